//! How an experiment is seen: a bar on a terminal, a line for what happens.

use crate::face;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use quiet_experiment::{Notice, Observer};
use quiet_types::{
    Nanos,
    proof::{Arm, Setting},
    words,
};
use std::{collections::BTreeMap, io::IsTerminal, time::Duration};

/// On standard error.
pub struct Progress(ProgressBar);

impl Progress {
    /// Nothing is shown before an experiment begins.
    pub fn new() -> Progress {
        Progress(ProgressBar::hidden())
    }

    fn line(&self, text: &str) {
        self.0.suspend(|| face::say(text));
    }
}

impl Observer for Progress {
    fn begin(&self, whole: Nanos) {
        self.0.set_length(whole.0 / 1_000_000);
        let style =
            ProgressStyle::with_template("{bar:30} {percent:>3} %  {wide_msg}  ({eta} left)");
        self.0.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
        if std::io::stderr().is_terminal() {
            self.0.set_draw_target(ProgressDrawTarget::stderr_with_hz(10));
            self.0.enable_steady_tick(Duration::from_millis(200));
        }
        self.0.reset();
    }

    fn at(&self, done: Nanos) {
        self.0.set_position(done.0 / 1_000_000);
    }

    fn doing(&self, what: &str) {
        self.0.set_message(what.to_owned());
    }

    fn event(&self, event: Notice<'_>) {
        match event {
            Notice::PutBack(done) if done.rebooted => {
                self.line(quiet_report::plan::reverted_text(done).trim_end());
            }
            Notice::PutBack(done) => self.line(&format!(
                "An earlier shield was not confirmed, or whoever asked for it was killed. {}",
                quiet_report::plan::reverted_text(done).trim_end()
            )),
            Notice::NotPutBack(error) => self.line(&format!("quietcores: {error:#}")),
            Notice::Pair { number, of, arms, threshold } => {
                self.line(&format!("pair {number} of {of}  {}", pair(arms, threshold)));
            }
            Notice::Cell { number, of, name, run, left } => {
                let said = match run {
                    Ok(line) => {
                        let shown = |time: Option<Nanos>| {
                            time.map_or_else(|| "-".to_owned(), |time| time.to_string())
                        };
                        format!("p99 {}, max {}", shown(line.p99), shown(line.max))
                    }
                    Err(why) => format!("failed: {why}"),
                };
                let left = words::span(left);
                self.line(&format!("run {number} of {of}: {name}: {said}; about {left} left"));
            }
            Notice::Design(design, factors) => {
                self.line(&quiet_report::design_text(design, factors.len()));
            }
            // 200 of them: the bar tells how far it is.
            Notice::Block(_) => {}
            Notice::Buffer { period, buffer, plays } => {
                let word = match plays {
                    Ok(true) => "plays",
                    Ok(false) => "xrun",
                    Err(why) => why,
                };
                self.line(&format!("period {period}, buffer {buffer}: {word}"));
            }
        }
    }

    fn guard(&self) -> fn(&str) {
        face::say
    }

    fn end(&self) {
        self.0.finish_and_clear();
    }
}

/// A line a pair, so that a log shows life and a person sees it come.
fn pair(arms: &[Arm], threshold: Nanos) -> String {
    let mut by: BTreeMap<Setting, String> = BTreeMap::new();
    for arm in arms {
        let readings = arm.wakeup.readings();
        let p99 =
            readings.percentile(0.99).map_or_else(|| "none".to_owned(), |p99| p99.to_string());
        let beyond: u64 = arm.wakeup.threads.iter().filter_map(|t| t.beyond).sum();
        let void = if arm.void.is_some() { ", void" } else { "" };
        let missed = arm.wakeup.missed().unwrap_or_default();
        by.insert(
            arm.setting,
            format!(
                "{}: p99 {p99}, {beyond} beyond {threshold}, {missed} missed{void}",
                arm.setting
            ),
        );
    }
    by.into_values().collect::<Vec<_>>().join("; ")
}
