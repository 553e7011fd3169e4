//! What released versions have written is read for ever: their journals are reverted by this version.
#![allow(clippy::unwrap_used)] // a test may

use quiet_shield::{revert, status};
use quiet_testing::{
    fake::{Fake, World},
    tree::fixture,
};
use quiet_types::plan::ShieldStanding;
use std::{
    fs,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
};

/// Folders of journals: `fixtures/released/VERSION/journal/NAME`.
fn journals() -> Vec<PathBuf> {
    let released = fixture("released");
    let names = |dir: &Path| -> Vec<PathBuf> {
        fs::read_dir(dir).into_iter().flatten().flatten().map(|entry| entry.path()).collect()
    };
    let versions = names(&released);
    let mut found: Vec<PathBuf> =
        versions.iter().flat_map(|version| names(&version.join("journal"))).collect();
    found.sort();
    found
}

fn world(path: &Path) -> World {
    serde_json::from_str(&fs::read_to_string(path).unwrap()).unwrap()
}

#[test]
fn journals_of_every_released_version_are_reverted() {
    let journals = journals();
    assert!(journals.len() >= 4, "{journals:?}");
    for folder in journals {
        let when = folder.display().to_string();
        let (before, after) =
            (world(&folder.join("before.json")), world(&folder.join("after.json")));
        let kernel = Fake::new(after);
        let dir = tempfile::tempdir().unwrap();
        let state = dir.path().join("state");
        fs::create_dir(&state).unwrap();
        fs::set_permissions(&state, fs::Permissions::from_mode(0o700)).unwrap();
        fs::copy(folder.join("journal.jsonl"), state.join("journal.jsonl")).unwrap();
        let up = status(&kernel, &state).unwrap();
        assert_eq!(up.state, ShieldStanding::Up, "{when}");
        assert_eq!(up.drift, [], "{when}");
        let done = revert(&kernel, &state).unwrap().unwrap();
        assert!(done.is_exact(), "{when}: {done:#?}");
        let now = kernel.world.borrow();
        assert_eq!(now.capture(&before), before.capture(&now), "{when}");
        assert_eq!(
            serde_json::to_string_pretty(&now.texts).unwrap(),
            serde_json::to_string_pretty(&before.texts).unwrap(),
            "{when}"
        );
        assert!(!state.join("journal.jsonl").exists(), "{when}");
    }
}
