//! Reads at a pace, and hands moments to whoever wants them.

use crate::{
    count::{Counted, count, since},
    events::{self, Visitors, changes},
    gather::{CpuReading, Gatherer, ThreadReading},
    pace::Pace,
    probes::Probes,
    sound::Engines,
    verdict::verdict,
};
use quiet_linux::{Root, seat};
use quiet_types::{
    CpuId, CpuSet, Plan,
    check::Checked,
    live::{
        Deed, LIVE_SCHEMA, LiveEvent, LiveShield, LiveSound, MOST_EVENTS, MOST_NAMED, Moment,
        ThreadLook,
    },
    plan::{ShieldStanding, Status},
};
use rustix::time::{ClockId, clock_gettime};
use std::{
    collections::{BTreeMap, VecDeque},
    path::PathBuf,
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
    thread::JoinHandle,
    time::{Duration, Instant, SystemTime},
};

/// Who tells of the shield: the journal where one is root, else the service. May take its time, and has a thread of its own.
pub type StatusReader = Box<dyn FnMut() -> Result<Status, String> + Send>;

/// What a face may have done to the machine. Each act is tried with the rights of whoever runs the face, and says what came of it.
pub trait Hands: Send + Sync {
    /// What is applied, in words: the chain's name, or the CPUs.
    fn what(&self) -> String;
    /// The steps that `apply` would take.
    ///
    /// # Errors
    /// A sentence.
    fn plan(&self) -> Result<Plan, String>;
    /// What stands in the way of low latency.
    ///
    /// # Errors
    /// A sentence.
    fn check(&self) -> Result<Checked, String>;
    /// Puts the shield up; with `confirm` it is put back after so many seconds unless it is confirmed.
    ///
    /// # Errors
    /// A sentence.
    fn apply(&self, confirm: Option<u64>) -> Result<Deed, String>;
    /// Keeps it.
    ///
    /// # Errors
    /// A sentence.
    fn confirm(&self) -> Result<Deed, String>;
    /// Puts the machine back.
    ///
    /// # Errors
    /// A sentence.
    fn revert(&self) -> Result<Deed, String>;
    /// Lends the shield's CPUs for so many seconds.
    ///
    /// # Errors
    /// A sentence.
    fn lend(&self, seconds: u64) -> Result<Deed, String>;
    /// Takes them back.
    ///
    /// # Errors
    /// A sentence.
    fn take_back(&self) -> Result<Deed, String>;
}

/// How a stream reads.
#[derive(Clone, Debug)]
pub struct LiveOptions {
    /// Between two moments.
    pub every: Duration,
    /// Between two looks at all threads, at least.
    pub threads: Duration,
    /// Where the control sockets of this user's engines are.
    pub engines: Option<PathBuf>,
}

impl LiveOptions {
    /// So many moments a second, from 0.2 to 10.
    pub fn at(hertz: f64) -> LiveOptions {
        let hertz = if hertz.is_finite() { hertz.clamp(0.2, 10.0) } else { 4.0 };
        LiveOptions {
            every: Duration::from_secs_f64(1.0 / hertz),
            threads: Duration::from_millis(500),
            engines: None,
        }
    }
}

/// Nobody has asked for so long: nothing is read until somebody does.
const IDLE: Duration = Duration::from_secs(10);
/// Between two looks at the shield.
const STATUS: Duration = Duration::from_secs(1);
/// Between two looks at what changes slowly: clocks and temperature.
const SLOW: Duration = Duration::from_secs(2);

#[derive(Default)]
struct Board {
    moment: Option<Arc<Moment>>,
    made: Option<Instant>,
    /// Before that there is no other moment.
    due: Option<Instant>,
    /// With the number of the moment that brought it.
    events: VecDeque<(u64, LiveEvent)>,
    status: Option<(Instant, Result<Status, String>)>,
    /// The shield is to be looked at now.
    poked: bool,
    asked: Option<Instant>,
    ended: bool,
}

