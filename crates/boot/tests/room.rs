//! A disk without room keeps nobody from going back, and a cut of the power within a trial leaves a machine that boots.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

use quiet_boot::{NoRunner, PersistRequest, Proposal, Ran, Runner, Service, Term};
use quiet_linux::files::Tree;
use quiet_testing::{Why, is_root, skip};
use quiet_types::{boot::BootParameters, said::Restoration};
use std::{
    collections::BTreeMap,
    env, fs,
    io::Write,
    path::{Path, PathBuf},
    process::{Command, Output},
};

const WORD: &str = "isolcpus=managed_irq,domain,2-3";

/// A machine with Debian's GRUB in the folder `dir`; its menu has so many bytes more.
fn machine(dir: &Path, more: usize) -> Tree {
    let menu = format!(
        "# custom.cfg next_entry {}\nmenuentry 'Debian' {{\n\tlinux /vmlinuz-6.1 root=/dev/vda2 quiet\n}}\n",
        "x".repeat(more)
    );
    let mut block = b"# GRUB Environment Block\nsaved_entry=0\n".to_vec();
    block.resize(1024, b'#');
    for (path, text) in [
        ("boot/grub/grub.cfg", menu.as_str()),
        ("boot/grub/grubenv", std::str::from_utf8(&block).unwrap()),
        ("etc/default/grub", "GRUB_TIMEOUT=0\n"),
        ("etc/systemd/system/other.service", ""),
        ("usr/sbin/update-grub", "#!/bin/sh\nexec grub-mkconfig -o /boot/grub/grub.cfg \"$@\"\n"),
    ] {
        quiet_testing::tree::put(dir, path, text);
    }
    Tree::at(dir).unwrap()
}

fn proposal(place: &Tree, term: Term) -> Proposal {
    let asked: BootParameters = serde_json::from_value(serde_json::json!({
        "cpus": "2-3", "housekeeping": "0-1", "mode": "sleeping_chain",
        "parameters": [{ "name": "isolcpus", "value": "managed_irq,domain,2-3", "why": "" }],
    }))
    .unwrap();
    let loader = quiet_boot::loaders(place).remove(0);
    let service = Service { program: "/usr/bin/quietcores".into(), apply: vec![], chain: None };
    let service = Some(&service);
    let request = PersistRequest { asked: &asked, loader: &loader, service, term, kernel: None };
    quiet_boot::propose(place, &request).unwrap()
}

/// Makes the menu from the old one.
struct Maker(PathBuf);

impl Runner for Maker {
    fn run(&self, command: &[String]) -> Result<Ran, String> {
        let menu = fs::read_to_string(self.0.join("boot/grub/grub.cfg")).unwrap();
        let at = command.iter().rposition(|word| word == "-o").unwrap();
        let text = menu.replace("quiet\n", &format!("quiet {WORD}\n"));
        fs::write(&command[at + 1], text).map_err(|error| error.to_string())?;
        Ok(Ran::Done)
    }
}

/// Every file, link and folder with its content, but for what the program keeps.
fn files(dir: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut seen = BTreeMap::new();
    let mut waiting = vec![dir.to_owned()];
    while let Some(next) = waiting.pop() {
        for entry in fs::read_dir(next).unwrap().flatten() {
            let path = entry.path();
            if path == dir.join("state") {
                continue;
            }
            let text = match entry.file_type().unwrap() {
                kind if kind.is_dir() => {
                    waiting.push(path.clone());
                    Vec::new()
                }
                kind if kind.is_symlink() => b"a link".to_vec(),
                _ => fs::read(&path).unwrap(),
            };
            seen.insert(path.strip_prefix(dir).unwrap().to_owned(), text);
        }
    }
    seen
}

/// Set where this program runs once more for a part of its own test: the folder that is worked in.
const PLACE: &str = "QUIETCORES_TEST_PLACE";

/// The test `name` of this program once more, with what a shell does before.
fn again(name: &str, place: &Path, before: &str) -> Command {
    let mut command = Command::new("unshare");
    command.args(["-m", "sh", "-c", &format!("{before} exec \"$0\" --exact {name} --nocapture")]);
    command.arg(env::current_exe().unwrap()).env(PLACE, place);
    command
}

fn said(output: &Output) -> String {
    let of = String::from_utf8_lossy;
    format!("{:?}\n{}{}", output.status, of(&output.stdout), of(&output.stderr))
}

/// Fills the disk.
fn fill(dir: &Path) {
    let mut file = fs::File::create(dir.join("state/filling")).unwrap();
    for size in [1 << 12, 1 << 9, 1] {
        while file.write_all(&vec![b'x'; size]).is_ok() {}
    }
}

