//! Which boot parameters a machine needs for its quiet CPUs, what speaks against them, and whether
//! they came into force.

use quiet_types::{
    CpuSet, Finding, Machine, Severity,
    boot::{BootEntry, BootParameters, Mode, Parameter},
    machine::Preemption,
};

/// The kernel's command line is cut beyond this many bytes on x86-64 and arm64.
///
/// # Source
/// `COMMAND_LINE_SIZE` of arch/x86 and arch/arm64; other architectures have 1024 or less.
pub const LONGEST: usize = 2048;

/// A parameter that is asked for by name, beside those of the mode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Extra {
    /// `threadirqs`: interrupt handlers run in threads, which can have a priority.
    ThreadedIrqs,
    /// `skew_tick=1`: the CPUs' ticks do not fall together.
    SkewedTick,
    /// `nosoftlockup`: no alarm about a thread that never gives its CPU away.
    NoSoftLockup,
    /// `rcu_nocb_poll`: threads that invoke RCU callbacks poll, so that no CPU wakes them.
    PollRcu,
}

/// What is wished.
#[derive(Clone, Debug, Default)]
pub struct BootWish {
    /// CPUs kept for the chain.
    pub cpus: CpuSet,
    /// How the chain uses them.
    pub mode: Mode,
    /// Parameters asked for by name.
    pub extras: Vec<Extra>,
}

/// A parameter that somebody else has set, and where.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Foreign {
    /// `isolcpus=1`.
    pub word: String,
    /// `/boot/loader/entries/debian.conf, line 5`.
    pub place: String,
}

/// The boot parameters for a wish, and what was left out of them and why.
///
/// # Errors
/// A wish that no machine could boot with: CPU 0, all CPUs, none, or CPUs that do not exist. The
/// finding says which.
pub fn parameters(
    machine: &Machine,
    wish: &BootWish,
) -> Result<(BootParameters, Vec<Finding>), Box<Finding>> {
    let housekeeping = housekeeping(machine, &wish.cpus)?;
    let asked = BootParameters {
        cpus: wish.cpus.clone(),
        housekeeping,
        mode: wish.mode,
        parameters: vec![],
    };
    let mut build = Build { machine, asked, left_out: Vec::new() };
    build.isolate();
    if wish.mode == Mode::NeverSleepingCore {
        build.stop_the_tick();
    }
    let housekeeping = build.asked.housekeeping.to_string();
    build.add(
        "irqaffinity",
        Some(housekeeping),
        "new interrupts are delivered to the housekeeping CPUs; those of the chain are placed by \
         `apply`",
    );
    build.by_name(wish);
    Ok((build.asked, build.left_out))
}

fn housekeeping(machine: &Machine, cpus: &CpuSet) -> Result<CpuSet, Box<Finding>> {
    let refuse = |id: &str, title: String, remedy: &str| {
        Err(Box::new(Finding::new(Severity::Problem, id, title).remedy(remedy)))
    };
    let all = if machine.possible.is_empty() { &machine.online } else { &machine.possible };
    if cpus.is_empty() {
        return refuse(
            "boot.no_cpus",
            "no CPU was named to be isolated".into(),
            "name them, as in --cpus 2-3",
        );
    }
    let absent = cpus.difference(all);
    if !absent.is_empty() {
        return refuse(
            "boot.no_such_cpu",
            format!("this machine has no CPU {absent}; it has {all}"),
            "name CPUs that it has",
        );
    }
    let rest = machine.online.difference(cpus);
    if rest.is_empty() {
        return refuse(
            "boot.all_cpus",
            format!("isolating CPU {cpus} would leave no CPU to the rest of the machine"),
            "leave at least one housekeeping CPU",
        );
    }
    if let Some(first) = all.first().filter(|first| cpus.contains(*first)) {
        return refuse(
            "boot.boot_cpu",
            format!(
                "CPU {first} boots the machine: the kernel takes it off isolcpus= and nohz_full="
            ),
            "isolate other CPUs at boot; a run-time shield (`quietcores apply`) may hold CPU 0",
        );
    }
    Ok(rest)
}

