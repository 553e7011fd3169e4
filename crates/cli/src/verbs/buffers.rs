//! `measure buffers`: periods x rings x stresses x modes, shared and shielded.

use super::{
    plan::Wish,
    play::{HostName, ModeName, On},
    ward::Ward,
};
use crate::{face, keep};
use anyhow::bail;
use indicatif::ProgressBar;
use quiet_engine::{
    Setup, Wait,
    trial::{Calibrated, Wanted, calibrate, trial},
};
use quiet_linux::{Root, System};
use quiet_probe::Stress;
use quiet_types::{
    CpuId, CpuSet, Finding, Nanos, Severity,
    buffers::{Buffers, Cell, SCHEMA, Setting},
};
use std::{path::PathBuf, process::ExitCode, sync::atomic::AtomicBool, time::Duration};

#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  quietcores measure buffers --device hw:USB --rate 96000 --cpu 3
  quietcores measure buffers --host null --periods 16,32,64 --counts 2,3 --stress none,kernel --cpu 3
  quietcores measure buffers --host null --rate 96000 --periods 16 --counts 2 --modes sleep,never-sleep \\
      --shield --cpu 3 --for 30s --rounds 5

Each of the stresses runs by itself; join two that run together by `+`: --stress none,kernel+hdd.
Exit status: 0 measured and a buffer held for every mode and setting, 1 measured, 2 an error.")]
pub struct Args {
    #[command(flatten)]
    on: On,
    /// Frames a period to try
    #[arg(long, value_name = "N,...", value_delimiter = ',', default_value = "16,32,64,128")]
    periods: Vec<u32>,
    /// Periods in the ring to try
    #[arg(long, value_name = "N,...", value_delimiter = ',', default_value = "2,3")]
    counts: Vec<u32>,
    /// Stress suites and stressors to try, one after the other; `none` for none
    #[arg(long, value_name = "NAME,...", value_delimiter = ',', default_value = "none,kernel")]
    stress: Vec<String>,
    /// CPUs that the stress may use in shared cells [default: all]
    #[arg(long, value_name = "LIST")]
    stress_cpus: Option<CpuSet>,
    /// How to wait for the card, each in turn [default: --mode, or as `play` chooses]
    #[arg(long, value_enum, value_name = "MODE,...", value_delimiter = ',')]
    modes: Vec<ModeName>,
    /// Try each cell shared, and with a shield around the CPU of the playing thread
    #[arg(long)]
    shield: bool,
    /// Share of a period that DSP work takes, such as 70% or 0.7
    #[arg(long, value_name = "SHARE", default_value = "50%", value_parser = share)]
    dsp_load: f64,
    /// How long to play in each cell
    #[arg(long = "for", value_name = "LENGTH", default_value = "5s")]
    length: Nanos,
    /// How often to try each cell, in turn with all others
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1000))]
    rounds: u32,
    /// Free words, kept with it
    #[arg(long, value_name = "TEXT", default_value = "")]
    label: String,
    /// Write an HTML page here too
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    /// Where it is kept [default: ~/.local/share/quietcores]
    #[arg(long, value_name = "DIR")]
    store: Option<PathBuf>,
    /// Print it as JSON on standard output
    #[arg(long)]
    json: bool,
}

fn share(text: &str) -> Result<f64, String> {
    let wrong = || "a share of the period is 0% to 95%, or 0 to 0.95".to_owned();
    let value = match text.strip_suffix('%') {
        Some(percent) => percent.trim().parse::<f64>().map(|p| p / 100.0),
        None => text.parse::<f64>(),
    };
    value.ok().filter(|share| (0.0..=0.95).contains(share)).ok_or_else(wrong)
}

/// The cells of one stress, in one setting.
struct Campaign<'a> {
    args: &'a Args,
    setup: Setup,
    modes: Vec<Option<Wait>>,
    sizes: Vec<(u32, u32)>,
    calibrated: Calibrated,
    cells: Vec<Cell>,
    device: String,
    findings: Vec<Finding>,
    stop: &'a AtomicBool,
    bar: ProgressBar,
}

