//! Questions to a collector.

use crate::{
    Collector, Error, Result,
    collector::{DAY, WRONG, day_of, day_text, kind_number},
    make::told,
    packed::Adding,
};
use quiet_judge::changes_over_time;
use quiet_types::{
    Histogram, Nanos,
    farm::{
        ANSWER_SCHEMA, FarmAnswer, FarmChange, FarmClock, FarmDay, FarmGroup, FarmKind,
        FarmMachine, FarmRefusal, FarmSetting,
    },
    history::{Change, Line},
    proof::Verdict,
};
use std::collections::{BTreeMap, BTreeSet};

/// A field by which records are chosen and grouped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FarmField {
    /// The machine.
    Host,
    /// The kernel's release.
    Kernel,
    /// The processor.
    Cpu,
    /// The board or computer.
    Board,
    /// The chain.
    Chain,
    /// A step of the shield that was in force.
    Step,
    /// A boot parameter.
    Parameter,
    /// `wakeup`, `gap`, `blocks`.
    Probe,
    /// The stress.
    Stress,
    /// Policy and priority.
    Policy,
    /// The UTC day.
    Day,
}

const FIELDS: [(&str, FarmField); 11] = [
    ("host", FarmField::Host),
    ("kernel", FarmField::Kernel),
    ("cpu", FarmField::Cpu),
    ("board", FarmField::Board),
    ("chain", FarmField::Chain),
    ("step", FarmField::Step),
    ("parameter", FarmField::Parameter),
    ("probe", FarmField::Probe),
    ("stress", FarmField::Stress),
    ("policy", FarmField::Policy),
    ("day", FarmField::Day),
];

impl FarmField {
    /// By its name.
    ///
    /// # Errors
    /// When it is none, with all there are.
    pub fn parse(text: &str) -> Result<FarmField> {
        FIELDS.iter().find(|(name, _)| *name == text).map(|(_, field)| *field).ok_or_else(|| {
            let names: Vec<&str> = FIELDS.iter().map(|(name, _)| *name).collect();
            Error::new(format!("`{text}` is none of {}", names.join(", ")))
        })
    }

    fn values(self, host: &str, setting: &FarmSetting, day: i64) -> Vec<String> {
        match self {
            FarmField::Host => vec![host.to_owned()],
            FarmField::Kernel => vec![setting.kernel.clone()],
            FarmField::Cpu => vec![setting.cpu.clone()],
            FarmField::Board => vec![setting.board.clone()],
            FarmField::Chain => vec![setting.chain.clone()],
            FarmField::Step => setting.steps.clone(),
            FarmField::Parameter => setting.parameters.clone(),
            FarmField::Probe => vec![setting.probe.clone()],
            FarmField::Stress => vec![setting.stress.clone()],
            FarmField::Policy => vec![setting.policy.clone()],
            FarmField::Day => vec![day_text(day)],
        }
    }
}

/// What is asked.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FarmQuestion {
    conditions: Vec<(FarmField, String)>,
    /// The first UTC day; 0: from the beginning.
    since: i64,
    /// The first UTC day that is not in it any more.
    until: Option<i64>,
    asked: Vec<String>,
    by: Vec<(String, FarmField)>,
    /// Day by day.
    pub trend: bool,
    /// Whether changes are looked for.
    pub changes: bool,
}

