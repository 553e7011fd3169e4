//! jalv plays the LV2 bundle on a JACK server without a card: the bits of `render` from a saved state, from files that
//! its window sets, from a preset while it plays. With `QUIETCORES_LONG` the first of them for ten minutes, in longer periods.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod hosted;

use hosted::{bundle, here, rendered_one, said_by, wav_one, window};
use jack::{AudioIn, AudioOut, ClientOptions, Control, contrib::ClosureProcessHandler};
use quiet_testing::{JackServer, Why, is_long, output_with_me, program, skip, spawn_with_me};
use std::{
    fs,
    io::Write as _,
    path::{Path, PathBuf},
    process::{Child, ChildStdin, Command, Stdio},
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering::Relaxed},
        mpsc,
    },
    time::{Duration, Instant},
};

/// Says the inner test where its files are.
const INNER: &str = "QUIETCORES_TEST_JALV";
/// Frames of silence before what is compared: longer than the strip remembers.
const SILENCE: usize = 9600;
/// What is waited for comes within this time, or is said to be missing.
const PATIENCE: Duration = Duration::from_secs(100);

/// One server at a time.
static SERVER: Mutex<()> = Mutex::new(());

/// Runs the inner test of this name as a process of its own, beside a server without a card.
fn beside_a_server(name: &str) {
    for (program_, package) in [("jackd", "jackd2"), ("jalv", "jalv"), ("cc", "gcc")] {
        if program(program_).is_none() {
            return skip(Why::Program(program_, package));
        }
    }
    let _alone = SERVER.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let folder = tempfile::tempdir().unwrap();
    let server = "quietcores-jalv";
    let log = folder.path().join("jackd.log");
    let _jackd = JackServer::start(server, if is_long() { 1024 } else { 64 }, &log).unwrap();
    // The library of JACK's clients reads the server's name from the environment.
    let mut inner = Command::new(std::env::current_exe().unwrap());
    inner
        .args(["--exact", name, "--nocapture"])
        .env(INNER, folder.path())
        .env("JACK_DEFAULT_SERVER", server)
        .env("LV2_PATH", format!("{}/lv2:/usr/lib/lv2", folder.path().display()));
    let done = output_with_me(&mut inner).unwrap();
    let text = said_by(&done);
    let jackd = fs::read_to_string(log).unwrap_or_default();
    let said: String = jackd.lines().filter(|l| !l.contains("XRun")).collect();
    assert!(done.status.success(), "{text}\n{said}");
    text.lines().filter(|line| line.contains("no difference")).for_each(|line| println!("{line}"));
}

/// The folder of the inner test, if this is it. A fault ends it at once: a client whose thread waits for one that has
/// panicked would never be closed.
fn inner() -> Option<PathBuf> {
    let folder = std::env::var_os(INNER)?;
    let say = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |fault| {
        say(fault);
        std::process::exit(1);
    }));
    Some(folder.into())
}

