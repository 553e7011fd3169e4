//! What earlier tunes of this machine say of what an audit finds.

use crate::Result;
use quiet_linux::Root;
use quiet_plan::mend::factors_by_finding;
use quiet_store::{Kept, KeptKind, Store};
use quiet_types::{
    Finding, Plan,
    check::MeasuredHere,
    tune::{StepSays, Tuned},
};

/// So many of the newest tunes are looked through.
const NEWEST: usize = 40;

/// For each finding that a step of this plan mends: what the newest tune of this machine said of that step, on whichever kernel; it is
/// told on which. Findings that nothing was measured of are left out.
///
/// # Errors
/// When the store or the machine's name cannot be read; a tune that cannot be read is passed over.
pub fn measured_here(
    store: &Store,
    plan: &Plan,
    findings: &[Finding],
) -> Result<Vec<MeasuredHere>> {
    let host = quiet_probe::host(&Root::system()?)?;
    let mut files = store.list()?;
    files.retain(|file| file.kind == KeptKind::Tune);
    let mut tunes: Vec<Tuned> = Vec::new();
    // The newest first.
    for file in files.iter().rev().take(NEWEST) {
        if let Ok(Kept::Tune(tuned)) = store.find(&file.id) {
            let there = &tuned.head.host;
            if (&there.name, &there.processor) == (&host.name, &host.processor) {
                tunes.push(*tuned);
            }
        }
    }
    Ok(told(&tunes, plan, findings))
}

/// The newest of these is the first.
fn told(tunes: &[Tuned], plan: &Plan, findings: &[Finding]) -> Vec<MeasuredHere> {
    let mut told = Vec::new();
    for (finding, names) in factors_by_finding(plan, findings) {
        for name in names {
            let seen = tunes.iter().find_map(|tuned| {
                let step = tuned.steps.iter().find(|step| step.factor.name == name)?;
                (step.says != StepSays::Void).then_some((tuned, step))
            });
            let Some((tuned, step)) = seen else { continue };
            told.push(MeasuredHere {
                finding: finding.clone(),
                said: quiet_judge::tune::effect_line(step, &tuned.design),
                tune: tuned.head.id.clone(),
                started: tuned.head.started.clone(),
                kernel: tuned.head.host.release.clone(),
                stress: match tuned.stress.as_slice() {
                    [] => "none".to_owned(),
                    names => names.join(","),
                },
            });
        }
    }
    told
}

#[cfg(test)]
mod tests {
    use super::*;
    use quiet_types::Severity;

    #[test]
    fn a_finding_hears_of_the_steps_that_mend_it() {
        let tuned = quiet_judge::tune::example();
        let machine =
            crate::machine(&Root::at(quiet_testing::tree::fixture("machines/nuc")).unwrap())
                .unwrap();
        let plan = quiet_plan::plan(&machine, &quiet_types::Chain::default()).unwrap();
        let finding = |id: &str| Finding::new(Severity::Warning, id, "constructed");
        let findings = [finding("noise.statistics"), finding("limits.rtprio")];
        let told = told(&[tuned], &plan, &findings);
        assert_eq!(told.len(), 1, "{told:?}");
        assert_eq!(told[0].finding, "noise.statistics");
        assert!(told[0].said.starts_with("stat_interval: not shown"), "{}", told[0].said);
    }
}
