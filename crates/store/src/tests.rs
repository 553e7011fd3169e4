//! The store against torn, foreign and hostile files, and against other writers.

use super::*;
use quiet_testing::{Why, is_root, skip};
use quiet_types::{CpuSet, Nanos, machine::Policy, run::Probe, run::Spec};
use std::{fs, os::unix::fs::PermissionsExt, sync::Barrier};

fn spec() -> Spec {
    Spec {
        probe: Probe::Gap,
        cpus: "1".parse::<CpuSet>().unwrap(),
        policy: Policy::Fifo,
        priority: 90,
        length: Nanos::from_secs(1),
        threshold: Nanos::from_micros(5),
        bucket: Nanos::from_micros(1),
        buckets: 400,
        idle: Default::default(),
        core: Default::default(),
    }
}

fn run(id: &str) -> Run {
    Run {
        schema: run::SCHEMA.into(),
        id: id.into(),
        label: "a label".into(),
        spec: spec().into(),
        started: Some("2026-11-21T21:30:00.000Z".into()),
        monotonic: Some(Nanos::from_secs(100)),
        lasted: Some(Nanos::from_secs(1)),
        interrupted: Some(false),
        partial: false,
        host: Default::default(),
        clock: Default::default(),
        threads: Vec::new(),
        stress: None,
        explained: None,
        cell: None,
        entry: None,
        before: Default::default(),
        after: Default::default(),
        findings: Vec::new(),
        origin: None,
    }
}

fn proof(id: &str) -> Proof {
    Proof {
        schema: proof::SCHEMA.into(),
        id: id.into(),
        started: "2026-11-21T21:30:00.000Z".into(),
        lasted: Nanos::from_secs(1),
        interrupted: false,
        host: Default::default(),
        question: "?".into(),
        spec: spec(),
        lot: None,
        order: None,
        arms: Vec::new(),
        figures: Vec::new(),
        verdict: Default::default(),
        sentence: String::new(),
        shield: None,
        restored: None,
        commands: Vec::new(),
        findings: Vec::new(),
        machine: Default::default(),
    }
}

fn store() -> (tempfile::TempDir, Store) {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::at(dir.path().join("data/quietcores"));
    (dir, store)
}

fn names_in(dir: &Path) -> Vec<String> {
    let mut names: Vec<String> = fs::read_dir(dir)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}

#[test]
fn what_was_kept_comes_back_whole() {
    let (_dir, store) = store();
    assert_eq!(store.list().unwrap(), []);
    let path = store.save_run(&run("20261121T213000Z-gap-0001")).unwrap();
    let dir = store.save_proof(&proof("20261121T214000Z-prove-0002"), "<!DOCTYPE html>").unwrap();
    assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o7133, 0);
    assert_eq!(fs::read_to_string(dir.join("report.html")).unwrap(), "<!DOCTYPE html>");

    let gap = Kept::Run(Box::new(run("20261121T213000Z-gap-0001")));
    let proof = Kept::Proof(Box::new(proof("20261121T214000Z-prove-0002")));
    assert_eq!(store.find("20261121T213000Z-gap-0001").unwrap(), gap);
    assert_eq!(store.find("20261121T2130").unwrap(), gap);
    assert_eq!(store.find(path.to_str().unwrap()).unwrap(), gap);
    assert_eq!(store.find(dir.to_str().unwrap()).unwrap(), proof);
    assert_eq!(store.find("last").unwrap(), proof);
    assert_eq!(store.find_run("last").unwrap(), gap, "the newest run, not the newest of all");
    assert_eq!(store.find_run("20261121T2140").unwrap(), proof, "what is named is meant");
    let kinds: Vec<KeptKind> = store.list().unwrap().into_iter().map(|entry| entry.kind).collect();
    assert_eq!(kinds, [KeptKind::Run, KeptKind::Proof]);
    assert_eq!(names_in(&store.dir().join("runs")).len(), 1, "nothing is left aside");
}

#[test]
fn a_beginning_of_several_ids_or_of_none_is_refused_with_their_names() {
    let (_dir, store) = store();
    let error = store.find("last").unwrap_err().to_string();
    assert!(error.ends_with("quietcores yet"), "{error}");
    store.save_run(&run("2026a")).unwrap();
    store.save_run(&run("2026b")).unwrap();
    let error = store.find("2026").unwrap_err().to_string();
    assert_eq!(error, "cannot find 2026: 2 ids begin so: 2026a, 2026b");
    let error = store.find("2027").unwrap_err().to_string();
    assert!(error.ends_with("the newest are 2026b, 2026a"), "{error}");
    assert!(store.find("").is_err());
}

