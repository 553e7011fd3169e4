//! `persist` and `unpersist` on trees of boot loaders' files: what is written is taken away to the
//! byte, also when killed at any act; what belongs to others is never touched.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

use quiet_testing::{
    Why, skip,
    tree::{copy, fixture, put},
};
use std::{
    collections::BTreeMap,
    fs,
    os::unix::fs::{MetadataExt, PermissionsExt},
    path::{Path, PathBuf},
    process::{Command, Output},
};

const LOADERS: [(&str, &str); 15] = [
    ("debian-grub", "grub"),
    ("arch-grub", "grub-mkconfig"),
    ("fedora-bls", "grub-bls"),
    ("rhel8-kernelopts", "grub-bls"),
    ("systemd-boot", "systemd-boot"),
    ("debian-uboot-menu", "extlinux"),
    ("syslinux", "extlinux"),
    ("raspberry-pi", "raspberry-pi"),
    ("raspberry-pi-old", "raspberry-pi"),
    ("armbian", "armbian"),
    ("armbian-extraargs", "armbian"),
    ("beaglebone-uenv", "uenv"),
    ("khadas-env", "uenv"),
    ("khadas-uenv", "uenv"),
    ("amlogic-uenv", "uenv"),
];
const WORDS: &str = "isolcpus=managed_irq,domain,2-3 irqaffinity=0-1 skew_tick=1";

/// A machine with four CPUs that is started by a loader of fixtures/boot.
struct Machine(tempfile::TempDir);

impl Machine {
    fn with(loader: &str) -> Machine {
        let dir = tempfile::tempdir().unwrap();
        copy(&fixture("boot").join(loader), dir.path());
        let machine = Machine(dir);
        for cpu in 0..4 {
            let base = format!("sys/devices/system/cpu/cpu{cpu}");
            machine.put(&format!("{base}/topology/core_id"), &format!("{cpu}\n"));
            machine.put(&format!("{base}/topology/physical_package_id"), "0\n");
            machine.put(&format!("{base}/topology/thread_siblings_list"), &format!("{cpu}\n"));
        }
        for (name, value) in [
            ("online", "0-3"),
            ("possible", "0-3"),
            ("present", "0-3"),
            ("isolated", ""),
            ("nohz_full", ""),
        ] {
            machine.put(&format!("sys/devices/system/cpu/{name}"), &format!("{value}\n"));
        }
        machine.kernel(match loader {
            "raspberry-pi" | "raspberry-pi-old" => "6.12.47+rpt-rpi-v8",
            _ => "6.12.48+deb13-amd64",
        });
        machine.put("proc/cmdline", "root=/dev/vda2 ro quiet\n");
        machine.put("proc/irq/default_smp_affinity", "f\n");
        machine
    }

    /// The kernel that runs, with what a shield can ask for.
    fn kernel(&self, release: &str) {
        self.put("proc/sys/kernel/osrelease", &format!("{release}\n"));
        self.put(
            &format!("boot/config-{release}"),
            "CONFIG_CPU_ISOLATION=y\nCONFIG_NO_HZ_FULL=y\nCONFIG_RCU_NOCB_CPU=y\nCONFIG_IRQ_FORCED_THREADING=y\n",
        );
    }

    fn path(&self, path: &str) -> PathBuf {
        self.0.path().join(path)
    }

    fn put(&self, path: &str, text: &str) {
        put(self.0.path(), path, text);
    }

    fn text(&self, path: &str) -> String {
        fs::read_to_string(self.path(path)).unwrap_or_else(|e| panic!("{path}: {e}"))
    }

    fn edit(&self, path: &str, from: &str, to: &str) {
        let text = self.text(path);
        assert!(text.contains(from), "{path} has no {from}");
        fs::write(self.path(path), text.replace(from, to)).unwrap();
    }

    fn command(&self, verb: &str, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_quietcores"));
        command.arg(verb).args(arguments).arg("--root").arg(self.0.path());
        command
    }

