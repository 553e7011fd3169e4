//! An index of the runs, in SQLite. The runs' own files stay the truth: the index is brought up
//! to date from them whenever it is opened, and can be thrown away at any time.

use crate::{Error, Kept, Store, StoreOwner, load};
use quiet_types::{
    Run,
    history::{Aside, Line},
    machine::Policy,
};
use rusqlite::{Connection, OpenFlags, Row, ToSql, params, types::Value};
use rustix::fs::{FlockOperation, Mode, OFlags};
use std::{
    collections::{BTreeMap, HashMap},
    fs,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

/// Another layout is thrown away and built anew.
const LAYOUT: i64 = 3;

const TABLE: &str = "
create table if not exists runs (
    id text primary key, size integer, written integer,
    started text, host text, kernel text, processor text, probe text, interval integer, policy text,
    cpus text, stress text, label text, tool text, settings text, lasted integer, readings integer,
    missed integer, p50 integer, p99 integer, p99_9 integer, max integer, beyond real,
    campaign text, cell text, partial integer
) without rowid;
create index if not exists by_start on runs (started, id);
create table if not exists bad (
    name text primary key, size integer, written integer, why text
) without rowid;
";

/// The index of a store, up to date with its files.
#[derive(Debug)]
pub struct Index {
    db: Connection,
    /// After `db`: closed while its files stay where they are.
    guard: Guard,
    owner: Option<StoreOwner>,
    aside: Vec<Aside>,
}

/// Which runs: conditions on the fields of [`Line`].
///
/// `kernel=6.17*`, `probe=wakeup`, `since=2026-11-01`; several are joined by commas and all hold.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Filter {
    conditions: Vec<(&'static str, String)>,
}

/// Names of conditions, and the SQL of each.
const CONDITIONS: [(&str, &str); 15] = [
    ("id", "id glob ?"),
    ("host", "host glob ?"),
    ("kernel", "kernel glob ?"),
    ("processor", "processor glob ?"),
    ("probe", "probe glob ?"),
    ("policy", "policy glob ?"),
    ("cpus", "cpus = ?"),
    ("stress", "stress glob ?"),
    ("label", "label glob ?"),
    ("tool", "tool glob ?"),
    ("settings", "settings glob ?"),
    ("since", "started >= ?"),
    ("until", "started < ?"),
    ("interval", "interval = ?"),
    ("campaign", "campaign glob ?"),
];

impl Filter {
    /// Reads `kernel=6.17*,probe=wakeup`.
    ///
    /// # Errors
    /// When a condition has no `=`, or a name that is none.
    pub fn parse(text: &str) -> Result<Filter, Error> {
        let mut filter = Filter::default();
        for part in text.split(',').map(str::trim).filter(|part| !part.is_empty()) {
            let wrong = |why: String| Error::text("understand the filter", part, why);
            let (name, value) =
                part.split_once('=').ok_or_else(|| wrong("write NAME=VALUE".to_owned()))?;
            let known = CONDITIONS.iter().find(|(known, _)| *known == name.trim());
            let Some((_, sql)) = known else {
                let names: Vec<&str> = CONDITIONS.iter().map(|(name, _)| *name).collect();
                return Err(wrong(format!("`{name}` is none of {}", names.join(", "))));
            };
            let mut value = value.trim().to_owned();
            if name.trim() == "interval" {
                let time: quiet_types::Nanos = value
                    .parse()
                    .map_err(|e: quiet_types::ParseDurationError| wrong(e.to_string()))?;
                value = time.0.to_string();
            }
            filter.conditions.push((sql, value));
        }
        Ok(filter)
    }

    /// With the runs whose ids begin so.
    pub fn ids(beginning: &str) -> Filter {
        Filter { conditions: vec![("id glob ?", format!("{beginning}*"))] }
    }

    /// With the runs of one campaign.
    pub fn campaign(name: &str) -> Filter {
        Filter { conditions: vec![("campaign = ?", name.to_owned())] }
    }

    fn sql(&self) -> (String, Vec<Value>) {
        let parts: Vec<&str> = self.conditions.iter().map(|(sql, _)| *sql).collect();
        let whole = if parts.is_empty() { "1".to_owned() } else { parts.join(" and ") };
        let values = self.conditions.iter().map(|(sql, value)| match value.parse::<i64>() {
            Ok(number) if sql.starts_with("interval") => Value::Integer(number),
            _ => Value::Text(value.clone()),
        });
        (whole, values.collect())
    }
}

impl Store {
    /// Where the index lies.
    pub fn index_path(&self) -> PathBuf {
        self.dir.join("index.sqlite")
    }

    /// Opens the index and brings it up to date. Files that are cut short or no JSON are put into
    /// `aside/` and named; all others go on. An index that is broken is built anew; where none can
    /// be written, or others write to it without end, it is held in memory.
    ///
    /// # Errors
    /// When the runs cannot be listed.
    pub fn index(&self) -> Result<Index, Error> {
        self.act(|| self.open(false))
    }

    /// The same, from the files alone.
    ///
    /// # Errors
    /// When the runs cannot be listed.
    pub fn rebuild_index(&self) -> Result<Index, Error> {
        self.act(|| self.open(true))
    }

    fn open(&self, anew: bool) -> Result<Index, Error> {
        // No link is followed: a program of root's may index a user's store.
        let Ok(dir) = self.dir.canonicalize() else { return self.in_memory() };
        if !anew {
            let Ok(guard) = Guard::shared(&dir) else { return self.in_memory() };
            match connect(&dir.join(NAME)).map_err(Trouble::from).and_then(|db| {
                let mut index = Index::new(db, guard, self.owner);
                index.bring_up_to_date(self)?;
                Ok(index)
            }) {
                Ok(index) => return Ok(index),
                Err(Trouble::Store(error)) => return Err(error),
                Err(Trouble::Sql(error)) if !is_damaged(&error) => return self.in_memory(),
                Err(Trouble::Sql(_)) => {}
            }
        }
        match self.build(&dir, anew) {
            Ok(index) => Ok(index),
            Err(Trouble::Store(error)) => Err(error),
            Err(Trouble::Sql(_)) => self.in_memory(),
        }
    }

    /// Builds the index aside and puts it in the place of the old one, while nobody else has that open.
    fn build(&self, dir: &Path, anew: bool) -> Result<Index, Trouble> {
        let guard = Guard::exclusive(dir)?;
        let (path, part) = (dir.join(NAME), dir.join(format!(".{NAME}.part")));
        // Somebody else may have mended it while this waited.
        if !anew && let Ok(db) = connect(&path) {
            let mut index = Index::new(db, guard.lower()?, self.owner);
            match index.bring_up_to_date(self) {
                Err(Trouble::Sql(error)) if is_damaged(&error) => {}
                other => return other.map(|()| index),
            }
            drop(index);
            return self.build(dir, true);
        }
        // Left by a builder that was killed.
        clear(&part);
        let mut index = Index::new(connect(&part)?, guard, self.owner);
        let built = index.bring_up_to_date(self).and_then(|()| {
            let Index { db, aside, guard, .. } = index;
            db.close().map_err(|(_, error)| Trouble::Sql(error))?;
            // The database goes first: a journal without one is thrown away by whoever opens it, and
            // beside the new one it would be taken for that one's.
            clear(&path);
            fs::rename(&part, &path).map_err(|_| cannot_open())?;
            let mut index = Index::new(connect(&path)?, guard.lower()?, self.owner);
            index.aside = aside;
            Ok(index)
        });
        if built.is_err() {
            clear(&part);
        }
        built
    }

    fn in_memory(&self) -> Result<Index, Error> {
        let broken = |e: rusqlite::Error| {
            Error::text("index", self.dir.display().to_string(), e.to_string())
        };
        let db = Connection::open_in_memory().map_err(broken)?;
        prepare(&db).map_err(broken)?;
        let mut index = Index::new(db, Guard(None), self.owner);
        match index.bring_up_to_date(self) {
            Ok(()) => Ok(index),
            Err(Trouble::Store(error)) => Err(error),
            Err(Trouble::Sql(error)) => Err(broken(error)),
        }
    }
}

const NAME: &str = "index.sqlite";
/// How long is waited for others that write to the index.
const PATIENCE: Duration = Duration::from_secs(2);

/// Keeps the index's files where they are while somebody has them open: shared by who uses it, alone for
/// who replaces it. The kernel takes it back from whoever is killed.
#[derive(Debug)]
struct Guard(Option<fs::File>);

impl Guard {
    /// Without one where the directory cannot be written: then nobody of this user replaces the index.
    fn shared(dir: &Path) -> Result<Guard, Trouble> {
        match Guard::open(dir) {
            Ok(file) => Guard::wait(file, FlockOperation::NonBlockingLockShared),
            Err(_) => Ok(Guard(None)),
        }
    }

    fn exclusive(dir: &Path) -> Result<Guard, Trouble> {
        let file = Guard::open(dir).map_err(|_| cannot_open())?;
        Guard::wait(file, FlockOperation::NonBlockingLockExclusive)
    }

    fn open(dir: &Path) -> rustix::io::Result<fs::File> {
        let flags = OFlags::RDONLY | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let mode = Mode::from_raw_mode(0o644);
        rustix::fs::open(dir.join("index.lock"), flags, mode).map(fs::File::from)
    }

    fn wait(file: fs::File, how: FlockOperation) -> Result<Guard, Trouble> {
        let began = Instant::now();
        while let Err(error) = rustix::fs::flock(&file, how) {
            let busy = matches!(error, rustix::io::Errno::WOULDBLOCK | rustix::io::Errno::INTR);
            if !busy || began.elapsed() > PATIENCE {
                return Err(cannot_open());
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        Ok(Guard(Some(file)))
    }

    /// From alone to shared; somebody else may come between.
    fn lower(self) -> Result<Guard, Trouble> {
        match self.0 {
            Some(file) => Guard::wait(file, FlockOperation::NonBlockingLockShared),
            None => Ok(self),
        }
    }
}

/// Removes a database and what SQLite lays beside it, the database first.
fn clear(path: &Path) {
    for more in ["", "-journal", "-wal", "-shm"] {
        let mut name = path.as_os_str().to_owned();
        name.push(more);
        let _ = fs::remove_file(name);
    }
}

fn connect(path: &Path) -> rusqlite::Result<Connection> {
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE
        | OpenFlags::SQLITE_OPEN_CREATE
        | OpenFlags::SQLITE_OPEN_NO_MUTEX
        | OpenFlags::SQLITE_OPEN_NOFOLLOW;
    let db = Connection::open_with_flags(path, flags)?;
    prepare(&db)?;
    Ok(db)
}

/// It can be rebuilt, so it need not survive a power cut: `synchronous = off`.
fn prepare(db: &Connection) -> rusqlite::Result<()> {
    db.busy_timeout(PATIENCE)?;
    db.execute_batch("pragma synchronous = off; pragma trusted_schema = off;")?;
    let layout = || db.query_row("pragma user_version", [], |row| row.get::<_, i64>(0));
    if layout()? != LAYOUT {
        // Whole or not at all, and seen whole by others.
        let change =
            rusqlite::Transaction::new_unchecked(db, rusqlite::TransactionBehavior::Immediate)?;
        if layout()? != LAYOUT {
            change.execute_batch("drop table if exists runs; drop table if exists bad;")?;
            change.execute_batch(TABLE)?;
            change.pragma_update(None, "user_version", LAYOUT)?;
        }
        change.commit()?;
    }
    // Reads a page of each: a file that is none, or cut short, says so here.
    db.query_row("select count(*) from runs, bad where runs.id = bad.name", [], |_| Ok(()))
}

enum Trouble {
    Sql(rusqlite::Error),
    Store(Error),
}

impl From<rusqlite::Error> for Trouble {
    fn from(error: rusqlite::Error) -> Trouble {
        Trouble::Sql(error)
    }
}

/// As SQLite says it of a file that it may not open.
fn cannot_open() -> Trouble {
    let code = rusqlite::ffi::Error::new(rusqlite::ffi::SQLITE_CANTOPEN);
    Trouble::Sql(rusqlite::Error::SqliteFailure(code, None))
}

/// Whether the file is at fault, not who else uses it, the disk or the rights.
fn is_damaged(error: &rusqlite::Error) -> bool {
    use rusqlite::ErrorCode::{DatabaseCorrupt, NotADatabase, TypeMismatch, Unknown};
    error
        .sqlite_error_code()
        .is_none_or(|code| matches!(code, DatabaseCorrupt | NotADatabase | TypeMismatch | Unknown))
}

/// Size and time of the last write: whether a file is the one that was read.
type Stamp = (i64, i64);

impl Index {
    fn new(db: Connection, guard: Guard, owner: Option<StoreOwner>) -> Index {
        Index { db, guard, owner, aside: Vec::new() }
    }

    fn bring_up_to_date(&mut self, store: &Store) -> Result<(), Trouble> {
        let dir = store.dir.join("runs");
        let mut known = self.stamps("select id, size, written from runs")?;
        let mut bad = self.stamps("select name, size, written from bad")?;
        let mut fresh = Vec::new();
        for name in crate::names(&dir).map_err(Trouble::Store)? {
            let Some(id) = name.strip_suffix(".json").filter(|id| crate::is_id(id)) else {
                continue;
            };
            let path = dir.join(&name);
            let Ok(meta) = fs::metadata(&path) else { continue };
            let written = meta.mtime().wrapping_mul(1_000_000_000).wrapping_add(meta.mtime_nsec());
            let stamp = (meta.size() as i64, written);
            if known.remove(id) == Some(stamp) {
                continue;
            }
            if bad.remove(id) == Some(stamp) {
                let sql = "select why from bad where name = ?";
                let why: String = self.db.query_row(sql, [id], |row| row.get(0))?;
                self.aside.push(Aside { name, why, moved: String::new() });
                continue;
            }
            fresh.push((id.to_owned(), name, path, stamp));
        }
        if fresh.is_empty() && known.is_empty() && bad.is_empty() {
            return Ok(());
        }
        // A writer from its first statement on, so that waiting for another one can end well.
        let change = self.db.transaction_with_behavior(rusqlite::TransactionBehavior::Immediate)?;
        for (id, name, path, stamp) in fresh {
            match load(&path) {
                Ok(Kept::Run(run)) if run.id == id => insert(&change, stamp, &line(&run))?,
                Ok(kept) => {
                    let why = format!("it holds {}, which is another id", kept.id());
                    note_bad(&change, &mut self.aside, &id, &name, stamp, why)?;
                }
                Err(error) if error.is_broken() => {
                    let why = error.to_string();
                    match set_aside(&store.dir, &path, &name) {
                        Some(moved) => self.aside.push(Aside { name, why, moved }),
                        None => note_bad(&change, &mut self.aside, &id, &name, stamp, why)?,
                    }
                }
                // Gone meanwhile: whoever took it away knows.
                Err(error) if error.is_gone() => {}
                Err(error) => {
                    note_bad(&change, &mut self.aside, &id, &name, stamp, error.to_string())?
                }
            }
        }
        for id in known.keys() {
            change.execute("delete from runs where id = ?", [id])?;
        }
        for name in bad.keys() {
            change.execute("delete from bad where name = ?", [name])?;
        }
        change.commit()?;
        Ok(())
    }

    fn stamps(&self, sql: &str) -> rusqlite::Result<HashMap<String, Stamp>> {
        let mut query = self.db.prepare(sql)?;
        let rows = query.query_map([], |row| Ok((row.get(0)?, (row.get(1)?, row.get(2)?))))?;
        rows.collect()
    }

    /// Files that are no run (any more), found when the index was opened.
    pub fn aside(&self) -> &[Aside] {
        &self.aside
    }

    /// How many runs there are.
    ///
    /// # Errors
    /// When the index cannot be read.
    pub fn count(&self, filter: &Filter) -> Result<u64, Error> {
        let (condition, values) = filter.sql();
        let sql = format!("select count(*) from runs where {condition}");
        let read = || {
            self.db.query_row(&sql, rusqlite::params_from_iter(values), |row| row.get::<_, i64>(0))
        };
        self.act(read)?
            .map(|count| count as u64)
            .map_err(|e| Error::text("query", "the index", e.to_string()))
    }

    /// The newest runs, at most `most`, oldest first.
    ///
    /// # Errors
    /// When the index cannot be read.
    pub fn lines(&self, filter: &Filter, most: usize) -> Result<Vec<Line>, Error> {
        let (condition, mut values) = filter.sql();
        values.push(Value::Integer(i64::try_from(most).unwrap_or(i64::MAX)));
        let sql = format!(
            "select id, started, host, kernel, processor, probe, interval, policy, cpus, stress, \
             label, tool, settings, lasted, readings, missed, p50, p99, p99_9, max, beyond, \
             campaign, cell, partial \
             from runs where {condition} order by started desc, id desc limit ?"
        );
        let read = || -> rusqlite::Result<Vec<Line>> {
            let mut query = self.db.prepare(&sql)?;
            let rows = query.query_map(rusqlite::params_from_iter(values.clone()), from_row)?;
            let mut lines = rows.collect::<rusqlite::Result<Vec<Line>>>()?;
            lines.reverse();
            Ok(lines)
        };
        self.act(read)?.map_err(|e| Error::text("query", "the index", e.to_string()))
    }

    /// SQLite looks for files beside its own at each query.
    fn act<T>(&self, act: impl FnOnce() -> T) -> Result<T, Error> {
        match self.owner {
            Some(owner) => owner.act(act),
            None => Ok(act()),
        }
    }
}

fn note_bad(
    db: &Connection,
    aside: &mut Vec<Aside>,
    id: &str,
    name: &str,
    stamp: Stamp,
    why: String,
) -> rusqlite::Result<()> {
    db.execute(
        "insert or replace into bad values (?, ?, ?, ?)",
        params![id, stamp.0, stamp.1, why],
    )?;
    aside.push(Aside { name: name.to_owned(), why, moved: String::new() });
    Ok(())
}

/// Moves a broken file out of the way; `None` where it cannot be moved.
fn set_aside(dir: &Path, path: &Path, name: &str) -> Option<String> {
    let aside = dir.join("aside");
    fs::create_dir_all(&aside).ok()?;
    for count in 0..100 {
        let to = aside.join(if count == 0 { name.to_owned() } else { format!("{name}.{count}") });
        let flags = rustix::fs::RenameFlags::NOREPLACE;
        match rustix::fs::renameat_with(rustix::fs::CWD, path, rustix::fs::CWD, &to, flags) {
            Ok(()) => return Some(to.display().to_string()),
            Err(rustix::io::Errno::EXIST) => {}
            Err(_) => return None,
        }
    }
    None
}

fn insert(db: &Connection, stamp: Stamp, line: &Line) -> rusqlite::Result<()> {
    let ns = |time: Option<quiet_types::Nanos>| time.map(|time| time.0 as i64);
    let values: [&dyn ToSql; 26] = [
        &line.id,
        &stamp.0,
        &stamp.1,
        &line.started,
        &line.host,
        &line.kernel,
        &line.processor,
        &line.probe,
        &ns(line.interval),
        &line.policy,
        &line.cpus,
        &line.stress,
        &line.label,
        &line.tool,
        &line.settings,
        &ns(line.lasted),
        &(line.readings as i64),
        &line.missed.map(|missed| missed as i64),
        &ns(line.p50),
        &ns(line.p99),
        &ns(line.p99_9),
        &ns(line.max),
        &line.beyond,
        &line.campaign,
        &line.cell,
        &line.partial,
    ];
    let mut query = db.prepare_cached(
        "insert or replace into runs values (?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?)",
    )?;
    query.execute(&values[..]).map(|_| ())
}

fn from_row(row: &Row<'_>) -> rusqlite::Result<Line> {
    let ns = |at: usize| -> rusqlite::Result<Option<quiet_types::Nanos>> {
        Ok(row.get::<_, Option<i64>>(at)?.map(|ns| quiet_types::Nanos(ns as u64)))
    };
    let count = |at: usize| row.get::<_, i64>(at).map(|count| count as u64);
    Ok(Line {
        id: row.get(0)?,
        started: row.get(1)?,
        host: row.get(2)?,
        kernel: row.get(3)?,
        processor: row.get(4)?,
        probe: row.get(5)?,
        interval: ns(6)?,
        policy: row.get(7)?,
        cpus: row.get(8)?,
        stress: row.get(9)?,
        label: row.get(10)?,
        tool: row.get(11)?,
        settings: row.get(12)?,
        lasted: ns(13)?,
        readings: count(14)?,
        missed: row.get::<_, Option<i64>>(15)?.map(|missed| missed as u64),
        p50: ns(16)?,
        p99: ns(17)?,
        p99_9: ns(18)?,
        max: ns(19)?,
        beyond: row.get(20)?,
        campaign: row.get(21)?,
        cell: row.get(22)?,
        partial: row.get(23)?,
    })
}

/// A run in a line.
pub fn line(run: &Run) -> Line {
    let all = run.readings();
    let policy = run.scheduling().map(|(policy, priority)| {
        let name = format!("{policy:?}").to_lowercase();
        let real_time = matches!(policy, Policy::Fifo | Policy::Rr);
        if real_time { format!("{name} {priority}") } else { name }
    });
    let beyond = if run.is_gap() { run.share_stolen() } else { run.share_beyond(&all) };
    let ours = !run.is_imported();
    let stress = run.stress.as_ref().map(|stress| stress.names.join(","));
    let stress = stress.filter(|names| !names.is_empty());
    Line {
        id: run.id.clone(),
        started: run.started.clone(),
        partial: run.partial,
        host: run.host.name.clone(),
        kernel: run.host.release.clone(),
        processor: run.host.processor.clone(),
        probe: if run.is_gap() { "gap" } else { "wakeup" }.to_owned(),
        interval: run.interval(),
        policy,
        cpus: run.spec.cpus.to_string(),
        stress: stress.or(ours.then(|| "none".to_owned())),
        label: run.label.clone(),
        campaign: run.cell.as_ref().map(|cell| cell.campaign.clone()).unwrap_or_default(),
        cell: run.cell.as_ref().map(|cell| cell.key.clone()).unwrap_or_default(),
        tool: run.origin.as_ref().map_or("quietcores", |o| o.format.as_str()).to_owned(),
        settings: ours.then(|| settings(run)),
        lasted: run.lasted,
        readings: run.threads.iter().map(|thread| thread.obtained).sum(),
        missed: run.missed(),
        p50: all.percentile(0.5),
        p99: all.percentile(0.99),
        p99_9: all.percentile(0.999),
        max: all.max,
        beyond: beyond.filter(|beyond| beyond.is_finite()),
    }
}

/// FNV-1a over what was read back before the run, how the threads were scheduled, and whether
/// they ran inside a shield.
fn settings(run: &Run) -> String {
    let mut hash = 0xcbf2_9ce4_8422_2325u64;
    let mut eat = |text: &str| {
        for byte in text.bytes().chain([0]) {
            hash = (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3);
        }
    };
    let files: &BTreeMap<String, String> = &run.before.files;
    for (path, value) in files {
        eat(path);
        eat(value);
    }
    eat(&format!("{:?} {}", run.spec.idle.unwrap_or_default(), run.entry.is_some()));
    for got in run.threads.iter().filter_map(|thread| thread.scheduling) {
        eat(&format!("{:?} {}", got.policy, got.priority));
    }
    format!("{:08x}", (hash >> 32) as u32 ^ hash as u32)
}
