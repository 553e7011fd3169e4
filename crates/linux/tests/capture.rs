//! A captured tree reads back as the machine that it was taken from.
#![allow(clippy::unwrap_used)]

use quiet_linux::{CommandLines, Options, Root, capture, capture_anonymous, snapshot};
use quiet_types::Machine;
use std::{
    fs,
    os::unix::fs::symlink,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

fn fixture(name: &str) -> PathBuf {
    quiet_testing::tree::fixture("machines").join(name)
}

fn read(dir: &Path) -> Machine {
    snapshot(&Root::at(dir).unwrap(), Options::default()).unwrap()
}

/// A copy of a fixture to break.
fn copy(name: &str) -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    quiet_testing::tree::copy(&fixture(name), &dir.path().join(name));
    dir
}

/// Every file, directory and link below `dir`, with what it holds.
fn tree(dir: &Path) -> Vec<(PathBuf, Vec<u8>)> {
    let mut found = Vec::new();
    let mut todo = vec![dir.to_owned()];
    while let Some(here) = todo.pop() {
        for entry in fs::read_dir(&here).unwrap() {
            let path = entry.unwrap().path();
            let kind = fs::symlink_metadata(&path).unwrap().file_type();
            let content = if kind.is_symlink() {
                fs::read_link(&path).unwrap().into_os_string().into_encoded_bytes()
            } else if kind.is_dir() {
                todo.push(path.clone());
                Vec::new()
            } else {
                fs::read(&path).unwrap()
            };
            found.push((path.strip_prefix(dir).unwrap().to_owned(), content));
        }
    }
    found.sort();
    found
}

#[test]
fn an_anonymous_one_names_nobody_and_is_the_same_machine_otherwise() {
    let made = copy("nuc");
    let root = made.path().join("nuc");
    let one = root.join("proc/589");
    fs::write(one.join("cmdline"), "/home/anna/player\0--title\0of anna\0").unwrap();
    let task = one.join("task/589");
    let status = fs::read_to_string(task.join("status")).unwrap();
    let status: Vec<String> = status
        .lines()
        .map(|line| match line.starts_with("Uid:") {
            true => "Uid:\t1000\t1000\t1000\t1000".to_owned(),
            false => line.to_owned(),
        })
        .collect();
    fs::write(task.join("status"), status.join("\n") + "\n").unwrap();
    fs::create_dir_all(root.join("etc")).unwrap();
    fs::write(root.join("etc/passwd"), "root:x:0:0::/root:/bin/sh\nanna:x:1000:1000:Anna::\n")
        .unwrap();
    let plain = read(&root);
    assert!(plain.users.contains_key("anna"), "{:?}", plain.users);
    let dir = tempfile::tempdir().unwrap();
    let target = dir.path().join("sent");
    let captured = capture_anonymous(&Root::at(&root).unwrap(), &target).unwrap();
    for (path, content) in tree(&target) {
        let text = String::from_utf8_lossy(&content).to_lowercase();
        assert!(!text.contains("anna"), "{}: {text}", path.display());
    }
    let none = Options { command_lines: CommandLines::None };
    let back = snapshot(&Root::at(&target).unwrap(), none).unwrap();
    assert_eq!(back, captured.machine);
    assert!(back.users.contains_key("user1"), "{:?}", back.users);
    let same = |mut machine: Machine| {
        machine.users.clear();
        for task in &mut machine.tasks {
            (task.exe, task.command) = (None, String::new());
        }
        machine
    };
    let own = snapshot(&Root::at(&root).unwrap(), none).unwrap();
    assert_eq!(same(back), same(own));
}

