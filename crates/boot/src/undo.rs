//! Taking it back: to the byte where nobody else has written since, else only what is ours.

use super::{
    detect, efi,
    error::{Error, ErrorKind, Result},
    form::{self, FileForm},
    grub, grubenv,
    record::{FileChange, Ours, Phase, Record, Shelf, Side},
    runner::{Runner, TURNS, renew},
};
use quiet_linux::fault;
use quiet_linux::files::{FileOwner, NewText, StateDir, Tree};
use quiet_types::said::UNPERSISTED;
pub use quiet_types::said::{Restoration, TakenBack, Undone};
use std::{path::Path, thread::sleep, time::Duration};

/// Between two looks at a file that others write just now.
const PAUSE: Duration = Duration::from_millis(50);

/// Takes back what was made to last, whole or cut short; `None` where nothing was.
///
/// # Errors
/// When the state directory or the record cannot be used.
pub fn undo(place: &Tree, state: &Path, runner: &dyn Runner) -> Result<Option<Undone>> {
    undo_under(place.lock_file().as_deref(), place, state, runner)
}

/// As [`undo`], where `lock_file` is the machine's lock: others may have a state directory of their own, and change the same files.
fn undo_under(
    lock_file: Option<&Path>,
    place: &Tree,
    state: &Path,
    runner: &dyn Runner,
) -> Result<Option<Undone>> {
    let Some(state) = StateDir::open(state)? else { return Ok(None) };
    let _lock = state.lock_machine(lock_file)?;
    let shelf = Shelf::of(&state);
    let Some(mut record) = shelf.read()? else {
        // Texts of a persist that was cut before its record: nothing was changed.
        shelf.clear();
        return Ok(None);
    };
    let leftover = record.stage != Phase::Done;
    record.stage = Phase::Undoing;
    match shelf.write(&record) {
        // The note is for people: a record that says that all is done is followed the same way. A full disk keeps nobody from going back.
        Err(error) if error.is_no_room() => {}
        other => other?,
    }
    fault::point();
    let items = take_back(place, &shelf, &record, runner);
    let undone =
        Undone { schema: UNPERSISTED.into(), loader: Some(record.loader.clone()), leftover, items };
    if undone.is_complete() {
        shelf.forget()?;
    }
    Ok(Some(undone))
}

pub(super) fn take_back(
    place: &Tree,
    shelf: &Shelf<'_>,
    record: &Record,
    runner: &dyn Runner,
) -> Vec<TakenBack> {
    let hand = Hand { place, shelf, runner };
    let generated = |change: &&FileChange| matches!(change, FileChange::Generate { .. });
    let first = record.changes.iter().rev().filter(|change| !generated(change));
    // What is made from the other files comes after them.
    let then = record.changes.iter().rev().filter(generated);
    let mut done: Vec<(&FileChange, Result<Restoration>)> = Vec::new();
    for change in first.chain(then) {
        let outcome = hand.one(change);
        fault::point();
        done.push((change, outcome));
    }
    if done.iter().any(|(_, outcome)| outcome.as_ref().is_err_and(Error::is_no_room)) {
        once_more(&hand, &mut done);
    }
    let told = done.into_iter().map(|(change, outcome)| TakenBack {
        what: place.shown(&change.what()),
        outcome: outcome.unwrap_or_else(|error| Restoration::Refused { reason: error.to_string() }),
    });
    let mut items: Vec<TakenBack> = told.collect();
    items.extend(hand.later_entries(record));
    items
}

/// On a full disk: what was removed by now, and texts of ours that nobody needs any more, have made room for what was refused.
fn once_more(hand: &Hand<'_>, done: &mut [(&FileChange, Result<Restoration>)]) {
    let as_before = |outcome: &Result<Restoration>| {
        matches!(outcome, Ok(Restoration::Restored | Restoration::Untouched))
    };
    let back = done.iter().filter_map(|(change, outcome)| match change {
        FileChange::File { path, .. } | FileChange::Generate { path, .. } if as_before(outcome) => {
            Some(path.as_str())
        }
        _ => None,
    });
    hand.shelf.make_room(back);
    for (change, outcome) in done {
        // A folder stays where a file was still in it.
        let in_use = matches!(change, FileChange::Dir { .. })
            && matches!(outcome, Ok(Restoration::Untouched));
        if in_use || outcome.is_err() {
            *outcome = hand.one(change);
            fault::point();
        }
    }
}

