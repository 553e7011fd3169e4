//! What happens to a shield that is up for months: threads come and go, numbers are given anew, the program is exchanged.
#![allow(clippy::unwrap_used)] // a test may

use quiet_shield::{ApplyOptions, ErrorKind, Planned, Watch, revert, status, up, watch};
use quiet_testing::fake::{Fake, Hierarchy, World, at, world};
use quiet_types::{
    CpuSet, Plan,
    machine::{Policy, Scheduling},
    plan::{
        Action, Form, GroupFile, GroupValue, Need, PLAN_SCHEMA, Return, Reverted, ShieldStanding,
        Step, Thread, Who,
    },
    shield::{Entry, Mechanism, Shield},
};
use std::{
    cell::Cell,
    fs,
    path::{Path, PathBuf},
    sync::atomic::{AtomicBool, Ordering},
    time::Duration,
};

const FIFO: Scheduling = Scheduling { policy: Policy::Fifo, priority: 70, nice: 0 };
const OTHER: Scheduling = Scheduling { policy: Policy::Other, priority: 0, nice: 0 };

fn step(action: Action) -> Step {
    Step { action, old: None, why: "because".into(), need: Need::BestEffort }
}

/// CPU 1 of 2 for the threads `links`.
fn plan(world: &World, links: &[u32]) -> Plan {
    let (cpus, housekeeping): (CpuSet, CpuSet) = ("1".parse().unwrap(), "0".parse().unwrap());
    let set = |name: &str, value: &str| GroupFile {
        name: name.into(),
        value: GroupValue::Is(value.into()),
        form: Form::List,
        need: Need::Essential,
    };
    let mut steps = Vec::new();
    let sets = world.hierarchy == Hierarchy::V1;
    if sets {
        for (name, cpus) in [("rest", "0"), ("shield", "1")] {
            let files = vec![set("cpuset.cpus", cpus), set("cpuset.mems", "0")];
            let path = at(name);
            steps.push(step(Action::Group { path, files, narrow: Vec::new(), unit: None }));
        }
        let (from, to) = (at("tasks"), at("rest/tasks"));
        steps.push(step(Action::MoveTasks { from, to }));
    }
    let who = if sets { Who::KernelThreads } else { Who::Everybody };
    let (off, to) = (cpus.clone(), housekeeping.clone());
    steps.push(step(Action::Confine { who, off, to, spare: Vec::new() }));
    let file = at("shield/tasks");
    for tid in links {
        let Some(task) = world.tasks.get(tid) else { continue };
        let thread = Thread { tid: *tid, start: task.start, comm: task.comm.clone() };
        if sets {
            let (thread, file, mount) = (thread.clone(), file.clone(), at(""));
            steps.push(step(Action::Enter { thread, file, mount }));
        }
        steps.push(step(Action::Pin { thread: thread.clone(), cpus: cpus.clone() }));
        steps.push(step(Action::Schedule { thread, to: FIFO }));
    }
    let mechanism = if sets { Mechanism::SetsV1 } else { Mechanism::Affinity };
    let entry = sets.then_some(Entry { file, whole_process: false });
    Plan {
        schema: PLAN_SCHEMA.into(),
        chain: None,
        mode: Default::default(),
        shield: Shield { cpus, housekeeping, mechanism, entry },
        reasons: Vec::new(),
        links: Vec::new(),
        steps,
        findings: Vec::new(),
    }
}

fn small(hierarchy: Hierarchy) -> World {
    world(hierarchy, 2, &[], &[3, 1, 2])
}

fn raise(kernel: &Fake, plan: &Plan, state: &Path) {
    let interrupt = AtomicBool::new(false);
    up(kernel, plan, &ApplyOptions { state, holder: None, interrupt: &interrupt, confirm: None })
        .unwrap();
}

/// The world before, the kernel under a shield with the link 100, and its state directory.
fn shielded(hierarchy: Hierarchy) -> (World, Fake, tempfile::TempDir, PathBuf) {
    let before = small(hierarchy);
    let kernel = Fake::new(before.clone());
    // In memory, where there is a place: thousands of notes are synced.
    let dir = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap();
    let state = dir.path().join("state");
    raise(&kernel, &plan(&before, &[100]), &state);
    (before, kernel, dir, state)
}

