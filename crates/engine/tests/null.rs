//! The engine on a card that does not exist: deadlines, round trips, swaps.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

use quiet_dsp::{Block, Stage};
use quiet_engine::{
    AudioHost, Fade, LoopEvent, ReadyStrip, SeatWish, Setup, Wait, Wire, host::null::Cable, open,
};
use quiet_testing::until;
use quiet_types::{Frames, SampleRate};
use std::sync::{
    Arc,
    atomic::{AtomicI64, AtomicU64, Ordering::Relaxed},
};

fn setup(cable: Option<Cable>) -> Setup {
    Setup {
        host: AudioHost::Null(cable),
        rate: SampleRate(48_000),
        period: Frames(64),
        buffer: Frames(1024),
        channels: 1,
        inputs: 1,
        outputs: 1,
        wish: SeatWish { mode: Some(Wait::Sleep), priority: 50, ..Default::default() },
    }
}

/// Sends impulses and notes after how many frames they come back.
struct Pinger {
    frame: u64,
    sent: u64,
    back: Arc<[AtomicU64; 64]>,
    n: Arc<AtomicU64>,
}

impl Stage for Pinger {
    fn process(&mut self, block: &mut Block<'_>) {
        for (offset, sample) in block.channel(0).iter_mut().enumerate() {
            let now = self.frame + offset as u64;
            if *sample > 0.0 {
                let n = self.n.fetch_add(1, Relaxed);
                if let Some(slot) = self.back.get(n as usize) {
                    slot.store(now - *sample as u64, Relaxed);
                }
            }
            *sample = 0.0;
            if now >= self.sent + 5000 {
                *sample = now as f32;
                self.sent = now;
            }
        }
        self.frame += block.frames() as u64;
    }

    fn reset(&mut self) {}
}

#[test]
fn the_round_trip_is_the_buffer_and_the_cable_to_the_frame() {
    for delay in [0.0, 1.0, 1234.0] {
        let opened = open(&setup(Some(Cable { delay, inverted: false }))).unwrap();
        let back: Arc<[AtomicU64; 64]> = Arc::new([const { AtomicU64::new(0) }; 64]);
        let n = Arc::new(AtomicU64::new(0));
        let pinger = Pinger { frame: 0, sent: 0, back: back.clone(), n: n.clone() };
        let mut engine = opened.start(Box::new(pinger)).unwrap();
        until("five echoes", || (n.load(Relaxed) >= 5).then_some(()));
        let board = engine.board().clone();
        let hits = engine.stop().unwrap();
        assert!(hits.thread.contains_key("involuntary_switches"), "{hits:?}");
        // Periods that a busy machine lost while an echo was under way are those that the strip did
        // not see pass.
        let lost = 64 * board.missed.load(Relaxed);
        for echo in back.iter().take(n.load(Relaxed).min(64) as usize) {
            let short = 1024 + delay as u64 - echo.load(Relaxed);
            assert!(short.is_multiple_of(64) && short <= lost, "{short} short, {lost} lost");
        }
    }
}

/// A sine that knows how it began, scaled; counts those alive.
struct Sine {
    phase: f64,
    level: f32,
    alive: Arc<AtomicI64>,
}

impl Sine {
    fn boxed(level: f32, alive: &Arc<AtomicI64>) -> ReadyStrip {
        alive.fetch_add(1, Relaxed);
        Box::new(Sine { phase: 0.0, level, alive: alive.clone() })
    }
}

impl Drop for Sine {
    fn drop(&mut self) {
        self.alive.fetch_sub(1, Relaxed);
    }
}

impl Stage for Sine {
    fn process(&mut self, block: &mut Block<'_>) {
        for sample in block.channel(0) {
            *sample = self.level * (self.phase * std::f64::consts::TAU).sin() as f32;
            self.phase = (self.phase + 0.01).fract();
        }
    }

    fn reset(&mut self) {
        self.phase = 0.0;
    }

    fn set(&mut self, param: usize, value: f32) -> bool {
        if param == 0 {
            self.level = value;
        }
        param == 0
    }
}

