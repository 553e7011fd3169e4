//! docs/strip.md lists every kind and every key: the table is made from them.
//!
//! After a change: `QUIETCORES_BLESS=1 cargo test -p quiet-dsp --test docs`.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

use quiet_dsp::strip::{Description, KINDS, ValueForm};
use std::{fmt::Write, path::Path};

fn table() -> String {
    let mut text = String::new();
    for kind in KINDS {
        writeln!(text, "### {}\n\n{}.\n", kind.name, kind.what).unwrap();
        if kind.keys.is_empty() {
            continue;
        }
        text.push_str(
            "| key | value | when left out | live | |\n| --- | --- | --- | --- | --- |\n",
        );
        for key in kind.keys {
            let (value, default, live) = match key.form {
                ValueForm::Number { unit, low, high, default, live } => {
                    let default = default.map_or("-".into(), |d| d.to_string());
                    (format!("{low} to {high} {unit}"), default, live)
                }
                ValueForm::Needed { unit, low, high, live } => {
                    (format!("{low} to {high} {unit}"), "needed".into(), live)
                }
                ValueForm::Switch { default, live } => {
                    ("true or false".into(), default.to_string(), live)
                }
                ValueForm::Choice { of, default } => {
                    (of.join(", "), default.unwrap_or("needed").into(), false)
                }
                ValueForm::Text { needed } => {
                    ("text".into(), if needed { "needed" } else { "-" }.into(), false)
                }
                ValueForm::Numbers { unit, low, high, most, live } => {
                    (format!("at most {most} of {low} to {high} {unit}"), "-".into(), live)
                }
                ValueForm::Rows { unit, low, high, most, live } => (
                    format!("rows of at most {most} of {low} to {high} {unit}"),
                    "needed".into(),
                    live,
                ),
            };
            let live = if live { "yes" } else { "" };
            let line = format!(
                "| `{}` | {} | {default} | {live} | {} |",
                key.name,
                value.trim(),
                key.what
            );
            writeln!(text, "{line}").unwrap();
        }
        text.push('\n');
    }
    text
}

#[test]
fn the_page_lists_every_kind_and_key() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/strip.md");
    let page = std::fs::read_to_string(&path).unwrap();
    let (before, rest) = page.split_once("## Kinds\n\n").unwrap();
    let after = rest.find("\n## ").map_or("", |at| &rest[at..]);
    let now = format!("{before}## Kinds\n\n{}{after}", table());
    if std::env::var_os("QUIETCORES_BLESS").is_some_and(|v| v == "1") {
        std::fs::write(&path, now).unwrap();
        return;
    }
    assert!(
        page == now,
        "docs/strip.md is not the table of the kinds: run with QUIETCORES_BLESS=1"
    );
}

#[test]
fn the_examples_are_strips() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/strips");
    let mut count = 0;
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        // The files that they name lie beside them.
        if path.extension().is_none_or(|ending| ending != "toml") {
            continue;
        }
        let text = std::fs::read_to_string(&path).unwrap();
        let strip = Description::parse(&text, &path.display().to_string());
        let strip = strip.unwrap_or_else(|e| panic!("{e}"));
        strip.shape(strip.channels().unwrap()).unwrap_or_else(|e| panic!("{e}"));
        count += 1;
    }
    assert!(count >= 3);
}
