//! The prepared strip: a list of operations over one block, in order.

use super::{Gauge, LiveParam, ValueUnit};
use crate::{
    Block, ProcessSpec, Stage, Twin,
    stage::{Ramp, factor},
};
use quiet_types::Frames;

/// How many channels a strip takes, gives, and needs room for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    /// Channels that come in.
    pub inputs: usize,
    /// Channels that go out.
    pub outputs: usize,
    /// Channels of each block: the most that there are anywhere within.
    pub width: usize,
}

/// Prepared stages in order, swapped as one.
///
/// # Shape
/// A block has [`Strip::width`] channels: the inputs come in the first ones, and the outputs
/// leave in the first ones.
pub struct Strip {
    shape: Shape,
    pub(super) elements: Vec<Element>,
    pub(super) joins: Vec<Join>,
    pub(super) ops: Vec<Op>,
    pub(super) buffers: Vec<Vec<f32>>,
    /// Branches that are played elsewhere.
    pub(super) lent: Vec<Box<dyn Elsewhere>>,
    pub(super) readings: Vec<Readout>,
    pub(super) notes: Vec<String>,
    params: Vec<LiveParam>,
    targets: Vec<Target>,
    latency: Frames,
    pub(super) tail: Frames,
}

/// A stage as it stands in its strip.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct StripStage<'a> {
    /// Its name.
    pub name: &'a str,
    /// Its kind.
    pub kind: &'static str,
    /// How late it is.
    pub latency: Frames,
    /// Multiply-adds a frame, where it knows them.
    pub multiply_adds: Option<f64>,
}

/// What can be read while a strip sounds, such as a meter's peak.
#[derive(Clone, Debug)]
pub struct Readout {
    /// `stage.reading`.
    pub name: String,
    /// What it counts.
    pub unit: ValueUnit,
    /// Where it is read.
    pub cell: Gauge,
}

/// Before a stage, or after it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Edge {
    /// The stage of this number begins.
    Begin(usize),
    /// It is done.
    End(usize),
}

#[derive(Clone, Copy, Debug)]
pub(super) enum Op {
    Run(usize),
    Keep {
        kept: usize,
        sum: usize,
        channels: usize,
    },
    Back {
        kept: usize,
        channels: usize,
    },
    Add {
        join: usize,
        sum: usize,
        channels: usize,
    },
    Take {
        sum: usize,
        channels: usize,
    },
    /// A branch that is played elsewhere begins.
    Hand {
        lent: usize,
    },
    /// What it made.
    Fetch {
        lent: usize,
        channels: usize,
    },
    /// What a branch made waits for its turn to be summed; `Take` brings it back.
    Put {
        buffer: usize,
        channels: usize,
    },
}

#[derive(Clone, Copy, Debug)]
pub(super) enum Target {
    Stage { element: usize, local: usize },
    Bypass { element: usize },
    Join { join: usize },
    Lent { lent: usize, param: usize },
}

/// Who plays a branch while the strip plays the others.
pub trait Elsewhere: Send {
    /// Takes the whole block as it comes to the branch: planar, of the strip's width.
    fn hand(&mut self, block: &[f32], frames: usize);
    /// Gives the first channels of what the branch made of it, as many as there is room for. Waits until it is made.
    fn fetch(&mut self, into: &mut [f32], frames: usize);
    /// As [`Stage::reset`].
    fn reset(&mut self);
    /// As [`Stage::set`], with numbers of the branch's own.
    fn set(&mut self, param: usize, value: f32) -> bool;
}

impl Strip {
    pub(super) fn empty(shape: Shape) -> Strip {
        Strip {
            shape,
            elements: Vec::new(),
            joins: Vec::new(),
            ops: Vec::new(),
            buffers: Vec::new(),
            lent: Vec::new(),
            readings: Vec::new(),
            notes: Vec::new(),
            params: Vec::new(),
            targets: Vec::new(),
            latency: Frames(0),
            tail: Frames(0),
        }
    }

    pub(super) fn add(&mut self, param: LiveParam, target: Target) {
        self.params.push(param);
        self.targets.push(target);
    }

