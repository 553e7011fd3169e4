//! Folders that were copied from machines: stores and outboxes, read into a collector without any server.

use crate::{
    Around, Arrival, Arrived, Collector, MemberDir, Result,
    make::{self, Discretion},
    sealed::LARGEST,
};
use quiet_linux::files;
use quiet_store::{KeptKind, Store};
use std::{
    fs,
    path::{Path, PathBuf},
};

/// Machines' folders below one that is given.
const DEPTH: usize = 3;
/// Records in one transaction.
const BATCH: usize = 2000;

/// What was read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FolderSum {
    /// Stores that were found.
    pub stores: u64,
    /// Records that count now.
    pub new: u64,
    /// Records that had been taken before.
    pub repeats: u64,
    /// Records that were refused, and files that could not be read, a sentence each; at most 100.
    pub left_out: Vec<String>,
    /// How many there are of them.
    pub bad: u64,
}

impl FolderSum {
    fn bad(&mut self, why: String) {
        self.bad += 1;
        if self.left_out.len() < 100 {
            self.left_out.push(why);
        }
    }

    fn count(&mut self, path: &Path, taken: Arrived) {
        match taken {
            Arrived::New => self.new += 1,
            Arrived::Repeat => self.repeats += 1,
            Arrived::Refused(why) => self.bad(format!("{}: {why}", path.display())),
        }
    }
}

/// Reads every store in or below these folders. An outbox's records are believed by their signatures; what a store keeps is believed as
/// it lies there. Links are not followed.
///
/// # Errors
/// When a folder that was given cannot be read, or the collector's database fails.
pub fn collect(collector: &mut Collector, dirs: &[PathBuf]) -> Result<FolderSum> {
    let mut sum = FolderSum::default();
    let mut stores = Vec::new();
    for dir in dirs {
        fs::read_dir(dir).map_err(|error| crate::Error::io("read", dir, &error))?;
        find(dir, DEPTH, &mut stores);
    }
    stores.sort();
    stores.dedup();
    for dir in &stores {
        sum.stores += 1;
        // First what is signed: of two with one id the first one counts.
        outbox(collector, &dir.join("farm/outbox"), &mut sum)?;
        store(collector, dir, &mut sum)?;
    }
    Ok(sum)
}

fn is_dir(path: &Path) -> bool {
    path.symlink_metadata().is_ok_and(|meta| meta.is_dir())
}

fn find(dir: &Path, depth: usize, found: &mut Vec<PathBuf>) {
    if ["runs", "proofs", "tunes", "farm"].iter().any(|kind| is_dir(&dir.join(kind))) {
        found.push(dir.to_owned());
        return;
    }
    let Ok(entries) = fs::read_dir(dir) else { return };
    for path in entries.flatten().map(|entry| entry.path()).filter(|path| is_dir(path)) {
        if depth > 0 {
            find(&path, depth - 1, found);
        }
    }
}

fn outbox(collector: &mut Collector, dir: &Path, sum: &mut FolderSum) -> Result<()> {
    let Ok(entries) = fs::read_dir(dir) else { return Ok(()) };
    let mut paths: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
    paths.retain(|path| path.extension().is_some_and(|end| end == "rec"));
    paths.sort();
    for part in paths.chunks(BATCH) {
        let mut batch = collector.batch()?;
        let mut now = sum.clone();
        for path in part {
            match files::read(path, LARGEST as u64) {
                Ok(bytes) => now.count(path, batch.take(&bytes, &Arrival::default())?),
                Err(error) => now.bad(format!("{}: {error}", path.display())),
            }
        }
        batch.commit()?;
        *sum = now;
    }
    Ok(())
}

fn store(collector: &mut Collector, dir: &Path, sum: &mut FolderSum) -> Result<()> {
    let discretion = match MemberDir::beside(dir).membership() {
        Ok(Some(member)) => member.discretion(),
        _ => Discretion::default(),
    };
    let entries = Store::at(dir).list()?;
    for part in entries.chunks(BATCH / 10) {
        let mut batch = collector.batch()?;
        let mut now = sum.clone();
        for entry in part {
            if matches!(entry.kind, KeptKind::Buffers | KeptKind::RoundTrip) {
                continue;
            }
            match quiet_store::load(&entry.path) {
                Ok(kept) => {
                    // What the file does not say of its machine is not known here.
                    if let Some(record) = make::record(&kept, &Around::default(), &discretion) {
                        now.count(&entry.path, batch.take_copied(&record)?);
                    }
                }
                Err(error) => now.bad(error.to_string()),
            }
        }
        batch.commit()?;
        *sum = now;
    }
    Ok(())
}
