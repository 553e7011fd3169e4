//! Why the engine could not do it.

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
    /// What was asked for makes no sense, does not fit together, or is taken already: ask otherwise.
    Asked,
    /// A strip, or an amp or an IR that it names, is none.
    Strip,
    /// A file could not be read, understood or written.
    File,
    /// A card, a sequencer or a server does not do it, or is not there.
    Device,
    /// The machine refused: a thread, a right, a socket.
    Machine,
    /// A fault of the program's own.
    Fault,
    /// It was told to stop.
    Stopped,
}

/// A result with [`Error`].
pub type Result<T> = std::result::Result<T, Error>;

impl Error {
    /// One that says this of what was asked for.
    pub fn new(sentence: impl Into<String>) -> Error {
        Error::of(ErrorKind::Asked, sentence)
    }

    /// One of another kind.
    pub fn of(kind: ErrorKind, sentence: impl Into<String>) -> Error {
        Error { kind, sentence: sentence.into(), cause: None }
    }

    /// What is wrong with a strip, in its own words.
    pub(crate) fn strip(cause: impl error::Error + Send + Sync + 'static) -> Error {
        Error::of(ErrorKind::Strip, cause.to_string()).because(cause)
    }

    /// The same with what it came from, which the sentence has told already.
    #[must_use]
    pub fn because(self, cause: impl error::Error + Send + Sync + 'static) -> Error {
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
    fn a_cause_is_kept_and_told_once() {
        let denied = std::io::Error::from(std::io::ErrorKind::PermissionDenied);
        let sentence = format!("cannot read a.wav: {denied}");
        let error = Error::of(ErrorKind::File, sentence.clone()).because(denied);
        assert_eq!((error.to_string(), error.kind()), (sentence, ErrorKind::File));
        let cause = error.cause().and_then(|cause| cause.downcast_ref::<std::io::Error>());
        assert_eq!(cause.map(std::io::Error::kind), Some(std::io::ErrorKind::PermissionDenied));
        assert!(error::Error::source(&error).is_none());
    }
}
