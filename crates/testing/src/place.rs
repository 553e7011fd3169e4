//! What this process may use of the machine: its CPUs, and a folder that others may enter.

use quiet_linux::sys::sched::affinity;
use quiet_types::CpuSet;
use rustix::fs::{StatVfsMountFlags, statvfs};
use std::{
    env,
    fs::{self, Permissions},
    os::unix::fs::{MetadataExt, PermissionsExt},
    path::{Path, PathBuf},
};
use tempfile::TempDir;

/// The CPUs that this process may run on: on line, in its group's cpuset, and in the mask that `taskset` or a service manager gave it.
/// A machine has more than these in a container, and CPU 0 need not be one of them.
///
/// # Panics
/// Where the kernel does not tell.
pub fn own_cpus() -> CpuSet {
    // The main thread's: tests bind themselves.
    affinity(std::process::id()).unwrap_or_else(|error| panic!("no CPUs: {error}"))
}

/// A folder that every user may enter and read, and whose programs they may start, whatever `TMPDIR` and the umask are: a service's home
/// or root's own `TMPDIR` lets nobody else in.
///
/// # Panics
/// Where this machine has none.
pub fn public_folder() -> TempDir {
    folder_in(&places())
}

fn places() -> [PathBuf; 4] {
    [env::temp_dir(), "/tmp".into(), "/var/tmp".into(), "/dev/shm".into()]
}

/// Whether a folder lies where [`public_folder`] makes one, and has such a name. Whose test made it is not asked.
pub fn is_public_folder(path: &Path) -> bool {
    let lies = |place: &PathBuf| path.parent() == Some(place);
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let drawn = name.strip_prefix(PREFIX).unwrap_or_default();
    places().iter().any(lies)
        && drawn.len() == 6
        && drawn.bytes().all(|byte| byte.is_ascii_alphanumeric())
}

/// Six letters or figures follow it.
const PREFIX: &str = "quietcores-";

fn folder_in(places: &[PathBuf]) -> TempDir {
    let public = places.iter().filter(|place| is_public(place));
    let made =
        public.filter_map(|place| tempfile::Builder::new().prefix(PREFIX).tempdir_in(place).ok());
    let opened =
        |dir: &TempDir| fs::set_permissions(dir.path(), Permissions::from_mode(0o755)).is_ok();
    let mut opened = made.filter(opened);
    opened
        .next()
        .unwrap_or_else(|| panic!("none of {places:?} is a folder that every user may enter"))
}

/// Whether others may pass each folder on the way there and start what lies there, and a socket's path (unix(7): 107 bytes) has room.
fn is_public(place: &Path) -> bool {
    let Ok(real) = fs::canonicalize(place) else { return false };
    if real.as_os_str().len() > 60 {
        return false;
    }
    let passed = |dir: &Path| fs::metadata(dir).is_ok_and(|it| it.mode() & 0o001 != 0);
    let starts = |it: rustix::fs::StatVfs| !it.f_flag.contains(StatVfsMountFlags::NOEXEC);
    real.ancestors().all(passed) && statvfs(&real).is_ok_and(starts)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{bus::as_user, is_root, program, skip_part};
    use std::process::Command;

    #[test]
    fn own_cpus_are_those_that_taskset_left() {
        const ONLY: &str = "QUIETCORES_ONLY";
        // A shield of somebody else's would leave it others meanwhile.
        crate::machine_still();
        let own = own_cpus();
        if let Ok(only) = env::var(ONLY) {
            assert_eq!(own.to_string(), only);
            return assert!(crate::cpus() == 1 && crate::Why::OneCpu.holds());
        }
        if program("taskset").is_none() {
            return skip_part(crate::Why::Program("taskset", "util-linux"));
        }
        let last = own.iter().last().expect("one at least").to_string();
        let mut again = Command::new("taskset");
        again.args(["-c", &last]).arg(env::current_exe().expect("a test binary"));
        again.args(["--exact", "place::tests::own_cpus_are_those_that_taskset_left"]);
        let done = again.env(ONLY, &last).output().expect("it starts");
        let said = crate::bus::text(&done);
        assert!(done.status.success() && said.contains("1 passed"), "{said}");
    }

    #[test]
    fn a_private_folder_is_passed_over_and_what_is_made_is_open() {
        let own = tempfile::tempdir().expect("a folder");
        fs::set_permissions(own.path(), Permissions::from_mode(0o700)).expect("a folder of ours");
        let below = own.path().join("below");
        fs::create_dir(&below).expect("a folder of ours");
        fs::set_permissions(&below, Permissions::from_mode(0o777)).expect("a folder of ours");
        assert!(!is_public(own.path()) && !is_public(&below) && !is_public(Path::new("/none")));
        let made = public_folder();
        assert!(is_public_folder(made.path()) && !is_public_folder(Path::new("/tmp")));
        for other in ["/root/quietcores-a1B2c3", "/tmp/quietcores-a1B2c34", "/tmp/quiet-a1B2c3"] {
            assert!(!is_public_folder(Path::new(other)), "{other}");
        }
        let place = made.path().parent().expect("a place").to_owned();
        let dir = folder_in(&[below, place]);
        assert!(!dir.path().starts_with(own.path()));
        assert_eq!(fs::metadata(dir.path()).expect("a folder").mode() & 0o777, 0o755);
        if !is_root() {
            return skip_part(crate::Why::Root);
        }
        if program("setpriv").is_none() {
            return skip_part(crate::Why::Program("setpriv", "util-linux"));
        }
        let own = dir.path().join("own");
        crate::copy_program("/bin/sh", &own);
        let done = as_user(crate::bus::STRANGER, "", &own).args(["-c", "exit 3"]).status();
        assert_eq!(done.expect("setpriv starts").code(), Some(3));
    }
}
