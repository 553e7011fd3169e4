//! One error: a sentence.

use quiet_types::printable;
use std::{fmt, io, path::Path};

/// What, where, why.
#[derive(Debug)]
pub struct Error(String);

impl Error {
    /// Of these words.
    pub fn new(words: impl Into<String>) -> Error {
        Error(words.into())
    }

    pub(crate) fn io(doing: &str, path: &Path, source: &io::Error) -> Error {
        let text = source.to_string();
        let end = text.find(" (os error").unwrap_or(text.len());
        Error(format!("cannot {doing} {}: {}", path.display(), &text[..end]))
    }

    pub(crate) fn sql(source: &rusqlite::Error) -> Error {
        Error(format!("cannot use the collector's database: {source}"))
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&printable(&self.0, 900))
    }
}

impl std::error::Error for Error {}

impl From<rusqlite::Error> for Error {
    fn from(source: rusqlite::Error) -> Error {
        Error::sql(&source)
    }
}

impl From<quiet_store::Error> for Error {
    fn from(source: quiet_store::Error) -> Error {
        Error(source.to_string())
    }
}

/// With [`Error`].
pub type Result<T> = std::result::Result<T, Error>;
