//! A bus of the test's own with the service on it, and callers of other users.

// Each test program uses a part of it.
#![allow(dead_code)]

use quiet_testing::{Why, cpus, is_root, program, skip};
use rustix::fs::FlockOperation;
use std::{
    fs::{self, File, Permissions},
    io::{BufRead, BufReader},
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    process::{Child, Command, Output, Stdio},
    sync::{Mutex, MutexGuard},
    thread::sleep,
    time::{Duration, Instant},
};

pub const PROGRAM: &str = env!("CARGO_BIN_EXE_quietcored");

/// `nobody`: the bus asks for the groups of who connects, so he has a name.
pub const STRANGER: &str = "65534";
/// Whose members may, in place of `audio`.
pub const GROUP: &str = "games";

pub struct World {
    _thread: MutexGuard<'static, ()>,
    _machine: File,
    dir: tempfile::TempDir,
    bus: Child,
    service: Option<Child>,
    pub address: String,
    /// The highest CPU.
    pub cpu: u32,
}

/// Everybody may connect, own and send: who may do what is the service's to decide here.
const BUS: &str = r#"<!DOCTYPE busconfig PUBLIC "-//freedesktop//DTD D-Bus Bus Configuration 1.0//EN"
 "http://www.freedesktop.org/standards/dbus/1.0/busconfig.dtd">
<busconfig>
  <type>custom</type>
  <listen>unix:path=PLACE/bus</listen>
  <auth>EXTERNAL</auth>
  <policy context="default">
    <allow user="*"/><allow own="*"/><allow send_destination="*" eavesdrop="false"/><allow receive_sender="*"/>
    <allow send_type="method_call"/>
  </policy>
  <limit name="max_connections_per_user">2000</limit>
</busconfig>
"#;

impl World {
    /// `None`, and the test is skipped, where it cannot be made. One at a time changes the machine, among all test programs.
    pub fn new() -> Option<World> {
        static ONE: Mutex<()> = Mutex::new(());
        let thread = ONE.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        if !is_root() {
            return skip(Why::Root);
        }
        if cpus() < 2 {
            return skip(Why::OneCpu);
        }
        for (name, package) in
            [("dbus-daemon", "dbus-daemon"), ("dbus-send", "dbus-bin"), ("setpriv", "util-linux")]
        {
            if program(name).is_none() {
                return skip(Why::Program(name, package));
            }
        }
        let path = std::env::temp_dir().join("quietcores-machine.lock");
        let machine = File::options().create(true).append(true).open(path).unwrap();
        rustix::fs::flock(&machine, FlockOperation::LockExclusive).unwrap();
        let dir = tempfile::tempdir().unwrap();
        // Other users come to the socket.
        fs::set_permissions(dir.path(), Permissions::from_mode(0o755)).unwrap();
        fs::create_dir(dir.path().join("chains")).unwrap();
        let conf = dir.path().join("bus.conf");
        fs::write(&conf, BUS.replace("PLACE", dir.path().to_str().unwrap())).unwrap();
        let mut bus = Command::new("dbus-daemon")
            .args(["--nofork", "--nopidfile", "--print-address", "--config-file"])
            .arg(&conf)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut address = String::new();
        BufReader::new(bus.stdout.take().unwrap()).read_line(&mut address).unwrap();
        let online = fs::read_to_string("/sys/devices/system/cpu/online").unwrap();
        let online: quiet_types::CpuSet = online.trim().parse().unwrap();
        let mut world = World {
            _thread: thread,
            _machine: machine,
            dir,
            bus,
            service: None,
            address: address.trim().to_owned(),
            cpu: online.iter().last().unwrap().0,
        };
        world.start();
        Some(world)
    }

    /// Starts the service, and waits until it has its name.
    pub fn start(&mut self) {
        let service = Command::new(PROGRAM)
            .arg("--state")
            .arg(self.state())
            .arg("--chains")
            .arg(self.chains())
            .args(["--group", GROUP, "--bus", &self.address])
            .spawn()
            .unwrap();
        self.service = Some(service);
        let since = Instant::now();
        while !self.answers() {
            assert!(since.elapsed() < Duration::from_secs(60), "the service does not come up");
            sleep(Duration::from_millis(20));
        }
    }

    fn answers(&self) -> bool {
        let asked = Command::new("dbus-send")
            .arg(format!("--bus={}", self.address))
            .args(["--dest=org.freedesktop.DBus", "--print-reply", "/org/freedesktop/DBus"])
            .args(["org.freedesktop.DBus.NameHasOwner", "string:org.quietcores1"])
            .output()
            .unwrap();
        String::from_utf8_lossy(&asked.stdout).contains("boolean true")
    }

    pub fn service(&self) -> u32 {
        self.service.as_ref().unwrap().id()
    }

    /// By SIGKILL.
    pub fn kill(&mut self) {
        let mut service = self.service.take().unwrap();
        service.kill().unwrap();
        service.wait().unwrap();
        while self.answers() {
            sleep(Duration::from_millis(10));
        }
    }

    pub fn state(&self) -> PathBuf {
        self.dir.path().join("state")
    }

    pub fn chains(&self) -> PathBuf {
        self.dir.path().join("chains")
    }

    pub fn dir(&self) -> &Path {
        self.dir.path()
    }

    /// Approves a chain that takes the highest CPU.
    pub fn approve(&self, name: &str) {
        let text = format!("[chain]\nname = \"{name}\"\ncpus = \"{}\"\n", self.cpu);
        let file = self.chains().join(format!("{name}.toml"));
        fs::write(&file, text).unwrap();
        fs::set_permissions(&file, Permissions::from_mode(0o644)).unwrap();
    }

    /// A call by another user, who is in these groups: what the bus printed.
    pub fn call(&self, uid: &str, groups: &str, method: &str, words: &[&str]) -> Output {
        let mut command = Command::new("setpriv");
        command.args(["--reuid", uid, "--regid", uid]);
        match groups {
            "" => command.arg("--clear-groups"),
            groups => command.args(["--groups", groups]),
        };
        command
            .arg("dbus-send")
            .arg(format!("--bus={}", self.address))
            .args(["--dest=org.quietcores1", "--print-reply", "--reply-timeout=60000"])
            .args(["/org/quietcores1", &format!("org.quietcores1.Shield.{method}")])
            .args(words)
            .output()
            .unwrap()
    }
}

impl Drop for World {
    fn drop(&mut self) {
        for child in [self.service.as_mut(), Some(&mut self.bus)].into_iter().flatten() {
            let _ = child.kill();
            let _ = child.wait();
        }
        let _ = Command::new(PROGRAM).arg("revert").arg("--state").arg(self.state()).status();
    }
}

/// The number of a group of this machine.
pub fn group(name: &str) -> String {
    let groups = fs::read_to_string("/etc/group").unwrap();
    let line = groups.lines().find(|line| line.starts_with(&format!("{name}:"))).unwrap();
    line.split(':').nth(2).unwrap().to_owned()
}

pub fn text(output: &Output) -> String {
    format!(
        "{}{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    )
}
