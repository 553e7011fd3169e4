//! Chains that root has approved: files of root's alone, called by name.

use crate::Error;
use quiet_linux::files;
use quiet_types::{Chain, CpuSet, said::ApprovedChain};
use rustix::fs::{Mode, OFlags};
use std::{
    fs::{self, File},
    io::ErrorKind,
    os::fd::OwnedFd,
    path::{Path, PathBuf},
};

/// A chain is small.
const LARGEST: u64 = 1 << 20;
/// More are not listed.
const MOST: usize = 1000;
const LONGEST_NAME: usize = 64;

/// The folder of approved chains.
#[derive(Clone, Debug)]
pub struct Approved {
    dir: PathBuf,
}

/// Whether a chain can be called this: letters, digits, `-`, `_` and `.`, and no `.` at its beginning.
pub fn is_name(name: &str) -> bool {
    (1..=LONGEST_NAME).contains(&name.len())
        && !name.starts_with('.')
        && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte))
}

impl Approved {
    /// Chains in the folder `dir`; it need not be there.
    pub fn at(dir: &Path) -> Approved {
        Approved { dir: dir.to_owned() }
    }

    /// The folder.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// All of them, by name.
    ///
    /// # Errors
    /// When the folder cannot be read, or is not root's alone.
    pub fn list(&self, known: &CpuSet) -> Result<Vec<ApprovedChain>, Error> {
        let Some(dir) = self.open()? else { return Ok(Vec::new()) };
        let failed = |e: rustix::io::Errno| Error::Failed(self.cannot("read", &e.to_string()));
        let mut names: Vec<String> = rustix::fs::Dir::read_from(&dir)
            .map_err(failed)?
            .filter_map(|entry| {
                let name = entry.ok()?.file_name().to_str().ok()?.strip_suffix(".toml")?.to_owned();
                is_name(&name).then_some(name)
            })
            .take(MOST)
            .collect();
        names.sort();
        let listed = names.into_iter().map(|name| match self.chain_in(&dir, &name, known) {
            Ok(chain) => {
                ApprovedChain { title: chain.name.unwrap_or_default(), name, usable: true }
            }
            Err(why) => ApprovedChain { title: why.sentence(), name, usable: false },
        });
        Ok(listed.collect())
    }

    /// The chain that is called `name`; `known` are the CPUs that it may name.
    ///
    /// # Errors
    /// When there is none, or its file is not root's alone or says nothing that can be planned.
    pub fn chain(&self, name: &str, known: &CpuSet) -> Result<Chain, Error> {
        named(name)?;
        let none = || Error::Asked(format!("root has approved no chain `{name}`"));
        self.chain_in(&self.open()?.ok_or_else(none)?, name, known)
    }

    /// Approves the chain in `text` under `name`; one that was approved under it before is replaced whole.
    ///
    /// # Errors
    /// When the name is none, the text says nothing that can be planned, or the file cannot be written.
    pub fn approve(&self, name: &str, text: &str, known: &CpuSet) -> Result<PathBuf, Error> {
        named(name)?;
        quiet_plan::chain::parse(text, name, Some(known))
            .map_err(|error| Error::Asked(format!("cannot approve it: {error}")))?;
        let failed = |why: String| Error::Failed(self.cannot("write in", &why));
        fs::create_dir_all(&self.dir).map_err(|e| failed(e.to_string()))?;
        self.open()?;
        let file = self.dir.join(format!("{name}.toml"));
        files::write_whole(&file, text.as_bytes(), files::Replace::Always)
            .map_err(|e| failed(e.to_string()))?;
        Ok(file)
    }

    /// Takes the approval of `name` back; `false` where it had none.
    ///
    /// # Errors
    /// When the name is none, or the file cannot be removed.
    pub fn withdraw(&self, name: &str) -> Result<bool, Error> {
        named(name)?;
        match fs::remove_file(self.dir.join(format!("{name}.toml"))) {
            Ok(()) => Ok(true),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(false),
            Err(error) => Err(Error::Failed(self.cannot("write in", &error.to_string()))),
        }
    }

    /// `None` where the folder is not there: nothing is approved.
    fn open(&self) -> Result<Option<OwnedFd>, Error> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        match rustix::fs::open(&self.dir, flags, Mode::empty()) {
            Err(rustix::io::Errno::NOENT) => Ok(None),
            Err(error) => Err(Error::Failed(self.cannot("open", &error.to_string()))),
            Ok(dir) => {
                own(&dir).map_err(|why| Error::Failed(self.cannot("use", &why)))?;
                Ok(Some(dir))
            }
        }
    }

    fn chain_in(&self, dir: &OwnedFd, name: &str, known: &CpuSet) -> Result<Chain, Error> {
        let file = format!("{name}.toml");
        let shown = format!("the approved chain {}", self.dir.join(&file).display());
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let fd = match rustix::fs::openat(dir, &file, flags, Mode::empty()) {
            Err(rustix::io::Errno::NOENT) => {
                return Err(Error::Asked(format!("root has approved no chain `{name}`")));
            }
            other => other.map_err(|e| Error::Failed(format!("cannot open {shown}: {e}")))?,
        };
        own(&fd).map_err(|why| Error::Failed(format!("cannot use {shown}: {why}")))?;
        let text = files::take_text(File::from(fd), LARGEST)
            .map_err(|e| Error::Failed(format!("cannot read {shown}: {e}")))?;
        quiet_plan::chain::parse(&text, &file, Some(known))
            .map_err(|e| Error::Failed(format!("cannot use {shown}: {e}")))
    }

    fn cannot(&self, what: &str, why: &str) -> String {
        format!("cannot {what} the folder of approved chains {}: {why}", self.dir.display())
    }
}