struct Build<'a> {
    machine: &'a Machine,
    asked: BootParameters,
    left_out: Vec<Finding>,
}

impl Build<'_> {
    fn add(&mut self, name: &str, value: Option<String>, why: &str) {
        let parameter = Parameter { name: name.into(), value, why: why.into() };
        self.asked.parameters.push(parameter);
    }

    fn leave_out(&mut self, word: &str, title: String, effect: &str) {
        let id = format!("boot.left_out.{}", word.split('=').next().unwrap_or(word));
        self.left_out.push(Finding::new(Severity::Warning, id, title).effect(effect));
    }

    /// Whether the kernel was built with an option; told `true` where its config cannot be read.
    fn built_with(&mut self, option: &str, word: &str, effect: &str) -> bool {
        let Some(config) = &self.machine.kernel.config else {
            return true;
        };
        if config.get(option).is_some_and(|value| value == "y") {
            return true;
        }
        let release = quiet_types::printable(&self.machine.kernel.release, 60);
        let title =
            format!("{word} is left out: the kernel {release} was built without CONFIG_{option}");
        self.leave_out(word, title, effect);
        false
    }

    fn isolate(&mut self) {
        let effect = "the scheduler balances over these CPUs until the run-time shield is up";
        if !self.built_with("CPU_ISOLATION", "isolcpus=", effect) {
            return;
        }
        let version = version(&self.machine.kernel.release);
        let flags = match version {
            // The flags came with 4.15, managed_irq with 5.6; an older kernel takes them for CPUs.
            Some(v) if v < (4, 15) => "",
            Some(v) if v < (5, 6) => "domain,",
            _ => "managed_irq,domain,",
        };
        if flags.is_empty() || flags == "domain," {
            self.leave_out(
                "managed_irq",
                "the flag managed_irq is left out: it came with Linux 5.6".into(),
                "managed interrupts of disks and network cards may be delivered on these CPUs",
            );
        }
        let value = format!("{flags}{}", self.asked.cpus);
        self.add(
            "isolcpus",
            Some(value),
            "these CPUs are taken out of load balancing from the first moment, and managed \
             interrupts keep off them where they can",
        );
    }

    fn stop_the_tick(&mut self) {
        let cpus = self.asked.cpus.to_string();
        let effect = "the tick interrupts the chain CONFIG_HZ times a second";
        let mut tickless = self.built_with("NO_HZ_FULL", "nohz_full=", effect);
        let running = !self.machine.kernel.release.is_empty();
        if tickless && running && self.machine.nohz_full.is_none() && self.unknown_config() {
            self.leave_out(
                "nohz_full=",
                "nohz_full= is left out: this kernel has no /sys/devices/system/cpu/nohz_full"
                    .into(),
                effect,
            );
            tickless = false;
        }
        if tickless {
            self.add(
                "nohz_full",
                Some(cpus.clone()),
                "the tick stops while one thread runs alone on such a CPU; every entry into the \
                 kernel becomes dearer, so this is for loops that never sleep",
            );
        } else {
            self.no_soft_lockup("without nohz_full the soft-lockup watchdog watches these CPUs");
        }
        let effect = "RCU callbacks are invoked on these CPUs";
        if self.built_with("RCU_NOCB_CPU", "rcu_nocbs=", effect) {
            self.add(
                "rcu_nocbs",
                Some(cpus),
                "RCU callbacks of these CPUs are invoked by threads on the housekeeping CPUs",
            );
        }
    }

    fn unknown_config(&self) -> bool {
        self.machine.kernel.config.is_none()
    }

    fn no_soft_lockup(&mut self, because: &str) {
        if self.asked.value("nosoftlockup").is_none() {
            self.add(
                "nosoftlockup",
                None,
                &format!("a thread that never sleeps is not reported as stuck: {because}"),
            );
        }
    }

    fn by_name(&mut self, wish: &BootWish) {
        if wish.mode == Mode::SleepingChain || wish.extras.contains(&Extra::SkewedTick) {
            self.add(
                "skew_tick",
                Some("1".into()),
                "the CPUs' ticks do not fall together and wait for each other's locks; costs some \
                 power",
            );
        }
        if wish.extras.contains(&Extra::ThreadedIrqs) {
            self.threaded_irqs();
        }
        if wish.extras.contains(&Extra::NoSoftLockup) {
            self.no_soft_lockup("asked for by name");
        }
        if wish.extras.contains(&Extra::PollRcu) {
            if self.asked.value("rcu_nocbs").is_some() {
                self.add(
                    "rcu_nocb_poll",
                    None,
                    "the threads that invoke RCU callbacks poll: no CPU of the chain wakes them, \
                     and a housekeeping CPU pays for it",
                );
            } else {
                let title = "rcu_nocb_poll is left out: it means nothing without rcu_nocbs=";
                self.leave_out("rcu_nocb_poll", title.into(), "");
            }
        }
    }

    fn threaded_irqs(&mut self) {
        if self.machine.kernel.preemption == Preemption::Rt {
            self.leave_out(
                "threadirqs",
                "threadirqs is left out: a PREEMPT_RT kernel threads its interrupts anyway".into(),
                "",
            );
        } else if self.built_with(
            "IRQ_FORCED_THREADING",
            "threadirqs",
            "interrupts of the chain cannot have a priority",
        ) {
            self.add(
                "threadirqs",
                None,
                "interrupt handlers run in threads, so that `apply` can give those of the chain \
                 their priority",
            );
        }
    }
}

