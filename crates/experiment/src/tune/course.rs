//! The course of a tune: pilot, design, screening, confirmation, comparison. It asks a bench for blocks and knows no machine, so that
//! simulated machines go through the same course as real ones.

use quiet_judge::tune::{
    STATED, by_effect, candidates, fewest_pairs, judge_confirmation, judge_screening,
    judge_smallest, pilot_noise, schedule, screening_resolves,
};
use quiet_types::{
    Nanos, lot,
    tune::{
        BlockPart, Enough, Factor, Smallest, StepSays, TuneBlock, TuneDesign, TuneResponse,
        TunedStep,
    },
};

/// Pairs of the pilot.
const PILOT: u32 = 4;
/// Shares of the time for the screening and for the confirmation; the comparison has the rest.
const SCREENING: f64 = 0.6;
const CONFIRMATION: f64 = 0.5;
/// Pairs of a screening with more steps nothing.
const MOST_PAIRS: usize = 4000;
/// Pairs for one step that is left out, and for one set that is compared: 6 can show something, 8 can among six steps.
const FEWEST: u32 = 8;
const MOST: u32 = 24;
/// A reference block so often, in pairs.
const REFERENCES: u32 = 8;

/// What a course is to be of.
#[derive(Clone, Debug)]
pub(crate) struct Course {
    pub seed: u32,
    /// For all of it.
    pub budget: Nanos,
    pub factors: Vec<Factor>,
    /// Ids and titles of the figures.
    pub responses: Vec<TuneResponse>,
    pub margin: f64,
    /// Flips of signs by which the screening is judged.
    pub flips: usize,
}

/// Where blocks are measured.
pub(crate) trait Bench {
    /// What stands in the way of a block.
    type Error;

    /// One block with these steps in force; `None` where it was interrupted.
    fn block(
        &mut self,
        part: BlockPart,
        pair: u32,
        on: &[&str],
    ) -> Result<Option<TuneBlock>, Self::Error>;

    /// Time since the beginning.
    fn now(&self) -> Nanos;

    /// What comes next: in words, and how long all of it takes from the beginning.
    fn doing(&self, what: &str, whole: Nanos);

    /// The design is made: it is stated before the first pair is measured.
    fn stated(&self, design: &TuneDesign, factors: &[Factor]);
}

/// How far it came.
#[derive(Debug)]
pub(crate) struct Ran {
    pub design: TuneDesign,
    pub blocks: Vec<TuneBlock>,
    pub steps: Vec<TunedStep>,
    pub smallest: Option<Smallest>,
    pub interrupted: bool,
}

/// Why the course ends.
enum End<E> {
    Interrupted,
    Failed(E),
}

impl<E> From<E> for End<E> {
    fn from(error: E) -> End<E> {
        End::Failed(error)
    }
}

/// A course that is being run.
struct Running<'a, B: Bench> {
    course: &'a Course,
    bench: &'a mut B,
    design: TuneDesign,
    blocks: Vec<TuneBlock>,
    /// How many blocks there have been in the screening's time, for the pace.
    pace: Nanos,
}

impl Course {
    fn names(&self) -> Vec<&str> {
        self.factors.iter().map(|factor| factor.name.as_str()).collect()
    }

    /// All of it; ended early, it tells what there is.
    pub fn run<B: Bench>(&self, bench: &mut B) -> Result<Ran, B::Error> {
        let design = TuneDesign {
            seed: self.seed,
            budget: self.budget,
            responses: self.responses.clone(),
            family: STATED,
            margin: self.margin,
            ..TuneDesign::default()
        };
        let (course, blocks, pace) = (self, Vec::new(), Nanos::ZERO);
        let mut running = Running { course, bench, design, blocks, pace };
        let (mut steps, mut smallest) = (Vec::new(), None);
        let ended = running.all(&mut steps, &mut smallest);
        let Running { design, blocks, .. } = running;
        let interrupted = match ended {
            Ok(()) => false,
            Err(End::Interrupted) => true,
            Err(End::Failed(error)) => return Err(error),
        };
        if interrupted && steps.is_empty() {
            // Whoever ends a screening early has seen nothing of it: the pairs that are there are judged once.
            steps =
                judge_screening(&blocks, &self.factors, &design.responses, self.seed, self.flips);
            by_effect(&mut steps);
        }
        mark_kept(&mut steps, smallest.as_ref());
        Ok(Ran { design, blocks, steps, smallest, interrupted })
    }
}

