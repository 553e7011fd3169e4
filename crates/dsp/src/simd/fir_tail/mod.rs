//! The tail of a FIR: segments of equal parts, convolved by FFTs that are cut into small units.
//!
//! A part of `M` real taps is a polynomial, and so are the last `2 M` input samples. Their product modulo
//! `x^2M + 1` has the `M` new outputs in its upper half. Real polynomials modulo `x^2M + 1` are complex
//! ones modulo `x^M - i` (write `x^M = i`), and those are split by their roots down to numbers, four
//! roots at a time. So a transform of `M` complex points does the work of a real one of `2 M`, needs no
//! windows, and each product is a plain complex one. The order of the points is whatever falls out.

mod complex;
mod passes;

use super::lanes::Kernel;
use std::f64::consts::TAU;

/// Sixteen complex numbers, real parts first.
#[derive(Clone, Copy)]
#[repr(C, align(64))]
pub struct Chunk {
    re: [f32; 16],
    im: [f32; 16],
}

/// Sixteen samples in a row.
#[derive(Clone, Copy)]
#[repr(C, align(64))]
pub struct Row(pub [f32; 16]);

impl Chunk {
    const ZERO: Chunk = Chunk { re: [0.0; 16], im: [0.0; 16] };
}

impl Row {
    /// Silence.
    pub const ZERO: Row = Row([0.0; 16]);
}

/// The samples of some rows.
fn flat(rows: &[Row]) -> &[f32] {
    // SAFETY: a row is sixteen samples without padding (its alignment is its size).
    unsafe { std::slice::from_raw_parts(rows.as_ptr().cast(), rows.len() * 16) }
}

/// Which IR part goes from where to where.
struct Path {
    input: usize,
    output: usize,
    /// Spectra of the taps, as [`Segment::spectra`], the oldest part first.
    taps: Vec<Chunk>,
}

/// A piece of work that is done in one go: some tens of nanoseconds.
#[derive(Clone, Copy, Debug)]
pub struct WorkUnit {
    what: What,
    /// Estimated cycles.
    pub cost: u32,
}

#[derive(Clone, Copy, Debug)]
enum What {
    /// First pass: columns from the input's ring into `work`.
    Take { input: u32, from: u32, to: u32 },
    /// A forward pass over columns.
    Down { pass: u32, from: u32, to: u32 },
    /// The last four levels of some fours of chunks, into the newest spectrum.
    Leaf { input: u32, from: u32, to: u32 },
    /// Products of slots with a path's taps, for some bands; `more`: added to what is there.
    Multiply { path: u32, bands: (u32, u32), slots: (u32, u32), more: bool },
    /// No path leads to this output.
    Clear,
    /// The first four levels back.
    Root { from: u32, to: u32 },
    /// An inverse pass over columns.
    Up { pass: u32, from: u32, to: u32 },
    /// The last pass back: columns to the output.
    Give { output: u32, from: u32, to: u32 },
}

/// The roots that split a block in four: sigma, tau, and their product.
type Roots = [f32; 6];
/// The same for four chunks, lane by lane: of the chunks, then of their fours.
type Leaves = [[[f32; 16]; 6]; 2];

struct Pass {
    /// Chunks in a quarter of a block.
    quarter: usize,
    roots: Vec<Roots>,
}

/// Equal parts of an IR, their FFTs and the history that they need.
pub struct Segment {
    kernel: Kernel,
    part: usize,
    slots: usize,
    /// A first pass of radix 2, where the number of levels is odd.
    halves: bool,
    passes: Vec<Pass>,
    leaves: Vec<Leaves>,
    paths: Vec<Path>,
    /// For each input: band after band (32 points), slot after slot in it.
    spectra: Vec<Vec<Chunk>>,
    work: Vec<Chunk>,
    /// For each output: two parts in turn.
    out: Vec<Vec<Row>>,
    newest: usize,
    start: usize,
    half: usize,
}

