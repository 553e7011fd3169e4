//! Records of the ring buffer as events.

use super::{
    format::{Field, RecordLayout},
    symbols::{Symbols, Words},
};
use quiet_types::{
    CpuId, CpuSet, Nanos,
    trace::{EventKind, Handler, Left, Name, TraceEvent, What},
};
use std::collections::{BTreeMap, HashMap};

/// What is made of an event, and from which of its fields.
#[derive(Clone, Copy, Debug)]
enum Shape {
    Switch { comms: [Field; 2], pids: [Field; 2], prios: [Field; 2], state: Field },
    Waking { pid: Field },
    Irq { number: Field, name: Field },
    Vector(Name),
    Message { reason: Field },
    Raise { mask: Field, reason: Field },
    Softirq { number: Field },
    Timer { function: Field, now: Option<Field> },
    Call { function: Field },
    Work { function: Field },
    Exit(EventKind),
    LocalTimerExit,
    Nmi { lasted: Field },
    SendOne { cpu: Field, site: Field, function: Field },
    SendMany { mask: Field, site: Field, function: Field },
    TickStop { success: Field, why: Field },
    End { comm: Field, pid: Field },
}

/// Softirqs by number, as the kernel counts them.
const SOFTIRQS: [&str; 10] =
    ["HI", "TIMER", "NET_TX", "NET_RX", "BLOCK", "IRQ_POLL", "TASKLET", "SCHED", "HRTIMER", "RCU"];
/// Of `common_flags`: in a hard interrupt.
///
/// # Source
/// `TRACE_FLAG_HARDIRQ`, include/linux/trace_events.h.
const HARD: u64 = 0x08;
/// A timer's `now` that lies further back is of another clock.
const WITHIN: u64 = 1_000_000_000;
/// Texts of the kernel that are kept; it has some thousands.
const TEXTS: usize = 1 << 16;
/// Names of more tasks than this are not kept.
const TASKS: usize = 1 << 16;

/// Makes events of records. Fields are found by their names in the descriptions that it was given.
#[derive(Debug, Default)]
pub struct Decoder {
    shapes: HashMap<u16, Shape>,
    task: Option<Field>,
    flags: Option<Field>,
    /// What a timer interrupt is called whose begin is not recorded.
    timer: Option<Name>,
    /// CPUs that are in an interrupt.
    inside: CpuSet,
    symbols: Symbols,
    /// Texts of the kernel by their address.
    texts: HashMap<u64, String>,
    functions: HashMap<u64, Name>,
    words: Words,
    tasks: BTreeMap<u32, Name>,
    /// Tasks that ended lately.
    ended: HashMap<u32, Name>,
    cpus: CpuSet,
}

impl Decoder {
    /// A decoder for events that concern these CPUs.
    pub fn new(cpus: CpuSet, symbols: Symbols) -> Decoder {
        Decoder { cpus, symbols, ..Decoder::default() }
    }

    /// Learns an event by its description; says whether it is one that this program knows.
    pub fn learn(&mut self, group: &str, name: &str, description: &str) -> bool {
        let Some(format) = RecordLayout::parse(description) else { return false };
        let Some(shape) = self.shape(&format, group, name) else { return false };
        self.task = self.task.or(format.field("common_pid"));
        self.flags = self.flags.or(format.field("common_flags"));
        self.shapes.insert(format.id, shape);
        true
    }

    /// Learns the kernel's texts that events point to, from `printk_formats` of tracefs: `0xffff800081234567 : "Rescheduling interrupts"`.
    ///
    /// # Source
    /// `t_show`, kernel/trace/trace_printk.c; `ipi_types`, arch/arm64/kernel/smp.c.
    pub fn learn_texts(&mut self, formats: &str) {
        for line in formats.lines() {
            let Some((address, text)) = line.split_once(" : \"") else { continue };
            let address = address.trim().trim_start_matches("0x");
            let Ok(address) = u64::from_str_radix(address, 16) else { continue };
            if self.texts.len() < TEXTS {
                self.texts.insert(address, text.trim_end_matches('"').to_owned());
            }
        }
    }

