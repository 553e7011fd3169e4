//! What is handed to a stage in one call.

/// Samples of all channels for a few frames, to be changed in place.
///
/// # Shape
/// Planar: channel after channel, each `frames` long.
/// # Units
/// Full scale is 1.0.
pub struct Block<'a> {
    samples: &'a mut [f32],
    channels: usize,
    /// Divided once, not by each who asks.
    frames: usize,
}

impl<'a> Block<'a> {
    /// A view of `samples`, which hold `channels` channels one after the other.
    ///
    /// # Panics
    /// If the samples cannot be shared out evenly: a fault of the caller.
    pub fn new(samples: &'a mut [f32], channels: usize) -> Block<'a> {
        assert!(channels > 0 && samples.len().is_multiple_of(channels), "uneven channels");
        let frames = samples.len() / channels;
        Block { samples, channels, frames }
    }

    /// How many channels there are.
    pub fn channels(&self) -> usize {
        self.channels
    }

    /// How many frames there are.
    pub fn frames(&self) -> usize {
        self.frames
    }

    /// One channel.
    ///
    /// # Panics
    /// If there is no such channel: a fault of the caller.
    pub fn channel(&mut self, channel: usize) -> &mut [f32] {
        let frames = self.frames;
        &mut self.samples[channel * frames..][..frames]
    }

    /// Channel after channel.
    pub fn each(&mut self) -> impl Iterator<Item = &mut [f32]> {
        let frames = self.frames().max(1);
        self.samples.chunks_exact_mut(frames)
    }

    /// All samples, channel after channel.
    pub fn samples(&mut self) -> &mut [f32] {
        self.samples
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn channels_are_planar() {
        let mut samples = [1.0, 2.0, 3.0, 10.0, 20.0, 30.0];
        let mut block = Block::new(&mut samples, 2);
        assert_eq!(block.frames(), 3);
        assert_eq!(block.channel(1), [10.0, 20.0, 30.0]);
        assert_eq!(block.each().map(|c| c[0]).collect::<Vec<_>>(), [1.0, 10.0]);
        assert_eq!(Block::new(&mut [], 2).each().count(), 0);
    }
}