    pub(super) fn take_params(&mut self) -> Vec<(LiveParam, Target)> {
        std::mem::take(&mut self.params)
            .into_iter()
            .zip(std::mem::take(&mut self.targets))
            .collect()
    }

    pub(super) fn targets(&self) -> &[Target] {
        &self.targets
    }

    pub(super) fn shape(&self) -> Shape {
        self.shape
    }

    pub(super) fn finish(&mut self, latency: u32) {
        self.latency = Frames(latency);
    }

    /// Channels that come in.
    pub fn inputs(&self) -> usize {
        self.shape.inputs
    }

    /// Channels that go out.
    pub fn outputs(&self) -> usize {
        self.shape.outputs
    }

    /// Channels of each block.
    pub fn width(&self) -> usize {
        self.shape.width
    }

    /// The live parameters; the place of one in this list is its number for [`Stage::set`].
    pub fn params(&self) -> &[LiveParam] {
        &self.params
    }

    /// The number of the parameter `stage.param`.
    pub fn param(&self, name: &str) -> Option<usize> {
        self.params.iter().position(|param| param.name == name)
    }

    /// What can be read while it sounds: clone it before the strip leaves for the quiet core.
    pub fn readings(&self) -> &[Readout] {
        &self.readings
    }

    /// What was done to files that one should know, such as resampling.
    pub fn notes(&self) -> &[String] {
        &self.notes
    }

    /// Each stage, those in branches included, in order.
    pub fn stages(&self) -> impl Iterator<Item = StripStage<'_>> {
        self.elements.iter().map(|element| StripStage {
            name: &element.name,
            kind: element.kind,
            latency: element.stage.latency(),
            multiply_adds: element.multiply_adds,
        })
    }

    /// How long it sounds on when its input has ended, as far as delays and impulse responses
    /// tell; filters and amps ring a little longer.
    pub fn tail(&self) -> Frames {
        self.tail
    }

    /// As [`Stage::process`]; tells `watch` where each stage begins and ends.
    ///
    /// # Real time
    /// As far as `watch` is, and whoever plays branches that were lent.
    pub fn process_watched(&mut self, block: &mut Block<'_>, watch: &mut impl FnMut(Edge)) {
        debug_assert_eq!(block.channels(), self.shape.width, "a block of another width");
        let frames = block.frames();
        let work = block.samples();
        clean(&mut work[..self.shape.inputs * frames]);
        for op in &self.ops {
            match *op {
                Op::Run(element) => {
                    watch(Edge::Begin(element));
                    self.elements[element].run(work, frames);
                    watch(Edge::End(element));
                }
                Op::Keep { kept, sum, channels } => {
                    let n = channels * frames;
                    self.buffers[kept][..n].copy_from_slice(&work[..n]);
                    self.buffers[sum].fill(0.0);
                }
                Op::Back { kept, channels } => {
                    let n = channels * frames;
                    work[..n].copy_from_slice(&self.buffers[kept][..n]);
                }
                Op::Add { join, sum, channels } => {
                    let n = channels * frames;
                    let join = &mut self.joins[join];
                    join.wait.run(work, frames);
                    let mut after = join.gain;
                    for channel in Block::new(&mut work[..n], channels).each() {
                        after = join.gain.scale(channel);
                    }
                    join.gain = after;
                    let sum = &mut self.buffers[sum][..n];
                    sum.iter_mut().zip(&work[..n]).for_each(|(s, x)| *s += x);
                }
                Op::Take { sum, channels } => {
                    let n = channels * frames;
                    work[..n].copy_from_slice(&self.buffers[sum][..n]);
                }
                Op::Hand { lent } => self.lent[lent].hand(work, frames),
                Op::Fetch { lent, channels } => {
                    self.lent[lent].fetch(&mut work[..channels * frames], frames);
                }
                Op::Put { buffer, channels } => {
                    let n = channels * frames;
                    self.buffers[buffer][..n].copy_from_slice(&work[..n]);
                }
            }
        }
    }
}

