//! `campaign`: a declared matrix of runs, measured until all of it is there.

use super::{
    measure::door,
    plan::{Wish, machine, make},
    ward::Ward,
};
use crate::{face, keep};
use anyhow::{Context, bail};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use quiet_linux::{Root, System, files};
use quiet_probe::{Request, Stress};
use quiet_store::{Filter, Store};
use quiet_types::{
    CpuSet, Nanos, Run,
    campaign::{Campaign, CellState, Shielding, Standing, Task, glob},
    history::Line,
    plan::Standing as ShieldStanding,
};
use rustix::fs::{FlockOperation, flock};
use std::{
    collections::HashMap,
    fs::File,
    io::{Read, Seek, Write},
    path::{Path, PathBuf},
    process::ExitCode,
    sync::atomic::AtomicBool,
    time::Instant,
};

/// Measure a declared matrix of probes, stresses and settings, until all of it is there
///
/// Every run is kept as soon as it is made; a run that is there is not made again. So the same command
/// goes on after Ctrl-C, a crash, a power cut, or a reboot into the other kernel.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  quietcores campaign kernels.toml             measure what is left on this boot
  quietcores campaign kernels.toml --status    what is done and left; measures nothing
  quietcores campaign kernels.toml --status --html kernels.html --markdown kernels.md

