//! What both faces share: a strip between two levels, in a player, and the way in to it from outside.

use crate::wish::{PluginState, level};
use quiet_dsp::{Block, Stage, simd::Denormals, strip::Strip};
use quiet_engine::{
    Error, ErrorKind, Fade, Player, ProcessSpec, ReadyStrip, Remote, Result, Told, player,
};
use quiet_rt::Process as _;
use quiet_types::Frames;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// A strip of any shape in the channels of the plugin.
struct Framed {
    strip: Strip,
    /// Channels that the strip takes, gives, and needs room for.
    shape: [usize; 3],
    /// One block of the strip's channels.
    work: Vec<f32>,
}

impl Stage for Framed {
    fn process(&mut self, block: &mut Block<'_>) {
        let (channels, count) = (block.channels(), block.frames());
        let [inputs, outputs, width] = self.shape;
        if count == 0 || self.shape == [channels; 3] {
            return self.strip.process(block);
        }
        let work = &mut self.work[..width * count];
        work.fill(0.0);
        for (n, to) in work.chunks_exact_mut(count).take(inputs.min(channels)).enumerate() {
            to.copy_from_slice(block.channel(n));
        }
        self.strip.process(&mut Block::new(work, width));
        for n in 0..channels {
            // One channel alone is heard on both sides.
            let made = &work[n.min(outputs - 1) * count..][..count];
            block.channel(n).copy_from_slice(made);
        }
    }

    fn latency(&self) -> Frames {
        self.strip.latency()
    }

    fn reset(&mut self) {
        self.strip.reset();
    }

    fn set(&mut self, param: usize, value: f32) -> bool {
        self.strip.set(param, value)
    }
}

fn framed(strip: Strip, block: Frames) -> ReadyStrip {
    let shape = [strip.inputs(), strip.outputs(), strip.width()];
    Box::new(Framed { strip, shape, work: vec![0.0; shape[2] * block.0 as usize] })
}

/// What the audio thread plays.
pub(crate) struct Heart {
    player: Player,
    told: Told,
    /// Level before and behind, and their values.
    levels: [(Strip, f32); 2],
    channels: usize,
    /// Longest block, frames.
    block: usize,
    /// One block of all channels.
    work: Vec<f32>,
    /// Blocks in a row that had samples which are no numbers.
    broken: u32,
}

/// The way to a [`Heart`] from outside of the audio thread.
pub(crate) struct Way {
    remote: Remote,
    setting: ProcessSpec,
}

/// A heart that plays `strip` in the channels of `setting`, between two levels in dB.
pub(crate) fn heart(strip: Strip, setting: ProcessSpec, both: [f32; 2]) -> Result<(Heart, Way)> {
    let ProcessSpec { rate, channels, block } = setting;
    let levels = [(level(both[0], setting)?, both[0]), (level(both[1], setting)?, both[1])];
    let (player, remote, told) = player(framed(strip, block), channels, block, rate);
    let frames = block.0 as usize;
    let work = vec![0.0; channels * frames];
    let heart = Heart { player, told, levels, channels, block: frames, work, broken: 0 };
    Ok((heart, Way { remote, setting }))
}

impl Way {
    /// What the state names, for the place of what sounds.
    pub(crate) fn build(&mut self, state: &PluginState) -> Result<Strip> {
        self.remote.collect();
        while self.remote.hear().is_some() {}
        let ProcessSpec { rate, channels, block } = self.setting;
        // A fault of ours in what others wrote shall not end the host.
        catch_unwind(AssertUnwindSafe(|| state.strip(rate, block, channels))).unwrap_or_else(|_| {
            let why = "a fault of the plugin's own while it read the file: please report it with the file";
            Err(Error::of(ErrorKind::Fault, why.to_owned()))
        })
    }

    /// Crossfades to `strip`; where several come during a fade, the newest follows it.
    pub(crate) fn swap(&mut self, strip: Strip) -> Result<()> {
        let ready = framed(strip, self.setting.block);
        self.remote.replace(ready, Fade::Cross).map(drop).map_err(|_| {
            let why = "too many changes wait to be heard: wait a little, or let the host play";
            Error::of(ErrorKind::Asked, why.to_owned())
        })
    }
}

/// All of it may be called in real time.
impl Heart {
    /// Moves the levels, dB; one that is out of range stays.
    pub(crate) fn level(&mut self, wanted: [f32; 2]) {
        for ((level, now), wanted) in self.levels.iter_mut().zip(wanted) {
            if wanted.to_bits() != now.to_bits() && level.set(0, wanted) {
                *now = wanted;
            }
        }
    }

    /// Puts the levels where they are to be, dB, without a ramp: for before the first sample.
    pub(crate) fn begin(&mut self, wanted: [f32; 2]) {
        self.level(wanted);
        self.levels.iter_mut().for_each(|(level, _)| level.reset());
    }

    /// Longest block, frames.
    pub(crate) const fn block(&self) -> usize {
        self.block
    }

    /// The samples of `count` frames, channel after channel: to be written before [`Heart::play`] and read after it.
    pub(crate) fn room(&mut self, count: usize) -> &mut [f32] {
        &mut self.work[..self.channels * count]
    }

    /// Plays the first `count` frames of the room.
    pub(crate) fn play(&mut self, count: usize) {
        let channels = self.channels;
        let work = &mut self.work[..channels * count];
        {
            let _flushed = Denormals::flush();
            let [(before, _), (behind, _)] = &mut self.levels;
            before.process(&mut Block::new(work, channels));
            self.player.process(work, count, &mut self.told);
            behind.process(&mut Block::new(work, channels));
        }
        if work.iter().all(|x| x.is_finite()) {
            self.broken = 0;
        } else {
            work.fill(0.0);
            self.broken += 1;
            let _ = self.player.cure(self.broken);
        }
    }
}
