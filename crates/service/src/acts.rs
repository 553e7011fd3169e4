//! What is done with the machine for whoever may: the same acts for root at a terminal and for the service.

use crate::{Error, approved::Approved};
use quiet_linux::{CommandLines, Kernel, Options, Root, System, cgroup_mounts, glance};
use quiet_shield::{ApplyOptions, Entrant, ErrorKind, LoanOptions, Lookout, Tether};
use quiet_types::{
    Chain, CpuSet, Finding, Machine, Plan,
    chain::{Choice, Link},
    loan::{Lent, LoanEnd, LoanTerms, Reclaimed},
    machine::{Cgroups, Scheduling},
    plan::{
        Action, Admitted, Applied, Outcome, PutBack, REVERTED_SCHEMA, Released, Return, Reverted,
        ShieldStanding, Status, Taken, Thread,
    },
    said::ApprovedChain,
    shield::{Mechanism, Shield},
};
use std::{
    io,
    os::fd::OwnedFd,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::atomic::AtomicBool,
    thread::sleep,
    time::{Duration, Instant},
};

/// So many real-time threads of one user may be in the shield at a time.
const MOST_THREADS: usize = 64;

/// A program that was started anew has its threads by then.
const STARTED: Duration = Duration::from_secs(5);
/// Between two looks for it.
const PAUSE: Duration = Duration::from_millis(100);

/// What a user asks for a thread of his.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ThreadWish {
    /// Its number.
    pub tid: u32,
    /// Where on the shield; `None` for all of it.
    pub cpus: Option<CpuSet>,
    /// How it is to be scheduled; `None` leaves that.
    pub scheduling: Option<Scheduling>,
}

/// Which shield is meant, by who put it up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Whose {
    /// Any.
    Anybodys,
    /// That user's own; another's is refused.
    Of(u32),
}

impl Whose {
    fn uid(self) -> Option<u32> {
        match self {
            Whose::Anybodys => None,
            Whose::Of(uid) => Some(uid),
        }
    }
}

/// The machine that is acted on, and where its journal lies.
#[derive(Clone, Debug)]
pub struct Acts {
    state: PathBuf,
    /// Started as `PROGRAM hold` and `PROGRAM guard`, see [`ApplyOptions::holder`].
    program: PathBuf,
    approved: Approved,
}

impl Acts {
    /// With the journal in `state`, holders and guards by `program`, and approved chains in `chains`.
    pub fn new(state: &Path, program: &Path, chains: &Path) -> Acts {
        Acts {
            state: state.to_owned(),
            program: program.to_owned(),
            approved: Approved::at(chains),
        }
    }

    /// For what needs no holder and no approved chain: the status, and putting back.
    pub fn at(state: &Path) -> Acts {
        Acts::new(state, Path::new(""), Path::new(crate::CHAINS))
    }

    /// The approved chains.
    ///
    /// # Errors
    /// When their folder cannot be used.
    pub fn chains(&self) -> Result<Vec<ApprovedChain>, Error> {
        self.approved.list(&known_cpus()?)
    }

    /// The plan of an approved chain, on the machine as it is now.
    ///
    /// # Errors
    /// When there is no such chain, or no plan can be made of it.
    pub fn plan(&self, name: &str) -> Result<Plan, Error> {
        self.planned(name, false)
    }

    /// With `to_apply` the chain's interrupts are first asked whether they can be moved at all.
    fn planned(&self, name: &str, to_apply: bool) -> Result<Plan, Error> {
        let mut machine = machine()?;
        let chain: Chain = self.approved.chain(name, &cpus(&machine))?;
        if to_apply {
            let numbers = quiet_plan::chain_interrupts(&machine, &chain);
            quiet_shield::try_interrupts(&System, &self.state, &mut machine, &numbers)
                .map_err(of_shield)?;
        }
        quiet_plan::plan(&machine, &chain)
            .map_err(|error| Error::Failed(format!("cannot plan the chain `{name}`: {error}")))
    }

    /// Puts the shield of an approved chain up for user `uid`; with `confirm` it is put back after so many seconds unless it is confirmed.
    ///
    /// # Errors
    /// As [`quiet_shield::up`]; what had been done by then is put back.
    pub fn apply(&self, name: &str, confirm: Option<u64>, uid: u32) -> Result<Applied, Error> {
        let up =
            |plan: &Plan, setup: &ApplyOptions<'_>| quiet_shield::up_for(&System, plan, setup, uid);
        self.up(name, confirm, up)
    }

