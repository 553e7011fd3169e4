//! `predict`

use crate::{face, keep};
use anyhow::bail;
use quiet_judge::Ask;
use quiet_types::{Frames, Nanos, SampleRate, prediction::ClaimVerdict};
use std::{path::PathBuf, process::ExitCode};

/// Say from runs how late it can get, how often, and which buffer stands it
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  quietcores predict last
  quietcores predict last --claim 500us/1h            was it measured long enough to say so?
  quietcores predict label=stage --frames 32,64,128 --rate 48000 --load 0.6

Percentiles and levels come with 95 % intervals. Where no tail fits, that is said and nothing is told beyond
what was seen. Ends with 1 when a claim does not hold or was measured too short.")]
pub struct Args {
    /// Conditions as for `runs`, or ids, beginnings with *, and files, joined by commas; all readings together
    #[arg(value_name = "RUNS")]
    runs: String,
    /// No more than one reading above LIMIT in TIME: 500us/1h
    #[arg(long, value_name = "LIMIT/TIME", value_parser = claim)]
    claim: Vec<(Nanos, Nanos)>,
    /// Buffers to look at, in frames
    #[arg(long, value_name = "N,...", value_delimiter = ',', default_values_t = [16u32, 32, 64, 128, 256, 512, 1024])]
    frames: Vec<u32>,
    /// Frames a second
    #[arg(long, value_name = "HZ", default_value_t = 48_000)]
    rate: u32,
    /// Part of each period that the work takes, 0 to 0.99: what is left works delays off
    #[arg(long, value_name = "PART", default_value_t = 0.5)]
    load: f64,
    /// Keep runs here [default: $XDG_DATA_HOME/quietcores]
    #[arg(long, value_name = "DIR")]
    store: Option<PathBuf>,
    /// Print the result as JSON on standard output
    #[arg(long)]
    json: bool,
}

fn claim(text: &str) -> Result<(Nanos, Nanos), String> {
    let (limit, every) = text.split_once('/').ok_or("write LIMIT/TIME, as 500us/1h")?;
    let time = |text: &str| text.parse::<Nanos>().map_err(|error| error.to_string());
    let (limit, every) = (time(limit)?, time(every)?);
    if every == Nanos::ZERO {
        return Err("once in no time is always".to_owned());
    }
    Ok((limit, every))
}

pub fn run(args: Args) -> anyhow::Result<ExitCode> {
    if !(0.0..=0.99).contains(&args.load) {
        bail!(
            "cannot predict: a load of {} leaves nothing to work delays off; give 0 to 0.99",
            args.load
        );
    }
    if args.rate == 0 || args.frames.contains(&0) {
        bail!("cannot predict: a buffer has frames, and a rate");
    }
    let runs = keep::runs(&keep::store(args.store.as_deref())?, &args.runs)?;
    if runs.is_empty() {
        bail!(
            "cannot predict: no run is meant by `{}`; see them with: quietcores runs --all",
            args.runs
        );
    }
    let ask = Ask {
        claims: args.claim,
        frames: args.frames.into_iter().map(Frames).collect(),
        rate: SampleRate(args.rate),
        load: args.load,
    };
    let it = quiet_judge::predict(&runs, &ask);
    if args.json {
        face::print_json(&it)?;
    } else {
        face::print(&quiet_report::prediction_text(&it, face::width()))?;
    }
    let open = it.claims.iter().any(|claim| claim.verdict != ClaimVerdict::Holds);
    Ok(if open { ExitCode::from(face::FINDINGS) } else { ExitCode::SUCCESS })
}
