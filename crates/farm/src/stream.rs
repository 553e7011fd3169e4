//! The stream between machines and collectors: NATS JetStream. A sender takes a record out of its outbox when a quorum of servers has it;
//! a collector keeps its place in the stream in the same transaction as the records, so that it can be killed anywhere.

use crate::{
    Arrival, Arrived, Collector, Error, Outbox, Result, STREAM, SecretKey, Waiting, clock_words,
    message_id,
    sealed::{self, hex},
};
use async_nats::{
    Client, ConnectOptions, HeaderMap,
    jetstream::{
        self, Context,
        consumer::{DeliverPolicy, pull::OrderedConfig},
        message::PublishMessage,
        stream::{Config, Info, StorageType},
    },
};
use futures_util::StreamExt;
use quiet_linux::files;
use std::{
    future::Future,
    net::IpAddr,
    path::PathBuf,
    sync::atomic::{AtomicBool, Ordering},
    time::{Duration, Instant, SystemTime},
};

/// How long a server has for an answer.
const PATIENCE: Duration = Duration::from_secs(10);
/// Records that are under way at a time.
const UNDER_WAY: usize = 256;
/// The servers drop repeats within this time by themselves; collectors drop them for ever.
const REPEATS: Duration = Duration::from_secs(3600);
/// Records in one transaction of a collector.
const BATCH: usize = 2000;
/// A leader that has heard of most of its group within this time is the only one: its group waits at least 4 s before it elects another
/// (`minElectionTimeout` of nats-server, `raft.go`), and its heartbeats go once a second.
const LEADS: Duration = Duration::from_millis(2500);
/// How long a collector waits for more before it keeps what it has.
const PAUSE: Duration = Duration::from_millis(200);
/// The header with the sender's clock.
const SENT: &str = "Quiet-Sent";

/// Which servers, and as whom.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Servers {
    /// `tls://a:4222`, several joined by commas.
    pub url: String,
    /// A file with a user's JWT and seed, or with a seed alone (nkey).
    pub credentials: Option<PathBuf>,
    /// Certificates of whoever signs the servers'; the system's without it.
    pub ca: Option<PathBuf>,
}

impl Servers {
    /// Looks whether the addresses are such that records go encrypted, or stay on this machine.
    ///
    /// # Errors
    /// With what is wrong with which.
    pub fn check(&self) -> Result<()> {
        if self.url.is_empty() {
            return Err(Error::new("no server is named; give one as tls://farm.example:4222"));
        }
        for one in self.url.split(',').map(str::trim) {
            let wrong = |why: &str| Err(Error::new(format!("cannot use the address {one}: {why}")));
            match one.split_once("://") {
                Some(("tls", host)) if !host.is_empty() => {}
                Some(("nats", host)) if is_here(host) => {}
                Some(("nats", _)) => {
                    return wrong(
                        "records would go over the network unencrypted; write tls:// in place of nats://",
                    );
                }
                _ => return wrong("write it as tls://farm.example:4222"),
            }
            if one.contains('@') {
                return wrong(
                    "it holds a password, which others would see; name a file: --credentials FILE",
                );
            }
        }
        Ok(())
    }

    async fn connect(&self) -> Result<Client> {
        self.check()?;
        let all: Vec<&str> = self.url.split(',').map(str::trim).collect();
        let told = |why: String| Error::new(format!("cannot reach {}: {why}", self.url));
        let tls = all.iter().all(|one| one.starts_with("tls://"));
        let mut options = ConnectOptions::new()
            .name("quietcores")
            .connection_timeout(PATIENCE)
            .request_timeout(Some(PATIENCE))
            .max_reconnects(Some(all.len() * 10))
            .require_tls(tls);
        if let Some(path) = &self.credentials {
            let text = files::read_text(path, 64 << 10)
                .map_err(|error| Error::io("read", path, &error))?;
            let seed = text.trim();
            options = if seed.starts_with("SU") && !seed.contains(char::is_whitespace) {
                options.nkey(seed.to_owned())
            } else {
                let why = |e| Error::new(format!("cannot use {}: {e}", path.display()));
                options.credentials(&text).map_err(why)?
            };
        }
        if let Some(path) = &self.ca {
            options = options.add_root_certificates(path.clone());
        }
        options.connect(&all[..]).await.map_err(|error| told(error.to_string()))
    }
}

