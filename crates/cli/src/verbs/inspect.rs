//! `inspect`

use crate::face;
use anyhow::Context;
use quiet_linux::{CommandLines, Options, Root, capture, capture_anonymous, snapshot};
use quiet_report::machine::{Colour, MachineStyle, Tasks, machine_text};
use std::{path::PathBuf, process::ExitCode};

/// Show the machine: cores, IRQs, cards, tasks, kernel
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  quietcores inspect                      the machine, as text
  quietcores inspect --tasks              with every thread, CPU by CPU
  quietcores inspect --json > here.json   for programs
  quietcores inspect --capture my-pc      a directory to send with a report
  quietcores inspect --capture my-pc --anonymous   the same without names of people
  quietcores inspect --root my-pc         read it again, on any machine")]
pub struct Args {
    /// Print the result as JSON on standard output
    #[arg(long)]
    json: bool,
    /// Read the machine captured in DIR in place of this one
    #[arg(long, value_name = "DIR")]
    root: Option<PathBuf>,
    /// List every thread, not a summary for each CPU
    #[arg(long)]
    tasks: bool,
    /// Save what was read as files in DIR, which must be empty or not exist; --root reads it back
    #[arg(long, value_name = "DIR")]
    capture: Option<PathBuf>,
    /// Leave out of the capture all command lines, names of people, and UUIDs; names of threads stay
    #[arg(long, requires = "capture", conflicts_with = "command_lines")]
    anonymous: bool,
    /// Include the arguments of everybody's processes, not of yours alone; they may hold secrets
    #[arg(long)]
    command_lines: bool,
}

pub fn run(args: Args) -> anyhow::Result<ExitCode> {
    let root = match &args.root {
        Some(dir) => Root::at(dir),
        None => Root::system(),
    }
    .context("cannot inspect the machine")?;
    let command_lines = if args.command_lines { CommandLines::All } else { CommandLines::Own };
    let options = Options { command_lines };
    let mut machine = match &args.capture {
        Some(dir) => {
            let captured = match args.anonymous {
                true => capture_anonymous(&root, dir)?,
                false => capture(&root, dir, options)?,
            };
            let (files, kib) = (captured.files, captured.bytes.div_ceil(1024));
            face::say(&format!(
                "{files} files with {kib} KiB in {0}; read it with: quietcores inspect --root {0}",
                quiet_types::printable(&dir.display().to_string(), 300)
            ));
            captured.machine
        }
        None => snapshot(&root, options).context("cannot inspect the machine")?,
    };
    // Of a machine that is looked at from within, by whose server it is.
    if args.root.is_none()
        && let Some(around) = &mut machine.surroundings
    {
        around.pipewire = quiet_linux::pipewire_settings();
    }
    if args.json {
        face::print_json(&machine)?;
    } else if args.capture.is_none() {
        let style = MachineStyle {
            width: face::page_width(),
            colour: if face::colour() { Colour::Ansi } else { Colour::Plain },
            tasks: if args.tasks { Tasks::Every } else { Tasks::Summary },
        };
        face::print(&machine_text(&machine, style))?;
    }
    Ok(ExitCode::SUCCESS)
}
