//! A campaign file is a campaign, or a sentence that points into it.
#![no_main]
use libfuzzer_sys::fuzz_target;
use quiet_plan::campaign;

fuzz_target!(|text: &str| {
    let known = "0-3".parse().expect("a list");
    for known in [None, Some(&known)] {
        if let Err(why) = campaign::parse(text, "fuzzed.toml", known) {
            assert!(why.to_string().contains("fuzzed.toml"));
        }
    }
});
