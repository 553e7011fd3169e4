//! What several checks derive from a machine and a chain.

use super::verdict::{NO_QUIET, Verdict, moot};
use crate::{links, lookup::Lookup, names::LONGEST, owner};
use quiet_types::{
    Chain, CpuSet, Machine,
    chain::{Choice, IrqSource, Link, Owner, Target},
    machine::{Device, Irq, Policy, Preemption, Task},
    printable,
    surroundings::Surroundings,
};
use std::collections::{BTreeMap, HashSet};

/// Programs that carry sound, by the name of their first thread.
const AUDIO_PROGRAMS: [&str; 35] = [
    "a2jmidid",
    "ardour",
    "aplay",
    "arecord",
    "bitwig-studio",
    "brutefir",
    "camilladsp",
    "carla",
    "deadbeef",
    "diretta",
    "ecasound",
    "guitarix",
    "hqplayer",
    "hqplayerd",
    "jackd",
    "jackdbus",
    "jalv",
    "jconvolver",
    "mixxx",
    "mod-host",
    "mpd",
    "networkaudiod",
    "pipewire",
    "pipewire-pulse",
    "pulseaudio",
    "pw-data-loop",
    "qtractor",
    "rakarrack",
    "reaper",
    "roonbridge",
    "shairport-sync",
    "squeezelite",
    "sushi",
    "upmpdcli",
    "wireplumber",
];

/// A machine and a chain, with what follows from both.
pub(super) struct Facts<'a> {
    pub machine: &'a Machine,
    pub chain: Option<&'a Chain>,
    /// CPUs that the chain has, or is to have, to itself. Empty where nothing says so.
    pub quiet: CpuSet,
    /// What says so.
    pub quiet_by: String,
    /// CPUs that something sets apart on the machine as it is.
    pub apart: CpuSet,
    /// What stands around; an empty one where nobody looked.
    pub around: &'a Surroundings,
    pub on: Lookup<'a>,
    own: Vec<&'a Irq>,
    audio: Vec<&'a Task>,
    foreign: Vec<&'a Task>,
}

static NOWHERE: Surroundings = Surroundings {
    caller: None,
    mounts: Vec::new(),
    kernel_log: None,
    dma_latency_us: None,
    dma_latency_writable: None,
    smi_count: None,
    usb: Vec::new(),
    processes: Vec::new(),
    systemd: None,
    pipewire: None,
    timers: Vec::new(),
    uptime_s: None,
    files: BTreeMap::new(),
};