fn until<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let end = Instant::now() + PATIENCE;
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(Instant::now() < end, "{what} does not come");
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn noise(seconds: usize) -> Vec<f32> {
    let mut random = fastrand::Rng::with_seed(7);
    (0..48_000 * seconds).map(|_| random.f32() * 0.2 - 0.1).collect()
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

/// jalv and its two neighbours: what plays into it and what listens.
struct Rig {
    jalv: Child,
    /// Its console; closed to end it.
    console: Option<ChildStdin>,
    log: PathBuf,
    /// What is to be played next.
    next: mpsc::SyncSender<Arc<Vec<f32>>>,
    /// What was heard, 64 frames each.
    heard: mpsc::Receiver<[f32; 64]>,
    lost: Arc<AtomicBool>,
    clients: Box<dyn std::any::Any>,
}

fn client(name: &str) -> jack::Client {
    jack::set_logger(jack::LoggerType::None);
    until("the server", || jack::Client::new(name, ClientOptions::NO_START_SERVER).ok()).0
}

impl Rig {
    fn begin(folder: &Path, words: &[&str]) -> Rig {
        let (next, play_next) = mpsc::sync_channel::<Arc<Vec<f32>>>(1);
        let source = client("source");
        let mut port = source.register_port("out", AudioOut::default()).unwrap();
        let (mut playing, mut at) = (Arc::new(Vec::new()), 0);
        let play =
            ClosureProcessHandler::new(move |_: &jack::Client, scope: &jack::ProcessScope| {
                let out = port.as_mut_slice(scope);
                out.fill(0.0);
                if at >= playing.len()
                    && let Ok(next) = play_next.try_recv()
                {
                    (playing, at) = (next, 0);
                }
                let left = &playing[at.min(playing.len())..];
                let count = left.len().min(out.len());
                out[..count].copy_from_slice(&left[..count]);
                at += count;
                Control::Continue
            });
        let sink = client("sink");
        let port = sink.register_port("in", AudioIn::default()).unwrap();
        let (tell, heard) = mpsc::sync_channel(1 << 16);
        let lost = Arc::new(AtomicBool::new(false));
        let missed = lost.clone();
        let listen =
            ClosureProcessHandler::new(move |_: &jack::Client, scope: &jack::ProcessScope| {
                for part in port.as_slice(scope).as_chunks().0 {
                    if tell.try_send(*part).is_err() {
                        missed.store(true, Relaxed);
                    }
                }
                Control::Continue
            });
        let source = source.activate_async((), play).unwrap();
        let sink = sink.activate_async((), listen).unwrap();
        let log = folder.join("jalv.log");
        let to = fs::File::create(&log).unwrap();
        let mut jalv = Command::new("jalv");
        jalv.args(["-x", "-n", "strip"])
            .args(words)
            .arg("urn:quietcores:strip")
            .stdin(Stdio::piped())
            .stdout(to.try_clone().unwrap())
            .stderr(to);
        let mut jalv = spawn_with_me(&mut jalv).unwrap();
        until("jalv", || source.as_client().port_by_name("strip:out").map(drop));
        for (from, to) in [("source:out", "strip:in"), ("strip:out", "sink:in")] {
            until("a connection", || source.as_client().connect_ports_by_name(from, to).ok());
        }
        let (console, clients) = (jalv.stdin.take(), Box::new((source, sink)));
        Rig { jalv, console, log, next, heard, lost, clients }
    }

    fn log(&self) -> String {
        fs::read_to_string(&self.log).unwrap_or_default()
    }

    fn say(&mut self, line: &str) {
        self.console.as_mut().unwrap().write_all(line.as_bytes()).unwrap();
    }

    fn period(&mut self) -> [f32; 64] {
        let period = self.heard.recv_timeout(PATIENCE).unwrap();
        assert!(!self.lost.load(Relaxed), "the test was too slow and lost what was heard");
        period
    }

    /// Plays `x` behind a silence: what is heard is `wanted` to the bit.
    fn hears(&mut self, what: &str, x: &[f32], wanted: &[f32]) {
        let mut whole = vec![0.0; SILENCE];
        whole.extend_from_slice(x);
        self.next.send(Arc::new(whole)).unwrap();
        // Both begin a period, as jalv is called with whole ones; how many later it is heard is the server's matter.
        let (first, _) = wanted.as_chunks::<64>();
        let same = |a: &[f32; 64], b: &[f32; 64]| a.map(f32::to_bits) == b.map(f32::to_bits);
        let waits = (0..(SILENCE / 64 + 48_000)).position(|_| same(&self.period(), &first[0]));
        assert!(waits.is_some(), "{what}: never heard; {}", self.log());
        for (n, wanted) in first.iter().enumerate().skip(1) {
            let heard = self.period();
            assert!(same(&heard, wanted), "{what}: another at period {n}; {}", self.log());
        }
        println!("{what}: {} samples, no difference", 64 * first.len());
    }

    /// Hears so much of a second: as the server counts time, which on a busy machine stands still now and then.
    fn passes(&mut self, seconds: f32) {
        while self.heard.try_recv().is_ok() {}
        for _ in 0..(seconds * 750.0) as usize {
            self.period();
        }
    }

    /// Waits until the rest, which an amp makes of silence, is below a level.
    fn falls_below(&mut self, most: f32) {
        let end = Instant::now() + PATIENCE;
        while self.period().iter().any(|y| y.abs() > most) {
            assert!(Instant::now() < end, "the level does not fall; {}", self.log());
        }
    }

    /// jalv's end: by its console, or one with a window, which has none, by interruptions: the first ends the window.
    fn end(mut self, window: bool) {
        drop(self.console.take());
        let ended = until("jalv's end", || {
            while self.heard.try_recv().is_ok() {}
            if window {
                let told =
                    Command::new("kill").args(["-INT", &self.jalv.id().to_string()]).status();
                assert!(told.unwrap().success());
            }
            std::thread::sleep(Duration::from_millis(300));
            self.jalv.try_wait().unwrap()
        });
        assert!(ended.success(), "{ended}: {}", self.log());
        drop(self.clients);
    }
}

fn amp(name: &str) -> PathBuf {
    here("../../fixtures/amps").join(name).canonicalize().unwrap()
}

/// What `render` makes of `x` behind a silence.
fn wanted(folder: &Path, files: &[(&str, &Path)], x: &[f32]) -> Vec<f32> {
    let mut whole = vec![0.0; SILENCE];
    whole.extend_from_slice(x);
    let mut all = rendered_one(folder, files, &whole);
    assert!(all[SILENCE..].iter().any(|y| y.abs() > 0.01));
    all.split_off(SILENCE)
}

#[test]
fn a_saved_state_sounds_as_render_and_a_preset_while_it_plays() {
    if quiet_testing::left_out("6 s") {
        return;
    }
    let Some(folder) = inner() else {
        return beside_a_server("a_saved_state_sounds_as_render_and_a_preset_while_it_plays");
    };
    let seconds = if is_long() { 600 } else { 3 };
    let [ir, other] = ["cab.wav", "other.wav"].map(|name| folder.join(name));
    wav_one(&ir, &[0.5, 0.0, -0.25, 0.125]);
    wav_one(&other, &[0.0, 0.75, 0.5]);
    let (nano, feather) = (amp("BossWN-nano.nam"), amp("BossWN-feather.nam"));
    let (held, preset) = ([("amp", &*nano), ("ir", &ir)], [("amp", &*feather), ("ir", &other)]);
    bundle(&folder, &preset);
    state(&folder, &held);
    let (long, short) = (noise(seconds), noise(2));
    let first = wanted(&folder, &held, &long);
    let second = wanted(&folder, &preset, &short);
    let mut rig = Rig::begin(&folder, &["-l", folder.join("state").to_str().unwrap()]);
    rig.hears("a saved state", &long, &first);
    // It reads a preset's description when it lists them.
    rig.say("presets\npreset urn:test:preset\n");
    // It tells nobody when it has read the files of one.
    rig.passes(1.0);
    rig.hears("a preset", &short, &second);
    rig.say("output = -60\n");
    rig.falls_below(1e-3);
    rig.end(false);
}

#[test]
fn files_that_a_window_sets_sound_as_render_and_are_told() {
    if quiet_testing::left_out("10 s") {
        return;
    }
    let Some(folder) = inner() else {
        return beside_a_server("files_that_a_window_sets_sound_as_render_and_are_told");
    };
    let ir = folder.join("cab.wav");
    wav_one(&ir, &[0.5, 0.0, -0.25, 0.125]);
    // The last one remembers a while only: it is heard twice.
    let amps = ["BossWN-nano.nam", "BossLSTM-2x8.nam", "BossWN-feather.nam"].map(amp);
    bundle(&folder, &[]);
    let beside = window(&folder);
    let x = noise(1);
    let mut rig = Rig::begin(&folder, &["-U", "urn:test:window", "-s"]);
    let order = |lines: &str| {
        // Whole, or not at all.
        let aside = beside.join("do.new");
        fs::write(&aside, lines).unwrap();
        fs::rename(aside, beside.join("do")).unwrap();
        until("the window", || (!beside.join("do").exists()).then_some(()));
    };
    let told = || fs::read_to_string(beside.join("told")).unwrap_or_default();
    rig.hears("without a file", &x, &x);
    let mut before = 0;
    for one in &amps {
        order(&format!("amp {}\nir {}\n", one.display(), ir.display()));
        let wanted = wanted(&folder, &[("amp", one), ("ir", &ir)], &x);
        let said = [format!("amp {}\n", one.display()), format!("ir {}\n", ir.display())];
        until("what the plugin tells", || {
            while rig.heard.try_recv().is_ok() {}
            let new = told().split_off(before);
            said.iter().all(|line| new.contains(line)).then_some(())
        });
        assert!(told()[before..].contains("changed\n"), "{}", told());
        before = told().len();
        // The fade is over after 20 ms; so long is not heard yet what is only half there.
        rig.passes(0.2);
        rig.hears(one.file_name().unwrap().to_str().unwrap(), &x, &wanted);
    }
    // A file that is none changes nothing, and the window hears which one holds.
    order("amp /gone.nam\n");
    until("what holds", || {
        while rig.heard.try_recv().is_ok() {}
        told()[before..].contains(&format!("amp {}\n", amps[2].display())).then_some(())
    });
    assert!(rig.log().contains("/gone.nam"), "{}", rig.log());
    let holds = wanted(&folder, &[("amp", &amps[2]), ("ir", &ir)], &x);
    rig.hears("what holds", &x, &holds);
    order("output -60\n");
    rig.falls_below(1e-3);
    rig.end(true);
}
