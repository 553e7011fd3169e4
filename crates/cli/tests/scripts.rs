//! The scripts that people type, in small trees of their own, with stand-ins for the programs that they call: nothing is installed, built
//! or booted.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

use quiet_testing::{Why, machine_still, program, skip, until};
use rustix::process::{Pid, Signal, kill_process, kill_process_group, test_kill_process};
use std::{
    env, fs,
    os::unix::{
        fs::{PermissionsExt, symlink},
        process::CommandExt,
    },
    path::{Path, PathBuf},
    process::{Child, Command, Output, Stdio},
};
use tempfile::TempDir;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

fn text(output: &Output) -> String {
    String::from_utf8_lossy(&[&output.stdout[..], &output.stderr].concat()).into_owned()
}

/// A tree with some of the scripts, and a folder of stand-ins that comes first on the path.
struct Planted {
    dir: TempDir,
}

impl Planted {
    fn new(scripts: &[&str]) -> Self {
        let planted = Planted { dir: tempfile::tempdir().unwrap() };
        fs::create_dir(planted.at("bin")).unwrap();
        for script in scripts {
            let to = planted.at("tree").join(script);
            fs::create_dir_all(to.parent().unwrap()).unwrap();
            fs::copy(root().join(script), to).unwrap();
        }
        planted
    }

    fn at(&self, path: &str) -> PathBuf {
        self.dir.path().join(path)
    }

    /// A script of sh at this place.
    fn script(&self, path: &str, words: &str) {
        let path = self.at(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, format!("#!/bin/sh\n{words}\n")).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    }

    /// What is there to build with. Whoever would install something fails.
    fn with_tools(self) -> Self {
        for tool in ["gcc", "pkg-config", "rustfmt", "cargo-clippy", "dpkg", "dpkg-query"] {
            self.script(&format!("bin/{tool}"), "exit 0");
        }
        for tool in ["apt-get", "apt-cache", "sudo"] {
            self.script(&format!("bin/{tool}"), "exit 1");
        }
        self
    }

    /// One of the tree's scripts; `GATE` is a file that stand-ins may wait for.
    fn command(&self, words: &[&str]) -> Command {
        let mut command = Command::new(self.at("tree").join(words[0]));
        let path = format!("{}:{}", self.at("bin").display(), env::var("PATH").unwrap());
        command.args(&words[1..]).env("PATH", path).env("HOME", self.dir.path());
        command.env("GATE", self.at("gate")).env_remove("XDG_CACHE_HOME");
        command.current_dir(self.at("tree")).stdin(Stdio::null());
        command
    }

    fn done(&self, words: &[&str]) -> (Option<i32>, String) {
        let output = self.command(words).output().unwrap();
        (output.status.code(), text(&output))
    }
}

/// Ends with the test.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn a_second_test_in_one_tree_is_refused_while_one_runs_and_while_what_a_killed_one_began_writes() {
    let tree = Planted::new(&["test", "needs.sh", "Cargo.toml"]).with_tools();
    let wait = "fmt) : >\"$GATE.begun\"; while [ ! -e \"$GATE\" ]; do sleep 0.05; done ;;";
    tree.script("bin/cargo", &format!("case $1 in --version) echo cargo 1.999.0 ;; {wait} esac"));
    let mut first = tree.command(&["test", "format"]);
    let mut first = Running(first.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap());
    until("it runs", || tree.at("gate.begun").exists().then_some(()));

    let (status, said) = tree.done(&["test", "lints"]);
    assert_eq!(status, Some(2), "{said}");
    assert!(
        said.contains(&format!("process {},", first.0.id())) && said.contains("./test format"),
        "{said}"
    );
    assert!(!tree.at("tree/target/test/lints.log").exists());

    first.0.kill().unwrap();
    first.0.wait().unwrap();
    let (status, said) = tree.done(&["test", "lints"]);
    assert_eq!(status, Some(2), "{said}");
    assert!(said.contains("was killed") && said.contains("(cargo)"), "{said}");

    fs::write(tree.at("gate"), "").unwrap();
    until("what it began ends", || (tree.done(&["test", "format"]).0 == Some(0)).then_some(()));
}

