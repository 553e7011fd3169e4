//! Says to systemd that the service is ready and alive.

use std::{
    env,
    os::{
        linux::net::SocketAddrExt,
        unix::{
            ffi::OsStrExt,
            net::{SocketAddr, UnixDatagram},
        },
    },
    time::Duration,
};

/// Sends `words` to who started this service, where he listens.
///
/// # Source
/// sd_notify(3): `NOTIFY_SOCKET`, a path or, behind `@`, an abstract name.
pub(crate) fn say(words: &str) {
    let Some(name) = env::var_os("NOTIFY_SOCKET") else { return };
    let address = match name.as_bytes() {
        [b'@', name @ ..] => SocketAddr::from_abstract_name(name),
        path @ [b'/', ..] => SocketAddr::from_pathname(std::ffi::OsStr::from_bytes(path)),
        _ => return,
    };
    // Nobody who listens: nobody who would miss it.
    if let (Ok(address), Ok(socket)) = (address, UnixDatagram::unbound()) {
        let _ = socket.send_to_addr(words.as_bytes(), &address);
    }
}

/// How often to say that it lives, where systemd wants to hear that.
///
/// # Source
/// sd_watchdog_enabled(3): `WATCHDOG_USEC`, meant for `WATCHDOG_PID` alone.
pub(crate) fn watchdog() -> Option<Duration> {
    let number = |name: &str| env::var(name).ok()?.parse::<u64>().ok();
    if number("WATCHDOG_PID").is_some_and(|pid| pid != u64::from(std::process::id())) {
        return None;
    }
    // By half of it, as the manual has it, a busy machine might be late.
    Some(Duration::from_micros(number("WATCHDOG_USEC")?) / 10).filter(|every| !every.is_zero())
}
