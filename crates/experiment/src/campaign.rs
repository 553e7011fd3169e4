//! `campaign`: a declared matrix of runs, measured until all of it is there.

use crate::{
    Because, Error, ErrorKind, Notice, Observer, Result, ShieldWish, Silent, Ward, begun, door,
    explained, is_root, judged, machine, make_way, online, plan, raised,
};
use quiet_linux::{Root, System, files};
use quiet_probe::{RunRequest, RunningStress};
use quiet_store::{Filter, Store, StoreOwner};
use quiet_types::{
    CpuSet, Nanos, Run,
    campaign::{Campaign, Campaigned, CellStanding, CellState, DueCell, Shielding, glob},
    history::Line,
    plan::ShieldStanding,
};
use rustix::fs::{FlockOperation, flock};
use std::{
    cell::Cell,
    collections::HashMap,
    fs::File,
    path::{Path, PathBuf},
    sync::atomic::AtomicBool,
    time::Instant,
};

/// Where a campaign works.
#[derive(Clone, Copy, Debug)]
pub struct Workplace<'a> {
    /// Paths in its file start here.
    pub dir: &'a Path,
    /// Where its runs are kept.
    pub store: &'a Store,
    /// The state directory.
    pub state: &'a Path,
}

/// Measures what is left of a campaign on this boot, and says how all of it stands, with all its runs.
///
/// Every run is kept as soon as it is made; one that is there is not made again.
///
/// # Errors
/// When another campaign is at work, a shield is up, a setting cannot be planned, or a run cannot be kept.
pub fn campaign(
    campaign: &Campaign,
    place: Workplace<'_>,
    stop: &AtomicBool,
    observer: &dyn Observer,
) -> Result<(Campaigned, Vec<Run>)> {
    let _lock = lock(place.store)?;
    // What is left of a campaign that was killed under its shield above all.
    make_way(place.state, observer)?;
    stand(campaign, place, Some(stop), observer)
}

/// How a campaign stands, with its runs; measures nothing.
///
/// # Errors
/// When the store cannot be read.
pub fn campaign_status(
    campaign: &Campaign,
    place: Workplace<'_>,
) -> Result<(Campaigned, Vec<Run>)> {
    stand(campaign, place, None, &Silent)
}

fn stand(
    campaign: &Campaign,
    place: Workplace<'_>,
    stop: Option<&AtomicBool>,
    observer: &dyn Observer,
) -> Result<(Campaigned, Vec<Run>)> {
    let store = place.store;
    let kernel = Root::system()?.read("/proc/sys/kernel/osrelease")?;
    let tasks = campaign.tasks(seed(store, &campaign.name)?);
    let mut cells = cells(&tasks, store, &campaign.name, kernel.trim())?;
    let mut pace = Pace::default();
    if let Some(stop) = stop {
        let online = online()?;
        let work = Work { place, stop, online, observer, done: Cell::new(0) };
        work.check(campaign, &cells)?;
        work.all(&tasks, &mut cells, &mut pace)?;
    }
    let needs = left(&tasks, &cells).map(|task| pace.of(task)).sum::<u64>();
    let runs = cells
        .iter()
        .filter_map(|cell| cell.run.as_ref())
        .map(|line| store.run(&line.id))
        .collect::<std::result::Result<Vec<Run>, _>>()?;
    Ok((quiet_judge::campaigned(&campaign.name, cells, &runs, Nanos(needs)), runs))
}

/// The longest campaign file, bytes: they are small.
pub const LARGEST_CAMPAIGN: u64 = 1 << 20;

/// The campaign in a file, and the directory that paths in it start from.
///
/// # Errors
/// When it cannot be read; where it makes no sense, with line and column.
pub fn read_campaign(path: &Path) -> Result<(Campaign, PathBuf)> {
    let shown = quiet_types::printable(&path.display().to_string(), 300);
    let text = files::read_text(path, LARGEST_CAMPAIGN)
        .because(ErrorKind::Asked, || format!("cannot read the campaign file {shown}"))?;
    let campaign = parse_campaign(&text, &shown)?;
    Ok((campaign, path.parent().unwrap_or(Path::new("")).to_owned()))
}

/// The campaign that a text declares, for the CPUs of this machine; `shown` is what the text is called.
///
/// # Errors
/// Where it makes no sense, with line and column.
pub fn parse_campaign(text: &str, shown: &str) -> Result<Campaign> {
    Ok(quiet_plan::campaign::parse(text, shown, Some(&online()?))?)
}

/// What the orders of this campaign are drawn from: what its runs say, so that it goes on as it began.
fn seed(store: &Store, name: &str) -> Result<u32> {
    for line in store.index()?.lines(&Filter::campaign(name), usize::MAX)? {
        if let Some(seed) = store.run(&line.id)?.cell.and_then(|cell| cell.lot) {
            return Ok(seed);
        }
    }
    begun::seed()
}

