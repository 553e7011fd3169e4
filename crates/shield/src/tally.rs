//! What became of many threads, told in few lines.

use quiet_types::plan::{PutBack, Return, Thread};

/// So many are named where the same is said of many.
const NAMED: usize = 3;

/// Many threads as one line, and a line for each thing that is said of those that are not as they were.
pub(crate) struct Tally {
    what: String,
    restored: bool,
    odd: Vec<(Return, Vec<String>)>,
}

impl Tally {
    pub fn new(what: &str) -> Tally {
        Tally { what: what.to_owned(), restored: false, odd: Vec::new() }
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
        let outcome = if self.restored { Return::Restored } else { Return::Untouched };
        let mut items = vec![PutBack { what: self.what, outcome }];
        items.extend(self.odd.into_iter().map(|(outcome, threads)| {
            let what = match threads.as_slice() {
                [one] => format!("CPUs of {one}"),
                few if few.len() <= NAMED => format!("CPUs of {}", few.join(", ")),
                many => {
                    let named = many[..NAMED].join(", ");
                    format!("CPUs of {named} and {} more", many.len() - NAMED)
                }
            };
            PutBack { what, outcome }
        }));
        items
    }
}
