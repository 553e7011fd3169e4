//! `top`: what the machine does now, in the terminal.

use super::plan::Wished;
use crate::{
    face,
    hands::{MachineHands, status_reader},
    user,
};
use anyhow::{Context, bail};
use quiet_linux::Root;
use quiet_live::{LiveOptions, Stream};
use quiet_shield::DEFAULT_STATE;
use quiet_tui::{TopLook, TopSetup};
use std::{
    io::{IsTerminal, stdin, stdout},
    path::PathBuf,
    process::ExitCode,
    sync::Arc,
    time::Duration,
};

/// Show who is on which CPU now, and how the shield and the sound go
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  quietcores top                          press ? for the keys, q to leave
  quietcores top room.toml                p shows the plan of this chain, a applies it
  quietcores top --rate 2 --ascii         over a slow line, in a plain terminal
  quietcores top --json --moments 2       what is seen, one line of JSON a moment (docs/schema/live.json)
The screen reads counters from housekeeping CPUs; who came and went between two looks is not seen: see explain.
Nothing is changed but by a key, and what changes the machine is asked again.")]
pub struct Args {
    #[command(flatten)]
    wish: Wished,
    /// Moments a second, 0.2 to 10
    #[arg(long, value_name = "HZ", default_value_t = 4.0)]
    rate: f64,
    /// Print the stream on standard output, a moment a line
    #[arg(long)]
    json: bool,
    /// End after so many moments
    #[arg(long, value_name = "N", requires = "json")]
    moments: Option<u64>,
    /// Nothing beyond ASCII; so too where the locale is not UTF-8
    #[arg(long)]
    ascii: bool,
    /// Leave the mouse to the terminal
    #[arg(long)]
    no_mouse: bool,
    /// Directory of the journal
    #[arg(long, value_name = "DIR", default_value = DEFAULT_STATE)]
    state: PathBuf,
}

pub fn run(args: Args) -> anyhow::Result<ExitCode> {
    let is_screen = stdout().is_terminal() && stdin().is_terminal();
    if !(args.json || is_screen) {
        bail!("cannot draw: this is no terminal; add --json for the stream as lines");
    }
    let engines = quiet_engine::control::private_dir().ok();
    let options = LiveOptions { engines: engines.clone(), ..LiveOptions::at(args.rate) };
    let stop = face::interrupt()?;
    let root = Root::system().context("cannot look at the machine")?;
    let stream = Stream::start(root, options, status_reader(&args.state))
        .context("cannot begin to look at the machine")?;
    let watch = stream.watch();
    if !args.json {
        let hands = Arc::new(MachineHands::new(&args.wish, &args.state)?);
        let look = TopLook { colour: face::colour(), unicode: !args.ascii && face::unicode() };
        let (sounds, mouse) = (user::sounds_dir(), !args.no_mouse);
        let setup = TopSetup { watch, hands, engines, sounds, look, mouse, stop };
        quiet_tui::run(&setup).context("cannot use the terminal")?;
        return Ok(ExitCode::SUCCESS);
    }
    let (mut number, mut told) = (0, 0);
    while !face::raised(&stop) && args.moments.is_none_or(|most| told < most) {
        let Some(moment) = watch.after(number, Duration::from_millis(200)) else { continue };
        number = moment.number;
        told += 1;
        let line = serde_json::to_string(&*moment).context("cannot write this as JSON")?;
        if !face::print_line(&line)? {
            break;
        }
    }
    Ok(ExitCode::SUCCESS)
}
