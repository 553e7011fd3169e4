//! What a bus answers, byte by byte: understood or refused, never waited for.
#![no_main]
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| quiet_engine::fuzzing::dbus(bytes));
