//! What the caller's own PipeWire says of itself.

use crate::{kernel::within, parse};
use quiet_types::surroundings::PipeWireSettings;
use std::{
    io::Read,
    process::{Command, Stdio},
    time::Duration,
};

/// A server answers at once.
const PATIENCE: Duration = Duration::from_secs(1);
/// Its settings are a dozen lines.
const LONGEST: u64 = 1 << 16;

/// Asks the caller's own server by `pw-metadata`; `None` where there is none. Root asks nobody: the servers are its users'.
pub fn pipewire_settings() -> Option<PipeWireSettings> {
    if rustix::process::geteuid().is_root() {
        return None;
    }
    let mut child = Command::new("pw-metadata")
        .args(["-n", "settings", "0"])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .ok()?;
    // What is more than a pipe takes never comes to its end, and is no answer.
    if !within(&mut child, PATIENCE).ok()??.success() {
        return None;
    }
    let mut text = String::new();
    child.stdout?.take(LONGEST).read_to_string(&mut text).ok()?;
    parse::pipewire_settings(&text)
}
