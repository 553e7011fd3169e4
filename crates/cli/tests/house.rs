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
    ("quiet-testing", &["quiet-linux", "quiet-types"]),
    ("quiet-rt", &["quiet-types"]),
    ("quiet-plan", &["quiet-types"]),
    ("quiet-judge", &["quiet-types"]),
    ("quiet-foreign", &["quiet-types"]),
    ("quiet-report", &["quiet-judge", "quiet-types"]),
    ("quiet-store", &["quiet-linux", "quiet-types"]),
    ("quiet-farm", &["quiet-judge", "quiet-linux", "quiet-store", "quiet-types"]),
    ("quiet-dsp", &["quiet-types"]),
    ("quiet-engine", &["quiet-dsp", "quiet-hda", "quiet-linux", "quiet-rt", "quiet-types"]),
    ("quiet-hda", &["quiet-linux", "quiet-types"]),
    ("quiet-plugin", &["quiet-dsp", "quiet-engine", "quiet-rt", "quiet-types"]),
    ("quiet-linux", &["quiet-types"]),
    ("quiet-spa", &[]),
    ("quiet-shield", &["quiet-linux", "quiet-types"]),
    ("quiet-boot", &["quiet-linux", "quiet-types"]),
    ("quiet-probe", &["quiet-linux", "quiet-rt", "quiet-types"]),
    (
        "quiet-experiment",
        &[
            "quiet-boot",
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
    ("quiet-service", &["quiet-boot", "quiet-linux", "quiet-plan", "quiet-shield", "quiet-types"]),
    ("quiet-live", &["quiet-linux", "quiet-types"]),
    ("quiet-tui", &["quiet-live", "quiet-types"]),
    ("quiet-web", &["quiet-judge", "quiet-live", "quiet-report", "quiet-store", "quiet-types"]),
    (
        "quietcores",
        &[
            "quiet-boot",
            "quiet-engine",
            "quiet-experiment",
            "quiet-farm",
            "quiet-foreign",
            "quiet-hda",
            "quiet-judge",
            "quiet-linux",
            "quiet-live",
            "quiet-plan",
            "quiet-probe",
            "quiet-report",
            "quiet-service",
            "quiet-shield",
            "quiet-store",
            "quiet-tui",
            "quiet-types",
            "quiet-web",
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
fn no_file_is_taken_from_another_package_by_its_path() {
    let path = format!("#[{}", "path");
    let code = format!("{}!(", "include");
    for crate_dir in fs::read_dir(crates()).unwrap() {
        for file in sources(&crate_dir.unwrap().path()) {
            let text = fs::read_to_string(&file).unwrap();
            let taken = text.contains(&path) || text.contains(&code);
            assert!(!taken, "{}: what packages share is quiet_testing", file.display());
        }
    }
}

#[test]
fn unsafe_code_has_six_addresses() {
    // The second place: SIMD kernels of the stages, each with a scalar twin as its oracle.
    // The third: the one symbol by which a host finds the plugin. The fourth: LV2's C interface. The fifth: a sound card's registers
    // and the memory that is shared with it. The sixth: the interface by which PipeWire's loops call the kernel.
    let fences = [
        crates().join("linux/src/sys"),
        crates().join("dsp/src/simd"),
        crates().join("plugin/src/entry.rs"),
        crates().join("plugin/src/lv2/face.rs"),
        crates().join("hda/src/sys.rs"),
        crates().join("spa/src/face.rs"),
    ];
    for crate_dir in fs::read_dir(crates()).unwrap() {
        for file in sources(&crate_dir.unwrap().path().join("src")) {
            let text = fs::read_to_string(&file).unwrap();
            let opens =
                text.contains("allow(unsafe_code") || text.contains("allow(\n    unsafe_code");
            if opens {
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

/// A file's name within its package, as `mod`s name it: `stress/temp.rs` is `stress::temp`.
fn module(root: &Path, file: &Path) -> String {
    let path = file.strip_prefix(root).unwrap().with_extension("");
    let mut parts: Vec<&str> = path.iter().map(|part| part.to_str().unwrap()).collect();
    if matches!(parts.last(), Some(&"mod" | &"lib" | &"main")) {
        parts.pop();
    }
    parts.join("::")
}

/// What a `use` names, one path each: `use crate::{a::b, c};` gives `crate::a::b` and `crate::c`.
fn paths_of(tree: &str) -> Vec<String> {
    let Some((before, group)) = tree.split_once('{') else { return vec![tree.trim().to_owned()] };
    let (mut depth, mut part, mut parts) = (0, String::new(), Vec::new());
    for letter in group.chars() {
        match letter {
            '{' => depth += 1,
            '}' if depth == 0 => break,
            '}' => depth -= 1,
            ',' if depth == 0 => {
                parts.push(std::mem::take(&mut part));
                continue;
            }
            _ => {}
        }
        part.push(letter);
    }
    parts.push(part);
    let parts = parts.iter().filter(|part| !part.trim().is_empty());
    parts.flat_map(|part| paths_of(&format!("{}{}", before.trim(), part.trim()))).collect()
}

/// The paths that the `use`s of a file name, whole, as `a::b::Name`, with whether each is handed on (`pub use`).
fn uses(of: &str, text: &str) -> Vec<(Vec<String>, bool)> {
    let shipped = text.split("#[cfg(test)]").next().unwrap();
    let mut found = Vec::new();
    let mut rest = shipped;
    while let Some(at) = rest.find("use ") {
        let begins = rest[..at].rsplit('\n').next().unwrap().trim_start().to_owned();
        rest = &rest[at + 4..];
        if !["", "pub ", "pub(crate) ", "pub(super) "].contains(&begins.as_str()) {
            continue;
        }
        for path in paths_of(rest.split(';').next().unwrap()) {
            let mut parts: Vec<&str> = path.split("::").map(str::trim).collect();
            let mut base: Vec<&str> = of.split("::").filter(|part| !part.is_empty()).collect();
            match parts[0] {
                "crate" => base.clear(),
                "super" => {
                    while parts.first() == Some(&"super") {
                        base.pop();
                        parts.remove(0);
                    }
                    parts.insert(0, "super");
                }
                "self" => {}
                // A face names what is below it without `self`.
                _ if !begins.is_empty() => parts.insert(0, "self"),
                _ => continue,
            }
            base.extend(&parts[1..]);
            found.push((base.into_iter().map(str::to_owned).collect(), !begins.is_empty()));
        }
    }
    found
}

/// What a file hands on under a name of its own: the file, the name, the path that is meant.
type Handed = BTreeMap<(String, String), Vec<String>>;

/// The file that a path leads to, through what others hand on.
fn leads(path: &[String], modules: &BTreeSet<String>, handed: &Handed) -> Option<String> {
    let mut path = path.to_vec();
    for _ in 0..8 {
        let at =
            (0..=path.len()).rev().find(|n| *n == 0 || modules.contains(&path[..*n].join("::")))?;
        let place = path[..at].join("::");
        match path.get(at).and_then(|name| handed.get(&(place.clone(), name.clone()))) {
            Some(on) if on[..] != path[..=at] => {
                let rest = path.split_off(at + 1);
                path = on.iter().cloned().chain(rest).collect();
            }
            // What the root itself holds belongs to all.
            _ => return Some(place).filter(|place| !place.is_empty()),
        }
    }
    None
}

/// The files that a file's imports lead to.
fn imports(of: &str, text: &str, modules: &BTreeSet<String>, handed: &Handed) -> BTreeSet<String> {
    let paths = uses(of, text).into_iter();
    let mut found: BTreeSet<String> =
        paths.filter_map(|(path, _)| leads(&path, modules, handed)).collect();
    found.remove(of);
    // A folder's face names what is in it, and what is in it may name the face: one room.
    found.retain(|to| !of.starts_with(&format!("{to}::")) && !to.starts_with(&format!("{of}::")));
    found
}

#[test]
fn no_circle_of_files_stands_in_any_package() {
    assert_eq!(paths_of("crate::{a::{b, c}, d}"), ["crate::a::b", "crate::a::c", "crate::d"]);
    for crate_dir in fs::read_dir(crates()).unwrap() {
        let root = crate_dir.unwrap().path().join("src");
        let files: Vec<(String, String)> = sources(&root)
            .iter()
            .filter(|file| !file.iter().any(|part| part == "tests" || part == "tests.rs"))
            .map(|file| (module(&root, file), fs::read_to_string(file).unwrap()))
            .collect();
        let modules: BTreeSet<String> =
            files.iter().map(|(name, _)| name.clone()).filter(|name| !name.is_empty()).collect();
        let mut handed = Handed::new();
        for (name, text) in &files {
            for (path, _) in uses(name, text).into_iter().filter(|(_, on)| *on) {
                let (called, meant) = match path.last().unwrap().split_once(" as ") {
                    Some((meant, called)) => (called.to_owned(), meant.to_owned()),
                    None => (path.last().unwrap().clone(), path.last().unwrap().clone()),
                };
                let above = path[..path.len() - 1].iter().cloned();
                handed.insert((name.clone(), called), above.chain([meant]).collect());
            }
        }
        let mut left: BTreeMap<String, BTreeSet<String>> = files
            .iter()
            .filter(|(name, _)| !name.is_empty())
            .map(|(name, text)| (name.clone(), imports(name, text, &modules, &handed)))
            .collect();
        // What leads nowhere any more is in no circle.
        loop {
            let ends: Vec<String> = left
                .iter()
                .filter(|(_, to)| to.iter().all(|to| !left.contains_key(to)))
                .map(|(name, _)| name.clone())
                .collect();
            if ends.is_empty() {
                break;
            }
            left.retain(|name, _| !ends.contains(name));
        }
        assert!(left.is_empty(), "{} has a circle among {left:#?}", root.display());
    }
}

/// Verbs that ask a room below `experiment` themselves: what they do is that room's own work, and nothing is arranged.
const DIRECT: &[(&str, &[&str])] = &[
    (
        "quiet_shield",
        &[
            "apply", "confirm", "doctor", "explain", "greet", "guard", "hold", "lend", "measure",
            "persist", "play", "prove", "campaign", "revert", "serve", "status", "top", "watch",
        ],
    ),
    (
        "quiet_probe",
        &[
            "evl",
            "explain",
            "farm_member",
            "farm_send",
            "keeper",
            "measure",
            "reach",
            "stress",
            "worker",
        ],
    ),
];

#[test]
fn verbs_arrange_nothing_themselves() {
    for file in sources(&crates().join("cli/src/verbs")) {
        let text = fs::read_to_string(&file).unwrap();
        let verb = file.file_stem().unwrap().to_str().unwrap();
        for (room, may) in DIRECT {
            let asks = text.contains(&format!("{room}::"));
            assert!(
                !asks || may.contains(&verb),
                "{} asks {room}: use quiet_experiment",
                file.display()
            );
        }
        let both = text.contains("quiet_probe::watched") && text.contains("quiet_shield::up");
        assert!(!both, "{} puts up a shield and measures", file.display());
    }
}

/// `pub struct Name`, `pub unsafe trait Name`: the name.
fn public_type(line: &str) -> Option<String> {
    let rest = line.trim_start().strip_prefix("pub ")?;
    let rest = rest.strip_prefix("unsafe ").unwrap_or(rest);
    let (what, rest) = rest.split_once(' ')?;
    let is_type = ["struct", "enum", "trait", "type", "union"].contains(&what);
    is_type.then(|| rest.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect())
}

#[test]
fn a_public_type_has_a_name_of_its_own() {
    // Said by Rust's own custom: `quiet_linux::Error`.
    let custom = ["Error", "ErrorKind", "Result"];
    let mut places: BTreeMap<String, Vec<PathBuf>> = BTreeMap::new();
    for crate_dir in fs::read_dir(crates()).unwrap() {
        let crate_dir = crate_dir.unwrap().path();
        if crate_dir.ends_with("cli") || crate_dir.ends_with("testing") {
            continue;
        }
        for file in sources(&crate_dir.join("src")) {
            for name in fs::read_to_string(&file).unwrap().lines().filter_map(public_type) {
                places.entry(name).or_default().push(file.clone());
            }
        }
    }
    assert!(places.len() > 300, "only {} public types were found", places.len());
    assert_eq!(places["Machine"], [crates().join("types/src/machine.rs")]);
    places.retain(|name, files| files.len() > 1 && !custom.contains(&name.as_str()));
    assert!(places.is_empty(), "names of more than one sense: {places:#?}");
}