    fn persist(&self, arguments: &[&str]) -> Output {
        let mut command = self.command("persist", arguments);
        command.args(["--program", "/usr/local/bin/quietcores"]).output().unwrap()
    }

    fn unpersist(&self) -> Output {
        self.command("unpersist", &[]).output().unwrap()
    }

    /// Every file, link and directory with mode and content, but for the program's own.
    fn tree(&self) -> BTreeMap<String, String> {
        let mut seen = BTreeMap::new();
        walk(self.0.path(), self.0.path(), &mut seen);
        seen.retain(|path, _| !path.starts_with("var"));
        seen
    }
}

fn walk(top: &Path, dir: &Path, seen: &mut BTreeMap<String, String>) {
    for entry in fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        let name = path.strip_prefix(top).unwrap().display().to_string();
        let meta = fs::symlink_metadata(&path).unwrap();
        if meta.is_dir() {
            seen.insert(name, format!("dir {:o}", meta.mode()));
            walk(top, &path, seen);
        } else if meta.is_symlink() {
            seen.insert(name, format!("link {}", fs::read_link(&path).unwrap().display()));
        } else {
            let bytes = fs::read(&path).unwrap();
            let text = format!("{:o} {} {}", meta.mode(), meta.uid(), bytes.escape_ascii());
            seen.insert(name, text);
        }
    }
}

fn said(output: &Output) -> String {
    format!(
        "exit {:?}\n{}{}",
        output.status.code(),
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    )
}

#[track_caller]
fn ends(output: &Output, code: i32) -> String {
    let said = said(output);
    assert_eq!(output.status.code(), Some(code), "{said}");
    said
}

#[track_caller]
fn same(before: &BTreeMap<String, String>, after: &BTreeMap<String, String>) {
    for (path, text) in before {
        assert_eq!(after.get(path), Some(text), "{path}");
    }
    for path in after.keys() {
        assert!(before.contains_key(path), "{path} is new");
    }
}

#[test]
fn every_loader_gets_the_words_and_gives_them_back_to_the_byte() {
    for (fixture, loader) in LOADERS {
        let machine = Machine::with(fixture);
        let before = machine.tree();
        let said = ends(&machine.persist(&["--cpus", "2-3", "--yes"]), 0);
        assert!(said.contains(&format!("boot loader: {loader}\n")), "{fixture}: {said}");
        let after = machine.tree();
        let changed: Vec<&String> =
            after.keys().filter(|path| before.get(*path) != after.get(*path)).collect();
        let with_words = changed.iter().filter(|path| after[**path].contains(WORDS)).count();
        assert!(with_words > 0, "{fixture}: {changed:?}");
        for path in changed {
            let ours = path.contains("quietcores") || after[path].starts_with("dir");
            assert!(ours || after[path].contains(WORDS), "{fixture}: {path} has changed");
        }
        assert!(!after.keys().any(|path| path.ends_with("quietcores-new")), "{fixture}");
        let said = ends(&machine.unpersist(), 0);
        assert!(said.contains("as it was"), "{fixture}: {said}");
        same(&before, &machine.tree());
        assert!(!machine.path("var/lib/quietcores/persist.json").exists());
        ends(&machine.unpersist(), 0);
    }
}

#[test]
fn rescue_entries_and_other_programs_are_left_alone() {
    let machine = Machine::with("fedora-bls");
    ends(&machine.persist(&["--cpus", "2-3", "--yes"]), 0);
    let entries = machine.path("boot/loader/entries");
    for entry in fs::read_dir(entries).unwrap().map(|entry| entry.unwrap().path()) {
        let rescue = entry.display().to_string().contains("rescue");
        assert_ne!(fs::read_to_string(&entry).unwrap().contains("isolcpus"), rescue, "{entry:?}");
    }
    let machine = Machine::with("syslinux");
    ends(&machine.persist(&["--cpus", "2-3", "--yes"]), 0);
    let text = machine.text("boot/syslinux/syslinux.cfg");
    assert_eq!(text.matches(WORDS).count(), 2, "{text}");
    assert_eq!(text.matches('\n').count(), text.matches("\r\n").count(), "{text}");
}

