//! Work that nobody asked for: firmware, watchdogs, memory management, busy programs.

use super::{
    facts::{Facts, count, cpus, some, task_name},
    verdict::{NO_QUIET, Verdict, fine, moot, note, unknown, warning},
};
use quiet_types::{CpuSet, finding::When, machine::VectorMeaning, printable};

/// From this share of one CPU on a program is named, in thousandths.
const HOG: u64 = 200;

/// Interrupts between CPUs a second on average from which they are named.
const IPIS: u64 = 50;

pub(super) fn management_mode(f: &Facts) -> Verdict {
    if f.machine.hypervisor.is_some() {
        return moot("a guest does not see the firmware of its host");
    }
    let Some(count) = f.around.smi_count else {
        return unknown(
            "MSR 0x34 may not be read: that needs root, an Intel processor and the module msr",
        );
    };
    let uptime = f.around.uptime_s.unwrap_or(0).max(1);
    if count == 0 {
        return fine("no system management interrupt since boot");
    }
    let hourly = count.saturating_mul(3600) / uptime;
    let title =
        format!("firmware has stopped all CPUs {count} times since boot ({hourly} an hour)");
    let finding = if hourly >= 10 { warning(title) } else { note(title) };
    finding
        .evidence(format!(
            "MSR 0x34 (SMI count) of CPU 0 after {uptime} s; many are counted before Linux starts"
        ))
        .effect(
            "each one takes tens to hundreds of microseconds, and no setting of Linux prevents it",
        )
        .remedy(
            "update the firmware; switch off USB legacy support, fan control \
                by SMI and updates by fwupd; see whether the count grows while you \
                play",
        )
        .when(When::Hands)
        .into()
}

pub(super) fn firmware_timer(f: &Facts) -> Verdict {
    let found = f.around.timers.iter().find(|timer| timer.starts_with("fwupd"));
    match found {
        None => fine("no timer asks the firmware for updates"),
        Some(timer) => note(format!(
            "{} asks devices and firmware for their versions now and then",
            printable(timer, 60)
        ))
        .evidence(format!("/etc/systemd/system/timers.target.wants/{timer}"))
        .effect("such questions cause system management interrupts on some machines: all CPUs stop")
        .remedy(format!(
            "systemctl disable --now {} on a machine for the stage",
            printable(timer, 60)
        ))
        .when(When::RunTime)
        .into(),
    }
}

pub(super) fn machine_checks(f: &Facts) -> Verdict {
    let base = "sys/devices/system/machinecheck/machinecheck0";
    let Some(interval) = f.number(&format!("{base}/check_interval")) else {
        return moot("the kernel does not poll for machine checks here");
    };
    if f.quiet.is_empty() {
        return moot(NO_QUIET);
    }
    if interval == 0 || f.number(&format!("{base}/ignore_ce")) == Some(1) {
        return fine("corrected errors are not polled");
    }
    note(format!("every CPU looks for corrected memory errors each {interval} s"))
        .evidence(format!("/{base}/check_interval is {interval}, ignore_ce is not 1"))
        .effect("a timer runs on the audio CPU, some microseconds each time")
        .remedy("write 1 to ignore_ce of that CPU while you play; errors are then not logged")
        .when(When::RunTime)
        .into()
}

pub(super) fn watchdog(f: &Facts) -> Verdict {
    if f.quiet.is_empty() {
        return moot(NO_QUIET);
    }
    let on = |name: &str| f.number(&format!("proc/sys/kernel/{name}")) == Some(1);
    if !on("nmi_watchdog") && !on("soft_watchdog")
        || f.number("proc/sys/kernel/watchdog") == Some(0)
    {
        return fine("the watchdogs are off");
    }
    let mask: Option<CpuSet> =
        f.setting("proc/sys/kernel/watchdog_cpumask").and_then(|text| text.parse().ok());
    if mask.as_ref().is_some_and(|mask| !mask.intersects(&f.quiet)) {
        return fine("the watchdogs leave the chain's CPUs alone");
    }
    let which = if on("nmi_watchdog") {
        "the hard and soft lockup watchdogs watch"
    } else {
        "the soft lockup watchdog watches"
    };
    note(format!("{which} {}", cpus(&f.quiet)))
        .evidence(format!(
            "/proc/sys/kernel/watchdog_cpumask is {}",
            mask.map_or("not told".into(), |m| m.to_string())
        ))
        .effect(
            "a timer and a thread of the highest priority run there every few \
                seconds; the hard one also holds a performance counter and sends \
                NMIs",
        )
        .remedy(format!("write {} to watchdog_cpumask", f.housekeeping()))
        .when(When::RunTime)
        .into()
}

