//! Where results go: tried before anything is measured, shown whatever comes of keeping them, and owned by
//! the user who asked.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

use quiet_testing::{Why, copy_program, is_root, own_cpus, public_folder, skip, tree};
use std::{
    fs,
    os::unix::{
        fs::{MetadataExt, PermissionsExt, chown},
        process::ExitStatusExt,
    },
    path::{Path, PathBuf},
    process::{Command, Output, Stdio},
};

const PROGRAM: &str = env!("CARGO_BIN_EXE_quietcores");

fn quietcores(args: &[&str]) -> Command {
    let mut command = Command::new(PROGRAM);
    command.args(args).stdin(Stdio::null());
    for name in ["SUDO_UID", "SUDO_GID", "SUDO_HOME", "XDG_DATA_HOME"] {
        command.env_remove(name);
    }
    command
}

fn errors(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn fixture() -> String {
    tree::fixture("results/cyclictest-summary.txt").display().to_string()
}

/// Whatever would write to `place` measures nothing: it would take minutes, and says nothing of them.
fn is_refused_at_once(place: &str, why: &[&str]) {
    let store = tempfile::tempdir().unwrap();
    let there = store.path().display().to_string();
    let long = ["--for", "10min", "--cpus", "0"];
    let buffers = ["measure", "buffers", "--host", "null", "--for", "10min"];
    for args in [
        [&["prove"][..], &long, &["--store", &there, "--html", place]].concat(),
        [&["prove"][..], &long, &["--store", place]].concat(),
        [&["measure", "gap"][..], &long, &["--store", &there, "-o", place]].concat(),
        [&["measure", "wakeup"][..], &long, &["--store", place]].concat(),
        [&buffers[..], &["--store", &there, "--html", place]].concat(),
        [&buffers[..], &["--store", place]].concat(),
        vec!["measure", "roundtrip", "--host", "null", "--cycles", "1000", "--store", place],
    ] {
        let output = quietcores(&args).output().unwrap();
        let said = errors(&output);
        assert_eq!(output.status.code(), Some(2), "{args:?}: {said}");
        assert!(why.iter().any(|why| said.contains(why)), "{args:?}: {said}");
        assert!(said.contains(place) && output.stdout.is_empty(), "{args:?}: {said}");
        assert!(!said.contains("pair 1 of"), "{said}");
    }
}

#[test]
fn what_cannot_be_kept_is_refused_before_anything_is_measured() {
    // Nobody can make anything there, root neither.
    is_refused_at_once("/proc/nosuch/x", &["No such file or directory"]);
    is_refused_at_once("/dev/null/x", &["Not a directory"]);
}

/// A file system of its own, in a mount namespace of its own; `None` where that is not allowed.
fn on_tmpfs(options: &str, script: &str) -> Option<Output> {
    let mount = format!("mount -t tmpfs -o {options} none \"$DIR\" || exit 77; {script}");
    let dir = tempfile::tempdir().unwrap();
    let output = Command::new("unshare")
        .args(["-m", "sh", "-c", &mount])
        .env("DIR", dir.path())
        .env("PROGRAM", PROGRAM)
        .stdin(Stdio::null())
        .output()
        .ok()?;
    (output.status.code() != Some(77)).then_some(output)
}

#[test]
fn a_full_or_read_only_place_is_refused_before_anything_is_measured() {
    if !is_root() {
        return skip(Why::Root);
    }
    let full = "\"$PROGRAM\" measure wakeup --for 10min --cpus 0 --store \"$DIR/x\"";
    let page = "\"$PROGRAM\" prove --for 10min --store /proc/self/task --html \"$DIR/x.html\"";
    for (options, script, why) in [
        ("size=64k", full, "No space left on device"),
        ("ro", full, "Read-only file system"),
        ("ro", page, "nothing is measured"),
    ] {
        let Some(output) = on_tmpfs(options, script) else {
            return skip(Why::Machine("no mount namespace is allowed here".to_owned()));
        };
        let said = errors(&output);
        assert_eq!(output.status.code(), Some(2), "{said}");
        assert!(said.contains(why) && output.stdout.is_empty(), "{said}");
    }
}

#[test]
fn what_fails_after_measuring_takes_no_figure_back_and_ends_with_2() {
    let dir = tempfile::tempdir().unwrap();
    let store = dir.path().display().to_string();
    for (more, figure) in [(&[][..], "p99"), (&["--json"], "\"threads\"")] {
        let args = ["measure", "gap", "--policy", "other", "--for", "50ms", "--store", &store];
        // Opens, and refuses every byte.
        let output = quietcores(&args).args(["-o", "/dev/full"]).args(more).output().unwrap();
        let said = errors(&output);
        assert_eq!(output.status.code(), Some(2), "{said}");
        assert!(said.contains("not kept: cannot write /dev/full: No space left"), "{said}");
        assert!(said.contains("kept as "), "the store has it: {said}");
        assert!(String::from_utf8_lossy(&output.stdout).contains(figure), "{said}");
    }
}

/// A user that no system has, and the directories of it.
struct Somebody {
    _dir: tempfile::TempDir,
    home: PathBuf,
}

const UID: u32 = 54_321;

impl Somebody {
    fn new() -> Option<Somebody> {
        if !is_root() {
            return skip(Why::Root);
        }
        let dir = public_folder();
        let home = dir.path().join("home");
        fs::create_dir(&home).unwrap();
        chown(&home, Some(UID), Some(UID)).unwrap();
        Some(Somebody { _dir: dir, home })
    }

    /// As sudo starts it.
    fn sudo(&self, home: &Path, args: &[&str]) -> Output {
        let mut command = quietcores(args);
        command.env("SUDO_UID", UID.to_string()).env("SUDO_GID", UID.to_string());
        // In place of a line in /etc/passwd, as where users are kept elsewhere.
        command.env("SUDO_HOME", &self.home).env("HOME", home).current_dir(&self.home);
        command.output().unwrap()
    }

    /// Everything in the home belongs to the user.
    fn owns_all(&self) -> usize {
        let (mut left, mut seen) = (vec![self.home.clone()], 0);
        while let Some(path) = left.pop() {
            let meta = fs::symlink_metadata(&path).unwrap();
            assert_eq!((meta.uid(), meta.gid()), (UID, UID), "{}", path.display());
            if meta.is_dir() {
                left.extend(fs::read_dir(&path).unwrap().map(|entry| entry.unwrap().path()));
            }
            seen += 1;
        }
        seen
    }
}

#[test]
fn under_sudo_results_are_kept_by_and_for_the_user_who_asked() {
    let Some(somebody) = Somebody::new() else { return };
    let root = tempfile::tempdir().unwrap();
    // One sudo keeps HOME; another sets root's.
    for home in [&somebody.home, &PathBuf::from("/root")] {
        let label = home.display().to_string();
        let store = somebody.home.join(".local/share/quietcores/runs");
        let _ = fs::remove_dir_all(&store);
        let output = somebody.sudo(home, &["import", &fixture(), "--label", &label]);
        assert!(output.status.success(), "{}", errors(&output));
        assert_eq!(fs::read_dir(&store).unwrap().count(), 1, "{}", errors(&output));
        for args in [
            &["report", "last", "-o", "page.html"][..],
            &["export", "last", "--format", "csv", "-o", "run.csv"],
            &["runs"],
            &["runs", "--rebuild"],
        ] {
            let output = somebody.sudo(home, args);
            assert!(output.status.success(), "{args:?}: {}", errors(&output));
        }
        assert!(fs::read_to_string(somebody.home.join("page.html")).unwrap().contains(&label));
        assert!(somebody.owns_all() > 8);
        fs::remove_file(somebody.home.join("run.csv")).unwrap();
    }
    // Root by itself keeps its own.
    let mine = root.path().join("quietcores");
    let output = quietcores(&["import", &fixture(), "--store"])
        .arg(&mine)
        .env("SUDO_UID", "0")
        .env("SUDO_GID", "0")
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", errors(&output));
    assert_eq!(fs::metadata(&mine).unwrap().uid(), 0);
}

#[test]
fn a_store_that_an_earlier_sudo_gave_to_root_is_named_with_the_way_out() {
    let Some(somebody) = Somebody::new() else { return };
    let store = somebody.home.join(".local/share/quietcores/runs");
    fs::create_dir_all(&store).unwrap();
    let args = ["measure", "gap", "--for", "10min", "--cpus", "0"];
    let output = somebody.sudo(&somebody.home, &args);
    assert_eq!(output.status.code(), Some(2));
    let said = errors(&output);
    assert!(said.contains("belongs to root: `sudo chown -R 54321 "), "{said}");
}

#[test]
fn a_link_of_the_users_leads_root_nowhere() {
    let Some(somebody) = Somebody::new() else { return };
    let roots = tempfile::tempdir().unwrap();
    let secret = roots.path().join("page.html");
    fs::write(&secret, format!("<!-- {} -->", quiet_report::PAGE_MARK)).unwrap();
    let before = fs::read(&secret).unwrap();
    let link = somebody.home.join("page.html");
    std::os::unix::fs::symlink(&secret, &link).unwrap();
    std::os::unix::fs::symlink(roots.path(), somebody.home.join("dir")).unwrap();
    let home = somebody.home.clone();
    assert!(somebody.sudo(&home, &["import", &fixture()]).status.success());
    for args in [
        &["report", "last", "-o", "page.html", "--force"][..],
        &["report", "last", "-o", "dir/new.html"],
        &["export", "last", "--format", "csv", "-o", "dir/new.csv"],
        &["import", &fixture(), "-o", "dir/new.json"],
        &["import", &fixture(), "--store", "dir/store"],
    ] {
        let output = somebody.sudo(&home, args);
        assert_eq!(output.status.code(), Some(2), "{args:?}: {}", errors(&output));
    }
    assert_eq!(fs::read(&secret).unwrap(), before);
    assert_eq!(fs::read_dir(roots.path()).unwrap().count(), 1);
}

#[test]
fn who_is_not_root_is_nobody_elses_hand() {
    if !is_root() {
        return skip(Why::Root);
    }
    let dir = public_folder();
    fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o777)).unwrap();
    let program = dir.path().join("quietcores");
    copy_program(PROGRAM, &program);
    let file = dir.path().join("summary.txt");
    fs::copy(fixture(), &file).unwrap();
    fs::set_permissions(&file, fs::Permissions::from_mode(0o644)).unwrap();
    let output = Command::new("setpriv")
        .args(["--reuid=65534", "--regid=65534", "--clear-groups"])
        .arg(&program)
        .arg("import")
        .arg(&file)
        .envs([("SUDO_UID", "1"), ("SUDO_GID", "1"), ("SUDO_HOME", "/root")])
        .env("HOME", dir.path())
        .env_remove("XDG_DATA_HOME")
        .output()
        .unwrap();
    assert_eq!(output.status.signal(), None);
    assert!(output.status.success(), "{}", errors(&output));
    assert_eq!(fs::metadata(dir.path().join(".local/share/quietcores")).unwrap().uid(), 65534);
}