/// `6.12.9-amd64` as (6, 12).
fn version(release: &str) -> Option<(u32, u32)> {
    let mut numbers = release.split(['.', '-', '+']);
    Some((numbers.next()?.parse().ok()?, numbers.next()?.parse().ok()?))
}

/// What speaks against writing these parameters beside the ones that others have set: nothing of
/// others is ever edited, so a [`Severity::Problem`] here has to be cleared by their owner.
///
/// `length` is that of the longest command line as it would become, in bytes.
pub fn contradictions(asked: &BootParameters, others: &[Foreign], length: usize) -> Vec<Finding> {
    let mut findings = Vec::new();
    for other in others {
        findings.extend(against(asked, other));
    }
    if length > LONGEST {
        findings.push(
            Finding::new(
                Severity::Problem,
                "boot.too_long",
                format!("the command line would have {length} bytes, and the kernel cuts it at {LONGEST}"),
            )
            .effect("parameters at its end would be lost without a word")
            .remedy("take parameters away that are not needed any more"),
        );
    }
    findings
}

fn against(asked: &BootParameters, other: &Foreign) -> Option<Finding> {
    let (name, value) = other.word.split_once('=').unwrap_or((&other.word, ""));
    let word = quiet_types::printable(&other.word, 80);
    let place = quiet_types::printable(&other.place, 120);
    // The kernel reads `-` and `_` in names alike.
    let name = name.replace('-', "_");
    if name == "kthread_cpus" {
        return Some(
            Finding::new(
                Severity::Warning,
                "boot.void",
                format!("{word} does nothing on a mainline kernel"),
            )
            .evidence(place)
            .remedy("remove it; isolcpus=domain and nohz_full= keep kernel threads away"),
        );
    }
    if name == "nohz" && value == "off" && asked.value("nohz_full").is_some() {
        return Some(
            Finding::new(
                Severity::Problem,
                "boot.contradiction",
                format!("{word} contradicts nohz_full=: the tick could never stop"),
            )
            .evidence(place)
            .remedy(format!("remove {word} there, or persist without --never-sleep")),
        );
    }
    let ours = asked.parameters.iter().find(|parameter| parameter.name == name)?;
    if ours.word().replace('-', "_") == other.word.replace('-', "_") {
        return None;
    }
    Some(
        Finding::new(
            Severity::Problem,
            "boot.duplicate",
            format!("{word} is set already, and {} is wanted", ours.word()),
        )
        .evidence(place)
        .effect("of two, the kernel takes one or mixes them; what others have set is not edited")
        .remedy(format!("remove {word} there, then persist again")),
    )
}

