//! Verbs and long work by the interface for scripts, with the real program behind it.
#![allow(clippy::unwrap_used)] // a test may

mod machine;

use machine::{Capture, Machine, PROGRAM, a_look, read, soon, text};
use quiet_testing::{Why, faces::Server, is_long, own_cpus, skip_part, tree::fixture};
use quiet_types::live::{Deed, LiveJob, Moment, QuietState};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use std::{
    collections::BTreeSet,
    fs,
    process::Command,
    time::{Duration, Instant},
};

const HERE: [&str; 2] = ["--listen", "127.0.0.1:0"];

/// What `--help` of a verb says.
fn help(verb: &str) -> String {
    let words = verb.split(' ').filter(|word| !word.is_empty());
    let done = Command::new(PROGRAM).args(words).arg("--help").output().unwrap();
    assert!(done.status.success(), "there is no verb {verb}");
    String::from_utf8(done.stdout).unwrap()
}

/// All verbs below one that do something themselves.
fn leaves(verb: &str, found: &mut BTreeSet<String>) {
    let help = help(verb);
    let Some((_, list)) = help.split_once("\nCommands:\n") else {
        found.insert(verb.to_owned());
        return;
    };
    // A name stands two columns in; what it does goes on further right.
    let names = list.lines().take_while(|line| !line.is_empty());
    let names = names.filter_map(|line| line.strip_prefix("  ")?.split(' ').next());
    for name in names.filter(|name| !name.is_empty() && *name != "help") {
        leaves(format!("{verb} {name}").trim(), found);
    }
}

#[test]
fn every_verb_has_an_address_that_is_described_or_a_reason_to_have_none() {
    let mut verbs = BTreeSet::new();
    leaves("", &mut verbs);
    assert!(verbs.len() > 30 && verbs.contains("measure buffers"), "{verbs:?}");
    let described = quiet_web::openapi();
    let addresses = quiet_web::addresses();
    for verb in &verbs {
        let at: Vec<_> = addresses.iter().filter(|(name, ..)| name == verb).collect();
        let why = quiet_web::WITHOUT_ADDRESS.iter().find(|(name, _)| name == verb);
        assert!(at.is_empty() == why.is_some(), "{verb}: {at:?}, {why:?}");
        for (_, path, _) in at {
            assert!(!described["paths"][path].is_null(), "{verb}: {path} is not described");
        }
    }
    // What the table names is there: verbs, hidden ones too, and arguments.
    for (verb, _) in quiet_web::WITHOUT_ADDRESS {
        help(verb);
    }
    for (verb, path, arguments) in addresses {
        let help = help(verb);
        assert!(verbs.contains(verb) && help.contains("--json"), "{verb}");
        for name in arguments {
            let is_there = help.split_whitespace().any(|word| {
                word.trim_matches(',').split(['=', '[']).next() == Some(&format!("--{name}"))
            });
            assert!(is_there, "{path}: {verb} has no --{name}");
        }
    }
}

/// A job, from its beginning by POST to its end.
fn job(server: &Server, path: &str, (kind, body): (&str, &str)) -> LiveJob {
    let (status, begun) = server.send("POST", path, (kind, body.as_bytes()));
    assert_eq!(status, 200, "{path}: {begun}");
    let begun: LiveJob = serde_json::from_str(&begun).unwrap();
    let at = format!("/api/v1/jobs/{}", begun.id);
    let now = || -> LiveJob { serde_json::from_str(&server.ask("GET", &at, "").1).unwrap() };
    soon(&format!("the end of {path}"), || !now().state.is_running());
    now()
}

const JSON: &str = "application/json";
const FILE: &str = "application/octet-stream";

/// The JSON of an answer that is of this schema.
fn of(schema: &str, (status, body): (u16, String)) -> Value {
    let value: Value = serde_json::from_str(&body).unwrap_or_else(|_| panic!("no JSON: {body}"));
    assert_eq!((status, value["schema"].as_str()), (200, Some(schema)), "{body}");
    value
}

#[test]
fn the_page_of_a_farm_has_the_wall_where_a_collector_is() {
    let dir = tempfile::tempdir().unwrap();
    let server = Server::start(PROGRAM, (&dir.path().join("state"), dir.path()), &HERE);
    let (status, page) = server.ask("GET", "/farm", "");
    assert!(status == 200 && page.contains("there is no collector"), "{page}");
    assert!(page.contains("It is in no farm") && !page.contains("<iframe"), "{page}");
    assert_eq!(server.ask("GET", "/farm/wall", "").0, 409);
    let result = fs::read(fixture("results/cyclictest.json")).unwrap();
    let (status, said) = server.send("POST", "/api/v1/import", (FILE, &result));
    assert_eq!(status, 200, "{said}");
    let store = dir.path().join("store");
    let collected = Command::new(PROGRAM)
        .args(["farm", "collect"])
        .arg(&store)
        .arg("--store")
        .arg(&store)
        .output()
        .unwrap();
    assert!(collected.status.success(), "{collected:?}");
    let (_, page) = server.ask("GET", "/farm", "");
    assert!(page.contains("src=\"/farm/wall\"") && page.contains("sandbox"), "{page}");
    let (status, wall) = server.ask("GET", "/farm/wall", "");
    assert!(status == 200 && wall.starts_with("<!DOCTYPE html>"), "{wall}");
    server.stop();
}

