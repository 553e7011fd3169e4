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

use quiet_engine::{Board, Mode, Wire, player};
use quiet_rt::{Clock, Cycle, Duplex, Look, duplex};
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
    capture: Vec<i32>,
    playback: Vec<i32>,
    frames: u64,
    at: u64,
    looks: u64,
    empty: u64,
    left: u64,
    board: Arc<Board>,
}

impl Card {
    fn new(board: Arc<Board>, (periods, empty, frames): (u64, u64, u64)) -> Card {
        let capture = (0..RING * CHANNELS).map(|n| (n as i32).wrapping_mul(65_537)).collect();
        Card {
            pointers: Arc::default(),
            capture,
            playback: vec![0; RING * CHANNELS],
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
        let at = self.at as usize % RING * CHANNELS;
        at..at + self.frames as usize * CHANNELS
    }
}

impl Duplex for Card {
    #[inline]
    fn look(&mut self) -> Look {
        self.run();
        let captured = black_box(&self.pointers).captured.load(Relaxed) - self.at;
        let played = black_box(&self.pointers).played.load(Relaxed) - self.at;
        if captured < self.frames || played < self.frames {
            Look::Empty
        } else {
            Look::Due(captured as u32)
        }
    }

    fn wait(&mut self) {}

    #[inline]
    fn read(&mut self, samples: &mut [f32]) {
        let frames = self.frames as usize;
        let place = self.place();
        let (left, right) = samples.split_at_mut(frames);
        for ((pair, left), right) in self.capture[place].chunks_exact(CHANNELS).zip(left).zip(right)
        {
            (*left, *right) = (pair[0] as f32 / 2_147_483_648.0, pair[1] as f32 / 2_147_483_648.0);
        }
    }

    #[inline]
    fn write(&mut self, samples: &[f32]) {
        let frames = self.frames as usize;
        let place = self.place();
        let (left, right) = samples.split_at(frames);
        for ((pair, left), right) in
            self.playback[place].chunks_exact_mut(CHANNELS).zip(left).zip(right)
        {
            (pair[0], pair[1]) =
                ((left * 2_147_483_648.0) as i32, (right * 2_147_483_648.0) as i32);
        }
        self.at += self.frames;
    }

    fn resync(&mut self) -> bool {
        false
    }
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
                player(Box::new(Wire), CHANNELS, frames as usize, 96_000);
            let mut cycle =
                Cycle::new(Count(Cell::new(0)), board.clone(), CHANNELS, frames * 10_417);
            let mode = Mode::NeverSleep;
            duplex(&mut cycle, &mut card, &mut player, &mut told, &mut samples, mode);
        }
        Some("convert") => {
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
