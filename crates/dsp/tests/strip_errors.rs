//! What is wrong with a strip file is said with its line, its caret and the remedy.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

use proptest::prelude::*;
use quiet_dsp::strip::Description;
use quiet_types::FileError;
use quiet_types::{Frames, SampleRate};

fn error(text: &str) -> FileError {
    match Description::parse(text, "my.toml") {
        Err(error) => error,
        Ok(description) => {
            let mut loader = |name: &str| Err(format!("cannot read {name}: no such file"));
            description
                .prepare(2, SampleRate(48_000), Frames(64), &mut loader)
                .err()
                .unwrap_or_else(|| panic!("nothing wrong with {text}"))
        }
    }
}

#[test]
fn every_error_names_its_line_and_its_reason() {
    let stage = "[[stage]]\n";
    for (text, line, title) in [
        ("[[stage]\n", 1, "unclosed array table, expected `]`"),
        ("[strip]\ncolour = 1\n", 2, "unknown key `colour`"),
        ("[[stages]]\n", 1, "unknown key `stages`"),
        (stage, 1, "a stage does not say what it is"),
        ("[[stage]]\nkind = \"gian\"\n", 2, "there is no stage of kind `gian`"),
        ("[[stage]]\nkind = \"gain\"\ngian = 2.0\n", 3, "unknown key `gian`"),
        ("[[stage]]\nkind = \"gain\"\ngain = 200.0\n", 3, "`gain` is out of its range"),
        ("[[stage]]\nkind = \"gain\"\ngain = nan\n", 3, "`gain` is out of its range"),
        ("[[stage]]\nkind = \"gain\"\ngain = \"loud\"\n", 3, "`gain` is a number"),
        ("[[stage]]\nkind = \"gain\"\non = [2]\n", 3, "gain: there is no channel 2: 2 come here"),
        ("[[stage]]\nkind = \"gain\"\non = [1, 1]\n", 3, "channel 1 is named twice"),
        ("[[stage]]\nkind = \"gain\"\nname = \"a.b\"\n", 3, "this is not a name"),
        (
            "[[stage]]\nkind = \"gain\"\nname = \"a\"\n[[stage]]\nkind = \"dc\"\nname = \"a\"\n",
            6,
            "two stages are called `a`",
        ),
        ("[[stage]]\nkind = \"biquad\"\n", 2, "`biquad` needs `type`"),
        (
            "[[stage]]\nkind = \"biquad\"\ntype = \"peak\"\nfrequency = 30000.0\n",
            4,
            "biquad: 30000 Hz cannot be told apart at a rate of 48000 Hz",
        ),
        (
            "[[stage]]\nkind = \"biquad\"\ntype = \"free\"\ncoefficients = [1, 0, 0, -2, 1]\n",
            2,
            "biquad: this filter would not be stable at this rate",
        ),
        (
            "[[stage]]\nkind = \"mix\"\nmatrix = [[1.0]]\n",
            3,
            "mix: a row has 1 factors for 2 inputs",
        ),
        ("[strip]\nchannels = 1\n", 2, "the strip takes 1 channels, and 2 come in"),
        ("[[stage]]\nkind = \"split\"\n", 2, "a split has no branches"),
        (
            "[[stage]]\nkind = \"split\"\n[[stage.branch]]\n[[stage.branch.stage]]\nkind = \"mix\"\n\
             matrix = [[1.0, 1.0]]\n[[stage.branch]]\n",
            7,
            "branches of `split` end with 1 and with 2 channels",
        ),
    ] {
        let error = error(text);
        assert_eq!((error.title(), error.line()), (title, line), "{error}");
        assert!(error.to_string().contains("help: "), "{error}");
    }
}

#[test]
fn a_nest_of_splits_has_a_floor() {
    let mut text = String::new();
    for depth in 0..30 {
        let table = "stage.branch.".repeat(depth);
        text.push_str(&format!("[[{table}stage]]\nkind = \"split\"\n[[{table}stage.branch]]\n"));
    }
    assert_eq!(error(&text).title(), "splits are nested too deeply");
}

proptest! {
    #[test]
    fn no_text_makes_the_parser_panic(text in "(\\[\\[stage\\]\\]\n|kind = |\"mix\"|\"gain\"|\"eq\"|matrix|gains| = |\\[|\\]|[0-9.]+|,|\n|é|on){0,40}") {
        if let Ok(description) = Description::parse(&text, "any.toml") {
            let mut loader = |_: &str| Err(String::from("no"));
            let _ = description.prepare(2, SampleRate(48_000), Frames(16), &mut loader);
        }
    }
}
