//! Convolution with impulse responses of up to a million taps, without latency, in one thread.
//!
//! The first taps (the **head**) are summed directly. The rest (the **tail**) lies in **segments** of equal
//! parts, small ones first. A part of `P` taps that begins `2 P` taps or more into the IR has a whole period
//! of `P` samples between the moment when its input is complete and the moment when its output is due. So all
//! of its work is cut into small units, and every sixteen samples a share of them is done that is always the
//! same: whatever is due first, until the share is used up. The periods of the segments begin at different
//! moments.
//!
//! What is computed depends on the taps alone. Blocks decide only how many samples of the head are summed at
//! once, and their order of addition does not change: so every split gives the same bits, and so does every
//! [`ProcessSpec::block`].

mod crossfade;
mod segmentation;

pub use crossfade::Crossfade;

use crate::{
    Block, ProcessSpec, Stage,
    simd::{
        SimdLevel,
        fir_head::HeadTaps,
        fir_tail::{Row, Segment, WorkUnit},
        lanes::Kernel,
    },
};
use std::fmt;

/// The longest IR that a [`Fir`] takes.
pub const MAX_TAPS: usize = 1 << 20;

/// An IR and the channels that it leads from and to.
#[derive(Clone, Debug, PartialEq)]
pub struct Route {
    /// Channel of the block.
    pub input: usize,
    /// Channel of the block.
    pub output: usize,
    /// The IR: tap 0 multiplies the newest sample.
    pub taps: Vec<f32>,
}

impl Route {
    /// The same IR on each of `channels` channels.
    pub fn each(channels: usize, taps: &[f32]) -> Vec<Route> {
        (0..channels).map(|c| Route { input: c, output: c, taps: taps.to_vec() }).collect()
    }
}

/// Why a FIR cannot be built.
#[derive(Clone, Debug, PartialEq)]
pub enum Error {
    /// No route, so no sound.
    NoRoute,
    /// A route's channel is not one of the block's.
    Channel {
        /// Place of the route.
        route: usize,
        /// The channel it asks for.
        channel: usize,
        /// How many there are.
        channels: usize,
    },
    /// Two routes lead from and to the same channels.
    Twice {
        /// Place of the second one.
        route: usize,
    },
    /// An IR has no taps, or too many.
    Taps {
        /// Place of the route.
        route: usize,
        /// Its taps.
        taps: usize,
    },
    /// A tap is not a finite number.
    NotFinite {
        /// Place of the route.
        route: usize,
        /// Place of the tap.
        tap: usize,
    },
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Error::NoRoute => write!(f, "a FIR without a route would be silent: give it one"),
            Error::Channel { route, channel, channels } => write!(
                f,
                "route {route} of the FIR names channel {channel}, but the stream has {channels} \
                 (counted from 0)"
            ),
            Error::Twice { route } => write!(
                f,
                "route {route} of the FIR leads between the same channels as an earlier one: add \
                 the two IRs up"
            ),
            Error::Taps { route, taps: 0 } => write!(f, "the IR of route {route} has no taps"),
            Error::Taps { route, taps } => {
                write!(f, "the IR of route {route} has {taps} taps, more than {MAX_TAPS}: trim it")
            }
            Error::NotFinite { route, tap } => {
                write!(f, "tap {tap} of route {route}'s IR is not a finite number")
            }
        }
    }
}

impl std::error::Error for Error {}

/// Samples between two shares of the tail's work.
const STEP: usize = 16;
/// The most samples that the head sums at once; a multiple of it never lies within such a run.
const RUN: usize = 64;

/// Convolves channels with IRs.
///
/// Outputs without a route are silent.
pub struct Fir {
    kernel: Kernel,
    taps: usize,
    channels: usize,
    inputs: Vec<Input>,
    outputs: Vec<Output>,
    heads: Vec<HeadRoute>,
    tail: Vec<Periodic>,
    /// The inputs' samples for the tail, as rings of the same length.
    rings: Vec<Vec<Row>>,
    /// Cycles that a step may use, and those that are left from steps before.
    share: i64,
    credit: i64,
    position: u64,
}