    /// Puts the shield of an approved chain up for user `uid`, for as long as the line that is returned is open.
    ///
    /// # Errors
    /// As [`quiet_shield::up_tethered`]; what had been done by then is put back.
    pub fn apply_bound(&self, name: &str, uid: u32) -> Result<(Applied, OwnedFd), Error> {
        let tether = Tether::start(&self.program, &self.state).map_err(of_shield)?;
        let up = |plan: &Plan, setup: &ApplyOptions<'_>| {
            quiet_shield::up_tethered(&System, plan, setup, &tether, uid)
        };
        let applied = self.up(name, None, up)?;
        Ok((applied, tether.into_line()))
    }

    fn up(
        &self,
        name: &str,
        confirm: Option<u64>,
        up: impl FnOnce(&Plan, &ApplyOptions<'_>) -> quiet_shield::Result<Applied>,
    ) -> Result<Applied, Error> {
        quiet_shield::make_way(&System, &self.state).map_err(of_shield)?;
        let plan = self.planned(name, true)?;
        let setup = ApplyOptions {
            state: &self.state,
            holder: Some(&self.program),
            interrupt: &AtomicBool::new(false),
            confirm,
        };
        let mut applied = up(&plan, &setup).map_err(of_shield)?;
        settle(&plan, &mut applied, &setup)?;
        if !plan.links.is_empty() {
            applied.chain = astray(&plan.links, &plan.shield)?;
        }
        Ok(applied)
    }

    /// Starts a watch over the shield, made of the approved chain `name`: a process of its own, which ends with the shield or once
    /// nobody reads what it reports. The pipe has its events, one JSON object a line.
    ///
    /// # Errors
    /// When there is no such chain, no shield is up, it is another's and not only reported on, or the process cannot be started.
    pub fn watch(
        &self,
        whose: Whose,
        name: &str,
        report_only: bool,
    ) -> Result<(Child, OwnedFd), Error> {
        self.chain(name)?;
        if quiet_shield::current(&System, &self.state).map_err(of_shield)?.is_none() {
            return Err(Error::Asked("no shield is up to watch over: apply one first".into()));
        }
        // What puts the shield right changes it, by a chain that may be another than its owner's.
        if let Whose::Of(uid) = whose
            && !report_only
            && !self.is_left_to(uid)?
        {
            return Err(Error::NotAllowed(format!("the shield is another's than user {uid}'s")));
        }
        let failed = |e: io::Error| Error::Failed(format!("cannot start a watch: {e}"));
        let mut command = Command::new(&self.program);
        command.arg("watch").arg(name).arg("--state").arg(&self.state);
        command.arg("--chains").arg(self.approved.dir());
        if report_only {
            command.arg("--report-only");
        }
        let mut child = command
            .current_dir("/")
            .env_clear()
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .map_err(failed)?;
        let events = child.stdout.take().ok_or_else(|| failed(io::ErrorKind::BrokenPipe.into()))?;
        Ok((child, events.into()))
    }

    /// Has CPUs of the shield that is up watched by a process of its own: the line that ends it, and the pipe that has what it saw
    /// then, as [`quiet_linux::trace`] has it, as JSON.
    ///
    /// # Errors
    /// When the CPUs are not within the shield, or the process cannot be started.
    pub fn trace(&self, cpus: &CpuSet) -> Result<(Child, OwnedFd, OwnedFd), Error> {
        let shield = quiet_shield::current(&System, &self.state).map_err(of_shield)?;
        if cpus.is_empty() || !shield.is_some_and(|shield| cpus.is_subset(&shield.cpus)) {
            return Err(Error::NotAllowed(format!("CPU {cpus} is not within a shield")));
        }
        let failed = |e: io::Error| Error::Failed(format!("cannot start to watch: {e}"));
        let mut child = Command::new(&self.program)
            .arg("trace")
            .arg(cpus.to_string())
            .current_dir("/")
            .env_clear()
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .map_err(failed)?;
        match (child.stdin.take(), child.stdout.take()) {
            (Some(line), Some(seen)) => Ok((child, line.into(), seen.into())),
            _ => Err(failed(io::ErrorKind::BrokenPipe.into())),
        }
    }

    /// An approved chain.
    ///
    /// # Errors
    /// When there is none of that name, or the machine cannot be read.
    pub fn chain(&self, name: &str) -> Result<Chain, Error> {
        self.approved.chain(name, &known_cpus()?)
    }

    /// Confirms the shield that is up; whether it was waited for.
    ///
    /// # Errors
    /// As [`quiet_shield::confirm`].
    pub fn confirm(&self, whose: Whose) -> Result<bool, Error> {
        quiet_shield::overdue(&System, &self.state).map_err(of_shield)?;
        let done = match whose {
            Whose::Anybodys => quiet_shield::confirm(&System, &self.state),
            Whose::Of(uid) => quiet_shield::confirm_own(&System, &self.state, uid),
        };
        done.map_err(of_shield)
    }

    /// Whether what is up is user `uid`'s to put back: his own, or nothing at all.
    ///
    /// # Errors
    /// When the journal cannot be read.
    pub fn is_left_to(&self, uid: u32) -> Result<bool, Error> {
        let by = quiet_shield::applied_by(&self.state).map_err(of_shield)?;
        Ok(by.is_none_or(|by| by.is_left_to(uid)))
    }

    /// Puts the machine back, and removes the trace instances of killed programs; `None` where nothing was to be done.
    ///
    /// # Errors
    /// As [`quiet_shield::revert`].
    pub fn revert(&self, whose: Whose) -> Result<Option<Reverted>, Error> {
        let done = match whose {
            Whose::Anybodys => quiet_shield::revert(&System, &self.state),
            Whose::Of(uid) => quiet_shield::revert_own(&System, &self.state, uid),
        };
        let done = done.map_err(of_shield)?;
        let traces = swept();
        Ok(match (done, traces.is_empty()) {
            (None, false) => Some(Reverted {
                schema: REVERTED_SCHEMA.into(),
                rebooted: false,
                items: traces,
                history: None,
            }),
            (Some(mut done), _) => {
                done.items.extend(traces);
                Some(done)
            }
            (None, true) => None,
        })
    }

    /// Lets a thread of user `uid` into the shield that is up; `asks` says whether who asked is still there.
    ///
    /// # Errors
    /// As [`quiet_shield::admit`].
    pub fn admit(
        &self,
        uid: u32,
        wish: &ThreadWish,
        asks: &dyn Fn() -> bool,
    ) -> Result<Admitted, Error> {
        let shield = quiet_shield::current(&System, &self.state).map_err(of_shield)?;
        let mount = match shield.map(|shield| shield.mechanism) {
            Some(Mechanism::PartitionV2) => mounts()?.v2,
            Some(Mechanism::SetsV1) => mounts()?.v1_cpuset,
            Some(Mechanism::Affinity) | None => None,
        };
        let entrant = Entrant {
            tid: wish.tid,
            uid,
            cpus: wish.cpus.clone(),
            scheduling: wish.scheduling,
            mount,
            most: MOST_THREADS,
        };
        // Who plays is not to share; who is refused ends nobody's loan.
        quiet_shield::admissible(&System, &self.state, &entrant).map_err(of_shield)?;
        quiet_shield::take_back(&System, &self.state, LoanEnd::Sound, None).map_err(of_shield)?;
        quiet_shield::admit(&System, &self.state, &entrant, asks).map_err(of_shield)
    }

    /// Lets a thread of user `uid` out of the shield again.
    ///
    /// # Errors
    /// As [`quiet_shield::release`].
    pub fn release(&self, uid: u32, tid: u32) -> Result<Released, Error> {
        quiet_shield::release(&System, &self.state, tid, uid).map_err(of_shield)
    }

    /// Lends the CPUs of the shield that is up.
    ///
    /// # Errors
    /// As [`quiet_shield::lend`].
    pub fn lend(&self, whose: Whose, terms: &LoanTerms) -> Result<Lent, Error> {
        let options = LoanOptions { guard: Some(&self.program), uid: whose.uid() };
        quiet_shield::lend(&System, &self.state, terms, options).map_err(of_shield)
    }

    /// Takes lent CPUs back; `None` where none are lent.
    ///
    /// # Errors
    /// As [`quiet_shield::take_back`].
    pub fn take_back(&self, whose: Whose) -> Result<Option<Reclaimed>, Error> {
        quiet_shield::take_back(&System, &self.state, LoanEnd::Hand, whose.uid()).map_err(of_shield)
    }

    /// What becomes of the shield, by whomever.
    pub fn lookout(&self) -> Lookout {
        Lookout::new(&self.state)
    }

    /// The threads that the shield which is up made real-time.
    pub fn raised(&self) -> Vec<(Thread, Scheduling)> {
        quiet_shield::raised(&self.state).unwrap_or_default()
    }

    /// Notes threads that were demoted, with what each had.
    ///
    /// # Errors
    /// As [`quiet_shield::note_demoted`].
    pub fn note_demoted(&self, threads: &[(Thread, Scheduling)]) -> Result<(), Error> {
        quiet_shield::note_demoted(&System, &self.state, threads).map_err(of_shield)
    }

    /// The shield as it is, with its chain, and what was asked of this boot.
    ///
    /// # Errors
    /// When the journal, or the machine, cannot be read.
    pub fn status(&self) -> Result<Status, Error> {
        let mut status = quiet_shield::status(&System, &self.state).map_err(of_shield)?;
        let record = quiet_boot::record(&self.state).map_err(|e| Error::Failed(e.to_string()))?;
        if let Some(record) = record {
            status.boot = quiet_plan::boot::compare(&record.asked, &machine()?);
        }
        if let (ShieldStanding::Up, Some(shield)) = (status.state, &status.shield)
            && !status.links.is_empty()
        {
            status.chain = astray(&status.links, shield)?;
        }
        if rustix::process::geteuid().is_root() {
            // A kernel without tracefs has none.
            status.traces = quiet_linux::trace::leftovers().unwrap_or_default();
        }
        Ok(status)
    }
}

