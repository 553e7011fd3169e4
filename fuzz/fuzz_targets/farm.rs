//! A stranger's record: the form, the head, the packed histogram. What is opened can be sealed and opened again; a histogram that is
//! taken comes back as it was.
#![no_main]
use libfuzzer_sys::fuzz_target;
use quiet_farm::{packed, sealed, Trust};

fuzz_target!(|bytes: &[u8]| {
    let _ = sealed::open(bytes);
    if let Some(all) = packed::unpack(bytes) {
        assert_eq!(packed::unpack(&packed::pack(&all)), Some(all));
    }
    if let Ok(text) = std::str::from_utf8(bytes) {
        let _ = Trust::parse(text);
        let _ = quiet_farm::FarmQuestion::parse(&[text.to_owned()], &[], 20_000);
        assert!(sealed::is_name(&sealed::plain_name(text)));
    }
});
