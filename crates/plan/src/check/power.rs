//! Frequency, idle states, and what saves power behind the chain's back.

use super::{
    facts::{Facts, cpus, some, task_name},
    verdict::{Verdict, fine, moot, note, problem, unknown, warning},
};
use quiet_types::{
    CpuSet,
    finding::When,
    machine::{Cpu, IdleState},
    printable,
};

/// What `/dev/cpu_dma_latency` reads while nobody holds it: `PM_QOS_CPU_LATENCY_DEFAULT_VALUE`.
const UNHELD_US: i32 = 2_000_000_000;

/// Idle states slower than this to leave are named, us: a tenth of a period of 32 frames.
const DEEP_US: u64 = 50;

fn focus<'a>(f: &Facts<'a>) -> Vec<&'a Cpu> {
    let focus = f.focus();
    f.machine.cpus.iter().filter(|cpu| cpu.online && focus.contains(cpu.id)).collect()
}

fn set(cpus: &[&Cpu]) -> CpuSet {
    cpus.iter().map(|cpu| cpu.id).collect()
}

pub(super) fn governor(f: &Facts) -> Verdict {
    let told: Vec<&Cpu> = focus(f).into_iter().filter(|cpu| cpu.governor.is_some()).collect();
    if told.is_empty() {
        return moot("the kernel does not steer the frequency here: there is no cpufreq");
    }
    let slow: Vec<&Cpu> =
        told.iter().copied().filter(|cpu| cpu.governor.as_deref() != Some("performance")).collect();
    let Some(first) = slow.first() else {
        return fine(format!("performance on {}", cpus(&set(&told))));
    };
    let pinned = |cpu: &&Cpu| {
        let base = format!("sys/devices/system/cpu/cpu{}/cpufreq", cpu.id);
        let min = f.number(&format!("{base}/scaling_min_freq"));
        min.is_some() && min == f.number(&format!("{base}/scaling_max_freq"))
    };
    if slow.iter().all(pinned) {
        return fine("the lowest frequency that is allowed is the highest");
    }
    let name = first.governor.as_deref().unwrap_or_default();
    warning(format!(
        "the frequency of {} changes with use (governor {})",
        cpus(&set(&slow)),
        printable(name, 30)
    ))
    .evidence(format!(
        "/sys/devices/system/cpu/cpu{}/cpufreq/scaling_governor is {}{}",
        first.id,
        printable(name, 30),
        first.current_khz.zip(first.max_khz).map_or(String::new(), |(now, max)| {
            format!("; now {} of {} MHz", now / 1000, max / 1000)
        })
    ))
    .effect(
        "a block that comes after a pause is computed at a low frequency; each \
            change stops the core for some microseconds",
    )
    .remedy(
        "write performance there for the chain's CPUs (quietcores apply); CPUs \
            that share a policy change together",
    )
    .when(When::RunTime)
    .into()
}

pub(super) fn preference(f: &Facts) -> Verdict {
    let value = |cpu: &Cpu| {
        f.setting(&format!(
            "sys/devices/system/cpu/cpu{}/cpufreq/energy_performance_preference",
            cpu.id
        ))
    };
    let told: Vec<(&Cpu, &str)> =
        focus(f).into_iter().filter_map(|cpu| Some((cpu, value(cpu)?))).collect();
    if told.is_empty() {
        return moot("this processor has no energy preference, or its driver does not show it");
    }
    let odd: Vec<&(&Cpu, &str)> = told
        .iter()
        .filter(|(cpu, value)| {
            !matches!(*value, "performance" | "0") && cpu.governor.as_deref() != Some("performance")
        })
        .collect();
    let Some((first, value)) = odd.first() else {
        return fine("the processor is told to prefer performance");
    };
    warning(format!(
        "{} prefers to save energy ({})",
        cpus(&odd.iter().map(|(cpu, _)| cpu.id).collect()),
        printable(value, 30)
    ))
    .evidence(format!(
        "/sys/devices/system/cpu/cpu{}/cpufreq/energy_performance_preference",
        first.id
    ))
    .effect("the processor itself raises its frequency late and lowers it early")
    .remedy("write performance there")
    .when(When::RunTime)
    .into()
}

