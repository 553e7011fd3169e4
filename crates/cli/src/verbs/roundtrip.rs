//! `measure roundtrip`

use super::play::{HostName, On};
use crate::{face, keep};
use anyhow::bail;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use quiet_engine::{
    AudioHost, mode_name,
    trip::{Cables, CycleProgress, MeasuredTrip, measure},
};
use quiet_judge::Way;
use quiet_types::{
    Nanos, Severity,
    machine::Policy,
    trip::{RoundTrip, SCHEMA, Spread},
};
use std::{path::PathBuf, process::ExitCode, time::Duration};

#[derive(clap::Args)]
#[command(after_help = "\
Lead an output back to an input with a cable first, and mute the loudspeakers.

Examples:
  quietcores measure roundtrip --device hw:USB --rate 96000 --period 16 --cycles 10
  quietcores measure roundtrip --host jack --own          a client's output to its own input
  quietcores measure roundtrip --host null --cable 137.25 the card that does not exist

Exit status: 0 measured, 1 measured with a problem, 2 nothing could be told.")]
pub struct Args {
    #[command(flatten)]
    on: On,
    /// How often to open the device and measure
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1000))]
    cycles: u32,
    /// The longest round trip to wait for, up to 64000 frames
    #[arg(long, value_name = "TIME", default_value = "250ms")]
    longest: Nanos,
    /// Peak of the sound that is played, dBFS
    #[arg(long, value_name = "DB", default_value_t = -12.0, allow_negative_numbers = true)]
    level: f64,
    /// Channel that plays, from 1
    #[arg(long = "out", value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=64))]
    out_channel: u16,
    /// Channel that captures, from 1
    #[arg(long = "in", value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=64))]
    in_channel: u16,
    /// Host jack: connect the client to itself, which takes one period exactly
    #[cfg(feature = "audio")]
    #[arg(long)]
    own: bool,
    /// Free words, kept with it
    #[arg(long, value_name = "TEXT", default_value = "")]
    label: String,
    /// Where it is kept [default: ~/.local/share/quietcores]
    #[arg(long, value_name = "DIR")]
    store: Option<PathBuf>,
    /// Print it as JSON on standard output
    #[arg(long)]
    json: bool,
}

pub fn run(args: Args) -> anyhow::Result<ExitCode> {
    if !(-80.0..=0.0).contains(&args.level) {
        bail!("the level is {} dBFS; it can be -80 to 0, such as --level -12", args.level);
    }
    if args.longest < Nanos::from_millis(1) || args.longest > Nanos::from_secs(8) {
        bail!("the longest round trip is {}; it can be 1ms to 8s", args.longest);
    }
    if args.on.host == HostName::File {
        bail!("a file has no way back: measure a card, a server, or --host null --cable FRAMES");
    }
    let stop = face::interrupt()?;
    let mut setup = args.on.setup()?;
    if let AudioHost::Null(cable @ None) = &mut setup.host {
        *cable = Some(Default::default());
    }
    #[cfg(feature = "audio")]
    if let AudioHost::Alsa(names) = &setup.host
        && (names.playback.is_none() || names.capture.is_none())
    {
        bail!("a round trip goes out and comes in: name a device for both");
    }
    #[cfg(feature = "audio")]
    if let AudioHost::Jack(ports) = &mut setup.host
        && args.own
    {
        ports.connect = quiet_engine::setup::Connect::Own;
    }
    let store = keep::ready(args.store.as_deref(), "roundtrips")?;
    let begun = quiet_experiment::begin("roundtrip")?;
    let bar = bar(args.cycles);
    let cables = Cables {
        output: usize::from(args.out_channel) - 1,
        input: usize::from(args.in_channel) - 1,
    };
    let sound = (args.cycles, Duration::from_nanos(args.longest.0), 10f64.powf(args.level / 20.0));
    let measured = measure(&setup, cables, sound, &stop, &mut |step| show(&bar, step));
    bar.finish_and_clear();
    let Some(measured) = measured?.filter(|measured| !measured.cycles.is_empty()) else {
        bail!("interrupted before anything was measured");
    };
    let way = way(&args, &measured);
    let MeasuredTrip { about, sizes, placed, cycles, .. } = measured;
    let spread = Spread::of(cycles.iter().filter_map(|cycle| Some(cycle.heard?.frames)));
    let mut trip = RoundTrip {
        head: begun.head(SCHEMA, &args.label, face::raised(&stop)),
        device: about,
        rate: sizes.rate.0,
        period: sizes.period.0,
        buffer: sizes.buffer.0,
        mode: mode_name(placed.mode).to_owned(),
        cpus: placed.allowed.to_string(),
        real_time: matches!(placed.scheduling.policy, Policy::Fifo | Policy::Rr),
        shielded: placed.shielded,
        budget: quiet_judge::budget(&way, spread.map(|spread| spread.median)),
        spread,
        cycles,
        // Whether it sleeps is no matter here: what is late is thrown away.
        findings: placed.findings.into_iter().filter(|f| f.id != "play.asleep").collect(),
    };
    trip.findings.extend(quiet_judge::judge_trip(&trip));
    let mut losses = keep::Losses::default();
    let kept = losses.of("the round trip", store.save_other("roundtrips", &trip.head.id, &trip));
    if args.json {
        face::print_json(&trip)?;
    } else {
        face::print(&quiet_report::trip_text(&trip, face::width()))?;
    }
    if let Some(path) = kept {
        face::say(&format!("kept as {}", path.display()));
    }
    if trip.spread.is_none() {
        let why = trip.cycles.iter().map(|cycle| cycle.wrong.as_str()).next_back();
        losses.end(ExitCode::SUCCESS);
        bail!("no round trip can be told: {}", why.unwrap_or_default());
    }
    let problem = trip.findings.iter().any(|finding| finding.severity == Severity::Problem);
    Ok(losses.end(if problem { ExitCode::from(face::FINDINGS) } else { ExitCode::SUCCESS }))
}

