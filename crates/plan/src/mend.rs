//! Which findings of an audit the program can mend now, by which steps; and what a person types for the others.

use quiet_types::{
    CpuSet, Finding, Machine, Plan, Severity,
    doctor::{Mend, MendWay},
    plan::{Action, Form, Need, Step, Who},
    shield::{Mechanism, Shield},
};

/// Findings of foreign interrupts where the chain is to be.
const FOREIGN_IRQS: [&str; 3] = ["irq.on_quiet", "irq.net_with_card", "irq.net_far"];

/// Findings about priorities.
const PRIORITIES: [&str; 6] = [
    "sched.priority_order",
    "sched.priority_equal",
    "sched.own_priority",
    "sched.not_real_time",
    "irq.thread_priority",
    "sched.softirq_threads",
];

/// Settings by a part of their path, and the finding that each mends.
const SETTINGS: [(&str, &[&str]); 14] = [
    ("/cpufreq/scaling_governor", &["power.governor", "power.slow_clock"]),
    ("/cpufreq/scaling_min_freq", &["power.governor", "power.slow_clock"]),
    ("/cpufreq/energy_performance_preference", &["power.preference"]),
    ("/power/pm_qos_resume_latency_us", &["power.deep_idle", "power.resume_zero"]),
    ("/kernel/watchdog_cpumask", &["noise.watchdog"]),
    ("/kernel/nmi_watchdog", &["noise.watchdog"]),
    ("/vm/stat_interval", &["noise.statistics"]),
    ("/kernel/numa_balancing", &["noise.numa_balancing"]),
    ("/kernel/timer_migration", &["noise.timers"]),
    ("/mm/ksm/run", &["noise.ksm"]),
    ("/mm/transparent_hugepage/", &["noise.thp"]),
    ("/kernel/sched_rt_runtime_us", &["sched.throttle"]),
    ("/debug/sched/", &["sched.fair_server"]),
    ("/power/control", &["power.usb_suspend"]),
];

const SWAPPINESS_FILE: &str = "/proc/sys/vm/swappiness";
/// Above this the kernel swaps programs out for the sake of files.
const SWAPPINESS: u32 = 10;

/// Every finding with what mends it. `plan` is that of the chain, or of the machine without one; `None` where none can be made.
/// `chain` is what a person types for the chain.
pub fn mends(
    machine: &Machine,
    plan: Option<&Plan>,
    findings: &[Finding],
    chain: &str,
) -> Vec<Mend> {
    let shielding = findings.iter().any(|finding| finding.id == "shield.none");
    let mut given: Vec<Step> = Vec::new();
    let mend = |finding: &Finding| {
        let mut steps = extra(machine, &finding.id);
        if let Some(plan) = plan {
            let own = &plan.shield.cpus;
            let those =
                plan.steps.iter().filter(|step| mends_it(step, &finding.id, shielding, own));
            steps.extend(those.cloned());
        }
        // What an earlier mend offers already is not offered twice.
        steps.retain(|step| !given.contains(step));
        given.extend(steps.iter().cloned());
        let commands = commands(machine, &finding.id, chain);
        let way = match (steps.is_empty(), commands.is_empty()) {
            (false, _) => MendWay::Steps {
                shield: steps.iter().any(|step| matches!(step.action, Action::Group { .. }))
                    || finding.id == "shield.none",
                steps,
            },
            (true, false) => MendWay::Commands { commands },
            (true, true) => MendWay::Hands,
        };
        Mend { finding: finding.clone(), way, usual: finding.severity >= Severity::Warning }
    };
    findings.iter().map(mend).collect()
}

/// The findings that a step of single settings mends, whatever the machine is like.
pub fn mended_by(step: &Step, own: &CpuSet) -> Vec<&'static str> {
    let swappiness = |step: &Step| step.action.what() == SWAPPINESS_FILE;
    let ids = crate::check::CHECKS.iter().map(|check| check.id);
    let is_its = |id: &&'static str| {
        mends_it(step, id, false, own) || *id == "memory.swappiness" && swappiness(step)
    };
    ids.filter(is_its).collect()
}

