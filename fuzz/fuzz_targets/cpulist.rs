//! A list that is understood prints and reads back as the same set, and agrees with a plain
//! reading of the same text.
#![no_main]
use libfuzzer_sys::fuzz_target;
use quiet_types::CpuSet;
use std::collections::BTreeSet;

/// The format without strides, read in the simplest way.
fn plain(text: &str) -> Option<BTreeSet<u32>> {
    let mut set = BTreeSet::new();
    for part in text.split(',') {
        let mut ends = part.splitn(2, '-').map(|end| end.parse::<u32>().ok());
        let first = ends.next()??;
        let last = ends.next().unwrap_or(Some(first))?;
        if last < first || last > 8191 {
            return None;
        }
        set.extend(first..=last);
    }
    Some(set)
}

fuzz_target!(|text: &str| {
    let read = text.parse::<CpuSet>();
    if let Ok(set) = &read {
        assert_eq!(set.to_string().parse::<CpuSet>().as_ref(), Ok(set));
        assert!(set.iter().all(|cpu| cpu.0 < 8192 && set.contains(cpu)));
        assert_eq!(set.iter().count(), set.len());
        assert_eq!(CpuSet::from_mask(&set.to_mask()).as_ref(), Ok(set));
    }
    let simple = !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit() || b",-".contains(&b));
    if simple {
        let read = read.ok().map(|set| set.iter().map(|cpu| cpu.0).collect::<BTreeSet<_>>());
        assert_eq!(read, plain(text));
    }
});
