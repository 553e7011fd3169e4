//! Goes through the events of one CPU once and gives every instant of the late readings an owner.
//!
//! At each instant a CPU is in one place: the innermost interrupt, else what is deferred on top of
//! the task, else the task. Where that is the victim itself with nothing on top, nothing in this
//! system kept it: that time is silent, and what is silent at the edge of something is the way into
//! it and back, up to [`Facts::edge`].

use quiet_types::{
    explain::Cause,
    trace::{EventKind, Handler, Left, Name, Span, Trace, TraceEvent, Victim, What},
};
use std::collections::{BTreeMap, VecDeque};

/// What the events alone do not tell.
#[derive(Clone, Copy, Debug)]
pub(super) struct Facts {
    /// The victim sleeps by its own will between readings (a timer's expiry begins each).
    pub sleeps: bool,
    /// What silent time is.
    pub silent: Silent,
    /// How long the way into an interrupt or another task may be, and the way back, ns.
    pub edge: u64,
}

/// What silent time is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Silent {
    Host,
    Firmware,
    Unexplained,
}

/// A stretch of a reading and who had it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Stretch {
    pub from: u64,
    pub to: u64,
    /// Place in [`Found::causes`].
    pub cause: usize,
    /// Of it, silent time at its edges.
    pub around: u64,
}

/// Every late reading in stretches.
#[derive(Debug, Default)]
pub(super) struct Found {
    pub causes: Vec<Cause>,
    /// In the order of [`Victim::late`]; the stretches of each fill it without a hole.
    pub readings: Vec<Vec<Stretch>>,
    /// Why the tick did not stop, and how often.
    pub tick_kept: BTreeMap<String, u64>,
}

/// Sends that nobody received yet are forgotten after so many.
const PENDING: usize = 256;
/// No cause: silent.
const SILENT: usize = usize::MAX;

pub(super) fn sweep(trace: &Trace, victim: &Victim, facts: Facts) -> Found {
    let mut sweep = Sweep::new(trace, victim, facts);
    let mine = trace.events.iter().filter(|event| concerns(event, victim));
    for event in mine {
        sweep.next(event);
    }
    sweep.emit(u64::MAX);
    sweep.finish();
    sweep.found
}

fn concerns(event: &TraceEvent, victim: &Victim) -> bool {
    match event.what {
        What::Sent { to, .. } | What::Raised { to, .. } => to == victim.cpu,
        What::Waking(task) => task == victim.task,
        _ => event.cpu == victim.cpu,
    }
}

/// Something on top of a task.
#[derive(Clone, Copy)]
struct On {
    kind: EventKind,
    cause: usize,
    /// Where its own stretches begin, to be told better when what it does becomes known.
    mark: usize,
    /// Whether its name says little yet.
    vague: bool,
}

/// What the victim does.
#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    /// It runs, or would where it not for what is on top of it.
    Runs,
    /// It could run; `fair`: the CPU was taken for an ordinary task although it is real-time.
    Waits {
        fair: bool,
    },
    Off(Left),
}

struct Sent {
    task: u32,
    site: Name,
    function: Option<Name>,
}

struct Sweep<'a> {
    trace: &'a Trace,
    victim: &'a Victim,
    facts: Facts,
    found: Found,
    known: BTreeMap<Cause, usize>,
    /// When the state below began.
    since: u64,
    begun: bool,
    task: u32,
    priority: i32,
    state: State,
    irqs: Vec<On>,
    deferred: BTreeMap<u32, Vec<On>>,
    sent: VecDeque<Sent>,
    /// Messages of which only the kind and the sender are known.
    raised: VecDeque<(Name, u32)>,
    /// The reading that is next or under way, and its stretches so far.
    reading: usize,
    stretches: Vec<Stretch>,
}