/// A tree whose only test program is one of sh, on a machine of two CPUs.
fn with_one_test(words: &str) -> Planted {
    let tree = Planted::new(&["test", "needs.sh", "Cargo.toml", "lab/put-back"]).with_tools();
    let names = fs::read_to_string(root().join("test")).unwrap();
    let needed = names.split("need_package ").skip(1).filter_map(|rest| rest.split(' ').next());
    for name in needed.filter(|name| program(name).is_none()) {
        tree.script(&format!("bin/{name}"), "exit 0");
    }
    for tool in ["nats-server", "promtool"] {
        tree.script(&format!("cache/quietcores-tools/bin/{tool}"), "exit 0");
    }
    // On one CPU nothing runs beside them.
    tree.script("bin/nproc", "echo 2");
    tree.script("package/program", words);
    let package = tree.at("package");
    fs::write(package.join("Cargo.toml"), "[package]\nname = \"quiet-planted\"\n").unwrap();
    let artifact = format!(
        r#"{{"manifest_path":"{0}/Cargo.toml","target":{{"kind":["test"],"name":"one","src_path":"one.rs"}},"profile":{{"test":true}},"executable":"{0}/program"}}"#,
        package.display()
    );
    tree.script(
        "bin/cargo",
        &format!(
            "case \"$*\" in --version) echo cargo 1.999.0 ;; *--no-run*) echo '{artifact}' ;; esac"
        ),
    );
    tree
}

/// The lab runs beside the tests, which here wait for its begin, as it waits for their end.
#[test]
fn what_runs_beside_the_tests_is_shown_whole_and_counted() {
    let wait = |path: &str| {
        format!(
            "n=0; until [ -e {path} ]; do [ $n -lt 1200 ] || exit 1; n=$((n + 1)); sleep 0.05; done"
        )
    };
    let passed = "echo 'test result: ok. 3 passed; 0 failed; 0'";
    let tree = with_one_test(&format!("{}; {passed}", wait("\"$GATE\"")));
    // A compiler that crashed under a shield is asked again, and counted once.
    let crash = "[ -e crashed ] || { : >crashed; echo 'fuzz: build ... FAILED'; exit 1; }";
    tree.script(
        "tree/fuzz/run",
        &format!("[ \"$1\" = build ] || exec echo 'fuzz: one ... ok'; {crash}"),
    );
    let lab = format!(
        "[ \"$1\" != --ready ] || exit 0; : >\"$GATE\"; echo 'lab: early ... ok'; {}; sleep 1; echo 'lab: late ... FAILED'; exit 1",
        wait("target/test/tests.ended")
    );
    tree.script("tree/lab/test", &lab);
    let mut command = tree.command(&["test", "tests", "fuzz", "lab"]);
    let output = command.env("XDG_CACHE_HOME", tree.at("cache")).output().unwrap();
    let said = text(&output);
    assert_eq!(output.status.code(), Some(1), "{said}");
    for line in ["fuzz: one ... ok", "lab: early ... ok", "lab: late ... FAILED"] {
        assert_eq!(said.lines().filter(|one| *one == line).count(), 1, "{line}: {said}");
    }
    let row = |name: &str| said.lines().find(|line| line.starts_with(name)).unwrap_or_default();
    let figures = |name: &str| row(name).split_whitespace().rev().take(3).collect::<Vec<_>>();
    assert_eq!(figures("tests of quiet-planted "), ["0", "0", "3"], "{said}");
    assert_eq!(figures("fuzz  "), ["0", "0", "1"], "{said}");
    assert_eq!(figures("lab  "), ["0", "1", "1"], "{said}");
    assert!(said.contains("\n5 passed, 1 failed, 0 skipped\n"), "{said}");
}