pub(super) fn slow_clock(f: &Facts) -> Verdict {
    let told: Vec<(&Cpu, u64, u64)> = focus(f)
        .into_iter()
        .filter(|cpu| cpu.governor.as_deref() == Some("performance"))
        .filter_map(|cpu| Some((cpu, cpu.current_khz?, cpu.max_khz?)))
        .collect();
    if told.is_empty() {
        return moot("no CPU of the chain is set to performance and tells its frequency");
    }
    let slow: Vec<&(&Cpu, u64, u64)> =
        told.iter().filter(|(_, now, max)| now * 10 < max * 7).collect();
    let Some((cpu, now, max)) = slow.first() else {
        return fine("they ran near their highest frequency when the snapshot was taken");
    };
    note(format!(
        "CPU {} ran at {} of {} MHz although its governor is performance",
        cpu.id,
        now / 1000,
        max / 1000
    ))
    .evidence(format!(
        "/sys/devices/system/cpu/cpu{}/cpufreq/scaling_cur_freq, at one moment",
        cpu.id
    ))
    .effect("less time is left of each period than was thought")
    .remedy(
        "read it again while you play; if it stays so, look for a power or \
            heat limit (power.throttled)",
    )
    .when(When::RunTime)
    .into()
}

pub(super) fn deep_idle(f: &Facts) -> Verdict {
    let deep = |cpu: &Cpu| -> Option<IdleState> {
        let states = cpu
            .idle_states
            .iter()
            .filter(|s| !s.disabled && s.latency_us.is_some_and(|us| us >= DEEP_US));
        states.max_by_key(|s| s.latency_us).cloned()
    };
    if focus(f).iter().all(|cpu| cpu.idle_states.is_empty()) {
        return moot("the kernel does not choose idle states here");
    }
    let worst = focus(f)
        .into_iter()
        .filter(|cpu| cpu.resume_latency.as_deref() != Some("n/a"))
        .filter(|cpu| !limited(cpu.resume_latency.as_deref()))
        .filter_map(|cpu| Some((cpu, deep(cpu)?)))
        .max_by_key(|(_, state)| state.latency_us);
    let Some((cpu, state)) = worst else {
        return fine(format!(
            "no idle state of {} takes {DEEP_US} us to leave, or they are held off",
            cpus(&f.focus())
        ));
    };
    let us = state.latency_us.unwrap_or_default();
    if let Some(held) =
        f.around.dma_latency_us.filter(|held| (*held as i64) < us as i64 && *held >= 0)
    {
        return fine(format!("/dev/cpu_dma_latency is held at {held} us"));
    }
    let held = match f.around.dma_latency_us {
        Some(UNHELD_US) => "nobody holds /dev/cpu_dma_latency".into(),
        Some(us) => format!("/dev/cpu_dma_latency is held at {us} us"),
        None => "whether /dev/cpu_dma_latency is held is not told".into(),
    };
    warning(format!(
        "CPU {} may fall into {}, which takes {us} us to leave",
        cpu.id,
        printable(&state.name, 20)
    ))
    .evidence(format!(
        "/sys/devices/system/cpu/cpu{}/cpuidle: entered {} times since boot; \
            {held}; power/pm_qos_resume_latency_us is {}",
        cpu.id,
        state.usage.unwrap_or_default(),
        match cpu.resume_latency.as_deref() {
            Some("0") => "0, which means no limit (n/a forbids idle states)".into(),
            Some(value) => printable(value, 20),
            None => "not there".into(),
        }
    ))
    .effect("that time is added to every wakeup of a chain that sleeps")
    .remedy(
        "hold /dev/cpu_dma_latency at 0 while you play (quietcores apply), or \
            write n/a to pm_qos_resume_latency_us of these CPUs",
    )
    .when(When::RunTime)
    .into()
}

/// Whether a resume latency keeps deep states away: a number above 0 and below them.
fn limited(text: Option<&str>) -> bool {
    text.and_then(|text| text.parse::<u64>().ok()).is_some_and(|us| us > 0 && us < DEEP_US)
}

