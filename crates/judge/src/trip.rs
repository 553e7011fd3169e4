//! Round trips: where the time goes, and the text.

use quiet_types::{
    Finding, Severity,
    trip::{BudgetPart, BudgetSource, Heard, RoundTrip},
};

/// What is known of the way beside the measured whole.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Way {
    /// Frames a second, a period, a ring.
    pub rate: u32,
    /// Frames a period.
    pub period: u32,
    /// Frames that the host keeps between capture and playback.
    pub buffer: f64,
    /// What that figure is, in words.
    pub buffer_note: String,
    /// Frames that the strip adds.
    pub dsp: f64,
    /// The bus, where it is known: its name, and how long one of its frames lasts in ms.
    pub bus: Option<(String, Option<f64>)>,
    /// Whether there are converters: a card that does not exist has none.
    pub converters: bool,
}

/// Shares of a measured round trip in the order of the way, ADC to DAC. What adds up is the ring,
/// the strip and the rest; the other rows say what the rest and the ring are made of.
pub fn budget(way: &Way, measured: Option<f64>) -> Vec<BudgetPart> {
    let ms = |frames: f64| frames / f64::from(way.rate.max(1)) * 1e3;
    let part = |name: &str, frames: Option<f64>, source, note: String, slides| BudgetPart {
        name: name.to_owned(),
        milliseconds: frames.map(ms),
        frames,
        source,
        note,
        slides,
    };
    let of_bus = |slides| {
        let (milliseconds, source, note) = match &way.bus {
            Some((name, Some(ms))) => {
                (Some(*ms), BudgetSource::Bus, format!("{name}; within the rest"))
            }
            Some((name, None)) => (None, BudgetSource::Bus, format!("none: {name}")),
            None => (None, BudgetSource::Unknown, "which bus, nobody says".to_owned()),
        };
        let frames = milliseconds.map(|ms| ms / 1e3 * f64::from(way.rate));
        let name = "bus (USB microframe)".to_owned();
        BudgetPart { name, milliseconds, frames, source, note, slides }
    };
    let converter = |name: &str| match way.converters {
        true => part(name, None, BudgetSource::Unknown, "within the rest".to_owned(), None),
        false => part(name, None, BudgetSource::Set, "none".to_owned(), None),
    };
    let period = f64::from(way.period);
    let rest = measured.map(|all| all - way.buffer - way.dsp);
    let rest_note =
        if way.converters { "what is left: converters, bus, cable" } else { "what is left" };
    vec![
        converter("ADC"),
        part(
            "period, capture",
            Some(period),
            BudgetSource::Set,
            "within the ring".into(),
            Some(0.16),
        ),
        of_bus(Some(0.125)),
        part(
            "strip (DSP)",
            Some(way.dsp),
            BudgetSource::Set,
            "the probe plays a wire".into(),
            None,
        ),
        part("ring", Some(way.buffer), BudgetSource::Set, way.buffer_note.clone(), Some(0.33)),
        of_bus(Some(0.125)),
        part(
            "period, playback",
            Some(period),
            BudgetSource::Set,
            "within the ring".into(),
            Some(0.16),
        ),
        converter("DAC"),
        part("rest", rest, BudgetSource::Rest, rest_note.to_owned(), None),
        part("round trip", measured, BudgetSource::Measured, "measured".to_owned(), Some(1.2)),
    ]
}

