//! Keeps a shield as it was made: looks again when the kernel tells of something, and at times.
//!
//! What the kernel tells at once: a partition that changed its state (poll on its file), devices and
//! CPUs (uevents), programs and threads (the process connector). What it tells nobody (masks of
//! interrupts, governors) is seen at the regular look. A look takes every step of a fresh plan
//! again; what is put right stands in the journal first, or stood there already.

mod keep;
mod netlink;
mod partition;
mod rehearsal;

use crate::{
    ApplyOptions, Kernel, Result, bond, boot_id,
    error::{Error, ErrorKind, plain},
    journal::{self, Reader},
    standing::standing,
    status::current,
    tasks,
};
use keep::{Look, Seen};
#[cfg(fuzzing)]
pub(crate) use netlink::message as netlink_message;
use netlink::{Message, Socket};
use partition::Partition;
use quiet_linux::{
    Hindrance, Insist,
    files::{StateDir, stamp},
};
use quiet_types::{
    Finding, Plan,
    plan::{Action, Outcome, ShieldStanding, Step, Taken},
    shield::Shield,
    watch::{Event, Happened, Trigger, WATCH_SCHEMA},
};
use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    io::Errno,
    time::{
        ClockId, Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, clock_gettime,
        timerfd_create, timerfd_settime,
    },
};
use std::{
    collections::{BTreeMap, BTreeSet, HashMap, HashSet},
    io,
    os::fd::OwnedFd,
    path::Path,
    sync::atomic::{AtomicBool, Ordering},
    thread::sleep,
    time::{Duration, Instant},
};

/// Threads take their names a moment after they are born, devices come in several messages.
const SETTLE: Duration = Duration::from_millis(50);
/// While somebody else is at work.
const BUSY: Duration = Duration::from_millis(200);
/// However much happens, no look waits longer for it to settle.
const PATIENCE: Duration = Duration::from_millis(500);
/// After so many times within [`QUARREL`] the same thing is left alone for a while.
const TIMES: u32 = 5;
const QUARREL: Duration = Duration::from_secs(120);
/// The first pause; each further one is twice as long, up to the last.
const FIRST_PAUSE: Duration = Duration::from_secs(60);
const LAST_PAUSE: Duration = Duration::from_secs(960);
/// More things that others change are not counted one by one.
const CONTESTED: usize = 1024;

/// What is wanted, on the machine as it is now.
#[derive(Clone, Debug)]
pub struct Planned {
    /// The plan for the shield that is up.
    pub plan: Plan,
    /// The processes that the links are: names as the kernel cuts them, and the users whose they may be; no user where anybody's is
    /// worth a look.
    pub names: Vec<(String, Vec<u32>)>,
}

/// A watch over a shield.
pub struct Watch<'a> {
    /// The machine.
    pub kernel: &'a dyn Kernel,
    /// The state directory.
    pub state: &'a Path,
    /// As in [`crate::ApplyOptions`].
    pub holder: Option<&'a Path>,
    /// Ends the watch when raised.
    pub interrupt: &'a AtomicBool,
    /// The regular look.
    pub every: Duration,
    /// Tells of drift and changes nothing.
    pub report_only: bool,
    /// Makes a fresh plan for the shield, or says why none can be made.
    pub plan: &'a mut dyn FnMut(&Shield) -> std::result::Result<Planned, String>,
    /// Takes the events; an error ends the watch.
    pub tell: &'a mut dyn FnMut(&Event) -> io::Result<()>,
}

/// Takes the steps of a fresh plan that do not hold, once, under the shield that is up: for what was started anew since it was put up.
/// Returns those that did not hold, and what became of them.
///
/// # Errors
/// When the state directory or the journal cannot be used.
pub fn look_again(
    kernel: &dyn Kernel,
    plan: &Plan,
    setup: &ApplyOptions<'_>,
) -> Result<Vec<Taken>> {
    let mut look = Look {
        kernel,
        state: setup.state,
        holder: setup.holder,
        own: None,
        report_only: false,
        anew: false,
        paused: &|_| false,
        reader: &mut Reader::default(),
    };
    Ok(match look.look(plan)? {
        Seen::Down | Seen::Another => Vec::new(),
        Seen::Up(found) => {
            found.into_iter().map(|(step, outcome)| Taken { step, outcome }).collect()
        }
    })
}

