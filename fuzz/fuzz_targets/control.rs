//! A line on the control socket, as JSON and as words: a request or a sentence.
#![no_main]
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| quiet_engine::fuzzing::control(bytes));
