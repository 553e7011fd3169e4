//! Plans of the example chains on every machine of the fixtures, as they were approved: `plans/MACHINE.CHAIN.txt`. A change shows
//! as a difference; `QUIETCORES_BLESS=1 cargo test --test plans` takes it over.
#![allow(clippy::unwrap_used)] // a test may

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

const MACHINES: [&str; 7] = ["corei7-64", "hybrid", "nuc", "numa2", "pi2", "ryzen1700", "vm2"];
/// Their plans are argued in `boards.rs`.
const BOARDS: [&str; 4] = ["pi3", "pi4", "pi5", "vim3"];
const CHAINS: [&str; 7] =
    ["affinity-tuning", "ardour", "audiophile-cpusets", "camilladsp", "jackd", "mpd", "pipewire"];

fn home() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

/// What `plan` says, with how it ends.
fn said(machine: &str, chain: &str) -> String {
    let out = Command::new(env!("CARGO_BIN_EXE_quietcores"))
        .current_dir(home())
        .env("NO_COLOR", "1")
        .args(["plan", "--verbose", "--root", &format!("fixtures/machines/{machine}")])
        .args((chain != "nothing").then(|| format!("examples/chains/{chain}.toml")))
        .output()
        .unwrap();
    let (stdout, stderr) = (String::from_utf8(out.stdout), String::from_utf8(out.stderr));
    // What is usually done next is no part of a plan.
    let stderr = stderr.unwrap();
    let notes: String = stderr.split_inclusive('\n').filter(|l| !l.starts_with("next: ")).collect();
    format!("{}{notes}ends with {}\n", stdout.unwrap(), out.status.code().unwrap())
}

#[test]
fn plans_are_as_they_were_approved() {
    let bless = std::env::var_os("QUIETCORES_BLESS").is_some();
    let mut changed = Vec::new();
    for machine in MACHINES {
        for chain in CHAINS.iter().chain(&["nothing"]) {
            let name = format!("crates/cli/tests/plans/{machine}.{chain}.txt");
            let (file, now) = (home().join(&name), said(machine, chain));
            if bless {
                fs::write(&file, &now).unwrap();
            }
            let approved = fs::read_to_string(&file).unwrap_or_default();
            if now != approved {
                changed.push(format!("{name} is\n{approved}\nand would be\n{now}"));
            }
        }
    }
    assert!(changed.is_empty(), "{}", changed.join("\n"));
}

#[test]
fn every_machine_and_every_example_has_its_plan() {
    let names = |folder: &str, end: &str| -> Vec<String> {
        let entries = fs::read_dir(home().join(folder)).unwrap();
        let all = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
        let mut all: Vec<String> =
            all.map(|name| name.strip_suffix(end).unwrap_or(&name).to_owned()).collect();
        all.sort();
        all
    };
    let mut all: Vec<&str> = MACHINES.iter().chain(&BOARDS).copied().collect();
    all.sort_unstable();
    assert_eq!(names("fixtures/machines", ""), all);
    assert_eq!(names("examples/chains", ".toml"), CHAINS);
}
