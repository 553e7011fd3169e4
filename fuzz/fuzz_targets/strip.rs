//! Whatever a strip file holds, it is a strip that can be played, or a sentence.
#![no_main]

use libfuzzer_sys::fuzz_target;
use quiet_dsp::{Block, Stage, strip::Description};
use quiet_types::{Frames, SampleRate};

fuzz_target!(|text: &str| {
    let Ok(strip) = Description::parse(text, "fuzzed.toml") else { return };
    let mut none = |_: &str| Err(String::from("no files here"));
    let Ok(mut strip) = strip.prepare(2, SampleRate(48_000), Frames(32), &mut none) else { return };
    let width = strip.width();
    let mut work: Vec<f32> = (0..32 * width).map(|n| (n as f32).sin()).collect();
    strip.process(&mut Block::new(&mut work, width));
});