#[test]
fn the_entry_of_another_system_on_the_same_esp_is_left_alone() {
    let machine = Machine::with("systemd-boot");
    machine.put("proc/cmdline", "root=UUID=31de ro quiet\n");
    let other = machine.text("efi/loader/entries/windows-side.conf");
    ends(&machine.persist(&["--cpus", "2-3", "--yes"]), 0);
    assert_eq!(machine.text("efi/loader/entries/windows-side.conf"), other);
    let id = "7a0c6f2d5b4e4c0f9d1e2b3c4d5e6f70";
    let ours = machine.text(&format!("efi/loader/entries/{id}-6.12.48-amd64.conf"));
    assert!(ours.contains(WORDS), "{ours}");
    ends(&machine.unpersist(), 0);
    machine.put("etc/machine-id", "0123456789abcdef0123456789abcdef\n");
    machine.put("proc/cmdline", "root=PARTUUID=aa rw\n");
    ends(&machine.persist(&["--cpus", "2-3", "--yes"]), 0);
    assert!(machine.text("efi/loader/entries/windows-side.conf").contains(WORDS));
    let theirs = machine.text(&format!("efi/loader/entries/{id}-6.12.48-amd64.conf"));
    assert!(!theirs.contains(WORDS), "{theirs}");
}

#[test]
fn a_block_behind_a_link_is_changed_where_it_lies_and_keeps_its_size() {
    let machine = Machine::with("rhel8-kernelopts");
    ends(&machine.persist(&["--cpus", "2-3", "--yes"]), 0);
    assert!(fs::symlink_metadata(machine.path("boot/grub2/grubenv")).unwrap().is_symlink());
    let block = machine.text("boot/efi/EFI/redhat/grubenv");
    assert_eq!(block.len(), 1024);
    assert!(block.contains(&format!("rhgb quiet {WORDS} \n")), "{block}");
}

#[test]
fn the_unit_applies_the_same_cpus_and_is_enabled() {
    let machine = Machine::with("debian-grub");
    let chain = machine.path("tmp-chain.toml");
    fs::write(&chain, "[chain]\nname = \"x\"\ncpus = \"2-3\"\n").unwrap();
    let said = ends(&machine.persist(&[chain.to_str().unwrap(), "--yes", "--never-sleep"]), 0);
    assert!(
        said.contains("Not run, because this is a tree of files: /usr/sbin/update-grub"),
        "{said}"
    );
    let unit = machine.text("etc/systemd/system/quietcores.service");
    let start = "ExecStart=/usr/local/bin/quietcores apply /etc/quietcores/chain.toml --cpus 2-3 --never-sleep --yes\n";
    assert!(unit.contains(start), "{unit}");
    let link = machine.path("etc/systemd/system/multi-user.target.wants/quietcores.service");
    assert_eq!(fs::read_link(link).unwrap(), Path::new("/etc/systemd/system/quietcores.service"));
    let watch = machine.text("etc/systemd/system/quietcores-watch.service");
    let start =
        "ExecStart=/usr/local/bin/quietcores watch /etc/quietcores/chain.toml --never-sleep\n";
    assert!(watch.contains(start), "{watch}");
    assert_eq!(machine.text("etc/quietcores/chain.toml"), fs::read_to_string(&chain).unwrap());
    let drop_in = machine.text("etc/default/grub.d/quietcores.cfg");
    assert!(drop_in.contains("nohz_full=2-3 rcu_nocbs=2-3"), "{drop_in}");
}

