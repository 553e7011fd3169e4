//! `measure buffers`: periods x rings x stresses x modes, shared and shielded.

use crate::{
    Because, Error, ErrorKind, Observer, Result, ShieldWish, Ward, begin, is_root, online,
    put_back_overdue, raised,
};
use quiet_engine::{
    Setup, Wait,
    trial::{Calibrated, TrialSpec, calibrate, trial},
};
use quiet_linux::Root;
use quiet_probe::RunningStress;
use quiet_types::{
    CpuId, CpuSet, Finding, Frames, Nanos, SampleRate,
    buffers::{Buffers, Combination, CpuSetting, SCHEMA},
};
use std::{path::PathBuf, sync::atomic::AtomicBool, time::Duration};

/// What is to be tried: every period with every ring, stress, mode and setting.
#[derive(Clone, Debug)]
pub struct Grid {
    /// Frames a period, 1 to 65536.
    pub periods: Vec<u32>,
    /// Periods in the ring, 2 to 64.
    pub counts: Vec<u32>,
    /// Stress suites and stressors, one after the other; joined by `+` where they run together, `none` for none.
    pub stress: Vec<String>,
    /// CPUs that the stress may use in shared cells; all where `None`.
    pub stress_cpus: Option<CpuSet>,
    /// How to wait for the card, each in turn; that of the setup where empty.
    pub modes: Vec<Wait>,
    /// Each cell shared, and with a shield around the CPU of the playing thread.
    pub shield: bool,
    /// Share of a period that DSP work takes, 0 to 0.95.
    pub load: f64,
    /// How long each cell is played, 10 ms to 24 h.
    pub length: Nanos,
    /// How often each cell is tried, in turn with all others.
    pub rounds: u32,
    /// Free words, kept with it.
    pub label: String,
    /// The state directory.
    pub state: PathBuf,
}

/// A grid that is being played.
struct Played<'a> {
    grid: &'a Grid,
    setup: Setup,
    modes: Vec<Option<Wait>>,
    sizes: Vec<(u32, u32)>,
    calibrated: Calibrated,
    cells: Vec<Combination>,
    device: String,
    findings: Vec<Finding>,
    stop: &'a AtomicBool,
    observer: &'a dyn Observer,
    /// How much of the whole is done.
    done: Nanos,
}

impl Grid {
    /// Whether it makes sense.
    ///
    /// # Errors
    /// A sentence with what is possible.
    pub fn check(&self) -> Result<()> {
        let (shortest, longest) = (Nanos::from_millis(10), Nanos::from_secs(24 * 3600));
        if self.length < shortest || self.length > longest {
            return Err(Error::asked(format!(
                "a cell is played for {}; it can be 10ms to 24h, such as --for 5s",
                self.length
            )));
        }
        if self.periods.iter().any(|n| !(1..=65_536).contains(n))
            || self.counts.iter().any(|n| !(2..=64).contains(n))
        {
            return Err(Error::asked("a period is 1 to 65536 frames, and a ring 2 to 64 periods"));
        }
        if self.stress.iter().any(String::is_empty) {
            return Err(Error::asked("a stress has a name, such as --stress none,kernel"));
        }
        Ok(())
    }

    /// Sizes to try, the least ring first: frames a period, frames in the ring.
    fn sizes(&self) -> Vec<(u32, u32)> {
        let mut sizes: Vec<(u32, u32)> = self
            .periods
            .iter()
            .flat_map(|p| self.counts.iter().map(move |n| (*p, p * n)))
            .collect();
        sizes.sort_by_key(|(period, buffer)| (*buffer, *period));
        sizes.dedup();
        sizes
    }
}

