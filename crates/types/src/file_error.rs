//! What is wrong with a file that the user wrote, shown where it is wrong.

use crate::printable;
use annotate_snippets::{AnnotationKind, Level, Renderer, Snippet};
use std::{fmt, ops::Range};

/// No sentence is longer, in characters.
const LONGEST: usize = 300;

/// What is wrong with a file: the sentence, the line with a caret, and the remedy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileError {
    line: usize,
    title: String,
    text: String,
}

impl FileError {
    /// Points at the bytes `span` of `text`, which messages call `path`. A span that lies beyond the
    /// text or within a character is moved to where it may stand.
    pub fn at(
        text: &str,
        path: &str,
        span: Range<usize>,
        title: &str,
        label: &str,
        help: &str,
    ) -> FileError {
        let start = floor(text, span.start);
        let stop = floor(text, span.end).max(start);
        let line = text[..start].matches('\n').count() + 1;
        let title = printable(title, LONGEST);
        let snippet = Snippet::source(text)
            .path(path)
            .annotation(AnnotationKind::Primary.span(start..stop).label(label));
        let report = [Level::ERROR
            .primary_title(title.as_str())
            .element(snippet)
            .element(Level::HELP.message(help))];
        let rendered = Renderer::plain().render(&report);
        let text = rendered.strip_prefix("error: ").unwrap_or(&rendered).to_owned();
        FileError { line, title, text }
    }

    /// The line that is wrong, from 1.
    pub fn line(&self) -> usize {
        self.line
    }

    /// What is wrong, in one sentence.
    pub fn title(&self) -> &str {
        &self.title
    }
}

impl fmt::Display for FileError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl std::error::Error for FileError {}

/// The start of the character at `at`, or the end of the text.
fn floor(text: &str, at: usize) -> usize {
    (0..=at.min(text.len())).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::FileError;

    #[test]
    fn points_at_the_line_with_a_caret_and_a_remedy() {
        let error =
            FileError::at("a = 1\nb = 2\n", "x.toml", 10..11, "two is wrong", "here", "write 1");
        assert_eq!(error.line(), 2);
        assert_eq!(error.title(), "two is wrong");
        let shown = error.to_string();
        assert!(shown.starts_with("two is wrong"), "{shown}");
        assert!(shown.contains("x.toml:2:5") && shown.contains("^ here"), "{shown}");
        assert!(shown.contains("write 1"), "{shown}");
    }

    #[test]
    fn a_span_beyond_the_text_or_within_a_character_is_shown_all_the_same() {
        for (from, to) in [(0, 1), (1, 2), (1, 9), (7, 3), (99, 100)] {
            let error = FileError::at("ä\nb", "x", from..to, "t", "l", "h");
            assert!((1..=2).contains(&error.line()));
        }
        assert_eq!(FileError::at("", "x", 0..0, "t", "l", "h").line(), 1);
    }
}