/// A test runs in a process group of its own, which a terminal's Ctrl-C does not reach; and a step beside the tests is at work.
#[test]
fn ended_by_a_signal_the_tests_leave_no_program_behind_and_begin_no_other() {
    let env = program("env").unwrap();
    for (signal, status) in [(Signal::INT, 130), (Signal::TERM, 143)] {
        let tree = with_one_test("echo $$ >>\"$GATE.test\"; sleep 600; :");
        tree.script(
            "tree/lab/test",
            "[ \"$1\" != --ready ] || exit 0; echo $$ >>\"$GATE.lab\"; sleep 600; :",
        );
        symlink(&env, tree.at("bin/env")).unwrap();
        // Whoever is started in the background has SIGINT ignored, and a shell leaves that so.
        let mut command =
            tree.command(&["../bin/env", "--default-signal=INT", "./test", "tests", "lab"]);
        command.env("XDG_CACHE_HOME", tree.at("cache")).stderr(Stdio::null());
        command.stdout(Stdio::null()).process_group(0);
        let mut running = Running(command.spawn().unwrap());
        let begun = ["gate.test", "gate.lab"].map(|file| {
            until("it has begun", || {
                fs::read_to_string(tree.at(file)).ok()?.trim().parse::<i32>().ok()
            })
        });
        kill_process_group(Pid::from_child(&running.0), signal).unwrap();
        assert_eq!(running.0.wait().unwrap().code(), Some(status));
        for id in begun {
            let id = Pid::from_raw(id).unwrap();
            until("it has ended", || test_kill_process(id).is_err().then_some(()));
        }
        // The next one would have had its line here.
        let lines = |file: &str| fs::read_to_string(tree.at(file)).unwrap().lines().count();
        assert_eq!((lines("gate.test"), lines("gate.lab")), (1, 1));
        // Nothing writes there any more.
        assert_eq!(tree.done(&["test", "format"]).0, Some(0));
    }
}

/// A tree whose ./run needs nothing but what is there; `log` has what apt and dpkg were called with.
fn to_run() -> Planted {
    let tree = Planted::new(&["run", "needs.sh", "Cargo.toml"]).with_tools();
    let home = tree.dir.path().display().to_string();
    tree.script("bin/stress-ng", "exit 0");
    tree.script("bin/sudo", "[ \"$1\" != -n ] || shift; exec \"$@\"");
    tree.script("tree/target/release/quietcores", "exit 0");
    tree.script("bin/cargo", "case $1 in --version) echo cargo 1.999.0 ;; esac");
    tree.script("bin/dpkg-query", &format!("cat {home}/state"));
    tree.script("bin/dpkg", &format!("echo dpkg $* >>{home}/log"));
    tree.script(
        "bin/apt-get",
        &format!("echo apt-get $* >>{home}/log; echo installed ok gcc >{home}/state"),
    );
    fs::create_dir(tree.at("dpkg")).unwrap();
    tree
}

#[test]
fn what_was_broken_off_while_it_was_installed_is_brought_to_its_end() {
    let tree = to_run();
    let run = |status: &str| {
        fs::write(tree.at("state"), status).unwrap();
        let _ = fs::remove_file(tree.at("log"));
        let output = tree.command(&["run"]).env("DPKG_ADMINDIR", tree.at("dpkg")).output().unwrap();
        assert!(output.status.success(), "{}", text(&output));
        (fs::read_to_string(tree.at("log")).unwrap_or_default(), text(&output))
    };
    assert_eq!(run("installed ok gcc\n").0, "");
    for status in
        ["half-configured ok gcc\n", "installed ok alsa\nhalf-installed reinst-required gcc\n"]
    {
        let (log, said) = run(status);
        let at = |words: &str| log.find(words).unwrap_or_else(|| panic!("{words}: {log}"));
        assert!(at("dpkg --configure -a") < at("apt-get install"), "{log}");
        assert!(
            log.contains("--fix-broken") && said.contains("broken off here in the middle of gcc"),
            "{said}"
        );
    }
    // Of the packages nothing tells, but dpkg's own notes do; and something is to be installed.
    fs::remove_file(tree.at("bin/stress-ng")).unwrap();
    let script = fs::read_to_string(tree.at("tree/run")).unwrap();
    fs::write(
        tree.at("tree/run"),
        script.replace("need_package stress-ng", "need_package no-such-program"),
    )
    .unwrap();
    assert!(!run("installed ok gcc\n").0.contains("--configure"));
    fs::create_dir(tree.at("dpkg/updates")).unwrap();
    fs::write(tree.at("dpkg/updates/0007"), "").unwrap();
    let (log, _) = run("installed ok gcc\n");
    assert!(log.starts_with("dpkg --configure -a\n") && log.ends_with(" stress-ng\n"), "{log}");
}

