//! What the live faces may do to the machine: as root itself, else by the service.

use crate::{asked, face, verbs};
use quiet_experiment::{ShieldWish, Silent, make_way, put_back_overdue};
use quiet_linux::{Root, System};
use quiet_live::{Hands, StatusReader};
use quiet_plan::check::audit;
use quiet_report::{
    loan::{lent_text, reclaimed_text},
    plan::{applied_text, reverted_text},
};
use quiet_service::acts::{Acts, Whose};
use quiet_shield::LoanOptions;
use quiet_types::{
    CpuSet, Plan,
    check::Checked,
    live::Deed,
    loan::{LoanEnd, LoanTerms},
};
use std::{
    path::{Path, PathBuf},
    sync::atomic::AtomicBool,
};

/// One machine, one journal, one thing that is applied.
#[derive(Debug)]
pub struct MachineHands {
    wish: ShieldWish,
    /// The approved chain, where the service does it.
    named: Option<String>,
    state: PathBuf,
}

impl MachineHands {
    /// For what was asked for at the command line.
    ///
    /// # Errors
    /// When several chains are approved and none is named.
    pub fn new(wish: &verbs::plan::Wished, state: &Path) -> anyhow::Result<MachineHands> {
        let named = asked::approved(wish, state)?;
        Ok(MachineHands { wish: wish.wish(), named, state: state.to_owned() })
    }

    fn by_service(&self) -> bool {
        asked::is_for_service(&self.state)
    }

    fn approved(&self) -> Result<&str, String> {
        self.named.as_deref().ok_or_else(|| {
            "no chain is approved: without root only one that root has approved can be applied \
             (sudo quietcores approve CHAIN)"
                .to_owned()
        })
    }
}

fn said<E: std::fmt::Display>(error: E) -> String {
    format!("{error:#}")
}

fn deed(asked: &str, done: bool, said: &str) -> Deed {
    Deed { asked: asked.into(), done, said: said.trim_end().to_owned() }
}

fn only_root() -> Result<(), String> {
    match face::is_root() {
        true => Ok(()),
        false => Err("this is root's to do here: the journal is not the machine's own".into()),
    }
}

impl Hands for MachineHands {
    fn what(&self) -> String {
        match (&self.named, &self.wish.chain, &self.wish.cpus) {
            (Some(name), ..) => format!("chain {name}"),
            (_, Some(path), None) => format!("chain {}", path.display()),
            (_, Some(path), Some(cpus)) => format!("chain {} on CPU {cpus}", path.display()),
            (_, _, Some(cpus)) => format!("CPU {cpus}"),
            _ => "CPUs chosen for this machine".into(),
        }
    }

    fn plan(&self) -> Result<Plan, String> {
        if self.by_service() && self.named.is_some() {
            return verbs::apply::plan_by_service(self.approved()?).map_err(said);
        }
        let machine = Root::system().map_err(said)?;
        let machine = quiet_experiment::machine(&machine).map_err(said)?;
        quiet_experiment::plan(&self.wish, &machine).map_err(said)
    }

    fn check(&self) -> Result<Checked, String> {
        let root = Root::system().map_err(said)?;
        let machine = quiet_experiment::machine(&root).map_err(said)?;
        let known =
            machine.cpus.iter().map(|cpu| cpu.id).collect::<CpuSet>().union(&machine.online);
        let chain = self.wish.chain.as_ref().filter(|_| self.named.is_none());
        let chain = chain.map(|path| quiet_experiment::read_chain(path, &known)).transpose();
        let mut checked = audit(&machine, chain.map_err(said)?.as_ref());
        checked.looked.clear();
        Ok(checked)
    }

    fn apply(&self, confirm: Option<u64>) -> Result<Deed, String> {
        let applied = if self.by_service() {
            verbs::apply::put_up_by_service(self.approved()?, confirm).map_err(said)?
        } else {
            only_root()?;
            make_way(&self.state, &Silent).map_err(said)?;
            let machine = Root::system().map_err(said)?;
            let machine = quiet_experiment::machine(&machine).map_err(said)?;
            let plan =
                quiet_experiment::plan_to_apply(&self.wish, machine, &self.state).map_err(said)?;
            let never = AtomicBool::new(false);
            verbs::apply::put_up(&plan, &self.state, confirm, &never).map_err(said)?
        };
        Ok(deed("apply", verbs::apply::is_whole(&applied), &applied_text(&applied)))
    }

    fn confirm(&self) -> Result<Deed, String> {
        let waited = if self.by_service() {
            asked::service().and_then(|service| service.confirm()).map_err(said)?
        } else {
            only_root()?;
            Acts::at(&self.state).confirm(Whose::Anybodys).map_err(|e| e.sentence())?
        };
        let text = match waited {
            true => "Confirmed: the shield stays until it is reverted.",
            false => "The shield that is up does not wait for a confirmation: it stays.",
        };
        Ok(deed("confirm", true, text))
    }

    fn revert(&self) -> Result<Deed, String> {
        let done = if self.by_service() {
            asked::service().and_then(|service| service.revert()).map_err(said)?
        } else {
            only_root()?;
            Acts::at(&self.state).revert(Whose::Anybodys).map_err(|e| e.sentence())?
        };
        Ok(match done {
            Some(done) => deed("revert", done.is_exact(), &reverted_text(&done)),
            None => deed("revert", true, "No shield is up, and nothing is left of an earlier one."),
        })
    }

    fn lend(&self, seconds: u64) -> Result<Deed, String> {
        let lent = if self.by_service() {
            let seconds = u32::try_from(seconds).unwrap_or(u32::MAX);
            let lend = |service: quiet_service::client::ServiceClient| {
                service.lend(seconds, false, None, false)
            };
            asked::service().and_then(lend).map_err(said)?
        } else {
            only_root()?;
            put_back_overdue(&self.state, &Silent).map_err(said)?;
            let terms = LoanTerms { seconds, until_sound: false, unit: None, process: None };
            // This very program, also where a package has put another one in its place meanwhile.
            let program = Path::new("/proc/self/exe");
            let options = LoanOptions { guard: Some(program), uid: None };
            quiet_shield::lend(&System, &self.state, &terms, options).map_err(said)?
        };
        let is_whole = lent.changes.iter().all(|change| change.refused.is_none());
        Ok(deed("lend", is_whole, &lent_text(&lent)))
    }

    fn take_back(&self) -> Result<Deed, String> {
        let back = if self.by_service() {
            asked::service().and_then(|service| service.take_back()).map_err(said)?
        } else {
            only_root()?;
            quiet_shield::take_back(&System, &self.state, LoanEnd::Hand, None).map_err(said)?
        };
        Ok(match back {
            Some(back) => deed("take back", back.is_complete(), &reclaimed_text(&back)),
            None => deed("take back", true, "No CPU is lent."),
        })
    }
}

/// Who tells of the shield: asked again and again, the service over one line.
pub fn status_reader(state: &Path) -> StatusReader {
    let state = state.to_owned();
    let mut service = None;
    Box::new(move || {
        let own = || Acts::at(&state).status().map_err(|e| e.sentence());
        if !asked::is_for_service(&state) {
            return own();
        }
        if service.is_none() {
            service = asked::service().ok();
        }
        match service.as_ref().map(|service| service.status()) {
            Some(Ok(status)) => Ok(status),
            // Where nobody ever put a shield up, anybody sees that.
            Some(Err(quiet_service::client::Refusal::NoService(_))) | None => {
                service = None;
                own()
            }
            Some(Err(refusal)) => {
                service = None;
                Err(refusal.to_string())
            }
        }
    })
}
