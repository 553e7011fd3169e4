//! How what nobody knows is said: a tool's file holds what the tool wrote, and nothing is made up for the rest.

use quiet_types::{Histogram, histogram::layout, run::MeasuringThread, words};

/// In place of what a file does not say.
pub const NOT_KNOWN: &str = "not known";

/// Whether more is known of the readings than their extremes, sum and number.
pub fn spread(all: &Histogram) -> bool {
    all.count == 0 || !all.buckets.is_empty() || all.min.is_some_and(|min| min.0 >= layout::END)
}

/// Policy and priority of a thread.
pub fn policy(thread: &MeasuringThread) -> String {
    or_not(thread.scheduling.map(|got| words::policy(got.policy, got.priority)))
}

/// A text, or that it is not known.
pub fn or_not<T: ToString>(value: Option<T>) -> String {
    value.map_or_else(|| NOT_KNOWN.to_owned(), |value| value.to_string())
}