impl FarmQuestion {
    /// Of conditions such as `kernel=6.18*`, `since=2026-11-17`, `last=7`, and fields to group by. Days are those of UTC, whole; `today`
    /// is the number of this one.
    ///
    /// # Errors
    /// When a condition has no `=`, or names what is none.
    pub fn parse(conditions: &[String], by: &[String], today: i64) -> Result<FarmQuestion> {
        let mut question = FarmQuestion::default();
        for part in conditions.iter().flat_map(|text| text.split(',')).map(str::trim) {
            if part.is_empty() {
                continue;
            }
            let wrong = |why: String| Error::new(format!("cannot understand `{part}`: {why}"));
            let (name, value) =
                part.split_once('=').ok_or_else(|| wrong("write NAME=VALUE".to_owned()))?;
            let day = || day_of(value).ok_or_else(|| wrong("a day is as 2026-11-24".to_owned()));
            match name {
                "since" => question.since = day()?,
                "until" => question.until = Some(day()?),
                "last" => {
                    let days = value.trim_end_matches('d').parse::<u32>();
                    let days = days.map_err(|_| wrong("a number of days, as last=7".to_owned()))?;
                    question.since = today - i64::from(days) + 1;
                }
                _ => {
                    let field = FarmField::parse(name)
                        .map_err(|error| wrong(format!("{error}, since, until, last")))?;
                    question.conditions.push((field, value.to_owned()));
                }
            }
            question.asked.push(part.to_owned());
        }
        for name in by.iter().flat_map(|text| text.split(',')).filter(|name| !name.is_empty()) {
            question.by.push((name.to_owned(), FarmField::parse(name)?));
        }
        Ok(question)
    }

    fn holds(&self, host: &str, setting: &FarmSetting, day: i64) -> bool {
        self.conditions.iter().all(|(field, pattern)| {
            field.values(host, setting, day).iter().any(|value| glob(pattern, value))
        })
    }

    /// The same, by machine and day.
    pub(crate) fn by_host(&self) -> FarmQuestion {
        let by = vec![("host".to_owned(), FarmField::Host)];
        FarmQuestion { by, trend: true, changes: false, ..self.clone() }
    }

    /// Whether its conditions look at more than machine and setting.
    fn has_day(&self) -> bool {
        self.conditions.iter().any(|(field, _)| *field == FarmField::Day)
    }
}

/// Whether a pattern with `*` and `?` is of this text: in time of their product, whatever the pattern.
fn glob(pattern: &str, text: &str) -> bool {
    let (pattern, text): (Vec<char>, Vec<char>) =
        (pattern.chars().collect(), text.chars().collect());
    let (mut p, mut t, mut star) = (0, 0, None);
    while t < text.len() {
        match pattern.get(p) {
            Some('*') => {
                star = Some((p, t));
                p += 1;
            }
            Some(c) if *c == '?' || *c == text[t] => {
                p += 1;
                t += 1;
            }
            _ => {
                let Some((at, from)) = star else { return false };
                star = Some((at, from + 1));
                p = at + 1;
                t = from + 1;
            }
        }
    }
    pattern[p..].iter().all(|c| *c == '*')
}

/// Silent for longer than this, a machine is told as silent.
const SILENT: i64 = DAY;
/// Machines and changes that an answer names.
const NAMED: usize = 20;

#[derive(Default)]
struct Sum {
    hosts: BTreeSet<i64>,
    runs: u64,
    records: u64,
    expected: u64,
    late: u64,
    judged: u64,
    missed: u64,
    readings: Adding,
    verdicts: [u64; 3],
}

impl Sum {
    fn add(&mut self, row: &DayRow) {
        self.hosts.insert(row.host);
        self.runs = self.runs.saturating_add(row.runs);
        self.records = self.records.saturating_add(row.records);
        self.expected = self.expected.saturating_add(row.expected);
        self.late = self.late.saturating_add(row.late);
        self.judged = self.judged.saturating_add(row.judged);
        self.missed = self.missed.saturating_add(row.missed);
        self.readings.add(&row.readings);
    }

    fn late_share(&self) -> Option<f64> {
        (self.judged > 0).then(|| self.late as f64 / self.judged as f64)
    }
}

struct DayRow {
    day: i64,
    host: i64,
    setting: i64,
    records: u64,
    runs: u64,
    expected: u64,
    late: u64,
    judged: u64,
    missed: u64,
    readings: Vec<u8>,
}

struct HostAbout {
    name: String,
    ahead: i64,
    newest: i64,
    setting: i64,
}

/// Sums by a group's name and probe.
type GroupSums = Vec<((Vec<String>, String), Histogram)>;

struct Found {
    answer: FarmAnswer,
    groups: BTreeMap<(Vec<String>, String), Sum>,
    machines: Vec<FarmMachine>,
}