#[test]
fn an_id_that_climbs_is_refused_and_writes_nothing() {
    let (dir, store) = store();
    for id in ["../x", "a/b", "/etc/x", "..", ".hidden", "", "a\0b", "a b", &"x".repeat(101)] {
        assert!(store.save_run(&run(id)).is_err(), "{id:?}");
        assert!(store.save_proof(&proof(id), "").is_err(), "{id:?}");
    }
    assert_eq!(names_in(dir.path()), Vec::<String>::new());
}

#[test]
fn a_kept_run_is_never_replaced() {
    let (_dir, store) = store();
    let path = store.save_run(&run("twice")).unwrap();
    let before = fs::read(&path).unwrap();
    let other = Run { label: "another".into(), ..run("twice") };
    assert!(store.save_run(&other).unwrap_err().is_taken());
    assert_eq!(fs::read(&path).unwrap(), before);
    store.save_proof(&proof("twice"), "first").unwrap();
    assert!(store.save_proof(&proof("twice"), "second").unwrap_err().is_taken());
    let page = store.dir().join("proofs/twice/report.html");
    assert_eq!(fs::read_to_string(page).unwrap(), "first");
    assert_eq!(names_in(&store.dir().join("proofs")), ["twice"]);
}

#[test]
fn of_writers_at_once_one_wins_and_its_file_is_whole() {
    let (_dir, store) = store();
    let start = Barrier::new(8);
    let won = std::thread::scope(|scope| {
        let write = |at: usize| {
            let (store, start) = (&store, &start);
            scope.spawn(move || {
                let mine = Run { label: "x".repeat(10_000 * (at + 1)), ..run("same") };
                start.wait();
                store.save_run(&mine).is_ok()
            })
        };
        let writers: Vec<_> = (0..8).map(write).collect();
        writers.into_iter().map(|w| w.join().unwrap()).filter(|won| *won).count()
    });
    assert_eq!(won, 1);
    let Kept::Run(kept) = store.find("same").unwrap() else { panic!("not a run") };
    assert_eq!(kept.label.len() % 10_000, 0);
    assert_eq!(names_in(&store.dir().join("runs")), ["same.json"]);
}

#[test]
fn a_file_torn_at_any_byte_is_named_with_its_place_and_never_believed() {
    let (_dir, store) = store();
    let path = store.save_run(&run("torn")).unwrap();
    let whole = fs::read(&path).unwrap();
    // Without its line break the JSON is still whole.
    for length in 0..whole.len() - 1 {
        fs::write(&path, &whole[..length]).unwrap();
        let error = load(&path).unwrap_err().to_string();
        assert!(error.contains("torn.json: it is cut short at line 1, column"), "{error}");
    }
}

#[test]
fn leftovers_of_a_killed_writer_are_ignored() {
    let (_dir, store) = store();
    store.save_run(&run("2026whole")).unwrap();
    let runs = store.dir().join("runs");
    fs::write(runs.join(".2027.json.4711.0.part"), "{\"schema\":\"quietc").unwrap();
    fs::create_dir_all(store.dir().join("proofs/.2028.4711.1.part")).unwrap();
    fs::create_dir_all(store.dir().join("proofs/2029-without-a-file")).unwrap();
    let ids: Vec<String> = store.list().unwrap().into_iter().map(|entry| entry.id).collect();
    assert_eq!(ids, ["2026whole"]);
    assert_eq!(store.find("last").unwrap().id(), "2026whole");
}

#[test]
fn a_checkpoint_is_replaced_by_its_own_run_alone() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::at(dir.path());
    let partial = |lasted: u64| {
        let mut run = run("20261121T213000000Z-wakeup-1");
        (run.partial, run.lasted, run.host.boot_id) = (true, Some(Nanos(lasted)), "a".into());
        run
    };
    store.save_run(&partial(1)).unwrap();
    store.save_run(&partial(2)).unwrap();
    assert_eq!(store.run(&partial(2).id).unwrap(), partial(2));
    assert!(store.index().unwrap().lines(&Filter::default(), 9).unwrap()[0].partial);
    // Of another boot: another run.
    let mut other = partial(3);
    other.host.boot_id = "b".into();
    assert!(store.save_run(&other).unwrap_err().is_taken());
    let whole = Run { partial: false, ..partial(4) };
    store.save_run(&whole).unwrap();
    assert!(!store.index().unwrap().lines(&Filter::default(), 9).unwrap()[0].partial);
    // Whole, it is never changed again.
    assert!(store.save_run(&partial(5)).unwrap_err().is_taken());
    assert!(store.save_run(&whole).unwrap_err().is_taken());
    assert_eq!(store.run(&whole.id).unwrap(), whole);
}

