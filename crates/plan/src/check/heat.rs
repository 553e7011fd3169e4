//! Heat, supply, and the clocks of a Raspberry Pi's firmware.

use super::{
    facts::{Facts, cpus, some},
    verdict::{Verdict, fine, moot, note, problem, unknown, warning},
};
use quiet_types::{
    CpuId, CpuSet,
    finding::{Finding, When},
    heat::{FirmwareFlags, Heat, Zone},
    printable,
};

/// A zone that is closer than this to the trip at which CPUs are slowed down is named, thousandths of a degree.
const CLOSE: i64 = 5_000;

const SLOWER: &str = "a block that fitted into its period no longer does, for seconds";

pub(super) fn throttled(f: &Facts) -> Verdict {
    let heat = f.machine.heat.as_ref();
    let mut found: Vec<Finding> = counted(f).into_iter().collect();
    found.extend(heat.and_then(slowed_now));
    found.extend(heat.and_then(|heat| heat.firmware.as_ref()).and_then(by_firmware));
    if found.is_empty() {
        found.extend(heat.into_iter().flat_map(|heat| &heat.zones).find_map(close));
    }
    if !found.is_empty() {
        return Verdict::of(found, "");
    }
    let counters = f.settings().any(|(path, _)| path.contains("/thermal_throttle/"));
    let told = heat.is_some_and(|heat| {
        let slows = heat
            .coolers
            .iter()
            .any(|cooler| cooler.kind.starts_with("cpufreq") && cooler.state.is_some());
        slows || heat.firmware.as_ref().is_some_and(|flags| flags.throttled.is_some())
    });
    match (counters, told) {
        (true, _) => fine("no CPU was slowed down by heat since boot"),
        (false, true) => fine("nothing slows the CPUs down because of heat now"),
        (false, false) => unknown("this machine has no throttle counters that may be read"),
    }
}

/// Intel's counters.
fn counted(f: &Facts) -> Option<Finding> {
    let (path, count) = f
        .settings()
        .filter(|(path, _)| path.contains("/thermal_throttle/"))
        .filter_map(|(path, text)| Some((path, text.trim().parse::<u64>().ok()?)))
        .filter(|(_, count)| *count > 0)
        .max_by_key(|(_, count)| *count)?;
    Some(
        warning(format!("heat has slowed CPUs down {count} times since boot"))
            .evidence(format!("/{path} is {count}"))
            .effect(SLOWER)
            .remedy(
                "cool it, or lower the highest frequency until it stays even; a \
                snapshot does not tell whether it happened while you played",
            )
            .when(When::Hands),
    )
}

/// The kernel's own cooling, at this moment.
fn slowed_now(heat: &Heat) -> Option<Finding> {
    let active: Vec<String> = heat
        .coolers
        .iter()
        .filter(|cooler| cooler.slows_cpus())
        .map(|cooler| {
            let of = cooler.most.map_or(String::new(), |most| format!(" of {most}"));
            format!(
                "/sys/class/thermal/{} ({}) is at {}{of}",
                cooler.name,
                printable(&cooler.kind, 40),
                cooler.state.unwrap_or_default()
            )
        })
        .collect();
    if active.is_empty() {
        return None;
    }
    let zones: Vec<String> = heat
        .zones
        .iter()
        .filter_map(|zone| {
            Some(format!("{} {}", printable(&zone.kind, 40), degrees(zone.temperature?)))
        })
        .collect();
    Some(
        problem("heat slows the CPUs down now")
            .evidence(format!("{}; {}", some(&active, 4), some(&zones, 4)))
            .effect(SLOWER)
            .remedy("a heat sink or a fan; or lower the highest frequency (scaling_max_freq) until it stays even: a slower clock that \
                     holds is worth more to a chain than a faster one that does not")
            .when(When::Hands),
    )
}