#[test]
fn a_dry_run_shows_the_change_and_writes_nothing() {
    let machine = Machine::with("raspberry-pi");
    let before = machine.tree();
    let said = ends(&machine.persist(&["--cpus", "3", "--dry-run"]), 0);
    for part in
        ["--- a/boot/firmware/cmdline.txt\n", "\n+console=serial0", "isolcpus=managed_irq,domain,3"]
    {
        assert!(said.contains(part), "{said}");
    }
    same(&before, &machine.tree());
    assert!(!machine.path("var").exists());
    let output = machine.persist(&["--cpus", "3", "--dry-run", "--json"]);
    let json: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(json["schema"], "quietcores.persisted/1");
    assert_eq!(json["written"], false);
    assert_eq!(json["asked"]["cpus"], "3");
}

#[test]
fn killed_at_any_act_the_machine_boots_and_is_put_back() {
    if !cfg!(debug_assertions) {
        return skip(Why::Release);
    }
    for fixture in ["debian-grub", "fedora-bls"] {
        let machine = Machine::with(fixture);
        let before = machine.tree();
        ends(&machine.persist(&["--cpus", "2-3", "--yes"]), 0);
        let after = machine.tree();
        ends(&machine.unpersist(), 0);
        let mut acts = 0;
        loop {
            acts += 1;
            let mut command = machine.command("persist", &["--cpus", "2-3", "--yes"]);
            command.args(["--program", "/usr/local/bin/quietcores"]);
            let killed = command.env("QUIETCORES_FAULT", format!("kill:{acts}")).output().unwrap();
            for (path, text) in machine.tree() {
                // Each file is the old or the new one, whole; only texts aside may lie about.
                let known = [before.get(&path), after.get(&path)].contains(&Some(&text));
                assert!(
                    known || path.ends_with(".quietcores-new"),
                    "{fixture}, act {acts}: {path}"
                );
                assert!(!path.ends_with(".conf.quietcores-new") || path.contains("/."), "{path}");
            }
            ends(&machine.unpersist(), 0);
            same(&before, &machine.tree());
            if killed.status.success() {
                break;
            }
        }
        assert!(acts > 10, "{fixture}: only {acts} acts");
    }
}

#[test]
fn unpersist_killed_at_any_act_is_ended_by_the_next_one() {
    if !cfg!(debug_assertions) {
        return skip(Why::Release);
    }
    let machine = Machine::with("fedora-bls");
    let before = machine.tree();
    for acts in 1.. {
        ends(&machine.persist(&["--cpus", "2-3", "--yes"]), 0);
        let mut command = machine.command("unpersist", &[]);
        let killed = command.env("QUIETCORES_FAULT", format!("kill:{acts}")).output().unwrap();
        let mut command = machine.command("persist", &["--cpus", "2-3", "--yes"]);
        if !killed.status.success() && machine.path("var/lib/quietcores/persist.json").exists() {
            let why = said(&command.output().unwrap());
            assert!(why.contains("did not come to its end"), "{why}");
        }
        ends(&machine.unpersist(), 0);
        same(&before, &machine.tree());
        if killed.status.success() {
            break;
        }
    }
}

#[test]
fn what_others_change_in_between_stays_and_only_ours_goes() {
    let machine = Machine::with("raspberry-pi");
    ends(&machine.persist(&["--cpus", "2-3", "--yes"]), 0);
    machine.edit("boot/firmware/cmdline.txt", "splash", "splash usbcore.autosuspend=-1");
    machine.edit("boot/firmware/cmdline.txt", "isolcpus=", "logo.nologo isolcpus=");
    let said = ends(&machine.unpersist(), 1);
    assert!(
        said.contains("cmdline.txt: ours is out; what others have changed since stays"),
        "{said}"
    );
    let text = machine.text("boot/firmware/cmdline.txt");
    assert!(text.contains("splash usbcore.autosuspend=-1 plymouth"), "{text}");
    assert!(text.ends_with("regdom=GB logo.nologo\n"), "{text}");
}