/// What is asked, without what every entry has already, and what speaks against the rest.
///
/// `running` are the words of the running kernel: they may come from a place that is in no entry
/// (a built-in command line, the firmware), or from a boot before the entries were changed.
pub fn reconcile(
    asked: &BootParameters,
    entries: &[BootEntry],
    running: &[String],
    longest: usize,
) -> (BootParameters, Vec<Finding>) {
    let mut left = BootParameters { parameters: Vec::new(), ..asked.clone() };
    let mut findings = Vec::new();
    for parameter in &asked.parameters {
        let word = parameter.word();
        let with: Vec<&BootEntry> =
            entries.iter().filter(|entry| entry.words.contains(&word)).collect();
        if with.is_empty() {
            left.parameters.push(parameter.clone());
        } else if with.len() == entries.len() {
            let title = format!("{word} is set already: it stays its owner's, and is not added");
            findings.push(
                Finding::new(Severity::Note, "boot.present", title).evidence(with[0].place.clone()),
            );
        } else {
            let title = format!("{word} is set in some boot entries and not in others");
            findings.push(
                Finding::new(Severity::Problem, "boot.duplicate", title)
                    .evidence(with[0].place.clone())
                    .remedy("remove it there, then persist again"),
            );
        }
    }
    let mut others: Vec<Foreign> = Vec::new();
    for (place, word) in entries.iter().flat_map(|l| l.words.iter().map(|word| (&l.place, word))) {
        if !others.iter().any(|other| other.word == *word) {
            others.push(Foreign { word: word.clone(), place: place.clone() });
        }
    }
    let length = longest + left.words().iter().map(|word| word.len() + 1).sum::<usize>();
    findings.extend(contradictions(&left, &others, length));
    for word in running.iter().filter(|word| !others.iter().any(|other| other.word == **word)) {
        let other = Foreign { word: word.clone(), place: "/proc/cmdline".into() };
        let id = "boot.elsewhere";
        findings.extend(against(&left, &other).filter(|f| f.id != "boot.void").map(|finding| {
            Finding { severity: Severity::Warning, id: id.into(), ..finding }
                .remedy("if it is not of an earlier `persist`, look where it comes from")
        }));
    }
    (left, findings)
}

/// What was asked of this boot against what is: empty when everything is in force.
///
/// Looks at the effect where the kernel shows it (`/sys/devices/system/cpu/isolated`, `nohz_full`,
/// the default IRQ mask), else at the command line.
pub fn compare(asked: &BootParameters, machine: &Machine) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut missing = Vec::new();
    for parameter in &asked.parameters {
        let word = parameter.word();
        if !machine.kernel.boot_parameters.contains(&word) {
            missing.push(word);
            continue;
        }
        findings.extend(effect(parameter, asked, machine));
    }
    if missing.len() == asked.parameters.len() && !missing.is_empty() {
        return vec![
            Finding::new(
                Severity::Problem,
                "boot.not_booted",
                "none of the boot parameters that were asked for is in force",
            )
            .evidence(format!("/proc/cmdline lacks {}", missing.join(" ")))
            .remedy("reboot; if you have, another boot entry or loader was used"),
        ];
    }
    for word in missing {
        findings.push(
            Finding::new(
                Severity::Problem,
                "boot.missing",
                format!("this boot was asked for {word} and does not have it"),
            )
            .evidence("/proc/cmdline")
            .remedy("reboot through the entry that `persist` has changed, or `persist` again"),
        );
    }
    findings
}

