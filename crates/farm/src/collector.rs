//! A collector: its own database, in which a record counts once, whoever brings it and how often. Histograms are added up by day,
//! machine and setting, so that a question about months touches few rows.

use crate::{
    Error, HostKey, Result,
    make::{moment, told},
    packed::{Adding, pack, unpack},
    sealed::{self, hex, is_name},
};
use quiet_types::{
    Histogram, Nanos,
    farm::{FarmCause, FarmKind, FarmRecord, FarmSetting, RECORD_SCHEMA},
};
use rusqlite::{
    Connection, OpenFlags, OptionalExtension, Transaction, TransactionBehavior, params,
};
use std::{collections::BTreeMap, path::Path, time::Duration};

const LAYOUT: i64 = 1;
/// A day in ms.
pub(crate) const DAY: i64 = 86_400_000;
/// From here on a clock is told as wrong, and times that it told are put right, in ms.
pub const WRONG: i64 = 300_000;

const TABLES: &str = "
create table hosts (host integer primary key, name text not null unique, key text not null, ahead integer not null, newest integer not null, setting integer not null);
create table settings (setting integer primary key, hash text not null unique, json text not null);
create table records (
    host integer, kind integer, id text, at integer, lasted integer, setting integer, expected integer, late integer, missed integer,
    verdict text, says text, causes text, merged integer, signed integer, readings blob,
    primary key (host, kind, id)
) without rowid;
create index kept_by_time on records (at) where kind <> 4;
create table days (
    day integer, host integer, setting integer, records integer, runs integer, expected integer, late integer, judged integer,
    missed integer, readings blob,
    primary key (day, host, setting)
) without rowid;
create table places (stream text primary key, place integer);
create table refused (why text primary key, records integer);
";

/// Whose records are believed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Trust {
    /// The first key that a name comes with is the one that it keeps.
    #[default]
    FirstKey,
    /// Only these names, each with its key.
    Listed(BTreeMap<String, HostKey>),
}

impl Trust {
    /// Of a list: `NAME KEY` a line; blank lines and what follows `#` say nothing.
    ///
    /// # Errors
    /// When a line is none, with its number.
    pub fn parse(text: &str) -> Result<Trust> {
        let mut all = BTreeMap::new();
        for (at, line) in text.lines().enumerate() {
            let line = line.split('#').next().unwrap_or_default();
            let words: Vec<&str> = line.split_whitespace().collect();
            let key = match words[..] {
                [] => continue,
                [name, key] if is_name(name) => HostKey::parse(key).map(|key| (name, key)),
                _ => None,
            };
            let (name, key) = key.ok_or_else(|| {
                let why = "write NAME and the 64 digits of its key, as `farm join` prints them";
                Error::new(format!("cannot use line {} of the list of machines: {why}", at + 1))
            })?;
            all.insert(name.to_owned(), key);
        }
        Ok(Trust::Listed(all))
    }
}

/// What is known of a record's way.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Arrival {
    /// The host in the subject that it came by, which the server lets nobody else write to.
    pub host: Option<String>,
    /// When a server took it, ms since 1970.
    pub stored: Option<i64>,
    /// What the sender says of its clock then, with its signature; see [`clock_words`].
    pub sent: Option<(i64, Vec<u8>)>,
}

/// What a sender signs to tell its clock.
pub fn clock_words(message: &str, at: i64) -> String {
    format!("quietcores clock {message} {at}")
}

/// What became of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arrived {
    /// It counts.
    New,
    /// It had been taken before.
    Repeat,
    /// It is not believed, and counted by its reason.
    Refused(&'static str),
}

/// A collector's database.
#[derive(Debug)]
pub struct Collector {
    pub(crate) db: Connection,
    trust: Trust,
    /// Days for which the readings of each record of a playing chain are kept beside the sums; `None`: for ever.
    raw_days: Option<i64>,
    known: Known,
}

#[derive(Debug, Default)]
struct Known {
    hosts: BTreeMap<String, HostRow>,
    settings: BTreeMap<FarmSetting, i64>,
    newest: i64,
    /// A batch was begun and not kept: what is known here may not be so.
    doubtful: bool,
}

