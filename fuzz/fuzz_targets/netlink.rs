//! Messages of the kernel's families that a watch hears, torn anywhere.
#![no_main]
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| quiet_shield::fuzzing::netlink(bytes));