pub(super) fn statistics(f: &Facts) -> Verdict {
    if f.quiet.is_empty() {
        return moot(NO_QUIET);
    }
    match f.number("proc/sys/vm/stat_interval") {
        None => unknown("/proc/sys/vm/stat_interval could not be read"),
        Some(seconds) if seconds >= 10 => {
            fine(format!("memory statistics are folded every {seconds} s"))
        }
        Some(seconds) => note(format!(
            "memory statistics of each CPU are folded every {seconds} s"
        ))
        .evidence(format!("/proc/sys/vm/stat_interval is {seconds}"))
        .effect("a kernel worker runs on the audio CPU that often, when its memory counters moved")
        .remedy("write 120 there")
        .when(When::RunTime)
        .into(),
    }
}

pub(super) fn numa_balancing(f: &Facts) -> Verdict {
    match f.number("proc/sys/kernel/numa_balancing") {
        None | Some(0) => fine("memory is not moved between nodes by itself"),
        Some(_) if f.machine.nodes.len() < 2 => moot("there is one NUMA node"),
        Some(value) => warning("the kernel unmaps memory to see which node uses it")
            .evidence(format!("/proc/sys/kernel/numa_balancing is {value}"))
            .effect(
                "audio threads take page faults in memory that was there, even when it is locked",
            )
            .remedy("write 0 there")
            .when(When::RunTime)
            .into(),
    }
}

pub(super) fn huge_pages(f: &Facts) -> Verdict {
    let path = "sys/kernel/mm/transparent_hugepage/enabled";
    match f.setting(path) {
        None => moot("the kernel has no transparent huge pages"),
        Some(text) if text.contains("[always]") => {
            note("the kernel makes huge pages for everybody")
                .evidence(format!("/{path}: {}", printable(text, 60)))
                .effect(
                    "to find room it moves memory about, while threads that \
                        use it wait; merging sends interrupts to every CPU",
                )
                .remedy("write madvise there")
                .when(When::RunTime)
                .into()
        }
        Some(text) => fine(format!("/{path}: {}", printable(text, 60))),
    }
}

pub(super) fn same_pages(f: &Facts) -> Verdict {
    match f.number("sys/kernel/mm/ksm/run") {
        Some(1) => warning("the kernel looks for equal pages of memory to share")
            .evidence("/sys/kernel/mm/ksm/run is 1")
            .effect(
                "pages become read-only under the program's hands: a page \
                    fault when it writes; each change interrupts other CPUs",
            )
            .remedy("write 2 there: stop, and undo")
            .when(When::RunTime)
            .into(),
        Some(_) => fine("equal pages are not looked for"),
        None => moot("the kernel has no KSM"),
    }
}