#[test]
fn whoever_else_installs_is_named_and_waited_for() {
    let tree = to_run();
    let path = tree.at("dpkg/lock-frontend");
    let lock = fs::File::create(&path).unwrap();
    rustix::fs::fcntl_lock(&lock, rustix::fs::FlockOperation::LockExclusive).unwrap();
    fs::write(tree.at("state"), "unpacked ok gcc\n").unwrap();
    let mut run = tree.command(&["run"]);
    run.env("DPKG_ADMINDIR", tree.at("dpkg"));
    let output = run.env("NEEDS_PATIENCE", "1").output().unwrap();
    let said = text(&output);
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert!(
        said.contains(&format!("process {} (", std::process::id())) && !tree.at("log").exists(),
        "{said}"
    );

    let said = tree.at("said");
    let to = fs::File::create(&said).unwrap();
    let mut running =
        Running(run.env("NEEDS_PATIENCE", "600").stdout(Stdio::null()).stderr(to).spawn().unwrap());
    let waits = || fs::read_to_string(&said).unwrap().contains("Waiting for its end").then_some(());
    until("it says that it waits", waits);
    assert!(!tree.at("log").exists());
    drop(lock);
    assert!(running.0.wait().unwrap().success(), "{}", fs::read_to_string(&said).unwrap());
    assert!(fs::read_to_string(tree.at("log")).unwrap().contains("DPkg::Lock::Timeout=600"));
}

