//! Counters, read. No file is read here whose answer costs a shielded CPU an interrupt.

use crate::clean::clean;
use quiet_linux::{
    Root, parse,
    parse::{CpuTimes, ThreadTimes},
};
use quiet_types::{Counters, CpuId, CpuSet, GroupPath, Nanos, machine::KernelThread};
use std::{
    collections::{BTreeMap, HashMap},
    time::Instant,
};

/// Most threads that are looked at.
const MOST_THREADS: usize = 32_768;
/// Most thermal zones.
const MOST_ZONES: u32 = 64;
/// Longest name of an interrupt or a thread.
const LONGEST_NAME: usize = 48;

/// What the kernel had counted of the CPUs at one time.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct CpuReading {
    /// When, on the clock that only rises.
    pub at: Nanos,
    /// CPUs that are there, running or not.
    pub present: CpuSet,
    /// CPUs that run.
    pub online: CpuSet,
    /// Interrupts and softirqs.
    pub counters: Counters,
    /// Where their time went.
    pub times: BTreeMap<CpuId, CpuTimes>,
    /// Who is served by the numbered interrupts.
    pub names: BTreeMap<u32, String>,
    /// What could not be read, each with the reason.
    pub unread: Vec<String>,
}

/// One thread as it was seen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ThreadSeen {
    /// Its number.
    pub tid: u32,
    /// Its process.
    pub pid: u32,
    /// Its name, fit for any face.
    pub name: String,
    /// `Some` for threads of the kernel.
    pub kernel: Option<KernelThread>,
    /// Where it ran last.
    pub cpu: CpuId,
    /// Time it ran since the look before.
    pub ran: Nanos,
    /// Turns since then.
    pub turns: u64,
    /// The group that governs its CPUs; asked only of programs' threads on shielded CPUs.
    pub group: Option<GroupPath>,
}

/// Who ran between two looks at all threads.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ThreadReading {
    /// When the look began.
    pub at: Nanos,
    /// Since the look before; 0 where there was none.
    pub since: Nanos,
    /// How long it took.
    pub took: Nanos,
    /// How many were seen.
    pub threads: u32,
    /// Whether there were more than are looked at.
    pub cut: bool,
    /// Those that ran.
    pub ran: Vec<ThreadSeen>,
}

/// One thread, as remembered.
#[derive(Clone, Copy, Debug)]
struct Known {
    times: ThreadTimes,
    /// Start time; not asked before it ran.
    start: Option<u64>,
    /// The look in which it was seen last.
    look: u64,
}

/// Reads what is counted, and remembers of the threads what the next look needs.
#[derive(Debug)]
pub struct Gatherer {
    root: Root,
    began: Instant,
    known: HashMap<u32, Known>,
    looks: u64,
    last_look: Nanos,
    /// Frequency files by CPU, with the CPUs that share the clock.
    clocks: Option<Vec<(CpuId, CpuSet)>>,
}

impl Gatherer {
    /// Of this machine, or of a captured one that stands still.
    pub fn new(root: Root) -> Gatherer {
        Gatherer {
            root,
            began: Instant::now(),
            known: HashMap::new(),
            looks: 0,
            last_look: Nanos(0),
            clocks: None,
        }
    }

    fn now(&self) -> Nanos {
        Nanos(u64::try_from(self.began.elapsed().as_nanos()).unwrap_or(u64::MAX))
    }

    /// What is counted of the CPUs.
    pub fn cpus(&self) -> CpuReading {
        let mut reading = CpuReading { at: self.now(), ..CpuReading::default() };
        let mut unread = Vec::new();
        let mut read = |path: &str| {
            let text = self.root.read(path);
            text.unwrap_or_else(|error| {
                unread.push(error.to_string());
                String::new()
            })
        };
        let stat = read("/proc/stat");
        let interrupts = read("/proc/interrupts");
        let softirqs = read("/proc/softirqs");
        let list = |text: String| text.trim().parse::<CpuSet>().unwrap_or_default();
        reading.online = list(read("/sys/devices/system/cpu/online"));
        reading.present = list(read("/sys/devices/system/cpu/present")).union(&reading.online);
        reading.counters = parse::counters(&stat, &interrupts, &softirqs, &reading.online);
        reading.times = parse::cpu_times(&stat).into_iter().collect();
        let (table, _) = parse::interrupts(&interrupts);
        reading.names = table
            .irqs
            .into_iter()
            .filter(|row| !row.actions.is_empty())
            .map(|row| (row.number, clean(&row.actions.join(", "), LONGEST_NAME)))
            .collect();
        reading.unread = unread;
        reading
    }

