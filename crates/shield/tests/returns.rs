//! What goes up comes down: `revert(apply(x)) = x`, also when stopped or refused at any act.
#![allow(clippy::unwrap_used)] // a test may

use proptest::prelude::*;
use quiet_shield::{ApplyOptions, ErrorKind, make_way, revert, status, up};
use quiet_testing::fake::{
    EBUSY, EINVAL, EIO, ENOSPC, EPERM, Fake, Group, Hierarchy, MOUNT, SETTINGS, Temper, World, at,
    strays, until_stopped, world,
};
use quiet_types::{
    CpuId, CpuSet, Plan,
    machine::{Policy, Scheduling},
    plan::{
        Action, Form, GroupFile, GroupValue, Narrow, Need, Outcome, PLAN_SCHEMA, PutBack, Resident,
        Return, Reverted, ShieldStanding, Step, Thread, UserUnit, Who,
    },
    shield::{Entry, Mechanism, Shield},
};
use std::{path::Path, sync::atomic::AtomicBool};

fn step(need: Need, action: Action) -> Step {
    Step { action, old: None, why: String::new(), need }
}

fn write(need: Need, path: String, value: String, form: Form) -> Step {
    let request = path
        .ends_with("workqueue/cpumask")
        .then(|| "/sys/devices/virtual/workqueue/cpumask_requested".to_owned());
    step(need, Action::Write { path, request, value, form })
}

fn group(name: &str, files: &[(&str, String, Form)]) -> Step {
    let files = files
        .iter()
        .map(|(name, value, form)| GroupFile {
            name: (*name).to_owned(),
            value: match value.strip_prefix("=") {
                Some(other) => GroupValue::SameAs(other.to_owned()),
                None => GroupValue::Is(value.clone()),
            },
            form: *form,
            need: Need::Essential,
        })
        .collect();
    step(Need::Essential, Action::Group { path: at(name), files, narrow: Vec::new(), unit: None })
}

/// Every kind of step there is, in the order that works.
fn plan(world: &World, cpus: CpuSet) -> Plan {
    let rest = world.all.difference(&cpus);
    let (mechanism, file) = match world.hierarchy {
        Hierarchy::V1 => (Mechanism::SetsV1, "tasks"),
        Hierarchy::V2 => (Mechanism::PartitionV2, "cgroup.procs"),
        Hierarchy::None => (Mechanism::Affinity, ""),
    };
    let mut steps = vec![write(
        Need::BestEffort,
        "/proc/irq/default_smp_affinity".into(),
        rest.to_mask(),
        Form::Mask,
    )];
    let narrow = |name: &str| {
        let path = format!("{MOUNT}/{name}/cpuset.cpus");
        write(Need::BestEffort, path, rest.to_string(), Form::List)
    };
    match mechanism {
        Mechanism::SetsV1 => {
            let mems = ("cpuset.mems", format!("={MOUNT}/cpuset.mems"), Form::List);
            let set = |cpus: &CpuSet| ("cpuset.cpus", cpus.to_string(), Form::List);
            let balance = ("cpuset.sched_load_balance", "0".to_owned(), Form::Text);
            steps.push(group("rest", &[set(&rest), mems.clone()]));
            steps.push(group("shield", &[set(&cpus), mems, balance]));
            let (from, to) = (at("tasks"), at("rest/tasks"));
            steps.push(step(Need::BestEffort, Action::MoveTasks { from, to }));
            steps.push(narrow("boxes/one"));
            steps.push(narrow("boxes"));
            let path = format!("{MOUNT}/cpuset.sched_load_balance");
            steps.push(write(Need::BestEffort, path, "0".into(), Form::Text));
        }
        Mechanism::PartitionV2 => {
            if !world.systemd {
                let path = format!("{MOUNT}/cgroup.subtree_control");
                steps.push(write(Need::Essential, path, "+cpuset".into(), Form::Word));
                steps.push(narrow("boxes"));
            }
            let set = ("cpuset.cpus", cpus.to_string(), Form::List);
            let partition = ("cpuset.cpus.partition", "isolated".to_owned(), Form::Partition);
            let mut made = group("shield", &[set, partition]);
            if let (true, Action::Group { unit, .. }) = (world.systemd, &mut made.action) {
                *unit = Some(format!("[Slice]\nAllowedCPUs={cpus}\nCPUSetPartition=isolated\n"));
            }
            steps.push(made);
        }
        Mechanism::Affinity => {}
    }
    let path = "/sys/devices/virtual/workqueue/cpumask".to_owned();
    steps.push(write(Need::BestEffort, path, rest.to_mask(), Form::Mask));
    let who = if file.is_empty() { Who::Everybody } else { Who::KernelThreads };
    let (off, to) = (cpus.clone(), rest.clone());
    steps.push(step(Need::BestEffort, Action::Confine { who, off, to, spare: Vec::new() }));
    for number in world.irqs.keys() {
        let (number, name, cpus) = (*number, String::new(), rest.clone());
        steps.push(step(Need::BestEffort, Action::Irq { number, name, cpus }));
    }
    if let Some(player) = world.tasks.get(&100) {
        let thread = Thread { tid: 100, start: player.start, comm: player.comm.clone() };
        if !file.is_empty() {
            let (file, mount) = (at("shield").join(file), at(""));
            let thread = thread.clone();
            steps.push(step(Need::BestEffort, Action::Enter { thread, file, mount }));
        }
        let one: CpuSet = cpus.first().into_iter().collect();
        steps.push(step(Need::BestEffort, Action::Pin { thread: thread.clone(), cpus: one }));
        let to = Scheduling { policy: Policy::Fifo, priority: 80, nice: 0 };
        steps.push(step(Need::BestEffort, Action::Schedule { thread, to }));
    }
    let entry = (!file.is_empty())
        .then(|| Entry { file: at("shield").join(file), whole_process: file != "tasks" });
    Plan {
        schema: PLAN_SCHEMA.into(),
        chain: None,
        mode: Default::default(),
        shield: Shield { cpus, housekeeping: rest, mechanism, entry },
        links: Vec::new(),
        reasons: Vec::new(),
        steps,
        findings: Vec::new(),
    }
}

