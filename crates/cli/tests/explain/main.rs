//! `explain` from the outside, on the kernel that the test runs on: causes are injected and must be
//! found by name, and with the length that the injector itself read from the clock, within 5 % and
//! [`EDGE`]. That length is no part of the trace. What only the kernel sees begin and end (a work item, an
//! interrupt) is compared with two more witnesses on another clock. Nothing here depends on speed.
//!
//! Each test is skipped, with the reason, where it cannot be made: without root, with one CPU, or on a
//! kernel whose trace is closed.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod witness;

use quiet_linux::{
    sys::{clock::monotonic, process, sched},
    trace,
};
use quiet_probe::CpuWatch;
use quiet_testing::{
    Why, in_lab, is_root, own_cpus, skip, until, until_halted, until_measured, until_within,
};
use quiet_types::{
    CpuId, CpuSet, Nanos, Run,
    explain::{Cause, Explained, Share, Source},
    machine::{Policy, Scheduling},
    trace::{EventKind, Handler, Span, Victim, What},
};
use rustix::process::{Pid, Signal, kill_process};
use std::{
    fs,
    path::Path,
    process::{Child, Command, Stdio},
    sync::{
        Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicU32, Ordering::Relaxed},
    },
    thread,
    time::Duration,
};

use witness::{Osnoise, Span as Stretch, Witness};

/// One at a time: each needs a CPU to itself, the last that this process may use.
static MACHINE: Mutex<()> = Mutex::new(());

