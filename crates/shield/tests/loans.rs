//! CPUs of a shield that are lent, taken back, or reverted meanwhile: at whatever instant somebody is killed.
#![allow(clippy::unwrap_used)] // a test may

mod shielded;

use quiet_shield::{
    Entrant, ErrorKind, LONGEST_LOAN, LoanOptions, admit, lend, overdue, revert, status, take_back,
};
use quiet_testing::fake::{EBUSY, Fake, Hierarchy, at, until_stopped};
use quiet_types::{
    loan::{Lent, LoanEnd, LoanTerms, Reclaimed},
    plan::ShieldStanding,
};
use shielded::{ALL, ANNA, is_as_before, set, shielded};
use std::path::Path;

const FREELY: LoanOptions<'_> = LoanOptions { guard: None, uid: None };

fn terms(seconds: u64) -> LoanTerms {
    LoanTerms { seconds, until_sound: false, unit: None, process: None }
}

fn lend_out(kernel: &Fake, state: &Path) -> Lent {
    lend(kernel, state, &terms(60), FREELY).unwrap()
}

fn take(kernel: &Fake, state: &Path) -> Option<Reclaimed> {
    take_back(kernel, state, LoanEnd::Hand, None).unwrap()
}

/// Whether thread `tid` may run on all CPUs.
fn is_everywhere(kernel: &Fake, tid: u32) -> bool {
    kernel.world.borrow().allowed(tid) == set("0-1")
}

#[test]
fn everybody_has_the_cpus_and_then_nobody_else_again() {
    for hierarchy in ALL {
        let (before, kernel, _dir, state) = shielded(hierarchy, 0);
        let raised_up = kernel.world.borrow().clone();
        let when = format!("{hierarchy:?}");
        assert!(!is_everywhere(&kernel, 100), "{when}");
        assert_eq!(take(&kernel, &state), None, "{when}");
        for _ in 0..3 {
            let lent = lend_out(&kernel, &state);
            assert_eq!((lent.cpus.clone(), lent.renewed), (set("1"), false), "{when}");
            assert!(lent.changes.iter().all(|one| one.refused.is_none()), "{lent:#?}");
            assert!(is_everywhere(&kernel, 100), "{when}");
            let now = status(&kernel, &state).unwrap();
            assert_eq!((now.state, now.drift), (ShieldStanding::Up, vec![]), "{when}");
            let loan = now.loan.unwrap();
            assert!((1..=60).contains(&loan.left) && loan.terms == terms(60), "{loan:?}");
            // Who is born meanwhile goes with all others.
            let child = kernel.world.borrow_mut().born(100);
            let back = take(&kernel, &state).unwrap();
            assert!(back.is_complete(), "{back:#?}");
            assert!(!is_everywhere(&kernel, child), "{when}");
            kernel.world.borrow_mut().tasks.remove(&child);
            is_as_before(&kernel, &raised_up, &when);
            assert_eq!(status(&kernel, &state).unwrap().loan, None, "{when}");
            assert_eq!(status(&kernel, &state).unwrap().drift, [], "{when}");
        }
        lend_out(&kernel, &state);
        assert!(revert(&kernel, &state).unwrap().unwrap().is_exact(), "{when}");
        is_as_before(&kernel, &before, &when);
    }
}

#[test]
fn who_plays_stays_where_he_is() {
    for hierarchy in ALL {
        let (before, kernel, _dir, state) = shielded(hierarchy, 0);
        let entrant = Entrant {
            tid: 100,
            uid: ANNA,
            cpus: None,
            scheduling: None,
            mount: Some(at("")),
            most: 2,
        };
        admit(&kernel, &state, &entrant, &|| true).unwrap();
        lend_out(&kernel, &state);
        assert_eq!(kernel.world.borrow().allowed(100), set("1"), "{hierarchy:?}");
        let (now, then) = (kernel.world.borrow().allowed(101), before.allowed(101));
        assert_eq!(now, then, "{hierarchy:?}");
        assert!(take(&kernel, &state).unwrap().is_complete());
        assert_eq!(kernel.world.borrow().allowed(100), set("1"), "{hierarchy:?}");
        assert!(revert(&kernel, &state).unwrap().unwrap().is_exact(), "{hierarchy:?}");
        is_as_before(&kernel, &before, &format!("{hierarchy:?}"));
    }
}

