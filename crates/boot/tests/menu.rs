//! GRUB's menu is never cut short: its maker writes a file of ours, and only a whole menu takes the old one's place.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

use quiet_boot::{PersistRequest, Proposal, Ran, Runner, Term};
use quiet_linux::files::Tree;
use quiet_types::boot::BootParameters;
use std::{
    cell::{Cell, RefCell},
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
    /// With an update-grub that hands its arguments on, as the usual one does.
    fn usual() -> Machine {
        Machine::new(USUAL)
    }

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
        self.proposed(Term::Lasting)
    }

    fn proposed(&self, term: Term) -> Proposal {
        let asked: BootParameters = serde_json::from_value(serde_json::json!({
            "cpus": "2-3", "housekeeping": "0-1", "mode": "sleeping_chain",
            "parameters": [{ "name": "isolcpus", "value": "managed_irq,domain,2-3", "why": "" }],
        }))
        .unwrap();
        let loader = quiet_boot::loaders(&self.place).remove(0);
        let request =
            PersistRequest { asked: &asked, loader: &loader, service: None, term, kernel: None };
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

/// A machine on which kernels are installed while its menu is made, each with a package that has the menu made anew.
struct Upgraded<'a> {
    machine: &'a Machine,
    kernels: Cell<u32>,
    /// How many come, one in the midst of each making.
    come: Cell<u32>,
}

impl Upgraded<'_> {
    /// The menu as its program makes it now.
    fn menu(&self) -> String {
        let drop_in = self.machine.dir.path().join("etc/default/grub.d/quietcores.cfg");
        let word = if drop_in.exists() { format!(" {WORD}") } else { String::new() };
        let entry = |n| {
            format!(
                "menuentry 'Debian {n}' {{\n\tlinux /vmlinuz-{n} root=/dev/vda2 quiet{word}\n}}\n"
            )
        };
        (0..self.kernels.get()).map(entry).collect()
    }

    /// By the package of a kernel.
    fn install(&self) {
        self.kernels.set(self.kernels.get() + 1);
        fs::write(self.machine.dir.path().join(CFG), self.menu()).unwrap();
    }
}

impl Runner for Upgraded<'_> {
    fn run(&self, command: &[String]) -> Result<Ran, String> {
        let Some(at) = command.iter().rposition(|word| word == "-o") else { return Ok(Ran::Done) };
        let text = self.menu();
        if self.come.get() > 0 {
            self.come.set(self.come.get() - 1);
            self.install();
        }
        fs::write(&command[at + 1], text).unwrap();
        Ok(Ran::Done)
    }
}

#[test]
fn a_kernel_that_comes_while_the_menu_is_made_keeps_its_entry() {
    let machine = Machine::usual();
    let with = Upgraded { machine: &machine, kernels: Cell::new(0), come: Cell::new(1) };
    with.install();
    quiet_boot::write(&machine.place, &machine.state(), &machine.proposal(), &with).unwrap();
    assert_eq!(with.kernels.get(), 2);
    assert!(machine.cfg().contains(WORD));
    assert_eq!(machine.cfg(), with.menu());
    // The old menu knows one kernel less: it does not come back.
    let undone = quiet_boot::undo(&machine.place, &machine.state(), &with).unwrap().unwrap();
    assert!(undone.is_complete(), "{undone:?}");
    assert!(!machine.cfg().contains(WORD));
    assert_eq!(machine.cfg(), with.menu());
    // Another one comes while it is taken back.
    quiet_boot::write(&machine.place, &machine.state(), &machine.proposal(), &with).unwrap();
    with.install();
    with.come.set(1);
    let undone = quiet_boot::undo(&machine.place, &machine.state(), &with).unwrap().unwrap();
    assert!(undone.is_complete(), "{undone:?}");
    assert_eq!((with.kernels.get(), machine.cfg()), (4, with.menu()));
}

#[test]
fn a_kernel_that_was_there_and_not_yet_in_the_menu_keeps_its_entry() {
    let machine = Machine::usual();
    let with = Upgraded { machine: &machine, kernels: Cell::new(0), come: Cell::new(0) };
    with.install();
    // Its files are there; its package has the menu made a moment later, which comes out as ours.
    with.kernels.set(2);
    quiet_boot::write(&machine.place, &machine.state(), &machine.proposal(), &with).unwrap();
    fs::write(machine.dir.path().join(CFG), with.menu()).unwrap();
    let undone = quiet_boot::undo(&machine.place, &machine.state(), &with).unwrap().unwrap();
    assert!(undone.is_complete(), "{undone:?}");
    assert_eq!(machine.cfg(), with.menu());
}

#[test]
fn a_menu_that_others_write_again_and_again_stays_theirs() {
    let machine = Machine::usual();
    let with = Upgraded { machine: &machine, kernels: Cell::new(0), come: Cell::new(1000) };
    with.install();
    let error = quiet_boot::write(&machine.place, &machine.state(), &machine.proposal(), &with)
        .unwrap_err()
        .to_string();
    assert!(error.contains("written again and again"), "{error}");
    assert!(error.contains("run `quietcores unpersist`"), "{error}");
    with.come.set(0);
    let undone = quiet_boot::undo(&machine.place, &machine.state(), &with).unwrap().unwrap();
    assert!(undone.is_complete(), "{undone:?}");
    assert_eq!(machine.cfg(), with.menu());
    assert!(quiet_boot::record(&machine.state()).unwrap().is_none());
}
