//! From description to sound: the part that may load, allocate and fail.

use super::{
    Description, FileSource, Readout, Strip,
    description::{Branch, Item, What},
    key::{self, Fault, Room, ValueUnit},
    sounding::{Bypass, Element, Join, Lanes, Op, Shape, Target},
};
use crate::{ProcessSpec, stage::mix::MOST_CHANNELS};
use quiet_types::{FileError, Frames, SampleRate};

impl Description {
    /// What becomes of `inputs` channels.
    ///
    /// # Errors
    /// A strip made for another number; a stage that cannot take what comes to it.
    pub fn shape(&self, inputs: usize) -> Result<Shape, FileError> {
        if let Some((wanted, span)) = self.channels.clone().filter(|(wanted, _)| *wanted != inputs)
        {
            let title = format!("the strip takes {wanted} channels, and {inputs} come in");
            let help = "leave `channels` out for a strip that takes what comes, or choose \
                        channels of the input";
            return Err(self.source.wrong(span, &title, "here", help));
        }
        if inputs == 0 || inputs > MOST_CHANNELS {
            let title = format!("{inputs} channels come in; a strip takes 1 to {MOST_CHANNELS}");
            return Err(self.source.wrong(0..0, &title, "this strip", "choose channels"));
        }
        let mut width = inputs;
        let outputs = self.walk(&self.items, inputs, &mut width)?;
        Ok(Shape { inputs, outputs, width })
    }

    fn walk(&self, items: &[Item], mut now: usize, width: &mut usize) -> Result<usize, FileError> {
        for item in items {
            match &item.what {
                What::Stage(kind, given) => {
                    let taken = self.taken(item, now)?;
                    let out = (kind.shape)(given, taken)
                        .map_err(|fault| item.fault(&self.source, &fault))?;
                    if out != taken && (item.on.is_some() || item.bypass) {
                        let help = "leave `on` and `bypass` out";
                        let title = "a stage that changes the number of channels takes them all";
                        return Err(item.fault(&self.source, &Fault::new(title, help)));
                    }
                    if out != taken {
                        now = out;
                    }
                }
                What::Split(branches) => {
                    let mut outs = Vec::new();
                    for branch in branches {
                        outs.push(self.walk(&branch.items, now, width)?);
                    }
                    let first = outs.first().copied().unwrap_or(now);
                    if let Some(at) = outs.iter().position(|out| *out != first) {
                        let title = format!(
                            "branches of `{}` end with {first} and with {} channels",
                            item.name, outs[at]
                        );
                        let help = "they are summed: give the other one a `mix`, too";
                        let span = branches[at].span.clone();
                        return Err(self.source.wrong(span, &title, "this branch", help));
                    }
                    now = first;
                }
            }
            *width = (*width).max(now);
        }
        Ok(now)
    }

    /// How many channels a stage takes.
    fn taken(&self, item: &Item, now: usize) -> Result<usize, FileError> {
        let Some((on, _)) = &item.on else { return Ok(now) };
        match on.iter().find(|channel| **channel >= now) {
            None => Ok(on.len()),
            Some(channel) => {
                let title = format!("there is no channel {channel}: {now} come here");
                let fault = Fault::at("on", title, "channels count from 0");
                Err(item.fault(&self.source, &fault))
            }
        }
    }

    /// Builds the strip for `inputs` channels at `rate`, for blocks of at most `block` frames.
    ///
    /// # Errors
    /// What [`Description::shape`] says; a file that `loader` cannot bring, or that holds
    /// nothing that can be played at this rate.
    /// # Real time
    /// No: loads, allocates, warms up.
    pub fn prepare(
        &self,
        inputs: usize,
        rate: SampleRate,
        block: Frames,
        loader: &mut dyn FileSource,
    ) -> Result<Strip, FileError> {
        let shape = self.shape(inputs)?;
        let setting = ProcessSpec { rate, channels: shape.width, block };
        let mut maker = Maker { description: self, setting, loader, strip: Strip::empty(shape) };
        let (_, latency) = maker.items(&self.items, inputs, 0)?;
        let mut strip = maker.strip;
        strip.finish(latency);
        Ok(strip)
    }
}

struct Maker<'a> {
    description: &'a Description,
    setting: ProcessSpec,
    loader: &'a mut dyn FileSource,
    strip: Strip,
}