impl<'a> Facts<'a> {
    pub fn new(machine: &'a Machine, chain: Option<&'a Chain>) -> Facts<'a> {
        let (quiet, quiet_by) = quiet(machine, chain);
        let around = machine.surroundings.as_ref().unwrap_or(&NOWHERE);
        let apart = apart(machine).0;
        let on = Lookup::new(machine);
        let (own, audio, foreign) = (Vec::new(), Vec::new(), Vec::new());
        let mut facts =
            Facts { machine, chain, quiet, quiet_by, apart, around, on, own, audio, foreign };
        facts.own = facts.find_own_irqs();
        facts.audio = facts.find_audio_tasks();
        facts.foreign = facts.find_foreign_tasks();
        if facts.foreign.is_empty() && !machine.tasks.is_empty() {
            // Affinity of every thread does it too, as long as nobody widens his own.
            facts.apart = facts.apart.union(&facts.quiet);
        }
        facts
    }

    /// The CPUs to judge: the quiet ones, or all while there are none.
    pub fn focus(&self) -> CpuSet {
        if self.quiet.is_empty() { self.machine.online.clone() } else { self.quiet.clone() }
    }

    /// Why a check of who else may run on the chain's CPUs does not apply: nothing keeps anybody
    /// off them yet, which `shield.none` says once for all.
    pub fn not_apart(&self) -> Option<Verdict> {
        match (self.quiet.is_empty(), self.quiet.intersects(&self.apart)) {
            (true, _) => Some(moot(NO_QUIET)),
            (false, false) => {
                Some(moot("the chain's CPUs are not set apart yet, so everybody may run there"))
            }
            (false, true) => None,
        }
    }

    /// CPUs left to everybody else.
    pub fn housekeeping(&self) -> CpuSet {
        self.machine.online.difference(&self.quiet)
    }

    pub fn setting(&self, path: &str) -> Option<&'a str> {
        let found = self.machine.settings.get(path).or_else(|| self.around.files.get(path));
        found.map(|text| text.trim())
    }

    /// Every setting, by path below `/`.
    pub fn settings(&self) -> impl Iterator<Item = (&'a String, &'a String)> {
        self.machine.settings.iter().chain(&self.around.files)
    }

    pub fn number(&self, path: &str) -> Option<i64> {
        self.setting(path)?.parse().ok()
    }

    pub fn parameter(&self, name: &str) -> Option<&'a str> {
        self.machine.boot_parameter(name)
    }

    /// CPUs of a boot parameter whose value is a CPU list, perhaps after flags (`isolcpus`).
    pub fn parameter_cpus(&self, name: &str) -> Option<CpuSet> {
        cpus_after_flags(self.parameter(name)?)
    }

    /// A kernel option, without `CONFIG_`.
    pub fn config(&self, name: &str) -> Option<&'a str> {
        self.machine.kernel.config.as_ref()?.get(name).map(String::as_str)
    }

    /// `(6, 18)` of `6.18.44`.
    pub fn release(&self) -> Option<(u32, u32)> {
        let mut parts = self.machine.kernel.release.split(|c: char| !c.is_ascii_digit());
        Some((parts.next()?.parse().ok()?, parts.next()?.parse().ok()?))
    }

    /// Whether this kernel is at least that new; false where its release makes no sense.
    pub fn since(&self, major: u32, minor: u32) -> bool {
        self.release().is_some_and(|release| release >= (major, minor))
    }

    pub fn is_rt(&self) -> bool {
        self.machine.kernel.preemption == Preemption::Rt
    }

    /// Whether device interrupts are handled in threads.
    pub fn threads_irqs(&self) -> bool {
        self.is_rt() || self.parameter("threadirqs").is_some()
    }

    /// Interrupts behind a card.
    pub fn irqs_of(&self, device: &Device) -> Vec<&'a Irq> {
        self.on.irqs(device.irqs.iter().copied())
    }

    /// Interrupts that belong to the chain: those of its links, else of every sound card.
    pub fn own_irqs(&self) -> &[&'a Irq] {
        &self.own
    }

    /// Their numbers.
    pub fn own_numbers(&self) -> HashSet<u32> {
        self.own.iter().map(|irq| irq.number).collect()
    }

    /// The kernel's threads that handle them.
    pub fn own_handlers(&self) -> Vec<&'a Task> {
        self.own.iter().flat_map(|irq| self.irq_threads(irq.number)).collect()
    }

    fn find_own_irqs(&self) -> Vec<&'a Irq> {
        let mut own: Vec<&Irq> = match self.chain {
            Some(chain) if chain.links.iter().any(|l| matches!(l.target, Target::Irq(_))) => {
                chain.links.iter().flat_map(|link| self.link_irqs(link)).collect()
            }
            _ => self.machine.sound_cards.iter().flat_map(|card| self.irqs_of(card)).collect(),
        };
        own.sort_by_key(|irq| irq.number);
        own.dedup_by_key(|irq| irq.number);
        own
    }

    /// Sound cards of the chain: those that it names, else all.
    pub fn cards(&self) -> Vec<&'a Device> {
        let named: Vec<&Device> = self
            .machine
            .sound_cards
            .iter()
            .filter(|card| {
                self.links().iter().any(|link| match &link.target {
                    Target::Irq(IrqSource::Card(name)) => is_card(card, name),
                    _ => false,
                })
            })
            .collect();
        if named.is_empty() { self.machine.sound_cards.iter().collect() } else { named }
    }

    pub fn links(&self) -> &'a [Link] {
        self.chain.map(|chain| chain.links.as_slice()).unwrap_or_default()
    }

    /// Interrupts of a link, as the plan finds them.
    pub fn link_irqs(&self, link: &Link) -> Vec<&'a Irq> {
        match &link.target {
            Target::Irq(source) => crate::sources::irqs(&self.on, source),
            Target::Process { .. } => Vec::new(),
        }
    }

    /// Threads of a link: of its process, or the kernel's of its interrupts.
    pub fn link_tasks(&self, link: &Link) -> Vec<&'a Task> {
        match &link.target {
            Target::Irq(_) => {
                self.link_irqs(link).iter().flat_map(|irq| self.irq_threads(irq.number)).collect()
            }
            Target::Process { comm, threads, owner, .. } => {
                links::process(&self.on, comm, threads, owner)
            }
        }
    }

    /// Processes of a link's name that are not the link.
    pub fn others(&self, comm: &str, owner: &Owner) -> Vec<&'a Task> {
        owner::processes(&self.on, comm, owner).1
    }

    /// The kernel's threads that handle an interrupt.
    pub fn irq_threads(&self, number: u32) -> Vec<&'a Task> {
        self.on.handlers(number)
    }

    /// Threads of programs that carry sound: of the chain's processes, else of known programs.
    pub fn audio_tasks(&self) -> &[&'a Task] {
        &self.audio
    }

    fn find_audio_tasks(&self) -> Vec<&'a Task> {
        let processes: Vec<(&str, &Owner)> = self
            .links()
            .iter()
            .filter_map(|link| match &link.target {
                Target::Process { comm, owner, .. } => Some((comm.as_str(), owner)),
                Target::Irq(_) => None,
            })
            .collect();
        let mut tasks: Vec<&Task> = match processes.as_slice() {
            // Without a chain nobody says whose they are: they are looked at, not changed.
            [] => {
                let firsts = AUDIO_PROGRAMS.iter().flat_map(|name| self.on.firsts(name));
                let firsts: Vec<&Task> =
                    firsts.filter(|task| AUDIO_PROGRAMS.contains(&task.comm.as_str())).collect();
                self.on.threads(&firsts)
            }
            named => named
                .iter()
                .flat_map(|(comm, owner)| links::process(&self.on, comm, &[], owner))
                .collect(),
        };
        tasks.sort_by_key(|task| task.tid);
        tasks.dedup_by_key(|task| task.tid);
        tasks
    }

    /// Threads of programs that are not the chain's and may run on its CPUs.
    pub fn foreign_tasks(&self) -> &[&'a Task] {
        &self.foreign
    }

    fn find_foreign_tasks(&self) -> Vec<&'a Task> {
        let audio: HashSet<u32> = self.audio.iter().map(|task| task.tid).collect();
        let user = |task: &&Task| task.kernel.is_none() && task.state != 'Z';
        let tasks = self.machine.tasks.iter().filter(user);
        tasks.filter(|t| t.allowed.intersects(&self.quiet) && !audio.contains(&t.tid)).collect()
    }

    /// Names of the programs that carry sound.
    pub fn audio_programs(&self) -> Programs<'a> {
        let firsts = self.audio.iter().filter(|task| task.pid == task.tid);
        Programs(firsts.map(|task| task.comm.as_str()).collect())
    }

    /// User processes of one of these names.
    pub fn running(&self, names: &[&str]) -> Vec<&'a Task> {
        let user = |task: &&Task| task.kernel.is_none() && task.tid == task.pid;
        let tasks = self.machine.tasks.iter().filter(user);
        tasks.filter(|task| names.iter().any(|name| same(name, &task.comm))).collect()
    }
}

