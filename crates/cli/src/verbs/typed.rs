//! Orders that are typed while it plays, and their answers in words.

use quiet_engine::control::Session;
use quiet_types::play::{Knob, PlayStatus, unit_sign};
use serde_json::Value;

const HELP: &str = "\
stats                       how it goes: load, xruns, levels
params                      the strip's parameters, with their ranges
set NAME VALUE              turn one: set out.gain -3
bypass on|off               the input in place of the strip
mute on|off                 silence
swap strip|amp|ir FILE      another strip, or this one with another file
strips                      the strips beside this one
presets, save NAME, load NAME
quit                        or Ctrl-C";

/// Carries out what was typed; what to say.
pub fn carry_out(session: &mut Session, line: &str) -> String {
    let verb = line.split_whitespace().next().unwrap_or_default();
    if matches!(verb, "help" | "?" | "h") {
        return HELP.to_owned();
    }
    let answer = match session.words(line) {
        Ok(answer) => answer,
        Err(why) => return why,
    };
    said(verb, &answer, session)
}

fn said(verb: &str, answer: &Value, session: &Session) -> String {
    let text = |key: &str| answer[key].as_str().unwrap_or_default().to_owned();
    let names = |key: &str, none: &str| {
        let names = answer[key].as_array().into_iter().flatten().filter_map(Value::as_str);
        let names: Vec<&str> = names.collect();
        if names.is_empty() { none.to_owned() } else { names.join("\n") }
    };
    let is_on = |key: &str| if answer[key] == true { "on" } else { "off" };
    match verb {
        "params" => table(session.name(), session.params()),
        "stats" => stats(&session.status(), session),
        "strips" => names("strips", "there are none"),
        "presets" => names("presets", "there are none yet: save NAME"),
        "bypass" | "mute" => format!("{verb} {}", is_on(verb)),
        "set" => match value_now(session, &text("param")) {
            Some(now) => format!("{} is {now}", text("param")),
            None => "done".to_owned(),
        },
        "swap" => swapped(answer),
        "save" => format!("kept as `{}`", text("preset")),
        "load" => match names("left_out", "").replace('\n', ", ") {
            none if none.is_empty() => format!("`{}` is called", text("preset")),
            left => format!("`{}` is called, without {left}", text("preset")),
        },
        _ => "done".to_owned(),
    }
}

/// A value with its unit.
fn value(knob: &Knob, value: f32) -> String {
    match (knob.unit.as_str(), unit_sign(&knob.unit)) {
        ("switch", _) => if value >= 0.5 { "on" } else { "off" }.to_owned(),
        (_, "") => format!("{value}"),
        (_, sign) => format!("{value} {sign}"),
    }
}

fn value_now(session: &Session, name: &str) -> Option<String> {
    let knob = session.params().iter().find(|knob| knob.name == name)?;
    Some(value(knob, knob.value))
}

/// The parameters as a table.
fn table(strip: &str, knobs: &[Knob]) -> String {
    if knobs.is_empty() {
        return format!("the strip `{strip}` has no parameters");
    }
    let row = |knob: &Knob| {
        let range = match knob.unit.as_str() {
            "switch" => "off or on".to_owned(),
            _ => format!("{} to {}", value(knob, knob.low), value(knob, knob.high)),
        };
        let turned = knob.default.filter(|default| *default != knob.value);
        let file = turned.map(|file| format!("the file says {}", value(knob, file)));
        [knob.name.clone(), value(knob, knob.value), range, file.unwrap_or_default()]
    };
    let rows: Vec<[String; 4]> = knobs.iter().map(row).collect();
    let wide = |at: usize| rows.iter().map(|row| row[at].chars().count()).max().unwrap_or(0);
    let (first, second, third) = (wide(0), wide(1), wide(2));
    let line = |[a, b, c, d]: &[String; 4]| {
        format!("{a:<first$}  {b:>second$}  {c:<third$}  {d}").trim_end().to_owned()
    };
    rows.iter().map(line).collect::<Vec<_>>().join("\n")
}

fn stats(status: &PlayStatus, session: &Session) -> String {
    let levels: Vec<String> =
        status.levels.iter().map(|l| format!("{:.1} in, {:.1} out", l.input, l.output)).collect();
    let mut text = format!(
        "{}: {} blocks, {} xruns, {} periods missed\nDSP load p50 {} %, p99 {} %, worst block {}\nlevels (dB): {}",
        session.name(),
        status.blocks,
        status.xruns,
        status.missed,
        status.load.p50,
        status.load.p99,
        status.load.worst,
        levels.join("; ")
    );
    for one in session.readings() {
        let Some(now) = one.value else { continue };
        text.push_str(&format!("\n{} {now:.1} {}", one.name, unit_sign(&one.unit)));
    }
    text
}

fn swapped(answer: &Value) -> String {
    let strip = answer["strip"].as_str().unwrap_or_default();
    let share = answer["share"].as_f64().unwrap_or_default() * 100.0;
    let fade = match answer["fade"].as_str() {
        Some("cross") => "crossfaded",
        _ => "faded out and in",
    };
    let notes = answer["notes"].as_array().into_iter().flatten().filter_map(Value::as_str);
    let notes: String = notes.map(|note| format!("\n{note}")).collect();
    format!("`{strip}` sounds, {fade}; its worst block takes {share:.0} % of a period{notes}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_are_a_table_with_units_and_ranges() {
        let knob = |name: &str, unit: &str, low, high, value, default| Knob {
            name: name.into(),
            unit: unit.into(),
            low,
            high,
            value,
            default: Some(default),
        };
        let knobs = [
            knob("out.gain", "decibel", -60.0, 20.0, -3.0, 0.0),
            knob("tone.bypass", "switch", 0.0, 1.0, 1.0, 1.0),
        ];
        assert_eq!(
            table("guitar", &knobs),
            "out.gain     -3 dB  -60 dB to 20 dB  the file says 0 dB\n\
             tone.bypass     on  off or on"
        );
        assert!(table("guitar", &[]).contains("no parameters"));
        for order in ["stats", "params", "set", "bypass", "mute", "swap", "strips", "save", "quit"]
        {
            assert!(HELP.contains(order), "{order}");
        }
    }
}