#[test]
fn this_machine_reads_back_identically() {
    let dir = tempfile::tempdir().unwrap();
    for (name, command_lines) in
        [("none", CommandLines::None), ("own", CommandLines::Own), ("all", CommandLines::All)]
    {
        let options = Options { command_lines };
        let target = dir.path().join(name);
        let captured = capture(&Root::system().unwrap(), &target, options).unwrap();
        let back = snapshot(&Root::at(&target).unwrap(), options).unwrap();
        // Field by field first: a difference in thousands of lines is not readable.
        assert_eq!(back.unread, captured.machine.unread);
        assert_eq!(back.tasks, captured.machine.tasks);
        assert_eq!(back.irqs, captured.machine.irqs);
        assert_eq!(back, captured.machine);
        assert!(back.tasks.len() > 1 && captured.files > 100);
    }
}

#[test]
fn tasks_that_come_and_go_meanwhile_are_no_findings() {
    let done = std::sync::atomic::AtomicBool::new(false);
    let root = Root::system().unwrap();
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                while !done.load(std::sync::atomic::Ordering::Relaxed) {
                    assert!(Command::new("true").status().unwrap().success());
                }
            });
        }
        let read = || snapshot(&root, Options::default()).map(|machine| machine.unread);
        let unread: Vec<_> = (0..15).map(|_| read()).collect();
        // Before any assertion: a panic here would leave the other threads running for ever.
        done.store(true, std::sync::atomic::Ordering::Relaxed);
        for unread in unread {
            assert_eq!(unread.unwrap(), []);
        }
    });
}

/// openat2(2) answers EAGAIN where a rename anywhere in the system makes it unsure of a `..`.
#[test]
fn renames_elsewhere_do_not_make_links_look_broken() {
    let done = std::sync::atomic::AtomicBool::new(false);
    let dir = tempfile::tempdir().unwrap();
    let (one, two) = (dir.path().join("one"), dir.path().join("two"));
    fs::create_dir(&one).unwrap();
    let root = Root::at(fixture("pi2")).unwrap();
    let quiet = snapshot(&root, Options::default()).unwrap();
    let machines: Vec<_> = std::thread::scope(|scope| {
        scope.spawn(|| {
            while !done.load(std::sync::atomic::Ordering::Relaxed) {
                fs::rename(&one, &two).unwrap();
                fs::rename(&two, &one).unwrap();
            }
        });
        let machines = (0..30).map(|_| snapshot(&root, Options::default())).collect();
        done.store(true, std::sync::atomic::Ordering::Relaxed);
        machines
    });
    assert!(machines.into_iter().all(|machine| machine.unwrap() == quiet));
}

#[test]
fn every_fixture_captures_to_the_same_machine_and_again_to_the_same_files() {
    for name in ["corei7-64", "hybrid", "pi2", "ryzen1700", "vm2"] {
        let dir = tempfile::tempdir().unwrap();
        let (first, second) = (dir.path().join("first"), dir.path().join("second"));
        let root = Root::at(fixture(name)).unwrap();
        let captured = capture(&root, &first, Options::default()).unwrap();
        assert_eq!(captured.machine, read(&fixture(name)), "{name}");
        assert_eq!(captured.machine, read(&first), "{name}");
        // One of them has everything that is special: notes, links, partitions, command lines.
        if name == "hybrid" {
            capture(&Root::at(&first).unwrap(), &second, Options::default()).unwrap();
            assert_eq!(tree(&first), tree(&second));
        }
    }
}

#[test]
fn a_capture_holds_no_environment_and_no_arguments_of_others() {
    let mut other = Command::new("sleep");
    other.arg("86399.25").env("QUIET_SECRET_VARIABLE", "hunter2").stdout(Stdio::null());
    let mut other = other.spawn().unwrap();
    let dir = tempfile::tempdir().unwrap();
    let cmdline = |target: &Path| target.join(format!("proc/{}/cmdline", other.id()));
    let take = |name: &str, command_lines| {
        let target = dir.path().join(name);
        capture(&Root::system().unwrap(), &target, Options { command_lines }).unwrap();
        target
    };
    let (none, own) = (take("none", CommandLines::None), take("own", CommandLines::Own));
    let read_own = fs::read(cmdline(&own));
    let found_none = cmdline(&none).exists();
    let files = tree(&own);
    other.kill().unwrap();
    other.wait().unwrap();
    assert!(!found_none);
    // The child runs as the caller.
    assert_eq!(read_own.unwrap(), b"sleep\x0086399.25");
    for (path, content) in files {
        let name = path.file_name().unwrap().to_owned();
        assert!(name != "environ" && name != "maps", "{path:?}");
        assert!(!content.windows(7).any(|bytes| bytes == b"hunter2"), "{path:?}");
    }
}

