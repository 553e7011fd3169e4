//! A shield that ends with whoever asked for it, however that ends.
//!
//! A process of its own, the guard, reads from a pipe whose other end the owner alone holds: the kernel closes it with the owner,
//! also after SIGKILL. The guard is started before the first change, in a session of its own, so that neither Ctrl-C nor the end of
//! the terminal reaches it. Should it be killed, a thread of the owner's sees that and starts another one. Should both be killed,
//! [`crate::overdue`] does its work.

use crate::{
    Kernel, Result,
    error::{Error, ErrorKind, plain},
    journal::{self, Past},
    revert,
    session::leave_session,
    tasks,
};
use quiet_linux::files::StateDir;
use quiet_types::plan::Thread;
use rustix::{
    event::{PollFd, PollFlags, poll},
    process::{Pid, PidfdFlags, pidfd_open},
};
use std::{
    io::{self, BufRead, BufReader, PipeReader, PipeWriter, Read, Write},
    os::fd::OwnedFd,
    path::Path,
    process::{Child, ChildStdin, ChildStdout, Command, Stdio},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread::{self, JoinHandle, sleep},
    time::{Duration, Instant},
};

const DONE: &str = "done";
/// The owner's last word where it has no right to put the machine back itself.
const BACK: &str = "back";
/// The guard's first word.
const READY: &str = "ready\n";
/// So often a guard is started in vain, all in all, before the owner says so.
const RESTARTS: u32 = 50;
/// How long somebody else may be at work with the state directory before the guard gives up.
const PATIENCE: Duration = Duration::from_secs(60);
/// What a refused revert waits for ends within some of these.
const TURN: Duration = Duration::from_millis(200);
const TURNS: u32 = 10;

/// A guard that stands. Dropped, it is sent home: the machine should have been put back by then.
#[derive(Debug)]
pub struct Bond {
    /// Closed, the thread ends; a byte before that leaves the machine to the guard.
    stop: Option<PipeWriter>,
    thread: Option<JoinHandle<io::Result<()>>>,
    /// This process has no rights any more: no guard that it starts has any.
    poor: Arc<AtomicBool>,
}

impl Bond {
    /// Starts a guard over the shields that the calling process puts up by [`crate::up_bound`] in the state directory `state`, as
    /// `PROGRAM guard --state DIR --bound`, which calls [`guard_owner`]; it stands when this returns. `tell` hears of guards that
    /// were killed.
    ///
    /// # Errors
    /// When it cannot be started: then no shield should be put up.
    pub fn start(program: &Path, state: &Path, tell: fn(&str)) -> Result<Bond> {
        let failed = |e: io::Error| {
            Error::new(ErrorKind::State, format!("no guard could be started: {}", plain(&e)))
        };
        let (program, state) = (program.to_owned(), std::path::absolute(state).map_err(failed)?);
        let first = Guard::start(&program, &state, Owner::Caller).map_err(failed)?;
        let (stopped, stop) = io::pipe().map_err(failed)?;
        let poor = Arc::new(AtomicBool::new(false));
        let known = Arc::clone(&poor);
        let thread = thread::Builder::new()
            .name("bond".into())
            .spawn(move || keep(first, &program, &state, (&stopped, &known), tell))
            .map_err(failed)?;
        Ok(Bond { stop: Some(stop), thread: Some(thread), poor })
    }

    /// To be called where this process gives up the rights that putting back needs; [`Bond::put_back`] does it then.
    pub fn give_up(&self) {
        self.poor.store(true, Ordering::Relaxed);
    }

    /// Has the guard put the machine back, and waits for it.
    ///
    /// # Errors
    /// When there is no guard any more, or it cannot put everything back, with its reason.
    pub fn put_back(mut self) -> Result<()> {
        let told = self.stop.take().map(|mut stop| stop.write_all(&[1]));
        let ended = match (told, self.thread.take()) {
            (Some(Ok(())), Some(thread)) => thread
                .join()
                .unwrap_or_else(|_| Err(io::Error::other("the thread beside the guard broke off"))),
            _ => Err(io::Error::other("no guard can be reached")),
        };
        ended.map_err(|e| {
            let why = format!("the guard could not put the machine back: {}", plain(&e));
            Error::new(ErrorKind::State, why)
        })
    }
}

