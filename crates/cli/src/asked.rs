//! The service that holds the rights, for verbs that run without root.

use anyhow::anyhow;
use quiet_service::client::{Refusal, ServiceClient};
use std::path::Path;

/// Names another bus than the system's: for tests.
const BUS: &str = "QUIETCORES_BUS";

/// The service, where this is not root and the journal is that of the machine.
///
/// # Errors
/// When there is no bus.
pub fn service() -> Result<ServiceClient, Refusal> {
    ServiceClient::connect(std::env::var(BUS).ok().as_deref())
}

/// Whether a verb about the journal in `state` is the service's to do: not root's, and of the machine's own journal.
pub fn is_for_service(state: &Path) -> bool {
    !crate::face::is_root() && state == Path::new(quiet_shield::DEFAULT_STATE)
}

/// What a user reads where the service did not do it: `what` could not be done, and `sudo quietcores VERB` does it.
pub fn refused(refusal: Refusal, what: &str, verb: &str) -> anyhow::Error {
    match refusal {
        Refusal::Said(said) => anyhow!("cannot {what}: {said}"),
        Refusal::NoService(why) => anyhow!(
            "cannot {what} without root, and the service quietcored is not there ({why}): \
             sudo quietcores {verb}"
        ),
    }
}