/// Watches until the shield that is up now is taken down, `interrupt` is raised or nobody takes the events. The next shield is not its
/// own, be it of the same CPUs.
///
/// # Errors
/// When no shield is up, or the state directory or the journal cannot be used.
pub fn watch(watch: Watch<'_>) -> Result<()> {
    // Before the shield is looked at: where it is replaced between the two, the first look tells.
    let own = own(watch.state);
    let (Some(shield), Some(own)) = (current(watch.kernel, watch.state)?, own) else {
        return Err(Error::new(
            ErrorKind::State,
            format!(
                "no shield is up to watch over ({}); put one up with `quietcores apply`",
                watch.state.display()
            ),
        ));
    };
    // Its own work belongs on the other CPUs; a partition has seen to it already.
    let us = rustix::thread::gettid().as_raw_nonzero().get().unsigned_abs();
    let _ = watch.kernel.set_affinity(us, &shield.housekeeping);
    let mut missing = Vec::new();
    let ears = Ears::open(&shield, &mut missing);
    let mut sentry = Sentry {
        watch,
        shield,
        own,
        names: Vec::new(),
        processes: HashSet::new(),
        reported: BTreeSet::new(),
        findings: BTreeMap::new(),
        contests: HashMap::new(),
        unplanned: None,
        slept: asleep(),
        anew: true,
        reader: Reader::default(),
    };
    let started = Happened::Started {
        shield: sentry.shield.clone(),
        report_only: sentry.watch.report_only,
        missing,
    };
    let ended = match sentry.tell(started) {
        Ok(()) => sentry.run(ears)?,
        Err(error) => error.to_string(),
    };
    let _ = sentry.tell(Happened::Ended { why: ended });
    Ok(())
}

/// By what the shield that is up is known.
fn own(state: &Path) -> Option<Vec<u8>> {
    journal::identity(&StateDir::open(state).ok()??).ok()
}

/// What is listened to.
struct Ears {
    devices: Option<Socket>,
    processes: Option<Socket>,
    partition: Option<Partition>,
    clock: Option<OwnedFd>,
}

impl Ears {
    fn open(shield: &Shield, missing: &mut Vec<String>) -> Ears {
        let mut heard = |what: &str, socket: io::Result<Socket>| match socket {
            Ok(socket) => Some(socket),
            Err(error) => {
                missing.push(format!("{what}: {}", plain(&error)));
                None
            }
        };
        let devices = heard("devices", netlink::devices());
        let processes = heard("programs and threads", netlink::processes());
        let mut partition = Partition::of(shield);
        missing.extend(partition.as_mut().and_then(|partition| partition.open().err()));
        let clock = match clock() {
            Ok(clock) => Some(clock),
            Err(error) => {
                missing.push(format!("the end of sleep: {}", plain(&error)));
                None
            }
        };
        Ears { devices, processes, partition, clock }
    }
}

/// A timer that nobody waits for: the kernel wakes its readers when the clock jumps, as it does
/// after sleep.
///
/// # Source
/// timerfd_create(2), TFD_TIMER_CANCEL_ON_SET; `timerfd_resume` of fs/timerfd.c.
fn clock() -> io::Result<OwnedFd> {
    let clock =
        timerfd_create(TimerfdClockId::Realtime, TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK)?;
    let never = Itimerspec {
        it_interval: Timespec { tv_sec: 0, tv_nsec: 0 },
        it_value: Timespec { tv_sec: i64::from(u32::MAX), tv_nsec: 0 },
    };
    timerfd_settime(&clock, TimerfdTimerFlags::ABSTIME | TimerfdTimerFlags::CANCEL_ON_SET, &never)?;
    Ok(clock)
}

/// How often something was put right lately.
#[derive(Default)]
struct Contest {
    times: u32,
    since: Option<Instant>,
    pause: Option<Duration>,
    until: Option<Instant>,
}

struct Sentry<'a> {
    watch: Watch<'a>,
    shield: Shield,
    /// The first line of its journal: which one it is.
    own: Vec<u8>,
    /// Names of the links' processes, and whose they may be.
    names: Vec<(String, Vec<u32>)>,
    /// Numbers of the links' processes.
    processes: HashSet<u32>,
    /// What a watch that only reports has told and still is so.
    reported: BTreeSet<String>,
    findings: BTreeMap<String, Finding>,
    contests: HashMap<String, Contest>,
    unplanned: Option<String>,
    /// How long the machine has slept, when that was last looked at.
    slept: Duration,
    /// Whether the next look asks again what the kernel refused before: CPUs or devices came or went since, and what is
    /// written while a CPU goes off line is refused.
    anew: bool,
    reader: Reader,
}