fn effect(parameter: &Parameter, asked: &BootParameters, machine: &Machine) -> Option<Finding> {
    let ignored = |file: &str, is: &CpuSet, want: &CpuSet| {
        (is != want).then(|| {
            Finding::new(
                Severity::Problem,
                "boot.ignored",
                format!(
                    "the kernel has {} on its command line and did not do it",
                    parameter.word()
                ),
            )
            .evidence(format!("{file} is {}, not {want}", shown(is)))
            .remedy("look for its reason in `dmesg | grep -iE 'housekeeping|isol|nohz'`")
        })
    };
    let online = |cpus: &CpuSet| cpus.intersection(&machine.online);
    match parameter.name.as_str() {
        "isolcpus" => {
            let is = machine.isolated.as_ref()?;
            ignored("/sys/devices/system/cpu/isolated", &online(is), &online(&asked.cpus))
        }
        "nohz_full" => {
            let none = CpuSet::default();
            let is = machine.nohz_full.as_ref().unwrap_or(&none);
            ignored("/sys/devices/system/cpu/nohz_full", &online(is), &online(&asked.cpus))
        }
        "irqaffinity" => {
            let is = online(machine.default_irq_affinity.as_ref()?);
            // A shield may narrow it further; what counts is that the chain's CPUs are out of it.
            if is.intersects(&asked.cpus) {
                let want = online(&asked.housekeeping);
                return ignored("/proc/irq/default_smp_affinity", &is, &want);
            }
            None
        }
        _ => None,
    }
}

