//! Recipes of other tools, read as chain files.
//!
//! What a chain file cannot say is carried over as comments in it: nothing is dropped in silence.

mod command_line;
mod cset;
mod page;
mod rtirq;
#[cfg(test)]
mod tests;
mod tuned;

use std::fmt;

/// What a recipe is written for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RecipeFormat {
    /// Listings of `cset set -l` and `cset proc -l`.
    Cset,
    /// A kernel command line with `isolcpus=`, `nohz_full=`, `irqaffinity=` ...
    Isolcpus,
    /// `rtirq.conf`.
    Rtirq,
    /// `realtime-variables.conf` and its like of tuned.
    Tuned,
}

/// Why a recipe could not be read, with the line where there is one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecipeError {
    line: Option<usize>,
    why: String,
}

impl RecipeError {
    fn at(line: usize, why: impl Into<String>) -> RecipeError {
        RecipeError { line: Some(line), why: why.into() }
    }

    fn whole(why: impl Into<String>) -> RecipeError {
        RecipeError { line: None, why: why.into() }
    }

    /// The line, from 1, where it is one line that is wrong.
    pub fn line(&self) -> Option<usize> {
        self.line
    }
}

impl fmt::Display for RecipeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.line {
            Some(line) => write!(f, "line {line}: {}", self.why),
            None => f.write_str(&self.why),
        }
    }
}

impl std::error::Error for RecipeError {}

/// What a text is, by its content; `None` where it looks like nothing known.
pub fn detect(text: &str) -> Option<RecipeFormat> {
    let settings = || text.lines().map(str::trim).filter(|line| !line.starts_with('#'));
    let sets = |name: &str| {
        settings().any(|line| {
            line.strip_prefix(name).is_some_and(|rest| rest.trim_start().starts_with('='))
        })
    };
    if settings().any(|line| line.strip_prefix("export ").unwrap_or(line).starts_with("RTIRQ_")) {
        return Some(RecipeFormat::Rtirq);
    }
    if sets("isolated_cores") || sets("no_balance_cores") || sets("isolate_managed_irq") {
        return Some(RecipeFormat::Tuned);
    }
    if cset::looks_so(text) {
        return Some(RecipeFormat::Cset);
    }
    command_line::looks_so(text).then_some(RecipeFormat::Isolcpus)
}

/// The chain file, called `name`, that says what a recipe says.
///
/// # Errors
/// When the text is not what `format` says, when a line of it makes no sense, or when its CPU
/// lists do not.
pub fn import(text: &str, format: RecipeFormat, name: &str) -> Result<String, RecipeError> {
    match format {
        RecipeFormat::Cset => cset::import(text, name),
        RecipeFormat::Isolcpus => command_line::import(text, name),
        RecipeFormat::Rtirq => rtirq::import(text, name),
        RecipeFormat::Tuned => tuned::import(text, name),
    }
}
