//! What real time is worth on this kernel: preemption, throttling, limits that end it.

use super::{
    facts::{Facts, some, task_name},
    verdict::{NO_AUDIO, NO_QUIET, Verdict, fine, moot, note, problem, unknown, warning},
};
use quiet_types::{
    CpuId,
    chain::Target,
    finding::When,
    machine::{Policy, Preemption},
    printable,
};

pub(super) fn fair_server(f: &Facts) -> Verdict {
    if !f.since(6, 12) {
        return moot(
            "kernels before 6.12 throttle real time by sched_rt_runtime_us (see sched.throttle)",
        );
    }
    if f.quiet.is_empty() {
        return moot(NO_QUIET);
    }
    let server = |server: &str, cpu: CpuId, name: &str| {
        f.number(&format!("sys/kernel/debug/sched/{server}/cpu{cpu}/{name}"))
    };
    let told: Vec<(&str, CpuId, i64)> = ["fair_server", "ext_server"]
        .into_iter()
        .flat_map(|which| f.quiet.iter().map(move |cpu| (which, cpu)))
        .filter_map(|(which, cpu)| Some((which, cpu, server(which, cpu, "runtime")?)))
        .collect();
    if told.is_empty() {
        return unknown(
            "/sys/kernel/debug/sched/fair_server cannot be read: it needs root and debugfs",
        );
    }
    let on = |which: &str| told.iter().find(|(of, _, runtime)| *of == which && *runtime > 0);
    let both: Vec<&(&str, CpuId, i64)> =
        ["fair_server", "ext_server"].into_iter().filter_map(on).collect();
    if both.is_empty() {
        return fine("the deadline servers are off on the audio CPUs");
    }
    let takes: Vec<String> = both
        .iter()
        .map(|(which, cpu, runtime)| {
            let period = server(which, *cpu, "period").unwrap_or(1_000_000_000);
            let name = if *which == "fair_server" { "fair server" } else { "server of sched_ext" };
            format!(
                "the {name} may take {} ms in every {} ms",
                runtime / 1_000_000,
                period / 1_000_000
            )
        })
        .collect();
    let read: Vec<String> = both
        .iter()
        .map(|(which, cpu, runtime)| {
            format!("/sys/kernel/debug/sched/{which}/cpu{cpu}/runtime is {runtime} ns")
        })
        .collect();
    note(format!("{} from the chain", takes.join(", ")))
        .evidence(read.join("; "))
        .effect(
            "only when an ordinary task starves there, a kernel worker is enough; \
            a chain that sleeps between periods does not feel it",
        )
        .remedy(
            "for a loop that never sleeps write 0 there, with a guard: per-CPU \
            kernel threads then starve for ever",
        )
        .when(When::RunTime)
        .into()
}

/// A scheduler that a BPF program brings decides about ordinary threads in place of the kernel's.
pub(super) fn extended(f: &Facts) -> Verdict {
    let Some(state) = f.setting("sys/kernel/sched_ext/state") else {
        return moot("this kernel has no sched_ext, or does not tell");
    };
    if state == "disabled" {
        return fine("no scheduler of sched_ext is loaded");
    }
    let name = f.setting("sys/kernel/sched_ext/root/ops").unwrap_or("one without a name");
    warning(format!("ordinary threads are scheduled by {} of sched_ext", printable(name, 60)))
        .evidence(format!(
            "/sys/kernel/sched_ext/state is {}, root/ops is {}",
            printable(state, 40),
            printable(name, 60)
        ))
        .effect(
            "audio threads without real time, and what feeds them, wait as it decides, slices are not heeded; sound that \
            crackles under such schedulers is known",
        )
        .remedy("stop it while you play: end its program, or `systemctl stop scx`; real-time threads stay before it")
        .when(When::RunTime)
        .into()
}

