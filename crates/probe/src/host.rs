//! Where and when a run is made.

use crate::Result;
use quiet_linux::{Root, identity};
use quiet_types::run::{Host, Probe};

/// The machine that a run is made on.
///
/// # Errors
/// When the root cannot be read at all.
pub fn host(root: &Root) -> Result<Host> {
    let read = |path: &str| root.read_if_there(path).ok().flatten().unwrap_or_default();
    let machine = identity(root)?;
    Ok(Host {
        name: read("/proc/sys/kernel/hostname"),
        release: machine.kernel.release,
        version: machine.kernel.version,
        arch: std::env::consts::ARCH.to_owned(),
        processor: machine.processor,
        hypervisor: machine.hypervisor,
        boot_id: read("/proc/sys/kernel/random/boot_id"),
        program: env!("CARGO_PKG_VERSION").to_owned(),
    })
}

/// This moment as RFC 3339 in UTC with milliseconds, and an id made of it, `kind` and four random
/// digits: `20261121T213000Z-wakeup-3f9a`.
pub fn stamp(root: &Root, kind: &str) -> (String, String) {
    let now = humantime::format_rfc3339_millis(std::time::SystemTime::now()).to_string();
    let random = root.read("/proc/sys/kernel/random/uuid").unwrap_or_default();
    let digits = random.get(..4).unwrap_or("0000");
    let compact: String = now.chars().take(19).filter(|c| !"-:".contains(*c)).collect();
    let id = format!("{compact}Z-{kind}-{digits}");
    (now, id)
}

/// The probe's name within an id.
pub(crate) fn kind(probe: Probe) -> &'static str {
    match probe {
        Probe::Wakeup { .. } => "wakeup",
        Probe::Gap => "gap",
    }
}
