//! A tune that nobody measured, for tests and previews of faces.

use quiet_types::{
    Nanos,
    head::Head,
    proof::{Ratio, Restored},
    run::{Host, Idle, Probe, Spec},
    tune::{
        BlockPart, Confirmation, Enough, Factor, LeftOut, Smallest, SmallestRatio, StepEffect,
        StepPrice, StepSays, TriedChoice, TuneBlock, TuneDesign, TuneResponse, TuneValue, Tuned,
        TunedChoice, TunedStep,
    },
};

fn between(value: f64, low: f64, high: f64) -> Ratio {
    Ratio { value, low, high }
}

fn step(name: &str, says: StepSays, ratio: Ratio, p_value: f64) -> TunedStep {
    TunedStep {
        factor: Factor {
            name: name.to_owned(),
            steps: vec![format!("/proc/sys/{name}")],
            why: "constructed".to_owned(),
        },
        says,
        effects: vec![StepEffect {
            id: "wakeup.p99".to_owned(),
            ratio,
            p_value,
            shown: says != StepSays::NotShown,
            visible: 1.15,
        }],
        confirmed: None,
        prices: vec![StepPrice {
            id: "throughput".to_owned(),
            title: "what the stress got done".to_owned(),
            unit: "%".to_owned(),
            change: -4.0,
            low: -6.0,
            high: -2.0,
        }],
        void: 0,
        kept: says == StepSays::Helps,
    }
}

/// A choice of two CPUs.
fn choice() -> TunedChoice {
    TunedChoice {
        what: "cpu".to_owned(),
        tried: vec![
            TriedChoice {
                name: "CPU 1".to_owned(),
                blocks: 12,
                median: 12_000.0,
                ratio: None,
                p_value: None,
                beaten: false,
            },
            TriedChoice {
                name: "CPU 2".to_owned(),
                blocks: 12,
                median: 19_000.0,
                ratio: Some(between(0.63, 0.5, 0.8)),
                p_value: Some(0.01),
                beaten: true,
            },
        ],
        sentence: "CPU 1 is better than all others".to_owned(),
    }
}

/// Constructed: one step that helps, one that hurts, one of which nothing is shown.
pub fn example() -> Tuned {
    let mut helps = step("partition", StepSays::Helps, between(0.5, 0.4, 0.62), 0.0002);
    helps.confirmed = Some(Confirmation {
        id: "wakeup.p99".to_owned(),
        pairs: 10,
        ratio: between(0.52, 0.45, 0.6),
        p_value: 0.002,
        shown: true,
    });
    let hurts = step("workqueues", StepSays::Hurts, between(1.4, 1.2, 1.63), 0.004);
    let mut idle = step("stat_interval", StepSays::NotShown, between(0.98, 0.84, 1.14), 1.0);
    idle.prices.clear();
    let block = |pair: u32, part: BlockPart, value: f64| TuneBlock {
        part,
        pair,
        at: Nanos::from_secs(u64::from(pair) * 60),
        values: vec![TuneValue { value, half: 0.5 }],
        ..TuneBlock::default()
    };
    Tuned {
        head: Head {
            schema: quiet_types::tune::SCHEMA.to_owned(),
            id: "20261121T213000Z-tune-3f9a".to_owned(),
            started: "2026-11-21T21:30:00.000Z".to_owned(),
            lasted: Nanos::from_secs(600),
            host: Host { name: "example".to_owned(), ..Host::default() },
            ..Head::default()
        },
        question: "which steps of a shield of CPU 1 help wake-ups every 200us on CPU 1 under stress kernel".to_owned(),
        spec: Spec {
            probe: Probe::wakeup(Nanos::from_micros(200)),
            cpus: [quiet_types::CpuId(1)].into_iter().collect(),
            policy: quiet_types::machine::Policy::Fifo,
            priority: 90,
            length: Nanos::from_millis(1500),
            threshold: Nanos::from_micros(100),
            bucket: Nanos::from_micros(1),
            buckets: 1000,
            idle: Idle::AsIs,
            core: Default::default(),
        },
        stress: vec!["kernel".to_owned()],
        design: TuneDesign {
            seed: 8,
            budget: Nanos::from_secs(600),
            block: Nanos::from_millis(2600),
            responses: vec![TuneResponse {
                id: "wakeup.p99".to_owned(),
                title: "p99".to_owned(),
                noise: 0.3,
                resolves: 1.15,
            }],
            pairs: 60,
            family: super::STATED,
            margin: 1.25,
        },
        steps: vec![helps, hurts, idle],
        left_out: vec![LeftOut {
            what: "watchdog".to_owned(),
            why: "it was forbidden by --keep-off".to_owned(),
        }],
        smallest: Some(Smallest {
            steps: vec!["partition".to_owned()],
            pairs: 12,
            ratios: vec![SmallestRatio {
                id: "wakeup.p99".to_owned(),
                ratio: between(1.02, 0.93, 1.1),
                p_value: 0.001,
            }],
            says: Enough::AsGood,
        }),
        boots: Vec::new(),
        choices: vec![choice()],
        restored: Some(Restored { exact: true, differences: Vec::new() }),
        sentence: "partition helps; workqueues hurts; of 1 other nothing is shown. partition is as good as the whole shield."
            .to_owned(),
        chain: "[chain]\nname = \"tuned\"\ncpus = \"1\"\nsteps = [\"partition\"]\n".to_owned(),
        commands: vec!["quietcores tune --cpus 1 --seed 8".to_owned()],
        findings: Vec::new(),
        blocks: vec![
            block(0, BlockPart::Reference, 2.4e4),
            block(0, BlockPart::Screening, 1.2e4),
            block(0, BlockPart::Screening, 2.1e4),
            block(1, BlockPart::Reference, 2.2e4),
        ],
    }
}
