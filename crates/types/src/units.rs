//! Numbers that carry their unit.

use core::fmt;

/// A time span or a point on a monotonic clock, in nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "std", derive(serde::Serialize, serde::Deserialize, schemars::JsonSchema))]
#[cfg_attr(feature = "std", serde(transparent))]
pub struct Nanos(pub u64);

impl Nanos {
    /// No time at all.
    pub const ZERO: Nanos = Nanos(0);

    /// So many microseconds.
    pub const fn from_micros(us: u64) -> Nanos {
        Nanos(us * 1_000)
    }

    /// So many milliseconds.
    pub const fn from_millis(ms: u64) -> Nanos {
        Nanos(ms * 1_000_000)
    }

    /// So many seconds.
    pub const fn from_secs(s: u64) -> Nanos {
        Nanos(s * 1_000_000_000)
    }

    /// In microseconds, with the fraction.
    pub fn as_micros_f64(self) -> f64 {
        self.0 as f64 / 1e3
    }

    /// In seconds, with the fraction.
    pub fn as_secs_f64(self) -> f64 {
        self.0 as f64 / 1e9
    }

    /// The difference, or zero where `earlier` is the later one.
    pub const fn saturating_sub(self, earlier: Nanos) -> Nanos {
        Nanos(self.0.saturating_sub(earlier.0))
    }
}

/// Frames a second.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "std", derive(serde::Serialize, serde::Deserialize, schemars::JsonSchema))]
#[cfg_attr(feature = "std", serde(transparent))]
pub struct SampleRate(pub u32);

/// A count of frames: one sample per channel each.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "std", derive(serde::Serialize, serde::Deserialize, schemars::JsonSchema))]
#[cfg_attr(feature = "std", serde(transparent))]
pub struct Frames(pub u32);

impl Frames {
    /// How long these frames last at `rate`, rounded down; a rate of zero counts as one.
    pub const fn lasting(self, rate: SampleRate) -> Nanos {
        let rate = if rate.0 == 0 { 1 } else { rate.0 };
        Nanos(self.0 as u64 * 1_000_000_000 / rate as u64)
    }
}

impl From<SampleRate> for f64 {
    fn from(rate: SampleRate) -> f64 {
        rate.0.into()
    }
}

impl From<Frames> for f64 {
    fn from(frames: Frames) -> f64 {
        frames.0.into()
    }
}

impl fmt::Display for SampleRate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Display for Frames {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Three significant digits and the unit that fits: `870 ns`, `11.7 us`, `2.00 s`.
impl fmt::Display for Nanos {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (value, unit) = match self.0 {
            ns @ 0..=999 => return write!(f, "{ns} ns"),
            ns @ 1_000..=999_999 => (ns as f64 / 1e3, "us"),
            ns @ 1_000_000..=999_999_999 => (ns as f64 / 1e6, "ms"),
            ns => (ns as f64 / 1e9, "s"),
        };
        let digits = if value < 9.995 {
            2
        } else if value < 99.95 {
            1
        } else {
            0
        };
        write!(f, "{value:.digits$} {unit}")
    }
}

/// A logical CPU by its kernel number: the N of `/sys/devices/system/cpu/cpuN`. Not a core.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "std", derive(serde::Serialize, serde::Deserialize, schemars::JsonSchema))]
#[cfg_attr(feature = "std", serde(transparent))]
pub struct CpuId(pub u32);

impl fmt::Display for CpuId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_prints_three_digits_and_its_unit() {
        for (ns, text) in [
            (0, "0 ns"),
            (999, "999 ns"),
            (1_000, "1.00 us"),
            (11_740, "11.7 us"),
            (506_000, "506 us"),
            (9_121_708, "9.12 ms"),
            (2_000_355_000, "2.00 s"),
        ] {
            assert_eq!(Nanos(ns).to_string(), text);
        }
    }
}
