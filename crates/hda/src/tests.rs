//! Cards on machines that are trees of files, and a kernel that binds drivers there.

use crate::{
    find::{DEVICES, Fence, cards, find, may_take, place},
    loan::GiveBack,
    note::{CardNote, forget, put_back_left, read, taken},
};
use quiet_linux::{Hindrance, Root, files::StateDir};
use std::{
    cell::Cell,
    fs, io,
    os::unix::fs::symlink,
    path::{Path, PathBuf},
};
use tempfile::TempDir;

const CARD: &str = "0000:00:1b.0";

struct Machine {
    dir: TempDir,
    /// Writes until the writer is killed.
    left: Cell<u32>,
}

impl Machine {
    fn new() -> Machine {
        let machine = Machine { dir: tempfile::tempdir().unwrap(), left: Cell::new(u32::MAX) };
        machine.device(CARD, "0x040300", Some("snd_hda_intel"), Some("7"));
        machine.file(
            "sys/kernel/iommu_groups/7/reserved_regions",
            "0x00000000fee00000 0x00000000feefffff msi\n",
        );
        machine.file("sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages", "3\n");
        machine.file("proc/sys/kernel/random/boot_id", "one\n");
        machine.file("proc/asound/cards", " 0 [PCH            ]: HDA-Intel - HDA Intel PCH\n");
        machine.file("proc/400/stat", &format!("400 (play (x) S {}77\n", "1 ".repeat(18)));
        fs::create_dir_all(machine.path(&format!("{DEVICES}/{CARD}/sound/card0"))).unwrap();
        machine
    }

    fn path(&self, path: &str) -> PathBuf {
        self.dir.path().join(path.trim_start_matches('/'))
    }

