//! What the doors for fuzz targets share, in their builds alone.

use std::{env, fs, os::unix::fs::PermissionsExt, path::Path, process};

/// `look` at a state directory that has one file, the same for all calls of a process.
///
/// # Panics
/// When it cannot be made.
pub fn in_state(file: &str, bytes: &[u8], look: impl FnOnce(&Path)) {
    let dir = env::temp_dir().join(format!("quietcores-fuzz-{}", process::id()));
    fs::create_dir_all(&dir).expect("a folder");
    fs::set_permissions(&dir, fs::Permissions::from_mode(0o700)).expect("ours alone");
    let path = dir.join(file);
    fs::write(&path, bytes).expect("a file");
    fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).expect("ours alone");
    look(&dir);
}