/// What the figures say beyond themselves.
pub fn judge_trip(trip: &RoundTrip) -> Vec<Finding> {
    let mut findings = Vec::new();
    let heard = || trip.cycles.iter().filter_map(|cycle| cycle.heard.as_ref());
    let failed = trip.cycles.iter().filter(|cycle| cycle.heard.is_none()).count();
    if failed > 0 && trip.spread.is_some() {
        let why = trip.cycles.iter().find(|c| c.heard.is_none()).map_or("", |c| &c.wrong);
        findings.push(
            Finding::new(
                Severity::Problem,
                "roundtrip.cycles",
                format!("{failed} of {} cycles told no round trip", trip.cycles.len()),
            )
            .evidence(why)
            .effect("the spread is that of the others"),
        );
    }
    let disturbed: u32 = trip.cycles.iter().map(|cycle| cycle.disturbed).sum();
    if disturbed > 0 {
        findings.push(
            Finding::new(
                Severity::Warning,
                "roundtrip.disturbed",
                "the device ran over or under while it was measured",
            )
            .evidence(format!("{disturbed} passes were thrown away and made again"))
            .effect("the figures are of passes without an xrun")
            .remedy("`quietcores measure buffers` finds a buffer that holds"),
        );
    }
    if let Some(spread) = trip.spread
        && spread.most - spread.least > 0.5
    {
        findings.push(
            Finding::new(
                Severity::Warning,
                "roundtrip.spread",
                "the round trip differs from one opening of the device to the next",
            )
            .evidence(format!("{:.2} to {:.2} frames", spread.least, spread.most))
            .effect("recordings line up differently after each start")
            .remedy("measure again after the device was opened for good"),
        );
    }
    if heard().any(|heard| heard.inverted) {
        findings.push(
            Finding::new(Severity::Note, "roundtrip.inverted", "the signal comes back upside down")
                .effect("mixed with itself it cancels"),
        );
    }
    let clipped: u64 = heard().map(|heard| heard.clipped).sum();
    if clipped > 0 {
        findings.push(
            Finding::new(Severity::Warning, "roundtrip.clipped", "the input was at full scale")
                .evidence(format!("{clipped} frames"))
                .remedy("turn it down, or lower --level"),
        );
    }
    let drifts = |heard: &Heard| heard.drift_ppm.abs() > heard.drift_uncertainty.max(0.1);
    if let Some(heard) = heard().find(|heard| drifts(heard)) {
        findings.push(
            Finding::new(
                Severity::Warning,
                "roundtrip.drift",
                "capture and playback do not run on one clock",
            )
            .evidence(format!("{:+.2} ppm", heard.drift_ppm))
            .effect("the round trip grows or shrinks until a buffer runs over or dry")
            .remedy("use one card for both, or feed one clock to both"),
        );
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::example::{heard, opening, round_trip};
    use quiet_types::trip::Opening;

    #[test]
    fn the_parts_that_add_up_are_the_whole() {
        let parts = round_trip(vec![opening(115.2)]).budget;
        let of = |name: &str| parts.iter().find(|p| p.name == name).unwrap();
        let sum: f64 =
            ["strip (DSP)", "ring", "rest"].iter().filter_map(|name| of(name).frames).sum();
        assert!((sum - 115.2).abs() < 1e-9);
        assert!((of("round trip").milliseconds.unwrap() - 1.2).abs() < 1e-9);
        assert_eq!((of("ADC").frames, of("ADC").source), (None, BudgetSource::Unknown));
        let microframe = of("bus (USB microframe)");
        assert_eq!((microframe.milliseconds, microframe.frames), (Some(0.125), Some(12.0)));
        assert_eq!((of("ring").slides, of("round trip").slides), (Some(0.33), Some(1.2)));
    }

    #[test]
    fn what_is_doubtful_is_a_finding_each() {
        let ids = |trip: &RoundTrip| -> Vec<String> {
            judge_trip(trip).into_iter().map(|finding| finding.id).collect()
        };
        assert!(ids(&round_trip(vec![opening(100.0), opening(100.2)])).is_empty());
        assert_eq!(ids(&round_trip(vec![opening(100.0), opening(148.0)])), ["roundtrip.spread"]);
        let failed = Opening { heard: None, wrong: "no signal came back".into(), disturbed: 2 };
        let both = ids(&round_trip(vec![opening(100.0), failed]));
        assert_eq!(both, ["roundtrip.cycles", "roundtrip.disturbed"]);
        let odd = Heard { inverted: true, clipped: 9, drift_ppm: -50.0, ..heard(100.0) };
        let odd =
            round_trip(vec![Opening { heard: Some(odd), wrong: String::new(), disturbed: 0 }]);
        let expected = ["roundtrip.inverted", "roundtrip.clipped", "roundtrip.drift"];
        assert_eq!(ids(&odd), expected);
    }
}
