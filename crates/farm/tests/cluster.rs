//! Three real servers on loopback, with TLS and a user a machine: what is sent is there once, whoever is killed, repeats, breaks or lies,
//! and the sums are those of one process that read all records.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

use async_nats::{ConnectOptions, HeaderMap, jetstream};
use quiet_farm::{
    Arrival, Collector, FarmQuestion, MemberDir, Outbox, ReadTo, SecretKey, Servers, Trust,
    clock_words, day_of, gather, make_stream, message_id, sealed::seal, send, sum_of,
};
use quiet_testing::{Why, own_sockets, skip, skip_part, until_within, within};
use quiet_types::{
    Histogram, Nanos,
    farm::{FarmKind, FarmRecord, FarmSetting, RECORD_SCHEMA},
};
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use std::{
    fs,
    net::{Ipv4Addr, SocketAddrV4},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::atomic::AtomicBool,
    time::{Duration, Instant},
};

/// Three servers that lost each other agree on a leader again in their own time: 50 s after a cut of 4 s on a quiet machine.
const ELECTION: Duration = Duration::from_secs(400);
const HOSTS: [&str; 3] = ["a", "b", "mallory"];
/// 2023-11-15 00:00 UTC.
const START: i64 = 1_700_006_400;

fn record(host: &str, n: i64) -> FarmRecord {
    let mut random = fastrand::Rng::with_seed(n as u64);
    let times = (0..300).map(|_| Nanos(random.u64(20_000..90_000)));
    let readings = Histogram::of(times.chain([Nanos(2_000_000)]));
    FarmRecord {
        schema: RECORD_SCHEMA.to_owned(),
        host: host.to_owned(),
        kind: FarmKind::Live,
        id: format!("{}-x", START + n * 300),
        at: (START + n * 300) * 1000,
        lasted: Nanos(300_000_000_000),
        setting: FarmSetting {
            probe: "blocks".into(),
            kernel: "6.18".into(),
            ..FarmSetting::default()
        },
        expected: Some(301),
        late: Some(1),
        missed: Some(0),
        merged: 1,
        readings,
        ..FarmRecord::default()
    }
}

/// Three servers; they end with the test.
struct Cluster {
    dir: tempfile::TempDir,
    program: PathBuf,
    servers: Vec<Option<Child>>,
    sockets: [SocketAddrV4; 3],
}