#[test]
fn foreign_newer_and_broken_files_each_get_their_sentence() {
    let dir = tempfile::tempdir().unwrap();
    let known = "this program reads quietcores.run/2, quietcores.proof/2, quietcores.buffers/1, \
                 quietcores.roundtrip/1 and quietcores.tune/1";
    for (text, why) in [
        (
            r#"{"schema":"quietcores.run/3"}"#,
            format!("it is written in quietcores.run/3; {known}: update quietcores"),
        ),
        (r#"{"schema":"quietcores.machine/1"}"#, format!("it holds quietcores.machine/1; {known}")),
        (
            r#"{"histogram":[]}"#,
            format!("it names no schema, so it is no run or proof of quietcores; {known}"),
        ),
        ("{\n \"schema\": oops}", "line 2, column 12: not JSON: expected value".to_owned()),
        (
            r#"{"schema":"quietcores.run/1","id":7}"#,
            "line 1, column 35: invalid type: integer `7`, expected a string".to_owned(),
        ),
        ("[1,2]", "line 1, column 2: invalid type: integer `1`, expected a string".to_owned()),
        (
            "",
            "it is cut short at line 1, column 0: the writer or the copy was not finished"
                .to_owned(),
        ),
    ] {
        let path = dir.path().join("file.json");
        fs::write(&path, text).unwrap();
        let error = load(&path).unwrap_err().to_string();
        let (_, said) = error.split_once("file.json: ").unwrap();
        assert_eq!(said, why, "{text}");
    }
}

#[test]
fn pipes_directories_and_endless_files_are_refused_and_do_not_hang() {
    let dir = tempfile::tempdir().unwrap();
    let pipe = dir.path().join("pipe");
    assert!(std::process::Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    let huge = dir.path().join("huge.json");
    File::create(&huge).unwrap().set_len(LARGEST + 1).unwrap();
    for (path, why) in [
        (pipe.as_path(), "not a regular file"),
        (dir.path(), "not a regular file"),
        (huge.as_path(), "larger than 64 MiB"),
        (Path::new("/nowhere/x.json"), "No such file or directory"),
    ] {
        let error = load(path).unwrap_err().to_string();
        assert!(error.ends_with(why), "{error}");
    }
}

#[test]
fn a_link_planted_in_place_of_the_unfinished_file_is_not_followed() {
    let (dir, store) = store();
    let runs = store.dir().join("runs");
    fs::create_dir_all(&runs).unwrap();
    let victim = dir.path().join("victim");
    fs::write(&victim, "precious").unwrap();
    // The names that the next writes may use aside.
    for count in 0..200 {
        let aside = runs.join(format!(".x.json.{}.{count}.part", std::process::id()));
        std::os::unix::fs::symlink(&victim, aside).unwrap();
    }
    let path = store.save_run(&run("x")).unwrap();
    assert_eq!(fs::read_to_string(&victim).unwrap(), "precious");
    assert!(!fs::symlink_metadata(path).unwrap().is_symlink());
}

/// Writes runs without end; only when started by the test below.
#[test]
fn endless_writer() {
    let Some(dir) = std::env::var_os("QUIETCORES_ENDLESS_WRITER") else { return };
    let store = Store::at(dir);
    for count in 0u64.. {
        let one = Run { label: "x".repeat(200_000), ..run(&format!("run-{count:09}")) };
        store.save_run(&one).unwrap();
        store.save_proof(&proof(&format!("proof-{count:09}")), &"y".repeat(100_000)).unwrap();
    }
}

#[test]
fn a_writer_killed_at_any_moment_leaves_only_whole_files() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::at(dir.path());
    let mut listed = 0;
    for _ in 0..8 {
        let mut writer = std::process::Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "tests::endless_writer", "--nocapture"])
            .env("QUIETCORES_ENDLESS_WRITER", dir.path())
            .stdout(std::process::Stdio::null())
            .spawn()
            .unwrap();
        // Killed as soon as something more has been written, wherever it then is.
        while store.list().unwrap().len() < listed + 3 {
            assert!(writer.try_wait().unwrap().is_none(), "the writer ended by itself");
            std::thread::yield_now();
        }
        writer.kill().unwrap();
        writer.wait().unwrap();
        let entries = store.list().unwrap();
        listed = 0;
        for entry in &entries {
            assert_eq!(load(&entry.path).unwrap().id(), entry.id);
        }
        // The next writer begins anew: ids are never reused.
        fs::remove_dir_all(dir.path().join("runs")).unwrap();
        fs::remove_dir_all(dir.path().join("proofs")).unwrap();
    }
}