#[test]
fn orders_are_carried_out_while_it_plays_and_what_is_spent_comes_home() {
    let alive = Arc::new(AtomicI64::new(0));
    let mut engine = open(&setup(None)).unwrap().start(Sine::boxed(0.1, &alive)).unwrap();
    let mut done = Vec::new();
    let mut ask = |engine: &mut quiet_engine::Engine, number: u64| {
        until("an answer", || {
            while let Some(event) = engine.remote.hear() {
                match event {
                    LoopEvent::Done(n) => done.push((n, true)),
                    LoopEvent::Refused(n) => done.push((n, false)),
                    _ => {}
                }
            }
            done.iter().find(|(n, _)| *n == number).map(|(_, done)| *done)
        })
    };
    let number = engine.remote.swap(Sine::boxed(0.5, &alive), Fade::Cross).ok().unwrap();
    assert!(ask(&mut engine, number));
    assert_eq!(alive.load(Relaxed), 2, "the old one waits to be dropped here");
    assert_eq!(engine.remote.collect(), 1);
    assert_eq!(alive.load(Relaxed), 1);
    let number = engine.remote.set(0, 0.25).unwrap();
    assert!(ask(&mut engine, number));
    let number = engine.remote.set(7, 0.25).unwrap();
    assert!(!ask(&mut engine, number), "no such parameter");
    let number = engine.remote.swap(Box::new(Wire), Fade::Through).ok().unwrap();
    assert!(ask(&mut engine, number));
    engine.remote.collect();
    assert_eq!(alive.load(Relaxed), 0);
    engine.stop().unwrap();
}

#[test]
fn what_makes_no_sense_is_refused_with_the_remedy() {
    type Change = fn(&mut Setup);
    let cases: [(Change, &str); 6] = [
        (|s| s.rate = SampleRate(7), "--rate 48000"),
        (|s| s.period = Frames(0), "--period"),
        (|s| s.buffer = Frames(100), "--buffer 128"),
        (|s| s.channels = 0, "1 to 64"),
        (|s| s.wish.priority = 0, "--priority"),
        (|s| s.host = AudioHost::Null(Some(Cable { delay: 3.5, inverted: false })), "64 or more"),
    ];
    for (change, says) in cases {
        let mut setup = setup(None);
        change(&mut setup);
        let error = open(&setup).unwrap_err().to_string();
        assert!(error.contains(says), "{error}");
    }
}

#[test]
fn a_file_goes_in_and_comes_out() {
    let dir = tempfile::tempdir().unwrap();
    let (input, output) = (dir.path().join("in.wav"), dir.path().join("out.wav"));
    let spec = hound::WavSpec {
        channels: 2,
        sample_rate: 44_100,
        bits_per_sample: 24,
        sample_format: hound::SampleFormat::Int,
    };
    let mut writer = hound::WavWriter::create(&input, spec).unwrap();
    let wanted: Vec<i32> = (0..2 * 1001).map(|n| n * 4_001 - 4_000_000).collect();
    for sample in &wanted {
        writer.write_sample(*sample).unwrap();
    }
    writer.finalize().unwrap();
    let host = AudioHost::File { input, output: output.clone() };
    let opened = open(&Setup { host, channels: 2, inputs: 2, outputs: 2, ..setup(None) }).unwrap();
    assert_eq!(opened.rate, SampleRate(44_100));
    let mut engine = opened.start(Box::new(Wire)).unwrap();
    until("the end of the file", || engine.ended().then_some(()));
    engine.stop().unwrap();
    let mut reader = hound::WavReader::open(output).unwrap();
    let got: Vec<i32> =
        reader.samples::<f32>().map(|s| (s.unwrap() * 8_388_608.0) as i32).collect();
    assert_eq!(got, wanted, "24 bits go through untouched, and as many as came in");
}

/// Fails after ten blocks.
struct Faulty(u32);

impl Stage for Faulty {
    fn process(&mut self, _: &mut Block<'_>) {
        self.0 += 1;
        assert!(self.0 < 10, "ten blocks are enough");
    }

    fn reset(&mut self) {}
}

#[test]
fn a_stage_that_fails_ends_the_engine_and_is_told() {
    let mut engine = open(&setup(None)).unwrap().start(Box::new(Faulty(0))).unwrap();
    until("the end", || engine.ended().then_some(()));
    let said = engine.stop().unwrap_err().to_string();
    assert!(said.contains("silent") && said.contains("ten blocks are enough"), "{said}");
}

#[test]
fn a_seat_is_taken_before_anything_is_opened_and_left_when_nothing_is() {
    let setup = setup(None);
    let taken = quiet_engine::seat(&setup.wish, None).unwrap();
    drop(taken);
    let taken = quiet_engine::seat(&setup.wish, None).unwrap();
    let mut engine =
        quiet_engine::open_from(&setup, Some(taken)).unwrap().start(Box::new(Wire)).unwrap();
    until("a block", || (engine.board().blocks.load(Relaxed) > 0).then_some(()));
    engine.stop().unwrap();
}
