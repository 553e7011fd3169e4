//! Doors for the fuzz targets, in their builds alone: what reads bytes that others may have written.

use crate::{journal, watch};
use quiet_linux::files::StateDir;
use std::path::Path;

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

/// `look` at a state directory that has one file, the same for all calls of a process.
fn in_state(file: &str, bytes: &[u8], look: impl FnOnce(&Path)) {
    use std::os::unix::fs::PermissionsExt;
    let dir = std::env::temp_dir().join(format!("quietcores-fuzz-{}", std::process::id()));
    std::fs::create_dir_all(&dir).expect("a folder");
    std::fs::set_permissions(&dir, std::fs::Permissions::from_mode(0o700)).expect("ours alone");
    let path = dir.join(file);
    std::fs::write(&path, bytes).expect("a file");
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).expect("ours alone");
    look(&dir);
}