#[test]
fn the_index_follows_the_files_and_can_be_thrown_away() {
    let (_dir, store) = store();
    assert_eq!(store.index().unwrap().count(&Filter::default()).unwrap(), 0);
    for at in 0..5 {
        let mut one = run(&format!("2026-{at}"));
        one.host.release = format!("6.1{at}.0");
        one.started = Some(format!("2026-11-2{at}T00:00:00.000Z"));
        store.save_run(&one).unwrap();
    }
    let all = |store: &Store| store.index().unwrap().lines(&Filter::default(), 100).unwrap();
    let lines = all(&store);
    assert_eq!(
        lines.iter().map(|line| line.id.as_str()).collect::<Vec<_>>(),
        ["2026-0", "2026-1", "2026-2", "2026-3", "2026-4"]
    );
    assert_eq!(
        lines[2],
        line(&Run {
            host: run::Host { release: "6.12.0".into(), ..Default::default() },
            started: Some("2026-11-22T00:00:00.000Z".into()),
            ..run("2026-2")
        })
    );
    let ids = |filter: &str, most| -> Vec<String> {
        let filter = Filter::parse(filter).unwrap();
        store
            .index()
            .unwrap()
            .lines(&filter, most)
            .unwrap()
            .into_iter()
            .map(|line| line.id)
            .collect()
    };
    assert_eq!(ids("kernel=6.1[23]*", 9), ["2026-2", "2026-3"]);
    assert_eq!(ids("since=2026-11-22, until=2026-11-24", 1), ["2026-3"]);
    assert_eq!(ids("kernel='; drop table runs; --", 9), Vec::<String>::new());
    assert!(Filter::parse("colour=red").unwrap_err().to_string().contains("is none of id, host"));
    // A run that is taken away is no longer listed; a broken index is made anew.
    fs::remove_file(store.dir().join("runs/2026-0.json")).unwrap();
    assert_eq!(all(&store).len(), 4);
    for wreck in [
        b"not a database".to_vec(),
        fs::read(store.index_path()).unwrap()[..4096].to_vec(),
        vec![0; 9000],
    ] {
        fs::write(store.index_path(), wreck).unwrap();
        assert_eq!(all(&store)[..], lines[1..]);
    }
    assert_eq!(
        store.rebuild_index().unwrap().lines(&Filter::default(), 9).unwrap()[..],
        lines[1..]
    );
}

