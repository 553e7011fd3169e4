//! Whatever a configuration of CamillaDSP holds, it becomes a strip, or a sentence.
#![no_main]

use libfuzzer_sys::fuzz_target;
use quiet_dsp::strip::{Description, camilla};

fuzz_target!(|text: &str| {
    if let Ok(imported) = camilla::import(text) {
        Description::parse(&imported.strip, "imported.toml").expect("an import is a strip");
    }
});
