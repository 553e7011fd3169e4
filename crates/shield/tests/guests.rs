//! Threads that are let into a shield for users, let out again, or turned out half-way; and whose a shield is.
#![allow(clippy::unwrap_used)] // a test may

mod shielded;

use quiet_shield::{
    Entrant, ErrorKind, admit, applied_by, confirm, confirm_own, demote, note_demoted, raised,
    release, revert, revert_own, status,
};
use quiet_testing::fake::{Fake, Hierarchy, at, until_stopped};
use quiet_types::{
    machine::{Policy, Scheduling},
    plan::{Return, ShieldStanding},
};
use shielded::{ALL, ANNA, is_as_before, set, shielded};
use std::path::Path;

const FIFO: Scheduling = Scheduling { policy: Policy::Fifo, priority: 70, nice: 0 };
const OTHER: Scheduling = Scheduling { policy: Policy::Other, priority: 0, nice: 0 };

fn entrant(tid: u32) -> Entrant {
    Entrant { tid, uid: ANNA, cpus: None, scheduling: Some(FIFO), mount: Some(at("")), most: 2 }
}

fn is_there() -> bool {
    true
}

#[test]
fn a_thread_is_let_in_and_out_again_and_the_shield_stays() {
    for hierarchy in ALL {
        let (before, kernel, _dir, state) = shielded(hierarchy, 0);
        let raised_up = kernel.world.borrow().clone();
        let when = format!("{hierarchy:?}");
        for turn in 0..3 {
            let admitted = admit(&kernel, &state, &entrant(100), &is_there).unwrap();
            assert!(admitted.steps.iter().all(|one| one.outcome.holds()), "{admitted:#?}");
            {
                let world = kernel.world.borrow();
                let one = &world.tasks[&100];
                assert_eq!((one.scheduling, one.afresh), (FIFO, true), "{when}");
                assert_eq!(world.allowed(100), set("1"), "{when}");
            }
            assert_eq!(raised(&state).unwrap().len(), 1, "{when}");
            assert_eq!(status(&kernel, &state).unwrap().drift, [], "{when}");
            // In the last turn the shield goes first.
            if turn == 2 {
                break;
            }
            let released = release(&kernel, &state, 100, ANNA).unwrap();
            let refused = |item: &&quiet_types::plan::PutBack| {
                !matches!(item.outcome, Return::Restored | Return::Untouched)
            };
            assert_eq!(released.items.iter().find(refused), None, "{when}");
            is_as_before(&kernel, &raised_up, &when);
            assert_eq!(raised(&state).unwrap(), [], "{when}");
            assert_eq!(status(&kernel, &state).unwrap().drift, [], "{when}");
        }
        assert!(revert(&kernel, &state).unwrap().unwrap().is_exact(), "{when}");
        is_as_before(&kernel, &before, &when);
    }
}

#[test]
fn whoever_turns_out_to_be_anothers_or_has_ended_leaves_nothing_done() {
    for hierarchy in ALL {
        for act in 1.. {
            let (before, kernel, _dir, state) = shielded(hierarchy, 0);
            let raised_up = kernel.world.borrow().clone();
            let acts = kernel.acts.get();
            let when = format!("{hierarchy:?}: another user's before act {act}");
            kernel.turned.set(Some((acts + act, 100)));
            let done = admit(&kernel, &state, &entrant(100), &is_there);
            if kernel.world.borrow().tasks[&100].uid == ANNA {
                done.unwrap();
                assert!(act > 2, "{when}: no act was reached");
                break;
            }
            let why = done.unwrap_err();
            assert_eq!(why.kind(), ErrorKind::Refused, "{when}: {why}");
            assert!(why.to_string().contains("put back"), "{when}: {why}");
            is_as_before(&kernel, &raised_up, &when);
            assert_eq!(raised(&state).unwrap(), [], "{when}");
            assert_eq!(status(&kernel, &state).unwrap().drift, [], "{when}");
            assert!(revert(&kernel, &state).unwrap().unwrap().is_exact(), "{when}");
            is_as_before(&kernel, &before, &when);
        }
        // The thread lives, and who asked for it does not.
        let (_, kernel, _dir, state) = shielded(hierarchy, 0);
        let raised_up = kernel.world.borrow().clone();
        let why = admit(&kernel, &state, &entrant(100), &|| false).unwrap_err();
        assert!(why.to_string().contains("has ended meanwhile"), "{why}");
        is_as_before(&kernel, &raised_up, &format!("{hierarchy:?}"));
    }
}

