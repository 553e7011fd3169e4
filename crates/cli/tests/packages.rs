//! What others install: what lies in the packages, the scripts around them, and the examples that come along.
//!
//! After a wanted change: `QUIETCORES_BLESS=1 cargo test -p quietcores --test packages`.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

use quiet_testing::{Why, copy_program, left_out, machine_alone, program, skip, tree, within};
use std::{
    collections::BTreeSet,
    fs,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    process::{Command, Output, Stdio},
};

const PROGRAM: &str = env!("CARGO_BIN_EXE_quietcores");

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

fn text(output: &Output) -> String {
    String::from_utf8_lossy(&[&output.stdout[..], &output.stderr].concat()).into_owned()
}

/// Files and links below `dir`, by their path: mode, and what they are.
fn tree(dir: &Path) -> Vec<(String, u32, PathBuf)> {
    let mut found = Vec::new();
    let mut folders = vec![dir.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).unwrap().map(Result::unwrap) {
            let path = entry.path();
            let kind = entry.file_type().unwrap();
            if kind.is_dir() {
                folders.push(path);
                continue;
            }
            let name = path.strip_prefix(dir).unwrap().to_str().unwrap().to_owned();
            let mode = fs::symlink_metadata(&path).unwrap().permissions().mode() & 0o7777;
            found.push((name, if kind.is_symlink() { 0 } else { mode }, path));
        }
    }
    found.sort();
    found
}

/// The cargo that built this test, where it still is; else the one in `PATH`.
fn cargo() -> Option<PathBuf> {
    Some(PathBuf::from(env!("CARGO"))).filter(|path| path.is_file()).or_else(|| program("cargo"))
}

/// What `./release` needs to lay trees out, and is not here: bills of materials are cargo's word on what the programs are made of.
fn lacks() -> Option<Why> {
    if cargo().is_none() {
        return Some(Why::Program("cargo", "cargo"));
    }
    let others = [("rustc", "rustc"), ("python3", "python3")];
    let (name, package) = others.into_iter().find(|(name, _)| program(name).is_none())?;
    Some(Why::Program(name, package))
}

/// The trees as `./release` lays them out, with programs that were not built for it: small ones that start the real one.
fn staged(dir: &Path) -> PathBuf {
    let programs = dir.join("programs/amd64");
    for kind in ["sound", "plugins", "static"] {
        fs::create_dir_all(programs.join(kind)).unwrap();
    }
    let small = dir.join("small");
    fs::write(&small, format!("#!/bin/sh\nexec '{PROGRAM}' \"$@\"\n")).unwrap();
    fs::set_permissions(&small, fs::Permissions::from_mode(0o755)).unwrap();
    for at in ["sound/quietcores", "static/quietcores", "sound/quietcored", "static/quietcored"] {
        copy_program(&small, programs.join(at));
    }
    for library in ["libquiet_plugin.so", "libspa_quietcores.so"] {
        fs::write(programs.join("plugins").join(library), "no library\n").unwrap();
    }
    let to = dir.join("trees");
    let done = Command::new(root().join("release"))
        .args(["--for", "amd64", "--programs"])
        .arg(dir.join("programs"))
        .arg("--stage")
        .arg(&to)
        .env("CARGO", cargo().unwrap())
        .env("SOURCE_DATE_EPOCH", "1700000000")
        .stdin(Stdio::null())
        .output()
        .unwrap();
    assert!(done.status.success(), "{}", text(&done));
    to
}

#[test]
fn packages_hold_what_their_lists_say() {
    if let Some(why) = lacks() {
        return skip(why);
    }
    let dir = tempfile::tempdir().unwrap();
    let trees = staged(dir.path());
    let bless = std::env::var_os("QUIETCORES_BLESS").is_some_and(|v| v == "1");
    for name in ["quietcores-amd64", "plugins-amd64", "rpm-amd64", "static-amd64"] {
        let mut list = String::new();
        for (path, mode, _) in tree(&trees.join(name)) {
            // Whole folders of the repository: looked at below.
            if path.contains("/docs/") || path.contains("/examples/") {
                continue;
            }
            let path = path.replace(env!("CARGO_PKG_VERSION"), "VERSION");
            list += &match mode {
                0 => format!("link {path}\n"),
                mode => format!("{mode:o} {path}\n"),
            };
        }
        let file = root().join(format!("packaging/contents/{name}.txt"));
        if bless {
            fs::create_dir_all(file.parent().unwrap()).unwrap();
            fs::write(&file, &list).unwrap();
        }
        let wanted = fs::read_to_string(&file).unwrap_or_default();
        assert_eq!(list, wanted, "{name}: if that is meant, again with QUIETCORES_BLESS=1");
    }
    whole_folders(&trees);
    pages_and_completions(&trees.join("quietcores-amd64"));
    bills(&trees.join("static-amd64"));
}

