//! How numbers are written, the same in text and HTML.

use quiet_types::{Nanos, proof::Figure, proof::Ratio, proof::Unit};

/// A value in its unit: `11.7 us`, `0.31 %`.
pub fn value(unit: Unit, value: f64) -> String {
    match unit {
        Unit::Nanoseconds => Nanos(value.max(0.0).round() as u64).to_string(),
        Unit::Share => share(value),
    }
}

/// A share of the whole in percent, two to three significant digits: `12.4 %`, `0.0031 %`, `0 %`.
pub fn share(share: f64) -> String {
    let percent = share * 100.0;
    if percent == 0.0 || !percent.is_finite() {
        return "0 %".to_owned();
    }
    format!("{} %", significant(percent))
}

/// A ratio: `x0.033`.
pub fn ratio(ratio: f64) -> String {
    format!("x{}", significant(ratio))
}

/// A ratio with its interval: `x0.033 [0.028, 0.041]`.
pub fn ratio_between(ratio: Ratio) -> String {
    format!(
        "x{} [{}, {}]",
        significant(ratio.value),
        significant(ratio.low),
        significant(ratio.high)
    )
}

/// `506 us -> 20.1 us`.
pub fn change(figure: &Figure) -> String {
    let show = |v| value(figure.unit, v);
    format!("{} -> {}", show(figure.shared.median), show(figure.shielded.median))
}

/// At most four digits that matter: `1234`, `12.4`, `1.04`, `0.033`, `0.0012`.
pub fn significant(value: f64) -> String {
    let size = value.abs();
    let digits = match size {
        0.0 => 0,
        s if s >= 99.95 => 0,
        s if s >= 9.995 => 1,
        s if s >= 0.0995 => 2,
        s => (2 - (s * 1.005).log10().ceil() as i32).clamp(2, 12) as usize,
    };
    format!("{value:.digits$}")
}

/// A count with its thousands apart: `1 234 567`.
pub fn count(count: u64) -> String {
    let digits = count.to_string();
    let mut text = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(' ');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_keep_the_digits_that_matter_and_no_more() {
        for (value, text) in [
            (0.0, "0"),
            (0.0331, "0.033"),
            (0.00119, "0.0012"),
            (0.000_031, "0.000031"),
            (0.3312, "0.33"),
            (0.0999, "0.10"),
            (1.0, "1.00"),
            (12.44, "12.4"),
            (1234.4, "1234"),
        ] {
            assert_eq!(significant(value), text);
        }
        assert_eq!(share(0.124), "12.4 %");
        assert_eq!(share(0.0), "0 %");
        assert_eq!(share(0.000_031), "0.0031 %");
        assert_eq!(count(1_234_567), "1 234 567");
        assert_eq!(count(12), "12");
    }
}