#[test]
fn killed_at_any_instant_of_letting_in_and_out_a_revert_puts_all_back() {
    for hierarchy in ALL {
        let mut stops = 0;
        for act in 1.. {
            let (before, kernel, _dir, state) = shielded(hierarchy, 0);
            kernel.stop.set(Some(kernel.acts.get() + act));
            let done = until_stopped(|| {
                admit(&kernel, &state, &entrant(100), &is_there).unwrap();
                release(&kernel, &state, 100, ANNA).unwrap();
            });
            kernel.stop.set(None);
            let when = format!("{hierarchy:?}: killed before act {act}");
            if done.is_none() {
                stops += 1;
                // The next call works.
                admit(&kernel, &state, &entrant(101), &is_there).unwrap();
                release(&kernel, &state, 101, ANNA).unwrap();
            }
            assert!(revert(&kernel, &state).unwrap().unwrap().is_exact(), "{when}");
            is_as_before(&kernel, &before, &when);
            if done.is_some() {
                break;
            }
        }
        assert!(stops >= 4, "{hierarchy:?}: {stops}");
    }
}

#[test]
fn who_may_not_is_told_so() {
    let (_, kernel, _dir, state) = shielded(Hierarchy::V2, 0);
    let refused = |done: quiet_shield::Error, says: &str| {
        assert_eq!(done.kind(), ErrorKind::Refused, "{done}");
        assert!(done.to_string().contains(says), "{says}: {done}");
    };
    let bens = Entrant { uid: ANNA + 1, ..entrant(100) };
    refused(admit(&kernel, &state, &bens, &is_there).unwrap_err(), "not a thread of user 1001");
    refused(release(&kernel, &state, 100, ANNA).unwrap_err(), "was not let into the shield");
    admit(&kernel, &state, &entrant(100), &is_there).unwrap();
    refused(release(&kernel, &state, 100, ANNA + 1).unwrap_err(), "not a thread of user 1001");
    admit(&kernel, &state, &entrant(101), &is_there).unwrap();
    refused(admit(&kernel, &state, &entrant(102), &is_there).unwrap_err(), "may have no more");
    // One that has ended is forgotten.
    kernel.world.borrow_mut().tasks.remove(&101);
    admit(&kernel, &state, &entrant(102), &is_there).unwrap();
}

#[test]
fn what_a_guest_starts_has_no_priority_and_one_that_was_demoted_gets_none_again() {
    let (before, kernel, _dir, state) = shielded(Hierarchy::V2, 0);
    admit(&kernel, &state, &entrant(100), &is_there).unwrap();
    let child = kernel.world.borrow_mut().born(100);
    assert_eq!(kernel.world.borrow().tasks[&child].scheduling, OTHER);
    let (thread, _) = raised(&state).unwrap().remove(0);
    let had = demote(&kernel, &thread).unwrap().unwrap();
    note_demoted(&kernel, &state, &[(thread, had)]).unwrap();
    // Never again on the way of a revert.
    for act in 1.. {
        let other = Fake::new(kernel.world.borrow().clone());
        other.stop.set(Some(act));
        let copy = tempfile::tempdir().unwrap();
        let journal = copy.path().join("journal.jsonl");
        std::fs::copy(state.join("journal.jsonl"), &journal).unwrap();
        std::os::unix::fs::chown(copy.path(), None, None).unwrap();
        let done = until_stopped(|| revert(&other, copy.path()).unwrap().unwrap());
        assert_eq!(other.world.borrow().tasks[&100].scheduling, OTHER, "before act {act}");
        if let Some(done) = done {
            assert!(done.is_exact(), "{done:#?}");
            is_as_before(&other, &before, "at last");
            break;
        }
    }
}

