//! Whose a shield is: who asked for it, and who may put it back without asking anybody else.

use crate::{
    Result,
    error::{Error, ErrorKind},
    journal::{self, Past},
};
use quiet_linux::files::StateDir;
use quiet_types::plan::AppliedBy;
use std::path::Path;

/// Who asked for what the journal of `state` tells of; `None` where there is nothing that is anybody's.
///
/// # Errors
/// When the state directory or the journal cannot be read.
pub fn applied_by(state: &Path) -> Result<Option<AppliedBy>> {
    let Some(state) = StateDir::open(state)? else { return Ok(None) };
    Ok(journal::read(&state)?.filter(|past| !past.is_empty()).map(|past| past.by))
}

/// Refuses what is not user `uid`'s alone; nothing where there is no such user.
pub(crate) fn refuse_anothers(past: &Past, uid: Option<u32>) -> Result<()> {
    match uid {
        Some(uid) if !past.is_empty() && !past.by.is_left_to(uid) => Err(Error::new(
            ErrorKind::Refused,
            format!("the shield was put up by {}, and not by user {uid}", past.by),
        )),
        _ => Ok(()),
    }
}
