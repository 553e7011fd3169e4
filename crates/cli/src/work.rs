//! What a job of the live faces runs: this very program, with its own verbs.

use crate::verbs::plan::Wished;
use quiet_live::JobCommand;
use quiet_types::{CpuSet, live::JobWish};
use std::{
    path::{Path, PathBuf},
    process::Command,
};

/// The command of a wish, for a face that was started with these.
pub fn command(wished: &Wished, state: &Path, store: Option<&Path>) -> JobCommand {
    let (own, state) = (wished.wish(), state.to_owned());
    let store = store.map(Path::to_owned);
    Box::new(move |wish| {
        // This very program, also where a package has put another one in its place meanwhile.
        let mut command = Command::new("/proc/self/exe");
        let shield = |command: &mut Command, cpus: &Option<CpuSet>| {
            let chain: Option<&PathBuf> = own.chain.as_ref().filter(|_| cpus.is_none());
            command.args(chain);
            if let Some(cpus) = cpus.as_ref().or(own.cpus.as_ref()) {
                command.arg("--cpus").arg(cpus.to_string());
            }
        };
        match wish {
            JobWish::Measure { probe, cpus, seconds, stress } => {
                command.args(["measure", probe.word(), "--cpus", &cpus.to_string()]);
                command.args(["--for", &format!("{seconds}s")]);
                if !stress.is_empty() {
                    command.args(["--stress", &stress.join(",")]);
                }
            }
            JobWish::Prove { cpus, pairs } => {
                command.args(["prove", "--pairs", &pairs.to_string()]);
                shield(&mut command, cpus);
            }
            JobWish::Tune { cpus, seconds } => {
                command.args(["tune", "--for", &format!("{seconds}s")]);
                shield(&mut command, cpus);
            }
        }
        command.arg("--json").arg("--state").arg(&state);
        if let Some(store) = &store {
            command.arg("--store").arg(store);
        }
        command
    })
}
