//! A host plays the plugin: the same bits as `render`, states kept, swaps without a click or an allocation.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

use assert_no_alloc::{AllocDisabler, assert_no_alloc, violation_count};
use clack_extensions::{latency, params::PluginParams, state};
use clack_host::{
    events::{event_types::ParamValueEvent, io::EventBuffer},
    prelude::*,
    stream::{InputStream, OutputStream},
};
use clack_plugin::entry::SinglePluginEntry;
use quiet_engine::render::{Job, Order, RenderProgress, WavFormat, render};
use quiet_plugin::{PluginState, StripPlugin};
use quiet_types::{Frames, render::FileOutcome};
use std::{
    path::{Path, PathBuf},
    sync::atomic::{AtomicUsize, Ordering::Relaxed},
    time::{Duration, Instant},
};

#[global_allocator]
static ALLOCATOR: AllocDisabler = AllocDisabler;

struct TestHost;

#[derive(Default)]
struct Asked {
    restarts: AtomicUsize,
}

impl SharedHandler<'_> for Asked {
    fn request_restart(&self) {
        self.restarts.fetch_add(1, Relaxed);
    }
    fn request_process(&self) {}
    fn request_callback(&self) {}
}

impl HostHandlers for TestHost {
    type Shared<'a> = Asked;
    type MainThread<'a> = ();
    type AudioProcessor<'a> = ();
}

const LONGEST: u32 = 512;

fn config(rate: f64) -> PluginAudioConfiguration {
    PluginAudioConfiguration { sample_rate: rate, min_frames_count: 1, max_frames_count: LONGEST }
}

fn instance() -> PluginInstance<TestHost> {
    let entry = PluginEntry::load_from_clack::<SinglePluginEntry<StripPlugin>>(c"").unwrap();
    let host = HostInfo::new("test", "test", "", "1").unwrap();
    let id = c"org.quietcores.strip";
    PluginInstance::new(|_| Asked::default(), |_| (), &entry, id, &host).unwrap()
}

fn load(plugin: &mut PluginInstance<TestHost>, state: &PluginState) -> bool {
    let bytes = serde_json::to_vec(state).unwrap();
    load_bytes(plugin, &bytes)
}

fn load_bytes(plugin: &mut PluginInstance<TestHost>, mut bytes: &[u8]) -> bool {
    let handle = plugin.plugin_handle();
    let extension = handle.get_extension::<state::PluginState>().unwrap();
    let mut stream = InputStream::from_reader(&mut bytes);
    extension.load(&handle, &mut stream).is_ok()
}

fn saved(plugin: &mut PluginInstance<TestHost>) -> PluginState {
    let handle = plugin.plugin_handle();
    let extension = handle.get_extension::<state::PluginState>().unwrap();
    let mut bytes = Vec::new();
    extension.save(&handle, &mut OutputStream::from_writer(&mut bytes)).unwrap();
    PluginState::parse(&bytes).unwrap()
}

/// One block of two channels; nothing in it allocates on the plugin's side.
struct Desk {
    ins: AudioPorts,
    outs: AudioPorts,
    input: [Vec<f32>; 2],
    output: [Vec<f32>; 2],
}

impl Desk {
    fn new() -> Desk {
        let room = || [vec![0.0; LONGEST as usize], vec![0.0; LONGEST as usize]];
        let ports = || AudioPorts::with_capacity(2, 1);
        Desk { ins: ports(), outs: ports(), input: room(), output: room() }
    }

    fn play(
        &mut self,
        plugin: &mut StartedPluginAudioProcessor<TestHost>,
        x: &[[f32; 2]],
        events: &EventBuffer,
    ) -> Vec<[f32; 2]> {
        for (channel, to) in self.input.iter_mut().enumerate() {
            to.iter_mut().zip(x).for_each(|(to, x)| *to = x[channel]);
        }
        let mut told = EventBuffer::new();
        {
            let input = self.ins.with_input_buffers([AudioPortBuffer {
                latency: 0,
                channels: AudioPortBufferType::f32_input_only(
                    self.input.iter_mut().map(|c| InputChannel::variable(&mut c[..x.len()])),
                ),
            }]);
            let mut output = self.outs.with_output_buffers([AudioPortBuffer {
                latency: 0,
                channels: AudioPortBufferType::f32_output_only(
                    self.output.iter_mut().map(|c| &mut c[..x.len()]),
                ),
            }]);
            let (events, mut told) = (events.as_input(), told.as_output());
            assert_no_alloc(|| {
                plugin.process(&input, &mut output, &events, &mut told, None, None).unwrap()
            });
        }
        (0..x.len()).map(|n| [self.output[0][n], self.output[1][n]]).collect()
    }
}

