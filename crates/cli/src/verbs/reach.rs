//! `reach`

use crate::{face, probing};
use clap::ValueEnum;
use quiet_probe::Special;
use quiet_report::{Column, Table};
use quiet_types::{CpuSet, Nanos, printable, reach::Reach};
use std::{process::ExitCode, time::Duration};

/// Which ordinary acts on other CPUs touch a CPU at all
///
/// A row for each act: interrupts that it sent to the watched CPUs itself, and whatever else began
/// there meanwhile, to be compared with doing nothing. Exit status 1 when one act in twenty or more
/// reached them.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  quietcores reach --cpus 3
  quietcores reach --cpus 2-3 --each 2s --json
  quietcores reach --cpus 3 --only membarrier,flush --each 10s
  quietcores reach --cpus 3 --also module,profile,hotplug")]
pub struct Args {
    /// CPUs to watch [default: the last one]
    #[arg(long, alias = "cpu", value_name = "LIST")]
    cpus: Option<CpuSet>,
    /// How long to do each act, up to 1min
    #[arg(long, value_name = "LENGTH", default_value = "500ms")]
    each: Nanos,
    /// Of the ordinary acts only these, beside doing nothing: fork, unmap, membarrier, flush, loopback, proc,
    /// cpuinfo, vmstat
    #[arg(long, value_name = "ACT,...", value_delimiter = ',')]
    only: Vec<String>,
    /// Acts that change the machine for a moment and are done on request alone: load a module and unload
    /// it, start a profiler, switch another CPU off and on (after a kill meanwhile it is switched on)
    #[arg(long, value_enum, value_name = "ACT,...", value_delimiter = ',')]
    also: Vec<Also>,
    /// Print the result as JSON on standard output
    #[arg(long)]
    json: bool,
}

#[derive(Clone, Copy, ValueEnum)]
enum Also {
    Module,
    Profile,
    Hotplug,
}

impl Also {
    fn special(self) -> Special {
        match self {
            Also::Module => Special::Module,
            Also::Profile => Special::Profile,
            Also::Hotplug => Special::Hotplug,
        }
    }
}

pub fn run(args: Args) -> anyhow::Result<ExitCode> {
    if args.each == Nanos::ZERO || args.each > Nanos::from_secs(60) {
        anyhow::bail!("each act lasts from 1ns to 1min; give --each a length such as 500ms");
    }
    let cpus = probing::cpus(args.cpus)?;
    let stop = face::interrupt()?;
    let also: Vec<Special> = args.also.iter().map(|also| also.special()).collect();
    let bar = face::bar(0);
    let each = Duration::from_nanos(args.each.0);
    let done = quiet_probe::reach(&cpus, each, &args.only, &also, &stop, &mut |now| {
        bar.set_length((each * now.acts as u32).as_millis() as u64);
        bar.set_position((each * now.done as u32 + now.elapsed.min(each)).as_millis() as u64);
        bar.set_message(format!("{}, act {} of {}", now.act, now.done + 1, now.acts));
    });
    bar.finish_and_clear();
    let reach =
        done.map_err(|error| face::only_root(error, "watch what reaches a CPU", "reach"))?;
    if args.json {
        face::print_json(&reach)?;
    } else {
        face::print(&text(&reach, face::width()))?;
    }
    // Now and then the scheduler itself puts something there: one in twenty is no accident.
    let reached = reach.acts.iter().any(|act| act.sent > 0 && act.sent * 20 >= act.times);
    Ok(if reached { ExitCode::from(face::FINDINGS) } else { ExitCode::SUCCESS })
}

fn text(reach: &Reach, width: usize) -> String {
    let mut text =
        format!("acts on CPU {}, watched from within CPU {}\n\n", reach.from, reach.cpus);
    let mut table = Table::new([
        Column::Left("act"),
        Column::Right("times"),
        Column::Right("sent"),
        Column::Right("others a second"),
        Column::Left("what it sent"),
    ])
    .yields(&["others a second"]);
    for act in &reach.acts {
        if !act.refused.is_empty() {
            let why = format!("not done: {}", printable(&act.refused, 60));
            table.row([act.name.clone(), String::new(), String::new(), String::new(), why]);
            continue;
        }
        let sent = act.hits.iter().filter(|hit| hit.sent).take(1);
        let sent: Vec<String> = sent.map(|hit| format!("{} {}", hit.times, hit.what)).collect();
        let rate = act.others as f64 / act.lasted.as_secs_f64().max(1e-9);
        table.row([
            act.name.clone(),
            act.times.to_string(),
            act.sent.to_string(),
            format!("{rate:.0}"),
            printable(&sent.join("; "), 70),
        ]);
    }
    text.push_str(&table.text(width));
    if reach.interrupted {
        text.push_str(
            "\ninterrupted: the last act was cut short, and those after it were not done\n",
        );
    }
    text
}
