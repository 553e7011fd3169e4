//! A machine as text for people.

mod heat;
mod tables;
mod topology;

use quiet_types::{
    CpuId, CpuSet, Machine,
    machine::{Cpu, Device, Preemption},
    printable,
};

/// How the text is laid out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MachineStyle {
    /// Columns of the terminal; lines are wrapped or cut to it, as far as names allow. At least 40.
    pub width: usize,
    /// Whether headings stand out.
    pub colour: Colour,
    /// How much is said of tasks.
    pub tasks: Tasks,
}

impl Default for MachineStyle {
    fn default() -> MachineStyle {
        MachineStyle { width: 80, colour: Colour::Plain, tasks: Tasks::Summary }
    }
}

/// Options of the kernel's configuration that decide what isolation can do.
const TOLD_OPTIONS: [&str; 11] = [
    "CPUSETS",
    "CPU_ISOLATION",
    "HZ",
    "IRQ_FORCED_THREADING",
    "NO_HZ_FULL",
    "OSNOISE_TRACER",
    "PREEMPT_DYNAMIC",
    "PREEMPT_RT",
    "RCU_NOCB_CPU",
    "RT_GROUP_SCHED",
    "TIMERLAT_TRACER",
];

/// Whether escape sequences are used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Colour {
    /// Text alone.
    Plain,
    /// Bold headings (ECMA-48).
    Ansi,
}

/// How much is said of tasks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tasks {
    /// A line for each CPU.
    Summary,
    /// A line for each thread, by CPU.
    Every,
}

/// The whole text: what the machine is, how its CPUs hang together, which cards stand on which
/// interrupt, and what runs where.
pub fn machine_text(machine: &Machine, style: MachineStyle) -> String {
    let style = MachineStyle { width: style.width.max(40), ..style };
    let mut page = Page { text: String::new(), style };
    heading(&mut page, machine);
    page.section("Topology");
    topology::draw(&mut page, machine);
    page.section("CPU sets");
    cpu_sets(&mut page, machine);
    page.section("Power");
    power(&mut page, machine);
    heat::draw(&mut page, machine);
    page.section("Sound cards");
    cards(&mut page, machine, &machine.sound_cards);
    pipewire(&mut page, machine);
    page.section("Network cards");
    cards(&mut page, machine, &machine.network_cards);
    page.section("IRQs");
    tables::irqs(&mut page, machine);
    page.section("Per-CPU interrupts");
    tables::vectors(&mut page, machine);
    match style.tasks {
        Tasks::Summary => {
            page.section("Tasks, by the CPU they last ran on");
            tables::task_summary(&mut page, machine);
        }
        Tasks::Every => {
            page.section("Threads, by the CPU they last ran on");
            tables::threads(&mut page, machine);
        }
    }
    page.section("Cgroups");
    tables::cgroups(&mut page, machine);
    page.section("Settings");
    tables::settings(&mut page, machine);
    if !machine.unread.is_empty() {
        page.section("Not read");
        for finding in &machine.unread {
            page.wrapped("  ", printable(&finding.title, 400).split(' '));
        }
    }
    page.text
}

/// The PipeWire that runs, and what it goes by.
fn pipewire(page: &mut Page, machine: &Machine) {
    let settings = machine.surroundings.as_ref().and_then(|around| around.pipewire);
    if machine.pipewire.is_empty() && settings.is_none() {
        return;
    }
    page.section("PipeWire");
    for one in &machine.pipewire {
        let comm = machine
            .tasks
            .iter()
            .find(|task| task.tid == one.pid)
            .map_or("?", |task| task.comm.as_str());
        let line = format!("process {} ({}): {}", one.pid, printable(comm, 32), one.version);
        page.wrapped("  ", line.split(' '));
    }
    if let Some(set) = settings {
        let ms = f64::from(set.quantum) * 1000.0 / f64::from(set.rate.max(1));
        let mut line = format!("{} samples at {} Hz, {ms:.1} ms", set.quantum, set.rate);
        if set.forced {
            line += ", forced";
        } else if let (Some(least), Some(most)) = (set.least_quantum, set.most_quantum) {
            line += &format!("; programs may ask for {least} to {most}");
        }
        page.wrapped("  ", line.split(' '));
    }
}