#[test]
fn a_full_disk_gives_back_what_was_added_and_says_what_it_cannot() {
    let Some(place) = env::var_os(PLACE).map(PathBuf::from) else {
        if !is_root() {
            return skip(Why::Root);
        }
        let dir = tempfile::tempdir().unwrap();
        let mount =
            "mount -t tmpfs -o size=512k,mode=755 none \"$QUIETCORES_TEST_PLACE\" || exit 77;";
        let name = "a_full_disk_gives_back_what_was_added_and_says_what_it_cannot";
        let output = match again(name, dir.path(), mount).output() {
            Ok(output) => output,
            Err(error) => return skip(Why::Machine(format!("no unshare: {error}"))),
        };
        if output.status.code() == Some(77) || said(&output).contains("unshare:") {
            return skip(Why::Machine(format!("nothing may be mounted here: {}", said(&output))));
        }
        assert!(output.status.success(), "{}", said(&output));
        return;
    };
    let state = place.join("state");
    let filling = state.join("filling");
    let undo = |tree: &Tree| quiet_boot::undo(tree, &state, &NoRunner).unwrap().unwrap();
    // What was added is removed, and makes room for the old text of what was changed.
    let tree = machine(&place, 0);
    let before = files(&place);
    let write = |tree: &Tree| {
        quiet_boot::write(tree, &state, &proposal(tree, Term::Lasting), &Maker(place.clone()))
            .unwrap()
    };
    write(&tree);
    fill(&place);
    let undone = undo(&tree);
    assert!(undone.is_complete() && undone.is_exact(), "{undone:?}");
    assert!(files(&place) == before, "{undone:?}");
    assert!(quiet_boot::record(&state).unwrap().is_none());
    fs::remove_file(&filling).unwrap();
    // A menu that is larger than all that: the rest is given back, and it is said what is left to do.
    let tree = machine(&place, 60_000);
    let before = files(&place);
    write(&tree);
    fill(&place);
    let undone = undo(&tree);
    let refused: Vec<_> = undone.items.iter().filter(|item| item.outcome.is_refused()).collect();
    let [item] = refused[..] else { panic!("{undone:?}") };
    let Restoration::Refused { reason } = &item.outcome else { panic!("{item:?}") };
    assert!(item.what.ends_with("grub.cfg"), "{item:?}");
    assert!(reason.contains("No space left on device; make room there"), "{reason}");
    let now = files(&place);
    let differ: Vec<_> =
        now.iter().filter(|(path, text)| before.get(*path) != Some(*text)).collect();
    assert_eq!((differ.len(), now.len()), (1, before.len()), "{undone:?}");
    assert!(quiet_boot::record(&state).unwrap().is_some());
    fs::remove_file(&filling).unwrap();
    let undone = undo(&tree);
    assert!(undone.is_complete() && files(&place) == before, "{undone:?}");
}

#[test]
fn a_trial_is_refused_once_the_menu_that_it_copies_from_has_changed() {
    let dir = tempfile::tempdir().unwrap();
    let tree = machine(dir.path(), 0);
    let trial = proposal(&tree, Term::OneBoot);
    let cfg = dir.path().join("boot/grub/grub.cfg");
    let newer = fs::read_to_string(&cfg).unwrap().replace("6.1", "6.2");
    fs::write(&cfg, newer).unwrap();
    let before = files(dir.path());
    let state = dir.path().join("state");
    let error = quiet_boot::write(&tree, &state, &trial, &NoRunner).unwrap_err().to_string();
    assert!(error.contains("grub.cfg has changed just now"), "{error}");
    assert!(files(dir.path()) == before);
    quiet_boot::write(&tree, &state, &proposal(&tree, Term::OneBoot), &NoRunner).unwrap();
    let custom = fs::read_to_string(dir.path().join("boot/grub/custom.cfg")).unwrap();
    assert!(custom.contains("vmlinuz-6.2") && custom.contains(WORD), "{custom}");
}

#[test]
fn a_trial_cut_at_any_act_boots_as_before_or_on_trial_and_is_taken_back() {
    let name = "a_trial_cut_at_any_act_boots_as_before_or_on_trial_and_is_taken_back";
    if let Some(place) = env::var_os(PLACE).map(PathBuf::from) {
        let (tree, state) = (Tree::at(&place).unwrap(), place.join("state"));
        if quiet_boot::record(&state).unwrap().is_none() {
            let trial = proposal(&tree, Term::OneBoot);
            quiet_boot::write(&tree, &state, &trial, &NoRunner).unwrap();
        } else {
            quiet_boot::undo(&tree, &state, &NoRunner).unwrap();
        }
        return;
    }
    if !cfg!(debug_assertions) {
        return skip(Why::Release);
    }
    let dir = tempfile::tempdir().unwrap();
    let (tree, state) = (machine(dir.path(), 0), dir.path().join("state"));
    let before = files(dir.path());
    let text = |name: &str| {
        fs::read_to_string(dir.path().join("boot/grub").join(name)).unwrap_or_default()
    };
    // What GRUB is asked for next is there, whenever the power goes.
    let boots = |act: u32| {
        let asked = text("grubenv").contains("next_entry=A-quietcores-trial");
        let there = text("custom.cfg").contains("--id A-quietcores-trial {");
        assert!(!asked || there, "act {act}: an entry that is not there is asked for");
        asked
    };
    let run = |act: u32| {
        let mut command = Command::new(env::current_exe().unwrap());
        command.args(["--exact", name]).env(PLACE, dir.path());
        command.env("QUIETCORES_FAULT", format!("kill:{act}")).output().unwrap().status.success()
    };
    let mut asked = [0, 0];
    for (taking_back, asked) in (0..2).zip(&mut asked) {
        let mut act = 0;
        loop {
            act += 1;
            if taking_back == 1 {
                let trial = proposal(&tree, Term::OneBoot);
                quiet_boot::write(&tree, &state, &trial, &NoRunner).unwrap();
            }
            let whole = run(act);
            *asked += u32::from(boots(act));
            if let Some(undone) = quiet_boot::undo(&tree, &state, &NoRunner).unwrap() {
                assert!(undone.is_complete(), "act {act}: {undone:?}");
            }
            assert!(files(dir.path()) == before, "act {act}: not as before");
            if whole {
                break;
            }
        }
        assert!(act > 8, "only {act} acts");
    }
    assert!(asked.iter().all(|times| *times > 0), "{asked:?}");
}
