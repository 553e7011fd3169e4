//! A store whose files somebody else wrote: a run, a proof and the index itself, cut from one input. All of it is listed, found and
//! indexed or refused with a sentence, and the index can be built anew.
#![no_main]
use libfuzzer_sys::fuzz_target;
use quiet_store::{Filter, Store};
use std::fs;

fuzz_target!(|bytes: &[u8]| {
    let Some((&split, rest)) = bytes.split_first() else { return };
    let dir = tempfile::tempdir().expect("a folder");
    let (runs, proof) =
        (dir.path().join("runs"), dir.path().join("proofs/20260101T000000Z-prove-1"));
    fs::create_dir_all(&runs).expect("a folder");
    fs::create_dir_all(&proof).expect("a folder");
    let store = Store::at(dir.path());
    let (as_run, as_other) =
        if split & 1 == 0 { (rest, rest) } else { rest.split_at(rest.len() / 2) };
    fs::write(runs.join("20260101T000000Z-wakeup-1.json"), as_run).expect("written");
    fs::write(proof.join("proof.json"), as_other).expect("written");
    if split & 2 != 0 {
        fs::write(store.index_path(), as_other).expect("written");
    }
    assert_eq!(store.list().expect("a list").len(), 2);
    for name in ["last", "20260101T000000Z-wakeup-1", "20260101T000000Z-prove-1"] {
        let _ = store.find(name);
    }
    let lines = |index: quiet_store::Index| {
        index.lines(&Filter::default(), 10).map(|lines| lines.len()).ok()
    };
    let first = store.index().ok().and_then(lines);
    let anew = store.rebuild_index().ok().and_then(lines);
    assert!(anew.is_some_and(|count| count <= 1), "built anew: {anew:?}");
    if split & 2 == 0 {
        assert_eq!(first, anew);
    }
});