A campaign file (docs/campaign.md, examples/campaigns):
  [campaign]
  name = \"two kernels\"
  cpus = \"3\"                    # that are measured
  rounds = 6                    # runs of each cell, settings in turn
  for = \"10s\"
  [[probe]]
  kind = \"wakeup\"               # or \"gap\"
  interval = \"200us\"
  [[stress]]
  name = \"kernel\"
  run = [\"kernel\"]              # none where left out
  [[setting]]
  name = \"6.1\"
  kernel = \"6.1.*\"              # only while such a kernel runs
  [[setting]]
  name = \"6.12 RT\"
  kernel = \"6.12*-rt-*\"
  shield = true                 # or chain = \"living-room.toml\"

Exit status: 0 all of it is there, 1 something is left, waits or failed, 2 an error.")]
pub struct Args {
    /// Campaign file (TOML)
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// Measure nothing: say what is done and what is left
    #[arg(long)]
    status: bool,
    /// Write a page of what is there
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    /// Write the same as Markdown
    #[arg(long, value_name = "FILE")]
    markdown: Option<PathBuf>,
    /// Where the journal of a shield is kept
    #[arg(long, value_name = "DIR", default_value = quiet_shield::DEFAULT_STATE)]
    state: PathBuf,
    /// Keep runs here [default: $XDG_DATA_HOME/quietcores]
    #[arg(long, value_name = "DIR")]
    store: Option<PathBuf>,
    /// Print the result as JSON on standard output
    #[arg(long)]
    json: bool,
}

pub fn run(args: Args) -> anyhow::Result<ExitCode> {
    let root = Root::system()?;
    let (campaign, dir) = read(&args.file, &root)?;
    let html = args.html.as_deref().map(keep::Target::page).transpose()?;
    let markdown = args.markdown.as_deref().map(keep::Target::page).transpose()?;
    let store = match args.status {
        true => keep::store(args.store.as_deref())?,
        false => keep::ready(args.store.as_deref(), "runs")?,
    };
    let stop = face::interrupt()?;
    let kernel = root.read("/proc/sys/kernel/osrelease")?;
    let lock = if args.status { None } else { Some(Lock::take(&store, &args.state)?) };
    let tasks = campaign.tasks(seed(&store, &campaign.name)?);
    let mut cells = cells(&tasks, &store, &campaign.name, kernel.trim())?;
    let mut pace = Pace::default();
    if let Some(lock) = lock {
        let online = online(&root)?;
        let mut work = Work { args: &args, dir: &dir, store: &store, stop: &stop, online, lock };
        work.check(&campaign, &cells)?;
        work.all(&tasks, &mut cells, &mut pace)?;
    }
    let needs = left(&tasks, &cells).map(|task| pace.of(task)).sum::<u64>();
    let runs = cells
        .iter()
        .filter_map(|cell| cell.run.as_ref())
        .map(|line| store.run(&line.id))
        .collect::<Result<Vec<Run>, _>>()?;
    let it = quiet_judge::campaigned(&campaign.name, cells, &runs, Nanos(needs));
    let mut losses = keep::Losses::default();
    if let Some(target) = &html {
        losses.of("the page", target.write(&quiet_report::campaign_page(&it, &runs)));
    }
    if let Some(target) = &markdown {
        let text = super::report::marked(&quiet_report::campaign_markdown(&it));
        losses.of("the Markdown", target.write(&text));
    }
    if args.json {
        face::print_json(&it)?;
    } else {
        face::print(&quiet_report::campaign_text(&it, face::width()))?;
    }
    let whole = it.left + it.waiting + it.failed == 0;
    Ok(losses.end(if whole { ExitCode::SUCCESS } else { ExitCode::from(face::FINDINGS) }))
}

/// Campaign files are small.
const LARGEST: u64 = 1 << 20;

/// The campaign, and the directory that paths in it start from.
fn read(path: &Path, root: &Root) -> anyhow::Result<(Campaign, PathBuf)> {
    let shown = quiet_types::printable(&path.display().to_string(), 300);
    let text = File::open(path)
        .and_then(|file| files::take_text(file, LARGEST))
        .with_context(|| format!("cannot read the campaign file {shown}"))?;
    let online = online(root)?;
    let campaign = quiet_plan::campaign::parse(&text, &shown, Some(&online))?;
    Ok((campaign, path.parent().unwrap_or(Path::new("")).to_owned()))
}

fn online(root: &Root) -> anyhow::Result<CpuSet> {
    let path = "/sys/devices/system/cpu/online";
    root.read(path)?.parse().with_context(|| format!("cannot understand {path}"))
}

/// What the orders of this campaign are drawn from: what its runs say, so that it goes on as it began.
fn seed(store: &Store, name: &str) -> anyhow::Result<u32> {
    for line in store.index()?.lines(&Filter::campaign(name), usize::MAX)? {
        if let Some(seed) = store.run(&line.id)?.cell.and_then(|cell| cell.lot) {
            return Ok(seed);
        }
    }
    keep::seed()
}

/// How each cell stands before anything is measured.
fn cells(
    tasks: &[Task<'_>],
    store: &Store,
    name: &str,
    kernel: &str,
) -> anyhow::Result<Vec<CellState>> {
    let lines = store.index()?.lines(&Filter::campaign(name), usize::MAX)?;
    let mut done: HashMap<String, Line> =
        lines.into_iter().map(|line| (line.cell.clone(), line)).collect();
    let cells = tasks.iter().map(|task| {
        let run = done.remove(&task.cell.key);
        let other = task.setting.kernel.as_ref().filter(|wanted| !glob(wanted, kernel));
        let (state, why) = match (&run, other) {
            (Some(_), _) => (Standing::Done, String::new()),
            (None, Some(wanted)) => {
                (Standing::Waiting, format!("for a boot of kernel {wanted} (this is {kernel})"))
            }
            (None, None) if task.setting.shield != Shielding::None && !face::is_root() => {
                (Standing::Waiting, "for root, who alone can put up a shield".to_owned())
            }
            (None, None) => (Standing::Left, String::new()),
        };
        CellState { cell: task.cell.clone(), state, why, run }
    });
    Ok(cells.collect())
}

fn left<'a, 'c>(
    tasks: &'a [Task<'c>],
    cells: &'a [CellState],
) -> impl Iterator<Item = &'a Task<'c>> {
    let is_left = |state: Standing| matches!(state, Standing::Left | Standing::Failed);
    tasks.iter().zip(cells).filter(move |(_, cell)| is_left(cell.state)).map(|(task, _)| task)
}

/// How long a run takes beside its measuring: guessed at first, then what the last ones took.
#[derive(Default)]
struct Pace {
    beside: Option<f64>,
}

impl Pace {
    fn of(&self, task: &Task<'_>) -> u64 {
        let stress = if task.stress.run.is_empty() { 0.4e9 } else { 1.5e9 };
        let shield = if task.setting.shield == Shielding::None { 0.0 } else { 1.5e9 };
        let beside = self.beside.unwrap_or(stress + shield);
        task.probe.spec.length.0 + beside as u64
    }

    fn took(&mut self, task: &Task<'_>, began: Instant) {
        let beside = began.elapsed().as_nanos() as f64 - task.probe.spec.length.0 as f64;
        let so_far = self.beside.unwrap_or(beside);
        self.beside = Some((so_far * 0.9 + beside * 0.1).max(0.0));
    }
}

/// Only one campaign measures at a time. While a shield of a campaign is up, the lock's file holds the
/// boot, the state directory, and what the journal is known by: who comes after a kill takes that
/// shield down, and no other.
struct Lock {
    file: File,
    path: PathBuf,
}

impl Lock {
    fn take(store: &Store, state: &Path) -> anyhow::Result<Lock> {
        let path = store.dir().join("campaign.lock");
        let shown = path.display().to_string();
        let open = || {
            let mut options = std::fs::OpenOptions::new();
            options.read(true).write(true).create(true).truncate(false).open(&path)
        };
        let file =
            keep::as_owner(store.owner(), open)?.with_context(|| format!("cannot open {shown}"))?;
        flock(&file, FlockOperation::NonBlockingLockExclusive).map_err(|error| match error {
            rustix::io::Errno::WOULDBLOCK => anyhow::anyhow!(
                "another campaign is measuring (it holds {shown}); two would disturb each other. \
                 `--status` tells how far it is"
            ),
            error => anyhow::Error::new(std::io::Error::from(error))
                .context(format!("cannot lock {shown}")),
        })?;
        let mut lock = Lock { file, path };
        lock.clear_up(state)?;
        Ok(lock)
    }

    /// Takes down the shield of a campaign that was killed under it, in this boot.
    fn clear_up(&mut self, state: &Path) -> anyhow::Result<()> {
        let mut mark = String::new();
        (&self.file).take(1 << 16).read_to_string(&mut mark).unwrap_or_default();
        if !mark.is_empty() && face::is_root() {
            let ours = if mark == Lock::going_up(state)? {
                // Killed before it stood: half a shield can be nobody else's.
                quiet_shield::status(&System, state)?.state == ShieldStanding::Leftover
            } else {
                mark == Lock::is_up(state)?
            };
            if ours {
                quiet_shield::revert(&System, state).context(
                    "cannot take down the shield that an earlier campaign was killed under",
                )?;
                face::say(
                    "an earlier campaign was killed under its shield: the machine is put back",
                );
            }
        }
        self.note("")
    }

    fn going_up(state: &Path) -> anyhow::Result<String> {
        let boot = Root::system()?.read("/proc/sys/kernel/random/boot_id")?;
        Ok(format!("{} {}", boot.trim(), state.display()))
    }

    fn is_up(state: &Path) -> anyhow::Result<String> {
        let journal = quiet_shield::identity(state).unwrap_or_default();
        Ok(format!("{} journal {journal}", Lock::going_up(state)?))
    }

    fn note(&mut self, text: &str) -> anyhow::Result<()> {
        let mut write = || -> std::io::Result<()> {
            self.file.set_len(0)?;
            self.file.rewind()?;
            self.file.write_all(text.as_bytes())?;
            self.file.sync_data()
        };
        write().with_context(|| format!("cannot write {}", self.path.display()))
    }
}

/// What the measuring of cells needs.
struct Work<'a> {
    args: &'a Args,
    dir: &'a Path,
    store: &'a Store,
    stop: &'a AtomicBool,
    online: CpuSet,
    lock: Lock,
}