impl Drop for Cluster {
    fn drop(&mut self) {
        for child in self.servers.iter_mut().flatten() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

impl Cluster {
    fn start(program: PathBuf) -> Cluster {
        let dir = tempfile::tempdir().unwrap();
        let [x, y, z, routes @ ..] = own_sockets::<6>();
        let sockets = [x, y, z];
        certificates(dir.path(), x.ip());
        let mut users = String::new();
        for host in HOSTS {
            let public = user(dir.path(), host);
            users += &format!(
                "{{ nkey: {public}, permissions: {{ publish: \"quietcores.{host}.>\", subscribe: \"_INBOX.>\" }} }}\n"
            );
        }
        users += &format!("{{ nkey: {} }}\n", user(dir.path(), "collector"));
        let all = routes.map(|socket| format!("nats://{socket}"));
        let at = dir.path().display();
        for n in 0..3 {
            let text = format!(
                "server_name: n{n}\nlisten: {}\n\
                 tls {{ cert_file: {at}/cert.pem, key_file: {at}/key.pem }}\n\
                 jetstream {{ store_dir: {at}/js{n}, max_memory_store: 64MB, max_file_store: 1GB }}\n\
                 cluster {{ name: farm, listen: {}, routes: [{}] }}\n\
                 authorization {{ users = [\n{users}] }}\n",
                sockets[n],
                routes[n],
                all.join(", ")
            );
            fs::write(dir.path().join(format!("n{n}.conf")), text).unwrap();
        }
        let mut cluster = Cluster { dir, program, servers: vec![None, None, None], sockets };
        for n in 0..3 {
            cluster.up(n);
        }
        cluster
    }

    fn up(&mut self, n: usize) {
        let log = self.dir.path().join(format!("n{n}.log"));
        let log = fs::File::options().create(true).append(true).open(log).unwrap();
        let child = Command::new(&self.program)
            .arg("-c")
            .arg(self.dir.path().join(format!("n{n}.conf")))
            .stdout(Stdio::null())
            .stderr(log)
            .spawn()
            .unwrap();
        self.servers[n] = Some(child);
    }

    fn down(&mut self, n: usize) {
        let mut child = self.servers[n].take().unwrap();
        child.kill().unwrap();
        child.wait().unwrap();
    }

    fn urls(&self) -> [String; 3] {
        self.sockets.map(|socket| format!("tls://{socket}"))
    }

    /// Makes the stream, on all three; who cannot prints what the servers logged.
    fn make_stream(&self) {
        let servers = self.servers("collector");
        let began = Instant::now();
        while let Err(error) = make_stream(&servers, 3) {
            assert!(began.elapsed() < ELECTION, "{error}\n{}", self.logs());
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    fn logs(&self) -> String {
        let path = |n| self.dir.path().join(format!("n{n}.log"));
        (0..3).map(|n| fs::read_to_string(path(n)).unwrap_or_default()).collect()
    }

    fn servers(&self, who: &str) -> Servers {
        Servers {
            url: self.urls().join(","),
            credentials: Some(self.dir.path().join(format!("{who}.nk"))),
            ca: Some(self.dir.path().join("ca.pem")),
        }
    }

    fn client(&self, who: &str) -> ConnectOptions {
        let seed = fs::read_to_string(self.dir.path().join(format!("{who}.nk"))).unwrap();
        ConnectOptions::new()
            .nkey(seed)
            .require_tls(true)
            .add_root_certificates(self.dir.path().join("ca.pem"))
    }

    /// The number of the server that leads the stream.
    fn leader(&self) -> usize {
        let client = self.client("collector");
        let urls = self.urls();
        run(async {
            let client = client.connect(&urls[..]).await.unwrap();
            let stream = jetstream::new(client).get_stream("quietcores").await.unwrap();
            let cluster = stream.cached_info().cluster.clone().unwrap();
            cluster.leader.unwrap()[1..].parse().unwrap()
        })
    }

    /// What the stream's leader says of it, for a failing test to print.
    fn told(&self) -> String {
        let client = self.client("collector");
        let urls = self.urls();
        run(async {
            let client = client.connect(&urls[..]).await.unwrap();
            match jetstream::new(client).get_stream("quietcores").await {
                Ok(stream) => {
                    let info = stream.cached_info();
                    format!("{:?} {:?}", info.state, info.cluster)
                }
                Err(error) => error.to_string(),
            }
        })
    }

    fn publish(
        &self,
        who: &str,
        subject: &str,
        bytes: &[u8],
        times: usize,
        headers: Option<HeaderMap>,
    ) -> usize {
        let client = self.client(who);
        let urls = self.urls();
        run(async {
            let client = client.connect(&urls[..]).await.unwrap();
            let context =
                jetstream::ContextBuilder::new().ack_timeout(Duration::from_secs(2)).build(client);
            let mut under_way = Vec::new();
            for _ in 0..times {
                let headers = headers.clone().unwrap_or_default();
                let ack = context
                    .publish_with_headers(subject.to_owned(), headers, bytes.to_vec().into())
                    .await;
                under_way.push(ack.unwrap());
            }
            let mut taken = 0;
            for ack in under_way {
                taken += usize::from(ack.await.is_ok());
            }
            taken
        })
    }
}

fn run<T>(work: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(work)
}

fn certificates(dir: &Path, address: &Ipv4Addr) {
    let key = KeyPair::generate().unwrap();
    let mut params = CertificateParams::new(Vec::<String>::new()).unwrap();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let ca = params.self_signed(&key).unwrap();
    fs::write(dir.join("ca.pem"), ca.pem()).unwrap();
    let issuer = Issuer::new(params, key);
    let own = KeyPair::generate().unwrap();
    let names = vec!["localhost".to_owned(), address.to_string()];
    let cert = CertificateParams::new(names).unwrap().signed_by(&own, &issuer).unwrap();
    fs::write(dir.join("cert.pem"), cert.pem()).unwrap();
    fs::write(dir.join("key.pem"), own.serialize_pem()).unwrap();
}

/// Makes a user: the seed goes into a file, the public key is given back.
fn user(dir: &Path, name: &str) -> String {
    let pair = nkeys::KeyPair::new_user();
    fs::write(dir.join(format!("{name}.nk")), pair.seed().unwrap()).unwrap();
    pair.public_key()
}

fn key() -> SecretKey {
    SecretKey::of(&SecretKey::generate().unwrap()).unwrap()
}

struct Machine {
    _dir: tempfile::TempDir,
    member: MemberDir,
    key: SecretKey,
    name: &'static str,
}

impl Machine {
    fn new(name: &'static str) -> Machine {
        let dir = tempfile::tempdir().unwrap();
        let member = MemberDir::beside(dir.path());
        Machine { _dir: dir, member, key: key(), name }
    }

    fn put(&self, all: &[FarmRecord]) {
        let mut outbox = Outbox::open(&self.member).unwrap();
        for record in all {
            outbox.put(record, &self.key).unwrap();
        }
    }

    /// Until nothing waits, as a sender that is started again and again.
    fn send_all(&self, servers: &Servers) {
        until_within(ELECTION, "all records are sent", || {
            let mut outbox = Outbox::open(&self.member).unwrap();
            let _ = send(&mut outbox, servers, self.name, &self.key, &AtomicBool::new(false));
            outbox.waiting().is_empty().then_some(())
        });
    }
}

fn collect(servers: &Servers, path: &Path) -> Collector {
    let mut collector = Collector::open(path, Trust::FirstKey).unwrap();
    let stop = AtomicBool::new(false);
    until_within(ELECTION, "the stream is read", || {
        gather(&mut collector, servers, ReadTo::Once, &stop, &mut |_| {}).ok()
    });
    assert!(collector.adds_up().unwrap());
    collector
}

fn records(collector: &Collector) -> u64 {
    let today = day_of("2023-12-01").unwrap();
    let question = FarmQuestion::parse(&[], &[], today).unwrap();
    collector.ask(&question, today * 86_400_000).unwrap().records
}

fn agrees(collector: &Collector, all: &[FarmRecord]) {
    let today = day_of("2023-12-01").unwrap();
    let question = FarmQuestion::parse(&[], &["host".to_owned()], today).unwrap();
    let answer = collector.ask(&question, today * 86_400_000).unwrap();
    assert_eq!(answer.records, all.len() as u64);
    for group in &answer.groups {
        let sum = sum_of(all.iter().filter(|record| record.host == group.name[0]));
        assert_eq!((group.readings, group.max), (sum.count, sum.max));
        assert_eq!(group.p99_9, sum.percentile(0.999));
    }
    let machines: std::collections::BTreeSet<&str> = all.iter().map(|r| r.host.as_str()).collect();
    assert_eq!(answer.machines, machines.len() as u64);
}

#[test]
fn nothing_is_lost_twice_or_believed_of_a_stranger_whoever_is_killed() {
    if quiet_testing::left_out("a minute") {
        return;
    }
    let Some(program) = quiet_testing::tool("nats-server") else {
        return skip(Why::Program("nats-server", "nats-server"));
    };
    let mut cluster = Cluster::start(program);
    cluster.make_stream();
    let (a, b) = (Machine::new("a"), Machine::new("b"));
    let mut all: Vec<FarmRecord> = (0..600).map(|n| record("a", n)).collect();
    a.put(&all);
    let of_b: Vec<FarmRecord> = (0..300).map(|n| record("b", n)).collect();
    b.put(&of_b);
    all.extend(of_b);

    // The leader is killed while one machine sends; it comes back later.
    let leader = cluster.leader();
    let servers = cluster.servers("a");
    std::thread::scope(|scope| {
        let sender = scope.spawn(|| a.send_all(&servers));
        cluster.down(leader);
        sender.join().unwrap();
    });
    b.send_all(&cluster.servers("b"));
    cluster.up(leader);

    let dir = tempfile::tempdir().unwrap();
    let first = dir.path().join("first.sqlite");
    agrees(&collect(&cluster.servers("collector"), &first), &all);

    // A record a thousand times, without the id that the servers know repeats by; cut and broken ones.
    let again = seal(&all[0], &a.key).unwrap();
    assert_eq!(cluster.publish("a", "quietcores.a.live.blocks", &again, 1000, None), 1000);
    for at in [3, 50, again.len() - 1] {
        let mut broken = again.clone();
        broken[at] ^= 1;
        cluster.publish("a", "quietcores.a.live.blocks", &broken, 1, None);
        cluster.publish("a", "quietcores.a.live.blocks", &again[..at], 1, None);
    }
    // Somebody with credentials of its own: the servers keep it off others' subjects, collectors off others' names.
    let lie = seal(&record("a", 9_000), &key()).unwrap();
    assert_eq!(cluster.publish("mallory", "quietcores.a.live.blocks", &lie, 1, None), 0);
    assert_eq!(cluster.publish("mallory", "quietcores.mallory.live.blocks", &lie, 1, None), 1);
    // With another machine's credentials: its key is missing.
    assert_eq!(cluster.publish("a", "quietcores.a.live.blocks", &lie, 1, None), 1);
    // A machine whose clock is a day ahead.
    let day = 86_400_000;
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
    let ahead = now.as_millis() as i64 + day;
    let mut shifted = record("b", 500);
    shifted.at += day;
    let bytes = seal(&shifted, &b.key).unwrap();
    let signature = b.key.sign(clock_words(&message_id(&bytes), ahead).as_bytes());
    let signature: String = signature.iter().map(|byte| format!("{byte:02x}")).collect();
    let mut headers = HeaderMap::new();
    headers.insert("Quiet-Sent", format!("{ahead} {signature}"));
    assert_eq!(cluster.publish("b", "quietcores.b.live.blocks", &bytes, 1, Some(headers)), 1);
    all.push(record("b", 500));

    // The first goes on where it was, the second begins at the beginning: both have the same.
    let second = dir.path().join("second.sqlite");
    for path in [&first, &second] {
        let collector = collect(&cluster.servers("collector"), path);
        agrees(&collector, &all);
        let today = day_of("2023-12-01").unwrap();
        let answer = collector
            .ask(&FarmQuestion::parse(&[], &[], today).unwrap(), today * 86_400_000)
            .unwrap();
        let refused: Vec<(&str, u64)> =
            answer.refused.iter().map(|one| (one.why.as_str(), one.records)).collect();
        assert_eq!(refused.iter().map(|(_, n)| n).sum::<u64>(), 8, "{refused:?}");
        assert!(refused.contains(&("it came by another host's subject", 1)), "{refused:?}");
        assert!(refused.contains(&("signed by another key than its host's", 1)), "{refused:?}");
        assert_eq!(answer.clocks.len(), 1);
        assert!((answer.clocks[0].ahead - day).abs() < 60_000, "{:?}", answer.clocks);
    }
    // What one process makes of the same bytes.
    let mut one = Collector::in_memory(Trust::FirstKey).unwrap();
    let mut batch = one.batch().unwrap();
    for record in &all {
        let key = if record.host == "a" { &a.key } else { &b.key };
        batch.take(&seal(record, key).unwrap(), &Arrival::default()).unwrap();
    }
    batch.commit().unwrap();
    agrees(&one, &all);
}

#[test]
fn a_network_that_is_cut_for_a_while_loses_nothing() {
    if quiet_testing::left_out("a minute") || !within("-n", "ip link set lo up") {
        return;
    }
    let Some(program) = quiet_testing::tool("nats-server") else {
        return skip(Why::Program("nats-server", "nats-server"));
    };
    let link = |to: &str| {
        assert!(Command::new("ip").args(["link", "set", "lo", to]).status().unwrap().success());
    };
    let cluster = Cluster::start(program);
    cluster.make_stream();
    let a = Machine::new("a");
    let servers = cluster.servers("a");
    let outbox = a.member.path().join("outbox");
    let waiting = || fs::read_dir(&outbox).unwrap().count();
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("cut.sqlite");
    // Who is slow to cut finds all sent: then there is more to send and another cut.
    let (mut sent, mut left) = (0, 0);
    for _ in 0..3 {
        let more: Vec<FarmRecord> = (sent..sent + 1200).map(|n| record("a", n)).collect();
        sent += 1200;
        a.put(&more);
        std::thread::scope(|scope| {
            let sender = scope.spawn(|| a.send_all(&servers));
            until_within(ELECTION, "some is sent", || (waiting() < more.len()).then_some(()));
            // Machine, servers and collector lose each other.
            link("down");
            std::thread::sleep(Duration::from_secs(4));
            // What had been answered before is read by now.
            left = waiting();
            let servers = cluster.servers("collector");
            let mut collector = Collector::open(&path, Trust::FirstKey).unwrap();
            let stop = AtomicBool::new(false);
            let error = gather(&mut collector, &servers, ReadTo::Once, &stop, &mut |_| {});
            assert!(error.is_err(), "nobody can be reached");
            link("up");
            sender.join().unwrap();
        });
        if left > 0 {
            break;
        }
    }
    let all: Vec<FarmRecord> = (0..sent).map(|n| record("a", n)).collect();
    // What was taken on must be there in the end; a leader of a moment ago may know less, and then both are printed.
    let collector = until_within(ELECTION, "all that was taken on is read", || {
        let collector = collect(&cluster.servers("collector"), &path);
        let known = records(&collector);
        let all_there = known == all.len() as u64;
        if !all_there {
            eprintln!("{known} of {sent}: {}", cluster.told());
        }
        all_there.then_some(collector)
    });
    agrees(&collector, &all);
    if left == 0 {
        skip_part(Why::Machine("three cuts, and each came when all was sent".to_owned()));
    }
}

/// Nobody answers what is under way, and that is waited for once, not once for each: 300 records would take most of an hour.
#[test]
fn servers_that_fall_silent_are_waited_for_once() {
    if quiet_testing::left_out("half a minute") {
        return;
    }
    let Some(program) = quiet_testing::tool("nats-server") else {
        return skip(Why::Program("nats-server", "nats-server"));
    };
    let mut cluster = Cluster::start(program);
    cluster.make_stream();
    let a = Machine::new("a");
    let all: Vec<FarmRecord> = (0..300).map(|n| record("a", n)).collect();
    a.put(&all);
    let leader = cluster.leader();
    let gone = [(leader + 1) % 3, (leader + 2) % 3];
    for n in gone {
        cluster.down(n);
    }
    let mut outbox = Outbox::open(&a.member).unwrap();
    let began = Instant::now();
    let servers = cluster.servers("a");
    let error = send(&mut outbox, &servers, "a", &a.key, &AtomicBool::new(false)).unwrap_err();
    assert!(began.elapsed().as_secs() < 300, "{error} after {:?}", began.elapsed());
    assert_eq!(outbox.waiting().len(), 300, "{error}");
    drop(outbox);
    for n in gone {
        cluster.up(n);
    }
    a.send_all(&servers);
    let dir = tempfile::tempdir().unwrap();
    agrees(&collect(&cluster.servers("collector"), &dir.path().join("one.sqlite")), &all);
}

/// A leader that lost the others leads on for ten seconds in its own eyes. What it knows may be old: who asks for all gets an error.
#[test]
fn a_leader_that_is_alone_is_not_believed() {
    let Some(program) = quiet_testing::tool("nats-server") else {
        return skip(Why::Program("nats-server", "nats-server"));
    };
    let mut cluster = Cluster::start(program);
    cluster.make_stream();
    let a = Machine::new("a");
    let all: Vec<FarmRecord> = (0..20).map(|n| record("a", n)).collect();
    a.put(&all);
    a.send_all(&cluster.servers("a"));
    let dir = tempfile::tempdir().unwrap();
    agrees(&collect(&cluster.servers("collector"), &dir.path().join("all.sqlite")), &all);

    let leader = cluster.leader();
    let gone = [(leader + 1) % 3, (leader + 2) % 3];
    for n in gone {
        cluster.down(n);
    }
    std::thread::sleep(Duration::from_secs(4));
    let path = dir.path().join("alone.sqlite");
    let mut collector = Collector::open(&path, Trust::FirstKey).unwrap();
    let servers = cluster.servers("collector");
    let stop = AtomicBool::new(false);
    let error = gather(&mut collector, &servers, ReadTo::Once, &stop, &mut |_| {}).unwrap_err();
    drop(collector);
    // Its own answer, or none when it has given up meanwhile.
    let why = error.to_string();
    assert!(
        ["hears 0 of the 2", "cannot find", "cannot reach"].iter().any(|a| why.contains(a)),
        "{why}"
    );
    for n in gone {
        cluster.up(n);
    }
    agrees(&collect(&servers, &path), &all);
}

#[test]
fn without_servers_everything_waits() {
    let machine = Machine::new("a");
    let all: Vec<FarmRecord> = (0..5).map(|n| record("a", n)).collect();
    machine.put(&all);
    let [socket] = own_sockets();
    let servers = Servers { url: format!("nats://{socket}"), ..Servers::default() };
    let mut outbox = Outbox::open(&machine.member).unwrap();
    let error =
        send(&mut outbox, &servers, "a", &machine.key, &AtomicBool::new(false)).unwrap_err();
    assert!(error.to_string().starts_with("cannot reach nats://127."), "{error}");
    assert_eq!(outbox.waiting().len(), 5);
}
