//! The machine that runs the tests, for those that change it: one at a time, captured before and
//! compared after.

// Each test program uses a part of it.
#![allow(dead_code)]

pub mod planted;

use quiet_testing::{Why, is_root, skip};
use std::{
    collections::{BTreeMap, BTreeSet},
    fs::{self, File},
    path::{Path, PathBuf},
    process::{Command, Output, Stdio},
    sync::{Mutex, MutexGuard},
    time::{Duration, Instant},
};

pub const PROGRAM: &str = env!("CARGO_BIN_EXE_quietcores");

/// Longer than anything here takes on a machine that does much else, be it emulated.
pub const PATIENCE: Duration = Duration::from_secs(240);

/// As long as a look at a shield may take, which in an emulator is a few seconds: who is to be seen with one has it for so long.
pub fn a_look() -> &'static str {
    if quiet_testing::in_lab() { "10s" } else { "2s" }
}

/// Waits until `test` holds.
pub fn soon(what: &str, test: impl Fn() -> bool) {
    let until = Instant::now() + PATIENCE;
    while !test() {
        assert!(Instant::now() < until, "not within {PATIENCE:?}: {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// One test at a time changes the machine, among all test programs of this project.
pub struct Machine {
    _thread: MutexGuard<'static, ()>,
    _process: File,
    state: tempfile::TempDir,
    /// The highest CPU that this process may use.
    pub cpu: u32,
}

impl Machine {
    /// `None`, and the test is skipped, where it cannot be made.
    pub fn take() -> Option<Machine> {
        static ONE: Mutex<()> = Mutex::new(());
        let thread = ONE.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        if !is_root() {
            return skip(Why::Root);
        }
        // First its turn: before it, somebody else's test may have taken CPUs away.
        let file = quiet_testing::machine_alone();
        let own = quiet_testing::own_cpus();
        let Some(cpu) = own.iter().last().filter(|_| own.len() > 1) else {
            return skip(Why::OneCpu);
        };
        let state = quiet_testing::public_folder();
        Some(Machine { _thread: thread, _process: file, state, cpu: cpu.0 })
    }

    /// A directory of this test's own, which other users may enter.
    pub fn dir(&self) -> &Path {
        self.state.path()
    }

    pub fn state(&self) -> PathBuf {
        self.state.path().join("state")
    }

    pub fn apply(&self) -> Command {
        let mut command = Command::new(PROGRAM);
        command.args(["apply", "--yes", "--cpus", &self.cpu.to_string(), "--state"]);
        command.arg(self.state()).stdin(Stdio::null());
        command
    }

    pub fn run(&self, verb: &str) -> Output {
        let mut command = Command::new(PROGRAM);
        command.arg(verb).arg("--state").arg(self.state()).output().unwrap()
    }

    /// What a verb says as JSON.
    pub fn json(&self, verb: &str) -> serde_json::Value {
        let mut command = Command::new(PROGRAM);
        let said = command.args([verb, "--json", "--state"]).arg(self.state()).output().unwrap();
        serde_json::from_slice(&said.stdout).unwrap_or_default()
    }

    /// Reverts, and fails the test unless everything is as it was.
    pub fn revert_to(&self, before: &Capture, when: &str) {
        let reverted = self.run("revert");
        let said = text(&reverted);
        assert_eq!(reverted.status.code(), Some(0), "{when}: {said}");
        assert_eq!(before.differences(&Capture::take()), Vec::<String>::new(), "{when}: {said}");
    }
}

impl Drop for Machine {
    /// A failed test must not leave a shield behind.
    fn drop(&mut self) {
        if self.state().join("journal.jsonl").exists() {
            eprintln!("reverting after a failure: {}", text(&self.run("revert")));
        }
    }
}

/// All that a shield may change.
pub struct Capture {
    pub files: BTreeMap<String, String>,
    /// By TID and start time: cpuset, CPUs, scheduling.
    threads: BTreeMap<(u32, String), (String, String)>,
    /// Whether a daemon shares the interrupts out: it goes on with that, and is kept off a shield by its own settings.
    balanced: bool,
}

impl Capture {
    pub fn take() -> Capture {
        let mut files = BTreeMap::new();
        let mut keep = |path: String| {
            if let Ok(text) = fs::read_to_string(&path) {
                files.insert(path, text);
            }
        };
        for irq in names("/proc/irq") {
            keep(format!("/proc/irq/{irq}/smp_affinity_list"));
        }
        keep("/proc/irq/default_smp_affinity".into());
        for name in ["cpumask", "cpumask_requested", "cpumask_isolated", "writeback/cpumask"] {
            keep(format!("/sys/devices/virtual/workqueue/{name}"));
        }
        for name in [
            "kernel/sched_rt_runtime_us",
            "kernel/sched_rt_period_us",
            "kernel/watchdog_cpumask",
            "kernel/nmi_watchdog",
            "kernel/numa_balancing",
            "kernel/timer_migration",
            "vm/stat_interval",
        ] {
            keep(format!("/proc/sys/{name}"));
        }
        for name in ["ksm/run", "transparent_hugepage/enabled", "transparent_hugepage/defrag"] {
            keep(format!("/sys/kernel/mm/{name}"));
        }
        let possible = read("/sys/devices/system/cpu/possible");
        let possible: quiet_types::CpuSet = possible.parse().unwrap();
        for cpu in possible.iter() {
            let dir = format!("/sys/devices/system/cpu/cpu{cpu}");
            for name in [
                "online",
                "power/pm_qos_resume_latency_us",
                "cpufreq/scaling_governor",
                "cpufreq/scaling_min_freq",
                "cpufreq/energy_performance_preference",
            ] {
                keep(format!("{dir}/{name}"));
            }
        }
        for name in ["/etc/default/irqbalance", "/etc/sysconfig/irqbalance"] {
            keep(name.into());
        }
        for cpu in possible.iter() {
            for server in ["fair_server", "ext_server"] {
                keep(format!("/sys/kernel/debug/sched/{server}/cpu{cpu}/runtime"));
            }
        }
        let mounts = read("/proc/self/mountinfo");
        for mount in mounts.lines().filter(|line| line.contains(" - cgroup")) {
            let at = mount.split(' ').nth(4).unwrap();
            cpusets(Path::new(at), &mut keep);
        }
        Capture { files, threads: threads(), balanced: runs("irqbalance") }
    }

    /// What is not as it was; threads, and others' groups, that came or went meanwhile are passed over.
    pub fn differences(&self, after: &Capture) -> Vec<String> {
        let mut found = Vec::new();
        let folders = [self, after].map(|one| {
            let all = one.files.keys().filter_map(|path| Path::new(path).parent());
            all.collect::<BTreeSet<&Path>>()
        });
        for path in self.files.keys().chain(after.files.keys()) {
            let (old, new) = (self.files.get(path), after.files.get(path));
            let folder = Path::new(path).parent().unwrap_or(Path::new("/"));
            let is_others = path.starts_with("/sys/fs/cgroup/") && !path.contains("quietcores");
            let came_or_went = is_others && folders.iter().any(|all| !all.contains(folder));
            let is_shared_out = (self.balanced || after.balanced)
                && path.starts_with("/proc/irq/")
                && path.ends_with("/smp_affinity_list");
            if old != new && !came_or_went && !is_shared_out {
                found.push(format!("{path}: {old:?} -> {new:?}"));
            }
        }
        for (id, (name, old)) in &self.threads {
            // Of one that was this test's and is nobody's any more, or the other way round, how nice it is was not looked at twice.
            let nice = |value: &str| value.rfind(" nice").unwrap_or(value.len());
            if let Some((_, new)) = after.threads.get(id)
                && old != new
                && (old.contains(" nice") == new.contains(" nice")
                    || old[..nice(old)] != new[..nice(new)])
            {
                found.push(format!("{name} {id:?}: {old} -> {new}"));
            }
        }
        found.sort();
        found.dedup();
        found
    }
}

/// Every file of every cpuset below `dir`.
fn cpusets(dir: &Path, keep: &mut impl FnMut(String)) {
    let Ok(entries) = fs::read_dir(dir) else { return };
    for entry in entries.flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            cpusets(&entry.path(), keep);
        } else if name.starts_with("cpuset.") && !name.contains("pressure")
            || ["cgroup.subtree_control", "cpu.rt_runtime_us"].contains(&name.as_str())
        {
            keep(entry.path().display().to_string());
        }
    }
}

/// Whether a program of this name runs.
fn runs(name: &str) -> bool {
    let mut pids = names("/proc").into_iter().filter(|name| name.parse::<u32>().is_ok());
    pids.any(|pid| read(&format!("/proc/{pid}/comm")).trim() == name)
}

/// Who began so lately, in hundredths of a second, is still taking its place: a neighbour's probe, another suite's player.
const SETTLES: u64 = 1_000;

fn threads() -> BTreeMap<(u32, String), (String, String)> {
    let mut found = BTreeMap::new();
    let uptime = read("/proc/uptime");
    let uptime = uptime.split(' ').next().and_then(|seconds| seconds.parse::<f64>().ok());
    let settled = (uptime.unwrap() * 100.0) as u64;
    for pid in names("/proc").iter().filter(|name| name.parse::<u32>().is_ok()) {
        let anybodys = !is_own(pid);
        for tid in names(&format!("/proc/{pid}/task")) {
            let Some((id, (name, mut value))) = thread(pid, &tid) else { continue };
            if anybodys && id.1.parse::<u64>().unwrap() + SETTLES > settled {
                continue;
            }
            // Any neighbour may make itself nicer meanwhile: what is the kernel's or this test's own does not.
            if anybodys {
                value.truncate(value.rfind(" nice").unwrap_or(value.len()));
            }
            found.insert(id, (name, value));
        }
    }
    found
}

pub fn thread(pid: &str, tid: &str) -> Option<((u32, String), (String, String))> {
    let file = |name: &str| fs::read_to_string(format!("/proc/{pid}/task/{tid}/{name}")).ok();
    let stat = file("stat")?;
    let (open, close) = (stat.find('(')?, stat.rfind(')')?);
    let name = stat[open + 1..close].to_owned();
    let fields: Vec<&str> = stat[close + 1..].split_ascii_whitespace().collect();
    // Workers of the unbound workqueues come, go and are given CPUs by the kernel; threads of
    // interrupts follow theirs when it next fires.
    if name.starts_with("kworker/u") || name.starts_with("irq/") || fields[0] == "Z" {
        return None;
    }
    let (start, nice, priority, policy) = (fields[19], fields[16], fields[37], fields[38]);
    let status = file("status")?;
    // A rescue worker that leaves its pool while `workqueue_apply_unbound_cpumask` (kernel/workqueue.c) is at work has the old CPUs
    // until it next works, which it does where the pool is.
    let cpus = match name.starts_with("kworker/R-") {
        true => "CPUs of its pool",
        false => status.lines().find(|line| line.starts_with("Cpus_allowed_list"))?,
    };
    let groups = file("cgroup")?;
    let set = groups
        .lines()
        .find(|line| line.contains(":cpuset") || line.contains("cpuset:"))
        .unwrap_or_default();
    let value = format!("{set} {cpus} policy {policy} priority {priority} nice {nice}");
    Some(((tid.parse().ok()?, start.to_owned()), (name, value)))
}

/// Whether a process is the kernel's, this test's, or a descendant of it.
fn is_own(pid: &str) -> bool {
    let own = std::process::id().to_string();
    let mut at = pid.to_owned();
    while at != own && at != "2" {
        let stat = read(&format!("/proc/{at}/stat"));
        let parent =
            stat.rsplit_once(')').and_then(|(_, rest)| rest.split_ascii_whitespace().nth(1));
        match parent {
            Some(parent) if parent != "0" => at = parent.to_owned(),
            _ => return false,
        }
    }
    true
}

/// One CPU as `/proc/irq/default_smp_affinity` has it, on a machine of however many.
pub fn mask(cpu: u32) -> String {
    quiet_types::CpuSet::from_iter([quiet_types::CpuId(cpu)]).to_mask()
}

/// Whether that file is this one CPU's.
pub fn is_mask(text: &str, cpu: u32) -> bool {
    let wanted = quiet_types::CpuSet::from_iter([quiet_types::CpuId(cpu)]);
    quiet_types::CpuSet::from_mask(text.trim()).is_ok_and(|found| found == wanted)
}

fn names(dir: &str) -> Vec<String> {
    let entries = fs::read_dir(dir).into_iter().flatten().flatten();
    entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect()
}

pub fn read(path: &str) -> String {
    fs::read_to_string(path).unwrap_or_default()
}

pub fn text(output: &Output) -> String {
    let both = [&output.stdout[..], &output.stderr[..]].concat();
    String::from_utf8_lossy(&both).into_owned()
}
