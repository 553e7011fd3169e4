//! `farm join`, `leave`, `status`

use crate::{face, keep};
use anyhow::{Context, bail};
use quiet_farm::{BOUND, MEMBER_SCHEMA, MemberDir, Membership, Outbox, Servers};
use quiet_linux::Root;
use quiet_store::Store;
use quiet_types::farm::{self, FarmLeft, FarmMember, FarmStatus};
use std::{
    path::{Path, PathBuf},
    process::ExitCode,
    time::{SystemTime, UNIX_EPOCH},
};

/// Agree that records of what this machine keeps leave it
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  quietcores farm join tls://farm.example:4222 --credentials me.creds --show
  quietcores farm join tls://farm.example:4222 --credentials me.creds --as studio-3 --yes
  quietcores farm join --yes            no server: the outbox is collected by hand
Nothing is sent by this: `farm send` does it. `farm leave` ends it.")]
pub struct JoinArgs {
    /// Servers, as tls://farm.example:4222, joined by commas; without one records wait to be collected
    #[arg(value_name = "URL", default_value = "")]
    url: String,
    /// List what would leave this machine, and change nothing
    #[arg(long)]
    show: bool,
    /// Agree to it
    #[arg(long)]
    yes: bool,
    /// A pseudonym in place of this machine's name: letters, digits, - and _
    #[arg(long = "as", value_name = "NAME")]
    pseudonym: Option<String>,
    /// Leave names of threads out
    #[arg(long)]
    no_thread_names: bool,
    /// Tell of playing chains too: a histogram of each five minutes
    #[arg(long)]
    live: bool,
    /// Also what was kept before now
    #[arg(long)]
    all: bool,
    /// Credentials for the servers: a user's JWT and seed, or a seed
    #[arg(long, value_name = "FILE")]
    credentials: Option<PathBuf>,
    /// Certificates of whoever signs the servers' (PEM)
    #[arg(long, value_name = "FILE")]
    ca: Option<PathBuf>,
    /// What the outbox may hold, MiB
    #[arg(long, value_name = "MIB", default_value_t = BOUND >> 20)]
    bound: u64,
    /// The store that is told of [default: $XDG_DATA_HOME/quietcores]
    #[arg(long, value_name = "DIR")]
    store: Option<PathBuf>,
    /// Print the result as JSON on standard output
    #[arg(long)]
    json: bool,
}

/// End it: nothing is made or sent any more
#[derive(clap::Args)]
pub struct LeaveArgs {
    /// The store that was told of [default: $XDG_DATA_HOME/quietcores]
    #[arg(long, value_name = "DIR")]
    store: Option<PathBuf>,
    /// Print the result as JSON on standard output
    #[arg(long)]
    json: bool,
}

/// Show what was agreed to, and what waits
#[derive(clap::Args)]
pub struct StatusArgs {
    /// The store that is told of [default: $XDG_DATA_HOME/quietcores]
    #[arg(long, value_name = "DIR")]
    store: Option<PathBuf>,
    /// Print the result as JSON on standard output
    #[arg(long)]
    json: bool,
}

/// The member's folder beside a store.
pub fn member_dir(store: &Store) -> MemberDir {
    MemberDir::beside(store.dir())
}

/// ms since 1970.
pub fn now() -> i64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis() as i64)
}

fn absolute(path: Option<&Path>) -> anyhow::Result<Option<PathBuf>> {
    path.map(|path| path.canonicalize().with_context(|| format!("cannot find {}", path.display())))
        .transpose()
}

