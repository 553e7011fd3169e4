//! What the firmware tells of the boot loader, and one boot that is asked of it.
//!
//! # Source
//! The Boot Loader Interface (systemd.io/BOOT_LOADER_INTERFACE): variables of one vendor, UTF-16
//! with a NUL; each file of efivarfs begins with four bytes of attributes.

use super::error::{Error, ErrorKind, Result, plain};
use quiet_linux::files::Tree;
use rustix::fs::{IFlags, Mode, OFlags};
use std::io::{self, Write};

const DIR: &str = "/sys/firmware/efi/efivars";
const VENDOR: &str = "4a67b082-0a4c-41cf-b6c7-440b29bb8c4f";
/// Non-volatile, for boot services, at run time.
const ATTRIBUTES: [u8; 4] = [7, 0, 0, 0];
/// `LoaderEntryOneShot` is honoured.
const ONE_SHOT: u64 = 1 << 3;

/// Who started the machine, as far as is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Booted {
    /// systemd-boot, or a unified kernel image.
    Systemd,
    /// Not systemd-boot: another loader says so, or this is no UEFI machine.
    Other,
    /// A tree of files without the firmware's.
    Untold,
}

/// Who started the machine.
pub fn booted_by(place: &Tree) -> Booted {
    match variable(place, "LoaderInfo") {
        Some(text) if text.starts_with("systemd-") => Booted::Systemd,
        Some(_) => Booted::Other,
        None if place.exists("/sys/firmware/efi") => Booted::Other,
        None if place.is_system() && place.exists("/sys/firmware") => Booted::Other,
        None => Booted::Untold,
    }
}

fn path(name: &str) -> String {
    format!("{DIR}/{name}-{VENDOR}")
}

/// The text of a variable of the boot loader.
pub fn variable(place: &Tree, name: &str) -> Option<String> {
    let found = place.read(&path(name)).ok()??;
    let units: Vec<u16> = found
        .bytes
        .get(4..)?
        .chunks_exact(2)
        .map(|two| u16::from_le_bytes([two[0], two[1]]))
        .collect();
    Some(String::from_utf16_lossy(&units).trim_end_matches('\0').to_owned())
}

/// Whether the loader can be asked for one boot of an entry.
pub fn takes_one_shot(place: &Tree) -> bool {
    let features = place.read(&path("LoaderFeatures")).ok().flatten().map(|found| found.bytes);
    let bits = features.as_deref().and_then(|bytes| bytes.get(4..12)?.try_into().ok());
    bits.is_some_and(|bits| u64::from_le_bytes(bits) & ONE_SHOT != 0)
}

/// Asks for one boot of an entry (`debian.conf`): the loader forgets it when it starts it.
///
/// # Errors
/// When the firmware refuses the variable.
pub fn ask_one_shot(place: &Tree, entry: &str) -> Result<()> {
    let mut bytes = ATTRIBUTES.to_vec();
    for unit in entry.encode_utf16().chain([0]) {
        bytes.extend_from_slice(&unit.to_le_bytes());
    }
    let path = place.shown(&path("LoaderEntryOneShot"));
    let write = || -> io::Result<()> {
        open_to_change(&path)?;
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let fd = rustix::fs::open(&path, flags, Mode::from_raw_mode(0o644))?;
        // The firmware takes a variable in one write.
        std::fs::File::from(fd).write_all(&bytes)
    };
    write().map_err(|e| {
        Error::of(
            ErrorKind::File,
            format!("the firmware refuses to note the one-shot entry in {path}: {}", plain(&e)),
        )
        .because(e)
    })
}

/// Takes an asked boot back where it is still the one of `entry`; tells whether it was.
///
/// # Errors
/// When the firmware refuses.
pub fn forget_one_shot(place: &Tree, entry: &str) -> Result<bool> {
    if variable(place, "LoaderEntryOneShot").as_deref() != Some(entry) {
        return Ok(false);
    }
    let path = place.shown(&path("LoaderEntryOneShot"));
    let remove = || -> io::Result<()> {
        open_to_change(&path)?;
        std::fs::remove_file(&path)
    };
    remove().map_err(|e| Error::io("remove", &path, e))?;
    Ok(true)
}

/// efivarfs guards variables by the immutable flag.
fn open_to_change(path: &str) -> io::Result<()> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let fd = match rustix::fs::open(path, flags, Mode::empty()) {
        Err(rustix::io::Errno::NOENT) => return Ok(()),
        other => other?,
    };
    let Ok(old) = rustix::fs::ioctl_getflags(&fd) else { return Ok(()) };
    if old.contains(IFlags::IMMUTABLE) {
        rustix::fs::ioctl_setflags(&fd, old - IFlags::IMMUTABLE)?;
    }
    Ok(())
}
