//! `quietcores demo`: it plays twice, writes the sound and the page, and leaves the machine as it was.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod machine;

use machine::{Capture, Machine};
use quiet_testing::{Why, is_root, skip};
use serde_json::Value;
use std::{
    fs,
    path::Path,
    process::{Command, Output, Stdio},
};

fn demo(dir: &Path, words: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_quietcores"));
    command.arg("demo").args(words).arg("--state").arg(dir.join("state"));
    command.current_dir(dir).stdin(Stdio::null()).output().unwrap()
}

fn shown(output: &Output) -> String {
    String::from_utf8_lossy(&[&output.stdout[..], &output.stderr].concat()).into_owned()
}

#[test]
fn two_parts_are_played_heard_and_shown() {
    let root = is_root();
    // Another CPU and a turn of its own where the machine is changed.
    let machine = if root { Machine::take() } else { None };
    // Only now: somebody else's shield may have confined this process until its turn came.
    if quiet_testing::cpus() < 2 {
        return skip(Why::OneCpu);
    }
    let before = machine.as_ref().map(|_| Capture::take());
    let dir = tempfile::tempdir().unwrap();
    let done = demo(dir.path(), &["--for", "1s", "--json"]);
    if let Some(before) = before {
        assert_eq!(before.differences(&Capture::take()), Vec::<String>::new());
    }
    assert!(matches!(done.status.code(), Some(0 | 1)), "{}", shown(&done));
    let value: Value = serde_json::from_slice(&done.stdout).unwrap();
    assert_eq!(value["schema"], "quietcores.demo/1");
    let parts = value["parts"].as_array().unwrap();
    assert_eq!(parts.len(), 2, "{value}");
    for (part, name) in parts.iter().zip(["shared", "quiet"]) {
        assert_eq!(part["name"], name);
        let (played, lost) = (part["periods"].as_u64().unwrap(), part["lost"].as_u64().unwrap());
        // A second of periods, each of them played or counted as lost; and those of what a busy machine takes to end it.
        assert!((300..2000).contains(&(played + lost)), "{part}");
        let gaps = part["gaps"].as_array().unwrap();
        assert_eq!(gaps.len() as u64, part["count"].as_u64().unwrap().min(1000));
        let missed: u64 = gaps.iter().map(|gap| gap["missed"].as_u64().unwrap()).sum();
        assert_eq!(missed, lost, "{part}");
        assert_eq!(part["shielded"], root && name == "quiet");
    }
    assert_eq!(value["restored"], if root { Value::Bool(true) } else { Value::Null });
    // Thirty milliseconds of the highest priority are longer than any ring of this length: whatever the host does, they are heard.
    if root {
        assert!(parts[0]["count"].as_u64().unwrap() > 0, "{value}");
    }
    let wav = fs::read(dir.path().join("quietcores-demo.wav")).unwrap();
    assert_eq!(&wav[..4], b"RIFF");
    // Two parts of about a second and what lies between them.
    assert!(wav.len() > 2 * 48_000 * 2, "{}", wav.len());
    let page = fs::read_to_string(dir.path().join("quietcores-demo.html")).unwrap();
    assert_eq!(page.matches("<audio").count(), 2);
    // Once more: its own files are replaced.
    let again = demo(dir.path(), &["--for", "1s"]);
    assert!(matches!(again.status.code(), Some(0 | 1)), "{}", shown(&again));
    assert!(shown(&again).contains("quietcores-demo.wav"), "{}", shown(&again));
}

#[test]
fn wrong_wishes_get_a_sentence_and_play_nothing() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("mine.html"), "<p>a page of somebody else's</p>\n").unwrap();
    for (words, sentence) in [
        (&["--for", "1ms"] as &[&str], "1s to 5min"),
        (&["--cpu", "70000"], "not on line"),
        (&["--out", "mine"], "mine.html"),
        (&["--out", "nowhere/at/all"], "nowhere/at/all.wav"),
    ] {
        let done = demo(dir.path(), words);
        assert_eq!(done.status.code(), Some(2), "{}", shown(&done));
        assert!(shown(&done).contains(sentence), "{words:?}: {}", shown(&done));
    }
    let kept = fs::read_to_string(dir.path().join("mine.html")).unwrap();
    assert!(kept.starts_with("<p>a page of"));
}
