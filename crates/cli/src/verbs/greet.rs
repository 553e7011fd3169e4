//! No verb at all: the machine in a few lines, and what to do next.

use crate::{asked, face};
use anyhow::Context;
use quiet_experiment::machine;
use quiet_linux::Root;
use quiet_plan::check::audit;
use quiet_report::{Greeting, greeting_text};
use quiet_service::acts::Acts;
use quiet_shield::DEFAULT_STATE;
use quiet_types::Chain;
use std::{path::Path, process::ExitCode};

pub fn run() -> anyhow::Result<ExitCode> {
    let root = Root::system().context("cannot look at the machine")?;
    let machine = machine(&root)?;
    let checked = audit(&machine, None);
    let plan = quiet_plan::plan(&machine, &Chain::default()).ok();
    let state = Path::new(DEFAULT_STATE);
    let own = || Acts::at(state).status().ok();
    let status = match asked::is_for_service(state) {
        true => asked::service().and_then(|service| service.status()).ok().or_else(own),
        false => own(),
    };
    let it = Greeting {
        machine: &machine,
        findings: &checked.findings,
        plan: plan.as_ref(),
        standing: status.as_ref().map(|status| status.state),
        shield: status.as_ref().and_then(|status| status.shield.as_ref()),
    };
    face::print(&greeting_text(&it, face::page_width()))?;
    Ok(ExitCode::SUCCESS)
}
