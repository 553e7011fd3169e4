//! One error: a sentence.

use quiet_types::printable;
use std::{fmt, io, path::Path};

/// What, where, why.
#[derive(Debug)]
pub struct Error {
    words: String,
    of_the_record: bool,
}

impl Error {
    /// Of these words.
    pub fn new(words: impl Into<String>) -> Error {
        Error { words: words.into(), of_the_record: false }
    }

    /// Of a record that will never be taken.
    pub(crate) fn unfit(words: impl Into<String>) -> Error {
        Error { words: words.into(), of_the_record: true }
    }

    /// Whether the record itself is the reason, so that a second try is of no use; else a disk or a server may be.
    pub fn is_of_the_record(&self) -> bool {
        self.of_the_record
    }

    pub(crate) fn io(doing: &str, path: &Path, source: &io::Error) -> Error {
        let text = source.to_string();
        let end = text.find(" (os error").unwrap_or(text.len());
        Error::new(format!("cannot {doing} {}: {}", path.display(), &text[..end]))
    }

    pub(crate) fn sql(source: &rusqlite::Error) -> Error {
        Error::new(format!("cannot use the collector's database: {source}"))
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&printable(&self.words, 900))
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
        Error::new(source.to_string())
    }
}

/// With [`Error`].
pub type Result<T> = std::result::Result<T, Error>;
