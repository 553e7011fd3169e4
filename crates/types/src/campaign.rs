//! A campaign: a declared matrix of probes, stresses and settings, each cell of it one run.

pub use crate::cell::Cell;
use crate::{
    CpuSet, Finding, Nanos,
    compared::Compared,
    history::Line,
    lot,
    machine::Policy,
    run::{Idle, Probe, Spec},
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The schema of [`Campaigned`] in JSON.
pub const SCHEMA: &str = "quietcores.campaign/1";

/// What a campaign file declares.
#[derive(Clone, Debug, PartialEq)]
pub struct Campaign {
    /// Its name: runs are found by it, from whichever boot.
    pub name: String,
    /// Runs of each cell of the matrix.
    pub rounds: u32,
    /// What is measured.
    pub probes: Vec<Question>,
    /// Under what.
    pub stresses: Vec<NamedStress>,
    /// On what.
    pub settings: Vec<MachineSetting>,
}

/// One probe with its specification.
#[derive(Clone, Debug, PartialEq)]
pub struct Question {
    /// Its name.
    pub name: String,
    /// What is asked.
    pub spec: Spec,
    /// Whether late readings are told by cause.
    pub explain: bool,
}

/// One stress, or none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamedStress {
    /// Its name.
    pub name: String,
    /// Suites and stressors; empty for no stress.
    pub run: Vec<String>,
}

/// One setting of the machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MachineSetting {
    /// Its name.
    pub name: String,
    /// Kernel releases that it is measured on, with `*` and `?`; whichever runs where there is none.
    pub kernel: Option<String>,
    /// What is put around the measured CPUs first.
    pub shield: Shielding,
    /// What is done about idle states.
    pub idle: Idle,
    /// Where the stress may run. Without it: everywhere, or outside the shield where there is one.
    pub stress_cpus: Option<CpuSet>,
}

/// Whether a setting has a shield.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Shielding {
    /// The machine as it is.
    #[default]
    None,
    /// A shield around the measured CPUs.
    Measured,
    /// The shield of a chain file, as a path beside the campaign file.
    Chain(String),
}

/// One cell that is to be measured, with what it is made of.
#[derive(Clone, Debug, PartialEq)]
pub struct DueCell<'a> {
    /// Its place.
    pub cell: Cell,
    /// What is measured.
    pub probe: &'a Question,
    /// Under what.
    pub stress: &'a NamedStress,
    /// On what.
    pub setting: &'a MachineSetting,
}

impl DueCell<'_> {
    /// The specification of its run.
    pub fn spec(&self) -> Spec {
        Spec { idle: self.setting.idle, ..self.probe.spec.clone() }
    }
}

