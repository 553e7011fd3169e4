//! The house holds: who may depend on whom, where unsafe code lives, what the quiet core may use.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
};

/// The arrows of docs/architecture.md: a crate, and what of ours it may build on.
const ARROWS: &[(&str, &[&str])] = &[
    ("quiet-types", &[]),
    ("quiet-testing", &[]),
    ("quiet-rt", &["quiet-types"]),
    ("quiet-plan", &["quiet-types"]),
    ("quiet-judge", &["quiet-types"]),
    ("quiet-foreign", &["quiet-types"]),
    ("quiet-report", &["quiet-judge", "quiet-types"]),
    ("quiet-store", &["quiet-linux", "quiet-types"]),
    ("quiet-dsp", &["quiet-types"]),
    ("quiet-engine", &["quiet-dsp", "quiet-linux", "quiet-rt", "quiet-types"]),
    ("quiet-linux", &["quiet-types"]),
    ("quiet-shield", &["quiet-linux", "quiet-types"]),
    ("quiet-boot", &["quiet-linux", "quiet-types"]),
    ("quiet-probe", &["quiet-linux", "quiet-rt", "quiet-types"]),
    (
        "quiet-experiment",
        &[
            "quiet-engine",
            "quiet-judge",
            "quiet-linux",
            "quiet-plan",
            "quiet-probe",
            "quiet-shield",
            "quiet-store",
            "quiet-types",
        ],
    ),
    (
        "quietcores",
        &[
            "quiet-boot",
            "quiet-engine",
            "quiet-experiment",
            "quiet-foreign",
            "quiet-judge",
            "quiet-linux",
            "quiet-plan",
            "quiet-probe",
            "quiet-report",
            "quiet-shield",
            "quiet-store",
            "quiet-types",
        ],
    ),
];

fn crates() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("crates/cli lies in crates").to_owned()
}

/// Package name -> names of our packages under `[dependencies]`.
fn arrows() -> BTreeMap<String, BTreeSet<String>> {
    let mut found = BTreeMap::new();
    for entry in fs::read_dir(crates()).unwrap() {
        let manifest = entry.unwrap().path().join("Cargo.toml");
        let text = fs::read_to_string(&manifest).unwrap();
        let (mut section, mut name, mut ours) = (String::new(), String::new(), BTreeSet::new());
        for line in text.lines().map(str::trim) {
            if let Some(header) = line.strip_prefix('[') {
                section = header.trim_end_matches(']').to_owned();
            } else if section == "package" && line.starts_with("name") {
                name = line.split('"').nth(1).unwrap().to_owned();
            } else if (section == "dependencies" || section == "build-dependencies")
                && line.starts_with("quiet-")
            {
                ours.insert(line.split(['.', ' ', '=']).next().unwrap().to_owned());
            }
        }
        found.insert(name, ours);
    }
    found
}

fn sources(of: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(of).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(sources(&path));
        } else if path.extension().is_some_and(|e| e == "rs") {
            found.push(path);
        }
    }
    found
}

#[test]
fn no_arrow_leads_where_the_architecture_forbids() {
    let allowed: BTreeMap<&str, &[&str]> = ARROWS.iter().copied().collect();
    for (from, to) in arrows() {
        let may = allowed.get(from.as_str()).unwrap_or_else(|| panic!("{from} has no place yet"));
        for one in to {
            assert!(may.contains(&one.as_str()), "{from} must not depend on {one}");
        }
    }
}

#[test]
fn unsafe_code_has_one_address() {
    // The second place: SIMD kernels of the stages, each with a scalar twin as its oracle.
    let fences = [crates().join("linux/src/sys"), crates().join("dsp/src/simd")];
    for crate_dir in fs::read_dir(crates()).unwrap() {
        for file in sources(&crate_dir.unwrap().path().join("src")) {
            let text = fs::read_to_string(&file).unwrap();
            if text.contains("allow(unsafe_code)") {
                let fenced = fences.iter().any(|fence| file.starts_with(fence));
                assert!(fenced, "{} opens the fence", file.display());
            }
        }
    }
}

#[test]
fn the_quiet_core_has_no_library_that_could_allocate() {
    let text = fs::read_to_string(crates().join("rt/src/lib.rs")).unwrap();
    assert!(text.contains("#![no_std]"));
    assert!(text.contains("#![forbid(unsafe_code)]"));
    for file in sources(&crates().join("rt/src")) {
        let text = fs::read_to_string(&file).unwrap();
        let shipped = text.split("#[cfg(test)]").next().unwrap();
        for word in ["extern crate alloc", "extern crate std"] {
            assert!(!shipped.contains(word), "{} says `{word}`", file.display());
        }
    }
}

#[test]
fn only_the_program_prints_and_exits() {
    for crate_dir in fs::read_dir(crates()).unwrap() {
        let crate_dir = crate_dir.unwrap().path();
        // What tests share is no part of the program.
        if crate_dir.ends_with("cli") || crate_dir.ends_with("testing") {
            continue;
        }
        for file in sources(&crate_dir.join("src")) {
            let text = fs::read_to_string(&file).unwrap();
            let shipped = text.split("#[cfg(test)]").next().unwrap();
            for word in ["println!", "print!(", "eprint", "process::exit"] {
                let found = shipped
                    .lines()
                    .any(|line| !line.trim_start().starts_with("//") && line.contains(word));
                assert!(!found, "{} says `{word}`", file.display());
            }
        }
    }
}

#[test]
fn a_test_is_skipped_by_the_one_way_that_is_counted() {
    // Put together here, where they stand else as well.
    let printed = format!("{}skipped", '"');
    let ignored = format!("#[{}", "ignore");
    for crate_dir in fs::read_dir(crates()).unwrap() {
        let crate_dir = crate_dir.unwrap().path();
        let mut files = sources(&crate_dir.join("src"));
        if crate_dir.join("tests").is_dir() {
            files.extend(sources(&crate_dir.join("tests")));
        }
        for file in files.iter().filter(|_| !crate_dir.ends_with("testing")) {
            let text = fs::read_to_string(file).unwrap();
            let counted = !text.contains(&printed) && !text.contains(&ignored);
            assert!(counted, "{}: use quiet_testing::skip", file.display());
        }
    }
}
