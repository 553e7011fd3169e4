//! One error: what was being done, to what, and why it failed.

use quiet_types::printable;
use std::{fmt, io};

/// `cannot write /proc/irq/20/smp_affinity_list: Input/output error`.
#[derive(Debug)]
pub struct Error {
    doing: &'static str,
    object: String,
    line: Option<usize>,
    source: Source,
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
        Error { doing, object: object.into(), line: None, source: Source::Io(source) }
    }

    /// What was read makes no sense: where (line from 1, where it is known) and why.
    pub fn nonsense(
        object: impl Into<String>,
        line: Option<usize>,
        why: impl Into<String>,
    ) -> Error {
        Error { doing: "understand", object: object.into(), line, source: Source::Text(why.into()) }
    }

    /// The kernel's error number, where it was the kernel that refused.
    pub fn errno(&self) -> Option<i32> {
        match &self.source {
            Source::Io(error) => error.raw_os_error(),
            Source::Text(_) => None,
        }
    }

    /// Whether the object does not exist.
    pub fn is_absent(&self) -> bool {
        matches!(&self.source, Source::Io(e) if e.kind() == io::ErrorKind::NotFound)
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "cannot {} {}", self.doing, printable(&self.object, 300))?;
        if let Some(line) = self.line {
            write!(f, ", line {line}")?;
        }
        match &self.source {
            // Without std's " (os error 5)": the sentence is for people, errno() for programs.
            Source::Io(error) => {
                let text = error.to_string();
                let end = text.find(" (os error").unwrap_or(text.len());
                write!(f, ": {}", &text[..end])
            }
            Source::Text(why) => write!(f, ": {}", printable(why, 300)),
        }
    }
}

impl std::error::Error for Error {}