/// The last CPU to explain and the others, or why not; as long as what comes third is held, no other program's tests have it.
fn machine() -> Option<(CpuId, CpuSet, (MutexGuard<'static, ()>, fs::File))> {
    let guard = MACHINE.lock().unwrap_or_else(PoisonError::into_inner);
    let guard = (guard, quiet_testing::machine_alone());
    let all = own_cpus();
    let last = all.iter().last().unwrap();
    let others = all.difference(&CpuSet::from_iter([last]));
    let may = trace::instances();
    if others.is_empty() {
        return skip(Why::OneCpu);
    }
    if let Err(why) = may {
        return skip(if is_root() { Why::Machine(why.to_string()) } else { Why::Root });
    }
    Some((last, others, guard))
}

fn quietcores(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_quietcores"));
    command.args(arguments).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// Explains `cpu` while `inject` runs, which gets the child and a flag that is up once it is over.
fn explained(cpu: CpuId, arguments: &[&str], inject: impl FnOnce(&Child) + Send) -> Explained {
    let cpu = cpu.to_string();
    let mut child =
        quietcores(&["explain", "--json", "--cpu", &cpu]).args(arguments).spawn().unwrap();
    let out = child.stdout.take().unwrap();
    let reader = thread::spawn(move || std::io::read_to_string(out).unwrap());
    inject(&child);
    let text = reader.join().unwrap();
    assert!(child.wait().unwrap().success());
    let explained: Explained = serde_json::from_str(&text).unwrap();
    assert_eq!(explained.source, Source::Trace);
    adds_up(&explained);
    explained
}

/// Causes add up to the readings, and parts to each of the worst.
fn adds_up(explained: &Explained) {
    for cpu in &explained.cpus {
        let sum: u64 = cpu.causes.iter().map(|share| share.total.unwrap().0).sum();
        assert_eq!(sum, cpu.total.0);
        assert_eq!(cpu.named.0 + cpu.host.0 + cpu.unexplained.0, cpu.total.0);
        for late in &cpu.worst {
            let parts: u64 = late.parts.iter().map(|part| part.length.0).sum();
            assert_eq!(parts + late.rest.0, late.value.0);
            assert_eq!(late.sums.iter().map(|sum| sum.length.0).sum::<u64>(), late.value.0);
        }
    }
}

fn found(explained: &Explained, is: impl Fn(&Cause) -> bool) -> Option<&Share> {
    explained.cpus[0].causes.iter().find(|share| is(&share.cause))
}

fn titles(explained: &Explained) -> Vec<&str> {
    explained.cpus[0].causes.iter().map(|share| share.title.as_str()).collect()
}

/// A short run, for its head.
fn any_run(cpu: CpuId) -> Run {
    let arguments = ["measure", "gap", "--for", "50ms", "--policy", "other", "--json", "--cpus"];
    let dir = tempfile::tempdir().unwrap();
    let store = ["--store", dir.path().to_str().unwrap()];
    let output = quietcores(&arguments).arg(cpu.to_string()).args(store).output().unwrap();
    serde_json::from_slice(&output.stdout).unwrap()
}

fn online() -> CpuSet {
    fs::read_to_string("/sys/devices/system/cpu/online").unwrap().parse().unwrap()
}

/// In the lab's emulator, which stops every CPU for milliseconds while it turns to another: a loop is kept from
/// its clock by nobody that the kernel could name.
fn emulated() -> bool {
    in_lab()
}

fn only(cpu: CpuId) -> CpuSet {
    CpuSet::from_iter([cpu])
}

/// What the way into a task and back may take beside its own loop, ns.
const EDGE: u64 = 20_000;

/// A thread named `name` on `cpu` that spins in bursts until it is told to end. It hands over when it
/// ran by its own clock: stretches in which it was not kept from reading it for longer than 1 ms.
fn hog(name: &str, cpu: CpuId, fifo: u8, burst: Duration, pause: Duration) -> Hog {
    let stop = std::sync::Arc::new(AtomicBool::new(false));
    let told = stop.clone();
    let thread = thread::Builder::new()
        .name(name.to_owned())
        .spawn(move || {
            sched::set_affinity(0, &only(cpu)).unwrap();
            if fifo > 0 {
                let to = Scheduling { policy: Policy::Fifo, priority: fifo, nice: 0 };
                sched::set_scheduling(0, to).unwrap();
            }
            let mut ran: Vec<Stretch> = Vec::new();
            while !told.load(Relaxed) {
                let began = monotonic();
                ran.push((began, began));
                loop {
                    let now = monotonic();
                    let last = ran.last_mut().unwrap();
                    if now - last.1 > 1_000_000 {
                        ran.push((now, now));
                    } else {
                        last.1 = now;
                    }
                    if u128::from(now - began) >= burst.as_nanos() {
                        break;
                    }
                }
                thread::sleep(pause);
            }
            ran
        })
        .unwrap();
    Hog { stop, thread }
}

struct Hog {
    stop: std::sync::Arc<AtomicBool>,
    thread: thread::JoinHandle<Vec<Stretch>>,
}

impl Hog {
    fn end(self) -> Vec<Stretch> {
        self.stop.store(true, Relaxed);
        self.thread.join().unwrap()
    }
}

/// `measure gap --explain` under fifo: a run, whose readings have a place on `CLOCK_MONOTONIC`.
fn measured(cpu: CpuId, length: &str) -> (Run, Explained) {
    measured_as(cpu, length, "fifo", "5us")
}

fn measured_as(cpu: CpuId, length: &str, policy: &str, threshold: &str) -> (Run, Explained) {
    measured_beside(cpu, length, policy, threshold, |_| ()).0
}

/// The same, and what is done beside it: that begins once it measures, however late on a busy machine, and hears whether it still does.
fn measured_beside<T: Send>(
    cpu: CpuId,
    length: &str,
    policy: &str,
    threshold: &str,
    beside: impl FnOnce(&dyn Fn() -> bool) -> T + Send,
) -> ((Run, Explained), T) {
    let store = tempfile::tempdir().unwrap();
    let arguments = ["measure", "gap", "--policy", policy, "--explain", "--json", "--for", length];
    let child = quietcores(&arguments)
        .args([
            "--threshold",
            threshold,
            "--cpus",
            &cpu.to_string(),
            "--store",
            store.path().to_str().unwrap(),
        ])
        .spawn()
        .unwrap();
    let (pid, over) = (child.id(), AtomicBool::new(false));
    let (output, done) = thread::scope(|scope| {
        let beside = scope.spawn(|| {
            until_measured(pid);
            beside(&|| !over.load(Relaxed))
        });
        let output = child.wait_with_output().unwrap();
        over.store(true, Relaxed);
        (output, beside.join().unwrap())
    });
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let run: Run = serde_json::from_slice(&output.stdout).unwrap();
    let explained = run.explained.clone().unwrap();
    assert_eq!(explained.source, Source::Trace);
    adds_up(&explained);
    ((run, *explained), done)
}

/// For each of the worst readings with stretches in it: their length, what of that reading is told as
/// `is`, and what others took on top of them meanwhile.
fn told(
    run: &Run,
    explained: &Explained,
    stretches: &[Stretch],
    is: impl Fn(&Cause) -> bool,
) -> Vec<(u64, u64, u64)> {
    let cpu = &explained.cpus[0];
    let mut found = Vec::new();
    for late in cpu.worst.iter().filter(|late| late.rest == Nanos::ZERO) {
        let to = run.monotonic.unwrap().0 + late.at.0;
        let from = to - late.value.0;
        let within: Vec<&Stretch> =
            stretches.iter().filter(|one| from <= one.0 && one.1 <= to).collect();
        if within.is_empty() {
            continue;
        }
        let (mut of, mut on_top) = (0, 0);
        for part in &late.parts {
            if is(&cpu.causes[part.cause].cause) {
                of += part.length.0;
            } else if within.iter().any(|one| (one.0..one.1).contains(&(from + part.after.0))) {
                on_top += part.length.0;
            }
        }
        let length = within.iter().map(|one| one.1 - one.0).sum();
        found.push((length, of, on_top));
    }
    found
}

/// Half of them or more, or three, are told with their length. (The others are for a hypervisor that takes
/// the processor just before, after or within one: the guest cannot see it. In the lab's emulator it takes so much that only the lower bound is left.)
fn lengths_hold(told: &[(u64, u64, u64)]) {
    assert!(told.len() >= 2, "too few to compare: {told:?}");
    if emulated() {
        eprintln!("length, told, on top (ns): {told:?}");
        assert!(told.iter().all(|(length, of, _)| of + length / 20 + EDGE >= *length), "{told:?}");
        return;
    }
    let near = |(length, of, _): &&(u64, u64, u64)| of.abs_diff(*length) <= length / 20 + EDGE;
    let held = told.iter().filter(near).count();
    eprintln!("length, told, on top (ns): {told:?}; within 5 %: {held}");
    assert!(held >= 3 || held * 2 >= told.len(), "{told:?}");
}

/// The measuring process of a child, once it has started its thread.
fn worker(of: &Child) -> u32 {
    until("a measuring process", || {
        let pids = fs::read_dir("/proc").unwrap().flatten();
        pids.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).find(|pid: &u32| {
            let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
            let parent = stat.rsplit_once(')').and_then(|(_, s)| s.split_whitespace().nth(1));
            let threads = fs::read_dir(format!("/proc/{pid}/task")).map_or(0, Iterator::count);
            parent == Some(&of.id().to_string()) && threads > 1
        })
    })
}

/// What puts back what a program has changed, should that be killed.
fn keepers(of: u32) -> Vec<Pid> {
    let entries = fs::read_dir("/proc").unwrap().flatten();
    let numbers = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
    let is_keeper = |pid: &i32| {
        let words = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
        words.split(|byte| *byte == 0).nth(1) == Some(b"keeper")
            && status.contains(&format!("PPid:\t{of}\n"))
    };
    numbers.filter(is_keeper).filter_map(Pid::from_raw).collect()
}

#[test]
fn a_fifo_hog_is_found_by_name_and_length() {
    let Some((cpu, _, _guard)) = machine() else { return };
    // Few enough to be all among the worst ten.
    let hog = hog("qc-hog", cpu, 95, Duration::from_millis(5), Duration::from_millis(200));
    let (run, explained) = measured(cpu, "1600ms");
    let ran = hog.end();
    let is = |cause: &Cause| *cause == Cause::Task { name: "qc-hog".to_owned(), priority: 95 };
    assert!(found(&explained, is).is_some(), "{:?}", titles(&explained));
    lengths_hold(&told(&run, &explained, &ran, is));
}

#[test]
fn a_stopped_process_is_told_as_stopped() {
    if quiet_testing::left_out("8 s") {
        return;
    }
    let Some((cpu, _, _guard)) = machine() else { return };
    // At least and at most of each, by the sender's clock.
    let mut stops: Vec<(u64, u64)> = Vec::new();
    // A slow processor is seen to run long before it has a reading, so it is stopped again later on.
    let (length, apart) = if emulated() { ("20s", 3_000) } else { ("4s", 500) };
    // Where the clock's own reading takes longer than the usual threshold, there is room for the first moments alone.
    let arguments = ["--policy", "fifo", "--threshold", "1ms", "--for", length];
    let explained = explained(cpu, &arguments, |child| {
        let worker = until_measured(child.id());
        let pid = Pid::from_raw(worker as i32).unwrap();
        for _ in 0..5 {
            let before = monotonic();
            // It may be over by now.
            if kill_process(pid, Signal::STOP).is_err() || !until_halted(worker) {
                break;
            }
            let sent = monotonic();
            thread::sleep(Duration::from_millis(40));
            let ends = monotonic();
            kill_process(pid, Signal::CONT).unwrap();
            stops.push((ends - sent, monotonic() - before));
            thread::sleep(Duration::from_millis(apart));
        }
    });
    let share = found(&explained, |cause| *cause == Cause::Stopped);
    let share = share.unwrap_or_else(|| panic!("{:?}", titles(&explained)));
    let least = stops.iter().map(|stop| stop.0).min().unwrap();
    let most = stops.iter().map(|stop| stop.1).max().unwrap();
    let within = least - least / 20 - EDGE..=most + most / 20 + EDGE;
    eprintln!("{} of {least} to {most} ns", share.longest.0);
    assert!(within.contains(&share.longest.0), "{share:?} of {within:?}");
}

#[test]
fn a_spinning_fifo_loop_is_throttled_for_an_ordinary_task() {
    if quiet_testing::left_out("8 s") {
        return;
    }
    let Some((cpu, _, _guard)) = machine() else { return };
    // Linux 6.12's fair server for a twentieth of each second; before it the budget of all real-time tasks.
    let budget = fs::read_to_string("/proc/sys/kernel/sched_rt_runtime_us").unwrap_or_default();
    if !Path::new("/sys/kernel/debug/sched/fair_server").exists() && budget.trim() == "-1" {
        return skip(Why::Machine("real-time tasks are not throttled here".to_owned()));
    }
    let is = |cause: &Cause| *cause == Cause::FairServer { name: "qc-ordinary".to_owned() };
    let mut all = Vec::new();
    // On a busy machine others have the server's time, too, and most stretches lie in none of ours.
    for _ in 0..4 {
        let hog = hog("qc-ordinary", cpu, 0, Duration::from_millis(100), Duration::ZERO);
        let (run, explained) = measured(cpu, "4s");
        let ran = hog.end();
        assert!(found(&explained, is).is_some(), "{:?}", titles(&explained));
        all.extend(told(&run, &explained, &ran, is));
        if all.len() >= 2 {
            break;
        }
    }
    lengths_hold(&all);
}

#[test]
fn a_work_item_is_told_by_its_function() {
    let Some((cpu, others, _guard)) = machine() else { return };
    let path = "/proc/sys/vm/stat_refresh";
    if fs::write(path, "1").is_err() {
        return skip(Why::Machine(format!("this kernel has no {path}")));
    }
    at_last(|| work_items(cpu, &others, path));
}

fn work_items(cpu: CpuId, others: &CpuSet, path: &str) -> Result<(), String> {
    let here = sched::affinity(0).unwrap();
    sched::set_affinity(0, others).unwrap();
    let events = ["workqueue/workqueue_execute_start", "workqueue/workqueue_execute_end"];
    let before = Witness::start(&events);
    // As an ordinary thread it has what a busy machine leaves it.
    let length = if emulated() { "12s" } else { "8s" };
    let ((run, explained), after) = measured_beside(cpu, length, "other", "2us", |measures| {
        let after = Witness::start(&events);
        for _ in (0..200).take_while(|_| measures()) {
            fs::write(path, "1").unwrap();
            thread::sleep(Duration::from_millis(5));
        }
        after
    });
    sched::set_affinity(0, &here).unwrap();
    let work = Cause::Work { function: "refresh_vm_stats".to_owned() };
    let share = found(&explained, |cause| *cause == work);
    let share = share.unwrap_or_else(|| panic!("{:?}", titles(&explained)));
    assert!(share.times > 1 && share.total.unwrap() > Nanos::ZERO, "{share:?}");
    if let (Some(before), Some(after)) = (before, after) {
        let [start, end] = ["workqueue_execute_start", "workqueue_execute_end"];
        let seen =
            |witness: Witness| during(&run, witness.spans(cpu, start, end, "refresh_vm_stats"));
        return agrees(share, &seen(before), &seen(after));
    }
    Ok(())
}

/// No fewer, and within 5 % as long as they were to two witnesses, one that watched before `explain` did and one that
/// watched after it. (Who watches first has the others' first writes, into cold caches, between its
/// two events, who watches last has their last ones, which are faster: so the two differ, and what is told
/// lies between them. One that is interrupted is told in pieces; one in twenty may lie in a reading below the threshold.
/// A witness counts what interrupted one with it, `explain` does not: so for the least, one that took more than twice the
/// median counts as that.)
fn agrees(share: &Share, before: &[Stretch], after: &[Stretch]) -> Result<(), String> {
    let each = |spans: &[Stretch]| {
        let total: u64 = spans.iter().map(|(from, to)| to - from).sum();
        total as f64 / spans.len() as f64
    };
    let (times, of) = (share.times, before.len() as u64);
    if after.len() < 10 || times + of / 20 < of {
        return Err(format!("{times} of {of}, {} later", after.len()));
    }
    // The second may have come when a few had been already.
    let both = &before[before.partition_point(|span| span.1 < after[0].0)..];
    let apart = each(after) / each(both);
    let told = (share.total.unwrap().0 - share.around.0) as f64 / times.min(of) as f64;
    let first = each(before);
    eprintln!(
        "{}: {times} of {of}, {told:.0} ns each; the first witness saw {first:.0}, the second x{apart:.3} of that",
        share.title
    );
    let mut lengths: Vec<u64> = before.iter().map(|(from, to)| to - from).collect();
    lengths.sort_unstable();
    let cap = 2 * lengths[lengths.len() / 2];
    let alone = lengths.iter().map(|n| *n.min(&cap)).sum::<u64>() as f64 / lengths.len() as f64;
    let (least, most) = (alone * apart.min(1.0), first * apart.max(1.0));
    let holds = (least * 0.95..=most * 1.05).contains(&told);
    holds.then_some(()).ok_or_else(|| format!("{told} is not in {least}..{most} ns"))
}

/// Three times at most: what else a machine does falls between the events of one witness and not of the other now and then, and what is
/// told wrongly is so each time.
fn at_last(mut look: impl FnMut() -> Result<(), String>) {
    let looks: Vec<_> = (0..3).map(|_| look()).take_while(|told| told.is_err()).collect();
    assert!(looks.len() < 3, "{looks:?}");
}

fn during(run: &Run, spans: Vec<Stretch>) -> Vec<Stretch> {
    let while_it_ran = run.monotonic.unwrap().0..run.monotonic.unwrap().0 + run.lasted.unwrap().0;
    spans.into_iter().filter(|span| while_it_ran.contains(&span.0)).collect()
}

#[test]
fn a_devices_interrupt_is_told_by_its_number() {
    let Some((cpu, others, _guard)) = machine() else { return };
    at_last(|| interrupts(cpu, &others));
}

fn interrupts(cpu: CpuId, others: &CpuSet) -> Result<(), String> {
    let count = || -> Vec<(u32, u64)> {
        let text = fs::read_to_string("/proc/interrupts").unwrap();
        let (table, _) = quiet_linux::parse::interrupts(&text);
        let of = |irq: &quiet_linux::parse::IrqRow| {
            irq.counts.iter().find(|(c, _)| *c == cpu).map_or(0, |(_, n)| *n)
        };
        table.irqs.iter().map(|irq| (irq.number, of(irq))).collect()
    };
    let dir = match tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")) {
        Ok(dir) => dir,
        Err(why) => {
            skip::<()>(Why::Machine(format!("no file can be written to a disk: {why}")));
            return Ok(());
        }
    };
    let here = sched::affinity(0).unwrap();
    sched::set_affinity(0, others).unwrap();
    let events = ["irq/irq_handler_entry", "irq/irq_handler_exit"];
    let before = Witness::start(&events);
    let beside = |measures: &dyn Fn() -> bool| {
        let after = Witness::start(&events);
        let had = count();
        for turn in (0..100u32).take_while(|_| measures()) {
            let mut file = fs::File::create(dir.path().join("file")).unwrap();
            std::io::Write::write_all(&mut file, &turn.to_ne_bytes()).unwrap();
            file.sync_data().unwrap();
        }
        let more = had.into_iter().zip(count()).filter(|(a, b)| b.1 >= a.1 + 12);
        (more.map(|(a, _)| a.0).next(), after)
    };
    // A disk that others use is slow.
    let ((run, explained), (grown, after)) = measured_beside(cpu, "6s", "fifo", "1us", beside);
    sched::set_affinity(0, &here).unwrap();
    let Some(irq) = grown else {
        skip::<()>(Why::Machine(format!("no device interrupts CPU {cpu} when a file is written")));
        return Ok(());
    };
    let told = |cause: &Cause| matches!(cause, Cause::Irq { number, .. } if *number == irq);
    let share = found(&explained, told);
    let share = share.unwrap_or_else(|| panic!("IRQ {irq}: {:?}", titles(&explained)));
    if let (Some(before), Some(after)) = (before, after) {
        let about = format!("irq={irq} ");
        let seen = |witness: Witness| {
            during(&run, witness.spans(cpu, "irq_handler_entry", "irq_handler_exit", &about))
        };
        return agrees(share, &seen(before), &seen(after));
    }
    Ok(())
}