#[test]
fn the_entry_of_a_kernel_that_came_later_loses_our_words_too() {
    let machine = Machine::with("fedora-bls");
    let before = machine.tree();
    ends(&machine.persist(&["--cpus", "2-3", "--yes"]), 0);
    let dir = "boot/loader/entries/7a0c6f2d5b4e4c0f9d1e2b3c4d5e6f70-";
    let text = machine.text(&format!("{dir}6.12.7-200.fc41.x86_64.conf"));
    let new = format!("{dir}6.13.0-1.fc41.x86_64.conf");
    machine.put(&new, &text.replace("6.12.7-200", "6.13.0-1"));
    ends(&machine.unpersist(), 1);
    assert!(!machine.text(&new).contains("isolcpus"));
    fs::remove_file(machine.path(&new)).unwrap();
    same(&before, &machine.tree());
}

#[test]
fn contradictions_are_refused_and_nothing_is_changed() {
    let cases: [(&str, &[&str], &str); 5] = [
        (
            "nohz=off",
            &["--cpus", "2-3", "--never-sleep", "--yes"],
            "nohz=off contradicts nohz_full=",
        ),
        ("isolcpus=1", &["--cpus", "2-3", "--yes"], "isolcpus=1 is set already"),
        ("irqaffinity=0", &["--cpus", "3", "--yes"], "irqaffinity=0 is set already"),
        ("quiet", &["--cpus", "0", "--yes"], "CPU 0 boots the machine"),
        ("quiet", &["--cpus", "0-3", "--yes"], "CPU"),
    ];
    for (word, arguments, why) in cases {
        let machine = Machine::with("debian-uboot-menu");
        machine.edit("boot/extlinux/extlinux.conf", "ro quiet", &format!("ro {word}"));
        let before = machine.tree();
        let said = ends(&machine.persist(arguments), 2);
        assert!(said.contains(why), "{said}");
        same(&before, &machine.tree());
    }
    let machine = Machine::with("raspberry-pi");
    machine.edit("boot/firmware/cmdline.txt", "quiet", &"x=y ".repeat(500));
    let said = ends(&machine.persist(&["--cpus", "2-3", "--yes"]), 2);
    assert!(said.contains("the kernel cuts it at 2048"), "{said}");
}

#[test]
fn a_void_parameter_is_named_and_what_is_there_already_is_not_added() {
    let machine = Machine::with("raspberry-pi");
    machine.edit("boot/firmware/cmdline.txt", "quiet", "kthread_cpus=0-1 skew_tick=1");
    let before = machine.tree();
    let said = ends(&machine.persist(&["--cpus", "2-3", "--yes"]), 1);
    assert!(said.contains("kthread_cpus=0-1 does nothing on a mainline kernel"), "{said}");
    assert_eq!(machine.text("boot/firmware/cmdline.txt").matches("skew_tick=1").count(), 1);
    ends(&machine.unpersist(), 0);
    same(&before, &machine.tree());
}

#[test]
fn two_loaders_are_not_guessed_between() {
    let machine = Machine::with("debian-uboot-menu");
    copy(&Machine::with("debian-grub").path("boot"), &machine.path("boot"));
    copy(&Machine::with("debian-grub").path("etc"), &machine.path("etc"));
    machine.put("usr/sbin/update-grub", "");
    let before = machine.tree();
    let said = ends(&machine.persist(&["--cpus", "2-3", "--yes"]), 2);
    assert!(
        said.contains("grub (") && said.contains("extlinux (") && said.contains("--loader NAME"),
        "{said}"
    );
    same(&before, &machine.tree());
    ends(&machine.persist(&["--cpus", "2-3", "--yes", "--loader", "extlinux"]), 0);
    assert!(!machine.path("etc/default/grub.d").exists());
}

#[test]
fn without_a_known_loader_the_words_are_given_to_the_owner() {
    let machine = Machine::with("raspberry-pi");
    fs::remove_dir_all(machine.path("boot/firmware")).unwrap();
    let said = ends(&machine.persist(&["--cpus", "2-3", "--yes"]), 2);
    assert!(said.contains(WORDS), "{said}");
}