/// What is found while the days are gone through.
#[derive(Default)]
struct Course {
    groups: BTreeMap<(Vec<String>, String), Sum>,
    days: BTreeMap<(Vec<String>, String, i64), Sum>,
    machines: BTreeMap<(i64, String), Sum>,
    lines: Vec<(i64, i64, Line)>,
}

impl Collector {
    /// Answers; `now` is the moment in ms since 1970 that silence is told from.
    ///
    /// # Errors
    /// When the database cannot be read.
    pub fn ask(&self, question: &FarmQuestion, now: i64) -> Result<FarmAnswer> {
        self.answer(question, now).map(|found| found.answer)
    }

    /// An answer, and the sums that its groups were made of, by name and probe.
    pub(crate) fn ask_sums(
        &self,
        question: &FarmQuestion,
        now: i64,
    ) -> Result<(FarmAnswer, GroupSums)> {
        let found = self.answer(question, now)?;
        let sums = found.groups.into_iter().map(|(name, sum)| (name, sum.readings.whole()));
        Ok((found.answer, sums.filter(|(_, all)| all.count > 0).collect()))
    }

    /// An answer, and each machine by its name.
    pub(crate) fn ask_machines(
        &self,
        question: &FarmQuestion,
        now: i64,
    ) -> Result<(FarmAnswer, BTreeMap<String, FarmMachine>)> {
        let found = self.answer(question, now)?;
        let mut all: BTreeMap<String, FarmMachine> = BTreeMap::new();
        // The worst of a machine's probes comes first.
        for machine in found.machines {
            all.entry(machine.host.clone()).or_insert(machine);
        }
        Ok((found.answer, all))
    }

    fn answer(&self, question: &FarmQuestion, now: i64) -> Result<Found> {
        let (hosts, settings) = (self.hosts()?, self.settings()?);
        let mut course = Course::default();
        let mut chosen: BTreeMap<(i64, i64), bool> = BTreeMap::new();
        self.days(question, |row| {
            let (Some(host), Some(setting)) = (hosts.get(&row.host), settings.get(&row.setting))
            else {
                return;
            };
            let holds = || question.holds(&host.name, setting, row.day);
            let chosen = match question.has_day() {
                true => holds(),
                false => *chosen.entry((row.host, row.setting)).or_insert_with(holds),
            };
            if chosen {
                course.take(question, &row, &host.name, setting);
            }
        })?;
        self.verdicts(question, &hosts, &settings, &mut course)?;
        let mut answer = FarmAnswer {
            schema: ANSWER_SCHEMA.to_owned(),
            asked: question.asked.clone(),
            by: question.by.iter().map(|(name, _)| name.clone()).collect(),
            refused: self.refused()?,
            changes: changes(&course.lines, &hosts, &settings),
            ..FarmAnswer::default()
        };
        course.lines.clear();
        let all: BTreeSet<i64> = course.machines.keys().map(|(host, _)| *host).collect();
        answer.machines = all.len() as u64;
        for (name, sum) in &course.groups {
            answer.runs = answer.runs.saturating_add(sum.runs);
            answer.records = answer.records.saturating_add(sum.records);
            answer.expected = answer.expected.saturating_add(sum.expected);
            answer.groups.push(group(name.clone(), sum));
        }
        let by_time = |a: &FarmGroup, b: &FarmGroup| {
            (a.probe.as_str(), b.p99_9, b.max).cmp(&(b.probe.as_str(), a.p99_9, a.max))
        };
        answer.groups.sort_by(by_time);
        let place: BTreeMap<(Vec<String>, String), usize> = answer
            .groups
            .iter()
            .enumerate()
            .map(|(at, group)| ((group.name.clone(), group.probe.clone()), at))
            .collect();
        for ((name, probe, day), sum) in std::mem::take(&mut course.days) {
            if let Some(at) = place.get(&(name, probe)) {
                answer.groups[*at].days.push(day_of_sum(day, &sum));
            }
        }
        let machines = worst(&course.machines, &hosts, &settings);
        answer.worst = machines.iter().take(NAMED).cloned().collect();
        let silent = hosts.values().filter(|host| now - host.newest > SILENT);
        let mut silent: Vec<&HostAbout> = silent.collect();
        silent.sort_by_key(|host| host.newest);
        answer.silent = silent.iter().take(NAMED).map(|host| machine(host, &settings)).collect();
        let wrong = hosts.values().filter(|host| host.ahead.abs() >= WRONG);
        answer.clocks =
            wrong.map(|host| FarmClock { host: host.name.clone(), ahead: host.ahead }).collect();
        Ok(Found { answer, groups: course.groups, machines })
    }