fn named(name: &str) -> Result<(), Error> {
    if is_name(name) {
        return Ok(());
    }
    Err(Error::Asked(format!(
        "`{}` is no name of a chain: letters, digits, - _ and . are, at most {LONGEST_NAME}",
        quiet_types::printable(name, LONGEST_NAME)
    )))
}

/// Whether nobody but this service's user could have written it.
fn own(fd: &OwnedFd) -> Result<(), String> {
    let stat = rustix::fs::fstat(fd).map_err(|e| e.to_string())?;
    let kind = rustix::fs::FileType::from_raw_mode(stat.st_mode);
    if !(kind.is_file() || kind.is_dir()) {
        return Err("it is no regular file".into());
    }
    if stat.st_uid != rustix::process::geteuid().as_raw() {
        return Err(format!("it belongs to user {}, not to root", stat.st_uid));
    }
    if stat.st_mode & 0o022 != 0 {
        return Err(format!(
            "others may write in it (mode {:o}): chmod go-w",
            stat.st_mode & 0o7777
        ));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    fn room(dir: &Path, name: &str, text: &str) {
        fs::write(dir.join(name), text).unwrap();
        fs::set_permissions(dir.join(name), fs::Permissions::from_mode(0o644)).unwrap();
    }

    #[test]
    fn a_chain_is_called_by_a_plain_name_and_is_nobody_elses() {
        let dir = tempfile::tempdir().unwrap();
        let known: CpuSet = "0-3".parse().unwrap();
        let text = "[chain]\nname = \"living room\"\ncpus = \"3\"\n";
        room(dir.path(), "room.toml", text);
        room(dir.path(), "broken.toml", "[chain]\ncpus = 7.5\n");
        room(dir.path(), "open.toml", text);
        room(dir.path(), "notes.txt", text);
        fs::set_permissions(dir.path().join("open.toml"), fs::Permissions::from_mode(0o666))
            .unwrap();
        std::os::unix::fs::symlink("room.toml", dir.path().join("link.toml")).unwrap();
        let approved = Approved::at(dir.path());
        assert_eq!(approved.chain("room", &known).unwrap().name.as_deref(), Some("living room"));
        for (name, says) in [
            ("../room", "is no name"),
            ("", "is no name"),
            (".hidden", "is no name"),
            ("room/../room", "is no name"),
            ("none", "approved no chain"),
            ("notes", "approved no chain"),
            ("broken", "broken.toml"),
            ("open", "others may write in it"),
            ("link", "cannot open"),
        ] {
            let said = approved.chain(name, &known).unwrap_err().sentence();
            assert!(said.contains(says), "{name}: {said}");
        }
        let listed = approved.list(&known).unwrap();
        let usable: Vec<_> = listed.iter().map(|one| (one.name.as_str(), one.usable)).collect();
        assert_eq!(usable, [("broken", false), ("link", false), ("open", false), ("room", true)]);
    }

    #[test]
    fn what_is_approved_is_read_back_and_can_be_withdrawn() {
        let dir = tempfile::tempdir().unwrap();
        let known: CpuSet = "0-3".parse().unwrap();
        let approved = Approved::at(&dir.path().join("etc/chains"));
        let text = "[chain]\nname = \"one\"\n";
        approved.approve("room", text, &known).unwrap();
        approved.approve("room", &text.replace("one", "two"), &known).unwrap();
        assert_eq!(approved.chain("room", &known).unwrap().name.as_deref(), Some("two"));
        assert!(approved.approve("room", "[chain]\ncpus = 7.5\n", &known).is_err());
        assert!(approved.approve("a/b", text, &known).is_err());
        assert_eq!(approved.list(&known).unwrap().len(), 1, "what was refused left nothing");
        assert!(approved.withdraw("room").unwrap() && !approved.withdraw("room").unwrap());
        assert!(approved.chain("room", &known).is_err());
    }

    #[test]
    fn a_folder_that_others_write_in_is_refused_and_one_that_is_not_there_is_empty() {
        let dir = tempfile::tempdir().unwrap();
        let known: CpuSet = "0".parse().unwrap();
        assert_eq!(Approved::at(&dir.path().join("none")).list(&known).unwrap(), []);
        fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o777)).unwrap();
        let said = Approved::at(dir.path()).list(&known).unwrap_err().sentence();
        assert!(said.contains("others may write in it"), "{said}");
    }
}
