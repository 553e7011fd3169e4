//! Tables of buffers: which holds, what is possible all the same, text and page.

use crate::stats::tail::most_likely_rate;
use quiet_types::words;
use quiet_types::{
    Finding, Nanos, Severity,
    buffers::{Buffers, Combination, CpuSetting, Least, Safe},
    printable,
};
use std::collections::BTreeSet;

/// Xruns an hour that are possible, at 95 %, where `seen` were seen in `seconds`.
pub fn at_most_an_hour(seen: u64, seconds: f64) -> f64 {
    most_likely_rate(seen) / seconds.max(1e-9) * 3600.0
}

/// For each mode and setting the least buffer without an xrun, nor one of any longer buffer,
/// under any stress. Of buffers of one length the one with the longer periods costs less: it wins.
pub fn least_safe(cells: &[Combination], rate: u32) -> Vec<Least> {
    let arms: BTreeSet<(&str, CpuSetting)> =
        cells.iter().map(|cell| (cell.mode.as_str(), cell.setting)).collect();
    let one = |(mode, setting): (&str, CpuSetting)| {
        let tried = || {
            cells.iter().filter(move |cell| {
                cell.mode == mode && cell.setting == setting && cell.seconds() > 0.0
            })
        };
        let bad = tried().filter(|cell| cell.sum(|t| t.xruns) > 0).map(|cell| cell.buffer).max();
        let sizes = tried().map(|cell| (cell.buffer, std::cmp::Reverse(cell.period)));
        let size = sizes.filter(|size| bad.is_none_or(|bad| size.0 > bad)).min();
        let safe = size.map(|(buffer, std::cmp::Reverse(period))| {
            let held = tried()
                .filter(|cell| (cell.buffer, cell.period) == (buffer, period))
                .map(Combination::seconds)
                .fold(f64::INFINITY, f64::min);
            Safe {
                period,
                buffer,
                milliseconds: f64::from(buffer) / f64::from(rate.max(1)) * 1e3,
                held,
                at_most_an_hour: at_most_an_hour(0, held),
            }
        });
        Least { mode: mode.to_owned(), setting, safe }
    };
    arms.into_iter().map(one).collect()
}

/// What the figures say beyond themselves.
pub fn judge_buffers(buffers: &Buffers) -> Vec<Finding> {
    let mut findings = Vec::new();
    let refused: Vec<&Combination> =
        buffers.cells.iter().filter(|c| !c.refused.is_empty()).collect();
    if let Some(cell) = refused.first() {
        let title =
            format!("{} of {} cells could not be tried", refused.len(), buffers.cells.len());
        findings.push(Finding::new(Severity::Warning, "buffers.refused", title).evidence(format!(
            "{}: {}",
            name(cell),
            cell.refused
        )));
    }
    let trials = || buffers.cells.iter().flat_map(|cell| &cell.trials);
    let steal: u64 = trials().filter_map(|t| Some(t.steal?.0)).sum();
    let lasted: u64 = trials().map(|t| t.lasted.0).sum();
    if steal > lasted / 10_000 && steal > 0 {
        findings.push(
            Finding::new(
                Severity::Warning,
                "buffers.steal",
                "the hypervisor took the CPU away meanwhile",
            )
            .evidence(format!(
                "{} in {}, {}",
                Nanos(steal),
                Nanos(lasted),
                words::share(steal as f64 / lasted.max(1) as f64)
            ))
            .effect(
                "no setting inside this machine helps against it; a thread that never sleeps \
                     meets it more often than one that sleeps, since it always runs",
            )
            .remedy("give the virtual machine CPUs of its own on its host"),
        );
    }
    if buffers.restored == Some(false) {
        findings.push(
            Finding::new(
                Severity::Problem,
                "buffers.restored",
                "the machine is not as it was before",
            )
            .remedy("`quietcores status` tells whether something of a shield is left"),
        );
    }
    findings
}

fn name(cell: &Combination) -> String {
    format!(
        "{} x {}, {}, {}, stress {}",
        cell.period,
        cell.buffer / cell.period.max(1),
        cell.mode,
        cell.setting,
        printable(&cell.stress, 60)
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::example::{combination, trial};

    #[test]
    fn none_seen_is_three_in_the_time_and_some_seen_are_poisson() {
        assert!((at_most_an_hour(0, 60.0) - 179.7).abs() < 0.1);
        // Tables of the Poisson distribution, 95 % one-sided.
        for (seen, most) in [(1, 4.744), (2, 6.296), (5, 10.513), (10, 16.962)] {
            assert!((at_most_an_hour(seen, 3600.0) - most).abs() < 2e-3, "{seen}");
        }
    }

    #[test]
    fn the_least_safe_buffer_has_no_longer_one_that_fails() {
        let cells = vec![
            combination((16, 32), "sleep", "none", vec![trial(10, 0)]),
            combination((16, 32), "sleep", "kernel", vec![trial(10, 7)]),
            combination((32, 64), "sleep", "none", vec![trial(10, 0)]),
            combination((32, 64), "sleep", "kernel", vec![trial(10, 0)]),
            combination((16, 64), "sleep", "kernel", vec![trial(10, 0)]),
            combination((64, 128), "sleep", "kernel", vec![trial(10, 0), trial(10, 1)]),
            combination((64, 256), "sleep", "kernel", vec![trial(10, 0), trial(20, 0)]),
            combination((64, 512), "sleep", "kernel", vec![trial(10, 0)]),
            combination((16, 32), "never-sleep", "kernel", vec![trial(5, 0)]),
            combination((32, 64), "never-sleep", "kernel", vec![trial(9, 0)]),
        ];
        let least = least_safe(&cells, 48_000);
        let of = |mode: &str| least.iter().find(|l| l.mode == mode).unwrap().safe.unwrap();
        let sleep = of("sleep");
        assert_eq!((sleep.period, sleep.buffer, sleep.held), (64, 256, 30.0), "128 failed once");
        assert!((sleep.at_most_an_hour - 3600.0 / 30.0 * 2.9957).abs() < 0.1);
        assert_eq!(of("never-sleep").buffer, 32);
        let all_bad = least_safe(&[combination((16, 32), "sleep", "x", vec![trial(1, 1)])], 48_000);
        assert_eq!(all_bad[0].safe, None);
        // Two buffers of one length: the longer periods.
        let two =
            [(16, 64), (32, 64)].map(|size| combination(size, "sleep", "x", vec![trial(1, 0)]));
        assert_eq!(least_safe(&two, 48_000)[0].safe.unwrap().period, 32);
    }
}
