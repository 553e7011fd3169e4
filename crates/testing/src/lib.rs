//! What the tests of this workspace share; no part of the program: a kernel that is played ([`fake`]), trees of files ([`tree`]), a bus
//! of its own ([`bus`]), the faces as programs ([`faces`]), a JACK server ([`JackServer`]), namespaces of a test's own ([`within`]), and skips that are counted.
//!
//! A test that cannot be made here says so by [`skip`], and never by a print and a return: libtest would count it as passed.
//! `./test` counts what is skipped and lists it with its reason. A reason is looked at where it is given: one that does not
//! hold on this machine (root is needed, and we are root) fails the test.
//!
//! ```no_run
//! use quiet_testing::{Why, is_root, skip};
//!
//! fn a_test() {
//!     if !is_root() {
//!         return skip(Why::Root);
//!     }
//! }
//! ```
#![forbid(unsafe_code)]

pub mod bus;
pub mod faces;
pub mod fake;
mod jack;
mod namespaces;
mod place;
mod sockets;
pub mod tree;
mod turn;
mod wait;

pub use jack::JackServer;
pub use namespaces::within;
pub use place::{is_public_folder, own_cpus, public_folder};
pub use sockets::own_sockets;
pub use turn::{machine_alone, machine_still};
pub use wait::{PATIENCE, sleeps, until, until_halted, until_measured, until_within};

use std::{
    env,
    ffi::OsStr,
    fmt::{self, Display},
    fs::{self, Permissions},
    io::{self, Write},
    os::unix::fs::PermissionsExt,
    panic::Location,
    path::{Path, PathBuf},
    process::{Child, Command, Output, Stdio},
    thread,
};

/// Names the file that skips are appended to, a line each: package, test, kind, reason, between tabs.
pub const LIST: &str = "QUIETCORES_SKIPS";

/// Is set where the machine is the tests' own: in the lab.
pub const LAB: &str = "QUIETCORES_LAB";

/// Is set where tests that take minutes are wanted: by `./test --all`.
pub const LONG: &str = "QUIETCORES_LONG";

/// Is set where a look of a few minutes is wanted: by `./test --quick`.
pub const QUICK: &str = "QUIETCORES_QUICK";

/// Is set where an emulator stands in for the kernel: by `lab/cross tests`.
pub const EMULATED: &str = "QUIETCORES_EMULATED";

/// Why a test cannot be made here. There is no other reason.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Why {
    /// Only root may do what it does.
    Root,
    /// It needs two CPUs or more that it may use.
    OneCpu,
    /// It needs a program; the second is the Debian package that has it. `./test` installs these: there this is a failure.
    Program(&'static str, &'static str),
    /// It needs what a build for tests alone has.
    Release,
    /// It does what no machine but one of the lab may bear.
    Lab(&'static str),
    /// It takes long: how long.
    Long(&'static str),
    /// It takes longer than a quick look has: how long.
    Quick(&'static str),
    /// It asks the kernel for what an emulator of programs has not: what that is.
    Emulated(&'static str),
    /// The kernel or the machine lacks something: what was tried, and what was said.
    Machine(String),
}

impl Why {
    /// A word for each, for who counts them.
    pub const fn kind(&self) -> &'static str {
        match self {
            Why::Root => "root",
            Why::OneCpu => "one-cpu",
            Why::Program(..) => "program",
            Why::Release => "release",
            Why::Lab(_) => "lab",
            Why::Long(_) => "long",
            Why::Quick(_) => "quick",
            Why::Emulated(_) => "emulated",
            Why::Machine(_) => "machine",
        }
    }

    /// Whether it holds here. What the kernel refused was tried by the test itself.
    fn holds(&self) -> bool {
        match self {
            Why::Root => !is_root(),
            Why::OneCpu => cpus() < 2,
            Why::Program(name, _) => program(name).is_none(),
            Why::Release => !cfg!(debug_assertions),
            Why::Lab(_) => !in_lab(),
            Why::Long(_) => !is_long(),
            Why::Quick(_) => env::var_os(QUICK).is_some(),
            Why::Emulated(_) => is_emulated(),
            Why::Machine(said) => !said.trim().is_empty(),
        }
    }
}

impl Display for Why {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Why::Root => f.write_str("only root may"),
            Why::OneCpu => f.write_str("one CPU alone may be used here"),
            Why::Program(name, package) => {
                write!(f, "{name} is not installed (Debian package {package})")
            }
            Why::Release => f.write_str("in debug builds only"),
            Why::Lab(what) => write!(f, "only a machine of the lab: {what}"),
            Why::Long(time) => write!(f, "it takes {time} ({LONG}=1, ./test --all)"),
            Why::Quick(time) => write!(f, "it takes {time}, and a quick look was asked for"),
            Why::Emulated(what) => write!(f, "in QEMU's user emulation {what}"),
            Why::Machine(said) => f.write_str(said),
        }
    }
}

/// Notes that the test that calls this is not made, and why. What it gives is what the caller returns: nothing, or `None`.
///
/// # Panics
/// Where the reason does not hold, or the list cannot be written.
#[track_caller]
pub fn skip<T: Default>(why: Why) -> T {
    note("skipped", &why);
    T::default()
}