/// The names of the plan's factors that mend each of these findings, each once, in the order of the plan's steps.
pub fn factors_by_finding(plan: &Plan, findings: &[Finding]) -> Vec<(String, Vec<String>)> {
    let shielding = findings.iter().any(|finding| finding.id == "shield.none");
    let own = &plan.shield.cpus;
    let of = |finding: &Finding| {
        let mut names: Vec<String> = Vec::new();
        for step in plan.steps.iter().filter(|step| mends_it(step, &finding.id, shielding, own)) {
            if let Some(name) = crate::factor_of(plan, step).filter(|name| !names.contains(name)) {
                names.push(name);
            }
        }
        (finding.id.clone(), names)
    };
    findings.iter().map(of).filter(|(_, names)| !names.is_empty()).collect()
}

/// Whether a step mends a finding. Where no CPU is set apart yet, `shield.none` takes in all that sets them apart.
fn mends_it(step: &Step, id: &str, shielding: bool, own: &CpuSet) -> bool {
    let with_shield = shielding && id == "shield.none";
    let setting = |path: &str| SETTINGS.iter().find(|(part, _)| path.contains(part));
    match &step.action {
        Action::Write { path, .. } if setting(path).is_some() => {
            setting(path).is_some_and(|(_, ids)| ids.contains(&id))
        }
        Action::HoldLatency => id == "power.deep_idle" || with_shield,
        Action::Schedule { .. } => PRIORITIES.contains(&id) || with_shield,
        _ if shielding => with_shield,
        Action::Write { path, .. } if path.contains("/virtual/workqueue/") => {
            id == "shield.workqueues"
        }
        Action::Write { path, .. } => {
            path.contains("/proc/irq/default_smp_affinity") && id == "irq.default_mask"
        }
        Action::Confine { who: Who::KernelThreads, .. } => id == "shield.kernel_threads",
        Action::Confine { who: Who::Everybody, .. } => id == "shield.foreign_tasks",
        Action::Irq { cpus, .. } if cpus.is_subset(own) => id == "irq.card_elsewhere",
        Action::Irq { .. } => FOREIGN_IRQS.contains(&id),
        Action::Assign { .. } | Action::Ban { .. } => id == "irq.balance",
        Action::Pin { .. } => ["sched.unpinned", "sched.crowded"].contains(&id),
        // A group is made with all that belongs to it, or not at all; who reads a file of settings is started anew with a shield alone.
        Action::Group { .. }
        | Action::MoveTasks { .. }
        | Action::Enter { .. }
        | Action::DropIn { .. } => false,
    }
}

/// Settings that no shield needs, and that are known here.
fn extra(machine: &Machine, id: &str) -> Vec<Step> {
    let now = machine.text("proc/sys/vm/swappiness").and_then(|text| text.parse::<u32>().ok());
    match (id, now) {
        ("memory.swappiness", Some(now)) if now > SWAPPINESS => vec![Step {
            action: Action::Write {
                path: SWAPPINESS_FILE.into(),
                request: None,
                value: SWAPPINESS.to_string(),
                form: Form::Text,
            },
            old: Some(now.to_string()),
            why: "the kernel swaps programs out later".into(),
            need: Need::BestEffort,
        }],
        _ => Vec::new(),
    }
}

