//! Memory and file systems: whatever makes an audio thread wait for a disk.

use super::{
    facts::{Facts, some},
    verdict::{NO_AUDIO, Verdict, fine, moot, note, unknown, warning},
};
use quiet_types::{finding::When, printable, surroundings::Mount};

pub(super) fn swappiness(f: &Facts) -> Verdict {
    let swaps = f.setting("proc/swaps").map(|text| text.lines().count().saturating_sub(1));
    if swaps == Some(0) {
        return moot("there is no swap");
    }
    match f.number("proc/sys/vm/swappiness") {
        None => unknown("/proc/sys/vm/swappiness could not be read"),
        Some(value) if value <= 10 => fine(format!("vm.swappiness is {value}")),
        Some(value) => {
            note(format!("the kernel is quick to move programs to swap (vm.swappiness is {value})"))
                .evidence(format!(
                    "/proc/sys/vm/swappiness; {}",
                    swaps.map_or("whether there is swap is not told".into(), |n| format!(
                        "{n} swap areas in /proc/swaps"
                    ))
                ))
                .effect(
                    "a part of an audio program that was not used for a while comes \
                back from disk, in milliseconds; locked memory does not",
                )
                .remedy("write 10 there, and into a file below /etc/sysctl.d")
                .when(When::RunTime)
                .into()
        }
    }
}

pub(super) fn swapped(f: &Facts) -> Verdict {
    let audio = f.audio_programs();
    let out: Vec<String> = f
        .around
        .processes
        .iter()
        .filter(|p| audio.has(&p.comm))
        .filter_map(|p| {
            let kib = p.swapped_kib.filter(|kib| *kib > 0)?;
            Some(format!("{} (PID {}) {kib} KiB", printable(&p.comm, 32), p.pid))
        })
        .collect();
    if out.is_empty() {
        return match f.audio_tasks().is_empty() {
            true => moot(NO_AUDIO),
            false => fine("no memory of an audio program that was looked at is in swap"),
        };
    }
    warning("memory of an audio program is in swap")
        .evidence(format!("VmSwap in /proc/PID/status: {}", some(&out, 4)))
        .effect("it is read from disk when it is needed, in the middle of a period")
        .remedy("swapoff -a while you play, and let the program lock its memory (limits.memlock)")
        .when(When::RunTime)
        .into()
}

pub(super) fn unlocked(f: &Facts) -> Verdict {
    let audio = f.audio_programs();
    let loose: Vec<String> = f
        .around
        .processes
        .iter()
        .filter(|p| audio.has(&p.comm) && p.locked_kib == Some(0))
        .map(|p| {
            format!(
                "{} (PID {}), {} major faults",
                printable(&p.comm, 32),
                p.pid,
                p.major_faults.unwrap_or(0)
            )
        })
        .collect();
    if loose.is_empty() {
        return match f.audio_tasks().is_empty() {
            true => moot(NO_AUDIO),
            false => fine("the real-time audio programs that were looked at lock memory"),
        };
    }
    note("a real-time audio program has no memory locked")
        .evidence(format!(
            "VmLck in /proc/PID/status is 0: {}; field 12 of /proc/PID/stat, since its start",
            some(&loose, 4)
        ))
        .effect(
            "its pages may be dropped and read again; whether faults fall into \
                play shows only a second look",
        )
        .remedy("allow it to lock memory (limits.memlock) and switch that on in the program")
        .when(When::Login)
        .into()
}

pub(super) fn watches(f: &Facts) -> Verdict {
    let path = "proc/sys/fs/inotify/max_user_watches";
    match f.number(path) {
        None => unknown("/proc/sys/fs/inotify/max_user_watches could not be read"),
        Some(value) if value >= 524_288 => fine(format!("{value} files may be watched")),
        Some(value) => note(format!("only {value} files may be watched for changes by a user"))
            .evidence(format!("/{path}"))
            .effect(
                "none on latency: large sample libraries and plug-in folders \
                    are scanned again in place of being watched",
            )
            .remedy("write 524288 there, and into a file below /etc/sysctl.d")
            .when(When::RunTime)
            .into(),
    }
}