/// Where a step of `applied` had others started anew: waits until they are there, and places them as the plan's links say. What that
/// takes is added to `applied`.
///
/// # Errors
/// When the machine or the journal cannot be read. The shield is up all the same.
pub fn settle(plan: &Plan, applied: &mut Applied, setup: &ApplyOptions<'_>) -> Result<(), Error> {
    let is_anew = |taken: &Taken| {
        matches!(&taken.step.action, Action::DropIn { restart, .. } if !restart.is_empty())
            && matches!(taken.outcome, Outcome::Done { .. })
    };
    if !applied.steps.iter().any(is_anew) {
        return Ok(());
    }
    let chain = Chain {
        name: plan.chain.clone(),
        cpus: Choice::These(plan.shield.cpus.clone()),
        mode: plan.mode,
        links: plan.links.clone(),
        ..Chain::default()
    };
    let known: Vec<&str> = plan.findings.iter().map(|finding| finding.title.as_str()).collect();
    let until = Instant::now() + STARTED;
    loop {
        let machine = machine()?;
        let fresh = quiet_plan::plan(&machine, &chain)
            .map_err(|e| Error::Failed(format!("cannot place what was started anew: {e}")))?;
        let is_missing = |finding: &Finding| {
            matches!(finding.id.as_str(), "plan.link-absent" | "plan.thread-absent")
                && !known.contains(&finding.title.as_str())
        };
        if Instant::now() < until && fresh.findings.iter().any(is_missing) {
            sleep(PAUSE);
            continue;
        }
        let taken = quiet_shield::look_again(&System, &fresh, setup).map_err(of_shield)?;
        applied.steps.extend(taken);
        return Ok(());
    }
}

