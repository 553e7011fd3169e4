//! What released versions wrote is read by this one, for ever.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use quiet_store::{Filter, Kept, KeptKind, Store};
use quiet_testing::tree::{copy, fixture};

/// A copy, for a store may be written to.
fn store(version: &str) -> (tempfile::TempDir, Store) {
    let dir = tempfile::tempdir().unwrap();
    copy(&fixture("released").join(version).join("store"), dir.path());
    let store = Store::at(dir.path());
    (dir, store)
}

#[test]
fn runs_a_proof_and_a_campaign_of_0_1_0_are_read() {
    let (_dir, store) = store("0.1.0");
    let entries = store.list().unwrap();
    let count = |kind: KeptKind| entries.iter().filter(|entry| entry.kind == kind).count();
    assert_eq!((count(KeptKind::Run), count(KeptKind::Proof)), (7, 1));
    for entry in &entries {
        match quiet_store::load(&entry.path).unwrap() {
            Kept::Run(run) => {
                assert_eq!(run.id, entry.id);
                let imported = run.origin.is_some();
                assert_eq!(imported, entry.id.starts_with("undated-cyclictest"));
                // As this version has it: what the file did not say is not known, and all of ours is.
                assert_eq!(run.schema, quiet_types::run::SCHEMA);
                let thread = &run.threads[0];
                assert_eq!(thread.memory_locked.is_none(), imported);
                assert_eq!(run.missed().is_none(), imported);
                assert_eq!(run.spec.threshold.is_none() && run.clock.is_none(), imported);
                assert_eq!(run.spec.idle.is_none(), imported);
                assert!(imported || run.readings().percentile(0.5).is_some());
            }
            Kept::Proof(proof) => {
                assert_eq!((proof.arms.len(), proof.lot), (4, None));
                let ours = proof.arms.iter().map(|arm| &arm.wakeup);
                assert!(ours.clone().all(|run| run.schema == quiet_types::run::SCHEMA));
                assert!(ours.clone().all(|run| run.missed().is_some() && run.lasted.is_some()));
                assert!(proof.shield.is_some() && proof.restored.as_ref().unwrap().exact);
            }
            _ => panic!("{} is something else", entry.id),
        }
    }
    let lines = store.index().unwrap().lines(&Filter::campaign("released"), usize::MAX).unwrap();
    let mut cells: Vec<_> = lines
        .iter()
        .map(|line| {
            let cell = store.run(&line.id).unwrap().cell.unwrap();
            (cell.round, cell.setting, cell.lot)
        })
        .collect();
    cells.sort();
    let of = |round, setting: &str| (round, setting.to_owned(), None);
    assert_eq!(cells, [of(1, "shared"), of(1, "shielded"), of(2, "shared"), of(2, "shielded")]);
}