pub(super) fn resume_zero(f: &Facts) -> Verdict {
    let values: Vec<(&Cpu, &str)> = focus(f)
        .into_iter()
        .filter_map(|cpu| Some((cpu, cpu.resume_latency.as_deref()?)))
        .collect();
    let some_set = values.iter().any(|(_, value)| *value != "0");
    let zero: Vec<&Cpu> =
        values.iter().filter(|(_, value)| *value == "0").map(|(cpu, _)| *cpu).collect();
    if f.quiet.is_empty() || !some_set || zero.is_empty() {
        return fine(
            "no CPU of the chain stands out by a resume latency of 0, which means no limit",
        );
    }
    note(format!(
        "{} of the chain {} a resume latency of 0, which means no limit",
        cpus(&set(&zero)),
        if zero.len() == 1 { "has" } else { "have" }
    ))
    .evidence(format!(
        "/sys/devices/system/cpu/cpu{}/power/pm_qos_resume_latency_us is 0; \
            other CPUs of the chain have another value",
        zero[0].id
    ))
    .effect("0 is not zero latency: every idle state is allowed")
    .remedy("write n/a, which forbids idle states")
    .when(When::RunTime)
    .into()
}

pub(super) fn latency_denied(f: &Facts) -> Verdict {
    match f.around.dma_latency_writable {
        None => unknown("/dev/cpu_dma_latency was not looked at, or is not there"),
        Some(true) => fine("the caller may write /dev/cpu_dma_latency"),
        Some(false) => note("the caller may not write /dev/cpu_dma_latency")
            .evidence("the mode of /dev/cpu_dma_latency")
            .effect(
                "an audio program that asks for short idle latency (JACK and \
                    others do) does not get it",
            )
            .remedy(
                "a udev rule: KERNEL==\"cpu_dma_latency\", GROUP=\"audio\", \
                    MODE=\"0660\"; or let quietcores apply hold it",
            )
            .when(When::Reboot)
            .into(),
    }
}

pub(super) fn daemons(f: &Facts) -> Verdict {
    let running = f.running(&[
        "power-profiles-daemon",
        "tlp",
        "tuned",
        "tuned-ppd",
        "auto-cpufreq",
        "gamemoded",
        "thermald",
        "cpufreqd",
        "laptop_mode",
        "system76-power",
        "intel_lpmd",
    ]);
    if running.is_empty() {
        return fine("no daemon that steers power is running");
    }
    let names: Vec<String> = running.iter().map(|t| task_name(t)).collect();
    note(format!("{} may change the governor, idle states or IRQs at any time", some(&names, 3)))
        .evidence(
            "running processes; tlp and others also act by events without a process that stays",
        )
        .effect("what was set for the chain is set back, at a mains plug or by a timer")
        .remedy(
            "choose its performance profile, or stop it while you play; \
                run quietcores check again to see whether it was changed",
        )
        .when(When::RunTime)
        .into()
}

pub(super) fn usb_suspend(f: &Facts) -> Verdict {
    let cards: Vec<_> =
        f.machine.sound_cards.iter().filter(|card| card.path.contains("/usb")).collect();
    if cards.is_empty() {
        return moot("no sound card hangs on USB");
    }
    if f.around.usb.is_empty() {
        return unknown("the USB devices were not looked at");
    }
    let sleepy = f.around.usb.iter().flat_map(|usb| &usb.devices).find(|device| {
        device.power_control.as_deref() == Some("auto")
            && cards.iter().any(|card| card.path.starts_with(&device.path))
    });
    match sleepy {
        None => fine("the kernel may not suspend the USB sound card"),
        Some(device) => note(format!(
            "the kernel may suspend {} when it is not used",
            printable(&device.name, 60)
        ))
        .evidence(format!("{}/power/control is auto", device.path))
        .effect(
            "the first period after a pause waits for the device to wake, and \
                some need a reset then",
        )
        .remedy("write on to that file; usbcore.autosuspend=-1 at boot for all devices")
        .when(When::RunTime)
        .into(),
    }
}

pub(super) fn link_power(f: &Facts) -> Verdict {
    let Some(policy) = f.setting("sys/module/pcie_aspm/parameters/policy") else {
        return moot("there is no PCI Express link power management here");
    };
    let chosen = policy.split(['[', ']']).nth(1).unwrap_or(policy);
    if !chosen.contains("power") {
        return fine(format!("PCI Express links: {}", printable(chosen, 30)));
    }
    note(format!(
        "PCI Express links are put to sleep between transfers ({})",
        printable(chosen, 30)
    ))
    .evidence("/sys/module/pcie_aspm/parameters/policy")
    .effect(
        "the first transfer of each period waits some microseconds to tens of them for the link",
    )
    .remedy("write performance there")
    .when(When::RunTime)
    .into()
}