/// Mounts on which a user keeps files.
fn of_users<'a>(f: &Facts<'a>) -> impl Iterator<Item = &'a Mount> {
    let system = ["/proc", "/sys", "/dev", "/run", "/boot"];
    f.around.mounts.iter().filter(move |mount| {
        !system.iter().any(|dir| mount.path == *dir || mount.path.starts_with(&format!("{dir}/")))
            || mount.path.starts_with("/run/media/")
    })
}

fn far(kind: &str) -> bool {
    matches!(
        kind,
        "nfs"
            | "nfs4"
            | "cifs"
            | "smb3"
            | "9p"
            | "ceph"
            | "afs"
            | "fuse.sshfs"
            | "fuse.rclone"
            | "davfs"
            | "fuse.davfs2"
            | "fuse.glusterfs"
            | "fuse.gvfsd-fuse"
            | "fuse.curlftpfs"
    )
}

pub(super) fn network_files(f: &Facts) -> Verdict {
    if f.machine.surroundings.is_none() {
        return unknown("the mounted file systems were not looked at");
    }
    let far: Vec<String> = of_users(f)
        .filter(|m| far(&m.kind) && m.kind != "fuse.gvfsd-fuse")
        .map(|m| format!("{} ({})", printable(&m.path, 60), printable(&m.kind, 20)))
        .collect();
    if far.is_empty() {
        return fine("no network file system is mounted where users keep files");
    }
    note(format!("files on {} come over the network", some(&far, 3)))
        .evidence("/proc/self/mounts; which files the chain plays is not in the snapshot")
        .effect(
            "a read waits for the network: harmless behind a player's large \
                buffer, a drop-out for a sampler that streams",
        )
        .remedy("keep what is played live on a local disk")
        .when(When::RunTime)
        .into()
}

pub(super) fn slow_files(f: &Facts) -> Verdict {
    if f.machine.surroundings.is_none() {
        return unknown("the mounted file systems were not looked at");
    }
    let slow: Vec<String> = of_users(f)
        .filter(|m| {
            matches!(
                m.kind.as_str(),
                "fuseblk" | "vfat" | "exfat" | "ntfs" | "reiserfs" | "ecryptfs"
            ) || m.kind.starts_with("fuse.encfs")
                || m.kind == "fuse.gocryptfs"
        })
        .map(|m| format!("{} ({})", printable(&m.path, 60), printable(&m.kind, 20)))
        .collect();
    if slow.is_empty() {
        return fine("users' files are on file systems of Linux");
    }
    note(format!("{} is on a file system with slow or user-space code", some(&slow, 3)))
        .evidence("/proc/self/mounts")
        .effect(
            "reading and recording many tracks there costs CPU time, and its \
                program runs at ordinary priority",
        )
        .remedy("record to and stream from ext4, xfs or btrfs")
        .when(When::RunTime)
        .into()
}

pub(super) fn access_times(f: &Facts) -> Verdict {
    if f.machine.surroundings.is_none() {
        return unknown("the mounted file systems were not looked at");
    }
    let strict: Vec<String> = of_users(f)
        .filter(|m| matches!(m.kind.as_str(), "ext2" | "ext3" | "ext4" | "xfs" | "btrfs" | "f2fs"))
        .filter(|m| !m.options.iter().any(|o| matches!(o.as_str(), "noatime" | "relatime" | "ro")))
        .map(|m| printable(&m.path, 60))
        .collect();
    if strict.is_empty() {
        return fine(
            "reading does not write access times each time (noatime, or relatime as is usual)",
        );
    }
    note(format!("every read of a file on {} writes its access time", some(&strict, 3)))
        .evidence("/proc/self/mounts: neither noatime nor relatime")
        .effect("streaming samples makes the disk write all the time")
        .remedy("mount -o remount,noatime, and in /etc/fstab")
        .when(When::RunTime)
        .into()
}
