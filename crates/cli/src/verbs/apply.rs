//! `apply`

use super::plan::Wished;
use crate::progress::Progress;
use crate::{asked, face, probing};
use anyhow::{Context, anyhow, bail};
use quiet_experiment::{machine, make_way};
use quiet_linux::{Root, System};
use quiet_report::plan::applied_text;
use quiet_service::acts;
pub use quiet_shield::LONGEST_WAIT;
use quiet_shield::{ApplyOptions, DEFAULT_STATE};
use quiet_types::{Plan, plan::Applied};
use std::{
    io::{BufRead, IsTerminal, stdin},
    path::{Path, PathBuf},
    process::ExitCode,
    sync::atomic::AtomicBool,
};

/// Journal, apply and verify a shield
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  quietcores apply                        shows the plan for this machine, asks, then applies it
  quietcores apply --cpus 2-3 --yes       shields these CPUs without asking
  quietcores apply living-room.toml       places the links of a chain as well
  quietcores apply room.toml --confirm 30 over ssh: put back after 30 s unless `quietcores confirm` is run
  quietcores apply room                   without root: a chain that root has approved, by its name
Exit status: 0 every step holds and the chain is where it should be; 1 the shield is up, and some steps
were refused or a link is not there or elsewhere; 2 nothing is changed.")]
pub struct Args {
    #[command(flatten)]
    wish: Wished,
    /// Put the machine back by itself after so long (30, 30s, 5min), unless `quietcores confirm` is run
    #[arg(long, value_name = "SECONDS", value_parser = wait)]
    confirm: Option<u64>,
    /// Do not ask
    #[arg(long, short)]
    yes: bool,
    /// Show every step before asking
    #[arg(long)]
    verbose: bool,
    /// Print the result as JSON on standard output
    #[arg(long)]
    json: bool,
    /// Directory of the journal
    #[arg(long, value_name = "DIR", default_value = DEFAULT_STATE)]
    state: PathBuf,
}

/// A time to a confirmation.
fn wait(text: &str) -> Result<u64, String> {
    let seconds = probing::seconds(text)?;
    match (1..=LONGEST_WAIT).contains(&seconds) {
        true => Ok(seconds),
        false => Err(format!("{seconds} s is not in 1..={LONGEST_WAIT} s")),
    }
}

pub fn run(args: Args) -> anyhow::Result<ExitCode> {
    if let Some(name) = asked::approved(&args.wish, &args.state)? {
        return by_service(&args, &name);
    }
    let progress = Progress::new();
    make_way(&args.state, &progress)?;
    let plan = quiet_experiment::plan_to_apply(
        &args.wish.wish(),
        machine(&Root::system()?)?,
        &args.state,
    )?;
    if !face::is_root() {
        bail!(
            "cannot apply a shield without root: {} steps change kernel settings; `quietcores \
             plan` shows them, `sudo quietcores apply` takes them",
            plan.steps.len()
        );
    }
    agree(&args, &plan)?;
    let interrupt = face::interrupt()?;
    show(&args, &put_up(&plan, &args.state, args.confirm, &interrupt)?)
}

/// Takes the steps of a plan as root, and looks where the chain is. What had to be put back before is ([`make_way`]), since before the
/// machine was read for the plan.
pub fn put_up(
    plan: &Plan,
    state: &Path,
    confirm: Option<u64>,
    interrupt: &AtomicBool,
) -> anyhow::Result<Applied> {
    let program = std::env::current_exe().context("cannot find the program itself")?;
    let setup = ApplyOptions { state, holder: Some(&program), interrupt, confirm };
    let mut applied = quiet_shield::up(&System, plan, &setup)?;
    // The shield is up whatever these say.
    acts::settle(plan, &mut applied, &setup).map_err(|e| anyhow!(e.sentence()))?;
    applied.chain = match plan.links.is_empty() {
        true => Vec::new(),
        false => acts::astray(&plan.links, &plan.shield).map_err(|e| anyhow!(e.sentence()))?,
    };
    Ok(applied)
}

/// Asks, unless `--yes` has answered.
fn agree(args: &Args, plan: &Plan) -> anyhow::Result<()> {
    if !args.yes {
        if !stdin().is_terminal() {
            bail!("cannot ask: standard input is no terminal; add --yes to apply without asking");
        }
        face::say(&super::plan::shown(plan, args.verbose));
        face::say(&format!("Take these {} steps? [y/N]", plan.steps.len()));
        let mut answer = String::new();
        stdin().lock().read_line(&mut answer).context("cannot read the answer")?;
        if !matches!(answer.trim(), "y" | "Y" | "yes") {
            bail!("not applied; nothing is changed");
        }
    }
    Ok(())
}

fn show(args: &Args, applied: &Applied) -> anyhow::Result<ExitCode> {
    if args.json {
        face::print_json(applied)?;
    } else {
        face::print(&face::fitted(&applied_text(applied)))?;
    }
    if let Some(seconds) = args.confirm {
        face::say(&format!(
            "In {seconds} s the machine is put back by itself, unless you run: quietcores confirm"
        ));
    }
    Ok(if is_whole(applied) { ExitCode::SUCCESS } else { ExitCode::from(face::FINDINGS) })
}

/// Whether every step holds, and the chain is where it should be.
pub fn is_whole(applied: &Applied) -> bool {
    applied.chain.is_empty() && applied.steps.iter().all(|taken| taken.outcome.holds())
}

fn by_service(args: &Args, name: &str) -> anyhow::Result<ExitCode> {
    if !args.yes {
        agree(args, &plan_by_service(name)?)?;
    }
    show(args, &put_up_by_service(name, args.confirm)?)
}

/// The plan of an approved chain, as the service has it.
pub fn plan_by_service(name: &str) -> anyhow::Result<Plan> {
    let refused = |why| asked::refused(why, &format!("plan the chain `{name}`"), "apply");
    asked::service().and_then(|service| service.plan(name)).map_err(refused)
}

/// Has the shield of an approved chain put up by the service.
pub fn put_up_by_service(name: &str, confirm: Option<u64>) -> anyhow::Result<Applied> {
    let refused = |why| asked::refused(why, &format!("apply the chain `{name}`"), "apply");
    let confirm = confirm.map(|seconds| u32::try_from(seconds).unwrap_or(u32::MAX));
    asked::service().and_then(|service| service.apply(name, confirm)).map_err(refused)
}
