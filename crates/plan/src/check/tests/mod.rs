//! Each check against a machine that is set up well, and one that differs in one thing.

mod cases;
pub(crate) mod good;
mod growth;

use super::{CHECKS, audit, check};
use cases::{CASES, Case};
use proptest::prelude::*;
use quiet_types::{CpuId, CpuSet, Machine, Severity, chain::Choice, check::CheckOutcome};
use std::collections::BTreeSet;

fn run(case: &Case) -> Vec<quiet_types::Finding> {
    let (mut machine, mut chain) = (good::machine(), Some(good::chain()));
    (case.spoil)(&mut machine, &mut chain);
    check(&machine, chain.as_ref())
}

#[test]
fn a_machine_that_is_set_up_well_has_no_findings() {
    let found = check(&good::machine(), Some(&good::chain()));
    let titles: Vec<String> = found.iter().map(|f| format!("{}: {}", f.id, f.title)).collect();
    assert_eq!(titles, Vec::<String>::new());
}

#[test]
fn what_is_spoilt_is_found_with_its_severity() {
    let mut missed = Vec::new();
    for case in CASES {
        let found = run(case);
        let hit = found.iter().find(|f| f.id == case.id && f.title.contains(case.says));
        match hit {
            Some(finding) if finding.severity == case.severity => {}
            Some(finding) => missed.push(format!("{} is a {:?}", case.id, finding.severity)),
            None => {
                let found: Vec<String> =
                    found.iter().map(|f| format!("{}: {}", f.id, f.title)).collect();
                missed.push(format!("{} ({}) not in {found:#?}", case.id, case.says));
            }
        }
    }
    assert!(missed.is_empty(), "{}", missed.join("\n"));
}

#[test]
fn what_is_spoilt_brings_no_finding_but_its_own_and_those_it_causes() {
    let mut strangers = Vec::new();
    for case in CASES {
        let allowed: BTreeSet<&str> =
            case.brings.iter().copied().chain(std::iter::once(case.id)).collect();
        for finding in run(case).iter().filter(|f| !allowed.contains(f.id.as_str())) {
            let (says, title) = (case.says, &finding.title);
            strangers.push(format!("{} ({says}) also brings {}: {title}", case.id, finding.id));
        }
    }
    assert!(strangers.is_empty(), "{}", strangers.join("\n"));
}

#[test]
fn every_check_has_a_machine_that_it_finds_fault_with() {
    let tried: BTreeSet<&str> = CASES.iter().map(|case| case.id).collect();
    let missing: Vec<&str> =
        CHECKS.iter().map(|check| check.id).filter(|id| !tried.contains(id)).collect();
    assert_eq!(missing, Vec::<&str>::new());
}

#[test]
fn ids_are_unique_and_name_their_subject() {
    let ids: BTreeSet<&str> = CHECKS.iter().map(|check| check.id).collect();
    assert_eq!(ids.len(), CHECKS.len());
    for id in ids {
        let (subject, what) = id.split_once('.').unwrap();
        assert!(!subject.is_empty() && !what.is_empty(), "{id}");
        assert!(id.chars().all(|c| c.is_ascii_lowercase() || c == '.' || c == '_'), "{id}");
    }
}

#[test]
fn every_finding_says_what_was_read_what_it_does_and_what_to_do_when() {
    let mut nameless = Vec::new();
    for finding in CASES.iter().flat_map(run) {
        for (part, text) in [
            ("title", &finding.title),
            ("evidence", &finding.evidence),
            ("effect", &finding.effect),
            ("remedy", &finding.remedy),
        ] {
            assert!(!text.is_empty(), "{} has no {part}", finding.id);
            assert!(!text.ends_with('.') && !text.contains("  "), "{}: {text}", finding.id);
            assert!(!text.contains(char::is_control), "{}: {text}", finding.id);
        }
        assert!(finding.when.is_some(), "{} does not say when", finding.id);
        let sources =
            ["/proc", "/sys", "/dev", "/etc", "/boot", "CONFIG_", "kernel log", "MSR", "running"];
        let has_source = sources.iter().any(|word| finding.evidence.contains(word));
        if !has_source {
            nameless.push(format!("{}: {}", finding.id, finding.evidence));
        }
    }
    assert!(nameless.is_empty(), "no source is named:\n{}", nameless.join("\n"));
}

#[test]
fn nobody_is_told_to_switch_mitigations_off() {
    for finding in CASES.iter().flat_map(run) {
        let remedy = finding.remedy.replace("take mitigations=off out", "");
        assert!(!remedy.contains("mitigations"), "{}: {}", finding.id, finding.remedy);
        if finding.id == "kernel.mitigations" {
            assert_eq!(finding.severity, Severity::Note);
            assert!(finding.title.contains("security"));
        }
    }
}

#[test]
fn problems_come_first_and_the_rest_by_effect() {
    let mut machine = good::machine();
    for case in CASES.iter().filter(|case| {
        let subject = case.id.split('.').next().unwrap_or_default();
        ["power", "noise", "memory", "limits", "irq"].contains(&subject)
    }) {
        (case.spoil)(&mut machine, &mut Some(good::chain()));
    }
    let found = check(&machine, Some(&good::chain()));
    let place = |id: &str| CHECKS.iter().position(|check| check.id == id).unwrap();
    assert!(found.len() > 20, "{}", found.len());
    for pair in found.windows(2) {
        let before = (std::cmp::Reverse(pair[0].severity), place(&pair[0].id));
        let after = (std::cmp::Reverse(pair[1].severity), place(&pair[1].id));
        assert!(before <= after, "{} before {}", pair[0].id, pair[1].id);
    }
}