impl Segment {
    /// `slots` parts of `part` taps each for every path given as (input, output, taps).
    ///
    /// # Shape
    /// `part` is a power of two from 64 on; each path has at most `part * slots` taps.
    pub fn new(
        kernel: Kernel,
        part: usize,
        slots: usize,
        (inputs, outputs): (usize, usize),
        paths: &[(usize, usize, &[f32])],
    ) -> Segment {
        let halves = part.trailing_zeros() % 2 == 1;
        let mut segment = Segment {
            kernel,
            part,
            slots,
            halves,
            passes: Vec::new(),
            leaves: Vec::new(),
            paths: Vec::new(),
            spectra: vec![vec![Chunk::ZERO; part / 16 * slots]; inputs],
            work: vec![Chunk::ZERO; part / 16],
            out: vec![vec![Row::ZERO; part / 8]; outputs],
            newest: 0,
            start: 0,
            half: 0,
        };
        segment.plant();
        for &(input, output, taps) in paths {
            let taps = segment.spectra_of(taps);
            segment.paths.push(Path { input, output, taps });
        }
        segment
    }

    /// Fills the tables of roots. Angles are in turns; the root of everything is `i`.
    fn plant(&mut self) {
        let mut angles = if self.halves { vec![0.125, 0.625] } else { quarters(0.25).to_vec() };
        let mut block = self.part / angles.len();
        while block > 16 {
            let roots = angles.iter().map(|&angle| roots(angle)).collect();
            self.passes.push(Pass { quarter: block / 64, roots });
            angles = angles.iter().flat_map(|&angle| quarters(angle)).collect();
            block /= 4;
        }
        for four in angles.chunks(4) {
            let mut leaves = [[[0.0; 16]; 6]; 2];
            for (lane, angle) in four.iter().flat_map(|&angle| [angle; 4]).enumerate() {
                for (table, angle) in leaves.iter_mut().zip([angle, quarters(angle)[lane % 4]]) {
                    for (row, root) in table.iter_mut().zip(roots(angle)) {
                        row[lane] = root;
                    }
                }
            }
            self.leaves.push(leaves);
        }
    }

    /// The spectra of an IR's parts, scaled so that the way back needs no factor.
    fn spectra_of(&mut self, taps: &[f32]) -> Vec<Chunk> {
        let rows = self.part / 16;
        let mut found = vec![Chunk::ZERO; rows * self.slots];
        let forward = self.forward(0);
        for (slot, part) in taps.chunks(self.part).enumerate() {
            // Taps and then zeros, in a ring that is just long enough.
            let mut ring = vec![Row::ZERO; 2 * rows];
            for (row, taps) in ring.iter_mut().zip(part.chunks(16)) {
                row.0[..taps.len()].copy_from_slice(taps);
            }
            let slot = self.slots - 1 - slot;
            (self.start, self.newest) = (0, slot);
            // Inputs may be none of this path's: the spectrum is made in a place of its own.
            let kept = std::mem::replace(&mut self.spectra, vec![std::mem::take(&mut found)]);
            self.run(&forward, &[ring]);
            found = std::mem::replace(&mut self.spectra, kept).swap_remove(0);
        }
        for chunk in &mut found {
            for x in chunk.re.iter_mut().chain(&mut chunk.im) {
                *x /= self.part as f32;
            }
        }
        (self.start, self.newest) = (0, 0);
        found
    }

    /// Taps in a part.
    pub fn part(&self) -> usize {
        self.part
    }

    /// How many parts there are.
    pub fn parts(&self) -> usize {
        self.slots
    }

    /// Starts a period: the last two parts of input begin at row `start` of the rings.
    pub fn turn(&mut self, start: usize) {
        self.start = start;
        self.newest = (self.newest + 1) % self.slots;
        self.half ^= 1;
    }