/// A program of sh, which fails in one of its turns, is the harness's own test: what one of twenty turns shows is reported, and counts.
#[test]
fn a_test_that_fails_once_in_twenty_turns_on_a_busy_host_is_reported() {
    // Each CPU gets a loop; a test's shield would take one away in between.
    machine_still();
    let tree = Planted::new(&["lab/hosts", "lab/put-back"]).with_tools();
    fs::create_dir(tree.at("package")).unwrap();
    // What chose the programs is not theirs: one that tries the harness itself would try them all again, without end.
    tree.script("good-0a", "[ -z \"$HOSTS_LIST$HOSTS_ONLY$HOSTS_AT_ONCE\" ]");
    tree.script(
        "seldom-0b",
        "echo >>turns; [ $(wc -l <turns) != 13 ] || { echo the thirteenth is red; exit 101; }",
    );
    let list = ["good-0a", "seldom-0b"].map(|name| {
        format!("quiet-planted {} {}\n", tree.at("package").display(), tree.at(name).display())
    });
    fs::write(tree.at("list"), list.concat()).unwrap();
    let busy = |only: &str| {
        let _ = fs::remove_file(tree.at("package/turns"));
        let mut command = tree.command(&["lab/hosts", "busy"]);
        command
            .env("HOSTS_LIST", tree.at("list"))
            .env("HOSTS_ONLY", only)
            .env("HOSTS_AT_ONCE", "2");
        let output = command.output().unwrap();
        (output.status.code(), text(&output))
    };
    let (status, said) = busy("planted");
    assert_eq!(status, Some(1), "{said}");
    assert!(said.contains("good of quiet-planted, 20 times on a busy machine ... ok"), "{said}");
    assert!(
        said.contains("seldom of quiet-planted, 20 times on a busy machine ... FAILED (1 of 20)"),
        "{said}"
    );
    assert!(
        said.contains("turn 13 of 20: status 101\n") && said.contains("the thirteenth is red"),
        "{said}"
    );
    assert!(said.ends_with("1 passed, 1 failed\n"), "{said}");
    let (status, said) = busy("good");
    assert_eq!((status, said.lines().count()), (Some(0), 2), "{said}");
    assert_eq!(busy("no such program").0, Some(1));

    // Ended in its third turn, it says how many have passed and why others have not; the rest can be had another day.
    tree.script(
        "long-0c",
        "echo >>turns; case $(wc -l <turns) in 1) echo the first is red; exit 9 ;; 3) exec sleep 600 ;; esac",
    );
    let line = format!(
        "quiet-planted {0} {1}\n",
        tree.at("package").display(),
        tree.at("long-0c").display()
    );
    fs::write(tree.at("list"), line).unwrap();
    let _ = fs::remove_file(tree.at("package/turns"));
    let to = fs::File::create(tree.at("said")).unwrap();
    let mut command = tree.command(&["lab/hosts", "busy"]);
    let mut running =
        Running(command.env("HOSTS_LIST", tree.at("list")).stdout(to).spawn().unwrap());
    let third = || (fs::read(tree.at("package/turns")).ok()?.len() == 3).then_some(());
    until("its third turn", third);
    kill_process(Pid::from_child(&running.0), Signal::TERM).unwrap();
    assert_eq!(running.0.wait().unwrap().code(), Some(143));
    until("how many turns have passed", || {
        let said = fs::read_to_string(tree.at("said")).unwrap();
        let whole = said.contains("... broken off: 1 turns had passed, 1 had failed\n");
        (whole && said.contains("turn 1 of 20: status 9\n      the first is red\n")).then_some(())
    });

    // What cannot be built has not passed.
    tree.script("bin/cargo", "echo error: it does not compile >&2; exit 101");
    for part in ["busy", "processors"] {
        let (status, said) = tree.done(&["lab/hosts", part]);
        assert_eq!(status, Some(1), "{said}");
        assert!(said.contains("FAILED") && said.contains("it does not compile"), "{said}");
    }
}

/// Guests that are none: a boot here is a few words of sh, chosen by the name of the guest's script.
#[test]
fn the_lab_believes_no_guest_that_did_not_say_its_end_and_loses_none() {
    let tree = Planted::new(&["lab/test"]).with_tools();
    for script in ["build", "kernel"] {
        tree.script(&format!("tree/lab/{script}"), "exit 0");
    }
    tree.script("tree/lab/image", "exit 1");
    tree.script(
        "tree/lab/boot",
        "case ${2##*/} in
           beside) echo 'ok: the first of many'; exit 0 ;;
           lend) echo >>\"$GATE\"; [ $(wc -l <\"$GATE\") != 1 ] || exit 125 ;;
           check) echo '@skipped: the old groups: this kernel: has none' ;;
           trouble) echo '1 failures'; exit 1 ;;
           vectors) kill -KILL $(sed -n 's/^PPid:.//p' /proc/$PPID/status); exit 0 ;;
         esac
         echo '0 failures'",
    );
    let (status, said) = tree.done(&["lab/test", "--only", "isolation", "daemons"]);
    assert_eq!(status, Some(1), "{said}");
    let line =
        |words: &str| said.lines().filter(|line| line.starts_with(words)).collect::<Vec<_>>();
    assert!(line("lab: trixie/amd64 shield v2 ... ok (")[0].ends_with(" of CPU)"), "{said}");
    for left in [
        "lab: trixie-backports/rt-amd64 beside ... FAILED (0, but",
        "lab: bookworm/rt-amd64 trouble Input/output error ... FAILED (1)",
    ] {
        assert_eq!(line(left).len(), 1, "{left}: {said}");
    }
    assert_eq!(line("lab: trixie/amd64 lend v2: no end came").len(), 1, "{said}");
    assert_eq!(line("lab: trixie/amd64 lend v2 ... ok (the second try, ").len(), 1, "{said}");
    let skipped =
        "lab: trixie/amd64 check shield: the old groups ... skipped: this kernel: has none";
    assert_eq!(line(skipped), [skipped], "{said}");
    // The lane that was killed, and what it was at; and the one whose disk image cannot be made.
    for broken in [
        "isolation ... FAILED: it broke off (137)",
        "bookworm/rt-amd64 vectors ... FAILED: it broke off, and",
        "daemons ... FAILED: it broke off (1)",
    ] {
        assert_eq!(line(&format!("lab: {broken}")).len(), 1, "{broken}: {said}");
    }
    let passed = line("lab: ").iter().filter(|line| line.contains(" ... ok (")).count();
    let failed = line("lab: ").iter().filter(|line| line.contains(" ... FAILED")).count();
    assert!(said.contains(&format!("\n{passed} passed, {failed} failed\n")), "{said}");
    // Nothing at all is no success.
    tree.script("tree/lab/boot", "echo '0 failures'");
    let (status, said) = tree.done(&["lab/test", "--only", "cuts_here"]);
    assert_eq!(status, Some(1), "{said}");
}

