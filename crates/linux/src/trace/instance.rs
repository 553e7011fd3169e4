//! A private place in tracefs: its own buffers, its own events, removed with the value.

use super::{
    decode::Decoder,
    page::{self, Layout, PageEntry},
    symbols::Symbols,
};
use crate::{Error, Result, sys::clock};
use quiet_types::{
    CpuId, CpuSet, Nanos,
    trace::{Trace, TraceEvent, What},
};
use rustix::mount::{FsMountFlags, FsOpenFlags, MountAttrFlags};
use std::{
    collections::BTreeSet,
    fs::{self, File, OpenOptions},
    io::{self, Read, Write},
    os::{
        fd::{AsRawFd, OwnedFd},
        unix::fs::OpenOptionsExt,
    },
    path::{Path, PathBuf},
};

/// `PREFIX` + PID + `-` + that process's start time + `-` + turn.
const PREFIX: &str = "quietcores-";

/// Events of the watched CPUs: group and name. Each costs a wake-up 0.1 to 0.2 us, so what the others tell is left out: a high resolution
/// timer's function ends where the next one or its interrupt's end is told.
const EVENTS: &[(&str, &str)] = &[
    ("sched", "sched_switch"),
    ("irq", "irq_handler_entry"),
    ("irq", "irq_handler_exit"),
    ("irq", "softirq_entry"),
    ("irq", "softirq_exit"),
    ("timer", "hrtimer_expire_entry"),
    ("timer", "timer_expire_entry"),
    ("timer", "timer_expire_exit"),
    ("timer", "tick_stop"),
    ("csd", "csd_function_entry"),
    ("csd", "csd_function_exit"),
    ("workqueue", "workqueue_execute_start"),
    ("workqueue", "workqueue_execute_end"),
    ("nmi", "nmi_handler"),
];
/// Makes the filter of an event for the watched CPUs.
type Filter = fn(&CpuSet) -> String;

/// Events of every CPU, and a filter for those that reach the watched; a task's end tells its name. In an instance of their own: where two
/// want one event, it is made for both, also on a CPU that one of them does not want.
const REACHING: &[(&str, &str, Filter)] = &[
    ("ipi", "ipi_send_cpu", |cpus| each(cpus, |cpu| format!("cpu == {cpu}"))),
    // Linux 6.6.
    ("ipi", "ipi_send_cpumask", |cpus| format!("cpumask & CPUS{{{cpus}}}")),
    ("csd", "csd_queue_cpu", |cpus| each(cpus, |cpu| format!("cpu == {cpu}"))),
    // Whom an idle CPU wakes for itself takes nobody's turn: it runs next.
    ("sched", "sched_waking", |cpus| {
        each(cpus, |cpu| format!("(target_cpu == {cpu} && (CPU != {cpu} || common_pid != 0))"))
    }),
    ("sched", "sched_process_exit", |_| String::new()),
];
/// Buffer of a watched CPU's own events, and of what reaches it, KiB.
const WATCHED: u32 = 8192;
const REACH: u32 = 1024;
/// Events kept in all: 40 bytes each.
const MOST: usize = 3_000_000;
/// Pages that are read from one CPU before the next has its turn.
const TURN: usize = 4096;

/// Watches CPUs until it is stopped. Nobody waits for its buffers, so the kernel wakes no reader.
#[derive(Debug)]
pub struct Tracer {
    /// The mount, where it is our own. Its instances are removed first.
    base: Base,
    instances: Vec<Instance>,
    layout: Layout,
    decoder: Decoder,
    pipes: Vec<(CpuId, File)>,
    page: Vec<u8>,
    trace: Trace,
    /// Senders that were gone when their names were asked for.
    nameless: BTreeSet<u32>,
    /// System management interrupts until the start.
    smis: Vec<(CpuId, u64)>,
    /// The files that switch its events.
    switches: Vec<PathBuf>,
}

/// Where tracefs is.
#[derive(Debug)]
pub(super) struct Base {
    pub(super) path: PathBuf,
    _mount: Option<OwnedFd>,
}