/// Whether a test that takes `time` is left out, because a quick look is wanted. That is noted.
#[track_caller]
pub fn left_out(time: &'static str) -> bool {
    let out = env::var_os(QUICK).is_some();
    if out {
        note("skipped", &Why::Quick(time));
    }
    out
}

/// Notes that a part of the test is not made, which goes on.
///
/// # Panics
/// As [`skip`].
#[track_caller]
pub fn skip_part(why: Why) {
    note("skipped in part", &why);
}

#[track_caller]
fn note(what: &str, why: &Why) {
    assert!(why.holds(), "this test says that it cannot be made here: {why}; but it can");
    let line = line(what, why, Location::caller());
    eprintln!("{what}: {why}");
    if let Some(list) = env::var_os(LIST) {
        let file = fs::OpenOptions::new().create(true).append(true).open(&list);
        let written = file.and_then(|mut file| file.write_all(line.as_bytes()));
        written.unwrap_or_else(|error| panic!("cannot note a skip in {}: {error}", list.display()));
    }
}

/// One line, whatever the reason has in it. A test is named by its thread; without a name by its place.
fn line(what: &str, why: &Why, place: &Location<'_>) -> String {
    let of = |name: &str| env::var(name).unwrap_or_default();
    let thread = thread::current();
    let test = match thread.name() {
        Some(name) if name != "main" => name.to_owned(),
        _ => format!("{}:{}", place.file(), place.line()),
    };
    let part = if what == "skipped" { "" } else { " (in part)" };
    let binary = env::current_exe()
        .ok()
        .and_then(|path| Some(path.file_stem()?.to_string_lossy().into_owned()));
    let binary = binary.unwrap_or_default();
    let binary = binary.rsplit_once('-').map_or(&*binary, |(name, _)| name);
    let said = why.to_string().split_whitespace().collect::<Vec<_>>().join(" ");
    format!("{}\t{binary} {test}{part}\t{}\t{said}\n", of("CARGO_PKG_NAME"), why.kind())
}

/// Prints a figure that a test found, for `--nocapture`.
pub fn report(what: fmt::Arguments<'_>) {
    println!("{what}");
}

/// Whether root runs the tests.
pub fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// Whether this machine is the tests' own, to be bent.
pub fn in_lab() -> bool {
    env::var_os(LAB).is_some()
}

/// Whether tests that take minutes are wanted.
pub fn is_long() -> bool {
    env::var_os(LONG).is_some()
}

/// Whether an emulator stands in for the kernel.
pub fn is_emulated() -> bool {
    env::var_os(EMULATED).is_some()
}

/// How many CPUs this process may use.
///
/// # Panics
/// As [`own_cpus`].
pub fn cpus() -> usize {
    own_cpus().len()
}

/// Starts a program that is killed when the calling thread ends, however it ends: a test that is stopped leaves none behind.
///
/// # Errors
/// When it cannot be started.
pub fn spawn_with_me(command: &mut Command) -> io::Result<Child> {
    quiet_linux::sys::process::spawn_bound(command, rustix::process::Signal::KILL)
}

/// As `Command::output`, of a program that ends as that of [`spawn_with_me`] does.
///
/// # Errors
/// As there.
pub fn output_with_me(command: &mut Command) -> io::Result<Output> {
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    spawn_with_me(command)?.wait_with_output()
}

/// Where in `PATH` a program lies.
pub fn program(name: impl AsRef<OsStr>) -> Option<PathBuf> {
    let path = env::var_os("PATH")?;
    env::split_paths(&path).map(|dir| dir.join(name.as_ref())).find(|file| file.is_file())
}

/// A program that `./test` has built for itself, else one in `PATH`.
pub fn tool(name: &str) -> Option<PathBuf> {
    let cache = env::var_os("XDG_CACHE_HOME").map(PathBuf::from);
    let cache = cache.or_else(|| Some(PathBuf::from(env::var_os("HOME")?).join(".cache")));
    let built = cache.map(|dir| dir.join("quietcores-tools/bin").join(name));
    built.filter(|path| path.is_file()).or_else(|| program(name))
}

/// Copies a program to where it is to be started from, by whoever may enter there. `cp` writes it: while this process itself had the file open for
/// writing, a child that another thread begins would have it open too until it is a program of its own, and who starts the copy
/// meanwhile is refused with `ETXTBSY` (execve(2)).
///
/// # Panics
/// When it cannot be copied.
#[track_caller]
pub fn copy_program(from: impl AsRef<Path>, to: impl AsRef<Path>) {
    let mut cp = Command::new("cp");
    cp.arg("--preserve=mode").arg("--").arg(from.as_ref()).arg(to.as_ref());
    let done = cp.status().unwrap_or_else(|error| panic!("cp: {error}"));
    assert!(done.success(), "{cp:?}: {done}");
    // What was built under a narrow umask is its builder's alone.
    let mode = fs::metadata(to.as_ref()).map(|it| it.permissions().mode() | 0o555);
    let opened =
        mode.and_then(|mode| fs::set_permissions(to.as_ref(), Permissions::from_mode(mode)));
    opened.unwrap_or_else(|error| panic!("{}: {error}", to.as_ref().display()));
}

