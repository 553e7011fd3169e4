//! Words print and read back; without quotes the reading is that of splitting at blanks; masking
//! twice masks no more than once, and leaves nothing of a masked value.
#![no_main]
use libfuzzer_sys::fuzz_target;
use quiet_linux::parse::{boot_parameters, mask_parameter, print_boot_parameters};

fuzz_target!(|text: &str| {
    let words = boot_parameters(text);
    if words.iter().all(|word| !word.contains('"') && !word.is_empty()) {
        assert_eq!(boot_parameters(&print_boot_parameters(&words)), words);
    }
    if !text.contains('"') {
        let blank = |c: char| matches!(c, ' ' | '\t'..='\r');
        assert!(text.split(blank).filter(|word| !word.is_empty()).eq(words.iter()));
    }
    for word in &words {
        let masked = mask_parameter(word);
        assert_eq!(mask_parameter(&masked), masked);
        // Of a name nothing is masked but who signs in to an address that stands in it.
        let name = word.split('=').next().unwrap_or_default();
        assert!(name.contains("://") || masked.split('=').next() == Some(name));
    }
    let secret = format!("password={}", text.replace(char::is_whitespace, ""));
    assert!(secret == "password=" || mask_parameter(&secret) == "password=***");
});
