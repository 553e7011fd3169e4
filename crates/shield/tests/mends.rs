//! Single settings that are added to what is up and taken back one by one, killed at any act.
#![allow(clippy::unwrap_used)] // a test may

mod shielded;

use quiet_shield::{
    ApplyOptions, ErrorKind, WayBack, add, revert, status, up, up_bound, ways_back,
};
use quiet_testing::fake::{Fake, Hierarchy, until_stopped};
use quiet_types::{
    Plan,
    machine::{Policy, Scheduling},
    plan::{Action, Form, Need, Step, Thread},
    shield::{Mechanism, Shield},
};
use shielded::{ALL, is_as_before, plan, set, shielded};
use std::{path::Path, sync::atomic::AtomicBool};

const TIMERS: &str = "/proc/sys/kernel/timer_migration";
const SWAP: &str = "/proc/sys/vm/swappiness";

fn step(action: Action) -> Step {
    Step { action, old: None, why: "because".into(), need: Need::BestEffort }
}

fn write(path: &str, value: &str) -> Step {
    step(Action::Write { path: path.into(), request: None, value: value.into(), form: Form::Text })
}

/// A kernel with two settings and a thread, under nothing but a set of settings that is empty.
fn empty_set() -> (quiet_testing::fake::World, Fake, tempfile::TempDir, std::path::PathBuf) {
    let mut before = quiet_testing::fake::world(Hierarchy::None, 2, &[], &[3, 3]);
    for (path, value) in [(TIMERS, "0"), (SWAP, "60")] {
        before.files.insert(path.into(), value.into());
    }
    let kernel = Fake::new(before.clone());
    let dir = tempfile::tempdir().unwrap();
    let state = dir.path().join("state");
    let interrupt = AtomicBool::new(false);
    let setup = ApplyOptions { state: &state, holder: None, interrupt: &interrupt, confirm: None };
    let shield = Shield {
        cpus: set(""),
        housekeeping: set("0-1"),
        mechanism: Mechanism::Affinity,
        entry: None,
    };
    let nothing = Plan { shield, steps: Vec::new(), ..plan(Hierarchy::None) };
    up(&kernel, &nothing, &setup).unwrap();
    (before, kernel, dir, state)
}

fn mends(kernel: &Fake) -> Vec<Step> {
    let task = &kernel.world.borrow().tasks[&101];
    let thread = Thread { tid: 101, start: task.start, comm: task.comm.clone() };
    let to = Scheduling { policy: Policy::Fifo, priority: 70, nice: 0 };
    vec![write(TIMERS, "1"), write(SWAP, "10"), step(Action::Schedule { thread, to })]
}

fn of<'a>(ways: &'a [WayBack], what: &str) -> &'a WayBack {
    ways.iter().find(|way| way.taken.action.what() == what).unwrap()
}

fn value(kernel: &Fake, path: &str) -> String {
    kernel.world.borrow().files[path].trim().to_owned()
}

#[test]
fn each_mend_is_taken_back_by_itself_and_made_again() {
    let (before, kernel, _dir, state) = empty_set();
    for one in mends(&kernel) {
        let taken = add(&kernel, &state, &[one], None).unwrap();
        assert!(taken.iter().all(|one| one.outcome.holds()), "{taken:?}");
    }
    let raised = kernel.world.borrow().clone();
    for _ in 0..3 {
        let ways = ways_back(&kernel, &state).unwrap();
        assert_eq!(ways.len(), 3, "{ways:#?}");
        add(&kernel, &state, &[of(&ways, TIMERS).back.clone()], None).unwrap();
        assert_eq!((value(&kernel, TIMERS), value(&kernel, SWAP)), ("0".into(), "10".into()));
        assert_eq!(ways_back(&kernel, &state).unwrap().len(), 2);
        assert_eq!(status(&kernel, &state).unwrap().drift, []);
        add(&kernel, &state, &[write(TIMERS, "1")], None).unwrap();
        is_as_before(&kernel, &raised, "made again");
    }
    let ways = ways_back(&kernel, &state).unwrap();
    let all: Vec<Step> = ways.into_iter().map(|way| way.back).collect();
    add(&kernel, &state, &all, None).unwrap();
    is_as_before(&kernel, &before, "all taken back");
    assert_eq!(ways_back(&kernel, &state).unwrap(), []);
    assert!(revert(&kernel, &state).unwrap().unwrap().is_exact());
    is_as_before(&kernel, &before, "reverted");
}

