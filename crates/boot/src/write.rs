//! Making it last: noted first, all texts aside, then renamed one after another.

use super::{
    draft::{DraftedChange, Term},
    efi,
    error::{Error, ErrorKind, Result},
    grub,
    propose::Proposal,
    record::{FileChange, Phase, Record, SCHEMA, Shelf, Side},
    runner::{Runner, renew},
    undo,
};
use quiet_linux::fault;
use quiet_linux::files::{NewText, StateDir, Tree, stamp};
use std::path::Path;

/// What was written.
#[derive(Clone, Debug)]
pub struct Written {
    /// The record.
    pub record: Record,
    /// Commands that still have to be run, because this is only a tree of files.
    pub to_run: Vec<Vec<String>>,
}

/// Makes the changes of a proposal. The record with every old text is on disk before the first of
/// them; all new texts stand aside, written and synced, before the first is renamed.
///
/// # Errors
/// When something was made to last already, a file has changed since the proposal, or a write
/// fails: then what was done is put back, and the sentence says so.
pub fn write(
    place: &Tree,
    state: &Path,
    proposal: &Proposal,
    runner: &dyn Runner,
) -> Result<Written> {
    write_under(place.lock_file().as_deref(), place, state, proposal, runner)
}

/// As [`write()`], where `lock_file` is the machine's lock: others may have a state directory of their own, and change the same files.
pub(super) fn write_under(
    lock_file: Option<&Path>,
    place: &Tree,
    state: &Path,
    proposal: &Proposal,
    runner: &dyn Runner,
) -> Result<Written> {
    let state = StateDir::make(state)?;
    let _lock = state.lock_machine(lock_file)?;
    let shelf = Shelf::of(&state);
    refuse_over(shelf.read()?)?;
    unchanged(place, proposal)?;
    let mut record = Record {
        schema: SCHEMA.into(),
        stage: Phase::Begun,
        at: stamp(),
        loader: proposal.loader.name().into(),
        trial: proposal.term == Term::OneBoot,
        asked: proposal.asked.clone(),
        apply: proposal.apply.clone(),
        changes: proposal.steps.iter().map(|step| step.change.clone()).collect(),
    };
    shelf.clear();
    fault::point();
    for step in &proposal.steps {
        keep(&shelf, step)?;
        fault::point();
    }
    shelf.write(&record)?;
    fault::point();
    let mut to_run = Vec::new();
    if let Err(error) = make(place, &shelf, proposal, runner, &mut to_run) {
        return Err(put_back(place, &shelf, record, runner, &error));
    }
    record.stage = Phase::Done;
    shelf.write(&record)?;
    fault::point();
    Ok(Written { record, to_run })
}

/// Whether nothing was made to last yet.
///
/// # Errors
/// A sentence when something was, whole or cut short, with the way on; or when the state directory
/// cannot be read.
pub fn vacant(state: &Path) -> Result<()> {
    refuse_over(super::record(state)?)
}

fn refuse_over(record: Option<Record>) -> Result<()> {
    let Some(record) = record else { return Ok(()) };
    let cpus = &record.asked.cpus;
    let (kind, sentence) = match record.stage {
        Phase::Done if record.trial => (
            ErrorKind::AlreadyLasting,
            format!(
                "a trial with CPU {cpus} is prepared or running (since {}); `persist --bless` keeps it, \
                 `unpersist` takes it back",
                record.at
            ),
        ),
        Phase::Done => (
            ErrorKind::AlreadyLasting,
            format!(
                "CPU {cpus} is kept quiet across reboots already (since {}); `quietcores unpersist` \
                 takes that back first",
                record.at
            ),
        ),
        Phase::Begun | Phase::Undoing => (
            ErrorKind::Leftover,
            format!(
                "an earlier persist or unpersist (of {}) did not come to its end; run `quietcores \
                 unpersist`, which puts everything back",
                record.at
            ),
        ),
    };
    Err(Error::of(kind, sentence))
}