#[test]
fn boot_parameters_and_arguments_that_look_like_credentials_are_masked_in_the_files_too() {
    let dir = tempfile::tempdir().unwrap();
    let root = Root::at(fixture("hybrid")).unwrap();
    let captured = capture(&root, &dir.path().join("copy"), Options::default()).unwrap();
    let cmdline = fs::read_to_string(dir.path().join("copy/proc/cmdline")).unwrap();
    assert!(cmdline.contains("rd.luks.key=***") && !cmdline.contains("/etc/luks"), "{cmdline}");
    assert_eq!(captured.machine.boot_parameter("rd.luks.key"), Some("***"));
    assert_eq!(captured.machine.boot_parameter("dyndbg"), Some("file drivers/usb/* +p"));
}

#[test]
fn a_directory_that_is_not_empty_is_refused_and_stays_as_it_was() {
    let dir = tempfile::tempdir().unwrap();
    let root = Root::at(fixture("vm2")).unwrap();
    let precious = dir.path().join("precious");
    fs::write(&precious, "x").unwrap();
    for target in [dir.path(), &precious] {
        let error = capture(&root, target, Options::default()).unwrap_err().to_string();
        assert!(error.contains("it is not empty") || error.contains("not a directory"), "{error}");
    }
    assert_eq!(tree(dir.path()), [(PathBuf::from("precious"), b"x".to_vec())]);
    let empty = dir.path().join("empty");
    fs::create_dir(&empty).unwrap();
    capture(&root, &empty, Options::default()).unwrap();
    assert!(empty.join("proc/interrupts").exists());
    let names = tree(dir.path());
    assert!(!names.iter().any(|(path, _)| path.to_string_lossy().contains("partial")));
    let nowhere = capture(&root, &dir.path().join("no/where"), Options::default());
    assert!(nowhere.unwrap_err().to_string().contains("No such file"));
}

#[test]
fn names_with_line_ends_and_links_out_of_the_tree_do_no_harm() {
    let dir = copy("vm2");
    let tree_dir = dir.path().join("vm2");
    let outside = dir.path().join("outside");
    fs::write(&outside, "secret").unwrap();
    let group = tree_dir.join("sys/fs/cgroup/cpuset/a\nb %41\x1b[31m");
    fs::create_dir(&group).unwrap();
    fs::write(group.join("cpuset.cpus"), "0\n").unwrap();
    symlink(&outside, tree_dir.join("proc/sys/kernel/arch2")).unwrap();
    fs::remove_file(tree_dir.join("proc/sys/vm/swappiness")).unwrap();
    symlink("../../../../../outside", tree_dir.join("proc/sys/vm/swappiness")).unwrap();
    let target = dir.path().join("target");
    let captured = capture(&Root::at(&tree_dir).unwrap(), &target, Options::default()).unwrap();
    assert_eq!(captured.machine, read(&target));
    let odd = "/a\nb %41\x1b[31m";
    assert!(captured.machine.cgroups.groups.iter().any(|group| &*group.path == odd));
    for (path, content) in tree(&target) {
        assert!(!content.windows(6).any(|bytes| bytes == b"secret"), "{path:?}");
    }
    assert_eq!(fs::read_to_string(&outside).unwrap(), "secret");
}

