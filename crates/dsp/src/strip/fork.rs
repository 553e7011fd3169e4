//! Branches of a strip that are played elsewhere, at the same time: the whole waits for them where it sums, so nothing is later.

use super::{
    Strip,
    sounding::{Elsewhere, Op, Target},
};
use std::ops::Range;

/// A split of a strip, by its branches.
#[derive(Clone, Debug)]
pub struct Fork {
    /// In their order.
    pub branches: Vec<ForkBranch>,
    /// Where the split begins.
    keep: usize,
}

/// A branch of a split.
#[derive(Clone, Debug)]
pub struct ForkBranch {
    /// Its name.
    pub name: String,
    /// Its stages, as [`Strip::stages`] counts them.
    pub stages: Range<usize>,
    /// What is done to the block, between its beginning and its sum.
    ops: Range<usize>,
}

/// What operations name by number.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Counts {
    pub elements: usize,
    pub joins: usize,
    pub buffers: usize,
}

impl Op {
    /// The same where what stands before `from` stays, and of what follows `less` are gone.
    pub(super) fn shift(&mut self, from: Counts, less: Counts) {
        let buffer = |at: &mut usize| shifted(at, from.buffers, less.buffers);
        match self {
            Op::Run(element) => shifted(element, from.elements, less.elements),
            Op::Keep { kept, sum, .. } => {
                buffer(kept);
                buffer(sum);
            }
            Op::Back { kept, .. } => buffer(kept),
            Op::Add { join, sum, .. } => {
                shifted(join, from.joins, less.joins);
                buffer(sum);
            }
            Op::Take { sum, .. } => buffer(sum),
            Op::Put { buffer: put, .. } => buffer(put),
            Op::Hand { .. } | Op::Fetch { .. } => {}
        }
    }
}

impl Target {
    /// As [`Op::shift`].
    pub(super) fn shift(&mut self, from: Counts, less: Counts) {
        match self {
            Target::Stage { element, .. } | Target::Bypass { element } => {
                shifted(element, from.elements, less.elements);
            }
            Target::Join { join } => shifted(join, from.joins, less.joins),
            Target::Lent { .. } => {}
        }
    }
}

fn shifted(at: &mut usize, from: usize, less: usize) {
    if *at >= from {
        *at -= less;
    }
}

/// What a piece of a strip has for itself: a run of each, since a strip is made from front to back.
struct Own {
    from: Counts,
    until: Counts,
}

impl Own {
    fn of(ops: &[Op]) -> Own {
        let none = Counts { elements: usize::MAX, joins: usize::MAX, buffers: usize::MAX };
        let mut own = Own { from: none, until: Counts::default() };
        let take = |from: &mut usize, until: &mut usize, at: usize| {
            *from = (*from).min(at);
            *until = (*until).max(at + 1);
        };
        for op in ops {
            let (from, until) = (&mut own.from, &mut own.until);
            match *op {
                Op::Run(element) => take(&mut from.elements, &mut until.elements, element),
                Op::Keep { kept, sum, .. } => {
                    take(&mut from.buffers, &mut until.buffers, kept);
                    take(&mut from.buffers, &mut until.buffers, sum);
                }
                Op::Add { join, .. } => take(&mut from.joins, &mut until.joins, join),
                _ => {}
            }
        }
        own.from.elements = own.from.elements.min(own.until.elements);
        own.from.joins = own.from.joins.min(own.until.joins);
        own.from.buffers = own.from.buffers.min(own.until.buffers);
        own
    }

    fn less(&self) -> Counts {
        Counts {
            elements: self.until.elements - self.from.elements,
            joins: self.until.joins - self.from.joins,
            buffers: self.until.buffers - self.from.buffers,
        }
    }

    fn has(&self, target: &Target) -> bool {
        match *target {
            Target::Stage { element, .. } | Target::Bypass { element } => {
                (self.from.elements..self.until.elements).contains(&element)
            }
            Target::Join { join } => (self.from.joins..self.until.joins).contains(&join),
            Target::Lent { .. } => false,
        }
    }
}

/// A branch on its way to the new list of operations.
struct Piece {
    back: Op,
    ops: Vec<Op>,
    add: Op,
    /// Its number among those that are lent.
    lent: Option<usize>,
}

impl Strip {
    /// Its splits that lie in no other one. None where branches are lent already.
    pub fn forks(&self) -> Vec<Fork> {
        let (mut forks, mut depth, mut begun): (Vec<Fork>, _, _) = (Vec::new(), 0usize, 0);
        if !self.lent.is_empty() {
            return forks;
        }
        for (at, op) in self.ops.iter().enumerate() {
            match *op {
                Op::Keep { .. } => {
                    depth += 1;
                    if depth == 1 {
                        forks.push(Fork { branches: Vec::new(), keep: at });
                    }
                }
                Op::Back { .. } if depth == 1 => begun = at + 1,
                Op::Add { join, .. } if depth == 1 => {
                    let own = Own::of(&self.ops[begun..at]);
                    let branch = ForkBranch {
                        name: self.name_of(join),
                        stages: own.from.elements..own.until.elements,
                        ops: begun..at,
                    };
                    if let Some(fork) = forks.last_mut() {
                        fork.branches.push(branch);
                    }
                }
                Op::Take { .. } => depth -= 1,
                _ => {}
            }
        }
        forks.retain(|fork| fork.branches.len() > 1);
        forks
    }