fn by_firmware(flags: &FirmwareFlags) -> Option<Finding> {
    let named = |set: [(Option<bool>, &'static str); 3]| -> Vec<&str> {
        set.into_iter().filter(|(set, _)| *set == Some(true)).map(|(_, word)| word).collect()
    };
    let now = named([
        (flags.throttled, "throttled"),
        (flags.capped, "frequency capped"),
        (flags.soft_limit, "soft temperature limit"),
    ]);
    let before = named([
        (flags.was_throttled, "throttled"),
        (flags.was_capped, "frequency capped"),
        (flags.was_soft_limit, "soft temperature limit"),
    ]);
    let finding = match (now.is_empty(), before.is_empty()) {
        (false, _) => problem(format!("the firmware slows the CPUs down now ({})", now.join(", "))),
        (true, false) => warning(format!(
            "the firmware has slowed the CPUs down since boot ({})",
            before.join(", ")
        )),
        (true, true) => return None,
    };
    Some(
        finding
            .evidence(format!("/{}", flags.file))
            .effect(format!("{SLOWER}; the kernel's frequency files do not show it"))
            .remedy("cool it, and see to its supply (power.supply): the firmware does this for heat and for a low voltage alike")
            .when(When::Hands),
    )
}

/// A zone that will slow CPUs down soon.
fn close(zone: &Zone) -> Option<Finding> {
    let now = zone.temperature?;
    let trips = zone.trips.iter().filter(|trip| trip.kind == "passive" || trip.kind == "hot");
    let trip = trips.min_by_key(|trip| trip.temperature)?;
    (now + CLOSE >= trip.temperature).then(|| {
        note(format!("{} is {}, and CPUs are slowed down at {}", printable(&zone.kind, 40), degrees(now), degrees(trip.temperature)))
            .evidence(format!("/sys/class/thermal/{}: temp and trip points", zone.name))
            .effect("under the load of a chain, or on a warm day, it is reached")
            .remedy("cool it before you play; quietcores measure --stress shows whether the figures hold for minutes")
            .when(When::Hands)
    })
}

fn degrees(thousandths: i64) -> String {
    format!("{:.1} C", thousandths as f64 / 1000.0)
}

pub(super) fn supply(f: &Facts) -> Verdict {
    let Some(flags) = f.machine.heat.as_ref().and_then(|heat| heat.firmware.as_ref()) else {
        return match f.machine.is_raspberry_pi() {
            true => unknown(
                "this kernel does not pass on what the board's firmware says of its supply (the vendor's kernel does: get_throttled)",
            ),
            false => moot("no firmware here tells of its supply"),
        };
    };
    let finding = match (flags.under_voltage, flags.was_under_voltage) {
        (true, _) => problem("the board's supply is too low now"),
        (false, Some(true)) => warning("the board's supply was too low at some time since boot"),
        (false, Some(false)) => return fine("the supply has held since boot"),
        (false, None) => return fine("the supply holds now; whether it did before is not told"),
    };
    finding
        .evidence(format!("/{}", flags.file))
        .effect("the firmware lowers the CPUs' frequency at once, and a USB card may drop out or click")
        .remedy("a supply of the board's maker with a short thick cable; a USB card with a supply of its own, or on a hub that has one")
        .when(When::Hands)
        .into()
}

pub(super) fn capped(f: &Facts) -> Verdict {
    let focus = f.focus();
    let mut held: Vec<(CpuSet, u64, u64)> = Vec::new();
    let mut told = false;
    for cpu in f.machine.cpus.iter().filter(|cpu| cpu.online && focus.contains(cpu.id)) {
        let limit =
            f.number(&format!("sys/devices/system/cpu/cpu{}/cpufreq/scaling_max_freq", cpu.id));
        let limit = limit.and_then(|limit| u64::try_from(limit).ok());
        let (Some(limit), Some(most)) = (limit, cpu.max_khz) else { continue };
        told = true;
        if limit * 100 >= most * 97 {
            continue;
        }
        match held.iter_mut().find(|(_, l, m)| (*l, *m) == (limit, most)) {
            Some((set, ..)) => set.insert(cpu.id),
            None => held.push(([cpu.id].into_iter().collect(), limit, most)),
        }
    }
    if !told {
        return moot("the kernel does not tell a highest frequency here");
    }
    let found = held
        .into_iter()
        .map(|(set, limit, most)| {
            note(format!("{} may run at {} of {} MHz at most", cpus(&set), limit / 1000, most / 1000))
                .evidence(format!("/sys/devices/system/cpu/cpu{}/cpufreq/scaling_max_freq", set.first().unwrap_or(CpuId(0))))
                .effect("each block takes as much longer; heat (power.throttled) or somebody's setting holds it there")
                .remedy("none where you lowered it so that it stays even; else write cpuinfo_max_freq there")
                .when(When::RunTime)
        })
        .collect();
    Verdict::of(found, "the highest frequency is not held down")
}

/// What of `config.txt` is in force on this board: the last line of a name, in sections that are for it.
fn configured<'a>(f: &Facts<'a>, wanted: &str) -> Option<(&'static str, &'a str)> {
    let path = ["boot/firmware/config.txt", "boot/config.txt"]
        .into_iter()
        .find(|path| f.setting(path).is_some())?;
    let mut ours = true;
    let mut found = None;
    for line in f.setting(path)?.lines().map(str::trim) {
        if let Some(section) = line.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
            ours = is_for_us(f, section);
        } else if let Some((_, value)) =
            line.split_once('=').filter(|(name, _)| ours && name.trim() == wanted)
        {
            found = Some((path, value.trim()));
        }
    }
    found
}

