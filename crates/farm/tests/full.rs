//! Disks that are full: a member's, a collector's. What could not be kept comes again when there is room, once.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

use quiet_farm::{
    Arrival, Collector, FarmQuestion, MemberDir, Outbox, SecretKey, Trust, day_of,
    sealed::{open, seal},
    sum_of,
};
use quiet_testing::within;
use quiet_types::{
    Histogram, Nanos,
    farm::{FarmKind, FarmRecord, RECORD_SCHEMA},
};
use std::{fs, path::Path, process::Command};

/// Where a small disk is mounted, in the test's own namespace alone.
const DISK: &str = "/mnt";
const MOUNT: &str = "mount -t tmpfs -o size=400k none /mnt";

/// 2023-11-15 00:00 UTC.
const START: i64 = 1_700_006_400;

fn record(n: i64, kind: FarmKind) -> FarmRecord {
    let mut random = fastrand::Rng::with_seed(n as u64);
    FarmRecord {
        schema: RECORD_SCHEMA.to_owned(),
        host: "a".to_owned(),
        kind,
        id: format!("{}-x", START + n * 300),
        at: (START + n * 300) * 1000,
        lasted: Nanos(300_000_000_000),
        expected: Some(300),
        late: Some(0),
        missed: Some(0),
        merged: 1,
        readings: Histogram::of((0..300).map(|_| Nanos(random.u64(20_000..90_000)))),
        ..FarmRecord::default()
    }
}

fn key() -> SecretKey {
    SecretKey::of(&SecretKey::generate().unwrap()).unwrap()
}

fn more_room() {
    let done = Command::new("mount").args(["-o", "remount,size=64m", DISK]).status().unwrap();
    assert!(done.success());
}

#[test]
fn what_a_member_cannot_keep_is_put_again_when_there_is_room() {
    if !within("-m", MOUNT) {
        return;
    }
    let member = MemberDir::beside(&Path::new(DISK).join("store"));
    let key = key();
    let all: Vec<FarmRecord> = (0..400).map(|n| record(n, FarmKind::Run)).collect();
    let mut outbox = Outbox::open(&member).unwrap();
    let mut put = 0;
    let error = loop {
        match outbox.put(&all[put], &key) {
            Ok(new) => put += usize::from(new),
            Err(error) => break error,
        }
    };
    assert!(!error.is_of_the_record(), "{error}");
    assert!(error.to_string().contains("No space left on device"), "{error}");
    assert!(put > 10, "{put}");
    // The last bytes go too, so that a line of the notes is torn wherever it can be.
    let filler = Path::new(DISK).join("filler");
    let _ = fs::write(&filler, vec![0; 1 << 20]);
    for one in &all[put..] {
        assert!(outbox.put(one, &key).is_err());
    }
    drop(outbox);
    let notes = fs::read_to_string(member.path().join("noted")).unwrap();
    assert!(notes.is_empty() || notes.ends_with('\n'), "a torn line: {notes:?}");
    more_room();
    let mut outbox = Outbox::open(&member).unwrap();
    for one in &all {
        outbox.put(one, &key).unwrap();
    }
    let waiting: Vec<FarmRecord> = outbox
        .waiting()
        .iter()
        .map(|one| open(&outbox.read(one).unwrap()).unwrap().record)
        .collect();
    assert!(waiting == all, "{} of {} wait", waiting.len(), all.len());
}

#[test]
fn a_full_disk_is_given_room_by_its_oldest_minutes() {
    if !within("-m", MOUNT) {
        return;
    }
    let member = MemberDir::beside(&Path::new(DISK).join("store"));
    let key = key();
    let mut outbox = Outbox::open(&member).unwrap();
    let kept = record(0, FarmKind::Run);
    outbox.put(&kept, &key).unwrap();
    let mut put = 0;
    while outbox.put(&record(put + 1, FarmKind::Live), &key).is_ok() {
        put += 1;
    }
    // A bound as a member sets it who knows that the disk is small.
    let bound = outbox.size() / 2;
    let _ = outbox.thin(bound, &key);
    assert!(outbox.size() <= bound);
    drop(outbox);
    let mut outbox = Outbox::open(&member).unwrap();
    outbox.thin(bound, &key).unwrap();
    assert!(outbox.put(&record(put + 2, FarmKind::Live), &key).unwrap());
    let waiting: Vec<FarmRecord> = outbox
        .waiting()
        .iter()
        .map(|one| open(&outbox.read(one).unwrap()).unwrap().record)
        .collect();
    assert_eq!(waiting[0], kept, "what was kept is never dropped");
    assert_eq!(waiting.last().unwrap().at, record(put + 2, FarmKind::Live).at);
    let told = outbox.thinned();
    let there: u64 =
        waiting.iter().filter(|r| r.kind == FarmKind::Live).map(|r| u64::from(r.merged)).sum();
    assert_eq!(
        there + told.dropped,
        put as u64 + 1,
        "{told:?}: each minute is there or said to be dropped"
    );
}

#[test]
fn a_collector_whose_disk_is_full_counts_what_comes_again_once() {
    if !within("-m", MOUNT) {
        return;
    }
    let path = Path::new(DISK).join("farm.sqlite");
    let key = key();
    let all: Vec<FarmRecord> = (0..3000).map(|n| record(n, FarmKind::Live)).collect();
    let read = |collector: &mut Collector, part: &[FarmRecord]| {
        let mut batch = collector.batch()?;
        for one in part {
            batch.take(&seal(one, &key)?, &Arrival::default())?;
        }
        batch.commit()
    };
    let mut collector = Collector::open(&path, Trust::FirstKey).unwrap();
    let mut failed = 0;
    for part in all.chunks(100) {
        if let Err(error) = read(&mut collector, part) {
            assert!(error.to_string().contains("full"), "{error}");
            failed += 1;
        }
    }
    assert!(failed > 0, "the disk was never full");
    // It still adds up, and answers what it has.
    assert!(collector.adds_up().unwrap());
    drop(collector);
    more_room();
    let mut collector = Collector::open(&path, Trust::FirstKey).unwrap();
    for part in all.chunks(100) {
        read(&mut collector, part).unwrap();
    }
    assert!(collector.adds_up().unwrap());
    let today = day_of("2023-12-15").unwrap();
    let question = FarmQuestion::parse(&[], &["host".to_owned()], today).unwrap();
    let answer = collector.ask(&question, today * 86_400_000).unwrap();
    let sum = sum_of(all.iter());
    assert_eq!((answer.records, answer.groups[0].readings), (all.len() as u64, sum.count));
    assert_eq!(answer.groups[0].p99_9, sum.percentile(0.999));
}