/// One directory below `instances`.
#[derive(Debug)]
pub(super) struct Instance(pub(super) PathBuf);

impl Tracer {
    /// Begins to watch `cpus`. What killed programs left is removed first.
    ///
    /// # Errors
    /// When tracefs is not there or may not be used, or knows no such thing as `sched_switch`.
    pub fn start(cpus: &CpuSet, online: &CpuSet) -> Result<Tracer> {
        let base = Base::find()?;
        clean(&base.path);
        let text = read(&base.path.join("events/header_page"))?;
        let layout = Layout::parse(&text).ok_or_else(|| {
            Error::nonsense("events/header_page of tracefs", None, "an unknown layout of pages")
        })?;
        let symbols = fs::read_to_string("/proc/kallsyms").unwrap_or_default();
        // Without it messages between CPUs have no names of their own.
        let texts = read(&base.path.join("printk_formats")).unwrap_or_default();
        let mut tracer = Tracer {
            base,
            instances: Vec::new(),
            layout,
            decoder: Decoder::new(cpus.clone(), Symbols::parse(&symbols)),
            pipes: Vec::new(),
            page: vec![0; layout.size],
            trace: Trace { cpus: cpus.clone(), ..Trace::default() },
            nameless: BTreeSet::new(),
            smis: cpus.iter().filter_map(|cpu| Some((cpu, smis(cpu)?))).collect(),
            switches: Vec::new(),
        };
        tracer.decoder.learn_texts(&texts);
        tracer.watch(cpus, online)?;
        Ok(tracer)
    }

    fn watch(&mut self, cpus: &CpuSet, online: &CpuSet) -> Result<()> {
        let main = Instance::make(&self.base.path, "")?;
        let reach = Instance::make(&self.base.path, "-reach")?;
        if self.base.silent() {
            for instance in [&main, &reach] {
                write(&instance.0.join("trace_options"), "norecord-cmd")?;
            }
        }
        main.prepare(cpus, online, WATCHED)?;
        let mut events: Vec<(String, String)> =
            EVENTS.iter().map(|(group, name)| ((*group).to_owned(), (*name).to_owned())).collect();
        // The processor's own interrupts: which ones there are depends on the processor.
        for group in ["irq_vectors", "ipi"] {
            let dir = fs::read_dir(main.0.join("events").join(group));
            for entry in dir.into_iter().flatten().flatten() {
                let name = entry.file_name().to_string_lossy().into_owned();
                if name.ends_with("_entry") || name.ends_with("_exit") {
                    events.push((group.to_owned(), name));
                }
            }
        }
        let kernel = |path: &str| fs::read_to_string(path).unwrap_or_default();
        let preempt_rt = preempt_rt(&kernel("/sys/kernel/realtime"), &kernel("/proc/version"));
        // (`EVENTS` stand first, so timers are known by then.)
        for (group, name) in &events {
            if name == "local_timer_entry"
                && timers_tell(clock::high_resolution(), preempt_rt)
                && self.decoder.begin_timers()
            {
                continue;
            }
            self.enable(&main, group, name);
        }
        if self.trace.absent.iter().any(|name| name == "sched/sched_switch") {
            return Err(Error::nonsense(
                "tracefs",
                None,
                "this kernel has no event sched_switch, without which nobody has a name",
            ));
        }
        reach.prepare(online, online, REACH)?;
        for (group, name, filter) in REACHING {
            let file = reach.0.join(format!("events/{group}/{name}/filter"));
            let filter = filter(cpus);
            // Without it there are only more events to read.
            let _ = if filter.is_empty() { Ok(()) } else { write(&file, &filter) };
            self.enable(&reach, group, name);
        }
        self.raises(&reach);
        for cpu in cpus.iter() {
            self.pipes.push((cpu, main.pipe(cpu)?));
        }
        for cpu in online.iter() {
            self.pipes.push((cpu, reach.pipe(cpu)?));
        }
        self.instances.extend([main, reach]);
        for instance in &self.instances {
            write(&instance.0.join("tracing_on"), "1")?;
        }
        Ok(())
    }

