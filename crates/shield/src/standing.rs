//! How a shield stands, by its journal.

use crate::journal::Past;
use quiet_types::plan::ShieldStanding;

pub(crate) fn standing(past: &Past, boot: &str) -> ShieldStanding {
    match (&past.boot_id, &past.up) {
        (Some(id), _) if id != boot => ShieldStanding::Rebooted,
        (_, Some(_)) if past.reverting.is_none() => ShieldStanding::Up,
        _ => ShieldStanding::Leftover,
    }
}