/// Between the proposal, which a person may have read for a while, and now.
fn unchanged(place: &Tree, proposal: &Proposal) -> Result<()> {
    for step in &proposal.steps {
        if let FileChange::File { path, .. } | FileChange::Generate { path, .. } = &step.change {
            still(place, path, step.old.as_deref())?;
        }
    }
    same_sources(place, proposal)
}

/// What is copied into a trial belongs to a kernel that may be replaced meanwhile.
fn same_sources(place: &Tree, proposal: &Proposal) -> Result<()> {
    proposal.sources.iter().try_for_each(|(path, was)| still(place, path, was.as_deref()))
}

fn still(place: &Tree, path: &str, was: Option<&[u8]>) -> Result<()> {
    if place.read(path)?.map(|found| found.bytes).as_deref() == was {
        return Ok(());
    }
    Err(Error::of(
        ErrorKind::Loader,
        format!("{} has changed just now; nothing is done, persist again", place.shown(path)),
    ))
}

fn keep(shelf: &Shelf<'_>, step: &DraftedChange) -> Result<()> {
    let (FileChange::File { path, .. } | FileChange::Generate { path, .. }) = &step.change else {
        return Ok(());
    };
    if let Some(old) = &step.old {
        shelf.keep(Side::Old, path, old)?;
    }
    match &step.new {
        Some(new) => shelf.keep(Side::New, path, new),
        None => Ok(()),
    }
}

fn make(
    place: &Tree,
    shelf: &Shelf<'_>,
    proposal: &Proposal,
    runner: &dyn Runner,
    to_run: &mut Vec<Vec<String>>,
) -> Result<()> {
    for step in &proposal.steps {
        if let FileChange::Dir { path } = &step.change {
            place.make_dir(path)?;
            fault::point();
        }
    }
    let mut files = Vec::new();
    for step in &proposal.steps {
        if let (FileChange::File { path, new: owner, .. }, Some(new)) = (&step.change, &step.new) {
            files.push(NewText { path, was: step.old.as_deref(), text: new, owner: *owner });
        }
    }
    place.write_all(&files)?;
    same_sources(place, proposal)?;
    for step in &proposal.steps {
        match &step.change {
            FileChange::Link { path, target } => place.make_link(path, target)?,
            FileChange::OneShot { entry } => efi::ask_one_shot(place, entry)?,
            FileChange::Generate { command, path, old: owner } => {
                let before = |new: &[u8]| {
                    took(new, &proposal.asked.words(), path)?;
                    shelf.keep(Side::New, path, new)?;
                    fault::point();
                    Ok(())
                };
                if renew((place, shelf, runner), command, (path, *owner), &before)?.is_none() {
                    to_run.push(command.clone());
                }
            }
            FileChange::Dir { .. } | FileChange::File { .. } => continue,
        }
        fault::point();
    }
    Ok(())
}

/// Whether every ordinary entry of the menu made anew has the words.
fn took(menu: &[u8], words: &[String], path: &str) -> Result<()> {
    let entries = grub::own_entries(menu);
    let mut ordinary = entries.iter().filter(|entry| !entry.rescue).peekable();
    if ordinary.peek().is_none() {
        return Err(Error::of(
            ErrorKind::Command,
            format!("{path} came out without an entry for Linux"),
        ));
    }
    for entry in ordinary {
        let has = super::form::words_of(&menu[entry.range.clone()]);
        if let Some(word) = words.iter().find(|word| !has.contains(word)) {
            return Err(Error::of(
                ErrorKind::Command,
                format!(
                    "{path}, line {}: the entry came out without {word}; another file of \
                 /etc/default/grub.d sets {} anew after ours",
                    entry.line,
                    grub::VARIABLE
                ),
            ));
        }
    }
    Ok(())
}

fn put_back(
    place: &Tree,
    shelf: &Shelf<'_>,
    mut record: Record,
    runner: &dyn Runner,
    error: &Error,
) -> Error {
    record.stage = Phase::Undoing;
    let items = undo::take_back(place, shelf, &record, runner);
    let whole = items.iter().all(|item| !item.outcome.is_refused());
    if whole && shelf.forget().is_ok() {
        error.and("everything done before it was put back")
    } else {
        error.and("putting back what was done before it failed in part: run `quietcores unpersist`")
    }
}
