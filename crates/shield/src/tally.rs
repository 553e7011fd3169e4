//! What became of many threads, told in few lines.

use quiet_types::plan::{PutBack, Return, Thread};

/// Many threads as one line, and a line for each that is not as it was.
pub(crate) struct Tally {
    what: String,
    restored: bool,
    odd: Vec<PutBack>,
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
                self.odd.push(PutBack { what: format!("CPUs of {thread}"), outcome });
            }
        }
    }

    pub fn items(self) -> Vec<PutBack> {
        let outcome = if self.restored { Return::Restored } else { Return::Untouched };
        let mut items = vec![PutBack { what: self.what, outcome }];
        items.extend(self.odd);
        items
    }
}