    /// What a message between CPUs is for, by the text that its event points to.
    fn message(&mut self, address: u64) -> Name {
        let word = self.texts.get(&address).map_or("ipi", |text| message(text));
        self.words.put(word)
    }

    /// Whether a local timer's interrupt needs no event for its begin: a high resolution timer's record holds the time at which the
    /// interrupt read the clock, and the interrupt's end is recorded. From now on such begins are told.
    pub fn begin_timers(&mut self) -> bool {
        let told = |shape: &Shape| matches!(shape, Shape::Timer { now: Some(_), .. });
        let known = self.flags.is_some() && self.shapes.values().any(told);
        self.timer = known.then(|| self.words.put("local_timer"));
        known
    }

    fn shape(&mut self, format: &RecordLayout, group: &str, name: &str) -> Option<Shape> {
        let field = |name| format.field(name);
        Some(match (group, name) {
            ("sched", "sched_switch") => Shape::Switch {
                comms: [field("prev_comm")?, field("next_comm")?],
                pids: [field("prev_pid")?, field("next_pid")?],
                prios: [field("prev_prio")?, field("next_prio")?],
                state: field("prev_state")?,
            },
            ("sched", "sched_waking") => Shape::Waking { pid: field("pid")? },
            ("sched", "sched_process_exit") => {
                Shape::End { comm: field("comm")?, pid: field("pid")? }
            }
            ("irq", "irq_handler_entry") => {
                Shape::Irq { number: field("irq")?, name: field("name")? }
            }
            ("irq", "irq_handler_exit") => Shape::Exit(EventKind::Irq),
            ("irq", "softirq_entry") => Shape::Softirq { number: field("vec")? },
            ("irq", "softirq_exit") => Shape::Exit(EventKind::Softirq),
            // Of Arm: one event for all messages between CPUs, and its reason is a text of the kernel's.
            ("ipi", "ipi_entry") => Shape::Message { reason: field("reason")? },
            ("ipi", "ipi_raise") => {
                Shape::Raise { mask: field("target_cpus")?, reason: field("reason")? }
            }
            ("irq_vectors" | "ipi", name) if name.ends_with("_entry") => {
                Shape::Vector(self.words.put(name.trim_end_matches("_entry")))
            }
            ("irq_vectors", "local_timer_exit") => Shape::LocalTimerExit,
            ("irq_vectors" | "ipi", name) if name.ends_with("_exit") => {
                Shape::Exit(EventKind::Vector)
            }
            ("timer", "hrtimer_expire_entry" | "timer_expire_entry") => {
                // Of a timer of low resolution it is a count of ticks.
                let now = field("now").filter(|_| name == "hrtimer_expire_entry");
                Shape::Timer { function: field("function")?, now }
            }
            ("timer", "timer_expire_exit") => Shape::Exit(EventKind::Timer),
            ("timer", "tick_stop") => {
                Shape::TickStop { success: field("success")?, why: field("dependency")? }
            }
            ("csd", "csd_function_entry") => Shape::Call { function: field("func")? },
            ("csd", "csd_function_exit") => Shape::Exit(EventKind::Call),
            ("csd", "csd_queue_cpu") => Shape::SendOne {
                cpu: field("cpu")?,
                site: field("callsite")?,
                function: field("func")?,
            },
            ("ipi", "ipi_send_cpu") => Shape::SendOne {
                cpu: field("cpu")?,
                site: field("callsite")?,
                function: field("callback")?,
            },
            ("ipi", "ipi_send_cpumask") => Shape::SendMany {
                mask: field("cpumask")?,
                site: field("callsite")?,
                function: field("callback")?,
            },
            ("workqueue", "workqueue_execute_start") => {
                Shape::Work { function: field("function")? }
            }
            ("workqueue", "workqueue_execute_end") => Shape::Exit(EventKind::Work),
            ("nmi", "nmi_handler") => Shape::Nmi { lasted: field("delta_ns")? },
            _ => return None,
        })
    }

