//! `veth`: datagrams there and back through a pair of virtual network cards, each in a network of its own:
//! what a flood through a card costs the kernel (softirqs, routing, wake-ups), without a card and without the
//! loopback's short way. Threads of the program: links and networks go with them, however they end.

use quiet_linux::sys::{process, sched};
use quiet_types::{CpuSet, run::Throughput};
use std::{
    io,
    net::UdpSocket,
    process::{Command, Stdio},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
        mpsc::{Receiver, Sender, channel},
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

/// Its name among the stressors.
pub(crate) const NAME: &str = "veth";
/// Addresses of a network that nobody else sees.
const NEAR: &str = "10.231.0.1";
const FAR: &str = "10.231.0.2";
/// Datagrams that are sent before answers are taken.
const BURST: usize = 64;

/// Floods until it is dropped.
#[derive(Debug)]
pub(crate) struct Flood {
    stop: Arc<AtomicBool>,
    answers: Arc<AtomicU64>,
    began: Instant,
    threads: Vec<JoinHandle<io::Result<()>>>,
}

impl Flood {
    /// Makes both cards and floods, on `cpus`.
    ///
    /// # Errors
    /// Where the kernel or `ip` refuses networks or links; a sentence.
    pub(crate) fn start(cpus: &CpuSet) -> io::Result<Flood> {
        let mut flood = Flood {
            stop: Arc::default(),
            answers: Arc::default(),
            began: Instant::now(),
            threads: Vec::new(),
        };
        let (tell_far, far_told) = channel();
        let (tell_near, near_told) = channel();
        let (ready, both) = channel::<()>();
        let name = |side: &str| thread::Builder::new().name(format!("{NAME}/{side}"));
        let (stop, on, up) = (flood.stop.clone(), cpus.clone(), ready.clone());
        let far = move || far(&on, &stop, &tell_near, &far_told, up);
        flood.threads.push(name("far").spawn(far)?);
        let (stop, answers, on) = (flood.stop.clone(), flood.answers.clone(), cpus.clone());
        let near = move || near(&on, &stop, &answers, &tell_far, &near_told, ready);
        flood.threads.push(name("near").spawn(near)?);
        // Each says when it is up; one that fails hangs up, and the other with it.
        if both.recv().and_then(|()| both.recv()).is_err() {
            flood.stop.store(true, Relaxed);
            let ends = flood.threads.drain(..).map(|thread| thread.join());
            let whys = ends.filter_map(|end| end.ok()?.err());
            // The one that was only left alone knows nothing.
            let why = whys.max_by_key(|why| why.kind() != io::ErrorKind::BrokenPipe);
            return Err(why.unwrap_or_else(|| io::Error::other("its threads ended at once")));
        }
        Ok(flood)
    }

    /// Answers that came back so far.
    pub(crate) fn throughput(&self) -> Throughput {
        super::since(self.began, NAME, self.answers.load(Relaxed) as f64)
    }
}

impl Drop for Flood {
    fn drop(&mut self) {
        self.stop.store(true, Relaxed);
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

fn far(
    cpus: &CpuSet,
    stop: &AtomicBool,
    near: &Sender<i32>,
    told: &Receiver<()>,
    ready: Sender<()>,
) -> io::Result<()> {
    apart(cpus)?;
    let me = rustix::thread::gettid().as_raw_nonzero().get();
    near.send(me).map_err(|_| alone())?;
    told.recv().map_err(|_| alone())?;
    up("qc1", FAR)?;
    let socket = UdpSocket::bind((FAR, 9))?;
    socket.set_read_timeout(Some(Duration::from_millis(100)))?;
    let _ = ready.send(());
    drop(ready);
    let mut bytes = [0; 256];
    while !stop.load(Relaxed) {
        // Not yet up, no room, nothing for a while: the next one.
        if let Ok((n, from)) = socket.recv_from(&mut bytes) {
            let _ = socket.send_to(&bytes[..n], from);
        }
    }
    Ok(())
}

fn near(
    cpus: &CpuSet,
    stop: &AtomicBool,
    answers: &AtomicU64,
    far: &Sender<()>,
    told: &Receiver<i32>,
    ready: Sender<()>,
) -> io::Result<()> {
    apart(cpus)?;
    let to = told.recv().map_err(|_| alone())?.to_string();
    ip(&["link", "add", "qc0", "type", "veth", "peer", "name", "qc1"])?;
    ip(&["link", "set", "qc1", "netns", &to])?;
    up("qc0", NEAR)?;
    far.send(()).map_err(|_| alone())?;
    let socket = UdpSocket::bind((NEAR, 0))?;
    socket.connect((FAR, 9))?;
    socket.set_nonblocking(true)?;
    let _ = ready.send(());
    drop(ready);
    let mut bytes = [0; 256];
    while !stop.load(Relaxed) {
        for _ in 0..BURST {
            let _ = socket.send(&bytes[..64]);
        }
        while socket.recv(&mut bytes).is_ok() {
            answers.fetch_add(1, Relaxed);
        }
    }
    Ok(())
}

/// This thread, on `cpus`, in a network of its own.
fn apart(cpus: &CpuSet) -> io::Result<()> {
    sched::set_affinity(0, cpus)?;
    process::own_network().map_err(|e| {
        io::Error::new(
            e.kind(),
            format!("the kernel refuses a network of its own, which takes root: {e}"),
        )
    })
}

fn alone() -> io::Error {
    io::Error::new(io::ErrorKind::BrokenPipe, "the other side ended")
}

fn up(link: &str, address: &str) -> io::Result<()> {
    ip(&["address", "add", &format!("{address}/30"), "dev", link])?;
    ip(&["link", "set", link, "up"])
}

/// `ip`, in the network of the calling thread.
fn ip(arguments: &[&str]) -> io::Result<()> {
    let mut command = Command::new("ip");
    command.args(arguments).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
    let output = command.output().map_err(|e| match e.kind() {
        io::ErrorKind::NotFound => {
            io::Error::other("the program ip is not installed (package iproute2)")
        }
        _ => e,
    })?;
    if output.status.success() {
        return Ok(());
    }
    let said = quiet_types::printable(String::from_utf8_lossy(&output.stderr).trim(), 200);
    Err(io::Error::other(format!("`ip {}` says: {said}", arguments.join(" "))))
}

#[cfg(test)]
mod tests {
    use super::*;
    use quiet_testing::{Why, is_root, program, skip};

    #[test]
    fn answers_come_back_and_nothing_is_left() {
        let links = || std::fs::read_to_string("/proc/net/dev").unwrap();
        let before = links().lines().count();
        let flood = match Flood::start(&sched::affinity(0).unwrap()) {
            Ok(flood) => flood,
            Err(why) => {
                let why = why.to_string();
                assert!(["takes root", "iproute2", "`ip "].iter().any(|part| why.contains(part)));
                return skip(match program("ip") {
                    None => Why::Program("ip", "iproute2"),
                    Some(_) if !is_root() => Why::Root,
                    Some(_) => Why::Machine(why),
                });
            }
        };
        while flood.throughput().operations < 1000.0 {
            thread::sleep(Duration::from_millis(10));
        }
        assert_eq!(links().lines().count(), before, "in networks of their own");
        drop(flood);
        assert_eq!(links().lines().count(), before);
    }
}