#[test]
fn torn_files_are_set_aside_and_named_and_the_rest_goes_on() {
    let (_dir, store) = store();
    for id in ["a", "b", "c", "d"] {
        store.save_run(&run(id)).unwrap();
    }
    let runs = store.dir().join("runs");
    let whole = fs::read(runs.join("b.json")).unwrap();
    fs::write(runs.join("b.json"), &whole[..whole.len() / 2]).unwrap();
    fs::write(runs.join("c.json"), r#"{"schema":"quietcores.run/9"}"#).unwrap();
    fs::copy(runs.join("a.json"), runs.join("e.json")).unwrap();
    for round in 0..2 {
        let index = store.index().unwrap();
        let ids: Vec<String> =
            index.lines(&Filter::default(), 9).unwrap().into_iter().map(|line| line.id).collect();
        assert_eq!(ids, ["a", "d"]);
        let said: Vec<(&str, bool)> =
            index.aside().iter().map(|a| (a.name.as_str(), a.moved.is_empty())).collect();
        let mut said = said;
        said.sort_unstable();
        // What is torn is moved once; what is newer, or misnamed, stays and is named each time.
        let stays = [("c.json", true), ("e.json", true)];
        let torn = [("b.json", false), stays[0], stays[1]];
        assert_eq!(said, if round == 0 { &torn[..] } else { &stays[..] });
    }
    assert_eq!(fs::read(store.dir().join("aside/b.json")).unwrap(), whole[..whole.len() / 2]);
}

#[test]
fn a_link_in_place_of_the_index_is_not_followed() {
    let (dir, store) = store();
    store.save_run(&run("one")).unwrap();
    let victim = dir.path().join("victim");
    fs::write(&victim, "precious").unwrap();
    std::os::unix::fs::symlink(&victim, store.index_path()).unwrap();
    assert_eq!(store.index().unwrap().count(&Filter::default()).unwrap(), 1);
    assert_eq!(fs::read_to_string(&victim).unwrap(), "precious");
}

/// Writes runs, and says of each that it is kept; only when started by the test below.
#[test]
fn acknowledging_writer() {
    use std::io::Write;
    let Some(dir) = std::env::var_os("QUIETCORES_ACKNOWLEDGING_WRITER") else { return };
    let store = Store::at(dir);
    for count in 0u64.. {
        let id = format!("kept-{}-{count}", std::process::id());
        store.save_run(&Run { label: "x".repeat(50_000), ..run(&id) }).unwrap();
        let mut out = io::stderr();
        writeln!(out, "KEPT {id}").unwrap();
        let _ = store.index();
    }
}

#[test]
fn a_kill_while_appending_loses_nothing_that_was_acknowledged() {
    use std::io::{BufRead, BufReader};
    let dir = tempfile::tempdir().unwrap();
    let store = Store::at(dir.path());
    let mut acknowledged = Vec::new();
    for round in 0..6 {
        let mut writer = std::process::Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "tests::acknowledging_writer", "--nocapture"])
            .env("QUIETCORES_ACKNOWLEDGING_WRITER", dir.path())
            .stdout(std::process::Stdio::null())
            .stderr(std::process::Stdio::piped())
            .spawn()
            .unwrap();
        let mut said = BufReader::new(writer.stderr.take().unwrap()).lines();
        for _ in 0..5 + round {
            let line = said.next().unwrap().unwrap();
            acknowledged.extend(line.strip_prefix("KEPT ").map(str::to_owned));
        }
        writer.kill().unwrap();
        writer.wait().unwrap();
        acknowledged
            .extend(said.filter_map(|line| Some(line.ok()?.strip_prefix("KEPT ")?.to_owned())));
        let index = store.index().unwrap();
        assert_eq!(index.aside(), []);
        let lines = index.lines(&Filter::default(), 10_000).unwrap();
        for id in &acknowledged {
            assert!(lines.iter().any(|line| line.id == *id), "{id} is lost");
            load(&dir.path().join(format!("runs/{id}.json"))).unwrap();
        }
    }
    assert!(acknowledged.len() >= 30);
}

/// Sets when a file was written last, so that no test waits for a clock.
fn written(path: &Path, second: u64) {
    let then = std::time::UNIX_EPOCH + std::time::Duration::from_secs(second);
    File::options().write(true).open(path).unwrap().set_modified(then).unwrap();
}

#[test]
fn the_last_is_what_was_kept_last_whatever_its_id_says() {
    let (_dir, store) = store();
    let undated = store.save_run(&run("undated-cyclictest-3f9a0b12")).unwrap();
    let old = store.save_run(&run("20211222T112636Z-latmus-3f9a0b12")).unwrap();
    let own = store.save_run(&run("20261121T213000Z-gap-0001")).unwrap();
    let proof = store.save_proof(&proof("20261121T214000Z-prove-0002"), "").unwrap();
    for (last, order) in [
        ("20261121T213000Z-gap-0001", [&undated, &old, &own]),
        ("undated-cyclictest-3f9a0b12", [&own, &old, &undated]),
        ("20211222T112636Z-latmus-3f9a0b12", [&undated, &own, &old]),
    ] {
        for (at, path) in (1_000_000_000..).zip(order) {
            written(path, at);
        }
        written(&proof.join("proof.json"), 999_999_999);
        assert_eq!(store.find("last").unwrap().id(), last);
        written(&proof.join("proof.json"), 1_000_000_009);
        assert_eq!(store.find("last").unwrap().id(), "20261121T214000Z-prove-0002");
        assert_eq!(store.find_run("last").unwrap().id(), last);
    }
    // Kept within one tick of the clock: the younger by its id.
    for path in [&undated, &old, &own] {
        written(path, 1_000_000_000);
    }
    written(&proof.join("proof.json"), 5);
    assert_eq!(store.find("last").unwrap().id(), "undated-cyclictest-3f9a0b12");
}