/// Plays every cell of the grid on the host of `setup`, whose sizes and mode it sets; the machine is put back after every
/// shielded part.
///
/// # Errors
/// When the grid makes no sense, a shield that is asked for cannot be put up, a stress fails, no buffer could be tried, or
/// `stop` is raised before anything was measured.
pub fn buffers(
    grid: &Grid,
    mut setup: Setup,
    stop: &AtomicBool,
    observer: &dyn Observer,
) -> Result<Buffers> {
    grid.check()?;
    if grid.shield && is_root() {
        put_back_overdue(&grid.state, observer)?;
    }
    let online = online()?;
    let up = setup.wish.shield.is_some();
    may_shield(grid, up)?;
    let never = |mode: &Option<Wait>| *mode == Some(Wait::NeverSleep);
    let modes: Vec<Option<Wait>> = match grid.modes.as_slice() {
        [] => vec![setup.wish.mode],
        some => some.iter().copied().map(Some).collect(),
    };
    if setup.wish.cpu.is_none() && (grid.shield || modes.iter().any(never)) && !up {
        // CPU 0 does most of the kernel's own work: the last one is the likelier choice.
        setup.wish.cpu = online.iter().last();
    }
    let playing: CpuSet = match (&setup.wish.shield, setup.wish.cpu) {
        (Some(shield), None) => shield.cpus.clone(),
        (_, cpu) => cpu.into_iter().collect(),
    };
    let housekeeping = match &setup.wish.shield {
        Some(shield) => shield.housekeeping.clone(),
        None => online.difference(&playing),
    };
    if grid.shield && housekeeping.is_empty() {
        return Err(Error::asked("this machine has one CPU: there is nobody to leave the rest to"));
    }
    let begun = begin("buffers")?;
    let stress_cpus = grid.stress_cpus.clone().unwrap_or_else(|| online.clone());
    let sizes = grid.sizes();
    let settings: Vec<CpuSetting> = match (up, grid.shield) {
        (true, _) => vec![CpuSetting::Shielded],
        (false, true) => vec![CpuSetting::Shared, CpuSetting::Shielded],
        (false, false) => vec![CpuSetting::Shared],
    };
    let all = sizes.len() * modes.len() * settings.len() * grid.stress.len() * grid.rounds as usize;
    let wish = ShieldWish {
        cpus: setup.wish.cpu.map(|cpu| [cpu].into_iter().collect()),
        never_sleep: modes.iter().any(never),
        ..ShieldWish::default()
    };
    observer.begin(Nanos(all as u64 * grid.length.0));
    let mut played = Played {
        calibrated: calibrate(quiet_engine::Ticks::calibrated(&Root::system()?)),
        setup,
        modes,
        sizes,
        cells: Vec::new(),
        device: String::new(),
        findings: Vec::new(),
        stop,
        observer,
        grid,
        done: Nanos::ZERO,
    };
    let mut ward = Ward::new(wish, &grid.state, stop, observer);
    let restored = played.rounds(&mut ward, &settings, (&stress_cpus, &housekeeping))?;
    observer.end();
    let Played { mut cells, device, findings, setup, .. } = played;
    cells.retain(|cell| !cell.trials.is_empty() || !cell.refused.is_empty());
    if cells.is_empty() {
        return Err(Error::new(ErrorKind::Interrupted, "interrupted before anything was measured"));
    }
    if let [first, ..] = cells.as_slice()
        && cells.iter().all(|cell| cell.trials.is_empty())
    {
        let why = format!("no buffer could be tried, so nothing is kept: {}", first.refused);
        return Err(Error::new(ErrorKind::Measuring, why));
    }
    let SampleRate(rate) = setup.rate;
    let mut buffers = Buffers {
        head: begun.head(SCHEMA, &grid.label, raised(stop)),
        device,
        rate,
        load: grid.load,
        cpu: setup.wish.cpu.or(playing.first()).map(|CpuId(cpu)| cpu),
        stress_cpus,
        housekeeping,
        least: quiet_judge::least_safe(&cells, rate),
        cells,
        restored,
        findings,
    };
    buffers.findings.extend(quiet_judge::judge_buffers(&buffers));
    Ok(buffers)
}

/// Whether a shield may be put up, where one is asked for.
fn may_shield(grid: &Grid, up: bool) -> Result<()> {
    if grid.shield && up {
        return Err(Error::new(
            ErrorKind::Busy,
            "a shield is up already: leave out --shield to measure in it, or run `quietcores revert`",
        ));
    }
    if grid.shield && !is_root() {
        return Err(Error::asked(
            "only root can put up a shield; leave out --shield, or run it as root",
        ));
    }
    Ok(())
}