#[test]
fn an_audit_of_an_empty_machine_ends_and_claims_little() {
    let checked = audit(&Machine::default(), None);
    assert_eq!(checked.looked.len(), CHECKS.len());
    let problems = checked.findings.iter().filter(|f| f.severity == Severity::Problem).count();
    assert_eq!(problems, 0, "{:#?}", checked.findings);
}

#[test]
fn a_partition_is_seen_on_kernels_that_do_not_list_isolated_cpus() {
    // cpuset.cpus.isolated came with 6.8.
    let mut machine = good::machine();
    machine.cgroups.v2_isolated = None;
    let checked = audit(&machine, None);
    let looked = checked.looked.iter().find(|look| look.id == "shield.none").unwrap();
    assert_eq!(looked.result, CheckOutcome::Fine, "{}", looked.because);
    machine.cgroups.groups[0].partition = Some("isolated invalid (cpuset.cpus is empty)".into());
    let found = check(&machine, None);
    assert!(found.iter().any(|f| f.id == "shield.none"), "{found:#?}");
}

#[test]
fn what_the_snapshot_does_not_tell_is_said_to_be_unknown() {
    let mut machine = good::machine();
    machine.surroundings = None;
    machine.kernel.config = None;
    let checked = audit(&machine, Some(&good::chain()));
    for id in ["limits.rtprio", "kernel.timers", "noise.smi", "memory.access_times"] {
        let looked = checked.looked.iter().find(|look| look.id == id).unwrap();
        assert_eq!(looked.result, CheckOutcome::Unknown, "{id}: {}", looked.because);
    }
}

#[test]
fn the_page_of_checks_is_complete_and_names_no_other() {
    let page = include_str!("../../../../../docs/checks.md");
    let told: Vec<&str> = page
        .lines()
        .filter_map(|line| line.strip_prefix("- `")?.split_once("`: "))
        .map(|(id, said)| {
            assert!(said.len() > 30, "{id} says too little");
            id
        })
        .collect();
    let set: BTreeSet<&str> = told.iter().copied().collect();
    assert_eq!(set.len(), told.len(), "an id stands twice");
    assert_eq!(set, CHECKS.iter().map(|check| check.id).collect::<BTreeSet<&str>>());
}

fn any_cpus() -> impl Strategy<Value = CpuSet> {
    prop::collection::vec(0u32..10, 0..6).prop_map(|cpus| cpus.into_iter().map(CpuId).collect())
}

proptest! {
    #[test]
    fn any_machine_and_chain_are_answered_in_order_and_for_terminals(
        sets in prop::collection::vec(any_cpus(), 12),
        words in prop::collection::vec(
            "(isolcpus|nohz_full|rcu_nocbs|irqaffinity|idle|preempt|.{0,4})(=.{0,12})?", 0..6),
        value in "(?s).{0,20}",
        name in "(?s).{1,20}",
        uptime in proptest::option::of(0u64..u64::MAX),
        counts in prop::collection::vec(any::<u32>(), 4),
    ) {
        let mut machine = good::machine();
        let mut chain = good::chain();
        let set = |at: usize| sets[at].clone();
        machine.online = set(0);
        machine.possible = set(1);
        machine.isolated = Some(set(2));
        machine.nohz_full = Some(set(3));
        machine.cgroups.v2_isolated = Some(set(4));
        machine.default_irq_affinity = Some(set(5));
        machine.workqueues.effective = Some(set(6));
        machine.kernel.boot_parameters = words;
        for setting in machine.settings.values_mut() {
            setting.clone_from(&value);
        }
        machine.cpus[0].siblings = set(7);
        machine.cpus[1].llc = set(8);
        machine.irqs[2].effective = Some(set(9));
        machine.irqs[2].actions = vec![name.clone()];
        machine.irqs[1].requested = Some(set(10));
        machine.irqs[1].counts = counts.iter().zip(0..).map(|(n, cpu)| (CpuId(cpu), u64::from(*n))).collect();
        machine.tasks[1].comm.clone_from(&name);
        machine.tasks[2].allowed = set(11);
        machine.hypervisor = (counts[1] % 2 == 0).then(|| name.clone());
        machine.cpus[2].steal_ticks = Some(u64::MAX);
        let around = machine.surroundings.as_mut().unwrap();
        around.smi_count = Some(u64::MAX);
        around.uptime_s = uptime;
        around.kernel_log = Some(vec![format!("Unknown kernel command line parameters {value}")]);
        chain.cpus = if counts[0] % 2 == 0 { Choice::Auto } else { Choice::These(set(0)) };
        for with in [None, Some(&chain)] {
            let checked = audit(&machine, with);
            prop_assert_eq!(checked.looked.len(), CHECKS.len());
            prop_assert!(checked.findings.is_sorted_by_key(|f| std::cmp::Reverse(f.severity)));
        }
    }
}
