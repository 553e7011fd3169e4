//! Why something could not be made to last.

pub(super) use quiet_linux::plain;
use std::{error, fmt, io, sync::Arc};

/// What stood in the way, as a sentence with its remedy.
#[derive(Clone, Debug)]
pub struct Error {
    kind: ErrorKind,
    sentence: String,
    cause: Option<Arc<dyn error::Error + Send + Sync>>,
}

/// What stood in the way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ErrorKind {
    /// What was asked for cannot be done here, or makes no sense: ask otherwise.
    Asked,
    /// Something is made to last already, or tried.
    AlreadyLasting,
    /// An earlier persist or unpersist did not come to its end.
    Leftover,
    /// Another quietcores is at work with this state directory.
    Busy,
    /// A boot loader's file is not as it has to be, or changed meanwhile.
    Loader,
    /// A program of the boot loader's failed, or made no menu that starts Linux.
    Command,
    /// The record of what was made to last cannot be understood.
    Record,
    /// A file could not be read, written or removed.
    File,
}

/// A result with [`Error`].
pub type Result<T> = std::result::Result<T, Error>;

impl Error {
    /// One that says this of what was asked for.
    pub(super) fn new(sentence: impl Into<String>) -> Error {
        Error::of(ErrorKind::Asked, sentence)
    }

    /// One of another kind.
    pub(super) fn of(kind: ErrorKind, sentence: impl Into<String>) -> Error {
        Error { kind, sentence: sentence.into(), cause: None }
    }

    /// The same with what it came from, which the sentence has told already.
    pub(super) fn because(self, cause: impl error::Error + Send + Sync + 'static) -> Error {
        Error { cause: Some(Arc::new(cause)), ..self }
    }

    /// `cannot write /boot/x: No space left on device; make room there`.
    pub(super) fn io(doing: &str, path: &str, error: io::Error) -> Error {
        let path = quiet_types::printable(path, 300);
        let sentence = format!("cannot {doing} {path}: {}{}", plain(&error), remedy(&error));
        Error::of(ErrorKind::File, sentence).because(error)
    }

    /// The same, and what became of the rest.
    pub(super) fn and(&self, more: &str) -> Error {
        Error { sentence: format!("{self}; {more}"), ..self.clone() }
    }

    /// Whether others have written a file since it was read: it is to be read again.
    pub(super) fn is_changed(&self) -> bool {
        let of_linux = self.cause().and_then(|cause| cause.downcast_ref::<quiet_linux::Error>());
        of_linux.is_some_and(|error| error.kind() == quiet_linux::ErrorKind::Changed)
    }

    /// Whether a full disk or quota stood in the way.
    pub(super) fn is_no_room(&self) -> bool {
        let full = |error: &io::Error| {
            matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
        };
        let cause = self.cause();
        let of_linux = cause.and_then(|cause| cause.downcast_ref::<quiet_linux::Error>());
        of_linux.and_then(quiet_linux::Error::refusal).is_some_and(full)
            || cause.and_then(|cause| cause.downcast_ref::<io::Error>()).is_some_and(full)
            // A program of the loader's has words alone, in the C locale.
            || self.kind == ErrorKind::Command && self.sentence.contains("No space left on device")
    }

    /// What stood in the way.
    pub fn kind(&self) -> ErrorKind {
        self.kind
    }

    /// What it came from, where that was an error of its own.
    ///
    /// It is no [`source`](error::Error::source): whoever prints a chain of errors would say it twice.
    pub fn cause(&self) -> Option<&(dyn error::Error + Send + Sync + 'static)> {
        self.cause.as_deref()
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.sentence)
    }
}

impl error::Error for Error {}

impl From<quiet_linux::Error> for Error {
    fn from(error: quiet_linux::Error) -> Error {
        let way = error.refusal().map_or("", remedy);
        let kind = match error.kind() {
            quiet_linux::ErrorKind::Busy => ErrorKind::Busy,
            quiet_linux::ErrorKind::Changed => ErrorKind::Loader,
            _ => ErrorKind::File,
        };
        Error::of(kind, format!("{error}{way}")).because(error)
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_is_told_once_with_its_remedy_and_kept() {
        let full = io::Error::from(io::ErrorKind::StorageFull);
        let error = Error::io("write", "/boot/x", full);
        assert_eq!(error.to_string(), "cannot write /boot/x: no storage space; make room there");
        assert!(error.is_no_room() && !error.is_changed());
        let later = error.and("the rest was put back");
        assert_eq!(later.to_string(), format!("{error}; the rest was put back"));
        assert_eq!(later.kind(), ErrorKind::File);
        let cause = later.cause().and_then(|cause| cause.downcast_ref::<io::Error>());
        assert_eq!(cause.map(io::Error::kind), Some(io::ErrorKind::StorageFull));
        assert!(error::Error::source(&later).is_none());
    }
}
