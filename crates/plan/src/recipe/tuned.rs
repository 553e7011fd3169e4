//! Variables of tuned's profiles realtime, realtime-virtual-host and cpu-partitioning.

use super::{RecipeError, page::Page};

pub(super) fn import(text: &str, name: &str) -> Result<String, RecipeError> {
    let mut page = Page::new(
        name,
        "From variables of tuned. They name CPUs, and no links: add them from input to output.",
    );
    let mut known = false;
    for (line, at) in text.lines().map(str::trim).zip(1..) {
        if line.is_empty() || line.starts_with(['#', '[', ';']) {
            continue;
        }
        let Some((key, value)) = line.split_once('=').map(|(k, v)| (k.trim(), v.trim())) else {
            page.say(format!("Not understood, and left out: {line}"));
            continue;
        };
        known |= setting(&mut page, key, value).map_err(|why| RecipeError::at(at, why))?;
    }
    if !known {
        return Err(RecipeError::whole(
            "it sets none of isolated_cores, no_balance_cores, isolate_managed_irq",
        ));
    }
    page.say(
        "tuned also changes settings that a chain file does not name; \
            `quietcores check` says what is left to do.",
    );
    Ok(page.text())
}

/// Carries one variable over; whether it is one of those that set CPUs apart.
fn setting(page: &mut Page, key: &str, value: &str) -> Result<bool, String> {
    match key {
        "isolated_cores" if value.is_empty() => {
            page.say("isolated_cores is empty, so the plan chooses the CPUs.");
        }
        "isolated_cores" if value.contains("${") => page.say(format!(
            "isolated_cores={value} was computed by tuned (which leaves one CPU of \
            each package and does not look at SMT siblings); here the plan \
            chooses."
        )),
        "isolated_cores" => page.cpus(value.parse().map_err(|e| format!("isolated_cores: {e}"))?),
        "no_balance_cores" => page.say(format!(
            "no_balance_cores={value}: a shield has no load balancing on any of \
            its CPUs."
        )),
        "isolate_managed_irq" => page.say(format!(
            "isolate_managed_irq={value}: isolcpus=managed_irq can be had at boot \
            only (quietcores persist)."
        )),
        "netdev_queue_count" => {
            page.say(format!(
                "netdev_queue_count={value}: set it with ethtool -L; foreign \
                queues' interrupts go to the other CPUs."
            ));
            return Ok(false);
        }
        other => {
            page.say(format!("{other}={value}: has no place in a chain."));
            return Ok(false);
        }
    }
    Ok(true)
}