impl Work<'_> {
    /// What can be known to fail, before the first minute is spent.
    fn check(&self, campaign: &Campaign, cells: &[CellState]) -> anyhow::Result<()> {
        if !cells.iter().any(|cell| cell.state == Standing::Left) {
            return Ok(());
        }
        let root = Root::system()?;
        for probe in &campaign.probes {
            let request = Request::new(probe.spec.clone());
            request.check(&root).with_context(|| format!("cannot measure probe {}", probe.name))?;
        }
        for stress in campaign.stresses.iter().filter(|stress| !stress.run.is_empty()) {
            Stress::check(&stress.run)
                .with_context(|| format!("cannot run stress {}", stress.name))?;
        }
        let shielded =
            |setting: &&quiet_types::campaign::Setting| setting.shield != Shielding::None;
        let mut settings = campaign.settings.iter().filter(shielded).peekable();
        if !face::is_root() || settings.peek().is_none() {
            return Ok(());
        }
        super::apply::put_back_overdue(&self.args.state)?;
        let standing = quiet_shield::status(&System, &self.args.state)?.state;
        if matches!(standing, ShieldStanding::Up | ShieldStanding::Leftover) {
            bail!(
                "a shield is up, and this campaign puts up and takes down its own; \
                 run `quietcores revert` first"
            );
        }
        let machine = machine(&root)?;
        for setting in settings {
            for probe in &campaign.probes {
                let plan = make(&self.wish(&setting.shield, &probe.spec.cpus), &machine)
                    .with_context(|| format!("cannot plan setting {}", setting.name))?;
                let outside = probe.spec.cpus.difference(&plan.shield.cpus);
                if !outside.is_empty() {
                    bail!(
                        "cannot measure setting {}: its shield is around CPU {}, and CPU {outside}, \
                         which is measured, lies outside",
                        setting.name,
                        plan.shield.cpus
                    );
                }
            }
        }
        Ok(())
    }

    fn wish(&self, shield: &Shielding, measured: &CpuSet) -> Wish {
        match shield {
            Shielding::Chain(path) => Wish { chain: Some(self.dir.join(path)), ..Wish::default() },
            _ => Wish { cpus: Some(measured.clone()), ..Wish::default() },
        }
    }

    fn all(
        &mut self,
        tasks: &[Task<'_>],
        cells: &mut [CellState],
        pace: &mut Pace,
    ) -> anyhow::Result<()> {
        let whole: u64 = left(tasks, cells).map(|task| pace.of(task)).sum();
        let bar = bar(whole);
        let count = tasks.len();
        for (at, task) in tasks.iter().enumerate() {
            if cells[at].state != Standing::Left {
                continue;
            }
            if face::raised(self.stop) {
                break;
            }
            let name = format!("{}, {}, {}", task.cell.probe, task.cell.stress, task.cell.setting);
            bar.set_message(format!("run {} of {count}: {name}", at + 1));
            let began = Instant::now();
            let start = bar.position();
            let measured = self.cell(task, &mut |elapsed| bar.set_position(start + elapsed));
            let said = match measured {
                Ok(None) => break,
                // Kept before it counts as done.
                Ok(Some(run)) => {
                    self.store.save_run(&run).context(
                        "cannot keep the run; the campaign ends here, and goes on with the same command",
                    )?;
                    if run.cut_short() {
                        break;
                    }
                    pace.took(task, began);
                    let line = quiet_store::line(&run);
                    let shown =
                        |time: Option<Nanos>| time.map_or("-".into(), |t: Nanos| t.to_string());
                    let said = format!("p99 {}, max {}", shown(line.p99), shown(line.max));
                    cells[at].state = Standing::Done;
                    cells[at].run = Some(line);
                    said
                }
                Err(_) if face::raised(self.stop) => break,
                Err(error) => {
                    cells[at].state = Standing::Failed;
                    cells[at].why = format!("{error:#}");
                    format!("failed: {error:#}")
                }
            };
            bar.set_position(start + pace.of(task));
            let rest: u64 = left(tasks, cells).map(|task| pace.of(task)).sum();
            let rest = quiet_types::words::span(Nanos(rest));
            bar.suspend(|| {
                face::say(&format!("run {} of {count}: {name}: {said}; about {rest} left", at + 1));
            });
        }
        bar.finish_and_clear();
        Ok(())
    }

    /// The run of one cell; `None` where it was interrupted before anything was measured.
    fn cell(
        &mut self,
        task: &Task<'_>,
        progress: &mut dyn FnMut(u64),
    ) -> anyhow::Result<Option<Run>> {
        let mut request = Request::new(task.spec());
        request.stress.clone_from(&task.stress.run);
        request.explain = task.probe.explain;
        request.label = task.setting.name.clone();
        let mut stress_cpus = self.online.clone();
        let wish = self.wish(&task.setting.shield, &request.spec.cpus);
        let mut ward = Ward::new(&System, wish, &self.args.state, self.stop);
        if task.setting.shield == Shielding::None {
            request.entry = door(&request.spec.cpus, &self.args.state)?;
        } else {
            self.lock.note(&Lock::going_up(&self.args.state)?)?;
            let applied = match ward.raise() {
                Ok(applied) => applied,
                Err(error) => {
                    self.lock.note("")?;
                    return Err(error.context("cannot put the shield up"));
                }
            };
            self.lock.note(&Lock::is_up(&self.args.state)?)?;
            request.entry.clone_from(&applied.shield.entry);
            stress_cpus = applied.shield.housekeeping;
        }
        request.stress_cpus = task.setting.stress_cpus.clone().unwrap_or(stress_cpus);
        if task.stress.run.is_empty() {
            request.stress_cpus = CpuSet::new();
        }
        let measured = quiet_probe::watched(&request, self.stop, &mut |now| {
            progress(now.elapsed.min(now.length).0);
        });
        // Put back first; what failed is told after.
        ward.lower().context("cannot take the shield down; run `quietcores revert`")?;
        self.lock.note("")?;
        let (mut run, seen) = measured?;
        super::measure::judge(&mut run);
        if request.explain {
            run.explained = Some(Box::new(super::explain::explained(&run, &seen)));
        }
        // One that was cut short is kept, but fills no cell.
        run.cell = (!run.cut_short()).then(|| task.cell.clone());
        if run.cut_short() && run.threads.iter().all(|thread| thread.obtained == 0) {
            return Ok(None);
        }
        Ok(Some(run))
    }
}

/// Over the time that all of it takes; drawn on a terminal only.
fn bar(whole: u64) -> ProgressBar {
    let bar = ProgressBar::with_draw_target(Some(whole), ProgressDrawTarget::stderr_with_hz(5));
    let style = ProgressStyle::with_template("{bar:30} {percent:>3} %  {wide_msg}");
    bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
    bar
}