/// What a person types, where the program does not do it by itself.
fn commands(machine: &Machine, id: &str, chain: &str) -> Vec<String> {
    let limits = |line: &str| {
        format!("echo '{line}' | sudo tee -a /etc/security/limits.d/95-quietcores.conf")
    };
    let persist = |more: &str| format!("sudo quietcores persist {chain}{more}");
    let reboot = || "sudo reboot".to_owned();
    match id {
        "limits.rtprio" => vec![limits("@audio - rtprio 95")],
        "limits.memlock" => vec![limits("@audio - memlock unlimited")],
        "limits.group" => vec!["sudo usermod -aG audio \"$USER\"".into()],
        "kernel.threadirqs" => vec![persist(" --with threadirqs"), reboot()],
        "boot.rcu_callbacks" | "boot.managed_irq" => vec![persist(""), reboot()],
        "shield.not_persistent" => vec![persist("")],
        "boot.not_booted" => vec![reboot()],
        "noise.firmware_timer" => {
            vec!["sudo systemctl disable --now fwupd-refresh.timer".into()]
        }
        "kernel.preemption" if machine.kernel.version.contains("PREEMPT_DYNAMIC") => {
            vec!["echo full | sudo tee /sys/kernel/debug/sched/preempt".into()]
        }
        _ => Vec::new(),
    }
}