/// Guests 100 of `/boxes/one` and 101 of `/boxes`, each with a child, a grandchild and a grandchild whose parent has ended.
fn families(
    hierarchy: Hierarchy,
) -> (Fake, tempfile::TempDir, std::path::PathBuf, Vec<(u32, &'static str)>) {
    let (_, kernel, dir, state) = shielded(hierarchy, 0);
    let mut born = Vec::new();
    for (guest, home) in [(100, "/boxes/one"), (101, "/boxes")] {
        kernel.world.borrow_mut().tasks.get_mut(&guest).unwrap().group = home.into();
        admit(&kernel, &state, &entrant(guest), &is_there).unwrap();
        let mut world = kernel.world.borrow_mut();
        world.tasks.get_mut(&guest).unwrap().leaders = [guest, 0];
        let child = world.born(guest);
        let grandchild = world.born(child);
        let orphan = world.born(child);
        world.tasks.get_mut(&orphan).unwrap().parent = 1;
        born.extend([child, grandchild, orphan].map(|tid| (tid, home)));
        for (tid, _) in &born[born.len() - 3..] {
            assert_eq!(world.tasks[tid].group, "/shield");
        }
    }
    (kernel, dir, state, born)
}

#[test]
fn what_a_guest_has_started_goes_home_at_revert() {
    for hierarchy in [Hierarchy::V1, Hierarchy::V2] {
        for ended in [&[][..], &[100], &[100, 101]] {
            let (kernel, _dir, state, born) = families(hierarchy);
            for tid in ended {
                let mut world = kernel.world.borrow_mut();
                world.tasks.remove(tid);
                world
                    .tasks
                    .values_mut()
                    .filter(|task| task.parent == *tid)
                    .for_each(|task| task.parent = 1);
            }
            let whole = kernel.world.borrow().clone();
            let text = std::fs::read(state.join("journal.jsonl")).unwrap();
            let acts = kernel.acts.get();
            // However often it is killed.
            for act in 1.. {
                *kernel.world.borrow_mut() = whole.clone();
                std::fs::write(state.join("journal.jsonl"), &text).unwrap();
                kernel.acts.set(acts);
                kernel.stop.set(Some(acts + act));
                let done = until_stopped(|| revert(&kernel, &state).unwrap().unwrap());
                kernel.stop.set(None);
                let when = format!("{hierarchy:?}, ended {ended:?}, killed before act {act}");
                if done.is_none() {
                    assert!(revert(&kernel, &state).unwrap().unwrap().is_exact(), "{when}");
                }
                let world = kernel.world.borrow();
                for (tid, home) in &born {
                    assert_eq!(world.tasks[tid].group, *home, "{when}: {tid}");
                }
                if let Some(done) = done {
                    assert!(done.is_exact(), "{when}: {done:#?}");
                    break;
                }
            }
        }
    }
}

#[test]
fn what_has_lost_its_parents_goes_to_the_one_home_there_is_and_else_to_the_group_above() {
    for hierarchy in [Hierarchy::V1, Hierarchy::V2] {
        for (second, wanted) in [(None, "/boxes/one"), (Some("/boxes"), ""), (Some("gone"), "")] {
            let (_, kernel, _dir, state) = shielded(hierarchy, 0);
            kernel.world.borrow_mut().tasks.get_mut(&100).unwrap().group = "/boxes/one".into();
            admit(&kernel, &state, &entrant(100), &is_there).unwrap();
            if let Some(home) = second.filter(|home| *home != "gone") {
                kernel.world.borrow_mut().tasks.get_mut(&101).unwrap().group = home.into();
                admit(&kernel, &state, &entrant(101), &is_there).unwrap();
            }
            let orphan = {
                let mut world = kernel.world.borrow_mut();
                let orphan = world.born(100);
                world.tasks.get_mut(&orphan).unwrap().parent = 1;
                if second == Some("gone") {
                    world.tasks.remove(&100);
                    world.groups.remove("/boxes/one");
                }
                orphan
            };
            let done = revert(&kernel, &state).unwrap().unwrap();
            assert!(done.is_exact(), "{done:#?}");
            assert_eq!(
                kernel.world.borrow().tasks[&orphan].group,
                wanted,
                "{hierarchy:?} {second:?}"
            );
        }
    }
}

#[test]
fn a_journal_of_many_comings_and_goings_stays_small() {
    let (before, kernel, _dir, state) = shielded(Hierarchy::V2, 0);
    let journal = state.join("journal.jsonl");
    let length = || std::fs::metadata(&journal).unwrap().len();
    let begun = length();
    for _ in 0..20 {
        admit(&kernel, &state, &entrant(100), &is_there).unwrap();
        release(&kernel, &state, 100, ANNA).unwrap();
    }
    // As after many more of the like.
    let text = std::fs::read_to_string(&journal).unwrap();
    let tail: String = text.chars().skip(begun as usize).collect();
    let many = tail.repeat((1 << 20) / tail.len() + 1);
    std::fs::write(&journal, text + &many).unwrap();
    assert!(length() > 1 << 20);
    admit(&kernel, &state, &entrant(102), &is_there).unwrap();
    admit(&kernel, &state, &entrant(101), &is_there).unwrap();
    assert!(length() < begun + 10_000, "{} bytes, {begun} at first", length());
    // Who is within when it is made smaller is let out as well as before.
    let text = std::fs::read_to_string(&journal).unwrap();
    std::fs::write(&journal, text + &many).unwrap();
    for tid in [102, 101] {
        release(&kernel, &state, tid, ANNA).unwrap();
    }
    assert!(length() < begun + 10_000, "{} bytes, {begun} at first", length());
    assert_eq!(raised(&state).unwrap(), []);
    assert!(revert(&kernel, &state).unwrap().unwrap().is_exact());
    is_as_before(&kernel, &before, "at last");
}

#[test]
fn the_way_home_is_known_however_much_is_forgotten() {
    for hierarchy in [Hierarchy::V1, Hierarchy::V2] {
        let (kernel, _dir, state, born) = families(hierarchy);
        {
            let mut world = kernel.world.borrow_mut();
            for tid in [100, 101] {
                world.tasks.remove(&tid);
                let children = world.tasks.values_mut().filter(|task| task.parent == tid);
                children.for_each(|task| task.parent = 1);
            }
        }
        let journal = state.join("journal.jsonl");
        let length = || std::fs::metadata(&journal).unwrap().len();
        let begun = length();
        admit(&kernel, &state, &entrant(102), &is_there).unwrap();
        release(&kernel, &state, 102, ANNA).unwrap();
        let text = std::fs::read_to_string(&journal).unwrap();
        let tail: String = text.chars().skip(begun as usize).collect();
        std::fs::write(&journal, text + &tail.repeat((1 << 20) / tail.len() + 1)).unwrap();
        admit(&kernel, &state, &entrant(102), &is_there).unwrap();
        assert!(length() < begun + 10_000, "{} bytes, {begun} at first", length());
        let done = revert(&kernel, &state).unwrap().unwrap();
        assert!(done.is_exact(), "{done:#?}");
        for (tid, home) in born {
            assert_eq!(kernel.world.borrow().tasks[&tid].group, home, "{hierarchy:?}: {tid}");
        }
    }
}

#[test]
fn a_shield_is_taken_down_by_whoever_put_it_up_or_by_root() {
    let own = |kernel: &Fake, state: &Path, uid| revert_own(kernel, state, uid);
    let (before, kernel, _dir, state) = shielded(Hierarchy::V1, ANNA);
    assert_eq!(status(&kernel, &state).unwrap().by.unwrap().to_string(), "user 1000");
    for stranger in [ANNA + 1, 0] {
        let why = own(&kernel, &state, stranger).unwrap_err();
        assert_eq!(why.kind(), ErrorKind::Refused);
        assert!(why.to_string().contains("put up by user 1000"), "{why}");
        assert_eq!(confirm_own(&kernel, &state, stranger).unwrap_err().kind(), ErrorKind::Refused);
    }
    assert_eq!(status(&kernel, &state).unwrap().state, ShieldStanding::Up);
    assert!(!confirm_own(&kernel, &state, ANNA).unwrap() && !confirm(&kernel, &state).unwrap());
    assert!(own(&kernel, &state, ANNA).unwrap().unwrap().is_exact());
    is_as_before(&kernel, &before, "reverted by herself");
    assert_eq!(applied_by(&state).unwrap(), None);
    assert_eq!(own(&kernel, &state, ANNA + 1).unwrap(), None);

    let (_, kernel, _dir, state) = shielded(Hierarchy::V1, 0);
    assert!(own(&kernel, &state, ANNA).unwrap_err().to_string().contains("put up by root"));
    assert!(revert(&kernel, &state).unwrap().unwrap().is_exact());
}

#[test]
fn a_shield_that_an_older_version_put_up_is_nobodys_but_roots() {
    let (_, kernel, _dir, state) = shielded(Hierarchy::V1, ANNA);
    let journal = state.join("journal.jsonl");
    let text = std::fs::read_to_string(&journal).unwrap();
    let older = text.replacen(",\"uid\":1000", "", 1);
    assert_ne!(older, text);
    std::fs::write(&journal, older).unwrap();
    let why = revert_own(&kernel, &state, ANNA).unwrap_err();
    assert!(why.to_string().contains("an earlier version did not note"), "{why}");
    assert!(revert(&kernel, &state).unwrap().unwrap().is_exact());
    // One that was torn within its first line changed nothing, and is anybody's.
    std::fs::write(&journal, &text[..40]).unwrap();
    assert!(revert_own(&kernel, &state, ANNA).unwrap().is_some());
}
