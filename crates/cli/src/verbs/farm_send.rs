//! `farm send`

use super::farm_member::{member_dir, now, servers};
use crate::{face, hands::status_reader, keep};
use anyhow::bail;
use quiet_farm::{Agent, Around, Membership, NowHere, Outbox, SecretKey};
use quiet_linux::{CommandLines, Options, Root, glance};
use quiet_live::Engines;
use quiet_store::Store;
use quiet_types::{
    Nanos,
    farm::{FarmSent, SENT},
    plan::Status,
};
use std::{
    path::PathBuf,
    process::ExitCode,
    sync::atomic::AtomicBool,
    time::{Duration, Instant},
};

/// Make records of what is new, and send what waits
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  quietcores farm send                    once; for a timer
  quietcores farm send --follow           every five minutes, playing chains too where that was agreed to
What cannot be sent waits in the outbox. Exit status: 0 everything was sent; 1 something waits.")]
pub struct SendArgs {
    /// Go on, every --every
    #[arg(long)]
    follow: bool,
    /// How often, 10s to 1h
    #[arg(long, value_name = "TIME", default_value = "5min")]
    every: Nanos,
    /// The store that is told of [default: $XDG_DATA_HOME/quietcores]
    #[arg(long, value_name = "DIR")]
    store: Option<PathBuf>,
    /// Directory of the shield's journal
    #[arg(long, value_name = "DIR", default_value = quiet_linux::files::DEFAULT_STATE)]
    state: PathBuf,
    /// Print the result as JSON on standard output, a line each time
    #[arg(long)]
    json: bool,
}

pub fn send(args: SendArgs) -> anyhow::Result<ExitCode> {
    let every = Duration::from_nanos(args.every.0);
    if args.follow && !(Duration::from_secs(10)..=Duration::from_secs(3600)).contains(&every) {
        bail!("cannot look every {}: 10s to 1h", args.every);
    }
    let store = keep::store(args.store.as_deref())?;
    let stop = face::interrupt()?;
    let mut status = status_reader(&args.state);
    let mut engines = Engines::at(quiet_engine::control::private_dir().ok());
    let mut agent = Agent::default();
    loop {
        let began = Instant::now();
        // Read each time: `farm leave` ends it.
        let dir = member_dir(&store);
        let (Some(member), Some(key)) = (dir.membership()?, dir.key()?) else {
            bail!(
                "this machine is in no farm; `quietcores farm join --show` says what joining means"
            );
        };
        if args.follow {
            keep::as_owner(store.owner(), || agent.follow(&dir))??;
        }
        let here = here(&mut engines, status().ok().as_ref())?;
        let told = keep::as_owner(store.owner(), || {
            once(&store, &member, &key, &mut agent, &here, &stop)
        })?;
        let told = match told {
            Ok(told) => told,
            Err(error) if args.follow => {
                face::say(&format!("quietcores: {error:#}"));
                FarmSent { trouble: Some(format!("{error:#}")), ..nothing() }
            }
            Err(error) => return Err(error),
        };
        if args.json {
            face::print_line(&serde_json::to_string(&told)?)?;
        }
        let all = told.trouble.is_none() && (told.waiting == 0 || member.url.is_empty());
        if !args.follow || face::raised(&stop) {
            return Ok(if all { ExitCode::SUCCESS } else { ExitCode::from(face::FINDINGS) });
        }
        while began.elapsed() < every && !face::raised(&stop) {
            std::thread::sleep(Duration::from_millis(100));
        }
        if face::raised(&stop) {
            return Ok(ExitCode::SUCCESS);
        }
    }
}

fn nothing() -> FarmSent {
    let schema = SENT.to_owned();
    FarmSent { schema, new: 0, sent: 0, waiting: 0, left_out: Vec::new(), trouble: None }
}

/// One pass.
fn once(
    store: &Store,
    member: &Membership,
    key: &SecretKey,
    agent: &mut Agent,
    here: &NowHere,
    stop: &AtomicBool,
) -> anyhow::Result<FarmSent> {
    let dir = member_dir(store);
    let mut outbox = Outbox::open(&dir)?;
    let passed = agent.pass(store, &dir, member, key, &mut outbox, here)?;
    for why in &passed.left_out {
        face::say(&format!("quietcores: left out: {why}"));
    }
    if passed.thinned != quiet_farm::Thinned::default() {
        let thinned = passed.thinned;
        face::say(&format!(
            "the outbox is full: {} records of playing chains were added up by the hour, {} dropped",
            thinned.added_up, thinned.dropped
        ));
    }
    if member.url.is_empty() {
        face::say(&format!(
            "{} new records; {} wait to be collected",
            passed.put,
            outbox.waiting().len()
        ));
        let waiting = outbox.waiting().len();
        return Ok(FarmSent { new: passed.put, waiting, left_out: passed.left_out, ..nothing() });
    }
    let before = outbox.waiting().len();
    let done = quiet_farm::send(&mut outbox, &servers(member), &member.host, key, stop);
    let waiting = outbox.waiting().len();
    match &done {
        Ok(sent) => face::say(&format!("{} new records, {} sent", passed.put, sent.records)),
        Err(error) => face::say(&format!("quietcores: {error}; {waiting} records wait")),
    }
    Ok(FarmSent {
        new: passed.put,
        sent: (before - waiting) as u64,
        waiting,
        left_out: passed.left_out,
        trouble: done.err().map(|error| error.to_string()),
        ..nothing()
    })
}

/// This machine now. No file is read that a kernel answers by interrupting every CPU.
fn here(engines: &mut Engines, status: Option<&Status>) -> anyhow::Result<NowHere> {
    let root = Root::system()?;
    let host = quiet_probe::host(&root)?;
    let machine = glance(&root, Options { command_lines: CommandLines::None })?;
    let shield = status.map(|status| match &status.shield {
        Some(shield) => format!("shield of CPU {} up", shield.cpus),
        None => "no shield".to_owned(),
    });
    let around = Around {
        board: machine.board.unwrap_or_default(),
        boot_id: host.boot_id.clone(),
        parameters: machine.kernel.boot_parameters,
        chain: String::new(),
    };
    Ok(NowHere { at: now(), host, around, shield, sounds: engines.look() })
}