/// A machine that dies at once, in place of QEMU: what an earlier boot wrote into `LAB_OUT` is not taken for this boot's.
#[test]
fn a_guest_that_dies_has_not_the_verdict_of_an_earlier_boot() {
    let tree = Planted::new(&["lab/boot", "lab/guest/init", "lab/guest/lib"]);
    let kernel = tree.at("kernel");
    fs::create_dir_all(kernel.join("modules")).unwrap();
    fs::write(kernel.join("vmlinux"), "").unwrap();
    tree.script("tree/lab/kernel", &format!("echo {}", kernel.display()));
    for (stand_in, does) in [("busybox", ":"), ("cpio", "cat >/dev/null"), ("quietcores", ":")] {
        tree.script(&format!("bin/{stand_in}"), does);
    }
    fs::write(tree.at("script"), "").unwrap();
    let out = tree.at("out");
    fs::create_dir(&out).unwrap();
    let boot = |qemu: &str| {
        tree.script("bin/qemu-system-x86_64", qemu);
        let mut command = tree.command(&["lab/boot", "trixie/amd64"]);
        command
            .arg(tree.at("script"))
            .env("LAB_OUT", &out)
            .env("LAB_BIN", tree.at("bin/quietcores"));
        for (name, _) in
            env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("LAB_"))
        {
            if !["LAB_OUT", "LAB_BIN"].iter().any(|kept| name == *kept) {
                command.env_remove(name);
            }
        }
        let output = command.output().unwrap();
        (output.status.code(), text(&output))
    };
    for file in ["status", "dmesg", "console.log"] {
        fs::write(out.join(file), "0\n").unwrap();
    }
    let (status, said) = boot("exit 0");
    assert_eq!(status, Some(125), "{said}");
    assert!(!out.join("dmesg").exists());
    // One that comes to its end: its results are an archive, as the guest makes it.
    let archive = "for word; do case $word in file,id=r,path=*) to=${word#*path=} ;; esac; done
        cd \"$(mktemp -d)\" && echo 3 >status && tar -cf \"$to\" status; rm -rf \"$PWD\"";
    assert_eq!(boot(archive).0, Some(3));
    assert_eq!(boot(&archive.replace("echo 3", "printf ''")).0, Some(125));
}

