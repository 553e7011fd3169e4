//! A sound file, FLAC or WAV: read to its end in blocks, within what its header says, or refused with a sentence.
#![no_main]
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| quiet_engine::fuzzing::sound(bytes));
