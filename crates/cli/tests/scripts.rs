//! The scripts that people type, in small trees of their own, with stand-ins for the programs that they call: nothing is installed, built
//! or booted.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

use quiet_testing::until;
use std::{
    env, fs,
    os::unix::fs::PermissionsExt,
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