impl<'a> Sweep<'a> {
    fn new(trace: &'a Trace, victim: &'a Victim, facts: Facts) -> Sweep<'a> {
        Sweep {
            trace,
            victim,
            facts,
            found: Found::default(),
            known: BTreeMap::new(),
            since: 0,
            begun: false,
            task: victim.task,
            priority: 0,
            state: State::Runs,
            irqs: Vec::new(),
            deferred: BTreeMap::new(),
            sent: VecDeque::new(),
            raised: VecDeque::new(),
            reading: 0,
            stretches: Vec::new(),
        }
    }

    fn cause(&mut self, cause: Cause) -> usize {
        if let Some(at) = self.known.get(&cause) {
            return *at;
        }
        let at = self.found.causes.len();
        self.found.causes.push(cause.clone());
        self.known.insert(cause, at);
        at
    }

    fn next(&mut self, event: &TraceEvent) {
        let at = event.at.0;
        match event.what {
            What::Sent { site, function, .. } => {
                self.sent.push_back(Sent { task: event.task, site, function });
                if self.sent.len() > PENDING {
                    self.sent.pop_front();
                }
                return;
            }
            What::Raised { kind, .. } => {
                self.raised.push_back((kind, event.task));
                if self.raised.len() > PENDING {
                    self.raised.pop_front();
                }
                return;
            }
            What::Lost => {
                let cause = self.cause(Cause::Unrecorded);
                self.give(at, cause);
                self.irqs.clear();
                self.deferred.clear();
                return;
            }
            What::TickKept(why) => {
                *self.found.tick_kept.entry(self.trace.name(why).to_owned()).or_default() += 1;
                return;
            }
            _ => {}
        }
        let here = event.cpu == self.victim.cpu;
        if here && !self.begun {
            self.begun = true;
            self.task = event.task;
        }
        self.emit(at);
        if here && event.task != self.task {
            // Its switch was lost.
            self.arrive(event.task, 120);
        }
        match event.what {
            What::Switch { from, from_priority, why, to, to_priority } => {
                self.irqs.clear();
                if why == Left::Ended {
                    self.deferred.remove(&from);
                }
                if from == self.victim.task {
                    let fair = from_priority < 100 && to_priority >= 100;
                    self.state = match why {
                        Left::Preempted => State::Waits { fair },
                        why => State::Off(why),
                    };
                }
                self.arrive(to, to_priority);
            }
            What::Waking(_) => {
                if matches!(self.state, State::Off(_)) {
                    self.state = State::Waits { fair: false };
                }
            }
            What::Enter(place) => self.enter(place),
            What::Exit(kind) => self.exit(kind),
            What::Nmi(lasted) => self.nmi(at, lasted.0),
            What::Sent { .. } | What::Raised { .. } | What::Lost | What::TickKept(_) => {}
        }
    }

    fn arrive(&mut self, task: u32, priority: i32) {
        (self.task, self.priority) = (task, priority);
        if task == self.victim.task {
            self.state = State::Runs;
        }
    }

    fn enter(&mut self, place: Handler) {
        if matches!(place, Handler::Timer(_)) {
            // Timers' functions do not nest: the one before is over, told or not.
            let within = if self.irqs.is_empty() {
                self.deferred.get_mut(&self.task)
            } else {
                Some(&mut self.irqs)
            };
            within.map(|stack| stack.pop_if(|on| on.kind == EventKind::Timer));
        }
        let mark = self.stretches.len();
        let name = |sweep: &Self, name: Name| sweep.trace.name(name).to_owned();
        let (cause, vague) = match place {
            // Arm's timers and messages are numbered interrupts that each CPU has of its own; what is within says more.
            Handler::Irq { name: n, .. } if is_timer(self.trace.name(n)) => {
                (Cause::Timer { function: "?".to_owned() }, true)
            }
            Handler::Irq { name: n, .. } if self.trace.name(n) == "IPI" => {
                (Cause::Vector { name: "ipi".to_owned(), sender: None }, true)
            }
            Handler::Irq { number, name: n } => (Cause::Irq { number, name: name(self, n) }, false),
            Handler::Softirq(n) => (Cause::Softirq { name: name(self, n) }, false),
            Handler::Work(n) => (Cause::Work { function: name(self, n) }, false),
            Handler::Timer(n) => (timer(self.trace.name(n)), false),
            Handler::Call(n) => {
                let (sender, site) = self.sender(Some(n));
                (Cause::Call { function: name(self, n), sender, site }, false)
            }
            Handler::Vector(n) => match self.trace.name(n) {
                "local_timer" => (Cause::Timer { function: "?".to_owned() }, true),
                "reschedule" => {
                    let (mut sender, site) = self.sender(None);
                    if let Some(task) = self.raiser(n).filter(|_| sender == "?") {
                        sender = task;
                    }
                    (Cause::Reschedule { sender, site }, false)
                }
                word if word.starts_with("call_function") => {
                    let function = "?".to_owned();
                    let any = self.sent.iter().rev().find(|sent| sent.function.is_some());
                    let (mut sender, site) = self.words(any);
                    if let Some(task) = self.raiser(n).filter(|_| sender == "?") {
                        sender = task;
                    }
                    (Cause::Call { function, sender, site }, true)
                }
                word => {
                    let name = word.to_owned();
                    (Cause::Vector { name, sender: self.raiser(n) }, true)
                }
            },
        };
        let cause = self.cause(self.better(place, cause));
        // Now it is known what the interrupts around are for: a timer, a call, or a message within its numbered interrupt.
        let told = match place {
            Handler::Timer(_) | Handler::Call(_) => self.irqs.len(),
            Handler::Vector(_) => {
                self.irqs.last().is_some_and(|on| on.kind == EventKind::Irq).into()
            }
            _ => 0,
        };
        let around = self.irqs.iter_mut().rev().take(told).take_while(|on| on.vague);
        for outer in around {
            let was = std::mem::replace(&mut outer.cause, cause);
            outer.vague = vague;
            for stretch in self.stretches.get_mut(outer.mark..).unwrap_or_default() {
                if stretch.cause == was {
                    stretch.cause = cause;
                }
            }
        }
        let on = On { kind: place.kind(), cause, mark, vague };
        let hard = matches!(place, Handler::Irq { .. } | Handler::Vector(_));
        if hard || !self.irqs.is_empty() {
            self.irqs.push(on);
        } else {
            self.deferred.entry(self.task).or_default().push(on);
        }
    }

    fn exit(&mut self, kind: EventKind) {
        let deferred = self.deferred.get_mut(&self.task);
        for stack in [Some(&mut self.irqs), deferred].into_iter().flatten() {
            if let Some(at) = stack.iter().rposition(|on| on.kind == kind) {
                stack.truncate(at);
                break;
            }
        }
        if self.deferred.get(&self.task).is_some_and(Vec::is_empty) {
            self.deferred.remove(&self.task);
        }
    }

    /// Who asked for this function, or for a look at whom to run; the oldest who did.
    fn sender(&mut self, function: Option<Name>) -> (String, String) {
        let at = match function {
            Some(_) => self.sent.iter().position(|sent| sent.function == function),
            // Several may melt into one.
            None => self.sent.iter().rposition(|sent| sent.function.is_none()),
        };
        let sent = at.and_then(|at| self.sent.remove(at));
        if function.is_none() {
            self.sent.retain(|sent| sent.function.is_some());
        }
        self.words(sent.as_ref())
    }

    /// A call whose sender no newer event told was raised by whom its interrupt tells.
    fn better(&self, place: Handler, cause: Cause) -> Cause {
        let around = self.irqs.last().filter(|on| on.vague && matches!(place, Handler::Call(_)));
        match (cause, around.map(|on| &self.found.causes[on.cause])) {
            (Cause::Call { function, sender, site }, Some(Cause::Call { sender: raised, .. }))
                if sender == "?" =>
            {
                Cause::Call { function, sender: raised.clone(), site }
            }
            (cause, _) => cause,
        }
    }

    /// Who raised the latest message of this kind; the ones before have melted into it.
    fn raiser(&mut self, kind: Name) -> Option<String> {
        let task = self.raised.iter().rev().find(|(of, _)| *of == kind).map(|(_, task)| *task)?;
        self.raised.retain(|(of, _)| *of != kind);
        Some(self.trace.task(task).to_owned())
    }

    fn words(&self, sent: Option<&Sent>) -> (String, String) {
        sent.map_or(("?".to_owned(), "?".to_owned()), |sent| {
            (self.trace.task(sent.task).to_owned(), self.trace.name(sent.site).to_owned())
        })
    }

    /// The last `lasted` ns before `at` were an NMI, whatever they were taken for.
    fn nmi(&mut self, at: u64, lasted: u64) {
        let Some(span) = self.victim.late.get(self.reading) else { return };
        if span.from.0 >= at {
            return;
        }
        let (from, to) = (at.saturating_sub(lasted).max(span.from.0), at.min(span.to.0));
        while let Some(last) = self.stretches.last_mut() {
            if last.from >= from {
                self.stretches.pop();
            } else {
                last.to = last.to.min(from);
                break;
            }
        }
        let cause = self.cause(Cause::Nmi);
        if from < to {
            self.stretches.push(Stretch { from, to, cause, around: 0 });
        }
    }

    /// Who has the CPU in the present state.
    fn owner(&mut self) -> usize {
        if let Some(on) = self.irqs.last() {
            return on.cause;
        }
        let deferred = self.deferred.get(&self.task).and_then(|stack| stack.last()).copied();
        match (self.state, deferred) {
            (State::Off(Left::Stopped), _) => return self.cause(Cause::Stopped),
            (State::Off(Left::Blocked), _) => return self.cause(Cause::Blocked),
            (State::Off(_), _) if !self.facts.sleeps => return self.cause(Cause::Slept),
            (State::Waits { fair: true }, _) if self.priority >= 100 => {
                let name = self.trace.task(self.task).to_owned();
                return self.cause(Cause::FairServer { name });
            }
            (_, Some(on)) => return on.cause,
            _ => {}
        }
        if self.task == self.victim.task {
            return SILENT;
        }
        let name = self.trace.task(self.task).to_owned();
        let cause = match (self.state, self.task) {
            (_, 0) => Cause::Idle,
            (State::Off(_), _) => Cause::Masked { name },
            _ => Cause::Task { name, priority: priority(self.priority) },
        };
        self.cause(cause)
    }

    /// The time until `to` belongs to the present owner.
    fn emit(&mut self, to: u64) {
        // The common case first: nothing late in this stretch.
        let late = &self.victim.late;
        if late.get(self.reading).is_none_or(|span| to <= span.from.0) {
            self.since = to;
            return;
        }
        let owner = self.owner();
        self.give(to, owner);
    }

    fn give(&mut self, to: u64, cause: usize) {
        while let Some(span) = self.victim.late.get(self.reading).copied() {
            let (from, end) = (self.since.max(span.from.0), to.min(span.to.0));
            if from < end {
                self.stretches.push(Stretch { from, to: end, cause, around: 0 });
            }
            if to < span.to.0 {
                break;
            }
            self.close(span);
        }
        self.since = to;
    }

    fn close(&mut self, span: Span) {
        let stretches = std::mem::take(&mut self.stretches);
        for on in self.irqs.iter_mut().chain(self.deferred.values_mut().flatten()) {
            on.mark = 0;
        }
        let silent = match self.facts.silent {
            Silent::Host => Cause::Host,
            Silent::Firmware => Cause::Firmware,
            Silent::Unexplained => Cause::Unexplained,
        };
        let silent = self.cause(silent);
        self.found.readings.push(settle(stretches, span, silent, self.facts.edge));
        self.reading += 1;
    }

    fn finish(&mut self) {
        while let Some(span) = self.victim.late.get(self.reading).copied() {
            self.close(span);
        }
    }
}

