//! A JACK server without a card, for what plays as its client.

use rustix::process::{Pid, Signal, kill_process};
use std::{
    fs::File,
    io,
    path::Path,
    process::{Child, Command},
    thread::sleep,
    time::{Duration, Instant},
};

/// `jackd` with its dummy driver. It is asked to end, so that it takes its shared memory away; one that hangs is ended.
#[derive(Debug)]
pub struct JackServer(Child);

impl JackServer {
    /// Starts one at 48 kHz; clients find it by `name` in the environment's `JACK_DEFAULT_SERVER`, which a test that has threads gives to a
    /// process of its own. `name` is always the same for a test: a place of eight is taken by each name until its server has ended well.
    /// Every cycle waits for its clients, however loaded the machine is: nothing is lost. What it says goes to `log`.
    ///
    /// # Errors
    /// When `jackd` cannot be started.
    pub fn start(name: &str, period: u32, log: &Path) -> io::Result<JackServer> {
        let log = File::create(log)?;
        Command::new("jackd")
            .args(["-n", name, "-r", "-S", "-t", "60000", "-d", "dummy", "-r", "48000", "-p"])
            .arg(period.to_string())
            .stdout(log.try_clone()?)
            .stderr(log)
            .spawn()
            .map(JackServer)
    }
}

impl Drop for JackServer {
    fn drop(&mut self) {
        let _ = kill_process(Pid::from_child(&self.0), Signal::TERM);
        let end = Instant::now() + Duration::from_secs(5);
        while matches!(self.0.try_wait(), Ok(None)) && Instant::now() < end {
            sleep(Duration::from_millis(20));
        }
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