/// The plan of the mends that were chosen: its steps in the order of `plan`. Without the shield's they are single settings, under a
/// shield of no CPU.
pub fn mending(machine: &Machine, plan: Option<&Plan>, chosen: &[&MendWay]) -> Option<Plan> {
    let mut steps: Vec<Step> = Vec::new();
    let mut shielded = false;
    for way in chosen {
        let MendWay::Steps { steps: more, shield } = way else { continue };
        shielded |= shield;
        steps.extend(more.iter().filter(|step| !steps.contains(step)).cloned().collect::<Vec<_>>());
    }
    if steps.is_empty() {
        return None;
    }
    let place = |step: &Step| plan.and_then(|plan| plan.steps.iter().position(|one| one == step));
    steps.sort_by_key(|step| place(step).unwrap_or(usize::MAX));
    let whole = plan.filter(|_| shielded);
    let settings = Shield {
        cpus: CpuSet::new(),
        housekeeping: machine.online.clone(),
        mechanism: Mechanism::Affinity,
        entry: None,
    };
    Some(Plan {
        schema: quiet_types::plan::PLAN_SCHEMA.into(),
        chain: whole.and_then(|plan| plan.chain.clone()),
        mode: plan.map_or_else(Default::default, |plan| plan.mode),
        shield: whole.map_or(settings, |plan| plan.shield.clone()),
        links: whole.map_or_else(Vec::new, |plan| plan.links.clone()),
        reasons: Vec::new(),
        steps,
        findings: Vec::new(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::check::{check, tests::good};
    use quiet_types::Chain;

    fn put(machine: &mut Machine, path: &str, value: &str) {
        machine.settings.insert(path.into(), value.into());
    }

    fn of(machine: &Machine) -> (Plan, Vec<Mend>) {
        let plan = crate::plan(machine, &Chain::default()).unwrap();
        let found = check(machine, None);
        let mends = mends(machine, Some(&plan), &found, "room.toml");
        (plan, mends)
    }

    fn mend<'a>(mends: &'a [Mend], id: &str) -> &'a Mend {
        mends.iter().find(|mend| mend.finding.id == id).unwrap_or_else(|| {
            panic!("no {id} in {:?}", mends.iter().map(|m| &m.finding.id).collect::<Vec<_>>())
        })
    }

    fn paths(way: &MendWay) -> Vec<String> {
        match way {
            MendWay::Steps { steps, .. } => steps.iter().map(|step| step.action.what()).collect(),
            other => panic!("{other:?}"),
        }
    }

    /// Nothing set apart, and a few settings that stand in the way.
    fn open() -> Machine {
        let mut machine = good::machine();
        machine.isolated = Some(CpuSet::new());
        machine.cgroups.v2_isolated = Some(CpuSet::new());
        machine.cgroups.groups.retain(|group| group.path.is_root());
        for task in &mut machine.tasks {
            task.allowed = machine.online.clone();
        }
        put(&mut machine, "proc/sys/kernel/timer_migration", "0");
        put(&mut machine, "proc/sys/vm/swappiness", "60");
        put(&mut machine, "sys/kernel/mm/ksm/run", "1");
        machine
    }

    #[test]
    fn single_settings_are_mended_without_a_shield_and_in_the_order_of_the_plan() {
        let machine = open();
        let (plan, mends) = of(&machine);
        let timers = mend(&mends, "noise.timers");
        assert_eq!(paths(&timers.way), ["/proc/sys/kernel/timer_migration"]);
        let ksm = mend(&mends, "noise.ksm");
        let chosen = mending(&machine, Some(&plan), &[&ksm.way, &timers.way]).unwrap();
        assert!(chosen.shield.cpus.is_empty() && chosen.links.is_empty());
        let done: Vec<String> = chosen.steps.iter().map(|step| step.action.what()).collect();
        assert_eq!(done, ["/proc/sys/kernel/timer_migration", "/sys/kernel/mm/ksm/run"]);
        assert_eq!(mending(&machine, Some(&plan), &[]), None);
    }

    #[test]
    fn the_shield_is_one_mend_with_every_step_that_sets_cpus_apart() {
        let machine = open();
        let (plan, mends) = of(&machine);
        let none = mend(&mends, "shield.none");
        let MendWay::Steps { steps, shield: true } = &none.way else { panic!("{none:?}") };
        assert!(none.usual && steps.iter().any(|step| matches!(step.action, Action::Group { .. })));
        assert!(steps.iter().all(|step| !step.action.what().contains("timer_migration")));
        let chosen = mending(&machine, Some(&plan), &[&none.way]).unwrap();
        assert_eq!((&chosen.shield, chosen.steps.len()), (&plan.shield, steps.len()));
    }

    /// The oracle: every step of a plan belongs to one mend at most, and a setting that the audit finds wrong is offered.
    #[test]
    fn no_step_is_offered_twice_and_each_is_one_of_the_plans_or_known() {
        let machine = open();
        let (plan, mends) = of(&machine);
        let mut seen: Vec<&Step> = Vec::new();
        for mend in &mends {
            let MendWay::Steps { steps, .. } = &mend.way else { continue };
            for step in steps {
                assert!(!seen.contains(&step), "{step:?}");
                let known = step.action.what() == "/proc/sys/vm/swappiness";
                assert!(known || plan.steps.contains(step), "{step:?}");
                seen.push(step);
            }
        }
        assert!(seen.iter().any(|step| step.action.what() == "/proc/sys/vm/swappiness"));
    }

    #[test]
    fn what_needs_a_login_or_a_reboot_is_a_command_and_the_rest_is_said() {
        let machine = Machine::default();
        let way = |id: &str| {
            let finding = Finding::new(Severity::Problem, id, "x");
            mends(&machine, None, &[finding], "room.toml").remove(0).way
        };
        let commands = |id: &str| match way(id) {
            MendWay::Commands { commands } => commands,
            other => panic!("{other:?}"),
        };
        assert!(commands("limits.rtprio")[0].contains("@audio - rtprio 95"));
        let wanted = ["sudo quietcores persist room.toml --with threadirqs", "sudo reboot"];
        assert_eq!(commands("kernel.threadirqs"), wanted);
        assert_eq!(way("noise.smi"), MendWay::Hands);
        // Without a plan nothing can be taken.
        assert_eq!(way("shield.none"), MendWay::Hands);
    }

    #[test]
    fn every_finding_that_is_named_here_is_one_of_the_audit() {
        let known = |id: &&str| crate::check::CHECKS.iter().any(|check| check.id == *id);
        let named = SETTINGS.iter().flat_map(|(_, ids)| ids.iter());
        let missing: Vec<&&str> =
            FOREIGN_IRQS.iter().chain(&PRIORITIES).chain(named).filter(|id| !known(id)).collect();
        assert!(missing.is_empty(), "{missing:?}");
    }
}