#[derive(Clone, Debug)]
struct HostRow {
    host: i64,
    key: String,
    ahead: i64,
    newest: i64,
}

impl Collector {
    /// Opens the database, or makes it.
    ///
    /// # Errors
    /// When it cannot be opened or is of another version.
    pub fn open(path: &Path, trust: Trust) -> Result<Collector> {
        let flags = OpenFlags::SQLITE_OPEN_READ_WRITE
            | OpenFlags::SQLITE_OPEN_CREATE
            | OpenFlags::SQLITE_OPEN_NO_MUTEX
            | OpenFlags::SQLITE_OPEN_NOFOLLOW;
        let told = |error: rusqlite::Error| {
            Error::new(format!("cannot open the collector {}: {error}", path.display()))
        };
        // SQLite follows no link with this flag, also none above the file.
        let real = path.parent().and_then(|dir| dir.canonicalize().ok());
        let real = real.zip(path.file_name()).map_or(path.to_owned(), |(dir, name)| dir.join(name));
        let db = Connection::open_with_flags(real, flags).map_err(told)?;
        Collector::of(db, trust)
            .map_err(|error| Error::new(format!("cannot use {}: {error}", path.display())))
    }

    /// One that is held in memory.
    ///
    /// # Errors
    /// When SQLite has none.
    pub fn in_memory(trust: Trust) -> Result<Collector> {
        Collector::of(Connection::open_in_memory()?, trust)
    }

    fn of(db: Connection, trust: Trust) -> Result<Collector> {
        db.busy_timeout(Duration::from_secs(10))?;
        // A page holds a few records whole: of smaller ones each record would take another for its end (a new database alone takes a size).
        // The stream holds what a power cut takes from the end; the place in it is part of the same transaction.
        db.execute_batch(
            "pragma page_size = 16384; pragma journal_mode = wal; pragma synchronous = normal; pragma trusted_schema = off; pragma cache_size = -131072;",
        )?;
        let layout: i64 = db.query_row("pragma user_version", [], |row| row.get(0))?;
        if layout == 0 {
            let change = Transaction::new_unchecked(&db, TransactionBehavior::Immediate)?;
            let there: i64 =
                change.query_row("select count(*) from sqlite_schema", [], |r| r.get(0))?;
            if there == 0 {
                change.execute_batch(TABLES)?;
                change.pragma_update(None, "user_version", LAYOUT)?;
            } else if change.query_row("pragma user_version", [], |r| r.get::<_, i64>(0))? == 0 {
                return Err(Error::new("it is a database of something else; name another file"));
            }
            change.commit()?;
        } else if layout != LAYOUT {
            let why = "it was written by another version; collect anew into another file";
            return Err(Error::new(why));
        }
        let mut collector = Collector { db, trust, raw_days: None, known: Known::default() };
        collector.know()?;
        Ok(collector)
    }

    /// Keeps the readings of each record of a playing chain for so many days; their sums stay for ever.
    pub fn raw_days(self, days: Option<u32>) -> Collector {
        Collector { raw_days: days.map(i64::from), ..self }
    }

    fn know(&mut self) -> Result<()> {
        self.known = Known::default();
        let mut all = self.db.prepare("select name, host, key, ahead, newest from hosts")?;
        let mut rows = all.query([])?;
        while let Some(row) = rows.next()? {
            let one = HostRow {
                host: row.get(1)?,
                key: row.get(2)?,
                ahead: row.get(3)?,
                newest: row.get(4)?,
            };
            self.known.newest = self.known.newest.max(one.newest);
            self.known.hosts.insert(row.get(0)?, one);
        }
        Ok(())
    }