/// What of a chain is not where it should be, by a look that disturbs no CPU.
///
/// # Errors
/// When the machine cannot be read.
pub fn astray(links: &[Link], shield: &Shield) -> Result<Vec<Finding>, Error> {
    Ok(quiet_plan::astray(&machine()?, links, shield))
}

/// The machine, by a look that disturbs no CPU.
fn machine() -> Result<Machine, Error> {
    let options = Options { command_lines: CommandLines::None };
    Root::system().and_then(|root| glance(&root, options)).map_err(unreadable)
}

/// Where the cpuset cgroups are mounted, without a look at the rest of the machine.
fn mounts() -> Result<Cgroups, Error> {
    Root::system().and_then(|root| cgroup_mounts(&root)).map_err(unreadable)
}

fn unreadable(error: quiet_linux::Error) -> Error {
    Error::Failed(format!("cannot read the machine: {error}"))
}

/// The CPUs that a chain may name, without a look at the rest of the machine.
fn known_cpus() -> Result<CpuSet, Error> {
    let list = |name: &str| {
        let text = System.read(&format!("/sys/devices/system/cpu/{name}")).ok()?;
        text.trim().parse::<CpuSet>().ok()
    };
    match (list("present"), list("online")) {
        (Some(present), Some(online)) => Ok(present.union(&online)),
        _ => machine().map(|machine| cpus(&machine)),
    }
}

/// As [`known_cpus`], of a machine that was looked at.
fn cpus(machine: &Machine) -> CpuSet {
    let there: CpuSet = machine.cpus.iter().map(|cpu| cpu.id).collect();
    there.union(&machine.online)
}

pub(crate) fn of_shield(error: quiet_shield::Error) -> Error {
    match error.kind() {
        ErrorKind::Busy => Error::Busy(error.to_string()),
        ErrorKind::Refused => Error::NotAllowed(error.to_string()),
        _ => Error::Failed(error.to_string()),
    }
}

/// Removes trace instances that killed programs have left on.
fn swept() -> Vec<PutBack> {
    // Without root, or without tracefs, there is nothing that could be removed.
    let found = quiet_linux::trace::sweep().unwrap_or_default();
    let gone = found.into_iter().map(|(name, gone)| PutBack {
        what: format!("trace instance {name}"),
        outcome: match gone {
            true => Return::Restored,
            false => Return::Refused { reason: "somebody reads it; end that program".into() },
        },
    });
    gone.collect()
}