    fn hosts(&self) -> Result<BTreeMap<i64, HostAbout>> {
        let mut all = self.db.prepare("select host, name, ahead, newest, setting from hosts")?;
        let rows = all.query_map([], |row| {
            let about = HostAbout {
                name: row.get(1)?,
                ahead: row.get(2)?,
                newest: row.get(3)?,
                setting: row.get(4)?,
            };
            Ok((row.get(0)?, about))
        })?;
        Ok(rows.collect::<rusqlite::Result<_>>()?)
    }

    fn settings(&self) -> Result<BTreeMap<i64, FarmSetting>> {
        let mut all = self.db.prepare("select setting, json from settings")?;
        let rows = all.query_map([], |row| Ok((row.get(0)?, row.get::<_, String>(1)?)))?;
        let mut settings = BTreeMap::new();
        for row in rows {
            let (number, json) = row?;
            settings.insert(number, serde_json::from_str(&json).unwrap_or_default());
        }
        Ok(settings)
    }

    fn days(&self, question: &FarmQuestion, mut each: impl FnMut(DayRow)) -> Result<()> {
        let sql = "select day, host, setting, records, runs, expected, late, judged, missed, readings from days where day >= ? and day < ?";
        let mut all = self.db.prepare(sql)?;
        let mut rows = all.query([question.since, question.until.unwrap_or(i64::MAX)])?;
        while let Some(row) = rows.next()? {
            let n = |at: usize| row.get::<_, i64>(at).map(|n| n as u64);
            each(DayRow {
                day: row.get(0)?,
                host: row.get(1)?,
                setting: row.get(2)?,
                records: n(3)?,
                runs: n(4)?,
                expected: n(5)?,
                late: n(6)?,
                judged: n(7)?,
                missed: n(8)?,
                readings: row.get(9)?,
            });
        }
        Ok(())
    }

    /// Proofs belong to the group of their setting, under every probe of it.
    fn verdicts(
        &self,
        question: &FarmQuestion,
        hosts: &BTreeMap<i64, HostAbout>,
        settings: &BTreeMap<i64, FarmSetting>,
        course: &mut Course,
    ) -> Result<()> {
        let sql = "select at, host, setting, verdict from records where kind <> 4 and kind = ? and at >= ? and at < ?";
        let until = question.until.map_or(i64::MAX, |day| day * DAY);
        let mut all = self.db.prepare(sql)?;
        let mut rows = all.query([kind_number(FarmKind::Proof), question.since * DAY, until])?;
        while let Some(row) = rows.next()? {
            let (at, host, setting): (i64, i64, i64) = (row.get(0)?, row.get(1)?, row.get(2)?);
            let (Some(host), Some(setting)) = (hosts.get(&host), settings.get(&setting)) else {
                continue;
            };
            let day = at.div_euclid(DAY);
            if !question.holds(&host.name, setting, day) {
                continue;
            }
            let at = match serde_json::from_str(&row.get::<_, String>(3)?) {
                Ok(Verdict::Better) => 0,
                Ok(Verdict::Worse) => 1,
                _ => 2,
            };
            let name = question.name(&host.name, setting, day);
            course.groups.entry((name, setting.probe.clone())).or_default().verdicts[at] += 1;
        }
        Ok(())
    }