impl Campaign {
    /// Every cell, in the order in which they are measured: round by round, so that settings stand
    /// beside each other in time, their order in each round drawn by lot from `seed`, so that what
    /// drifts within a round favours none.
    pub fn tasks(&self, seed: u32) -> Vec<DueCell<'_>> {
        let mut tasks = Vec::new();
        for round in 1..=self.rounds {
            for (p, probe) in self.probes.iter().enumerate() {
                for (s, stress) in self.stresses.iter().enumerate() {
                    let block = (p * self.stresses.len() + s) as u64 + (u64::from(round) << 24);
                    let order = lot::order(seed, block, self.settings.len());
                    for (place, setting) in order.into_iter().enumerate() {
                        let rank = setting as u32;
                        let setting = &self.settings[setting];
                        let mut cell = self.cell(round, probe, stress, setting);
                        (cell.lot, cell.place, cell.rank) = (Some(seed), place as u32, rank);
                        tasks.push(DueCell { cell, probe, stress, setting });
                    }
                }
            }
        }
        tasks
    }

    fn cell(
        &self,
        round: u32,
        probe: &Question,
        stress: &NamedStress,
        setting: &MachineSetting,
    ) -> Cell {
        // FNV-1a over names and numbers that keep their meaning from version to version.
        let mut hash = 0xcbf2_9ce4_8422_2325u64;
        let mut eat = |text: &str| {
            for byte in text.bytes().chain([0]) {
                hash = (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3);
            }
        };
        let spec = &probe.spec;
        let interval = match spec.probe {
            Probe::Wakeup { interval, .. } => interval.0,
            Probe::Gap => 0,
        };
        let policy = match spec.policy {
            Policy::Other => "other",
            Policy::Fifo => "fifo",
            Policy::Rr => "rr",
            Policy::Batch => "batch",
            Policy::Idle => "idle",
            Policy::Deadline => "deadline",
            Policy::Ext => "ext",
        };
        for text in [&self.name, &probe.name, &stress.name, &setting.name, policy] {
            eat(text);
        }
        for number in [
            interval,
            u64::from(spec.priority),
            spec.length.0,
            spec.threshold.0,
            spec.bucket.0,
            u64::from(spec.buckets),
            u64::from(probe.explain),
            u64::from(setting.idle == Idle::AsIs),
            u64::from(round),
        ] {
            eat(&number.to_string());
        }
        eat(&spec.cpus.to_string());
        eat(&stress.run.join(","));
        eat(setting.kernel.as_deref().unwrap_or_default());
        eat(match &setting.shield {
            Shielding::None => "-",
            Shielding::Measured => "+",
            Shielding::Chain(path) => path,
        });
        eat(&setting.stress_cpus.as_ref().map(CpuSet::to_string).unwrap_or_default());
        Cell {
            campaign: self.name.clone(),
            probe: probe.name.clone(),
            stress: stress.name.clone(),
            setting: setting.name.clone(),
            round,
            key: format!("{hash:016x}"),
            lot: None,
            place: 0,
            rank: 0,
        }
    }
}

/// Whether `text` is what `pattern` means: `*` stands for any characters, `?` for one.
pub fn glob(pattern: &str, text: &str) -> bool {
    let (pattern, text): (Vec<char>, Vec<char>) =
        (pattern.chars().collect(), text.chars().collect());
    let (mut p, mut t) = (0, 0);
    // Where to go on after a mismatch: behind the last `*`, one more character swallowed.
    let mut again: Option<(usize, usize)> = None;
    while t < text.len() {
        match pattern.get(p) {
            Some('*') => {
                again = Some((p + 1, t));
                p += 1;
            }
            Some(c) if *c == '?' || *c == text[t] => (p, t) = (p + 1, t + 1),
            _ => match again {
                Some((after, from)) => {
                    again = Some((after, from + 1));
                    (p, t) = (after, from + 1);
                }
                None => return false,
            },
        }
    }
    pattern[p..].iter().all(|c| *c == '*')
}

/// How far a campaign is, and what its runs say.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Campaigned {
    /// [`SCHEMA`].
    pub schema: String,
    /// Its name.
    pub name: String,
    /// Every run of every cell, in the order in which they are measured.
    pub cells: Vec<CellState>,
    /// How many runs are there.
    pub done: u64,
    /// How many can be made on this boot.
    pub left: u64,
    /// How many wait for something: another kernel, root.
    pub waiting: u64,
    /// How many could not be made.
    pub failed: u64,
    /// How long those that are left take, about.
    pub needs: Nanos,
    /// Each probe under each stress: the first setting against each of the others.
    pub compared: Vec<Versus>,
    /// What to know about all of it.
    pub findings: Vec<Finding>,
}

/// One cell and its run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct CellState {
    /// Which.
    pub cell: Cell,
    /// How it stands.
    pub state: CellStanding,
    /// Why it waits or failed.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub why: String,
    /// Its run, in a line.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run: Option<Line>,
}

/// How a cell stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum CellStanding {
    /// Its run is kept.
    Done,
    /// To be measured.
    Left,
    /// To be measured elsewhere: on another kernel, as root.
    Waiting,
    /// It could not be measured; the next call tries again.
    Failed,
}