    /// Who sends messages between CPUs on Arm, in the kernel's own words (Linux 3.17). Where newer events tell who asks for a look or a
    /// function, only the rest of them is wanted.
    fn raises(&mut self, reach: &Instance) {
        let newer = !self.trace.absent.iter().any(|name| name == "ipi/ipi_send_cpu");
        if newer {
            let rest =
                "reason == \"IRQ work interrupts\" || reason == \"Timer broadcast interrupts\"";
            // Without it there are only more events to read.
            let _ = write(&reach.0.join("events/ipi/ipi_raise/filter"), rest);
        }
        self.enable(reach, "ipi", "ipi_raise");
    }

    /// Switches an event on, or notes that it is absent.
    fn enable(&mut self, instance: &Instance, group: &str, name: &str) {
        let dir = instance.0.join(format!("events/{group}/{name}"));
        let file = dir.join("enable");
        let known = fs::read_to_string(dir.join("format"))
            .is_ok_and(|format| self.decoder.learn(group, name, &format));
        if known && write(&file, "1").is_ok() {
            self.switches.push(file);
        } else {
            self.trace.absent.push(format!("{group}/{name}"));
        }
    }

    /// Switches all its events off or on again: off, the kernel is as it was before the start, but for
    /// the buffers. To compare the two.
    ///
    /// # Errors
    /// When the kernel refuses one.
    pub fn switch(&mut self, on: bool) -> Result<()> {
        let value = if on { "1" } else { "0" };
        self.switches.iter().try_for_each(|file| write(file, value))
    }

    /// Takes what is there. Call it often enough that the buffers do not run over: twenty times a
    /// second.
    ///
    /// # Errors
    /// When a buffer cannot be read.
    pub fn drain(&mut self) -> Result<()> {
        let Tracer { pipes, page, layout, decoder, trace, nameless, .. } = self;
        let mut senders = BTreeSet::new();
        for (cpu, pipe) in pipes {
            for _ in 0..TURN {
                let n = match pipe.read(page) {
                    Ok(n) => n,
                    Err(e) if e.kind() == io::ErrorKind::WouldBlock => 0,
                    Err(e) if e.kind() == io::ErrorKind::Interrupted => continue,
                    Err(e) => return Err(Error::io("read", format!("the trace of CPU {cpu}"), e)),
                };
                if n == 0 {
                    break;
                }
                let mut lost = false;
                for entry in page::entries(*layout, &page[..n]) {
                    match entry {
                        PageEntry::Lost(count) => {
                            trace.lost += count.max(1);
                            lost = true;
                        }
                        PageEntry::Record(at, record) => {
                            if std::mem::take(&mut lost) {
                                let what = What::Lost;
                                keep(trace, TraceEvent { at: Nanos(at), cpu: *cpu, task: 0, what });
                            }
                            decoder.decode(*cpu, at, record, &mut |event| {
                                if matches!(event.what, What::Sent { .. } | What::Raised { .. }) {
                                    senders.insert(event.task);
                                }
                                keep(trace, event);
                            });
                        }
                    }
                }
            }
        }
        // Their switches are not watched. Who is gone by now told its name in the end, seen now or next time.
        let before = std::mem::take(nameless);
        for task in senders {
            if decoder.knows_task(task) || decoder.name_by_end(task) {
                continue;
            }
            if let Ok(name) = fs::read_to_string(format!("/proc/{task}/comm")) {
                decoder.learn_task(task, name.trim_end());
            } else {
                nameless.insert(task);
            }
        }
        for task in before {
            decoder.name_by_end(task);
        }
        decoder.forget_ends();
        Ok(())
    }

