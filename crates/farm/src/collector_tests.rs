//! A collector's sums against those of one process that reads all records.

use crate::{
    Arrival, Arrived, Collector, FarmQuestion, HostKey, SecretKey, Trust, clock_words, day_of,
    example::record, message_id, sealed::seal, sum_of,
};
use quiet_types::{
    farm::{FarmAnswer, FarmKind, FarmRecord},
    proof::Verdict,
};
use std::collections::BTreeMap;

fn key() -> SecretKey {
    SecretKey::of(&SecretKey::generate().unwrap()).unwrap()
}

fn take(collector: &mut Collector, bytes: &[u8], arrival: &Arrival) -> Arrived {
    let mut batch = collector.batch().unwrap();
    let taken = batch.take(bytes, arrival).unwrap();
    batch.commit().unwrap();
    taken
}

fn ask(collector: &Collector, conditions: &[&str], by: &[&str]) -> FarmAnswer {
    let text = |all: &[&str]| all.iter().map(|one| one.to_string()).collect::<Vec<_>>();
    let today = day_of("2023-11-20").unwrap();
    let mut question = FarmQuestion::parse(&text(conditions), &text(by), today).unwrap();
    question.changes = true;
    collector.ask(&question, today * 86_400_000).unwrap()
}

/// 2023-11-15 00:00 UTC.
const START: i64 = 1_700_006_400;

fn some(host: &str, days: i64, blocks: u64) -> Vec<FarmRecord> {
    (0..days * 4).map(|n| record(host, START + n * 21_600, blocks)).collect()
}

#[test]
fn sums_are_those_of_one_process_that_read_all_records_in_any_order_and_however_often() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("farm.sqlite");
    let (a, b) = (key(), key());
    let mut all = some("a", 3, 200);
    all.extend(some("b", 3, 150));
    for record in &mut all[12..] {
        record.setting.kernel = "6.12".into();
    }
    let mut sealed: Vec<Vec<u8>> = all
        .iter()
        .map(|record| seal(record, if record.host == "a" { &a } else { &b }).unwrap())
        .collect();
    let mut random = fastrand::Rng::with_seed(5);
    sealed.extend(sealed.clone());
    random.shuffle(&mut sealed);
    for (at, part) in sealed.chunks(7).enumerate() {
        let mut collector = Collector::open(&path, Trust::FirstKey).unwrap();
        let mut batch = collector.batch().unwrap();
        for bytes in part {
            batch.take(bytes, &Arrival::default()).unwrap();
        }
        // Killed before it was kept, each third time; then they come again.
        if at % 3 == 0 {
            drop(batch);
            let mut batch = collector.batch().unwrap();
            for bytes in part {
                batch.take(bytes, &Arrival::default()).unwrap();
            }
            batch.commit().unwrap();
        } else {
            batch.commit().unwrap();
        }
    }
    let collector = Collector::open(&path, Trust::FirstKey).unwrap();
    assert!(collector.adds_up().unwrap());
    let answer = ask(&collector, &[], &[]);
    let whole = sum_of(&all);
    assert_eq!((answer.machines, answer.records, answer.groups.len()), (2, 24, 1));
    let group = &answer.groups[0];
    assert_eq!((group.readings, group.max), (whole.count, whole.max));
    for (got, q) in [(group.p50, 0.5), (group.p99, 0.99), (group.p99_9, 0.999)] {
        assert_eq!(got, whole.percentile(q));
    }
    assert_eq!(answer.expected, all.iter().filter_map(|r| r.expected).sum::<u64>());
    assert_eq!(group.late, all.iter().filter_map(|r| r.late).sum::<u64>());
    assert_eq!(group.missed, 24);
    let by = ask(&collector, &["since=2023-11-16", "until=2023-11-17"], &["kernel"]);
    let told: Vec<(&str, u64)> =
        by.groups.iter().map(|g| (g.name[0].as_str(), g.records)).collect();
    assert_eq!(told.len(), 2);
    for (kernel, records) in told {
        let part: Vec<&FarmRecord> = all
            .iter()
            .filter(|r| r.setting.kernel == kernel && (r.at / 1000 - START) / 86_400 == 1)
            .collect();
        assert_eq!(records, part.len() as u64);
        let sum = sum_of(part);
        let group = by.groups.iter().find(|g| g.name[0] == kernel).unwrap();
        assert_eq!((group.readings, group.p99_9), (sum.count, sum.percentile(0.999)));
    }
}

