//! What became of a shield, by whomever: for who announces it and does not do it.

use crate::{
    Kernel, Result, boot_id,
    journal::{self, Reader},
    standing::standing,
};
use quiet_linux::files::StateDir;
use quiet_types::{CpuSet, plan::ShieldStanding};
use std::path::{Path, PathBuf};

/// What is seen of the shield that is up.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Glimpse {
    /// The first line of its journal: which one it is. `None` where none is up.
    journal: Option<Vec<u8>>,
    /// Who asked for it, where that is noted; 0 is root.
    uid: Option<u32>,
    is_awaited: bool,
    lent: Option<CpuSet>,
}

/// A change of the shield between two looks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum News {
    /// It was put up, for that user; 0 is root.
    Applied(u32),
    /// It was confirmed.
    Confirmed,
    /// Its CPUs are everybody's.
    Lent(CpuSet),
    /// They are its own again.
    TakenBack,
    /// It is taken down.
    Reverted,
}

impl Glimpse {
    /// What has changed since `before`, in the order in which it can have been.
    pub fn news_since(&self, before: &Glimpse) -> Vec<News> {
        let mut news = Vec::new();
        let is_other = self.journal != before.journal;
        if before.lent.is_some() && (is_other || self.lent.is_none()) {
            news.push(News::TakenBack);
        }
        if is_other && before.journal.is_some() {
            news.push(News::Reverted);
        }
        if is_other && self.journal.is_some() {
            news.push(News::Applied(self.uid.unwrap_or_default()));
        }
        if !is_other && before.is_awaited && !self.is_awaited {
            news.push(News::Confirmed);
        }
        if let Some(cpus) = &self.lent
            && (is_other || before.lent.is_none())
        {
            news.push(News::Lent(cpus.clone()));
        }
        news
    }
}

/// Looks at the journal again and again: only what was added is read.
#[derive(Debug)]
pub struct Lookout {
    state: PathBuf,
    reader: Reader,
    last: Glimpse,
}

impl Lookout {
    /// Over the journal in the directory `state`, which need not be there yet. What is up already is no change: look once to begin.
    pub fn new(state: &Path) -> Lookout {
        Lookout { state: state.to_owned(), reader: Reader::default(), last: Glimpse::default() }
    }

    /// What has changed since the last look. Nothing while a revert or an apply is under way, or has ended half way.
    ///
    /// # Errors
    /// When the state directory or the journal cannot be read. What has changed is found by the next look.
    pub fn look(&mut self, kernel: &dyn Kernel) -> Result<Vec<News>> {
        let now = self.glimpse(kernel)?;
        let news = now.news_since(&self.last);
        self.last = now;
        Ok(news)
    }

    fn glimpse(&mut self, kernel: &dyn Kernel) -> Result<Glimpse> {
        let Some(state) = StateDir::open(&self.state)? else { return Ok(Glimpse::default()) };
        let Some(past) = self.reader.look(&state)? else { return Ok(Glimpse::default()) };
        let journal = journal::identity(&state).ok().filter(|line| !line.is_empty());
        match standing(past, &boot_id(kernel)?) {
            ShieldStanding::Up => Ok(Glimpse {
                journal,
                uid: past.by.uid,
                is_awaited: past.awaits.is_some() && past.confirmed.is_none(),
                lent: past
                    .loan
                    .as_ref()
                    .and(past.shield.as_ref())
                    .map(|shield| shield.cpus.clone()),
            }),
            // Half taken down, it is not down.
            _ if journal == self.last.journal => Ok(self.last.clone()),
            _ => Ok(Glimpse::default()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn up(journal: &str) -> Glimpse {
        Glimpse { journal: Some(journal.into()), uid: Some(1000), ..Glimpse::default() }
    }

    #[test]
    fn each_change_is_seen_once_and_in_its_order() {
        let none = Glimpse::default();
        let cpus: CpuSet = "2-3".parse().unwrap();
        let awaited = Glimpse { is_awaited: true, ..up("a") };
        let lent = Glimpse { lent: Some(cpus.clone()), ..up("a") };
        for (before, after, news) in [
            (&none, &none, vec![]),
            (&none, &awaited, vec![News::Applied(1000)]),
            (&awaited, &up("a"), vec![News::Confirmed]),
            (&awaited, &none, vec![News::Reverted]),
            (&up("a"), &lent, vec![News::Lent(cpus.clone())]),
            (&lent, &up("a"), vec![News::TakenBack]),
            (&lent, &none, vec![News::TakenBack, News::Reverted]),
            (&up("a"), &up("b"), vec![News::Reverted, News::Applied(1000)]),
            (&lent, &lent, vec![]),
        ] {
            assert_eq!(after.news_since(before), news, "{before:?} -> {after:?}");
        }
    }
}