pub(super) fn packet_steering(f: &Facts) -> Verdict {
    if f.quiet.is_empty() {
        return moot(NO_QUIET);
    }
    let steer = |path: &str| {
        path.ends_with("/rps_cpus")
            || path.ends_with("/xps_cpus")
            || path.ends_with("/rps_default_mask")
    };
    let masks: Vec<(&String, CpuSet)> = f
        .settings()
        .filter(|(path, _)| steer(path))
        .filter_map(|(path, text)| Some((path, CpuSet::from_mask(text.trim()).ok()?)))
        .collect();
    let open: Vec<&(&String, CpuSet)> =
        masks.iter().filter(|(_, set)| set.intersects(&f.quiet)).collect();
    let receive = open.iter().find(|(path, _)| !path.ends_with("/xps_cpus"));
    let Some((path, set)) = receive.or(open.first()) else {
        return fine("no network queue is steered onto the chain's CPUs");
    };
    let own = path.ends_with("/xps_cpus");
    let title = match own {
        true => format!(
            "a transmit queue of the network is assigned to {}",
            cpus(&set.intersection(&f.quiet))
        ),
        false => {
            format!("received packets may be handled on {}", cpus(&set.intersection(&f.quiet)))
        }
    };
    let finding = if own { note(title) } else { warning(title) };
    finding
        .evidence(format!("/{path} is {}", set.to_mask()))
        .effect(if own {
            "only packets that are sent from there use it"
        } else {
            "the network stack runs there in a softirq, for as long as packets come"
        })
        .remedy("write the mask of the housekeeping CPUs there")
        .when(When::RunTime)
        .into()
}

pub(super) fn timers_stay(f: &Facts) -> Verdict {
    match f.number("proc/sys/kernel/timer_migration") {
        Some(0) => note("timers may not leave a CPU that has something better to do")
            .evidence("/proc/sys/kernel/timer_migration is 0")
            .effect("timers set on the audio CPU fire there for ever")
            .remedy("write 1 there")
            .when(When::RunTime)
            .into(),
        Some(_) => fine("timers may leave an idle or isolated CPU"),
        None => moot("the kernel does not tell timer_migration"),
    }
}

pub(super) fn cross_calls(f: &Facts) -> Verdict {
    if f.quiet.is_empty() {
        return moot(NO_QUIET);
    }
    let Some(uptime) = f.around.uptime_s.filter(|s| *s >= 60) else {
        return unknown("the time since boot is not known, or too short to judge rates");
    };
    let rates: Vec<(String, u64)> = f
        .machine
        .vectors
        .iter()
        .filter(|v| matches!(v.meaning(), Some(VectorMeaning::Call | VectorMeaning::Shootdown)))
        .flat_map(|v| v.counts.iter().map(move |(cpu, count)| (v.name.clone(), *cpu, *count)))
        .filter(|(_, cpu, _)| f.quiet.contains(*cpu))
        .map(|(name, cpu, count)| {
            (format!("{name} on CPU {cpu} {} a second", count / uptime), count / uptime)
        })
        .filter(|(_, rate)| *rate >= IPIS)
        .collect();
    if rates.is_empty() {
        return fine("other CPUs seldom interrupt the chain's, on average since boot");
    }
    let names: Vec<&String> = rates.iter().map(|(text, _)| text).collect();
    note("other CPUs interrupt the chain's often")
        .evidence(format!("{}, on average since boot; /proc/interrupts", some(&names, 4)))
        .effect(
            "each is a function call or a TLB flush that the audio thread has to carry out at once",
        )
        .remedy(
            "find the cause: profilers, eBPF programs, modules that come and \
                go, a program whose threads also run elsewhere (quietcores \
                explain)",
        )
        .when(When::RunTime)
        .into()
}

/// Ticks a second on average from which a CPU of `nohz_full` is named.
const TICKS: u64 = 20;

pub(super) fn tick_stays(f: &Facts) -> Verdict {
    let off = f.machine.nohz_full.clone().unwrap_or_default().intersection(&f.machine.online);
    if off.is_empty() {
        return moot("nohz_full is not in force");
    }
    let Some(uptime) = f.around.uptime_s.filter(|s| *s >= 60) else {
        return unknown("the time since boot is not known, or too short to judge rates");
    };
    let (row, counts) = f.machine.timer_interrupts();
    let worst = counts
        .into_iter()
        .filter(|(cpu, _)| off.contains(*cpu))
        .map(|(cpu, count)| (cpu, count / uptime))
        .max_by_key(|(_, rate)| *rate);
    match worst {
        None => {
            unknown("/proc/interrupts has no row of the CPUs' own timers here (LOC, arch_timer)")
        }
        Some((_, rate)) if rate < TICKS => {
            fine(format!("at most {rate} timer interrupts a second on {}, on average", cpus(&off)))
        }
        Some((cpu, rate)) => {
            note(format!("CPU {cpu} of nohz_full had {rate} timer interrupts a second"))
                .evidence(format!(
                    "row {row} of /proc/interrupts, on average over {uptime} s since boot"
                ))
                .effect(
                    "the tick stays, or a program there sets timers: either interrupts \
                a loop that was to be left alone",
                )
                .remedy(
                    "while it plays, the trace event timer:tick_stop tells why the \
                tick stays",
                )
                .when(When::RunTime)
                .into()
        }
    }
}