impl Drop for Bond {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// A guard over a shield that hangs on a line: it puts the machine back once the last copy of the line is closed, whoever holds it.
/// The shield's owner, by its journal, is the guard itself; so a shield whose guard was killed is put back as one whose owner was.
#[derive(Debug)]
pub struct Tether {
    guard: Thread,
    line: OwnedFd,
}

impl Tether {
    /// Starts the guard as `PROGRAM guard --state DIR --bound`, which calls [`guard_owner`]; it stands when this returns.
    ///
    /// # Errors
    /// When it cannot be started: then no shield should be put up.
    pub fn start(program: &Path, state: &Path) -> Result<Tether> {
        let failed = |e: io::Error| {
            Error::new(ErrorKind::State, format!("no guard could be started: {}", plain(&e)))
        };
        let state = std::path::absolute(state).map_err(failed)?;
        let guard = Guard::start(program, &state, Owner::Itself).map_err(failed)?;
        let Guard { mut child, input, output, owner } = guard;
        // Reads what it has to say, so that it never waits for that, and buries it.
        thread::Builder::new()
            .name("tether".into())
            .spawn(move || {
                let _ = io::copy(&mut output.take(4096), &mut io::sink());
                child.wait()
            })
            .map_err(failed)?;
        Ok(Tether { guard: owner, line: input.into() })
    }

    /// The guard, as the journal is to name the shield's owner.
    pub fn guard(&self) -> &Thread {
        &self.guard
    }