fn noise(count: usize) -> Vec<[f32; 2]> {
    let mut random = fastrand::Rng::with_seed(7);
    (0..count).map(|_| [random.f32() - 0.5, random.f32() - 0.5]).collect()
}

fn wav(path: &Path, x: &[[f32; 2]]) {
    let spec = hound::WavSpec {
        channels: 2,
        sample_rate: 48_000,
        bits_per_sample: 32,
        sample_format: hound::SampleFormat::Float,
    };
    let mut writer = hound::WavWriter::create(path, spec).unwrap();
    x.iter().flatten().for_each(|x| writer.write_sample(*x).unwrap());
    writer.finalize().unwrap();
}

/// What `render` makes of it, as long as the input.
fn rendered(folder: &Path, strip: &Path, x: &[[f32; 2]]) -> Vec<[f32; 2]> {
    let (from, to) = (folder.join("in.wav"), folder.join("out.wav"));
    wav(&from, x);
    let (strip, files) = quiet_engine::read_strip(strip).unwrap();
    let order = Order {
        strip,
        files,
        format: WavFormat::Float,
        rate: None,
        channels: None,
        tail: Some(0.0),
        block: Frames(100),
        force: true,
        skip: false,
        threads: 1,
        halved: false,
    };
    let done = render(&[Job { from, to: to.clone() }], &order, &RenderProgress::default());
    assert_eq!(done[0].outcome, FileOutcome::Done, "{:?}", done[0].error);
    let mut reader = hound::WavReader::open(to).unwrap();
    let all: Vec<f32> = reader.samples::<f32>().map(Result::unwrap).collect();
    all.as_chunks().0.to_vec()
}

fn amp(name: &str) -> PathBuf {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../../fixtures/amps")).join(name)
}

/// A strip with an amp, an IR, and a limiter that is late.
fn strip(folder: &Path) -> PathBuf {
    let path = folder.join("strip.toml");
    let amp = amp("BossWN-nano.nam");
    let text = format!(
        "[[stage]]\nkind = \"amp\"\nfile = {:?}\n\n[[stage]]\nkind = \"ir\"\ntaps = [0.5, 0.0, \
         -0.25]\n\n[[stage]]\nkind = \"limiter\"\nceiling = 0.0\n",
        amp.display().to_string()
    );
    std::fs::write(&path, text).unwrap();
    path
}

#[test]
fn what_a_host_hears_is_what_render_writes() {
    let folder = tempfile::tempdir().unwrap();
    let path = strip(folder.path());
    let x = noise(6000);
    let wanted = rendered(folder.path(), &path, &x);
    let mut plugin = instance();
    let state = PluginState { strip: Some(path), ..PluginState::default() };
    assert!(load(&mut plugin, &state));
    assert_eq!(saved(&mut plugin), state);
    let stopped = plugin.activate(|_, _| (), config(48_000.0)).unwrap();
    let handle = plugin.plugin_handle();
    let late = handle.get_extension::<latency::PluginLatency>().unwrap().get(&handle) as usize;
    assert_eq!(late, 72);
    let mut sounding = stopped.start_processing().unwrap();
    let (mut desk, mut heard, mut random) = (Desk::new(), Vec::new(), fastrand::Rng::with_seed(1));
    let mut left = &x[..];
    while !left.is_empty() {
        let (part, rest) = left.split_at(left.len().min(random.usize(1..=LONGEST as usize)));
        heard.extend(desk.play(&mut sounding, part, &EventBuffer::new()));
        left = rest;
    }
    assert_eq!(heard[late..], wanted[..x.len() - late]);
    assert_eq!(violation_count(), 0);
    plugin.deactivate(sounding.stop_processing());
}

