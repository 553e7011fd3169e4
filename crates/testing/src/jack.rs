//! A JACK server without a card, for what plays as its client.

use crate::turn::turn_of;
use quiet_linux::sys::process::spawn_bound;
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
pub struct JackServer {
    server: Child,
    _turn: File,
}

impl JackServer {
    /// Starts one at 48 kHz; clients find it by `name` in the environment's `JACK_DEFAULT_SERVER`, which a test that has threads gives to a
    /// process of its own. `name` is always the same for a test: a place of eight is taken by each name until its server has ended well.
    /// So who comes while another program's test has a server of that name waits for its end.
    /// Every cycle waits for its clients, however loaded the machine is: nothing is lost. What it says goes to `log`.
    ///
    /// # Errors
    /// When `jackd` cannot be started.
    pub fn start(name: &str, period: u32, log: &Path) -> io::Result<JackServer> {
        let turn = turn_of(name);
        let log = File::create(log)?;
        let mut command = Command::new("jackd");
        command
            .args(["-n", name, "-r", "-S", "-t", "60000", "-d", "dummy", "-r", "48000", "-p"])
            .arg(period.to_string())
            .stdout(log.try_clone()?)
            .stderr(log);
        // Asked to end where the test is killed, as below.
        let server = spawn_bound(&mut command, Signal::TERM)?;
        Ok(JackServer { server, _turn: turn })
    }
}

impl Drop for JackServer {
    fn drop(&mut self) {
        let _ = kill_process(Pid::from_child(&self.server), Signal::TERM);
        let end = Instant::now() + Duration::from_secs(20);
        while matches!(self.server.try_wait(), Ok(None)) && Instant::now() < end {
            sleep(Duration::from_millis(20));
        }
        let _ = self.server.kill();
        let _ = self.server.wait();
    }
}
