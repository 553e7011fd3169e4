//! The kernel itself: timers, clocks, its build, its mitigations.

use super::{
    facts::{Facts, count, cpus, some},
    verdict::{Verdict, fine, moot, note, problem, unknown, warning},
};
use quiet_types::{CpuId, CpuSet, finding::When, printable};

pub(super) fn config_unknown(f: &Facts) -> Verdict {
    match &f.machine.kernel.config {
        Some(config) => {
            fine(format!("{} options of the kernel's configuration are known", config.len()))
        }
        None => note("how this kernel was built cannot be read")
            .evidence("neither /proc/config.gz nor /boot/config-RELEASE")
            .effect("several checks cannot decide; latency does not change")
            .remedy("modprobe configs, or install the kernel's config file in /boot")
            .when(When::RunTime)
            .into(),
    }
}

pub(super) fn high_resolution(f: &Facts) -> Verdict {
    if f.parameter("highres") == Some("off") {
        return problem("high-resolution timers are switched off")
            .evidence("/proc/cmdline: highres=off")
            .effect("every timed wakeup waits for the next tick, up to 10 ms")
            .remedy("take highres=off out")
            .when(When::Reboot)
            .into();
    }
    match f.config("HIGH_RES_TIMERS") {
        Some("y") => fine("CONFIG_HIGH_RES_TIMERS=y"),
        Some(_) => problem("this kernel has no high-resolution timers")
            .evidence("CONFIG_HIGH_RES_TIMERS is not set")
            .effect("every timed wakeup waits for the next tick, up to 10 ms")
            .remedy("boot a kernel with CONFIG_HIGH_RES_TIMERS=y")
            .when(When::Reboot)
            .into(),
        None => unknown("the kernel's configuration does not tell HIGH_RES_TIMERS"),
    }
}

pub(super) fn tick(f: &Facts) -> Verdict {
    let coarse = f.config("HIGH_RES_TIMERS").is_some_and(|v| v != "y")
        || f.parameter("highres") == Some("off");
    let hz: Option<u32> = f.config("HZ").and_then(|hz| hz.parse().ok());
    if let Some(hz) = hz.filter(|hz| coarse && *hz < 1000) {
        return warning(format!("the tick comes {hz} times a second, and timers wait for it"))
            .evidence(format!("CONFIG_HZ={hz} without high-resolution timers"))
            .effect(format!("a timed wakeup is up to {} ms late", 1000 / hz.max(1)))
            .remedy("boot a kernel with high-resolution timers; then the tick does not matter")
            .when(When::Reboot)
            .into();
    }
    if f.config("HZ_PERIODIC") == Some("y") {
        return note("the tick goes on while a CPU idles")
            .evidence("CONFIG_HZ_PERIODIC=y")
            .effect("a few microseconds of interrupt at every tick, on every CPU")
            .remedy("boot a kernel with CONFIG_NO_HZ_IDLE=y or NO_HZ_FULL=y")
            .when(When::Reboot)
            .into();
    }
    match hz {
        Some(hz) => fine(format!(
            "CONFIG_HZ={hz}; with high-resolution timers the tick does not delay wakeups"
        )),
        None => unknown("the kernel's configuration does not tell HZ"),
    }
}

/// Clock sources that are read from a device, not from the processor.
const SLOW_CLOCKS: [&str; 5] = ["hpet", "acpi_pm", "jiffies", "refined-jiffies", "pit"];

/// Errata of Arm processors are mended by having the kernel read the counter, for programs too.
///
/// # Source
/// `arch_counter_set_user_access`, drivers/clocksource/arm_arch_timer.c, whose line of the log this is.
pub(super) fn clock_trapped(f: &Facts) -> Verdict {
    let Some(log) = &f.around.kernel_log else {
        return unknown("the kernel log may not be read");
    };
    let trapped: CpuSet = log
        .iter()
        .filter(|line| line.contains("Trapping CNTVCT access"))
        .filter_map(|line| line.split("CPU").nth(1)?.split(':').next()?.trim().parse().ok())
        .map(CpuId)
        .collect();
    let trapped = trapped.intersection(&f.machine.online);
    if trapped.is_empty() {
        return fine("no CPU is said to read the clock by way of the kernel");
    }
    note(format!("programs on {} read the clock by way of the kernel", cpus(&trapped)))
        .evidence("kernel log: Trapping CNTVCT access; the processor has an erratum (858921 of the Cortex-A73, for one)")
        .effect(
            "each reading of the time costs some tenths of a microsecond in place of some hundredths; latency is as it was, but a \
             program that asks often computes less, and gaps shorter than that cannot be seen",
        )
        .remedy("none on this processor: the erratum is worse; a loop that reads the clock once a block does not notice")
        .when(When::Hands)
        .into()
}