fn shown(cpus: &CpuSet) -> String {
    if cpus.is_empty() { "empty".into() } else { cpus.to_string() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use quiet_types::{CpuId, machine::RunningKernel};
    use std::collections::BTreeMap;

    fn machine(cpus: &str) -> Machine {
        let config = ["CPU_ISOLATION", "NO_HZ_FULL", "RCU_NOCB_CPU", "IRQ_FORCED_THREADING"];
        Machine {
            online: cpus.parse().unwrap(),
            possible: cpus.parse().unwrap(),
            nohz_full: Some(CpuSet::default()),
            kernel: RunningKernel {
                release: "6.12.9-amd64".into(),
                config: Some(config.map(|name| (name.to_owned(), "y".to_owned())).into()),
                ..RunningKernel::default()
            },
            ..Machine::default()
        }
    }

    fn wish(cpus: &str, mode: Mode) -> BootWish {
        BootWish { cpus: cpus.parse().unwrap(), mode, extras: vec![] }
    }

    fn words(machine: &Machine, wish: &BootWish) -> String {
        parameters(machine, wish).unwrap().0.words().join(" ")
    }

    #[test]
    fn a_sleeping_chain_keeps_the_tick_and_a_never_sleeping_core_does_not() {
        let machine = machine("0-3");
        assert_eq!(
            words(&machine, &wish("2-3", Mode::SleepingChain)),
            "isolcpus=managed_irq,domain,2-3 irqaffinity=0-1 skew_tick=1"
        );
        assert_eq!(
            words(&machine, &wish("2-3", Mode::NeverSleepingCore)),
            "isolcpus=managed_irq,domain,2-3 nohz_full=2-3 rcu_nocbs=2-3 irqaffinity=0-1"
        );
    }

    #[test]
    fn what_the_kernel_lacks_is_left_out_and_named() {
        let mut machine = machine("0-3");
        machine.kernel.config = Some(BTreeMap::from([("CPU_ISOLATION".into(), "y".into())]));
        let (asked, left_out) = parameters(&machine, &wish("3", Mode::NeverSleepingCore)).unwrap();
        let words = asked.words().join(" ");
        assert_eq!(words, "isolcpus=managed_irq,domain,3 nosoftlockup irqaffinity=0-2");
        let ids: Vec<&str> = left_out.iter().map(|finding| finding.id.as_str()).collect();
        assert_eq!(ids, ["boot.left_out.nohz_full", "boot.left_out.rcu_nocbs"]);
        assert!(left_out[0].title.contains("CONFIG_NO_HZ_FULL"), "{}", left_out[0].title);
    }

    #[test]
    fn old_kernels_get_the_form_that_they_understand() {
        let mut machine = machine("0-3");
        for (release, value) in
            [("4.9.0", "3"), ("5.4.1-rt1", "domain,3"), ("5.6.0", "managed_irq,domain,3")]
        {
            machine.kernel.release = release.into();
            let (asked, _) = parameters(&machine, &wish("3", Mode::SleepingChain)).unwrap();
            assert_eq!(asked.value("isolcpus"), Some(value), "{release}");
        }
    }

    #[test]
    fn a_wish_that_cannot_boot_is_refused_with_a_sentence() {
        let machine = machine("0-3");
        for (cpus, id) in [
            ("", "boot.no_cpus"),
            ("0-3", "boot.all_cpus"),
            ("0", "boot.boot_cpu"),
            ("0,3", "boot.boot_cpu"),
            ("7", "boot.no_such_cpu"),
        ] {
            let error = parameters(&machine, &wish(cpus, Mode::SleepingChain)).unwrap_err();
            assert_eq!(error.id, id, "{cpus}");
        }
    }

    #[test]
    fn extras_are_added_where_they_mean_something() {
        let mut machine = machine("0-1");
        let all = vec![Extra::ThreadedIrqs, Extra::SkewedTick, Extra::NoSoftLockup, Extra::PollRcu];
        let mut wish = wish("1", Mode::SleepingChain);
        wish.extras = all;
        let (asked, left_out) = parameters(&machine, &wish).unwrap();
        let words = asked.words().join(" ");
        assert!(words.ends_with("skew_tick=1 threadirqs nosoftlockup"), "{words}");
        assert_eq!(left_out[0].id, "boot.left_out.rcu_nocb_poll");
        wish.mode = Mode::NeverSleepingCore;
        machine.kernel.preemption = Preemption::Rt;
        let (asked, left_out) = parameters(&machine, &wish).unwrap();
        let words = asked.words().join(" ");
        assert!(words.ends_with("skew_tick=1 nosoftlockup rcu_nocb_poll"), "{words}");
        assert_eq!(left_out[0].id, "boot.left_out.threadirqs");
    }

    fn foreign(word: &str) -> Vec<Foreign> {
        vec![Foreign { word: word.into(), place: "/etc/default/grub, line 9".into() }]
    }

    #[test]
    fn what_others_have_set_is_named_and_never_doubled() {
        let machine = machine("0-3");
        let (asked, _) = parameters(&machine, &wish("2-3", Mode::NeverSleepingCore)).unwrap();
        let against = |word: &str| contradictions(&asked, &foreign(word), 100);
        for (word, id, severity) in [
            ("isolcpus=1", "boot.duplicate", Severity::Problem),
            ("irqaffinity=0", "boot.duplicate", Severity::Problem),
            ("rcu-nocbs=1", "boot.duplicate", Severity::Problem),
            ("nohz=off", "boot.contradiction", Severity::Problem),
            ("kthread_cpus=0-1", "boot.void", Severity::Warning),
        ] {
            let findings = against(word);
            assert_eq!((findings[0].id.as_str(), findings[0].severity), (id, severity), "{word}");
            assert_eq!(findings[0].evidence, "/etc/default/grub, line 9");
        }
        for word in ["quiet", "nohz=on", "nohz_full=2-3"] {
            assert!(against(word).is_empty(), "{word}");
        }
        assert_eq!(contradictions(&asked, &[], LONGEST + 1)[0].id, "boot.too_long");
        assert!(contradictions(&asked, &[], LONGEST).is_empty());
    }

    #[test]
    fn what_every_entry_has_is_left_to_its_owner() {
        let (asked, _) = parameters(&machine("0-3"), &wish("2-3", Mode::SleepingChain)).unwrap();
        let entry = |words: &str| BootEntry {
            place: "/a, line 1".into(),
            words: quiet_types::boot::split(words),
        };
        let both = [entry("root=a skew_tick=1"), entry("skew_tick=1")];
        let (left, findings) = reconcile(&asked, &both, &[], 100);
        assert_eq!(left.value("skew_tick"), None);
        assert_eq!((findings.len(), findings[0].id.as_str()), (1, "boot.present"));
        let one = [entry("root=a skew_tick=1"), entry("root=b")];
        let (_, findings) = reconcile(&asked, &one, &[], 100);
        assert_eq!(
            (findings[0].id.as_str(), findings[0].severity),
            ("boot.duplicate", Severity::Problem)
        );
        let running = ["isolcpus=1".to_owned()];
        let (_, findings) = reconcile(&asked, &[entry("root=a")], &running, 100);
        assert_eq!(
            (findings[0].id.as_str(), findings[0].severity),
            ("boot.elsewhere", Severity::Warning)
        );
        let (_, findings) = reconcile(&asked, &[entry("root=a")], &[], 2000);
        assert_eq!(findings[0].id, "boot.too_long");
    }

    #[test]
    fn nohz_off_is_no_contradiction_to_a_chain_that_sleeps() {
        let (asked, _) = parameters(&machine("0-3"), &wish("2", Mode::SleepingChain)).unwrap();
        assert!(contradictions(&asked, &foreign("nohz=off"), 100).is_empty());
    }

    #[test]
    fn a_boot_is_compared_by_its_effect_and_not_by_its_words_alone() {
        let mut machine = machine("0-3");
        let (asked, _) = parameters(&machine, &wish("2-3", Mode::NeverSleepingCore)).unwrap();
        assert_eq!(compare(&asked, &machine)[0].id, "boot.not_booted");
        machine.kernel.boot_parameters = asked.words();
        machine.isolated = Some("2-3".parse().unwrap());
        machine.nohz_full = Some("2-3".parse().unwrap());
        machine.default_irq_affinity = Some("0-1".parse().unwrap());
        assert_eq!(compare(&asked, &machine), []);
        machine.nohz_full = None;
        let findings = compare(&asked, &machine);
        assert_eq!(findings[0].id, "boot.ignored");
        assert!(findings[0].evidence.contains("is empty, not 2-3"), "{}", findings[0].evidence);
        machine.kernel.boot_parameters.retain(|word| !word.starts_with("irqaffinity"));
        assert!(compare(&asked, &machine).iter().any(|finding| finding.id == "boot.missing"));
    }

    proptest! {
        #[test]
        fn no_plan_takes_the_boot_cpu_or_the_last_one(mask in 0u64..65536, never in any::<bool>()) {
            let machine = machine("0-15");
            let cpus: CpuSet = (0..16).filter(|bit| mask >> bit & 1 == 1).map(CpuId).collect();
            let mode = if never { Mode::NeverSleepingCore } else { Mode::SleepingChain };
            let planned = parameters(&machine, &BootWish { cpus: cpus.clone(), mode, extras: vec![] });
            if mask == 0 || mask & 1 == 1 {
                prop_assert!(planned.is_err());
            } else {
                let (asked, _) = planned.unwrap();
                prop_assert!(asked.housekeeping.contains(CpuId(0)));
                prop_assert!(!asked.housekeeping.intersects(&asked.cpus));
                prop_assert_eq!(asked.housekeeping.union(&asked.cpus), machine.online);
                for word in asked.words() {
                    prop_assert!(!word.contains([' ', '"', '\'', '$', '\\', '#', '\n']));
                }
            }
        }
    }
}