    /// What it has to do in a period, in order.
    pub fn units(&self) -> Vec<WorkUnit> {
        let mut units = Vec::new();
        for input in 0..self.spectra.len() {
            units.extend(self.forward(input as u32));
        }
        for output in 0..self.out.len() {
            self.products(output, &mut units);
            units.extend(self.backward(output as u32));
        }
        units
    }

    fn forward(&self, input: u32) -> Vec<WorkUnit> {
        let (mut units, chunks) = (Vec::new(), self.part as u32 / 16);
        let radix = if self.halves { 2 } else { 4 };
        for (from, to) in columns(0, chunks / radix) {
            let what = What::Take { input, from, to };
            units.push(WorkUnit { what, cost: self.cost(TAKE * radix * (to - from)) });
        }
        if chunks <= TILE {
            self.descend(input, 0, 0, chunks, &mut units);
        } else {
            for child in 0..radix {
                let size = chunks / radix;
                self.descend(input, 0, child * size, size, &mut units);
            }
        }
        units
    }

    /// Depth first: what fits into the nearest cache is finished in it.
    fn descend(&self, input: u32, pass: usize, from: u32, size: u32, units: &mut Vec<WorkUnit>) {
        let mut down = |pass: usize| {
            for (from, to) in columns(from / 4, (from + size) / 4) {
                let what = What::Down { pass: pass as u32, from, to };
                units.push(WorkUnit { what, cost: self.cost(COLUMN * (to - from)) });
            }
        };
        if size > TILE {
            down(pass);
            for child in 0..4 {
                self.descend(input, pass + 1, from + child * size / 4, size / 4, units);
            }
        } else {
            (pass..self.passes.len()).for_each(&mut down);
            let fours = from / 4..(from + size) / 4;
            for from in fours.clone().step_by(FOURS as usize) {
                let to = (from + FOURS).min(fours.end);
                let what = What::Leaf { input, from, to };
                units.push(WorkUnit { what, cost: self.cost(FOUR * (to - from)) });
            }
        }
    }

    /// The way back: the way there, mirrored.
    fn backward(&self, output: u32) -> impl Iterator<Item = WorkUnit> {
        self.forward(0).into_iter().rev().map(move |unit| {
            let cost = unit.cost;
            let (what, cost) = match unit.what {
                What::Take { from, to, .. } => (What::Give { output, from, to }, cost * 2 / 3),
                What::Down { pass, from, to } => (What::Up { pass, from, to }, cost),
                What::Leaf { from, to, .. } => (What::Root { from, to }, cost * 7 / 6),
                other => (other, cost),
            };
            WorkUnit { what, cost }
        })
    }

    /// Bytes of all spectra.
    fn bytes(&self) -> usize {
        let all = self.paths.len() + self.spectra.len();
        all * self.part / 16 * self.slots * size_of::<Chunk>()
    }

    /// Whether the spectra are too many for the near caches.
    fn far(&self) -> bool {
        self.bytes() > NEAR
    }

    /// A unit of a transform: what it does, and that it is called. Large ones come from further away.
    fn cost(&self, cycles: u32) -> u32 {
        CALL + if self.far() { cycles * 3 / 2 } else { cycles }
    }

    fn products(&self, output: usize, units: &mut Vec<WorkUnit>) {
        let here = self.paths.iter().enumerate().filter(|(_, path)| path.output == output);
        let here: Vec<u32> = here.map(|(i, _)| i as u32).collect();
        if here.is_empty() {
            units.push(WorkUnit { what: What::Clear, cost: CALL });
        }
        let (bands, slots) = (self.part as u32 / 32, self.slots as u32);
        let step = (PRODUCTS / slots).max(1);
        // Equal shares of the slots.
        let most = slots.div_ceil(slots.div_ceil(PRODUCTS));
        let product = match self.bytes() {
            bytes if bytes <= NEAREST => PRODUCT,
            bytes if bytes <= NEAR => NEAR_PRODUCT,
            _ => FAR_PRODUCT,
        };
        for from in (0..bands).step_by(step as usize) {
            let bands = (from, (from + step).min(bands));
            for (i, &path) in here.iter().enumerate() {
                for first in (0..slots).step_by(most as usize) {
                    let slots = (first, (first + most).min(slots));
                    let what = What::Multiply { path, bands, slots, more: i > 0 || first > 0 };
                    let (bands, slots) = (bands.1 - bands.0, slots.1 - slots.0);
                    units.push(WorkUnit { what, cost: (product * slots + BAND) * bands + CALL });
                }
            }
        }
    }

