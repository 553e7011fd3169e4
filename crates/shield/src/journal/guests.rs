//! Threads that were let in for users: which notes are about that, and which of them are void once a thread was let out.

use super::{Key, key};
use crate::change::{Change, Confined};
use quiet_types::{GroupPath, plan::Thread};
use std::collections::BTreeMap;

/// A thread that was let in.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Guest {
    pub thread: Thread,
    /// Who went through the door for it: itself, or the first thread of its process.
    pub entered: Thread,
    pub uid: u32,
    /// Changes from here on are about its stay.
    from: usize,
    /// As `from`, of the first guest that `entered` went through the door for.
    door: usize,
}

/// What was changed about a guest since it was let in, each with what was before.
#[derive(Debug, Default)]
pub(crate) struct Stay {
    pub scheduling: Option<Change>,
    pub entered: Option<Change>,
    pub cpus: Option<Confined>,
}

/// Notes about `who` that count no more: of the changes `from..to`, all or only those of the door.
#[derive(Debug, PartialEq)]
struct Void {
    who: Key,
    from: usize,
    to: usize,
    door: bool,
}

/// The guests of a shield.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Guests {
    inside: BTreeMap<Key, Guest>,
    void: Vec<Void>,
}

impl Guests {
    /// A thread was let in before the change at `at`.
    pub(super) fn enter(&mut self, thread: Thread, entered: Thread, uid: u32, at: usize) {
        let beside = self.inside.values().filter(|one| one.entered.is(&entered));
        let door = beside.map(|one| one.door).min().unwrap_or(at);
        let guest = Guest { thread, entered, uid, from: at, door };
        self.inside.entry(key(&guest.thread)).or_insert(guest);
    }

    /// It was let out before the change at `to`.
    pub(super) fn leave(&mut self, thread: &Thread, to: usize) {
        let Some(gone) = self.inside.remove(&key(thread)) else { return };
        self.void.push(Void { who: key(thread), from: gone.from, to, door: false });
        if !self.inside.values().any(|one| one.entered.is(&gone.entered)) {
            self.void.push(Void { who: key(&gone.entered), from: gone.door, to, door: true });
        }
    }

    /// The guest that is this thread.
    pub fn get(&self, thread: &Thread) -> Option<&Guest> {
        self.inside.get(&key(thread))
    }

    /// All of them, living or not.
    pub fn iter(&self) -> impl Iterator<Item = &Guest> {
        self.inside.values()
    }

    /// Those whose door was passed before the change at `at`, and after the one before it.
    pub(super) fn came_at(&self, at: usize) -> impl Iterator<Item = &Guest> {
        self.inside.values().filter(move |one| one.door == at)
    }

    /// What `changes` tell of a guest's stay in the shield that is entered by the file `entry`.
    pub fn stay(
        &self,
        guest: &Guest,
        changes: &[(u64, Change)],
        entry: Option<&GroupPath>,
    ) -> Stay {
        let alone = self.inside.values().filter(|one| one.entered.is(&guest.entered)).count() <= 1;
        let mut stay = Stay::default();
        for (at, (_, change)) in changes.iter().enumerate().skip(guest.from.min(guest.door)) {
            match (change, &mut stay) {
                (
                    Change::Scheduling { thread, new: last, .. },
                    Stay { scheduling: Some(Change::Scheduling { new, .. }), .. },
                ) if thread.is(&guest.thread) => *new = *last,
                (Change::Scheduling { thread, .. }, _)
                    if at >= guest.from && thread.is(&guest.thread) =>
                {
                    stay.scheduling = Some(change.clone());
                }
                (Change::Move { mount, from, to, threads }, Stay { entered: None, .. })
                    if alone && at >= guest.door && Some(to) == entry =>
                {
                    let one = threads.iter().find(|(one, _)| one.is(&guest.entered));
                    stay.entered = one.map(|one| Change::Move {
                        mount: mount.clone(),
                        from: from.clone(),
                        to: to.clone(),
                        threads: vec![one.clone()],
                    });
                }
                (Change::Affinity { threads }, _) if at >= guest.from => {
                    let Some(one) = threads.iter().find(|one| one.thread.is(&guest.thread)) else {
                        continue;
                    };
                    match &mut stay.cpus {
                        Some(first) => first.new.clone_from(&one.new),
                        none => *none = Some(one.clone()),
                    }
                }
                _ => {}
            }
        }
        stay
    }

    /// Takes what is void out of `changes`; whether there was any.
    pub(super) fn sweep(
        &mut self,
        changes: &mut Vec<(u64, Change)>,
        entry: Option<&GroupPath>,
    ) -> bool {
        if self.void.is_empty() {
            return false;
        }
        let mut of: BTreeMap<Key, Vec<Void>> = BTreeMap::new();
        for void in self.void.drain(..) {
            of.entry(void.who).or_default().push(void);
        }
        let is_void = |thread: &Thread, at: usize, is_door: bool| {
            of.get(&key(thread)).is_some_and(|voids| {
                let mut voids = voids.iter();
                voids.any(|void| (void.from..void.to).contains(&at) && (is_door || !void.door))
            })
        };
        // Where each change is afterwards.
        let mut places = Vec::with_capacity(changes.len() + 1);
        let mut kept = 0;
        let mut at = 0;
        changes.retain_mut(|(_, change)| {
            places.push(kept);
            let stays = match change {
                Change::Scheduling { thread, .. } => !is_void(thread, at, false),
                Change::Affinity { threads } => {
                    threads.retain(|one| !is_void(&one.thread, at, false));
                    !threads.is_empty()
                }
                Change::Move { to, threads, .. } => {
                    let is_door = Some(&*to) == entry;
                    threads.retain(|(one, _)| !is_void(one, at, is_door));
                    !threads.is_empty()
                }
                _ => true,
            };
            at += 1;
            kept += usize::from(stays);
            stays
        });
        places.push(kept);
        let place = |at: usize| places.get(at).copied().unwrap_or(kept);
        for guest in self.inside.values_mut() {
            (guest.from, guest.door) = (place(guest.from), place(guest.door));
        }
        true
    }
}
