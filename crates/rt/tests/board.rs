//! The board between the thread that plays and one that reads.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

use quiet_rt::{Board, Clock, Cycle, LoopEvent, Process, Tell};
use std::{
    sync::{Arc, atomic::Ordering::Relaxed},
    thread,
};

struct Still;

impl Clock for Still {
    fn ticks(&self) -> u64 {
        0
    }

    fn nanos(&self, ticks: u64) -> u64 {
        ticks
    }
}

struct Half;

impl Process for Half {
    fn process(&mut self, samples: &mut [f32], _: usize, _: &mut dyn Tell) {
        samples.iter_mut().for_each(|sample| *sample *= 0.5);
    }
}

struct Nobody;

impl Tell for Nobody {
    fn tell(&mut self, _: LoopEvent) {}
}

/// Blocks; fewer where each step is interpreted.
const BLOCKS: u32 = if cfg!(miri) { 100 } else { 100_000 };

#[test]
fn whoever_takes_the_peaks_meanwhile_gets_every_one_and_counters_only_rise() {
    let board = Arc::new(Board::new());
    let mut cycle = Cycle::new(Still, board.clone(), 1, 1000);
    let plays = thread::spawn(move || {
        for n in 1..=BLOCKS {
            // Ever louder, so that each is a peak; negative ones are peaks as well.
            let loud = n as f32 / BLOCKS as f32 * if n % 2 == 0 { 1.0 } else { -1.0 };
            let mut samples = [0.0, loud, 0.0];
            cycle.run(&mut Half, &mut samples, &mut Nobody);
        }
    });
    let (mut input, mut output, mut blocks) = (0.0f32, 0.0f32, 0);
    loop {
        let over = plays.is_finished();
        let (came, went) = board.take_peaks(0);
        assert!(came == 0.0 || came > input, "louder than all before: {came} after {input}");
        assert!(went == 0.0 || went > output, "louder than all before: {went} after {output}");
        (input, output) = (input.max(came), output.max(went));
        let now = board.blocks.load(Relaxed);
        assert!(now >= blocks);
        blocks = now;
        if over {
            break;
        }
    }
    plays.join().unwrap();
    assert_eq!((input, output, blocks), (1.0, 0.5, u64::from(BLOCKS)));
}