impl Maker<'_> {
    /// Adds stages; gives back how many channels there are then, and how late they are.
    fn items(
        &mut self,
        items: &[Item],
        mut now: usize,
        mut latency: u32,
    ) -> Result<(usize, u32), FileError> {
        for item in items {
            match &item.what {
                What::Stage(..) => {
                    let (out, late) = self.stage(item, now)?;
                    now = out;
                    latency += late;
                }
                What::Split(branches) => {
                    let (out, late) = self.split(branches, now)?;
                    now = out;
                    latency += late;
                }
            }
        }
        Ok((now, latency))
    }

    fn stage(&mut self, item: &Item, now: usize) -> Result<(usize, u32), FileError> {
        let What::Stage(kind, given) = &item.what else { return Ok((now, 0)) };
        let source = &self.description.source;
        let taken = self.description.taken(item, now)?;
        let fault = |fault: Fault| item.fault(source, &fault);
        let out = (kind.shape)(given, taken).map_err(fault)?;
        let channels = taken.max(out);
        let setting = ProcessSpec { channels, ..self.setting };
        let mut room = Room { setting, inputs: taken, loader: &mut *self.loader };
        let built = (kind.build)(given, &mut room).map_err(fault)?;
        let late = built.stage.latency().0;
        let element = self.strip.elements.len();
        for (local, mut param) in key::params(&item.name, kind, given).into_iter().enumerate() {
            if let Some((_, most)) = built.most.filter(|(of, _)| *of == local) {
                param.high = param.high.min(most);
            }
            self.strip.add(param, Target::Stage { element, local });
        }
        let bypass = (out == taken).then(|| Bypass::new(item.bypass, late, setting));
        if bypass.is_some() {
            let name = format!("{}.bypass", item.name);
            let value = f32::from(u8::from(item.bypass));
            let param =
                key::LiveParam { name, unit: ValueUnit::Switch, low: 0.0, high: 1.0, value };
            self.strip.add(param, Target::Bypass { element });
        }
        for (name, unit, cell) in built.readings {
            let name = format!("{}.{name}", item.name);
            self.strip.readings.push(Readout { name, unit, cell });
        }
        for note in built.notes {
            self.strip.notes.push(format!("{}: {note}", item.name));
        }
        // A stage on some channels alone delays these against the others: the others wait, too.
        let on = item.on.as_ref().map(|(on, _)| on.clone());
        let waiting: Vec<usize> = match &on {
            Some(on) if late > 0 => (0..now).filter(|channel| !on.contains(channel)).collect(),
            _ => Vec::new(),
        };
        let wait = Lanes::new(waiting, late);
        self.strip.tail.0 = self.strip.tail.0.saturating_add(built.tail);
        let mut made = Element::new(
            item.name.clone(),
            kind.name,
            built.stage,
            on.unwrap_or_else(|| (0..channels).collect()),
            bypass,
            wait,
            self.setting.block,
        );
        made.multiply_adds = built.multiply_adds;
        self.strip.elements.push(made);
        self.strip.ops.push(Op::Run(element));
        Ok((if item.on.is_some() { now } else { out }, late))
    }

    fn split(&mut self, branches: &[Branch], now: usize) -> Result<(usize, u32), FileError> {
        let block = self.setting.block.0 as usize;
        let kept = self.strip.buffers.len();
        self.strip.buffers.push(vec![0.0; self.setting.channels * block]);
        let sum = self.strip.buffers.len();
        self.strip.buffers.push(vec![0.0; self.setting.channels * block]);
        self.strip.ops.push(Op::Keep { kept, sum, channels: now });
        let (mut outs, mut joins) = (now, Vec::new());
        for branch in branches {
            self.strip.ops.push(Op::Back { kept, channels: now });
            let (out, late) = self.items(&branch.items, now, 0)?;
            outs = out;
            let join = self.strip.joins.len();
            self.strip.joins.push(Join::new(branch.gain, self.setting));
            let param = key::LiveParam {
                name: format!("{}.gain", branch.name),
                unit: ValueUnit::Decibel,
                low: -120.0,
                high: 60.0,
                value: branch.gain as f32,
            };
            self.strip.add(param, Target::Join { join });
            self.strip.ops.push(Op::Add { join, sum, channels: out });
            joins.push((join, late));
        }
        let latest = joins.iter().map(|(_, late)| *late).max().unwrap_or(0);
        for (join, late) in joins {
            self.strip.joins[join].wait = Lanes::new((0..outs).collect(), latest - late);
        }
        self.strip.ops.push(Op::Take { sum, channels: outs });
        Ok((outs, latest))
    }
}