#[test]
fn a_unified_kernel_image_is_left_to_its_builder() {
    let machine = Machine::with("uki");
    let before = machine.tree();
    let said = ends(&machine.persist(&["--cpus", "2-3", "--yes"]), 1);
    assert!(said.contains("kernel-install add-all"), "{said}");
    assert_eq!(machine.text("etc/kernel/cmdline"), format!("root=UUID=12 rw quiet {WORDS}"));
    ends(&machine.unpersist(), 0);
    same(&before, &machine.tree());
}

#[test]
fn a_file_of_that_name_that_is_not_ours_is_not_overwritten() {
    let machine = Machine::with("debian-grub");
    machine.put("etc/default/grub.d/quietcores.cfg", "# mine\n");
    let before = machine.tree();
    let said = ends(&machine.persist(&["--cpus", "2-3", "--yes"]), 2);
    assert!(said.contains("no record that quietcores made it"), "{said}");
    same(&before, &machine.tree());
}

#[test]
fn a_way_that_others_can_write_is_refused_and_nothing_is_half_done() {
    let machine = Machine::with("fedora-bls");
    let open = machine.path("boot/loader");
    fs::set_permissions(&open, fs::Permissions::from_mode(0o777)).unwrap();
    let before = machine.tree();
    let said = ends(&machine.persist(&["--cpus", "2-3", "--yes"]), 2);
    assert!(said.contains("can be written by others than root"), "{said}");
    same(&before, &machine.tree());
    assert!(!machine.path("var/lib/quietcores/persist.json").exists());
}

/// Runs the program in a mount namespace of its own, with `/boot` a small or read-only file system.
fn on_boot(machine: &Machine, prepare: &str, verb: &str) -> Option<Output> {
    let root = machine.0.path().display();
    let program = env!("CARGO_BIN_EXE_quietcores");
    let script = format!(
        "set -e; mount -t tmpfs -o size=256k,mode=755 none /mnt; cp -a {root}/boot/. /mnt/; \
         mount --move /mnt {root}/boot; {prepare}; set +e; {program} {verb} --root {root}; rc=$?; \
         (cd {root}/boot && rm -f fill && find . -type f | sort | xargs cat) | sha256sum; exit $rc"
    );
    let output = Command::new("unshare").args(["-m", "sh", "-c", &script]).output();
    let Ok(output) = output else {
        return skip(Why::Program("unshare", "util-linux"));
    };
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    if errors.contains("unshare:") || errors.contains("mount:") {
        return skip(Why::Machine(format!("nothing may be mounted here: {errors}")));
    }
    Some(output)
}

#[test]
fn a_full_or_read_only_boot_gets_a_sentence_and_nothing_is_half_done() {
    let verb = "persist --cpus 2-3 --yes --program /usr/local/bin/quietcores";
    let machine = Machine::with("fedora-bls");
    let before = machine.tree();
    let Some(looked) = on_boot(&machine, "true", "persist --cpus 2-3 --dry-run --no-unit") else {
        return;
    };
    let sum = |output: &Output| {
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        text.lines().last().unwrap_or("").to_owned()
    };
    let full = on_boot(
        &machine,
        &format!("head -c 1M /dev/zero > {}/boot/fill || true", machine.0.path().display()),
        verb,
    )
    .unwrap();
    let said = ends(&full, 2);
    assert!(said.contains("No space left on device; make room there"), "{said}");
    assert!(said.contains("everything done before it was put back"), "{said}");
    assert_eq!(sum(&full), sum(&looked));
    same(&before, &machine.tree());
    let sealed = on_boot(
        &machine,
        &format!("mount -o remount,ro {}/boot", machine.0.path().display()),
        verb,
    )
    .unwrap();
    let said = ends(&sealed, 2);
    assert!(said.contains("Read-only file system"), "{said}");
    assert_eq!(sum(&sealed), sum(&looked));
    same(&before, &machine.tree());
    assert!(!machine.path("var/lib/quietcores/persist.json").exists());
}