    fn refused(&self) -> Result<Vec<FarmRefusal>> {
        let mut all = self.db.prepare("select why, records from refused order by why")?;
        let rows = all.query_map([], |row| {
            Ok(FarmRefusal { why: row.get(0)?, records: row.get::<_, i64>(1)? as u64 })
        })?;
        Ok(rows.collect::<rusqlite::Result<_>>()?)
    }
}

impl FarmQuestion {
    fn name(&self, host: &str, setting: &FarmSetting, day: i64) -> Vec<String> {
        let one = |(_, field): &(String, FarmField)| field.values(host, setting, day).join(" ");
        self.by.iter().map(one).collect()
    }
}

impl Course {
    fn take(&mut self, question: &FarmQuestion, row: &DayRow, host: &str, setting: &FarmSetting) {
        let name = question.name(host, setting, row.day);
        let probe = setting.probe.clone();
        if question.trend {
            self.days.entry((name.clone(), probe.clone(), row.day)).or_default().add(row);
        }
        self.groups.entry((name, probe.clone())).or_default().add(row);
        self.machines.entry((row.host, probe)).or_default().add(row);
        if question.changes {
            let mut adding = Adding::default();
            adding.add(&row.readings);
            let readings = adding.whole();
            if readings.count > 0 {
                self.lines.push((row.host, row.setting, line(row, host, setting, &readings)));
            }
        }
    }
}

/// A day of a machine under one setting, as a run of a history.
fn line(row: &DayRow, host: &str, setting: &FarmSetting, readings: &Histogram) -> Line {
    // The kernel is told apart from all other settings.
    Line {
        id: format!("{} {} {}", row.host, row.day, row.setting),
        started: Some(day_text(row.day)),
        host: host.to_owned(),
        kernel: setting.kernel.clone(),
        processor: setting.cpu.clone(),
        probe: setting.probe.clone(),
        interval: setting.interval,
        policy: Some(setting.policy.clone()),
        cpus: setting.chain.clone(),
        stress: Some(setting.stress.clone()),
        tool: "quietcores".to_owned(),
        settings: Some(row.setting.to_string()),
        readings: readings.count,
        missed: Some(row.missed),
        p50: readings.percentile(0.5),
        p99: readings.percentile(0.99),
        p99_9: readings.percentile(0.999),
        max: readings.max,
        beyond: (row.judged > 0).then(|| row.late as f64 / row.judged as f64),
        ..Line::default()
    }
}

fn changes(
    lines: &[(i64, i64, Line)],
    hosts: &BTreeMap<i64, HostAbout>,
    settings: &BTreeMap<i64, FarmSetting>,
) -> Vec<FarmChange> {
    let plain: Vec<Line> = lines.iter().map(|(_, _, line)| line.clone()).collect();
    let by_id: BTreeMap<&str, usize> =
        lines.iter().enumerate().map(|(at, (_, _, line))| (line.id.as_str(), at)).collect();
    let of = |change: Change| {
        let at = *by_id.get(change.first.as_str())?;
        let (host, setting, first) = &lines[at];
        let same = |line: &Line| {
            (&line.probe, &line.cpus, &line.policy, &line.stress, line.interval)
                == (&first.probe, &first.cpus, &first.policy, &first.stress, first.interval)
        };
        let before = lines[..at].iter().rev();
        let before = before.filter(|(other, _, line)| other == host && same(line));
        let before = before.map(|(_, setting, _)| setting).next();
        let what =
            before.and_then(|before| Some(differ(settings.get(before)?, settings.get(setting)?)));
        let (what, name) = (what.unwrap_or_default(), hosts.get(host)?.name.clone());
        let day = first.started.clone().unwrap_or_default();
        let since = if what.is_empty() {
            "no change of kernel or settings is known".to_owned()
        } else {
            what.join(", ")
        };
        let times = quiet_types::words::ratio(change.ratio.value);
        Some(FarmChange {
            sentence: format!("{name}: {} {times} since {day}: {since}", change.figure),
            day,
            host: name,
            what,
            figure: change.figure,
            before: change.before,
            after: change.after,
            verdict: change.verdict,
            p_value: change.p_value,
        })
    };
    changes_over_time(&plain).into_iter().filter_map(of).collect()
}

