//! `measure roundtrip` as a whole, on the card that does not exist: its answer is known.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

use serde_json::Value;
use std::process::{Command, Output};

/// A long ring: what is tested is not this machine's latency.
const BUFFER: f64 = 49_152.0;

fn roundtrip(more: &[&str]) -> Output {
    let store = tempfile::tempdir().unwrap();
    let given = |name: &str| more.contains(&name);
    let usual =
        [("--host", "null"), ("--buffer", "49152"), ("--longest", "300ms"), ("--cable", "0")];
    let usual = usual.iter().filter(|(name, _)| !given(name)).flat_map(|(a, b)| [a, b]);
    Command::new(env!("CARGO_BIN_EXE_quietcores"))
        .args(["measure", "roundtrip", "--mode", "sleep", "--rate", "192000"])
        .args(["--period", "512", "--json", "--store"])
        .arg(store.path())
        .args(usual)
        .args(more)
        .output()
        .unwrap()
}

fn json(output: &Output) -> Value {
    serde_json::from_slice(&output.stdout)
        .unwrap_or_else(|_| panic!("{}", String::from_utf8_lossy(&output.stderr)))
}

#[test]
fn a_known_delay_is_told_exactly_with_polarity_and_what_is_left() {
    for (cable, delay, inverted) in [("137", 137.0, false), ("-300.25", 300.25, true)] {
        let output = roundtrip(&["--cable", cable, "--cycles", "2"]);
        let trip = json(&output);
        assert!(output.status.success(), "{trip}");
        assert_eq!(trip["schema"], "quietcores.roundtrip/1");
        let cycles = trip["cycles"].as_array().unwrap();
        assert_eq!(cycles.len(), 2);
        for cycle in cycles {
            let heard = &cycle["heard"];
            let frames = heard["frames"].as_f64().unwrap();
            assert!((frames - BUFFER - delay).abs() < 1e-3, "{heard}");
            let sweep = heard["sweep_before"].as_f64().unwrap();
            assert!((sweep - BUFFER - delay).abs() < 0.02, "{heard}");
            assert_eq!(heard["inverted"], inverted);
            assert!(heard["drift_ppm"].as_f64().unwrap().abs() < 0.01, "{heard}");
        }
        let rest = trip["budget"].as_array().unwrap().iter().find(|p| p["name"] == "rest").unwrap();
        assert!((rest["frames"].as_f64().unwrap() - delay).abs() < 1e-3, "{rest}");
        let spread = &trip["spread"];
        assert!(spread["most"].as_f64().unwrap() - spread["least"].as_f64().unwrap() < 1e-3);
    }
}

#[test]
fn what_was_measured_by_sound_is_listed_and_drawn() {
    let store = tempfile::tempdir().unwrap();
    let run = |args: &[&str]| {
        let program = Command::new(env!("CARGO_BIN_EXE_quietcores"))
            .args(args)
            .arg("--store")
            .arg(store.path())
            .current_dir(store.path())
            .output()
            .unwrap();
        String::from_utf8_lossy(&program.stdout).into_owned()
    };
    let on = ["--host", "null", "--mode", "sleep", "--rate", "96000"];
    let trip = ["measure", "roundtrip", "--period", "512", "--buffer", "16384", "--cable", "100"];
    run(&[&trip[..], &on].concat());
    let small = ["--periods", "4096", "--counts", "4", "--for", "50ms", "--stress", "none"];
    run(&[&["measure", "buffers"][..], &small, &on].concat());
    let listed = run(&["runs"]);
    assert!(listed.contains("round trip 16484.000 frames"), "{listed}");
    assert!(listed.contains("sleep, shared: "), "{listed}");
    assert!(!run(&["runs", "kernel=*"]).contains("round trip"));
    let history: Value = serde_json::from_str(&run(&["runs", "--json"])).unwrap();
    let sounds = history["by_sound"].as_array().unwrap();
    assert_eq!(sounds.len(), 2);
    assert_eq!(sounds[0]["schema"], "quietcores.roundtrip/1");
    for (sound, says) in sounds.iter().zip(["16484.000", "none seen"]) {
        let id = sound["id"].as_str().unwrap();
        run(&["report", id]);
        let page = std::fs::read_to_string(store.path().join(format!("{id}.html"))).unwrap();
        assert!(page.contains(says) && page.contains("<table"), "{id}");
        run(&["report", id, "--markdown"]);
        assert!(
            std::fs::read_to_string(store.path().join(format!("{id}.md"))).unwrap().len() > 200
        );
    }
}

#[test]
fn what_does_not_come_back_in_time_is_said_to_be_missing() {
    for (cable, longest, says) in [
        ("9000", "40ms", "came back after 25384 frames, later than"),
        ("40000", "20ms", "no signal came back within 20 ms"),
        ("53000", "333ms", "longer, and after 65536 frames"),
    ] {
        let output = roundtrip(&["--buffer", "16384", "--cable", cable, "--longest", longest]);
        assert_eq!(output.status.code(), Some(2));
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(said.contains(says), "{said}");
        let trip = json(&output);
        assert_eq!((&trip["spread"], &trip["cycles"][0]["heard"]), (&Value::Null, &Value::Null));
    }
}

#[test]
fn what_makes_no_sense_is_a_sentence() {
    for (more, says) in [
        (&["--level", "3"][..], "-80 to 0"),
        (&["--longest", "1us"], "1ms to 8s"),
        (&["--longest", "8s"], "1536000 frames at 192000 Hz"),
        (&["--cycles", "0"], "cycles"),
        (&["--in", "3"], "there are 2 channels"),
        (&["--host", "file"], "no way back"),
        (&["--cable", "1.5"], "64 or more"),
    ] {
        let output = roundtrip(more);
        assert_eq!(output.status.code(), Some(2), "{more:?}");
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(said.contains(says), "{more:?}: {said}");
    }
}
