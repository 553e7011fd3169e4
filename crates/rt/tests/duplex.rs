//! The duplex loop over a card of the test's own, with a cable from its output to its input.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

use proptest::prelude::*;
use quiet_rt::{
    Board, Clock, Cure, Cycle, Duplex, End, Look, LoopEvent, LoopMode, Process, Tell, Xrun, duplex,
};
use std::{cell::Cell, collections::VecDeque, sync::atomic::Ordering::Relaxed};

/// One frame lasts a microsecond; a clock read costs 10 ns, so that time goes on.
const FRAME: u64 = 1_000;

struct Time(Cell<u64>);

impl Clock for Time {
    fn ticks(&self) -> u64 {
        self.0.set(self.0.get() + 10);
        self.0.get()
    }

    fn nanos(&self, ticks: u64) -> u64 {
        ticks
    }
}

/// A card by the book: two rings of `buffer` frames, both stopped by an xrun, started anew with
/// the playback ring full. What it plays at frame n it hears at frame n + `cable`.
struct Card<'a> {
    time: &'a Time,
    period: u64,
    buffer: u64,
    cable: u64,
    /// When frame 0 began; frames count from the last start.
    started: u64,
    read: u64,
    written: u64,
    /// By frame since the last start.
    line: Vec<f32>,
    starts: Vec<u64>,
    first_after_start: Option<u64>,
    recovered_within: u64,
    waits: u64,
    gone_at: u64,
    /// A write came too late: the card has stopped before it.
    stopped: bool,
}

impl<'a> Card<'a> {
    fn new(time: &'a Time, period: u64, buffer: u64, cable: u64) -> Card<'a> {
        let mut card = Card {
            time,
            period,
            buffer,
            cable,
            started: 0,
            read: 0,
            written: 0,
            line: Vec::new(),
            starts: Vec::new(),
            first_after_start: None,
            recovered_within: 0,
            waits: 0,
            gone_at: u64::MAX,
            stopped: false,
        };
        card.start();
        card
    }

    fn start(&mut self) {
        self.started = self.time.ticks();
        self.starts.push(self.started);
        (self.read, self.written) = (0, self.buffer);
        self.line = vec![0.0; self.buffer as usize];
        self.first_after_start = None;
        self.stopped = false;
    }

    fn position(&self) -> u64 {
        (self.time.ticks() - self.started) / FRAME
    }
}

impl Duplex for Card<'_> {
    fn look(&mut self) -> Look {
        if self.time.ticks() >= self.gone_at {
            return Look::Gone;
        }
        let at = self.position();
        let (playback, capture) = (at > self.written, at > self.read + self.buffer);
        if playback || capture || self.stopped {
            let missed = ((at - self.written.min(at)) / self.period + 1) as u32;
            return Look::Xrun(Xrun { capture: true, playback: true, missed });
        }
        let waiting = at - self.read.min(at);
        if waiting < self.period { Look::Empty } else { Look::Due(waiting as u32) }
    }

    fn wait(&mut self) {
        self.waits += 1;
        let due = self.started + (self.read + self.period) * FRAME;
        self.time.0.set(self.time.0.get().max(due));
    }

    fn read(&mut self, samples: &mut [f32]) {
        for sample in samples {
            let heard = self.read.checked_sub(self.cable);
            *sample = heard.map_or(0.0, |n| self.line[n as usize]);
            self.read += 1;
        }
    }

    fn write(&mut self, samples: &[f32]) {
        self.stopped |= self.position() > self.written;
        if self.stopped {
            return;
        }
        self.line.extend(samples);
        self.written += samples.len() as u64;
        let since = self.time.ticks() - self.started;
        if self.first_after_start.is_none() {
            self.first_after_start = Some(since);
            if self.starts.len() > 1 {
                self.recovered_within = self.recovered_within.max(since);
            }
        }
    }

    fn resync(&mut self) -> bool {
        self.start();
        true
    }
}