/// The begin of a timer's interrupt is not recorded but taken from its timers' records. Here the kernel's own events tell both
/// ends, of a CPU that spins (its tick) and of one that is idle between its timers.
#[test]
fn timer_interrupts_begin_and_end_as_the_kernel_itself_tells() {
    let Some((cpu, _, _guard)) = machine() else { return };
    let [entry, exit] = ["local_timer_entry", "local_timer_exit"];
    let both = [entry, exit].map(|event| format!("irq_vectors/{event}"));
    let Some(witness) = Witness::start(&both.each_ref().map(String::as_str)) else { return };
    let watch = CpuWatch::start(&only(cpu), &online()).unwrap();
    let began = monotonic();
    thread::scope(|scope| {
        scope.spawn(|| {
            sched::set_affinity(0, &only(cpu)).unwrap();
            while monotonic() < began + 500_000_000 {}
            for _ in 0..1000 {
                thread::sleep(Duration::from_micros(300));
            }
        });
    });
    let ended = monotonic();
    let seen = watch.stop().unwrap();
    assert_eq!((seen.lost, seen.dropped), (0, 0));
    let mut told: Vec<Stretch> = Vec::new();
    let mut open = None;
    for event in seen.events.iter().filter(|event| event.cpu == cpu) {
        match event.what {
            What::Enter(Handler::Vector(name)) => {
                open = (seen.name(name) == "local_timer").then_some(event.at.0);
            }
            What::Exit(EventKind::Vector) => {
                told.extend(open.take().map(|from| (from, event.at.0)));
            }
            _ => {}
        }
    }
    let inner = |(from, to): &Stretch| (began..ended).contains(from) && (began..ended).contains(to);
    told.retain(inner);
    let mut wanted = witness.spans(cpu, entry, exit, "");
    wanted.retain(inner);
    eprintln!("{} timer interrupts, {} told", wanted.len(), told.len());
    // At the borders one may be cut.
    assert!(wanted.len() >= 500 && wanted.len().abs_diff(told.len()) <= 1, "{}", told.len());
    // The end is one event to both, which ties their clocks closer than a mark does, and stretch by stretch: a clock that is being
    // set right changes its rate meanwhile.
    let nearest = |at: u64| wanted.iter().map(|one| one.1).min_by_key(|to| to.abs_diff(at));
    let mut pairs: Vec<(u64, u64)> = Vec::new();
    let mut strange = 0;
    for told in told.chunks(50) {
        let apart = median(told.iter().map(|(_, to)| nearest(*to).unwrap() as i64 - *to as i64));
        assert!(apart.abs() < 100_000, "{apart} ns apart");
        let moved = told
            .iter()
            .map(|(from, to)| (from.saturating_add_signed(apart), to.saturating_add_signed(apart)));
        // Each lies in one of the witness.
        for span in moved {
            let at = wanted.partition_point(|(_, to)| to + 2_000 < span.1);
            match wanted.get(at) {
                Some(one) if one.0 < span.0 + 2_000 && span.1 < one.1 + 2_000 => {
                    pairs.push((span.1 - span.0, one.1 - one.0));
                }
                _ => strange += 1,
            }
        }
    }
    // A machine whose processors are themselves kept waiting may be so between the two's events: between those of a few
    // interrupts of many, however long, which is why the middle ones are compared and no sums.
    assert!(strange <= wanted.len() / 20, "{strange} lie nowhere");
    let of_told = median(pairs.iter().map(|pair| pair.0));
    let of_wanted = median(pairs.iter().map(|pair| pair.1));
    eprintln!("one takes {of_told} ns of {of_wanted} ns; {strange} lie nowhere");
    // It takes up most of the witness's: between the kernel's event and the reading of the clock lies the event itself, which an
    // emulator makes long. It takes no more, but for what two readings of two clocks at one event differ by: within the 5 % of all
    // lengths here.
    let quarters = if emulated() { 2 } else { 3 };
    assert!(of_told <= of_wanted + of_wanted / 20, "{of_told} of {of_wanted}");
    assert!(of_told * 4 > of_wanted * quarters, "{of_told} of {of_wanted}");
}