    /// The events that a record stands for; records of unknown events stand for none.
    pub fn decode(&mut self, cpu: CpuId, at: u64, record: &[u8], tell: &mut dyn FnMut(TraceEvent)) {
        let Some(id) = record.first_chunk().map(|b| u16::from_ne_bytes(*b)) else { return };
        let Some(shape) = self.shapes.get(&id).copied() else { return };
        let task = self.task.map_or(0, |field| field.number(record)) as u32;
        if let Some((at, name)) = self.unrecorded(shape, cpu, at, record) {
            tell(TraceEvent { at: Nanos(at), cpu, task, what: What::Enter(Handler::Vector(name)) });
        }
        let mut say = |what| tell(TraceEvent { at: Nanos(at), cpu, task, what });
        match shape {
            Shape::Switch { comms, pids, prios, state } => {
                let [from, to] = pids.map(|pid| pid.number(record) as u32);
                for (comm, pid) in comms.iter().zip([from, to]) {
                    self.learn_task(pid, &comm.text(record));
                }
                let [from_priority, to_priority] = prios.map(|prio| prio.number(record) as i32);
                let why = left(state.number(record));
                say(What::Switch { from, from_priority, why, to, to_priority });
            }
            Shape::Waking { pid } => say(What::Waking(pid.number(record) as u32)),
            Shape::End { comm, pid } => {
                if self.ended.len() < TASKS {
                    let name = self.words.put(&comm.text(record));
                    self.ended.insert(pid.number(record) as u32, name);
                }
            }
            Shape::Irq { number, name } => {
                let name = self.words.put(&name.text(record));
                say(What::Enter(Handler::Irq { number: number.number(record) as u32, name }));
            }
            Shape::Vector(name) => say(What::Enter(Handler::Vector(name))),
            Shape::Message { reason } => {
                let name = self.message(reason.number(record));
                say(What::Enter(Handler::Vector(name)));
            }
            Shape::Raise { mask, reason } => {
                let kind = self.message(reason.number(record));
                let mask = mask.bytes(record);
                for to in self.cpus.iter().filter(|cpu| in_mask(mask, cpu.0)) {
                    say(What::Raised { to, kind });
                }
            }
            Shape::Softirq { number } => {
                let number = number.number(record) as usize;
                let name = self.words.put(SOFTIRQS.get(number).copied().unwrap_or("?"));
                say(What::Enter(Handler::Softirq(name)));
            }
            Shape::Timer { function, .. } => {
                say(What::Enter(Handler::Timer(self.function(function.number(record)))));
            }
            Shape::Call { function } => {
                say(What::Enter(Handler::Call(self.function(function.number(record)))));
            }
            Shape::Work { function } => {
                say(What::Enter(Handler::Work(self.function(function.number(record)))));
            }
            Shape::Exit(kind) => say(What::Exit(kind)),
            Shape::LocalTimerExit => say(What::Exit(EventKind::Vector)),
            Shape::Nmi { lasted } => say(What::Nmi(Nanos(lasted.number(record)))),
            Shape::TickStop { success, why } => {
                if success.number(record) == 0 {
                    let bits = why.number(record);
                    let names = [
                        "POSIX timer",
                        "perf events",
                        "several tasks",
                        "unstable clock",
                        "RCU",
                        "expedited RCU",
                    ];
                    let set = (0..names.len()).filter(|bit| bits >> bit & 1 == 1);
                    let why: Vec<&str> = set.map(|bit| names[bit]).collect();
                    say(What::TickKept(self.words.put(&why.join(", "))));
                }
            }
            Shape::SendOne { cpu: to, site, function } => {
                let to = CpuId(to.number(record) as u32);
                if self.cpus.contains(to) {
                    let site = self.function(site.number(record));
                    let function = self.asked(function.number(record));
                    say(What::Sent { to, site, function });
                }
            }
            Shape::SendMany { mask, site, function } => {
                let site = self.function(site.number(record));
                let function = self.asked(function.number(record));
                let mask = mask.bytes(record);
                for to in self.cpus.iter().filter(|cpu| in_mask(mask, cpu.0)) {
                    say(What::Sent { to, site, function });
                }
            }
        }
    }

