//! `bench`

use super::strip::{self, Parts};
use crate::face;
use anyhow::bail;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use quiet_engine::bench::{self, BenchSpec};
use quiet_types::{Frames, Nanos, SampleRate, bench::Bench};
use std::{fmt::Write, path::PathBuf, process::ExitCode};

/// Measure what a strip costs on this machine: each stage, the worst block, the smallest period
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  quietcores bench clean.toml --rate 48000 --block 64
  quietcores bench --amp amp.nam --ir cab.wav --block 16 --json
  taskset -c 1 quietcores bench clean.toml                     on one CPU

Times are those of a block at its best over many passes, so that the strip is measured and not the
machine; `longest` is the longest of all, with what the machine put into it. Exit status 1: no
period of 1024 frames or less is long enough.")]
pub struct Args {
    /// The strip file
    #[arg(required_unless_present_any = ["amp", "ir"], conflicts_with_all = ["amp", "ir"])]
    strip: Option<PathBuf>,
    #[command(flatten)]
    parts: Parts,
    /// Frames a second
    #[arg(long, value_name = "HZ", default_value_t = 48_000,
          value_parser = clap::value_parser!(u32).range(1_000..=768_000))]
    rate: u32,
    /// Frames a block
    #[arg(long, value_name = "FRAMES", default_value_t = 64,
          value_parser = clap::value_parser!(u32).range(1..=8192))]
    block: u32,
    /// Channels that come in [default: those of the strip, else 1]
    #[arg(long, value_name = "N")]
    channels: Option<usize>,
    /// How long to measure
    #[arg(long = "for", value_name = "TIME", default_value = "3s")]
    length: Nanos,
    /// The share of a period that the worst block may use
    #[arg(long, value_name = "SHARE", default_value_t = 0.7)]
    margin: f64,
    /// Print the result as JSON
    #[arg(long)]
    json: bool,
}

pub fn run(args: Args) -> anyhow::Result<ExitCode> {
    if !(0.01..=1.0).contains(&args.margin) {
        bail!("--margin is a share of the period, 0.01 to 1, not {}", args.margin);
    }
    let (strip, mut files) = match &args.strip {
        Some(path) => strip::read(path)?,
        None => args.parts.strip()?,
    };
    let wanted = BenchSpec {
        rate: SampleRate(args.rate),
        block: Frames(args.block),
        channels: args.channels.or(strip.channels()).unwrap_or(1),
        length: args.length,
        margin: args.margin,
    };
    let bar = ProgressBar::with_draw_target(Some(1000), ProgressDrawTarget::stderr_with_hz(10));
    let style = ProgressStyle::with_template("{bar:20} {eta_precise} left");
    bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
    let bench = bench::bench(&strip, &mut files, &wanted, &mut |done| {
        bar.set_position((done * 1000.0) as u64);
    });
    bar.finish_and_clear();
    let bench = bench?;
    if args.json {
        face::print_json(&bench)?;
    } else {
        face::print(&text(&bench))?;
    }
    Ok(match bench.smallest {
        Some(_) => ExitCode::SUCCESS,
        None => ExitCode::from(face::FINDINGS),
    })
}

fn text(bench: &Bench) -> String {
    let mut text = String::new();
    let whole = &bench.whole;
    let _ = writeln!(
        text,
        "blocks of {} frames at {} Hz: a period of {}; {} in, {} out, latency {} frames, {}",
        bench.block,
        bench.rate,
        bench.period,
        bench.channels[0],
        bench.channels[1],
        bench.latency,
        bench.simd
    );
    let _ = writeln!(
        text,
        "DSP load {:.1} %, worst block {:.1} %   mean {}, worst {}, longest seen {}, from a cold cache {}",
        whole.load, whole.worst_load, whole.mean, whole.worst, whole.longest, bench.cold
    );
    match &bench.smallest {
        Some(carried) => {
            let _ = writeln!(
                text,
                "smallest period here: {} frames, {} (worst block {}, at most {:.0} % of it)",
                carried.frames,
                carried.length,
                carried.worst,
                100.0 * bench.margin
            );
        }
        None => text.push_str("smallest period here: none up to 1024 frames\n"),
    }
    let clock =
        bench.clock_mhz.map_or("not told".to_owned(), |mhz| format!("{mhz:.0} MHz at most"));
    let _ = writeln!(
        text,
        "multiply-adds {:.1} thousand million a second at most; clock {clock}, {:.0} % of it kept to the end\n",
        bench.fma_peak,
        100.0 * bench.clock_kept
    );
    let _ = writeln!(text, "{:>10}  {:>10}  {:>8}  stage", "ns/frame", "worst", "of peak");
    for stage in &bench.stages {
        let share = stage.of_peak.map_or("-".to_owned(), |share| format!("{share:.0} %"));
        let name = if stage.name == stage.kind {
            stage.name.clone()
        } else {
            format!("{} ({})", stage.name, stage.kind)
        };
        let _ = writeln!(
            text,
            "{:>10.1}  {:>10}  {share:>8}  {name}",
            stage.ns_per_frame,
            stage.worst.to_string()
        );
    }
    let _ = writeln!(
        text,
        "{:>10.1}  {:>10}  {:>8}  all",
        whole.ns_per_frame,
        whole.worst.to_string(),
        ""
    );
    for finding in &bench.findings {
        let _ = write!(text, "\n{}: {}", face::severity(finding.severity), finding.title);
        if !finding.remedy.is_empty() {
            let _ = write!(text, "; {}", finding.remedy);
        }
        text.push('\n');
    }
    text
}
