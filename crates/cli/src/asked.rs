//! The service that holds the rights, for verbs that run without root.

use anyhow::anyhow;
use quiet_engine::SeatLender;
use quiet_service::client::{Refusal, ServiceClient};
use quiet_types::{
    CpuId, CpuSet,
    plan::{ShieldStanding, Status},
    shield::Shield,
    words,
};
use std::{
    path::Path,
    sync::{Arc, Mutex, PoisonError},
};

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

/// The shield that is up, as the service says, with who lets threads into it; without root the journal is nobody's to read.
pub fn shield(state: &Path) -> (Option<Shield>, Option<Arc<dyn SeatLender>>) {
    if !is_for_service(state) {
        return (None, None);
    }
    let Ok(service) = service() else { return (None, None) };
    match service.status() {
        Ok(Status { state: ShieldStanding::Up, shield: Some(shield), .. }) => {
            (Some(shield), Some(Arc::new(Lender(Mutex::new(service)))))
        }
        _ => (None, None),
    }
}

/// The service, asked from the thread that is to play.
#[derive(Debug)]
struct Lender(Mutex<ServiceClient>);

impl SeatLender for Lender {
    fn lend(&self, tid: u32, cpu: Option<CpuId>, priority: Option<u8>) -> Result<(), String> {
        let service = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let cpus: Option<CpuSet> = cpu.map(|cpu| [cpu].into_iter().collect());
        let admitted = service.admit(tid, cpus.as_ref(), priority).map_err(|e| e.to_string())?;
        let refused = admitted.steps.iter().find(|taken| !taken.outcome.holds());
        refused.map_or(Ok(()), |taken| {
            Err(format!("{}: {}", taken.step.action.what(), words::outcome(&taken.outcome)))
        })
    }
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
