//! Whose turn the machine is: tests that change it, and tests that want it as it is. Between processes, of any checkout and any user.

use crate::is_public_folder;
use rustix::{
    fs::{FileType, FlockOperation, Mode, OFlags, flock, fstat, open, stat},
    io::Errno,
};
use std::{
    env,
    fs::{self, File, Permissions},
    io,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    process::Command,
    sync::OnceLock,
};

/// Where a lock lies: the same for everybody, as `TMPDIR`, which is each user's own, is not.
fn lock_of(what: &str) -> PathBuf {
    format!("/tmp/quietcores-{what}.lock").into()
}

/// The file at `path`, made for everybody where it is not there yet. A lock asks for no right to write.
fn opened(path: &Path) -> io::Result<File> {
    // A pipe that lies there would wait for who writes into it.
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::NONBLOCK;
    loop {
        // Never with O_CREAT: in a sticky folder `fs.protected_regular` refuses that of a file that is somebody else's (proc_sys_fs(5)).
        match open(path, flags, Mode::empty()) {
            Ok(file) if FileType::from_raw_mode(fstat(&file)?.st_mode) == FileType::RegularFile => {
                return Ok(file.into());
            }
            Ok(_) => return Err(io::Error::other("it is no plain file")),
            Err(Errno::NOENT) => {}
            Err(error) => return Err(error.into()),
        }
        // It gets its name with its mode on it, whatever the umask says: nobody meets it before.
        let new = tempfile::Builder::new()
            .prefix("quietcores-lock.")
            .tempfile_in(path.parent().unwrap_or(Path::new("/")))?;
        new.as_file().set_permissions(Permissions::from_mode(0o666))?;
        match new.persist_noclobber(path) {
            Ok(_) => {}
            // Somebody else was first.
            Err(told) if told.error.kind() == io::ErrorKind::AlreadyExists => {}
            Err(told) => return Err(told.error),
        }
    }
}

/// The lock, once it is had of the file that has this name: who sweeps the folder may have taken the one away that was waited for.
fn locked(path: &Path, how: FlockOperation) -> File {
    let place = path.display();
    loop {
        let file = opened(path).unwrap_or_else(|error| panic!("cannot open {place}: {error}"));
        // A signal may come while it waits.
        while let Err(error) = flock(&file, how) {
            assert!(error == Errno::INTR, "cannot lock {place}: {error}");
        }
        let held = fstat(&file).map(|it| (it.st_dev, it.st_ino));
        if held.is_ok() && held == stat(path).map(|it| (it.st_dev, it.st_ino)) {
            return file;
        }
    }
}

/// Waits until nobody else has what is called `what` and is there once on a machine, and keeps others from it until the file is closed.
///
/// # Panics
/// As [`machine_alone`].
pub(crate) fn turn_of(what: &str) -> File {
    locked(&lock_of(what), FlockOperation::LockExclusive)
}

/// The shield of a test that was killed, as by whoever stops what does not end: nobody else would end it, and those that follow would find
/// one CPU. Called by who has the turn, when no test that lives can have one. Shields of others stay.
fn put_back() {
    let Ok(lock) = fs::read_to_string("/run/quietcores.lock") else { return };
    // {"pid":1,"state":"...","shield":"..."}
    let state = lock.split("\"shield\":\"").nth(1).and_then(|rest| rest.split('"').next());
    let Some(state) = state.map(Path::new) else { return };
    let is_up = || state.join("journal.jsonl").exists();
    if !is_public_folder(state.parent().unwrap_or(state)) || !is_up() {
        return;
    }
    // Beside the folder of the test programs, where they were built.
    let program = env::current_exe().unwrap_or_default().with_file_name("../quietcores");
    if let Ok(said) = Command::new(program).arg("revert").arg("--state").arg(state).output() {
        eprintln!("reverting what a killed test left: {}", crate::bus::text(&said));
    }
}

/// Waits until nobody changes the machine or wants it as it is, and keeps others from both until the file is closed. What a killed test
/// left of a shield is put back.
///
/// # Panics
/// Where the lock cannot be had at all.
pub fn machine_alone() -> File {
    let turn = turn_of("machine");
    put_back();
    turn
}

/// Waits until nobody changes the machine, and keeps others from it until this program ends: where threads may run and which CPUs are
/// on line stays.
///
/// # Panics
/// As [`machine_alone`].
pub fn machine_still() {
    static HELD: OnceLock<File> = OnceLock::new();
    HELD.get_or_init(|| {
        let turn = locked(&lock_of("machine"), FlockOperation::LockShared);
        put_back();
        turn
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::MetadataExt;

    #[test]
    fn the_lock_is_everybodys_and_no_link_is_followed() {
        let dir = tempfile::tempdir().expect("a folder");
        let path = dir.path().join("lock");
        let file = locked(&path, FlockOperation::LockExclusive);
        assert_eq!(fs::metadata(&path).expect("a file").mode() & 0o7777, 0o666);
        // Another description of the same file, as another process has.
        let second = opened(&path).expect("it is there");
        assert_eq!(flock(&second, FlockOperation::NonBlockingLockShared), Err(Errno::WOULDBLOCK));
        drop(file);
        // A program that another test starts has all files open until it is another program.
        crate::until("a lock that nobody holds", || {
            flock(&second, FlockOperation::NonBlockingLockShared).ok()
        });
        // Who may only read it may lock it.
        fs::set_permissions(&path, Permissions::from_mode(0o444)).expect("a file of ours");
        opened(&path).expect("it is there");
        let names = fs::read_dir(dir.path()).expect("a folder").count();
        assert_eq!(names, 1, "nothing else is left there");

        let link = dir.path().join("link");
        std::os::unix::fs::symlink(dir.path().join("elsewhere"), &link).expect("a link");
        assert!(opened(&link).is_err());
        assert!(!dir.path().join("elsewhere").exists());
        assert!(opened(dir.path()).is_err(), "no folder");
    }

    #[test]
    fn a_lock_whose_file_was_swept_away_is_none() {
        let dir = tempfile::tempdir().expect("a folder");
        let path = dir.path().join("lock");
        let first = locked(&path, FlockOperation::LockExclusive);
        std::thread::scope(|scope| {
            let second = scope.spawn(|| locked(&path, FlockOperation::LockExclusive));
            // It may wait for the lock by now, or not: in either case it must end with that of the file that is there.
            fs::remove_file(&path).expect("it is there");
            drop(first);
            let second = second.join().expect("it gets one");
            let (there, held) = (fs::metadata(&path).expect("made anew"), second.metadata());
            assert_eq!(there.ino(), held.expect("open").ino());
        });
    }
}
