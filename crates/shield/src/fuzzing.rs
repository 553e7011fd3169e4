//! Doors for the fuzz targets, in their builds alone: what reads bytes that others may have written.

use crate::{journal, watch};
use quiet_linux::{files::StateDir, fuzzing::in_state};

/// A journal of these bytes.
///
/// # Panics
/// When it is not refused with a sentence and not read as what it is.
pub fn journal(bytes: &[u8]) {
    in_state("journal.jsonl", bytes, |dir| {
        let state = StateDir::open(dir).expect("a state directory").expect("it is there");
        match journal::read(&state) {
            Ok(past) => assert!(past.is_some()),
            Err(why) => assert!(why.to_string().contains("journal")),
        }
    });
}

/// A message of the kernel of these bytes.
pub fn netlink(bytes: &[u8]) {
    watch::netlink_message(bytes);
}
