//! What a watch makes of settings that are no kernel files: irqbalance's bans, threads of interrupts.
#![allow(clippy::unwrap_used)] // a test may

use quiet_shield::{ApplyOptions, Entrant, Planned, Watch, admit, revert, status, up, watch};
use quiet_testing::{
    Why,
    fake::{Fake, Hierarchy, MOUNT, SETTINGS, Temper, World, at, world},
    is_root, skip_part,
};
use quiet_types::{
    CpuSet, Plan,
    machine::{Policy, Scheduling},
    plan::{
        Action, Form, GroupFile, GroupValue, Need, Outcome, PLAN_SCHEMA, Return, Step, Thread,
        UserUnit,
    },
    shield::{Mechanism, Shield},
    watch::{Event, Happened},
};
use std::{
    cell::{Cell, RefCell},
    path::Path,
    sync::atomic::{AtomicBool, Ordering},
    time::Duration,
};

const FILE: &str = "/etc/default/irqbalance";

fn plan(world: &World, mechanism: Mechanism, actions: Vec<Action>) -> Plan {
    let cpus: CpuSet = "1".parse().unwrap();
    let step = |action| Step { action, old: None, why: String::new(), need: Need::BestEffort };
    Plan {
        schema: PLAN_SCHEMA.into(),
        chain: None,
        mode: Default::default(),
        shield: Shield { housekeeping: world.all.difference(&cpus), cpus, mechanism, entry: None },
        links: Vec::new(),
        reasons: Vec::new(),
        steps: actions.into_iter().map(step).collect(),
        findings: Vec::new(),
    }
}

fn raise(kernel: &Fake, plan: &Plan, state: &Path) -> Vec<Outcome> {
    let interrupt = AtomicBool::new(false);
    let setup = ApplyOptions { state, holder: None, interrupt: &interrupt, confirm: None };
    let applied = up(kernel, plan, &setup).unwrap();
    applied.steps.into_iter().map(|taken| taken.outcome).collect()
}

/// Looks `looks` times, with the plan that `plan` makes each time, and gives what was told.
fn keep(
    kernel: &Fake,
    state: &Path,
    looks: usize,
    report_only: bool,
    plan: &dyn Fn(&World) -> Plan,
) -> Vec<Happened> {
    let interrupt = AtomicBool::new(false);
    let (told, mut count) = (RefCell::new(Vec::new()), 0);
    let mut plans = |_: &Shield| {
        count += 1;
        interrupt.store(count >= looks, Ordering::Relaxed);
        let now = kernel.world.borrow().clone();
        Ok(Planned { plan: plan(&now), names: Vec::new() })
    };
    let mut tell = |event: &Event| {
        told.borrow_mut().push(event.what.clone());
        Ok(())
    };
    watch(Watch {
        kernel,
        state,
        holder: None,
        interrupt: &interrupt,
        every: Duration::from_millis(1),
        report_only,
        plan: &mut plans,
        tell: &mut tell,
    })
    .unwrap();
    told.into_inner()
}

/// What drift was told of, and what became of it.
fn drift(told: &[Happened]) -> Vec<(String, Option<Outcome>)> {
    let drift = told.iter().filter_map(|what| match what {
        Happened::Drift { step, outcome, .. } => Some((step.action.what(), outcome.clone())),
        _ => None,
    });
    drift.collect()
}

/// An irqbalance of process `tid` that bans CPU `bans` by itself.
fn irqbalance(world: &mut World, tid: u32) {
    let mut task = world.tasks[&1].clone();
    (task.start, task.comm) = (u64::from(tid) * 10, "irqbalance".into());
    world.tasks.insert(tid, task);
    world.irqbalance = Some((tid, CpuSet::new(), CpuSet::new()));
}

/// The plan that bans CPU 1, for whatever daemon runs.
fn bans(world: &World) -> Plan {
    let (tid, task) = world.tasks.iter().find(|(_, task)| task.comm == "irqbalance").unwrap();
    let daemon = Thread { tid: *tid, start: task.start, comm: task.comm.clone() };
    let (name, value) = ("IRQBALANCE_BANNED_CPULIST".into(), "1".into());
    let assign = Action::Assign { path: FILE.into(), name, value };
    let ban = Action::Ban { daemon, cpus: "1".parse().unwrap() };
    plan(world, Mechanism::Affinity, vec![assign, ban])
}

