//! A shield that ends with whoever asked for it, however that ends.
//!
//! A process of its own, the guard, reads from a pipe whose other end the owner alone holds: the kernel closes it with the owner,
//! also after SIGKILL. The guard is started before the first change, in a session of its own, so that neither Ctrl-C nor the end of
//! the terminal reaches it. Should it be killed, a thread of the owner's sees that and starts another one. Should both be killed,
//! [`crate::overdue`] does its work.

use crate::{
    Kernel, Result, boot_id,
    error::{Error, ErrorKind, plain},
    journal::{self, Past},
    revert,
    session::leave_session,
    standing::is_rebooted,
    tasks,
};
use quiet_linux::{Hindrance, Insist, files::StateDir};
use quiet_types::plan::Thread;
use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
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
    time::Duration,
};

const DONE: &str = "done";
/// The owner's last word where it has no right to put the machine back itself.
const BACK: &str = "back";
/// The guard's first word.
const READY: &str = "ready\n";
/// So often a guard is started in vain, all in all, before the owner says so.
const RESTARTS: u32 = 50;
/// Between two of those.
const TURN: Duration = Duration::from_millis(200);
/// A guard that cannot be waited for is looked at so often.
const LOOK: Duration = Duration::from_secs(1);
/// So often at least the end of an owner is looked for.
const END: Duration = Duration::from_millis(100);

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
        // Without a handle (no file was to be had) nothing tells of its end.
        let look = Timespec { tv_sec: LOOK.as_secs() as i64, tv_nsec: 0 };
        let timeout = (guard.is_some() && handle.is_none()).then_some(&look);
        if poll(&mut fds, timeout).is_err() {
            continue;
        }
        if !fds[0].revents().is_empty() {
            break;
        }
        if guard.as_mut().is_some_and(|guard| matches!(guard.child.try_wait(), Ok(None))) {
            continue;
        }
        drop(guard.take());
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
    // It ends, or says why it stays: then it goes on by itself.
    let mut said = String::new();
    let _ = output.take(4096).read_line(&mut said);
    match said.trim_end() {
        "" => match child.wait()? {
            end if !back || end.success() => Ok(()),
            _ => Err(io::Error::other("it was killed")),
        },
        why if back => Err(io::Error::other(why.to_owned())),
        _ => Ok(()),
    }
}

/// What the guard does: as told on standard input, waits for the end of its owner, and puts back what that had put up with the
/// state directory `state`. `ready` is called once the guard stands. What cannot be put back yet is tried again for as long as the
/// owner's shield is there.
///
/// # Errors
/// When standard input tells of no owner.
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
    let word = last_word(&mut input, owner.tid == std::process::id());
    if word == Word::Done {
        if is_over(kernel, state, &owner) {
            return Ok(());
        }
        ready("what its owner has put up is still there: the guard stays\n");
    }
    if word != Word::Back {
        await_end(kernel, &owner);
    }
    insist(kernel, state, &owner, &mut |why| ready(&format!("{}\n", why.replace('\n', " "))));
    Ok(())
}

/// How the owner ended the line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Word {
    /// It is closed: by the kernel, as a rule.
    Closed,
    /// There should be nothing left to do.
    Done,
    /// The machine is to be put back, though the owner lives.
    Back,
}

/// Waits for the end of the line. The other end of a tether's is in the hands of a user: no word that comes by it counts, and it is at its
/// end when the kernel closes it.
fn last_word(line: &mut impl BufRead, is_tether: bool) -> Word {
    if is_tether {
        let _ = io::copy(line, &mut io::sink());
        return Word::Closed;
    }
    let mut word = String::new();
    let _ = Read::take(line, 64).read_line(&mut word);
    match word.as_str() {
        DONE => Word::Done,
        BACK => Word::Back,
        _ => Word::Closed,
    }
}

/// Waits until the owner is gone: the pipe is closed before its last thread is.
fn await_end(kernel: &dyn Kernel, owner: &Thread) {
    let mut pause = Duration::from_millis(2);
    while owner.tid != std::process::id() && !tasks::has_ended(kernel, owner) {
        sleep(pause);
        pause = (pause * 2).min(END);
    }
}

/// Puts back what `owner` has put up, whatever stands in the way and however long; `tell` hears once why that takes so long.
fn insist(kernel: &dyn Kernel, state: &Path, owner: &Thread, tell: &mut dyn FnMut(&str)) {
    let mut insist = Insist::default();
    let mut own = None;
    loop {
        let (hindrance, why) = match put_back(kernel, state, owner, &mut own) {
            Ok(true) => return,
            Ok(false) => {
                (Hindrance::Refused, "not all is as it was: see `quietcores status`".to_owned())
            }
            Err(error) => (error.hindrance(), error.to_string()),
        };
        let pause = insist.failed(hindrance);
        if insist.is_to_be_told() {
            tell(&why);
        }
        sleep(pause);
    }
}

/// Whether the journal tells of nothing that `owner` has put up, for certain.
fn is_over(kernel: &dyn Kernel, state: &Path, owner: &Thread) -> bool {
    let look = || -> Result<bool> {
        let Some(state) = StateDir::open(state)? else { return Ok(true) };
        let past = journal::read(&state)?;
        Ok(past.is_none_or(|past| past.is_empty() || !is_of(kernel, &past, owner)))
    };
    look().unwrap_or(false)
}

