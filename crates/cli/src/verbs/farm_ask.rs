//! `farm ask`, `farm metrics`, `farm page`

use super::{farm_collect::Where, farm_member::now};
use crate::{face, keep::Target};
use anyhow::{Context, bail};
use quiet_farm::{FarmQuestion, MetricsForm, Trust};
use quiet_linux::files;
use quiet_types::{
    farm::{self, FarmMetrics, FarmPage},
    proof::Verdict,
};
use quiet_web::{HttpLimits, ScrapeRules};
use std::{
    net::{SocketAddr, TcpListener},
    path::{Path, PathBuf},
    process::ExitCode,
};

/// Of which records.
#[derive(clap::Args)]
pub struct Asked {
    /// Which records: NAME=VALUE, several joined by commas or as further words
    #[arg(value_name = "CONDITION")]
    conditions: Vec<String>,
    /// Group by these: host, kernel, cpu, board, chain, step, parameter, probe, stress, policy, day
    #[arg(long, value_name = "NAME,...")]
    by: Vec<String>,
    #[command(flatten)]
    place: Where,
}

/// Ask about all machines: percentiles of the sum, late and missed periods, verdicts
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  quietcores farm ask --by kernel last=7              p99.9 by kernel, of the last seven days
  quietcores farm ask --by cpu,kernel step='*partition*' since=2026-11-01
  quietcores farm ask --trend host=studio-3
  quietcores farm ask --changes last=90               what changed, when, and what else did then
Conditions: host, kernel, cpu, board, chain, step, parameter, probe, stress, policy, day with * and ?; since, until (days
of UTC; until is not in it) and last (days). Exit status with --changes: 1 where something got worse.")]
pub struct AskArgs {
    #[command(flatten)]
    asked: Asked,
    /// Day by day
    #[arg(long)]
    trend: bool,
    /// Look for changes of each machine where its kernel or a setting changed
    #[arg(long)]
    changes: bool,
    /// Print the result as JSON on standard output
    #[arg(long)]
    json: bool,
}

/// Print all sums for a Prometheus, or serve them: histograms, true maxima beside them (OpenMetrics)
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  quietcores farm metrics --by host,kernel -o /var/lib/node_exporter/quietcores.prom
  quietcores farm metrics --by host,kernel --listen 127.0.0.1:9464     http://127.0.0.1:9464/metrics
  quietcores farm metrics --by host --listen 192.168.1.5:9464 --token-file scrape.token
A scraper that takes Prometheus' messages (scrape_native_histograms) gets native histograms beside the classic ones.
Beyond loopback it answers only who sends the token, and it is not encrypted.")]
pub struct MetricsArgs {
    #[command(flatten)]
    asked: Asked,
    /// Write here, whole or not at all [default: standard output]
    #[arg(short, long, value_name = "FILE")]
    out: Option<PathBuf>,
    /// Serve it as /metrics at this address and port, until interrupted
    #[arg(long, value_name = "ADDRESS:PORT", conflicts_with_all = ["out", "json"])]
    listen: Option<SocketAddr>,
    /// A name by which it may be called as well
    #[arg(long, value_name = "NAME", requires = "listen")]
    name: Vec<String>,
    /// Answer only who sends what this file holds, as `Authorization: Bearer`; needed beyond loopback
    #[arg(long, value_name = "FILE", requires = "listen")]
    token_file: Option<PathBuf>,
    /// Print the text within JSON on standard output
    #[arg(long)]
    json: bool,
}

/// Write the wall of all machines as one page: from it to a machine, to a run, to its causes
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  quietcores farm page -o farm.html
  quietcores farm page -o farm.html board='*NUC*' last=30")]
pub struct PageArgs {
    #[command(flatten)]
    asked: Asked,
    /// The page; - is standard output
    #[arg(short, long, value_name = "FILE")]
    out: PathBuf,
    /// Print where the page is as JSON on standard output
    #[arg(long)]
    json: bool,
}

impl Asked {
    fn question(&self) -> anyhow::Result<FarmQuestion> {
        Ok(FarmQuestion::parse(&self.conditions, &self.by, now() / 86_400_000)?)
    }
}

