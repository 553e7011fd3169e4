//! What keeps a machine from burning: thermal zones, what cools them, and what the firmware of a board says of its supply.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Heat and supply, as one snapshot.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Heat {
    /// `/sys/class/thermal/thermal_zoneN`.
    pub zones: Vec<Zone>,
    /// `/sys/class/thermal/cooling_deviceN`.
    pub coolers: Vec<Cooler>,
    /// What the firmware of a Raspberry Pi says. `None` where it says nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub firmware: Option<FirmwareFlags>,
}

/// A place whose temperature is known.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Zone {
    /// `thermal_zone0`.
    pub name: String,
    /// `cpu-thermal`, `x86_pkg_temp` ...
    pub kind: String,
    /// Thousandths of a degree Celsius; `None` where it was not read.
    pub temperature: Option<i64>,
    /// In the kernel's order.
    pub trips: Vec<Trip>,
}

/// A temperature at which something is done.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Trip {
    /// `passive`: CPUs are slowed down; `active`: a fan; `hot`; `critical`: the machine goes off.
    pub kind: String,
    /// Thousandths of a degree Celsius.
    pub temperature: i64,
}

/// What cools: a frequency that is lowered, or a fan.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Cooler {
    /// `cooling_device0`.
    pub name: String,
    /// `cpufreq-cpu0`, `pwm-fan`, `Processor` ...
    pub kind: String,
    /// How much it cools now; 0 is not at all.
    pub state: Option<u64>,
    /// The most that it can.
    pub most: Option<u64>,
}

impl Cooler {
    /// Whether it cools by slowing CPUs down, and does so now.
    pub fn slows_cpus(&self) -> bool {
        let by_cpus = self.kind.starts_with("cpufreq")
            || self.kind.starts_with("cpuidle")
            || self.kind == "Processor";
        by_cpus && self.state.is_some_and(|state| state > 0)
    }
}

/// What the firmware of a Raspberry Pi says of supply, heat and clocks.
///
/// # Source
/// `get_throttled` of the firmware's mailbox: raspberrypi.com, documentation of `vcgencmd`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct FirmwareFlags {
    /// The file that said it, below `/`.
    pub file: String,
    /// The supply is too low now.
    pub under_voltage: bool,
    /// The highest frequency is capped now. `None`: not told.
    pub capped: Option<bool>,
    /// The CPUs are slowed down now. `None`: not told.
    pub throttled: Option<bool>,
    /// The soft limit of the temperature is in force now. `None`: not told.
    pub soft_limit: Option<bool>,
    /// The supply was too low at some time since boot. `None`: not told.
    pub was_under_voltage: Option<bool>,
    /// The highest frequency was capped since boot. `None`: not told.
    pub was_capped: Option<bool>,
    /// The CPUs were slowed down since boot. `None`: not told.
    pub was_throttled: Option<bool>,
    /// The soft limit was in force since boot. `None`: not told.
    pub was_soft_limit: Option<bool>,
}

impl FirmwareFlags {
    /// From the word that the firmware answers.
    pub fn from_word(file: &str, word: u32) -> FirmwareFlags {
        let bit = |at: u32| word >> at & 1 == 1;
        FirmwareFlags {
            file: file.to_owned(),
            under_voltage: bit(0),
            capped: Some(bit(1)),
            throttled: Some(bit(2)),
            soft_limit: Some(bit(3)),
            was_under_voltage: Some(bit(16)),
            was_capped: Some(bit(17)),
            was_throttled: Some(bit(18)),
            was_soft_limit: Some(bit(19)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_word_of_the_firmware_has_now_in_its_low_half_and_since_boot_in_its_high_half() {
        // 0x50005, the word that people with a thin cable post: too low and slowed down, now and before.
        let flags = FirmwareFlags::from_word("f", 0x5_0005);
        assert!(flags.under_voltage && flags.throttled == Some(true));
        assert_eq!((flags.capped, flags.soft_limit), (Some(false), Some(false)));
        assert_eq!((flags.was_under_voltage, flags.was_throttled), (Some(true), Some(true)));
        assert_eq!((flags.was_capped, flags.was_soft_limit), (Some(false), Some(false)));
        let past = FirmwareFlags::from_word("f", 0x8_0000);
        assert!(
            !past.under_voltage
                && past.was_soft_limit == Some(true)
                && past.soft_limit == Some(false)
        );
    }

    #[test]
    fn a_fan_that_turns_slows_no_cpu() {
        let cooler = |kind: &str, state| Cooler {
            kind: kind.to_owned(),
            state: Some(state),
            ..Cooler::default()
        };
        assert!(cooler("cpufreq-cpu2", 1).slows_cpus());
        assert!(!cooler("cpufreq-cpu2", 0).slows_cpus());
        assert!(!cooler("pwm-fan", 3).slows_cpus());
    }
}
