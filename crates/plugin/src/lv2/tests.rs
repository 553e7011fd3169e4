//! Messages change files while it sounds, without an allocation on the audio thread.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

use super::{
    atoms::{Asked, FILES, Names, Told, hear},
    room::{Audio, Desk, ORDERS, open, state_of},
};
use assert_no_alloc::{AllocDisabler, assert_no_alloc, violation_count};
use quiet_engine::ProcessSpec;
use quiet_types::{Frames, SampleRate};
use std::{
    fs,
    path::{Path, PathBuf},
};

#[global_allocator]
static ALLOCATOR: AllocDisabler = AllocDisabler;

const NAMES: Names = Names {
    path: 1,
    object: 2,
    sequence: 3,
    urid: 4,
    get: 5,
    set: 6,
    property: 7,
    value: 8,
    changed: 9,
    error: 10,
    int: 11,
    longest: 12,
    files: [13, 14, 15],
};
const BLOCK: usize = 64;

fn both() -> (Desk, Audio) {
    let block = Frames(BLOCK as u32);
    open(ProcessSpec { rate: SampleRate(48_000), channels: 1, block }).unwrap()
}

fn words(words: &[u32]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_ne_bytes()).collect()
}

/// A sequence with one object, as LV2's atom extension lays it out.
fn message(kind: u32, properties: &[u8]) -> Vec<u8> {
    let object = 8 + properties.len() as u32;
    let mut bytes = words(&[8 + 16 + object, 3, 0, 0, 0, 0, object, 2, 0, kind]);
    bytes.extend(properties);
    bytes
}

fn set(file: usize, path: &Path) -> Vec<u8> {
    let mut text = path.to_str().unwrap().as_bytes().to_vec();
    text.push(0);
    let size = text.len() as u32;
    text.resize(text.len().next_multiple_of(8), 0);
    let mut properties = words(&[7, 0, 4, 4, NAMES.files[file], 0, 8, 0, size, 1]);
    properties.extend(text);
    message(6, &properties)
}

/// One cycle: what is said, the worker at once as a host that renders has it, one block of ones; what is told and heard.
fn cycle(desk: &mut Desk, audio: &mut Audio, said: &[u8], notes: &mut [u8]) -> (f32, Vec<String>) {
    assert_no_alloc(|| audio.hear(&NAMES, said));
    let mut wrong = Vec::new();
    for n in 0..ORDERS {
        let Some(order) = assert_no_alloc(|| audio.order(n)) else { break };
        let (answer, done) = desk.work(&order);
        wrong.extend(done.err().map(|e| e.to_string()));
        assert_no_alloc(|| audio.answered(&answer));
        assert_no_alloc(|| audio.sent(n, order, true));
    }
    let heard = assert_no_alloc(|| {
        audio.take(&[1.0; BLOCK]);
        let heard = audio.play(BLOCK)[BLOCK - 1];
        audio.tell(&NAMES, notes);
        heard
    });
    (heard, wrong)
}

fn told(notes: &[u8]) -> Vec<(usize, PathBuf)> {
    let mut all = Vec::new();
    hear(&NAMES, notes, |asked| match asked {
        Asked::Set(file, path) => {
            all.push((file, PathBuf::from(std::str::from_utf8(path).unwrap())));
        }
        Asked::Get(_) => panic!("a plugin asks its host"),
    });
    all
}

/// Strips of one channel that make -1, 0.5 and -0.25 of a 1.
fn strips(folder: &Path) -> [PathBuf; 3] {
    let head = "[strip]\nchannels = 1\n\n[[stage]]\n";
    let ir = |tap| format!("{head}kind = \"ir\"\ntaps = [{tap}]\n");
    let texts = [format!("{head}kind = \"polarity\"\n"), ir(0.5), ir(-0.25)];
    [0, 1, 2].map(|n| {
        let path = folder.join(format!("{n}.toml"));
        fs::write(&path, &texts[n]).unwrap();
        path
    })
}

#[test]
fn files_are_set_asked_for_and_refused_by_messages() {
    let folder = tempfile::tempdir().unwrap();
    let [polarity, ..] = strips(folder.path());
    let (mut desk, mut audio) = both();
    let mut notes = vec![0; 4096];
    let (_, wrong) = cycle(&mut desk, &mut audio, &set(0, &polarity), &mut notes);
    assert_eq!(wrong, [""; 0]);
    assert_eq!(told(&notes), [(0, polarity.clone())]);
    // The last event is StateChanged: an object of that type without properties.
    let size = u32::from_ne_bytes(notes[..4].try_into().unwrap()) as usize + 8;
    assert_eq!(notes[size - 16..size], words(&[8, 2, 0, 9]));
    let mut heard = 0.0;
    for _ in 0..30 {
        heard = cycle(&mut desk, &mut audio, &message(0, &[]), &mut notes).0;
    }
    assert_eq!(heard, -1.0);
    assert_eq!(told(&notes), []);
    // What cannot be loaded is refused by name, and the host hears what holds.
    let gone = Path::new("/gone.nam");
    let (_, wrong) = cycle(&mut desk, &mut audio, &set(1, gone), &mut notes);
    assert!(wrong[0].contains("/gone.nam"), "{wrong:?}");
    assert_eq!(told(&notes), [(1, PathBuf::new())]);
    assert_eq!(desk.state.strip, Some(polarity.clone()));
    cycle(&mut desk, &mut audio, &message(5, &[]), &mut notes);
    let none = PathBuf::new();
    assert_eq!(told(&notes), [(0, polarity.clone()), (1, none.clone()), (2, none)]);
    // Where the notes find no room, they are told in the next cycle.
    let mut small = [0; 24];
    cycle(&mut desk, &mut audio, &message(5, &[]), &mut small);
    assert_eq!(told(&small), []);
    cycle(&mut desk, &mut audio, &message(0, &[]), &mut notes);
    assert_eq!(told(&notes).len(), FILES);
    assert_eq!(violation_count(), 0);
}