/// Says which steps are in the smallest set; without one, those that help.
fn mark_kept(steps: &mut [TunedStep], smallest: Option<&Smallest>) {
    for step in steps {
        step.kept = match smallest {
            Some(smallest) => smallest.steps.contains(&step.factor.name),
            None => step.says == StepSays::Helps,
        };
    }
}

impl<B: Bench> Running<'_, B> {
    fn all(
        &mut self,
        steps: &mut Vec<TunedStep>,
        smallest: &mut Option<Smallest>,
    ) -> Result<(), End<B::Error>> {
        self.pilot()?;
        self.screening()?;
        let course = self.course;
        *steps = judge_screening(
            &self.blocks,
            &course.factors,
            &self.design.responses,
            course.seed,
            course.flips,
        );
        by_effect(steps);
        let confirmed = self.confirmation(steps);
        judge_confirmation(&self.blocks, steps);
        confirmed?;
        *smallest = self.comparison(steps)?;
        Ok(())
    }

    /// A block, kept.
    fn block(&mut self, part: BlockPart, pair: u32, on: &[&str]) -> Result<(), End<B::Error>> {
        let block = self.bench.block(part, pair, on)?.ok_or(End::Interrupted)?;
        self.blocks.push(block);
        Ok(())
    }

    /// Two blocks, the first by a coin.
    fn pair(
        &mut self,
        part: BlockPart,
        pair: u32,
        a: &[&str],
        b: &[&str],
    ) -> Result<(), End<B::Error>> {
        let salt = self.course.seed ^ (part as u32 + 1).wrapping_mul(0x9e37_79b9);
        let (a, b) = match (lot::Lot { seed: salt, pairs: u32::MAX }).shared_first(pair) {
            true => (a, b),
            false => (b, a),
        };
        self.block(part, pair, a)?;
        self.block(part, pair, b)
    }

    /// Pairs of twice the same: what a block takes, and how much two that do not differ differ.
    fn pilot(&mut self) -> Result<(), End<B::Error>> {
        let course = self.course;
        let rows = schedule(course.seed ^ 0x7069_6c74, course.factors.len(), PILOT as usize);
        for pair in 0..PILOT {
            let on: Vec<&str> = match rows.get(pair as usize) {
                Some(row) => row
                    .iter()
                    .zip(course.names())
                    .filter(|(on, _)| **on)
                    .map(|(_, name)| name)
                    .collect(),
                None => Vec::new(),
            };
            self.bench.doing(&format!("pilot, pair {} of {PILOT}", pair + 1), course.budget);
            self.block(BlockPart::Pilot, pair, &on)?;
            self.block(BlockPart::Pilot, pair, &on)?;
        }
        self.pace = Nanos(self.bench.now().0 / u64::from(2 * PILOT));
        let steps = course.factors.len();
        let fewest = fewest_pairs(steps).unwrap_or(usize::MAX);
        let left = course.budget.0.saturating_sub(self.bench.now().0) as f64;
        let one = 2.0 * self.pace.0 as f64 * (1.0 + 0.5 / f64::from(REFERENCES));
        let pairs =
            ((left * SCREENING / one.max(1.0)) as usize).clamp(fewest.min(MOST_PAIRS), MOST_PAIRS);
        self.design.block = self.pace;
        self.design.pairs = pairs as u32;
        let responses = self.design.responses.len();
        for (nth, response) in self.design.responses.iter_mut().enumerate() {
            response.noise = pilot_noise(&self.blocks, nth);
            response.resolves = screening_resolves(response.noise, pairs, steps, responses);
        }
        self.bench.stated(&self.design, &course.factors);
        Ok(())
    }

    fn screening(&mut self) -> Result<(), End<B::Error>> {
        let course = self.course;
        let names = course.names();
        let pairs = self.design.pairs;
        let whole = self.whole();
        for (pair, row) in
            schedule(course.seed, names.len(), pairs as usize).into_iter().enumerate()
        {
            let pair = pair as u32;
            if pair.is_multiple_of(REFERENCES) {
                self.bench.doing("reference, no step", whole);
                self.block(BlockPart::Reference, pair / REFERENCES, &[])?;
            }
            let next = Nanos(u64::from(pairs - pair) * 2 * self.pace.0);
            let left = quiet_types::words::span(next);
            self.bench.doing(
                &format!(
                    "screening, pair {} of {pairs}; verdicts are looked at once, in {left}",
                    pair + 1
                ),
                whole,
            );
            let some = |wanted: bool| -> Vec<&str> {
                row.iter()
                    .zip(&names)
                    .filter(|(on, _)| **on == wanted)
                    .map(|(_, name)| *name)
                    .collect()
            };
            // The coin has been tossed already.
            self.block(BlockPart::Screening, pair, &some(true))?;
            self.block(BlockPart::Screening, pair, &some(false))?;
        }
        self.bench.doing("reference, no step", whole);
        self.block(BlockPart::Reference, pairs.div_ceil(REFERENCES), &[])
    }

    /// How long all of it takes: the time that was given, or what the fewest pairs need.
    fn whole(&self) -> Nanos {
        let screening = self.bench.now().0 + u64::from(self.design.pairs) * 2 * self.pace.0;
        Nanos(self.course.budget.0.max(screening + u64::from(2 * FEWEST) * 2 * self.pace.0))
    }

    /// How many pairs of each of so many comparisons there is time for.
    fn rounds(&self, share: f64, each: usize) -> u32 {
        let left = self.course.budget.0.saturating_sub(self.bench.now().0) as f64 * share;
        let pair = 2.0 * self.pace.0.max(1) as f64 * each.max(1) as f64;
        ((left / pair) as u32).clamp(FEWEST, MOST)
    }

    /// The whole shield and the whole shield without one step, for each that is shown to help.
    fn confirmation(&mut self, steps: &[TunedStep]) -> Result<(), End<B::Error>> {
        let found: Vec<&str> = steps
            .iter()
            .filter(|step| step.says == StepSays::Helps)
            .map(|step| step.factor.name.as_str())
            .collect();
        if found.is_empty() {
            return Ok(());
        }
        let course = self.course;
        let all = course.names();
        // The more are tested together, the more pairs each needs to show anything at all.
        let fewest = (1..).find(|n| 2f64.powi(1 - n) * found.len() as f64 <= 0.02).unwrap_or(8);
        let rounds = self.rounds(CONFIRMATION, found.len()).max(fewest as u32);
        let whole =
            Nanos(self.whole().0.max(
                self.bench.now().0 + u64::from(rounds) * found.len() as u64 * 2 * self.pace.0,
            ));
        for round in 0..rounds {
            for at in lot::order(course.seed ^ 0x636f_6e66, u64::from(round), found.len()) {
                let name = found[at];
                self.bench.doing(
                    &format!(
                        "confirmation, round {} of {rounds}: the whole shield without {name}",
                        round + 1
                    ),
                    whole,
                );
                let without: Vec<&str> =
                    all.iter().copied().filter(|other| *other != name).collect();
                self.pair(
                    BlockPart::Confirmation,
                    round * found.len() as u32 + at as u32,
                    &all,
                    &without,
                )?;
            }
        }
        Ok(())
    }

    /// The smallest set against the whole shield; where that is not enough, the next larger one.
    fn comparison(&mut self, steps: &[TunedStep]) -> Result<Option<Smallest>, End<B::Error>> {
        let course = self.course;
        let all = course.names();
        let every: Vec<String> = all.iter().map(|name| (*name).to_owned()).collect();
        let sets = candidates(steps);
        let mut pair = 0;
        let mut told = None;
        for (nth, set) in sets.iter().enumerate() {
            if set.len() == all.len() {
                break;
            }
            let rounds = self.rounds(1.0 / (sets.len() - nth) as f64, 1);
            let names: Vec<&str> = set.iter().map(String::as_str).collect();
            let whole =
                Nanos(self.whole().0.max(self.bench.now().0 + u64::from(rounds) * 2 * self.pace.0));
            for round in 0..rounds {
                let what = match set.len() {
                    0 => "no step at all".to_owned(),
                    1 => format!("{} alone", names[0]),
                    n => format!("{n} steps of {}", all.len()),
                };
                self.bench.doing(
                    &format!(
                        "comparison, pair {} of {rounds}: {what}, and the whole shield",
                        round + 1
                    ),
                    whole,
                );
                self.pair(BlockPart::Comparison, pair, &names, &all)?;
                pair += 1;
            }
            let found =
                judge_smallest(&self.blocks, set, &every, &self.design.responses, course.margin);
            let enough = matches!(found.says, Enough::AsGood | Enough::Better);
            told = Some(found);
            if enough {
                break;
            }
        }
        Ok(told)
    }
}