#[test]
fn a_kernel_that_hands_no_flag_to_a_pi_is_told_of_with_its_trial() {
    let machine = Machine::with("raspberry-pi");
    machine.kernel("6.12.117+deb13-arm64");
    let before = machine.tree();
    let said = ends(&machine.persist(&["--cpus", "2-3", "--trial", "--yes"]), 1);
    assert!(said.contains("may not hand the flag"), "{said}");
    assert!(said.contains("reboot '0 tryboot'"), "{said}");
    ends(&machine.unpersist(), 0);
    same(&before, &machine.tree());
    // What lasts needs no flag.
    ends(&machine.persist(&["--cpus", "2-3", "--yes"]), 0);
}

#[test]
fn a_trial_leaves_the_default_entry_and_is_gone_when_it_is_taken_back() {
    for fixture in ["debian-grub", "fedora-bls", "raspberry-pi"] {
        let machine = Machine::with(fixture);
        let before = machine.tree();
        let said = ends(&machine.persist(&["--cpus", "2-3", "--trial", "--yes"]), 0);
        assert!(said.contains("It is for one boot"), "{said}");
        let after = machine.tree();
        for (path, text) in &before {
            if !path.ends_with("grubenv") {
                assert_eq!(after.get(path), Some(text), "{fixture}: {path}");
            }
        }
        let new: Vec<&String> = after.keys().filter(|path| !before.contains_key(*path)).collect();
        assert!(new.iter().any(|path| after[*path].contains(WORDS)), "{fixture}: {new:?}");
        assert!(
            machine
                .text("etc/systemd/system/quietcores-bless.service")
                .contains("persist --bless --yes")
        );
        // GRUB follows next_entry once and empties it.
        for block in ["boot/grub/grubenv", "boot/grub2/grubenv"] {
            if machine.path(block).exists() {
                let asked = "next_entry=A-quietcores-trial\n";
                machine.edit(block, asked, "next_entry=\n");
                let text = machine.text(block);
                fs::write(machine.path(block), format!("{text:#<1024}")).unwrap();
            }
        }
        ends(&machine.unpersist(), 0);
        same(&before, &machine.tree());
    }
}

#[test]
fn loaders_without_a_trial_say_so() {
    for fixture in ["syslinux", "armbian", "beaglebone-uenv", "uki", "systemd-boot"] {
        let machine = Machine::with(fixture);
        let before = machine.tree();
        let said = ends(&machine.persist(&["--cpus", "2-3", "--trial", "--yes"]), 2);
        assert!(said.contains("no trial boot here: "), "{fixture}: {said}");
        same(&before, &machine.tree());
    }
}

#[test]
fn a_trial_is_kept_only_when_its_boot_is_as_asked() {
    let machine = Machine::with("fedora-bls");
    let before = machine.tree();
    ends(&machine.persist(&["--cpus", "2-3", "--trial", "--yes"]), 0);
    let trial = machine.tree();
    let said = ends(&machine.persist(&["--bless", "--yes"]), 1);
    assert!(said.contains("Not blessed") && said.contains("none of the boot parameters"), "{said}");
    same(&trial, &machine.tree());
    // The trial boots, and the kernel does as it was told.
    machine.put("proc/cmdline", &format!("root=UUID=9c41 ro {WORDS}\n"));
    machine.put("proc/irq/default_smp_affinity", "3\n");
    let said = ends(&machine.persist(&["--bless", "--yes"]), 1);
    assert!(said.contains("/sys/devices/system/cpu/isolated is empty, not 2-3"), "{said}");
    machine.put("sys/devices/system/cpu/isolated", "2-3\n");
    ends(&machine.persist(&["--bless", "--yes"]), 0);
    assert!(!machine.path("boot/loader/entries/A-quietcores-trial.conf").exists());
    let entry = "boot/loader/entries/7a0c6f2d5b4e4c0f9d1e2b3c4d5e6f70-6.12.7-200.fc41.x86_64.conf";
    assert!(machine.text(entry).contains(WORDS));
    assert!(!machine.path("etc/systemd/system/quietcores-bless.service").exists());
    ends(&machine.unpersist(), 0);
    let mut after = machine.tree();
    for path in ["proc/cmdline", "proc/irq/default_smp_affinity", "sys/devices/system/cpu/isolated"]
    {
        after.insert(path.into(), before[path].clone());
    }
    same(&before, &after);
}