/// Sends an impulse every `every` blocks and notes how many frames later it comes back; stalls
/// where the script says so.
struct Pinger<'a> {
    time: &'a Time,
    board: &'a Board,
    block: u64,
    blocks: u64,
    every: u64,
    frame: u64,
    sent: VecDeque<u64>,
    round_trips: Vec<u64>,
    /// (block, ns)
    stalls: VecDeque<(u64, u64)>,
}

impl Process for Pinger<'_> {
    fn process(&mut self, samples: &mut [f32], frames: usize, _: &mut dyn Tell) {
        for (offset, sample) in samples.iter_mut().enumerate() {
            if *sample != 0.0 {
                // What was lost in an xrun does not come back: its number is in the sample.
                let sent = *sample as u64;
                self.round_trips.push(self.frame + offset as u64 - sent);
            }
            *sample = 0.0;
        }
        if self.block.is_multiple_of(self.every) {
            samples[frames / 2] = (self.frame + frames as u64 / 2) as f32;
            self.sent.push_back(self.frame);
        }
        while self.stalls.front().is_some_and(|stall| stall.0 <= self.block) {
            let (_, ns) = self.stalls.pop_front().unwrap();
            self.time.0.set(self.time.0.get() + ns);
        }
        self.frame += frames as u64;
        self.block += 1;
        if self.block == self.blocks {
            self.board.stop();
        }
    }
}

#[derive(Default)]
struct Told(Vec<LoopEvent>, usize, u64);

impl Tell for Told {
    fn tell(&mut self, event: LoopEvent) {
        if self.0.len() < self.1 {
            self.0.push(event);
        } else {
            self.2 += 1;
        }
    }
}

struct Played {
    round_trips: Vec<u64>,
    xruns: u64,
    missed: u64,
    starts: usize,
    recovered_within: u64,
    events: Vec<LoopEvent>,
    dropped: u64,
    waits: u64,
    end: End,
}