#[test]
fn nothing_is_believed_that_its_host_did_not_sign() {
    let (ours, theirs) = (key(), key());
    let good = record("a", START, 50);
    let other = FarmRecord { id: format!("{}-x", START), ..good.clone() };
    let mut collector = Collector::in_memory(Trust::FirstKey).unwrap();
    assert_eq!(
        take(&mut collector, &seal(&good, &ours).unwrap(), &Arrival::default()),
        Arrived::New
    );
    let refused = take(&mut collector, &seal(&other, &theirs).unwrap(), &Arrival::default());
    assert_eq!(refused, Arrived::Refused("signed by another key than its host's"));
    let by = Arrival { host: Some("b".into()), ..Arrival::default() };
    let refused = take(&mut collector, &seal(&other, &ours).unwrap(), &by);
    assert_eq!(refused, Arrived::Refused("it came by another host's subject"));
    let mut torn = seal(&other, &ours).unwrap();
    torn[40] ^= 4;
    let refused = take(&mut collector, &torn, &Arrival::default());
    assert_eq!(refused, Arrived::Refused("its signature does not hold"));
    let answer = ask(&collector, &[], &[]);
    assert_eq!((answer.records, answer.refused.len()), (1, 3));
    // With a list, the first one to come has no right either.
    let listed = format!("# ours\na {}\n", ours.public());
    let trust = Trust::parse(&listed).unwrap();
    assert!(Trust::parse("a nonsense").is_err());
    let mut collector = Collector::in_memory(trust).unwrap();
    let early = take(&mut collector, &seal(&good, &theirs).unwrap(), &Arrival::default());
    assert!(matches!(early, Arrived::Refused(_)));
    let unknown = FarmRecord { host: "c".into(), ..good.clone() };
    let unknown = take(&mut collector, &seal(&unknown, &theirs).unwrap(), &Arrival::default());
    assert_eq!(unknown, Arrived::Refused("its host is not listed"));
    assert_eq!(
        take(&mut collector, &seal(&good, &ours).unwrap(), &Arrival::default()),
        Arrived::New
    );
    assert_eq!(HostKey::parse("zz"), None);
}

#[test]
fn a_clock_that_is_a_day_ahead_is_told_and_its_records_stand_where_they_belong() {
    let (ours, day) = (key(), 86_400_000);
    let record = record("a", START + 86_400, 50);
    let bytes = seal(&record, &ours).unwrap();
    let told = record.at + 300_000;
    let words = clock_words(&message_id(&bytes), told);
    let sent = Some((told, ours.sign(words.as_bytes())));
    let arrival = Arrival { stored: Some(told - day), sent, ..Arrival::default() };
    let mut collector = Collector::in_memory(Trust::FirstKey).unwrap();
    assert_eq!(take(&mut collector, &bytes, &arrival), Arrived::New);
    let answer = ask(&collector, &["until=2023-11-16"], &[]);
    assert_eq!((answer.records, answer.clocks[0].ahead), (1, day));
    // What somebody else says of its clock is nothing.
    let forged = Arrival { sent: Some((told - 9 * day, vec![0; 64])), ..arrival };
    let mut other = Collector::in_memory(Trust::FirstKey).unwrap();
    take(&mut other, &bytes, &forged);
    let answer = ask(&other, &["since=2023-11-16"], &[]);
    assert_eq!((answer.records, answer.clocks.len()), (1, 0));
}

#[test]
fn a_change_is_named_with_its_day_and_what_changed_then() {
    let mut all = Vec::new();
    for day in 0..24 {
        let mut one = record("a", START + day * 86_400, 400);
        if day >= 12 {
            one.setting.kernel = "6.19".into();
            one.setting.parameters = vec!["nohz_full=1".into()];
            one.readings =
                quiet_types::Histogram::of(one.readings.buckets.iter().flat_map(|(lower, n)| {
                    std::iter::repeat_n(quiet_types::Nanos(lower * 2), *n as usize)
                }));
        }
        all.push(one);
    }
    let mut collector = Collector::in_memory(Trust::FirstKey).unwrap();
    let mut batch = collector.batch().unwrap();
    for record in &all {
        batch.take_copied(record).unwrap();
    }
    let proof = FarmRecord {
        kind: FarmKind::Proof,
        id: "p".into(),
        verdict: Some(Verdict::Better),
        readings: Default::default(),
        ..all[0].clone()
    };
    batch.take_copied(&proof).unwrap();
    batch.commit().unwrap();
    let answer = ask(&collector, &[], &["kernel"]);
    let change = answer.changes.iter().find(|c| c.figure == "p99").unwrap();
    assert_eq!((change.day.as_str(), change.verdict), ("2023-11-27", Verdict::Worse));
    assert_eq!(change.what, ["kernel 6.18.4-rt -> 6.19", "boot parameter nohz_full=1 added"]);
    assert!((1.8..2.2).contains(&(change.after / change.before)), "{change:?}");
    assert!(change.sentence.contains("since 2023-11-27: kernel 6.18.4-rt -> 6.19, boot"));
    let verdicts: BTreeMap<&str, u64> =
        answer.groups.iter().map(|g| (g.name[0].as_str(), g.verdicts[0])).collect();
    assert_eq!(verdicts["6.18.4-rt"], 1);
    assert_eq!(answer.worst[0].host, "a");
    assert_eq!(collector.kept_of("a", 5).unwrap().len(), 1);
}