fn is_as_before(kernel: &Fake, before: &World, when: &str) {
    let after = kernel.world.borrow();
    assert_eq!(after.capture(before), before.capture(&after), "{when}");
}

fn refusals(done: &Reverted) -> Vec<String> {
    let refused = done.items.iter().filter_map(|item| match &item.outcome {
        Return::Refused { reason } => Some(reason.clone()),
        _ => None,
    });
    refused.collect()
}

#[test]
fn a_number_that_another_gets_between_the_note_and_the_act_is_not_acted_upon() {
    for hierarchy in [Hierarchy::V1, Hierarchy::None] {
        let before = small(hierarchy);
        for tid in [100, 101, 30] {
            for act in 1.. {
                let kernel = Fake::new(before.clone());
                kernel.reborn.set(Some((act, tid)));
                let dir = tempfile::tempdir().unwrap();
                let state = dir.path().join("state");
                raise(&kernel, &plan(&before, &[100]), &state);
                let at = format!("{hierarchy:?}: {tid} is another before act {act}");
                let acts = kernel.acts.get();
                {
                    let world = kernel.world.borrow();
                    let one = &world.tasks[&tid];
                    if act <= acts {
                        assert_eq!(one.comm, format!("again{tid}"), "{at}");
                        assert_eq!(one.scheduling, OTHER, "{at}");
                        assert_ne!(one.group, "/shield", "{at}");
                        assert_eq!(world.allowed(tid), world.allowed(1), "{at}: {one:?}");
                    }
                }
                let done = revert(&kernel, &state).unwrap().unwrap();
                assert!(done.is_exact(), "{at}: {done:#?}");
                is_as_before(&kernel, &before, &at);
                let world = kernel.world.borrow();
                assert_eq!(
                    world.allowed(tid),
                    world.allowed(if act <= acts { 1 } else { tid }),
                    "{at}"
                );
                if act > acts {
                    break;
                }
            }
        }
    }
}

#[test]
fn what_inherited_a_priority_gives_it_back_and_what_chose_it_keeps_it() {
    for hierarchy in [Hierarchy::V1, Hierarchy::None] {
        for link_ends in [false, true] {
            let (before, kernel, _dir, state) = shielded(hierarchy);
            let (chosen, elsewhere) = {
                let mut world = kernel.world.borrow_mut();
                let child = world.born(100);
                let grandchild = world.born(child);
                let orphan = world.born(child);
                world.tasks.get_mut(&orphan).unwrap().parent = 1;
                // A measurement, started from a shell: it chose CPU and priority by itself.
                let shell = world.born(101);
                let chosen = world.born(shell);
                let like = world.tasks[&100].clone();
                let task = world.tasks.get_mut(&chosen).unwrap();
                (task.asked, task.group, task.scheduling) = (like.asked, like.group, FIFO);
                // A service that runs elsewhere at the same priority.
                let elsewhere = world.born(1);
                world.tasks.get_mut(&elsewhere).unwrap().scheduling = FIFO;
                for tid in [child, grandchild, orphan] {
                    assert_eq!(world.tasks[&tid].scheduling, FIFO);
                }
                if link_ends {
                    world.tasks.remove(&100);
                    world.tasks.get_mut(&child).unwrap().parent = 1;
                }
                (chosen, elsewhere)
            };
            let done = revert(&kernel, &state).unwrap().unwrap();
            let when = format!("{hierarchy:?}, the link ended: {link_ends}: {done:#?}");
            assert!(done.is_exact(), "{when}");
            is_as_before(&kernel, &before, &when);
            let world = kernel.world.borrow();
            for (tid, task) in &world.tasks {
                let wanted = if [chosen, elsewhere].contains(tid) { FIFO } else { OTHER };
                assert_eq!(task.scheduling, wanted, "{tid} {task:?}: {when}");
            }
        }
    }
}

#[test]
fn heirs_are_found_however_often_a_revert_is_killed() {
    heirs_are_found(false);
}

#[test]
fn heirs_of_a_link_that_has_ended_are_found_however_often_a_revert_is_killed() {
    heirs_are_found(true);
}