/// A constructed machine of which nothing is known but its CPUs, each a sibling of nobody.
pub fn plain_machine(cpus: &str) -> quiet_types::Machine {
    let online: quiet_types::CpuSet = cpus.parse().unwrap_or_default();
    let cpu = |id| quiet_types::machine::Cpu {
        id,
        online: true,
        core: None,
        package: None,
        siblings: [id].into_iter().collect(),
        llc: quiet_types::CpuSet::default(),
        cluster: None,
        llc_kib: None,
        node: None,
        capacity: None,
        kind: None,
        governor: None,
        max_khz: None,
        current_khz: None,
        resume_latency: None,
        idle_states: Vec::new(),
        steal_ticks: None,
    };
    quiet_types::Machine {
        cpus: online.iter().map(cpu).collect(),
        possible: online.clone(),
        online,
        ..quiet_types::Machine::default()
    }
}

/// One of two CPUs with the cpusets of cgroup v1, for plans with steps of several kinds.
pub fn machine_with_cpusets() -> quiet_types::Machine {
    let mut machine = plain_machine("0-1");
    machine.default_irq_affinity = "0-1".parse().ok();
    machine.cgroups.v1_cpuset = "/sys/fs/cgroup/cpuset".parse().ok();
    machine.workqueues.requested = "0-1".parse().ok();
    machine
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::process::ExitStatusExt;

    #[test]
    fn what_a_thread_started_is_killed_when_it_ends() {
        let started = thread::spawn(|| spawn_with_me(Command::new("sleep").arg("600")));
        let ended = started.join().expect("a thread").expect("sleep starts").wait();
        assert_eq!(ended.expect("a child").signal(), Some(9));
        let said = output_with_me(Command::new("sh").args(["-c", "echo out; echo err >&2"]));
        let said = said.expect("sh starts");
        assert_eq!((&*said.stdout, &*said.stderr), (&b"out\n"[..], &b"err\n"[..]));
    }

    /// Is started by the test below: skips for the reason that the environment names.
    #[test]
    fn skipper() {
        let why = match env::var("QUIETCORES_SKIPPER").as_deref() {
            Ok("root") => Why::Root,
            Ok("one-cpu") => Why::OneCpu,
            Ok("program") => Why::Program("sh", "dash"),
            Ok("release") => Why::Release,
            Ok("emulated") => Why::Emulated("nothing is frozen"),
            Ok("empty") => Why::Machine(" ".to_owned()),
            Ok("machine") => Why::Machine("no card\there\nat all".to_owned()),
            Ok("missing") => Why::Program("no-such-program", "none"),
            _ => return,
        };
        skip(why)
    }

    fn skipper_with(reason: &str, list: Option<&Path>) -> Output {
        let mut command = Command::new(env::current_exe().expect("a test binary"));
        command.args(["--exact", "tests::skipper", "--nocapture"]).env_remove(LIST);
        command.env("QUIETCORES_SKIPPER", reason).env("CARGO_PKG_NAME", "quiet-testing");
        if let Some(list) = list {
            command.env(LIST, list);
        }
        command.output().expect("it starts")
    }

    #[test]
    fn what_this_machine_can_do_is_no_reason() {
        machine_still();
        let mut wrong = vec!["program", "empty"];
        wrong.extend(is_root().then_some("root"));
        wrong.extend((cpus() > 1).then_some("one-cpu"));
        wrong.extend((!is_emulated()).then_some("emulated"));
        wrong.extend(cfg!(debug_assertions).then_some("release"));
        for reason in wrong {
            let done = skipper_with(reason, None);
            let said = String::from_utf8_lossy(&done.stderr);
            assert!(!done.status.success() && said.contains("but it can"), "{reason}: {said}");
        }
    }

    #[test]
    fn a_skip_is_a_line_of_its_own_in_the_list() {
        let dir = tempfile::tempdir().expect("a folder");
        let list = dir.path().join("skips");
        for reason in ["machine", "missing"] {
            let done = skipper_with(reason, Some(&list));
            let said = String::from_utf8_lossy(&done.stderr);
            assert!(done.status.success() && said.contains("skipped: "), "{said}");
        }
        let lines = fs::read_to_string(&list).expect("the list");
        let wanted = "quiet-testing\tquiet_testing tests::skipper\tmachine\tno card here at all\n\
                      quiet-testing\tquiet_testing tests::skipper\tprogram\tno-such-program is not installed (Debian package none)\n";
        // A single thread of tests is the main one: then its place stands for its name.
        if !lines.contains("lib.rs:") {
            assert_eq!(lines, wanted);
        }
        assert_eq!(lines.lines().count(), 2);
        // A list that cannot be written fails the test, which else were lost.
        let done = skipper_with("machine", Some(dir.path()));
        assert!(!done.status.success());
    }
}