#[test]
fn a_book_whose_making_is_killed_or_fails_is_not_taken_for_one() {
    if program("python3").is_none() {
        return skip(Why::Program("python3", "python3"));
    }
    let tree = Planted::new(&["packaging/book"]);
    let mdbook = |then: &str| {
        let page = "<a href=\\\"index.html\\\">$0 $$</a>";
        tree.script(
            "bin/mdbook",
            &format!("for word; do to=$word; done; mkdir -p \"$to\"; echo \"{page}\" >\"$to/index.html\"; {then}; : >\"$to/print.html\""),
        );
        tree.done(&["packaging/book"])
    };
    let book = tree.at("tree/target/book/docs");
    let text = || fs::read_to_string(book.join("index.html")).unwrap();
    let beside = || fs::read_dir(tree.at("tree/target")).unwrap().count();
    // Never one before, and killed.
    assert_eq!(mdbook("kill -KILL $PPID").0, None);
    assert!(!tree.at("tree/target/book").exists());
    let (status, said) = mdbook(":");
    assert_eq!((status, beside()), (Some(0), 1), "{said}");
    let first = text();
    assert_eq!(mdbook("kill -KILL $PPID").0, None);
    assert_eq!(mdbook("echo ERROR").0, Some(1));
    assert_eq!(
        mdbook("rm \"$to/index.html\"; echo '<a href=\"gone.html\">x</a>' >\"$to/other.html\"").0,
        Some(1)
    );
    assert_eq!((text(), book.join("print.html").exists(), beside()), (first.clone(), true, 1));
    assert_eq!(mdbook(":").0, Some(0));
    assert_ne!(text(), first);
}