pub fn run(args: Args) -> anyhow::Result<ExitCode> {
    check(&args)?;
    let html = args.html.as_deref().map(keep::Target::page).transpose()?;
    let store = keep::ready(args.store.as_deref(), "buffers")?;
    let stop = face::interrupt()?;
    if args.shield && face::is_root() {
        super::apply::put_back_overdue(&args.on.state)?;
    }
    let mut setup = args.on.setup()?;
    let online: CpuSet = super::measure::online()?;
    let up = setup.wish.shield.is_some();
    if args.shield && up {
        bail!(
            "a shield is up already: leave out --shield to measure in it, or run `quietcores revert`"
        );
    }
    if args.shield && !face::is_root() {
        bail!("only root can put up a shield; leave out --shield, or run it as root");
    }
    let never = |mode: &Option<Wait>| *mode == Some(Wait::NeverSleep);
    let modes: Vec<Option<Wait>> = match args.modes.as_slice() {
        [] => vec![setup.wish.mode],
        some => some.iter().map(|mode| Some(mode.wait())).collect(),
    };
    if setup.wish.cpu.is_none() && (args.shield || modes.iter().any(never)) && !up {
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
    if args.shield && housekeeping.is_empty() {
        bail!("this machine has one CPU: there is nobody to leave the rest to");
    }
    let begun = keep::begin("buffers")?;
    let stress_cpus = args.stress_cpus.clone().unwrap_or_else(|| online.clone());
    let mut sizes: Vec<(u32, u32)> =
        args.periods.iter().flat_map(|p| args.counts.iter().map(move |n| (*p, p * n))).collect();
    sizes.sort_by_key(|(period, buffer)| (*buffer, *period));
    sizes.dedup();
    let settings: Vec<Setting> = match (up, args.shield) {
        (true, _) => vec![Setting::Shielded],
        (false, true) => vec![Setting::Shared, Setting::Shielded],
        (false, false) => vec![Setting::Shared],
    };
    let all = sizes.len() * modes.len() * settings.len() * args.stress.len() * args.rounds as usize;
    let wish = Wish {
        cpus: setup.wish.cpu.map(|cpu| [cpu].into_iter().collect()),
        never_sleep: modes.iter().any(never),
        ..Wish::default()
    };
    let mut campaign = Campaign {
        calibrated: calibrate(quiet_engine::Ticks::calibrated(&Root::system()?)),
        setup,
        modes,
        sizes,
        cells: Vec::new(),
        device: String::new(),
        findings: Vec::new(),
        stop: &stop,
        bar: face::bar(all as u64 * args.length.0 / 1_000_000),
        args: &args,
    };
    let mut ward = Ward::new(&System, wish, &args.on.state, &stop);
    let mut restored = None;
    'rounds: for _ in 0..args.rounds {
        for setting in &settings {
            let mut cpus = &stress_cpus;
            if *setting == Setting::Shielded {
                cpus = &housekeeping;
                if args.shield {
                    match ward.raise() {
                        Ok(applied) => campaign.setup.wish.shield = Some(applied.shield),
                        Err(_) if face::raised(&stop) => break 'rounds,
                        Err(error) => return Err(error.context("cannot put the shield up")),
                    }
                }
            }
            let done = campaign.setting(*setting, cpus);
            if args.shield && *setting == Setting::Shielded {
                campaign.setup.wish.shield = None;
                restored = Some(restored.unwrap_or(true) & ward.lower()?);
            }
            done?;
            if face::raised(&stop) {
                break 'rounds;
            }
        }
    }
    campaign.bar.finish_and_clear();
    let Campaign { mut cells, device, findings, setup, .. } = campaign;
    cells.retain(|cell| !cell.trials.is_empty() || !cell.refused.is_empty());
    if cells.is_empty() {
        bail!("interrupted before anything was measured");
    }
    if let [first, ..] = cells.as_slice()
        && cells.iter().all(|cell| cell.trials.is_empty())
    {
        bail!("no buffer could be tried, so nothing is kept: {}", first.refused);
    }
    let rate = args.on.rate;
    let mut buffers = Buffers {
        head: begun.head(SCHEMA, &args.label, face::raised(&stop)),
        device,
        rate,
        load: args.dsp_load,
        cpu: setup.wish.cpu.or(playing.first()).map(|CpuId(cpu)| cpu),
        stress_cpus,
        housekeeping,
        least: quiet_judge::least_safe(&cells, rate),
        cells,
        restored,
        findings,
    };
    buffers.findings.extend(quiet_judge::judge_buffers(&buffers));
    let mut losses = keep::Losses::default();
    let kept = losses.of("the table", store.save_other("buffers", &buffers.head.id, &buffers));
    if let Some(target) = &html {
        losses.of("the page", target.write(&quiet_report::buffers_page(&buffers)));
    }
    if args.json {
        face::print_json(&buffers)?;
    } else {
        face::print(&quiet_report::buffers_text(&buffers, face::width()))?;
    }
    if let Some(path) = kept {
        face::say(&format!("kept as {}", path.display()));
    }
    let holds = buffers.least.iter().all(|least| least.safe.is_some());
    let problem = buffers.findings.iter().any(|finding| finding.severity == Severity::Problem);
    let good = holds && !problem;
    Ok(losses.end(if good { ExitCode::SUCCESS } else { ExitCode::from(face::FINDINGS) }))
}