struct Input {
    channel: usize,
    /// The newest samples twice, one ring's length apart: a window never wraps.
    near: Vec<f32>,
}

struct Output {
    channel: usize,
    sum: [f32; RUN],
}

struct HeadRoute {
    input: usize,
    output: usize,
    head: HeadTaps,
}

/// A segment and how far its period has got.
struct Periodic {
    segment: Segment,
    units: Vec<WorkUnit>,
    next: usize,
    phase: u64,
}

impl Fir {
    /// Builds it, spectra and all.
    ///
    /// # Errors
    /// If a route cannot be carried out as it is.
    pub fn prepare(setting: &ProcessSpec, routes: &[Route]) -> Result<Fir, Error> {
        Fir::prepare_for(SimdLevel::here(), setting, routes)
    }

    /// Builds it for less than the processor can do.
    ///
    /// # Errors
    /// As [`Fir::prepare`].
    /// # Panics
    /// If the processor cannot do `level`.
    pub fn prepare_for(
        level: SimdLevel,
        setting: &ProcessSpec,
        routes: &[Route],
    ) -> Result<Fir, Error> {
        let kernel = Kernel::new(level);
        assert!(kernel.level() == level, "this processor has no {level:?}");
        check(setting, routes)?;
        let (from, to) = (channels(routes, |r| r.input), channels(routes, |r| r.output));
        let index = |of: &[usize], channel| of.iter().position(|&c| c == channel).unwrap_or(0);
        let taps = routes.iter().map(|r| r.taps.len()).max().unwrap_or(0);
        let plan = segmentation::best(taps, from.len(), to.len(), routes.len());

        let mut heads = Vec::new();
        for route in routes {
            let (input, output) = (index(&from, route.input), index(&to, route.output));
            let head = HeadTaps::new(&route.taps[..route.taps.len().min(plan.head)]);
            heads.push(HeadRoute { input, output, head });
        }

        let (mut tail, mut first, mut phase) = (Vec::new(), plan.head, 0);
        for &(part, parts) in &plan.segments {
            let last = first + part * parts;
            let mut paths = Vec::new();
            for route in routes.iter().filter(|route| route.taps.len() > first) {
                let (input, output) = (index(&from, route.input), index(&to, route.output));
                paths.push((input, output, &route.taps[first..route.taps.len().min(last)]));
            }
            let segment = Segment::new(kernel, part, parts, (from.len(), to.len()), &paths);
            let units = segment.units();
            let next = units.len();
            tail.push(Periodic { segment, units, next, phase: phase % part as u64 });
            // No two segments begin their periods together, and none in the middle of a run.
            phase += (part as u64 / 2).max(RUN as u64);
            first = last;
        }

        let near = (plan.head + RUN).next_power_of_two();
        let largest = plan.segments.iter().map(|&(part, _)| part).max();
        let ring = largest.map_or(0, |part| 4 * part / STEP);
        let input =
            |&channel: &usize| Input { channel, near: vec![0.0; 2 * near + HeadTaps::BEYOND] };
        let mut fir = Fir {
            kernel,
            taps,
            channels: setting.channels,
            inputs: from.iter().map(input).collect(),
            outputs: to.iter().map(|&channel| Output { channel, sum: [0.0; RUN] }).collect(),
            heads,
            tail,
            rings: vec![vec![Row::ZERO; ring]; from.len()],
            share: 0,
            credit: 0,
            position: 0,
        };
        fir.share = fir.tail.iter().map(Periodic::share).sum();
        Ok(fir)
    }

    /// The length of the longest IR.
    pub fn taps(&self) -> usize {
        self.taps
    }

    /// How the IR was cut: the taps of the head, then (taps in a part, parts) of each segment.
    pub fn cut(&self) -> (usize, Vec<(usize, usize)>) {
        let head = self.heads.iter().map(|h| h.head.history()).max().unwrap_or(0);
        (head, self.tail.iter().map(|p| (p.segment.part(), p.segment.parts())).collect())
    }