/// How each cell stands before anything is measured.
fn cells(tasks: &[DueCell<'_>], store: &Store, name: &str, kernel: &str) -> Result<Vec<CellState>> {
    let lines = store.index()?.lines(&Filter::campaign(name), usize::MAX)?;
    let mut done: HashMap<String, Line> =
        lines.into_iter().map(|line| (line.cell.clone(), line)).collect();
    let cells = tasks.iter().map(|task| {
        let run = done.remove(&task.cell.key);
        let other = task.setting.kernel.as_ref().filter(|wanted| !glob(wanted, kernel));
        let (state, why) = match (&run, other) {
            (Some(_), _) => (CellStanding::Done, String::new()),
            (None, Some(wanted)) => {
                (CellStanding::Waiting, format!("for a boot of kernel {wanted} (this is {kernel})"))
            }
            (None, None) if task.setting.shield != Shielding::None && !is_root() => {
                (CellStanding::Waiting, "for root, who alone can put up a shield".to_owned())
            }
            (None, None) => (CellStanding::Left, String::new()),
        };
        CellState { cell: task.cell.clone(), state, why, run }
    });
    Ok(cells.collect())
}

fn left<'a, 'c>(
    tasks: &'a [DueCell<'c>],
    cells: &'a [CellState],
) -> impl Iterator<Item = &'a DueCell<'c>> {
    let is_left = |state: CellStanding| matches!(state, CellStanding::Left | CellStanding::Failed);
    tasks.iter().zip(cells).filter(move |(_, cell)| is_left(cell.state)).map(|(task, _)| task)
}

/// How long a run takes beside its measuring: guessed at first, then what the last ones took.
#[derive(Default)]
struct Pace {
    beside: Option<f64>,
}

impl Pace {
    fn of(&self, task: &DueCell<'_>) -> u64 {
        let stress = if task.stress.run.is_empty() { 0.4e9 } else { 1.5e9 };
        let shield = if task.setting.shield == Shielding::None { 0.0 } else { 1.5e9 };
        let beside = self.beside.unwrap_or(stress + shield);
        task.probe.spec.length.0 + beside as u64
    }

    fn took(&mut self, task: &DueCell<'_>, began: Instant) {
        let beside = began.elapsed().as_nanos() as f64 - task.probe.spec.length.0 as f64;
        let so_far = self.beside.unwrap_or(beside);
        self.beside = Some((so_far * 0.9 + beside * 0.1).max(0.0));
    }
}

/// Only one campaign measures at a time in a store: for as long as this file is open.
fn lock(store: &Store) -> Result<File> {
    let path = store.dir().join("campaign.lock");
    let shown = path.display().to_string();
    let open = || {
        let mut options = std::fs::OpenOptions::new();
        options.read(true).write(true).create(true).truncate(false).open(&path)
    };
    let opened = match store.owner() {
        Some(owner) => StoreOwner::act(owner, open)?,
        None => open(),
    };
    let file = opened.because(ErrorKind::Keeping, || format!("cannot open {shown}"))?;
    match flock(&file, FlockOperation::NonBlockingLockExclusive) {
        Err(rustix::io::Errno::WOULDBLOCK) => {
            return Err(Error::new(
                ErrorKind::Busy,
                format!(
                    "another campaign is measuring (it holds {shown}); two would disturb each other. `--status` \
                     shows how far it is"
                ),
            ));
        }
        locked => locked
            .map_err(std::io::Error::from)
            .because(ErrorKind::Keeping, || format!("cannot lock {shown}"))?,
    }
    Ok(file)
}

/// What the measuring of cells needs.
struct Work<'a> {
    place: Workplace<'a>,
    stop: &'a AtomicBool,
    online: CpuSet,
    observer: &'a dyn Observer,
    /// Nanoseconds of the whole that are done.
    done: Cell<u64>,
}