/// Docs and examples are there to the last file.
fn whole_folders(trees: &Path) {
    let mut kept = tree::sources();
    kept.retain(|path| path.starts_with("docs/") || path.starts_with("examples/"));
    assert!(kept.len() > 50, "{kept:?}");
    for (name, above) in [
        ("quietcores-amd64", "usr/share/doc/quietcores/".to_owned()),
        ("static-amd64", format!("quietcores-{}-amd64/", env!("CARGO_PKG_VERSION"))),
    ] {
        let base = trees.join(name).join(above);
        for file in &kept {
            assert!(base.join(file).is_file(), "{name} lacks {file}");
        }
    }
}

/// A man page for each verb, and completions that their shells can read.
fn pages_and_completions(tree: &Path) {
    let help = Command::new(PROGRAM).arg("--help").output().unwrap();
    let help = String::from_utf8(help.stdout).unwrap();
    let verbs = help.split("Commands:\n").nth(1).unwrap().lines();
    let verbs = verbs.take_while(|line| line.starts_with(' '));
    let verbs = verbs.filter(|line| !line.starts_with("   "));
    let verbs: Vec<&str> = verbs.filter_map(|line| line.split_whitespace().next()).collect();
    assert!(verbs.len() > 30, "{verbs:?}");
    for verb in verbs.into_iter().filter(|verb| *verb != "help") {
        let page = tree.join(format!("usr/share/man/man1/quietcores-{verb}.1.gz"));
        assert!(page.is_file(), "no man page of {verb}");
    }
    let bash = tree.join("usr/share/bash-completion/completions/quietcores");
    let read = Command::new("bash").arg("-n").arg(&bash).output().unwrap();
    assert!(read.status.success(), "{}", text(&read));
}

/// The bill of materials names what the lock file has, and nothing else; each part has a licence.
fn bills(tree: &Path) {
    let lock = fs::read_to_string(root().join("Cargo.lock")).unwrap();
    let (_, _, path) = tree_file(tree, "sbom.cdx.json");
    let bill: serde_json::Value = serde_json::from_slice(&fs::read(path).unwrap()).unwrap();
    let parts = bill["components"].as_array().unwrap();
    assert!(parts.len() > 80, "{}", parts.len());
    for part in parts {
        assert!(part["licenses"][0]["expression"].is_string(), "{part}");
        let Some(purl) = part["purl"].as_str() else { continue };
        let (name, version) = (part["name"].as_str().unwrap(), part["version"].as_str().unwrap());
        assert_eq!(purl, format!("pkg:cargo/{name}@{version}"));
        let locked = format!("name = \"{name}\"\nversion = \"{version}\"\n");
        assert!(lock.contains(&locked), "{purl} is not in Cargo.lock");
    }
    for name in ["rusqlite", "zbus", "clap"] {
        assert!(parts.iter().any(|part| part["name"] == name), "no {name}");
    }
    // Only the program with sound has it; what only tests use is in none.
    for name in ["alsa", "proptest", "quiet-testing"] {
        assert!(!parts.iter().any(|part| part["name"] == name), "{name} is in the static program");
    }
    let (_, _, path) = tree_file(tree, "third-party.txt");
    let texts = fs::read_to_string(path).unwrap();
    for words in ["zbus", "WITHOUT WARRANTY", "Apache License", "sqlite: blessing", "glibc: LGPL"] {
        assert!(texts.contains(words), "third-party.txt has no {words}");
    }
}

fn tree_file(dir: &Path, name: &str) -> (String, u32, PathBuf) {
    tree(dir).into_iter().find(|(path, ..)| path.ends_with(name)).unwrap()
}

