//! Proofs and campaigns of simulated machines on which the settings do nothing: every verdict is a false one. Each machine
//! breaks an assumption that a test might rest on.

use super::figures::{self, Design, Taken};
use crate::{example, stats::Random};
use quiet_types::{
    Histogram, Nanos, Proof, Run,
    campaign::{Cell, CellStanding, CellState},
    lot::{self, Lot},
    proof::{Arm, Setting, Verdict},
};
use std::collections::BTreeMap;

/// A standard normal number (Box and Muller).
fn normal(random: &mut Random) -> f64 {
    let radius = (-2.0 * (1.0 - random.unit()).ln()).sqrt();
    radius * (std::f64::consts::TAU * random.unit()).cos()
}

/// The logarithm of how slow the machine is while each of `n` runs is made, one after the other.
type Machine = fn(&mut Random, n: usize) -> Vec<f64>;

const MACHINES: [(&str, Machine); 7] = [
    ("grows slower within each pair", |r, n| {
        (0..n).map(|at| 0.3 * (at % 2) as f64 + 0.05 * normal(r)).collect()
    }),
    ("grows slower all the time", |r, n| {
        (0..n).map(|at| 0.1 * at as f64 + 0.05 * normal(r)).collect()
    }),
    ("remembers (autocorrelation 0.9)", |r, n| {
        let mut level = normal(r);
        (0..n)
            .map(|_| {
                level = 0.9 * level + 0.19f64.sqrt() * normal(r);
                level
            })
            .collect()
    }),
    ("wanders", |r, n| {
        let mut level = 0.0;
        (0..n)
            .map(|_| {
                level += 0.4 * normal(r);
                level
            })
            .collect()
    }),
    ("swings with the pairs", |r, n| {
        let phase = std::f64::consts::TAU * r.unit();
        let turn = std::f64::consts::TAU / 4.0;
        (0..n).map(|at| (turn * at as f64 + phase).sin() + 0.05 * normal(r)).collect()
    }),
    ("heavy tails", |r, n| (0..n).map(|_| -(1.0 - r.unit()).ln() / 1.2).collect()),
    ("the host strikes one run in five", |r, n| {
        (0..n).map(|_| 0.1 * normal(r) + if r.unit() < 0.2 { 4.0 } else { 0.0 }).collect()
    }),
];

/// A run of 20 000 readings at this level: most of them near 10 us, a tail from 60 us on that has a level of its own.
fn run(template: &Run, random: &mut Random, level: f64) -> Run {
    let mut buckets: BTreeMap<u64, u64> = BTreeMap::new();
    let mut put = |ns: f64, count: u64| {
        let at = quiet_types::histogram::layout::bucket(ns as u64).unwrap();
        *buckets.entry(quiet_types::histogram::layout::lower(at)).or_insert(0) += count;
    };
    let tail = (level + 0.1 * normal(random)).exp();
    for step in 0..20 {
        put((8e3 + 300.0 * f64::from(step)) * level.exp().min(50.0), 900);
        put(60e3 * tail * 1.15f64.powi(step), 100);
    }
    let (first, last) = (*buckets.keys().next().unwrap(), *buckets.keys().last().unwrap());
    let all = Histogram {
        count: buckets.values().sum(),
        buckets: buckets.into_iter().collect(),
        min: Some(Nanos(first)),
        max: Some(Nanos(last)),
        ..Histogram::default()
    };
    let mut run = template.clone();
    let thread = &mut run.threads[0];
    let missed = (20.0 * tail * random.unit()).min(10_000.0) as u64;
    (thread.expected, thread.obtained, thread.missed) =
        (Some(20_000), 20_000 - missed, Some(missed));
    thread.corrected = Some(all);
    run
}

/// What every simulated run has in common: small, for it is copied often.
fn template() -> Run {
    let mut template = example::run();
    template.threads[0].readings = Histogram::default();
    template.threads[0].worst.clear();
    template
}