    /// Looks through all threads; what they ran is counted from the look before. Of those on `shielded` CPUs more is asked.
    pub fn threads(&mut self, shielded: &CpuSet) -> ThreadReading {
        let at = self.now();
        let first = self.looks == 0;
        self.looks += 1;
        let since = if first { Nanos(0) } else { Nanos(at.0.saturating_sub(self.last_look.0)) };
        let mut reading = ThreadReading { at, since, ..ThreadReading::default() };
        self.last_look = at;
        'all: for pid in self.numbered("/proc") {
            for tid in self.numbered(&format!("/proc/{pid}/task")) {
                if reading.threads as usize >= MOST_THREADS {
                    reading.cut = true;
                    break 'all;
                }
                let Some(ran) = self.thread(pid, tid, first, shielded) else { continue };
                reading.threads += 1;
                reading.ran.extend(ran);
            }
        }
        let look = self.looks;
        self.known.retain(|_, known| known.look == look);
        reading.took = Nanos(self.now().0.saturating_sub(at.0));
        reading
    }

    /// `None` where it is gone; `Some(None)` where it did not run.
    fn thread(
        &mut self,
        pid: u32,
        tid: u32,
        first: bool,
        shielded: &CpuSet,
    ) -> Option<Option<ThreadSeen>> {
        let dir = format!("/proc/{pid}/task/{tid}");
        let times = parse::schedstat(&self.root.read(&format!("{dir}/schedstat")).ok()?).ok()?;
        let before = self.known.get(&tid).copied();
        let start = before.and_then(|known| known.start);
        let known = Known { times, start, look: self.looks };
        self.known.insert(tid, known);
        let stood = before.is_some_and(|before| before.times == times);
        if first || stood || times == ThreadTimes::default() {
            return Some(None);
        }
        let Ok(stat) = parse::pid_stat(&self.root.read(&format!("{dir}/stat")).ok()?) else {
            return Some(None);
        };
        self.known.insert(tid, Known { start: Some(stat.start), ..known });
        // A number that was given anew counts from nothing.
        let is_same = |before: &Known| {
            before.start.is_none_or(|start| start == stat.start)
                && before.times.ran <= times.ran
                && before.times.turns <= times.turns
        };
        let before = before.filter(is_same).map(|known| known.times).unwrap_or_default();
        let ask_group = stat.kernel.is_none() && shielded.contains(stat.cpu);
        let group = ask_group
            .then(|| self.root.read(&format!("{dir}/cgroup")).ok())
            .flatten()
            .and_then(|text| parse::task_cgroup(&text));
        Some(Some(ThreadSeen {
            tid,
            pid,
            name: clean(&stat.comm, LONGEST_NAME),
            kernel: stat.kernel,
            cpu: stat.cpu,
            ran: Nanos(times.ran.0 - before.ran.0),
            turns: times.turns - before.turns,
            group,
        }))
    }

    fn numbered(&self, dir: &str) -> Vec<u32> {
        let names = self.root.list(dir).unwrap_or_default();
        names.iter().filter_map(|name| name.parse().ok()).collect()
    }

    /// Topology: core, package and the CPUs of the last cache, where the kernel tells.
    pub fn place(&self, cpu: CpuId) -> (Option<u32>, Option<u32>, CpuSet) {
        let dir = format!("/sys/devices/system/cpu/cpu{cpu}");
        let number = |name: &str| {
            let text = self.root.read(&format!("{dir}/topology/{name}")).ok()?;
            text.trim().parse::<u32>().ok()
        };
        let set = |path: String| self.root.read(&path).ok()?.trim().parse::<CpuSet>().ok();
        let cache = |level: usize| set(format!("{dir}/cache/index{level}/shared_cpu_list"));
        let cluster = (0..8).rev().find_map(cache).unwrap_or_else(|| [cpu].into_iter().collect());
        (number("core_id"), number("physical_package_id"), cluster)
    }

    /// Clocks, in kHz. A CPU is not asked where it, or one that shares its clock, is shielded: some kernels ask the CPU itself.
    ///
    /// # Source
    /// `arch_freq_get_on_cpu` in arch/x86/kernel/cpu/aperfmperf.c, which sends an interrupt before 5.18.
    pub fn clocks(&mut self, online: &CpuSet, shielded: &CpuSet) -> BTreeMap<CpuId, u64> {
        let dir = |cpu: CpuId| format!("/sys/devices/system/cpu/cpu{cpu}/cpufreq");
        let root = &self.root;
        let known = self.clocks.get_or_insert_with(|| {
            let shared = |cpu: CpuId| {
                let text = root.read(&format!("{}/related_cpus", dir(cpu))).ok()?;
                // Blanks stand between its numbers.
                let text = text.split_whitespace().collect::<Vec<_>>().join(",");
                Some((cpu, text.parse().ok()?))
            };
            online.iter().filter_map(shared).collect()
        });
        let khz = |(cpu, shared): &(CpuId, CpuSet)| {
            if shielded.contains(*cpu) || shared.intersects(shielded) || !online.contains(*cpu) {
                return None;
            }
            let text = root.read(&format!("{}/scaling_cur_freq", dir(*cpu))).ok()?;
            Some((*cpu, text.trim().parse().ok()?))
        };
        known.iter().filter_map(khz).collect()
    }

    /// The warmest place, thousandths of a degree Celsius. With a shield up, sensors within the processor that are read by an
    /// interrupt to one of its CPUs are left out.
    ///
    /// # Source
    /// `rdmsr_on_cpu` in drivers/thermal/intel/x86_pkg_temp_thermal.c
    pub fn temperature(&self, is_shielded: bool) -> Option<i64> {
        let zone = |number: u32| {
            let dir = format!("/sys/class/thermal/thermal_zone{number}");
            let kind = self.root.read(&format!("{dir}/type")).ok()?;
            let asks = matches!(kind.trim(), "x86_pkg_temp" | "TCPU" | "TCPU_PCI" | "B0D4");
            if is_shielded && asks {
                return Some(None);
            }
            let text = self.root.read(&format!("{dir}/temp")).ok();
            let degrees = text.and_then(|text| text.trim().parse::<i64>().ok());
            Some(degrees.filter(|millis| (-50_000..150_000).contains(millis)))
        };
        (0..MOST_ZONES).map_while(zone).flatten().max()
    }
}