/// Does it again as long as others write the file just now.
fn patiently<T>(mut act: impl FnMut() -> Result<T>) -> Result<T> {
    for _ in 1..TURNS {
        match act() {
            Err(error) if error.is_changed() => sleep(PAUSE),
            other => return other,
        }
    }
    act()
}

struct Hand<'a> {
    place: &'a Tree,
    shelf: &'a Shelf<'a>,
    runner: &'a dyn Runner,
}

impl Hand<'_> {
    fn one(&self, change: &FileChange) -> Result<Restoration> {
        match change {
            FileChange::File { path, ours, old, .. } => patiently(|| self.file(path, ours, *old)),
            FileChange::Link { path, target } => match self.place.link(path) {
                Some(now) if now == *target => {
                    self.place.remove_link(path)?;
                    Ok(Restoration::Restored)
                }
                None if !self.place.exists(path) => Ok(Restoration::Gone),
                _ => Ok(Restoration::Left),
            },
            FileChange::Dir { path } => {
                if !self.place.exists(path) {
                    return Ok(Restoration::Gone);
                }
                // With something of others in it, it is theirs.
                let gone = self.place.remove_dir(path);
                Ok(if gone { Restoration::Restored } else { Restoration::Untouched })
            }
            FileChange::OneShot { entry } => {
                let was = efi::forget_one_shot(self.place, entry)?;
                Ok(if was { Restoration::Restored } else { Restoration::Gone })
            }
            FileChange::Generate { command, path, old } => self.generated(command, path, *old),
        }
    }

    fn file(&self, path: &str, ours: &Ours, old: Option<FileOwner>) -> Result<Restoration> {
        self.place.sweep(path);
        let now = self.place.read(path)?.map(|found| found.bytes);
        let before = self.shelf.text(Side::Old, path)?;
        let made = self.shelf.text(Side::New, path)?;
        let (Some(now), Some(made)) = (&now, &made) else {
            // Not made yet, or removed by others.
            return Ok(if now == before { Restoration::Untouched } else { Restoration::Gone });
        };
        if Some(now) == before.as_ref() {
            return Ok(Restoration::Untouched);
        }
        if now == made {
            self.put((path, now), before.as_deref(), old)?;
            return Ok(Restoration::Restored);
        }
        let cleaned = without_ours(ours, now).map_err(|why| {
            Error::of(
                ErrorKind::Loader,
                format!("cannot understand {}: {why}", self.place.shown(path)),
            )
        })?;
        match cleaned {
            None => Ok(Restoration::Left),
            Some(text) => {
                let owner = self.place.read(path)?.map(|found| found.owner).or(old);
                let same = Some(&text) == before.as_ref();
                self.put((path, now), Some(&text), owner)?;
                Ok(if same { Restoration::Restored } else { Restoration::Cleaned })
            }
        }
    }

    /// Puts `text` in the place of `now`, or nothing.
    fn put(
        &self,
        (path, now): (&str, &[u8]),
        text: Option<&[u8]>,
        owner: Option<FileOwner>,
    ) -> Result<()> {
        match (text, owner) {
            (Some(text), Some(owner)) => {
                Ok(self.place.write(NewText { path, was: Some(now), text, owner })?)
            }
            _ => Ok(self.place.remove(path, now)?),
        }
    }

    fn generated(&self, command: &[String], path: &str, owner: FileOwner) -> Result<Restoration> {
        self.place.sweep(path);
        let now = self.place.read(path)?.map(|found| found.bytes);
        let before = self.shelf.text(Side::Old, path)?;
        if now == before {
            return Ok(Restoration::Untouched);
        }
        let made = self.shelf.text(Side::New, path)?;
        if let (Some(now), Some(before)) = (&now, &before)
            && Some(now) == made.as_ref()
            // A kernel that came while ours was made is in ours, and not in the old one.
            && grub::listed(now) == grub::listed(before)
        {
            match self.put((path, now), Some(before), Some(owner)) {
                Err(error) if error.is_changed() => {}
                other => return other.map(|()| Restoration::Restored),
            }
        }
        // A new kernel since, or cut short while it ran: its own program knows what belongs there.
        let with = (self.place, self.shelf, self.runner);
        match renew(with, command, (path, owner), &|_| Ok(()))? {
            Some(text) if Some(&text) == before.as_ref() => Ok(Restoration::Restored),
            Some(_) => Ok(Restoration::Regenerated),
            None => Err(Error::of(
                ErrorKind::Command,
                format!("run {} on that machine", command.join(" ")),
            )),
        }
    }

    /// Entries of kernels that were installed since: they have inherited our words.
    fn later_entries(&self, record: &Record) -> Vec<TakenBack> {
        let words = record.asked.words();
        let known = |path: &str| {
            let real = self.place.real(path);
            record.changes.iter().any(|change| {
                let what = change.what();
                what == path || Some(&what) == real.as_ref()
            })
        };
        let mut items = Vec::new();
        for loader in detect::loaders(self.place) {
            for (path, form) in loader.files.iter().filter(|(path, form)| {
                matches!(form, FileForm::Bls | FileForm::KernelCmdline) && !known(path)
            }) {
                if words.is_empty() || loader.kind.name() != record.loader {
                    continue;
                }
                let Some(outcome) = self.later_entry(path, form, &words) else { continue };
                items.push(TakenBack { what: self.place.shown(path), outcome });
            }
        }
        items
    }

    fn later_entry(&self, path: &str, form: &FileForm, words: &[String]) -> Option<Restoration> {
        let cleaned = patiently(|| {
            let Ok(Some(found)) = self.place.read(path) else { return Ok(None) };
            let Ok((text, many)) = form::remove(form, &found.bytes, words) else { return Ok(None) };
            let Some(real) = self.place.real(path).filter(|_| many >= words.len()) else {
                return Ok(None);
            };
            let was = Some(found.bytes.as_slice());
            self.place.write(NewText { path: &real, was, text: &text, owner: found.owner })?;
            Ok(Some(Restoration::Cleaned))
        });
        cleaned.unwrap_or_else(|error| Some(Restoration::Refused { reason: error.to_string() }))
    }
}