/// The middle one of at least one value.
fn median<T: Ord + Copy>(values: impl Iterator<Item = T>) -> T {
    let mut sorted: Vec<T> = values.collect();
    sorted.sort_unstable();
    sorted[sorted.len() / 2]
}

/// The victim is a thread of this very process: a memory barrier interrupts no other's.
#[test]
fn a_storm_of_memory_barriers_is_told_with_its_sender_and_place() {
    let Some((cpu, others, _guard)) = machine() else { return };
    if let Err(why) = process::membarrier() {
        return skip(Why::Machine(format!("no membarrier: {why}")));
    }
    let mut run = any_run(cpu);
    let watch = CpuWatch::start(&only(cpu), &online()).unwrap();
    let (stop, task) = (AtomicBool::new(false), AtomicU32::new(0));
    let threshold = 1_000;
    const CALLS: u64 = 2_000;
    let late = thread::scope(|scope| {
        let victim = scope.spawn(|| {
            sched::set_affinity(0, &only(cpu)).unwrap();
            task.store(rustix::thread::gettid().as_raw_nonzero().get() as u32, Relaxed);
            let (mut late, mut last) = (Vec::with_capacity(100_000), monotonic());
            while !stop.load(Relaxed) && late.len() < late.capacity() {
                let now = monotonic();
                if now - last > threshold {
                    late.push(Span { from: Nanos(last), to: Nanos(now) });
                }
                last = now;
            }
            late
        });
        // Many that live for a moment: gone by the time somebody asks for their names.
        for _ in 0..CALLS / 20 {
            let sender = thread::Builder::new().name("qc-sender".to_owned());
            let sender = sender.spawn_scoped(scope, || {
                sched::set_affinity(0, &others).unwrap();
                for _ in 0..20 {
                    process::membarrier().unwrap();
                    thread::sleep(Duration::from_micros(100));
                }
            });
            sender.unwrap().join().unwrap();
        }
        stop.store(true, Relaxed);
        victim.join().unwrap()
    });
    let seen = watch.stop().unwrap();
    let absent = &seen.absent;
    if absent.iter().any(|event| event == "csd/csd_queue_cpu") {
        let why = format!("before Linux 6.4 no event tells who asks for a function: {absent:?}");
        return skip(Why::Machine(why));
    }
    let (task, beyond) = (task.load(Relaxed), late.len() as u64);
    run.monotonic = late.first().map(|span| span.from);
    let victim = Victim { cpu, task, beyond, late };
    let explained = quiet_judge::explain(&run, Some(&seen), &[victim]);
    adds_up(&explained);
    // Who called the kernel's `smp_call_function_many_cond`: on arm64 what lies between is no tail call, and is told itself.
    let places: &[&str] = if cfg!(target_arch = "x86_64") {
        &["membarrier"]
    } else {
        &["membarrier", "smp_call_function_many"]
    };
    let share = found(&explained, |cause| {
        matches!(cause, Cause::Call { function, sender, site }
            if function == "ipi_mb" && sender == "qc-sender" && places.iter().any(|place| site.contains(place)))
    });
    let share = share.unwrap_or_else(|| panic!("{:?}", titles(&explained)));
    assert!(share.readings >= 10, "{share:?}");
    let nobodys = found(
        &explained,
        |cause| matches!(cause, Cause::Call { function, sender, .. } if function == "ipi_mb" && sender == "?"),
    );
    assert!(nobodys.is_none(), "{nobodys:?}");
    // The senders' own count: one interrupt a call at most, and their threads alone have that name.
    let of_sender =
        |cause: &Cause| matches!(cause, Cause::Call { sender, .. } if sender == "qc-sender");
    let all = explained.cpus[0].causes.iter().filter(|share| of_sender(&share.cause));
    let found: u64 = all.map(|share| share.times).sum();
    eprintln!("{found} interrupts are told of {CALLS} calls");
    assert!(found <= CALLS, "{found} of {CALLS}");
}

