//! One error: what was being done, to what, and why it failed.

use quiet_types::printable;
use std::{fmt, io};

/// `cannot write /proc/irq/20/smp_affinity_list: Input/output error`.
#[derive(Debug)]
pub struct Error {
    kind: ErrorKind,
    doing: &'static str,
    object: String,
    line: Option<usize>,
    source: Source,
}

/// What kind of thing stood in the way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ErrorKind {
    /// The kernel refused; [`Error::errno`] has its number.
    Refused,
    /// What was read makes no sense.
    Nonsense,
    /// The state directory cannot be used.
    State,
    /// Another quietcores is changing this machine.
    Busy,
    /// Others could put something in the place of the file, or a right is left that was to be given up.
    Unsafe,
    /// Nothing is called so.
    Absent,
    /// Others have written the file meanwhile; theirs stands.
    Changed,
}

#[derive(Debug)]
enum Source {
    Io(io::Error),
    Text(String),
}

/// A result with [`Error`].
pub type Result<T> = std::result::Result<T, Error>;

impl Error {
    /// `doing` is a verb (`read`, `write`), `object` a path or a task.
    pub fn io(doing: &'static str, object: impl Into<String>, source: io::Error) -> Error {
        Error {
            kind: ErrorKind::Refused,
            doing,
            object: object.into(),
            line: None,
            source: Source::Io(source),
        }
    }

    /// What was read makes no sense: where (line from 1, where it is known) and why.
    pub fn nonsense(
        object: impl Into<String>,
        line: Option<usize>,
        why: impl Into<String>,
    ) -> Error {
        Error { line, ..Error::because(ErrorKind::Nonsense, "understand", object, why) }
    }

    /// Somebody who has the rights for it does not do it: `cannot DOING OBJECT: WHY`.
    pub fn refused(
        doing: &'static str,
        object: impl Into<String>,
        why: impl Into<String>,
    ) -> Error {
        Error::because(ErrorKind::Refused, doing, object, why)
    }

    /// `cannot DOING OBJECT: WHY`.
    pub(crate) fn because(
        kind: ErrorKind,
        doing: &'static str,
        object: impl Into<String>,
        why: impl Into<String>,
    ) -> Error {
        Error { kind, doing, object: object.into(), line: None, source: Source::Text(why.into()) }
    }

    /// What kind of thing it is.
    pub fn kind(&self) -> ErrorKind {
        self.kind
    }

    /// What the kernel answered, where it was the kernel that refused.
    pub fn refusal(&self) -> Option<&io::Error> {
        match &self.source {
            Source::Io(error) => Some(error),
            Source::Text(_) => None,
        }
    }

    /// The kernel's error number, where it was the kernel that refused.
    pub fn errno(&self) -> Option<i32> {
        self.refusal()?.raw_os_error()
    }

    /// Whether the object does not exist.
    pub fn is_absent(&self) -> bool {
        self.kind == ErrorKind::Absent
            || self.refusal().is_some_and(|e| e.kind() == io::ErrorKind::NotFound)
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "cannot {} {}", self.doing, printable(&self.object, 300))?;
        if let Some(line) = self.line {
            write!(f, ", line {line}")?;
        }
        match &self.source {
            Source::Io(error) => write!(f, ": {}", plain(error)),
            Source::Text(why) => write!(f, ": {}", printable(why, 600)),
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.refusal().map(|error| error as _)
    }
}

/// The kernel's text for an error, without std's ` (os error 5)`: the sentence is for people, the number for programs.
pub fn plain(error: &io::Error) -> String {
    let text = error.to_string();
    let end = text.find(" (os error").unwrap_or(text.len());
    text[..end].to_owned()
}