/// Gives the silent time at the edge of something to it, and calls the rest `silent`; the
/// stretches then fill the reading, neighbours of one cause made one.
fn settle(stretches: Vec<Stretch>, span: Span, silent: usize, edge: u64) -> Vec<Stretch> {
    // One list without holes: a hole (before the first event) is silent too.
    let mut whole: Vec<Stretch> = Vec::with_capacity(stretches.len() + 1);
    let mut at = span.from.0;
    let end = Stretch { from: span.to.0, to: span.to.0, cause: SILENT, around: 0 };
    for stretch in stretches.into_iter().chain([end]) {
        if stretch.from > at {
            whole.push(Stretch { from: at, to: stretch.from, cause: SILENT, around: 0 });
        }
        at = at.max(stretch.to);
        if stretch.from < stretch.to {
            whole.push(stretch);
        }
    }
    let mut merged: Vec<Stretch> = Vec::with_capacity(whole.len());
    for stretch in whole {
        match merged.last_mut() {
            Some(last) if last.cause == stretch.cause => last.to = stretch.to,
            _ => merged.push(stretch),
        }
    }
    let mut settled: Vec<Stretch> = Vec::with_capacity(merged.len());
    let mut lead = 0;
    for (index, stretch) in merged.iter().enumerate() {
        if stretch.cause != SILENT {
            let mut stretch = *stretch;
            stretch.from -= lead;
            stretch.around += lead;
            lead = 0;
            settled.push(stretch);
            continue;
        }
        let length = stretch.to - stretch.from;
        let (before, after) = (!settled.is_empty(), index + 1 < merged.len());
        // Where both sides claim it and it is short, each has half.
        let tail = match (before, after) {
            (true, true) => edge.min(length.div_ceil(2)),
            (true, false) => edge.min(length),
            (false, _) => 0,
        };
        lead = if after { edge.min(length - tail) } else { 0 };
        if let Some(last) = settled.last_mut() {
            last.to += tail;
            last.around += tail;
        }
        let (from, to) = (stretch.from + tail, stretch.to - lead);
        if from < to {
            settled.push(Stretch { from, to, cause: silent, around: 0 });
        }
    }
    // Halves of one silent stretch may have joined two of one cause.
    let mut done: Vec<Stretch> = Vec::with_capacity(settled.len());
    for stretch in settled {
        match done.last_mut() {
            Some(last) if last.cause == stretch.cause => {
                last.to = stretch.to;
                last.around += stretch.around;
            }
            _ => done.push(stretch),
        }
    }
    done
}