/// As a DAW has it: a block when its time has come, from a thread of its own, while others do something else. With
/// `QUIETCORES_LONG` for ten minutes: `quietcores stress kernel` may run beside it.
#[test]
fn a_host_that_keeps_time_hears_what_render_writes() {
    let seconds = if std::env::var_os("QUIETCORES_LONG").is_some() { 600 } else { 2 };
    let folder = tempfile::tempdir().unwrap();
    let path = strip(folder.path());
    let x = noise(48_000 * seconds);
    let wanted = rendered(folder.path(), &path, &x);
    let mut plugin = instance();
    let state = PluginState { strip: Some(path), ..PluginState::default() };
    assert!(load(&mut plugin, &state));
    let stopped = plugin.activate(|_, _| (), config(48_000.0)).unwrap();
    let late = 72;
    let wrong = std::thread::scope(|scope| {
        let audio = scope.spawn(move || {
            let mut sounding = stopped.start_processing().unwrap();
            let mut desk = Desk::new();
            let (begun, events) = (Instant::now(), EventBuffer::new());
            let (mut at, mut wrong, mut behind) = (0, None, Duration::ZERO);
            for part in x.chunks(64) {
                let due = Duration::from_secs_f64(at as f64 / 48_000.0);
                match due.checked_sub(begun.elapsed()) {
                    Some(early) => std::thread::sleep(early),
                    None => behind = behind.max(begun.elapsed() - due),
                }
                for (n, y) in desk.play(&mut sounding, part, &events).into_iter().enumerate() {
                    let frame = at + n;
                    let same = frame < late
                        || y.map(f32::to_bits) == wanted[frame - late].map(f32::to_bits);
                    wrong = wrong.or((!same).then_some(frame));
                }
                at += part.len();
            }
            println!("{at} frames, at most {behind:?} late, first difference: {wrong:?}");
            (sounding.stop_processing(), wrong)
        });
        // The host asks for what it shows, and keeps the session.
        let mut asked = 0;
        while !audio.is_finished() {
            assert_eq!(saved(&mut plugin), state);
            asked += 1;
            std::thread::sleep(Duration::from_millis(20));
        }
        assert!(asked > 0);
        let (stopped, wrong) = audio.join().unwrap();
        plugin.deactivate(stopped);
        wrong
    });
    assert_eq!(wrong, None);
    assert_eq!(violation_count(), 0);
}

#[test]
fn a_strip_of_one_channel_is_heard_on_both_sides() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("one.toml");
    std::fs::write(&path, "[strip]\nchannels = 1\n\n[[stage]]\nkind = \"polarity\"\n").unwrap();
    let mut plugin = instance();
    assert!(load(&mut plugin, &PluginState { strip: Some(path), ..PluginState::default() }));
    let stopped = plugin.activate(|_, _| (), config(44_100.0)).unwrap();
    let mut sounding = stopped.start_processing().unwrap();
    let x = noise(100);
    let heard = Desk::new().play(&mut sounding, &x, &EventBuffer::new());
    assert_eq!(heard, x.iter().map(|x| [-x[0]; 2]).collect::<Vec<_>>());
    plugin.deactivate(sounding.stop_processing());
}

