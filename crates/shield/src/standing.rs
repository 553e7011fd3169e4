//! How a shield stands, by its journal.

use crate::journal::Past;
use quiet_types::plan::Standing;

pub(crate) fn standing(past: &Past, boot: &str) -> Standing {
    match (&past.boot_id, &past.up) {
        (Some(id), _) if id != boot => Standing::Rebooted,
        (_, Some(_)) if past.reverting.is_none() => Standing::Up,
        _ => Standing::Leftover,
    }
}
