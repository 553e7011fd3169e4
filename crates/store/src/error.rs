//! One error: what was being done, to what, and why it failed.

use quiet_types::printable;
use serde_json::error::Category;
use std::{fmt, io, path::Path};

/// `cannot read runs/x.json: it is cut short at line 1, column 4096`.
#[derive(Debug)]
pub struct Error {
    doing: &'static str,
    object: String,
    why: String,
    kind: Option<io::ErrorKind>,
    broken: bool,
}

impl Error {
    pub(crate) fn io(doing: &'static str, path: &Path, source: io::Error) -> Error {
        let text = source.to_string();
        // Without std's " (os error 5)".
        let end = text.find(" (os error").unwrap_or(text.len());
        let (object, why) = (path.display().to_string(), text[..end].to_owned());
        Error { doing, object, why, kind: Some(source.kind()), broken: false }
    }

    pub(crate) fn text(
        doing: &'static str,
        object: impl Into<String>,
        why: impl Into<String>,
    ) -> Error {
        Error { doing, object: object.into(), why: why.into(), kind: None, broken: false }
    }

    /// `bytes` are what was read: one that does not end like JSON was cut short, also where the
    /// cut went through a number and reads as a wrong one.
    pub(crate) fn json(path: &Path, source: &serde_json::Error, bytes: &[u8]) -> Error {
        let place = format!("line {}, column {}", source.line(), source.column());
        let text = source.to_string();
        let end = text.rfind(" at line ").unwrap_or(text.len());
        let torn = !matches!(bytes.trim_ascii_end().last(), Some(b'}' | b']'));
        let why = match source.classify() {
            Category::Syntax | Category::Eof if torn || source.is_eof() => {
                format!("it is cut short at {place}: the writer or the copy was not finished")
            }
            Category::Syntax => format!("{place}: not JSON: {}", &text[..end]),
            _ => format!("{place}: {}", &text[..end]),
        };
        let broken = matches!(source.classify(), Category::Syntax | Category::Eof);
        Error { broken, ..Error::text("read", path.display().to_string(), why) }
    }

    /// Whether the file is cut short or no JSON at all: nothing can be done with it.
    pub fn is_broken(&self) -> bool {
        self.broken
    }

    /// Whether there is no such file.
    pub fn is_gone(&self) -> bool {
        self.kind == Some(io::ErrorKind::NotFound)
    }

    /// Whether this user may not do it.
    pub fn is_denied(&self) -> bool {
        self.kind == Some(io::ErrorKind::PermissionDenied)
    }

    /// Whether the name is taken already.
    pub fn is_taken(&self) -> bool {
        self.kind == Some(io::ErrorKind::AlreadyExists)
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (object, why) = (printable(&self.object, 300), printable(&self.why, 600));
        write!(f, "cannot {} {object}: {why}", self.doing)
    }
}

impl std::error::Error for Error {}