fn apply(
    kernel: &Fake,
    plan: &Plan,
    state: &Path,
) -> quiet_shield::Result<quiet_types::plan::Applied> {
    let interrupt = AtomicBool::new(false);
    up(kernel, plan, &ApplyOptions { state, holder: None, interrupt: &interrupt, confirm: None })
}

struct Bench {
    before: World,
    kernel: Fake,
    plan: Plan,
    dir: tempfile::TempDir,
}

impl Bench {
    fn new(before: &World, shield: &CpuSet) -> Bench {
        Bench {
            before: before.clone(),
            kernel: Fake::new(before.clone()),
            plan: plan(before, shield.clone()),
            dir: tempfile::tempdir().unwrap(),
        }
    }

    fn state(&self) -> std::path::PathBuf {
        self.dir.path().join("state")
    }

    /// Reverts without faults, and compares.
    fn returns(&self, when: &str) {
        self.kernel.stop.set(None);
        self.kernel.refuse.set(None);
        let done = revert(&self.kernel, &self.state()).unwrap();
        let after = self.kernel.world.borrow();
        let (now, then) = (after.capture(&self.before), self.before.capture(&after));
        assert_eq!(now, then, "{when}: {done:#?}");
        let odd =
            |outcome: &Return| matches!(outcome, Return::Left { .. } | Return::Refused { .. });
        let items = done.map(|done| done.items).unwrap_or_default();
        let odd: Vec<_> = items.iter().filter(|item| odd(&item.outcome)).collect();
        assert!(odd.is_empty(), "{when}: {odd:?}");
        assert_eq!(strays(&after, &self.before), Default::default(), "{when}");
        for (tid, task) in after.tasks.iter().filter(|(tid, _)| **tid >= 1000) {
            let parent = self.before.tasks.get(&task.parent);
            if parent.is_some() && after.tasks.contains_key(&task.parent) {
                assert_eq!(after.allowed(*tid), after.allowed(task.parent), "{when}: born {tid}");
            }
        }
    }
}

fn tempers() -> impl Strategy<Value = Temper> {
    prop_oneof![
        4 => Just(Temper::Moves),
        2 => Just(Temper::MovesLater),
        1 => Just(Temper::Refuses(EPERM)),
        1 => Just(Temper::Refuses(EIO)),
        1 => Just(Temper::Refuses(EINVAL)),
        1 => Just(Temper::Ignores),
        1 => Just(Temper::Vanishes),
    ]
}

/// Facts from which a machine is made.
#[derive(Clone, Debug)]
struct Case {
    hierarchy: Hierarchy,
    systemd: bool,
    count: u32,
    tempers: Vec<Temper>,
    masks: Vec<u32>,
    shield: u32,
}

impl Case {
    fn world(&self) -> World {
        let mut world = world(self.hierarchy, self.count, &self.tempers, &self.masks);
        world.systemd = self.systemd && self.hierarchy == Hierarchy::V2;
        world.claims = world.systemd;
        world
    }

    /// Some CPUs, not all.
    fn shield(&self) -> CpuSet {
        let cpus: CpuSet =
            (0..self.count).filter(|cpu| self.shield >> cpu & 1 == 1).map(CpuId).collect();
        if cpus.is_empty() || cpus.len() == self.count as usize {
            [CpuId(self.shield % self.count)].into_iter().collect()
        } else {
            cpus
        }
    }

    fn bench(&self) -> Bench {
        Bench::new(&self.world(), &self.shield())
    }
}

