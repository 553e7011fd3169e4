//! The stream on the machine that the test runs on.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

use quiet_linux::Root;
use quiet_live::{LiveOptions, Stream, changes};
use quiet_types::{
    live::{LIVE_SCHEMA, LiveEventKind, LiveShield, QuietState},
    plan::{Drift, STATUS_SCHEMA, ShieldStanding, Status},
};
use std::{
    io::{BufRead, BufReader, Write},
    os::unix::net::UnixListener,
    time::{Duration, Instant},
};

fn no_shield() -> Status {
    serde_json::from_str(&format!(
        r#"{{"schema":"{STATUS_SCHEMA}","state":"none","shield":null,"since":null,"drift":[],"residents":[],"holder":null,"refused":[]}}"#
    ))
    .unwrap()
}

/// Where a look is dear, as in an emulator, there is one in half a minute.
const LONG: Duration = Duration::from_secs(600);

#[test]
fn moments_come_one_after_the_other_and_name_who_is_busy() {
    let status = Box::new(|| Ok(no_shield()));
    let stream = Stream::start(Root::system().unwrap(), LiveOptions::at(10.0), status).unwrap();
    let watch = stream.watch();
    let first = watch.after(0, LONG).unwrap();
    assert_eq!((first.schema.as_str(), first.quiet.state), (LIVE_SCHEMA, QuietState::Open));
    assert!(first.cpus.iter().any(|cpu| cpu.online));
    // A thread that is never idle is met by some look.
    let busy = std::sync::atomic::AtomicBool::new(true);
    /// Ends the thread that spins, also where the test fails: its scope would wait for it for ever.
    struct Ended<'a>(&'a std::sync::atomic::AtomicBool);
    impl Drop for Ended<'_> {
        fn drop(&mut self) {
            self.0.store(false, std::sync::atomic::Ordering::Relaxed);
        }
    }
    let met = std::thread::scope(|scope| {
        let _ended = Ended(&busy);
        let spin = || {
            while busy.load(std::sync::atomic::Ordering::Relaxed) {
                std::hint::spin_loop()
            }
        };
        std::thread::Builder::new()
            .name("spins-for-test".into())
            .spawn_scoped(scope, spin)
            .unwrap();
        let mut number = first.number;
        let mut met = false;
        for _ in 0..200 {
            let moment = watch.after(number, LONG).unwrap();
            assert!(moment.number > number);
            number = moment.number;
            met = moment
                .cpus
                .iter()
                .flat_map(|c| &c.occupants)
                .any(|one| one.name == "spins-for-test");
            if met {
                break;
            }
        }
        met
    });
    assert!(met, "nobody named it");
    drop(stream);
    assert!(watch.after(u64::MAX, Duration::from_millis(1)).is_none());
}

/// Looks that are dear are half a minute apart. Who waits for one gets it, and who asks between two has the last one at once.
#[test]
fn rare_moments_come_while_somebody_waits() {
    let status = Box::new(|| Ok(no_shield()));
    let options = LiveOptions { every: Duration::from_secs(12), ..LiveOptions::at(10.0) };
    let stream = Stream::start(Root::system().unwrap(), options, status).unwrap();
    let (watch, began) = (stream.watch(), Instant::now());
    let first = watch.after(0, LONG).unwrap().number;
    let last = watch.recent(Duration::ZERO, Duration::ZERO);
    assert!(
        last.is_some() || began.elapsed() > Duration::from_secs(11),
        "the last one was not given"
    );
    assert!(watch.after(first, LONG).unwrap().number > first);
}

#[test]
fn what_cannot_be_seen_is_said_and_is_no_end() {
    let status = Box::new(|| Err("no rights\u{1b}[2J".to_owned()));
    let stream = Stream::start(Root::system().unwrap(), LiveOptions::at(10.0), status).unwrap();
    let moment = stream.watch().after(0, LONG).unwrap();
    assert_eq!(moment.quiet.state, QuietState::Unknown);
    assert!(moment.unread[0].starts_with("the shield: no rights\u{fffd}"), "{:?}", moment.unread);
}

#[test]
fn an_engine_is_asked_over_its_socket_and_one_that_answers_nonsense_is_left_alone() {
    let dir = tempfile::tempdir().unwrap();
    let good = UnixListener::bind(dir.path().join("play.sock")).unwrap();
    let bad = UnixListener::bind(dir.path().join("play-17.sock")).unwrap();
    let _other = UnixListener::bind(dir.path().join("else.sock")).unwrap();
    let answer = |listener: UnixListener, line: &'static str| {
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let mut asked = BufReader::new(stream.try_clone().unwrap());
                let mut stream = stream;
                let mut text = String::new();
                while asked.read_line(&mut text).is_ok_and(|n| n > 0) {
                    assert_eq!(text, "{\"do\":\"stats\"}\n");
                    text.clear();
                    if writeln!(stream, "{line}").is_err() {
                        break;
                    }
                }
            }
        })
    };
    answer(
        good,
        r#"{"ok":true,"strip":"clean\u001b","rate":48000,"period":64,"buffer":128,"mode":"sleep","cpus":"1","real_time":true,"shielded":true,"blocks":9,"xruns":1,"missed":2,"dropped_events":0,"broken":0,"gone":0,"load":{"mean":1.0,"p50":1,"p99":2,"worst":5,"worst_at":1,"histogram":[]},"between":1,"waiting":0,"levels":[{"input":-3.0,"output":-6.0}],"ratio":null,"last_xruns":[{"at":5,"missed":2}]}"#,
    );
    answer(bad, "[[[[");
    let mut engines = quiet_live::Engines::at(Some(dir.path().to_owned()));
    let sounds = engines.look();
    assert_eq!(sounds.len(), 1);
    assert_eq!((sounds[0].strip.as_str(), sounds[0].late), ("clean\u{fffd}", 0));
    assert_eq!(engines.processes(), [std::process::id()].into());
    let refused = quiet_live::ask(dir.path(), "../etc/passwd", &serde_json::json!({}));
    assert!(refused.unwrap_err().to_string().contains("no engine plays"));
}