    /// Stops watching and hands over what was seen, in the order of time.
    ///
    /// # Errors
    /// When a buffer cannot be read.
    pub fn stop(mut self) -> Result<Trace> {
        for instance in &self.instances {
            let _ = write(&instance.0.join("tracing_on"), "0");
        }
        self.drain()?;
        let mut trace = std::mem::take(&mut self.trace);
        for (cpu, before) in &self.smis {
            if let Some(now) = smis(*cpu) {
                trace.smis.insert(*cpu, now.saturating_sub(*before));
            }
        }
        (trace.names, trace.tasks) = std::mem::take(&mut self.decoder).names();
        trace.events.sort_by_key(|event| event.at);
        Ok(trace)
    }
}

impl Drop for Tracer {
    fn drop(&mut self) {
        // An instance whose files are open cannot be removed.
        self.pipes.clear();
        self.instances.clear();
    }
}

/// Trace instances of this program that are there, of running and of killed ones.
///
/// # Errors
/// When tracefs is not there or may not be used.
pub fn instances() -> Result<Vec<String>> {
    let base = Base::find()?;
    let all = fs::read_dir(base.path.join("instances"))
        .map_err(|e| Error::io("list", "the trace instances", e))?;
    let names = all.flatten().map(|entry| entry.file_name().to_string_lossy().into_owned());
    Ok(names.filter(|name| name.starts_with(PREFIX)).collect())
}

/// Whether the interrupt's end and its timers tell its begin: an event less at each wake-up.
///
/// Without high resolution timers the tick has no record of its own. Under PREEMPT_RT ordinary sleepers' timers run in a softirq
/// (`hrtimer_setup_sleeper`), after an interrupt that has no timer's record in it. On Arm none of it matters: there the timer
/// is a device's interrupt, whose begin is an event of its own.
fn timers_tell(high_resolution: bool, preempt_rt: bool) -> bool {
    high_resolution && !preempt_rt
}

/// Whether the kernel is PREEMPT_RT, by `/sys/kernel/realtime`, or by `/proc/version` where there is no such file.
fn preempt_rt(realtime: &str, version: &str) -> bool {
    let words: Vec<&str> = version.split_whitespace().collect();
    realtime.trim() == "1"
        || words.contains(&"PREEMPT_RT")
        || words.windows(2).any(|pair| pair == ["PREEMPT", "RT"])
}

fn keep(trace: &mut Trace, event: TraceEvent) {
    if trace.events.len() < MOST {
        trace.events.push(event);
    } else {
        trace.dropped += 1;
    }
}

/// One condition or another.
fn each(cpus: &CpuSet, condition: fn(CpuId) -> String) -> String {
    cpus.iter().map(condition).collect::<Vec<_>>().join(" || ")
}

impl Base {
    /// Where tracefs is mounted, else a mount of our own that nobody else sees.
    pub(super) fn find() -> Result<Base> {
        for path in ["/sys/kernel/tracing", "/sys/kernel/debug/tracing"] {
            if Path::new(path).join("instances").is_dir() {
                return Ok(Base { path: PathBuf::from(path), _mount: None });
            }
        }
        let mount = || -> rustix::io::Result<OwnedFd> {
            let fs = rustix::mount::fsopen("tracefs", FsOpenFlags::FSOPEN_CLOEXEC)?;
            rustix::mount::fsconfig_create(&fs)?;
            let (flags, attributes) = (
                FsMountFlags::FSMOUNT_CLOEXEC,
                MountAttrFlags::MOUNT_ATTR_NOSUID
                    | MountAttrFlags::MOUNT_ATTR_NODEV
                    | MountAttrFlags::MOUNT_ATTR_NOEXEC,
            );
            rustix::mount::fsmount(&fs, flags, attributes)
        };
        let mount = mount().map_err(|e| Error::io("reach", "tracefs", e.into()))?;
        let path = PathBuf::from(format!("/proc/self/fd/{}", mount.as_raw_fd()));
        if !path.join("instances").is_dir() {
            let absent = io::Error::new(io::ErrorKind::NotFound, "it has no instances");
            return Err(Error::io("use", "tracefs", absent));
        }
        Ok(Base { path, _mount: Some(mount) })
    }

