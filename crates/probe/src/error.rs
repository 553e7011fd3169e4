//! Why a probe could not run.

use std::{error, fmt, sync::Arc};

/// A sentence: what was being done, why it failed, what to do.
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
    /// What was asked for makes no sense, or cannot be measured here: ask otherwise.
    Asked,
    /// A program that it needs is not installed.
    Missing,
    /// The machine refused: a thread, a file, a right; or says nothing that makes sense.
    Machine,
    /// The stress could not be started, or ended by itself.
    Stress,
    /// What measures or watches ended without a result.
    Measuring,
    /// It was to be measured strictly, and something would make it doubtful.
    Doubtful,
}

/// A result with [`Error`].
pub type Result<T> = std::result::Result<T, Error>;

impl Error {
    /// One that says this of what was asked for.
    pub(crate) fn new(sentence: impl Into<String>) -> Error {
        Error::of(ErrorKind::Asked, sentence)
    }

    /// One of another kind.
    pub(crate) fn of(kind: ErrorKind, sentence: impl Into<String>) -> Error {
        Error { kind, sentence: sentence.into(), cause: None }
    }

    /// The same with what it came from, which the sentence has told already.
    pub(crate) fn because(self, cause: impl error::Error + Send + Sync + 'static) -> Error {
        Error { cause: Some(Arc::new(cause)), ..self }
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
        Error::of(ErrorKind::Machine, error.to_string()).because(error)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_kernel_refused_is_told_once_and_kept() {
        let denied = std::io::Error::from(std::io::ErrorKind::PermissionDenied);
        let error = Error::from(quiet_linux::Error::io("read", "/x", denied));
        assert_eq!(error.kind(), ErrorKind::Machine);
        assert_eq!(error.to_string(), "cannot read /x: permission denied");
        let cause = error.cause().and_then(|cause| cause.downcast_ref::<quiet_linux::Error>());
        assert_eq!(cause.map(quiet_linux::Error::kind), Some(quiet_linux::ErrorKind::Refused));
        assert!(error::Error::source(&error).is_none());
    }
}