/// What is known of the way beside the measurement.
fn way(args: &Args, measured: &MeasuredTrip) -> Way {
    let sizes = measured.sizes;
    let (buffer, note) = match (args.on.host, measured.way) {
        (HostName::Null, _) => (sizes.buffer, "set; the rest is the cable"),
        #[cfg(feature = "audio")]
        (HostName::Jack, Some(frames)) => (frames, "as the server says"),
        #[cfg(feature = "audio")]
        (HostName::Jack, None) => (Default::default(), "the server does not say"),
        _ => (sizes.buffer, "set; from capture to playback"),
    };
    Way {
        rate: sizes.rate.0,
        period: sizes.period.0,
        buffer: f64::from(buffer),
        buffer_note: note.to_owned(),
        dsp: 0.0,
        bus: bus(args),
        converters: args.on.host != HostName::Null,
    }
}

#[cfg(not(feature = "audio"))]
fn bus(_: &Args) -> Option<(String, Option<f64>)> {
    Some(("no card".to_owned(), None))
}

/// The bus of the card, as ALSA's files tell it.
#[cfg(feature = "audio")]
fn bus(args: &Args) -> Option<(String, Option<f64>)> {
    match args.on.host {
        HostName::Null => return Some(("no card".to_owned(), None)),
        HostName::Alsa => {}
        _ => return None,
    }
    let name = args.on.device.as_deref().unwrap_or("hw:0");
    let card = name.split_once(':')?.1.split([',', ':']).next()?.trim_start_matches("CARD=");
    let card = match card.parse::<u32>() {
        Ok(number) => format!("card{number}"),
        Err(_) => card.to_owned(),
    };
    let root = quiet_linux::Root::system().ok()?;
    let read = |file: &str| root.read_if_there(&format!("/proc/asound/{card}/{file}")).ok()?;
    read("id")?;
    let Some(_) = read("usbid") else { return Some(("not USB".to_owned(), None)) };
    // `... at usb-0000:00:14.0-1, high speed : USB Audio`
    let about = read("stream0").unwrap_or_default();
    let head = about.lines().next().unwrap_or_default();
    Some(match head {
        head if head.contains("full speed") => ("USB full speed".to_owned(), Some(1.0)),
        head if head.contains("high speed") => ("USB high speed".to_owned(), Some(0.125)),
        head if head.contains("super speed") => ("USB super speed".to_owned(), Some(0.125)),
        _ => return None,
    })
}

fn bar(cycles: u32) -> ProgressBar {
    let target = ProgressDrawTarget::stderr_with_hz(10);
    let bar = ProgressBar::with_draw_target(Some(u64::from(cycles) * 1000), target);
    let style = ProgressStyle::with_template("{bar:20} {eta_precise} left  {wide_msg}");
    bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
    bar
}

fn show(bar: &ProgressBar, step: CycleProgress) {
    bar.set_position(u64::from(step.cycle) * 1000 + (step.done * 1000.0) as u64);
    bar.set_message(format!("cycle {}, {:.1} s each", step.cycle + 1, step.length.as_secs_f64()));
}