pub(super) fn tracers(f: &Facts) -> Verdict {
    let mut seen: Vec<String> = f
        .running(&[
            "perf",
            "bpftrace",
            "trace-cmd",
            "rtla",
            "stress-ng",
            "stress",
            "valgrind",
            "strace",
            "sysprof-cli",
            "intel_gpu_top",
            "turbostat",
            "powertop",
            "i7z",
            "hackbench",
            "cyclictest",
        ])
        .iter()
        .map(|t| task_name(t))
        .collect();
    let tracer = f.setting("sys/kernel/tracing/current_tracer").filter(|name| *name != "nop");
    seen.extend(tracer.map(|name| format!("the tracer {}", printable(name, 30))));
    if seen.is_empty() {
        return fine("no profiler, tracer or stress is running");
    }
    warning(format!("{} is running", some(&seen, 4)))
        .evidence("running processes; /sys/kernel/tracing/current_tracer")
        .effect(
            "it interrupts CPUs to read them, or makes every function and \
                switch of the kernel longer",
        )
        .remedy("end it before you play")
        .when(When::RunTime)
        .into()
}

pub(super) fn hogs(f: &Facts) -> Verdict {
    if f.machine.surroundings.is_none() {
        return unknown("the CPU time of processes was not looked at");
    }
    let audio = f.audio_programs();
    let mut busy: Vec<_> = f
        .around
        .processes
        .iter()
        .filter(|p| p.permille.is_some_and(|share| share >= HOG) && !audio.has(&p.comm))
        .collect();
    busy.sort_by_key(|p| std::cmp::Reverse(p.permille));
    if busy.is_empty() {
        return fine(format!(
            "no program but the chain used {} % of a CPU since its start",
            HOG / 10
        ));
    }
    let names: Vec<String> = busy
        .iter()
        .map(|p| {
            format!("{} (PID {}) {} %", printable(&p.comm, 32), p.pid, p.permille.unwrap_or(0) / 10)
        })
        .collect();
    note(format!("much CPU time goes to {}", count(busy.len(), "program")))
        .evidence(format!(
            "{} of one CPU on average since their start; /proc/PID/stat",
            some(&names, 5)
        ))
        .effect(
            "they heat the processor, fill shared caches and memory, and take \
                the chain's CPU where nothing keeps them off",
        )
        .remedy("end what nobody needs; a shield keeps the rest off the chain's CPUs")
        .when(When::RunTime)
        .into()
}

pub(super) fn background(f: &Facts) -> Verdict {
    let seen = f.running(&[
        "tracker-miner-f",
        "tracker-extract",
        "localsearch-3",
        "baloo_file",
        "baloo_file_extr",
        "updatedb",
        "packagekitd",
        "unattended-upgr",
        "snapd",
        "dropbox",
        "apt-get",
        "dpkg",
        "dnf",
        "nextcloud",
        "syncthing",
    ]);
    if seen.is_empty() {
        return fine("no indexer, updater or synchroniser of a known name is running");
    }
    let names: Vec<String> = seen.iter().map(|t| task_name(t)).collect();
    note(format!("{} may begin to work at any time", some(&names, 5)))
        .evidence("running processes")
        .effect("bursts of disk and CPU use in the middle of a concert")
        .remedy("stop it on a machine for the stage")
        .when(When::RunTime)
        .into()
}