#[test]
fn an_index_that_somebody_else_writes_is_left_to_him() {
    let (_dir, store) = store();
    for id in ["a", "b"] {
        store.save_run(&run(id)).unwrap();
    }
    let all = |index: &Index| -> Vec<String> {
        let lines = index.lines(&Filter::default(), 9).unwrap();
        lines.into_iter().map(|line| line.id).collect()
    };
    assert_eq!(all(&store.index().unwrap()), ["a", "b"]);
    store.save_run(&run("c")).unwrap();
    let inode = || fs::metadata(store.index_path()).unwrap().ino();
    let before = inode();
    let other = rusqlite::Connection::open(store.index_path()).unwrap();
    // One that writes, and one that lets nobody read.
    for begin in ["begin immediate", "begin exclusive"] {
        other.execute_batch(begin).unwrap();
        assert_eq!(all(&store.index().unwrap()), ["a", "b", "c"], "{begin}");
        assert_eq!(inode(), before, "the index was thrown away under its writer");
        other.execute("delete from runs where id = 'a'", []).unwrap();
        other.execute_batch("rollback").unwrap();
    }
    assert_eq!(all(&store.index().unwrap()), ["a", "b", "c"]);
    assert_eq!(inode(), before);
    // Nor is it replaced under somebody who has it open.
    let open = store.index().unwrap();
    assert_eq!(all(&store.rebuild_index().unwrap()), ["a", "b", "c"]);
    assert_eq!(inode(), before);
    drop(open);
    assert_eq!(all(&store.rebuild_index().unwrap()), ["a", "b", "c"]);
    assert_ne!(inode(), before);
}

/// Builds the index anew without end, with a run more or less; only when started by the test below.
#[test]
fn endless_builder() {
    let Some(dir) = std::env::var_os("QUIETCORES_ENDLESS_BUILDER") else { return };
    let store = Store::at(dir);
    for count in 0u64.. {
        let _ = store.rebuild_index();
        let extra = store.dir().join("runs/extra.json");
        if count.is_multiple_of(2) {
            let _ = store.save_run(&run("extra"));
        } else {
            let _ = fs::remove_file(extra);
        }
        let _ = store.index();
    }
}

#[test]
fn builders_killed_at_any_moment_leave_an_index_that_tells_the_truth() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::at(dir.path());
    for at in 0..20 {
        store.save_run(&run(&format!("run-{at:02}"))).unwrap();
    }
    let looks = |times: u32| {
        for _ in 0..times {
            let lines = store.index().unwrap().lines(&Filter::ids("run-"), 99).unwrap();
            assert_eq!(lines.len(), 20);
        }
    };
    for round in 0..12u32 {
        let mut builders: Vec<_> = (0..2)
            .map(|_| {
                std::process::Command::new(std::env::current_exe().unwrap())
                    .args(["--exact", "tests::endless_builder", "--nocapture"])
                    .env("QUIETCORES_ENDLESS_BUILDER", dir.path())
                    .stdout(std::process::Stdio::null())
                    .spawn()
                    .unwrap()
            })
            .collect();
        // Wherever they then are: the number of looks only makes the moments differ.
        looks(1 + round);
        for builder in &mut builders {
            builder.kill().unwrap();
            builder.wait().unwrap();
        }
        looks(1);
        let lines = store.index().unwrap().lines(&Filter::default(), 99).unwrap();
        let there =
            names_in(&store.dir().join("runs")).iter().filter(|n| !n.starts_with('.')).count();
        assert_eq!(lines.len(), there);
    }
    drop(store.rebuild_index().unwrap());
    let left: Vec<String> =
        names_in(dir.path()).into_iter().filter(|name| name.contains("index.sqlite")).collect();
    assert_eq!(left, ["index.sqlite"]);
}

/// Nobody is logged in as this user anywhere.
const SOMEBODY: StoreOwner = StoreOwner { uid: 54_321, gid: 54_322 };

fn owner_of(path: &Path) -> (u32, u32) {
    let meta = fs::symlink_metadata(path).unwrap();
    (meta.uid(), meta.gid())
}