/// Only on a machine that is the test's own: another CPU goes off and comes back. What the stopper takes lies
/// within the injector's own writes, by its clock.
#[test]
fn another_cpu_that_goes_and_comes_is_told_within_its_writes() {
    let Some((cpu, others, _guard)) = machine() else { return };
    let switch = |cpu: CpuId| format!("/sys/devices/system/cpu/cpu{cpu}/online");
    let other = others.iter().filter(|cpu| Path::new(&switch(*cpu)).exists()).last();
    if !in_lab() {
        return skip(Why::Lab("another CPU is switched off"));
    }
    let Some(other) = other else {
        return skip(Why::Machine("no CPU here can be switched off".to_owned()));
    };
    let here = sched::affinity(0).unwrap();
    let keep = others.difference(&only(other));
    let done = AtomicBool::new(false);
    let ((run, explained), writes) = thread::scope(|scope| {
        let injector = scope.spawn(|| {
            sched::set_affinity(0, &keep).unwrap();
            until("its trace", || {
                let all = trace::instances().unwrap();
                all.iter().any(|name| name.starts_with("quietcores-")).then_some(())
            });
            let mut writes: Vec<Stretch> = Vec::new();
            // As long as it measures: how long it takes to begin is the machine's.
            for _ in 0..100 {
                for value in ["0", "1"] {
                    thread::sleep(Duration::from_millis(500));
                    let from = monotonic();
                    fs::write(switch(other), value).unwrap();
                    writes.push((from, monotonic()));
                }
                if done.load(Relaxed) {
                    break;
                }
            }
            writes
        });
        let measured = measured(cpu, "6s");
        done.store(true, Relaxed);
        (measured, injector.join().unwrap())
    });
    sched::set_affinity(0, &here).unwrap();
    let stopper = format!("migration/{cpu}");
    let is = |cause: &Cause| matches!(cause, Cause::Task { name, .. } if *name == stopper);
    let share = found(&explained, is).unwrap_or_else(|| panic!("{:?}", titles(&explained)));
    let took: u64 = writes.iter().map(|(from, to)| to - from).sum();
    eprintln!("{} times, {} of {took} ns in writes", share.times, share.total.unwrap().0);
    assert!(share.total.unwrap().0 <= took, "{share:?} in {took} ns");
    let of = &explained.cpus[0];
    for late in &of.worst {
        let from = run.monotonic.unwrap().0 + late.at.0 - late.value.0;
        for part in late.parts.iter().filter(|part| is(&of.causes[part.cause].cause)) {
            let (from, to) = (from + part.after.0, from + part.after.0 + part.length.0);
            assert!(
                writes.iter().any(|write| write.0 <= from && to <= write.1),
                "{from} to {to} ns is in none of {writes:?}"
            );
        }
    }
}