#[test]
fn a_journal_of_many_mends_stays_small() {
    for last in ["1", "0"] {
        let (before, kernel, _dir, state) = empty_set();
        let journal = state.join("journal.jsonl");
        let length = || std::fs::metadata(&journal).unwrap().len();
        let begun = length();
        let toggle = || {
            for one in mends(&kernel) {
                add(&kernel, &state, &[one], None).unwrap();
            }
            for way in ways_back(&kernel, &state).unwrap() {
                add(&kernel, &state, &[way.back], None).unwrap();
            }
        };
        toggle();
        // As after many more of the like.
        let text = std::fs::read_to_string(&journal).unwrap();
        let tail: String = text.chars().skip(begun as usize).collect();
        std::fs::write(&journal, text + &tail.repeat((1 << 20) / tail.len() + 1)).unwrap();
        assert!(length() > 1 << 20);
        add(&kernel, &state, &[write(TIMERS, "1"), write(SWAP, "33")], None).unwrap();
        assert!(length() < begun + 10_000, "{} bytes, {begun} at first", length());
        assert_eq!(status(&kernel, &state).unwrap().drift, []);
        toggle();
        add(&kernel, &state, &[write(TIMERS, last)], None).unwrap();
        assert!(revert(&kernel, &state).unwrap().unwrap().is_exact());
        is_as_before(&kernel, &before, "reverted");
    }
}

#[test]
fn killed_at_any_act_a_revert_puts_back_what_was_before_all() {
    let mut stops = 0;
    for act in 1.. {
        let (before, kernel, _dir, state) = empty_set();
        kernel.stop.set(Some(kernel.acts.get() + act));
        let done = until_stopped(|| {
            add(&kernel, &state, &mends(&kernel), None).unwrap();
            let ways = ways_back(&kernel, &state).unwrap();
            let back: Vec<Step> = ways.into_iter().map(|way| way.back).collect();
            add(&kernel, &state, &back, None).unwrap();
            add(&kernel, &state, &[write(TIMERS, "1")], None).unwrap();
        });
        kernel.stop.set(None);
        stops += u32::from(done.is_none());
        // A revert that is killed as well goes on with the next one.
        for again in 1.. {
            kernel.stop.set(Some(kernel.acts.get() + again));
            let reverted = until_stopped(|| revert(&kernel, &state).unwrap());
            kernel.stop.set(None);
            if reverted.is_some() {
                break;
            }
        }
        is_as_before(&kernel, &before, &format!("killed before act {act}"));
        if done.is_some() {
            break;
        }
    }
    assert!(stops >= 6, "{stops}");
}

#[test]
fn what_others_wrote_since_stays_theirs() {
    let (_, kernel, _dir, state) = empty_set();
    add(&kernel, &state, &[write(SWAP, "10")], None).unwrap();
    let way = ways_back(&kernel, &state).unwrap().remove(0);
    add(&kernel, &state, &[way.back], None).unwrap();
    kernel.world.borrow_mut().files.insert(SWAP.into(), "33".into());
    revert(&kernel, &state).unwrap().unwrap();
    assert_eq!(value(&kernel, SWAP), "33");
}

#[test]
fn settings_are_added_to_a_shield_and_no_shield_is_added_to_anything() {
    for hierarchy in ALL {
        let (mut before, kernel, _dir, state) = shielded(hierarchy, 0);
        for world in [&mut before, &mut *kernel.world.borrow_mut()] {
            world.files.insert(TIMERS.into(), "0".into());
        }
        add(&kernel, &state, &[write(TIMERS, "1")], None).unwrap();
        assert_eq!(status(&kernel, &state).unwrap().drift, []);
        let ways = ways_back(&kernel, &state).unwrap();
        let of: Vec<String> = ways.iter().map(|way| way.taken.action.what()).collect();
        assert_eq!(of, [TIMERS], "{hierarchy:?}: what makes the shield goes with it alone");
        let group = plan(hierarchy).steps.into_iter();
        let group = group.filter(|step| matches!(step.action, Action::Group { .. }));
        for one in group {
            let why = add(&kernel, &state, &[one], None).unwrap_err();
            assert_eq!(why.kind(), ErrorKind::Refused, "{why}");
        }
        assert!(revert(&kernel, &state).unwrap().unwrap().is_exact());
        is_as_before(&kernel, &before, &format!("{hierarchy:?}"));
        let why = add(&kernel, &state, &[write(TIMERS, "1")], None).unwrap_err();
        assert!(why.to_string().contains("nothing is up"), "{why}");
    }
}

#[test]
fn nothing_is_added_to_what_ends_with_its_program() {
    let before = quiet_testing::fake::world(Hierarchy::None, 2, &[], &[3]);
    let kernel = Fake::new(before);
    let dir = tempfile::tempdir().unwrap();
    let state: &Path = &dir.path().join("state");
    let interrupt = AtomicBool::new(false);
    let setup = ApplyOptions { state, holder: None, interrupt: &interrupt, confirm: None };
    up_bound(&kernel, &plan(Hierarchy::None), &setup).unwrap();
    let why = add(&kernel, state, &[write(TIMERS, "1")], None).unwrap_err();
    assert!(why.to_string().contains("ends with that program"), "{why}");
    assert!(revert(&kernel, state).unwrap().unwrap().is_exact());
}