fn is_for_us(f: &Facts, section: &str) -> bool {
    let named = |name: &str| f.machine.compatible.iter().any(|known| known.starts_with(name));
    match section {
        "all" => true,
        "pi3" => named("raspberrypi,3-"),
        "pi3+" => named("raspberrypi,3-model-b-plus"),
        "pi4" => named("raspberrypi,4-"),
        "pi5" => named("raspberrypi,5-"),
        // Those of displays, serial numbers and pins: not told here.
        _ => false,
    }
}

pub(super) fn firmware_clocks(f: &Facts) -> Verdict {
    if !f.machine.is_raspberry_pi() {
        return moot("this is no Raspberry Pi");
    }
    let readable = ["boot/firmware/config.txt", "boot/config.txt"]
        .into_iter()
        .any(|path| f.setting(path).is_some());
    if !readable {
        return unknown("the firmware's config.txt was not found, or may not be read");
    }
    let mut found = Vec::new();
    let over = configured(f, "over_voltage").or(configured(f, "over_voltage_delta"));
    let over = over.filter(|(_, value)| value.trim_start_matches('-') != "0");
    if let Some((path, _)) = configured(f, "force_turbo").filter(|(_, value)| *value == "1") {
        let warranty = if over.is_some() {
            "; together with over_voltage it sets the board's warranty bit for good"
        } else {
            ""
        };
        found.push(
            note("the firmware holds every clock at its height (force_turbo=1)")
                .evidence(format!("/{path}"))
                .effect(format!(
                    "no ramping, also of the bus that USB and memory hang on; the price is heat and power when nothing plays{warranty}"
                ))
                .remedy(
                    "the governor performance holds the CPUs as high at run time and gives them back after (quietcores apply); keep \
                     force_turbo only where the bus itself ramps too late",
                )
                .when(When::Reboot),
        );
    }
    if let Some((path, value)) = configured(f, "arm_freq") {
        found.push(
            note(format!("the highest frequency is set by hand (arm_freq={})", printable(value, 12)))
                .evidence(format!("/{path}"))
                .effect(
                    "more time in each period where it is above the board's own; the price is heat, and errors that come only under load",
                )
                .remedy("keep it only while power.throttled and power.supply stay fine under a long quietcores measure --stress")
                .when(When::Reboot),
        );
    }
    let slow_four = f.machine.compatible.iter().any(|name| name.starts_with("raspberrypi,4-"))
        && f.machine.cpus.iter().filter_map(|cpu| cpu.max_khz).max() == Some(1_500_000);
    if slow_four && configured(f, "arm_boost").is_none() && configured(f, "arm_freq").is_none() {
        found.push(
            note("later boards of this kind may run at 1800 MHz, and this one runs at 1500")
                .evidence("/boot/firmware/config.txt, or /boot/config.txt, has no arm_boost; cpufreq/cpuinfo_max_freq below /sys/devices/system/cpu/cpu0 is 1500000")
                .effect("a sixth less time for each block than the board may have")
                .remedy("arm_boost=1 below [pi4] in config.txt; the price is some degrees more, so see power.throttled after; boards before \
                         revision 1.4 ignore it")
                .when(When::Reboot),
        );
    }
    Verdict::of(
        found,
        "config.txt leaves the clocks to the kernel: the governor performance holds the highest frequency while you play",
    )
}