impl Sentry<'_> {
    /// Looks until there is a reason to end, which is returned.
    fn run(&mut self, mut ears: Ears) -> Result<String> {
        let mut cause = Trigger::Start;
        let mut insist = Insist::default();
        loop {
            let failed = match self.look(cause) {
                Ok(Some(why)) => return Ok(why),
                Ok(None) => None,
                Err(Failure::Telling(error)) => return Ok(format!("nobody listens: {error}")),
                Err(Failure::Looking(error)) => Some(error),
            };
            let pause = match failed {
                None => {
                    insist.done();
                    self.watch.every
                }
                // An apply or revert is at work: it goes first.
                Some(error) if error.kind() == ErrorKind::Busy => BUSY,
                // No file was to be had, or no memory: that may be over soon.
                Some(error) => {
                    let pause = insist.failed(Hindrance::Trouble);
                    if insist.is_to_be_told() {
                        return Err(error);
                    }
                    pause
                }
            };
            // The group may have been made anew, by this look or by somebody else.
            if let Some(partition) = &mut ears.partition {
                let _ = partition.open();
            }
            cause = match self.wait(&mut ears, pause) {
                Some(cause) => cause,
                None => return Ok("stopped by a signal".into()),
            };
        }
    }

    /// Waits for something that is worth a look, at most `pause`; `None` when it is to end.
    fn wait(&mut self, ears: &mut Ears, pause: Duration) -> Option<Trigger> {
        let regular = Instant::now() + pause;
        let mut found: Option<(Trigger, Instant, Instant)> = None;
        loop {
            if self.watch.interrupt.load(Ordering::Relaxed) {
                return None;
            }
            let now = Instant::now();
            let until = match found {
                Some((cause, settled, latest)) if now >= settled.min(latest) => return Some(cause),
                Some((_, settled, latest)) => settled.min(latest),
                None if now >= regular => return Some(Trigger::Regular),
                None => regular,
            };
            if let Some(cause) = self.listen(ears, until - now) {
                let now = Instant::now();
                let latest = found.map_or(now + PATIENCE, |(_, _, latest)| latest);
                let cause = found.map_or(cause, |(first, _, _)| first);
                found = Some((cause, now + SETTLE, latest));
            }
        }
    }

    fn listen(&mut self, ears: &mut Ears, pause: Duration) -> Option<Trigger> {
        let mut fds = Vec::with_capacity(4);
        let sockets = [&ears.devices, &ears.processes];
        for socket in sockets.into_iter().flatten() {
            fds.push(PollFd::new(socket.fd(), PollFlags::IN));
        }
        let partition = ears.partition.as_ref().and_then(Partition::file);
        let changed = partition.map(|file| {
            fds.push(PollFd::new(file, PollFlags::PRI));
            fds.len() - 1
        });
        if let Some(clock) = &ears.clock {
            fds.push(PollFd::new(clock, PollFlags::IN));
        }
        let timeout = Timespec {
            tv_sec: pause.as_secs().min(3600) as i64,
            tv_nsec: pause.subsec_nanos().into(),
        };
        match poll(&mut fds, Some(&timeout)) {
            Ok(1..) => {}
            Ok(0) | Err(Errno::INTR) => return None,
            // Without memory it would be asked again at once.
            Err(_) => {
                sleep(SETTLE.min(pause));
                return None;
            }
        }
        let told = |events: PollFlags| events.intersects(PollFlags::PRI | PollFlags::ERR);
        let changed = changed.is_some_and(|at| told(fds[at].revents()));
        drop(fds);
        let mut cause = None;
        // Read, so that it tells of the next time.
        let jumped = ears
            .clock
            .as_ref()
            .is_some_and(|clock| rustix::io::read(clock, &mut [0u8; 8]) == Err(Errno::CANCELED));
        let slept = asleep();
        if jumped && slept.abs_diff(self.slept) > Duration::from_secs(1) {
            cause = Some(Trigger::Resume);
            self.anew = true;
        }
        self.slept = slept;
        if let (true, Some(partition)) = (changed, &mut ears.partition) {
            partition.read();
            cause = cause.or(Some(Trigger::Partition));
        }
        for socket in [&ears.devices, &ears.processes].into_iter().flatten() {
            while let Some(message) = socket.next() {
                let one = self.weigh(&message);
                self.anew |= matches!(one, Some(Trigger::Device | Trigger::Regular));
                cause = cause.or(one);
            }
        }
        cause
    }

    /// Whether a message is worth a look.
    fn weigh(&self, message: &Message) -> Option<Trigger> {
        match message {
            Message::Device { action, subsystem } => {
                // Interrupts come and go with drivers; the others are what chains consist of.
                let matters = ["sound", "net", "cpu", "usb", "pci"].contains(&subsystem.as_str())
                    || matches!(action.as_str(), "bind" | "unbind");
                matters.then_some(Trigger::Device)
            }
            Message::Fork { parent, process } => {
                let ours = self.processes.contains(parent) || self.processes.contains(process);
                ours.then_some(Trigger::Process)
            }
            // A daemon may take its user after its name.
            Message::Exec { process } | Message::User { process } => {
                self.may_be_ours(*process).then_some(Trigger::Process)
            }
            Message::Name { process, comm } => {
                let ours = self.processes.contains(process)
                    || (self.names.iter().any(|(name, _)| name == comm)
                        && self.may_be_ours(*process));
                ours.then_some(Trigger::Process)
            }
            Message::Lost => Some(Trigger::Regular),
        }
    }

    /// Whether a process has the name and the user of a link's: those of others are not worth a look, however they are called.
    fn may_be_ours(&self, process: u32) -> bool {
        if self.names.is_empty() {
            return false;
        }
        let Ok(text) = self.watch.kernel.read(&format!("/proc/{process}/status")) else {
            return false;
        };
        let line = |key: &str| text.lines().find_map(|line| line.strip_prefix(key)).map(str::trim);
        let uid = || line("Uid:")?.split_ascii_whitespace().next()?.parse::<u32>().ok();
        let (comm, uid) = (line("Name:"), uid());
        self.names.iter().any(|(name, users)| {
            comm == Some(name.as_str())
                && (users.is_empty() || uid.is_some_and(|uid| users.contains(&uid)))
        })
    }

    /// One look; the reason to end, where there is one.
    fn look(&mut self, cause: Trigger) -> std::result::Result<Option<String>, Failure> {
        let shield = match self.current()? {
            Now::Down => return Ok(Some(DOWN.into())),
            Now::Orphaned => return Ok(Some("whoever asked for the shield has ended".into())),
            Now::Another => return Ok(Some(ANOTHER.into())),
            Now::Up(shield) => shield,
        };
        let planned = match (self.watch.plan)(&shield) {
            Ok(planned) => planned,
            Err(why) => {
                if self.unplanned.as_ref() != Some(&why) {
                    self.unplanned = Some(why.clone());
                    self.tell(Happened::Unplanned { why })?;
                }
                return Ok(None);
            }
        };
        self.unplanned = None;
        let now = Instant::now();
        let contests = &self.contests;
        let paused = |step: &Step| {
            let contest = contests.get(&step.action.what());
            contest.and_then(|contest| contest.until).is_some_and(|until| now < until)
        };
        let mut look = Look {
            kernel: self.watch.kernel,
            state: self.watch.state,
            holder: self.watch.holder,
            own: Some(&self.own),
            report_only: self.watch.report_only,
            // A rehearsal would find done what was refused.
            anew: self.anew && !self.watch.report_only,
            paused: &paused,
            reader: &mut self.reader,
        };
        let found = match look.look(&planned.plan)? {
            Seen::Down => return Ok(Some(DOWN.into())),
            Seen::Another => return Ok(Some(ANOTHER.into())),
            Seen::Up(found) => found,
        };
        self.anew = false;
        self.remember(&planned);
        self.findings(planned.plan.findings)?;
        if self.watch.report_only {
            self.report(cause, found)?;
        } else {
            for (step, outcome) in found {
                self.put_right(cause, step, outcome)?;
            }
        }
        Ok(None)
    }

    fn current(&mut self) -> Result<Now> {
        let Some(state) = StateDir::open(self.watch.state)? else { return Ok(Now::Down) };
        let boot = boot_id(self.watch.kernel)?;
        let Some(past) = self.reader.look(&state)? else { return Ok(Now::Down) };
        if !journal::is_same(&state, &self.own)? {
            return Ok(Now::Another);
        }
        if standing(past, &boot) != ShieldStanding::Up {
            return Ok(Now::Down);
        }
        if bond::is_orphan(self.watch.kernel, past) {
            return Ok(Now::Orphaned);
        }
        Ok(past.shield.clone().map_or(Now::Down, |shield| match shield == self.shield {
            true => Now::Up(shield),
            false => Now::Another,
        }))
    }

    fn remember(&mut self, planned: &Planned) {
        self.names.clone_from(&planned.names);
        self.processes.clear();
        for step in &planned.plan.steps {
            if let Action::Pin { thread, .. } | Action::Enter { thread, .. } = &step.action {
                self.processes.extend(tasks::process(self.watch.kernel, thread.tid));
            }
        }
    }

    /// Tells of drift once, for as long as it lasts.
    fn report(&mut self, cause: Trigger, found: Vec<(Step, Outcome)>) -> io::Result<()> {
        let mut now = BTreeSet::new();
        for (step, _) in found {
            let key = format!("{} {}", step.action.what(), step.action.new_value());
            if !self.reported.contains(&key) {
                self.tell(Happened::Drift { cause, step, outcome: None })?;
            }
            now.insert(key);
        }
        self.reported = now;
        Ok(())
    }

    fn put_right(&mut self, cause: Trigger, step: Step, outcome: Outcome) -> io::Result<()> {
        let what = step.action.what();
        let holds = outcome.holds();
        self.tell(Happened::Drift { cause, step, outcome: Some(outcome) })?;
        if !holds {
            return Ok(());
        }
        let now = Instant::now();
        if self.contests.len() >= CONTESTED {
            let recent = |c: &Contest| c.since.is_some_and(|since| now - since < LAST_PAUSE * 2);
            self.contests.retain(|_, contest| recent(contest));
        }
        if self.contests.len() >= CONTESTED {
            return Ok(());
        }
        let contest = self.contests.entry(what.clone()).or_default();
        let calm = LAST_PAUSE * 2;
        if contest.until.is_some_and(|until| now > until + calm) {
            *contest = Contest::default();
        }
        if contest.since.is_none_or(|since| now - since > QUARREL) && contest.pause.is_none() {
            *contest = Contest { since: Some(now), ..Contest::default() };
        }
        contest.times += 1;
        // Once it was paused, each further time lengthens the pause.
        if contest.times < TIMES && contest.pause.is_none() {
            return Ok(());
        }
        let pause = contest.pause.map_or(FIRST_PAUSE, |pause| (pause * 2).min(LAST_PAUSE));
        contest.pause = Some(pause);
        contest.since = Some(now);
        contest.until = Some(now + pause);
        let times = contest.times;
        self.tell(Happened::Contested { what, times, pause: pause.as_secs() })
    }

    /// Tells of findings that are new, and of those that are over.
    fn findings(&mut self, found: Vec<Finding>) -> io::Result<()> {
        let key = |finding: &Finding| format!("{}: {}", finding.id, finding.title);
        let now: BTreeMap<String, Finding> = found.into_iter().map(|f| (key(&f), f)).collect();
        let before = std::mem::replace(&mut self.findings, now);
        for finding in before.keys().filter(|key| !self.findings.contains_key(*key)).cloned() {
            (self.watch.tell)(&event(Happened::Over { finding }))?;
        }
        for (key, finding) in &self.findings {
            if !before.contains_key(key) {
                (self.watch.tell)(&event(Happened::Finding { finding: finding.clone() }))?;
            }
        }
        Ok(())
    }

    fn tell(&mut self, what: Happened) -> io::Result<()> {
        (self.watch.tell)(&event(what))
    }
}

const DOWN: &str = "the shield was taken down";
const ANOTHER: &str = "another shield was put up";

/// The shield that is watched over, as it is now.
enum Now {
    Up(Shield),
    Down,
    /// It was to end with a process that is gone: its guard puts it back, and needs the lock for that.
    Orphaned,
    Another,
}

enum Failure {
    Telling(io::Error),
    Looking(Error),
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Failure {
        Failure::Telling(error)
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Failure {
        Failure::Looking(error)
    }
}

fn event(what: Happened) -> Event {
    Event { schema: WATCH_SCHEMA.into(), at: stamp(), what }
}

/// How long the machine has slept since it was started.
fn asleep() -> Duration {
    let read = |clock| {
        let time = clock_gettime(clock);
        Duration::new(time.tv_sec.unsigned_abs(), time.tv_nsec.unsigned_abs() as u32)
    };
    read(ClockId::Boottime).saturating_sub(read(ClockId::Monotonic))
}
