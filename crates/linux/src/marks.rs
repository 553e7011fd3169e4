//! What hit a thread between two moments, by its own counters.

use crate::{parse, sys::process};
use std::{collections::BTreeMap, fs, io};

/// How far the counters of the calling thread are.
#[derive(Debug)]
pub struct Marks {
    migrations: Option<u64>,
    usage: io::Result<[(&'static str, u64); 4]>,
}

impl Marks {
    /// Reads them; made last before what is to be counted.
    pub fn now() -> Marks {
        let migrations = migrations();
        // Last: what reading the other cost does not count.
        Marks { migrations, usage: process::thread_usage() }
    }

    /// What was counted since: context switches, page faults, migrations. What cannot be read is left out. Asked first after what is
    /// to be counted, by the same thread.
    pub fn since(self) -> BTreeMap<String, u64> {
        let usage = process::thread_usage();
        let mut found = BTreeMap::new();
        if let (Ok(before), Ok(after)) = (self.usage, usage) {
            for ((name, now), (_, then)) in after.into_iter().zip(before) {
                found.insert(name.to_owned(), now.saturating_sub(then));
            }
        }
        if let (Some(then), Some(now)) = (self.migrations, migrations()) {
            found.insert("migrations".to_owned(), now.saturating_sub(then));
        }
        found
    }
}

/// Where the kernel tells (`CONFIG_SCHED_DEBUG`).
fn migrations() -> Option<u64> {
    parse::migrations(&fs::read_to_string("/proc/thread-self/sched").ok()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_nap_is_a_voluntary_switch_of_the_thread_that_takes_it() {
        let marks = Marks::now();
        std::thread::sleep(std::time::Duration::from_millis(1));
        let found = marks.since();
        assert!(found["voluntary_switches"] >= 1, "{found:?}");
        let names = ["involuntary_switches", "major_faults", "minor_faults", "voluntary_switches"];
        assert!(names.iter().all(|name| found.contains_key(*name)), "{found:?}");
    }
}