#[test]
fn ten_thousand_changes_while_it_sounds_allocate_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let strips = strips(folder.path());
    let (mut desk, mut audio) = both();
    let (mut notes, mut random) = (vec![0; 4096], fastrand::Rng::with_seed(3));
    let (mut last, mut refused) = (0, 0);
    for _ in 0..10_000 {
        let next = random.usize(..3);
        audio.level([(); 2].map(|()| -12.0 * random.f32()));
        let (heard, wrong) = cycle(&mut desk, &mut audio, &set(0, &strips[next]), &mut notes);
        assert!(heard.abs() <= 1.0);
        // A host may be quicker than the crossfade: the newest is heard.
        refused += wrong.len();
        last = next;
    }
    audio.level([0.0; 2]);
    for _ in 0..50 {
        cycle(&mut desk, &mut audio, &[], &mut notes);
    }
    let (heard, _) = cycle(&mut desk, &mut audio, &[], &mut notes);
    assert_eq!((heard, &desk.state.strip), ([-1.0, 0.5, -0.25][last], &Some(strips[last].clone())));
    assert_eq!(refused, 0);
    assert_eq!(violation_count(), 0);
}

#[test]
fn no_bytes_of_a_host_break_it() {
    let mut random = fastrand::Rng::with_seed(5);
    let whole = set(1, Path::new("/a/b.nam"));
    for _ in 0..20_000 {
        let mut bytes = whole[..random.usize(..=whole.len())].to_vec();
        for _ in 0..random.usize(..4) {
            if let Some(byte) = random.choice(0..bytes.len()) {
                bytes[byte] = random.u8(..);
            }
        }
        hear(&NAMES, &bytes, |_| {});
        let mut room = vec![0; random.usize(..200)];
        if let Some(mut told) = Told::begin(&NAMES, &mut room) {
            told.set(&NAMES, 1, b"/a/b.nam");
            told.changed(&NAMES);
        }
    }
}

#[test]
fn levels_hold_from_the_first_sample_and_move_by_a_ramp_after() {
    let (_, mut audio) = both();
    let mut play = |levels| {
        assert_no_alloc(|| {
            audio.level(levels);
            audio.take(&[1.0]);
            audio.play(1)[0]
        })
    };
    assert!((play([-6.0, -4.0]) - 10f32.powf(-0.5)).abs() < 1e-6);
    let next = play([0.0; 2]);
    assert!(next > 0.3 && next < 0.4, "{next}");
    assert!((play([f32::NAN, 900.0]) - next).abs() < 0.1);
}

#[test]
fn a_state_is_taken_at_once_before_it_sounds_and_by_a_crossfade_after() {
    let folder = tempfile::tempdir().unwrap();
    let [polarity, half, _] =
        strips(folder.path()).map(|path| state_of([path, "".into(), "".into()]));
    let (mut desk, mut audio) = both();
    let play = |audio: &mut Audio| {
        audio.take(&[1.0]);
        audio.play(1)[0]
    };
    desk.restore(&mut audio, polarity).unwrap();
    assert_eq!(play(&mut audio), -1.0);
    desk.restore(&mut audio, half.clone()).unwrap();
    assert!((play(&mut audio) + 1.0).abs() < 0.01);
    desk.renew(&mut audio).unwrap();
    assert_eq!((play(&mut audio), desk.state), (0.5, half));
}

#[test]
fn at_every_rate_it_says_how_late_it_is_and_takes_what_can_be_played() {
    let folder = tempfile::tempdir().unwrap();
    let late = folder.path().join("late.toml");
    fs::write(&late, "[[stage]]\nkind = \"limiter\"\nceiling = 0.0\n").unwrap();
    let amps = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../../fixtures/amps"));
    let mut notes = vec![0; 4096];
    // 1.5 ms, to the nearest frame: 66.15 at 44.1 kHz.
    for (rate, frames) in [(44_100, 66), (48_000, 72), (96_000, 144)] {
        let block = Frames(BLOCK as u32);
        let setting = ProcessSpec { rate: SampleRate(rate), channels: 1, block };
        let (mut desk, mut audio) = open(setting).unwrap();
        let (_, wrong) = cycle(&mut desk, &mut audio, &set(0, &late), &mut notes);
        assert_eq!((wrong.len(), audio.latency), (0, frames), "{rate}");
        // An impulse response is at home everywhere, be it called an amp; another amp where it was captured.
        let linear = amps.join("syn_linear.nam");
        let (_, wrong) = cycle(&mut desk, &mut audio, &set(1, &linear), &mut notes);
        assert_eq!((wrong.len(), audio.latency), (0, 0), "{rate}: {wrong:?}");
        for _ in 0..40 {
            cycle(&mut desk, &mut audio, &[], &mut notes);
        }
        let amp = amps.join("BossWN-nano.nam");
        let (_, wrong) = cycle(&mut desk, &mut audio, &set(1, &amp), &mut notes);
        assert_eq!(wrong.len(), usize::from(rate != 48_000), "{rate}: {wrong:?}");
        assert!(wrong.iter().all(|why| why.contains("48000 Hz")), "{wrong:?}");
        let holds = if rate == 48_000 { amp } else { linear };
        assert_eq!(desk.state.amp, Some(holds));
    }
    assert_eq!(violation_count(), 0);
}
