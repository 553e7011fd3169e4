//! A WAV file, however broken, is an IR within bounds or an error.
#![no_main]
use libfuzzer_sys::fuzz_target;
use quiet_dsp::ir::{Ir, MAX_CHANNELS};

fuzz_target!(|bytes: &[u8]| {
    if let Ok(found) = Ir::from_wav(bytes) {
        let ir = found.ir;
        assert!((1..=MAX_CHANNELS).contains(&ir.channels.len()));
        assert!(ir.channels.iter().all(|channel| channel.len() == ir.frames()));
        assert!(ir.channels.iter().flatten().all(|x| x.is_finite()));
        // A sample takes a byte at least.
        assert!((1..=bytes.len()).contains(&(ir.frames() * ir.channels.len())));
    }
});
