//! A strip cut in two, for two CPUs: what the front makes of a block is what the back takes.

use super::{
    LiveParam, Strip,
    fork::Counts,
    sounding::{Op, Target},
};

/// A place between two stages at which a strip can be cut: not within branches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seam {
    op: usize,
    /// Stages before it, those in branches counted.
    pub stages: usize,
}

/// Which half of a strip.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Half {
    /// What comes first.
    Front,
    /// What comes after it.
    Back,
}

/// Both halves of a strip: one after the other they make the same bits as the whole one.
pub struct Halves {
    /// What comes first.
    pub front: Strip,
    /// What takes the whole block that the front made.
    pub back: Strip,
    /// Where each parameter of the whole strip is now: in which half, and its number there.
    pub params: Vec<(LiveParam, Half, usize)>,
}

impl std::fmt::Debug for Halves {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Halves").finish_non_exhaustive()
    }
}

impl Strip {
    /// Where it can be cut. Nowhere where branches are lent.
    pub fn seams(&self) -> Vec<Seam> {
        let (mut seams, mut depth, mut stages) = (Vec::new(), 0, 0);
        if !self.lent.is_empty() {
            return seams;
        }
        for (at, op) in self.ops.iter().enumerate() {
            match op {
                Op::Run(_) => stages += 1,
                Op::Keep { .. } => depth += 1,
                Op::Take { .. } => depth -= 1,
                _ => {}
            }
            if depth == 0 && at + 1 < self.ops.len() {
                seams.push(Seam { op: at + 1, stages });
            }
        }
        seams
    }

    /// Cuts it at one of its seams.
    ///
    /// # Real time
    /// No: allocates.
    pub fn cut(self, seam: Seam) -> Halves {
        let mut front = self;
        let mut shape = front.shape();
        // What lies between the halves is the front's own making: the back takes it as it is, to the bit.
        shape.inputs = 0;
        let mut back = Strip::empty(shape);
        back.ops = front.ops.split_off(seam.op);
        let mut cut = Counts { elements: seam.stages, ..Counts::default() };
        for op in &front.ops {
            match *op {
                Op::Add { join, .. } => cut.joins = cut.joins.max(join + 1),
                Op::Keep { sum, .. } => cut.buffers = cut.buffers.max(sum + 1),
                _ => {}
            }
        }
        back.elements = front.elements.split_off(cut.elements);
        back.joins = front.joins.split_off(cut.joins);
        back.buffers = front.buffers.split_off(cut.buffers);
        back.ops.iter_mut().for_each(|op| op.shift(cut, cut));
        let mut params = Vec::new();
        for (param, mut target) in front.take_params() {
            let half = match target {
                Target::Stage { element, .. } | Target::Bypass { element }
                    if element >= cut.elements =>
                {
                    Half::Back
                }
                Target::Join { join } if join >= cut.joins => Half::Back,
                _ => Half::Front,
            };
            target.shift(cut, cut);
            let into = if half == Half::Front { &mut front } else { &mut back };
            params.push((param.clone(), half, into.params().len()));
            into.add(param, target);
        }
        Halves { front, back, params }
    }
}