fn check(args: &Args) -> anyhow::Result<()> {
    match args.on.host {
        HostName::Null => {}
        #[cfg(feature = "audio")]
        HostName::Alsa => {}
        _ => bail!(
            "periods and rings are those of a card: measure --host alsa or --host null (a server has \
             its own, and a file none)"
        ),
    }
    if args.on.buffer.is_some() {
        bail!("the rings are --periods times --counts: leave out --buffer");
    }
    let (shortest, longest) = (Nanos::from_millis(10), Nanos::from_secs(24 * 3600));
    if args.length < shortest || args.length > longest {
        bail!("a cell is played for {}; it can be 10ms to 24h, such as --for 5s", args.length);
    }
    if args.periods.iter().any(|n| !(1..=65_536).contains(n))
        || args.counts.iter().any(|n| !(2..=64).contains(n))
    {
        bail!("a period is 1 to 65536 frames, and a ring 2 to 64 periods");
    }
    if args.stress.iter().any(String::is_empty) {
        bail!("a stress has a name, such as --stress none,kernel");
    }
    Ok(())
}

impl Campaign<'_> {
    /// Every stress in one setting, each with all sizes and modes.
    fn setting(&mut self, setting: Setting, cpus: &CpuSet) -> anyhow::Result<()> {
        for name in &self.args.stress {
            let parts: Vec<String> =
                name.split('+').filter(|p| *p != "none").map(str::to_owned).collect();
            let stress = match parts.is_empty() {
                true => None,
                false => Some(Stress::start(&parts, cpus)?),
            };
            let done = self.sizes(setting, name);
            // Ended by hand: what goes wrong with it is to be told.
            if let Some(stress) = stress {
                stress.stop()?;
            }
            done?;
            if face::raised(self.stop) {
                break;
            }
        }
        Ok(())
    }

    fn sizes(&mut self, setting: Setting, stress: &str) -> anyhow::Result<()> {
        for (period, buffer) in self.sizes.clone() {
            for mode in self.modes.clone() {
                if face::raised(self.stop) {
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
        setting: Setting,
        stress: &str,
    ) -> anyhow::Result<()> {
        let mut setup = Setup { period, buffer, ..self.setup.clone() };
        setup.wish.mode = mode;
        let length = Duration::from_nanos(self.args.length.0);
        let wanted = Wanted { load: self.args.dsp_load, calibrated: Some(self.calibrated), length };
        let start = self.bar.position();
        self.bar.set_message(format!("{period} x {}, {setting}, {stress}", buffer / period));
        let bar = &self.bar;
        let tried = trial(&setup, wanted, self.stop, &mut |now| {
            bar.set_position(start + now.min(length).as_millis() as u64);
        });
        self.bar.set_position(start + length.as_millis() as u64);
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
                let sizes = (tried.sizes.period, tried.sizes.buffer);
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
        let same = |cell: &&mut Cell| {
            (cell.period, cell.buffer) == sizes
                && (cell.mode.as_str(), cell.setting, cell.stress.as_str())
                    == (name.as_str(), setting, stress)
        };
        match self.cells.iter_mut().find(same) {
            Some(cell) => cell.trials.extend(one),
            None => self.cells.push(Cell {
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
