//! `stress`

use crate::face;
use quiet_probe::{RunningStress, stress};
use quiet_types::{
    CpuSet, Nanos,
    said::{STRESSED, SUITES, Stressed, Suite, Suites},
};
use std::{
    process::ExitCode,
    time::{Duration, Instant},
};

/// Run named stresses alone
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  quietcores stress --list
  quietcores stress kernel --cpus 0 --for 30s
  quietcores stress fork=2 hdd")]
pub struct Args {
    /// Suites, and stressors of stress-ng as STRESSOR or STRESSOR=WORKERS
    #[arg(value_name = "NAME", required_unless_present = "list")]
    names: Vec<String>,
    /// How long; without it, until Ctrl-C
    #[arg(long = "for", value_name = "LENGTH")]
    length: Option<Nanos>,
    /// CPUs that the stress may use [default: all]
    #[arg(long, alias = "cpu", value_name = "LIST")]
    cpus: Option<CpuSet>,
    /// List the suites
    #[arg(long)]
    list: bool,
    /// Print the result as JSON on standard output
    #[arg(long)]
    json: bool,
}

pub fn run(args: Args) -> anyhow::Result<ExitCode> {
    if args.list {
        return list(args.json);
    }
    if args.length == Some(Nanos::ZERO) {
        anyhow::bail!("a stress of no length stresses nothing; give --for a length such as 30s");
    }
    let stop = face::interrupt()?;
    let mut stress = RunningStress::start(&args.names, &args.cpus.unwrap_or_default())?;
    face::say(&format!("stress on CPU {}; Ctrl-C ends it", stress.cpus()));
    let began = Instant::now();
    let over = |length: Nanos| began.elapsed() >= Duration::from_nanos(length.0);
    while !face::raised(&stop) && !args.length.is_some_and(over) && stress.runs() {
        std::thread::sleep(Duration::from_millis(50));
    }
    let done = stress.stop()?;
    if args.json {
        face::print_json(&Stressed { schema: STRESSED.to_owned(), stress: done })?;
    } else {
        let mut text = format!("{}\n", done.command.join(" "));
        for one in &done.throughput {
            text.push_str(&format!(
                "{:<16} {:>12.0} operations {:>12.1} a second\n",
                one.stressor, one.operations, one.per_second
            ));
        }
        face::print(&text)?;
    }
    Ok(ExitCode::SUCCESS)
}

fn list(json: bool) -> anyhow::Result<ExitCode> {
    let cpus = std::thread::available_parallelism().map_or(1, usize::from);
    let suites = stress::suites();
    if json {
        let one = |suite: &stress::StressSuite| Suite {
            name: suite.name.to_owned(),
            about: suite.about.to_owned(),
            stressors: suite
                .stressors(cpus)
                .into_iter()
                .map(|(name, n)| (name.to_owned(), n as u64))
                .collect(),
        };
        let suites = suites.iter().map(one).collect();
        face::print_json(&Suites { schema: SUITES.to_owned(), suites })?;
        return Ok(ExitCode::SUCCESS);
    }
    let mut text = String::new();
    for suite in suites {
        let stressors: Vec<String> =
            suite.stressors(cpus).iter().map(|(name, n)| format!("{name}={n}")).collect();
        text.push_str(&format!(
            "{:<8} {}\n         {}\n",
            suite.name,
            stressors.join(" "),
            suite.about
        ));
    }
    text.push_str(
        "veth     datagrams there and back through a pair of virtual network cards (root)\n\
         hog      an ordinary thread that never sleeps, on each CPU\n\
         x11      x11perf on the X server that DISPLAY names; it measures the server for 20 s before it draws\n\
         Any other stressor of stress-ng goes by its own name: `stress-ng --stressors`.\n",
    );
    face::print(&text)?;
    Ok(ExitCode::SUCCESS)
}