impl Work<'_> {
    /// What can be known to fail, before the first minute is spent.
    fn check(&self, campaign: &Campaign, cells: &[CellState]) -> Result<()> {
        if !cells.iter().any(|cell| cell.state == CellStanding::Left) {
            return Ok(());
        }
        let root = Root::system()?;
        for probe in &campaign.probes {
            let request = RunRequest::new(probe.spec.clone());
            request
                .check(&root)
                .because(ErrorKind::Asked, || format!("cannot measure probe {}", probe.name))?;
        }
        for stress in campaign.stresses.iter().filter(|stress| !stress.run.is_empty()) {
            RunningStress::check(&stress.run)
                .because(ErrorKind::Asked, || format!("cannot run stress {}", stress.name))?;
        }
        let shielded =
            |setting: &&quiet_types::campaign::MachineSetting| setting.shield != Shielding::None;
        let mut settings = campaign.settings.iter().filter(shielded).peekable();
        if !is_root() || settings.peek().is_none() {
            return Ok(());
        }
        let standing = quiet_shield::status(&System, self.place.state)?.state;
        if matches!(standing, ShieldStanding::Up | ShieldStanding::Leftover) {
            return Err(Error::new(
                ErrorKind::Busy,
                "a shield is up, and this campaign puts up and takes down its own; run `quietcores revert` first",
            ));
        }
        let machine = machine(&root)?;
        for setting in settings {
            for probe in &campaign.probes {
                let plan = plan(&self.wish(&setting.shield, &probe.spec.cpus), &machine)
                    .because(ErrorKind::Asked, || {
                        format!("cannot plan setting {}", setting.name)
                    })?;
                let outside = probe.spec.cpus.difference(&plan.shield.cpus);
                if !outside.is_empty() {
                    return Err(Error::asked(format!(
                        "cannot measure setting {}: its shield is around CPU {}, and CPU {outside}, which is \
                         measured, lies outside",
                        setting.name, plan.shield.cpus
                    )));
                }
            }
        }
        Ok(())
    }

    fn wish(&self, shield: &Shielding, measured: &CpuSet) -> ShieldWish {
        match shield {
            Shielding::Chain(path) => {
                ShieldWish { chain: Some(self.place.dir.join(path)), ..ShieldWish::default() }
            }
            _ => ShieldWish { cpus: Some(measured.clone()), ..ShieldWish::default() },
        }
    }

    fn all(&self, tasks: &[DueCell<'_>], cells: &mut [CellState], pace: &mut Pace) -> Result<()> {
        let whole: u64 = left(tasks, cells).map(|task| pace.of(task)).sum();
        self.observer.begin(Nanos(whole));
        let count = tasks.len();
        for (at, task) in tasks.iter().enumerate() {
            if cells[at].state != CellStanding::Left {
                continue;
            }
            if raised(self.stop) {
                break;
            }
            let name = format!("{}, {}, {}", task.cell.probe, task.cell.stress, task.cell.setting);
            self.observer.doing(&format!("run {} of {count}: {name}", at + 1));
            let began = Instant::now();
            let start = self.done.get();
            let measured = self.cell(task, start);
            match measured {
                Ok(None) => break,
                // Kept before it counts as done.
                Ok(Some(run)) => {
                    self.place.store.save_run(&run).because(ErrorKind::Keeping, || {
                        "cannot keep the run; the campaign ends here, and goes on with the same command".into()
                    })?;
                    if run.cut_short() {
                        break;
                    }
                    pace.took(task, began);
                    cells[at].state = CellStanding::Done;
                    cells[at].run = Some(quiet_store::line(&run));
                }
                Err(_) if raised(self.stop) => break,
                Err(error) => {
                    cells[at].state = CellStanding::Failed;
                    cells[at].why = format!("{error:#}");
                }
            }
            self.done.set(start + pace.of(task));
            self.observer.at(Nanos(self.done.get()));
            let rest: u64 = left(tasks, cells).map(|task| pace.of(task)).sum();
            let run = cells[at].run.as_ref().ok_or(cells[at].why.as_str());
            let event =
                Notice::Cell { number: at + 1, of: count, name: &name, run, left: Nanos(rest) };
            self.observer.event(event);
        }
        self.observer.end();
        Ok(())
    }

    /// The run of one cell; `None` where it was interrupted before anything was measured.
    fn cell(&self, task: &DueCell<'_>, start: u64) -> Result<Option<Run>> {
        let mut request = RunRequest::new(task.spec());
        request.stress.clone_from(&task.stress.run);
        request.explain = task.probe.explain;
        request.label = task.setting.name.clone();
        let mut stress_cpus = self.online.clone();
        let wish = self.wish(&task.setting.shield, &request.spec.cpus);
        let mut ward = Ward::new(wish, self.place.state, self.stop, self.observer);
        if task.setting.shield == Shielding::None {
            request.entry = door(&request.spec.cpus, self.place.state)?;
        } else {
            let raised = ward.raise();
            let applied =
                raised.because(ErrorKind::Machine, || "cannot put the shield up".into())?;
            request.entry.clone_from(&applied.shield.entry);
            stress_cpus = applied.shield.housekeeping;
        }
        request.stress_cpus = task.setting.stress_cpus.clone().unwrap_or(stress_cpus);
        if task.stress.run.is_empty() {
            request.stress_cpus = CpuSet::new();
        }
        let measured = quiet_probe::watched(&request, self.stop, &mut |now| {
            self.observer.at(Nanos(start + now.elapsed.min(now.length).0));
        });
        // Put back first; what failed is told after.
        ward.lower().because(ErrorKind::Machine, || {
            "cannot take the shield down; run `quietcores revert`".into()
        })?;
        let (mut run, seen) = measured?;
        judged(&mut run);
        if request.explain {
            run.explained = Some(Box::new(explained(&run, &seen)));
        }
        // One that was cut short is kept, but fills no cell.
        run.cell = (!run.cut_short()).then(|| task.cell.clone());
        if run.cut_short() && run.threads.iter().all(|thread| thread.obtained == 0) {
            return Ok(None);
        }
        Ok(Some(run))
    }
}