    /// Up to `RUN` samples of every channel, none of which crosses a multiple of it.
    ///
    /// What is due is fetched first: the tail's work may begin a new period.
    #[inline(always)]
    fn run(&mut self, block: &mut Block<'_>, from: usize, count: usize) {
        for output in &mut self.outputs {
            output.sum[..count].fill(0.0);
        }
        for Periodic { segment, phase, .. } in &self.tail {
            let done = (self.position.wrapping_sub(*phase) & (segment.part() as u64 - 1)) as usize;
            for (i, output) in self.outputs.iter_mut().enumerate() {
                segment.fetch(i, done, &mut output.sum[..count]);
            }
        }
        let position = self.position;
        for (input, ring) in self.inputs.iter_mut().zip(&mut self.rings) {
            let samples = &block.channel(input.channel)[from..from + count];
            input.keep(samples, position as usize);
            keep(samples, position as usize, ring);
        }
        self.position += count as u64;
        self.steps(self.position / STEP as u64 - position / STEP as u64);
        for HeadRoute { input, output, head } in &self.heads {
            let near = &self.inputs[*input].near;
            let half = (near.len() - HeadTaps::BEYOND) / 2;
            let at = half + (position as usize & (half - 1));
            head.run(self.kernel, near, at, &mut self.outputs[*output].sum[..count]);
        }
        if self.outputs.len() < self.channels {
            block.each().for_each(|channel| channel[from..from + count].fill(0.0));
        }
        for output in &self.outputs {
            copy(&output.sum[..count], &mut block.channel(output.channel)[from..from + count]);
        }
    }

    /// The tail's shares of work for the last `steps` times sixteen samples. Periods begin at multiples of a run.
    fn steps(&mut self, steps: u64) {
        let now = self.position / STEP as u64 * STEP as u64;
        if steps == 0 || self.tail.is_empty() {
            return;
        }
        if !now.is_multiple_of(RUN as u64) {
            return self.spend(steps, now);
        }
        if steps > 1 {
            self.spend(steps - 1, now - STEP as u64);
        }
        for one in self.tail.iter_mut().filter(|one| one.done(now) == 0) {
            one.work(one.units.len(), &self.rings);
            let rows = self.rings.first().map_or(1, Vec::len) as u64;
            let start =
                (now / STEP as u64).wrapping_sub(one.segment.part() as u64 / 8) & (rows - 1);
            one.segment.turn(start as usize);
            one.next = 0;
        }
        self.spend(1, now);
    }

    /// Does what is due first, until some shares are used up.
    fn spend(&mut self, shares: u64, now: u64) {
        self.credit += self.share * shares as i64;
        while let Some(one) = (self.tail.iter_mut())
            .filter(|one| one.next < one.units.len())
            .min_by_key(|one| one.left(now))
        {
            let mut last = one.next;
            while let Some(unit) = one.units.get(last) {
                // Rounded to the nearer side, so that shares do not drift.
                let cost = i64::from(unit.cost) << SHARE_BITS;
                if 2 * self.credit < cost {
                    break;
                }
                self.credit -= cost;
                last += 1;
            }
            if last == one.next {
                return;
            }
            one.work(last, &self.rings);
        }
        // All is done before it is due: what is left over is not saved up.
        self.credit = self.credit.min(0);
    }
}

/// Binary digits after the point in shares of cycles.
const SHARE_BITS: u32 = 8;

impl Periodic {
    /// Its cycles a step, and a little more: a segment should be done before it must.
    fn share(&self) -> i64 {
        let cost: i64 = self.units.iter().map(|unit| i64::from(unit.cost)).sum();
        let steps = (self.segment.part() / STEP) as i64;
        let share = (cost << SHARE_BITS) / steps;
        share + share / 64 + 1
    }

    /// Samples of its period that are over. (A part is a power of two.)
    fn done(&self, now: u64) -> u64 {
        now.wrapping_sub(self.phase) & (self.segment.part() as u64 - 1)
    }

    /// Samples until its output is due.
    fn left(&self, now: u64) -> u64 {
        self.segment.part() as u64 - self.done(now)
    }

