//! `persist.json`: read or refused with a sentence; what is read is written and read again as the same.
#![no_main]
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| quiet_boot::fuzzing::persist_record(bytes));
