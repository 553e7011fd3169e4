//! A name on the local network (`quietcores.local`), said by multicast DNS to who asks for it: one name, one address, one interface.
//!
//! [`packet`] reads and writes, [`claim`] decides, [`link`] sends by IPv4 and IPv6.
//!
//! # Source
//! RFC 6762: probing (8.1), announcing (8.3), conflicts (9), goodbye (10.1), legacy unicast (6.7), negative answers (6.1), known
//! answers (7.1).

mod claim;
mod link;
mod packet;

use claim::{Claim, Due};
use link::{Link, PORT};
use packet::{Heard, TTL, TTL_LEGACY, answer, heard, is_label};
use std::{
    hash::{BuildHasher, Hasher, RandomState},
    io,
    net::SocketAddr,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering::Relaxed},
        mpsc::{Sender, channel},
    },
    thread::JoinHandle,
    time::{Duration, Instant},
};

/// Most packets that are answered in a second.
const MOST_A_SECOND: u32 = 50;
/// How long a name is waited for at first.
const FIRST: Duration = Duration::from_secs(60);
/// Between two looks whether it is to end.
const LOOK: Duration = Duration::from_millis(200);

/// Is told, in a sentence, when the name becomes another one.
pub type NameTeller = Box<dyn Fn(&str) + Send>;

/// The name that is said now, with `.local`; empty while one is asked for.
pub type SaidName = Arc<Mutex<String>>;

/// A name that is said on one interface. Dropped, it is taken back.
pub struct LocalName {
    said: SaidName,
    stop: Arc<AtomicBool>,
    worker: Option<JoinHandle<()>>,
}

impl std::fmt::Debug for LocalName {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("LocalName").field("name", &self.name()).finish_non_exhaustive()
    }
}

impl LocalName {
    /// Takes `label`.local for the address `at`, on the interface that has it, after asking whether anybody has the name. Where somebody
    /// has, it is `label-2.local` and so on, now or later: `tell` is told then.
    ///
    /// # Errors
    /// A sentence: it is no name, all of them are somebody's, or the interface takes no multicast.
    pub fn take(label: &str, at: SocketAddr, tell: NameTeller) -> Result<LocalName, String> {
        if !is_label(label) {
            return Err(format!(
                "`{}` is no name: up to 63 letters, digits and hyphens",
                quiet_live::clean(label, 80)
            ));
        }
        let cannot =
            |e: io::Error| format!("cannot say the name {label}.local on {}: {e}", at.ip());
        let link = Link::open(at).map_err(cannot)?;
        let lot = RandomState::new().build_hasher().finish() % 250;
        let claim = Claim::new(label, at.ip().into(), Instant::now(), Duration::from_millis(lot));
        let (stop, said) = (Arc::new(AtomicBool::new(false)), SaidName::default());
        let (took, first) = channel();
        let worker = Worker { link, claim, said: said.clone(), stop: stop.clone(), tell, took };
        let worker = std::thread::Builder::new().name("mdns".into()).spawn(move || worker.run());
        let name = LocalName { said, stop, worker: Some(worker.map_err(cannot)?) };
        match first.recv_timeout(FIRST) {
            Ok(Ok(())) => Ok(name),
            Ok(Err(error)) => Err(cannot(error)),
            Err(_) => Err(format!("all names like {label}.local are somebody's: give another one")),
        }
    }

    /// With `.local`; empty while one is asked for.
    pub fn name(&self) -> String {
        self.said.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The same for who has to know it at any time.
    pub fn said(&self) -> SaidName {
        self.said.clone()
    }
}

impl Drop for LocalName {
    fn drop(&mut self) {
        self.stop.store(true, Relaxed);
        if let Some(worker) = self.worker.take() {
            let _ = worker.join();
        }
    }
}

struct Worker {
    link: Link,
    claim: Claim,
    said: SaidName,
    stop: Arc<AtomicBool>,
    tell: NameTeller,
    /// Told once, when there is a name, or why none can be had.
    took: Sender<io::Result<()>>,
}

impl Worker {
    fn say(&self, name: String) {
        *self.said.lock().unwrap_or_else(PoisonError::into_inner) = name;
    }

    fn run(mut self) {
        let mut buffer = [0u8; 9000];
        let mut second = (Instant::now(), 0);
        let mut lost = String::new();
        while !self.stop.load(Relaxed) && !self.claim.gave_up() {
            let wait = match self.claim.due(Instant::now()) {
                Due::Nothing(wait) => wait.unwrap_or(LOOK).min(LOOK),
                Due::Send(packet) => {
                    if let Err(error) = self.link.send(&packet) {
                        let _ = self.took.send(Err(error));
                    }
                    continue;
                }
                Due::Ours(packet) => {
                    let _ = self.link.send(&packet);
                    self.say(self.claim.shown());
                    if !lost.is_empty() {
                        (self.tell)(&format!(
                            "{lost}: {} is said in its place",
                            self.claim.shown()
                        ));
                        lost.clear();
                    }
                    let _ = self.took.send(Ok(()));
                    continue;
                }
            };
            let Some(came) = self.link.receive(&mut buffer, wait) else { continue };
            let Some(heard) = heard(&buffer[..came.length], &self.claim.name) else { continue };
            if second.0.elapsed() > Duration::from_secs(1) {
                second = (Instant::now(), 0);
            }
            if self.claim.holds() {
                self.answer(&heard, &came, &mut second.1);
            }
            let had = self.claim.shown();
            if let Some(other) = self.claim.hear(&heard, Instant::now()) {
                lost = format!("{other} has the name {had}");
                self.say(String::new());
            }
        }
        if self.claim.holds() {
            // Nobody is to look for it here any more.
            let kind = self.claim.record.kind;
            let gone = answer(&self.claim.name, kind, &self.claim.record, (0, false), 0);
            let _ = self.link.send(&gone);
        } else if self.claim.gave_up() {
            (self.tell)(&format!("{lost}, and no other one is free: none is said any more"));
        }
    }

    fn answer(&self, heard: &Heard, came: &link::Came, answered: &mut u32) {
        if heard.known.contains(&self.claim.record) {
            return;
        }
        for question in &heard.questions {
            *answered += 1;
            if *answered > MOST_A_SECOND {
                return;
            }
            let legacy = came.from.port() != PORT;
            let ttl = if legacy { TTL_LEGACY } else { TTL };
            let claim = &self.claim;
            let packet = answer(&claim.name, question.kind, &claim.record, (heard.id, legacy), ttl);
            self.link.reply(came, &packet, legacy || question.alone);
        }
    }
}