    fn file(&self, path: &str, text: &str) {
        let path = self.path(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    fn device(&self, address: &str, class: &str, driver: Option<&str>, group: Option<&str>) {
        self.file(&format!("{DEVICES}/{address}/class"), class);
        self.file(&format!("{DEVICES}/{address}/driver_override"), "(null)\n");
        if let Some(driver) = driver {
            self.bind(address, Some(driver));
        }
        if let Some(group) = group {
            let to = format!("../../../../kernel/iommu_groups/{group}");
            symlink(to, self.path(&format!("{DEVICES}/{address}/iommu_group"))).unwrap();
            self.file(&format!("sys/kernel/iommu_groups/{group}/devices/{address}"), "");
        }
    }

    fn bind(&self, address: &str, driver: Option<&str>) {
        let link = self.path(&format!("{DEVICES}/{address}/driver"));
        let _ = fs::remove_file(&link);
        if let Some(driver) = driver {
            fs::create_dir_all(self.path(&format!("sys/bus/pci/drivers/{driver}"))).unwrap();
            symlink(format!("../../drivers/{driver}"), link).unwrap();
        }
    }

    fn root(&self) -> Root {
        Root::at(self.dir.path()).unwrap()
    }

    /// As the kernel takes it; killed after so many writes.
    fn write(&self, path: &str, value: &str) -> io::Result<()> {
        let left = self.left.get().checked_sub(1).ok_or_else(|| io::Error::other("killed"))?;
        self.left.set(left);
        if path.ends_with("/unbind") {
            self.bind(CARD, None);
        } else if path.ends_with("drivers_probe") {
            let text = fs::read_to_string(self.path(&format!("{DEVICES}/{CARD}/driver_override")))?;
            let own = Some(text.trim()).filter(|name| *name != "(null)");
            self.bind(CARD, own.or(Some("snd_hda_intel")));
        } else if let Some(driver) = path.strip_suffix("/bind") {
            self.bind(CARD, driver.rsplit('/').next());
        } else {
            let value = if value == "\n" { "(null)\n" } else { value };
            fs::write(self.path(path), value)?;
        }
        Ok(())
    }

    fn state(&self) -> (Option<String>, String, String) {
        let text = |path: &str| fs::read_to_string(self.path(path)).unwrap().trim().to_owned();
        let driver = fs::read_link(self.path(&format!("{DEVICES}/{CARD}/driver"))).ok();
        let driver = driver.map(|to| to.file_name().unwrap().to_string_lossy().into_owned());
        let pages = text("sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages");
        (driver, text(&format!("{DEVICES}/{CARD}/driver_override")), pages)
    }

    fn refusal(&self, allow_dma: bool) -> String {
        let root = self.root();
        may_take(&root, &find(&root, None).unwrap(), allow_dma).unwrap_err().to_string()
    }
}

#[test]
fn a_card_is_found_by_its_address_its_number_and_its_name() {
    let machine = Machine::new();
    let root = machine.root();
    let card = find(&root, None).unwrap();
    assert_eq!(
        (card.address.as_str(), card.card, card.group.as_deref()),
        (CARD, Some(0), Some("7"))
    );
    for name in [CARD, "00:1b.0", "hw:0", "0", "PCH", "hw:PCH"] {
        assert_eq!(find(&root, Some(name)).unwrap(), card, "{name}");
    }
    let said = find(&root, Some("hw:1")).unwrap_err().to_string();
    assert!(said.contains("0000:00:1b.0 (hw:0)"), "{said}");
    machine.device("0000:01:00.1", "0x040300", Some("snd_hda_intel"), Some("9"));
    let said = find(&machine.root(), None).unwrap_err().to_string();
    assert!(said.contains("several are here: 0000:00:1b.0 (hw:0), 0000:01:00.1"), "{said}");
    assert_eq!(cards(&machine.root()).len(), 2);
}

#[test]
fn a_card_that_cannot_be_had_is_refused_with_the_reason() {
    let machine = Machine::new();
    let root = machine.root();
    let card = find(&root, None).unwrap();
    assert_eq!(may_take(&root, &card, false).unwrap(), Fence::Iommu);
    // Somebody holds it.
    fs::create_dir_all(machine.path("proc/400/fd")).unwrap();
    machine.file("proc/400/comm", "wireplumber\n");
    symlink("/dev/snd/controlC0", machine.path("proc/400/fd/9")).unwrap();
    assert!(machine.refusal(false).contains("in use by wireplumber (process 400)"));
    fs::remove_file(machine.path("proc/400/fd/9")).unwrap();
    // Another card's files are nothing to it.
    symlink("/dev/snd/pcmC01D0p", machine.path("proc/400/fd/9")).unwrap();
    assert_eq!(may_take(&root, &card, false).unwrap(), Fence::Iommu);
    // Bridges and devices without a driver are no hindrance; others are.
    machine.device("0000:00:1c.0", "0x060400", Some("pcieport"), Some("7"));
    machine.device("0000:00:1f.0", "0x060100", None, Some("7"));
    assert_eq!(may_take(&machine.root(), &card, false).unwrap(), Fence::Iommu);
    machine.device("0000:00:1f.4", "0x0c0500", Some("i801_smbus"), Some("7"));
    assert!(machine.refusal(false).contains("0000:00:1f.4 (i801_smbus)"));
    assert!(machine.refusal(true).contains("iommu=pt"));
    machine.file("sys/kernel/iommu_groups/7/type", "identity\n");
    assert_eq!(may_take(&machine.root(), &card, true).unwrap(), Fence::None);
    // No IOMMU.
    fs::remove_file(machine.path(&format!("{DEVICES}/{CARD}/iommu_group"))).unwrap();
    assert!(machine.refusal(false).contains("no IOMMU that is on"));
    assert_eq!(
        may_take(&machine.root(), &find(&machine.root(), None).unwrap(), true).unwrap(),
        Fence::None
    );
    // Signal processors.
    machine.bind(CARD, Some("sof-audio-pci-intel-tgl"));
    assert!(machine.refusal(true).contains("signal processor"));
}

#[test]
fn the_shared_memory_lies_where_nothing_is_reserved() {
    let machine = Machine::new();
    assert_eq!(place(&machine.root(), "7", 1 << 20), 16 << 20);
    machine.file(
        "sys/kernel/iommu_groups/7/reserved_regions",
        "0x0 0x1ffffff direct\nnonsense\n0x20fffff 0x2ffffff direct\n",
    );
    assert_eq!(place(&machine.root(), "7", 1 << 20), 3 << 24);
}

#[test]
fn whoever_is_killed_at_any_write_leaves_what_is_put_back() {
    for bare in [false, true] {
        for writes in 0..8 {
            let machine = Machine::new();
            let before = machine.state();
            let (root, state) = (machine.root(), machine.path("state"));
            let dir = StateDir::make(&state).unwrap();
            let write = |path: &str, value: &str| machine.write(path, value);
            let note = CardNote::of(&root, CARD, 400).unwrap();
            let note = if bare { note.with_huge_page(&root).unwrap() } else { note };
            note.keep(&dir).unwrap();
            assert_eq!(read(&dir).unwrap().as_ref(), Some(&note));
            machine.left.set(writes);
            let done =
                if bare { note.set_free(&root, &write) } else { note.hand_over(&root, &write) };
            if done.is_ok() {
                let driver = machine.state().0;
                assert_eq!(driver.as_deref(), if bare { None } else { Some("vfio-pci") });
            }
            machine.left.set(u32::MAX);
            // It plays: nothing is taken from under it, and it is named.
            let found = taken(&root, &state).unwrap().unwrap();
            assert_eq!((found.address.as_str(), found.process), (CARD, Some(400)));
            assert_eq!(found.driver, before.0);
            assert_eq!(put_back_left(&root, &state, &write).unwrap(), None);
            // It is gone, or another process has its number.
            machine.file("proc/400/stat", &format!("400 (other) S {}78\n", "1 ".repeat(18)));
            assert_eq!(taken(&root, &state).unwrap().unwrap().process, None);
            if bare {
                // There is no configuration space to write to in a tree.
                note.put_back(&root, &write).unwrap();
                forget(&dir).unwrap();
            } else {
                assert_eq!(put_back_left(&root, &state, &write).unwrap().as_deref(), Some(CARD));
            }
            assert_eq!(machine.state(), before, "killed after {writes} writes");
            assert!(read(&dir).unwrap().is_none());
            assert_eq!(taken(&root, &state).unwrap(), None);
            assert_eq!(put_back_left(&root, &state, &write).unwrap(), None);
        }
    }
}

#[test]
fn what_cannot_be_told_of_boot_and_player_is_no_reason_to_forget_the_card() {
    let machine = Machine::new();
    let (root, state) = (machine.root(), machine.path("state"));
    let dir = StateDir::make(&state).unwrap();
    let write = |path: &str, value: &str| machine.write(path, value);
    let note = CardNote::of(&root, CARD, 400).unwrap();
    note.keep(&dir).unwrap();
    note.hand_over(&root, &write).unwrap();
    let boot = "proc/sys/kernel/random/boot_id";
    // Masked, and not to be read.
    for unread in [false, true] {
        machine.file(boot, "");
        if unread {
            fs::remove_file(machine.path(boot)).unwrap();
        }
        assert!(CardNote::of(&root, CARD, 400).is_err());
        assert!(note.put_back(&root, &write).is_err());
        assert!(taken(&root, &state).is_err());
        assert!(put_back_left(&root, &state, &write).is_err());
    }
    machine.file(boot, "one\n");
    // The player cannot be looked at.
    let stat = machine.path("proc/400/stat");
    fs::remove_file(&stat).unwrap();
    fs::create_dir(&stat).unwrap();
    assert!(put_back_left(&root, &state, &write).is_err());
    assert_eq!(machine.state().0.as_deref(), Some("vfio-pci"));
    assert!(read(&dir).unwrap().is_some());
    fs::remove_dir(&stat).unwrap();
    assert_eq!(put_back_left(&root, &state, &write).unwrap().as_deref(), Some(CARD));
}

#[test]
fn a_guard_gives_back_its_own_card_and_not_that_of_who_plays_next() {
    let machine = Machine::new();
    let (root, state) = (machine.root(), machine.path("state"));
    let dir = StateDir::make(&state).unwrap();
    let write = |path: &str, value: &str| machine.write(path, value);
    let first = CardNote::of(&root, CARD, 400).unwrap();
    first.keep(&dir).unwrap();
    first.hand_over(&root, &write).unwrap();
    // Somebody else is at work: nothing is given up.
    let mut guard = GiveBack::new(&state, false);
    let lock = dir.lock().unwrap();
    let (hindrance, _) = guard.go_on(&root, None, &write).unwrap_err();
    assert_eq!(hindrance, Hindrance::Busy);
    // Who holds the lock puts it back, and plays.
    first.put_back(&root, &write).unwrap();
    forget(&dir).unwrap();
    machine.file("proc/401/stat", &format!("401 (play) S {}99\n", "1 ".repeat(18)));
    let next = CardNote::of(&root, CARD, 401).unwrap();
    next.keep(&dir).unwrap();
    next.hand_over(&root, &write).unwrap();
    drop(lock);
    guard.go_on(&root, None, &write).unwrap();
    assert_eq!(machine.state().0.as_deref(), Some("vfio-pci"));
    assert_eq!(read(&dir).unwrap(), Some(next));
    // A refusal is no end either.
    let mut guard = GiveBack::new(&state, false);
    machine.left.set(0);
    assert_eq!(guard.go_on(&root, None, &write).unwrap_err().0, Hindrance::Refused);
    machine.left.set(u32::MAX);
    guard.go_on(&root, None, &write).unwrap();
    assert_eq!(machine.state().0.as_deref(), Some("snd_hda_intel"));
    assert_eq!(read(&dir).unwrap(), None);
}

#[test]
fn what_somebody_else_has_made_of_the_card_stays() {
    let machine = Machine::new();
    let (root, state) = (machine.root(), machine.path("state"));
    let dir = StateDir::make(&state).unwrap();
    let write = |path: &str, value: &str| machine.write(path, value);
    let note = CardNote::of(&root, CARD, 400).unwrap();
    note.keep(&dir).unwrap();
    note.hand_over(&root, &write).unwrap();
    machine.bind(CARD, Some("another"));
    note.put_back(&root, &write).unwrap();
    assert_eq!(machine.state().0.as_deref(), Some("another"));
    // A boot has undone everything.
    machine.bind(CARD, Some("vfio-pci"));
    machine.file("proc/sys/kernel/random/boot_id", "two\n");
    note.put_back(&root, &write).unwrap();
    assert_eq!(machine.state().0.as_deref(), Some("vfio-pci"));
}

#[test]
fn a_note_that_is_none_is_refused_and_leads_nowhere() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("state");
    let state = StateDir::make(&path).unwrap();
    let note = |address: &str, driver: &str| {
        format!(
            "{{\"schema\":\"quietcores.card/1\",\"boot_id\":\"b\",\"address\":\"{address}\",\"driver\":\"{driver}\",\
             \"override\":null,\"player\":{{\"pid\":1,\"start\":1}}}}"
        )
    };
    let keep = |text: &str| fs::write(Path::new(&path).join("card.json"), text).unwrap();
    keep(&note(CARD, "snd_hda_intel"));
    assert!(read(&state).unwrap().is_some());
    for bad in [note("../../x", "a"), note(CARD, "../x"), "{torn".into(), String::new()] {
        keep(&bad);
        assert!(read(&state).is_err(), "{bad}");
    }
}
