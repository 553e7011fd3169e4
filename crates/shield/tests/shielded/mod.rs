//! A shield over CPU 1 of 2 on a kernel that is played, of each mechanism.
#![allow(dead_code)] // not every test needs all of it

use quiet_shield::{ApplyOptions, up_for};
use quiet_testing::fake::{Fake, Hierarchy, World, at, world};
use quiet_types::{
    CpuSet, Plan,
    plan::{Action, Form, GroupFile, GroupValue, Need, PLAN_SCHEMA, Step, Who},
    shield::{Entry, Mechanism, Shield},
};
use std::{path::PathBuf, sync::atomic::AtomicBool};

/// Whose threads 100 to 102 are.
pub const ANNA: u32 = 1000;

pub fn set(text: &str) -> CpuSet {
    text.parse().unwrap()
}

/// CPU 1 of 2, with nobody in it.
pub fn plan(hierarchy: Hierarchy) -> Plan {
    let file = |name: &str, value: &str, form| GroupFile {
        name: name.into(),
        value: GroupValue::Is(value.into()),
        form,
        need: Need::Essential,
    };
    let mut actions = Vec::new();
    let group = |path, files| Action::Group { path, files, narrow: Vec::new(), unit: None };
    let cpus = |cpus: &str| file("cpuset.cpus", cpus, Form::List);
    match hierarchy {
        Hierarchy::V1 => {
            for (name, of) in [("rest", "0"), ("shield", "1")] {
                actions.push(group(at(name), vec![cpus(of), file("cpuset.mems", "0", Form::List)]));
            }
            actions.push(Action::MoveTasks { from: at("tasks"), to: at("rest/tasks") });
        }
        Hierarchy::V2 => {
            let path = at("cgroup.subtree_control").to_string();
            let (value, form) = ("+cpuset".into(), Form::Word);
            actions.push(Action::Write { path, request: None, value, form });
            let partition = file("cpuset.cpus.partition", "isolated", Form::Partition);
            actions.push(group(at("shield"), vec![cpus("1"), partition]));
        }
        Hierarchy::None => {
            let (off, to) = (set("1"), set("0"));
            let spare = Vec::new();
            actions.push(Action::Confine { who: Who::Everybody, off, to, spare });
        }
    }
    let (mechanism, entry) = match hierarchy {
        Hierarchy::V1 => (Mechanism::SetsV1, Some("shield/tasks")),
        Hierarchy::V2 => (Mechanism::PartitionV2, Some("shield/cgroup.procs")),
        Hierarchy::None => (Mechanism::Affinity, None),
    };
    let entry =
        entry.map(|file| Entry { file: at(file), whole_process: hierarchy == Hierarchy::V2 });
    let step = |action| Step { action, old: None, why: "because".into(), need: Need::Essential };
    Plan {
        schema: PLAN_SCHEMA.into(),
        chain: None,
        mode: Default::default(),
        shield: Shield { cpus: set("1"), housekeeping: set("0"), mechanism, entry },
        reasons: Vec::new(),
        links: Vec::new(),
        steps: actions.into_iter().map(step).collect(),
        findings: Vec::new(),
    }
}

pub const ALL: [Hierarchy; 3] = [Hierarchy::V1, Hierarchy::V2, Hierarchy::None];

/// The world before, the kernel under a shield of `uid`'s, and its state directory.
pub fn shielded(hierarchy: Hierarchy, uid: u32) -> (World, Fake, tempfile::TempDir, PathBuf) {
    let mut before = world(hierarchy, 2, &[], &[3, 1, 2]);
    for tid in 100..103 {
        before.tasks.get_mut(&tid).unwrap().uid = ANNA;
    }
    let kernel = Fake::new(before.clone());
    let dir = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap();
    let state = dir.path().join("state");
    let interrupt = AtomicBool::new(false);
    let setup = ApplyOptions { state: &state, holder: None, interrupt: &interrupt, confirm: None };
    up_for(&kernel, &plan(hierarchy), &setup, uid).unwrap();
    (before, kernel, dir, state)
}

pub fn is_as_before(kernel: &Fake, before: &World, when: &str) {
    let after = kernel.world.borrow();
    assert_eq!(after.capture(before), before.capture(&after), "{when}");
}