impl Played<'_> {
    /// Every round with each setting, until the end or until it is stopped; whether all that shields changed came back.
    fn rounds(
        &mut self,
        ward: &mut Ward<'_>,
        settings: &[CpuSetting],
        (stress_cpus, housekeeping): (&CpuSet, &CpuSet),
    ) -> Result<Option<bool>> {
        let mut restored = None;
        'rounds: for _ in 0..self.grid.rounds {
            for setting in settings {
                let mut cpus = stress_cpus;
                if *setting == CpuSetting::Shielded {
                    cpus = housekeeping;
                    if self.grid.shield {
                        match ward.raise() {
                            Ok(applied) => self.setup.wish.shield = Some(applied.shield),
                            Err(_) if raised(self.stop) => break 'rounds,
                            Err(error) => {
                                let doing = || "cannot put the shield up".into();
                                return Err(error).because(ErrorKind::Machine, doing);
                            }
                        }
                    }
                }
                let done = self.setting(*setting, cpus);
                if self.grid.shield && *setting == CpuSetting::Shielded {
                    self.setup.wish.shield = None;
                    restored = Some(restored.unwrap_or(true) & ward.lower()?);
                }
                done?;
                if raised(self.stop) {
                    break 'rounds;
                }
            }
        }
        Ok(restored)
    }

    /// Every stress in one setting, each with all sizes and modes.
    fn setting(&mut self, setting: CpuSetting, cpus: &CpuSet) -> Result<()> {
        for name in &self.grid.stress {
            let parts: Vec<String> =
                name.split('+').filter(|p| *p != "none").map(str::to_owned).collect();
            let stress = match parts.is_empty() {
                true => None,
                false => Some(RunningStress::start(&parts, cpus)?),
            };
            let done = self.sizes(setting, name);
            // Ended by hand: what goes wrong with it is to be told.
            if let Some(stress) = stress {
                stress.stop()?;
            }
            done?;
            if raised(self.stop) {
                break;
            }
        }
        Ok(())
    }

    fn sizes(&mut self, setting: CpuSetting, stress: &str) -> Result<()> {
        for (period, buffer) in self.sizes.clone() {
            for mode in self.modes.clone() {
                if raised(self.stop) {
                    return Ok(());
                }
                self.cell((period, buffer), mode, setting, stress)?;
            }
        }
        Ok(())
    }

    fn cell(
        &mut self,
        (period, buffer): (u32, u32),
        mode: Option<Wait>,
        setting: CpuSetting,
        stress: &str,
    ) -> Result<()> {
        let mut setup =
            Setup { period: Frames(period), buffer: Frames(buffer), ..self.setup.clone() };
        setup.wish.mode = mode;
        let length = Duration::from_nanos(self.grid.length.0);
        let wanted = TrialSpec { load: self.grid.load, calibrated: Some(self.calibrated), length };
        let (start, observer) = (self.done, self.observer);
        observer.doing(&format!("{period} x {}, {setting}, {stress}", buffer / period));
        let tried = trial(&setup, wanted, self.stop, &mut |now| {
            observer.at(Nanos(start.0 + now.min(length).as_nanos() as u64));
        });
        self.done = Nanos(start.0 + self.grid.length.0);
        observer.at(self.done);
        let (sizes, name, refused, one) = match tried {
            Ok(tried) => {
                self.device = tried.about;
                for finding in tried.placed.findings {
                    let known = self.findings.iter().any(|f| f.id == finding.id);
                    if !known && finding.id != "play.asleep" {
                        self.findings.push(finding);
                    }
                }
                let name = quiet_engine::mode_name(tried.placed.mode).to_owned();
                let sizes = (tried.sizes.period.0, tried.sizes.buffer.0);
                (sizes, name, String::new(), Some(tried.trial))
            }
            Err(error) => {
                let name = match mode {
                    Some(Wait::NeverSleep) => "never-sleep",
                    Some(Wait::Sleep) => "sleep",
                    None => "as chosen",
                };
                ((period, buffer), name.to_owned(), error.to_string(), None)
            }
        };
        let same = |cell: &&mut Combination| {
            (cell.period, cell.buffer) == sizes
                && (cell.mode.as_str(), cell.setting, cell.stress.as_str())
                    == (name.as_str(), setting, stress)
        };
        match self.cells.iter_mut().find(same) {
            Some(cell) => cell.trials.extend(one),
            None => self.cells.push(Combination {
                period: sizes.0,
                buffer: sizes.1,
                mode: name,
                setting,
                stress: stress.to_owned(),
                refused,
                trials: one.into_iter().collect(),
            }),
        }
        Ok(())
    }
}
