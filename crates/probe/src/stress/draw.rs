//! `x11`: what latencytest (1999) did with x11perf: pictures put and windows copied on an X server. Where that
//! server drives a graphics card, this stresses driver and bus; a virtual one (Xvfb) only memory and CPUs.

use quiet_linux::sys::process;
use quiet_types::run::Throughput;
use rustix::process::Signal;
use std::{
    ffi::OsStr,
    fs::File,
    io,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

/// Its name among the stressors.
pub(crate) const NAME: &str = "x11";
/// What each client in turn repeats.
const TESTS: [&str; 3] = ["-putimage500", "-copywinwin500", "-scroll500"];

/// A client that draws until it is dropped.
#[derive(Debug)]
pub(crate) struct Draw {
    child: Child,
    said: PathBuf,
    /// Since when its work counts, and what it had drawn by then.
    began: Instant,
    before: f64,
}

/// Before x11perf draws it measures for twenty seconds how long the server takes to answer; no option of it leaves that out. Beside one that
/// draws already it takes far longer.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// Why nothing can be drawn here, in a sentence.
pub(crate) fn refusal(display: Option<&OsStr>) -> Option<String> {
    display.is_none_or(OsStr::is_empty).then(|| {
        format!(
            "stressor {NAME} draws on an X server, and none is named here (DISPLAY is not set): run it in \
             a session that has one, or leave it out"
        )
    })
}

impl Draw {
    /// The `nth` client; what it says goes below `dir`. It runs where the calling thread may.
    ///
    /// # Errors
    /// A sentence, when there is no X server or no x11perf.
    pub(crate) fn start(nth: usize, dir: &Path) -> io::Result<Draw> {
        if let Some(why) = refusal(std::env::var_os("DISPLAY").as_deref()) {
            return Err(io::Error::other(why));
        }
        let path = std::env::var_os("PATH").unwrap_or_default();
        if !std::env::split_paths(&path).any(|dir| dir.join("x11perf").is_file()) {
            return Err(io::Error::other(format!(
                "stressor {NAME} is x11perf, which is not installed (Debian: `apt install x11-apps`)"
            )));
        }
        let said = dir.join(format!("x11-{nth}.txt"));
        // Line by line: what it keeps back is lost when it is ended.
        let mut command = Command::new("stdbuf");
        command.args(["-oL", "x11perf", "-repeat", "1000000", "-time", "1"]);
        command.arg(TESTS[nth % TESTS.len()]);
        let errors = File::create(dir.join(super::SAID))?;
        command.stdin(Stdio::null()).stdout(File::create(&said)?).stderr(errors);
        let child = process::spawn_bound(&mut command, Signal::KILL)?;
        Ok(Draw { child, said, began: Instant::now(), before: 0.0 })
    }

    /// Whether it ended by itself: no server answers.
    pub(crate) fn ended(&mut self) -> bool {
        !matches!(self.child.try_wait(), Ok(None))
    }

    /// Whether it has drawn anything.
    pub(crate) fn draws(&self) -> bool {
        self.drawn() > 0.0
    }

    /// Its work counts from now on.
    pub(crate) fn begin(&mut self) {
        (self.began, self.before) = (Instant::now(), self.drawn());
    }

    /// What it drew since its work counts, by its own account.
    pub(crate) fn throughput(&self) -> Throughput {
        super::since(self.began, NAME, self.drawn() - self.before)
    }

    fn drawn(&self) -> f64 {
        drawn(&std::fs::read_to_string(&self.said).unwrap_or_default())
    }
}

/// Lines as `   600 reps @   1.7310 msec (   578.0/sec): PutImage 500x500 square`.
fn drawn(text: &str) -> f64 {
    let counts = text.lines().filter_map(|line| line.split_once(" reps @"));
    let counts = counts.filter_map(|(count, _)| count.trim().parse::<f64>().ok());
    counts.fold(0.0, |all, one| all + one)
}

impl Drop for Draw {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_a_server_it_is_refused_with_a_sentence() {
        for none in [None, Some(OsStr::new(""))] {
            assert!(refusal(none).unwrap().contains("DISPLAY is not set"));
        }
        assert_eq!(refusal(Some(OsStr::new(":7"))), None);
    }

    #[test]
    fn its_own_account_is_summed() {
        let text = "x11perf - X11 performance program\n\n\
                    \x20    600 reps @   1.7310 msec (   578.0/sec): PutImage 500x500 square\n\
                    \x20    800 reps @   1.7310 msec (   578.0/sec): PutImage 500x500 square\n\
                    \x20   1400 trep @   1.7310 msec (   578.0/sec): PutImage 500x500 square\n";
        assert_eq!(drawn(text), 1400.0);
    }
}
