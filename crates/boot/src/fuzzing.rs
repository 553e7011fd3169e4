//! A door for the fuzz targets, in their builds alone: what reads bytes that others may have written.

use std::path::Path;

/// A record of what lasts across reboots of these bytes.
///
/// # Panics
/// When it is not refused with a sentence and not read as what it is.
pub fn persist_record(bytes: &[u8]) {
    in_state("persist.json", bytes, |dir| match crate::record(dir) {
        Ok(record) => {
            let record = record.expect("it is there");
            let text = serde_json::to_string(&record).expect("what was read can be written");
            let again: crate::Record = serde_json::from_str(&text).expect("and be read again");
            assert_eq!(serde_json::to_string(&again).expect("as before"), text);
        }
        Err(why) => assert!(why.to_string().contains("persist")),
    });
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