/// A proof of a machine that does not care which setting it has.
fn proof(mold: &mut Proof, template: &Run, random: &mut Random, machine: Machine, pairs: u32) {
    let lot = Lot { seed: random.bits() as u32, pairs };
    let levels = machine(random, 2 * pairs as usize);
    mold.lot = Some(lot);
    mold.arms.clear();
    for pair in 0..pairs {
        let mut settings = [Setting::Shared, Setting::Shielded];
        if !lot.shared_first(pair) {
            settings.reverse();
        }
        for (turn, setting) in settings.into_iter().enumerate() {
            let wakeup = run(template, random, levels[2 * pair as usize + turn]);
            mold.arms.push(Arm { pair, setting, wakeup, gap: None, void: None });
        }
    }
}

/// The judgement that was: what came first in each pair is called shared, and nothing is thought to drift.
fn fixed_order(proof: &Proof) -> Verdict {
    let pairs = proof
        .arms
        .chunks_exact(2)
        .map(|two| (Taken::of(&two[0]), Taken::of(&two[1]), true))
        .collect();
    figures::judge(&Design::Pairs { pairs, drawn: true }, Some(proof.spec.threshold), None).verdict
}

/// Of `proofs` on this machine: how many have a verdict, how many a verdict in any figure of their table, and how many had
/// one by the judgement that was.
fn false_ones(machine: Machine, seed: u64, proofs: u32, pairs: u32) -> (u32, u32, u32) {
    let (mut random, template) = (Random::new(seed), template());
    let mut mold = example::proof();
    let (mut whole, mut any, mut old) = (0, 0, 0);
    for _ in 0..proofs {
        proof(&mut mold, &template, &mut random, machine, pairs);
        let judged = crate::judge_proof(&mold);
        whole += u32::from(judged.verdict != Verdict::NotShown);
        any += u32::from(judged.figures.iter().any(|f| f.verdict != Verdict::NotShown));
        old += u32::from(fixed_order(&mold) != Verdict::NotShown);
    }
    (whole, any, old)
}

#[test]
fn false_verdicts_are_rarer_than_one_in_twenty_on_machines_that_drift() {
    for (at, (name, machine)) in MACHINES.into_iter().enumerate() {
        let (whole, any, old) = false_ones(machine, 100 + at as u64, 600, 8);
        quiet_testing::report(format_args!(
            "{name}: {whole} verdicts, {any} with any figure, {old} in fixed order, of 600"
        ));
        assert!(whole < 30, "{name}: {whole} of 600");
        assert!(any < 30, "{name}: {any} of 600");
        if at == 0 {
            assert!(old > 300, "the fixed order says so in most cases: {old} of 600");
        }
    }
}

#[test]
fn false_verdicts_are_rarer_than_one_in_twenty_in_the_large() {
    if !quiet_testing::is_long() {
        return quiet_testing::skip(quiet_testing::Why::Long("minutes"));
    }
    for (at, (name, machine)) in MACHINES.into_iter().enumerate() {
        for pairs in [6, 8, 12, 17] {
            let of = if pairs > 12 { 4000 } else { 10_000 };
            let (whole, any, old) = false_ones(machine, 1000 + at as u64, of, pairs);
            let share = |count: u32| f64::from(count) / f64::from(of) * 100.0;
            quiet_testing::report(format_args!(
                "{name}, {pairs} pairs: verdict {:.2} %, any figure {:.2} %, in fixed order {:.1} % of {of}",
                share(whole),
                share(any),
                share(old)
            ));
            assert!(share(whole) < 5.0 && share(any) < 5.0);
        }
    }
}