#[test]
fn root_keeps_files_for_a_user_and_nothing_there_becomes_roots() {
    if !is_root() {
        return skip(Why::Root);
    }
    let dir = tempfile::tempdir().unwrap();
    fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let home = dir.path().join("home");
    fs::create_dir(&home).unwrap();
    std::os::unix::fs::chown(&home, Some(SOMEBODY.uid), Some(SOMEBODY.gid)).unwrap();
    let store = Store::at(home.join(".local/share/quietcores")).of(Some(SOMEBODY));
    store.ready("runs").unwrap();
    store.save_run(&run("a")).unwrap();
    store.save_proof(&proof("b"), "page").unwrap();
    store.save_other("buffers", "c", &run("c")).unwrap();
    assert_eq!(store.index().unwrap().lines(&Filter::default(), 9).unwrap().len(), 1);
    store.rebuild_index().unwrap();
    fs::write(store.dir().join("runs/torn.json"), "{").unwrap();
    assert_eq!(store.index().unwrap().aside().len(), 1);
    let mut left = vec![home.clone()];
    let mut seen = 0;
    while let Some(path) = left.pop() {
        // Written by this test, as root.
        if !path.ends_with("torn.json") {
            assert_eq!(owner_of(&path), (SOMEBODY.uid, SOMEBODY.gid), "{}", path.display());
        }
        if fs::symlink_metadata(&path).unwrap().is_dir() {
            left.extend(fs::read_dir(&path).unwrap().map(|entry| entry.unwrap().path()));
        }
        seen += 1;
    }
    assert!(seen > 12, "{seen}");
    // Root again afterwards.
    assert!(is_root() && rustix::process::getegid().is_root());
    fs::write(dir.path().join("roots"), "").unwrap();
}

#[test]
fn a_users_link_leads_root_nowhere() {
    if !is_root() {
        return skip(Why::Root);
    }
    let dir = tempfile::tempdir().unwrap();
    fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let (home, etc) = (dir.path().join("home"), dir.path().join("etc"));
    for made in [&home, &etc] {
        fs::create_dir(made).unwrap();
    }
    std::os::unix::fs::chown(&home, Some(SOMEBODY.uid), Some(SOMEBODY.gid)).unwrap();
    // The whole store, or one directory of it, leads to a place of root's.
    for link in ["quietcores", "other/runs"] {
        let link = home.join(link);
        fs::create_dir_all(link.parent().unwrap()).unwrap();
        std::os::unix::fs::symlink(&etc, &link).unwrap();
    }
    for name in ["quietcores", "other"] {
        let store = Store::at(home.join(name)).of(Some(SOMEBODY));
        for error in [store.ready("runs").unwrap_err(), store.save_run(&run("a")).unwrap_err()] {
            assert!(error.to_string().ends_with("Permission denied"), "{error}");
        }
        assert_eq!(store.index().unwrap().count(&Filter::default()).unwrap(), 0);
    }
    assert_eq!(names_in(&etc), Vec::<String>::new());
    // And a secret of root's is not read for him.
    fs::write(etc.join("secret.json"), "{}").unwrap();
    fs::set_permissions(etc.join("secret.json"), fs::Permissions::from_mode(0o600)).unwrap();
    let theirs = home.join("mine/runs");
    fs::create_dir_all(&theirs).unwrap();
    std::os::unix::fs::symlink(etc.join("secret.json"), theirs.join("a.json")).unwrap();
    let error = Store::at(home.join("mine")).of(Some(SOMEBODY)).run("a").unwrap_err().to_string();
    assert!(error.ends_with("Permission denied"), "{error}");
}

#[test]
fn a_place_that_takes_nothing_is_known_before() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("file"), "").unwrap();
    let error = Store::at(dir.path().join("file/x")).ready("runs").unwrap_err().to_string();
    assert!(error.ends_with("Not a directory"), "{error}");
    assert!(Store::at("/proc/nosuch").ready("runs").is_err());
    let store = Store::at(dir.path().join("store"));
    store.ready("runs").unwrap();
    assert_eq!(names_in(&store.dir().join("runs")), Vec::<String>::new(), "nothing is left");
    files::room(&dir.path().join("file")).unwrap();
    assert_eq!(fs::read(dir.path().join("file")).unwrap(), b"");
    assert!(files::room(&dir.path().join("no/such")).is_err());
}