pub(super) fn clock(f: &Facts) -> Verdict {
    let Some(current) = f.machine.clock_sources.first() else {
        return unknown("/sys/devices/system/clocksource/clocksource0 could not be read");
    };
    let log = f.around.kernel_log.iter().flatten();
    let unstable =
        log.clone().find(|l| l.contains("unstable") && (l.contains("tsc") || l.contains("TSC")));
    if let Some(line) = unstable {
        return warning("the kernel found the processor's clock unstable")
            .evidence(format!(
                "kernel log: `{}`; clock source is {current}",
                printable(line.trim(), 160)
            ))
            .effect("each reading of the time costs a microsecond or more, and timers drift")
            .remedy(match f.parameter("tsc") {
                Some("reliable") => {
                    "tsc=reliable hides such faults: take it out and see \
                        whether firmware or another CPU is the cause"
                }
                _ => "look for a firmware update; tsc=reliable would only hide it",
            })
            .when(When::Reboot)
            .into();
    }
    if SLOW_CLOCKS.contains(&current.as_str()) {
        return warning(format!(
            "the clock source is {}, which is slow to read",
            printable(current, 30)
        ))
        .evidence(format!(
            "/sys/devices/system/clocksource/clocksource0; available: {}",
            some(&f.machine.clock_sources, 6)
        ))
        .effect(
            "every reading of the time, of which audio programs make many, \
                costs about a microsecond in place of 20 ns",
        )
        .remedy(
            "write tsc to current_clocksource if it is available; the kernel \
                log says why it was not chosen",
        )
        .when(When::RunTime)
        .into();
    }
    fine(format!("clock source {current}"))
}

/// Options that make a kernel slow and its latency long; each is for finding bugs.
const DEBUG: [&str; 7] = [
    "KASAN",
    "PROVE_LOCKING",
    "DEBUG_LOCKDEP",
    "LOCK_STAT",
    "DEBUG_OBJECTS",
    "KCSAN",
    "DEBUG_KMEMLEAK",
];

pub(super) fn debug_build(f: &Facts) -> Verdict {
    let Some(config) = &f.machine.kernel.config else {
        return unknown("the kernel's configuration could not be read");
    };
    let on: Vec<&str> = DEBUG
        .iter()
        .copied()
        .filter(|name| config.get(*name).map(String::as_str) == Some("y"))
        .collect();
    if on.is_empty() {
        return fine(
            "no option known to lengthen latency for debugging is set, as far \
                as the options were read",
        );
    }
    warning(format!("this kernel was built to find bugs ({})", some(&on, 4)))
        .evidence("/proc/config.gz or /boot/config-RELEASE")
        .effect(
            "locks and memory accesses cost several times as much, with interrupts off for long",
        )
        .remedy("measure and play on an ordinary build")
        .when(When::Reboot)
        .into()
}

pub(super) fn mitigations(f: &Facts) -> Verdict {
    let vulnerable: Vec<&str> = f
        .settings()
        .filter(|(path, text)| {
            path.contains("/vulnerabilities/") && text.trim().starts_with("Vulnerable")
        })
        .filter_map(|(path, _)| path.rsplit('/').next())
        .collect();
    if f.parameter("mitigations").is_some_and(|value| value.split(',').any(|word| word == "off")) {
        return note("mitigations of processor faults are switched off: a decision about security")
            .evidence(format!(
                "/proc/cmdline; vulnerable: {}",
                if vulnerable.is_empty() { "none told".into() } else { some(&vulnerable, 8) }
            ))
            .effect("system calls and interrupts are entered some tenths of a microsecond faster")
            .remedy(
                "keep it so only where no foreign code runs, a web browser \
                    among it; take mitigations=off out otherwise",
            )
            .when(When::Reboot)
            .into();
    }
    let active: Vec<&str> = f
        .settings()
        .filter(|(path, text)| {
            path.contains("/vulnerabilities/") && text.trim().starts_with("Mitigation")
        })
        .filter_map(|(path, _)| path.rsplit('/').next())
        .collect();
    if active.is_empty() {
        return fine("no mitigation of a processor fault is active, or none is told");
    }
    fine(format!(
        "active: {}; they cost tenths of a microsecond at each entry to the \
            kernel, and are left alone: to switch them off is a decision about \
            security",
        some(&active, 8)
    ))
}

pub(super) fn unread(f: &Facts) -> Verdict {
    let unread = &f.machine.unread;
    let Some(first) = unread.first() else {
        return fine("all that was looked for could be read");
    };
    note(format!("{} could not be read or understood", count(unread.len(), "file")))
        .evidence(printable(&first.title, 160))
        .effect("checks that need them are left undecided; latency does not change")
        .remedy("run as root, or see `quietcores inspect` for each")
        .when(When::RunTime)
        .into()
}

pub(super) fn no_card(f: &Facts) -> Verdict {
    if !f.machine.sound_cards.is_empty() {
        return fine(format!("{} sound cards", f.machine.sound_cards.len()));
    }
    note("this machine has no sound card that the kernel drives")
        .evidence("/sys/class/sound has no cardN")
        .effect("nothing can be said about its interrupt, its controller or its place")
        .remedy("plug it in and run this again; on a board see whether its overlay is enabled")
        .when(When::Hands)
        .into()
}

pub(super) fn one_cpu(f: &Facts) -> Verdict {
    if f.machine.online.len() > 1 {
        return fine(format!("{} CPUs are online", f.machine.online.len()));
    }
    let off = f.machine.possible.len() > 1;
    if f.machine.online.is_empty() {
        return moot("no CPU is told");
    }
    warning("there is only one CPU")
        .evidence(format!(
            "/sys/devices/system/cpu/online is {}, possible is {}",
            f.machine.online, f.machine.possible
        ))
        .effect("the audio thread shares it with every interrupt and all the kernel's work")
        .remedy(if off {
            "bring the others online"
        } else {
            "real-time priorities and PREEMPT_RT are what is left to do"
        })
        .when(if off { When::RunTime } else { When::Hands })
        .into()
}