#[test]
fn irqbalance_is_told_again_when_it_was_restarted_and_its_file_rewritten() {
    let mut before = world(Hierarchy::None, 2, &[], &[]);
    before.texts.insert(FILE.into(), "ARGS=-d\n".into());
    irqbalance(&mut before, 90);
    let kernel = Fake::new(before.clone());
    let dir = tempfile::tempdir().unwrap();
    let state = dir.path().join("state");
    raise(&kernel, &bans(&before), &state);
    assert_eq!(status(&kernel, &state).unwrap().drift, []);
    {
        let mut world = kernel.world.borrow_mut();
        world.tasks.remove(&90);
        irqbalance(&mut world, 91);
        world.texts.insert(FILE.into(), "ARGS=--hintpolicy=exact\n".into());
    }
    let found = status(&kernel, &state).unwrap().drift;
    assert_eq!(found.iter().map(|one| one.what.as_str()).collect::<Vec<_>>().len(), 2, "{found:?}");
    // One that only reports tells of the file, and tells the daemon nothing.
    let told = keep(&kernel, &state, 3, true, &bans);
    assert_eq!(drift(&told), [(format!("IRQBALANCE_BANNED_CPULIST in {FILE}"), None)], "{told:?}");
    assert_eq!(kernel.world.borrow().irqbalance.as_ref().unwrap().1, CpuSet::new());

    let told = drift(&keep(&kernel, &state, 3, false, &bans));
    let whats: Vec<&str> = told.iter().map(|(what, _)| what.as_str()).collect();
    assert_eq!(whats.len(), 2, "{told:?}");
    assert!(whats[0].ends_with(FILE) && whats[1].contains("irqbalance"), "{told:?}");
    {
        let world = kernel.world.borrow();
        let text = "ARGS=--hintpolicy=exact\nIRQBALANCE_BANNED_CPULIST=1\n";
        assert_eq!(world.texts[FILE], text);
        assert_eq!(world.irqbalance.as_ref().unwrap().1.to_string(), "1");
    }
    // Neither the daemon that is gone nor the first text counts any more.
    assert_eq!(status(&kernel, &state).unwrap().drift, []);

    let done = revert(&kernel, &state).unwrap().unwrap();
    let world = kernel.world.borrow();
    assert_eq!(world.texts[FILE], "ARGS=--hintpolicy=exact\n", "others' change stays");
    assert_eq!(world.irqbalance.as_ref().unwrap().1, CpuSet::new());
    let refused = |outcome: &Return| matches!(outcome, Return::Refused { .. });
    assert!(!done.items.iter().any(|item| refused(&item.outcome)), "{done:?}");
}

/// The plan of a partition, and an interrupt with its thread on it.
fn served(world: &World) -> Plan {
    let task = &world.tasks[&90];
    let thread = Thread { tid: 90, start: task.start, comm: task.comm.clone() };
    let file = |name: &str, value: &str, form| GroupFile {
        name: name.into(),
        value: GroupValue::Is(value.into()),
        form,
        need: Need::Essential,
    };
    let files = vec![
        file("cpuset.cpus", "1", Form::List),
        file("cpuset.cpus.partition", "isolated", Form::Partition),
    ];
    let (number, cpus): (u32, CpuSet) = (40, "1".parse().unwrap());
    let actions = vec![
        Action::Write {
            path: format!("{MOUNT}/cgroup.subtree_control"),
            request: None,
            value: "+cpuset".into(),
            form: Form::Word,
        },
        Action::Group { path: at("shield"), files, narrow: Vec::new(), unit: None },
        Action::Irq { number, name: String::new(), cpus: cpus.clone() },
        Action::Pin { thread, cpus },
    ];
    plan(world, Mechanism::PartitionV2, actions)
}