/// Two settings compared, under one probe and one stress.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Versus {
    /// The probe.
    pub probe: String,
    /// The stress.
    pub stress: String,
    /// What it is compared with: the first setting of the file.
    pub base: String,
    /// The setting that is compared.
    pub other: String,
    /// Its verdict.
    pub compared: Compared,
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    fn setting(name: &str) -> MachineSetting {
        MachineSetting {
            name: name.into(),
            kernel: None,
            shield: Shielding::None,
            idle: Idle::Shallow,
            stress_cpus: None,
        }
    }

    fn campaign() -> Campaign {
        let spec = Spec {
            probe: Probe::Gap,
            cpus: "1".parse().unwrap(),
            policy: Policy::Other,
            priority: 0,
            length: Nanos::from_secs(1),
            threshold: Nanos::from_micros(5),
            bucket: Nanos::from_micros(1),
            buckets: 100,
            idle: Idle::Shallow,
            core: Default::default(),
        };
        Campaign {
            name: "x".into(),
            rounds: 3,
            probes: vec![Question { name: "gap".into(), spec, explain: false }],
            stresses: vec![
                NamedStress { name: "none".into(), run: Vec::new() },
                NamedStress { name: "kernel".into(), run: vec!["kernel".into()] },
            ],
            settings: vec![setting("a"), setting("b"), setting("c")],
        }
    }

    #[test]
    fn settings_stand_beside_each_other_in_time_in_an_order_drawn_by_lot() {
        let campaign = campaign();
        let tasks = campaign.tasks(7);
        let blocks: Vec<String> = tasks
            .chunks(3)
            .map(|block| {
                let cell = &block[0].cell;
                let names: String = block.iter().map(|task| task.cell.setting.as_str()).collect();
                let mut sorted: Vec<char> = names.chars().collect();
                sorted.sort_unstable();
                assert_eq!(sorted, ['a', 'b', 'c']);
                assert!(block.iter().all(|task| task.cell.stress == cell.stress));
                format!("{}{}", cell.round, &cell.stress[..1])
            })
            .collect();
        assert_eq!(blocks, ["1n", "1k", "2n", "2k", "3n", "3k"]);
        let keys: BTreeSet<&str> = tasks.iter().map(|task| task.cell.key.as_str()).collect();
        assert_eq!(keys.len(), 18);
        // The same seed, the same order; of any two settings each is first about as often.
        assert_eq!(tasks, campaign.tasks(7));
        let first = (0..1000)
            .filter(|seed| {
                let at = |name: &str| {
                    campaign.tasks(*seed).iter().position(|task| task.cell.setting == name)
                };
                at("a") < at("c")
            })
            .count();
        assert!((420..580).contains(&first), "{first}");
    }

    #[test]
    fn more_rounds_leave_earlier_cells_as_they_are_and_another_length_makes_others() {
        let keys = |campaign: &Campaign| -> BTreeSet<String> {
            campaign.tasks(1).into_iter().take(18).map(|task| task.cell.key).collect()
        };
        let (one, mut more, mut longer) = (campaign(), campaign(), campaign());
        more.rounds = 5;
        assert_eq!(keys(&one), keys(&more));
        longer.probes[0].spec.length = Nanos::from_secs(2);
        assert!(keys(&one).is_disjoint(&keys(&longer)));
        // Kept with runs on disks: it must not change from version to version.
        let first = "06c007aa305699ed".to_owned();
        assert!(keys(&one).contains(&first));
    }

    #[test]
    fn stars_and_question_marks_stand_for_characters() {
        for (pattern, text, matches) in [
            ("6.12*", "6.12.48-rt-amd64", true),
            ("*-rt-*", "6.12.48+deb13-rt-amd64", true),
            ("6.1.*", "6.12.48", false),
            ("6.?.0", "6.1.0", true),
            ("", "6.1", false),
            ("*", "", true),
            ("*a*b", "aXbXb", true),
            ("a*b*c", "abbc", true),
            ("a*b*c", "abbcd", false),
        ] {
            assert_eq!(glob(pattern, text), matches, "{pattern} {text}");
        }
    }
}