#[test]
fn verbs_answer_by_their_addresses_as_they_do_by_hand() {
    let dir = tempfile::tempdir().unwrap();
    let server = Server::start(PROGRAM, (&dir.path().join("state"), dir.path()), &HERE);
    let get = |path: &str| server.ask("GET", &format!("/api/v1/{path}"), "");
    of("quietcores.suites/1", get("stress"));
    of("quietcores.doctor/1", get("doctor"));
    of("quietcores.setup/1", get("setup?player=mpd&card=none"));
    assert_eq!(get("tune/boots"), (200, "null".to_owned()));
    of(quiet_types::history::SCHEMA, get("trend"));
    assert_eq!(get("farm").0, 200);
    // Another program's result is kept as a run, and comes out again as it went in.
    let result = fs::read(fixture("results/oslat.json")).unwrap();
    let import = |query: &str, bytes: &[u8]| {
        server.send("POST", &format!("/api/v1/import{query}"), (FILE, bytes))
    };
    let run = of("quietcores.run/2", import("?label=by%20a%20script", &result));
    assert_eq!(run["label"], "by a script");
    let id = run["id"].as_str().unwrap();
    let (status, exported) = get(&format!("export?run={id}&format=oslat-json"));
    assert_eq!(status, 200, "{exported}");
    let whole: Value = serde_json::from_str(&exported).unwrap();
    assert_eq!(whole, serde_json::from_slice::<Value>(&result).unwrap());
    let (status, why) = import("", b"\x00\x01 nothing that anybody knows");
    assert!(status == 409 && why.contains("cannot import"), "{why}");
    let recipe = fs::read(fixture("recipes/rtirq.conf")).unwrap();
    assert_eq!(of("quietcores.import/1", import("", &recipe))["what"], "chain");
    // Long work by its own address; what it keeps is found under its id, else what it printed.
    let cpu = own_cpus().first().unwrap();
    let buffers = format!(
        r#"{{"host":"null","periods":[256],"counts":"2","stress":"none","for":"300ms","mode":"sleep","cpu":{cpu}}}"#
    );
    let done = job(&server, "/api/v1/measure/buffers", (JSON, &buffers));
    let kept = of("quietcores.buffers/1", get(&format!("runs/{}", done.result.unwrap())));
    assert_eq!(kept["rate"], 48_000);
    let trip = format!(
        r#"{{"host":"null","cable":64,"mode":"sleep","period":512,"buffer":16384,"cpu":{cpu},"level":-20}}"#
    );
    let done = job(&server, "/api/v1/measure/roundtrip", (JSON, &trip));
    assert!(done.result.is_some() && !done.said.is_empty(), "{done:?}");
    // A campaign of a stranger's: what it has, and that it reads no file of this user's.
    let campaign = |setting: &str| {
        format!(
            "[campaign]\nname = \"sent\"\ncpus = \"0\"\nrounds = 1\nfor = \"1s\"\n\
             [[probe]]\nkind = \"wakeup\"\n[[setting]]\nname = \"here\"\n{setting}"
        )
    };
    let path = "/api/v1/campaign?status=true";
    let done = job(&server, path, (FILE, &campaign("")));
    let told = of("quietcores.campaign/1", get(&format!("jobs/{}/result", done.id)));
    assert_eq!(told["left"], 1);
    let done = job(&server, path, (FILE, &campaign("chain = \"/etc/passwd\"\n")));
    let said = done.said.join("\n");
    assert!(done.state.word() == "failed" && said.contains("names a chain file"), "{said}");
    // A chain is a name: no other file is read, whatever there is.
    for chain in ["/etc/passwd", "../state", "etc/passwd"] {
        let (status, why) =
            server.ask("POST", "/api/v1/prove", &format!(r#"{{"chain":"{chain}"}}"#));
        assert!(status == 400 && why.contains("no name of a chain"), "{chain}: {why}");
    }
    server.stop();
}

/// The server is killed while a job holds a shield: the job is told to end by the kernel, and puts the machine back.
#[test]
fn a_job_whose_server_is_killed_puts_the_machine_back() {
    let Some(machine) = Machine::take() else { return };
    let before = Capture::take();
    let cpu = machine.cpu.to_string();
    let state = machine.state();
    let mut server = Server::start(PROGRAM, (&state, machine.dir()), &HERE);
    let each = a_look();
    let asked =
        format!(r#"{{"cpus":"{cpu}","pairs":40,"for":"{each}","gap":"100ms","stress":"kernel"}}"#);
    let (status, begun) = server.ask("POST", "/api/v1/prove", &asked);
    assert_eq!(status, 200, "{begun}");
    soon("a shield of the job's", || text(&machine.run("status")).contains("is up since"));
    kill_process(Pid::from_child(&server.process.0), Signal::KILL).unwrap();
    server.process.0.wait().unwrap();
    let killed = Instant::now();
    soon("the machine as it was", || {
        !state.join("journal.jsonl").exists() && before.differences(&Capture::take()).is_empty()
    });
    let took = killed.elapsed();
    eprintln!("the machine was back {took:?} after the server was killed");
    // How soon depends on what else this machine does: judged where it does nothing else.
    assert!(!is_long() || took < Duration::from_secs(2), "{took:?}");
    // No process of it is left either, once its result is written.
    let place = machine.dir().to_str().unwrap().to_owned();
    soon("no process of the job's", || {
        let all = fs::read_dir("/proc").unwrap().flatten();
        let words = all.filter_map(|entry| fs::read(entry.path().join("cmdline")).ok());
        !words.into_iter().any(|words| String::from_utf8_lossy(&words).contains(&place))
    });
}

#[test]
fn a_script_applies_by_the_interface_and_a_stranger_on_the_shield_is_named() {
    let Some(machine) = Machine::take() else { return };
    let cpu = machine.cpu.to_string();
    let state = machine.state();
    let server = Server::start(
        PROGRAM,
        (&state, machine.dir()),
        &["--listen", "127.0.0.1:0", "--cpus", &cpu, "--rate", "10"],
    );
    // Where nobody has looked before, what stands there has not happened.
    assert_eq!(server.ask("GET", "/api/v1/live", "").0, 200);
    let before = Capture::take();
    let (status, plan) = server.ask("GET", "/api/v1/plan", "");
    assert_eq!(status, 200, "{plan}");
    let (status, deed) = server.ask("POST", "/api/v1/apply", r#"{"confirm":600}"#);
    assert_eq!(status, 200, "{deed}");
    assert_eq!(serde_json::from_str::<Deed>(&deed).unwrap().asked, "apply");
    assert_eq!(server.ask("POST", "/api/v1/confirm", "{}").0, 200);
    let now =
        || -> Moment { serde_json::from_str(&server.ask("GET", "/api/v1/live", "").1).unwrap() };
    soon("it is up", || {
        now().shield.is_some_and(|s| {
            s.confirm.is_none() && s.cpus.contains(quiet_types::CpuId(machine.cpu))
        })
    });
    // No thread of the server's own is left there.
    let own = format!("/proc/{}/task", server.process.0.id());
    for thread in fs::read_dir(own).unwrap().flatten() {
        let status = read(thread.path().join("status").to_str().unwrap());
        let allowed = status.lines().find_map(|l| l.strip_prefix("Cpus_allowed_list:")).unwrap();
        let allowed: quiet_types::CpuSet = allowed.trim().parse().unwrap();
        assert!(!allowed.contains(quiet_types::CpuId(machine.cpu)), "{status}");
    }
    // Somebody who goes there is met, by name. In a partition nobody can by his own mask alone.
    let mut stranger = Command::new("sh");
    let entry = now().shield.unwrap().mechanism;
    let mut spinning = stranger.args(["-c", "while :; do :; done"]).spawn().unwrap();
    let moved = Command::new("taskset")
        .args(["-p", "-c", &cpu, &spinning.id().to_string()])
        .output()
        .unwrap();
    if moved.status.success() {
        soon("the stranger is told of", || {
            let moment = now();
            moment.quiet.state == QuietState::Disturbed
                && moment
                    .cpus
                    .iter()
                    .flat_map(|c| &c.occupants)
                    .any(|one| one.foreign && one.name == "sh")
        });
    } else {
        let why = format!("nobody can go onto this shield ({entry:?}): {}", text(&moved));
        skip_part(Why::Machine(why));
    }
    spinning.kill().unwrap();
    spinning.wait().unwrap();
    let (status, deed) = server.ask("POST", "/api/v1/revert", "{}");
    assert_eq!(status, 200, "{deed}");
    soon("it is down", || now().quiet.state == QuietState::Open);
    let events = server.ask("GET", "/api/v1/events", "").1;
    assert!(events.contains("applied") && events.contains("reverted"), "{events}");
    assert_eq!(before.differences(&Capture::take()), Vec::<String>::new());
    server.stop();
}
