//! Why an experiment could not be made.

use std::{error::Error as StdError, fmt};

/// What stood in the way: what was being done, and, as its source, why it failed.
#[derive(Debug)]
pub struct Error {
    kind: ErrorKind,
    sentence: String,
    source: Option<Box<dyn StdError + Send + Sync>>,
}

/// What kind of thing stood in the way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ErrorKind {
    /// What was asked for cannot be done here, or makes no sense.
    Asked,
    /// A shield is up, or another experiment is at work.
    Busy,
    /// It was interrupted before anything was measured.
    Interrupted,
    /// The machine cannot be read, changed or put back.
    Machine,
    /// A probe, a stress or the engine failed.
    Measuring,
    /// What was measured cannot be kept or read.
    Keeping,
}

/// A result with [`Error`].
pub type Result<T> = std::result::Result<T, Error>;

impl Error {
    pub(crate) fn new(kind: ErrorKind, sentence: impl Into<String>) -> Error {
        Error { kind, sentence: sentence.into(), source: None }
    }

    pub(crate) fn asked(sentence: impl Into<String>) -> Error {
        Error::new(ErrorKind::Asked, sentence)
    }

    /// What kind of thing it is.
    pub fn kind(&self) -> ErrorKind {
        self.kind
    }
}

/// The sentence; with `{:#}` also that of each cause, after a colon.
impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.sentence)?;
        let mut cause = self.source();
        while let Some(one) = cause.filter(|_| f.alternate()) {
            write!(f, ": {one}")?;
            cause = one.source();
        }
        Ok(())
    }
}

impl StdError for Error {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        self.source.as_deref().map(|source| source as _)
    }
}

/// Says what was being done when something failed.
pub trait Because<T> {
    /// The failure becomes the source of an [`Error`] of this kind that says what was being done.
    ///
    /// # Errors
    /// That error, where there was one.
    fn because(self, kind: ErrorKind, doing: impl FnOnce() -> String) -> Result<T>;
}

impl<T, E: Into<Box<dyn StdError + Send + Sync>>> Because<T> for std::result::Result<T, E> {
    fn because(self, kind: ErrorKind, doing: impl FnOnce() -> String) -> Result<T> {
        self.map_err(|e| Error { kind, sentence: doing(), source: Some(e.into()) })
    }
}

/// Errors that say all there is to say: their sentence is ours.
macro_rules! as_it_is {
    ($($error:ty => $kind:ident),+ $(,)?) => {
        $(impl From<$error> for Error {
            fn from(error: $error) -> Error {
                Error::new(ErrorKind::$kind, error.to_string())
            }
        })+
    };
}
as_it_is! {
    quiet_linux::Error => Machine,
    quiet_shield::Error => Machine,
    quiet_boot::Error => Machine,
    quiet_plan::PlanError => Asked,
    quiet_types::FileError => Asked,
    quiet_probe::Error => Measuring,
    quiet_engine::Error => Measuring,
    quiet_store::Error => Keeping,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_being_done_stands_before_its_causes() {
        let cause: std::result::Result<(), _> = Err(std::io::Error::other("no room"));
        let inner = cause.because(ErrorKind::Keeping, || "cannot keep the run".into());
        let outer = inner.because(ErrorKind::Measuring, || "cannot measure".into()).unwrap_err();
        assert_eq!(outer.kind(), ErrorKind::Measuring);
        assert_eq!(outer.to_string(), "cannot measure");
        assert_eq!(format!("{outer:#}"), "cannot measure: cannot keep the run: no room");
        assert!(outer.source().is_some_and(|source| source.source().is_some()));
    }
}