    /// The begin, not recorded itself, of the timer interrupt that this record is from, at its first record.
    fn unrecorded(
        &mut self,
        shape: Shape,
        cpu: CpuId,
        at: u64,
        record: &[u8],
    ) -> Option<(u64, Name)> {
        let name = self.timer?;
        let within = self.inside.contains(cpu);
        match shape {
            Shape::Vector(_) | Shape::Message { .. } | Shape::Irq { .. } => {
                self.inside.insert(cpu);
                None
            }
            Shape::Timer { now: Some(now), .. } if !within => {
                // Where it is not hard, a softirq's timers run.
                let hard = self.flags.is_some_and(|flags| flags.number(record) & HARD != 0);
                hard.then(|| {
                    self.inside.insert(cpu);
                    let now = now.number(record);
                    let own = at.checked_sub(now).is_some_and(|ago| ago < WITHIN);
                    (if own { now } else { at }, name)
                })
            }
            Shape::LocalTimerExit
            | Shape::Exit(EventKind::Vector | EventKind::Irq)
            | Shape::Switch { .. } => {
                self.inside.remove(cpu);
                // No timer was due.
                (!within && matches!(shape, Shape::LocalTimerExit)).then_some((at, name))
            }
            _ => None,
        }
    }

    /// Gives a task its name, unless it is too many.
    pub fn learn_task(&mut self, task: u32, name: &str) {
        if task != 0 && (self.tasks.len() < TASKS || self.tasks.contains_key(&task)) {
            let name = self.words.put(name);
            self.tasks.insert(task, name);
        }
    }

    /// Gives a task the name that it had when it ended; `false` where its end was not seen.
    pub fn name_by_end(&mut self, task: u32) -> bool {
        let Some(name) = self.ended.get(&task).copied().filter(|_| self.tasks.len() < TASKS) else {
            return false;
        };
        self.tasks.insert(task, name);
        true
    }

    /// Those who ended so far are not asked for any more.
    pub fn forget_ends(&mut self) {
        self.ended.clear();
    }

    /// Whether the name of a task is known.
    pub fn knows_task(&self, task: u32) -> bool {
        task == 0 || self.tasks.contains_key(&task)
    }

    /// Words and tasks, when all is decoded.
    pub fn names(self) -> (Vec<String>, BTreeMap<u32, Name>) {
        (self.words.all, self.tasks)
    }

    fn asked(&mut self, address: u64) -> Option<Name> {
        (address != 0).then(|| self.function(address))
    }

    fn function(&mut self, address: u64) -> Name {
        if let Some(name) = self.functions.get(&address) {
            return *name;
        }
        let name = match self.symbols.at(address) {
            Some(name) => self.words.put(name),
            None => self.words.put("?"),
        };
        if self.functions.len() < TASKS {
            self.functions.insert(address, name);
        }
        name
    }
}

/// A message between CPUs, in the words of [`Handler::Vector`].
fn message(text: &str) -> &str {
    let says = |word: &str| text.to_ascii_lowercase().contains(word);
    match text {
        _ if says("rescheduling") => "reschedule",
        _ if says("function call") => "call_function",
        _ if says("irq work") => "irq_work",
        _ if says("timer broadcast") => "timer_broadcast",
        text => text.strip_suffix(" interrupts").unwrap_or(text),
    }
}

/// `TASK_REPORT` of the kernel; the bit above it is set for a task that was preempted.
fn left(state: u64) -> Left {
    match state {
        s if s & 0x0c != 0 => Left::Stopped,
        s if s & 0x02 != 0 => Left::Blocked,
        s if s & 0x30 != 0 => Left::Ended,
        s if s & 0xc1 != 0 && s & 0x100 == 0 => Left::Sleeps,
        _ => Left::Preempted,
    }
}

