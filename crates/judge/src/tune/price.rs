//! What steps cost: the same differences within pairs, of power, idle states and the work of everybody else.

use super::Screening;
use crate::screen::screen;
use quiet_types::tune::{Factor, StepPrice, TuneBlock};

/// A price: how it is taken from a block, and how a change of it is told.
struct Rule {
    id: &'static str,
    title: &'static str,
    unit: &'static str,
    take: fn(&TuneBlock) -> Option<f64>,
    tell: fn(f64) -> f64,
}

/// A change of a share, in percentage points.
fn points(change: f64) -> f64 {
    change * 100.0
}

const RULES: [Rule; 4] = [
    Rule {
        id: "power",
        title: "power of the packages",
        unit: "W",
        take: |block| block.watts,
        tell: |change| change,
    },
    Rule {
        id: "deep_idle",
        title: "time in deep idle states",
        unit: "percentage points",
        take: |block| block.deep_idle,
        tell: points,
    },
    Rule {
        id: "idle",
        title: "idle time of all CPUs",
        unit: "percentage points",
        take: |block| block.idle,
        tell: points,
    },
    Rule {
        id: "throughput",
        title: "what the stress got done",
        unit: "%",
        take: |block| block.throughput.filter(|done| *done > 0.0).map(f64::ln),
        tell: |change| (change.exp() - 1.0) * 100.0,
    },
];

/// The prices by step, in the order of `factors`; a price that some block does not tell is left out. Each price is a family of its own.
pub(crate) fn prices(
    screening: &Screening<'_>,
    factors: &[Factor],
    flips: usize,
    seed: u32,
) -> Vec<Vec<StepPrice>> {
    let mut all = vec![Vec::new(); factors.len()];
    for rule in &RULES {
        let differences = screening
            .pairs
            .iter()
            .map(|(a, b)| Some((rule.take)(a)? - (rule.take)(b)?))
            .collect::<Option<Vec<f64>>>();
        let Some(differences) = differences.filter(|all| all.iter().any(|d| *d != 0.0)) else {
            continue;
        };
        let seen = screen(&screening.rows, &[differences], flips, u64::from(seed) + 1);
        let Some(seen) = seen.and_then(|mut seen| seen.pop()) else { continue };
        for (at, one) in screening.told.iter().zip(seen) {
            all[*at].push(StepPrice {
                id: rule.id.to_owned(),
                title: rule.title.to_owned(),
                unit: rule.unit.to_owned(),
                change: (rule.tell)(one.effect),
                low: (rule.tell)(one.effect - one.half),
                high: (rule.tell)(one.effect + one.half),
            });
        }
    }
    all
}