#[test]
fn a_thread_that_the_partition_keeps_out_goes_with_its_interrupt() {
    let mut before = world(Hierarchy::V2, 2, &[Temper::MovesLater], &[1]);
    for group in before.groups.values_mut() {
        group.cpus = group.cpus.difference(&"1".parse().unwrap());
    }
    let number = *before.irqs.keys().next().unwrap();
    assert_eq!(number, 40);
    let mut task = before.tasks[&1].clone();
    (task.start, task.kernel, task.comm) = (900, true, "irq/40-snd_hda_".into());
    before.tasks.insert(90, task);
    let kernel = Fake::new(before.clone());
    let dir = tempfile::tempdir().unwrap();
    let state = dir.path().join("state");
    let outcomes = raise(&kernel, &served(&before), &state);
    let pending = outcomes.last().unwrap();
    assert!(matches!(pending, Outcome::Pending { .. }), "{outcomes:?}");
    // While it waits it is no drift, and no news either, however often one looks.
    let seen = status(&kernel, &state).unwrap();
    assert_eq!((seen.drift, seen.refused), (Vec::new(), Vec::new()));
    for report_only in [true, false] {
        let told = keep(&kernel, &state, 8, report_only, &served);
        assert_eq!(drift(&told), [], "{told:?}");
        assert!(!told.iter().any(|what| matches!(what, Happened::Contested { .. })), "{told:?}");
    }
    // The interrupt's own CPUs are, whenever it next fires.
    let rewritten = |times: usize| {
        let mut told = Vec::new();
        for _ in 0..times {
            kernel.world.borrow_mut().irqs.get_mut(&40).unwrap().asked = "0".parse().unwrap();
            told.extend(drift(&keep(&kernel, &state, 1, false, &served)));
        }
        told.into_iter().filter(|(what, _)| what == "IRQ 40").count()
    };
    assert_eq!(rewritten(3), 3);
    revert(&kernel, &state).unwrap();
    let world = kernel.world.borrow();
    assert_eq!(world.capture(&before), before.capture(&world));
}

#[test]
fn an_interrupt_off_the_shield_may_be_moved_among_the_cpus_it_was_left() {
    let before = world(Hierarchy::None, 4, &[Temper::MovesLater], &[]);
    let kernel = Fake::new(before.clone());
    let dir = tempfile::tempdir().unwrap();
    let state = dir.path().join("state");
    let cpus: CpuSet = "0,2-3".parse().unwrap();
    let sent = Action::Irq { number: 40, name: String::new(), cpus };
    raise(&kernel, &plan(&before, Mechanism::Affinity, vec![sent]), &state);
    for (now, drifted) in [("2", false), ("0,3", false), ("1", true), ("1-2", true)] {
        kernel.world.borrow_mut().irqs.get_mut(&40).unwrap().asked = now.parse().unwrap();
        let seen = status(&kernel, &state).unwrap().drift;
        assert_eq!(!seen.is_empty(), drifted, "{now}: {seen:?}");
    }
}

/// A device goes while a watch looks: its interrupt serves nobody and is still there. Then the number is another device's.
#[test]
fn an_interrupt_on_its_way_out_is_left_and_its_number_goes_back_as_the_next_ones() {
    let before = world(Hierarchy::None, 4, &[Temper::MovesLater], &[]);
    let kernel = Fake::new(before.clone());
    let serves = |name: &str| {
        let path = "/sys/kernel/irq/40/actions".to_owned();
        kernel.world.borrow_mut().texts.insert(path, name.into());
    };
    let dir = tempfile::tempdir().unwrap();
    let state = dir.path().join("state");
    let to = |cpus: &str, name: &str| {
        let action = Action::Irq { number: 40, name: name.into(), cpus: cpus.parse().unwrap() };
        plan(&before, Mechanism::Affinity, vec![action])
    };
    serves("card");
    raise(&kernel, &to("1", "card"), &state);
    serves("");
    let told = keep(&kernel, &state, 2, false, &|_| to("0", ""));
    assert_eq!(drift(&told), []);
    assert_eq!(kernel.world.borrow().irqs[&40].asked.to_string(), "1");
    assert_eq!(status(&kernel, &state).unwrap().refused, Vec::<String>::new());
    // Born with what is the default now, served where the next plan wants it, and put back to that.
    serves("network");
    kernel.world.borrow_mut().irqs.get_mut(&40).unwrap().asked = "0,2-3".parse().unwrap();
    keep(&kernel, &state, 2, false, &|_| to("2", "network"));
    assert_eq!(kernel.world.borrow().irqs[&40].asked.to_string(), "2");
    revert(&kernel, &state).unwrap();
    assert_eq!(kernel.world.borrow().irqs[&40].asked.to_string(), "0,2-3");
}