#[test]
fn a_machine_that_says_nothing_for_a_day_is_silent() {
    let mut collector = Collector::in_memory(Trust::FirstKey).unwrap();
    let mut batch = collector.batch().unwrap();
    batch.take_copied(&record("early", START, 50)).unwrap();
    batch.take_copied(&record("late", START + 5 * 86_400 - 60, 50)).unwrap();
    batch.commit().unwrap();
    let silent: Vec<String> =
        ask(&collector, &[], &[]).silent.into_iter().map(|m| m.host).collect();
    assert_eq!(silent, ["early"]);
}

#[test]
fn what_is_no_condition_is_told() {
    let parse =
        |text: &str| FarmQuestion::parse(&[text.to_owned()], &[], 20_000).unwrap_err().to_string();
    assert!(parse("kernel").contains("write NAME=VALUE"));
    assert!(parse("colour=red").contains("none of host, kernel"));
    assert!(parse("since=yesterday").contains("a day is as 2026-11-24"));
}

#[test]
fn a_full_disk_takes_nothing_of_a_batch_and_it_goes_on_when_there_is_room() {
    let ours = key();
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("farm.sqlite");
    let mut collector = Collector::open(&path, Trust::FirstKey).unwrap();
    let all = some("a", 30, 2000);
    let sealed: Vec<Vec<u8>> = all.iter().map(|record| seal(record, &ours).unwrap()).collect();
    let pages: i64 = collector.db.query_row("pragma page_count", [], |row| row.get(0)).unwrap();
    let room = |collector: &Collector, pages: i64| {
        let set = |row: &rusqlite::Row<'_>| row.get::<_, i64>(0);
        collector.db.query_row(&format!("pragma max_page_count = {pages}"), [], set).unwrap();
    };
    room(&collector, pages + 1);
    let mut fill = || -> crate::Result<()> {
        let mut batch = collector.batch()?;
        for bytes in &sealed {
            batch.take(bytes, &Arrival::default())?;
        }
        batch.read_to("s", 120)?;
        batch.commit()
    };
    assert!(fill().unwrap_err().to_string().contains("full"));
    assert_eq!((collector.place("s").unwrap(), ask(&collector, &[], &[]).records), (0, 0));
    room(&collector, 1_000_000);
    let mut fill = || -> crate::Result<()> {
        let mut batch = collector.batch()?;
        for bytes in &sealed {
            assert_eq!(batch.take(bytes, &Arrival::default())?, Arrived::New);
        }
        batch.commit()
    };
    fill().unwrap();
    assert!(collector.adds_up().unwrap());
    assert_eq!(ask(&collector, &[], &[]).groups[0].readings, sum_of(&all).count);
}

#[test]
fn who_lies_about_counts_stops_nobody() {
    let mut collector = Collector::in_memory(Trust::FirstKey).unwrap();
    let mut batch = collector.batch().unwrap();
    let mut lie = record("liar", START, 5);
    lie.expected = Some((1 << 43) - 1);
    lie.readings = quiet_types::Histogram {
        buckets: vec![(100, (1 << 42) - 1)],
        count: (1 << 42) - 1,
        min: Some(quiet_types::Nanos(100)),
        max: Some(quiet_types::Nanos(100)),
        ..Default::default()
    };
    for n in 0..4_000 {
        lie.id = format!("{n}");
        assert_eq!(batch.take_copied(&lie).unwrap(), Arrived::New);
    }
    batch.take_copied(&record("honest", START, 50)).unwrap();
    batch.commit().unwrap();
    let answer = ask(&collector, &["host=honest"], &[]);
    assert_eq!(answer.groups[0].readings, 51);
    assert_eq!(ask(&collector, &[], &[]).machines, 2);
}
