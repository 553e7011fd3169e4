//! jalv plays the LV2 bundle on a JACK server without a card: the bits of `render`, levels from its console, states
//! that it saves and loads. With `QUIETCORES_LONG` it plays for ten minutes.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod hosted;

use hosted::{bundle, here, rendered_one, said_by, wav_one};
use jack::{AudioIn, AudioOut, ClientOptions, Control, contrib::ClosureProcessHandler};
use quiet_testing::{Why, program, skip};
use std::{
    fs,
    io::Write as _,
    path::Path,
    process::{Child, Command, Stdio},
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed},
    },
    time::{Duration, Instant},
};

/// Says the inner test which server it is to use, and where its files are.
const INNER: &str = "QUIETCORES_TEST_JALV";
/// Frames of silence before what is compared: longer than the strip remembers.
const SILENCE: usize = 9600;

/// A program that is ended with the test.
struct Ended(Child);

impl Drop for Ended {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn seconds() -> usize {
    if std::env::var_os("QUIETCORES_LONG").is_some() { 600 } else { 3 }
}

fn noise(count: usize) -> Vec<f32> {
    let mut random = fastrand::Rng::with_seed(7);
    (0..count).map(|_| random.f32() * 0.2 - 0.1).collect()
}

#[test]
fn jalv_plays_what_render_writes() {
    if let Some(folder) = std::env::var_os(INNER) {
        return inner(Path::new(&folder));
    }
    for (name, package) in [("jackd", "jackd2"), ("jalv", "jalv")] {
        if program(name).is_none() {
            return skip(Why::Program(name, package));
        }
    }
    let folder = tempfile::tempdir().unwrap();
    let ir = folder.path().join("cab.wav");
    wav_one(&ir, &[0.5, 0.0, -0.25, 0.125]);
    let amp = here("../../fixtures/amps/BossWN-nano.nam").canonicalize().unwrap();
    bundle(folder.path(), &[("amp", &amp), ("ir", &ir)]);
    let name = format!("quietcores-{}", std::process::id());
    let log = fs::File::create(folder.path().join("jackd.log")).unwrap();
    // Every cycle waits for its clients, however loaded the machine is: nothing is lost.
    let server = Command::new("jackd")
        .args(["-n", &name, "-r", "-S", "-t", "60000"])
        .args(["-d", "dummy", "-r", "48000", "-p", "64"])
        .stdout(log.try_clone().unwrap())
        .stderr(log)
        .spawn();
    let _server = Ended(server.unwrap());
    // The library of JACK's clients reads the server's name from the environment.
    let done = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "jalv_plays_what_render_writes", "--nocapture"])
        .env(INNER, folder.path())
        .env("JACK_DEFAULT_SERVER", &name)
        .env("LV2_PATH", format!("{}/lv2:/usr/lib/lv2", folder.path().display()))
        .output()
        .unwrap();
    let text = said_by(&done);
    assert!(done.status.success(), "{text}");
}

/// Waits until there is what is waited for.
fn until<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let end = Instant::now() + Duration::from_secs(60);
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(Instant::now() < end, "{what} does not come");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// A host of one plugin, whose state lies in `folder`.
fn jalv(folder: &Path) -> Child {
    let log = fs::File::create(folder.join("jalv.log")).unwrap();
    Command::new("jalv")
        .args(["-x", "-n", "strip", "-l"])
        .arg(folder.join("state"))
        .arg("urn:quietcores:strip")
        .stdin(Stdio::piped())
        .stdout(log.try_clone().unwrap())
        .stderr(log)
        .spawn()
        .unwrap()
}

/// As a host keeps it.
fn state(folder: &Path, files: &[(&str, &Path)]) {
    let to = folder.join("state");
    fs::create_dir_all(&to).unwrap();
    let named: String = files
        .iter()
        .map(|(key, path)| {
            format!("<urn:quietcores:strip#{key}> \"{}\"^^atom:Path ;\n", path.display())
        })
        .collect();
    let text = format!(
        "@prefix atom: <http://lv2plug.in/ns/ext/atom#> .\n\
         @prefix lv2: <http://lv2plug.in/ns/lv2core#> .\n\
         @prefix pset: <http://lv2plug.in/ns/ext/presets#> .\n\
         @prefix state: <http://lv2plug.in/ns/ext/state#> .\n\
         <> a pset:Preset ; lv2:appliesTo <urn:quietcores:strip> ;\nstate:state [\n{named}] .\n"
    );
    fs::write(to.join("state.ttl"), text).unwrap();
}

fn client(name: &str) -> jack::Client {
    jack::set_logger(jack::LoggerType::None);
    until("the server", || jack::Client::new(name, ClientOptions::NO_START_SERVER).ok()).0
}

