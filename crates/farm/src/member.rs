//! This machine as a member of a farm: what it agreed to, and its key.

use crate::{Discretion, Error, Result, SecretKey, sealed::is_name};
use quiet_linux::files::{self, Replace};
use serde::{Deserialize, Serialize};
use std::{
    fs, io,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
};

/// The schema of [`Membership`] in JSON.
pub const MEMBER_SCHEMA: &str = "quietcores.farm-member/1";
/// The stream's name and what its subjects begin with, where nobody says.
pub const STREAM: &str = "quietcores";
/// What an outbox may hold, where nobody says.
pub const BOUND: u64 = 256 << 20;
const LARGEST: u64 = 64 << 10;

/// What was agreed to: kept as `farm/member.json`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Membership {
    /// [`MEMBER_SCHEMA`].
    pub schema: String,
    /// Where records go: `tls://farm.example:4222`, several joined by commas; empty: nowhere, they wait to be collected.
    pub url: String,
    /// Under which name.
    pub host: String,
    /// Whether that is a pseudonym.
    #[serde(default)]
    pub pseudonym: bool,
    /// Whether names of threads are left out.
    #[serde(default)]
    pub no_thread_names: bool,
    /// Whether playing chains are told of.
    #[serde(default)]
    pub live: bool,
    /// What was kept before this moment stays here, ms since 1970.
    #[serde(default)]
    pub since: i64,
    /// A file with credentials (user JWT and seed), or with a seed alone.
    #[serde(default)]
    pub credentials: Option<PathBuf>,
    /// Certificates of whoever signs the servers'.
    #[serde(default)]
    pub ca: Option<PathBuf>,
    /// What the outbox may hold, in bytes.
    pub bound: u64,
}

impl Membership {
    /// What may leave.
    pub fn discretion(&self) -> Discretion {
        Discretion {
            pseudonym: self.pseudonym.then(|| self.host.clone()),
            no_thread_names: self.no_thread_names,
        }
    }

    /// What leaves this machine, and what does not, a line each.
    pub fn leaves(&self) -> Vec<String> {
        let name = if self.pseudonym { "the pseudonym" } else { "this machine's name:" };
        let mut lines = vec![
            format!("{name} {}", self.host),
            "of each kept run: when, how long, its kernel, processor, board, boot parameters (secrets masked), policy, stress, threshold, \
             histogram, late and missed periods, its label"
                .to_owned(),
            if self.no_thread_names {
                "causes of late readings by their kind, without names of threads".to_owned()
            } else {
                "causes of late readings, with names of threads and interrupts".to_owned()
            },
            "of each kept proof and tune: its verdict in a sentence, and the steps".to_owned(),
            "when a shield went up or came down, and its chain's name".to_owned(),
        ];
        if self.live {
            let what = "every five minutes of a playing chain: its name, a histogram of its blocks, late and missed ones";
            lines.push(what.to_owned());
        }
        lines.push(
            "never: sound, command lines of processes, names of users or files, single readings"
                .to_owned(),
        );
        lines
    }
}

/// The folder of a member: `farm` beside what a store keeps.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemberDir(PathBuf);

impl MemberDir {
    /// Beside the store in `dir`.
    pub fn beside(dir: &Path) -> MemberDir {
        MemberDir(dir.join("farm"))
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.0
    }

    fn file(&self) -> PathBuf {
        self.0.join("member.json")
    }

    /// What was agreed to; `None` where this machine is no member.
    ///
    /// # Errors
    /// When the file is there and cannot be read or understood.
    pub fn membership(&self) -> Result<Option<Membership>> {
        let path = self.file();
        let text = match files::read_text(&path, LARGEST) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            other => other.map_err(|error| Error::io("read", &path, &error))?,
        };
        let told = |why: String| {
            let shown = path.display();
            Error::new(format!("cannot use {shown}: {why}; `quietcores farm join` writes it anew"))
        };
        let member: Membership =
            serde_json::from_str(&text).map_err(|error| told(error.to_string()))?;
        match member.schema.as_str() {
            MEMBER_SCHEMA if is_name(&member.host) => Ok(Some(member)),
            MEMBER_SCHEMA => Err(told("its host's name is none".to_owned())),
            other => Err(told(format!("it is written in {other}"))),
        }
    }

    /// Makes this machine a member, with a key of its own where it has none yet.
    ///
    /// # Errors
    /// When something cannot be kept.
    pub fn join(&self, member: &Membership) -> Result<SecretKey> {
        files::make_dir(&self.0).map_err(|error| Error::io("make", &self.0, &error))?;
        let key = match self.key()? {
            Some(key) => key,
            None => {
                let bytes = SecretKey::generate()?;
                self.keep_key(&bytes)?;
                SecretKey::of(&bytes)?
            }
        };
        let text = serde_json::to_vec_pretty(member).map_err(|e| Error::new(e.to_string()))?;
        let path = self.file();
        let done = files::write_whole(&path, &text, Replace::Always);
        done.map_err(|error| Error::io("write", &path, &error))?;
        Ok(key)
    }

    /// Nobody but its owner reads it at any moment: it is made so, aside, and renamed.
    fn keep_key(&self, bytes: &[u8]) -> Result<()> {
        use std::{io::Write, os::unix::fs::OpenOptionsExt};
        let (path, aside) = (self.0.join("key"), self.0.join(".key.part"));
        let _ = fs::remove_file(&aside);
        let write = || -> io::Result<()> {
            let mut file =
                fs::File::options().write(true).create_new(true).mode(0o600).open(&aside)?;
            file.write_all(bytes)?;
            file.sync_all()?;
            fs::rename(&aside, &path)?;
            fs::File::open(&self.0)?.sync_all()
        };
        write().map_err(|error| Error::io("write", &path, &error))
    }

    /// This machine's key; `None` where it has none.
    ///
    /// # Errors
    /// When it cannot be read, or others may read it.
    pub fn key(&self) -> Result<Option<SecretKey>> {
        let path = self.0.join("key");
        let bytes = match files::read(&path, LARGEST) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            other => other.map_err(|error| Error::io("read", &path, &error))?,
        };
        let meta = fs::metadata(&path).map_err(|error| Error::io("look at", &path, &error))?;
        if meta.permissions().mode() & 0o077 != 0 {
            let shown = path.display();
            let why = format!("cannot use {shown}: others may read it; `chmod 600 {shown}`");
            return Err(Error::new(why));
        }
        SecretKey::of(&bytes).map(Some)
    }

    /// Ends it: nothing is made or sent any more. The key stays, so that a name that others know by it can be taken up again.
    ///
    /// # Errors
    /// When the file cannot be removed.
    pub fn leave(&self) -> Result<bool> {
        let path = self.file();
        match fs::remove_file(&path) {
            Ok(()) => Ok(true),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
            Err(error) => Err(Error::io("remove", &path, &error)),
        }
    }
}