#[test]
fn wrong_words_are_refused_before_anything_is_built() {
    let said = |script: &str, words: &[&str]| {
        let mut command = Command::new(root().join(script));
        let done = command.args(words).stdin(Stdio::null()).output().unwrap();
        (done.status.code().unwrap(), text(&done))
    };
    for (script, words, sentence) in [
        ("release", &["99.0"] as &[&str], "Cargo.toml says version"),
        ("release", &["--for", "sparc"], "there is no architecture sparc"),
        ("release", &["--kinds", "msi"], "there is no kind msi"),
        ("release", &["--nonsense"], "there is no option --nonsense"),
        ("release", &["--out"], "wants a value"),
        ("run", &["--nonsense"], "there is no option --nonsense"),
        ("run", &["-x"], "there is no option -x"),
        ("test", &["--nonsense"], "there is no option --nonsense"),
    ] {
        let (status, text) = said(script, words);
        assert_eq!(status, 2, "{script} {words:?}: {text}");
        assert!(text.contains(sentence), "{script} {words:?}: {text}");
        assert_eq!(text.trim().lines().count(), 1, "{text}");
    }
    for script in ["release", "run", "test"] {
        let (status, text) = said(script, &["--help"]);
        assert!(status == 0 && text.starts_with(&format!("./{script}")), "{text}");
    }
}

#[test]
fn run_takes_the_options_of_prove() {
    let script = fs::read_to_string(root().join("run")).unwrap();
    let list = script.split("options='").nth(1).unwrap().split('\'').next().unwrap();
    let list: BTreeSet<&str> = list.split_whitespace().collect();
    let help = Command::new(PROGRAM).args(["prove", "--help"]).output().unwrap();
    let help = String::from_utf8(help.stdout).unwrap();
    let own = ["--help", "--version", "--html"];
    let options = help.lines().filter_map(|line| {
        let line = line.trim_start();
        let line = line.split_once(", ").map_or(line, |(_, long)| long);
        let end = line.find(|c: char| !c.is_ascii_lowercase() && c != '-').unwrap_or(line.len());
        line[..end].starts_with("--").then_some(&line[..end])
    });
    let options: BTreeSet<&str> = options.filter(|option| !own.contains(option)).collect();
    assert_eq!(list, options);
}

/// `about` of `./run`: how long its arguments take.
#[test]
fn run_says_how_long_what_was_asked_for_takes() {
    let script = fs::read_to_string(root().join("run")).unwrap();
    let begin = script.find("about() {").unwrap();
    let function = &script[begin..begin + script[begin..].find("\n}\n").unwrap() + 3];
    let about = |words: &str| {
        let mut bash = Command::new("bash");
        let bash = bash.args(["-euc", &format!("{function} about \"$@\""), "run"]);
        let done = bash.args(words.split_whitespace()).output().unwrap();
        assert!(done.status.success() && done.stderr.is_empty(), "{words}: {}", text(&done));
        String::from_utf8(done.stdout).unwrap()
    };
    for (words, says) in [
        ("", "about 80 s; "),
        ("--pairs 6", "about 60 s; "),
        ("--cpus 3 --pairs=6 --for 500ms --gap 0s --json", "about 25 s; "),
        ("--for=5min", "about 81 min; "),
        ("--never-sleep --for 1.5s", "about 65 s; "),
        ("--slice", "about 65 s; "),
        ("--slice=200us --for 1s", "about 40 s; "),
        // What prove refuses has no length.
        ("--for soon", ""),
        ("--pairs many", ""),
        ("--for", ""),
    ] {
        assert_eq!(about(words), says, "{words}");
    }
}

#[test]
fn maintainer_scripts_are_shells_and_leave_upgrades_alone() {
    for script in ["postinst", "prerm", "postrm"] {
        let path = root().join(format!("packaging/deb/quietcores.{script}"));
        let read = Command::new("sh").arg("-n").arg(&path).output().unwrap();
        assert!(read.status.success(), "{}", text(&read));
    }
    // With what dpkg says at an upgrade, nothing is called at all: there is no program in this path.
    for words in [&["upgrade", "2"] as &[&str], &["failed-upgrade", "1"], &["deconfigure", "in"]] {
        let done = Command::new("/bin/sh")
            .arg(root().join("packaging/deb/quietcores.prerm"))
            .args(words)
            .env("PATH", "/nowhere")
            .output()
            .unwrap();
        assert!(done.status.success() && done.stderr.is_empty(), "{words:?}: {}", text(&done));
    }
}

#[test]
fn the_desktop_entry_is_valid() {
    let entry = root().join("packaging/quietcores.desktop");
    let Ok(done) = Command::new("desktop-file-validate").arg(&entry).output() else {
        return skip(Why::Program("desktop-file-validate", "desktop-file-utils"));
    };
    assert!(done.status.success() && done.stdout.is_empty(), "{}", text(&done));
    let text = fs::read_to_string(entry).unwrap();
    let icon = text.lines().find_map(|line| line.strip_prefix("Icon=")).unwrap();
    assert!(root().join(format!("packaging/{icon}.svg")).is_file());
}

