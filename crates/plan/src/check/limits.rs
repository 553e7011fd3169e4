//! What the user who plays may do.

use super::{
    facts::Facts,
    verdict::{Verdict, fine, moot, note, problem, unknown, warning},
};
use quiet_types::{finding::When, surroundings::Caller};

/// The lowest `rtprio` that leaves room for a player below interrupt threads of cards and above
/// those of other devices (50).
const ENOUGH: u64 = 75;

const NOT_LOOKED: &str = "what the caller may do was not looked at";

const FILE: &str = "/etc/security/limits.d/audio.conf";

pub(super) fn root(f: &Facts) -> Verdict {
    match &f.around.caller {
        None => unknown(NOT_LOOKED),
        Some(Caller { uid: 0, .. }) => {
            note("this ran as root: the limits of the user who plays were not looked at")
                .evidence("/proc/self/status: effective user 0")
                .effect("none; but that user's program may be refused what root is given")
                .remedy("run quietcores check as that user too, and audio programs never as root")
                .when(When::RunTime)
                .into()
        }
        Some(caller) => fine(format!("user {}", caller.uid)),
    }
}

pub(super) fn rtprio(f: &Facts) -> Verdict {
    let Some(caller) = &f.around.caller else { return unknown(NOT_LOOKED) };
    if caller.uid == 0 || caller.cap_sys_nice {
        return moot("the caller may set any priority");
    }
    let asked = f.links().iter().filter_map(|link| link.priority).max().map_or(ENOUGH, u64::from);
    match caller.rtprio {
        None => fine("no limit"),
        Some(limit) if limit >= asked => fine(format!("up to {limit}")),
        Some(limit) => {
            let finding = if limit == 0 {
                problem("this user may not run real-time threads")
            } else {
                warning(format!("this user may use real-time priorities up to {limit} only"))
            };
            finding
                .evidence(format!(
                    "Max realtime priority in /proc/self/limits is {limit}; {asked} is wanted"
                ))
                .effect(
                    "an audio program stays an ordinary one and waits behind \
                        all others, or below interrupt threads",
                )
                .remedy(format!(
                    "{FILE}: `@audio - rtprio 95`, the user in that group, log \
                        in again; for a service LimitRTPRIO=95"
                ))
                .when(When::Login)
                .into()
        }
    }
}

pub(super) fn memlock(f: &Facts) -> Verdict {
    let Some(caller) = &f.around.caller else { return unknown(NOT_LOOKED) };
    if caller.uid == 0 || caller.cap_ipc_lock {
        return moot("the caller may lock any memory");
    }
    match caller.memlock {
        None => fine("no limit"),
        Some(bytes) => warning(format!("this user may lock {} KiB of memory only", bytes / 1024))
            .evidence(format!("Max locked memory in /proc/self/limits is {bytes} bytes"))
            .effect(
                "an audio program that locks its memory fails to, and waits \
                    for a disk when pages were dropped",
            )
            .remedy(format!(
                "{FILE}: `@audio - memlock unlimited`, and log in again; for a \
                    service LimitMEMLOCK=infinity"
            ))
            .when(When::Login)
            .into(),
    }
}

pub(super) fn group(f: &Facts) -> Verdict {
    let Some(caller) = &f.around.caller else { return unknown(NOT_LOOKED) };
    if caller.uid == 0 {
        return moot("the caller is root");
    }
    if caller.groups.is_empty() {
        return moot("there is no group for audio or real time on this system");
    }
    let names: Vec<&str> = caller.groups.iter().map(|g| g.name.as_str()).collect();
    if caller.groups.iter().any(|g| g.member) {
        return fine("the user is in a group for audio or real time");
    }
    if caller.rtprio.is_none_or(|limit| limit >= ENOUGH) {
        return fine("the user is in none of these groups and has its limits by another way");
    }
    note(format!("this user is in none of the groups {}", names.join(", ")))
        .evidence("Groups in /proc/self/status, /etc/group")
        .effect("limits and device files that are given to such a group do not reach the user")
        .remedy(format!("usermod -aG {} USER, and log in again", names[0]))
        .when(When::Login)
        .into()
}

pub(super) fn group_twice(f: &Facts) -> Verdict {
    let Some(caller) = &f.around.caller else { return unknown(NOT_LOOKED) };
    let twice = caller
        .groups
        .iter()
        .find(|g| caller.groups.iter().filter(|o| o.name == g.name).count() > 1);
    match twice {
        None => fine("no such group is there twice"),
        Some(group) => warning(format!("the group {} is in /etc/group more than once", group.name))
            .evidence("/etc/group")
            .effect(
                "which of them counts depends on the program that asks; limits \
                    may not reach their users",
            )
            .remedy("leave one line (vigr)")
            .when(When::Login)
            .into(),
    }
}

pub(super) fn rttime(f: &Facts) -> Verdict {
    let Some(caller) = &f.around.caller else { return unknown(NOT_LOOKED) };
    match caller.rttime {
        None => fine("no limit"),
        Some(us) => {
            note(format!("real-time threads of this user end after {us} us without sleeping"))
                .evidence("Max realtime timeout in /proc/self/limits")
                .effect(
                    "the kernel sends SIGXCPU and then kills: fatal for a loop that never sleeps",
                )
                .remedy(format!("{FILE}: `@audio - rttime unlimited`, and log in again"))
                .when(When::Login)
                .into()
        }
    }
}
