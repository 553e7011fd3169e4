//! The tail of a FIR: segments of equal parts, convolved by FFTs that are cut into small units.
//!
//! A part of `M` real taps is a polynomial, and so are the last `2 M` input samples. Their product modulo
//! `x^2M + 1` has the `M` new outputs in its upper half. Real polynomials modulo `x^2M + 1` are complex
//! ones modulo `x^M - i` (write `x^M = i`), and those are split by their roots down to numbers, four
//! roots at a time. So a transform of `M` complex points does the work of a real one of `2 M`, needs no
//! windows, and each product is a plain complex one. The order of the points is whatever falls out.

#![allow(clippy::needless_range_loop, reason = "vectors in step with each other")]

use super::{
    Level,
    fir_lanes::{Lanes, Plain},
};
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
pub struct Unit {
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
    level: Level,
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
        level: Level,
        part: usize,
        slots: usize,
        (inputs, outputs): (usize, usize),
        paths: &[(usize, usize, &[f32])],
    ) -> Segment {
        let halves = part.trailing_zeros() % 2 == 1;
        let mut segment = Segment {
            level,
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
    pub fn units(&self) -> Vec<Unit> {
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

    fn forward(&self, input: u32) -> Vec<Unit> {
        let (mut units, chunks) = (Vec::new(), self.part as u32 / 16);
        let radix = if self.halves { 2 } else { 4 };
        for (from, to) in columns(0, chunks / radix) {
            let what = What::Take { input, from, to };
            units.push(Unit { what, cost: self.cost(TAKE * radix * (to - from)) });
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
    fn descend(&self, input: u32, pass: usize, from: u32, size: u32, units: &mut Vec<Unit>) {
        let mut down = |pass: usize| {
            for (from, to) in columns(from / 4, (from + size) / 4) {
                let what = What::Down { pass: pass as u32, from, to };
                units.push(Unit { what, cost: self.cost(COLUMN * (to - from)) });
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
                units.push(Unit { what, cost: self.cost(FOUR * (to - from)) });
            }
        }
    }

    /// The way back: the way there, mirrored.
    fn backward(&self, output: u32) -> impl Iterator<Item = Unit> {
        self.forward(0).into_iter().rev().map(move |unit| {
            let cost = unit.cost;
            let (what, cost) = match unit.what {
                What::Take { from, to, .. } => (What::Give { output, from, to }, cost * 2 / 3),
                What::Down { pass, from, to } => (What::Up { pass, from, to }, cost),
                What::Leaf { from, to, .. } => (What::Root { from, to }, cost * 7 / 6),
                other => (other, cost),
            };
            Unit { what, cost }
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

    fn products(&self, output: usize, units: &mut Vec<Unit>) {
        let here = self.paths.iter().enumerate().filter(|(_, path)| path.output == output);
        let here: Vec<u32> = here.map(|(i, _)| i as u32).collect();
        if here.is_empty() {
            units.push(Unit { what: What::Clear, cost: CALL });
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
                    units.push(Unit { what, cost: (product * slots + BAND) * bands + CALL });
                }
            }
        }
    }

    /// Does some units, on the inputs' rings (each a power of two of rows).
    pub fn run(&mut self, units: &[Unit], rings: &[Vec<Row>]) {
        match self.level {
            Level::Plain => run::<Plain>(self, units, rings),
            #[cfg(target_arch = "x86_64")]
            // SAFETY: whoever handed this level in has seen the processor's features.
            Level::Avx2 => unsafe { avx2(self, units, rings) },
            #[cfg(target_arch = "x86_64")]
            // SAFETY: as above.
            Level::Avx512 => unsafe { avx512(self, units, rings) },
            #[cfg(not(target_arch = "x86_64"))]
            _ => run::<Plain>(self, units, rings),
        }
    }

    /// Adds the samples that are due, from sample `done` of this period on.
    ///
    /// # Shape
    /// `to` ends within the period.
    pub fn fetch(&self, output: usize, done: usize, to: &mut [f32]) {
        // Finished in the period before this one.
        let due = flat(&self.out[output][(self.half ^ 1) * self.part / 16..]);
        for (y, x) in to.iter_mut().zip(&due[done..self.part]) {
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
const PRODUCTS: u32 = 8;
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

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,fma")]
fn avx2(segment: &mut Segment, units: &[Unit], rings: &[Vec<Row>]) {
    run::<super::fir_lanes::Avx2>(segment, units, rings);
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f,avx512vl,avx512dq,avx2,fma")]
fn avx512(segment: &mut Segment, units: &[Unit], rings: &[Vec<Row>]) {
    run::<super::fir_lanes::Avx512>(segment, units, rings);
}

#[inline(always)]
fn run<L: Lanes>(s: &mut Segment, units: &[Unit], rings: &[Vec<Row>]) {
    for unit in units {
        match unit.what {
            What::Take { input, from, to } => take::<L>(s, &rings[input as usize], from, to),
            What::Down { pass, from, to } => down::<L>(s, pass, from, to),
            What::Leaf { input, from, to } => leaf::<L>(s, input as usize, from, to),
            What::Multiply { path, bands, slots, more } => {
                multiply::<L>(s, path as usize, bands, slots, more)
            }
            What::Clear => s.work.fill(Chunk::ZERO),
            What::Root { from, to } => root::<L>(s, from, to),
            What::Up { pass, from, to } => up::<L>(s, pass, from, to),
            What::Give { output, from, to } => give::<L>(s, output as usize, from, to),
        }
    }
}

/// A vector of complex numbers.
#[derive(Clone, Copy)]
struct Complex<L> {
    re: L,
    im: L,
}

impl<L: Lanes> Complex<L> {
    #[inline(always)]
    fn splat(re: f32, im: f32) -> Self {
        Complex { re: L::splat(re), im: L::splat(im) }
    }

    /// Vector `v` of a chunk.
    #[inline(always)]
    fn load(from: &Chunk, v: usize) -> Self {
        Complex { re: L::load(&from.re[v * L::WIDTH..]), im: L::load(&from.im[v * L::WIDTH..]) }
    }

    #[inline(always)]
    fn store(self, to: &mut Chunk, v: usize) {
        self.re.store(&mut to.re[v * L::WIDTH..]);
        self.im.store(&mut to.im[v * L::WIDTH..]);
    }

    #[inline(always)]
    fn add(self, b: Self) -> Self {
        Complex { re: self.re.add(b.re), im: self.im.add(b.im) }
    }

    #[inline(always)]
    fn sub(self, b: Self) -> Self {
        Complex { re: self.re.sub(b.re), im: self.im.sub(b.im) }
    }

    /// `self + i b`
    #[inline(always)]
    fn add_turned(self, b: Self) -> Self {
        Complex { re: self.re.sub(b.im), im: self.im.add(b.re) }
    }

    /// `self - i b`
    #[inline(always)]
    fn sub_turned(self, b: Self) -> Self {
        Complex { re: self.re.add(b.im), im: self.im.sub(b.re) }
    }

    /// `self + w b`
    #[inline(always)]
    fn add_product(self, w: Self, b: Self) -> Self {
        let re = w.re.mul_add(b.re, self.re);
        let im = w.re.mul_add(b.im, self.im);
        Complex { re: w.im.neg_mul_add(b.im, re), im: w.im.mul_add(b.re, im) }
    }

    /// `self + i w b`
    #[inline(always)]
    fn add_turned_product(self, w: Self, b: Self) -> Self {
        let re = w.im.neg_mul_add(b.re, self.re);
        let im = w.im.neg_mul_add(b.im, self.im);
        Complex { re: w.re.neg_mul_add(b.im, re), im: w.re.mul_add(b.re, im) }
    }

    /// `2 self - b`: the other side of a butterfly whose one side is `b`.
    #[inline(always)]
    fn mirror(self, b: Self) -> Self {
        let two = L::splat(2.0);
        Complex { re: self.re.mul_sub(two, b.re), im: self.im.mul_sub(two, b.im) }
    }

    /// `self` times the conjugate of `w`.
    #[inline(always)]
    fn times_conjugate(self, w: Self) -> Self {
        Complex {
            re: self.im.mul_add(w.im, self.re.mul(w.re)),
            im: self.re.neg_mul_add(w.im, self.im.mul(w.re)),
        }
    }
}

/// Three roots, in all lanes or lane by lane.
#[derive(Clone, Copy)]
struct Twiddles<L> {
    sigma: Complex<L>,
    tau: Complex<L>,
    both: Complex<L>,
}

impl<L: Lanes> Twiddles<L> {
    #[inline(always)]
    fn splat(r: &Roots) -> Self {
        Twiddles {
            sigma: Complex::splat(r[0], r[1]),
            tau: Complex::splat(r[2], r[3]),
            both: Complex::splat(r[4], r[5]),
        }
    }

    #[inline(always)]
    fn load(r: &[[f32; 16]; 6], v: usize) -> Self {
        let at = v * L::WIDTH;
        Twiddles {
            sigma: Complex { re: L::load(&r[0][at..]), im: L::load(&r[1][at..]) },
            tau: Complex { re: L::load(&r[2][at..]), im: L::load(&r[3][at..]) },
            both: Complex { re: L::load(&r[4][at..]), im: L::load(&r[5][at..]) },
        }
    }
}

/// The values of `q0 + q1 y + q2 y^2 + q3 y^3` at the four roots.
#[inline(always)]
fn split<L: Lanes>(q: [Complex<L>; 4], w: Twiddles<L>) -> [Complex<L>; 4] {
    let s = q[0].add_product(w.sigma, q[2]);
    let d = q[0].mirror(s);
    let u = q[1].add_product(w.sigma, q[3]);
    let v = q[1].mirror(u);
    let a = s.add_product(w.tau, u);
    let c = d.add_turned_product(w.tau, v);
    [a, s.mirror(a), c, d.mirror(c)]
}

/// Back from `split`, times four.
#[inline(always)]
fn join<L: Lanes>(o: [Complex<L>; 4], w: Twiddles<L>) -> [Complex<L>; 4] {
    let (s, a) = (o[0].add(o[1]), o[0].sub(o[1]));
    let (d, b) = (o[2].add(o[3]), o[2].sub(o[3]));
    [
        s.add(d),
        a.sub_turned(b).times_conjugate(w.tau),
        s.sub(d).times_conjugate(w.sigma),
        a.add_turned(b).times_conjugate(w.both),
    ]
}

#[inline(always)]
fn take<L: Lanes>(s: &mut Segment, ring: &[Row], from: u32, to: u32) {
    let (chunks, mask, start) = (s.part / 16, ring.len() - 1, s.start);
    let w = Twiddles::splat(&ROOTS_OF_I);
    let step = if s.halves { chunks / 2 } else { chunks / 4 };
    for i in from as usize..to as usize {
        for v in 0..16 / L::WIDTH {
            let a = input::<L>(ring, (start + i) & mask, (start + chunks + i) & mask, v);
            let i1 = start + i + step;
            let b = input::<L>(ring, i1 & mask, (i1 + chunks) & mask, v);
            if s.halves {
                let sum = a.add_product(w.sigma, b);
                sum.store(&mut s.work[i], v);
                a.mirror(sum).store(&mut s.work[i + step], v);
            } else {
                let (i2, i3) = (i1 + step, i1 + 2 * step);
                let c = input::<L>(ring, i2 & mask, (i2 + chunks) & mask, v);
                let d = input::<L>(ring, i3 & mask, (i3 + chunks) & mask, v);
                let [a, b, c, d] = split([a, b, c, d], w);
                a.store(&mut s.work[i], v);
                b.store(&mut s.work[i + step], v);
                c.store(&mut s.work[i + 2 * step], v);
                d.store(&mut s.work[i + 3 * step], v);
            }
        }
    }
}

/// Of the last two parts of input: the earlier one is real, the later one imaginary.
#[inline(always)]
fn input<L: Lanes>(ring: &[Row], earlier: usize, later: usize, v: usize) -> Complex<L> {
    let at = v * L::WIDTH;
    Complex { re: L::load(&ring[earlier].0[at..]), im: L::load(&ring[later].0[at..]) }
}

/// The roots that split the whole.
const ROOTS_OF_I: Roots = [
    std::f32::consts::FRAC_1_SQRT_2,
    std::f32::consts::FRAC_1_SQRT_2,
    0.923_879_5,
    0.382_683_43,
    0.382_683_43,
    0.923_879_5,
];

/// A column lies in all four quarters of a block, and the blocks follow each other.
#[inline(always)]
fn down<L: Lanes>(s: &mut Segment, pass: u32, from: u32, to: u32) {
    let Segment { passes, work, .. } = s;
    let pass = &passes[pass as usize];
    let quarter = pass.quarter;
    let (mut at, to) = (from as usize, to as usize);
    while at < to {
        let (block, column) = (at / quarter, at % quarter);
        let count = (quarter - column).min(to - at);
        let w = Twiddles::<L>::splat(&pass.roots[block]);
        let (low, high) = work[4 * block * quarter..][..4 * quarter].split_at_mut(2 * quarter);
        let (q0, q1) = low.split_at_mut(quarter);
        let (q2, q3) = high.split_at_mut(quarter);
        let q0 = &mut q0[column..][..count];
        let q1 = &mut q1[column..][..count];
        let q2 = &mut q2[column..][..count];
        let q3 = &mut q3[column..][..count];
        for i in 0..count {
            for v in 0..16 / L::WIDTH {
                let q = [
                    Complex::load(&q0[i], v),
                    Complex::load(&q1[i], v),
                    Complex::load(&q2[i], v),
                    Complex::load(&q3[i], v),
                ];
                let [a, b, c, d] = split(q, w);
                a.store(&mut q0[i], v);
                b.store(&mut q1[i], v);
                c.store(&mut q2[i], v);
                d.store(&mut q3[i], v);
            }
        }
        at += count;
    }
}

#[inline(always)]
fn up<L: Lanes>(s: &mut Segment, pass: u32, from: u32, to: u32) {
    let Segment { passes, work, .. } = s;
    let pass = &passes[pass as usize];
    let quarter = pass.quarter;
    let (mut at, to) = (from as usize, to as usize);
    while at < to {
        let (block, column) = (at / quarter, at % quarter);
        let count = (quarter - column).min(to - at);
        let w = Twiddles::<L>::splat(&pass.roots[block]);
        let (low, high) = work[4 * block * quarter..][..4 * quarter].split_at_mut(2 * quarter);
        let (q0, q1) = low.split_at_mut(quarter);
        let (q2, q3) = high.split_at_mut(quarter);
        let q0 = &mut q0[column..][..count];
        let q1 = &mut q1[column..][..count];
        let q2 = &mut q2[column..][..count];
        let q3 = &mut q3[column..][..count];
        for i in 0..count {
            for v in 0..16 / L::WIDTH {
                let q = [
                    Complex::load(&q0[i], v),
                    Complex::load(&q1[i], v),
                    Complex::load(&q2[i], v),
                    Complex::load(&q3[i], v),
                ];
                let [a, b, c, d] = join(q, w);
                a.store(&mut q0[i], v);
                b.store(&mut q1[i], v);
                c.store(&mut q2[i], v);
                d.store(&mut q3[i], v);
            }
        }
        at += count;
    }
}

/// Vector `j` of the four that hold chunks (all of them, or two): the chunk, and the vector in it.
#[inline(always)]
fn place<L: Lanes>(j: usize, v: usize) -> (usize, usize) {
    let each = 16 / L::WIDTH;
    (4 / each * v + j / each, j % each)
}

/// How vectors are dealt out anew.
#[derive(Clone, Copy)]
enum Deal {
    Fours,
    Rows,
    Turn,
}

/// Real and imaginary parts alike. (A function or a closure as argument might stay a call: it has no features.)
#[inline(always)]
fn deal<L: Lanes>(x: [Complex<L>; 4], how: Deal) -> [Complex<L>; 4] {
    let re = [x[0].re, x[1].re, x[2].re, x[3].re];
    let im = [x[0].im, x[1].im, x[2].im, x[3].im];
    let (re, im) = match how {
        Deal::Fours => (L::fours(re), L::fours(im)),
        Deal::Rows => (L::rows(re), L::rows(im)),
        Deal::Turn => (L::turn(re), L::turn(im)),
    };
    let mut to = x;
    for i in 0..4 {
        to[i] = Complex { re: re[i], im: im[i] };
    }
    to
}

#[inline(always)]
fn leaf<L: Lanes>(s: &mut Segment, input: usize, from: u32, to: u32) {
    let slots = s.slots;
    for four in from as usize..to as usize {
        let first = 4 * four;
        let work = &s.work[first..first + 4];
        for v in 0..16 / L::WIDTH {
            let mut x = [Complex::<L>::splat(0.0, 0.0); 4];
            for j in 0..4 {
                let (chunk, v) = place::<L>(j, v);
                x[j] = Complex::load(&work[chunk], v);
            }
            let x = split(deal(x, Deal::Fours), Twiddles::load(&s.leaves[four][0], v));
            let x = split(deal(x, Deal::Turn), Twiddles::load(&s.leaves[four][1], v));
            for j in 0..4 {
                let chunk = first + j;
                let slot = (chunk / 2 * slots + s.newest) * 2 + chunk % 2;
                x[j].store(&mut s.spectra[input][slot], v);
            }
        }
    }
}

#[inline(always)]
fn root<L: Lanes>(s: &mut Segment, from: u32, to: u32) {
    for four in from as usize..to as usize {
        let first = 4 * four;
        let work = &mut s.work[first..first + 4];
        // All is read before anything is written.
        let mut x = [[Complex::<L>::splat(0.0, 0.0); 4]; 2];
        for v in 0..16 / L::WIDTH {
            for j in 0..4 {
                x[v][j] = Complex::load(&work[j], v);
            }
        }
        for v in 0..16 / L::WIDTH {
            let x = deal(join(x[v], Twiddles::load(&s.leaves[four][1], v)), Deal::Turn);
            let x = deal(join(x, Twiddles::load(&s.leaves[four][0], v)), Deal::Rows);
            for j in 0..4 {
                let (chunk, v) = place::<L>(j, v);
                x[j].store(&mut work[chunk], v);
            }
        }
    }
}

#[inline(always)]
fn give<L: Lanes>(s: &mut Segment, output: usize, from: u32, to: u32) {
    let chunks = s.part / 16;
    let out = &mut s.out[output][s.half * chunks..][..chunks];
    let r = ROOTS_OF_I;
    if s.halves {
        let (low, high) = s.work.split_at(chunks / 2);
        let sigma = Complex::splat(r[0], r[1]);
        for i in from as usize..to as usize {
            for v in 0..16 / L::WIDTH {
                let (a, b) = (Complex::<L>::load(&low[i], v), Complex::load(&high[i], v));
                let at = v * L::WIDTH;
                a.add(b).im.store(&mut out[i].0[at..]);
                a.sub(b).times_conjugate(sigma).im.store(&mut out[i + chunks / 2].0[at..]);
            }
        }
        return;
    }
    let quarter = chunks / 4;
    let w = Twiddles::splat(&r);
    let work = &s.work;
    for i in from as usize..to as usize {
        for v in 0..16 / L::WIDTH {
            let (a, b) = (Complex::<L>::load(&work[i], v), Complex::load(&work[i + quarter], v));
            let c = Complex::load(&work[i + 2 * quarter], v);
            let d = Complex::load(&work[i + 3 * quarter], v);
            let [a, b, c, d] = join([a, b, c, d], w);
            let at = v * L::WIDTH;
            a.im.store(&mut out[i].0[at..]);
            b.im.store(&mut out[i + quarter].0[at..]);
            c.im.store(&mut out[i + 2 * quarter].0[at..]);
            d.im.store(&mut out[i + 3 * quarter].0[at..]);
        }
    }
}

#[inline(always)]
fn multiply<L: Lanes>(
    s: &mut Segment,
    path: usize,
    bands: (u32, u32),
    slots: (u32, u32),
    more: bool,
) {
    let ahead = if s.far() { 2 * s.slots } else { 0 };
    let path = &s.paths[path];
    let spectra = &s.spectra[path.input];
    // Slots from the oldest to the newest: up to the end of the ring, then from its beginning.
    let oldest = s.newest + 1;
    for band in bands.0 as usize..bands.1 as usize {
        let x = &spectra[band * s.slots * 2..][..s.slots * 2];
        let h = &path.taps[band * s.slots * 2..][..s.slots * 2];
        let work = &mut s.work[2 * band..2 * band + 2];
        let (from, to) = (slots.0 as usize, slots.1 as usize);
        let turn = (s.slots - oldest).clamp(from, to);
        // Slot j of the order lies at oldest + j, and after the turn at oldest + j - slots.
        let before = (&x[2 * (oldest + from).min(s.slots)..], &h[2 * from..2 * turn]);
        let wrapped = (oldest + turn).saturating_sub(s.slots);
        let after = (&x[2 * wrapped..], &h[2 * turn..2 * to]);
        // Both chunks of the band beside each other where the registers suffice.
        if L::WIDTH == 16 {
            band_of::<L, 2>(work, 0, [before, after], more, ahead);
        } else {
            band_of::<L, 2>(work, 0, [before, after], more, ahead);
            band_of::<L, 2>(work, 1, [before, after], more, 0);
        }
    }
}

/// Brings a chunk nearer, if there is one.
#[inline(always)]
fn ask(chunk: *const Chunk) {
    #[cfg(target_arch = "x86_64")]
    for line in 0..2 {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        let at = chunk.cast::<i8>().wrapping_add(64 * line);
        // SAFETY: SSE is part of the target; addresses that lead nowhere do no harm.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(at) };
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = chunk;
}

/// Two vectors of each pair of chunks: both chunks where one vector is a chunk, else the halves of
/// chunk `c`. The chunks that lie `ahead` of these are asked for, if it is not 0.
#[inline(always)]
fn band_of<L: Lanes, const V: usize>(
    work: &mut [Chunk],
    c: usize,
    runs: [(&[Chunk], &[Chunk]); 2],
    more: bool,
    ahead: usize,
) {
    let zero = L::splat(0.0);
    let (mut rr, mut ii, mut ri, mut ir) = ([zero; V], [zero; V], [zero; V], [zero; V]);
    for (x, h) in runs {
        let (h, _) = h.as_chunks::<2>();
        let x = &x.as_chunks::<2>().0[..h.len()];
        for j in 0..h.len() {
            if ahead > 0 {
                for chunk in 0..2 {
                    ask(x[j].as_ptr().wrapping_add(ahead + chunk));
                    ask(h[j].as_ptr().wrapping_add(ahead + chunk));
                }
            }
            for k in 0..V {
                let (chunk, v) = if L::WIDTH == 16 { (k, 0) } else { (c, k) };
                let x = Complex::<L>::load(&x[j][chunk], v);
                let h = Complex::load(&h[j][chunk], v);
                rr[k] = x.re.mul_add(h.re, rr[k]);
                ii[k] = x.im.mul_add(h.im, ii[k]);
                ri[k] = x.re.mul_add(h.im, ri[k]);
                ir[k] = x.im.mul_add(h.re, ir[k]);
            }
        }
    }
    for k in 0..V {
        let (chunk, v) = if L::WIDTH == 16 { (k, 0) } else { (c, k) };
        let mut sum = Complex { re: rr[k].sub(ii[k]), im: ri[k].add(ir[k]) };
        if more {
            sum = Complex::load(&work[chunk], v).add(sum);
        }
        sum.store(&mut work[chunk], v);
    }
}
