//! A chain file is a chain, or a sentence that points into it; a chain has a plan for a machine, or there is a sentence.
#![no_main]
use libfuzzer_sys::fuzz_target;
use quiet_linux::{Root, snapshot};
use quiet_plan::{chain, plan};
use quiet_types::Machine;
use std::sync::OnceLock;

fn machine() -> &'static Machine {
    static MACHINE: OnceLock<Machine> = OnceLock::new();
    MACHINE.get_or_init(|| {
        let dir = concat!(env!("CARGO_MANIFEST_DIR"), "/../fixtures/machines/nuc");
        snapshot(&Root::at(dir).expect("a fixture"), Default::default()).expect("a machine")
    })
}

fuzz_target!(|text: &str| {
    let machine = machine();
    for known in [None, Some(&machine.online)] {
        match chain::parse(text, "fuzzed.toml", known) {
            Ok(chain) => {
                if let Err(why) = plan(machine, &chain) {
                    assert!(!why.to_string().is_empty());
                }
            }
            Err(why) => assert!(why.to_string().contains("fuzzed.toml")),
        }
    }
});