    /// Begins to take records: all of a batch or none of it.
    ///
    /// # Errors
    /// When the database is not to be had.
    pub fn batch(&mut self) -> Result<Batch<'_>> {
        if self.known.doubtful {
            self.know()?;
        }
        self.known.doubtful = true;
        let change = self.db.transaction_with_behavior(TransactionBehavior::Immediate)?;
        Ok(Batch {
            change,
            trust: &self.trust,
            raw_days: self.raw_days,
            known: &mut self.known,
            days: BTreeMap::new(),
        })
    }

    /// How far a stream was read, within the same transactions as its records.
    ///
    /// # Errors
    /// When the database cannot be read.
    pub fn place(&self, stream: &str) -> Result<u64> {
        let sql = "select place from places where stream = ?";
        let place: Option<i64> = self.db.query_row(sql, [stream], |row| row.get(0)).optional()?;
        Ok(place.unwrap_or(0) as u64)
    }

    /// Records by kind, and bytes of the file.
    ///
    /// # Errors
    /// When the database cannot be read.
    pub fn size(&self) -> Result<(u64, u64)> {
        let records: i64 =
            self.db.query_row("select count(*) from records", [], |row| row.get(0))?;
        let page =
            |name: &str| self.db.query_row(&format!("pragma {name}"), [], |r| r.get::<_, i64>(0));
        Ok((records as u64, (page("page_count")? * page("page_size")?) as u64))
    }

    /// Looks whether the sums of each day are those of its records; for tests and after a fault. Days whose readings are not kept one
    /// by one are passed over.
    ///
    /// # Errors
    /// When the database cannot be read.
    pub fn adds_up(&self) -> Result<bool> {
        let mut sums: BTreeMap<(i64, i64, i64), (Adding, i64, bool)> = BTreeMap::new();
        let mut all =
            self.db.prepare("select at, host, setting, readings, missed, kind from records")?;
        let mut rows = all.query([])?;
        while let Some(row) = rows.next()? {
            let (at, host, setting): (i64, i64, i64) = (row.get(0)?, row.get(1)?, row.get(2)?);
            let sum = sums
                .entry((at.div_euclid(DAY), host, setting))
                .or_insert_with(|| (Adding::default(), 0, true));
            match row.get_ref(3)?.as_blob_or_null().ok().flatten() {
                Some(bytes) => sum.2 &= sum.0.add(bytes),
                None => sum.2 = false,
            }
            sum.1 += row.get::<_, Option<i64>>(4)?.unwrap_or(0);
        }
        let mut all = self.db.prepare("select day, host, setting, readings, missed from days")?;
        let mut rows = all.query([])?;
        let mut days = 0;
        while let Some(row) = rows.next()? {
            days += 1;
            let Some((adding, missed, whole)) = sums.get(&(row.get(0)?, row.get(1)?, row.get(2)?))
            else {
                return Ok(false);
            };
            let mut kept = Adding::default();
            kept.add(row.get_ref(3)?.as_blob().unwrap_or_default());
            if *whole && (kept.whole() != adding.whole() || row.get::<_, i64>(4)? != *missed) {
                return Ok(false);
            }
        }
        Ok(days == sums.len())
    }

    /// One kept record of a machine, whole.
    ///
    /// # Errors
    /// When the database cannot be read.
    pub fn record(&self, host: &str, kind: FarmKind, id: &str) -> Result<Option<FarmRecord>> {
        let sql = format!("{KEPT} where h.name = ? and r.kind = ? and r.id = ?");
        let mut found = self.db.prepare(&sql)?;
        let mut rows = found.query(params![host, kind_number(kind), id])?;
        rows.next()?.map(of_row).transpose()
    }

    /// The newest kept records of a machine (`kind` other than those of playing chains), whole.
    ///
    /// # Errors
    /// When the database cannot be read.
    pub fn kept_of(&self, host: &str, most: usize) -> Result<Vec<FarmRecord>> {
        let sql = format!("{KEPT} where h.name = ? and r.kind <> 4 order by r.at desc limit ?");
        let mut found = self.db.prepare(&sql)?;
        let mut rows = found.query(params![host, most as i64])?;
        let mut all = Vec::new();
        while let Some(row) = rows.next()? {
            all.push(of_row(row)?);
        }
        Ok(all)
    }
}

const KEPT: &str = "select h.name, r.kind, r.id, r.at, r.lasted, s.json, r.expected, r.late, r.missed, r.verdict, r.says, r.causes, \
     r.merged, r.readings from records r join hosts h on h.host = r.host join settings s on s.setting = r.setting";