    /// Does its units up to `last`.
    fn work(&mut self, last: usize, rings: &[Vec<Row>]) {
        if self.next == last {
            return;
        }
        self.segment.run(&self.units[self.next..last], rings);
        self.next = last;
    }
}

impl Input {
    /// Keeps samples for the head.
    fn keep(&mut self, samples: &[f32], position: usize) {
        let half = (self.near.len() - HeadTaps::BEYOND) / 2;
        let at = position & (half - 1);
        copy(samples, &mut self.near[at..at + samples.len()]);
        copy(samples, &mut self.near[half + at..half + at + samples.len()]);
    }
}

/// Keeps samples for the tail, in a ring of a power of two of rows, or none.
fn keep(mut samples: &[f32], mut position: usize, ring: &mut [Row]) {
    let Some(mask) = ring.len().checked_sub(1) else { return };
    if position.is_multiple_of(STEP) {
        let (rows, rest) = samples.as_chunks::<STEP>();
        for row in rows {
            copy(row, &mut ring[(position / STEP) & mask].0);
            position += STEP;
        }
        samples = rest;
    }
    // They may begin and end within a row.
    while !samples.is_empty() {
        let row = &mut ring[(position / STEP) & mask].0[position % STEP..];
        let count = row.len().min(samples.len());
        row[..count].copy_from_slice(&samples[..count]);
        (samples, position) = (&samples[count..], position + count);
    }
}

/// Both are equally long. Rows are moved by a few instructions, where a call would cost more than they: in halves, or the compiler would
/// make it one.
fn copy(from: &[f32], to: &mut [f32]) {
    let ((rows, rest), (to_rows, to_rest)) = (from.as_chunks::<STEP>(), to.as_chunks_mut::<STEP>());
    for (row, to) in rows.iter().zip(to_rows) {
        let ((low, _), (to_low, _)) = (row.as_chunks::<8>(), to.as_chunks_mut::<8>());
        to_low[0] = low[0];
        to_low[1] = low[1];
    }
    for (x, to) in rest.iter().zip(to_rest) {
        *to = *x;
    }
}

/// The channels that routes name, each once.
fn channels(routes: &[Route], of: impl Fn(&Route) -> usize) -> Vec<usize> {
    let mut found: Vec<usize> = routes.iter().map(of).collect();
    found.sort_unstable();
    found.dedup();
    found
}

fn check(setting: &ProcessSpec, routes: &[Route]) -> Result<(), Error> {
    if routes.is_empty() {
        return Err(Error::NoRoute);
    }
    for (i, route) in routes.iter().enumerate() {
        for channel in [route.input, route.output] {
            if channel >= setting.channels {
                return Err(Error::Channel { route: i, channel, channels: setting.channels });
            }
        }
        let same = |r: &Route| (r.input, r.output) == (route.input, route.output);
        if routes[..i].iter().any(same) {
            return Err(Error::Twice { route: i });
        }
        if route.taps.is_empty() || route.taps.len() > MAX_TAPS {
            return Err(Error::Taps { route: i, taps: route.taps.len() });
        }
        if let Some(tap) = route.taps.iter().position(|tap| !tap.is_finite()) {
            return Err(Error::NotFinite { route: i, tap });
        }
    }
    Ok(())
}

impl Stage for Fir {
    fn process(&mut self, block: &mut Block<'_>) {
        let mut from = 0;
        while from < block.frames() {
            let left = RUN - self.position as usize % RUN;
            let count = left.min(block.frames() - from);
            // The usual lengths are known to the compiler.
            match count {
                RUN => self.run(block, from, RUN),
                STEP => self.run(block, from, STEP),
                _ => self.run(block, from, count),
            }
            from += count;
        }
    }

    fn reset(&mut self) {
        self.inputs.iter_mut().for_each(|input| input.near.fill(0.0));
        self.rings.iter_mut().for_each(|ring| ring.fill(Row::ZERO));
        for one in &mut self.tail {
            one.segment.clear();
            one.next = one.units.len();
        }
        (self.credit, self.position) = (0, 0);
    }
}

#[cfg(test)]
mod tests;