/// A CPU that goes off line while a look writes a mask: the kernel refuses it, or gives the interrupt to the others. Once the CPU is back, it
/// is asked again: by a watch that begins, and by one that is told of the CPU. One that only reports does not call it drift.
#[test]
fn what_was_refused_while_a_cpu_was_away_is_asked_again_once_it_is_back() {
    // Of no network namespace: each watch of this machine is told.
    const EVENT: &str = "/sys/devices/system/cpu/cpu0/uevent";
    let before = world(Hierarchy::None, 4, &[Temper::Moves], &[]);
    let to = |cpus: &str| {
        let action = Action::Irq { number: 40, name: "card".into(), cpus: cpus.parse().unwrap() };
        plan(&before, Mechanism::Affinity, vec![action])
    };
    for away in [Temper::Refuses(22), Temper::Ignores] {
        let kernel = Fake::new(before.clone());
        let answers = |temper| kernel.world.borrow_mut().irqs.get_mut(&40).unwrap().temper = temper;
        let asked = || kernel.world.borrow().irqs[&40].asked.to_string();
        let dir = tempfile::tempdir().unwrap();
        let state = dir.path().join("state");
        raise(&kernel, &to("1"), &state);
        assert_eq!(asked(), "1");

        // What the kernel does as the CPU goes, and what it answers until it is back.
        kernel.world.borrow_mut().irqs.get_mut(&40).unwrap().asked = "0,2-3".parse().unwrap();
        answers(away);
        let told = drift(&keep(&kernel, &state, 1, false, &|_| to("1")));
        let refused = |outcome: &Option<Outcome>| outcome.as_ref().is_some_and(|o| !o.holds());
        assert!(matches!(told.as_slice(), [(_, outcome)] if refused(outcome)), "{told:?}");
        // However often it is asked, nothing more is noted.
        let noted = || std::fs::metadata(state.join("journal.jsonl")).unwrap().len();
        let before_all = noted();
        for _ in 0..20 {
            assert_eq!(drift(&keep(&kernel, &state, 3, false, &|_| to("1"))), []);
        }
        assert_eq!(noted(), before_all);
        assert_eq!(status(&kernel, &state).unwrap().refused.len(), 1);
        answers(Temper::Moves);
        assert_eq!(drift(&keep(&kernel, &state, 2, true, &|_| to("1"))), []);
        let told = drift(&keep(&kernel, &state, 1, false, &|_| to("1")));
        assert!(matches!(told.as_slice(), [(_, Some(Outcome::Done { .. }))]), "{told:?}");
        assert_eq!(asked(), "1");
        assert_eq!(status(&kernel, &state).unwrap().refused, Vec::<String>::new());

        if !is_root() || std::fs::write(EVENT, "change").is_err() {
            skip_part(Why::Machine("no event of a device may be sent here".into()));
            continue;
        }
        kernel.world.borrow_mut().irqs.get_mut(&40).unwrap().asked = "0,2-3".parse().unwrap();
        answers(away);
        let looks = Cell::new(0);
        let told = keep(&kernel, &state, 4, false, &|_| {
            looks.set(looks.get() + 1);
            if looks.get() == 3 {
                answers(Temper::Moves);
                std::fs::write(EVENT, "change").unwrap();
            }
            to("1")
        });
        let is_deaf = |what: &Happened| matches!(what, Happened::Started { missing, .. } if missing.iter().any(|one| one.starts_with("devices")));
        if told.iter().any(is_deaf) {
            skip_part(Why::Machine("no event of a device is to be heard here".into()));
            continue;
        }
        let told = drift(&told);
        assert!(matches!(told.as_slice(), [.., (_, Some(Outcome::Done { .. }))]), "{told:?}");
        assert_eq!(asked(), "1");
    }
}

/// A partition on `cpus`, and a link's thread in it that is pinned to CPU 1; with `repair`, the partition itself is taken care of.
fn linked(world: &World, tid: u32, repair: bool, cpus: &str) -> Plan {
    let thread =
        Thread { tid, start: world.tasks[&tid].start, comm: world.tasks[&tid].comm.clone() };
    let file = |name: &str, value: &str, form| GroupFile {
        name: name.into(),
        value: GroupValue::Is(value.into()),
        form,
        need: Need::Essential,
    };
    let files = vec![
        file("cpuset.cpus", cpus, Form::List),
        file("cpuset.cpus.partition", "isolated", Form::Partition),
    ];
    let path = format!("{MOUNT}/cgroup.subtree_control");
    let given = Action::Write { path, request: None, value: "+cpuset".into(), form: Form::Word };
    let made = Action::Group { path: at("shield"), files, narrow: Vec::new(), unit: None };
    let (file, mount) = (at("shield/cgroup.procs"), at(""));
    let enter = Action::Enter { thread: thread.clone(), file, mount };
    let pin = Action::Pin { thread, cpus: "1".parse().unwrap() };
    let actions = if repair { vec![given, made, enter, pin] } else { vec![enter, pin] };
    plan(world, Mechanism::PartitionV2, actions)
}

