//! What it costs to explain so many events: `causes EVENTS`. Prints the CPU time of the explaining alone, in seconds.
//!
//! A CPU that is measured for as long as the events take: for each 100 of them a reading is late, and of each ten one belongs to a
//! task that lives for it alone.

use quiet_types::{
    CpuId, Nanos,
    trace::{EventKind, Handler, Left, Name, Span, Trace, TraceEvent, Victim, What},
};
use std::{error::Error, fs, hint::black_box};

const ME: u32 = 1;
/// Events for one late reading.
const EACH: u64 = 100;

fn main() -> Result<(), Box<dyn Error>> {
    let count: u64 = std::env::args().nth(1).ok_or("how many events?")?.parse()?;
    let run = quiet_judge::example::run();
    let (trace, victim) = story(count, CpuId(run.spec.cpus.first().ok_or("no CPU")?.0));
    let began = ran()?;
    let explained = quiet_judge::explain(&run, Some(&trace), &[victim]);
    let text = quiet_report::explained_text(&black_box(explained), 100);
    let took = ran()? - began;
    black_box(text);
    println!("{}", took as f64 / 1e9);
    Ok(())
}

/// How long this thread has run, ns.
fn ran() -> Result<u64, Box<dyn Error>> {
    let text = fs::read_to_string("/proc/self/schedstat")?;
    Ok(text.split(' ').next().ok_or("an empty schedstat")?.parse()?)
}

fn story(count: u64, cpu: CpuId) -> (Trace, Victim) {
    let words = ["local_timer", "tick_nohz_handler", "eth0", "NET_RX", "flush", "hog", "short"];
    let names = words.map(str::to_owned).to_vec();
    let mut trace = Trace { names, ..Trace::default() };
    let [timer, tick, net, rx, work, hog, short] = [0, 1, 2, 3, 4, 5, 6].map(Name);
    trace.tasks.insert(7, hog);
    let mut late = Vec::new();
    let mut task = ME;
    for at in 0..count {
        let turn = at / 10;
        let other = if turn % 10 == 0 { 1000 + (turn as u32) % 1_000_000 } else { 7 };
        let to =
            |from, why, to| What::Switch { from, from_priority: 120, why, to, to_priority: 120 };
        let what = match at % 10 {
            0 => to(ME, Left::Preempted, other),
            1 => What::Enter(Handler::Work(work)),
            2 => What::Enter(Handler::Irq { number: 36, name: net }),
            3 => What::Exit(EventKind::Irq),
            4 => What::Enter(Handler::Softirq(rx)),
            5 => What::Exit(EventKind::Softirq),
            6 => What::Exit(EventKind::Work),
            7 => to(other, if other == 7 { Left::Sleeps } else { Left::Ended }, ME),
            8 => What::Enter(Handler::Vector(timer)),
            _ if turn % 2 == 0 => What::Exit(EventKind::Vector),
            _ => What::Enter(Handler::Timer(tick)),
        };
        if other != 7 {
            trace.tasks.entry(other).or_insert(short);
        }
        trace.events.push(TraceEvent { at: Nanos(at * 1000), cpu, task, what });
        if let What::Switch { to, .. } = what {
            task = to;
        }
        if at % EACH == 0 {
            let from = Nanos(at * 1000);
            late.push(Span { from, to: Nanos(from.0 + 15_000) });
        }
    }
    (trace, Victim { cpu, task: ME, beyond: late.len() as u64, late })
}
