//! The faces as programs: a server that is asked over real sockets, a screen in a terminal, an engine that they show.

use crate::wait::PATIENCE;
use rustix::process::{Pid, Signal, kill_process};
use std::{
    io::{BufRead, BufReader, Read, Write},
    net::TcpStream,
    path::Path,
    process::{Child, Command, Stdio},
    thread::sleep,
    time::{Duration, Instant},
};

/// A process that is ended, whatever becomes of the test.
#[derive(Debug)]
pub struct Ended(pub Child);

impl Drop for Ended {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// `quietcores serve`, of its own.
#[derive(Debug)]
pub struct Server {
    /// Its process.
    pub process: Ended,
    /// What it printed: the address of the first page, with the token.
    pub address: String,
}

impl Server {
    /// Starts one, as root where root runs the test, with its journal in `state` and all else that it keeps in `dir`.
    ///
    /// # Panics
    /// When it does not start, or prints no address of loopback.
    pub fn start(program: impl AsRef<Path>, (state, dir): (&Path, &Path), more: &[&str]) -> Server {
        let mut command = Command::new(program.as_ref());
        command.args(["serve", "--as-root"]).args(more);
        command.arg("--state").arg(state).arg("--store").arg(dir.join("store"));
        command.env("XDG_RUNTIME_DIR", dir).env("XDG_STATE_HOME", dir.join("own"));
        command.env("XDG_DATA_HOME", dir.join("data"));
        Server::of(command.stdout(Stdio::piped()).spawn().expect("serve starts"))
    }

    /// One that was started with its standard output piped.
    ///
    /// # Panics
    /// When it prints no address of loopback.
    pub fn of(mut child: Child) -> Server {
        let out = child.stdout.take().expect("its standard output");
        let process = Ended(child);
        let mut address = String::new();
        BufReader::new(out).read_line(&mut address).expect("its address");
        assert!(address.contains("://127."), "{address}");
        Server { process, address: address.trim().to_owned() }
    }

    /// Address and port.
    pub fn at(&self) -> &str {
        let rest = self.address.split_once("://").map_or("", |(_, rest)| rest);
        rest.split('/').next().unwrap_or_default()
    }

    /// The token.
    pub fn token(&self) -> &str {
        self.address.split("token=").nth(1).unwrap_or_default()
    }

    /// Asks with the token and a body of JSON: the status, and the body of the answer.
    ///
    /// # Panics
    /// When it does not answer.
    pub fn ask(&self, method: &str, path: &str, body: &str) -> (u16, String) {
        self.send(method, path, ("application/json", body.as_bytes()))
    }

    /// The same with a body of another kind.
    ///
    /// # Panics
    /// When it does not answer.
    pub fn send(&self, method: &str, path: &str, (kind, body): (&str, &[u8])) -> (u16, String) {
        let mut stream = TcpStream::connect(self.at()).expect("it listens");
        stream.set_read_timeout(Some(3 * PATIENCE)).expect("a limit");
        let head = format!(
            "{method} {path} HTTP/1.1\r\nHost: {}\r\nConnection: close\r\nAuthorization: Bearer {}\r\nContent-Type: {kind}\r\nContent-Length: {}\r\n\r\n",
            self.at(),
            self.token(),
            body.len()
        );
        stream.write_all(&[head.as_bytes(), body].concat()).expect("it takes the request");
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).expect("it answers");
        let answer = String::from_utf8_lossy(&answer).into_owned();
        let status = answer.split(' ').nth(1).and_then(|word| word.parse().ok());
        let (_, body) = answer.split_once("\r\n\r\n").unwrap_or_default();
        (status.unwrap_or_else(|| panic!("no status: {answer}")), body.to_owned())
    }

    /// Ends it as whoever stops a service does.
    ///
    /// # Panics
    /// When it does not end well.
    pub fn stop(mut self) {
        let told = kill_process(Pid::from_child(&self.process.0), Signal::TERM);
        assert!(told.is_ok() && self.process.0.wait().is_ok_and(|status| status.success()));
    }
}

/// `quietcores play` on the card that does not exist, which sleeps and has long buffers: a busy machine does not make it late.
///
/// # Panics
/// When it does not start.
pub fn play(program: impl AsRef<Path>, dir: &Path, strip: &Path, more: &[&str]) -> Ended {
    let mut command = Command::new(program.as_ref());
    command.args(["play", "--host", "null", "--mode", "sleep", "--period", "512"]);
    command.args(["--channels", "1", "--buffer", "8192"]).args(more).arg(strip);
    command.env("XDG_STATE_HOME", dir.join("own")).stdin(Stdio::null()).stdout(Stdio::null());
    Ended(command.spawn().expect("play starts"))
}

/// A terminal of its own, in tmux, with one window `top`.
#[derive(Debug)]
pub struct Tmux(pub tempfile::TempDir);

impl Tmux {
    /// One in which `line` runs, so many columns wide and lines high.
    ///
    /// # Panics
    /// Without tmux.
    pub fn start((wide, high): (u32, u32), line: &str) -> Tmux {
        let tmux = Tmux(tempfile::tempdir().expect("a folder"));
        tmux.begin((wide, high), line);
        tmux
    }

    /// The same in a folder that is there already.
    ///
    /// # Panics
    /// Without tmux.
    pub fn begin(&self, (wide, high): (u32, u32), line: &str) {
        let (wide, high) = (wide.to_string(), high.to_string());
        let new = ["-f", "/dev/null", "new-session", "-d", "-s", "top", "-x", &wide, "-y", &high];
        self.run(&[&new[..], &[line]].concat());
    }

    /// What a command of tmux says.
    ///
    /// # Panics
    /// Without tmux.
    pub fn run(&self, words: &[&str]) -> String {
        let socket = self.0.path().join("tmux");
        let mut command = Command::new("tmux");
        // The first command starts the server. A window's line is for a plain shell, whichever shell its user types into.
        command.env("SHELL", "/bin/sh").env_remove("TMUX");
        let done = command.arg("-S").arg(socket).args(words).output();
        crate::bus::text(&done.expect("tmux"))
    }

    /// What stands on the screen.
    pub fn screen(&self) -> String {
        self.run(&["capture-pane", "-p", "-t", "top"])
    }

    /// Presses a key.
    pub fn key(&self, key: &str) {
        self.run(&["send-keys", "-t", "top", key]);
    }

    /// Waits until the screen shows it.
    ///
    /// # Panics
    /// When it does not in a minute.
    #[track_caller]
    pub fn shows(&self, what: &str) {
        let began = Instant::now();
        loop {
            let screen = self.screen();
            if screen.contains(what) {
                return;
            }
            assert!(
                began.elapsed() < PATIENCE,
                "never: the screen shows {what}; it shows:\n{screen}"
            );
            sleep(Duration::from_millis(2));
        }
    }
}

impl Drop for Tmux {
    fn drop(&mut self) {
        self.run(&["kill-server"]);
    }
}