/// Two targets that are scripts: one finds more than is kept, the other only a little.
#[test]
fn what_fuzzing_finds_is_kept_and_does_not_grow_for_ever() {
    let tree = Planted::new(&["fuzz/run"]);
    tree.script("bin/rustc", "echo 'host: planted'");
    tree.script("bin/cargo", "exit 0");
    fs::create_dir_all(tree.at("tree/fixtures")).unwrap();
    for (target, finds) in [("much", 40), ("little", 5)] {
        tree.script(
            &format!("tree/target/fuzz/planted/release/{target}"),
            &format!(
                "while [ $# -gt 2 ]; do [ $1 != -merge=1 ] || merge=1; shift; done
                 if [ \"$merge\" ]; then [ ! -e \"$GATE\" ] || exit 77; for n in 1 2 3; do cp \"$2/$n\" \"$1/\"; done; exit; fi
                 for n in $(seq {finds}); do echo $n >\"$1/$n\"; done"
            ),
        );
        fs::create_dir_all(tree.at("tree/fuzz/fuzz_targets")).unwrap();
        fs::write(tree.at(&format!("tree/fuzz/fuzz_targets/{target}.rs")), "").unwrap();
    }
    let kept = |target: &str| {
        fs::read_dir(tree.at("tree/target/fuzz-corpus").join(target)).map_or(0, Iterator::count)
    };
    let run = |kept_by: &str| {
        let output = tree.command(&["fuzz/run", "1"]).env("FUZZ_MOST", "20").output().unwrap();
        let said = text(&output);
        assert!(output.status.success() && said.contains("fuzz: much ... ok"), "{kept_by}: {said}");
        assert_eq!(
            fs::read_dir(tree.at("tree/target/fuzz-corpus")).unwrap().count(),
            2,
            "{kept_by}"
        );
    };
    run("libFuzzer");
    assert_eq!((kept("much"), kept("little")), (3, 5));
    // It cannot: then as many as there may be.
    fs::write(tree.at("gate"), "").unwrap();
    run("age");
    assert_eq!((kept("much"), kept("little")), (20, 5));
    // Killed between two names.
    let corpus = tree.at("tree/target/fuzz-corpus");
    fs::rename(corpus.join("little"), corpus.join(".old-little")).unwrap();
    fs::write(corpus.join(".old-little/6"), "").unwrap();
    run("a killed one");
    assert_eq!(kept("little"), 6);
}

/// An archive that is a few words of sh; it has moved on since its lists were read, as after a point release.
#[test]
fn a_kernel_is_looked_for_again_and_the_one_that_is_here_serves_meanwhile() {
    let tree = Planted::new(&["lab/kernel", "lab/kept"]);
    let home = tree.dir.path().display().to_string();
    tree.script(
        "bin/apt-cache",
        "case \"$*\" in *' linux-image-arm64') echo 'Depends: linux-image-6.1-arm64 (= 1)' ;; *) echo \"Version: $(cat \"$GATE.version\")\" ;; esac",
    );
    // Gone is what the first lists name; from nothing they are made anew.
    tree.script(
        "bin/apt-get",
        &format!(
            "echo \"$*\" >>{home}/log
             case \"$*\" in
               *update) [ ! -e \"$GATE.down\" ] || exit 100 ;;
               *download*) case \"$*\" in *No-Cache*) ;; *) echo '404  Not Found' >&2; exit 100 ;; esac; : >linux.deb ;;
             esac"
        ),
    );
    tree.script(
        "bin/dpkg-deb",
        "mkdir -p \"$3/boot\" \"$3/bin\" \"$3/lib/modules/6.1-arm64/kernel\"; : >\"$3/boot/config-6.1\"; : >\"$3/bin/busybox\"
         printf '%056dARMd' 0 >\"$3/boot/vmlinuz-6.1\"",
    );
    let kernel = |days: &str| {
        let output = tree
            .command(&["lab/kernel", "trixie/arm64"])
            .env("LAB_KERNEL_DAYS", days)
            .env_remove("LAB_CACHE")
            .output()
            .unwrap();
        let said = text(&output);
        assert!(output.status.success(), "{said}");
        let folder = PathBuf::from(String::from_utf8(output.stdout).unwrap().trim_end());
        assert!(
            folder.join("vmlinux").is_file() && folder.join("modules/kernel").is_dir(),
            "{said}"
        );
        (folder, said)
    };
    let looked = || fs::read_to_string(tree.at("log")).unwrap().matches("update").count();
    fs::write(tree.at("gate.version"), "6.1-1").unwrap();
    let (first, said) = kernel("7");
    assert!(said.contains("404"), "{said}");
    let times = looked();
    assert_eq!((kernel("7").0, looked()), (first.clone(), times));
    // Looked for again: the same, then a newer one. Whoever has the older one in hand keeps it.
    assert_eq!((kernel("0").0, looked()), (first.clone(), times + 1));
    fs::write(tree.at("gate.version"), "6.1-2").unwrap();
    let (second, _) = kernel("0");
    assert!(second != first && first.join("vmlinux").is_file());
    assert_eq!(kernel("7").0, second);
    // Nobody answers.
    fs::write(tree.at("gate.down"), "").unwrap();
    let (third, said) = kernel("0");
    assert!(third == second && said.contains("no newer trixie/arm64 can be looked for"), "{said}");
    // What was long not used goes, but for the newest few.
    let kernels = first.parent().unwrap();
    let old =
        |path: &Path| Command::new("touch").args(["-d", "9 days ago"]).arg(path).status().unwrap();
    for folder in [&first, &second] {
        assert!(old(folder).success());
    }
    fs::create_dir(kernels.join("trixie-arm64@6.0")).unwrap();
    assert!(old(&kernels.join("trixie-arm64@6.0")).success());
    fs::remove_file(tree.at("gate.down")).unwrap();
    fs::write(tree.at("gate.version"), "6.1-3").unwrap();
    let (newest, _) = kernel("0");
    assert_eq!(fs::read_dir(kernels).unwrap().count(), 3, "two and the link: {newest:?}");
}

#[test]
fn every_script_is_one_that_bash_can_read() {
    let first = |path: &str| fs::read(root().join(path)).unwrap_or_default();
    let scripts: Vec<_> = quiet_testing::tree::sources()
        .into_iter()
        .filter(|path| {
            path == "needs.sh"
                || path == "lab/kept"
                || first(path).starts_with(b"#!/usr/bin/env bash")
        })
        .collect();
    assert!(scripts.len() > 40, "{scripts:?}");
    for script in scripts {
        let read = Command::new("bash").arg("-n").arg(root().join(&script)).output().unwrap();
        assert!(read.status.success() && read.stderr.is_empty(), "{script}: {}", text(&read));
    }
}