/// Somebody took the partition's CPU away, as hotplug does, and a look was in between: it noted CPUs that the thread had only meanwhile,
/// and that no thread of the partition can be given.
#[test]
fn what_a_watch_noted_while_the_partition_was_broken_needs_no_second_revert() {
    // Of a wider one the thread has but a part, which it is to be given again.
    for (born_since, cpus) in [(false, "1"), (true, "1"), (false, "1,3"), (true, "1,3")] {
        let before = world(Hierarchy::V2, 4, &[], &[15]);
        let kernel = Fake::new(before.clone());
        let dir = tempfile::tempdir().unwrap();
        let state = dir.path().join("state");
        raise(&kernel, &linked(&before, 100, true, cpus), &state);
        let tid = if born_since { kernel.world.borrow_mut().born(100) } else { 100 };
        let broken = |cpus: &str, partition: &str| {
            let mut world = kernel.world.borrow_mut();
            let group = world.groups.get_mut("/shield").unwrap();
            (group.cpus, group.partition) = (cpus.parse().unwrap(), partition.into());
        };
        broken("0,2", "isolated invalid (cpuset.cpus is empty)");
        // The kernel forgets what a thread had asked for where none of it runs.
        kernel.world.borrow_mut().tasks.get_mut(&tid).unwrap().asked = before.all.clone();
        let told =
            drift(&keep(&kernel, &state, 1, false, &|world| linked(world, tid, false, cpus)));
        assert!(matches!(told.as_slice(), [(_, Some(Outcome::Refused { .. }))]), "{told:?}");
        let told = drift(&keep(&kernel, &state, 1, false, &|world| linked(world, tid, true, cpus)));
        assert!(told.iter().all(|(_, outcome)| outcome.as_ref().unwrap().holds()), "{told:?}");
        assert_eq!(kernel.world.borrow().groups["/shield"].partition, "isolated");
        assert_eq!(kernel.world.borrow().allowed(tid).to_string(), "1");

        let done = revert(&kernel, &state).unwrap().unwrap();
        assert!(done.is_exact(), "{done:#?}");
        let world = kernel.world.borrow();
        assert_eq!(world.capture(&before), before.capture(&world));
        assert_eq!(world.allowed(tid), before.all, "born since: {born_since}");
    }
}

#[test]
fn a_deadline_thread_keeps_its_budget_whatever_a_plan_says() {
    let mut before = world(Hierarchy::None, 2, &[], &[1]);
    let deadline = Scheduling { policy: Policy::Deadline, priority: 0, nice: 0 };
    before.tasks.get_mut(&100).unwrap().scheduling = deadline;
    let kernel = Fake::new(before.clone());
    let dir = tempfile::tempdir().unwrap();
    let state = dir.path().join("state");
    let task = &before.tasks[&100];
    let thread = Thread { tid: 100, start: task.start, comm: task.comm.clone() };
    let to = Scheduling { policy: Policy::Fifo, priority: 75, nice: 0 };
    let plan = plan(&before, Mechanism::Affinity, vec![Action::Schedule { thread, to }]);
    let outcomes = raise(&kernel, &plan, &state);
    assert!(
        matches!(&outcomes[..], [Outcome::Refused { reason }] if reason.contains("SCHED_DEADLINE"))
    );
    assert_eq!(kernel.world.borrow().tasks[&100].scheduling, deadline);
    revert(&kernel, &state).unwrap().unwrap();
    assert_eq!(kernel.world.borrow().tasks[&100].scheduling, deadline);
}

#[test]
fn who_was_let_into_a_shield_of_plain_affinity_stays_there_and_others_do_not() {
    let mut before = world(Hierarchy::None, 2, &[], &[3, 3, 3]);
    for tid in 100..103 {
        before.tasks.get_mut(&tid).unwrap().uid = 1000;
    }
    let kernel = Fake::new(before.clone());
    let dir = tempfile::tempdir().unwrap();
    let state = dir.path().join("state");
    let set = |text: &str| -> CpuSet { text.parse().unwrap() };
    let confining = |world: &World| {
        let (who, off, to) = (quiet_types::plan::Who::Everybody, set("1"), set("0"));
        let confine = Action::Confine { who, off, to, spare: Vec::new() };
        plan(world, Mechanism::Affinity, vec![confine])
    };
    raise(&kernel, &confining(&before), &state);
    let entrant =
        Entrant { tid: 100, uid: 1000, cpus: None, scheduling: None, mount: None, most: 2 };
    admit(&kernel, &state, &entrant, &|| true).unwrap();
    // Another one goes there by itself.
    kernel.world.borrow_mut().tasks.get_mut(&101).unwrap().asked = set("1");
    keep(&kernel, &state, 3, false, &confining);
    assert_eq!(kernel.world.borrow().allowed(100), set("1"));
    assert_eq!(kernel.world.borrow().allowed(101), set("0"));
    assert!(revert(&kernel, &state).unwrap().unwrap().is_complete());
    assert_eq!(kernel.world.borrow().allowed(100), before.allowed(100));
}

