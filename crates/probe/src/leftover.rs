//! What a run that is gone has left: its directory, and the processes that work in it.

use rustix::process::{Pid, Signal};
use std::{
    ffi::OsStr,
    fs,
    os::unix::{ffi::OsStrExt, fs::MetadataExt},
    path::Path,
    thread,
    time::{Duration, Instant},
};

/// `PREFIX` + PID + `-` + that process's start time: a PID may come again, the pair does not.
pub(crate) const PREFIX: &str = "quietcores-stress-";

/// How long processes that were left may take to end by themselves.
const GRACE: Duration = Duration::from_millis(700);
/// How long all of them may take to be gone.
const END: Duration = Duration::from_secs(5);

/// Ends the processes that work in a directory of a run that is gone, and removes it.
pub(crate) fn end(path: &Path) {
    let begun = Instant::now();
    while is_left(path) && begun.elapsed() < END {
        let late = begun.elapsed() > GRACE;
        let within = within(path);
        for (pid, group) in &within {
            let signal = if late { Signal::KILL } else { Signal::TERM };
            // Its group is of the same making where its first process is.
            if within.iter().any(|(other, _)| other == group) {
                let _ = rustix::process::kill_process_group(*group, signal);
            }
            let _ = rustix::process::kill_process(*pid, signal);
        }
        if within.is_empty() {
            let _ = fs::remove_dir_all(path);
        }
        thread::sleep(Duration::from_millis(20));
    }
}

/// Whether a directory is of a run of this user that is gone.
pub(crate) fn is_left(path: &Path) -> bool {
    let me = rustix::process::getuid().as_raw();
    let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let Some(rest) = name.strip_prefix(PREFIX) else { return false };
    let mut numbers = rest.split('-').map(|part| part.parse::<u64>().ok());
    let (Some(Some(pid)), Some(Some(born))) = (numbers.next(), numbers.next()) else {
        return false;
    };
    let lives = u32::try_from(pid).ok().and_then(start_time) == Some(born);
    // Not through a link, and not another user's. remove_dir_all follows no links either.
    let mine = fs::symlink_metadata(path).is_ok_and(|m| m.is_dir() && m.uid() == me);
    mine && !lives
}

/// Processes whose working directory is in `path`, and their groups.
fn within(path: &Path) -> Vec<(Pid, Pid)> {
    let mut found = Vec::new();
    for entry in fs::read_dir("/proc").into_iter().flatten().flatten() {
        let number = entry.file_name().to_str().and_then(|name| name.parse().ok());
        let (Some(pid), Ok(dir)) =
            (number.and_then(Pid::from_raw), fs::read_link(entry.path().join("cwd")))
        else {
            continue;
        };
        // A removed directory is told with a word after it.
        let name = dir.as_os_str().as_bytes();
        let name = name.strip_suffix(b" (deleted)").unwrap_or(name);
        if Path::new(OsStr::from_bytes(name)).starts_with(path) {
            found.push((pid, group(&entry.path()).unwrap_or(pid)));
        }
    }
    found
}

/// The process group of `/proc/PID`: field 5 of its `stat`.
fn group(process: &Path) -> Option<Pid> {
    let stat = fs::read_to_string(process.join("stat")).ok()?;
    Pid::from_raw(stat.rsplit_once(')')?.1.split_whitespace().nth(2)?.parse().ok()?)
}

/// Start time of a process in clock ticks since boot: field 22 of `/proc/PID/stat`. `None` for one that has ended.
pub(crate) fn start_time(pid: u32) -> Option<u64> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name may hold anything, brackets too: fields count from the last one.
    let mut fields = stat.rsplit_once(')')?.1.split_whitespace();
    let lives = !["Z", "X"].contains(&fields.next()?);
    fields.nth(18).filter(|_| lives)?.parse().ok()
}
