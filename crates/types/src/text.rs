//! The forms in which people type and read values.

use crate::Nanos;
use std::{fmt, str::FromStr};

/// Why a duration was not understood.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParseDurationError(String);

impl fmt::Display for ParseDurationError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "`{}` is not a duration; write a number and a unit, as 200us, 10s, 5min", self.0)
    }
}

impl std::error::Error for ParseDurationError {}

/// A decimal number and one of `ns us ms s min h`: `200us`, `1.5ms`, `5min`. At most a year.
impl FromStr for Nanos {
    type Err = ParseDurationError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let wrong = || ParseDurationError(printable(text, 40));
        let text = text.trim();
        let split = text.find(|c: char| !c.is_ascii_digit() && c != '.').ok_or_else(wrong)?;
        let (number, unit) = text.split_at(split);
        let scale = match unit.trim_start() {
            "ns" => 1.0,
            "us" | "µs" => 1e3,
            "ms" => 1e6,
            "s" => 1e9,
            "min" => 60e9,
            "h" => 3600e9,
            _ => return Err(wrong()),
        };
        let ns = number.parse::<f64>().map_err(|_| wrong())? * scale;
        if ns.is_finite() && (0.0..=366.0 * 86_400e9).contains(&ns) {
            Ok(Nanos(ns.round() as u64))
        } else {
            Err(wrong())
        }
    }
}

/// `text` cut to `most` characters, with control characters replaced: fit for a terminal.
///
/// Names of tasks, devices and files come from anywhere; an escape sequence in one must not reach
/// the user's screen.
pub fn printable(text: &str, most: usize) -> String {
    let mut clean: String = text
        .chars()
        .take(most)
        .map(|c| if c.is_control() { char::REPLACEMENT_CHARACTER } else { c })
        .collect();
    if text.chars().nth(most).is_some() {
        clean.push('…');
    }
    clean
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_read_as_people_write_them() {
        for (text, ns) in [
            ("200us", 200_000),
            ("1.5ms", 1_500_000),
            ("10s", 10_000_000_000),
            ("5min", 300_000_000_000),
            ("0ns", 0),
        ] {
            assert_eq!(text.parse(), Ok(Nanos(ns)));
        }
        for text in ["", "us", "10", "-1s", "1e9s", "999999h", "10 parsecs", "1.2.3s"] {
            assert!(text.parse::<Nanos>().is_err(), "{text}");
        }
    }

    #[test]
    fn escape_sequences_do_not_reach_the_terminal() {
        assert_eq!(printable("a\x1b[31mb", 40), "a\u{fffd}[31mb");
        assert_eq!(printable("abcdef", 3), "abc…");
    }
}
