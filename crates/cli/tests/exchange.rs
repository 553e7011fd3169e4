//! `import` and `export` of other tools' results, from the outside: the committed ones, and some
//! that the tools print on the spot.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

use quiet_testing::{Why, is_root, own_cpus, skip};
use quiet_types::{Nanos, Run};
use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, Output},
};

fn quietcores(dir: &Path, args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_quietcores"))
        .args(args)
        .current_dir(dir)
        .env("XDG_DATA_HOME", dir.join("data"))
        .output()
        .unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn fixture(name: &str) -> PathBuf {
    quiet_testing::tree::fixture("results").join(name)
}

/// Imports a file as a run in `dir` and gives it.
fn imported(dir: &Path, file: &Path, more: &[&str]) -> Run {
    let _ = fs::remove_file(dir.join("run.json"));
    let mut args = vec!["import", file.to_str().unwrap(), "-o", "run.json"];
    args.extend(more);
    let done = quietcores(dir, &args);
    assert!(done.status.success(), "{}", text(&done.stderr));
    serde_json::from_slice(&fs::read(dir.join("run.json")).unwrap()).unwrap()
}

/// Imports and exports a file, which must come back byte for byte.
fn there_and_back(dir: &Path, file: &Path) -> Run {
    let run = imported(dir, file, &[]);
    let done = quietcores(dir, &["export", "run.json"]);
    assert!(done.status.success(), "{}", text(&done.stderr));
    assert_eq!(text(&done.stdout), fs::read_to_string(file).unwrap(), "{}", file.display());
    run
}

#[test]
fn the_four_latmus_histograms_come_back_byte_for_byte() {
    let dir = tempfile::tempdir().unwrap();
    for (name, count, max) in [
        ("idle", 49_468, 8_575),
        ("hectic-200us", 36_570, 13_850),
        ("hectic-10us-cache", 39_489, 42_643),
        ("hectic-10us-cache-ping", 39_882, 41_726),
    ] {
        let file = fixture(&format!("latmus-vim3l-{name}.txt"));
        let run = imported(dir.path(), &file, &["--format", "latmus"]);
        assert_eq!((run.readings().count, run.readings().max), (count, Some(Nanos(max))));
        let out = format!("{name}.txt");
        let args = ["export", "run.json", "--format", "latmus", "-o", &out];
        assert!(quietcores(dir.path(), &args).status.success());
        assert_eq!(fs::read(dir.path().join(out)).unwrap(), fs::read(&file).unwrap());
    }
}

#[test]
fn what_is_imported_is_kept_and_shown_on_one_page() {
    let dir = tempfile::tempdir().unwrap();
    for name in ["latmus-vim3l-idle.txt", "cyclictest.json", "oslat.txt"] {
        let done = quietcores(dir.path(), &["import", fixture(name).to_str().unwrap()]);
        assert!(done.status.success(), "{}", text(&done.stderr));
        assert!(text(&done.stderr).contains("kept as "));
    }
    let done = quietcores(dir.path(), &["import", fixture("oslat.txt").to_str().unwrap()]);
    assert_eq!(done.status.code(), Some(2));
    assert!(text(&done.stderr).contains("is kept already"), "{}", text(&done.stderr));
    let done =
        quietcores(dir.path(), &["report", "20211222", "20261122", "undated", "-o", "all.html"]);
    assert!(done.status.success(), "{}", text(&done.stderr));
    let page = fs::read_to_string(dir.path().join("all.html")).unwrap();
    assert!(page.contains("latmus-vim3l-idle") && !page.contains("NaN"));
}

#[test]
fn a_form_is_told_by_the_name_of_its_file_and_says_what_it_has_no_words_for() {
    let dir = tempfile::tempdir().unwrap();
    imported(dir.path(), &fixture("cyclictest.json"), &[]);
    let done = quietcores(dir.path(), &["export", "run.json", "-o", "out.csv", "--json"]);
    let told: serde_json::Value = serde_json::from_slice(&done.stdout).unwrap();
    assert_eq!((&told["format"], &told["schema"]), (&"csv".into(), &"quietcores.export/1".into()));
    assert!(text(&done.stderr).contains("only the run's own JSON holds them"));
    assert!(fs::read_to_string(dir.path().join("out.csv")).unwrap().starts_with("cpu,what,"));
    // A file that is there stays.
    let done = quietcores(dir.path(), &["export", "run.json", "-o", "out.csv"]);
    assert_eq!(done.status.code(), Some(2));
}

#[test]
fn nonsense_gets_a_sentence() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("x.txt"), "hello\n").unwrap();
    let torn = fs::read_to_string(fixture("latmus-vim3l-idle.txt")).unwrap();
    fs::write(dir.path().join("torn.txt"), torn.trim_end().rsplit_once('\n').unwrap().0).unwrap();
    fs::write(dir.path().join("bytes.txt"), [0xff, 0xfe]).unwrap();
    for (args, why) in [
        (vec!["import", "x.txt"], "it looks like none of cset"),
        (
            vec!["import", "torn.txt"],
            "cannot import torn.txt as latmus: its header counts 49468 samples",
        ),
        (vec!["import", "bytes.txt"], "it is not UTF-8 text"),
        (vec!["import", "absent.txt"], "cannot read absent.txt"),
        (vec!["export", "absent.json"], "cannot read absent.json"),
    ] {
        let done = quietcores(dir.path(), &args);
        assert_eq!(done.status.code(), Some(2), "{args:?}");
        assert!(text(&done.stderr).contains(why), "{}", text(&done.stderr));
        assert_eq!(text(&done.stdout), "");
    }
}