fn heirs_are_found(link_ends: bool) {
    let (_, kernel, _dir, state) = shielded(Hierarchy::V1);
    let child = kernel.world.borrow_mut().born(100);
    let grandchild = kernel.world.borrow_mut().born(child);
    kernel.world.borrow_mut().born(grandchild);
    if link_ends {
        let mut world = kernel.world.borrow_mut();
        world.tasks.remove(&100);
        world.tasks.get_mut(&child).unwrap().parent = 1;
    }
    let whole = kernel.world.borrow().clone();
    let text = fs::read(state.join("journal.jsonl")).unwrap();
    let acts = kernel.acts.get();
    for act in 1.. {
        fs::write(state.join("journal.jsonl"), &text).unwrap();
        *kernel.world.borrow_mut() = whole.clone();
        kernel.acts.set(acts);
        kernel.stop.set(Some(acts + act));
        let stopped =
            std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| revert(&kernel, &state)));
        kernel.stop.set(None);
        let ended = stopped.is_ok();
        if !ended {
            assert!(revert(&kernel, &state).unwrap().unwrap().is_exact());
        }
        let world = kernel.world.borrow();
        let fifo: Vec<u32> = world
            .tasks
            .iter()
            .filter(|(_, task)| task.scheduling == FIFO)
            .map(|(tid, _)| *tid)
            .collect();
        assert_eq!(fifo, Vec::<u32>::new(), "killed before act {act}");
        drop(world);
        if ended {
            break;
        }
    }
}

/// Replaces `from` in the journal by `to`; the journal as it was.
fn rewrite(state: &Path, from: &str, to: &str) -> String {
    let path = state.join("journal.jsonl");
    let text = fs::read_to_string(&path).unwrap();
    let other = text.replace(from, to);
    assert_ne!(text, other, "{from}");
    fs::write(&path, other).unwrap();
    text
}

#[test]
fn a_journal_that_a_newer_version_began_is_kept_and_its_version_told() {
    let program = format!("\"program\":\"{}\"", env!("CARGO_PKG_VERSION"));
    for (from, to) in [
        ("quietcores.journal/1", "quietcores.journal/2"),
        ("\"mechanism\":\"sets_v1\"", "\"mechanism\":\"by_magic\""),
    ] {
        let (before, kernel, _dir, state) = shielded(Hierarchy::V1);
        let there = kernel.world.borrow().clone();
        let ours = rewrite(&state, from, to);
        rewrite(&state, &program, "\"program\":\"9.9.9\"");
        let newer = fs::read(state.join("journal.jsonl")).unwrap();
        // Now, and after a reboot.
        for boot in ["b0", "b1"] {
            let file = "/proc/sys/kernel/random/boot_id";
            kernel.world.borrow_mut().files.insert(file.into(), boot.into());
            for error in
                [revert(&kernel, &state).unwrap_err(), status(&kernel, &state).unwrap_err(), {
                    let interrupt = AtomicBool::new(false);
                    let setup = ApplyOptions {
                        state: &state,
                        holder: None,
                        interrupt: &interrupt,
                        confirm: None,
                    };
                    up(&kernel, &plan(&there, &[]), &setup).unwrap_err()
                }]
            {
                assert_eq!(error.kind(), ErrorKind::Journal);
                let said = error.to_string();
                assert!(
                    said.contains("quietcores 9.9.9") && said.contains("of that version"),
                    "{said}"
                );
            }
            assert_eq!(fs::read(state.join("journal.jsonl")).unwrap(), newer);
            assert_eq!(
                kernel.world.borrow().capture(&there),
                there.capture(&there).replace("boot_id b0", &format!("boot_id {boot}"))
            );
        }
        kernel.world.borrow_mut().files = there.files.clone();
        fs::write(state.join("journal.jsonl"), ours).unwrap();
        assert!(revert(&kernel, &state).unwrap().unwrap().is_exact());
        is_as_before(&kernel, &before, "by the version that knows it");
    }
}