#[test]
fn files_and_levels_change_while_it_sounds_without_a_click_or_an_allocation() {
    let mut plugin = instance();
    let of = |amp: PathBuf| PluginState { amp: Some(amp), ..PluginState::default() };
    assert!(load(&mut plugin, &of(amp("BossWN-nano.nam"))));
    let stopped = plugin.activate(|_, _| (), config(48_000.0)).unwrap();
    let mut sounding = stopped.start_processing().unwrap();
    let (mut desk, mut random) = (Desk::new(), fastrand::Rng::with_seed(3));
    let names = ["BossWN-nano.nam", "BossWN-feather.nam", "BossLSTM-2x8.nam"];
    // Far below what an amp distorts: what is heard moves as slowly as the sine does.
    let (mut at, mut taken, mut changes) = (0, 0, 0);
    let (mut before, mut most) = (0.0f32, 0.0f32);
    for turn in 0..9000 {
        let mut events = EventBuffer::new();
        if turn > 50 {
            changes += 1;
            let id = ClapId::new(random.u32(0..2));
            let value = f64::from(random.f32() * 6.0 - 6.0);
            events.push(&ParamValueEvent::new(0, id, Pckn::match_all(), value));
        }
        if turn > 50 && turn % 7 == 0 {
            let state = PluginState { ..of(amp(names[random.usize(..names.len())])) };
            // A host may be quicker than the crossfade: that is said, and nothing is lost.
            taken += usize::from(load(&mut plugin, &state));
            changes += 1;
        }
        let sine = |n: usize| 0.01 * (n as f32 * std::f32::consts::TAU / 480.0).sin();
        let x: Vec<[f32; 2]> = (at..at + 64).map(|n| [sine(n % 480); 2]).collect();
        at += 64;
        for y in desk.play(&mut sounding, &x, &events) {
            assert!(y[0].is_finite());
            if turn > 40 {
                most = most.max((y[0] - before).abs());
            }
            before = y[0];
        }
    }
    assert_eq!(violation_count(), 0);
    assert!(taken > 500 && changes > 10_000, "{taken} swaps of {changes} changes");
    assert!(most > 1e-5 && most < 0.01, "a step of {most}");
    plugin.deactivate(sounding.stop_processing());
}

#[test]
fn a_strip_of_another_latency_is_asked_to_begin_anew_and_rates_change() {
    let folder = tempfile::tempdir().unwrap();
    let mut plugin = instance();
    let stopped = plugin.activate(|_, _| (), config(48_000.0)).unwrap();
    let late = folder.path().join("late.toml");
    std::fs::write(&late, "[[stage]]\nkind = \"limiter\"\nceiling = 0.0\n").unwrap();
    let state = PluginState { strip: Some(late), output: -6.0, ..PluginState::default() };
    assert!(load(&mut plugin, &state));
    assert_eq!(plugin.access_shared_handler(|asked| asked.restarts.load(Relaxed)), 1);
    plugin.deactivate(stopped);
    let mut heard = Vec::new();
    for rate in [48_000.0, 96_000.0] {
        let stopped = plugin.activate(|_, _| (), config(rate)).unwrap();
        let handle = plugin.plugin_handle();
        heard.push(handle.get_extension::<latency::PluginLatency>().unwrap().get(&handle));
        let params = handle.get_extension::<PluginParams>().unwrap();
        assert_eq!(params.get_value(&handle, ClapId::new(1)), Some(-6.0));
        plugin.deactivate(stopped);
    }
    assert_eq!(heard, [72, 144]);
}

#[test]
fn a_state_that_is_none_changes_nothing() {
    let mut plugin = instance();
    let state = PluginState { amp: Some(amp("BossWN-nano.nam")), ..PluginState::default() };
    assert!(load(&mut plugin, &state));
    for bad in [
        &b""[..],
        b"{}",
        br#"{"schema":"quietcores.plugin/9"}"#,
        br#"{"schema":"quietcores.plugin/1","strip":"a","amp":"b"}"#,
        br#"{"schema":"quietcores.plugin/1","input":1e9}"#,
        br#"{"schema":"quietcores.plugin/1","of":"tomorrow"}"#,
        &[b' '; 70_000],
    ] {
        assert!(!load_bytes(&mut plugin, bad));
    }
    assert_eq!(saved(&mut plugin), state);
    // What cannot be played is refused while it sounds, and what sounds stays.
    let stopped = plugin.activate(|_, _| (), config(48_000.0)).unwrap();
    let gone = PluginState { amp: Some(PathBuf::from("/gone.nam")), ..PluginState::default() };
    assert!(!load(&mut plugin, &gone));
    assert_eq!(saved(&mut plugin), state);
    plugin.deactivate(stopped);
    // An amp of one rate is not played at another.
    assert!(plugin.activate(|_, _| (), config(44_100.0)).is_err());
}