/// Where the kernel has the tracer osnoise, both tell of the same late moments who took how much.
#[test]
fn the_kernels_own_noise_tracer_tells_the_same() {
    let Some((cpu, _, _guard)) = machine() else { return };
    let Some(osnoise) = Osnoise::start(cpu) else { return };
    let name = format!("osnoise/{cpu}");
    let task = until("its thread", || {
        let pids = fs::read_dir("/proc").unwrap().flatten();
        let mut pids = pids.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
        pids.find(|pid| {
            fs::read_to_string(format!("/proc/{pid}/comm")).is_ok_and(|comm| comm.trim() == name)
        })
    });
    let mut run = any_run(cpu);
    let watch = CpuWatch::start(&only(cpu), &online()).unwrap();
    let began = monotonic();
    let before = osnoise.told();
    let hog = hog("qc-hog", cpu, 10, Duration::from_millis(3), Duration::from_millis(50));
    // How many come in a second is the machine's.
    until_within(Duration::from_secs(300), "its samples", || {
        thread::sleep(Duration::from_secs(1));
        (osnoise.told() > before + 40).then_some(())
    });
    hog.end();
    let ended = monotonic();
    let seen = watch.stop().unwrap();
    let samples = osnoise.samples();
    let within = samples.iter().filter(|(span, _)| began < span.0 && span.1 < ended);
    let (late, noise): (Vec<Span>, Vec<u64>) = within
        .map(|(span, noise)| (Span { from: Nanos(span.0), to: Nanos(span.1) }, *noise))
        .unzip();
    assert!(
        late.len() > 20,
        "{} samples from {began} to {ended}, of {}: {:?} to {:?}",
        late.len(),
        samples.len(),
        samples.first(),
        samples.last()
    );
    run.monotonic = Some(late[0].from);
    let victim = Victim { cpu, task, beyond: late.len() as u64, late };
    let explained = quiet_judge::explain(&run, Some(&seen), &[victim]);
    adds_up(&explained);
    let of = &explained.cpus[0];
    let around: u64 = of.causes.iter().map(|share| share.around.0).sum();
    let (told, kernel) = (of.named.0 - around, noise.iter().sum::<u64>());
    eprintln!(
        "{} samples, {} ns in all: named {}, of it {around} around; osnoise's parts {kernel} ns; {:?}",
        noise.len(),
        of.total.0,
        of.named.0,
        titles(&explained)
    );
    assert!(told.abs_diff(kernel) <= kernel / 20, "{told} of {kernel} ns");
}

