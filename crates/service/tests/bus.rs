//! The service on a real bus: who may and who may not, and what becomes of the machine.
#![allow(clippy::unwrap_used)] // a test may

mod world;

use quiet_service::client::{Refusal, ServiceClient};
use quiet_types::plan::ShieldStanding;
use std::{thread, time::Duration};
use world::{GROUP, STRANGER, World, group, text};

#[test]
fn a_member_of_the_group_applies_and_reverts_and_a_stranger_only_looks() {
    let Some(world) = World::new() else { return };
    world.approve("room");
    let games = group(GROUP);
    let root = ServiceClient::connect(Some(&world.address)).unwrap();
    assert_eq!(root.chains().unwrap(), [("room".to_owned(), "room".to_owned(), true)]);
    assert_eq!(root.status().unwrap().state, ShieldStanding::None);

    for (method, words) in
        [("Apply", &["string:room", "uint32:0"][..]), ("Confirm", &[][..]), ("Revert", &[][..])]
    {
        let said = text(&world.call(STRANGER, "", method, words));
        assert!(said.contains("org.quietcores1.Error.NotAllowed"), "{method}: {said}");
        assert!(said.contains(&format!("usermod -aG {GROUP}")), "{method}: {said}");
        assert_eq!(root.status().unwrap().state, ShieldStanding::None, "{method}");
    }
    let looked = text(&world.call(STRANGER, "", "Plan", &["string:room"]));
    assert!(looked.contains("quietcores.plan/"), "{looked}");

    let applied = text(&world.call(STRANGER, &games, "Apply", &["string:room", "uint32:0"]));
    assert!(applied.contains("quietcores.applied/"), "{applied}");
    let status = root.status().unwrap();
    assert_eq!(status.state, ShieldStanding::Up);
    assert_eq!(status.shield.unwrap().cpus.to_string(), world.cpu.to_string());
    let again = text(&world.call(STRANGER, &games, "Apply", &["string:room", "uint32:0"]));
    assert!(
        again.contains("org.quietcores1.Error.Failed") && again.contains("up already"),
        "{again}"
    );

    let reverted = text(&world.call(STRANGER, &games, "Revert", &[]));
    assert!(reverted.contains("quietcores.reverted/"), "{reverted}");
    assert_eq!(root.status().unwrap().state, ShieldStanding::None);
    assert!(root.revert().unwrap().is_none());
}

#[test]
fn an_unconfirmed_shield_goes_though_the_service_is_killed() {
    let Some(mut world) = World::new() else { return };
    world.approve("room");
    let root = ServiceClient::connect(Some(&world.address)).unwrap();
    root.apply("room", Some(3)).unwrap();
    world.kill();
    thread::sleep(Duration::from_secs(1));
    world.start();
    // The state was kept: the new service sees the shield of the old one, until its guard takes it down.
    let mut seen = Vec::new();
    for _ in 0..600 {
        let state = root.status().unwrap().state;
        if seen.last() != Some(&state) {
            seen.push(state);
        }
        if state == ShieldStanding::None {
            break;
        }
        thread::sleep(Duration::from_millis(100));
    }
    assert_eq!(seen.last(), Some(&ShieldStanding::None), "{seen:?}");
    // Confirmed, it stays.
    root.apply("room", Some(3)).unwrap();
    assert!(root.confirm().unwrap());
    thread::sleep(Duration::from_secs(5));
    assert_eq!(root.status().unwrap().state, ShieldStanding::Up);
    assert!(root.revert().unwrap().unwrap().is_complete());
}

#[test]
fn what_a_caller_names_is_a_name() {
    let Some(world) = World::new() else { return };
    world.approve("room");
    let root = ServiceClient::connect(Some(&world.address)).unwrap();
    for name in ["/etc/quietcores/chains/room.toml", "../room", "room\0", "none", "", "a\nb"] {
        if name.contains('\0') {
            continue; // the bus itself takes no such text
        }
        match root.apply(name, None) {
            Err(Refusal::Said(said)) => {
                assert!(said.contains("no name") || said.contains("no chain"), "{name}: {said}");
            }
            other => panic!("{name}: {other:?}"),
        }
    }
    match root.apply("room", Some(u32::MAX)) {
        Err(Refusal::Said(said)) => assert!(said.contains("are the most"), "{said}"),
        other => panic!("{other:?}"),
    }
    assert_eq!(root.status().unwrap().state, ShieldStanding::None);
}