/// Names of programs as the kernel keeps them.
pub(super) struct Programs<'a>(HashSet<&'a str>);

impl Programs<'_> {
    /// Whether a program of this name is among them.
    pub fn has(&self, name: &str) -> bool {
        let kept = name.get(..LONGEST).filter(|kept| self.0.contains(kept));
        kept.is_some() || self.0.contains(name)
    }
}

/// CPUs that are, or are to be, the chain's own, and what says so.
fn quiet(machine: &Machine, chain: Option<&Chain>) -> (CpuSet, String) {
    if let Some(chain) = chain {
        let of_links = chain.links.iter().filter_map(|link| link.cpus.as_ref());
        let of_links = of_links.fold(CpuSet::new(), |all, cpus| all.union(cpus));
        let cpus = match &chain.cpus {
            Choice::These(cpus) => cpus.union(&of_links),
            Choice::Auto | Choice::Cores(_) => of_links,
        };
        if !cpus.is_empty() {
            return (cpus.intersection(&machine.online), "the chain".into());
        }
    }
    apart(machine)
}

/// CPUs that something sets apart, and what.
fn apart(machine: &Machine) -> (CpuSet, String) {
    let mut cpus = CpuSet::new();
    let mut by = Vec::new();
    let mut add = |more: &CpuSet, what: &str| {
        if !more.is_empty() {
            cpus = cpus.union(more);
            by.push(what.to_owned());
        }
    };
    add(machine.isolated.as_ref().unwrap_or(&CpuSet::new()), "isolcpus=");
    add(&partitions(machine), "a partition");
    add(&sets_without_balancing(machine), "a cpuset without load balancing");
    (cpus.intersection(&machine.online), by.join(" and "))
}