    /// A branch's name is that of its gain.
    fn name_of(&self, join: usize) -> String {
        let is = |target: &Target| matches!(target, Target::Join { join: of } if *of == join);
        let param = self.targets().iter().position(is).map(|at| &self.params()[at].name);
        param.and_then(|name| name.strip_suffix(".gain")).unwrap_or_default().to_owned()
    }

    /// Has the branches of `fork` whose numbers are in `lent` played by what `to` makes of them. The bits stay: branches are summed
    /// in their order.
    ///
    /// # Errors
    /// What `to` says.
    /// # Real time
    /// No: allocates.
    pub fn lend<E>(
        mut self,
        fork: &Fork,
        lent: &[usize],
        mut to: impl FnMut(Strip) -> Result<Box<dyn Elsewhere>, E>,
    ) -> Result<Strip, E> {
        let Some(end) = fork.branches.last().map(|branch| branch.ops.end + 1) else {
            return Ok(self);
        };
        let mut after = self.ops.split_off(end);
        let mut pieces: Vec<Piece> = (fork.branches.iter().enumerate())
            .map(|(nth, branch)| Piece {
                back: self.ops[branch.ops.start - 1],
                ops: self.ops[branch.ops.clone()].to_vec(),
                add: self.ops[branch.ops.end],
                lent: lent.iter().position(|one| *one == nth),
            })
            .collect();
        self.ops.truncate(fork.keep + 1);
        let mut gone: Vec<Strip> = Vec::new();
        // From the last one on: what stands before it keeps its numbers.
        for nth in (0..pieces.len()).rev() {
            if let Some(number) = pieces[nth].lent {
                let ops = std::mem::take(&mut pieces[nth].ops);
                let own = Own::of(&ops);
                gone.push(self.take_out(ops, &own, number));
                let others = pieces.iter_mut().flat_map(|piece| {
                    piece.ops.iter_mut().chain([&mut piece.back, &mut piece.add])
                });
                for op in self.ops.iter_mut().chain(&mut after).chain(others) {
                    op.shift(own.until, own.less());
                }
            }
        }
        for nth in 0..lent.len() {
            self.ops.push(Op::Hand { lent: nth });
        }
        self.put_in(pieces);
        self.ops.append(&mut after);
        // In the order of their numbers, whichever was taken out first.
        let mut order: Vec<usize> = (0..lent.len()).collect();
        order.sort_by_key(|nth| std::cmp::Reverse(lent[*nth]));
        let mut made: Vec<_> = order.into_iter().zip(gone).collect();
        made.sort_by_key(|(nth, _)| *nth);
        for (_, branch) in made {
            self.lent.push(to(branch)?);
        }
        Ok(self)
    }

    /// Takes a branch's own out, as a strip by itself.
    fn take_out(&mut self, mut ops: Vec<Op>, own: &Own, number: usize) -> Strip {
        // What comes to a branch is the strip's own making: it is taken as it is, to the bit.
        let mut shape = self.shape();
        shape.inputs = 0;
        let mut branch = Strip::empty(shape);
        let (from, until) = (own.from, own.until);
        branch.elements = self.elements.drain(from.elements..until.elements).collect();
        branch.joins = self.joins.drain(from.joins..until.joins).collect();
        branch.buffers = self.buffers.drain(from.buffers..until.buffers).collect();
        ops.iter_mut().for_each(|op| op.shift(from, from));
        branch.ops = ops;
        for (param, mut target) in self.take_params() {
            if own.has(&target) {
                target.shift(from, from);
                let lent = Target::Lent { lent: number, param: branch.params().len() };
                branch.add(param.clone(), target);
                self.add(param, lent);
            } else {
                target.shift(until, own.less());
                self.add(param, target);
            }
        }
        branch
    }

    /// First what is played here, then the sums in their order: nobody is waited for while there is work.
    fn put_in(&mut self, pieces: Vec<Piece>) {
        let mut sums = Vec::new();
        let mut waits = false;
        for piece in pieces {
            let Op::Add { channels, .. } = piece.add else { continue };
            match piece.lent {
                Some(lent) => {
                    waits = true;
                    sums.extend([Op::Fetch { lent, channels }, piece.add]);
                }
                None => {
                    self.ops.push(piece.back);
                    self.ops.extend(piece.ops);
                    if waits {
                        let buffer = self.buffers.len();
                        let room = self.buffers.first().map_or(0, Vec::len);
                        self.buffers.push(vec![0.0; room]);
                        self.ops.push(Op::Put { buffer, channels });
                        sums.extend([Op::Take { sum: buffer, channels }, piece.add]);
                    } else {
                        self.ops.push(piece.add);
                    }
                }
            }
        }
        self.ops.append(&mut sums);
    }
}
