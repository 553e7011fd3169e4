//! The three rings between the playing thread and the rest, with a thread at each end that runs as it likes: every order is
//! carried out once and in turn, every strip is dropped on the other side, and what was not told is counted.
//!
//! Under Miri (`benches/races.sh`) the same a few orders at a time, for many schedules and with the stale reads that
//! the memory model allows.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

use quiet_dsp::{Block, Stage};
use quiet_engine::{Fade, LoopEvent, Remote, player};
use quiet_rt::Process;
use quiet_types::{Frames, SampleRate};
use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    },
    thread::{self, ThreadId},
};

/// Orders in all; more than any ring holds where time allows.
const ORDERS: u64 = if cfg!(miri) { 12 } else { 30_000 };
/// Blocks after the last order: more than the 256 that wait at most need, with a fade of two blocks for each third one. Not many more: a turn
/// on a machine whose CPUs are taken is 20 ms.
const ENDING: u64 = if cfg!(miri) { 2 * ORDERS } else { 1024 };

/// Puts its number out; knows where it may end.
struct Numbered {
    number: Box<f32>,
    home: ThreadId,
    ended: Arc<AtomicU64>,
}

impl Drop for Numbered {
    fn drop(&mut self) {
        assert_eq!(thread::current().id(), self.home, "a strip is dropped on the playing side");
        self.ended.fetch_add(1, Relaxed);
    }
}

impl Stage for Numbered {
    fn process(&mut self, block: &mut Block<'_>) {
        block.samples().fill(*self.number);
    }

    fn reset(&mut self) {}

    fn set(&mut self, _: usize, value: f32) -> bool {
        if value >= 0.0 {
            *self.number = value;
        }
        value >= 0.0
    }
}

/// Hears and drops what is there; says the newest number.
fn hear(remote: &mut Remote, heard: &mut u64, newest: u64) -> u64 {
    remote.collect();
    let mut newest = newest;
    while let Some(event) = remote.hear() {
        let (number, done) = match event {
            LoopEvent::Done(number) => (number, true),
            LoopEvent::Refused(number) => (number, false),
            other => panic!("{other:?}"),
        };
        assert!(number > newest, "{number} after {newest}");
        // Every third order is a value, of which the odd ones are refused.
        assert_eq!(done, number % 3 != 0 || number % 2 == 0, "{number}");
        newest = number;
        *heard += 1;
    }
    newest
}

#[test]
fn orders_arrive_once_and_in_turn_and_strips_end_at_home() {
    let ended = Arc::new(AtomicU64::new(0));
    let home = thread::current().id();
    let strip = |number: u64| -> Box<dyn Stage> {
        Box::new(Numbered { number: Box::new(number as f32), home, ended: ended.clone() })
    };
    // At 50 frames a second a fade is one frame.
    let (mut player, mut remote, mut told) = player(strip(0), 1, Frames(2), SampleRate(50));
    let over = AtomicBool::new(false);
    let (mut heard, mut newest, mut strips) = (0, 0, 1);
    let player = thread::scope(|scope| {
        let playing = scope.spawn(|| {
            let mut last = 0.0;
            loop {
                // Looked at before the block: the last block finds every order.
                let ending = over.load(Relaxed);
                let mut samples = [-1.0; 2];
                player.process(&mut samples, 2, &mut told);
                // Nothing while one fades out before the other fades in.
                assert!(samples[1] == 0.0 || samples[1] >= last, "{} after {last}", samples[1]);
                last = samples[1].max(last);
                if ending {
                    break;
                }
                if cfg!(miri) {
                    thread::yield_now();
                }
            }
            // Every order that had come is carried out; the fades end.
            for _ in 0..ENDING {
                player.process(&mut [0.0; 2], 2, &mut told);
                thread::yield_now();
            }
            player
        });
        let mut number = 0;
        while number < ORDERS {
            let next = number + 1;
            let sent = match next % 3 {
                0 => remote.set(0, if next % 2 == 0 { next as f32 } else { -1.0 }),
                1 => remote.bypass(false),
                _ => {
                    let fade = if next % 2 == 0 { Fade::Cross } else { Fade::Through };
                    let sent = remote.swap(strip(next), fade);
                    strips += 1;
                    sent.ok()
                }
            };
            if let Some(sent) = sent {
                assert_eq!(sent, next);
                number = next;
            }
            newest = hear(&mut remote, &mut heard, newest);
        }
        over.store(true, Relaxed);
        while !playing.is_finished() {
            newest = hear(&mut remote, &mut heard, newest);
            thread::yield_now();
        }
        playing.join().unwrap()
    });
    hear(&mut remote, &mut heard, newest);
    assert_eq!(heard + remote.dropped(), ORDERS, "heard and counted as dropped");
    drop((player, remote));
    assert_eq!(ended.load(Relaxed), strips, "strips that are gone, of those there were");
}

