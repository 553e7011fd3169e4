//! A campaign: how far it is, what its settings show against each other, as text.

use crate::{
    compare::{self, compare_runs},
    stats,
};
use quiet_types::{
    Finding, Nanos, Run, Severity,
    campaign::{Campaigned, CellStanding, CellState, SCHEMA, Versus},
    compared::Method,
    printable,
};
use std::collections::{BTreeMap, BTreeSet};

/// Two settings of which one has fewer runs are not compared yet.
const FEWEST: usize = 2;

/// The runs of one probe under one stress, by setting in the order of the file.
pub struct RunsBySetting<'a> {
    /// As the campaign's file writes it.
    pub probe: &'a str,
    /// As the campaign's file writes it.
    pub stress: &'a str,
    /// Name and runs of each.
    pub settings: Vec<(&'a str, Vec<&'a Run>)>,
}

/// Names of the settings in the order of the file; those of runs that do not say it as they come.
fn settings(cells: &[CellState]) -> Vec<&str> {
    let mut order: Vec<(u32, &str)> = Vec::new();
    for cell in cells.iter().map(|state| &state.cell) {
        if !order.iter().any(|(_, name)| *name == cell.setting) {
            order.push((cell.rank, &cell.setting));
        }
    }
    order.sort_by_key(|(rank, _)| *rank);
    order.into_iter().map(|(_, name)| name).collect()
}

/// Runs by what was asked: settings in the order of the file, probes and stresses in that of the cells.
pub fn groups<'a>(cells: &'a [CellState], runs: &'a [Run]) -> Vec<RunsBySetting<'a>> {
    let by_key: BTreeMap<&str, &Run> = runs
        .iter()
        .filter_map(|run| run.cell.as_ref().map(|cell| (cell.key.as_str(), run)))
        .collect();
    let order = settings(cells);
    let mut groups: Vec<RunsBySetting<'a>> = Vec::new();
    for state in cells {
        let cell = &state.cell;
        let at = groups.iter().position(|g| g.probe == cell.probe && g.stress == cell.stress);
        let at = at.unwrap_or_else(|| {
            let settings = order.iter().map(|name| (*name, Vec::new())).collect();
            groups.push(RunsBySetting { probe: &cell.probe, stress: &cell.stress, settings });
            groups.len() - 1
        });
        let run = by_key.get(cell.key.as_str()).filter(|_| state.state == CellStanding::Done);
        let setting = groups[at].settings.iter_mut().find(|(name, _)| *name == cell.setting);
        if let (Some(run), Some((_, runs))) = (run, setting) {
            runs.push(run);
        }
    }
    groups
}

/// What the cells and their runs come to. `needs` is how long those that are left take.
///
/// Each verdict counts among all comparisons that the campaign makes: the more there are, the more rounds it takes.
pub fn campaigned(name: &str, cells: Vec<CellState>, runs: &[Run], needs: Nanos) -> Campaigned {
    let count = |state| cells.iter().filter(|cell| cell.state == state).count() as u64;
    let mut compared = Vec::new();
    for group in groups(&cells, runs) {
        let sides: Vec<(&str, Vec<Run>)> = group
            .settings
            .iter()
            .map(|(name, runs)| (*name, runs.iter().map(|run| (*run).clone()).collect()))
            .collect();
        let Some(((base, a), others)) = sides.split_first() else { continue };
        for (other, b) in others {
            if a.len().min(b.len()) < FEWEST {
                continue;
            }
            compared.push(Versus {
                probe: group.probe.to_owned(),
                stress: group.stress.to_owned(),
                base: (*base).to_owned(),
                other: (*other).to_owned(),
                compared: compare_runs((base, a), (other, b)),
            });
        }
    }
    compare::together(
        &mut compared.iter_mut().map(|versus| &mut versus.compared).collect::<Vec<_>>(),
    );
    let mut findings = several_kernels(&cells);
    if !compared.iter().any(|versus| versus.compared.method == Method::Sets) {
        findings.extend(few_rounds(&cells));
    }
    Campaigned {
        schema: SCHEMA.to_owned(),
        name: name.to_owned(),
        done: count(CellStanding::Done),
        left: count(CellStanding::Left),
        waiting: count(CellStanding::Waiting),
        failed: count(CellStanding::Failed),
        needs,
        findings,
        compared,
        cells,
    }
}

/// A setting whose runs come from several kernels.
fn several_kernels(cells: &[CellState]) -> Vec<Finding> {
    let mut kernels: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for state in cells {
        if let Some(line) = &state.run {
            kernels.entry(&state.cell.setting).or_default().insert(&line.kernel);
        }
    }
    kernels.retain(|_, names| names.len() > 1);
    kernels
        .into_iter()
        .map(|(setting, names)| {
            let names = names.into_iter().collect::<Vec<_>>().join(", ");
            let title =
                format!("setting {} was measured on several kernels", printable(setting, 60));
            Finding::new(Severity::Warning, "campaign.kernels", title)
                .evidence(printable(&names, 300))
                .effect("its figures are of a mixture")
                .remedy("give the setting `kernel = \"...\"`, one setting for each kernel")
        })
        .collect()
}

/// A campaign whose comparisons are too many for its rounds: with n pairs chance alone gives as much as can be in 2 of 2^n
/// cases, in each of them.
fn few_rounds(cells: &[CellState]) -> Option<Finding> {
    let asked: BTreeSet<(&str, &str)> =
        cells.iter().map(|s| (s.cell.probe.as_str(), s.cell.stress.as_str())).collect();
    let made = asked.len() * settings(cells).len().saturating_sub(1);
    let rounds = cells.iter().map(|state| state.cell.round).max().unwrap_or(0);
    let chance = |rounds: u32| made as f64 * 2f64.powi(1 - rounds.min(1000) as i32);
    if made == 0 || chance(rounds) <= stats::LEVEL {
        return None;
    }
    let needed = (rounds..1000).find(|rounds| chance(*rounds) <= stats::LEVEL)?;
    let comparisons = if made == 1 { "comparison" } else { "comparisons" };
    Some(
        Finding::new(
            Severity::Warning,
            "campaign.few_rounds",
            format!("{rounds} rounds can show nothing among {made} {comparisons}"),
        )
        .effect(format!(
            "even where all pairs agree, chance gives as much in {:.0} % of cases",
            chance(rounds) * 100.0
        ))
        .remedy(format!("`rounds = {needed}` or more; what is measured already counts")),
    )
}
