//! Thermal zones, what cools, and the flags of a Raspberry Pi's firmware.

use super::Reader;
use quiet_types::heat::{Cooler, FirmwareFlags, Heat, Trip, Zone};

const THERMAL: &str = "/sys/class/thermal";
/// More than any kernel gives a zone (`THERMAL_MAX_TRIPS` was 12).
const MOST_TRIPS: u32 = 32;
/// More than any machine has.
const MOST: usize = 256;

/// `None` where the machine has nothing of it.
pub(super) fn read(reader: &Reader<'_>) -> Option<Heat> {
    let mut heat = Heat::default();
    for number in reader.numbered(THERMAL, "thermal_zone").into_iter().take(MOST) {
        heat.zones.extend(zone(reader, format!("thermal_zone{number}")));
    }
    for number in reader.numbered(THERMAL, "cooling_device").into_iter().take(MOST) {
        heat.coolers.extend(cooler(reader, format!("cooling_device{number}")));
    }
    heat.firmware = firmware(reader);
    (heat != Heat::default()).then_some(heat)
}

fn zone(reader: &Reader<'_>, name: String) -> Option<Zone> {
    let text = |file: &str| reader.text_if_allowed(&format!("{THERMAL}/{name}/{file}"));
    let kind = text("type")?;
    let trip = |at: u32| {
        let kind = text(&format!("trip_point_{at}_type"))?;
        // Some trips have no temperature (yet): they are none.
        let temperature = text(&format!("trip_point_{at}_temp"))?.parse().ok()?;
        Some(Trip { kind, temperature })
    };
    let trips = (0..MOST_TRIPS).map_while(|at| {
        reader.exists(&format!("{THERMAL}/{name}/trip_point_{at}_type")).then(|| trip(at))
    });
    let trips = trips.flatten().collect();
    // A sensor behind a slow bus takes its time; a look at the machine does not ask it.
    let temperature = match reader.is_hushed() {
        true => None,
        false => text("temp").and_then(|text| text.parse().ok()),
    };
    Some(Zone { kind, temperature, trips, name })
}

fn cooler(reader: &Reader<'_>, name: String) -> Option<Cooler> {
    let text = |file: &str| reader.text_if_allowed(&format!("{THERMAL}/{name}/{file}"));
    let number = |file: &str| text(file).and_then(|text| text.parse().ok());
    Some(Cooler {
        kind: text("type")?,
        state: number("cur_state"),
        most: number("max_state"),
        name,
    })
}

/// The vendor's kernel has a file with the whole word; the mainline's driver tells of the supply alone, and Debian builds neither.
///
/// # Source
/// drivers/firmware/raspberrypi.c of raspberrypi/linux; drivers/hwmon/raspberrypi-hwmon.c.
fn firmware(reader: &Reader<'_>) -> Option<FirmwareFlags> {
    let platform = "/sys/devices/platform";
    let is_bus = |name: &str| name == "soc" || name.starts_with("soc@");
    for bus in reader.names(platform, is_bus) {
        let is_firmware = |name: &str| name.ends_with(":firmware");
        for device in reader.names(&format!("{platform}/{bus}"), is_firmware) {
            let path = format!("{platform}/{bus}/{device}/get_throttled");
            let Some(text) = reader.text_if_allowed(&path) else { continue };
            if let Ok(word) = u32::from_str_radix(text.trim_start_matches("0x"), 16) {
                return Some(FirmwareFlags::from_word(path.trim_start_matches('/'), word));
            }
        }
    }
    let class = "/sys/class/hwmon";
    for number in reader.numbered(class, "hwmon").into_iter().take(MOST) {
        let dir = format!("{class}/hwmon{number}");
        if reader.text_if_allowed(&format!("{dir}/name")).as_deref() != Some("rpi_volt") {
            continue;
        }
        let path = format!("{dir}/in0_lcrit_alarm");
        let alarm = reader.text_if_allowed(&path)?;
        let file = path.trim_start_matches('/').to_owned();
        return Some(FirmwareFlags {
            file,
            under_voltage: alarm == "1",
            ..FirmwareFlags::default()
        });
    }
    None
}
