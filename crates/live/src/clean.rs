//! Names that strangers gave.

use quiet_types::printable;

/// `text` cut to `most` characters and fit for any face: without control characters, and without those that turn the order of what
/// follows or cannot be seen.
pub fn clean(text: &str, most: usize) -> String {
    let plain: String = text.chars().map(|c| if is_sly(c) { '\u{fffd}' } else { c }).collect();
    printable(&plain, most)
}

/// Characters without a width of their own, of which a terminal or a page makes what another name looks like.
fn is_sly(c: char) -> bool {
    matches!(c,
        '\u{ad}' | '\u{61c}' | '\u{115f}' | '\u{1160}' | '\u{180e}' | '\u{200b}'..='\u{200f}'
        | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{fe00}'..='\u{fe0f}' | '\u{feff}'
        | '\u{fff9}'..='\u{fffb}' | '\u{e0000}'..='\u{e0fff}' | '\u{300}'..='\u{36f}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_of_a_name_moves_the_cursor_or_the_order_of_letters() {
        assert_eq!(clean("a\x1b[2Jb", 40), "a\u{fffd}[2Jb");
        assert_eq!(clean("x\u{202e}gpj.exe", 40), "x\u{fffd}gpj.exe");
        assert_eq!(clean("in\u{200b}visible", 40), "in\u{fffd}visible");
        assert_eq!(clean("Öl-Flöte 東", 40), "Öl-Flöte 東");
        assert_eq!(clean("abcdef", 3), "abc…");
    }
}
