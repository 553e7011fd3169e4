//! Announces what becomes of the shield, by whomever: by a call, by root's own program, by a guard.

use crate::acts::Acts;
use quiet_linux::System;
use quiet_shield::{Lookout, News};
use std::sync::{Arc, Mutex, PoisonError};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

/// What the signal `Changed` says.
#[derive(Debug)]
pub(crate) struct Notice {
    pub what: &'static str,
    pub name: String,
    pub uid: u32,
}

/// Whom a change is put down to.
#[derive(Clone, Copy, Debug)]
pub(crate) struct By<'a> {
    pub uid: u32,
    /// The chain that he applied, where he did.
    pub chain: &'a str,
}

/// Hears what is done, and has it announced.
#[derive(Clone, Debug)]
pub(crate) struct Herald {
    lookout: Arc<Mutex<Lookout>>,
    notices: UnboundedSender<Notice>,
}

impl Herald {
    /// With nothing to announce of what is so already; and what is to be announced.
    pub fn new(acts: &Acts) -> (Herald, UnboundedReceiver<Notice>) {
        let (notices, announced) = unbounded_channel();
        let herald = Herald { lookout: Arc::new(Mutex::new(acts.lookout())), notices };
        let _ = herald.seen();
        (herald, announced)
    }

    /// Announces what nobody reads in the journal.
    pub fn say(&self, what: &'static str, name: String, uid: u32) {
        let _ = self.notices.send(Notice { what, name, uid });
    }

    /// Announces what has changed since the last look: put down to who did it, where that is known. To be called by who has the turn, or
    /// half an act is taken for a whole one.
    pub fn look(&self, by: Option<By<'_>>) {
        let uid = by.map(|by| by.uid).unwrap_or_default();
        let chain = by.map(|by| by.chain).unwrap_or_default();
        for news in self.seen() {
            match news {
                News::Applied(of) => self.say("applied", chain.to_owned(), of),
                News::Confirmed => self.say("confirmed", String::new(), uid),
                News::Lent(cpus) => self.say("lent", cpus.to_string(), uid),
                News::TakenBack => self.say("taken-back", String::new(), uid),
                News::Reverted => self.say("reverted", String::new(), uid),
            }
        }
    }

    /// A journal that cannot be read now is read by the next look.
    fn seen(&self) -> Vec<News> {
        let mut lookout = self.lookout.lock().unwrap_or_else(PoisonError::into_inner);
        lookout.look(&System).unwrap_or_default()
    }
}
