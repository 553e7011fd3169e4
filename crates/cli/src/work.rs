//! What the live faces have a verb called by: this very program, with its own verbs.

use crate::{user, verbs::plan::Wished};
use quiet_live::{Program, VerbCall};
use std::{
    fs::DirBuilder,
    os::unix::fs::DirBuilderExt,
    path::{Path, PathBuf, absolute},
    process::Command,
    sync::Arc,
};

/// Where `setup` writes its chains when a face calls it, and where a chain is found that is named to one: no other file of this user's is.
fn chains_dir() -> Option<PathBuf> {
    let dir = user::state_dir()?.join("chains");
    DirBuilder::new().recursive(true).mode(0o700).create(&dir).ok()?;
    Some(dir)
}

/// The commands of calls, for a face that was started with these.
///
/// # Errors
/// When there is no current directory.
pub fn program(wished: &Wished, state: &Path, store: Option<&Path>) -> anyhow::Result<Program> {
    let mut own = wished.wish();
    let there = own.chain.as_deref().filter(|chain| chain.exists()).map(absolute).transpose()?;
    // A name of an approved or a ready-made chain stays one.
    own.chain = there.or(own.chain);
    let (state, store) = (absolute(state)?, store.map(absolute).transpose()?);
    let folder = chains_dir().unwrap_or_else(|| PathBuf::from("/"));
    Ok(Arc::new(move |call: &VerbCall| {
        // Also where a package has put another program in its place meanwhile.
        let mut command = Command::new("/proc/self/exe");
        command.args(&call.words).current_dir(&folder);
        if call.own.state {
            command.arg("--state").arg(&state);
        }
        if let Some(store) = store.as_ref().filter(|_| call.own.store) {
            command.arg("--store").arg(store);
        }
        if call.own.shield {
            command.args(&own.chain);
            command.args(own.cpus.iter().flat_map(|cpus| ["--cpus".to_owned(), cpus.to_string()]));
            command.args(own.never_sleep.then_some("--never-sleep"));
            command.args(own.smt_off.then_some("--smt-off"));
        }
        command
    }))
}