fn timer(function: &str) -> Cause {
    match function {
        "tick_nohz_handler" | "tick_sched_timer" | "tick_nohz_highres_handler" => Cause::Tick,
        function => Cause::Timer { function: function.to_owned() },
    }
}

/// Whether an interrupt's handler is that of the CPU's own timer, as Arm's and RISC-V's kernels register it.
fn is_timer(name: &str) -> bool {
    matches!(name, "arch_timer" | "riscv-timer")
}

/// The kernel's order (99 - n for real-time) as people know it.
fn priority(kernel: i32) -> u8 {
    match kernel {
        ..0 => 100,
        0..=98 => (99 - kernel) as u8,
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use quiet_types::{CpuId, Nanos};

    const ME: u32 = 100;
    const CPU: CpuId = CpuId(1);
    const FACTS: Facts = Facts { sleeps: false, silent: Silent::Host, edge: 2_000 };

    fn us(n: u64) -> Nanos {
        Nanos(n * 1000)
    }

    /// A trace by hand: names are put as they are used.
    struct Story {
        trace: Trace,
        task: u32,
    }

    impl Story {
        fn new() -> Story {
            let mut story = Story { trace: Trace::default(), task: ME };
            let name = story.name("hog");
            story.trace.tasks.insert(7, name);
            story
        }

        fn name(&mut self, word: &str) -> Name {
            self.trace.names.push(word.to_owned());
            Name(self.trace.names.len() as u32 - 1)
        }

        fn at(&mut self, time: u64, what: What) -> &mut Story {
            self.on(time, CPU, self.task, what)
        }

        fn on(&mut self, time: u64, cpu: CpuId, task: u32, what: What) -> &mut Story {
            self.trace.events.push(TraceEvent { at: us(time), cpu, task, what });
            self
        }

        fn switch(&mut self, time: u64, to: u32, to_priority: i32, why: Left) -> &mut Story {
            let from = self.task;
            let from_priority = if from == ME { 9 } else { 120 };
            self.at(time, What::Switch { from, from_priority, why, to, to_priority });
            self.task = to;
            self
        }

        /// Causes and their µs, of one late reading.
        fn told(&self, from: u64, to: u64, facts: Facts) -> Vec<(Cause, u64)> {
            let late = vec![Span { from: us(from), to: us(to) }];
            let victim = Victim { cpu: CPU, task: ME, beyond: 1, late };
            let found = sweep(&self.trace, &victim, facts);
            let stretches = &found.readings[0];
            let whole: u64 = stretches.iter().map(|s| s.to - s.from).sum();
            assert_eq!(whole, (to - from) * 1000, "they fill the reading");
            stretches
                .iter()
                .map(|s| (found.causes[s.cause].clone(), (s.to - s.from) / 1000))
                .collect()
        }
    }

    fn task(name: &str, priority: u8) -> Cause {
        Cause::Task { name: name.to_owned(), priority }
    }

    #[test]
    fn a_task_that_preempts_has_its_time_and_the_way_in_and_back() {
        let mut story = Story::new();
        story.switch(101, 7, 4, Left::Preempted).switch(150, ME, 9, Left::Sleeps);
        assert_eq!(story.told(100, 151, FACTS), [(task("hog", 95), 51)]);
    }

    #[test]
    fn silence_longer_than_the_way_in_is_the_hosts() {
        let mut story = Story::new();
        let timer = story.name("local_timer");
        let tick = story.name("tick_nohz_handler");
        story.at(190, What::Enter(Handler::Vector(timer)));
        story.at(191, What::Enter(Handler::Timer(tick)));
        story.at(195, What::Exit(EventKind::Timer));
        story.at(196, What::Exit(EventKind::Vector));
        assert_eq!(story.told(100, 197, FACTS), [(Cause::Host, 88), (Cause::Tick, 9)]);
        let bare = Facts { silent: Silent::Unexplained, ..FACTS };
        assert_eq!(story.told(100, 197, bare)[0], (Cause::Unexplained, 88));
    }

    #[test]
    fn an_interrupt_from_another_cpu_is_told_by_its_sender_and_what_it_asked_for() {
        let mut story = Story::new();
        let vector = story.name("call_function_single");
        let (ask, site) = (story.name("ipi_mb"), story.name("membarrier_private_expedited"));
        let sent = What::Sent { to: CPU, site, function: Some(ask) };
        story.on(99, CpuId(0), 7, sent);
        story.at(101, What::Enter(Handler::Vector(vector)));
        story.at(103, What::Enter(Handler::Call(ask)));
        story.at(104, What::Exit(EventKind::Call));
        story.at(105, What::Exit(EventKind::Vector));
        let call = Cause::Call {
            function: "ipi_mb".to_owned(),
            sender: "hog".to_owned(),
            site: "membarrier_private_expedited".to_owned(),
        };
        assert_eq!(story.told(100, 106, FACTS), [(call, 6)]);
    }

    #[test]
    fn arms_timer_is_a_numbered_interrupt_and_the_tick_all_the_same() {
        let mut story = Story::new();
        let (timer, tick) = (story.name("arch_timer"), story.name("tick_nohz_handler"));
        story.at(101, What::Enter(Handler::Irq { number: 11, name: timer }));
        story.at(103, What::Enter(Handler::Timer(tick)));
        story.at(108, What::Exit(EventKind::Irq));
        assert_eq!(story.told(100, 109, FACTS), [(Cause::Tick, 9)]);
        let mut story = Story::new();
        let timer = story.name("arch_timer");
        story.at(101, What::Enter(Handler::Irq { number: 11, name: timer }));
        story.at(108, What::Exit(EventKind::Irq));
        let timer = Cause::Timer { function: "?".to_owned() };
        assert_eq!(story.told(100, 109, FACTS), [(timer, 9)], "no timer was due");
    }

    #[test]
    fn arms_messages_are_told_by_who_raised_them_where_nothing_newer_tells() {
        let mut story = Story::new();
        let (ipi, look, call) =
            (story.name("IPI"), story.name("reschedule"), story.name("call_function"));
        let (work, ask) = (story.name("irq_work"), story.name("do_flush"));
        story.on(99, CpuId(0), 7, What::Raised { to: CPU, kind: look });
        story.at(101, What::Enter(Handler::Irq { number: 1, name: ipi }));
        story.at(102, What::Enter(Handler::Vector(look)));
        story.at(103, What::Exit(EventKind::Vector));
        story.at(104, What::Exit(EventKind::Irq));
        let unknown = || "?".to_owned();
        let rescheduled = Cause::Reschedule { sender: "hog".to_owned(), site: unknown() };
        assert_eq!(story.told(100, 105, FACTS), [(rescheduled, 5)]);
        let story_of = |kind: Name, within: Option<Name>| {
            let trace = story.trace.clone();
            let mut story = Story { trace, task: ME };
            story.trace.events.clear();
            story.on(99, CpuId(0), 7, What::Raised { to: CPU, kind });
            // One to another CPU is not ours.
            story.on(99, CpuId(0), 8, What::Raised { to: CpuId(2), kind });
            story.at(101, What::Enter(Handler::Irq { number: 2, name: ipi }));
            story.at(102, What::Enter(Handler::Vector(kind)));
            if let Some(within) = within {
                story.at(103, What::Enter(Handler::Call(within)));
                story.at(104, What::Exit(EventKind::Call));
            }
            story.at(105, What::Exit(EventKind::Vector));
            story.at(106, What::Exit(EventKind::Irq));
            story.told(100, 107, FACTS)
        };
        let call_of = |function: &str| Cause::Call {
            function: function.to_owned(),
            sender: "hog".to_owned(),
            site: unknown(),
        };
        assert_eq!(story_of(call, Some(ask)), [(call_of("do_flush"), 7)]);
        assert_eq!(story_of(call, None), [(call_of("?"), 7)]);
        let worked = Cause::Vector { name: "irq_work".to_owned(), sender: Some("hog".to_owned()) };
        assert_eq!(story_of(work, None), [(worked, 7)]);
    }

    #[test]
    fn interrupts_nest_and_each_has_its_own_time() {
        let mut story = Story::new();
        let (net, rx, work) = (story.name("eth0"), story.name("NET_RX"), story.name("flush"));
        story.switch(100, 7, 120, Left::Preempted);
        story.at(110, What::Enter(Handler::Work(work)));
        story.at(120, What::Enter(Handler::Irq { number: 36, name: net }));
        story.at(130, What::Exit(EventKind::Irq));
        story.at(130, What::Enter(Handler::Softirq(rx)));
        story.at(150, What::Exit(EventKind::Softirq));
        story.at(160, What::Exit(EventKind::Work));
        story.switch(170, ME, 120, Left::Sleeps);
        // The victim is an ordinary task here: nobody is unfair to it.
        for event in &mut story.trace.events {
            if let What::Switch { from_priority, .. } = &mut event.what {
                *from_priority = 120;
            }
        }
        let name = |s: &str| s.to_owned();
        assert_eq!(
            story.told(100, 170, FACTS),
            [
                (task("hog", 0), 10),
                (Cause::Work { function: name("flush") }, 10),
                (Cause::Irq { number: 36, name: name("eth0") }, 10),
                (Cause::Softirq { name: name("NET_RX") }, 20),
                (Cause::Work { function: name("flush") }, 10),
                (task("hog", 0), 10),
            ]
        );
    }

    #[test]
    fn timers_in_one_interrupt_end_where_the_next_begins_and_the_last_with_it() {
        let mut story = Story::new();
        let vector = story.name("local_timer");
        let (tick, watch) = (story.name("tick_nohz_handler"), story.name("watchdog_timer_fn"));
        story.at(101, What::Enter(Handler::Vector(vector)));
        story.at(102, What::Enter(Handler::Timer(tick)));
        story.at(110, What::Enter(Handler::Timer(watch)));
        story.at(117, What::Exit(EventKind::Vector));
        story.switch(117, 7, 4, Left::Preempted).switch(120, ME, 9, Left::Sleeps);
        let watch = Cause::Timer { function: "watchdog_timer_fn".to_owned() };
        assert_eq!(
            story.told(100, 120, FACTS),
            [(Cause::Tick, 10), (watch, 7), (task("hog", 95), 3)]
        );
    }

    #[test]
    fn an_ordinary_task_before_a_real_time_one_is_the_fair_server() {
        let mut story = Story::new();
        story.switch(100, 7, 120, Left::Preempted).switch(150, ME, 9, Left::Preempted);
        let name = "hog".to_owned();
        assert_eq!(story.told(100, 150, FACTS), [(Cause::FairServer { name }, 50)]);
    }

    #[test]
    fn a_stopped_victim_is_stopped_whoever_runs_meanwhile_and_waits_when_it_may_go_on() {
        let mut story = Story::new();
        story.switch(100, 0, 120, Left::Stopped).switch(120, 7, 120, Left::Preempted);
        story.on(140, CpuId(0), 7, What::Waking(ME));
        story.switch(150, ME, 9, Left::Preempted);
        let told = story.told(100, 150, FACTS);
        assert_eq!(told, [(Cause::Stopped, 40), (task("hog", 0), 10)]);
    }

    #[test]
    fn a_late_timer_is_the_idle_cpus_or_the_task_that_held_interrupts_off() {
        let facts = Facts { sleeps: true, ..FACTS };
        let mut story = Story::new();
        let (vector, wake) = (story.name("local_timer"), story.name("hrtimer_wakeup"));
        story.switch(50, 7, 120, Left::Sleeps);
        story.at(130, What::Enter(Handler::Vector(vector)));
        story.at(131, What::Enter(Handler::Timer(wake)));
        story.at(132, What::Waking(ME));
        story.at(133, What::Exit(EventKind::Timer));
        story.at(134, What::Exit(EventKind::Vector));
        story.switch(140, ME, 9, Left::Preempted);
        let name = "hog".to_owned();
        let wake = Cause::Timer { function: "hrtimer_wakeup".to_owned() };
        assert_eq!(
            story.told(100, 141, facts),
            [(Cause::Masked { name }, 30), (wake, 4), (task("hog", 0), 7)]
        );
    }

    #[test]
    fn time_in_which_events_were_lost_is_not_guessed() {
        let mut story = Story::new();
        story.switch(50, 7, 4, Left::Preempted).switch(60, ME, 9, Left::Sleeps);
        story.at(150, What::Lost);
        story.switch(160, 7, 4, Left::Preempted).switch(180, ME, 9, Left::Sleeps);
        let told = story.told(100, 181, FACTS);
        // With the way back.
        assert_eq!(told[0], (Cause::Unrecorded, 52));
        assert_eq!(told.last(), Some(&(task("hog", 95), 23)));
    }

    #[test]
    fn an_nmi_takes_its_time_from_whatever_it_hit() {
        let mut story = Story::new();
        story.at(150, What::Nmi(us(30)));
        assert_eq!(story.told(100, 152, FACTS), [(Cause::Host, 18), (Cause::Nmi, 34)]);
    }

    #[test]
    fn without_any_event_all_is_silent() {
        assert_eq!(Story::new().told(100, 152, FACTS), [(Cause::Host, 52)]);
    }
}
