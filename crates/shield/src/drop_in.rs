//! Files of settings that others read when they start: made whole, taken away whole, and who reads them started anew.

use crate::{
    change::Change,
    error::{Result, is_gone, plain, write_reason},
    journal::Journal,
};
use quiet_linux::{Kernel, fault};
use quiet_types::plan::{Outcome, PutBack, Return, UserUnit};
use std::io;

/// As [`write`], and has those started anew who read it. That somebody cannot be started anew is no refusal: it counts from their next
/// start.
pub(crate) fn make(
    kernel: &dyn Kernel,
    journal: &mut Journal,
    path: &str,
    text: &str,
    restart: &[UserUnit],
) -> Result<Outcome> {
    let written = write(kernel, journal, path, text, restart)?;
    if !matches!(written, Outcome::Done { .. }) || restart.is_empty() {
        return Ok(written);
    }
    let late = started_anew(kernel, restart);
    if let Some((unit, why)) = late.first() {
        let run = format!("systemctl --user restart {}", unit.unit);
        let seen = format!("written; {unit} reads it when that user runs `{run}` ({why})");
        return Ok(Outcome::Pending { seen });
    }
    let all: Vec<String> = restart.iter().map(UserUnit::to_string).collect();
    Ok(Outcome::Done { seen: format!("written; {} started anew", all.join(", ")) })
}

/// Makes the file, with a note before, and reads it back.
pub(crate) fn write(
    kernel: &dyn Kernel,
    journal: &mut Journal,
    path: &str,
    text: &str,
    restart: &[UserUnit],
) -> Result<Outcome> {
    let old = match text_of(kernel, path) {
        Ok(old) => old,
        Err(error) => return Ok(Outcome::Refused { reason: write_reason(&error) }),
    };
    if old.as_deref() == Some(text) {
        return Ok(Outcome::Already);
    }
    if old.as_ref().is_some_and(|old| old.contains(char::REPLACEMENT_CHARACTER)) {
        let reason = "it is no UTF-8 text, and could not be put back as it was".into();
        return Ok(Outcome::Refused { reason });
    }
    let above = above(path).filter(|dir| kernel.list(dir).as_ref().is_err_and(is_gone));
    journal.note(Change::DropIn {
        path: path.to_owned(),
        made: above.map(str::to_owned).collect(),
        old,
        new: text.to_owned(),
        restart: restart.to_vec(),
    })?;
    let made = kernel.make_file(path, text);
    fault::point();
    if let Err(error) = made {
        return Ok(Outcome::Refused { reason: write_reason(&error) });
    }
    Ok(match text_of(kernel, path) {
        Ok(Some(now)) if now == text => {
            Outcome::Done { seen: "written; it counts for who is started from now on".into() }
        }
        Ok(_) => Outcome::Ignored { seen: "another text".into() },
        Err(error) => Outcome::Refused { reason: write_reason(&error) },
    })
}

/// Takes the file away, or puts its old text back, where it still is the one that was made; and the directories that were made for it.
pub(crate) fn back(
    kernel: &dyn Kernel,
    path: &str,
    made: &[String],
    old: Option<&str>,
    new: &str,
) -> Return {
    kernel.sweep(path);
    let outcome = match text_of(kernel, path) {
        Err(error) => Return::Refused { reason: write_reason(&error) },
        Ok(now) if now.as_deref() == old => Return::Untouched,
        Ok(None) => Return::Gone,
        Ok(Some(now)) if now != new => {
            Return::Left { now: "another text than the one we wrote".into() }
        }
        Ok(Some(_)) => {
            let done = match old {
                Some(old) => kernel.replace(path, old),
                None => kernel.remove_file(path),
            };
            fault::point();
            match done.and_then(|()| text_of(kernel, path)) {
                Ok(now) if now.as_deref() == old => Return::Restored,
                Ok(_) => Return::Refused { reason: "it was put back, and has another text".into() },
                Err(error) => Return::Refused { reason: write_reason(&error) },
            }
        }
    };
    // One in which somebody else has put something stays.
    for dir in made {
        let _ = kernel.remove_dir(dir);
        fault::point();
    }
    outcome
}

/// Has those started anew who read a file that was put back, where they run; names who was not.
pub(crate) fn read_again(kernel: &dyn Kernel, restart: &[UserUnit]) -> Vec<PutBack> {
    let late = started_anew(kernel, restart);
    let item = |(unit, why): (&UserUnit, String)| PutBack {
        what: unit.to_string(),
        outcome: Return::Left {
            now: format!(
                "it runs with the settings of the shield until it is started anew: that user runs `systemctl --user restart {}` ({why})",
                unit.unit
            ),
        },
    };
    late.into_iter().map(item).collect()
}

/// Who could not be started anew, and why.
fn started_anew<'a>(kernel: &dyn Kernel, units: &'a [UserUnit]) -> Vec<(&'a UserUnit, String)> {
    let mut late = Vec::new();
    for unit in units {
        let done = kernel.restart(unit);
        fault::point();
        if let Err(error) = done {
            late.push((unit, plain(&error)));
        }
    }
    late
}

/// What a file holds; `None` where there is none.
fn text_of(kernel: &dyn Kernel, path: &str) -> io::Result<Option<String>> {
    match kernel.read(path) {
        Ok(text) => Ok(Some(text)),
        Err(error) if is_gone(&error) => Ok(None),
        Err(error) => Err(error),
    }
}

/// The directories above a file, the innermost first.
fn above(path: &str) -> impl Iterator<Item = &str> {
    let cuts = path.rmatch_indices('/').map(|(at, _)| &path[..at]);
    cuts.take_while(|dir| !dir.is_empty())
}
