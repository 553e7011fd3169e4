//! Settings of USB devices: another device comes to the same place, with the same files.
#![allow(clippy::unwrap_used)] // a test may

mod shielded;

use quiet_shield::{ApplyOptions, add, revert, status, up, ways_back};
use quiet_testing::fake::{Fake, Hierarchy, World, world};
use quiet_types::{
    Plan,
    plan::{Action, Form, Need, PutBack, Return, Step},
    shield::{Mechanism, Shield},
};
use shielded::{plan, set};
use std::{fs, path::PathBuf, sync::atomic::AtomicBool};

const HUB: &str = "/sys/devices/pci0000:00/0000:00:14.0/usb1";
const DEVICE: &str = "/sys/devices/pci0000:00/0000:00:14.0/usb1/1-1.2";
const CONTROL: &str = "/sys/devices/pci0000:00/0000:00:14.0/usb1/1-1.2/power/control";

/// A device at a place: its number, maker, product, serial.
fn plug(world: &mut World, place: &str, number: u32, ids: [&str; 3]) {
    let inner = format!("{place}/");
    world.files.retain(|path, _| !path.starts_with(&inner));
    let mut put = |name: &str, value: &str| {
        world.files.insert(format!("{place}/{name}"), value.to_owned());
    };
    put("devnum", &number.to_string());
    put("power/control", "auto");
    for (name, value) in ["idVendor", "idProduct", "serial"].into_iter().zip(ids) {
        if !value.is_empty() {
            put(name, value);
        }
    }
}

fn control(value: &str) -> Step {
    let (path, value) = (CONTROL.into(), value.into());
    let action = Action::Write { path, request: None, value, form: Form::Text };
    Step { action, old: None, why: "because".into(), need: Need::BestEffort }
}

/// A card that is kept awake.
fn awake() -> (World, Fake, tempfile::TempDir, PathBuf) {
    let mut before = world(Hierarchy::None, 2, &[], &[3]);
    plug(&mut before, HUB, 1, ["1d6b", "0002", "0000:00:14.0"]);
    plug(&mut before, DEVICE, 5, ["1235", "8210", "A1"]);
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
    let steps = vec![control("on")];
    up(&kernel, &Plan { shield, steps, ..plan(Hierarchy::None) }, &setup).unwrap();
    (before, kernel, dir, state)
}

fn now(kernel: &Fake) -> String {
    kernel.world.borrow().files[CONTROL].clone()
}

fn set_by_others(kernel: &Fake, value: &str) {
    kernel.world.borrow_mut().files.insert(CONTROL.into(), value.into());
}

fn said(items: &[PutBack]) -> String {
    let left = items.iter().filter(|item| item.what == CONTROL).map(|item| match &item.outcome {
        Return::Left { now } => now.clone(),
        other => format!("{other:?}"),
    });
    left.collect::<Vec<_>>().join("; ")
}

#[test]
fn the_device_itself_is_put_back() {
    let (before, kernel, _dir, state) = awake();
    assert_eq!(now(&kernel), "on");
    let text = fs::read_to_string(state.join("journal.jsonl")).unwrap();
    for part in ["\"number\":\"5\"", "1235", "8210", "A1"] {
        assert!(text.contains(part), "{part}: {text}");
    }
    assert!(revert(&kernel, &state).unwrap().unwrap().is_exact());
    shielded::is_as_before(&kernel, &before, "reverted");
}

#[test]
fn another_device_at_its_place_keeps_what_it_has_and_that_is_said() {
    for (number, ids, wanted) in [
        (
            6,
            ["0582", "0159", ""],
            "another USB device is there now, 0582:0159; it was 1235:8210 A1",
        ),
        (6, ["1235", "8210", "B2"], "another USB device is there now, 1235:8210 B2"),
        // Numbers are given in turn, and come round.
        (5, ["1235", "8210", ""], "another USB device is there now, 1235:8210;"),
        (6, ["1235", "8210", "A1"], "the USB device 1235:8210 A1 was plugged in anew"),
    ] {
        let (_, kernel, _dir, state) = awake();
        plug(&mut kernel.world.borrow_mut(), DEVICE, number, ids);
        // Its own setting, by somebody else.
        set_by_others(&kernel, "on");
        assert_eq!(status(&kernel, &state).unwrap().drift, [], "{ids:?}");
        assert_eq!(ways_back(&kernel, &state).unwrap(), [], "{ids:?}");
        let done = revert(&kernel, &state).unwrap().unwrap();
        assert!(done.is_complete() && !done.is_exact(), "{ids:?}: {done:#?}");
        assert!(said(&done.items).starts_with(wanted), "{ids:?}: {}", said(&done.items));
        assert_eq!(now(&kernel), "on", "{ids:?}");
    }
}

#[test]
fn one_that_is_gone_or_never_was_ours_is_no_matter() {
    let (_, kernel, _dir, state) = awake();
    kernel.world.borrow_mut().files.retain(|path, _| !path.starts_with(DEVICE));
    let done = revert(&kernel, &state).unwrap().unwrap();
    assert!(done.is_complete(), "{done:#?}");
    assert_eq!(said(&done.items), "Gone");

    let (_, kernel, _dir, state) = awake();
    plug(&mut kernel.world.borrow_mut(), DEVICE, 6, ["0582", "0159", ""]);
    let done = revert(&kernel, &state).unwrap().unwrap();
    assert!(done.is_exact(), "{done:#?}");
    assert_eq!(now(&kernel), "auto");
}

#[test]
fn the_next_device_is_noted_for_itself() {
    let (_, kernel, _dir, state) = awake();
    plug(&mut kernel.world.borrow_mut(), DEVICE, 6, ["0582", "0159", ""]);
    // As by a watch, which finds a card again that is not kept awake.
    add(&kernel, &state, &[control("on")], None).unwrap();
    assert_eq!(now(&kernel), "on");
    assert_eq!(status(&kernel, &state).unwrap().drift, []);
    let done = revert(&kernel, &state).unwrap().unwrap();
    assert!(done.is_exact(), "{done:#?}");
    assert_eq!(now(&kernel), "auto");
}

#[test]
fn what_an_earlier_version_noted_without_a_device_is_put_back_as_it_did() {
    let (before, kernel, _dir, state) = awake();
    let journal = state.join("journal.jsonl");
    let text = fs::read_to_string(&journal).unwrap();
    let from = text.find(",\"device\":{").unwrap();
    let to = from + text[from..].find('}').unwrap() + 1;
    fs::write(&journal, format!("{}{}", &text[..from], &text[to..])).unwrap();
    assert!(revert(&kernel, &state).unwrap().unwrap().is_exact());
    shielded::is_as_before(&kernel, &before, "reverted");
}