/// Whether an address is this machine itself.
fn is_here(host: &str) -> bool {
    let name = host.rsplit_once(':').map_or(host, |(name, _)| name);
    let name = name.trim_start_matches('[').trim_end_matches(']');
    name == "localhost" || name.parse::<IpAddr>().is_ok_and(|ip| ip.is_loopback())
}

fn wait_for<T>(work: impl Future<Output = Result<T>>) -> Result<T> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.map_err(|error| Error::new(format!("cannot begin: {error}")))?.block_on(work)
}

fn context(client: Client) -> Context {
    jetstream::ContextBuilder::new().timeout(PATIENCE).ack_timeout(PATIENCE).build(client)
}

fn now() -> i64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    since.map_or(0, |since| since.as_millis() as i64)
}

/// Makes the stream where it is not there: on disk, on so many servers, repeats dropped.
///
/// # Errors
/// When the servers cannot be reached or refuse.
pub fn make_stream(servers: &Servers, replicas: usize) -> Result<()> {
    wait_for(async {
        let context = context(servers.connect().await?);
        let config = Config {
            name: STREAM.to_owned(),
            subjects: vec![format!("{STREAM}.>")],
            storage: StorageType::File,
            num_replicas: replicas,
            duplicate_window: REPEATS,
            deny_delete: true,
            deny_purge: true,
            max_message_size: sealed::LARGEST as i32 + 4096,
            ..Config::default()
        };
        let made = context.get_or_create_stream(config).await;
        made.map_err(|error| Error::new(format!("cannot make the stream {STREAM}: {error}")))?;
        Ok(())
    })
}

/// What was sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sent {
    /// Records that the servers have now.
    pub records: u64,
    /// Of them: the servers had them already.
    pub repeats: u64,
}

/// Sends what waits, in its order, until nothing does or `stop` is raised. What was taken on is out of the outbox when this returns, also
/// with an error.
///
/// # Errors
/// When the servers cannot be reached, or one record is not taken on in time: it and what follows wait on.
pub fn send(
    outbox: &mut Outbox,
    servers: &Servers,
    host: &str,
    key: &SecretKey,
    stop: &AtomicBool,
) -> Result<Sent> {
    let mut sent = Sent::default();
    if outbox.waiting().is_empty() {
        return Ok(sent);
    }
    wait_for(async {
        let context = context(servers.connect().await?);
        while !outbox.waiting().is_empty() && !stop.load(Ordering::Relaxed) {
            let part: Vec<Waiting> = outbox.waiting().iter().take(UNDER_WAY).cloned().collect();
            if let Some(last) = part.last() {
                outbox.tried(last.number)?;
            }
            send_part(outbox, &context, host, key, &part, &mut sent).await?;
        }
        Ok(sent)
    })
}

async fn send_part(
    outbox: &mut Outbox,
    context: &Context,
    host: &str,
    key: &SecretKey,
    part: &[Waiting],
    sent: &mut Sent,
) -> Result<()> {
    let mut under_way = Vec::new();
    let mut failed = None;
    for one in part {
        let bytes = outbox.read(one)?;
        let Ok(opened) = sealed::open(&bytes) else {
            // Broken on this disk: it can never be sent. It is put aside, and what follows goes on.
            outbox.set_aside(one)?;
            continue;
        };
        let record = &opened.record;
        let subject = format!(
            "{STREAM}.{host}.{}.{}",
            record.kind.word(),
            sealed::plain_name(&record.setting.probe)
        );
        let (id, at) = (message_id(&bytes), now());
        let mut headers = HeaderMap::new();
        let signature = hex(&key.sign(clock_words(&id, at).as_bytes()));
        headers.insert(SENT, format!("{at} {signature}"));
        let message = PublishMessage::build().payload(bytes.into()).headers(headers).message_id(id);
        match context.send_publish(subject, message).await {
            Ok(ack) => under_way.push((one.number, ack)),
            Err(error) => {
                failed = Some(error.to_string());
                break;
            }
        }
    }
    // One patience for all: the library's begins anew with each that is waited for, 256 of them where servers have fallen silent.
    let mut until = tokio::time::Instant::now() + PATIENCE;
    for (number, ack) in under_way {
        match tokio::time::timeout_at(until, ack).await {
            Ok(Ok(ack)) => {
                sent.records += 1;
                sent.repeats += u64::from(ack.duplicate);
                outbox.sent(number)?;
                until = tokio::time::Instant::now() + PATIENCE;
            }
            Ok(Err(error)) => failed = failed.or(Some(error.to_string())),
            Err(_) => {
                let why = || format!("no answer within {} s", PATIENCE.as_secs());
                failed = failed.or_else(|| Some(why()));
            }
        }
    }
    failed.map_or(Ok(()), |why| {
        Err(Error::new(format!("a record was not taken on: {why}; it waits in the outbox")))
    })
}