impl Board {
    /// The moment for who had the one of this number last: what the moments between them brought comes with it.
    fn caught_up(&self, moment: &Arc<Moment>, number: u64) -> Arc<Moment> {
        if number == 0 || moment.number <= number + 1 {
            return moment.clone();
        }
        let missed = self.events.iter().filter(|(brought, _)| *brought > number);
        let events = missed.map(|(_, event)| event.clone()).collect();
        Arc::new(Moment { events, ..(**moment).clone() })
    }
}

#[derive(Default)]
struct Shared {
    board: Mutex<Board>,
    news: Condvar,
    wanted: Condvar,
}

impl Shared {
    fn board(&self) -> MutexGuard<'_, Board> {
        self.board.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The stream: two threads that read, and a board with the last moment. Dropped, they end.
pub struct Stream {
    shared: Arc<Shared>,
    workers: Vec<JoinHandle<()>>,
}

impl std::fmt::Debug for Stream {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Stream").finish_non_exhaustive()
    }
}

/// What a reader has of a stream, to be held where it looks on.
#[derive(Clone)]
pub struct Onlooker(Arc<Shared>);

impl std::fmt::Debug for Onlooker {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Onlooker").finish_non_exhaustive()
    }
}

impl Onlooker {
    /// The next moment after the one of this number (0: any); `None` where none came in time. Who is slow misses moments, but no event
    /// of the last [`quiet_types::live::MOST_EVENTS`]: those of the missed moments are in this one.
    pub fn after(&self, number: u64, wait: Duration) -> Option<Arc<Moment>> {
        let until = Instant::now() + wait;
        let mut board = self.0.board();
        loop {
            board.asked = Some(Instant::now());
            self.0.wanted.notify_all();
            let next = board.moment.as_ref().filter(|moment| moment.number > number);
            if let Some(moment) = next {
                return Some(board.caught_up(moment, number));
            }
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() || board.ended {
                return None;
            }
            // Who waits asks all the time: looks may be further apart than what counts as nobody.
            let waited = self.0.news.wait_timeout(board, left.min(IDLE / 4));
            board = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// The last moment where it is not older than `age`, or the next look is not due yet, else the next; `None` where none came in time.
    pub fn recent(&self, age: Duration, wait: Duration) -> Option<Arc<Moment>> {
        let last = {
            let mut board = self.0.board();
            board.asked = Some(Instant::now());
            let is_recent = board.made.is_some_and(|made| made.elapsed() <= age)
                || board.due.is_some_and(|due| Instant::now() < due);
            match (&board.moment, is_recent) {
                (Some(moment), true) => return Some(moment.clone()),
                (moment, _) => moment.as_ref().map_or(0, |moment| moment.number),
            }
        };
        self.after(last, wait)
    }

    /// What happened, oldest first.
    pub fn events(&self) -> Vec<LiveEvent> {
        self.history().1
    }

    /// The number of the last moment, and what happened until it, oldest first.
    pub fn history(&self) -> (u64, Vec<LiveEvent>) {
        let board = self.0.board();
        let number = board.moment.as_ref().map_or(0, |moment| moment.number);
        (number, board.events.iter().map(|(_, event)| event.clone()).collect())
    }

    /// The number of the last moment; 0 before the first.
    pub fn number(&self) -> u64 {
        self.0.board().moment.as_ref().map_or(0, |moment| moment.number)
    }

    /// The whole status, as it was read last.
    ///
    /// # Errors
    /// Why it cannot be seen.
    pub fn status(&self) -> Result<Status, String> {
        match &self.0.board().status {
            Some((_, status)) => status.clone(),
            None => Err("it was not looked at yet".into()),
        }
    }

    /// Something was done to the machine: the shield is looked at now.
    pub fn poke(&self) {
        self.0.board().poked = true;
        self.0.wanted.notify_all();
    }
}

impl Stream {
    /// Begins to read `root`.
    ///
    /// # Errors
    /// When no thread can be started.
    pub fn start(
        root: Root,
        options: LiveOptions,
        status: StatusReader,
    ) -> std::io::Result<Stream> {
        let shared = Arc::new(Shared::default());
        let mut stream = Stream { shared: shared.clone(), workers: Vec::new() };
        let one = shared.clone();
        let spawn = |name: &str| std::thread::Builder::new().name(name.into());
        stream.workers.push(spawn("live-status").spawn(move || follow(&one, status))?);
        let reader = Reader::new(root, options);
        stream.workers.push(spawn("live").spawn(move || reader.run(&shared))?);
        Ok(stream)
    }

    /// A look at it.
    pub fn watch(&self) -> Onlooker {
        Onlooker(self.shared.clone())
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        self.shared.board().ended = true;
        self.shared.wanted.notify_all();
        self.shared.news.notify_all();
        for worker in self.workers.drain(..) {
            // One that waits for the service ends when that has answered; it is not waited for.
            if worker.thread().name() != Some("live-status") {
                let _ = worker.join();
            }
        }
    }
}

/// Waits until it is time and somebody looks; `None` where the stream has ended. The wait also ends when something was done.
fn sleep(shared: &Shared, until: Instant, or_poked: bool) -> Option<()> {
    let mut board = shared.board();
    loop {
        if board.ended {
            return None;
        }
        let now = Instant::now();
        let is_watched = board.asked.is_some_and(|at| now.duration_since(at) < IDLE);
        if or_poked && board.poked {
            board.poked = false;
            return Some(());
        }
        if is_watched && now >= until {
            return Some(());
        }
        let left = match is_watched {
            true => until.saturating_duration_since(now),
            false => Duration::from_secs(3600),
        };
        let waited = shared.wanted.wait_timeout(board, left);
        board = waited.unwrap_or_else(PoisonError::into_inner).0;
    }
}

fn wait_for_status(shared: &Shared) {
    let until = Instant::now() + Duration::from_secs(1);
    while shared.board().status.is_none() && Instant::now() < until && !shared.board().ended {
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Looks at the shield again and again.
fn follow(shared: &Shared, mut status: StatusReader) {
    let mut pace = Pace::every(STATUS);
    let mut shielded = CpuSet::new();
    let mut next = Instant::now();
    while sleep(shared, next, true).is_some() {
        let began = Instant::now();
        let cpu = thread_time();
        let read = status();
        // Time that it waited for the service is not what it cost.
        pace.done(began, thread_time().saturating_sub(cpu));
        next = began + STATUS.max(Duration::from_millis(200));
        while !pace.is_due(next) {
            next += Duration::from_millis(200);
        }
        if let Ok(Status { state: ShieldStanding::Up, shield: Some(shield), .. }) = &read
            && shield.cpus != shielded
        {
            shielded = shield.cpus.clone();
            keep_off(&shielded);
        }
        shared.board().status = Some((began, read));
    }
}

/// All threads of the program keep off the shield.
fn keep_off(cpus: &CpuSet) {
    let threads = std::fs::read_dir("/proc/self/task").into_iter().flatten().flatten();
    for tid in threads.filter_map(|entry| entry.file_name().to_str()?.parse().ok()) {
        seat::keep_off(tid, cpus);
    }
}

fn thread_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec.unsigned_abs(), u32::try_from(time.tv_nsec).unwrap_or_default())
}

fn process_time() -> Duration {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    Duration::new(time.tv_sec.unsigned_abs(), u32::try_from(time.tv_nsec).unwrap_or_default())
}

/// What the reading thread remembers.
struct Reader {
    gatherer: Gatherer,
    options: LiveOptions,
    engines: Engines,
    probes: Probes,
    look: Pace,
    slow: Pace,
    began: (Instant, Duration),
    before: Option<CpuReading>,
    threads: ThreadReading,
    looked: ThreadLook,
    places: BTreeMap<CpuId, (Option<u32>, Option<u32>, CpuSet)>,
    clocks: BTreeMap<CpuId, u64>,
    temperature: Option<i64>,
    shield: Option<LiveShield>,
    sounds: Vec<LiveSound>,
    visitors: Visitors,
    /// CPUs that were closed to others when the last moment was made.
    closed: CpuSet,
    number: u64,
}

impl Reader {
    fn new(root: Root, options: LiveOptions) -> Reader {
        Reader {
            gatherer: Gatherer::new(root),
            engines: Engines::at(options.engines.clone()),
            probes: Probes::at(options.engines.clone()),
            look: Pace::every(options.threads),
            slow: Pace::every(SLOW),
            began: (Instant::now(), process_time()),
            before: None,
            threads: ThreadReading::default(),
            looked: ThreadLook::default(),
            places: BTreeMap::new(),
            clocks: BTreeMap::new(),
            temperature: None,
            shield: None,
            sounds: Vec::new(),
            visitors: Visitors::default(),
            closed: CpuSet::new(),
            number: 0,
            options,
        }
    }

    fn run(mut self, shared: &Shared) {
        // Counters are dear where there are many CPUs.
        let mut pace = Pace::every(self.options.every);
        let mut next = Instant::now();
        while sleep(shared, next, false).is_some() {
            // The first moment is to know of the shield, unless that takes long.
            if self.number == 0 {
                wait_for_status(shared);
            }
            let began = Instant::now();
            let status = shared.board().status.clone();
            let moment = Arc::new(self.moment(status));
            pace.done(began, thread_pause(began));
            next = began + self.options.every;
            while !pace.is_due(next) {
                next += self.options.every;
            }
            let mut board = shared.board();
            board.events.extend(moment.events.iter().map(|event| (moment.number, event.clone())));
            let more = board.events.len().saturating_sub(MOST_EVENTS);
            board.events.drain(..more);
            board.moment = Some(moment);
            board.made = Some(Instant::now());
            board.due = Some(next);
            shared.news.notify_all();
        }
    }

    fn moment(&mut self, status: Option<(Instant, Result<Status, String>)>) -> Moment {
        self.number += 1;
        let now = Instant::now();
        let at = humantime::format_rfc3339_millis(SystemTime::now()).to_string();
        let mut unread = Vec::new();
        let read = status.and_then(|(read, status)| match status {
            Ok(status) => Some((read, status)),
            Err(why) => {
                unread.push(format!("the shield: {}", crate::clean(&why, 300)));
                None
            }
        });
        let status = read.as_ref().map(|(_, status)| status);
        let reading = self.gatherer.cpus();
        unread.extend(reading.unread.iter().map(|why| crate::clean(why, 300)));
        let known = Known { status, now: &reading };
        let shielded = known.shielded();
        let is_lent = status.is_some_and(|status| status.loan.is_some());
        let closed = if is_lent { CpuSet::new() } else { shielded.clone() };
        if closed != self.closed {
            // Who was there before the door was shut is no intruder: all is counted from now on.
            self.closed = closed;
            self.before = None;
            self.gatherer.threads(&shielded);
            self.threads.ran.clear();
        }
        let looked = self.look(now, &reading, &shielded);
        let (sounds, probes) = (self.engines.look(), self.probes.look());
        let cpus = count(&Counted {
            before: self.before.as_ref(),
            now: &reading,
            threads: &self.threads,
            status,
            engines: &self.engines.processes(),
            clocks: &self.clocks,
            places: &self.places,
        });
        let shield = read.as_ref().map(|(read, status)| short(status, now.duration_since(*read)));
        let mut found = Vec::new();
        if let (Some(before), Some(now)) = (&self.shield, &shield) {
            found.extend(changes(before, now));
        }
        if let Some(before) = &self.before {
            found.extend(events::of_cpus(&before.online, &reading.online));
        }
        if self.number > 1 {
            found.extend(events::of_engines(&self.sounds, &sounds));
        }
        found.extend(events::of_sounds(&sounds, &cpus));
        found.extend(events::of_probes(&probes, &cpus));
        found.extend(self.visitors.met(reading.at, &cpus, looked));
        let moment = Moment {
            schema: LIVE_SCHEMA.into(),
            number: self.number,
            events: events::at(&at, found),
            at,
            since: since(self.before.as_ref(), &reading),
            quiet: verdict(shield.as_ref(), &cpus, &sounds),
            shield: shield.clone(),
            cpus,
            look: self.looked,
            sounds: sounds.clone(),
            probes,
            temperature: self.temperature,
            unread: {
                unread.truncate(MOST_NAMED);
                unread
            },
            cost: self.cost(),
        };
        self.before = Some(reading);
        if shield.is_some() {
            self.shield = shield;
        }
        self.sounds = sounds;
        moment
    }

    /// Looks at what is not looked at every time; whether threads were.
    fn look(&mut self, now: Instant, reading: &CpuReading, shielded: &CpuSet) -> bool {
        let is_changed = self.before.as_ref().is_none_or(|b| b.online != reading.online);
        if is_changed {
            let place = |cpu| (cpu, self.gatherer.place(cpu));
            self.places = reading.present.iter().map(place).collect();
        }
        if self.slow.is_due(now) {
            self.clocks = self.gatherer.clocks(&reading.online, shielded);
            self.temperature = self.gatherer.temperature(!shielded.is_empty());
            self.slow.done(now, now.elapsed());
        }
        if !self.look.is_due(now) {
            return false;
        }
        let cpu = thread_time();
        self.threads = self.gatherer.threads(shielded);
        self.look.done(now, thread_time().saturating_sub(cpu));
        self.looked = ThreadLook {
            number: self.number,
            since: self.threads.since,
            took: self.threads.took,
            threads: self.threads.threads,
            cut: self.threads.cut,
        };
        true
    }

    fn cost(&self) -> f64 {
        let (began, used) = self.began;
        let used = process_time().saturating_sub(used).as_secs_f64();
        let share = used / began.elapsed().as_secs_f64().max(1e-3);
        (share * 1e5).round() / 1e5
    }
}

/// What a moment cost that began then; an upper bound.
fn thread_pause(began: Instant) -> Duration {
    // Waiting for an engine's answer is within it: half of it is counted.
    began.elapsed() / 2
}

struct Known<'a> {
    status: Option<&'a Status>,
    now: &'a CpuReading,
}

impl Known<'_> {
    fn shielded(&self) -> CpuSet {
        let up = self.status.filter(|status| status.state == ShieldStanding::Up);
        let cpus = up.and_then(|status| status.shield.as_ref()).map(|shield| &shield.cpus);
        cpus.map(|cpus| cpus.intersection(&self.now.online)).unwrap_or_default()
    }
}

/// The status in short; `age` is how long ago it was read.
fn short(status: &Status, age: Duration) -> LiveShield {
    let shield = status.shield.as_ref();
    let left = |seconds: u64| seconds.saturating_sub(age.as_secs());
    let intruders = status.residents.iter().filter(|one| one.kind.is_intruder());
    LiveShield {
        state: status.state,
        cpus: shield.map(|shield| shield.cpus.clone()).unwrap_or_default(),
        housekeeping: shield.map(|shield| shield.housekeeping.clone()).unwrap_or_default(),
        mechanism: shield.map(|shield| shield.mechanism),
        since: status.since.clone(),
        by: status.by.as_ref().map(ToString::to_string),
        drift: status.drift.iter().take(MOST_NAMED).cloned().collect(),
        intruders: intruders.take(MOST_NAMED).cloned().collect(),
        astray: status.chain.iter().take(MOST_NAMED).map(|f| f.title.clone()).collect(),
        confirm: status.confirm.map(|awaited| left(awaited.seconds)),
        guarded: status.confirm.is_none_or(|awaited| awaited.guard.is_some()),
        lent: status.loan.as_ref().map(|loan| left(loan.left)),
    }
}