fn play(
    (period, periods, cable): (u64, u64, u64),
    stalls: &[(u64, u64)],
    mode: LoopMode,
    room: usize,
) -> Played {
    let (time, board) = (Time(Cell::new(0)), Board::new());
    let mut card = Card::new(&time, period, period * periods, cable);
    let mut pinger = Pinger {
        time: &time,
        board: &board,
        block: 0,
        blocks: 400,
        every: 20,
        frame: 0,
        sent: VecDeque::new(),
        round_trips: Vec::new(),
        stalls: stalls.iter().copied().collect(),
    };
    let mut told = Told(Vec::new(), room, 0);
    let mut samples = vec![0.0; period as usize];
    let mut cycle = Cycle::new(&time, &board, 1, period * FRAME);
    let end = duplex(&mut cycle, &mut card, &mut pinger, &mut told, &mut samples, mode);
    assert_eq!(board.blocks.load(Relaxed), 400);
    Played {
        round_trips: pinger.round_trips,
        xruns: board.xruns.load(Relaxed),
        missed: board.missed.load(Relaxed),
        starts: card.starts.len(),
        recovered_within: card.recovered_within,
        events: told.0,
        dropped: told.2,
        waits: card.waits,
        end,
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// However often and however long the thread is held up: the round trip stays what it was, the
    /// counts are right, and the first block after an xrun is there within one buffer.
    #[test]
    fn an_xrun_adds_no_latency(
        period in 8u64..64,
        periods in 2u64..5,
        cable in 0u64..100,
        asleep: bool,
        stalls in prop::collection::vec((1u64..380, 0u64..2_000_000), 0..8),
    ) {
        let mut stalls = stalls;
        stalls.sort_unstable();
        stalls.dedup_by_key(|stall| stall.0);
        let mode = if asleep { LoopMode::Sleep } else { LoopMode::NeverSleep };
        let done = play((period, periods, cable), &stalls, mode, 100);
        let buffer = period * periods;
        prop_assert!(done.round_trips.len() >= 5, "too few came back to say anything");
        prop_assert!(done.round_trips.iter().all(|frames| *frames == buffer + cable),
            "{} + {} became {:?}", buffer, cable, done.round_trips);
        // Nothing else holds the thread up: a stall that leaves no room is an xrun, one that
        // leaves some is none. Close to the edge the few clock reads decide.
        let room = (buffer - period) * FRAME;
        let sure = stalls.iter().filter(|stall| stall.1 > room + 2 * FRAME).count() as u64;
        let may = stalls.iter().filter(|stall| stall.1 + 2 * FRAME > room).count() as u64;
        // Two stalls in a row may add up.
        let add_up = stalls.windows(2).filter(|two| two[1].0 - two[0].0 < 2 * periods).count() as u64;
        prop_assert!(done.xruns + add_up >= sure && done.xruns <= may + add_up,
            "{} xruns, {sure} to {may} expected", done.xruns);
        prop_assert_eq!(done.starts as u64, done.xruns + 1);
        prop_assert!(done.missed >= done.xruns);
        prop_assert_eq!(done.events.len() as u64, done.xruns);
        prop_assert_eq!(asleep, done.waits > 0);
        prop_assert!(done.end == End::Stopped);
        if done.xruns > 0 && !stalls.iter().any(|s| done.xruns > 1 && s.1 > 0) {
            prop_assert!(done.recovered_within <= buffer * FRAME, "{} ns", done.recovered_within);
        }
    }
}

#[test]
fn xruns_are_told_with_their_time_and_what_finds_no_room_is_counted() {
    let stalls = [(100, 900_000), (200, 900_000), (300, 900_000)];
    let done = play((16, 2, 0), &stalls, LoopMode::NeverSleep, 2);
    assert_eq!((done.xruns, done.events.len(), done.dropped), (3, 2, 1));
    let LoopEvent::Xrun { at, xrun } = done.events[0] else { panic!("{:?}", done.events) };
    // Block 100 is processed when frame 101 * 16 was captured; the stall begins there.
    assert!(at.abs_diff(101 * 16 * FRAME + 900_000) < 5_000, "{at}");
    assert!(xrun.playback && xrun.capture);
    assert_eq!(xrun.missed, 900 / 16, "56 whole periods of 16 us passed");
    assert!(done.recovered_within <= 32 * FRAME, "within one buffer: {}", done.recovered_within);
}

#[test]
fn a_device_that_is_gone_ends_the_loop() {
    let (time, board) = (Time(Cell::new(0)), Board::new());
    let mut card = Card::new(&time, 16, 32, 0);
    card.gone_at = 1_000_000;
    struct Nothing;
    impl Process for Nothing {
        fn process(&mut self, _: &mut [f32], _: usize, _: &mut dyn Tell) {}
    }
    let mut cycle = Cycle::new(&time, &board, 1, 16 * FRAME);
    let mut samples = [0.0; 16];
    let mut told = Told(Vec::new(), 1, 0);
    let end =
        duplex(&mut cycle, &mut card, &mut Nothing, &mut told, &mut samples, LoopMode::NeverSleep);
    assert_eq!(end, End::Gone);
    let blocks = board.blocks.load(Relaxed);
    assert!((61..=63).contains(&blocks), "1 ms of 16 us: {blocks}");
}

/// Takes a scripted time, and makes what it is told to make.
struct Script<'a>(&'a Time, u64, f32);

impl Process for Script<'_> {
    fn process(&mut self, samples: &mut [f32], frames: usize, _: &mut dyn Tell) {
        self.0.0.set(self.0.0.get() + self.1);
        samples[frames + 3] = self.2;
    }
}