#[test]
fn a_note_of_a_newer_version_keeps_the_journal_after_all_others_are_undone() {
    for boot in ["b0", "b1"] {
        let (before, kernel, _dir, state) = shielded(Hierarchy::V1);
        let journal = state.join("journal.jsonl");
        let text = fs::read_to_string(&journal).unwrap();
        let note = "{\"record\":\"note\",\"seq\":99,\"change\":{\"change\":\"sorcery\",\"path\":\"/etc/x\"}}\n";
        fs::write(&journal, format!("{text}{note}")).unwrap();
        let said = status(&kernel, &state).unwrap().refused.join("; ");
        assert!(said.contains("unknown variant `sorcery`"), "{said}");
        let file = "/proc/sys/kernel/random/boot_id";
        kernel.world.borrow_mut().files.insert(file.into(), boot.into());
        for _ in 0..2 {
            let done = revert(&kernel, &state).unwrap().unwrap();
            let refused = refusals(&done);
            assert_eq!(refused.len(), 1, "{done:#?}");
            assert!(
                refused[0].contains("unknown variant `sorcery`")
                    && refused[0].contains("revert` of the newest version"),
                "{refused:?}"
            );
            assert!(journal.exists() && !done.is_complete());
        }
        let interrupt = AtomicBool::new(false);
        let setup =
            ApplyOptions { state: &state, holder: None, interrupt: &interrupt, confirm: None };
        let world = kernel.world.borrow().clone();
        let error = up(&kernel, &plan(&world, &[]), &setup).unwrap_err();
        assert!(error.to_string().contains("sorcery"), "{error}");
        if boot == "b0" {
            is_as_before(&kernel, &before, "all but what is not understood");
        }
    }
}

/// Looks `looks` times at what `live` makes of the world before each look.
fn keep(kernel: &Fake, state: &Path, looks: usize, live: &dyn Fn(&mut World, usize) -> Vec<u32>) {
    let interrupt = AtomicBool::new(false);
    let count = Cell::new(0);
    let mut plans = |_: &Shield| {
        count.set(count.get() + 1);
        interrupt.store(count.get() >= looks, Ordering::Relaxed);
        let links = live(&mut kernel.world.borrow_mut(), count.get());
        Ok(Planned { plan: plan(&kernel.world.borrow(), &links), names: Vec::new() })
    };
    watch(Watch {
        kernel,
        state,
        holder: None,
        interrupt: &interrupt,
        every: Duration::ZERO,
        report_only: false,
        plan: &mut plans,
        tell: &mut |_| Ok(()),
    })
    .unwrap();
}

/// A service whose threads live for one look each, ten at a time.
fn short_threads(looks: usize) {
    const AT_ONCE: usize = 10;
    let (before, kernel, _dir, state) = shielded(Hierarchy::V1);
    let journal = state.join("journal.jsonl");
    // What a journal is known by, as long as it stands.
    let first = || fs::read_to_string(&journal).unwrap().lines().next().map(str::to_owned);
    let known = first();
    let largest = Cell::new(0);
    let born: Cell<Vec<u32>> = Cell::default();
    keep(&kernel, &state, looks, &|world, _| {
        largest.set(largest.get().max(fs::metadata(&journal).unwrap().len()));
        for tid in born.take() {
            world.tasks.remove(&tid);
        }
        let tids: Vec<u32> = (0..AT_ONCE).map(|_| world.born(101)).collect();
        for tid in &tids {
            // Numbers are given anew, start times never.
            let mut task = world.tasks.remove(tid).unwrap();
            task.start = u64::from(*tid) * 100;
            world.tasks.insert(1000 + tid % 5000, task);
        }
        let tids: Vec<u32> = tids.iter().map(|tid| 1000 + tid % 5000).collect();
        born.set(tids.clone());
        [&[100], tids.as_slice()].concat()
    });
    println!("{} threads: the journal had {} bytes at most", looks * AT_ONCE, largest.get());
    assert!(largest.get() < 8 << 20, "{} bytes", largest.get());
    assert_eq!(first(), known);
    assert_eq!(status(&kernel, &state).unwrap().state, ShieldStanding::Up);
    let began = std::time::Instant::now();
    let done = revert(&kernel, &state).unwrap().unwrap();
    println!("revert: {:?}", began.elapsed());
    assert!(done.is_exact(), "{done:#?}");
    is_as_before(&kernel, &before, "after many threads");
    let world = kernel.world.borrow();
    for (tid, task) in &world.tasks {
        assert_eq!(task.scheduling, OTHER, "{tid} {task:?}");
        assert!(*tid < 1000 || task.asked == before.tasks[&101].asked, "{tid} {task:?}");
    }
}

#[test]
fn the_journal_of_a_watch_over_short_threads_stays_small_and_all_is_put_back() {
    short_threads(300);
}

#[test]
fn the_journal_of_a_watch_over_200_000_threads_stays_small() {
    if !quiet_testing::is_long() {
        return quiet_testing::skip(quiet_testing::Why::Long("minutes"));
    }
    short_threads(20_000);
}
