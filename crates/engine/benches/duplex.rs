//! What the loop costs: per look that finds nothing, and per period, against a plain copy loop.
//!
//! `duplex ours|copy|convert PERIODS EMPTY FRAMES` runs PERIODS periods of FRAMES frames of stereo
//! S32, with EMPTY looks before each, and prints ns a period. `benches/engine.sh` counts its instructions.
//! The card is memory: two words that a card would write, and two rings.
//!
//! - `copy`: the seed's loop: look, and copy a period from ring to ring as it is;
//! - `convert`: the same, with samples as an engine needs them, planar floats, and back;
//! - `ours`: `quiet_rt::duplex` with the player of `play` and a wire: timed, metered, counted.
#![allow(missing_docs, clippy::unwrap_used, reason = "a benchmark")]

use quiet_engine::{Board, LoopMode, Wire, host::format::SampleFormat, player};
use quiet_rt::{Clock, Cycle, Duplex, Look, duplex};
use quiet_types::{Frames, SampleRate};
use std::{
    cell::Cell,
    hint::black_box,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::Instant,
};

const RING: usize = 4096;
const CHANNELS: usize = 2;
/// Bytes a sample.
const SIZE: usize = 4;

/// As cheap as the processor's counter, and the same under valgrind.
struct Count(Cell<u64>);

impl Clock for Count {
    #[inline(always)]
    fn ticks(&self) -> u64 {
        self.0.set(self.0.get() + 1);
        self.0.get()
    }

    #[inline(always)]
    fn nanos(&self, ticks: u64) -> u64 {
        ticks
    }
}

/// What a card writes where a program can see it.
#[derive(Default)]
struct Pointers {
    captured: AtomicU64,
    played: AtomicU64,
}

struct Card {
    pointers: Arc<Pointers>,
    capture: Vec<u8>,
    playback: Vec<u8>,
    frames: u64,
    at: u64,
    looks: u64,
    empty: u64,
    left: u64,
    board: Arc<Board>,
}

impl Card {
    fn new(board: Arc<Board>, (periods, empty, frames): (u64, u64, u64)) -> Card {
        let capture = (0..RING * CHANNELS)
            .flat_map(|n| (n as i32).wrapping_mul(0x9e37_79b9_u32 as i32).to_le_bytes())
            .collect();
        Card {
            pointers: Arc::default(),
            capture,
            playback: vec![0; RING * CHANNELS * SIZE],
            frames,
            at: 0,
            looks: 0,
            empty,
            left: periods,
            board,
        }
    }

    /// The card's side, within the look: every so many looks a period has passed.
    #[inline(always)]
    fn run(&mut self) {
        self.looks += 1;
        if self.looks > self.empty {
            self.looks = 0;
            if self.left == 0 {
                self.board.stop();
                return;
            }
            self.left -= 1;
            self.pointers.captured.store(self.at + self.frames, Relaxed);
            self.pointers.played.store(self.at + self.frames, Relaxed);
        }
    }

    fn place(&self) -> std::ops::Range<usize> {
        let at = self.at as usize % RING * CHANNELS * SIZE;
        at..at + self.frames as usize * CHANNELS * SIZE
    }
}

impl Duplex for Card {
    #[inline(always)]
    fn look(&mut self) -> Look {
        self.run();
        let captured = black_box(&self.pointers).captured.load(Relaxed) - self.at;
        if captured < self.frames {
            return Look::Empty;
        }
        let played = black_box(&self.pointers).played.load(Relaxed) - self.at;
        if played < self.frames {
            return Look::Empty;
        }
        Look::Due(captured as u32)
    }

    fn wait(&mut self) {}

    #[inline]
    fn read(&mut self, samples: &mut [f32]) {
        let place = self.place();
        let frames = self.frames as usize;
        SampleFormat::S32.take_apart(
            &self.capture[place],
            CHANNELS,
            samples,
            (CHANNELS, frames, 0),
        );
    }

    #[inline]
    fn write(&mut self, samples: &[f32]) {
        let place = self.place();
        let frames = self.frames as usize;
        SampleFormat::S32.put_together(
            &mut self.playback[place],
            CHANNELS,
            samples,
            (CHANNELS, frames, 0),
        );
        self.at += self.frames;
    }

    fn resync(&mut self) -> bool {
        false
    }
}

/// The same conversion as anybody would write it down.
fn plain(card: &mut Card, samples: &mut [f32]) {
    const FULL: f32 = 2_147_483_648.0;
    let place = card.place();
    let (left, right) = samples.split_at_mut(card.frames as usize);
    for (n, frame) in card.capture[place.clone()].chunks_exact(CHANNELS * SIZE).enumerate() {
        left[n] = i32::from_le_bytes([frame[0], frame[1], frame[2], frame[3]]) as f32 / FULL;
        right[n] = i32::from_le_bytes([frame[4], frame[5], frame[6], frame[7]]) as f32 / FULL;
    }
    black_box((&mut *left, &mut *right));
    for (n, frame) in card.playback[place].chunks_exact_mut(CHANNELS * SIZE).enumerate() {
        for (to, sample) in frame.chunks_exact_mut(SIZE).zip([left[n], right[n]]) {
            to.copy_from_slice(&((sample * FULL).round_ties_even() as i32).to_le_bytes());
        }
    }
    card.at += card.frames;
}

fn main() {
    let words: Vec<String> = std::env::args().skip(1).filter(|word| word != "--bench").collect();
    let number = |at: usize, usual: u64| words.get(at).map_or(usual, |word| word.parse().unwrap());
    let (periods, empty, frames) = (number(1, 100_000), number(2, 100), number(3, 16));
    assert!(frames > 0 && (RING as u64).is_multiple_of(frames), "frames that divide {RING}");
    let board = Arc::new(Board::new());
    let mut card = Card::new(board.clone(), (periods, empty, frames));
    let mut samples = vec![0.0f32; frames as usize * CHANNELS];
    let began = Instant::now();
    match words.first().map(String::as_str) {
        Some("ours") => {
            let (mut player, _remote, mut told) =
                player(Box::new(Wire), CHANNELS, Frames(frames as u32), SampleRate(96_000));
            let mut cycle =
                Cycle::new(Count(Cell::new(0)), board.clone(), CHANNELS, frames * 10_417);
            let mode = LoopMode::NeverSleep;
            duplex(&mut cycle, &mut card, &mut player, &mut told, &mut samples, mode);
        }
        Some("kernels") => {
            while !board.stopped() {
                match card.look() {
                    Look::Due(_) => {
                        card.read(&mut samples);
                        black_box(&mut samples);
                        card.write(&samples);
                    }
                    _ => std::hint::spin_loop(),
                }
            }
        }
        Some("convert") => {
            while !board.stopped() {
                match card.look() {
                    Look::Due(_) => plain(&mut card, &mut samples),
                    _ => std::hint::spin_loop(),
                }
            }
        }
        Some("copy") => {
            while !board.stopped() {
                match card.look() {
                    Look::Due(_) => {
                        let place = card.place();
                        card.playback[place.clone()].copy_from_slice(&card.capture[place]);
                        card.at += card.frames;
                    }
                    _ => std::hint::spin_loop(),
                }
            }
        }
        _ => {
            // Also what `cargo test --benches` runs: a little of it.
            return;
        }
    }
    let took = began.elapsed();
    black_box(&card.playback);
    let each = took.as_nanos() as f64 / periods as f64;
    use std::io::Write;
    let _ = writeln!(std::io::stdout(), "{each:.1}");
}
