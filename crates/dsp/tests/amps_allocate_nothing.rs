//! An amp at work asks nobody for memory.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

use assert_no_alloc::{AllocDisabler, assert_no_alloc, violation_count};
use quiet_dsp::{
    Block, ProcessSpec,
    amp::{Amp, AmpOptions},
};
use quiet_types::Frames;

#[global_allocator]
static ALLOCATOR: AllocDisabler = AllocDisabler;

#[test]
fn process_allocates_nothing() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fixtures/amps");
    let mut seen = 0;
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if !path.extension().is_some_and(|e| e == "nam" || e == "json") {
            continue;
        }
        let amp = Amp::parse(&std::fs::read(&path).unwrap()).unwrap();
        let setting = ProcessSpec { rate: amp.rate(), channels: 2, block: Frames(100) };
        let mut stage = amp.prepare(&setting, &AmpOptions::default()).unwrap();
        let mut samples = [0.1f32; 200];
        for frames in [100, 1, 17, 64, 0] {
            let part = &mut samples[..2 * frames];
            assert_no_alloc(|| stage.process(&mut Block::new(part, 2)));
        }
        assert_eq!(violation_count(), 0, "{}", path.display());
        seen += 1;
    }
    assert!(seen >= 19, "only {seen} amps");
}
