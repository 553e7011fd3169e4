//! How figures, policies and outcomes are worded, the same on every face.

use crate::{Nanos, Proof, plan::Outcome, proof::Figure, proof::Ratio, proof::Unit};

/// The verdict of a proof in a word or two: one that was interrupted has none.
pub fn verdict(proof: &Proof) -> String {
    match proof.sentence.split_once(": ") {
        Some(("Interrupted", _)) => "interrupted: none".to_owned(),
        _ => proof.verdict.to_string(),
    }
}

/// Below it a computed rate or chance says nothing but that it is small.
pub const RAREST: f64 = 1e-6;

/// A computed rate: none seen is not never.
pub fn rare(value: f64) -> String {
    match value {
        few if few < RAREST => "<1e-6".to_owned(),
        some if some < 1000.0 => significant(some),
        some => count(some as u64),
    }
}

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

/// A round share for a tick: `10 %`, `0.01 %`; below that as a power, `10⁻⁴ %`.
pub fn share_tick(share: f64) -> String {
    let percent = share * 100.0;
    let power = percent.log10().round() as i32;
    if power >= -3 {
        let digits = power.min(0).unsigned_abs() as usize;
        return format!("{percent:.digits$} %");
    }
    let raised: String = power
        .unsigned_abs()
        .to_string()
        .chars()
        .map(|digit| match digit {
            '1' => '¹',
            '2' => '²',
            '3' => '³',
            // The rest of the superscripts stand in one row.
            other => char::from_u32(0x2070 + (other as u32 - '0' as u32)).unwrap_or(other),
        })
        .collect();
    format!("10⁻{raised} %")
}

/// A percentile in percent with as many nines as it has, and one digit more: `50`, `99.93`.
pub fn nines(q: f64) -> String {
    let percent = q * 100.0;
    let rest = (100.0 - percent).max(1e-6);
    let digits = if rest >= 9.995 { 0 } else { (1.6 - rest.log10()).floor().max(0.0) as usize };
    let text = format!("{percent:.digits$}");
    match text.split_once('.') {
        Some((_, fraction)) if fraction.bytes().all(|b| b == b'0') => {
            text.split('.').next().unwrap_or_default().to_owned()
        }
        Some(_) => text.trim_end_matches('0').to_owned(),
        None => text,
    }
}

/// A p-value: `0.008`, `<0.001`.
pub fn p_value(p: f64) -> String {
    if p < 0.0005 { "<0.001".to_owned() } else { format!("{p:.3}") }
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

/// `from 506 us to 20.1 us`.
pub fn change(figure: &Figure) -> String {
    let show = |v| value(figure.unit, v);
    format!("from {} to {}", show(figure.shared.median), show(figure.shielded.median))
}

/// The notes of figures, each once with the figures that it is about.
pub fn notes(figures: &[Figure]) -> Vec<String> {
    let mut notes: Vec<(&str, Vec<&str>)> = Vec::new();
    for figure in figures.iter().filter(|figure| !figure.note.is_empty()) {
        match notes.iter_mut().find(|(note, _)| *note == figure.note) {
            Some((_, titles)) => titles.push(&figure.title),
            None => notes.push((&figure.note, vec![&figure.title])),
        }
    }
    let of = |titles: Vec<&str>| match titles.len() {
        n if n > 1 && n == figures.len() => "every figure".to_owned(),
        _ => titles.join(", "),
    };
    notes.into_iter().map(|(note, titles)| format!("{}: {note}", of(titles))).collect()
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

/// A length for people who wait: `40 s`, `12 min`, `3 h 20 min`.
pub fn span(time: Nanos) -> String {
    let seconds = time.0.div_ceil(1_000_000_000);
    match seconds {
        0..=99 => format!("{seconds} s"),
        100..=5_999 => format!("{} min", seconds.div_ceil(60)),
        _ => format!("{} h {} min", seconds / 3600, seconds % 3600 / 60),
    }
}

/// `fifo 90`, `other`.
pub fn policy(policy: crate::machine::Policy, priority: u8) -> String {
    let name = format!("{policy:?}").to_lowercase();
    if priority > 0 { format!("{name} {priority}") } else { name }
}

/// What became of a step.
pub fn outcome(outcome: &Outcome) -> String {
    match outcome {
        Outcome::Done { seen } if seen.is_empty() => "verified".to_owned(),
        Outcome::Done { seen } => format!("verified: {seen}"),
        Outcome::Already => "was so already".to_owned(),
        Outcome::Pending { seen } => format!("accepted, in force at the next interrupt: {seen}"),
        Outcome::Partly { seen, refused } => format!("{seen}; refused: {}", refused.join(", ")),
        Outcome::Refused { reason } => format!("refused: {reason}"),
        Outcome::Ignored { seen } => format!("accepted and not done: reads {seen}"),
        Outcome::Absent => "not there".to_owned(),
    }
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
        for (q, text) in
            [(0.0, "0"), (0.5, "50"), (0.9, "90"), (0.99, "99"), (0.999, "99.9"), (0.9999, "99.99")]
        {
            assert_eq!(nines(q), text);
        }
        for (share, text) in [
            (1.0, "100 %"),
            (0.1, "10 %"),
            (1e-3, "0.1 %"),
            (1e-5, "0.001 %"),
            (1e-6, "10⁻⁴ %"),
            (1e-12, "10⁻¹⁰ %"),
        ] {
            assert_eq!(share_tick(share), text);
        }
    }
}
