//! `farm collect`, `farm serve`

use crate::{face, keep};
use anyhow::Context;
use quiet_farm::{Collector, ReadTo, Servers, Trust};
use quiet_linux::files;
use quiet_types::farm::{FarmGathered, GATHERED};
use std::{
    path::{Path, PathBuf},
    process::ExitCode,
};

/// Which collector, and whom it believes.
#[derive(clap::Args)]
pub struct Where {
    /// The collector's database [default: farm.sqlite in the store]
    #[arg(long, value_name = "FILE", conflicts_with = "store")]
    db: Option<PathBuf>,
    /// The store whose farm.sqlite it is [default: this user's]
    #[arg(long, value_name = "DIR")]
    store: Option<PathBuf>,
}

/// Whom a collector believes.
#[derive(clap::Args)]
pub struct Believed {
    /// Believe these machines alone: a line each, NAME and KEY, as `farm join` prints it [default: a name keeps its first key]
    #[arg(long, value_name = "FILE")]
    hosts: Option<PathBuf>,
    /// Days for which each record of a playing chain is kept beside the sums [default: for ever]
    #[arg(long, value_name = "DAYS")]
    raw_days: Option<u32>,
}

/// Read stores and outboxes that were copied from machines
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  quietcores farm collect /media/stick /srv/rsync
  quietcores farm collect --db lab.sqlite boxes/
A record counts once, however often it comes. Records of an outbox are believed by their signatures, what a
store keeps as it lies there. Exit status: 1 where something was left out.")]
pub struct CollectArgs {
    /// Folders that hold stores
    #[arg(value_name = "DIR", required = true)]
    dirs: Vec<PathBuf>,
    #[command(flatten)]
    place: Where,
    #[command(flatten)]
    believed: Believed,
    /// Print the result as JSON on standard output
    #[arg(long)]
    json: bool,
}

/// Be a collector: read the servers' stream into a database
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  quietcores farm serve tls://farm.example:4222 --credentials collector.creds --make 3
  quietcores farm serve tls://farm.example:4222 --credentials collector.creds --hosts machines.txt
Any number of collectors may read beside each other; a new one reads the stream from its beginning.")]
pub struct ServeArgs {
    /// Servers, joined by commas
    #[arg(value_name = "URL")]
    url: String,
    /// Credentials for the servers: a user's JWT and seed, or a seed
    #[arg(long, value_name = "FILE")]
    credentials: Option<PathBuf>,
    /// Certificates of whoever signs the servers' (PEM)
    #[arg(long, value_name = "FILE")]
    ca: Option<PathBuf>,
    /// Make the stream where there is none, on so many servers
    #[arg(long, value_name = "REPLICAS")]
    make: Option<usize>,
    /// Read up to what is there now, and end
    #[arg(long)]
    once: bool,
    #[command(flatten)]
    place: Where,
    #[command(flatten)]
    believed: Believed,
    /// Print the result as JSON on standard output
    #[arg(long)]
    json: bool,
}

impl Where {
    /// The collector, opened; made where there is none and that is meant.
    pub fn open(&self, trust: Trust, make: bool) -> anyhow::Result<Collector> {
        let path = match &self.db {
            Some(path) => path.clone(),
            None => {
                let dir = keep::store(self.store.as_deref())?.dir().to_owned();
                files::make_dir(&dir).with_context(|| format!("cannot make {}", dir.display()))?;
                dir.join("farm.sqlite")
            }
        };
        if !make && !path.is_file() {
            anyhow::bail!(
                "there is no collector {}; `quietcores farm collect` or `farm serve` makes one",
                path.display()
            );
        }
        Ok(Collector::open(&path, trust)?)
    }
}

impl Believed {
    fn trust(&self) -> anyhow::Result<Trust> {
        let read = |path: &Path| {
            let text = files::read_text(path, 16 << 20);
            text.with_context(|| format!("cannot read {}", path.display()))
        };
        Ok(match &self.hosts {
            Some(path) => Trust::parse(&read(path)?)?,
            None => Trust::FirstKey,
        })
    }
}

pub fn collect(args: CollectArgs) -> anyhow::Result<ExitCode> {
    let collector = args.place.open(args.believed.trust()?, true)?;
    let mut collector = collector.raw_days(args.believed.raw_days);
    let sum = quiet_farm::collect(&mut collector, &args.dirs)?;
    for why in &sum.left_out {
        face::say(&format!("quietcores: left out: {why}"));
    }
    let ended = if sum.bad > 0 { ExitCode::from(face::FINDINGS) } else { ExitCode::SUCCESS };
    if args.json {
        face::print_json(&FarmGathered {
            schema: GATHERED.to_owned(),
            stores: Some(sum.stores),
            new: sum.new,
            known: sum.repeats,
            refused: sum.bad,
            left_out: sum.left_out,
        })?;
        return Ok(ended);
    }
    face::print(&format!(
        "{} stores: {} new records, {} known, {} left out\n",
        sum.stores, sum.new, sum.repeats, sum.bad
    ))?;
    Ok(ended)
}

pub fn serve(args: ServeArgs) -> anyhow::Result<ExitCode> {
    let servers = Servers { url: args.url, credentials: args.credentials, ca: args.ca };
    servers.check()?;
    let collector = args.place.open(args.believed.trust()?, true)?;
    let mut collector = collector.raw_days(args.believed.raw_days);
    let stop = face::interrupt()?;
    if let Some(replicas) = args.make {
        quiet_farm::make_stream(&servers, replicas)?;
    }
    let reading = if args.once { ReadTo::Once } else { ReadTo::Always };
    let mut tell = |why: &str| face::say(&format!("quietcores: {why}"));
    let gathered = quiet_farm::gather(&mut collector, &servers, reading, &stop, &mut tell)?;
    if args.json {
        face::print_json(&FarmGathered {
            schema: GATHERED.to_owned(),
            stores: None,
            new: gathered.new,
            known: gathered.repeats,
            refused: gathered.refused,
            left_out: Vec::new(),
        })?;
        return Ok(ExitCode::SUCCESS);
    }
    face::print(&format!(
        "{} new records, {} known, {} refused\n",
        gathered.new, gathered.repeats, gathered.refused
    ))?;
    Ok(ExitCode::SUCCESS)
}
