//! What became of many threads, told in few lines.

use quiet_types::plan::{PutBack, Return, Thread};

/// So many are named where the same is said of many.
const NAMED: usize = 3;

/// Many threads as one line, and a line for each thing that is said of those that are not as they were.
pub(crate) struct Tally {
    what: String,
    /// What of the threads it is about.
    of: &'static str,
    restored: bool,
    odd: Vec<(Return, Vec<String>)>,
}

impl Tally {
    pub fn new(what: &str) -> Tally {
        Tally { what: what.to_owned(), of: "CPUs", restored: false, odd: Vec::new() }
    }

    /// As [`Tally::new`], of the threads' scheduling.
    pub fn of_scheduling(what: &str) -> Tally {
        Tally { of: "scheduling", ..Tally::new(what) }
    }

    /// What is told by this and `other` of the same.
    pub fn and(mut self, other: Tally) -> Tally {
        self.restored |= other.restored;
        for (said, threads) in other.odd {
            match self.odd.iter_mut().find(|(known, _)| *known == said) {
                Some((_, all)) => all.extend(threads),
                None => self.odd.push((said, threads)),
            }
        }
        self
    }

    pub fn add(&mut self, thread: &Thread, outcome: Return) {
        match outcome {
            Return::Restored => self.restored = true,
            Return::Untouched | Return::Gone => {}
            Return::Left { .. } | Return::Refused { .. } => {
                let who = thread.to_string();
                match self.odd.iter_mut().find(|(said, _)| *said == outcome) {
                    Some((_, threads)) => threads.push(who),
                    None => self.odd.push((outcome, vec![who])),
                }
            }
        }
    }

    pub fn items(self) -> Vec<PutBack> {
        let of = self.of;
        let outcome = if self.restored { Return::Restored } else { Return::Untouched };
        let mut items = vec![PutBack { what: self.what, outcome }];
        items.extend(self.odd.into_iter().map(|(outcome, threads)| {
            let what = match threads.as_slice() {
                [one] => format!("{of} of {one}"),
                few if few.len() <= NAMED => format!("{of} of {}", few.join(", ")),
                many => {
                    let named = many[..NAMED].join(", ");
                    format!("{of} of {named} and {} more", many.len() - NAMED)
                }
            };
            PutBack { what, outcome }
        }));
        items
    }
}
