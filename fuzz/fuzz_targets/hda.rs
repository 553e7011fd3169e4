//! A sound controller that answers anything, and writes anything into the memory that it shares.
#![no_main]
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| quiet_hda::fuzzing::hostile(bytes));
