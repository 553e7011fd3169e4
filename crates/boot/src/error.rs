//! Why something could not be made to last.

pub(super) use quiet_linux::plain;
use std::{fmt, io};

/// What stood in the way, as a sentence with its remedy.
#[derive(Debug)]
pub struct Error(String);

/// A result with [`Error`].
pub type Result<T> = std::result::Result<T, Error>;

impl Error {
    pub(super) fn new(sentence: impl Into<String>) -> Error {
        Error(sentence.into())
    }

    /// `cannot write /boot/x: No space left on device; make room there`.
    pub(super) fn io(doing: &str, path: &str, error: &io::Error) -> Error {
        let path = quiet_types::printable(path, 300);
        Error(format!("cannot {doing} {path}: {}{}", plain(error), remedy(error)))
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Error {}

impl From<quiet_linux::Error> for Error {
    fn from(error: quiet_linux::Error) -> Error {
        let way = error.refusal().map_or("", remedy);
        Error(format!("{error}{way}"))
    }
}

fn remedy(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::ReadOnlyFilesystem => {
            "; mount that file system writable (mount -o remount,rw) and try again"
        }
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => "; make room there",
        io::ErrorKind::PermissionDenied => "; run this as root",
        _ => "",
    }
}
