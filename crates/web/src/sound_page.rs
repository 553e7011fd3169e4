//! The strip that sounds, to be turned: knobs, switches, tuner, files to drop onto it, presets.

use crate::{
    api,
    guard::Access,
    pages::{Page, late, loads, meters, page, switches},
    state::App,
};
use axum::{Extension, extract::State};
use maud::{Markup, html};
use quiet_types::{
    live::{LiveSound, SoundWish},
    play::{Knob, Knobs, Pitch, unit_sign},
};
use serde_json::Value;
use std::sync::Arc;

/// An engine, with what it told when it was asked.
struct Desk {
    sound: LiveSound,
    knobs: Result<Knobs, String>,
    presets: Vec<String>,
    strips: Vec<String>,
}

pub(crate) async fn sound(
    State(app): State<Arc<App>>,
    Extension(access): Extension<Access>,
) -> Page {
    let moment = api::moment(&app).await?;
    let sounds = moment.sounds.clone();
    let desks = app.blocking(move |app| sounds.into_iter().map(|s| desk(app, s)).collect()).await?;
    let desks: Vec<Desk> = desks;
    let body = html! {
        h1 { "Sound" }
        p #said role="status" {}
        div #desks data-act[access == Access::Act] {
            @for (at, one) in desks.iter().enumerate() { (drawn(at, one, access)) }
            @if desks.is_empty() {
                p.none { "No engine of this user plays: " code { "quietcores play STRIP.toml" } " plays one." }
            }
        }
        (late(&app.doors.watch.history()))
    };
    Ok(page(&app, access, "/sound", "Sound", body))
}

fn desk(app: &App, sound: LiveSound) -> Desk {
    let none = || Err("there is no private directory for control sockets".to_owned());
    let Some(dir) = app.doors.engines.as_ref() else {
        return Desk { sound, knobs: none(), presets: Vec::new(), strips: Vec::new() };
    };
    let names = |wish: &SoundWish, key: &str| -> Vec<String> {
        let answer = quiet_live::wish(dir, &sound.name, wish).unwrap_or_default();
        let names = answer[key].as_array().into_iter().flatten().filter_map(Value::as_str);
        names.map(|name| quiet_live::clean(name, 64)).take(200).collect()
    };
    let knobs = quiet_live::knobs(dir, &sound.name).map_err(|e| e.to_string());
    let presets = names(&SoundWish::Presets {}, "presets");
    let strips = names(&SoundWish::Strips {}, "strips");
    Desk { sound, knobs, presets, strips }
}

fn drawn(at: usize, desk: &Desk, access: Access) -> Markup {
    let (sound, may) = (&desk.sound, access == Access::Act);
    html! {
        section.desk data-engine=(sound.name) data-strip=(sound.strip) aria-label=(sound.strip) {
            h2 { (sound.strip) }
            p.told { (sound.told) }
            div.panel {
                (meters(sound))
                (loads(sound))
                @for pitch in Pitch::of(&sound.readings) { (tuner(&pitch)) }
            }
            @if may { (switches(sound)) }
            @match &desk.knobs {
                Ok(knobs) => (stages(at, knobs, may)),
                Err(why) => p.bad { (why) }
            }
            @if may { (files(at)) (choices(at, desk)) }
        }
    }
}

fn tuner(pitch: &Pitch) -> Markup {
    let note = if pitch.note.is_empty() { "-" } else { pitch.note.as_str() };
    html! {
        div.tuner data-stage=(pitch.stage) role="group" aria-label=(format!("Tuner {}", pitch.stage)) {
            span.pitch { (note) }
            meter min="-50" max="50" low="-5" high="5" optimum="0" value=(pitch.cents) aria-label="Cents from the note" {}
            span.cents { (format!("{:+.0} cents", pitch.cents)) }
        }
    }
}

/// Knobs by stage: what stands before the name's first point.
fn stages(at: usize, knobs: &Knobs, may: bool) -> Markup {
    let mut groups: Vec<(&str, Vec<(usize, &Knob)>)> = Vec::new();
    for (number, knob) in knobs.params.iter().enumerate() {
        let stage = knob.name.rsplit_once('.').map_or("", |(stage, _)| stage);
        match groups.last_mut() {
            Some((last, knobs)) if *last == stage => knobs.push((number, knob)),
            _ => groups.push((stage, vec![(number, knob)])),
        }
    }
    html! {
        @if knobs.params.is_empty() { p.none { "This strip has no parameters." } }
        @else { p.note { "Arrow keys turn a knob; a double click, or Delete, puts it back to what the strip's file says." } }
        div.stages {
            @for (stage, knobs) in groups {
                fieldset { legend { (stage) } @for (number, knob) in knobs { (turned(at, number, knob, may)) } }
            }
        }
    }
}

fn turned(at: usize, number: usize, knob: &Knob, may: bool) -> Markup {
    let id = format!("knob-{at}-{number}");
    let what = knob.name.rsplit_once('.').map_or(knob.name.as_str(), |(_, what)| what);
    let sign = unit_sign(&knob.unit);
    let file = knob.default.unwrap_or(knob.value);
    if knob.unit == "switch" {
        return html! {
            div.knob.switch data-param=(knob.name) data-default=(file) {
                label for=(id) { (what) }
                input id=(id) type="checkbox" role="switch" checked[knob.value >= 0.5] disabled[!may];
            }
        };
    }
    html! {
        div.knob data-param=(knob.name) data-low=(knob.low) data-high=(knob.high) data-default=(file)
            data-unit=(sign) data-log[knob.is_logarithmic()] {
            label for=(id) { (what) }
            input id=(id) type="range" min="0" max="1000" step="1" value=(format!("{:.0}", knob.share() * 1000.0))
                aria-valuetext=(format!("{} {sign}", knob.value)) disabled[!may];
            input type="number" min=(knob.low) max=(knob.high) step="any" value=(knob.value)
                aria-label=(format!("{} in {}", knob.name, if sign.is_empty() { "numbers" } else { sign })) disabled[!may];
            span.unit { (sign) }
        }
    }
}

fn files(at: usize) -> Markup {
    let id = format!("file-{at}");
    html! {
        div.drop {
            label for=(id) { "Drop an amp (.nam) or an impulse response (.wav) here, or choose one" }
            input id=(id) type="file" accept=".nam,.json,.aidax,.wav";
            p.note { "The engine tries it in a process apart before it takes it; what sounds goes on." }
        }
    }
}

fn choices(at: usize, desk: &Desk) -> Markup {
    let chooser = |what: &str, word: &str, names: &[String], act: &str| {
        let id = format!("{act}-{at}");
        html! {
            div.row {
                label for=(id) { (what) }
                select id=(id) {
                    @for name in names { option value=(name) selected[*name == desk.sound.strip] { (name) } }
                }
                button.choose data-act=(act) disabled[names.is_empty()] { (word) }
            }
        }
    };
    let id = format!("save-{at}");
    html! {
        div.choices {
            (chooser("Presets", "Call", &desk.presets, "load"))
            div.row {
                label for=(id) { "Keep as" }
                input id=(id) type="text" maxlength="64" pattern="[\\p{L}\\p{N}_ \\-]+" autocomplete="off";
                button.choose data-act="save" { "Save" }
            }
            (chooser("Strips beside this one", "Play", &desk.strips, "strip"))
        }
    }
}