#[test]
fn a_buffer_table_without_a_card_is_an_error_and_not_kept() {
    if Path::new("/proc/asound/card7").exists() || !cfg!(feature = "audio") {
        return skip(Why::Machine("there is such a card, or no ALSA in this build".to_owned()));
    }
    let dir = tempfile::tempdir().unwrap();
    let output = quietcores(&["measure", "buffers", "--device", "hw:7", "--for", "10ms"])
        .args(["--periods", "64", "--counts", "2", "--stress", "none", "--store"])
        .arg(dir.path())
        .output()
        .unwrap();
    let said = errors(&output);
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert!(said.contains("no buffer could be tried") && said.contains("hw:7"), "{said}");
    assert_eq!(fs::read_dir(dir.path().join("buffers")).unwrap().count(), 0);
}

#[test]
fn a_failed_export_leaves_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let store = dir.path().display().to_string();
    assert!(
        quietcores(&["import", &fixture(), "--store", &store]).output().unwrap().status.success()
    );
    if !is_root() {
        return skip(Why::Root);
    }
    // 4 KiB: one page, which the directory's own file takes.
    let script = format!(
        "\"$PROGRAM\" export last --format csv --store {store} -o \"$DIR/x.csv\"; echo $?; ls -A \"$DIR\""
    );
    let Some(output) = on_tmpfs("size=4k,nr_inodes=1", &script) else {
        return skip(Why::Machine("no mount namespace is allowed here".to_owned()));
    };
    assert_eq!(String::from_utf8_lossy(&output.stdout), "2\n", "{}", errors(&output));
}

