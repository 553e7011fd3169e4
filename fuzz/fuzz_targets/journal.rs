//! Whatever a journal holds, torn or changed by anybody: it is read, or refused with a sentence. The shield that it tells of is kept
//! whole.
#![no_main]
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| quiet_shield::fuzzing::journal(bytes));