    /// Whether nobody records events. Then the kernel need not note the name of every task that comes and goes, which costs each
    /// switch and wake-up; else it must: an instance that wants no names takes them from all that record at that time
    /// (`trace_event_enable_cmd_record`).
    fn silent(&self) -> bool {
        let instances = fs::read_dir(self.path.join("instances")).into_iter().flatten().flatten();
        let mut all = instances.map(|entry| entry.path()).chain([self.path.clone()]);
        all.all(|dir| fs::read(dir.join("set_event")).is_ok_and(|on| on.is_empty()))
    }
}

impl Instance {
    pub(super) fn make(base: &Path, kind: &str) -> Result<Instance> {
        let pid = std::process::id();
        let born = start_time(pid).unwrap_or(0);
        for turn in 0..100 {
            let path = base.join(format!("instances/{PREFIX}{pid}-{born}-{turn}{kind}"));
            match fs::create_dir(&path) {
                Ok(()) => return Ok(Instance(path)),
                Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {}
                Err(e) => return Err(Error::io("make", "a trace instance", e)),
            }
        }
        Err(Error::io("make", "a trace instance", io::ErrorKind::AlreadyExists.into()))
    }

    /// Off, on the clock of the readings, for these CPUs only.
    fn prepare(&self, cpus: &CpuSet, online: &CpuSet, kib: u32) -> Result<()> {
        let file = |name: &str| self.0.join(name);
        write(&file("tracing_on"), "0")?;
        write(&file("trace_clock"), "mono")?;
        write(&file("tracing_cpumask"), &mask(cpus))?;
        // Nobody sleeps on it, so no size has to be waited for; what is not watched needs none.
        for cpu in online.iter() {
            let kib = if cpus.contains(cpu) { kib } else { 4 };
            let size = file(&format!("per_cpu/cpu{cpu}/buffer_size_kb"));
            let _ = write(&size, &kib.to_string());
        }
        Ok(())
    }

    fn pipe(&self, cpu: CpuId) -> Result<File> {
        let path = self.0.join(format!("per_cpu/cpu{cpu}/trace_pipe_raw"));
        OpenOptions::new()
            .read(true)
            .custom_flags(libc::O_NONBLOCK | libc::O_NOFOLLOW)
            .open(&path)
            .map_err(|e| Error::io("open", format!("the trace of CPU {cpu}"), e))
    }
}

impl Drop for Instance {
    fn drop(&mut self) {
        let _ = fs::remove_dir(&self.0);
    }
}

/// Removes the instances of programs that are gone.
pub(super) fn clean(base: &Path) {
    for name in left(base) {
        let _ = fs::remove_dir(base.join("instances").join(name));
    }
}

/// Names of instances of programs that are gone.
fn left(base: &Path) -> Vec<String> {
    let mut found = Vec::new();
    for entry in fs::read_dir(base.join("instances")).into_iter().flatten().flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        let Some(rest) = name.strip_prefix(PREFIX) else { continue };
        let mut numbers = rest.split('-').map(|part| part.parse::<u64>().ok());
        let (Some(Some(pid)), Some(Some(born))) = (numbers.next(), numbers.next()) else {
            continue;
        };
        if u32::try_from(pid).ok().and_then(start_time) != Some(born) {
            found.push(name);
        }
    }
    found.sort_unstable();
    found
}

/// Trace instances that killed programs of ours have left on, by name.
///
/// # Errors
/// When tracefs is not there or may not be used.
pub fn leftovers() -> Result<Vec<String>> {
    Ok(left(&Base::find()?.path))
}

/// Removes what [`leftovers`] names: each name, and whether it is gone.
///
/// # Errors
/// When tracefs is not there or may not be used.
pub fn sweep() -> Result<Vec<(String, bool)>> {
    let base = Base::find()?;
    let gone = |name: String| {
        let done = fs::remove_dir(base.path.join("instances").join(&name));
        (name, done.is_ok())
    };
    Ok(left(&base.path).into_iter().map(gone).collect())
}