pub fn join(args: JoinArgs) -> anyhow::Result<ExitCode> {
    let store = keep::store(args.store.as_deref())?;
    let host = quiet_probe::host(&Root::system()?)?;
    let name = args.pseudonym.as_deref().unwrap_or(&host.name);
    if args.pseudonym.is_some() && !quiet_farm::sealed::is_name(name) {
        bail!("cannot take the pseudonym {name}: 1 to 63 letters, digits, - and _");
    }
    let member = Membership {
        schema: MEMBER_SCHEMA.to_owned(),
        url: args.url.clone(),
        host: quiet_farm::sealed::plain_name(name),
        pseudonym: args.pseudonym.is_some(),
        no_thread_names: args.no_thread_names,
        live: args.live,
        since: if args.all { 0 } else { now() },
        credentials: absolute(args.credentials.as_deref())?,
        ca: absolute(args.ca.as_deref())?,
        bound: args.bound << 20,
    };
    if !member.url.is_empty() {
        servers(&member).check()?;
    }
    let whom = if member.url.is_empty() { "whoever collects the outbox" } else { &member.url };
    let mut text = format!("What leaves this machine, to {whom}:\n");
    for line in member.leaves() {
        text += &format!("  {line}\n");
    }
    if !args.json {
        face::print(&text)?;
    }
    if args.show {
        if args.json {
            face::print_json(&told(&member, None))?;
        }
        return Ok(ExitCode::SUCCESS);
    }
    if !args.yes {
        bail!("nothing was agreed to; `--yes` agrees to what is listed above");
    }
    let key = keep::as_owner(store.owner(), || member_dir(&store).join(&member))??;
    if args.json {
        face::print_json(&told(&member, Some(key.public().to_string())))?;
        return Ok(ExitCode::SUCCESS);
    }
    face::print(&format!(
        "joined as {}\nfor the collectors' list of machines:\n{} {}\n",
        member.host,
        member.host,
        key.public()
    ))?;
    Ok(ExitCode::SUCCESS)
}

/// What was agreed to, as JSON has it.
fn told(member: &Membership, key: Option<String>) -> FarmMember {
    FarmMember {
        schema: farm::MEMBER.to_owned(),
        host: member.host.clone(),
        to: member.url.clone(),
        leaves: member.leaves(),
        key,
    }
}

/// The servers of a member.
pub fn servers(member: &Membership) -> Servers {
    Servers {
        url: member.url.clone(),
        credentials: member.credentials.clone(),
        ca: member.ca.clone(),
    }
}

pub fn leave(args: LeaveArgs) -> anyhow::Result<ExitCode> {
    let store = keep::store(args.store.as_deref())?;
    let left = keep::as_owner(store.owner(), || member_dir(&store).leave())??;
    if args.json {
        face::print_json(&FarmLeft { schema: farm::LEFT.to_owned(), left })?;
        return Ok(ExitCode::SUCCESS);
    }
    face::print(if left {
        "left: nothing is made or sent any more\n"
    } else {
        "this machine is in no farm\n"
    })?;
    Ok(ExitCode::SUCCESS)
}

pub fn status(args: StatusArgs) -> anyhow::Result<ExitCode> {
    let store = keep::store(args.store.as_deref())?;
    let dir = member_dir(&store);
    let Some(member) = dir.membership()? else {
        if args.json {
            face::print_json(&FarmStatus {
                schema: farm::STATUS.to_owned(),
                member: None,
                waiting: 0,
                size: 0,
                bound: 0,
                added_up: 0,
                dropped: 0,
            })?;
            return Ok(ExitCode::SUCCESS);
        }
        face::print("this machine is in no farm\n")?;
        return Ok(ExitCode::SUCCESS);
    };
    let outbox = keep::as_owner(store.owner(), || Outbox::open(&dir))??;
    let thinned = outbox.thinned();
    if args.json {
        face::print_json(&FarmStatus {
            schema: farm::STATUS.to_owned(),
            member: Some(told(&member, dir.key()?.map(|key| key.public().to_string()))),
            waiting: outbox.waiting().len(),
            size: outbox.size(),
            bound: member.bound,
            added_up: thinned.added_up,
            dropped: thinned.dropped,
        })?;
        return Ok(ExitCode::SUCCESS);
    }
    let whom = if member.url.is_empty() { "no server" } else { &member.url };
    let mut text = format!("in a farm as {}, {whom}\n", member.host);
    for line in member.leaves() {
        text += &format!("  {line}\n");
    }
    text += &format!(
        "{} records wait, {} KiB of {}\n",
        outbox.waiting().len(),
        outbox.size().div_ceil(1024),
        member.bound >> 10
    );
    if thinned.added_up + thinned.dropped > 0 {
        text += &format!(
            "the outbox was full: {} records of playing chains were added up by the hour, {} dropped\n",
            thinned.added_up, thinned.dropped
        );
    }
    face::print(&text)?;
    Ok(ExitCode::SUCCESS)
}