/// Runs a tool where it is installed and may run.
fn tool(dir: &Path, words: &[&str]) -> Option<Output> {
    let done = Command::new(words[0]).args(&words[1..]).current_dir(dir).output();
    match done {
        Ok(done) if done.status.success() => Some(done),
        Ok(done) => skip(Why::Machine(format!("{}: {}", words[0], text(&done.stderr)))),
        Err(_) => skip(Why::Program("cyclictest", "rt-tests")),
    }
}

#[test]
fn what_cyclictest_prints_here_and_now_comes_back_byte_for_byte() {
    let dir = tempfile::tempdir().unwrap();
    let at = dir.path();
    if !is_root() {
        return skip(Why::Root);
    }
    let common = ["cyclictest", "-q", "-m", "-p", "80", "-t", "1", "-l", "300", "-i", "500"];
    let all: [(&str, &[&str]); 6] = [
        ("sum.txt", &[]),
        ("ns.txt", &["-N"]),
        ("hist.txt", &["-h", "40"]),
        ("sums.txt", &["-H", "40"]),
        ("short.json", &["-h", "5", "--json=short.json"]),
        ("ns.json", &["-N", "-h", "200000", "--json=ns.json"]),
    ];
    for (name, more) in all {
        let Some(done) = tool(at, &[&common[..], more].concat()) else { return };
        if name.ends_with(".txt") {
            fs::write(at.join(name), &done.stdout).unwrap();
        }
        let run = there_and_back(at, &at.join(name));
        let all = run.readings();
        assert_eq!(all.count, 300, "{name}");
        assert_eq!(
            run.spec.priority,
            if name.starts_with("hist") || name.starts_with("sums") { None } else { Some(80) }
        );
        assert!(all.min <= all.max && all.max < Some(Nanos::from_secs(60)), "{name}");
    }
}

#[test]
fn what_oslat_prints_here_and_now_comes_back_byte_for_byte() {
    let dir = tempfile::tempdir().unwrap();
    let at = dir.path();
    let cpu = own_cpus().first().unwrap().to_string();
    let Some(done) = tool(at, &["oslat", "-c", &cpu, "-D", "1", "-b", "12", "--json=o.json"])
    else {
        return;
    };
    fs::write(at.join("o.txt"), &done.stdout).unwrap();
    let from_text = there_and_back(at, &at.join("o.txt"));
    let from_json = there_and_back(at, &at.join("o.json"));
    assert_eq!(from_text.readings().buckets, from_json.readings().buckets);
    assert_eq!(from_text.readings().max, from_json.readings().max);
    assert!(from_text.readings().count > 1000);
}
