//! What every measurement by sound begins with.

use crate::{Nanos, host::Host};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The head of a measurement: its name, when and where it was made. Its fields stand among those of
/// the measurement.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Head {
    /// Name and version of the schema that the whole follows.
    pub schema: String,
    /// Unique: UTC start time, what it is and a few random digits.
    pub id: String,
    /// Free words, kept with it.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub label: String,
    /// Start, UTC, RFC 3339 with milliseconds.
    pub started: String,
    /// How long it took.
    pub lasted: Nanos,
    /// Ended by a signal before its time; judged is what there is.
    pub interrupted: bool,
    /// Where.
    pub host: Host,
}
