//! Seats for real-time threads: where one runs, under which policy, with its memory present; and what the kernel refused.

use crate::{
    Error, Kernel, System, parse,
    sys::{self, sched},
};
use quiet_types::{
    CpuId, CpuSet, Finding, Severity,
    machine::{Policy, Scheduling},
    shield::Entry,
};
use std::{
    fs::{self, File},
    io::{self, Read, Write},
    num::NonZeroU64,
};

/// Who seats a thread of this process: a service that has the rights which the process lacks, or who keeps the journal of a shield.
pub trait SeatLender: std::fmt::Debug + Send + Sync {
    /// Lets the thread `tid` into the shield, onto `cpu` of it, under `schedule` (`Fifo` or `Rr`) where there is one. Not to be called
    /// in real time.
    ///
    /// # Errors
    /// Why not.
    fn lend(&self, tid: u32, cpu: Option<CpuId>, schedule: Option<Scheduling>)
    -> crate::Result<()>;
}

/// What a thread asks for. What is `None` stays as it is.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Seat {
    /// The shield's door that it goes through.
    pub entry: Option<Entry>,
    /// Its CPU.
    pub cpu: Option<CpuId>,
    /// CPUs that the other threads of its process are to leave.
    pub off: CpuSet,
    /// How it is scheduled.
    pub schedule: Option<Schedule>,
}

/// How a thread asks to be scheduled.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Schedule {
    /// Under a policy other than `Deadline`.
    Under(Scheduling),
    /// Under `SCHED_DEADLINE`.
    Deadline(sched::Deadline),
}

/// What came of a [`Seat`].
#[derive(Debug)]
pub struct Seated {
    /// What was asked.
    pub asked: Seat,
    /// What the kernel refused, in the order in which it was asked. All else was granted.
    pub refused: Vec<Refused>,
}

/// One thing that the kernel refused.
#[derive(Debug)]
pub struct Refused {
    /// What.
    pub need: SeatNeed,
    /// Why: the kernel's own word.
    pub error: io::Error,
}

/// What a [`Seat`] can need.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SeatNeed {
    /// The way into the shield.
    Shield,
    /// The CPU.
    Cpu,
    /// Policy and priority.
    Schedule,
}

/// What holds for the calling thread, as the kernel says; `None` where it does not.
#[derive(Clone, Debug, PartialEq)]
pub struct Holds {
    /// Where it may run.
    pub allowed: Option<CpuSet>,
    /// How it is scheduled.
    pub scheduling: Option<Scheduling>,
}

impl Seat {
    /// Seats the calling thread: into the shield, onto the CPU, under the policy. A refusal ends nothing: the rest is still asked for.
    ///
    /// Timers of the thread get no slack, and pages of its stack are made present.
    pub fn take(self) -> Seated {
        let mut refused = Vec::new();
        let mut note = |need, done: io::Result<()>| {
            refused.extend(done.err().map(|error| Refused { need, error }));
        };
        if let Some(entry) = &self.entry {
            note(SeatNeed::Shield, enter(entry));
        }
        if let Some(cpu) = self.cpu {
            // After the door: a partition takes the whole process in, and gives every thread of it all of its CPUs.
            all_keep_off(&self.off);
            note(SeatNeed::Cpu, sched::set_affinity(0, &CpuSet::from_iter([cpu])));
        }
        match self.schedule {
            Some(Schedule::Under(to)) => note(SeatNeed::Schedule, sched::set_scheduling(0, to)),
            Some(Schedule::Deadline(to)) => note(SeatNeed::Schedule, sched::set_deadline(0, to)),
            None => {}
        }
        // Real-time policies have no slack; for the others it is 50 us unless set.
        let _ = rustix::thread::set_current_timer_slack(NonZeroU64::new(1));
        sys::memory::touch_stack();
        Seated { asked: self, refused }
    }
}

impl Seated {
    /// Whether all was granted.
    ///
    /// # Errors
    /// The first refusal.
    pub fn granted(self) -> io::Result<()> {
        self.refused.into_iter().next().map_or(Ok(()), |refused| Err(refused.error))
    }