    /// The line. Closed, with all its copies, it ends the shield.
    pub fn into_line(self) -> OwnedFd {
        self.line
    }
}

/// Whose end a guard waits for.
#[derive(Clone, Copy)]
enum Owner {
    /// The process that starts it.
    Caller,
    /// Nobody's: the end of the line is enough.
    Itself,
}

struct Guard {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
    owner: Thread,
}

impl Guard {
    fn start(program: &Path, state: &Path, owner: Owner) -> io::Result<Guard> {
        let mut child = Command::new(program)
            .args(["guard", "--bound", "--state"])
            .arg(state)
            .current_dir("/")
            .env_clear()
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()?;
        let told = || -> io::Result<(ChildStdin, BufReader<ChildStdout>, Thread)> {
            let mut input = child.stdin.take().ok_or(io::ErrorKind::BrokenPipe)?;
            let owner = match owner {
                Owner::Caller => own(),
                Owner::Itself => process(child.id()),
            };
            let owner = owner.ok_or_else(|| io::Error::other("/proc does not say who it is"))?;
            serde_json::to_writer(&mut input, &owner)?;
            input.write_all(b"\n")?;
            let mut ready = String::new();
            let output = child.stdout.take().ok_or(io::ErrorKind::BrokenPipe)?;
            let mut output = BufReader::new(output);
            output.read_line(&mut ready)?;
            if ready == READY {
                Ok((input, output, owner))
            } else {
                Err(io::Error::other(format!("{} did not begin", program.display())))
            }
        }();
        match told {
            Ok((input, output, owner)) => Ok(Guard { child, input, output, owner }),
            Err(error) => {
                let _ = child.kill();
                let _ = child.wait();
                Err(error)
            }
        }
    }
}

/// This process, as the journal names it.
pub(crate) fn own() -> Option<Thread> {
    process(std::process::id())
}

fn process(pid: u32) -> Option<Thread> {
    tasks::identity(&quiet_linux::System, pid).ok().map(|found| found.thread)
}

/// Waits for the end of the bond, and has a guard all the time. The error is the guard's, where it was left to put the machine back.
fn keep(
    first: Guard,
    program: &Path,
    state: &Path,
    (mut stopped, poor): (&PipeReader, &AtomicBool),
    tell: fn(&str),
) -> io::Result<()> {
    let mut guard = Some(first);
    let mut restarts: u32 = 0;
    loop {
        let handle = guard
            .as_ref()
            .and_then(|guard| pidfd_open(Pid::from_child(&guard.child), PidfdFlags::empty()).ok());
        let mut fds = vec![PollFd::new(stopped, PollFlags::IN)];
        fds.extend(handle.as_ref().map(|handle| PollFd::new(handle, PollFlags::IN)));
        if poll(&mut fds, None).is_err() {
            continue;
        }
        if !fds[0].revents().is_empty() {
            break;
        }
        if let Some(mut killed) = guard.take() {
            let _ = killed.child.wait();
        }
        let again = loop {
            restarts += 1;
            if poor.load(Ordering::Relaxed) {
                break Err(io::Error::other("root's rights are given up"));
            }
            match Guard::start(program, state, Owner::Caller) {
                // One may be killed before it stands.
                Err(_) if restarts < RESTARTS => sleep(TURN),
                other => break other,
            }
        };
        match again {
            Ok(another) => {
                guard = Some(another);
                tell("the guard of the shield was killed; another one stands in its place");
            }
            Err(error) => tell(&format!(
                "the guard of the shield was killed, and no other one could be started ({}): if this program is killed as well, run \
                 `quietcores revert`",
                plain(&error)
            )),
        }
    }
    let back = matches!(stopped.read(&mut [0]), Ok(1));
    let Some(Guard { mut child, mut input, output, .. }) = guard else {
        return if back { Err(io::Error::other("it was killed")) } else { Ok(()) };
    };
    let _ = input.write_all(if back { BACK } else { DONE }.as_bytes());
    drop(input);
    let mut said = String::new();
    if back {
        let _ = output.take(4096).read_to_string(&mut said);
    }
    match child.wait()? {
        end if !back || end.success() => Ok(()),
        _ if said.is_empty() => Err(io::Error::other("it was killed")),
        _ => Err(io::Error::other(said.trim_end().to_owned())),
    }
}

/// What the guard does: as told on standard input, waits for the end of its owner, and puts back what that had put up with the
/// state directory `state`. `ready` is called once the guard stands.
///
/// # Errors
/// When standard input tells of no owner, and when the journal cannot be read or the machine not be put back.
pub fn guard_owner(kernel: &dyn Kernel, state: &Path, ready: &mut dyn FnMut(&str)) -> Result<()> {
    let failed = |why: String| Error::new(ErrorKind::State, why);
    let cannot = |e: io::Error| failed(format!("the guard cannot read its order: {}", plain(&e)));
    // Those that end a session are not for it.
    quiet_linux::sys::process::block_signals().map_err(cannot)?;
    let _ = rustix::process::setsid();
    let mut input = io::stdin().lock();
    let mut order = String::new();
    Read::take(&mut input, 4096).read_line(&mut order).map_err(cannot)?;
    let owner: Thread = serde_json::from_str(&order)
        .map_err(|_| failed("`guard --bound` is started by others, with an order".into()))?;
    leave_session();
    // It has little time, and a stress may be at work beside it.
    let _ = rustix::process::setpriority_process(None, -15);
    ready(READY);
    let mut rest = String::new();
    let _ = Read::take(&mut input, 64).read_line(&mut rest);
    if rest == DONE {
        return Ok(());
    }
    // The pipe is closed before its last thread is gone.
    let itself = owner.tid == std::process::id();
    while rest != BACK && !itself && tasks::lives(kernel, &owner) {
        sleep(Duration::from_millis(2));
    }
    let begun = Instant::now();
    let mut turns = 0;
    loop {
        match put_back(kernel, state, &owner) {
            Err(error) if error.kind() == ErrorKind::Busy && begun.elapsed() < PATIENCE => {
                sleep(Duration::from_millis(5));
            }
            Ok(false) if turns < TURNS => {
                turns += 1;
                sleep(TURN);
            }
            Ok(true) => return Ok(()),
            Ok(false) => {
                let why = failed("not all is as it was: see `quietcores status`".into());
                ready(&format!("{why}\n"));
                return if rest == BACK { Err(why) } else { Ok(()) };
            }
            Err(error) => {
                ready(&format!("{error}\n"));
                return Err(error);
            }
        }
    }
}

/// Puts back a shield of `owner`; whether nothing is left to do.
fn put_back(kernel: &dyn Kernel, state: &Path, owner: &Thread) -> Result<bool> {
    let Some(state) = StateDir::open(state)? else { return Ok(true) };
    let _lock = state.lock_machine(kernel.lock_file().as_deref())?;
    let Some(past) = journal::read(&state)? else { return Ok(true) };
    // One without a whole first line is nobody's, and nobody is at work with it.
    if !past.is_empty() && !past.by.process.as_ref().is_some_and(|one| one.is(owner)) {
        return Ok(true);
    }
    Ok(revert::put_back(kernel, &state, &past).is_complete())
}

/// Whether the shield of a journal of this boot was to end with a process that is gone.
pub(crate) fn is_orphan(kernel: &dyn Kernel, past: &Past) -> bool {
    past.by.process.as_ref().is_some_and(|owner| tasks::has_ended(kernel, owner))
}
