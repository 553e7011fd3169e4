//! `apply`

use super::plan::Wished;
use crate::face;
use crate::progress::Progress;
use anyhow::{Context, bail};
use quiet_experiment::{machine, put_back_overdue};
use quiet_linux::{Root, System};
use quiet_report::plan::{applied_text, plan_text};
use quiet_shield::{ApplyOptions, DEFAULT_STATE, LONGEST_WAIT};
use std::{
    io::{BufRead, IsTerminal, stdin},
    path::PathBuf,
    process::ExitCode,
};

/// Journal, apply and verify a shield
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  quietcores apply                        shows the plan for this machine, asks, then applies it
  quietcores apply --cpus 2-3 --yes       shields these CPUs without asking
  quietcores apply living-room.toml       places the links of a chain as well
  quietcores apply room.toml --confirm 30 over ssh: put back after 30 s unless `quietcores confirm` is run
Exit status: 0 every step holds and the chain is where it should be; 1 the shield is up, and some steps
were refused or a link is not there or elsewhere; 2 nothing is changed.")]
pub struct Args {
    #[command(flatten)]
    wish: Wished,
    /// Put the machine back by itself after so many seconds, unless `quietcores confirm` is run
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(1..=LONGEST_WAIT))]
    confirm: Option<u64>,
    /// Do not ask
    #[arg(long, short)]
    yes: bool,
    /// Print the result as JSON on standard output
    #[arg(long)]
    json: bool,
    /// Directory of the journal
    #[arg(long, value_name = "DIR", default_value = DEFAULT_STATE)]
    state: PathBuf,
}

pub fn run(args: Args) -> anyhow::Result<ExitCode> {
    let plan = quiet_experiment::plan(&args.wish.wish(), &machine(&Root::system()?)?)?;
    if !face::is_root() {
        bail!(
            "cannot apply a shield without root: {} steps change kernel settings; `quietcores \
             plan` shows them, `sudo quietcores apply` takes them",
            plan.steps.len()
        );
    }
    if !args.yes {
        if !stdin().is_terminal() {
            bail!("cannot ask: standard input is no terminal; add --yes to apply without asking");
        }
        face::say(&plan_text(&plan));
        face::say(&format!("Take these {} steps? [y/N]", plan.steps.len()));
        let mut answer = String::new();
        stdin().lock().read_line(&mut answer).context("cannot read the answer")?;
        if !matches!(answer.trim(), "y" | "Y" | "yes") {
            bail!("not applied; nothing is changed");
        }
    }
    let interrupt = face::interrupt()?;
    let program = std::env::current_exe().context("cannot find the program itself")?;
    let setup = ApplyOptions {
        state: &args.state,
        holder: Some(&program),
        interrupt: &interrupt,
        confirm: args.confirm,
    };
    put_back_overdue(&args.state, &Progress::new())?;
    let mut applied = quiet_shield::up(&System, &plan, &setup)?;
    // The shield is up whatever this says.
    applied.chain = match plan.links.is_empty() {
        true => Vec::new(),
        false => super::status::chain(&plan.links, &plan.shield)?,
    };
    if args.json {
        face::print_json(&applied)?;
    } else {
        face::print(&applied_text(&applied))?;
    }
    if let Some(seconds) = args.confirm {
        face::say(&format!(
            "In {seconds} s the machine is put back by itself, unless you run: quietcores confirm"
        ));
    }
    let whole = applied.chain.is_empty() && applied.steps.iter().all(|taken| taken.outcome.holds());
    Ok(if whole { ExitCode::SUCCESS } else { ExitCode::from(face::FINDINGS) })
}