#[test]
fn what_a_killed_one_left_goes_when_the_next_one_starts() {
    let Some((cpu, _, _guard)) = machine() else { return };
    let cpu = cpu.to_string();
    let mut child = quietcores(&["explain", "--cpu", &cpu, "--for", "60s"]).spawn().unwrap();
    let of = |pid: u32| {
        let all = trace::instances().unwrap();
        all.into_iter().any(|name| name.starts_with(&format!("quietcores-{pid}-")))
    };
    until("its instance", || of(child.id()).then_some(()));
    worker(&child);
    // Who would tidy up after it goes first; stopped, it starts no other one.
    kill_process(Pid::from_child(&child), Signal::STOP).unwrap();
    assert!(until_halted(child.id()));
    for keeper in keepers(child.id()) {
        kill_process(keeper, Signal::KILL).unwrap();
    }
    child.kill().unwrap();
    child.wait().unwrap();
    assert!(of(child.id()), "a killed program cannot tidy up");
    let next = quietcores(&["explain", "--cpu", &cpu, "--for", "50ms"]).spawn().unwrap();
    let pid = next.id();
    assert!(next.wait_with_output().unwrap().status.success());
    assert!(!of(child.id()), "the next one does");
    assert!(!of(pid), "and leaves nothing itself");
}