pub(super) fn throttle(f: &Facts) -> Verdict {
    let runtime = f.number("proc/sys/kernel/sched_rt_runtime_us");
    let Some(runtime) = runtime else {
        return unknown("/proc/sys/kernel/sched_rt_runtime_us could not be read");
    };
    // A kernel with group budgets keeps the throttle (seen on 6.18: 50 ms of every second).
    if f.since(6, 12) && f.config("RT_GROUP_SCHED") != Some("y") {
        return fine("since 6.12 sched_rt_runtime_us bounds admission only; see sched.fair_server");
    }
    let period = f.number("proc/sys/kernel/sched_rt_period_us").unwrap_or(1_000_000);
    if runtime < 0 || runtime >= period {
        return fine("real-time threads are not throttled");
    }
    note(format!(
        "real-time threads are stopped for {} ms of every {} ms in which they never sleep",
        (period - runtime) / 1000,
        period / 1000
    ))
    .evidence(format!(
        "/proc/sys/kernel/sched_rt_runtime_us is {runtime}, sched_rt_period_us is {period}"
    ))
    .effect("a loop that never sleeps is stopped for that long; a chain that sleeps is not")
    .remedy(
        "for such a loop write -1 to sched_rt_runtime_us (`quietcores apply` \
            does, and puts it back)",
    )
    .when(When::RunTime)
    .into()
}

pub(super) fn rt_group(f: &Facts) -> Verdict {
    match f.config("RT_GROUP_SCHED") {
        None => unknown("the kernel's configuration does not tell RT_GROUP_SCHED"),
        Some("y") if f.parameter("rt_group_sched") == Some("0") => {
            fine("RT_GROUP_SCHED is switched off at boot")
        }
        Some("y")
            if f.config("RT_GROUP_SCHED_DEFAULT_DISABLED") == Some("y")
                && f.parameter("rt_group_sched").is_none() =>
        {
            fine("RT_GROUP_SCHED is built in and off by default")
        }
        Some("y") => warning("real-time priorities are refused inside most cgroups on this kernel")
            .evidence("CONFIG_RT_GROUP_SCHED=y")
            .effect(
                "sched_setscheduler answers EPERM in a systemd service, and \
                    the program runs without priority",
            )
            .remedy(
                "give the group's cpu.rt_runtime_us a share (cgroup v1), boot \
                    with rt_group_sched=0 where the kernel knows it, or use a \
                    kernel without the option",
            )
            .when(When::Reboot)
            .into(),
        Some(_) => fine("CONFIG_RT_GROUP_SCHED is not set"),
    }
}

pub(super) fn rtkit(f: &Facts) -> Verdict {
    let Some(daemon) = f.running(&["rtkit-daemon"]).into_iter().next() else {
        return fine("rtkit-daemon does not run");
    };
    let given: Vec<String> = f
        .audio_tasks()
        .iter()
        .filter(|t| t.scheduling.policy == Policy::Rr && t.scheduling.priority <= 20)
        .map(|t| format!("{} {}", task_name(t), t.scheduling))
        .collect();
    if given.is_empty() {
        return fine("rtkit-daemon runs; no audio thread has its priority from it");
    }
    note("audio threads have their priority from rtkit, which may take it away")
        .evidence(format!(
            "{}; {}, fields 40 and 41 of /proc/TID/stat",
            task_name(daemon),
            some(&given, 4)
        ))
        .effect(
            "at most 20, below interrupt threads (50); its watchdog demotes \
                every such thread when the machine stalls",
        )
        .remedy(
            "allow the user real time directly (see limits.rtprio), and give the link a priority",
        )
        .when(When::Login)
        .into()
}

pub(super) fn runtime_limit(f: &Facts) -> Verdict {
    let audio = f.audio_programs();
    let limited: Vec<String> = f
        .around
        .processes
        .iter()
        .filter(|p| audio.has(&p.comm))
        .filter_map(|p| {
            Some(format!("{} (PID {}) {} us", printable(&p.comm, 32), p.pid, p.rttime?))
        })
        .collect();
    if limited.is_empty() {
        return match f.audio_tasks().is_empty() {
            true => moot(NO_AUDIO),
            false => {
                fine("no audio process that was looked at has a limit of uninterrupted real time")
            }
        };
    }
    warning("a limit ends audio threads that do not sleep often enough")
        .evidence(format!("RLIMIT_RTTIME in /proc/PID/limits: {}", some(&limited, 4)))
        .effect(
            "after that time without a blocking call the kernel sends SIGXCPU, \
                then kills: fatal for a loop that never sleeps",
        )
        .remedy(
            "set LimitRTTIME=infinity in its unit; rtkit sets the limit where it gives priorities",
        )
        .when(When::RunTime)
        .into()
}