    /// Whether this was refused.
    pub fn is_refused(&self, need: SeatNeed) -> bool {
        self.refused.iter().any(|refused| refused.need == need)
    }
}

impl Holds {
    /// Reads it back for the calling thread.
    pub fn now() -> Holds {
        Holds {
            allowed: sched::affinity(0).ok(),
            scheduling: sched::scheduling(0).ok().map(|(scheduling, _)| scheduling),
        }
    }
}

/// The calling thread before all ordinary ones, until this is dropped: for a short act that somebody in real time waits for. Where the kernel
/// refuses, it stays as it is.
#[derive(Debug)]
pub struct Haste(Option<Scheduling>);

impl Haste {
    /// Begins.
    pub fn begin() -> Haste {
        let fifo = Scheduling { policy: Policy::Fifo, priority: 1, nice: 0 };
        let before = sched::scheduling(0).ok().map(|(scheduling, _)| scheduling);
        // Who is in real time, or has a slice of his own that is given back by nobody, stays.
        let ordinary = before.filter(|now| now.policy == Policy::Other);
        let ordinary = ordinary.filter(|_| !matches!(sched::slice(0), Ok(Some(_))));
        Haste(ordinary.filter(|_| sched::set_scheduling(0, fifo).is_ok()))
    }
}

impl Drop for Haste {
    fn drop(&mut self) {
        if let Some(before) = self.0 {
            let _ = sched::set_scheduling(0, before);
        }
    }
}

/// The calling thread's number.
pub fn tid() -> u32 {
    rustix::thread::gettid().as_raw_nonzero().get().unsigned_abs()
}

/// Through the shield's door: the calling thread, or with [`Entry::whole_process`] its process.
///
/// # Errors
/// The kernel's own.
pub fn enter(entry: &Entry) -> io::Result<()> {
    let task = if entry.whole_process { std::process::id() } else { tid() };
    System.write(&entry.file, &task.to_string())
}

/// Keeps thread `tid` (0: the caller) off `cpus`, where it may run elsewhere; where it was allowed before, if that changed something.
pub fn keep_off(tid: u32, cpus: &CpuSet) -> Option<CpuSet> {
    let allowed = sched::affinity(tid).ok()?;
    let rest = allowed.difference(cpus);
    let moved = !rest.is_empty() && rest != allowed && sched::set_affinity(tid, &rest).is_ok();
    moved.then_some(allowed)
}

/// Keeps all threads of the program, the caller too, off some CPUs, where they can be elsewhere: one
/// that never sleeps there would leave them nothing, and nobody moves them away.
pub fn all_keep_off(cpus: &CpuSet) {
    if cpus.is_empty() {
        return;
    }
    let threads = fs::read_dir("/proc/self/task").into_iter().flatten().flatten();
    for thread in threads.filter_map(|entry| entry.file_name().to_str()?.parse().ok()) {
        keep_off(thread, cpus);
    }
}

/// Locks all memory of the process, present and future, as the kernel's own word confirms; else
/// why not. `what` names the process in the sentence.
pub fn lock_memory(what: &str) -> (bool, Option<Finding>) {
    let done = sys::memory::lock_all();
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let locked = done.is_ok() && parse::status_kib(&status, "VmLck").is_some_and(|kib| kib > 0);
    let finding = done.err().map(|error| {
        Finding::new(Severity::Note, "run.memory", "Memory is not locked")
            .evidence(Error::io("lock", what, error).to_string())
            .effect("A page that was taken away costs a page fault when it is needed.")
            .remedy("Run as root, or raise the limit (`memlock` in /etc/security/limits.conf).")
    });
    (locked, finding)
}