/// What differs between two settings, in words.
fn differ(old: &FarmSetting, new: &FarmSetting) -> Vec<String> {
    let mut found = Vec::new();
    let texts = [
        ("kernel", &old.kernel, &new.kernel),
        ("kernel build", &old.version, &new.version),
        ("processor", &old.cpu, &new.cpu),
        ("hypervisor", &old.hypervisor, &new.hypervisor),
        ("board", &old.board, &new.board),
        ("chain", &old.chain, &new.chain),
    ];
    let shown = |text: &str| if text.is_empty() { "none".to_owned() } else { text.to_owned() };
    for (name, old, new) in texts.into_iter().filter(|(_, old, new)| old != new) {
        found.push(format!("{name} {} -> {}", shown(old), shown(new)));
    }
    for (name, old, new) in
        [("step", &old.steps, &new.steps), ("boot parameter", &old.parameters, &new.parameters)]
    {
        let gone =
            old.iter().filter(|one| !new.contains(one)).map(|one| format!("{name} {one} gone"));
        let come =
            new.iter().filter(|one| !old.contains(one)).map(|one| format!("{name} {one} added"));
        found.extend(gone.chain(come).take(8));
    }
    if old.threshold != new.threshold {
        let shown = |t: Option<Nanos>| t.map_or("none".to_owned(), |t| t.to_string());
        found.push(format!("threshold {} -> {}", shown(old.threshold), shown(new.threshold)));
    }
    found
}

fn group((name, probe): (Vec<String>, String), sum: &Sum) -> FarmGroup {
    let all = sum.readings.whole();
    FarmGroup {
        name,
        probe,
        machines: sum.hosts.len() as u64,
        runs: sum.runs,
        records: sum.records,
        expected: sum.expected,
        late: sum.late,
        late_share: sum.late_share(),
        missed: sum.missed,
        p50: all.percentile(0.5),
        p99: all.percentile(0.99),
        p99_9: all.percentile(0.999),
        p99_99: all.percentile(0.9999),
        max: all.max,
        readings: all.count,
        verdicts: sum.verdicts,
        days: Vec::new(),
    }
}

fn day_of_sum(day: i64, sum: &Sum) -> FarmDay {
    let all = sum.readings.whole();
    FarmDay {
        day: day_text(day),
        p50: all.percentile(0.5),
        p99: all.percentile(0.99),
        p99_9: all.percentile(0.999),
        max: all.max,
        expected: sum.expected,
        late: sum.late,
        missed: sum.missed,
    }
}

fn machine(host: &HostAbout, settings: &BTreeMap<i64, FarmSetting>) -> FarmMachine {
    let setting = settings.get(&host.setting);
    FarmMachine {
        host: host.name.clone(),
        kernel: setting.map(|s| s.kernel.clone()).unwrap_or_default(),
        cpu: setting.map(|s| s.cpu.clone()).unwrap_or_default(),
        newest: told(host.newest),
        ..FarmMachine::default()
    }
}

fn worst(
    machines: &BTreeMap<(i64, String), Sum>,
    hosts: &BTreeMap<i64, HostAbout>,
    settings: &BTreeMap<i64, FarmSetting>,
) -> Vec<FarmMachine> {
    let mut all: Vec<FarmMachine> = Vec::new();
    for ((host, probe), sum) in machines {
        let readings = sum.readings.whole();
        let Some(host) = hosts.get(host).filter(|_| readings.count > 0) else { continue };
        all.push(FarmMachine {
            probe: probe.clone(),
            late_share: sum.late_share(),
            p99_9: readings.percentile(0.999),
            max: readings.max,
            missed: sum.missed,
            ..machine(host, settings)
        });
    }
    let badness = |m: &FarmMachine| (m.late_share.unwrap_or(0.0), m.p99_9.map_or(0, |t| t.0));
    all.sort_by(|a, b| badness(b).partial_cmp(&badness(a)).unwrap_or(std::cmp::Ordering::Equal));
    all
}
