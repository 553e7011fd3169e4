//! What is to be shielded, and the plan of it.

use crate::{Because, Error, ErrorKind, Result};
use quiet_linux::{CommandLines, Options, Root, files, snapshot};
use quiet_types::{Chain, CpuSet, Machine, Plan, boot::Mode, chain::Choice};
use std::{
    fs::File,
    path::{Path, PathBuf},
};

/// Chain files are small.
const LARGEST: u64 = 1 << 20;

/// What is to be shielded.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ShieldWish {
    /// Chain file (TOML).
    pub chain: Option<PathBuf>,
    /// CPUs to shield, in place of those of the chain.
    pub cpus: Option<CpuSet>,
    /// For a loop that never sleeps.
    pub never_sleep: bool,
    /// SMT siblings of the shielded CPUs that are not shielded themselves are switched off.
    pub smt_off: bool,
}

/// The machine, as a plan needs it.
///
/// # Errors
/// When it cannot be read.
pub fn machine(root: &Root) -> Result<Machine> {
    let options = Options { command_lines: CommandLines::None };
    snapshot(root, options).because(ErrorKind::Machine, || "cannot read the machine".into())
}

/// The plan of what is wished.
///
/// # Errors
/// When the chain file cannot be read, or no plan can be made; with the way on.
pub fn plan(wish: &ShieldWish, machine: &Machine) -> Result<Plan> {
    let mut chain = match &wish.chain {
        Some(path) => {
            let there: CpuSet = machine.cpus.iter().map(|cpu| cpu.id).collect();
            read_chain(path, &there.union(&machine.online))?
        }
        None => Chain::default(),
    };
    if let Some(cpus) = &wish.cpus {
        chain.cpus = Choice::These(cpus.clone());
    }
    if wish.never_sleep {
        chain.mode = Mode::NeverSleepingCore;
    }
    chain.smt_off |= wish.smt_off;
    quiet_plan::plan(machine, &chain).map_err(|error| match &wish.chain {
        Some(path) => Error::asked(format!("{}: {error}", path.display())),
        None => error.into(),
    })
}

/// The chain in a file; `known` are the CPUs that it may name.
///
/// # Errors
/// When it cannot be read or says nothing; where it makes no sense, with line and column.
pub fn read_chain(path: &Path, known: &CpuSet) -> Result<Chain> {
    let shown = quiet_types::printable(&path.display().to_string(), 300);
    let text = File::open(path)
        .and_then(|file| files::take_text(file, LARGEST))
        .because(ErrorKind::Asked, || format!("cannot read the chain file {shown}"))?;
    if text.lines().map(str::trim).all(|line| line.is_empty() || line.starts_with('#')) {
        return Err(Error::asked(format!(
            "cannot use the chain file {shown}: nothing is in it; write a [chain] (see `quietcores plan --help`), or \
             leave the file out"
        )));
    }
    Ok(quiet_plan::chain::parse(&text, &shown, Some(known))?)
}
