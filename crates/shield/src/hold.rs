//! The process that keeps `/dev/cpu_dma_latency` at 0 while a shield is up.
//!
//! The kernel forgets the constraint when the file is closed, so somebody must live as long as the
//! shield. That process is found by its lock on `hold` in the state directory, never by a number
//! that was written down: it cannot be mistaken for another one.

use crate::{
    error::{is_gone, plain},
    journal,
};
use quiet_linux::files::StateDir;
use rustix::{
    event::{PollFd, PollFlags, Timespec},
    fs::{FlockOperation, OFlags},
    io::Errno,
    process::{Flock, FlockType, Pid, PidfdFlags, Signal},
};
use std::{
    fs::{File, OpenOptions},
    io::{self, Read, Write},
    path::Path,
    process::{Child, Command, Stdio},
    sync::{Mutex, PoisonError},
    thread::sleep,
    time::{Duration, Instant},
};

const DEVICE: &str = "/dev/cpu_dma_latency";
const FILE: &str = "hold";
/// Longer than any machine needs to start a program: an emulated one beside others took more than 5 s.
const PATIENCE: Duration = Duration::from_secs(20);

/// How long the guard of an earlier shield or loan may take to see that its work is over.
const EARLIER: Duration = Duration::from_secs(4);

/// Starts the holder and waits until it holds.
pub(crate) fn start(program: &Path, state: &StateDir) -> Result<u32, String> {
    if !Path::new(DEVICE).exists() {
        return Err(format!("this kernel has no {DEVICE} (no CPU idle states to forbid)"));
    }
    spawn(program, &["hold"], state, FILE).map_err(|why| {
        match why.strip_prefix("it ended at once") {
            Some(status) => format!("the holder could not take {DEVICE}{status}"),
            None => format!("the holder: {why}"),
        }
    })
}

/// Starts `PROGRAM WORDS --state DIR` and waits until it has taken its lock.
pub(crate) fn spawn(
    program: &Path,
    words: &[&str],
    state: &StateDir,
    file: &str,
) -> Result<u32, String> {
    let mut child = Command::new(program)
        .args(words)
        .arg("--state")
        .arg(state.path())
        .current_dir("/")
        .env_clear()
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .map_err(|e| format!("cannot start {}: {}", program.display(), plain(&e)))?;
    let until = Instant::now() + PATIENCE;
    while Instant::now() < until {
        if locked(state, file) == Some(child.id()) {
            bury();
            let pid = child.id();
            STARTED.lock().unwrap_or_else(PoisonError::into_inner).push(child);
            return Ok(pid);
        }
        if let Ok(Some(status)) = child.try_wait() {
            return Err(format!("it ended at once ({status})"));
        }
        sleep(Duration::from_millis(1));
    }
    let _ = child.kill();
    let _ = child.wait();
    Err(format!("it did not begin within {} s", PATIENCE.as_secs()))
}

/// Holders and guards that this process has started, and whose end it has not seen.
static STARTED: Mutex<Vec<Child>> = Mutex::new(Vec::new());

/// Buries the holders and guards that this process has started and that have ended: a service that lives for months has to call this now
/// and then, or each one stays as a zombie. Children of others in this process are left to those.
///
/// No thread waits for them: it would keep the rights that its process gives up.
pub fn bury() {
    let mut started = STARTED.lock().unwrap_or_else(PoisonError::into_inner);
    started.retain_mut(|child| matches!(child.try_wait(), Ok(None)));
}

/// Takes the guard's lock: where it is held, the guard of an earlier shield has yet to end.
pub(crate) fn stand(state: &StateDir, file: &str) -> crate::Result<File> {
    let failed = |why: String| crate::Error::new(crate::ErrorKind::State, why);
    let lock = state
        .open_file(file, OFlags::RDWR | OFlags::CREATE)
        .map_err(|e| failed(format!("cannot open {file}: {}", plain(&e))))?;
    let until = Instant::now() + EARLIER;
    loop {
        match rustix::fs::fcntl_lock(&lock, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => return Ok(lock),
            Err(Errno::AGAIN | Errno::ACCESS) if Instant::now() < until => {
                sleep(Duration::from_millis(10));
            }
            Err(e) => return Err(failed(format!("another guard stands: {}", plain(&e.into())))),
        }
    }
}

/// The process that holds the lock now.
pub(crate) fn find(state: &StateDir) -> Option<u32> {
    locked(state, FILE)
}

