//! The machine, a bus of the test's own and the service on it.

// Each test program uses a part of it.
#![allow(dead_code)]

pub mod load;
pub mod polkit;
pub mod raw;

use quiet_testing::{Why, bus::Bus, is_root, own_cpus, public_folder, skip};
use std::{
    fs::{self, File, Permissions},
    os::unix::fs::PermissionsExt,
    path::PathBuf,
    process::{Child, Command},
    sync::{Mutex, MutexGuard},
};

pub const PROGRAM: &str = env!("CARGO_BIN_EXE_quietcored");
pub const NAME: &str = "org.quietcores1";

/// A program that was built to be quick, in place of the one for tests.
pub fn quick() -> Option<PathBuf> {
    std::env::var_os("QUIETCORED").map(PathBuf::from)
}

pub struct World {
    _thread: MutexGuard<'static, ()>,
    _machine: File,
    dir: tempfile::TempDir,
    pub bus: Bus,
    service: Option<Child>,
    /// The highest CPU that this process may use.
    pub cpu: u32,
}

impl World {
    /// `None`, and the test is skipped, where it cannot be made. One at a time changes the machine, among all test programs.
    pub fn new() -> Option<World> {
        static ONE: Mutex<()> = Mutex::new(());
        let thread = ONE.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        if !is_root() {
            return skip(Why::Root);
        }
        // First its turn: before it, somebody else's shield may have confined this process.
        let machine = quiet_testing::machine_alone();
        let own = own_cpus();
        let Some(cpu) = own.iter().last().filter(|_| own.len() > 1) else {
            return skip(Why::OneCpu);
        };
        let dir = public_folder();
        let bus = Bus::start(dir.path())?;
        fs::create_dir(dir.path().join("chains")).unwrap();
        let (_thread, _machine, cpu) = (thread, machine, cpu.0);
        let mut world = World { _thread, _machine, dir, bus, service: None, cpu };
        world.start();
        Some(world)
    }

    /// Starts the service, and waits until it has its name.
    pub fn start(&mut self) {
        let program = quick().unwrap_or_else(|| PROGRAM.into());
        let service = self.bus.serve(&program, &self.state(), &self.chains());
        self.service = Some(service);
        self.bus.until(NAME, true);
    }

    pub fn address(&self) -> Option<&str> {
        Some(&self.bus.address)
    }

    pub fn service(&self) -> u32 {
        self.service.as_ref().unwrap().id()
    }

    /// By SIGKILL.
    pub fn kill(&mut self) {
        let mut service = self.service.take().unwrap();
        service.kill().unwrap();
        service.wait().unwrap();
        self.bus.until(NAME, false);
    }

    pub fn state(&self) -> PathBuf {
        self.dir.path().join("state")
    }

    pub fn chains(&self) -> PathBuf {
        self.dir.path().join("chains")
    }

    /// Approves a chain that takes the highest CPU.
    pub fn approve(&self, name: &str) {
        let text = format!("[chain]\nname = \"{name}\"\ncpus = \"{}\"\n", self.cpu);
        let file = self.chains().join(format!("{name}.toml"));
        fs::write(&file, text).unwrap();
        fs::set_permissions(&file, Permissions::from_mode(0o644)).unwrap();
    }
}

impl Drop for World {
    fn drop(&mut self) {
        if let Some(service) = &mut self.service {
            let _ = service.kill();
            let _ = service.wait();
        }
        let _ = Command::new(PROGRAM).arg("revert").arg("--state").arg(self.state()).status();
    }
}