fn cases() -> impl Strategy<Value = Case> {
    let hierarchy = prop_oneof![Just(Hierarchy::V1), Just(Hierarchy::V2), Just(Hierarchy::None)];
    let tempers = proptest::collection::vec(tempers(), 0..6);
    let masks = proptest::collection::vec(any::<u32>(), 0..8);
    (hierarchy, any::<bool>(), 2u32..7, tempers, masks, any::<u32>()).prop_map(
        |(hierarchy, systemd, count, tempers, masks, shield)| Case {
            hierarchy,
            systemd,
            count,
            tempers,
            masks,
            shield,
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 60, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn what_goes_up_comes_down(case in cases(), life in proptest::option::of(3u64..9)) {
        let bench = case.bench();
        bench.kernel.life.set(life);
        let applied = apply(&bench.kernel, &bench.plan, &bench.state()).unwrap();
        prop_assert_eq!(applied.steps.len(), bench.plan.steps.len());
        // Children of the chain's own thread are born where it is.
        let intruder = |r: &Resident| r.kind.is_intruder() && r.number < 1000;
        let intruders: Vec<_> = applied.residents.iter().filter(|r| intruder(r)).collect();
        prop_assert!(intruders.is_empty(), "{intruders:?}");
        bench.returns("after a whole apply");
    }

    #[test]
    fn stopped_at_any_act_it_comes_down(case in cases(), at in 0.0f64..1.0) {
        let bench = case.bench();
        apply(&bench.kernel, &bench.plan, &bench.state()).unwrap();
        let acts = bench.kernel.acts.get();
        let bench = case.bench();
        bench.kernel.stop.set(Some(1 + (at * acts as f64) as u64));
        let done = until_stopped(|| apply(&bench.kernel, &bench.plan, &bench.state()));
        prop_assert!(done.is_none() || at * acts as f64 >= acts as f64);
        let seen = status(&bench.kernel, &bench.state()).unwrap();
        prop_assert_eq!(seen.state, ShieldStanding::Leftover);
        let again = apply(&bench.kernel, &bench.plan, &bench.state()).unwrap_err();
        prop_assert_eq!(again.kind(), ErrorKind::Leftover);
        bench.returns("after a stop");
    }

    #[test]
    fn stopped_while_coming_down_it_comes_down(
        case in cases(), first in 0u64..60, second in 0u64..60,
    ) {
        let bench = case.bench();
        apply(&bench.kernel, &bench.plan, &bench.state()).unwrap();
        for more in [first, second] {
            bench.kernel.stop.set(Some(bench.kernel.acts.get() + 1 + more));
            let _ = until_stopped(|| revert(&bench.kernel, &bench.state()));
        }
        bench.returns("after two stops of revert");
    }

    #[test]
    fn with_any_act_refused_it_comes_down(
        case in cases(),
        at in 1u64..80,
        code in prop_oneof![Just(EPERM), Just(EIO), Just(EINVAL), Just(ENOSPC), Just(EBUSY)],
    ) {
        let bench = case.bench();
        bench.kernel.refuse.set(Some((at, code)));
        match apply(&bench.kernel, &bench.plan, &bench.state()) {
            Err(error) => {
                prop_assert_eq!(error.kind(), ErrorKind::Step);
                prop_assert!(error.rolled_back().is_some());
            }
            Ok(applied) if at <= bench.kernel.acts.get() => {
                // The refused act belongs to a step that says so.
                let odd = |o: &Outcome| !matches!(o, Outcome::Done { .. } | Outcome::Already);
                prop_assert!(applied.steps.iter().any(|taken| odd(&taken.outcome)));
            }
            Ok(_) => {}
        }
        bench.returns("after a refusal");
    }

    #[test]
    fn a_refused_revert_keeps_the_journal_and_can_be_run_again(
        case in cases(), at in 1u64..40,
    ) {
        let bench = case.bench();
        apply(&bench.kernel, &bench.plan, &bench.state()).unwrap();
        bench.kernel.refuse.set(Some((bench.kernel.acts.get() + at, EPERM)));
        let _ = revert(&bench.kernel, &bench.state()).unwrap();
        bench.returns("after a refused revert");
    }

    #[test]
    fn a_torn_journal_is_what_was_never_begun(
        case in cases(), at in 0.0f64..1.0, cut in 1usize..200,
    ) {
        let bench = case.bench();
        apply(&bench.kernel, &bench.plan, &bench.state()).unwrap();
        let acts = bench.kernel.acts.get();
        let bench = case.bench();
        bench.kernel.stop.set(Some(1 + (at * acts as f64) as u64));
        if until_stopped(|| apply(&bench.kernel, &bench.plan, &bench.state())).is_some() {
            return Ok(());
        }
        // The last line tells of the act that was not done: as if power was lost in its middle.
        let path = bench.state().join("journal.jsonl");
        let text = std::fs::read_to_string(&path).unwrap();
        let last = text.trim_end().rfind('\n').map_or(0, |end| end + 1);
        let inside_one_note = text[last..].contains("\"note\"")
            && !text[last..].contains("\"move\"")
            && !text[last..].contains("\"affinity\"")
            && !text[last..].contains("\"make\"");
        if !inside_one_note {
            return Ok(());
        }
        std::fs::write(&path, &text[..last + cut.min(text.len() - last - 1)]).unwrap();
        bench.returns("after a torn line");
    }
}

/// cpusets were in use before.
fn boxed(world: &mut World, cpus: &str) {
    world.cpuset_below_root = true;
    world.groups.get_mut("/boxes").unwrap().cpus = cpus.parse().unwrap();
}

fn small() -> (World, CpuSet) {
    let tempers = [Temper::Moves, Temper::Refuses(EPERM), Temper::Ignores, Temper::Vanishes];
    (world(Hierarchy::V1, 2, &tempers, &[3, 1, 2]), "1".parse().unwrap())
}

#[test]
fn refused_and_ignored_interrupts_are_named_and_never_counted_as_done() {
    let (before, shield) = small();
    let bench = Bench::new(&before, &shield);
    let applied = apply(&bench.kernel, &bench.plan, &bench.state()).unwrap();
    let irqs: Vec<&Outcome> = applied
        .steps
        .iter()
        .filter(|taken| matches!(taken.step.action, Action::Irq { .. }))
        .map(|taken| &taken.outcome)
        .collect();
    assert!(matches!(irqs[0], Outcome::Done { .. }), "{irqs:?}");
    let Outcome::Refused { reason } = irqs[1] else { panic!("{irqs:?}") };
    assert!(reason.contains("managed interrupt"), "{reason}");
    assert!(matches!(irqs[2], Outcome::Ignored { .. }), "{irqs:?}");
    assert_eq!(irqs[3], &Outcome::Absent);
    let seen = status(&bench.kernel, &bench.state()).unwrap();
    assert_eq!(seen.refused.len(), 3, "{seen:#?}");
    assert_eq!(seen.drift, []);
    bench.returns("after refusals");
}

#[test]
fn the_cpu_an_interrupt_was_delivered_to_comes_back_too() {
    let before = world(Hierarchy::V1, 4, &[Temper::Moves; 4], &[]);
    let bench = Bench::new(&before, &"2-3".parse().unwrap());
    apply(&bench.kernel, &bench.plan, &bench.state()).unwrap();
    assert_eq!(bench.kernel.world.borrow().irqs[&42].effective.to_string(), "0");
    bench.returns("after a whole apply");
    for (number, irq) in &bench.kernel.world.borrow().irqs {
        assert_eq!(irq.effective, before.irqs[number].effective, "IRQ {number}");
    }
}

/// A shield on CPUs 2-3, and CPU `off` that stops to run before it is taken down.
fn reverted_without(off: &str, forgets: bool) -> (Bench, World, Reverted) {
    let mut before = world(Hierarchy::V2, 4, &[], &[15, 6]);
    before.forgets = forgets;
    // The players live in the root.
    before.groups.remove("/boxes/one");
    before.groups.remove("/boxes");
    before.tasks.retain(|_, task| before.groups.contains_key(&task.group));
    let mut bench = Bench::new(&before, &"2-3".parse().unwrap());
    bench.plan.steps.retain(|step| !step.action.what().contains("boxes"));
    apply(&bench.kernel, &bench.plan, &bench.state()).unwrap();
    let off: CpuSet = off.parse().unwrap();
    bench.kernel.world.borrow_mut().all = before.all.difference(&off);
    let seen = status(&bench.kernel, &bench.state()).unwrap();
    let drifted: Vec<String> = seen.drift.into_iter().map(|drift| drift.what).collect();
    assert_eq!(drifted, off.iter().map(|cpu| format!("CPU {cpu}")).collect::<Vec<_>>());
    let done = revert(&bench.kernel, &bench.state()).unwrap().unwrap();
    (bench, before, done)
}

#[test]
fn a_kernel_that_forgets_cpus_off_line_is_told_of_and_the_rest_is_done_later() {
    for off in ["1", "3", "1,3"] {
        let (bench, before, done) = reverted_without(off, true);
        assert!(!done.is_complete(), "{done:#?}");
        let told: Vec<_> = done
            .items
            .iter()
            .filter_map(|item| match &item.outcome {
                Return::Refused { reason } => Some(format!("{}: {reason}", item.what)),
                _ => None,
            })
            .collect();
        let said = format!("CPU {off} is off line, and this kernel forgets it");
        let of_all = told.iter().find(|line| line.contains(&said) && line.contains(" more: "));
        let of_all = of_all.unwrap_or_else(|| panic!("CPU {off}: {told:#?}"));
        assert!(of_all.contains("init"), "{of_all}");
        // Chosen by somebody meanwhile: not what a revert could have given.
        bench.kernel.world.borrow_mut().tasks.get_mut(&100).unwrap().asked = "0,2".parse().unwrap();
        bench.kernel.world.borrow_mut().all = before.all.clone();
        let done = revert(&bench.kernel, &bench.state()).unwrap().unwrap();
        assert!(done.is_complete(), "CPU {off}: {done:#?}");
        // Nobody can tell it from what is left without CPUs 1 and 3.
        let wanted = if off == "1,3" { "0-3" } else { "0,2" };
        assert_eq!(bench.kernel.world.borrow().tasks[&100].asked.to_string(), wanted, "CPU {off}");
        bench.kernel.world.borrow_mut().tasks.get_mut(&100).unwrap().asked = before.all.clone();
        assert_eq!(bench.kernel.world.borrow().capture(&before), before.capture(&before));
    }
}

#[test]
fn a_kernel_that_remembers_cpus_off_line_lets_a_revert_end() {
    for off in ["1", "3"] {
        let (bench, before, done) = reverted_without(off, false);
        assert!(done.is_complete(), "CPU {off}: {done:#?}");
        bench.kernel.world.borrow_mut().all = before.all.clone();
        assert_eq!(bench.kernel.world.borrow().capture(&before), before.capture(&before));
    }
}

#[test]
fn a_number_that_was_given_to_another_thread_is_left_alone() {
    let (before, shield) = small();
    let bench = Bench::new(&before, &shield);
    apply(&bench.kernel, &bench.plan, &bench.state()).unwrap();
    // The player ends, and somebody else gets its number and is pinned as it was; not by us, who would have put it into the group.
    let other = Scheduling { policy: Policy::Fifo, priority: 80, nice: 0 };
    bench.kernel.world.borrow_mut().tasks.entry(100).and_modify(|task| {
        task.start += 1;
        task.scheduling = other;
        task.group = String::new();
    });
    revert(&bench.kernel, &bench.state()).unwrap();
    assert_eq!(bench.kernel.world.borrow().tasks[&100].scheduling, other);
}

#[test]
fn what_somebody_else_changed_is_left_and_named() {
    let (before, shield) = small();
    let bench = Bench::new(&before, &shield);
    apply(&bench.kernel, &bench.plan, &bench.state()).unwrap();
    let path = "/sys/devices/virtual/workqueue/cpumask_requested";
    bench.kernel.world.borrow_mut().files.insert(path.into(), "2".into());
    let done = revert(&bench.kernel, &bench.state()).unwrap().unwrap();
    let left: Vec<_> =
        done.items.iter().filter(|i| matches!(i.outcome, Return::Left { .. })).collect();
    assert_eq!(left.len(), 1, "{done:#?}");
    assert!(done.is_complete() && !done.is_exact());
    assert_eq!(bench.kernel.world.borrow().files[path], "2");
}

#[test]
fn an_invalid_partition_is_a_failure_with_the_kernels_reason() {
    let mut before = world(Hierarchy::V2, 4, &[], &[15]);
    // A sibling that cannot be narrowed: it has no other CPUs, so the plan leaves it.
    boxed(&mut before, "2-3");
    let mut bench = Bench::new(&before, &"2-3".parse().unwrap());
    bench.plan.steps.retain(|step| !step.action.what().contains("boxes"));
    let error = apply(&bench.kernel, &bench.plan, &bench.state()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Step);
    let said = error.to_string();
    assert!(said.contains("Cpu list in cpuset.cpus not exclusive"), "{said}");
    assert!(said.ends_with("everything done before it was put back"), "{said}");
    bench.returns("after the failure");
}

#[test]
fn a_shield_over_a_shield_is_refused() {
    let (before, shield) = small();
    let bench = Bench::new(&before, &shield);
    apply(&bench.kernel, &bench.plan, &bench.state()).unwrap();
    let error = apply(&bench.kernel, &bench.plan, &bench.state()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::AlreadyUp);
    bench.returns("after the refusal");
}

#[test]
fn a_journal_of_an_earlier_boot_is_closed_and_nothing_is_touched() {
    let (before, shield) = small();
    let bench = Bench::new(&before, &shield);
    apply(&bench.kernel, &bench.plan, &bench.state()).unwrap();
    let fresh = Fake::new(before.clone());
    let boot = "/proc/sys/kernel/random/boot_id";
    fresh.world.borrow_mut().files.insert(boot.into(), "b1".into());
    assert_eq!(status(&fresh, &bench.state()).unwrap().state, ShieldStanding::Rebooted);
    let done = revert(&fresh, &bench.state()).unwrap().unwrap();
    assert!(done.rebooted && done.is_exact());
    assert_eq!(fresh.acts.get(), 0);
    assert_eq!(status(&fresh, &bench.state()).unwrap().state, ShieldStanding::None);
}

#[test]
fn a_boot_that_cannot_be_told_is_no_other_boot() {
    let (before, shield) = small();
    let bench = Bench::new(&before, &shield);
    let file = "/proc/sys/kernel/random/boot_id".to_owned();
    let tell = |id: Option<&str>| {
        let files = &mut bench.kernel.world.borrow_mut().files;
        match id {
            Some(id) => files.insert(file.clone(), id.into()),
            None => files.remove(&file),
        };
    };
    let state = bench.state();
    // Nothing begins that could not be told from what is over.
    tell(None);
    let said = apply(&bench.kernel, &bench.plan, &state).unwrap_err().to_string();
    assert!(said.contains("boot_id"), "{said}");
    assert_eq!(bench.kernel.acts.get(), 0);
    tell(Some("b0"));
    apply(&bench.kernel, &bench.plan, &state).unwrap();
    let acts = bench.kernel.acts.get();
    // No file to be had, and one that is masked.
    for id in [None, Some("")] {
        tell(id);
        assert!(revert(&bench.kernel, &state).is_err(), "{id:?}");
        assert!(make_way(&bench.kernel, &state).is_err(), "{id:?}");
        assert!(apply(&bench.kernel, &bench.plan, &state).is_err(), "{id:?}");
        assert!(status(&bench.kernel, &state).is_err(), "{id:?}");
        assert_eq!(bench.kernel.acts.get(), acts, "{id:?}");
    }
    tell(Some("b0"));
    assert_eq!(status(&bench.kernel, &state).unwrap().state, ShieldStanding::Up);
    bench.returns("once the boot was told again");
}

#[test]
fn a_raised_flag_rolls_back() {
    let (before, shield) = small();
    let bench = Bench::new(&before, &shield);
    let interrupt = AtomicBool::new(true);
    let setup =
        ApplyOptions { state: &bench.state(), holder: None, interrupt: &interrupt, confirm: None };
    let error = up(&bench.kernel, &bench.plan, &setup).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Interrupted);
    assert!(error.rolled_back().unwrap().is_exact());
    bench.returns("after the signal");
}

#[test]
fn the_reasons_of_refused_interrupts_are_told_apart() {
    const EAGAIN: i32 = 11;
    const EOVERFLOW: i32 = 75;
    let told = [
        (EPERM, "managed interrupt"),
        (EIO, "managed interrupt"),
        (EINVAL, "interrupt controller cannot deliver it there"),
        (ENOSPC, "vectors of these CPUs are used up"),
        (EBUSY, "being moved just now"),
        (EAGAIN, "being moved just now"),
        (EOVERFLOW, "does not run"),
    ];
    let tempers = told.map(|(code, _)| Temper::Refuses(code));
    let bench = Bench::new(&world(Hierarchy::V2, 4, &tempers, &[15]), &"3".parse().unwrap());
    let applied = apply(&bench.kernel, &bench.plan, &bench.state()).unwrap();
    let irqs = applied.steps.iter().filter(|t| matches!(t.step.action, Action::Irq { .. }));
    for (taken, (code, says)) in irqs.zip(told) {
        let Outcome::Refused { reason } = &taken.outcome else { panic!("{code}: {taken:?}") };
        assert!(reason.contains(says), "{code}: {reason}");
    }
    bench.returns("after refusals");
}

/// A plan whose partition stands beside a group that names the same CPUs.
fn beside(claims: bool) -> (World, Plan) {
    let mut before = world(Hierarchy::V2, 4, &[], &[15]);
    boxed(&mut before, "0-3");
    before.claims = claims;
    let mut plan = plan(&before, "2-3".parse().unwrap());
    plan.steps.retain(|step| !step.action.what().contains("boxes"));
    for step in &mut plan.steps {
        if let Action::Group { narrow, .. } = &mut step.action {
            let path = at("boxes/cpuset.cpus");
            narrow.push(Narrow { path, value: "0-1".into(), old: "0-3".into() });
        }
    }
    (before, plan)
}

#[test]
fn others_are_narrowed_only_where_the_kernel_refuses_the_claim() {
    for claims in [true, false] {
        let (before, plan) = beside(claims);
        let mut bench = Bench::new(&before, &"2-3".parse().unwrap());
        bench.plan = plan;
        apply(&bench.kernel, &bench.plan, &bench.state()).unwrap();
        let boxes = bench.kernel.world.borrow().groups["/boxes"].cpus.to_string();
        assert_eq!(boxes, if claims { "0-3" } else { "0-1" });
        assert_eq!(bench.kernel.world.borrow().groups["/shield"].partition, "isolated");
        assert_eq!(status(&bench.kernel, &bench.state()).unwrap().drift, []);
        bench.returns("after a claim");
    }
    let acts = {
        let (before, plan) = beside(false);
        let kernel = Fake::new(before);
        apply(&kernel, &plan, &tempfile::tempdir().unwrap().path().join("state")).unwrap();
        kernel.acts.get()
    };
    for act in 1..=acts {
        let (before, plan) = beside(false);
        let mut bench = Bench::new(&before, &"2-3".parse().unwrap());
        bench.plan = plan;
        bench.kernel.stop.set(Some(act));
        assert!(until_stopped(|| apply(&bench.kernel, &bench.plan, &bench.state())).is_none());
        bench.returns("stopped while others are narrowed");
    }
}

/// From Linux 6.8 the kernel takes its unbound work from a partition's CPUs by itself, and where it is killed while it gives them back,
/// it has not.
#[test]
fn work_that_the_kernel_keeps_off_a_partition_that_has_ended_comes_back() {
    let (before, shield) = (world(Hierarchy::V2, 4, &[], &[15, 3]), "2-3".parse().unwrap());
    let queues = |bench: &Bench| {
        let file = |name: &str| {
            bench.kernel.world.borrow().files[&format!("/sys/devices/virtual/workqueue/{name}")]
                .clone()
        };
        (file("cpumask"), file("cpumask_requested"))
    };
    let killed = |before: &World| {
        let mut bench = Bench::new(before, &shield);
        let is_mask = |step: &Step| matches!(&step.action, Action::Write { path, .. } if path.ends_with("workqueue/cpumask"));
        bench.plan.steps.retain(|step| !is_mask(step));
        apply(&bench.kernel, &bench.plan, &bench.state()).unwrap();
        let narrow = before.all.difference(&shield).to_mask();
        let file = "/sys/devices/virtual/workqueue/cpumask".to_owned();
        bench.kernel.world.borrow_mut().files.insert(file, narrow.clone());
        (bench, narrow)
    };
    let (bench, narrow) = killed(&before);
    let all = before.all.to_mask();
    assert_eq!(queues(&bench), (narrow.clone(), all.clone()));
    bench.returns("killed in the kernel");
    assert_eq!(queues(&bench), (all.clone(), all.clone()));

    // Where somebody else isolates CPUs, what is written would bring work there.
    let mut others = before.clone();
    let cpus = "1".parse().unwrap();
    let one = Group { cpus, partition: "isolated".into(), ..others.groups["/boxes"].clone() };
    others.groups.insert("/theirs".into(), one);
    let (bench, narrow) = killed(&others);
    revert(&bench.kernel, &bench.state()).unwrap().unwrap();
    assert_eq!(queues(&bench), (narrow, all));
}

#[test]
fn what_outlives_a_reboot_is_put_back_after_it_and_apply_goes_on() {
    let path = "/etc/default/irqbalance";
    let old = "# bans\nIRQBALANCE_ARGS=-d\n";
    for by in ["apply", "revert", "make_way"] {
        let (mut before, shield) = small();
        before.texts.insert(path.into(), old.into());
        let mut bench = Bench::new(&before, &shield);
        let (name, value) = ("IRQBALANCE_BANNED_CPULIST".into(), "1".into());
        let assign = Action::Assign { path: path.into(), name, value };
        bench.plan.steps.insert(0, step(Need::BestEffort, assign));
        apply(&bench.kernel, &bench.plan, &bench.state()).unwrap();
        let after = bench.kernel.world.borrow().texts.clone();
        assert_eq!(after[path], format!("{old}IRQBALANCE_BANNED_CPULIST=1\n"));
        // Power is lost: the machine is fresh, the disk is not.
        let mut fresh = before.clone();
        fresh.texts = after;
        fresh.files.insert("/proc/sys/kernel/random/boot_id".into(), "b1".into());
        let fresh = Fake::new(fresh);
        if by == "apply" {
            let bare = Plan { steps: Vec::new(), ..bench.plan.clone() };
            apply(&fresh, &bare, &bench.state()).unwrap();
        } else {
            let ways = [("revert", revert as fn(&_, &_) -> _), ("make_way", make_way)];
            let way = ways.into_iter().find(|(name, _)| *name == by).unwrap().1;
            let done: Reverted = way(&fresh, &bench.state()).unwrap().unwrap();
            assert!(done.rebooted && done.is_exact(), "{by}: {done:?}");
            assert_eq!(way(&fresh, &bench.state()).unwrap(), None, "{by}: once");
        }
        assert_eq!(fresh.world.borrow().texts[path], old, "{by}");
    }
}

#[test]
fn a_daemon_that_was_restarted_and_a_file_that_others_changed_are_left() {
    let path = "/etc/default/irqbalance";
    let (mut before, shield) = small();
    before.texts.insert(path.into(), "A=1\n".into());
    let init = before.tasks[&1].clone();
    before.tasks.insert(90, init);
    before.irqbalance = Some((90, "0".parse().unwrap(), CpuSet::new()));
    let mut bench = Bench::new(&before, &shield);
    let daemon = Thread { tid: 90, start: before.tasks[&90].start, comm: "irqbalance".into() };
    let ban = Action::Ban { daemon, cpus: shield.clone() };
    let assign = Action::Assign { path: path.into(), name: "B".into(), value: "1".into() };
    bench.plan.steps.insert(0, step(Need::BestEffort, ban));
    bench.plan.steps.insert(0, step(Need::BestEffort, assign));
    apply(&bench.kernel, &bench.plan, &bench.state()).unwrap();
    {
        let mut world = bench.kernel.world.borrow_mut();
        assert_eq!(world.irqbalance.as_ref().unwrap().1.to_string(), "0-1");
        world.texts.insert(path.into(), "A=1\nB=1\nC=1\n".into());
        world.tasks.remove(&90);
        world.irqbalance = None;
    }
    let done = revert(&bench.kernel, &bench.state()).unwrap().unwrap();
    let of = |what: &str| &done.items.iter().find(|item| item.what.contains(what)).unwrap().outcome;
    assert!(matches!(of("/etc/default"), Return::Left { .. }), "{done:?}");
    assert_eq!(of("bans of"), &Return::Gone);
}

/// What irqbalance planned under our ban it does not carry out over what was put back.
#[test]
fn an_irqbalance_that_scans_meanwhile_hears_first_that_its_ban_ended() {
    let mut before = world(Hierarchy::V2, 4, &[Temper::Moves, Temper::Moves], &[15, 15]);
    let init = before.tasks[&1].clone();
    before.tasks.insert(90, init);
    before.irqbalance = Some((90, CpuSet::new(), CpuSet::new()));
    before.scans = true;
    let mut bench = Bench::new(&before, &"2-3".parse().unwrap());
    let daemon = Thread { tid: 90, start: before.tasks[&90].start, comm: "irqbalance".into() };
    let ban = Action::Ban { daemon, cpus: "2-3".parse().unwrap() };
    bench.plan.steps.insert(0, step(Need::BestEffort, ban));
    apply(&bench.kernel, &bench.plan, &bench.state()).unwrap();
    let done = revert(&bench.kernel, &bench.state()).unwrap().unwrap();
    assert!(done.is_exact(), "{done:?}");
    bench.returns("beside an irqbalance that scans");
}

/// The one who uses cpusets since, and how revert names it.
fn used_since(use_them: impl Fn(&mut World)) -> String {
    let before = world(Hierarchy::V2, 4, &[], &[15, 6, 15, 15]);
    let bench = Bench::new(&before, &"2-3".parse().unwrap());
    apply(&bench.kernel, &bench.plan, &bench.state()).unwrap();
    use_them(&mut bench.kernel.world.borrow_mut());
    let boxes = bench.kernel.world.borrow().groups.clone();
    let done = revert(&bench.kernel, &bench.state()).unwrap().unwrap();
    assert!(done.is_complete() && !done.is_exact(), "{done:#?}");
    let left: Vec<_> = done
        .items
        .iter()
        .filter_map(|item| match &item.outcome {
            Return::Left { now } => Some((item.what.clone(), now.clone())),
            _ => None,
        })
        .collect();
    let [(what, said)] = left.as_slice() else { panic!("{left:?}") };
    assert_eq!(what, &format!("{MOUNT}/cgroup.subtree_control"));
    for (path, group) in boxes.iter().filter(|(path, _)| !["", "/shield"].contains(&path.as_str()))
    {
        let now = &bench.kernel.world.borrow().groups[path];
        // What the shield itself had narrowed is wide again.
        assert!(now.cpus == group.cpus || now.cpus.is_empty(), "{path}: {group:?}, {now:?}");
        assert_eq!(now.passes_on, group.passes_on);
    }
    assert_eq!(status(&bench.kernel, &bench.state()).unwrap().state, ShieldStanding::None);
    // And again: what was there before is no change of ours.
    let before = bench.kernel.world.borrow().clone();
    apply(&bench.kernel, &bench.plan, &bench.state()).unwrap();
    assert!(revert(&bench.kernel, &bench.state()).unwrap().unwrap().is_exact());
    let after = bench.kernel.world.borrow();
    assert_eq!(after.capture(&before), before.capture(&after));
    said.clone()
}

#[test]
fn a_controller_that_others_use_since_stays_and_is_reported() {
    let made = |world: &mut World, path: &str, cpus: &str, passes_on: bool| {
        let (cpus, partition) = (cpus.parse().unwrap(), "member".into());
        let group = Group { cpus, partition, balance: true, passes_on, ..Default::default() };
        world.groups.insert(path.into(), group);
    };
    // A container: its manager passes the controller on, and it is the one who has CPUs.
    let said = used_since(|world| {
        made(world, "/machine", "", true);
        made(world, "/machine/box", "0-1", false);
    });
    assert_eq!(said, format!("cpuset stays with the groups below: used by {MOUNT}/machine/box"));
    // A group right below: the kernel would take its settings away without a word.
    let said = used_since(|world| made(world, "/other", "1", false));
    assert!(said.ends_with(&format!("used by {MOUNT}/other")), "{said}");
    // One that only passes it on.
    let said = used_since(|world| made(world, "/machine", "", true));
    assert!(said.ends_with(&format!("used by {MOUNT}/machine")), "{said}");
    let said = used_since(|world| {
        for name in 0..5 {
            made(world, &format!("/other{name}"), "1", false);
        }
    });
    assert!(said.ends_with("other2 and 2 more"), "{said}");
}

/// A machine whose systemd makes the group.
fn with_systemd() -> World {
    let mut before = world(Hierarchy::V2, 4, &[], &[15]);
    (before.systemd, before.claims) = (true, true);
    before
}

#[test]
fn a_group_that_systemd_makes_comes_down_stopped_or_refused_anywhere() {
    let (before, shield) = (with_systemd(), "2-3".parse().unwrap());
    let bench = Bench::new(&before, &shield);
    apply(&bench.kernel, &bench.plan, &bench.state()).unwrap();
    assert_eq!(bench.kernel.world.borrow().groups["/shield"].partition, "isolated");
    assert_eq!(status(&bench.kernel, &bench.state()).unwrap().drift, []);
    let up = bench.kernel.acts.get();
    revert(&bench.kernel, &bench.state()).unwrap();
    let all = bench.kernel.acts.get();
    bench.returns("after a revert");
    for act in 1..=all {
        for refused in [false, true] {
            let bench = Bench::new(&before, &shield);
            match refused {
                true => bench.kernel.refuse.set(Some((act, EIO))),
                false => bench.kernel.stop.set(Some(act)),
            }
            let raised = until_stopped(|| apply(&bench.kernel, &bench.plan, &bench.state()));
            if act > up && raised.is_some() {
                let _ = until_stopped(|| revert(&bench.kernel, &bench.state()));
            }
            bench.returns(&format!("act {act}, refused: {refused}"));
        }
    }
}

#[test]
fn a_partition_of_systemd_that_is_not_in_force_is_told_and_rolled_back() {
    let mut before = with_systemd();
    boxed(&mut before, "0-3");
    before.claims = false;
    let bench = Bench::new(&before, &"2-3".parse().unwrap());
    let error = apply(&bench.kernel, &bench.plan, &bench.state()).unwrap_err();
    assert!(error.to_string().contains("Cpu list in cpuset.cpus not exclusive"), "{error}");
    bench.returns("after an invalid partition");
}

/// A shield that is put up and taken down while CPU 5 is off line, and comes back after.
fn without_cpu_5(forgets: bool) -> (Reverted, Bench, World) {
    let mut before = world(Hierarchy::V2, 8, &[], &[0xff, 0x3c, 0x30, 0xff]);
    before.files.insert("/sys/devices/system/cpu/present".into(), "0-7".into());
    before.all = "0-4,6-7".parse().unwrap();
    before.forgets = forgets;
    let bench = Bench::new(&before, &"2-3".parse().unwrap());
    apply(&bench.kernel, &bench.plan, &bench.state()).unwrap();
    let done = revert(&bench.kernel, &bench.state()).unwrap().unwrap();
    for world in [&mut before, &mut bench.kernel.world.borrow_mut()] {
        world.all = "0-7".parse().unwrap();
    }
    (done, bench, before)
}

#[test]
fn a_cpu_that_is_off_line_all_the_time_is_nobodys_loss_when_it_comes_back() {
    let (done, bench, before) = without_cpu_5(false);
    assert!(done.is_exact(), "{done:#?}");
    let after = bench.kernel.world.borrow();
    assert_eq!(after.capture(&before), before.capture(&after));
}

#[test]
fn a_kernel_that_forgets_a_cpu_that_was_off_line_before_is_told_of_and_keeps_no_journal() {
    let (done, bench, _) = without_cpu_5(true);
    assert!(done.is_complete() && !done.is_exact(), "{done:#?}");
    let left = |item: &PutBack| match &item.outcome {
        Return::Left { now } => now.contains("CPU 5, off line since before the shield"),
        _ => false,
    };
    assert!(done.items.iter().any(left), "{done:#?}");
    assert_eq!(status(&bench.kernel, &bench.state()).unwrap().state, ShieldStanding::None);
}

/// A file of settings for a service of a user's, which is then started anew.
fn drop_in() -> Step {
    let restart = vec![UserUnit { uid: 1000, unit: "pipewire.service".into() }];
    let (path, text) = (SETTINGS.to_owned(), "context.properties = { }\n".to_owned());
    step(Need::BestEffort, Action::DropIn { path, text, restart })
}

/// What the service read when it was started last.
fn read_last(world: &World) -> Option<String> {
    world.restarted.last().unwrap().1.clone()
}

#[test]
fn a_file_of_settings_comes_and_goes_whole_with_its_directories_stopped_at_any_act() {
    let theirs = "# theirs\n".to_owned();
    for old in [None, Some(theirs)] {
        let mut acts = 1;
        let mut at = 0;
        while at <= acts {
            let (mut before, shield) = small();
            if let Some(old) = &old {
                before.texts.insert(SETTINGS.into(), old.clone());
                before.dirs =
                    ["/etc/pipewire", "/etc/pipewire/pipewire.conf.d"].map(str::to_owned).into();
            }
            let mut bench = Bench::new(&before, &shield);
            bench.plan.steps.push(drop_in());
            bench.kernel.stop.set((at > 0).then_some(at));
            let done = until_stopped(|| apply(&bench.kernel, &bench.plan, &bench.state()));
            bench.kernel.stop.set(None);
            if let Some(done) = done {
                assert_eq!(at, 0, "the knife fell nowhere");
                acts = bench.kernel.acts.get();
                let last = done.unwrap().steps.pop().unwrap();
                let seen = "written; pipewire.service of user 1000 started anew".to_owned();
                assert_eq!(last.outcome, Outcome::Done { seen });
                let world = bench.kernel.world.borrow();
                assert_eq!(read_last(&world).as_deref(), Some("context.properties = { }\n"));
                assert!(world.dirs.contains("/etc/pipewire/pipewire.conf.d"));
            }
            bench.returns(&format!("a drop-in, stopped at act {at}"));
            let world = bench.kernel.world.borrow();
            assert_eq!((&world.texts, &world.dirs), (&before.texts, &before.dirs), "act {at}");
            // Nobody goes on with what the shield had said.
            assert!(world.restarted.is_empty() || read_last(&world) == old, "act {at}");
            at += 1;
        }
        assert!(acts > 10);
    }
}

#[test]
fn a_file_of_settings_that_others_changed_stays_and_who_cannot_be_started_anew_is_named() {
    let (before, shield) = small();
    let mut bench = Bench::new(&before, &shield);
    bench.plan.steps.push(drop_in());
    apply(&bench.kernel, &bench.plan, &bench.state()).unwrap();
    {
        let mut world = bench.kernel.world.borrow_mut();
        world.texts.insert(SETTINGS.into(), "others'\n".into());
        world.texts.insert("/etc/pipewire/client.conf".into(), "others'\n".into());
    }
    let drift = status(&bench.kernel, &bench.state()).unwrap().drift;
    assert!(drift.iter().any(|one| one.what == SETTINGS && one.now.is_some()), "{drift:?}");
    let done = revert(&bench.kernel, &bench.state()).unwrap().unwrap();
    let of = |what: &str| &done.items.iter().find(|item| item.what == what).unwrap().outcome;
    assert!(matches!(of(SETTINGS), Return::Left { .. }) && !done.is_exact(), "{done:?}");
    assert_eq!(bench.kernel.world.borrow().texts[SETTINGS], "others'\n");
    assert_eq!(bench.kernel.world.borrow().restarted.len(), 1);

    let mut bench = Bench::new(&before, &shield);
    bench.plan.steps.push(drop_in());
    bench.kernel.world.borrow_mut().mute = true;
    let last = apply(&bench.kernel, &bench.plan, &bench.state()).unwrap().steps.pop().unwrap();
    let Outcome::Pending { seen } = &last.outcome else { panic!("{last:?}") };
    assert!(seen.contains("systemctl --user restart pipewire.service"), "{seen}");
    let done = revert(&bench.kernel, &bench.state()).unwrap().unwrap();
    let of = |what: &str| &done.items.iter().find(|item| item.what == what).unwrap().outcome;
    assert_eq!(of(SETTINGS), &Return::Restored);
    assert!(matches!(of("pipewire.service of user 1000"), Return::Left { .. }), "{done:?}");
    assert!(done.is_complete() && !done.is_exact());
}

#[test]
fn a_file_of_settings_outlives_a_reboot_and_is_put_back_after_it() {
    let (before, shield) = small();
    let mut bench = Bench::new(&before, &shield);
    bench.plan.steps.push(drop_in());
    apply(&bench.kernel, &bench.plan, &bench.state()).unwrap();
    let mut fresh = before.clone();
    fresh.texts = bench.kernel.world.borrow().texts.clone();
    fresh.dirs = bench.kernel.world.borrow().dirs.clone();
    fresh.files.insert("/proc/sys/kernel/random/boot_id".into(), "b1".into());
    let fresh = Fake::new(fresh);
    let done = revert(&fresh, &bench.state()).unwrap().unwrap();
    assert!(done.rebooted && done.is_exact(), "{done:?}");
    let world = fresh.world.borrow();
    assert!(!world.texts.contains_key(SETTINGS) && world.dirs.is_empty());
    assert_eq!(read_last(&world), None);
}

#[test]
fn where_a_file_of_settings_was_refused_nobody_is_started_anew() {
    let (before, shield) = small();
    let mut refused = 0;
    for act in 1..200 {
        let mut bench = Bench::new(&before, &shield);
        bench.plan.steps.push(drop_in());
        bench.kernel.refuse.set(Some((act, EPERM)));
        let done = apply(&bench.kernel, &bench.plan, &bench.state());
        bench.kernel.refuse.set(None);
        let Ok(done) = done else { continue };
        if !matches!(done.steps.last().unwrap().outcome, Outcome::Refused { .. }) {
            continue;
        }
        refused += 1;
        let done = revert(&bench.kernel, &bench.state()).unwrap().unwrap();
        assert!(done.is_exact(), "act {act}: {done:#?}");
        assert!(bench.kernel.world.borrow().restarted.is_empty(), "act {act}");
    }
    assert!(refused > 0, "no refusal fell on the file");
}