impl Stage for Strip {
    fn process(&mut self, block: &mut Block<'_>) {
        self.process_watched(block, &mut |_| {});
    }

    fn latency(&self) -> Frames {
        self.latency
    }

    fn reset(&mut self) {
        self.elements.iter_mut().for_each(Element::reset);
        for join in &mut self.joins {
            join.gain.jump();
            join.wait.reset();
        }
        self.lent.iter_mut().for_each(|branch| branch.reset());
    }

    fn set(&mut self, param: usize, value: f32) -> bool {
        let (Some(known), Some(target)) = (self.params.get_mut(param), self.targets.get(param))
        else {
            return false;
        };
        if !(known.low..=known.high).contains(&value) {
            return false;
        }
        let done = match *target {
            Target::Stage { element, local } => self.elements[element].stage.set(local, value),
            Target::Bypass { element } => match &mut self.elements[element].bypass {
                Some(bypass) => {
                    bypass.dry.go(if value >= 0.5 { 1.0 } else { 0.0 });
                    true
                }
                None => false,
            },
            Target::Join { join } => {
                self.joins[join].gain.go(factor(f64::from(value)));
                true
            }
            Target::Lent { lent, param } => self.lent[lent].set(param, value),
        };
        if done {
            known.value = value;
        }
        done
    }

    fn twin(&self) -> Option<Box<dyn Twin>> {
        let mut stages: Vec<Box<dyn Twin>> = Vec::new();
        let mut at = vec![None; self.elements.len()];
        for (nth, element) in self.elements.iter().enumerate() {
            if let Some(twin) = element.stage.twin() {
                at[nth] = Some(stages.len());
                stages.push(twin);
            }
        }
        let turns = self.targets.iter().map(|target| match *target {
            Target::Stage { element, local } => at[element].map(|stage| (stage, local)),
            _ => None,
        });
        let turns = turns.collect();
        (!stages.is_empty()).then(|| Box::new(StripTwin { stages, turns }) as Box<dyn Twin>)
    }
}

/// The twins of the stages that have one.
struct StripTwin {
    stages: Vec<Box<dyn Twin>>,
    /// By parameter of the strip: the stage, and its own number there.
    turns: Vec<Option<(usize, usize)>>,
}

impl Twin for StripTwin {
    fn set(&mut self, param: usize, value: f32) -> bool {
        match self.turns.get(param) {
            Some(Some((stage, local))) => self.stages[*stage].set(*local, value),
            Some(None) => true,
            None => false,
        }
    }
}

/// What is no number, or too small for one, comes in as silence: a filter would never forget it.
fn clean(samples: &mut [f32]) {
    for x in samples {
        let size = x.abs();
        let sound = (f32::MIN_POSITIVE..=f32::MAX).contains(&size);
        *x = if sound { *x } else { 0.0 };
    }
}

/// One stage in its place: its channels, and a way around it.
pub(super) struct Element {
    name: String,
    kind: &'static str,
    stage: Box<dyn Stage>,
    /// Its channels; where they are neighbours in order, nothing is copied.
    channels: Vec<usize>,
    neighbours: bool,
    gathered: Vec<f32>,
    bypass: Option<Bypass>,
    wait: Lanes,
    pub(super) multiply_adds: Option<f64>,
}

impl Element {
    #[allow(clippy::too_many_arguments, reason = "built in one place, where each has its name")]
    pub(super) fn new(
        name: String,
        kind: &'static str,
        stage: Box<dyn Stage>,
        channels: Vec<usize>,
        bypass: Option<Bypass>,
        wait: Lanes,
        block: Frames,
    ) -> Element {
        let neighbours = channels.windows(2).all(|pair| pair[1] == pair[0] + 1);
        let room = if neighbours { 0 } else { channels.len() * block.0 as usize };
        let gathered = vec![0.0; room];
        Element {
            name,
            kind,
            stage,
            channels,
            neighbours,
            gathered,
            bypass,
            wait,
            multiply_adds: None,
        }
    }

