//! Where something was measured.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Where a run was made. Of a run with an `origin` an empty name is not known, and a hypervisor that is not
/// named may have been there.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Host {
    /// `uname -n`.
    pub name: String,
    /// `uname -r`.
    pub release: String,
    /// `uname -v`.
    pub version: String,
    /// `uname -m`.
    pub arch: String,
    /// Processor's name.
    pub processor: String,
    /// The hypervisor, if any.
    pub hypervisor: Option<String>,
    /// `/proc/sys/kernel/random/boot_id`: two runs with one id share a boot.
    pub boot_id: String,
    /// Version of quietcores.
    pub program: String,
}