/// The text so far, and how it is laid out.
struct Page {
    text: String,
    style: MachineStyle,
}

impl Page {
    fn section(&mut self, title: &str) {
        let title = match self.style.colour {
            Colour::Plain => title.to_owned(),
            Colour::Ansi => format!("\x1b[1m{title}\x1b[0m"),
        };
        self.text += &format!("\n{title}\n");
    }

    /// A line, cut to the width.
    fn line(&mut self, line: &str) {
        self.text += cut(line.trim_end(), self.style.width).trim_end();
        self.text.push('\n');
    }

    /// `first`, then words, as many lines as they need; later lines are indented like the first.
    fn wrapped<S: AsRef<str>>(&mut self, first: &str, words: impl IntoIterator<Item = S>) {
        let indent = " ".repeat(columns(first));
        let mut line = first.to_owned();
        let mut is_empty = true;
        for word in words {
            let word = word.as_ref();
            if !is_empty && columns(&line) + 1 + columns(word) > self.style.width {
                self.line(&line);
                line.clone_from(&indent);
                is_empty = true;
            }
            if !is_empty {
                line.push(' ');
            }
            line += word;
            is_empty = false;
        }
        self.line(&line);
    }

    /// Rows under a heading, columns as wide as their widest cell; `right` aligns numbers. The
    /// last column is cut to the width.
    fn table(&mut self, rows: &[Vec<String>], right: &[usize]) {
        let most = rows.iter().map(Vec::len).max().unwrap_or(0);
        let widths: Vec<usize> = (0..most)
            .map(|at| rows.iter().filter_map(|row| row.get(at)).map(|c| columns(c)).max())
            .map(|width| width.unwrap_or(0))
            .collect();
        for row in rows {
            let mut line = String::from(" ");
            for (at, (cell, width)) in row.iter().zip(&widths).enumerate() {
                let pad = " ".repeat(width - columns(cell));
                line += &if right.contains(&at) {
                    format!(" {pad}{cell}")
                } else if at + 1 == row.len() {
                    format!(" {cell}")
                } else {
                    format!(" {cell}{pad}")
                };
            }
            self.line(&line);
        }
    }
}

fn columns(text: &str) -> usize {
    text.chars().count()
}

fn cut(line: &str, width: usize) -> String {
    if columns(line) <= width {
        return line.to_owned();
    }
    let mut short: String = line.chars().take(width - 1).collect();
    short.push('…');
    short
}

/// Names from the system, safe for a terminal.
fn name(text: &str) -> String {
    printable(text, 80)
}

/// How far a kernel lets itself be preempted.
pub(crate) fn preemption_words(preemption: Preemption) -> &'static str {
    match preemption {
        Preemption::Unknown => "preemption not told",
        Preemption::None => "no preemption (server)",
        Preemption::Voluntary => "voluntary preemption (desktop)",
        Preemption::Lazy => "lazy preemption",
        Preemption::Full => "full preemption (low latency)",
        Preemption::Dynamic => "dynamic preemption, mode in force not readable",
        Preemption::Rt => "PREEMPT_RT (real time)",
    }
}

