//! Heat and supply.

use super::{Page, name};
use quiet_types::{
    Machine,
    heat::{FirmwareFlags, Zone},
};

/// A line a zone, one for what cools, one for what a board's firmware says; nothing where nothing is known.
pub(super) fn draw(page: &mut Page, machine: &Machine) {
    let Some(heat) = &machine.heat else { return };
    page.section("Heat and supply");
    for zone in &heat.zones {
        page.wrapped("  ", zone_text(zone).split(' '));
    }
    let cools = |cooler: &&quiet_types::heat::Cooler| cooler.state.is_some_and(|state| state > 0);
    let cooling: Vec<String> = heat
        .coolers
        .iter()
        .filter(cools)
        .map(|cooler| {
            let most = cooler.most.map_or(String::new(), |most| format!(" of {most}"));
            format!("{} at {}{most}", name(&cooler.kind), cooler.state.unwrap_or_default())
        })
        .collect();
    if !heat.coolers.is_empty() {
        let text = match cooling.is_empty() {
            true => format!("{} that could cool, none does now", heat.coolers.len()),
            false => format!("cooling now: {}", cooling.join(", ")),
        };
        page.wrapped("  ", text.split(' '));
    }
    if let Some(flags) = &heat.firmware {
        page.wrapped("  ", firmware_text(flags).split(' '));
    }
}

/// `81.3 C`
fn degrees(thousandths: i64) -> String {
    format!("{:.1} C", thousandths as f64 / 1000.0)
}

fn zone_text(zone: &Zone) -> String {
    let now = zone.temperature.map_or("temperature not read".to_owned(), degrees);
    let trips: Vec<String> = zone
        .trips
        .iter()
        .map(|trip| format!("{} at {}", name(&trip.kind), degrees(trip.temperature)))
        .collect();
    let trips = if trips.is_empty() { "no trips".to_owned() } else { trips.join(", ") };
    format!("{}: {now}; {trips}", name(&zone.kind))
}

fn firmware_text(flags: &FirmwareFlags) -> String {
    let now = [
        ("supply too low", Some(flags.under_voltage)),
        ("frequency capped", flags.capped),
        ("throttled", flags.throttled),
        ("soft temperature limit", flags.soft_limit),
    ];
    let before = [
        ("supply too low", flags.was_under_voltage),
        ("frequency capped", flags.was_capped),
        ("throttled", flags.was_throttled),
        ("soft temperature limit", flags.was_soft_limit),
    ];
    let set = |flags: &[(&str, Option<bool>)]| -> String {
        let set: Vec<&str> =
            flags.iter().filter(|(_, set)| *set == Some(true)).map(|(word, _)| *word).collect();
        if set.is_empty() { "nothing".to_owned() } else { set.join(", ") }
    };
    match flags.was_under_voltage {
        Some(_) => format!("firmware says now: {}; since boot: {}", set(&now), set(&before)),
        None => format!("firmware says now: {}; more it does not tell here", set(&now[..1])),
    }
}
