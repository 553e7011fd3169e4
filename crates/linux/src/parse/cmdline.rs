//! `/proc/cmdline`: the boot parameters.

/// Splits as the kernel splits: at white space outside double quotes. Quotes around a whole
/// parameter or around its value are taken off, others stay.
///
/// # Source
/// `next_arg()` in lib/cmdline.c
pub fn boot_parameters(text: &str) -> Vec<String> {
    let mut words = Vec::new();
    let mut word = String::new();
    let mut quoted = false;
    for c in text.chars() {
        match c {
            '"' => quoted = !quoted,
            c if is_blank(c) && !quoted => {
                words.push(std::mem::take(&mut word));
                continue;
            }
            _ => {}
        }
        word.push(c);
    }
    words.push(word);
    words.retain(|word| !word.is_empty());
    words.iter().map(|word| unquoted(word)).collect()
}

/// C's isspace(), which the kernel uses here.
fn is_blank(c: char) -> bool {
    matches!(c, ' ' | '\t'..='\r')
}

fn unquoted(word: &str) -> String {
    if let Some(inner) = word.strip_prefix('"') {
        return inner.strip_suffix('"').unwrap_or(inner).to_owned();
    }
    match word.split_once('=') {
        Some((name, value)) if value.starts_with('"') => {
            let value = &value[1..];
            format!("{name}={}", value.strip_suffix('"').unwrap_or(value))
        }
        _ => word.to_owned(),
    }
}

/// The text that [`boot_parameters`] reads back as `words`, where no word holds a double quote.
pub fn print_boot_parameters(words: &[String]) -> String {
    let quoted = words.iter().map(|word| match word.split_once('=') {
        _ if !word.contains(is_blank) && !word.is_empty() => word.clone(),
        Some((name, value)) if !name.contains(is_blank) && !name.is_empty() => {
            format!("{name}=\"{value}\"")
        }
        _ => format!("\"{word}\""),
    });
    quoted.collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn quotes_hold_blanks_together() {
        let words = boot_parameters(
            "BOOT_IMAGE=/vmlinuz  isolcpus=2 dyndbg=\"file a.c +p\" \"x y=z\" q\"a b\"c quiet\n",
        );
        assert_eq!(
            words,
            [
                "BOOT_IMAGE=/vmlinuz",
                "isolcpus=2",
                "dyndbg=file a.c +p",
                "x y=z",
                "q\"a b\"c",
                "quiet"
            ]
        );
        assert_eq!(boot_parameters("a=\"b c"), ["a=b c"]);
        assert_eq!(boot_parameters(" \n"), [""; 0]);
    }

    proptest! {
        #[test]
        fn words_come_back_as_they_were_printed(
            words in proptest::collection::vec("[^\"\\x00]{1,12}", 0..8),
        ) {
            prop_assert_eq!(boot_parameters(&print_boot_parameters(&words)), words);
        }

        #[test]
        fn any_text_is_answered_and_only_quoted_words_hold_blanks(text in "(?s).{0,60}") {
            let words = boot_parameters(&text);
            if !text.contains('"') {
                let expected: Vec<&str> = text.split(is_blank).filter(|w| !w.is_empty()).collect();
                prop_assert_eq!(words, expected);
            }
        }
    }
}
