//! What is to be shielded, and the plan of it.

use crate::{Because, Error, ErrorKind, Result};
use quiet_linux::{CommandLines, Options, Root, System, files, parse, snapshot};
use quiet_plan::ready;
use quiet_types::{Chain, CpuSet, Machine, Plan, boot::Mode, chain::Choice};
use std::path::{Path, PathBuf};

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
    planned(wish, machine, &chain_of(wish, machine)?)
}

/// As [`plan`], of a machine that is to be changed: as root, the chain's interrupts are first asked whether they can be moved at all
/// ([`quiet_shield::try_interrupts`]), since the chain goes where they stay. `state` is the state directory: nobody else changes the machine
/// meanwhile.
///
/// # Errors
/// As [`plan`]; and when somebody else is at work for too long.
pub fn plan_to_apply(wish: &ShieldWish, mut machine: Machine, state: &Path) -> Result<Plan> {
    let chain = chain_of(wish, &machine)?;
    if crate::is_root() {
        let numbers = quiet_plan::chain_interrupts(&machine, &chain);
        quiet_shield::try_interrupts(&System, state, &mut machine, &numbers)?;
    }
    planned(wish, &machine, &chain)
}

fn chain_of(wish: &ShieldWish, machine: &Machine) -> Result<Chain> {
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
    Ok(chain)
}

fn planned(wish: &ShieldWish, machine: &Machine, chain: &Chain) -> Result<Plan> {
    quiet_plan::plan(machine, chain).map_err(|error| match &wish.chain {
        Some(path) => Error::asked(format!("{}: {error}", path.display())),
        None => error.into(),
    })
}

/// The text of a chain file, or of a ready-made chain: `ready:mpd`, for the programs of who asks, who may have become root by sudo; or
/// `ready:mpd@ann`.
///
/// # Errors
/// When it cannot be read; when there is no ready-made chain of that name, or no such user.
pub fn chain_text(path: &Path) -> Result<String> {
    let shown = quiet_types::printable(&path.display().to_string(), 300);
    let Some(asked) = path.to_str().and_then(|path| path.strip_prefix(ready::PREFIX)) else {
        return files::read_text(path, LARGEST)
            .because(ErrorKind::Asked, || format!("cannot read the chain file {shown}"));
    };
    let (name, uid) = match asked.split_once('@') {
        Some((name, user)) => (name, uid_of(user)?),
        None => (asked, who_asks()),
    };
    ready::text(name, uid).ok_or_else(|| {
        let all: Vec<String> =
            ready::names().map(|name| format!("{}{name}", ready::PREFIX)).collect();
        Error::asked(format!("there is no ready-made chain {shown}; there are {}", all.join(", ")))
    })
}

/// The number of a user, given by it or by name.
fn uid_of(user: &str) -> Result<u32> {
    if let Ok(uid) = user.parse() {
        return Ok(uid);
    }
    let users = Root::system().and_then(|root| root.read("/etc/passwd"));
    let users = users.because(ErrorKind::Asked, || "cannot look for users".into())?;
    parse::users(&users).get(user).copied().ok_or_else(|| {
        let user = quiet_types::printable(user, 60);
        Error::asked(format!(
            "there is no user `{user}` in /etc/passwd; name another one, or a number: ready:mpd@1000"
        ))
    })
}

fn who_asks() -> u32 {
    let own = rustix::process::getuid().as_raw();
    let before = std::env::var("SUDO_UID").ok().and_then(|uid| uid.parse().ok());
    if own == 0 { before.unwrap_or(0) } else { own }
}

/// The chain in a file; `known` are the CPUs that it may name.
///
/// # Errors
/// When it cannot be read or says nothing; where it makes no sense, with line and column.
pub fn read_chain(path: &Path, known: &CpuSet) -> Result<Chain> {
    let shown = quiet_types::printable(&path.display().to_string(), 300);
    let text = chain_text(path)?;
    if text.lines().map(str::trim).all(|line| line.is_empty() || line.starts_with('#')) {
        return Err(Error::asked(format!(
            "cannot use the chain file {shown}: nothing is in it; write a [chain] (see `quietcores plan --help`), or \
             leave the file out"
        )));
    }
    Ok(quiet_plan::chain::parse(&text, &shown, Some(known))?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ready_made_chain_is_named_and_is_for_a_user() {
        let text = |name: &str| chain_text(Path::new(name));
        assert!(text("ready:mpd@4711").unwrap().contains("\"root\", 4711]"));
        assert!(text("ready:pipewire@root").unwrap().contains("user = 0\n"));
        let known: CpuSet = "0-3".parse().unwrap();
        for name in ready::names() {
            read_chain(Path::new(&format!("ready:{name}")), &known).unwrap();
        }
        let wrong = text("ready:mpv").unwrap_err().to_string();
        assert!(wrong.contains("ready:mpv") && wrong.contains("ready:ardour, "), "{wrong}");
        let wrong = text("ready:mpd@nobody of that name").unwrap_err().to_string();
        assert!(wrong.contains("no user"), "{wrong}");
        text("ready:mpd@").unwrap_err();
        // A file is a file, whatever it is called.
        text("./ready:mpd").unwrap_err();
    }

    #[test]
    fn a_pipe_in_the_place_of_a_file_is_not_waited_for() {
        use rustix::fs::{CWD, FileType, Mode, mknodat};
        let folder = tempfile::tempdir().unwrap();
        let pipe = folder.path().join("chain.toml");
        mknodat(CWD, &pipe, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
        let said = chain_text(&pipe).unwrap_err().to_string();
        assert!(said.contains("cannot read the") && said.contains("chain.toml"), "{said}");
        let said = crate::read_campaign(&pipe).unwrap_err().to_string();
        assert!(said.contains("cannot read the") && said.contains("chain.toml"), "{said}");
    }
}