fn shield(state: ShieldStanding) -> LiveShield {
    LiveShield {
        state,
        cpus: "1".parse().unwrap(),
        housekeeping: "0".parse().unwrap(),
        mechanism: None,
        since: Some("t".into()),
        by: Some("root".into()),
        drift: Vec::new(),
        intruders: Vec::new(),
        astray: Vec::new(),
        confirm: None,
        guarded: true,
        lent: None,
    }
}

#[test]
fn what_became_of_a_shield_is_told_by_two_looks() {
    use LiveEventKind as Kind;
    let (none, up) = (shield(ShieldStanding::None), shield(ShieldStanding::Up));
    let kinds = |a: &LiveShield, b: &LiveShield| {
        changes(a, b).into_iter().map(|(kind, _)| kind).collect::<Vec<_>>()
    };
    assert_eq!(kinds(&none, &up), [Kind::Applied]);
    assert_eq!(kinds(&up, &none), [Kind::Reverted]);
    assert_eq!(kinds(&up, &up), []);
    let waits = LiveShield { confirm: Some(9), ..up.clone() };
    assert_eq!(kinds(&waits, &up), [Kind::Confirmed]);
    // Seen while it was put up, and confirmed before the next look.
    let half = LiveShield { state: ShieldStanding::Leftover, ..waits.clone() };
    assert_eq!(kinds(&half, &up), [Kind::Applied, Kind::Confirmed]);
    assert_eq!(kinds(&half, &waits), [Kind::Applied]);
    let later = LiveShield { since: Some("later".into()), ..up.clone() };
    assert_eq!(kinds(&waits, &later), [Kind::Reverted, Kind::Applied]);
    let lent = LiveShield { lent: Some(60), ..up.clone() };
    assert_eq!(kinds(&up, &lent), [Kind::Lent]);
    assert_eq!(kinds(&lent, &up), [Kind::TakenBack]);
    let drift = Drift { what: "IRQ 9".into(), ours: "CPU 0".into(), now: Some("CPU 1".into()) };
    let drifted = LiveShield { drift: vec![drift], ..up.clone() };
    assert_eq!(kinds(&up, &drifted), [Kind::Drifted]);
    assert_eq!(kinds(&drifted, &up), [Kind::Mended]);
    let another = LiveShield { since: Some("later".into()), ..up.clone() };
    assert_eq!(kinds(&up, &another), [Kind::Reverted, Kind::Applied]);
    let said = quiet_live::verdict(Some(&drifted), &[], &[]);
    assert_eq!(said.state, QuietState::Disturbed);
    assert_eq!(said.sentence, "CPU 1 is not quiet: IRQ 9 is CPU 1, and was made CPU 0.");
    let said = quiet_live::verdict(Some(&waits), &[], &[]);
    assert_eq!(
        said.sentence,
        "CPU 1 is quiet: nothing foreign runs there. It is put back in 9 s unless it is confirmed."
    );
}

/// The shield goes up and down between moments that nobody fetches: who comes late has both, once.
#[test]
fn who_is_slow_misses_moments_and_no_event() {
    let turn = std::sync::atomic::AtomicUsize::new(0);
    let status = move || {
        let is_up = turn.fetch_add(1, std::sync::atomic::Ordering::Relaxed) % 2 == 1;
        let state = if is_up { ShieldStanding::Up } else { ShieldStanding::None };
        Ok(Status { state, ..no_shield() })
    };
    let stream =
        Stream::start(Root::system().unwrap(), LiveOptions::at(10.0), Box::new(status)).unwrap();
    let (quick, slow) = (stream.watch(), stream.watch());
    let first = slow.after(0, LONG).unwrap().number;
    let mut number = first;
    let mut seen = Vec::new();
    let shields = |moment: &quiet_types::live::Moment| {
        let of_shields = |event: &&quiet_types::live::LiveEvent| {
            use quiet_types::live::LiveEventKind::{Applied, Reverted};
            [Applied, Reverted].contains(&event.kind)
        };
        moment.events.iter().filter(of_shields).cloned().collect::<Vec<_>>()
    };
    let began = Instant::now();
    while seen.len() < 4 {
        assert!(began.elapsed() < LONG, "{seen:?}");
        quick.poke();
        let moment = quick.after(number, LONG).unwrap();
        number = moment.number;
        seen.extend(shields(&moment));
    }
    let late = slow.after(first, LONG).unwrap();
    assert!(late.number >= number && number > first + 1);
    let all = shields(&late);
    assert_eq!(all[..seen.len()], seen[..]);
    assert!(slow.after(late.number, LONG).unwrap().events.iter().all(|one| !all.contains(one)));
}