#[test]
fn killed_at_any_instant_the_next_command_takes_them_back_and_a_revert_puts_all_back() {
    for hierarchy in ALL {
        let mut stops = 0;
        'acts: for act in 1.. {
            for mended in [false, true] {
                let (before, kernel, _dir, state) = shielded(hierarchy, 0);
                let raised_up = kernel.world.borrow().clone();
                kernel.stop.set(Some(kernel.acts.get() + act));
                let done = until_stopped(|| {
                    lend_out(&kernel, &state);
                    take(&kernel, &state).unwrap();
                });
                kernel.stop.set(None);
                let when = format!("{hierarchy:?}: killed before act {act}, mended: {mended}");
                if mended {
                    assert_eq!(overdue(&kernel, &state).unwrap(), None, "{when}");
                    is_as_before(&kernel, &raised_up, &when);
                    assert_eq!(status(&kernel, &state).unwrap().loan, None, "{when}");
                }
                assert!(revert(&kernel, &state).unwrap().unwrap().is_exact(), "{when}");
                is_as_before(&kernel, &before, &when);
                stops += usize::from(done.is_none());
                if done.is_some() && mended {
                    assert!(stops >= 4, "{hierarchy:?}: {stops}");
                    break 'acts;
                }
            }
        }
    }
}

#[test]
fn what_cannot_be_closed_stays_lent_until_it_can() {
    let (before, kernel, _dir, state) = shielded(Hierarchy::V2, 0);
    let raised_up = kernel.world.borrow().clone();
    lend_out(&kernel, &state);
    kernel.refuse.set(Some((kernel.acts.get() + 1, EBUSY)));
    let back = take(&kernel, &state).unwrap();
    assert!(!back.is_complete(), "{back:#?}");
    assert!(status(&kernel, &state).unwrap().loan.is_some());
    kernel.refuse.set(None);
    assert!(take(&kernel, &state).unwrap().is_complete());
    is_as_before(&kernel, &raised_up, "at the second time");
    assert!(revert(&kernel, &state).unwrap().unwrap().is_exact());
    is_as_before(&kernel, &before, "at last");
}

#[test]
fn terms_that_make_no_sense_are_refused_and_new_ones_replace_the_old() {
    let (_, kernel, _dir, state) = shielded(Hierarchy::V2, ANNA);
    let raised_up = kernel.world.borrow().clone();
    let refused = |terms: &LoanTerms, uid, says: &str| {
        let why = lend(&kernel, &state, terms, LoanOptions { guard: None, uid }).unwrap_err();
        assert_eq!(why.kind(), ErrorKind::Refused, "{why}");
        assert!(why.to_string().contains(says), "{says}: {why}");
        is_as_before(&kernel, &raised_up, says);
        assert_eq!(status(&kernel, &state).unwrap().loan, None);
    };
    refused(&terms(0), None, "1 s to 86400 s");
    refused(&terms(LONGEST_LOAN + 1), None, "1 s to 86400 s");
    refused(&terms(60), Some(ANNA + 1), "put up by user 1000");
    let unit = |name: &str| LoanTerms { unit: Some(name.into()), ..terms(60) };
    refused(&unit("../../x.service"), None, "no name of a service");
    refused(&unit("not-there.service"), None, "does not run");
    lend(&kernel, &state, &terms(60), LoanOptions { guard: None, uid: Some(ANNA) }).unwrap();
    let lent = lend(&kernel, &state, &terms(3600), FREELY).unwrap();
    assert!(lent.renewed);
    assert!(status(&kernel, &state).unwrap().loan.unwrap().left > 60);
    let why = take_back(&kernel, &state, LoanEnd::Hand, Some(ANNA + 1)).unwrap_err();
    assert_eq!(why.kind(), ErrorKind::Refused);
    assert!(take(&kernel, &state).unwrap().is_complete());
    is_as_before(&kernel, &raised_up, "at last");
}

#[test]
fn a_journal_of_many_loans_stays_small() {
    for hierarchy in ALL {
        let (before, kernel, _dir, state) = shielded(hierarchy, 0);
        let journal = state.join("journal.jsonl");
        let length = || std::fs::metadata(&journal).unwrap().len();
        let begun = length();
        lend_out(&kernel, &state);
        // Where threads are taken off one by one, they are noted with whoever came meanwhile.
        let child = kernel.world.borrow_mut().born(100);
        take(&kernel, &state).unwrap();
        kernel.world.borrow_mut().tasks.remove(&child);
        let text = std::fs::read_to_string(&journal).unwrap();
        let tail: String = text.chars().skip(begun as usize).collect();
        std::fs::write(&journal, text + &tail.repeat((1 << 20) / tail.len() + 1)).unwrap();
        lend_out(&kernel, &state);
        assert!(length() < begun + 10_000, "{} bytes, {begun} at first", length());
        assert!(take(&kernel, &state).unwrap().is_complete());
        assert!(revert(&kernel, &state).unwrap().unwrap().is_exact());
        is_as_before(&kernel, &before, &format!("{hierarchy:?}"));
    }
}
