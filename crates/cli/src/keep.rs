//! Where runs and proofs are kept.

use crate::{face, user};
use anyhow::{Context, bail};
use quiet_linux::files::{self, Replace};
use quiet_store::{Filter, Kept, Store, StoreOwner};
use quiet_types::Run;
use std::{
    io::{Read, Write},
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
    process::ExitCode,
};

/// The store in `dir` where one is named, else `$XDG_DATA_HOME/quietcores`, else
/// `~/.local/share/quietcores`. Under sudo that is the store of the user who asked, and root keeps
/// files there with this user's rights.
///
/// # Errors
/// When neither `XDG_DATA_HOME` nor `HOME` is an absolute path.
///
/// # Source
/// XDG Base Directory Specification 0.8: a relative path in the variable is to be ignored.
pub fn store(dir: Option<&Path>) -> anyhow::Result<Store> {
    let dir = match dir {
        Some(dir) => dir.to_owned(),
        None => data()?.join("quietcores"),
    };
    let owner = user::owner(&dir);
    Ok(Store::at(dir).of(owner))
}

fn data() -> anyhow::Result<PathBuf> {
    let absolute = |name| std::env::var_os(name).map(PathBuf::from).filter(|p| p.is_absolute());
    if let Some(data) = absolute("XDG_DATA_HOME") {
        return Ok(data);
    }
    // Some sudo keep HOME, others set root's.
    let home = match user::asking() {
        Some(user) => {
            Some(absolute("HOME").filter(|home| *home != user::roots_home()).unwrap_or(user.home))
        }
        None => absolute("HOME"),
    };
    let home = home.context(
        "cannot tell where runs are kept: HOME is not set; name a directory: --store DIR",
    )?;
    Ok(home.join(".local/share"))
}

/// As [`store`], where something of this kind (`runs`, `proofs` ...) is to be kept: tried now, before the
/// time for measuring is spent.
///
/// # Errors
/// When nothing can be kept there: why, and what to do.
pub fn ready(dir: Option<&Path>, kind: &str) -> anyhow::Result<Store> {
    let store = store(dir)?;
    let Err(error) = store.ready(kind) else { return Ok(store) };
    let me = store.owner().map_or(rustix::process::geteuid().as_raw(), |owner| owner.uid);
    // From within outwards: what earlier versions made for root lies in a home of the user's.
    let whose = [store.dir().join(kind), store.dir().to_owned()]
        .into_iter()
        .find_map(|dir| Some((dir.metadata().ok()?.uid(), dir)).filter(|(uid, _)| *uid != me));
    let shown = store.dir().display();
    match whose {
        Some((uid, _)) if error.is_denied() && me != 0 => {
            let whose = if uid == 0 { "root".to_owned() } else { format!("user {uid}") };
            bail!(
                "nothing is measured, as nothing could be kept: {error}. {shown} belongs to {whose}: \
                 `sudo chown -R {me} {shown}` makes it yours, or name another directory: --store DIR"
            )
        }
        _ => bail!(
            "nothing is measured, as nothing could be kept: {error}; make room there, or name another \
             directory: --store DIR"
        ),
    }
}

/// A file that a result goes to.
#[derive(Debug)]
pub struct Target {
    path: PathBuf,
    /// With whose rights root writes it.
    owner: Option<StoreOwner>,
    /// A device or a pipe: written to, not replaced.
    stream: bool,
}

impl Target {
    /// For a page or text: nothing is there, or one of ours.
    ///
    /// # Errors
    /// When something else is there, or nothing can be written.
    pub fn page(path: &Path) -> anyhow::Result<Target> {
        let target = Target { path: path.to_owned(), owner: user::owner(path), stream: false };
        target.act(|| may_replace(path))??;
        target.tried()
    }

    /// For data: whatever is there is replaced.
    ///
    /// # Errors
    /// When nothing can be written.
    pub fn data(path: &Path) -> anyhow::Result<Target> {
        let owner = user::owner(path);
        let shown = path.display();
        let mut target = Target { path: path.to_owned(), owner, stream: false };
        let look = || -> anyhow::Result<(PathBuf, bool)> {
            match path.metadata() {
                Ok(there) if there.is_dir() => bail!("cannot write {shown}: it is a directory"),
                Ok(there) if !there.is_file() => Ok((path.to_owned(), true)),
                Ok(_) => {
                    let file = std::fs::File::options().write(true).open(path);
                    file.with_context(|| format!("cannot write {shown}"))?;
                    // What a link leads to is replaced, not the link.
                    Ok((path.canonicalize()?, false))
                }
                // Not there, or a reason that shows itself when it is tried.
                Err(_) => Ok((path.to_owned(), false)),
            }
        };
        (target.path, target.stream) = target.act(look)??;
        target.tried()
    }

