//! A text by its lines.

use std::ops::Range;

/// The lines of a text as ranges, without their ends (`\n`; a `\r` belongs to the line).
pub(super) fn lines(text: &[u8]) -> impl Iterator<Item = Range<usize>> {
    let mut start = 0;
    std::iter::from_fn(move || {
        if start >= text.len() {
            return None;
        }
        let end = text[start..].iter().position(|b| *b == b'\n').map_or(text.len(), |n| start + n);
        let line = start..end;
        start = end + 1;
        Some(line)
    })
}
