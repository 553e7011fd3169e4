//! A text that is an IR says the same when written out and read again.
#![no_main]
use libfuzzer_sys::fuzz_target;
use quiet_dsp::ir::Ir;
use quiet_types::SampleRate;

fuzz_target!(|text: &str| {
    let rate = SampleRate(48_000);
    match Ir::from_text(text, rate) {
        Ok(ir) => {
            let mut again = String::new();
            for frame in 0..ir.frames() {
                for channel in &ir.channels {
                    again.push_str(&format!("{:?} ", channel[frame]));
                }
                again.push('\n');
            }
            assert_eq!(Ir::from_text(&again, rate).expect("plain numbers"), ir);
        }
        Err(error) => assert!(error.to_string().len() < 1000),
    }
});