/// Puts back a shield of `owner`; whether nothing is left to do. `own` is its journal, once it was seen: where the owner lives on, its next
/// shield is not this one.
fn put_back(
    kernel: &dyn Kernel,
    state: &Path,
    owner: &Thread,
    own: &mut Option<Vec<u8>>,
) -> Result<bool> {
    let Some(state) = StateDir::open(state)? else { return Ok(true) };
    let _lock = state.lock_machine(kernel.lock_file().as_deref())?;
    let Some(past) = journal::read(&state)? else { return Ok(true) };
    if !is_of(kernel, &past, owner) {
        return Ok(true);
    }
    if let Some(own) = own.as_ref()
        && !journal::is_same(&state, own)?
    {
        return Ok(true);
    }
    *own = journal::identity(&state).ok();
    Ok(revert::put_back(kernel, &state, &past).is_complete())
}

/// Whether the journal is of `owner`'s shield. One without a whole first line is nobody's, and nobody is at work with it.
fn is_of(kernel: &dyn Kernel, past: &Past, owner: &Thread) -> bool {
    // Of another boot is only what is known to be: the owner is of this one, and numbers and ticks may be the same again.
    let is_earlier = boot_id(kernel).is_ok_and(|boot| is_rebooted(past, &boot));
    let is_owned = past.by.process.as_ref().is_some_and(|one| one.is(owner));
    past.is_empty() || (is_owned && !is_earlier)
}

/// Whether the shield of a journal of this boot was to end with a process that is gone.
pub(crate) fn is_orphan(kernel: &dyn Kernel, past: &Past) -> bool {
    past.by.process.as_ref().is_some_and(|owner| tasks::has_ended(kernel, owner))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        journal::Journal,
        nobody::{BOOT, Nobody, START, shielded},
    };
    use quiet_types::plan::AppliedBy;
    use std::{
        fs::{Permissions, set_permissions},
        os::unix::fs::PermissionsExt,
    };

    /// The process of that number that began with the first one.
    fn thread(tid: u32) -> Thread {
        Thread { tid, start: START, comm: "owner".into() }
    }

    fn of(owner: &Thread) -> AppliedBy {
        AppliedBy { uid: Some(0), process: Some(owner.clone()) }
    }

    #[test]
    fn no_word_of_a_users_line_sends_its_guard_home() {
        for said in [DONE, BACK, "done\nback\n", "\u{fffd}\n", ""] {
            assert_eq!(last_word(&mut said.as_bytes(), true), Word::Closed, "{said}");
        }
        let mut line = &b"done\nand more"[..];
        assert_eq!(last_word(&mut line, true), Word::Closed);
        assert!(line.is_empty(), "the line is at its end where the kernel says so");
        for (said, word) in [(DONE, Word::Done), (BACK, Word::Back), ("", Word::Closed)] {
            assert_eq!(last_word(&mut said.as_bytes(), false), word, "{said}");
        }
    }

    #[test]
    fn what_stands_in_the_way_is_waited_for() {
        let (dir, owner) = (tempfile::tempdir().unwrap(), thread(77));
        let path = dir.path().join("state");
        let state = shielded(&path, &of(&owner), &[]);
        // Somebody else is at work; then the directory cannot be used; then nothing can be read.
        let lock = state.lock().unwrap();
        let kernel = Nobody::default();
        kernel.unread.set(1);
        thread::scope(|scope| {
            scope.spawn(|| {
                sleep(Duration::from_millis(100));
                set_permissions(&path, Permissions::from_mode(0o777)).unwrap();
                drop(lock);
                sleep(Duration::from_millis(200));
                set_permissions(&path, Permissions::from_mode(0o700)).unwrap();
            });
            insist(&kernel, &path, &owner, &mut |_| {});
        });
        assert!(journal::read(&state).unwrap().is_none());
    }

    #[test]
    fn the_next_shield_of_an_owner_who_lives_is_left_alone() {
        let (dir, owner) = (tempfile::tempdir().unwrap(), thread(77));
        let path = dir.path().join("state");
        let state = shielded(&path, &of(&owner), &[]);
        let (kernel, mut own) = (Nobody::default(), Some(b"another\n".to_vec()));
        assert!(put_back(&kernel, &path, &owner, &mut own).unwrap());
        assert!(journal::read(&state).unwrap().is_some());
        // Neither is anybody else's, nor that of a process with the same numbers in another boot.
        assert!(put_back(&kernel, &path, &thread(78), &mut None).unwrap());
        assert!(journal::read(&state).unwrap().is_some());
        let path = dir.path().join("earlier");
        let state = StateDir::make(&path).unwrap();
        let shield = journal::read(&shielded(&dir.path().join("x"), &of(&owner), &[])).unwrap();
        let shield = shield.unwrap().shield.unwrap();
        Journal::begin(&state, &format!("not {BOOT}"), &shield, &[], &of(&owner)).unwrap();
        assert!(put_back(&kernel, &path, &owner, &mut None).unwrap());
        assert!(journal::read(&state).unwrap().is_some());
        assert!(
            is_over(&kernel, &path, &owner) && !is_over(&kernel, &dir.path().join("x"), &owner)
        );
    }

    #[test]
    fn who_cannot_be_looked_at_has_not_ended() {
        let kernel = Nobody::default();
        let lives = thread(1);
        assert!(!tasks::has_ended(&kernel, &lives) && tasks::has_ended(&kernel, &thread(2)));
        kernel.unread.set(1);
        assert!(!tasks::has_ended(&kernel, &lives));
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("state");
        let state = shielded(&path, &of(&lives), &[]);
        for unread in 0..4 {
            kernel.unread.set(unread);
            // An error, or nothing: never the end of who lives.
            assert!(!matches!(crate::overdue(&kernel, &path), Ok(Some(_))), "{unread}");
            assert!(journal::read(&state).unwrap().is_some());
        }
    }
}
