//! When and where something was measured, and the lot it draws from.

use crate::{Because, Error, ErrorKind, Result};
use quiet_linux::Root;
use quiet_types::{Nanos, head::Head, run::Host};
use std::time::Instant;

/// A name for something that begins now: `20261121T213000Z-prove-3f9a`, and that moment in UTC.
///
/// # Errors
/// When `/` cannot be opened.
pub fn name(kind: &str) -> Result<(String, String)> {
    let (started, id) = quiet_probe::stamp(&Root::system()?, kind);
    Ok((id, started))
}

/// A number that nobody chose: what orders are drawn from.
///
/// # Errors
/// When the kernel's random numbers cannot be read.
pub fn seed() -> Result<u32> {
    let path = "/proc/sys/kernel/random/uuid";
    let uuid = Root::system()?.read(path)?;
    let digits = uuid.get(..8).ok_or_else(|| Error::new(ErrorKind::Machine, "no number in it"));
    digits
        .and_then(|digits| {
            u32::from_str_radix(digits, 16).because(ErrorKind::Machine, || "no number in it".into())
        })
        .because(ErrorKind::Machine, || format!("cannot draw a lot from {path}"))
}

/// A measurement that has begun, by what its [`Head`] holds.
#[derive(Debug)]
pub struct Begun {
    id: String,
    started: String,
    at: Instant,
    host: Host,
}

/// One of this kind begins now.
///
/// # Errors
/// When the machine cannot be read.
pub fn begin(kind: &str) -> Result<Begun> {
    let (id, started) = name(kind)?;
    let host = quiet_probe::host(&Root::system()?)?;
    Ok(Begun { id, started, at: Instant::now(), host })
}

impl Begun {
    /// It ends now.
    pub fn head(self, schema: &str, label: &str, interrupted: bool) -> Head {
        Head {
            schema: schema.to_owned(),
            id: self.id,
            label: label.to_owned(),
            started: self.started,
            lasted: Nanos(u64::try_from(self.at.elapsed().as_nanos()).unwrap_or(u64::MAX)),
            interrupted,
            host: self.host,
        }
    }
}
