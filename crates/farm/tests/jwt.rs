//! A server that knows no users: an operator signs accounts, an account signs users, and each comes with a JWT (`nsc` makes the same).
//!
//! # Source
//! NATS' decentralized JWT authentication (ADR-14): three parts in base64url, signed by the issuer's nkey, claims of version 2.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

use nkeys::KeyPair;
use quiet_farm::{
    Arrived, Collector, FarmQuestion, MemberDir, Outbox, ReadTo, SecretKey, Servers, Trust, gather,
    make_stream, send,
};
use quiet_testing::{Why, own_sockets, skip, until};
use quiet_types::{
    Histogram, Nanos,
    farm::{FarmKind, FarmRecord, FarmSetting, RECORD_SCHEMA},
};
use std::{
    fs,
    path::Path,
    process::{Child, Command, Stdio},
    sync::atomic::AtomicBool,
};

struct Ended(Child);

impl Drop for Ended {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn base64(bytes: &[u8]) -> String {
    const LETTERS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
    let mut text = String::new();
    for three in bytes.chunks(3) {
        let bits = three.iter().fold(0u32, |all, byte| all << 8 | u32::from(*byte))
            << (8 * (3 - three.len()));
        for place in 0..=three.len() {
            text.push(LETTERS[(bits >> (18 - 6 * place)) as usize & 63] as char);
        }
    }
    text
}

/// What `issuer` says of `subject`.
fn jwt(name: &str, subject: &KeyPair, issuer: &KeyPair, claims: &serde_json::Value) -> String {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
    let payload = serde_json::json!({
        "jti": name, "iat": now.as_secs(), "iss": issuer.public_key(), "name": name,
        "sub": subject.public_key(), "nats": claims,
    });
    let head = base64(br#"{"typ":"JWT","alg":"ed25519-nkey"}"#);
    let signed = format!("{head}.{}", base64(payload.to_string().as_bytes()));
    let signature = issuer.sign(signed.as_bytes()).unwrap();
    format!("{signed}.{}", base64(&signature))
}

/// A file of credentials as `nsc` writes it.
fn credentials(
    dir: &Path,
    name: &str,
    account: &KeyPair,
    may: &serde_json::Value,
) -> std::path::PathBuf {
    let user = KeyPair::new_user();
    let mut claims = serde_json::json!({
        "subs": -1, "data": -1, "payload": -1, "type": "user", "version": 2,
    });
    for (side, subjects) in may.as_object().unwrap() {
        claims[side] = serde_json::json!({ "allow": subjects });
    }
    let text = format!(
        "-----BEGIN NATS USER JWT-----\n{}\n------END NATS USER JWT------\n\n\
         ************************* IMPORTANT *************************\n\
         NKEY Seed printed below can be used to sign and prove identity.\n\n\
         -----BEGIN USER NKEY SEED-----\n{}\n------END USER NKEY SEED------\n",
        jwt(name, &user, account, &claims),
        user.seed().unwrap()
    );
    let path = dir.join(format!("{name}.creds"));
    fs::write(&path, text).unwrap();
    path
}

fn record(n: i64) -> FarmRecord {
    let readings = Histogram::of((1..=200).map(|us| Nanos(us * 1000)));
    FarmRecord {
        schema: RECORD_SCHEMA.to_owned(),
        host: "box".to_owned(),
        kind: FarmKind::Run,
        id: format!("run-{n}"),
        at: 1_700_006_400_000 + n * 300_000,
        lasted: Nanos(1_000_000_000),
        setting: FarmSetting { probe: "wakeup".into(), ..FarmSetting::default() },
        expected: Some(200),
        late: Some(0),
        missed: Some(0),
        merged: 1,
        readings,
        ..FarmRecord::default()
    }
}

#[test]
fn a_machine_and_a_collector_come_with_jwts_and_a_stranger_s_is_refused() {
    let Some(program) = quiet_testing::tool("nats-server") else {
        return skip(Why::Program("nats-server", "nats-server"));
    };
    let dir = tempfile::tempdir().unwrap();
    let (operator, account, system) =
        (KeyPair::new_operator(), KeyPair::new_account(), KeyPair::new_account());
    let limits = |storage: i64| {
        serde_json::json!({
            "limits": {
                "subs": -1, "data": -1, "payload": -1, "imports": -1, "exports": -1, "wildcards": true,
                "conn": -1, "leaf": -1, "mem_storage": storage, "disk_storage": storage,
                "streams": storage, "consumer": storage,
            },
            "type": "account", "version": 2,
        })
    };
    let claims = serde_json::json!({
        "type": "operator", "version": 2, "system_account": system.public_key(),
    });
    let [socket] = own_sockets();
    let text = format!(
        "listen: {socket}\njetstream {{ store_dir: {}/js }}\noperator: {}\n\
         resolver: MEMORY\nresolver_preload {{ {}: {}, {}: {} }}\n",
        dir.path().display(),
        jwt("farm", &operator, &operator, &claims),
        account.public_key(),
        jwt("boxes", &account, &operator, &limits(-1)),
        system.public_key(),
        jwt("system", &system, &operator, &limits(0)),
    );
    let config = dir.path().join("server.conf");
    fs::write(&config, text).unwrap();
    let log = fs::File::create(dir.path().join("log")).unwrap();
    let mut server = Command::new(program);
    let server = server.arg("-c").arg(&config).stdout(Stdio::null()).stderr(log).spawn();
    let _server = Ended(server.unwrap());

    let servers = |credentials| Servers {
        url: format!("nats://{socket}"),
        credentials: Some(credentials),
        ca: None,
    };
    let all = servers(credentials(dir.path(), "collector", &account, &serde_json::json!({})));
    let log = || fs::read_to_string(dir.path().join("log")).unwrap_or_default();
    until("the stream is made", || {
        make_stream(&all, 1).map_err(|e| eprintln!("{e} {}", log())).ok()
    });

    let key = SecretKey::of(&SecretKey::generate().unwrap()).unwrap();
    let member = MemberDir::beside(dir.path());
    let put = |n| {
        let mut outbox = Outbox::open(&member).unwrap();
        outbox.put(&record(n), &key).unwrap();
        outbox
    };
    let stop = AtomicBool::new(false);
    let may = serde_json::json!({ "pub": ["quietcores.box.>"], "sub": ["_INBOX.>"] });
    let own = servers(credentials(dir.path(), "box", &account, &may));
    let sent = send(&mut put(1), &own, "box", &key, &stop).unwrap();
    assert_eq!(sent.records, 1);
    // Of an account that no operator signed; and of this one, for another machine's subject.
    let stranger = servers(credentials(dir.path(), "stranger", &KeyPair::new_account(), &may));
    assert!(send(&mut put(2), &stranger, "box", &key, &stop).is_err());
    let may = serde_json::json!({ "pub": ["quietcores.other.>"], "sub": ["_INBOX.>"] });
    let other = servers(credentials(dir.path(), "other", &account, &may));
    let refused = send(&mut put(3), &other, "box", &key, &stop);
    assert!(refused.is_err() || refused.unwrap().records == 0);
    let mut outbox = Outbox::open(&member).unwrap();
    assert_eq!(outbox.waiting().len(), 2);
    // They waited, and nothing of them was lost.
    assert_eq!(send(&mut outbox, &own, "box", &key, &stop).unwrap().records, 2);

    let mut collector = Collector::in_memory(Trust::FirstKey).unwrap();
    gather(&mut collector, &all, ReadTo::Once, &stop, &mut |_| {}).unwrap();
    let question = FarmQuestion::parse(&[], &[], 20_000).unwrap();
    let answer = collector.ask(&question, 20_000 * 86_400_000).unwrap();
    assert_eq!((answer.records, answer.groups[0].readings), (3, 600));
    let mut batch = collector.batch().unwrap();
    let again = quiet_farm::sealed::seal(&record(1), &key).unwrap();
    assert_eq!(batch.take(&again, &quiet_farm::Arrival::default()).unwrap(), Arrived::Repeat);
}
