//! Whose turn the machine is: tests that change it, and tests that want it as it is. Between processes, of any checkout.

use rustix::fs::{FlockOperation, flock};
use std::{fs::File, sync::OnceLock};

fn locked(how: FlockOperation) -> File {
    let path = std::env::temp_dir().join("quietcores-machine.lock");
    let open = File::options().create(true).append(true).open(&path);
    let file = open.unwrap_or_else(|error| panic!("cannot open {}: {error}", path.display()));
    // A signal may come while it waits.
    while let Err(error) = flock(&file, how) {
        assert!(error == rustix::io::Errno::INTR, "cannot lock {}: {error}", path.display());
    }
    file
}

/// Waits until nobody changes the machine or wants it as it is, and keeps others from both until the file is closed.
///
/// # Panics
/// Where the lock cannot be had at all.
pub fn machine_alone() -> File {
    locked(FlockOperation::LockExclusive)
}

/// Waits until nobody changes the machine, and keeps others from it until this program ends: where threads may run and which CPUs are
/// on line stays.
///
/// # Panics
/// As [`machine_alone`].
pub fn machine_still() {
    static HELD: OnceLock<File> = OnceLock::new();
    HELD.get_or_init(|| locked(FlockOperation::LockShared));
}
