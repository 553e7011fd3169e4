//! Where runs and proofs are kept.

use anyhow::{Context, bail};
use quiet_linux::Root;
use quiet_store::{Filter, Kept, Store};
use quiet_types::{Nanos, Run, head::Head, run::Host};
use std::{
    io::Read,
    path::{Path, PathBuf},
    time::Instant,
};

/// The store in `dir` where one is named, else `$XDG_DATA_HOME/quietcores`, else
/// `~/.local/share/quietcores`.
///
/// # Errors
/// When neither `XDG_DATA_HOME` nor `HOME` is an absolute path.
///
/// # Source
/// XDG Base Directory Specification 0.8: a relative path in the variable is to be ignored.
pub fn store(dir: Option<&Path>) -> anyhow::Result<Store> {
    if let Some(dir) = dir {
        return Ok(Store::at(dir));
    }
    let absolute = |name| std::env::var_os(name).map(PathBuf::from).filter(|p| p.is_absolute());
    let data = absolute("XDG_DATA_HOME")
        .or_else(|| absolute("HOME").map(|home| home.join(".local/share")))
        .context(
            "cannot tell where runs are kept: HOME is not set; name a directory: --store DIR",
        )?;
    Ok(Store::at(data.join("quietcores")))
}

/// A name for something that begins now: `20261121T213000Z-prove-3f9a`, and that moment in UTC.
pub fn name(kind: &str) -> anyhow::Result<(String, String)> {
    let (started, id) = quiet_probe::stamp(&Root::system()?, kind);
    Ok((id, started))
}

/// A measurement that has begun, by what its [`Head`] tells.
pub struct Begun {
    id: String,
    started: String,
    at: Instant,
    host: Host,
}

/// One of this kind begins now.
pub fn begin(kind: &str) -> anyhow::Result<Begun> {
    let (id, started) = name(kind)?;
    let host = quiet_probe::host(&Root::system()?)?;
    Ok(Begun { id, started, at: Instant::now(), host })
}

impl Begun {
    /// It ends now.
    pub fn head(self, schema: &str, label: &str, interrupted: bool) -> Head {
        Head {
            schema: schema.to_owned(),
            id: self.id,
            label: label.to_owned(),
            started: self.started,
            lasted: Nanos(u64::try_from(self.at.elapsed().as_nanos()).unwrap_or(u64::MAX)),
            interrupted,
            host: self.host,
        }
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