pub fn ask(args: AskArgs) -> anyhow::Result<ExitCode> {
    let mut question = args.asked.question()?;
    (question.trend, question.changes) = (args.trend, args.changes);
    let collector = args.asked.place.open(Trust::FirstKey, false)?;
    let answer = collector.ask(&question, now())?;
    if args.json {
        face::print_json(&answer)?;
    } else {
        face::print(&quiet_report::farm_text(&answer, face::width()))?;
        if args.changes && answer.changes.is_empty() {
            face::say("no change of a machine is shown");
        }
    }
    let worse = answer.changes.iter().any(|change| change.verdict == Verdict::Worse);
    Ok(if worse { ExitCode::from(face::FINDINGS) } else { ExitCode::SUCCESS })
}

/// What a scraper has to send; 16 characters at least.
fn token(path: &Path) -> anyhow::Result<String> {
    let text = files::read_text(path, 4096);
    let text = text.with_context(|| format!("cannot read {}", path.display()))?;
    let token = text.trim();
    if token.len() < 16 || !token.bytes().all(|byte| byte.is_ascii_graphic()) {
        bail!(
            "cannot use the token in {}: 16 characters or more, without blanks; \
             `openssl rand -hex 16` makes one",
            path.display()
        );
    }
    Ok(token.to_owned())
}

fn listen(args: MetricsArgs, at: SocketAddr) -> anyhow::Result<ExitCode> {
    if !at.ip().is_loopback() && args.token_file.is_none() {
        bail!(
            "cannot answer other machines without --token-file FILE: who asks has to send a token"
        );
    }
    let token = args.token_file.as_deref().map(token).transpose()?;
    // What is wrong with question or database is said now, not to a scraper.
    args.asked.question()?;
    args.asked.place.open(Trust::FirstKey, false)?;
    let stop = face::interrupt()?;
    let listener = TcpListener::bind(at)
        .with_context(|| format!("cannot listen at {at}; --listen names another place"))?;
    let at = listener.local_addr()?;
    let rules = ScrapeRules { hosts: quiet_web::host_names(at, &args.name), token };
    face::say(&format!("http://{at}/metrics"));
    let asked = args.asked;
    let scrape = move |accept: &str| -> Result<quiet_web::Scraped, String> {
        let form = MetricsForm::of(accept);
        // Days are named from today: a question that lives long is asked anew each time.
        let made = || -> anyhow::Result<Vec<u8>> {
            let collector = asked.place.open(Trust::FirstKey, false)?;
            Ok(collector.metrics(&asked.question()?, now(), form)?)
        };
        Ok((form.content_type(), made().map_err(|error| format!("{error:#}"))?))
    };
    quiet_web::run_metrics(listener, (rules, Box::new(scrape)), HttpLimits::default(), &stop)?;
    Ok(ExitCode::SUCCESS)
}

pub fn metrics(args: MetricsArgs) -> anyhow::Result<ExitCode> {
    if let Some(at) = args.listen {
        return listen(args, at);
    }
    let question = args.asked.question()?;
    let target = args.out.as_deref().map(Target::data).transpose()?;
    let text = args.asked.place.open(Trust::FirstKey, false)?.openmetrics(&question, now())?;
    match target {
        Some(target) => target.write(&text)?,
        None if args.json => {
            face::print_json(&FarmMetrics { schema: farm::METRICS.to_owned(), openmetrics: text })?;
        }
        None => face::print(&text)?,
    }
    Ok(ExitCode::SUCCESS)
}

pub fn page(args: PageArgs) -> anyhow::Result<ExitCode> {
    let mut question = args.asked.question()?;
    question.changes = true;
    let collector = args.asked.place.open(Trust::FirstKey, false)?;
    if args.out == Path::new("-") {
        face::print(&quiet_report::farm_page(&collector.wall(&question, now())?))?;
        return Ok(ExitCode::SUCCESS);
    }
    let target = Target::page(&args.out)?;
    target.write(&quiet_report::farm_page(&collector.wall(&question, now())?))?;
    if args.json {
        let path = target.path().display().to_string();
        face::print_json(&FarmPage { schema: farm::PAGE.to_owned(), path })?;
    }
    face::say(&format!("written: {}", target.path().display()));
    Ok(ExitCode::SUCCESS)
}