#[test]
fn counters_tell_how_often_where_nothing_may_be_watched() {
    let Some((cpu, _, _guard)) = machine() else { return };
    let cpu = cpu.to_string();
    let arguments = ["explain", "--cpu", &cpu, "--for", "500ms", "--counters", "--json"];
    let output = quietcores(&arguments).output().unwrap();
    let explained: Explained = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(explained.source, Source::Counters);
    let timer = Cause::Timer { function: "?".to_owned() };
    if Path::new("/sys/kernel/debug/x86").exists() || cfg!(target_arch = "x86_64") {
        assert!(found(&explained, |cause| *cause == timer).is_some(), "{:?}", titles(&explained));
    }
    assert!(explained.cpus[0].causes.iter().all(|share| share.total.is_none()));
}

#[test]
fn an_act_that_reaches_every_cpu_is_seen_to() {
    let Some((cpu, _, _guard)) = machine() else { return };
    let cpu = cpu.to_string();
    let output = quietcores(&["reach", "--cpus", &cpu, "--each", "1s", "--only", "vmstat"])
        .args(["--also", "profile", "--json"])
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(matches!(output.status.code(), Some(0 | 1)), "{said}");
    let reach: quiet_types::reach::Reach = serde_json::from_slice(&output.stdout).unwrap();
    let names: Vec<&str> = reach.acts.iter().map(|act| act.name.as_str()).collect();
    assert_eq!(names, ["nothing", "vmstat", "profile"]);
    let profile = reach.acts.iter().find(|act| act.name == "profile").unwrap();
    assert!(profile.times > 0 || !profile.refused.is_empty(), "{profile:?}");
    let act = reach.acts.iter().find(|act| act.name == "vmstat").unwrap();
    if !act.refused.is_empty() {
        return skip(Why::Machine(act.refused.clone()));
    }
    assert!(act.hits.iter().any(|hit| hit.what.contains("refresh_vm_stats")), "{act:?}");
    for wrong in [["--cpus", "8000"].as_slice(), &["--cpus", &cpu, "--only", "vmstat,rest"]] {
        let output = quietcores(&["reach"]).args(wrong).output().unwrap();
        assert_eq!(output.status.code(), Some(2));
    }
}
