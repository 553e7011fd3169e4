//! What of this machine stands in records and is not kept with a run.

/// This machine, in this boot.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Around {
    /// The board's or computer's name; empty where it is not known.
    pub board: String,
    /// Of the boot that these are true of.
    pub boot_id: String,
    /// Boot parameters, secrets masked.
    pub parameters: Vec<String>,
    /// The chain of the shield that is up; empty for none.
    pub chain: String,
}