/// What a collector did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Gathered {
    /// Records that count now.
    pub new: u64,
    /// Records that had been taken before.
    pub repeats: u64,
    /// Records that were refused.
    pub refused: u64,
    /// What went wrong since, and was tried again.
    pub troubles: u64,
}

/// How a collector reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReadTo {
    /// Up to what the stream holds now, as its leader knows it: who cannot hear most of the servers may be the leader of before, and is
    /// refused.
    Once,
    /// On and on; what goes wrong is told and tried again.
    Always,
}

/// Reads the stream from where this collector was, until `stop` is raised. `tell` is given each trouble in a sentence.
///
/// # Errors
/// With [`ReadTo::Once`]: whatever goes wrong. With [`ReadTo::Always`]: what no waiting mends (an address that is none).
pub fn gather(
    collector: &mut Collector,
    servers: &Servers,
    reading: ReadTo,
    stop: &AtomicBool,
    tell: &mut dyn FnMut(&str),
) -> Result<Gathered> {
    servers.check()?;
    let mut gathered = Gathered::default();
    loop {
        let done = wait_for(read(collector, servers, reading, stop, &mut gathered));
        match (done, reading) {
            (Ok(()), _) => return Ok(gathered),
            (Err(error), ReadTo::Once) => return Err(error),
            (Err(error), ReadTo::Always) => {
                gathered.troubles += 1;
                tell(&format!("{error}; tried again"));
                let began = Instant::now();
                while began.elapsed() < Duration::from_secs(2) {
                    if stop.load(Ordering::Relaxed) {
                        return Ok(gathered);
                    }
                    std::thread::sleep(Duration::from_millis(50));
                }
            }
        }
    }
}

async fn read(
    collector: &mut Collector,
    servers: &Servers,
    reading: ReadTo,
    stop: &AtomicBool,
    gathered: &mut Gathered,
) -> Result<()> {
    let told =
        |what: &str, why: String| Error::new(format!("cannot {what} the stream {STREAM}: {why}"));
    let context = context(servers.connect().await?);
    let began = Instant::now();
    let stream = loop {
        let stream = context.get_stream(STREAM).await.map_err(|e| told("find", e.to_string()))?;
        match leads(stream.cached_info()) {
            Err(why) if reading == ReadTo::Once => {
                if began.elapsed() > PATIENCE || stop.load(Ordering::Relaxed) {
                    return Err(told("read", why));
                }
                tokio::time::sleep(PAUSE).await;
            }
            _ => break stream,
        }
    };
    let info = stream.cached_info();
    let (last, born) = (info.state.last_sequence, info.created.unix_timestamp());
    // A stream that was made anew counts from 1 again.
    let name = format!("{STREAM}@{born}");
    let mut place = collector.place(&name)?;
    let config = OrderedConfig {
        deliver_policy: DeliverPolicy::ByStartSequence { start_sequence: place + 1 },
        ..OrderedConfig::default()
    };
    let consumer = stream.create_consumer(config).await.map_err(|e| told("read", e.to_string()))?;
    let mut messages = consumer.messages().await.map_err(|e| told("read", e.to_string()))?;
    let mut held: Vec<(Vec<u8>, Arrival)> = Vec::new();
    loop {
        let next = tokio::time::timeout(PAUSE, messages.next()).await;
        let ended = stop.load(Ordering::Relaxed);
        let message = match next {
            Ok(Some(Ok(message))) => Some(message),
            Ok(Some(Err(error))) => {
                keep(collector, &name, place, &mut held, gathered)?;
                return Err(told("read", error.to_string()));
            }
            Ok(None) => {
                keep(collector, &name, place, &mut held, gathered)?;
                return Err(told("read", "it ended".to_owned()));
            }
            Err(_) => None,
        };
        let idle = message.is_none();
        if let Some(message) = message {
            let about = message.info().map_err(|e| told("read", e.to_string()))?;
            place = about.stream_sequence;
            let stored = (about.published.unix_timestamp_nanos() / 1_000_000) as i64;
            held.push((message.payload.to_vec(), arrival(&message, stored)));
        }
        if held.len() >= BATCH || idle || ended || (reading == ReadTo::Once && place >= last) {
            keep(collector, &name, place, &mut held, gathered)?;
        }
        if ended || (reading == ReadTo::Once && place >= last) {
            return Ok(());
        }
    }
}