/// Start time of a process in clock ticks since boot: field 22 of `/proc/PID/stat`. `None` for one that has ended, though nobody has
/// asked how.
fn start_time(pid: u32) -> Option<u64> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let mut fields = stat.rsplit_once(')')?.1.split_whitespace();
    let lives = !["Z", "X"].contains(&fields.next()?);
    fields.nth(18).filter(|_| lives)?.parse().ok()
}

/// System management interrupts that a CPU counted since it was reset.
///
/// # Source
/// `MSR_SMI_COUNT` (0x34), Intel SDM volume 4; msr(4): the offset in the file is the register.
fn smis(cpu: CpuId) -> Option<u64> {
    let file = File::open(format!("/dev/cpu/{cpu}/msr")).ok()?;
    let mut count = [0; 8];
    std::os::unix::fs::FileExt::read_exact_at(&file, &mut count, 0x34).ok()?;
    Some(u64::from_ne_bytes(count) & 0xffff_ffff)
}

/// The kernel's hexadecimal mask, 32 bits a group.
fn mask(cpus: &CpuSet) -> String {
    let last = cpus.iter().last().map_or(0, |cpu| cpu.0 as usize);
    let mut groups = vec![0u32; last / 32 + 1];
    for cpu in cpus.iter() {
        groups[cpu.0 as usize / 32] |= 1 << (cpu.0 % 32);
    }
    let groups: Vec<String> = groups.iter().rev().map(|group| format!("{group:08x}")).collect();
    groups.join(",")
}

/// A file that the kernel gives out in one read only: what does not fit the first is never told.
pub(super) fn read(path: &Path) -> Result<String> {
    let whole = || -> io::Result<Vec<u8>> {
        let mut bytes = vec![0; 4096];
        let n = File::open(path)?.read(&mut bytes)?;
        bytes.truncate(n);
        Ok(bytes)
    };
    whole()
        .map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
        .map_err(|e| Error::io("read", path.display().to_string(), e))
}

pub(super) fn write(path: &Path, value: &str) -> Result<()> {
    let failed = |e| Error::io("write", path.display().to_string(), e);
    let options = OpenOptions::new().write(true).custom_flags(libc::O_NOFOLLOW).open(path);
    options.map_err(failed)?.write_all(value.as_bytes()).map_err(failed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_real_time_kernel_records_where_its_timer_interrupts_begin() {
        let versions = [
            ("1\n", "Linux version 6.1.0 #1 SMP PREEMPT Debian", true),
            ("", "Linux version 6.12.1 (gcc) #1 SMP PREEMPT_RT Debian 6.12.1-1", true),
            ("0\n", "Linux version 4.19.0-rt #1 SMP PREEMPT RT Debian", true),
            ("", "Linux version 6.12.1 (gcc) #1 SMP PREEMPT_DYNAMIC Debian", false),
            ("0\n", "Linux version 6.1.0-preempt_rt-not #1 SMP", false),
        ];
        for (realtime, version, is) in versions {
            let rt = preempt_rt(realtime, version);
            assert_eq!(rt, is, "{version}");
            assert_eq!(timers_tell(true, rt), !is, "{version}");
            assert!(!timers_tell(false, rt), "ticks alone are in no record");
        }
    }

    #[test]
    fn masks_and_filters_name_the_cpus() {
        assert_eq!(mask(&"1".parse().unwrap()), "00000002");
        assert_eq!(mask(&"0,33".parse().unwrap()), "00000002,00000001");
        let filters = REACHING.iter().map(|(_, _, filter)| filter(&"1,3".parse().unwrap()));
        assert_eq!(
            filters.collect::<Vec<_>>(),
            [
                "cpu == 1 || cpu == 3",
                "cpumask & CPUS{1,3}",
                "cpu == 1 || cpu == 3",
                "(target_cpu == 1 && (CPU != 1 || common_pid != 0)) || \
                 (target_cpu == 3 && (CPU != 3 || common_pid != 0))",
                ""
            ]
        );
    }
}