/// The process that has locked a file of the state directory; `None` also where that cannot be told.
pub(crate) fn locked(state: &StateDir, file: &str) -> Option<u32> {
    let held = lock_of(state, file).ok()??;
    u32::try_from(held.pid?.as_raw_nonzero().get()).ok()
}

/// Whether nobody has locked a file of the state directory, for certain.
///
/// # Errors
/// When it cannot be told.
pub(crate) fn is_free(state: &StateDir, file: &str) -> crate::Result<bool> {
    let failed = |e: io::Error| {
        let why = format!("cannot tell who holds {file}: {}", plain(&e));
        crate::Error::new(crate::ErrorKind::State, why)
    };
    Ok(lock_of(state, file).map_err(failed)?.is_none())
}

fn lock_of(state: &StateDir, file: &str) -> io::Result<Option<Flock>> {
    let file = match state.open_file(file, OFlags::RDWR) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        other => other?,
    };
    Ok(rustix::process::fcntl_getlk(&file, &Flock::from(FlockType::WriteLock))?)
}

/// Ends the holder, and waits for its end. `false` where there was none.
pub(crate) fn stop(state: &StateDir) -> Result<bool, String> {
    let Some(pid) = find(state) else { return Ok(false) };
    let Some(pid) = i32::try_from(pid).ok().and_then(Pid::from_raw) else { return Ok(false) };
    let told = |e: Errno| format!("cannot end the holder, process {pid:?}: {e}");
    let handle = match rustix::process::pidfd_open(pid, PidfdFlags::empty()) {
        Ok(handle) => handle,
        Err(Errno::SRCH) => return Ok(true),
        Err(error) => return Err(told(error)),
    };
    // The number may have changed hands before the handle was taken.
    if find(state) != u32::try_from(pid.as_raw_nonzero().get()).ok() {
        return Ok(false);
    }
    match rustix::process::pidfd_send_signal(&handle, Signal::TERM) {
        Ok(()) | Err(Errno::SRCH) => {}
        Err(error) => return Err(told(error)),
    }
    let patience = Timespec { tv_sec: PATIENCE.as_secs() as i64, tv_nsec: 0 };
    let mut ended = [PollFd::new(&handle, PollFlags::IN)];
    if rustix::event::poll(&mut ended, Some(&patience)) == Ok(0) {
        return Err(format!("the holder, process {pid:?}, does not end"));
    }
    // It is our child where one process puts the shield up and takes it down.
    bury();
    Ok(true)
}

/// What the holder does: holds, until the journal that it serves is gone.
///
/// # Errors
/// When the device cannot be opened or does not hold, or another holder is there already.
pub fn hold(state: &Path) -> crate::Result<()> {
    let failed = |why: String| crate::Error::new(crate::ErrorKind::State, why);
    let state = StateDir::open(state)?
        .ok_or_else(|| failed(format!("there is no shield in {}", state.display())))?;
    let journal = journal::identity(&state)
        .map_err(|e| failed(format!("there is no journal to serve: {}", plain(&e))))?;
    let device = take().map_err(|e| failed(format!("cannot hold {DEVICE}: {}", plain(&e))))?;
    // A session of its own: the terminal's hang-up and Ctrl-C are not for it, nor is the end of the service that started it.
    let _ = rustix::process::setsid();
    crate::session::leave_session();
    let lock = state
        .open_file(FILE, OFlags::RDWR | OFlags::CREATE)
        .map_err(|e| failed(format!("cannot open {FILE}: {}", plain(&e))))?;
    rustix::fs::fcntl_lock(&lock, FlockOperation::NonBlockingLockExclusive)
        .map_err(|e| failed(format!("another holder is there: {}", plain(&e.into()))))?;
    loop {
        match journal::identity(&state) {
            Ok(now) if now == journal => {}
            Err(error) if !is_gone(&error) => {}
            _ => break,
        }
        sleep(Duration::from_secs(1));
    }
    drop((device, lock));
    Ok(())
}

/// Opens the device, asks for 0 us and reads the value in force.
///
/// # Source
/// "From user space" in pm_qos_interface of the kernel's documentation.
fn take() -> io::Result<File> {
    let mut device = OpenOptions::new().read(true).write(true).open(DEVICE)?;
    device.write_all(&0i32.to_ne_bytes())?;
    let mut now = [0u8; 4];
    device.read_exact(&mut now)?;
    match i32::from_ne_bytes(now) {
        0 => Ok(device),
        other => Err(io::Error::other(format!("{other} us stay in force"))),
    }
}
