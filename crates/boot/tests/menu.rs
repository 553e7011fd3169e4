//! GRUB's menu is never cut short: its maker writes a file of ours, and only a whole menu takes the old one's place.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

use quiet_boot::{PersistRequest, Proposal, Ran, Runner, Term};
use quiet_linux::files::Tree;
use quiet_types::boot::BootParameters;
use std::{
    cell::RefCell,
    fs,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
};

const CFG: &str = "boot/grub/grub.cfg";
const OLD: &str = "menuentry 'Debian' {\n\tlinux /vmlinuz root=/dev/vda2 quiet\n}\n";
const WORD: &str = "isolcpus=managed_irq,domain,2-3";

/// A machine with Debian's GRUB.
struct Machine {
    dir: tempfile::TempDir,
    place: Tree,
}

impl Machine {
    fn new(update_grub: &str) -> Machine {
        let dir = quiet_testing::tree::of(&[
            (CFG, OLD),
            ("etc/default/grub", "GRUB_TIMEOUT=0\n"),
            ("usr/sbin/update-grub", update_grub),
            ("usr/bin/grub-script-check", ""),
        ]);
        fs::set_permissions(dir.path().join(CFG), fs::Permissions::from_mode(0o600)).unwrap();
        Machine { place: Tree::at(dir.path()).unwrap(), dir }
    }

    fn cfg(&self) -> String {
        fs::read_to_string(self.dir.path().join(CFG)).unwrap()
    }

    fn state(&self) -> PathBuf {
        self.dir.path().join("state")
    }

    fn proposal(&self) -> Proposal {
        let asked: BootParameters = serde_json::from_value(serde_json::json!({
            "cpus": "2-3", "housekeeping": "0-1", "mode": "sleeping_chain",
            "parameters": [{ "name": "isolcpus", "value": "managed_irq,domain,2-3", "why": "" }],
        }))
        .unwrap();
        let loader = quiet_boot::loaders(&self.place).remove(0);
        let request = PersistRequest {
            asked: &asked,
            loader: &loader,
            service: None,
            term: Term::Lasting,
            kernel: None,
        };
        quiet_boot::propose(&self.place, &request).unwrap()
    }
}

/// Does as grub-mkconfig does: cuts the file to nothing, fills it again. What stands in the menu at
/// each instant is looked at.
struct Maker<'a> {
    machine: &'a Machine,
    text: &'a str,
    /// Whether it fails in the middle.
    fails: bool,
    seen: RefCell<Vec<String>>,
}

impl<'a> Maker<'a> {
    fn of(machine: &'a Machine, text: &'a str) -> Maker<'a> {
        Maker { machine, text, fails: false, seen: RefCell::default() }
    }
}

impl Runner for Maker<'_> {
    fn run(&self, command: &[String]) -> Result<Ran, String> {
        if command[0].ends_with("script-check") {
            let text = fs::read_to_string(&command[1]).unwrap();
            return if text.contains("menuentry") {
                Ok(Ran::Done)
            } else {
                Err("a syntax error".into())
            };
        }
        let named = command.iter().rposition(|word| word == "-o").map(|at| command[at + 1].clone());
        let to = named.map_or_else(|| self.machine.dir.path().join(CFG), PathBuf::from);
        let (head, tail) = self.text.split_at(self.text.len() / 2);
        for part in ["", head] {
            fs::write(&to, part).unwrap();
            self.seen.borrow_mut().push(self.machine.cfg());
        }
        if self.fails {
            return Err("no space left".into());
        }
        fs::write(&to, [head, tail].concat()).unwrap();
        self.seen.borrow_mut().push(self.machine.cfg());
        Ok(Ran::Done)
    }
}

fn with_word() -> String {
    OLD.replace("quiet", &format!("quiet {WORD}"))
}

const USUAL: &str = "#!/bin/sh\nset -e\nexec grub-mkconfig -o /boot/grub/grub.cfg \"$@\"\n";

#[test]
fn the_menu_is_whole_while_its_maker_runs() {
    let machine = Machine::new(USUAL);
    let new = with_word();
    let maker = Maker::of(&machine, &new);
    quiet_boot::write(&machine.place, &machine.state(), &machine.proposal(), &maker).unwrap();
    assert_eq!(machine.cfg(), new);
    let mode = fs::metadata(machine.dir.path().join(CFG)).unwrap().permissions().mode();
    assert_eq!(mode & 0o7777, 0o600);
    assert!(maker.seen.borrow().iter().all(|seen| seen == OLD), "{:?}", maker.seen);
    // A kernel came meanwhile: the menu is made anew, in the same way.
    let later = format!("{new}# a kernel more\n");
    fs::write(machine.dir.path().join(CFG), &later).unwrap();
    let after = format!("{OLD}# a kernel more\n");
    let maker = Maker::of(&machine, &after);
    let undone = quiet_boot::undo(&machine.place, &machine.state(), &maker).unwrap().unwrap();
    assert!(undone.is_complete(), "{undone:?}");
    assert_eq!(machine.cfg(), after);
    assert!(maker.seen.borrow().iter().all(|seen| *seen == later), "{:?}", maker.seen);
    assert_eq!(fs::read_dir(machine.dir.path().join("boot/grub")).unwrap().count(), 1);
}

#[test]
fn a_menu_that_came_out_wrong_never_stands_where_grub_reads() {
    let cases = [
        ("", false, "empty"),
        ("nonsense", false, "a syntax error"),
        (OLD, false, "without isolcpus"),
        (OLD, true, "no space left"),
    ];
    for (text, fails, why) in cases {
        let machine = Machine::new(USUAL);
        let maker = Maker { fails, ..Maker::of(&machine, text) };
        let error =
            quiet_boot::write(&machine.place, &machine.state(), &machine.proposal(), &maker)
                .unwrap_err()
                .to_string();
        assert!(error.contains(why) && error.contains("was put back"), "{error}");
        assert_eq!(machine.cfg(), OLD);
        assert!(maker.seen.borrow().iter().all(|seen| seen == OLD), "{text}: {:?}", maker.seen);
        assert!(!machine.dir.path().join("etc/default/grub.d/quietcores.cfg").exists());
    }
}

#[test]
fn a_maker_that_writes_only_in_place_is_not_run() {
    let machine = Machine::new("#!/bin/sh\ngrub-mkconfig > /boot/grub/grub.cfg\n");
    let maker = Maker::of(&machine, OLD);
    let error = quiet_boot::write(&machine.place, &machine.state(), &machine.proposal(), &maker)
        .unwrap_err()
        .to_string();
    assert!(error.contains("let it end with \"$@\""), "{error}");
    assert!(maker.seen.borrow().is_empty());
    assert!(!Path::new(&machine.state().join("persist.json")).exists());
}