#[test]
fn absurd_files_are_named_with_their_line_and_the_rest_is_still_read() {
    let dir = copy("vm2");
    let root = dir.path().join("vm2");
    let put = |path: &str, text: &str| fs::write(root.join(path), text).unwrap();
    let interrupts = fs::read_to_string(root.join("proc/interrupts")).unwrap();
    put("proc/interrupts", &interrupts.replace(" 26:          0", " 26:"));
    put("sys/devices/system/cpu/cpu1/cpu_capacity", "-5\n");
    put("sys/devices/system/node/node0/cpulist", "1-0\n");
    put("proc/irq/default_smp_affinity", "xyz\n");
    put("proc/300/task/300/stat", "300 (player) S 2 0");
    put("sys/devices/system/cpu/cpu0/cache/index3/size", "huge\n");
    put("proc/stat", "cpu0 1 2 3 4 5 6 7 many\n");
    put("proc/config.gz", "not packed");
    fs::remove_file(root.join("proc/sys/vm/swappiness")).unwrap();
    fs::create_dir(root.join("proc/sys/vm/swappiness")).unwrap();
    let machine = read(&root);
    let titles: Vec<&str> = machine.unread.iter().map(|finding| finding.title.as_str()).collect();
    for wanted in [
        "cannot understand /proc/interrupts, line 3: 1 counts for 2 CPUs",
        "cannot understand /sys/devices/system/cpu/cpu1/cpu_capacity, line 1: `-5`",
        "cannot understand /sys/devices/system/node/node0/cpulist, line 1: `1-0`",
        "cannot understand /proc/irq/default_smp_affinity, line 1: `xyz`",
        "cannot understand /proc/300/task/300/stat, line 1: it ends before field 9",
        "cannot understand /sys/devices/system/cpu/cpu0/cache/index3/size, line 1: `huge`",
        "cannot understand /proc/stat, line 1: the stolen time is `many`",
        "cannot understand /proc/config.gz, line 1: not gzip",
        "cannot read /proc/sys/vm/swappiness: not a regular file",
    ] {
        assert!(titles.iter().any(|title| title.starts_with(wanted)), "{wanted}\n{titles:#?}");
    }
    assert_eq!(titles.len(), 9, "{titles:#?}");
    assert!(machine.tasks.iter().all(|task| task.comm != "player"));
    assert_eq!(machine.irqs.len(), 6);
    assert_eq!(machine.cpus.len(), 2);
}

#[test]
fn a_tree_that_is_no_machine_is_refused_with_a_sentence() {
    let dir = tempfile::tempdir().unwrap();
    let refuse = |root: &Path| {
        snapshot(&Root::at(root).unwrap(), Options::default()).unwrap_err().to_string()
    };
    assert!(refuse(dir.path()).contains("it holds no /proc"));
    fs::create_dir(dir.path().join("proc")).unwrap();
    let error = refuse(dir.path());
    assert!(error.ends_with("sys/devices/system/cpu/online: no CPU is named as online"), "{error}");
    let broken = copy("vm2");
    fs::write(broken.path().join("vm2/CAPTURE"), "quietcores capture 1\nnonsense\n").unwrap();
    let error = refuse(&broken.path().join("vm2"));
    assert!(error.contains("CAPTURE, line 2: a note is"), "{error}");
}

#[test]
fn a_file_that_may_not_be_read_is_named_and_stays_so_in_a_capture() {
    // A captured tree says by its notes what was refused: root could read any mode.
    let dir = copy("vm2");
    let root = dir.path().join("vm2");
    fs::write(
        root.join("CAPTURE"),
        "quietcores capture 1\nrefused 13 /proc/interrupts\nrefused 13 /sys/class/net\n",
    )
    .unwrap();
    let machine = read(&root);
    let titles: Vec<&str> = machine.unread.iter().map(|finding| finding.title.as_str()).collect();
    assert_eq!(
        titles,
        [
            "cannot read /proc/interrupts: Permission denied",
            "cannot list /sys/class/net: Permission denied"
        ]
    );
    let target = dir.path().join("target");
    capture(&Root::at(&root).unwrap(), &target, Options::default()).unwrap();
    assert_eq!(read(&target), machine);
}