    fn tried(self) -> anyhow::Result<Target> {
        if !self.stream {
            self.act(|| files::room(&self.path))?
                .with_context(|| format!("cannot write {}", self.path.display()))?;
        }
        Ok(self)
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Writes it, whole or not at all where it is a file.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn write(&self, what: impl AsRef<[u8]>) -> anyhow::Result<()> {
        let what = what.as_ref();
        let shown = self.path.display();
        self.act(|| {
            if self.stream {
                let file = std::fs::File::options().write(true).open(&self.path);
                let done = file.and_then(|mut file| file.write_all(what));
                return done.with_context(|| format!("cannot write {shown}"));
            }
            files::write_whole(&self.path, what, Replace::Always)
                .map_err(|e| quiet_linux::Error::io("write", shown.to_string(), e).into())
        })?
    }

    fn act<T>(&self, act: impl FnOnce() -> T) -> anyhow::Result<T> {
        as_owner(self.owner, act)
    }
}

/// Does something with the rights of `owner`, where root has one.
pub fn as_owner<T>(owner: Option<StoreOwner>, act: impl FnOnce() -> T) -> anyhow::Result<T> {
    match owner {
        Some(owner) => Ok(owner.act(act)?),
        None => Ok(act()),
    }
}

/// What was measured and could not be kept. The figures are shown all the same; the end tells of it.
#[derive(Debug, Default)]
pub struct Losses(Vec<String>);

impl Losses {
    /// What came of keeping `what`; a failure is remembered.
    pub fn of<T>(&mut self, what: &str, done: Result<T, impl Into<anyhow::Error>>) -> Option<T> {
        done.map_err(|error| self.0.push(format!("{what} is not kept: {:#}", error.into()))).ok()
    }

    /// Says what is lost; then the status is that of an error.
    pub fn end(self, otherwise: ExitCode) -> ExitCode {
        for lost in &self.0 {
            face::say(&format!("quietcores: {lost}"));
        }
        if self.0.is_empty() { otherwise } else { ExitCode::from(2) }
    }
}

/// Whether a page may be written there: nothing is there, or a page of ours.
///
/// # Errors
/// When something else is there.
pub fn may_replace(path: &Path) -> anyhow::Result<()> {
    let shown = path.display();
    let mut head = Vec::new();
    match path.symlink_metadata() {
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(()),
        Err(e) => return Err(e).with_context(|| format!("cannot look at {shown}")),
        Ok(there) if !there.is_file() => {
            bail!("cannot write {shown}: something is there that is no file; name another: -o FILE")
        }
        Ok(_) => {
            let file = std::fs::File::open(path).with_context(|| format!("cannot read {shown}"))?;
            file.take(4096)
                .read_to_end(&mut head)
                .with_context(|| format!("cannot read {shown}"))?;
        }
    }
    let mark = quiet_report::PAGE_MARK.as_bytes();
    if !head.windows(mark.len()).any(|part| part == mark) {
        bail!(
            "cannot write {shown}: a file is there that quietcores did not write; use --force to replace it"
        );
    }
    Ok(())
}

/// The runs that are meant by conditions (`kernel=6.17*,label=x`), or by ids, beginnings with `*`,
/// files and `last` (the newest run), joined by commas.
///
/// # Errors
/// When a condition is none, or one of the named cannot be found or read.
pub fn runs(store: &Store, text: &str) -> anyhow::Result<Vec<Run>> {
    let of_filter = |filter: &Filter| -> anyhow::Result<Vec<Run>> {
        let lines = store.index()?.lines(filter, usize::MAX)?;
        Ok(lines.iter().map(|line| store.run(&line.id)).collect::<Result<_, _>>()?)
    };
    let is_file = |part: &str| part.contains('/') || part.ends_with(".json");
    if text.split(',').all(|part| part.contains('=') && !is_file(part)) {
        return of_filter(&Filter::parse(text)?);
    }
    let mut runs = Vec::new();
    for part in text.split(',').map(str::trim).filter(|part| !part.is_empty()) {
        match part.strip_suffix('*') {
            Some(beginning) => runs.extend(of_filter(&Filter::ids(beginning))?),
            None => match store.find_run(part)? {
                Kept::Run(run) => runs.push(*run),
                Kept::Proof(proof) => {
                    bail!("cannot compare {}: it is a proof, which holds its own verdict", proof.id)
                }
                other => bail!("cannot compare {}: it is {}", other.id(), other.what()),
            },
        }
    }
    Ok(runs)
}
