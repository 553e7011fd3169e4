//! What takes the steps of a setup: root at a terminal, or the service that holds the rights. Each act is another verb's.

use super::Args;
use crate::progress::Progress;
use crate::verbs::{apply, confirm, persist, prove, revert};
use anyhow::{Context, bail};
use clap::Parser;
use quiet_experiment::{ShieldWish, machine, make_way};
use quiet_linux::Root;
use quiet_types::{Plan, plan::Applied, said::Persisted};
use std::{ffi::OsString, path::PathBuf, sync::atomic::AtomicBool};

/// Who acts.
enum Who {
    /// This process is root, and has the chain in a file.
    Root {
        /// The file.
        file: PathBuf,
        /// Its plan.
        plan: Box<Plan>,
    },
    /// An approved chain, by its name.
    Service(String),
}

/// What takes the steps.
pub struct Hands<'a> {
    args: &'a Args,
    who: Who,
}

/// Arguments of another verb, with its own defaults.
#[derive(Parser)]
struct Alone<A: clap::Args> {
    #[command(flatten)]
    args: A,
}

fn words<A: clap::Args>(words: Vec<OsString>) -> anyhow::Result<A> {
    let all = std::iter::once(OsString::from("quietcores")).chain(words);
    Ok(Alone::<A>::try_parse_from(all)?.args)
}

impl<'a> Hands<'a> {
    /// Root, with the chain in a file.
    pub fn root(args: &'a Args, file: PathBuf, plan: Plan) -> Hands<'a> {
        Hands { args, who: Who::Root { file, plan: Box::new(plan) } }
    }

    /// The service, with an approved chain.
    pub fn service(args: &'a Args, name: String) -> Hands<'a> {
        Hands { args, who: Who::Service(name) }
    }

    /// The shield of the plan that was shown, up until it is confirmed.
    pub fn up(&self, confirm: u64, stop: &AtomicBool) -> anyhow::Result<Applied> {
        match &self.who {
            Who::Root { plan, .. } => apply::put_up(plan, &self.args.state, Some(confirm), stop),
            Who::Service(name) => apply::put_up_by_service(name, Some(confirm)),
        }
    }

    /// The same shield again: the same CPUs, and what runs by now.
    pub fn up_again(&self, stop: &AtomicBool) -> anyhow::Result<Applied> {
        match &self.who {
            Who::Root { file, plan } => {
                let wish = ShieldWish {
                    chain: Some(file.clone()),
                    cpus: Some(plan.shield.cpus.clone()),
                    ..ShieldWish::default()
                };
                make_way(&self.args.state, &Progress::new())?;
                let plan = quiet_experiment::plan_to_apply(
                    &wish,
                    machine(&Root::system()?)?,
                    &self.args.state,
                )?;
                apply::put_up(&plan, &self.args.state, None, stop)
            }
            Who::Service(name) => apply::put_up_by_service(name, None),
        }
    }

    /// The shield stays.
    pub fn confirm(&self) -> anyhow::Result<()> {
        confirm::confirmed(&self.args.state).map(drop)
    }

    /// The machine as it was.
    pub fn down(&self) -> anyhow::Result<()> {
        let done = revert::put_back(&self.args.state)?;
        if done.is_some_and(|done| !done.is_complete()) {
            bail!("the machine is not put back as a whole; `quietcores revert` says what is left");
        }
        Ok(())
    }

    /// A proof of the chain.
    pub fn prove(&self, stop: &AtomicBool) -> anyhow::Result<prove::Made> {
        let mut asked = vec![self.chain(), "--pairs".into(), self.args.pairs.to_string().into()];
        asked.extend(["--state".into(), self.args.state.clone().into()]);
        if let Some(store) = &self.args.store {
            asked.extend(["--store".into(), store.clone().into()]);
        }
        prove::made(words(asked)?, stop)
    }

    /// What the next boots are asked for; `None` where that is not this user's to ask, or `agree` does not.
    pub fn persist(
        &self,
        agree: impl FnOnce(&str) -> anyhow::Result<bool>,
    ) -> anyhow::Result<Option<Persisted>> {
        let Who::Root { plan, .. } = &self.who else { return Ok(None) };
        let asked: Vec<OsString> = vec![
            self.chain(),
            "--cpus".into(),
            // Those that were proven, whatever would be chosen later.
            plan.shield.cpus.to_string().into(),
            "--state".into(),
            self.args.state.clone().into(),
        ];
        persist::persisted(&words(asked).context("cannot ask for the next boots")?, agree)
    }

    fn chain(&self) -> OsString {
        match &self.who {
            Who::Root { file, .. } => file.clone().into(),
            Who::Service(name) => name.into(),
        }
    }

    fn shown(&self) -> String {
        quiet_types::printable(&self.chain().to_string_lossy(), 300)
    }

    fn sudo(&self) -> &'static str {
        match self.who {
            Who::Root { .. } => "sudo ",
            Who::Service(_) => "",
        }
    }

    /// What a person types for [`Hands::up`].
    pub fn apply_command(&self) -> String {
        format!("`{}quietcores apply {}`", self.sudo(), self.shown())
    }

    /// What a person types for [`Hands::prove`].
    pub fn prove_command(&self) -> String {
        format!("`{}quietcores prove {}`", self.sudo(), self.shown())
    }

    /// What a person types for [`Hands::persist`].
    pub fn persist_command(&self) -> String {
        let chain = match &self.who {
            Who::Root { .. } => self.shown(),
            Who::Service(name) => format!("{}/{name}.toml", quiet_service::CHAINS),
        };
        format!("`sudo quietcores persist {chain}`")
    }
}