/// Asks for no idle states while the file is open.
///
/// # Errors
/// What stands in the way, as a finding.
pub fn hold_awake() -> Result<File, Box<Finding>> {
    let path = "/dev/cpu_dma_latency";
    let open = || -> io::Result<File> {
        let mut file = fs::OpenOptions::new().read(true).write(true).open(path)?;
        // All four bytes at once: a shorter write is refused.
        file.write_all(&0i32.to_ne_bytes())?;
        let mut back = [1u8; 4];
        file.read_exact(&mut back)?;
        if back == [0; 4] {
            Ok(file)
        } else {
            Err(io::Error::other("the kernel took 0 and answers another value"))
        }
    };
    open().map_err(|error| {
        let title = "Idle states are as they were";
        Box::new(
            Finding::new(Severity::Warning, "run.idle_states", title)
                .evidence(Error::io("hold 0 in", path, error).to_string())
                .effect("Waking from a deep idle state takes its time.")
                .remedy("Run as root."),
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// On a thread of its own, so that the test's own stays as it is.
    fn seated(seat: Seat) -> (Seated, Holds) {
        std::thread::spawn(|| (seat.take(), Holds::now())).join().unwrap()
    }

    #[test]
    fn what_is_granted_holds() {
        let cpu = sched::affinity(0).unwrap().first().unwrap();
        let batch = Scheduling { policy: Policy::Batch, priority: 0, nice: 5 };
        let seat =
            Seat { cpu: Some(cpu), schedule: Some(Schedule::Under(batch)), ..Seat::default() };
        let (seated, holds) = seated(seat.clone());
        assert_eq!(seated.asked, seat);
        assert!(seated.refused.is_empty(), "{:?}", seated.refused);
        assert_eq!(
            holds,
            Holds { allowed: Some([cpu].into_iter().collect()), scheduling: Some(batch) }
        );
    }

    #[test]
    fn a_refusal_is_told_with_its_reason_and_the_rest_is_still_done() {
        let nowhere =
            Entry { file: "/sys/no such door/tasks".parse().unwrap(), whole_process: false };
        let wrong = Scheduling { policy: Policy::Other, priority: 9, nice: 0 };
        let before = sched::affinity(0).unwrap();
        let cpu = before.first().unwrap();
        let all = Seat {
            entry: Some(nowhere),
            cpu: Some(cpu),
            off: CpuSet::new(),
            schedule: Some(Schedule::Under(wrong)),
        };
        let (done, holds) = seated(all);
        let told: Vec<_> = done.refused.iter().map(|r| (r.need, r.error.raw_os_error())).collect();
        assert_eq!(
            told,
            [(SeatNeed::Shield, Some(libc::ENOENT)), (SeatNeed::Schedule, Some(libc::EINVAL))]
        );
        assert_eq!(holds.allowed, Some([cpu].into_iter().collect()), "between the two refusals");
        assert_eq!(done.granted().unwrap_err().raw_os_error(), Some(libc::ENOENT));

        let far = Seat { cpu: Some(CpuId(8191)), ..Seat::default() };
        let (done, holds) = seated(far);
        assert!(done.is_refused(SeatNeed::Cpu) && !done.is_refused(SeatNeed::Shield));
        assert_eq!(holds.allowed, Some(before), "it stays where it was");
    }

    #[test]
    fn who_is_in_haste_is_as_before_in_the_end() {
        std::thread::spawn(|| {
            let before = Holds::now();
            let haste = Haste::begin();
            let within = Holds::now().scheduling.unwrap();
            assert_eq!(within.policy == Policy::Fifo, haste.0.is_some());
            drop(haste);
            assert_eq!(Holds::now(), before);
            // Not what it is not: an ordinary thread of another kind stays.
            let batch = Scheduling { policy: Policy::Batch, priority: 0, nice: 0 };
            sched::set_scheduling(0, batch).unwrap();
            let _haste = Haste::begin();
            assert_eq!(Holds::now().scheduling, Some(batch));
        })
        .join()
        .unwrap();
    }

    #[test]
    fn a_thread_leaves_a_cpu_only_where_it_has_another() {
        std::thread::spawn(|| {
            let all = sched::affinity(0).unwrap();
            assert_eq!(keep_off(0, &all), None, "nowhere else to go");
            assert_eq!(keep_off(0, &CpuSet::new()), None, "it is elsewhere already");
            let first: CpuSet = all.first().into_iter().collect();
            let rest = all.difference(&first);
            let expected =
                if rest.is_empty() { (None, all.clone()) } else { (Some(all.clone()), rest) };
            assert_eq!((keep_off(0, &first), sched::affinity(0).unwrap()), expected);
        })
        .join()
        .unwrap();
    }
}