/// Whether the server that answered is the group's leader for certain. One that was cut off leads on for some seconds in its own eyes, while
/// the others have elected another and take records that it does not know.
fn leads(info: &Info) -> std::result::Result<(), String> {
    let peers = info.cluster.iter().flat_map(|cluster| &cluster.replicas);
    let heard = peers.clone().filter(|peer| !peer.offline && peer.active < LEADS).count();
    let group = peers.count() + 1;
    if heard + 1 > group / 2 {
        return Ok(());
    }
    let others = info.config.num_replicas.max(group) - 1;
    Err(format!(
        "the server that answered hears {heard} of the {others} others that hold it, and may know less than they do; try again"
    ))
}

fn arrival(message: &jetstream::Message, stored: i64) -> Arrival {
    let mut subject = message.subject.as_str().split('.');
    let sent = message.headers.as_ref().and_then(|headers| headers.get(SENT)).and_then(|text| {
        let (at, signature) = text.as_str().split_once(' ')?;
        Some((at.parse().ok()?, unhex(signature)?))
    });
    // Without a host in its subject it is nobody's.
    let host = subject.nth(1).unwrap_or_default().to_owned();
    Arrival { host: Some(host), stored: Some(stored), sent }
}

fn unhex(text: &str) -> Option<Vec<u8>> {
    let digits = text.as_bytes();
    if digits.len() != 128 {
        return None;
    }
    let byte = |two: &[u8]| u8::from_str_radix(std::str::from_utf8(two).ok()?, 16).ok();
    digits.chunks_exact(2).map(byte).collect()
}

/// Keeps what is held and the place up to which the stream was read, both or neither.
fn keep(
    collector: &mut Collector,
    name: &str,
    place: u64,
    held: &mut Vec<(Vec<u8>, Arrival)>,
    gathered: &mut Gathered,
) -> Result<()> {
    if held.is_empty() {
        return Ok(());
    }
    let mut now = gathered.clone();
    let mut batch = collector.batch()?;
    for (bytes, arrival) in held.iter() {
        match batch.take(bytes, arrival)? {
            Arrived::New => now.new += 1,
            Arrived::Repeat => now.repeats += 1,
            Arrived::Refused(_) => now.refused += 1,
        }
    }
    batch.read_to(name, place)?;
    batch.commit()?;
    *gathered = now;
    held.clear();
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_go_encrypted_or_stay_on_this_machine() {
        let check = |url: &str| {
            let servers = Servers { url: url.to_owned(), ..Servers::default() };
            servers.check().map_err(|error| error.to_string())
        };
        for good in
            ["tls://farm.example:4222", "nats://127.0.0.1:4222,nats://[::1]:5", "nats://localhost"]
        {
            assert_eq!(check(good), Ok(()));
        }
        assert!(check("nats://farm.example").unwrap_err().contains("unencrypted"));
        assert!(check("nats://127.0.0.1.evil:1").unwrap_err().contains("unencrypted"));
        assert!(check("tls://me:secret@farm.example").unwrap_err().contains("--credentials"));
        assert!(check("farm.example").unwrap_err().contains("tls://farm.example:4222"));
        assert!(check("").is_err());
    }
}
