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
    Some(beat(Duration::from_micros(number("WATCHDOG_USEC")?))).filter(|every| !every.is_zero())
}

/// How often to say it where it is taken for dead after `limit`. It is said between two acts: one that began right after it was last said may
/// take nearly all of that time on a busy machine. By half of it, as the manual has it, an act of little more than the other half would
/// end the service.
fn beat(limit: Duration) -> Duration {
    limit / 10
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_act_may_take_most_of_the_time_after_which_the_service_is_taken_for_dead() {
        let limit = Duration::from_secs(60);
        assert!(beat(limit) + Duration::from_secs(50) < limit);
    }
}