    /// Does some units, on the inputs' rings (each a power of two of rows).
    pub fn run(&mut self, units: &[WorkUnit], rings: &[Vec<Row>]) {
        self.kernel.run(passes::Units { segment: self, units, rings });
    }

    /// Adds the samples that are due, from sample `done` of this period on.
    ///
    /// # Shape
    /// `to` ends within the period.
    #[inline(always)]
    pub fn fetch(&self, output: usize, done: usize, to: &mut [f32]) {
        // Finished in the period before this one.
        let due = flat(&self.out[output][(self.half ^ 1) * self.part / 16..]);
        let due = &due[done..][..to.len()];
        let ((rows, rest), (due_rows, due_rest)) =
            (to.as_chunks_mut::<16>(), due.as_chunks::<16>());
        for (y, x) in rows.iter_mut().zip(due_rows) {
            for (y, x) in y.iter_mut().zip(x) {
                *y += x;
            }
        }
        for (y, x) in rest.iter_mut().zip(due_rest) {
            *y += x;
        }
    }

    /// Forgets all history.
    pub fn clear(&mut self) {
        self.spectra.iter_mut().for_each(|chunks| chunks.fill(Chunk::ZERO));
        self.out.iter_mut().for_each(|rows| rows.fill(Row::ZERO));
        self.work.fill(Chunk::ZERO);
        (self.newest, self.start, self.half) = (0, 0, 0);
    }
}

/// Chunks in a tile: what is finished in one go.
const TILE: u32 = 16;
/// Columns of a pass that make one unit.
const COLUMNS: u32 = 4;
/// Fours of chunks that make one.
const FOURS: u32 = 2;
/// Products of one band and slot that make one.
const PRODUCTS: u32 = 16;
/// Bytes of spectra that stay in the nearest cache, and those beyond which a period's come from far away: they
/// are asked for a band ahead.
const NEAREST: usize = 1 << 15;
const NEAR: usize = 1 << 19;
/// Estimated cycles: a call, a chunk of the first pass, a column of another, four chunks of the last levels, a
/// product, and what each band costs besides. Seen on an EPYC of the Zen 4 kind, in the order of a period.
const CALL: u32 = 30;
const TAKE: u32 = 9;
const COLUMN: u32 = 29;
const FOUR: u32 = 60;
const PRODUCT: u32 = 11;
const NEAR_PRODUCT: u32 = 16;
const FAR_PRODUCT: u32 = 24;
const BAND: u32 = 18;

fn columns(from: u32, to: u32) -> impl Iterator<Item = (u32, u32)> {
    (from..to).step_by(COLUMNS as usize).map(move |from| (from, (from + COLUMNS).min(to)))
}

/// The angles of the four roots of `x^4 = root`, in the order in which a pass leaves them.
fn quarters(angle: f64) -> [f64; 4] {
    [0.0, 0.5, 0.25, 0.75].map(|turn| angle / 4.0 + turn)
}

fn roots(angle: f64) -> Roots {
    let at = |turns: f64| ((TAU * turns).cos() as f32, (TAU * turns).sin() as f32);
    let (sigma, tau, both) = (at(angle / 2.0), at(angle / 4.0), at(angle * 0.75));
    [sigma.0, sigma.1, tau.0, tau.1, both.0, both.1]
}
