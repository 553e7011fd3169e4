//! A message bus of the test's own, the service on it, and callers of other users.

use crate::{Why, program, skip};
use std::{
    ffi::OsStr,
    fs::{self, Permissions},
    io::{BufRead, BufReader},
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    process::{Child, Command, Output, Stdio},
    thread::sleep,
    time::{Duration, Instant},
};

/// `nobody`: the bus asks for the groups of who connects, so he has a name.
pub const STRANGER: &str = "65534";
/// Another user with a name, `daemon`.
pub const ANOTHER: &str = "1";
/// Whose members may, in place of `audio`.
pub const GROUP: &str = "games";

/// Everybody may connect, own and send: who may do what is the service's to decide here.
const CONF: &str = r#"<!DOCTYPE busconfig PUBLIC "-//freedesktop//DTD D-Bus Bus Configuration 1.0//EN"
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
  <limit name="max_replies_per_connection">128</limit>
</busconfig>
"#;

/// A `dbus-daemon`, which ends when this is dropped.
#[derive(Debug)]
pub struct Bus {
    daemon: Child,
    /// Where it is reached.
    pub address: String,
    /// Its socket.
    pub socket: PathBuf,
}

impl Bus {
    /// Starts one in the folder `dir`, to which others are let in; `None`, and the test is skipped, where a program is missing.
    ///
    /// # Panics
    /// When it does not start.
    #[track_caller]
    pub fn start(dir: &Path) -> Option<Bus> {
        for (name, package) in
            [("dbus-daemon", "dbus-daemon"), ("dbus-send", "dbus-bin"), ("setpriv", "util-linux")]
        {
            if program(name).is_none() {
                return skip(Why::Program(name, package));
            }
        }
        let place = dir.to_str().expect("a plain path");
        fs::set_permissions(dir, Permissions::from_mode(0o755)).expect("a folder of ours");
        let conf = dir.join("bus.conf");
        fs::write(&conf, CONF.replace("PLACE", place)).expect("a folder of ours");
        let mut daemon = Command::new("dbus-daemon")
            .args(["--nofork", "--nopidfile", "--print-address", "--config-file"])
            .arg(&conf)
            .stdout(Stdio::piped())
            .spawn()
            .expect("dbus-daemon starts");
        let mut address = String::new();
        let told = BufReader::new(daemon.stdout.take().expect("it is piped"));
        { told }.read_line(&mut address).expect("it tells its address");
        Some(Bus { daemon, address: address.trim().to_owned(), socket: dir.join("bus") })
    }

    /// The process of the bus itself.
    pub fn pid(&self) -> u32 {
        self.daemon.id()
    }

    /// Starts the service PROGRAM with its journal and its chains, for members of [`GROUP`]. It may still be on its way up.
    ///
    /// # Panics
    /// When it cannot be started.
    pub fn serve(&self, program: &Path, state: &Path, chains: &Path) -> Child {
        let mut command = Command::new(program);
        command.args(["--group", GROUP, "--bus", &self.address]).arg("--state").arg(state);
        command.arg("--chains").arg(chains).spawn().expect("the service starts")
    }

    /// Whether somebody has this name.
    ///
    /// # Panics
    /// When the bus cannot be asked.
    pub fn has(&self, name: &str) -> bool {
        let asked = Command::new("dbus-send")
            .arg(format!("--bus={}", self.address))
            .args(["--dest=org.freedesktop.DBus", "--print-reply", "/org/freedesktop/DBus"])
            .args(["org.freedesktop.DBus.NameHasOwner", &format!("string:{name}")])
            .output()
            .expect("dbus-send starts");
        String::from_utf8_lossy(&asked.stdout).contains("boolean true")
    }

    /// Waits until somebody has this name, or has it no more.
    ///
    /// # Panics
    /// When it is not so for a minute.
    #[track_caller]
    pub fn until(&self, name: &str, there: bool) {
        let since = Instant::now();
        while self.has(name) != there {
            assert!(since.elapsed() < Duration::from_secs(60), "{name}: not {there} for a minute");
            sleep(Duration::from_millis(10));
        }
    }

    /// A call of the service by another user, who is in these groups (`""`: none).
    ///
    /// # Panics
    /// When it cannot be started.
    pub fn call(&self, uid: &str, groups: &str, method: &str, words: &[&str]) -> Output {
        as_user(uid, groups, "dbus-send")
            .arg(format!("--bus={}", self.address))
            .args(["--dest=org.quietcores1", "--print-reply", "--reply-timeout=60000"])
            .args(["/org/quietcores1", &format!("org.quietcores1.Shield.{method}")])
            .args(words)
            .output()
            .expect("setpriv starts")
    }
}

impl Drop for Bus {
    fn drop(&mut self) {
        let _ = self.daemon.kill();
        let _ = self.daemon.wait();
    }
}

/// PROGRAM as another user, in these groups (`""`: none), to be given words.
pub fn as_user(uid: &str, groups: &str, program: impl AsRef<OsStr>) -> Command {
    let mut command = Command::new("setpriv");
    command.args(["--reuid", uid, "--regid", uid]);
    match groups {
        "" => command.arg("--clear-groups"),
        groups => command.args(["--groups", groups]),
    };
    command.arg(program);
    command
}

/// The number of a group of this machine.
///
/// # Panics
/// When it has none of that name.
pub fn group(name: &str) -> String {
    let groups = fs::read_to_string("/etc/group").expect("/etc/group");
    let line = groups.lines().find(|line| line.starts_with(&format!("{name}:")));
    let line = line.unwrap_or_else(|| panic!("no group {name}"));
    line.split(':').nth(2).expect("a number").to_owned()
}

/// All that was printed.
pub fn text(output: &Output) -> String {
    let of = String::from_utf8_lossy;
    format!("{}{}", of(&output.stdout), of(&output.stderr))
}