/// A kernel's bit mask: words of its size and byte order.
fn in_mask(mask: &[u8], cpu: u32) -> bool {
    let byte = cpu as usize / 8;
    let byte = if cfg!(target_endian = "little") {
        byte
    } else {
        let word = size_of::<usize>();
        byte / word * word + (word - 1 - byte % word)
    };
    mask.get(byte).is_some_and(|bits| bits >> (cpu % 8) & 1 == 1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const COMMON: &str = "\tfield:unsigned short common_type;\toffset:0;\tsize:2;\tsigned:0;\n\
        \tfield:int common_pid;\toffset:4;\tsize:4;\tsigned:1;\n";

    fn decoder() -> Decoder {
        let symbols = Symbols::parse("ffff0000 T do_it\nffff1000 T membarrier\n");
        let mut decoder = Decoder::new("1,9".parse().unwrap(), symbols);
        let mut learn = |group: &str, name: &str, id: u16, fields: &str| {
            let text = format!("name: {name}\nID: {id}\nformat:\n{COMMON}\n{fields}");
            assert!(decoder.learn(group, name, &text), "{group}/{name}");
        };
        learn("irq", "softirq_entry", 1, "\tfield:unsigned int vec;\toffset:8;\tsize:4;\n");
        learn(
            "ipi",
            "ipi_send_cpumask",
            2,
            "\tfield:__data_loc cpumask_t cpumask;\toffset:8;\tsize:4;\n\
             \tfield:void * callsite;\toffset:16;\tsize:8;\n\
             \tfield:void * callback;\toffset:24;\tsize:8;\n",
        );
        learn("irq_vectors", "local_timer_exit", 3, "\tfield:int vector;\toffset:8;\tsize:4;\n");
        assert!(!decoder.learn("sched", "sched_waking", "ID: 4\n"), "a field is missing");
        decoder
    }

    fn all(decoder: &mut Decoder, record: &[u8]) -> Vec<TraceEvent> {
        let mut all = Vec::new();
        decoder.decode(CpuId(3), 77, record, &mut |event| all.push(event));
        all
    }

    #[test]
    fn an_interrupt_to_many_is_one_event_for_each_cpu_that_was_asked_for() {
        let mut decoder = decoder();
        let mut record = vec![0u8; 40];
        record[0..2].copy_from_slice(&2u16.to_ne_bytes());
        record[4..8].copy_from_slice(&1234u32.to_ne_bytes());
        record[8..12].copy_from_slice(&(8u32 << 16 | 32).to_ne_bytes());
        record[16..24].copy_from_slice(&0xffff1004u64.to_ne_bytes());
        record[24..32].copy_from_slice(&0xffff0000u64.to_ne_bytes());
        record[32..40].copy_from_slice(&(1u64 << 9 | 1 << 2).to_ne_bytes());
        let events = all(&mut decoder, &record);
        assert_eq!(events.len(), 1);
        assert_eq!((events[0].cpu, events[0].task, events[0].at), (CpuId(3), 1234, Nanos(77)));
        let What::Sent { to, site, function } = events[0].what else { panic!("{events:?}") };
        assert_eq!(to, CpuId(9));
        let (names, _) = decoder.names();
        assert_eq!(names[site.0 as usize], "membarrier");
        assert_eq!(names[function.unwrap().0 as usize], "do_it");
    }

    /// Descriptions as Linux 6.12 of arm64 prints them, without the common fields.
    const ENTRY: &str = "\tfield:const char * reason;\toffset:8;\tsize:8;\tsigned:0;\n";
    const RAISE: &str = "\tfield:__data_loc unsigned long[] target_cpus;\toffset:8;\tsize:4;\tsigned:0;\n\
        \tfield:const char * reason;\toffset:16;\tsize:8;\tsigned:0;\n";

    #[test]
    fn a_message_between_arms_cpus_is_told_by_the_text_it_points_to_and_by_who_raised_it() {
        let mut decoder = Decoder::new("1,5".parse().unwrap(), Symbols::default());
        decoder.learn_texts(
            "0xffff800081a00010 : \"Rescheduling interrupts\"\n0xffff800081a00040 : \"Function call interrupts\"\n\
             0xffff800081a00080 : \"IRQ work interrupts\"\nnonsense\n0xzz : \"x\"\n",
        );
        for (id, name, fields) in
            [(1, "ipi_entry", ENTRY), (2, "ipi_raise", RAISE), (3, "ipi_exit", ENTRY)]
        {
            let text = format!("name: {name}\nID: {id}\nformat:\n{COMMON}\n{fields}");
            assert!(decoder.learn("ipi", name, &text), "{name}");
        }
        let mut told = |id: u16, reason: u64, cpus: u64| {
            let mut record = vec![0u8; 32];
            record[0..2].copy_from_slice(&id.to_ne_bytes());
            record[4..8].copy_from_slice(&77u32.to_ne_bytes());
            let at = if id == 2 { 16 } else { 8 };
            record[at..at + 8].copy_from_slice(&reason.to_ne_bytes());
            if id == 2 {
                record[8..12].copy_from_slice(&(8u32 << 16 | 24).to_ne_bytes());
                record[24..32].copy_from_slice(&cpus.to_ne_bytes());
            }
            let events = all(&mut decoder, &record);
            let names = &decoder.words.all;
            let told = events.iter().map(|event| match event.what {
                What::Enter(Handler::Vector(name)) => names[name.0 as usize].clone(),
                What::Raised { to, kind } => {
                    format!("{} to {to} by {}", names[kind.0 as usize], event.task)
                }
                What::Exit(EventKind::Vector) => "end".to_owned(),
                what => panic!("{what:?}"),
            });
            told.collect::<Vec<String>>()
        };
        assert_eq!(told(1, 0xffff_8000_81a0_0010, 0), ["reschedule"]);
        assert_eq!(told(1, 0xffff_8000_81a0_0040, 0), ["call_function"]);
        assert_eq!(told(1, 0xffff_8000_81a0_0099, 0), ["ipi"], "a text that nobody told");
        assert_eq!(told(3, 0xffff_8000_81a0_0010, 0), ["end"]);
        // CPUs 0, 1 and 5 get one; 0 is nobody's who was asked for.
        assert_eq!(
            told(2, 0xffff_8000_81a0_0080, 0b10_0011),
            ["irq_work to 1 by 77", "irq_work to 5 by 77"]
        );
    }

    /// A decoder of timers, and records of 24 bytes for it.
    fn timers() -> Decoder {
        let mut decoder = Decoder::new("3".parse().unwrap(), Symbols::parse("ffff0000 T tick\n"));
        let common = "\tfield:unsigned short common_type;\toffset:0;\tsize:2;\tsigned:0;\n\
            \tfield:unsigned char common_flags;\toffset:2;\tsize:1;\tsigned:0;\n\
            \tfield:int common_pid;\toffset:4;\tsize:4;\tsigned:1;\n";
        let timer =
            "\tfield:s64 now;\toffset:8;\tsize:8;\n\tfield:void * function;\toffset:16;\tsize:8;\n";
        let irq =
            "\tfield:int irq;\toffset:8;\tsize:4;\n\tfield:char name[4];\toffset:12;\tsize:4;\n";
        assert!(!decoder.begin_timers(), "nothing is learnt yet");
        for (id, group, name, fields) in [
            (1, "timer", "hrtimer_expire_entry", timer),
            (2, "irq_vectors", "local_timer_exit", ""),
            (3, "irq", "irq_handler_entry", irq),
            (4, "irq", "irq_handler_exit", ""),
            (5, "irq_vectors", "reschedule_exit", ""),
        ] {
            let text = format!("name: {name}\nID: {id}\nformat:\n{common}\n{fields}");
            assert!(decoder.learn(group, name, &text), "{name}");
        }
        assert!(decoder.begin_timers());
        decoder
    }

    /// What begins and ends, and when.
    fn told(decoder: &mut Decoder, at: u64, id: u16, flags: u8, now: u64) -> Vec<(u64, String)> {
        let mut record = [0u8; 24];
        record[0..2].copy_from_slice(&id.to_ne_bytes());
        record[2] = flags;
        record[8..16].copy_from_slice(&now.to_ne_bytes());
        record[16..24].copy_from_slice(&0xffff0000u64.to_ne_bytes());
        let mut all = Vec::new();
        decoder.decode(CpuId(3), at, &record, &mut |event| {
            let word = match event.what {
                What::Enter(place) => format!("{:?} begins", place.kind()),
                What::Exit(kind) => format!("{kind:?} ends"),
                what => panic!("{what:?}"),
            };
            all.push((event.at.0, word));
        });
        all
    }

    #[test]
    fn a_timer_interrupt_begins_when_it_read_the_clock() {
        let mut decoder = timers();
        let mut told = |at, id, flags, now| told(&mut decoder, at, id, flags, now);
        let all = |words: &[(u64, &str)]| -> Vec<(u64, String)> {
            words.iter().map(|(at, word)| (*at, (*word).to_owned())).collect()
        };
        // Two timers are due in one interrupt.
        assert_eq!(
            told(1000, 1, 0x09, 900),
            all(&[(900, "Vector begins"), (1000, "Timer begins")])
        );
        assert_eq!(told(1100, 1, 0x09, 900), all(&[(1100, "Timer begins")]));
        assert_eq!(told(1200, 2, 0x01, 0), all(&[(1200, "Vector ends")]));
        // None is due: only its end is seen.
        assert_eq!(told(2000, 2, 0x01, 0), all(&[(2000, "Vector begins"), (2000, "Vector ends")]));
        // Another interrupt whose begin was lost is not the timer's.
        assert_eq!(told(2500, 5, 0x01, 0), all(&[(2500, "Vector ends")]));
        // A softirq's timers are in no interrupt.
        assert_eq!(told(3000, 1, 0x10, 2900), all(&[(3000, "Timer begins")]));
        // A timer on the wall clock, whose now is decades away.
        let wall = 1_700_000_000_000_000_000;
        assert_eq!(
            told(4000, 1, 0x09, wall),
            all(&[(4000, "Vector begins"), (4000, "Timer begins")])
        );
        assert_eq!(told(4100, 2, 0x01, 0), all(&[(4100, "Vector ends")]));
        // A device's handler that runs timers has told its begin itself.
        assert_eq!(told(5000, 3, 0x09, 0), all(&[(5000, "Irq begins")]));
        assert_eq!(told(5100, 1, 0x09, 5050), all(&[(5100, "Timer begins")]));
        assert_eq!(told(5200, 4, 0x09, 0), all(&[(5200, "Irq ends")]));
        assert_eq!(
            told(6000, 1, 0x09, 5950),
            all(&[(5950, "Vector begins"), (6000, "Timer begins")])
        );
    }

    /// PREEMPT_RT: an ordinary sleeper's timer runs in a softirq, so its interrupt has no timer's record.
    #[test]
    fn a_timer_interrupt_whose_begin_is_recorded_lasts_from_there() {
        let mut decoder = timers();
        decoder.timer = None;
        let text = "name: local_timer_entry\nID: 6\nformat:\n\n";
        assert!(decoder.learn("irq_vectors", "local_timer_entry", text));
        let mut told = |at, id, flags, now| told(&mut decoder, at, id, flags, now);
        assert_eq!(told(1000, 6, 0x09, 0), [(1000, "Vector begins".to_owned())]);
        assert_eq!(told(1900, 2, 0x09, 0), [(1900, "Vector ends".to_owned())]);
        assert_eq!(told(3000, 6, 0x09, 0), [(3000, "Vector begins".to_owned())]);
        assert_eq!(told(3100, 1, 0x09, 2990), [(3100, "Timer begins".to_owned())]);
        assert_eq!(told(3900, 2, 0x09, 0), [(3900, "Vector ends".to_owned())]);
    }

    #[test]
    fn why_a_task_leaves_is_read_from_its_state() {
        for (state, why) in [
            (0, Left::Preempted),
            (0x100, Left::Preempted),
            (0x101, Left::Preempted),
            (1, Left::Sleeps),
            (0x80, Left::Sleeps),
            (2, Left::Blocked),
            (4, Left::Stopped),
            (8, Left::Stopped),
            (0x10, Left::Ended),
            (0x20, Left::Ended),
        ] {
            assert_eq!(left(state), why, "{state:#x}");
        }
    }

    proptest! {
        #[test]
        fn no_record_makes_it_fail(bytes in proptest::collection::vec(any::<u8>(), 0..64), id in 0u16..5) {
            let mut record = id.to_ne_bytes().to_vec();
            record.extend(bytes);
            prop_assert!(all(&mut decoder(), &record).len() <= 2);
        }
    }
}