fn of_row(row: &rusqlite::Row<'_>) -> Result<FarmRecord> {
    let count = |at: usize| row.get::<_, Option<i64>>(at).map(|n| n.map(|n| n as u64));
    let kinds = [FarmKind::Run, FarmKind::Proof, FarmKind::Tune, FarmKind::Shield, FarmKind::Live];
    let verdict: String = row.get(9)?;
    let blob = row.get_ref(13)?.as_blob_or_null().ok().flatten();
    Ok(FarmRecord {
        schema: RECORD_SCHEMA.to_owned(),
        host: row.get(0)?,
        kind: kinds.get(row.get::<_, i64>(1)? as usize).copied().unwrap_or_default(),
        id: row.get(2)?,
        at: row.get(3)?,
        lasted: Nanos(row.get::<_, i64>(4)? as u64),
        setting: serde_json::from_str(&row.get::<_, String>(5)?).unwrap_or_default(),
        expected: count(6)?,
        late: count(7)?,
        missed: count(8)?,
        verdict: serde_json::from_str(&verdict).ok(),
        says: row.get(10)?,
        causes: serde_json::from_str(&row.get::<_, String>(11)?).unwrap_or_default(),
        merged: row.get(12)?,
        readings: blob.and_then(unpack).unwrap_or_default(),
    })
}

pub(crate) fn kind_number(kind: FarmKind) -> i64 {
    match kind {
        FarmKind::Run => 0,
        FarmKind::Proof => 1,
        FarmKind::Tune => 2,
        FarmKind::Shield => 3,
        FarmKind::Live => 4,
    }
}

/// Sums of a day, as they are added to.
#[derive(Default)]
struct Day {
    records: i64,
    runs: i64,
    expected: i64,
    late: i64,
    judged: i64,
    missed: i64,
    readings: Adding,
}

/// Records that are being taken.
pub struct Batch<'a> {
    change: Transaction<'a>,
    trust: &'a Trust,
    raw_days: Option<i64>,
    known: &'a mut Known,
    days: BTreeMap<(i64, i64, i64), Day>,
}

impl std::fmt::Debug for Batch<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Batch").field("days", &self.days.len()).finish_non_exhaustive()
    }
}