fn heading(page: &mut Page, machine: &Machine) {
    let parts = [machine.board.as_deref().unwrap_or_default(), machine.processor.as_str()];
    let parts: Vec<String> = parts.iter().filter(|p| !p.is_empty()).map(|p| name(p)).collect();
    page.line(&if parts.is_empty() { "Unnamed machine".into() } else { parts.join(", ") });
    if !machine.compatible.is_empty() {
        page.wrapped("Device tree ", machine.compatible.iter().map(|word| name(word)));
    }
    let kernel = &machine.kernel;
    let arch = kernel.arch.as_deref().map(|arch| format!(" ({})", name(arch)));
    let preemption = preemption_words(kernel.preemption);
    let hypervisor = match machine.hypervisor.as_deref() {
        None => "no hypervisor seen".to_owned(),
        Some("unknown") => "on an unnamed hypervisor".to_owned(),
        Some(kind) => format!("on hypervisor {}", name(kind)),
    };
    let release = name(&kernel.release);
    let line = format!("Linux {release}{}, {preemption}, {hypervisor}", arch.unwrap_or_default());
    page.wrapped("", line.split(' '));
    if let Some((first, others)) = machine.clock_sources.split_first() {
        let others: Vec<String> = others.iter().map(|other| name(other)).collect();
        let others = match others.is_empty() {
            true => String::new(),
            false => format!(" (also {})", others.join(", ")),
        };
        page.line(&format!("Clock source {}{others}", name(first)));
    }
    if !kernel.boot_parameters.is_empty() {
        page.wrapped("Booted with ", kernel.boot_parameters.iter().map(|word| name(word)));
    }
    let options = kernel.config.iter().flatten();
    let told: Vec<String> = options
        .filter(|(option, _)| TOLD_OPTIONS.contains(&option.as_str()))
        .map(|(option, value)| format!("{}={}", name(option), name(value)))
        .collect();
    if !told.is_empty() {
        page.wrapped("Built with  ", told);
    }
    stolen(page, machine);
}

/// What the host of a virtual machine took.
fn stolen(page: &mut Page, machine: &Machine) {
    let stolen: Vec<(CpuId, u64)> = machine
        .cpus
        .iter()
        .filter_map(|cpu| cpu.steal_ticks.filter(|ticks| *ticks > 0).map(|ticks| (cpu.id, ticks)))
        .collect();
    if machine.hypervisor.is_some() || !stolen.is_empty() {
        let seconds = |ticks: u64| format!("{}.{:02} s", ticks / 100, ticks % 100);
        let total = stolen.iter().map(|(_, ticks)| ticks).sum();
        let most = stolen.iter().max_by_key(|(_, ticks)| *ticks);
        let most = most.map(|(cpu, ticks)| format!(", most from CPU {cpu}: {}", seconds(*ticks)));
        let total = seconds(total);
        page.line(&format!("Stolen by the host since boot {total}{}", most.unwrap_or_default()));
    }
}

/// CPUs that neither the boot parameters nor partitions take away.
fn housekeeping(machine: &Machine) -> CpuSet {
    let taken = [&machine.isolated, &machine.nohz_full, &machine.cgroups.v2_isolated];
    taken.into_iter().flatten().fold(machine.online.clone(), |left, set| left.difference(set))
}

fn set_text(set: &CpuSet) -> String {
    if set.is_empty() { "none".to_owned() } else { set.to_string() }
}

fn cpu_sets(page: &mut Page, machine: &Machine) {
    let present: CpuSet = machine.cpus.iter().map(|cpu| cpu.id).collect();
    let mut rows = vec![["online", &set_text(&machine.online), ""].map(String::from).to_vec()];
    let mut row = |name: &str, set: Option<&CpuSet>, note: &str| {
        let set = set.map_or_else(|| "not told by this kernel".to_owned(), set_text);
        rows.push(vec![name.to_owned(), set, note.to_owned()]);
    };
    let offline = present.difference(&machine.online);
    if !offline.is_empty() {
        row("offline", Some(&offline), "");
    }
    row("isolated", machine.isolated.as_ref(), "boot parameter isolcpus=");
    row("nohz_full", machine.nohz_full.as_ref(), "boot parameter nohz_full=");
    if let Some(partitions) = &machine.cgroups.v2_isolated {
        row("in isolated partitions", Some(partitions), "cgroup v2");
    }
    row("housekeeping", Some(&housekeeping(machine)), "left to the kernel");
    if let Some(irqs) = &machine.default_irq_affinity {
        row("new IRQs", Some(irqs), "default_smp_affinity");
    }
    if let Some(workqueues) = &machine.workqueues.effective {
        row("unbound workqueues", Some(workqueues), "");
    }
    page.table(&rows, &[]);
    if let Some(control) = &machine.smt_control {
        page.line(&format!("  SMT is {}", name(control)));
    }
}