/// CPUs of valid partitions: as the root tells them (6.8 and newer), and as the groups do.
pub(super) fn partitions(machine: &Machine) -> CpuSet {
    let valid = |state: &str| matches!(state, "isolated" | "root");
    machine
        .cgroups
        .groups
        .iter()
        .filter(|group| !group.path.is_root() && group.partition.as_deref().is_some_and(valid))
        .filter_map(|group| group.effective.as_ref().or(group.cpus.as_ref()))
        .fold(machine.cgroups.v2_isolated.clone().unwrap_or_default(), |all, c| all.union(c))
}

/// CPUs of cgroup v1 sets below a root that does not balance, when they do not either.
fn sets_without_balancing(machine: &Machine) -> CpuSet {
    let groups = &machine.cgroups.groups;
    let root = groups.iter().find(|group| group.path.is_root());
    if root.and_then(|root| root.load_balance) != Some(false) {
        return CpuSet::new();
    }
    let apart = groups.iter().filter(|g| !g.path.is_root() && g.load_balance == Some(false));
    apart.filter_map(|g| g.cpus.as_ref()).fold(CpuSet::new(), |all, cpus| all.union(cpus))
}

/// Whether a chain means this card: by `cardN`, or a word of its id or long name.
fn is_card(card: &Device, name: &str) -> bool {
    card.name == name || crate::names::says(&card.description, name)
}

/// Whether a thread has this name; the kernel keeps 15 bytes of one.
fn same(wanted: &str, comm: &str) -> bool {
    wanted == comm || (comm.len() == LONGEST && wanted.starts_with(comm))
}

/// The CPU list of `isolcpus=managed_irq,domain,2-3` and its like; `None` where there is none.
pub(crate) fn cpus_after_flags(value: &str) -> Option<CpuSet> {
    let list: Vec<&str> = value
        .split(',')
        .skip_while(|word| word.starts_with(|c: char| c.is_ascii_alphabetic()))
        .collect();
    list.join(",").parse().ok()
}

/// Names for people: at most `most` of them, and how many more there are.
pub(super) fn some<T: AsRef<str>>(names: &[T], most: usize) -> String {
    let shown: Vec<String> =
        names.iter().take(most).map(|name| printable(name.as_ref(), 100)).collect();
    match names.len().saturating_sub(most) {
        0 => shown.join(", "),
        more => format!("{} and {more} more", shown.join(", ")),
    }
}

/// `1 foreign thread`, `3 foreign threads`.
pub(super) fn count(number: usize, what: &str) -> String {
    if number == 1 { format!("1 {what}") } else { format!("{number} {what}s") }
}

/// `CPU 2`, `CPUs 2-3`.
pub(super) fn cpus(set: &CpuSet) -> String {
    if set.len() == 1 { format!("CPU {set}") } else { format!("CPUs {set}") }
}

/// `irq 124 (xhci_hcd)`.
pub(super) fn irq_name(irq: &Irq) -> String {
    match irq.actions.is_empty() {
        true => format!("IRQ {}", irq.number),
        false => format!("IRQ {} ({})", irq.number, some(&irq.actions, 2)),
    }
}

/// `mpd (PID 401)`, and the thread where it is another.
pub(super) fn task_name(task: &Task) -> String {
    format!("{} (TID {})", printable(&task.comm, 32), task.tid)
}

pub(super) fn is_real_time(task: &Task) -> bool {
    matches!(task.scheduling.policy, Policy::Fifo | Policy::Rr | Policy::Deadline)
}