    fn run(&mut self, work: &mut [f32], frames: usize) {
        let count = self.channels.len();
        self.wait.run(work, frames);
        if self.neighbours {
            let first = self.channels.first().copied().unwrap_or(0);
            let mut block = Block::new(&mut work[first * frames..][..count * frames], count);
            play(&mut *self.stage, self.bypass.as_mut(), &mut block);
            return;
        }
        let gathered = &mut self.gathered[..count * frames];
        for (at, channel) in self.channels.iter().enumerate() {
            gathered[at * frames..][..frames].copy_from_slice(&work[channel * frames..][..frames]);
        }
        play(&mut *self.stage, self.bypass.as_mut(), &mut Block::new(gathered, count));
        for (at, channel) in self.channels.iter().enumerate() {
            work[channel * frames..][..frames].copy_from_slice(&gathered[at * frames..][..frames]);
        }
    }

    fn reset(&mut self) {
        self.stage.reset();
        self.wait.reset();
        if let Some(bypass) = &mut self.bypass {
            bypass.dry.jump();
            bypass.wait.reset();
        }
    }
}

/// A bypassed stage still works: its cost stays, and its history is true when it comes back.
fn play(stage: &mut dyn Stage, bypass: Option<&mut Bypass>, block: &mut Block<'_>) {
    let Some(bypass) = bypass else { return stage.process(block) };
    if bypass.dry.still() == Some(0.0) && bypass.wait.none() {
        return stage.process(block);
    }
    let (channels, frames) = (block.channels(), block.frames());
    let kept = &mut bypass.kept[..channels * frames];
    kept.copy_from_slice(block.samples());
    bypass.wait.run(kept, frames);
    stage.process(block);
    let mut after = bypass.dry;
    for (wet, dry) in block.each().zip(Block::new(kept, channels).each()) {
        after = bypass.dry;
        match after.still() {
            Some(0.0) => {}
            Some(_) => wet.copy_from_slice(dry),
            None => {
                for (wet, dry) in wet.iter_mut().zip(dry) {
                    let share = after.next() as f32;
                    *wet += share * (*dry - *wet);
                }
            }
        }
    }
    bypass.dry = after;
}

/// The way around a stage, as late as the stage itself.
pub(super) struct Bypass {
    dry: Ramp,
    wait: Lanes,
    kept: Vec<f32>,
}

impl Bypass {
    pub(super) fn new(on: bool, late: u32, setting: ProcessSpec) -> Bypass {
        Bypass {
            dry: Ramp::new(f64::from(u8::from(on)), setting.rate),
            wait: Lanes::new((0..setting.channels).collect(), late),
            kept: vec![0.0; setting.channels * setting.block.0 as usize],
        }
    }
}

/// A branch where it is summed.
pub(super) struct Join {
    gain: Ramp,
    pub(super) wait: Lanes,
}

impl Join {
    pub(super) fn new(decibels: f64, setting: ProcessSpec) -> Join {
        let gain = Ramp::new(factor(decibels), setting.rate);
        Join { gain, wait: Lanes::new(Vec::new(), 0) }
    }
}

/// Some channels that wait for others, a whole number of frames.
pub(super) struct Lanes {
    channels: Vec<usize>,
    late: usize,
    rings: Vec<f32>,
    at: usize,
}

impl Lanes {
    pub(super) fn new(channels: Vec<usize>, late: u32) -> Lanes {
        let late = late as usize;
        Lanes { rings: vec![0.0; channels.len() * late], channels, late, at: 0 }
    }

    fn none(&self) -> bool {
        self.rings.is_empty()
    }

    fn run(&mut self, work: &mut [f32], frames: usize) {
        if self.none() {
            return;
        }
        let mut at = self.at;
        for (channel, ring) in self.channels.iter().zip(self.rings.chunks_exact_mut(self.late)) {
            at = self.at;
            for x in &mut work[channel * frames..][..frames] {
                std::mem::swap(x, &mut ring[at]);
                at += 1;
                if at == self.late {
                    at = 0;
                }
            }
        }
        self.at = at;
    }

    fn reset(&mut self) {
        self.rings.fill(0.0);
        self.at = 0;
    }
}
