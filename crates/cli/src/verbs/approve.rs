//! `approve`

use crate::face;
use anyhow::{anyhow, bail};
use quiet_experiment::machine;
use quiet_linux::Root;
use quiet_plan::ready::PREFIX;
use quiet_service::{
    CHAINS,
    approved::{Approved, is_name},
};
use quiet_types::said::{APPROVED, ApprovedChain, ApprovedList};
use std::{
    path::{Path, PathBuf},
    process::ExitCode,
};

/// Let ordinary users apply a chain, by its name
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  sudo quietcores approve room.toml              members of the group audio may: quietcores apply room
  sudo quietcores approve room.toml --name live  under another name
  sudo quietcores approve ready:mpd              a ready-made one (see quietcores plan --help), under the name mpd
  quietcores approve                             lists what is approved
  sudo quietcores approve --withdraw room        and nobody may any more; a shield that is up stays
The service quietcored applies it; polkit decides who may (docs/service.md).")]
pub struct Args {
    /// Chain file (TOML); without one, what is approved is listed
    chain: Option<PathBuf>,
    /// What it is called by [default: the file's name]
    #[arg(long, value_name = "NAME", requires = "chain")]
    name: Option<String>,
    /// Take the approval of a chain back
    #[arg(long, value_name = "NAME", conflicts_with_all = ["chain", "name"])]
    withdraw: Option<String>,
    /// Print the result as JSON on standard output
    #[arg(long)]
    json: bool,
    /// Folder of approved chains
    #[arg(long, value_name = "DIR", default_value = CHAINS)]
    chains: PathBuf,
}

pub fn run(args: Args) -> anyhow::Result<ExitCode> {
    let approved = Approved::at(&args.chains);
    let machine = machine(&Root::system()?)?;
    let there: quiet_types::CpuSet = machine.cpus.iter().map(|cpu| cpu.id).collect();
    let known = there.union(&machine.online);
    let changes = args.chain.is_some() || args.withdraw.is_some();
    if changes && !face::is_root() && args.chains == Path::new(CHAINS) {
        bail!(
            "cannot approve a chain without root, who decides what others may: sudo quietcores approve ..."
        );
    }
    if let Some(name) = &args.withdraw {
        let was = approved.withdraw(name).map_err(|e| anyhow!(e.sentence()))?;
        let said = match was {
            true => format!("`{name}` is approved no more."),
            false => format!("`{name}` was not approved."),
        };
        match args.json {
            true => {
                face::say(&said);
                let left = approved.list(&known).map_err(|e| anyhow!(e.sentence()))?;
                face::print_json(&ApprovedList { schema: APPROVED.to_owned(), chains: left })?;
            }
            false => face::print(&format!("{said}\n"))?,
        }
        return Ok(if was { ExitCode::SUCCESS } else { ExitCode::from(face::FINDINGS) });
    }
    if let Some(path) = &args.chain {
        let name = match &args.name {
            Some(name) => name.clone(),
            None => name_of(path)?,
        };
        let text = quiet_experiment::chain_text(path)?;
        approved.approve(&name, &text, &known).map_err(|e| anyhow!(e.sentence()))?;
        face::say(&format!(
            "Approved: members of the group audio may now run: quietcores apply {name}"
        ));
    }
    let listed = match face::is_root() || args.chains != Path::new(CHAINS) {
        true => approved.list(&known).map_err(|e| anyhow!(e.sentence()))?,
        false => asked()?,
    };
    if args.json {
        face::print_json(&ApprovedList { schema: APPROVED.to_owned(), chains: listed })?;
    } else if listed.is_empty() {
        face::print("No chain is approved. sudo quietcores approve FILE approves one.\n")?;
    } else {
        let wide = listed.iter().map(|one| one.name.len()).max().unwrap_or(0);
        let lines: Vec<String> = listed.iter().map(|one| line(one, wide)).collect();
        face::print(&lines.concat())?;
    }
    Ok(ExitCode::SUCCESS)
}

fn line(one: &ApprovedChain, wide: usize) -> String {
    let says = match one.usable {
        true => one.title.clone(),
        false => format!("cannot be used: {}", one.title),
    };
    format!("{:wide$}  {says}\n", one.name).trim_end().to_owned() + "\n"
}

fn asked() -> anyhow::Result<Vec<ApprovedChain>> {
    let refused = |why| crate::asked::refused(why, "list the approved chains", "approve");
    let chains = crate::asked::service().and_then(|service| service.chains()).map_err(refused)?;
    Ok(chains
        .into_iter()
        .map(|(name, title, usable)| ApprovedChain { name, title, usable })
        .collect())
}

/// What a file's chain is called.
fn name_of(path: &Path) -> anyhow::Result<String> {
    let name = path.file_stem().and_then(|stem| stem.to_str()).unwrap_or_default();
    let name = name.strip_prefix(PREFIX).unwrap_or(name).split('@').next().unwrap_or_default();
    if is_name(name) {
        return Ok(name.to_owned());
    }
    bail!("`{}` makes no name of a chain: give one with --name", path.display())
}
