//! A mask that is understood prints and reads back as the same set; one of a single word agrees
//! with the standard library.
#![no_main]
use libfuzzer_sys::fuzz_target;
use quiet_types::CpuSet;

fuzz_target!(|text: &str| {
    let read = CpuSet::from_mask(text);
    if let Ok(set) = &read {
        assert_eq!(CpuSet::from_mask(&set.to_mask()).as_ref(), Ok(set));
        assert_eq!(set.to_string().parse::<CpuSet>().as_ref(), Ok(set));
        assert!(set.iter().all(|cpu| cpu.0 < 8192));
    }
    if !text.is_empty() && text.len() <= 16 && text.bytes().all(|b| b.is_ascii_hexdigit()) {
        let bits = u64::from_str_radix(text, 16).expect("at most 16 hexadecimal digits");
        assert_eq!(read.expect("a plain number").words().first().copied().unwrap_or(0), bits);
    }
});