#[test]
fn a_watch_writes_a_file_of_settings_again_and_starts_nobody_anew() {
    let before = world(Hierarchy::None, 2, &[], &[]);
    let kernel = Fake::new(before.clone());
    let dir = tempfile::tempdir().unwrap();
    let state = dir.path().join("state");
    let of = |world: &World| {
        let restart = vec![UserUnit { uid: 1000, unit: "pipewire.service".into() }];
        let action = Action::DropIn { path: SETTINGS.into(), text: "ours\n".into(), restart };
        plan(world, Mechanism::Affinity, vec![action])
    };
    raise(&kernel, &of(&before), &state);
    assert_eq!(kernel.world.borrow().restarted.len(), 1);
    assert_eq!(drift(&keep(&kernel, &state, 2, false, &of)), [], "it holds: a look is a read");
    kernel.world.borrow_mut().texts.remove(SETTINGS);
    assert_eq!(drift(&keep(&kernel, &state, 2, true, &of)), [(SETTINGS.to_owned(), None)]);
    assert!(!kernel.world.borrow().texts.contains_key(SETTINGS));
    let told = drift(&keep(&kernel, &state, 2, false, &of));
    assert!(matches!(&told[..], [(_, Some(Outcome::Done { .. }))]), "{told:?}");
    assert_eq!(kernel.world.borrow().texts[SETTINGS], "ours\n");
    assert_eq!(kernel.world.borrow().restarted.len(), 1, "what plays goes on");
    let done = revert(&kernel, &state).unwrap().unwrap();
    assert!(done.is_exact(), "{done:?}");
    let world = kernel.world.borrow();
    assert!(world.texts == before.texts && world.dirs == before.dirs);
    assert_eq!(world.restarted.last().unwrap().1, None);
}

#[test]
fn a_watch_ends_with_its_shield_though_the_next_one_is_the_same() {
    let before = world(Hierarchy::None, 2, &[], &[]);
    let of = |world: &World| {
        let restart = Vec::new();
        let action = Action::DropIn { path: SETTINGS.into(), text: "ours\n".into(), restart };
        plan(world, Mechanism::Affinity, vec![action])
    };
    // The next shield is put up between two looks, and while a look has begun.
    for at_plan in [1, 2] {
        let kernel = Fake::new(before.clone());
        let dir = tempfile::tempdir().unwrap();
        let state = dir.path().join("state");
        raise(&kernel, &of(&before), &state);
        let count = Cell::new(0);
        let interrupt = AtomicBool::new(false);
        let told = RefCell::new(Vec::new());
        let mut plans = |_: &Shield| {
            count.set(count.get() + 1);
            interrupt.store(count.get() > 5, Ordering::Relaxed);
            if count.get() == at_plan {
                revert(&kernel, &state).unwrap().unwrap();
                raise(&kernel, &of(&before), &state);
                kernel.world.borrow_mut().texts.remove(SETTINGS);
            }
            Ok(Planned { plan: of(&kernel.world.borrow()), names: Vec::new() })
        };
        let mut tell = |event: &Event| {
            told.borrow_mut().push(event.what.clone());
            Ok(())
        };
        watch(Watch {
            kernel: &kernel,
            state: &state,
            holder: None,
            interrupt: &interrupt,
            every: Duration::from_millis(1),
            report_only: false,
            plan: &mut plans,
            tell: &mut tell,
        })
        .unwrap();
        let told = told.into_inner();
        assert_eq!(count.get(), at_plan, "{told:?}");
        let why = told.iter().rev().find_map(|what| match what {
            Happened::Ended { why } => Some(why.as_str()),
            _ => None,
        });
        assert_eq!(why, Some("another shield was put up"), "{told:?}");
        assert!(!kernel.world.borrow().texts.contains_key(SETTINGS), "nothing was put right");
    }
}