/// The text without what is ours; `None` where nothing of it is there.
fn without_ours(ours: &Ours, now: &[u8]) -> std::result::Result<Option<Vec<u8>>, String> {
    match ours {
        Ours::Words { form, words } => {
            let (text, found) = form::remove(form, now, words)?;
            Ok((found > 0).then_some(text))
        }
        // A file of ours that others have edited: as theirs, it stays.
        Ours::Whole => Ok(None),
        Ours::Block => Ok(grub::without_block(now)),
        Ours::NextEntry => grubenv::forget(now, "next_entry", grub::TRIAL),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{LoaderKind, NoRunner, Proposal, Term, write::write_under};
    use quiet_types::boot::BootParameters;

    #[test]
    fn by_two_state_directories_boot_files_are_changed_one_after_the_other() {
        let dir = tempfile::tempdir().unwrap();
        let lock_file = dir.path().join("machine.lock");
        let place = Tree::at(dir.path()).unwrap();
        let (one, two) = (dir.path().join("one"), dir.path().join("two"));
        let lock = StateDir::make(&one).unwrap().lock_machine(Some(&lock_file)).unwrap();
        let asked: BootParameters = serde_json::from_value(serde_json::json!({
            "cpus": "2-3", "housekeeping": "0-1", "mode": "sleeping_chain", "parameters": [],
        }))
        .unwrap();
        let proposal = Proposal {
            loader: LoaderKind::Grub,
            asked,
            term: Term::Lasting,
            apply: None,
            steps: Vec::new(),
            sources: Vec::new(),
            findings: Vec::new(),
        };
        let write = || write_under(Some(&lock_file), &place, &two, &proposal, &NoRunner);
        let undo = || undo_under(Some(&lock_file), &place, &two, &NoRunner);
        let busy = write().unwrap_err().to_string();
        assert!(busy.contains("is changing it just now"), "{busy}");
        assert!(undo().is_err());
        drop(lock);
        write().unwrap();
        assert!(undo().unwrap().unwrap().is_complete());
        assert_eq!(place.lock_file(), None);
        let system = Tree::system().unwrap().lock_file();
        assert_eq!(system.as_deref(), Some(Path::new("/run/quietcores.lock")));
    }
}