/// A line for every group of CPUs that are alike.
fn power(page: &mut Page, machine: &Machine) {
    let mut alike: Vec<(String, CpuSet)> = Vec::new();
    for cpu in machine.cpus.iter().filter(|cpu| cpu.online) {
        let text = power_of(cpu);
        match alike.iter_mut().find(|(known, _)| *known == text) {
            Some((_, set)) => set.insert(cpu.id),
            None => alike.push((text, [cpu.id].into_iter().collect())),
        }
    }
    for (text, cpus) in alike {
        page.wrapped(&format!("  CPU {cpus}: "), text.split(' '));
    }
}

fn power_of(cpu: &Cpu) -> String {
    let ghz = |khz: u64| format!("{:.2} GHz", khz as f64 / 1e6);
    let mut parts = vec![match (&cpu.governor, cpu.max_khz) {
        (None, None) => "frequency not set by this kernel".to_owned(),
        (None, Some(max)) => format!("up to {}", ghz(max)),
        (Some(governor), None) => format!("governor {}", name(governor)),
        (Some(governor), Some(max)) => format!("governor {}, up to {}", name(governor), ghz(max)),
    }];
    let states = cpu.idle_states.iter().map(|state| {
        let latency = state.latency_us.map(|us| format!(" {us} us")).unwrap_or_default();
        let off = if state.disabled { ", off" } else { "" };
        format!("{} ({})", name(&state.name), format!("{latency}{off}").trim_start())
    });
    let states: Vec<String> = states.collect();
    parts.push(match states.is_empty() {
        true => "no idle states".to_owned(),
        false => format!("idle states {}", states.join(", ")),
    });
    match cpu.resume_latency.as_deref() {
        None | Some("0") => {}
        Some("n/a") => parts.push("idle states forbidden (resume latency n/a)".to_owned()),
        Some(us) => parts.push(format!("resume latency at most {} us", name(us))),
    }
    parts.join("; ")
}

fn cards(page: &mut Page, machine: &Machine, cards: &[Device]) {
    if cards.is_empty() {
        page.line("  none");
    }
    for card in cards {
        page.line(&format!("  {}  {}", name(&card.name), name(&card.description)));
        let Some(controller) = &card.controller else {
            page.line("    no interrupt of its own was found behind it");
            continue;
        };
        page.line(&format!("    controller {}", name(controller)));
        if card.irqs.is_empty() {
            page.line("    no interrupt");
        }
        for number in &card.irqs {
            let Some(irq) = machine.irqs.iter().find(|irq| irq.number == *number) else {
                page.line(&format!("    IRQ {number}, not in use"));
                continue;
            };
            let actions: Vec<String> = irq.actions.iter().map(|action| name(action)).collect();
            let at = match &irq.effective {
                Some(cpus) if !cpus.is_empty() => format!("delivered to CPU {cpus}"),
                _ => format!("counted on CPU {}", set_text(&tables::counted(irq))),
            };
            let may = match (&irq.immovable, &irq.requested) {
                (Some(_), _) => ", cannot be moved".to_owned(),
                (None, Some(cpus)) => format!(", allowed on {cpus}"),
                (None, None) => String::new(),
            };
            let line =
                format!("IRQ {number} {}: {at}{may}, {} so far", actions.join(" "), irq.total());
            page.wrapped("    ", line.split(' '));
        }
        match card.shared_with.is_empty() {
            true => page.line("    shared with nothing"),
            false => {
                page.line("    shared with");
                for other in &card.shared_with {
                    page.line(&format!("      {}", name(other)));
                }
            }
        }
    }
}

#[cfg(test)]
mod tests;