impl Batch<'_> {
    /// Takes a sealed record.
    ///
    /// # Errors
    /// When the database fails; what a stranger sent is no error.
    pub fn take(&mut self, bytes: &[u8], arrival: &Arrival) -> Result<Arrived> {
        let opened = match sealed::open(bytes) {
            Ok(opened) => opened,
            Err(why) => return self.refuse(why),
        };
        let name = &opened.record.host;
        if arrival.host.as_ref().is_some_and(|told| told != name) {
            return self.refuse("it came by another host's subject");
        }
        let pinned = match self.trust {
            Trust::Listed(all) => match all.get(name) {
                Some(key) => Some(key.to_string()),
                None => return self.refuse("its host is not listed"),
            },
            Trust::FirstKey => self.host(name)?.map(|row| row.key).filter(|key| !key.is_empty()),
        };
        let key = opened.key.to_string();
        if pinned.is_some_and(|pinned| pinned != key) {
            return self.refuse("signed by another key than its host's");
        }
        let id = sealed::message_id(bytes);
        let clock = arrival.sent.as_ref().zip(arrival.stored);
        let ahead = clock.and_then(|((told, signature), stored)| {
            opened
                .key
                .signed(clock_words(&id, *told).as_bytes(), signature)
                .then_some(told - stored)
        });
        self.add(&opened.record, &opened.packed, &key, ahead)
    }

    /// Takes a record that needs no signature: of files that whoever asks has copied.
    ///
    /// # Errors
    /// When the database fails.
    pub fn take_copied(&mut self, record: &FarmRecord) -> Result<Arrived> {
        if let Err(why) = sealed::check(record) {
            return self.refuse(why);
        }
        self.add(record, &pack(&record.readings), "", None)
    }

    fn refuse(&mut self, why: &'static str) -> Result<Arrived> {
        let sql = "insert into refused values (?, 1) on conflict (why) do update set records = records + 1";
        self.change.prepare_cached(sql)?.execute([why])?;
        Ok(Arrived::Refused(why))
    }

    fn host(&mut self, name: &str) -> Result<Option<HostRow>> {
        if let Some(row) = self.known.hosts.get(name) {
            // Known without a key from copied files: another collector may have pinned one meanwhile.
            if !row.key.is_empty() {
                return Ok(Some(row.clone()));
            }
        }
        let sql = "select host, key, ahead, newest from hosts where name = ?";
        let of = |row: &rusqlite::Row<'_>| {
            Ok(HostRow {
                host: row.get(0)?,
                key: row.get(1)?,
                ahead: row.get(2)?,
                newest: row.get(3)?,
            })
        };
        let row = self.change.prepare_cached(sql)?.query_row([name], of).optional()?;
        if let Some(row) = &row {
            self.known.hosts.insert(name.to_owned(), row.clone());
        }
        Ok(row)
    }

    fn setting(&mut self, setting: &FarmSetting) -> Result<i64> {
        if let Some(known) = self.known.settings.get(setting) {
            return Ok(*known);
        }
        let json = serde_json::to_string(setting).map_err(|e| Error::new(e.to_string()))?;
        let hash =
            hex(&ring::digest::digest(&ring::digest::SHA256, json.as_bytes()).as_ref()[..16]);
        let insert = "insert into settings (hash, json) values (?, ?) on conflict do nothing";
        self.change.prepare_cached(insert)?.execute([&hash, &json])?;
        let select = "select setting from settings where hash = ?";
        let number: i64 =
            self.change.prepare_cached(select)?.query_row([&hash], |row| row.get(0))?;
        // Bounded: who changes its settings with each record shall not fill the memory.
        if self.known.settings.len() > 20_000 {
            self.known.settings.clear();
        }
        self.known.settings.insert(setting.clone(), number);
        Ok(number)
    }

    fn add(
        &mut self,
        record: &FarmRecord,
        packed: &[u8],
        key: &str,
        ahead: Option<i64>,
    ) -> Result<Arrived> {
        let setting = self.setting(&record.setting)?;
        let mut row = match self.host(&record.host)? {
            Some(row) => row,
            None => {
                let sql =
                    "insert into hosts (name, key, ahead, newest, setting) values (?, ?, 0, 0, ?)";
                self.change.prepare_cached(sql)?.execute(params![record.host, key, setting])?;
                let host = self.change.last_insert_rowid();
                HostRow { host, key: key.to_owned(), ahead: 0, newest: 0 }
            }
        };
        let before = (row.key.clone(), row.ahead, row.newest);
        if row.key.is_empty() {
            key.clone_into(&mut row.key);
        }
        row.ahead = ahead.unwrap_or(row.ahead);
        // Where its clock is known to be wrong now, its record stands where the servers' clock has it.
        let shift = ahead.filter(|ahead| ahead.abs() >= WRONG).unwrap_or(0);
        let at = (record.at - shift).max(0);
        row.newest = row.newest.max(at);
        self.known.newest = self.known.newest.max(at);
        let (host, day) = (row.host, at.div_euclid(DAY));
        let raw = record.kind != FarmKind::Live
            || self.raw_days.is_none_or(|days| day + days > self.known.newest.div_euclid(DAY));
        let causes =
            if record.causes.is_empty() { "[]".to_owned() } else { causes_json(&record.causes) };
        let verdict =
            record.verdict.and_then(|v| serde_json::to_string(&v).ok()).unwrap_or_default();
        let count = |n: Option<u64>| n.map(|n| n as i64);
        let sql = "insert into records values (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?) on conflict do nothing";
        let new = self.change.prepare_cached(sql)?.execute(params![
            host,
            kind_number(record.kind),
            record.id,
            at,
            record.lasted.0 as i64,
            setting,
            count(record.expected),
            count(record.late),
            count(record.missed),
            verdict,
            record.says,
            causes,
            record.merged,
            !key.is_empty(),
            raw.then_some(packed),
        ])?;
        if new == 0 {
            return Ok(Arrived::Repeat);
        }
        if before != (row.key.clone(), row.ahead, row.newest) {
            let sql = "update hosts set key = ?, ahead = ?, setting = case when newest < ? then ? else setting end, newest = max(newest, ?) where host = ?";
            self.change
                .prepare_cached(sql)?
                .execute(params![row.key, row.ahead, row.newest, setting, row.newest, host])?;
        }
        self.known.hosts.insert(record.host.clone(), row);
        let sum = self.day(day, host, setting)?;
        sum.records += 1;
        sum.runs += i64::from(record.kind == FarmKind::Run);
        sum.expected = sum.expected.saturating_add(record.expected.unwrap_or(0) as i64);
        sum.missed = sum.missed.saturating_add(record.missed.unwrap_or(0) as i64);
        if let Some(late) = record.late {
            sum.late = sum.late.saturating_add(late as i64);
            sum.judged = sum.judged.saturating_add(record.readings.count as i64);
        }
        sum.readings.add(packed);
        Ok(Arrived::New)
    }

    fn day(&mut self, day: i64, host: i64, setting: i64) -> Result<&mut Day> {
        // Sums hold 17 KiB each until they are written.
        if self.days.len() >= 4096 && !self.days.contains_key(&(day, host, setting)) {
            self.write_days()?;
        }
        let place = (day, host, setting);
        if !self.days.contains_key(&place) {
            let sql = "select records, runs, expected, late, judged, missed, readings from days where day = ? and host = ? and setting = ?";
            let mut kept = self.change.prepare_cached(sql)?;
            let mut rows = kept.query(params![day, host, setting])?;
            let mut sum = Day::default();
            if let Some(row) = rows.next()? {
                sum.records = row.get(0)?;
                sum.runs = row.get(1)?;
                sum.expected = row.get(2)?;
                sum.late = row.get(3)?;
                sum.judged = row.get(4)?;
                sum.missed = row.get(5)?;
                sum.readings.add(row.get_ref(6)?.as_blob().unwrap_or_default());
            }
            self.days.insert(place, sum);
        }
        Ok(self.days.entry(place).or_default())
    }

    fn write_days(&mut self) -> Result<()> {
        let sql = "insert or replace into days values (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)";
        let mut write = self.change.prepare_cached(sql)?;
        for ((day, host, setting), sum) in std::mem::take(&mut self.days) {
            let readings = pack(&sum.readings.whole());
            write.execute(params![
                day,
                host,
                setting,
                sum.records,
                sum.runs,
                sum.expected,
                sum.late,
                sum.judged,
                sum.missed,
                readings
            ])?;
        }
        Ok(())
    }

    /// Notes how far a stream was read.
    ///
    /// # Errors
    /// When the database fails.
    pub fn read_to(&mut self, stream: &str, place: u64) -> Result<()> {
        let sql = "insert or replace into places values (?, ?)";
        self.change.prepare_cached(sql)?.execute(params![stream, place as i64])?;
        Ok(())
    }

    /// Keeps all of it.
    ///
    /// # Errors
    /// When the database fails, for instance because the disk is full: then none of it is kept.
    pub fn commit(mut self) -> Result<()> {
        self.write_days()?;
        self.change.commit()?;
        self.known.doubtful = false;
        Ok(())
    }
}

fn causes_json(causes: &[FarmCause]) -> String {
    serde_json::to_string(causes).unwrap_or_else(|_| "[]".to_owned())
}

/// The number of a day of `2026-11-24`, since 1970; `None` where it is none.
pub fn day_of(text: &str) -> Option<i64> {
    let at = moment(&format!("{text}T00:00:00Z"));
    (at > 0 && text.len() == 10).then_some(at / DAY)
}

/// A day as `2026-11-24`.
pub fn day_text(day: i64) -> String {
    told(day * DAY).chars().take(10).collect()
}

/// For sums of one process that reads all records: what the collector's answer must equal.
pub fn sum_of<'a>(records: impl IntoIterator<Item = &'a FarmRecord>) -> Histogram {
    let mut all = Histogram::default();
    for record in records {
        all.merge(&record.readings);
    }
    all.linear = None;
    all
}
