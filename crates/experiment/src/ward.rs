//! Keeps the promise that whatever ends a measurement under a shield leaves the machine as it was.

use crate::{Because, ErrorKind, Notice, Observer, Result, ShieldWish, machine, plan_to_apply};
use quiet_linux::{Root, System};
use quiet_shield::{ApplyOptions, Bond};
use quiet_types::{Plan, plan::Applied};
use std::{
    path::{Path, PathBuf},
    sync::atomic::AtomicBool,
};

/// Who has the rights that this process lacks, and puts the shield of one approved chain up for it: a service.
pub trait ShieldLender: std::fmt::Debug + Sync {
    /// The name of the chain.
    fn chain(&self) -> &str;

    /// The plan of it, on the machine as it is now.
    ///
    /// # Errors
    /// Why there is none.
    fn plan(&self) -> quiet_linux::Result<Plan>;

    /// Puts the shield up, until [`lower`](ShieldLender::lower) is called or this process ends, however that comes.
    ///
    /// # Errors
    /// Why not; nothing is changed then.
    fn raise(&self) -> quiet_linux::Result<Applied>;

    /// Puts the machine back; whether every value is as it was.
    ///
    /// # Errors
    /// Why not.
    fn lower(&self) -> quiet_linux::Result<bool>;
}

/// Puts shields up and takes them down. Dropped with one up, as by a panic, it takes it down.
pub struct Ward<'a> {
    wish: ShieldWish,
    /// The program that holds `/dev/cpu_dma_latency`.
    holder: Option<PathBuf>,
    state: &'a Path,
    stop: &'a AtomicBool,
    observer: &'a dyn Observer,
    up: bool,
    /// Puts the machine back should this process be killed; from the first shield on.
    bond: Option<Bond>,
    /// This process has no rights any more: the guard puts the machine back in any case.
    poor: bool,
    /// This process had none from the beginning.
    lender: Option<&'a dyn ShieldLender>,
}

impl<'a> Ward<'a> {
    /// None is up yet. `state` is the state directory; where `stop` is raised, a shield that is being put up is
    /// rolled back. The running program is started as guard and holder: it has to know `guard` and `hold`.
    pub fn new(
        wish: ShieldWish,
        state: &'a Path,
        stop: &'a AtomicBool,
        observer: &'a dyn Observer,
    ) -> Ward<'a> {
        let holder = std::env::current_exe().ok();
        let (bond, lender) = (None, None);
        Ward { wish, holder, state, stop, observer, up: false, bond, poor: false, lender }
    }

    /// Has the shield put up by somebody else, and the wish left alone.
    #[must_use]
    pub fn lent_by(mut self, lender: Option<&'a dyn ShieldLender>) -> Ward<'a> {
        self.lender = lender;
        self
    }

    /// The shield that is wished, planned for the machine as it is at this moment.
    ///
    /// # Errors
    /// When there is no plan of it, no guard, or an essential step fails: what was done is put back then.
    pub fn raise(&mut self) -> Result<Applied> {
        if let Some(lender) = self.lender {
            let applied = lender.raise()?;
            self.up = true;
            return Ok(applied);
        }
        make_way(self.state, self.observer)?;
        let plan = plan_to_apply(&self.wish, machine(&Root::system()?)?, self.state)?;
        self.raise_plan(&plan)
    }

    /// A shield of this plan, which was made for the machine as it is at this moment.
    ///
    /// # Errors
    /// When there is no guard, or an essential step fails: what was done is put back then.
    pub(crate) fn raise_plan(&mut self, plan: &Plan) -> Result<Applied> {
        if let (None, Some(program)) = (&self.bond, &self.holder) {
            self.bond = Some(Bond::start(program, self.state, self.observer.guard())?);
        }
        let setup = ApplyOptions {
            state: self.state,
            holder: self.holder.as_deref(),
            interrupt: self.stop,
            confirm: None,
        };
        let applied = quiet_shield::up_bound(&System, plan, &setup)?;
        self.up = true;
        Ok(applied)
    }

    /// To be called where this process gives up root's rights.
    pub fn give_up(&mut self) {
        self.poor = true;
        if let Some(bond) = &self.bond {
            bond.give_up();
        }
    }

    /// Puts the machine back; whether every value is as it was.
    ///
    /// # Errors
    /// When the journal cannot be used.
    pub fn lower(&mut self) -> Result<bool> {
        if !self.up {
            return Ok(true);
        }
        if let Some(lender) = self.lender {
            self.up = false;
            return Ok(lender.lower()?);
        }
        // The guard stays for the shields to come, where it is not its turn.
        if self.poor
            && let Some(bond) = self.bond.take()
        {
            self.up = false;
            bond.put_back()?;
            return Ok(true);
        }
        let reverted = quiet_shield::revert(&System, self.state)?;
        self.up = false;
        Ok(reverted.is_none_or(|reverted| reverted.is_exact()))
    }
}

impl Drop for Ward<'_> {
    fn drop(&mut self) {
        let back = self.lower().because(ErrorKind::Machine, || {
            "cannot put the machine back; run `quietcores revert`".into()
        });
        if let Err(error) = back {
            self.observer.event(Notice::NotPutBack(&error));
        }
    }
}

/// A shield that was to be confirmed, or whose owner was killed, and whose guard was killed as well, is put back before
/// anything else.
///
/// # Errors
/// When the state directory or the journal cannot be used.
pub fn put_back_overdue(state: &Path, observer: &dyn Observer) -> Result<()> {
    if let Some(done) = quiet_shield::overdue(&System, state)? {
        observer.event(Notice::PutBack(&done));
    }
    Ok(())
}

/// As [`put_back_overdue`], and what a shield of an earlier boot left in files: before the machine is read for a plan that is to be
/// applied. Nothing where this is not root, who alone applies one.
///
/// # Errors
/// When the state directory or the journal cannot be used.
pub fn make_way(state: &Path, observer: &dyn Observer) -> Result<()> {
    if crate::is_root()
        && let Some(done) = quiet_shield::make_way(&System, state)?
    {
        observer.event(Notice::PutBack(&done));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use quiet_testing::{Why, is_root, machine_alone, own_cpus, skip};
    use quiet_types::plan::ShieldStanding;

    #[test]
    fn a_panic_under_a_shield_puts_the_machine_back() {
        if !is_root() {
            return skip(Why::Root);
        }
        let _turn = machine_alone();
        let own = own_cpus();
        let Some(last) = own.iter().last().filter(|_| own.len() > 1) else {
            return skip(Why::OneCpu);
        };
        let root = Root::system().unwrap();
        let before = machine(&root).unwrap();
        let wish = ShieldWish { cpus: Some([last].into_iter().collect()), ..ShieldWish::default() };
        let (dir, stop) = (tempfile::tempdir().unwrap(), AtomicBool::new(false));
        let state = dir.path().join("state");
        let standing = || quiet_shield::status(&System, &state).unwrap().state;
        let panicked = std::panic::catch_unwind(|| {
            let mut ward = Ward::new(wish, &state, &stop, &crate::Silent);
            ward.holder = None; // The running program is the test here, not quietcores.
            ward.raise().unwrap();
            assert_eq!(standing(), ShieldStanding::Up);
            panic!("in the middle of an arm");
        });
        assert!(panicked.is_err());
        assert_eq!(standing(), ShieldStanding::None);
        assert_eq!(quiet_judge::changes(&before, &machine(&root).unwrap()), Vec::<String>::new());
    }
}