/// A campaign of so many comparisons on a machine that does not care: whether any has a verdict.
fn any_verdict(
    template: &Run,
    random: &mut Random,
    machine: Machine,
    rounds: u32,
    comparisons: usize,
) -> bool {
    let settings = comparisons + 1;
    let levels = machine(random, rounds as usize * settings);
    let seed = random.bits() as u32;
    let (mut cells, mut runs) = (Vec::new(), Vec::new());
    for round in 1..=rounds {
        let order = lot::order(seed, u64::from(round), settings);
        for (place, rank) in order.into_iter().enumerate() {
            let slot = (round as usize - 1) * settings + place;
            let cell = Cell {
                campaign: "c".into(),
                setting: format!("s{rank}"),
                round,
                key: format!("{round} {rank}"),
                lot: Some(seed),
                place: place as u32,
                rank: rank as u32,
                ..Cell::default()
            };
            let mut run = run(template, random, levels[slot]);
            run.id = format!("r{slot:04}");
            run.started = Some(format!("2026-11-21T21:{:02}:{:02}.000Z", slot / 60, slot % 60));
            run.cell = Some(cell.clone());
            runs.push(run);
            cells.push(CellState {
                cell,
                state: CellStanding::Done,
                why: String::new(),
                run: None,
            });
        }
    }
    let it = crate::campaigned("c", cells, &runs, Nanos(0));
    assert_eq!(it.compared.len(), comparisons);
    assert!(it.compared.iter().all(|versus| versus.compared.drawn));
    it.compared.iter().any(|versus| versus.compared.verdict != Verdict::NotShown)
}

#[test]
fn a_campaign_of_many_settings_has_a_false_verdict_in_less_than_one_of_twenty() {
    let template = template();
    for (at, (name, machine)) in MACHINES.into_iter().enumerate() {
        let mut random = Random::new(300 + at as u64);
        let any = (0..100).filter(|_| any_verdict(&template, &mut random, machine, 10, 5)).count();
        quiet_testing::report(format_args!("{name}: {any} of 100 campaigns with a verdict"));
        assert!(any < 8, "{name}: {any} of 100");
    }
}

#[test]
fn a_campaign_of_many_settings_has_a_false_verdict_in_less_than_one_of_twenty_in_the_large() {
    if !quiet_testing::is_long() {
        return quiet_testing::skip(quiet_testing::Why::Long("minutes"));
    }
    let template = template();
    for (at, (name, machine)) in MACHINES.into_iter().enumerate() {
        let mut random = Random::new(3000 + at as u64);
        let any = (0..1000).filter(|_| any_verdict(&template, &mut random, machine, 10, 5)).count();
        quiet_testing::report(format_args!(
            "{name}: {:.1} % of 1000 campaigns of 5 comparisons and 10 rounds",
            any as f64 / 10.0
        ));
        assert!(any < 50, "{name}: {any} of 1000");
    }
}

#[test]
fn a_real_change_is_found_all_the_same() {
    let (mut random, template) = (Random::new(9), template());
    let mut mold = example::proof();
    let mut found = 0;
    for _ in 0..40 {
        proof(&mut mold, &template, &mut random, MACHINES[0].1, 8);
        for arm in mold.arms.iter_mut().filter(|arm| arm.setting == Setting::Shielded) {
            // A quarter of the latency, whatever drifts.
            let thread = &mut arm.wakeup.threads[0];
            let all = thread.corrected.as_mut().unwrap();
            for bucket in &mut all.buckets {
                let at = quiet_types::histogram::layout::bucket(bucket.0 / 4).unwrap();
                bucket.0 = quiet_types::histogram::layout::lower(at);
            }
            all.buckets.dedup_by_key(|bucket| bucket.0);
            (all.min, all.max) = (all.min.map(|m| Nanos(m.0 / 4)), all.max.map(|m| Nanos(m.0 / 4)));
            (thread.missed, thread.obtained) = (Some(0), thread.expected.unwrap());
        }
        found += u32::from(crate::judge_proof(&mold).verdict == Verdict::Better);
    }
    assert!(found >= 36, "{found} of 40");
}