#[test]
fn an_ordinary_user_is_told_what_to_do_where_only_root_may() {
    if !is_root() {
        return skip(Why::Root);
    }
    let dir = public_folder();
    fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o777)).unwrap();
    let program = dir.path().join("quietcores");
    copy_program(PROGRAM, &program);
    // As root's state directory is: closed.
    let state = dir.path().join("state");
    fs::create_dir(&state).unwrap();
    fs::write(state.join("journal.jsonl"), "").unwrap();
    fs::set_permissions(&state, fs::Permissions::from_mode(0o700)).unwrap();
    let state = state.display().to_string();
    let nobody = |args: &[&str]| {
        let mut command = Command::new("setpriv");
        command.args(["--reuid=65534", "--regid=65534", "--clear-groups", "--inh-caps=-all"]);
        command.arg(&program).args(args).current_dir(dir.path()).stdin(Stdio::null());
        command.env("HOME", dir.path()).env("TMPDIR", dir.path()).output().unwrap()
    };
    for verb in ["status", "revert"] {
        let output = nobody(&[verb, "--state", &state]);
        let said = errors(&output);
        assert_eq!(output.status.code(), Some(2), "{said}");
        assert!(said.contains("without root"), "{said}");
        assert!(said.ends_with(&format!("sudo quietcores {verb}\n")), "{said}");
    }
    let cpus = own_cpus();
    let last = cpus.iter().last().unwrap().to_string();
    if cpus.len() > 1 {
        let output = nobody(&["reach", "--cpus", &last, "--each", "10ms"]);
        let said = errors(&output);
        assert_eq!(output.status.code(), Some(2), "{said}");
        assert!(said.ends_with("sudo quietcores reach\n"), "{said}");
    }
    let output = nobody(&["measure", "wakeup", "--for", "20ms", "--priority", "90"]);
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{}", errors(&output));
    assert!(!said.contains("Fifo") && !said.contains("read back"), "{said}");
    assert!(said.contains("Run as root, or allow real-time priorities"), "{said}");
}
