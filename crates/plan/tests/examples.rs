//! The chains that are shipped as examples.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

use proptest::prelude::*;
use quiet_plan::chain::parse;
use quiet_types::{
    CpuSet,
    chain::{Choice, IrqSource, Target},
};

const AUDIOPHILE: &str = include_str!("../../../examples/chains/audiophile-cpusets.toml");
const AFFINITY: &str = include_str!("../../../examples/chains/affinity-tuning.toml");

fn set(list: &str) -> CpuSet {
    list.parse().unwrap()
}

#[test]
fn the_player_on_a_small_pc_has_each_link_on_its_cpu_with_rising_priorities() {
    let chain = parse(AUDIOPHILE, "audiophile-cpusets.toml", Some(&set("0-3"))).unwrap();
    assert_eq!(chain.cpus, Choice::These(set("1-3")));
    let placed: Vec<(&str, Option<u8>, String)> = chain
        .links
        .iter()
        .map(|link| (link.name.as_str(), link.priority, link.cpus.as_ref().unwrap().to_string()))
        .collect();
    let wanted = [
        ("network", Some(55), "2".to_owned()),
        ("player", Some(75), "2".to_owned()),
        ("dsp", Some(80), "3".to_owned()),
        ("output", Some(85), "1".to_owned()),
    ];
    assert_eq!(placed, wanted);
    assert_eq!(chain.links[0].target, Target::Irq(IrqSource::Net("eth0".into())));
}

#[test]
fn the_critical_core_may_have_a_number_beyond_a_hole() {
    let chain = parse(AFFINITY, "affinity-tuning.toml", Some(&set("0,2"))).unwrap();
    assert_eq!(chain.cpus, Choice::These(set("2")));
    let error = parse(AFFINITY, "affinity-tuning.toml", Some(&set("0-1"))).unwrap_err();
    assert!(error.title().contains("CPU 2 is not on this machine"), "{error}");
}

proptest! {
    #[test]
    fn priorities_that_do_not_rise_are_no_chain(
        priorities in prop::collection::vec(1u8..=99, 4)
    ) {
        let mut text = AUDIOPHILE.to_owned();
        for (old, new) in [55, 75, 80, 85].iter().zip(&priorities) {
            text = text.replacen(&format!("priority = {old}\n"), &format!("priority = _{new}\n"), 1);
        }
        let text = text.replace("priority = _", "priority = ");
        let rises = priorities.windows(2).all(|pair| pair[0] < pair[1]);
        prop_assert_eq!(parse(&text, "x.toml", None).is_ok(), rises);
    }
}

#[test]
fn every_campaign_under_examples_is_understood() {
    let dir = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/campaigns");
    let mut count = 0;
    for entry in std::fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        let text = std::fs::read_to_string(&path).unwrap();
        let campaign = quiet_plan::campaign::parse(&text, &path.display().to_string(), None)
            .unwrap_or_else(|error| panic!("{error}"));
        assert!(campaign.tasks(1).len() >= 24);
        count += 1;
    }
    assert_eq!(count, 2);
}