#[test]
fn a_block_is_timed_and_its_levels_are_taken() {
    let (time, board) = (Time(Cell::new(0)), Board::new());
    // Two channels of 19 frames (no multiple of the lanes), to be done in 100 us.
    let mut cycle = Cycle::new(&time, &board, 2, 100_000);
    let mut told = Told(Vec::new(), 9, 0);
    let mut samples = [0.0; 38];
    samples[18] = -0.25;
    for (us, makes) in [(50, 0.5), (199, -0.75), (30, 0.125), (900, 0.0)] {
        let mut script = Script(&time, us * 1000 - 10, makes);
        cycle.run(&mut script, &mut samples, &mut told);
    }
    let load = |percent: usize| board.loads[percent].load(Relaxed);
    // The clock read of the end belongs to the block: 10 ns. Rounded down to whole percent.
    assert_eq!([load(49), load(198), load(29), load(200)], [1, 1, 1, 1]);
    assert_eq!(board.worst.load(Relaxed), 900_000);
    assert_eq!(board.busy.load(Relaxed), 1_179_000);
    assert_eq!(board.take_peaks(0), (0.25, 0.25));
    assert_eq!(board.take_peaks(1), (0.75, 0.75), "the second channel's own output came back");
    assert_eq!(board.take_peaks(1), (0.0, 0.0), "taken");
    assert_eq!(board.take_peaks(99), (0.0, 0.0));

    for makes in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
        samples[2] = 0.5;
        cycle.run(&mut Script(&time, 0, makes), &mut samples, &mut told);
        assert_eq!((samples[2], samples[22]), (0.5, 0.0), "silenced, and nothing else");
    }
    assert_eq!(board.broken.load(Relaxed), 3);
    assert!(matches!(told.0[..], [LoopEvent::Broken { samples: 1, .. }, _, _]), "{:?}", told.0);
}

/// A filter whose history holds whatever it is given, until it is reset; what it holds as `sick` cannot be reset.
struct Filter {
    history: f32,
    sick: bool,
    asked: Vec<u32>,
}

impl Process for Filter {
    fn process(&mut self, samples: &mut [f32], _: usize, _: &mut dyn Tell) {
        for sample in samples {
            self.history = 0.5 * self.history + *sample;
            *sample = if self.sick { f32::NAN } else { self.history };
        }
    }

    fn cure(&mut self, blocks: u32) -> Option<Cure> {
        self.asked.push(blocks);
        (blocks == 3).then(|| {
            self.history = 0.0;
            Cure::Reset
        })
    }
}

#[test]
fn what_is_no_number_does_not_stay_in_a_strip() {
    let (time, board) = (Time(Cell::new(0)), Board::new());
    let mut cycle = Cycle::new(&time, &board, 1, 100_000);
    let mut told = Told(Vec::new(), 99, 0);
    // From the card: it never reaches the strip, and is counted.
    let mut filter = Filter { history: 0.0, sick: false, asked: Vec::new() };
    let mut samples = [0.5, f32::NAN, f32::INFINITY, 0.5];
    cycle.run(&mut filter, &mut samples, &mut told);
    assert_eq!((board.broken.load(Relaxed), filter.asked.len()), (2, 0));
    assert!(samples.iter().all(|sample| sample.is_finite()) && samples[3] > 0.5, "{samples:?}");
    assert!(matches!(told.0[..], [LoopEvent::Broken { samples: 2, .. }]), "{:?}", told.0);
    // Born within: the strip is told how many blocks in a row, and forgets.
    filter.history = f32::NAN;
    for _ in 0..3 {
        cycle.run(&mut filter, &mut [0.5; 4], &mut told);
    }
    assert_eq!(filter.asked, [1, 2, 3]);
    assert!(
        matches!(told.0.last(), Some(LoopEvent::Cured { cure: Cure::Reset, .. })),
        "{:?}",
        told.0
    );
    let mut samples = [0.5; 4];
    cycle.run(&mut filter, &mut samples, &mut told);
    assert_eq!((samples[0], board.cured.load(Relaxed)), (0.5, 1), "it sounds again");
    filter.sick = true;
    cycle.run(&mut filter, &mut [0.5; 4], &mut told);
    assert_eq!(filter.asked.last(), Some(&1), "counted anew after a block that was whole");
}
