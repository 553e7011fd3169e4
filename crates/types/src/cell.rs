//! The place of a run in a campaign.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The place of a run in a campaign.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
pub struct Cell {
    /// The campaign's name.
    pub campaign: String,
    /// The probe's.
    pub probe: String,
    /// The stress's.
    pub stress: String,
    /// The setting's.
    pub setting: String,
    /// Which of its runs, from 1.
    pub round: u32,
    /// A hash of everything that the file says about this cell: one that says something else is
    /// another cell.
    pub key: String,
    /// What the order of the settings was drawn from; `None` where it was fixed, as before 0.2.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lot: Option<u32>,
    /// Its place in the drawn order of its round, from 0.
    #[serde(default)]
    pub place: u32,
    /// The place of its setting in the file, from 0: the others are compared with the first.
    #[serde(default)]
    pub rank: u32,
}