fn inner(folder: &Path) {
    let amp = here("../../fixtures/amps/BossWN-nano.nam").canonicalize().unwrap();
    let ir = folder.join("cab.wav");
    state(folder, &[("amp", &amp), ("ir", &ir)]);
    let mut x = vec![0.0; SILENCE];
    x.extend(noise(48_000 * seconds()));
    let wanted = rendered_one(folder, &[("amp", &amp), ("ir", &ir)], &x);
    let x = Arc::new(x);

    // What plays: silence, and from a frame on that it says, `x` over and over.
    let (from, source) = (Arc::new(AtomicU64::new(u64::MAX)), client("source"));
    let mut port = source.register_port("out", AudioOut::default()).unwrap();
    let (begun, playing) = (Arc::clone(&from), Arc::clone(&x));
    let mut at = 0;
    let (go, started) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let asked = Arc::clone(&go);
    let play = ClosureProcessHandler::new(move |_: &jack::Client, scope: &jack::ProcessScope| {
        let out = port.as_mut_slice(scope);
        out.fill(0.0);
        if asked.load(Relaxed) > 0 {
            if at == 0 {
                begun.store(u64::from(scope.last_frame_time()), Relaxed);
            }
            let left = &playing[at.min(playing.len())..];
            let count = left.len().min(out.len());
            out[..count].copy_from_slice(&left[..count]);
            at += count;
        }
        Control::Continue
    });
    // What listens, from the beginning on; the newest samples also for those who look at levels.
    let sink = client("sink");
    let port = sink.register_port("in", AudioIn::default()).unwrap();
    let heard = Arc::new(Mutex::new((None, Vec::with_capacity(x.len() + (48_000 * 120)))));
    let (to, seen) = (Arc::clone(&heard), Arc::clone(&started));
    let listen = ClosureProcessHandler::new(move |_: &jack::Client, scope: &jack::ProcessScope| {
        let (first, all) = &mut *to.lock().unwrap();
        first.get_or_insert(u64::from(scope.last_frame_time()));
        if all.len() + 64 <= all.capacity() {
            all.extend_from_slice(port.as_slice(scope));
        }
        seen.store(all.len(), Relaxed);
        Control::Continue
    });
    let source = source.activate_async((), play).unwrap();
    let sink = sink.activate_async((), listen).unwrap();
    let mut host = Ended(jalv(folder));
    let log = || fs::read_to_string(folder.join("jalv.log")).unwrap_or_default();
    until("jalv", || source.as_client().port_by_name("strip:out").map(drop));
    until("a connection", || {
        source.as_client().connect_ports_by_name("source:out", "strip:in").ok()
    });
    until("a connection", || sink.as_client().connect_ports_by_name("strip:out", "sink:in").ok());
    go.store(1, Relaxed);
    let begun = started.load(Relaxed);
    while started.load(Relaxed) < begun + x.len() + 9600 {
        assert!(host.0.try_wait().unwrap().is_none(), "jalv ended: {}", log());
        std::thread::sleep(Duration::from_millis(50));
    }
    let offset = {
        let (first, all) = &*heard.lock().unwrap();
        let offset = (from.load(Relaxed) - first.unwrap()) as usize;
        let got = &all[offset + SILENCE..][..x.len() - SILENCE];
        let wanted = &wanted[SILENCE..x.len()];
        assert!(wanted.iter().any(|y| y.abs() > 0.01));
        let wrong = got.iter().zip(wanted).position(|(a, b)| a.to_bits() != b.to_bits());
        assert_eq!(wrong, None, "of {} samples; {}", got.len(), log());
        println!("{} samples, no difference", got.len());
        offset
    };
    let _ = offset;
    // The console's word moves a level.
    let resting = |from: usize| -> f32 {
        let end = from + 4800;
        until("sound", || (started.load(Relaxed) >= end).then_some(()));
        let (_, all) = &*heard.lock().unwrap();
        all[end - 480..end].iter().fold(0.0, |most, y| y.abs().max(most))
    };
    let loud = resting(started.load(Relaxed));
    host.0.stdin.as_mut().unwrap().write_all(b"output = -60\n").unwrap();
    if loud > 1e-4 {
        until("a softer level", || {
            (resting(started.load(Relaxed)) < loud / 100.0).then_some(())
        });
    }
    host.0.stdin.as_mut().unwrap().write_all(b"quit\n").unwrap();
    let ended = until("jalv's end", || host.0.try_wait().unwrap());
    assert!(ended.success(), "{ended}: {}", log());
    drop((source.deactivate(), sink.deactivate()));
}