#[test]
fn status_says_that_this_boot_is_not_the_one_that_was_asked_for() {
    let machine = Machine::with("debian-grub");
    ends(&machine.persist(&["--cpus", "2-3", "--yes"]), 0);
    let state = machine.path("var/lib/quietcores");
    let status = |json: &[&str]| {
        Command::new(env!("CARGO_BIN_EXE_quietcores"))
            .arg("status")
            .arg("--state")
            .arg(&state)
            .args(json)
            .output()
            .unwrap()
    };
    // The machine that runs the test was not booted with these words.
    let told = ends(&status(&[]), 1);
    assert!(told.contains("none of the boot parameters that were asked for is in force"), "{told}");
    assert!(ends(&status(&["--json"]), 1).contains("boot.not_booted"));
    ends(&machine.unpersist(), 0);
    ends(&status(&[]), 0);
}

/// Takes group and others the right to write: git keeps none, but the sources that `git archive` packs have it.
fn as_committed(folder: &Path) {
    for entry in fs::read_dir(folder).unwrap().flatten() {
        let kind = entry.file_type().unwrap();
        if kind.is_dir() {
            as_committed(&entry.path());
        } else if kind.is_file() {
            let mode = entry.metadata().unwrap().permissions().mode() & !0o022;
            fs::set_permissions(entry.path(), fs::Permissions::from_mode(mode)).unwrap();
        }
    }
}

#[test]
fn what_a_released_version_made_to_last_is_taken_back_to_the_byte() {
    let mut seen = 0;
    for version in fs::read_dir(fixture("released")).unwrap().flatten() {
        let Ok(trees) = fs::read_dir(version.path().join("persist")) else { continue };
        for tree in trees.flatten() {
            let name = tree.file_name().into_string().unwrap();
            let loader = name.strip_suffix("-trial").unwrap_or(&name);
            let machine = Machine(tempfile::tempdir().unwrap());
            copy(&tree.path(), machine.0.path());
            as_committed(machine.0.path());
            let state = machine.path("var/lib/quietcores");
            fs::set_permissions(&state, fs::Permissions::from_mode(0o700)).unwrap();
            // Written by root, and given to whoever tests.
            let (uid, gid) = (rustix::process::geteuid(), rustix::process::getegid());
            for (from, to) in [("\"uid\": 0", uid.as_raw()), ("\"gid\": 0", gid.as_raw())] {
                let text = machine.text("var/lib/quietcores/persist.json");
                let to = format!("{} {to}", &from[..6]);
                machine.put("var/lib/quietcores/persist.json", &text.replace(from, &to));
            }
            let said = ends(&machine.unpersist(), 0);
            assert!(said.contains("as it was"), "{name}: {said}");
            let before = Machine(tempfile::tempdir().unwrap());
            copy(&fixture("boot").join(loader), before.0.path());
            as_committed(before.0.path());
            let mut after = machine.tree();
            // Made by hand for the record, and in no fixture.
            after.retain(|path, _| path != "boot" || before.path("boot").exists());
            same(&before.tree(), &after);
            assert!(!state.join("persist.json").exists());
            seen += 1;
        }
    }
    assert!(seen >= 8, "only {seen}");
}