/// Breaks whatever comes after the first block that is negative, until it is reset; a `sick` one always.
struct Breaks {
    broken: bool,
    sick: bool,
}

impl Stage for Breaks {
    fn process(&mut self, block: &mut Block<'_>) {
        self.broken |= self.sick || block.samples().iter().any(|sample| *sample < 0.0);
        if self.broken {
            block.samples().fill(f32::NAN);
        }
    }

    fn reset(&mut self) {
        self.broken = false;
    }
}

#[test]
fn a_strip_that_breaks_is_reset_and_at_last_taken_out_until_another_comes() {
    let clock = quiet_engine::Ticks::plain();
    let board = quiet_engine::Board::new();
    let mut cycle = quiet_rt::Cycle::new(clock, &board, 1, 1_000_000_000);
    let breaks = |sick| Box::new(Breaks { broken: false, sick });
    let (mut player, mut remote, mut told) = player(breaks(false), 1, Frames(2), SampleRate(50));
    let mut play = |player: &mut quiet_engine::Player, value: f32| {
        let mut samples = [value; 2];
        cycle.run(player, &mut samples, &mut told);
        samples[1]
    };
    play(&mut player, -1.0);
    let silent = (0..9).take_while(|_| play(&mut player, 0.5) == 0.0).count();
    assert_eq!(silent, 3, "four blocks with the first, then its history is forgotten");
    assert_eq!((board.cured.load(Relaxed), board.bypassed.load(Relaxed)), (1, 0));
    // One that nothing cures: three more times, then what comes in is heard.
    assert!(remote.swap(breaks(true), Fade::Cross).is_ok());
    let silent = (0..99).take_while(|_| play(&mut player, 0.5) == 0.0).count();
    assert!((12..=20).contains(&silent), "{silent}");
    assert_eq!((board.cured.load(Relaxed), board.bypassed.load(Relaxed)), (5, 1));
    assert_eq!(play(&mut player, -0.25), -0.25);
    // Another strip is given its chance.
    for fade in [Fade::Through, Fade::Cross] {
        assert!(remote.swap(breaks(false), fade).is_ok());
        for _ in 0..4 {
            play(&mut player, 0.5);
        }
        assert_eq!(play(&mut player, 0.5), 0.5);
    }
    let cures = std::iter::from_fn(|| remote.hear())
        .filter(|event| matches!(event, LoopEvent::Cured { .. }))
        .count();
    assert_eq!((cures, remote.dropped()), (5, 0));
}

#[test]
fn every_event_that_finds_no_room_is_counted_whoever_tells_it() {
    let (mut player, mut remote, mut told) = player(
        Box::new(Numbered {
            number: Box::new(0.0),
            home: thread::current().id(),
            ended: Arc::new(AtomicU64::new(0)),
        }),
        1,
        Frames(2),
        SampleRate(50),
    );
    let mut sent = 0;
    while sent < 3000 {
        sent += u64::from(remote.set(0, 1.0).is_some());
        player.process(&mut [0.0; 2], 2, &mut told);
    }
    for _ in 0..99 {
        player.process(&mut [0.0; 2], 2, &mut told);
    }
    let heard = std::iter::from_fn(|| remote.hear()).count() as u64;
    assert!(remote.dropped() > 0);
    assert_eq!(heard + remote.dropped(), sent);
}