/// How the kernel preempts; with `PREEMPT_DYNAMIC` by its boot parameter, else as it was built.
fn in_force(f: &Facts) -> Preemption {
    let built = |name: &str| f.config(name) == Some("y");
    if f.machine.kernel.preemption != Preemption::Dynamic {
        return f.machine.kernel.preemption;
    }
    match f.parameter("preempt") {
        Some("none") => Preemption::None,
        Some("voluntary") => Preemption::Voluntary,
        Some("full") => Preemption::Full,
        Some("lazy") => Preemption::Lazy,
        _ if built("PREEMPT_VOLUNTARY") => Preemption::Voluntary,
        _ if built("PREEMPT_NONE") => Preemption::None,
        _ if built("PREEMPT_LAZY") => Preemption::Lazy,
        _ if built("PREEMPT") => Preemption::Full,
        _ => Preemption::Dynamic,
    }
}

pub(super) fn preemption(f: &Facts) -> Verdict {
    let version = printable(&f.machine.kernel.version, 120);
    let dynamic = version.contains("PREEMPT_DYNAMIC") || f.config("PREEMPT_DYNAMIC") == Some("y");
    let guessed = f.machine.kernel.preemption == Preemption::Dynamic;
    let told = match (guessed, f.parameter("preempt")) {
        (false, _) if dynamic => {
            format!("/sys/kernel/debug/sched/preempt; /proc/sys/kernel/version: {version}")
        }
        (false, _) => format!("/proc/sys/kernel/version: {version}"),
        (true, Some(mode)) => format!("/proc/cmdline: preempt={mode}"),
        (true, None) => format!(
            "/proc/sys/kernel/version: {version}; no preempt= in /proc/cmdline, so \
            it is as it was built"
        ),
    };
    let slow = |what: &str| {
        let finding = problem(format!("the kernel {what}")).evidence(told.clone()).effect(
            "a system call of any other program on that CPU holds the audio \
                thread up, for milliseconds at worst",
        );
        match dynamic {
            true => finding
                .remedy(
                    "write full to /sys/kernel/debug/sched/preempt, and boot with \
                preempt=full",
                )
                .when(When::RunTime),
            false => finding
                .remedy("boot a kernel with PREEMPT or, better, PREEMPT_RT")
                .when(When::Reboot),
        }
    };
    match in_force(f) {
        Preemption::Rt => fine("PREEMPT_RT"),
        Preemption::Full => fine(
            "it preempts everywhere but in locked sections (PREEMPT); PREEMPT_RT \
            does so there too",
        ),
        Preemption::None => slow("does not preempt itself").into(),
        Preemption::Voluntary => slow("preempts itself only at chosen points").into(),
        Preemption::Lazy => warning("the kernel preempts ordinary tasks lazily")
            .evidence(told)
            .effect(
                "real-time threads preempt at once; audio threads without real \
                time wait for the next tick",
            )
            .remedy("run every audio thread real time, or boot with preempt=full")
            .when(When::Reboot)
            .into(),
        Preemption::Dynamic => unknown(
            "PREEMPT_DYNAMIC: the mode in force is in \
            /sys/kernel/debug/sched/preempt, which only root with debugfs can \
            read; preempt=full at boot settles it",
        ),
        Preemption::Unknown => unknown("nothing readable tells how this kernel preempts"),
    }
}

pub(super) fn threadirqs(f: &Facts) -> Verdict {
    if f.threads_irqs() {
        return fine("interrupts are handled in threads, which have priorities");
    }
    let wants =
        f.links().iter().any(|l| matches!(l.target, Target::Irq(_)) && l.priority.is_some());
    if !wants {
        return moot(
            "nothing asks for priorities of interrupts; where the audio CPU \
                has only its own, handlers without threads are faster",
        );
    }
    warning(
        "interrupts have no threads on this kernel, so a link that is an interrupt has no priority",
    )
    .evidence("neither PREEMPT_RT nor threadirqs in /proc/cmdline")
    .effect("its handler runs above everything, as does that of every other device on its CPU")
    .remedy(
        "boot with threadirqs or a PREEMPT_RT kernel; or leave the priority \
            out and keep foreign interrupts off that CPU",
    )
    .when(When::Reboot)
    .into()
}
