//! Amp files: understood or refused with a sentence; what is understood can be prepared, and plays.
#![no_main]

use libfuzzer_sys::fuzz_target;
use quiet_dsp::{
    Block, ProcessSpec,
    amp::{Amp, AmpOptions},
};
use quiet_types::Frames;

fuzz_target!(|bytes: &[u8]| {
    let amp = match Amp::parse(bytes) {
        Ok(amp) => amp,
        Err(error) => return assert!(!error.to_string().is_empty()),
    };
    // Long ones would rest for long: what they are made of is tried on the others.
    if amp.flops(&AmpOptions::default()) > 100_000
        || amp.receptive_field().is_none_or(|n| n > 20_000)
    {
        return;
    }
    let setting = ProcessSpec { rate: amp.rate(), channels: 1, block: Frames(32) };
    if let Ok(mut stage) = amp.prepare(&setting, &AmpOptions::default()) {
        let mut samples = [0.5f32; 40];
        for frames in [1, 32, 7] {
            stage.process(&mut Block::new(&mut samples[..frames], 1));
        }
    }
});
