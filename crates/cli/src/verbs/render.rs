//! `render`

use super::strip::{self, Parts};
use crate::face;
use anyhow::bail;
use clap::ValueEnum;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use quiet_engine::render::{self, Job, Order, RenderProgress, WavFormat};
use quiet_types::{
    Frames, Nanos,
    render::{FileOutcome, Rendering, SCHEMA},
};
use std::{
    fmt::Write,
    path::{Path, PathBuf},
    process::ExitCode,
    sync::atomic::Ordering,
    time::{Duration, Instant},
};

/// Play files through a strip, faster than real time
#[derive(clap::Args)]
#[command(
    override_usage = "quietcores render [OPTIONS] IN... OUT STRIP\n       \
                      quietcores render [OPTIONS] IN... OUT --amp FILE [--ir FILE]",
    after_help = "\
Examples:
  quietcores render dry.wav wet.wav --amp amp.nam --ir cab.wav
  quietcores render dry.wav wet.wav clean.toml --format i24
  quietcores render takes/*.flac out/ clean.toml --skip       many files, on all CPUs
  quietcores render song.wav out.wav amp.toml --rate 48000    a strip at a rate of its own

WAV and FLAC in, WAV out. A strip file (see docs/strip.md):
  [[stage]]
  kind = \"amp\"
  file = \"amp.nam\"

  [[stage]]
  kind = \"ir\"
  file = \"cab.wav\"

The strip's latency is taken out, and what still sounds at the end is written, too.
Exit status 1: a file failed."
)]
pub struct Args {
    /// IN..., OUT and STRIP; with several INs, OUT is a folder
    #[arg(required = true, value_name = "PATH")]
    paths: Vec<PathBuf>,
    #[command(flatten)]
    parts: Parts,
    /// Samples that are written
    #[arg(long, value_enum, default_value_t = Samples::F32)]
    format: Samples,
    /// Run the strip at this rate: files of another are converted, and back
    #[arg(long, value_name = "HZ", value_parser = clap::value_parser!(u32).range(1_000..=768_000))]
    rate: Option<u32>,
    /// Channels of the input that are used, counted from 0 [default: all]
    #[arg(long, value_name = "N,...", value_delimiter = ',')]
    channels: Vec<usize>,
    /// How long to go on after the input has ended [default: until it is silent]
    #[arg(long, value_name = "TIME")]
    tail: Option<Nanos>,
    /// Frames of a block; changes nothing but the speed
    #[arg(long, value_name = "FRAMES", default_value_t = 512,
          value_parser = clap::value_parser!(u32).range(1..=65_536))]
    block: u32,
    /// Write over files that are there
    #[arg(long, conflicts_with = "skip")]
    force: bool,
    /// Pass over files that are there: an interrupted call goes on where it was
    #[arg(long)]
    skip: bool,
    /// Files at once [default: all CPUs]
    #[arg(long, value_name = "N")]
    jobs: Option<usize>,
    /// CPUs for the strip of a file: with 2 a second one plays a part of it; the same bits
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u8).range(1..=2))]
    cores: u8,
    /// Print the result as JSON
    #[arg(long)]
    json: bool,
}

#[derive(Clone, Copy, ValueEnum)]
enum Samples {
    I16,
    I24,
    I32,
    F32,
}

pub fn run(args: Args) -> anyhow::Result<ExitCode> {
    let mut paths = args.paths.clone();
    let (strip, files) = match (args.parts.given(), paths.len()) {
        (true, 2..) => args.parts.strip()?,
        (false, 3..) => {
            let path = paths.pop().unwrap_or_default();
            strip::read(&path)?
        }
        (true, _) => bail!("render needs IN and OUT beside --amp and --ir"),
        (false, _) => bail!("render needs IN, OUT and STRIP (or --amp, --ir in place of STRIP)"),
    };
    let out = paths.pop().unwrap_or_default();
    let jobs = jobs(&paths, &out)?;
    let order = Order {
        strip,
        files,
        format: match args.format {
            Samples::I16 => WavFormat::Whole(16),
            Samples::I24 => WavFormat::Whole(24),
            Samples::I32 => WavFormat::Whole(32),
            Samples::F32 => WavFormat::Float,
        },
        rate: args.rate,
        channels: (!args.channels.is_empty()).then_some(args.channels),
        tail: args.tail.map(Nanos::as_secs_f64),
        block: Frames(args.block),
        force: args.force,
        skip: args.skip,
        threads: args.jobs.unwrap_or_else(|| {
            std::thread::available_parallelism().map_or(1, std::num::NonZero::get)
        }),
        halved: args.cores == 2,
    };
    let progress = RenderProgress::default();
    let stop = face::interrupt()?;
    let begun = Instant::now();
    let mut files = Vec::new();
    std::thread::scope(|scope| {
        let work = scope.spawn(|| render::render(&jobs, &order, &progress));
        let bar = bar(jobs.len());
        while !work.is_finished() {
            if face::raised(&stop) {
                progress.stop.store(true, Ordering::Relaxed);
            }
            bar.set_length(progress.total.load(Ordering::Relaxed));
            bar.set_position(progress.frames.load(Ordering::Relaxed));
            bar.set_message(format!(
                "{} of {} files",
                progress.files.load(Ordering::Relaxed),
                jobs.len()
            ));
            std::thread::sleep(Duration::from_millis(50));
        }
        bar.finish_and_clear();
        match work.join() {
            Ok(done) => files = done,
            Err(fault) => std::panic::resume_unwind(fault),
        }
    });
    let seconds = begun.elapsed().as_secs_f64();
    let rendering = Rendering { schema: SCHEMA.to_owned(), files, seconds };
    if args.json {
        face::print_json(&rendering)?;
    } else {
        face::print(&text(&rendering))?;
    }
    let failed: Vec<_> =
        rendering.files.iter().filter(|file| file.outcome == FileOutcome::Failed).collect();
    match failed.as_slice() {
        [] => Ok(ExitCode::SUCCESS),
        // One file alone: its error is the call's.
        [only] if rendering.files.len() == 1 && !args.json => {
            bail!("{}", only.error.as_deref().unwrap_or("the file failed"))
        }
        _ if failed.len() == rendering.files.len() => Ok(ExitCode::from(2)),
        _ => Ok(ExitCode::from(face::FINDINGS)),
    }
}

fn jobs(from: &[PathBuf], out: &Path) -> anyhow::Result<Vec<Job>> {
    let folder = out.is_dir();
    if from.len() > 1 && !folder {
        let shown = quiet_types::printable(&out.display().to_string(), 300);
        bail!("{shown} is not a folder, and there are {} files to render into it", from.len());
    }
    let mut jobs: Vec<Job> = Vec::new();
    for from in from {
        let to = match folder {
            true => out.join(from.file_stem().unwrap_or_default()).with_added_extension("wav"),
            false => out.to_owned(),
        };
        if let Some(other) = jobs.iter().find(|job| job.to == to) {
            bail!(
                "{} and {} would both become {}: render one of them elsewhere",
                other.from.display(),
                from.display(),
                to.display()
            );
        }
        let same = |a: &Path, b: &Path| {
            a.canonicalize().ok().is_some_and(|a| b.canonicalize().is_ok_and(|b| a == b))
        };
        if same(from, &to) {
            bail!("{} would be written over itself: name another OUT", from.display());
        }
        jobs.push(Job { from: from.clone(), to });
    }
    Ok(jobs)
}

fn bar(files: usize) -> ProgressBar {
    let bar = ProgressBar::with_draw_target(Some(1), ProgressDrawTarget::stderr_with_hz(10));
    let template = if files > 1 {
        "{bar:20} {eta_precise} left  {wide_msg}"
    } else {
        "{bar:20} {eta_precise} left"
    };
    let style = ProgressStyle::with_template(template);
    bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
    bar
}

fn text(rendering: &Rendering) -> String {
    let mut text = String::new();
    for file in &rendering.files {
        let line = match (file.outcome, &file.sound) {
            (FileOutcome::Done, Some(sound)) => {
                let peak =
                    sound.peak.map_or("silent".to_owned(), |db| format!("peak {db:.1} dBFS"));
                format!(
                    "{}  {:.1} s at {} Hz, {} channel{}, {peak}, latency {} taken out, tail {:.2} \
                     s; {:.2} s: {:.0} times real time",
                    file.to,
                    sound.frames as f64 / f64::from(sound.rate),
                    sound.rate,
                    sound.channels[1],
                    if sound.channels[1] == 1 { "" } else { "s" },
                    sound.latency,
                    sound.tail as f64 / f64::from(sound.rate),
                    sound.seconds,
                    sound.speed
                )
            }
            (FileOutcome::Skipped, _) => format!("{}  is there already: skipped", file.to),
            // A single file's error ends the program and is said there.
            _ if rendering.files.len() == 1 => continue,
            _ => format!("{}  failed: {}", file.from, file.error.as_deref().unwrap_or("")),
        };
        let _ = writeln!(text, "{line}");
        for finding in &file.findings {
            let _ = write!(text, "  {}: {}", face::severity(finding.severity), finding.title);
            if !finding.remedy.is_empty() {
                let _ = write!(text, "; {}", finding.remedy);
            }
            text.push('\n');
        }
    }
    text
}