/// Each strip among the examples plays as it lies there, on the card that does not exist, and makes a sound that is none of silence.
#[test]
fn each_example_strip_plays_as_it_is() {
    let dir = tempfile::tempdir().unwrap();
    let mut seen = 0;
    for entry in fs::read_dir(root().join("examples/strips")).unwrap().map(Result::unwrap) {
        let strip = entry.path();
        if strip.extension().is_none_or(|e| e != "toml") {
            continue;
        }
        seen += 1;
        let play = |more: &[&str]| {
            let mut play = Command::new(PROGRAM);
            play.args(["play", "--host", "null", "--period", "1024", "--for", "1s", "--json"]);
            play.args(["--control", "none"]).args(more).arg(&strip);
            play.stdin(Stdio::null()).output().unwrap()
        };
        let mut played = play(&[]);
        // An emulated processor is too slow for it, which is refused by name and is no fault of the strip's.
        if played.status.code() == Some(2) && text(&played).contains("it cannot sound without gaps")
        {
            played = play(&["--force"]);
        }
        // 1: a period was late, on a busy machine.
        assert!(matches!(played.status.code(), Some(0 | 1)), "{}", text(&played));
        let value: serde_json::Value = serde_json::from_slice(&played.stdout).unwrap();
        assert!(value["status"]["blocks"].as_u64().unwrap() > 0, "{value}");

        let channels = if strip.ends_with("guitar.toml") { 1 } else { 2 };
        let (from, to) = (dir.path().join("in.wav"), dir.path().join("out.wav"));
        fs::write(&from, plucked(channels)).unwrap();
        let mut render = Command::new(PROGRAM);
        render.arg("render").args([&from, &to, &strip]).args(["--json", "--force"]);
        let rendered = render.output().unwrap();
        assert!(rendered.status.success(), "{}", text(&rendered));
        let value: serde_json::Value = serde_json::from_slice(&rendered.stdout).unwrap();
        let peak = value["files"][0]["sound"]["peak"].as_f64().unwrap();
        assert!((-40.0..=0.0).contains(&peak), "{}: {peak} dBFS", strip.display());
    }
    assert!(seen >= 3);
}

/// The role for Ansible, on three boxes that are this machine: a check changes nothing, they join, one puts a shield up, keeps it, puts it
/// up anew for another chain.
#[test]
fn the_role_rolls_out_and_keeps_a_chain() {
    if left_out("a minute") {
        return;
    }
    if program("ansible-playbook").is_none() {
        return skip(Why::Program("ansible-playbook", "ansible-core"));
    }
    let folders = ["/etc/quietcores", "/var/lib/quietcores"].map(Path::new);
    let new: Vec<&Path> = folders.into_iter().filter(|folder| !folder.exists()).collect();
    let setup = "for i in /etc/quietcores /var/lib/quietcores; do mkdir -p $i && mount -t tmpfs -o mode=700 none $i || exit; done";
    let inside = within("-m", setup);
    if !inside {
        // Where others have put something there by now, it stays.
        for folder in new {
            let _ = fs::remove_dir(folder);
        }
        return;
    }
    let _turn = machine_alone();
    if quiet_testing::cpus() < 2 {
        return skip(Why::OneCpu);
    }
    let mut tried = Command::new(root().join("packaging/ansible/try"));
    let tried = tried.args([PROGRAM, "--shield"]).stdin(Stdio::null()).output().unwrap();
    assert!(tried.status.success() && text(&tried).contains("try: ok"), "{}", text(&tried));
}

/// A note that dies away: 16 bits, half a second.
fn plucked(channels: u16) -> Vec<u8> {
    let rate = 48_000_u32;
    let mut data = Vec::new();
    for n in 0..rate / 2 {
        let t = f64::from(n) / f64::from(rate);
        let value = 0.3 * (110.0 * std::f64::consts::TAU * t).sin() * (-4.0 * t).exp();
        for _ in 0..channels {
            data.extend(((value * 32_767.0) as i16).to_le_bytes());
        }
    }
    let frame = 2 * channels;
    let mut file = b"RIFF".to_vec();
    file.extend((36 + data.len() as u32).to_le_bytes());
    file.extend(b"WAVEfmt \x10\0\0\0\x01\0");
    file.extend(channels.to_le_bytes());
    file.extend(rate.to_le_bytes());
    file.extend((rate * u32::from(frame)).to_le_bytes());
    file.extend(frame.to_le_bytes());
    file.extend(16_u16.to_le_bytes());
    file.extend(b"data");
    file.extend((data.len() as u32).to_le_bytes());
    file.extend(data);
    file
}