pub(super) fn hda_save(f: &Facts) -> Verdict {
    let path = "sys/module/snd_hda_intel/parameters/power_save";
    match f.number(path) {
        None => moot("the driver snd_hda_intel is not loaded"),
        Some(0) => fine("the built-in card does not switch itself off"),
        Some(seconds) => {
            note(format!("the built-in card switches itself off after {seconds} s of silence"))
                .evidence(format!("/{path}"))
                .effect("the next sound begins late, with a click on some machines")
                .remedy("write 0 there")
                .when(When::RunTime)
                .into()
        }
    }
}

pub(super) fn hot_idle(f: &Facts) -> Verdict {
    let driver = f.setting("sys/devices/system/cpu/cpuidle/current_driver");
    match f.machine.hypervisor {
        Some(_) => moot("a guest does not steer the idle states of the processor"),
        None => match (
            driver,
            f.parameter("processor.max_cstate").or(f.parameter("intel_idle.max_cstate")),
        ) {
            (_, Some(value)) => {
                note(format!("idle states are limited for all CPUs at boot (max_cstate={value})"))
                    .evidence("/proc/cmdline")
                    .effect(
                        "latency is short everywhere and always, at the cost \
                            of heat and of boost on the audio CPU",
                    )
                    .remedy(
                        "hold /dev/cpu_dma_latency only while you play \
                            (quietcores apply), and take it out",
                    )
                    .when(When::Reboot)
                    .into()
            }
            (Some(driver), None) => {
                fine(format!("idle states are chosen by {driver}, without a limit at boot"))
            }
            (None, None) => fine("no limit of idle states is set at boot"),
        },
    }
}

pub(super) fn offline(f: &Facts) -> Verdict {
    let off: Vec<&Cpu> = f.machine.cpus.iter().filter(|cpu| !cpu.online).collect();
    let taken: Vec<&String> = f
        .around
        .kernel_log
        .iter()
        .flatten()
        .filter(|line| line.contains("is now offline") || line.contains(": shutdown"))
        .collect();
    if taken.is_empty() {
        return match f.around.kernel_log {
            Some(_) => fine("the kernel log tells of no CPU taken offline"),
            None if off.is_empty() => unknown("the kernel log may not be read"),
            None => fine(format!("CPUs {} are offline; when that was is not told", set(&off))),
        };
    }
    if f.quiet.is_empty() {
        return moot(
            "CPUs were taken offline; no CPU is set apart onto which their timers could have moved",
        );
    }
    note(format!("CPUs were taken offline {} times since boot", taken.len()))
        .evidence(format!("kernel log: `{}`", printable(taken[taken.len() - 1].trim(), 120)))
        .effect(
            "timers and work of a CPU that leaves move to others, the audio \
                CPUs among them, and stay",
        )
        .remedy(
            "take CPUs offline before the shield is put up; take the audio CPU \
                off and on once to send its timers away",
        )
        .when(When::RunTime)
        .into()
}

pub(super) fn guest(f: &Facts) -> Verdict {
    let Some(hypervisor) = &f.machine.hypervisor else {
        return fine("this is no virtual machine");
    };
    let ticks = focus(f).iter().filter_map(|cpu| cpu.steal_ticks).fold(0, u64::saturating_add);
    let uptime = f.around.uptime_s.unwrap_or(0);
    // 1/100 s ticks: this many per thousand of the CPUs' time.
    let permille = ticks
        .saturating_mul(10)
        .checked_div(uptime.saturating_mul(focus(f).len().max(1) as u64))
        .unwrap_or(0);
    let title = format!("this is a virtual machine ({})", printable(hypervisor, 30));
    let finding = if permille >= 5 {
        problem(format!("{title}, and its host takes CPU time away"))
    } else {
        note(title)
    };
    finding
        .evidence(format!(
            "steal of these CPUs in /proc/stat: {ticks} ticks of 10 ms since \
                boot, {permille} per thousand of the time"
        ))
        .effect(
            "the host stops whole CPUs when it likes; nothing that is set in here prevents that",
        )
        .remedy(
            "play on the machine itself; or pin the guest's CPUs on the host \
                and pass the card through",
        )
        .when(When::Hands)
        .into()
}
