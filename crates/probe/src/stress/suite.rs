//! The named suites, and what a user may name besides.

use super::{draw, hog, veth, walk};
use crate::{Error, Result};
use quiet_types::printable;

/// A named set of stressors.
#[derive(Clone, Copy, Debug)]
pub struct StressSuite {
    /// `kernel` ...
    pub name: &'static str,
    /// What it is good for, in a sentence.
    pub about: &'static str,
    /// Stressor, and how many workers of it: for each online CPU, or in all.
    workers: &'static [(&'static str, Workers)],
    /// Further options of stress-ng.
    options: &'static [&'static str],
}

#[derive(Clone, Copy, Debug)]
enum Workers {
    EachCpu,
    EachSecondCpu,
    InAll(usize),
}

use Workers::{EachCpu, EachSecondCpu, InAll};

const SUITES: [StressSuite; 6] = [
    StressSuite {
        name: "kernel",
        about: "Long work inside the kernel, which even a FIFO thread must wait for: directory \
                entries, page faults, fork, disk.",
        workers: &[
            ("dentry", EachCpu),
            ("fault", EachCpu),
            ("fork", EachSecondCpu),
            ("hdd", InAll(1)),
        ],
        options: &["--hdd-bytes", "64m"],
    },
    StressSuite {
        name: "classic",
        about: "The stresses of latencytest (1999) as they are done today: a walk through /proc \
                every 0.01 s, disk write, copy and read.",
        workers: &[
            (walk::NAME, InAll(1)),
            ("hdd", InAll(1)),
            ("copy-file", InAll(1)),
            ("readahead", InAll(1)),
        ],
        options: &["--hdd-bytes", "350m", "--copy-file-bytes", "350m", "--readahead-bytes", "32m"],
    },
    StressSuite {
        name: "reach",
        about: "What reaches CPUs that it does not run on: TLB shootdowns, memory barriers, \
                remapping, futexes and the shared cache.",
        workers: &[
            ("tlb-shootdown", InAll(1)),
            ("membarrier", EachSecondCpu),
            ("mprotect", EachSecondCpu),
            ("futex", EachSecondCpu),
            ("cache", InAll(1)),
        ],
        options: &[],
    },
    StressSuite {
        name: "switch",
        about: "Context switches as fast as they go, with floating-point and vector registers to \
                save at each, as hectic does: what a switch costs, and what it evicts.",
        workers: &[("switch", EachCpu), ("fp", EachCpu), ("vecfp", EachSecondCpu)],
        options: &[],
    },
    StressSuite {
        name: "cache",
        about: "The shared cache and the memory bus wiped over and over: what a loop loses that no \
                other task ever interrupts.",
        workers: &[("cache", EachCpu), ("l1cache", EachSecondCpu), ("flushcache", InAll(1))],
        options: &[],
    },
    StressSuite {
        name: "network",
        about: "A flood of datagrams and streams over the loopback device: softirqs, timers and \
                wake-ups without a network card.",
        workers: &[("udp", EachCpu), ("sock", EachSecondCpu)],
        options: &[],
    },
];

/// These take CPUs, the network or the machine itself away.
const FORBIDDEN: [&str; 8] = [
    "cpu-online",
    "softlockup",
    "rawsock",
    "rawudp",
    "rawpkt",
    "sysinval",
    "watchdog",
    "bad-ioctl",
];

/// Every suite.
pub fn suites() -> &'static [StressSuite] {
    &SUITES
}

impl StressSuite {
    /// Its stressors, with their workers on a machine of so many CPUs.
    pub fn stressors(&self, cpus: usize) -> Vec<(&'static str, usize)> {
        let count = |workers| match workers {
            EachCpu => cpus.max(1),
            EachSecondCpu => cpus.div_ceil(2).max(1),
            InAll(n) => n,
        };
        self.workers.iter().map(|(name, workers)| (*name, count(*workers))).collect()
    }
}

/// What suites and `STRESSOR[=WORKERS]` come to.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Orders {
    /// The arguments of stress-ng; empty when it is not needed.
    pub arguments: Vec<String>,
    /// How many walkers through /proc, which are our own.
    pub walkers: usize,
    /// How many floods through a pair of virtual network cards.
    pub floods: usize,
    /// How many clients that draw on an X server.
    pub draws: usize,
    /// How many threads that spin, one a CPU.
    pub hogs: usize,
}

/// Turns names into orders.
pub(crate) fn orders(names: &[String], cpus: usize, known: &[String]) -> Result<Orders> {
    if names.is_empty() {
        return Err(Error::new(format!("no stress is named; the suites are {}", suite_names())));
    }
    let Orders { mut arguments, mut walkers, mut floods, mut draws, mut hogs } = Orders::default();
    let mut chosen: Vec<String> = Vec::new();
    let mut add = |name: &str, workers: usize| -> Result<()> {
        let own = match name {
            walk::NAME => Some(&mut walkers),
            veth::NAME => Some(&mut floods),
            draw::NAME => Some(&mut draws),
            hog::NAME => Some(&mut hogs),
            _ => None,
        };
        if let Some(own) = own {
            *own = workers;
            return Ok(());
        }
        if FORBIDDEN.contains(&name) {
            return Err(Error::new(format!(
                "stressor {name} is not run: it can take CPUs, the network or the machine away"
            )));
        }
        if !known.iter().any(|k| k == name) {
            return Err(Error::new(format!(
                "`{}` is neither a suite ({}) nor a stressor of the installed stress-ng; \
                 `quietcores stress --list` shows them",
                printable(name, 40),
                suite_names()
            )));
        }
        if !chosen.iter().any(|c| c == name) {
            chosen.push(name.to_owned());
            arguments.extend([format!("--{name}"), workers.to_string()]);
        }
        Ok(())
    };
    let mut options: Vec<&str> = Vec::new();
    for asked in names {
        if let Some(suite) = SUITES.iter().find(|suite| suite.name == asked) {
            for (name, workers) in suite.stressors(cpus) {
                add(name, workers)?;
            }
            for option in suite.options.chunks(2) {
                if !options.contains(&option[0]) {
                    options.extend(option);
                }
            }
            continue;
        }
        let (name, workers) = match asked.split_once('=') {
            None if [veth::NAME, draw::NAME].contains(&asked.as_str()) => (asked.as_str(), 1),
            None => (asked.as_str(), cpus),
            Some((name, n)) => {
                let workers = n.parse().ok().filter(|n| (1..=4096).contains(n));
                (
                    name,
                    workers.ok_or_else(|| {
                        Error::new(format!(
                            "`{}`: the number of workers is 1 to 4096, as fork=4",
                            printable(asked, 60)
                        ))
                    })?,
                )
            }
        };
        add(name, workers)?;
    }
    arguments.extend(options.iter().map(|o| (*o).to_owned()));
    Ok(Orders { arguments, walkers, floods, draws, hogs })
}

/// Whether all of these are stressors of our own, which need no stress-ng.
pub(crate) fn all_own(names: &[String]) -> bool {
    const OWN: [&str; 4] = [walk::NAME, veth::NAME, draw::NAME, hog::NAME];
    names.iter().all(|name| OWN.contains(&name.split('=').next().unwrap_or_default()))
}

fn suite_names() -> String {
    SUITES.map(|suite| suite.name).join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn known() -> Vec<String> {
        ["dentry", "fault", "fork", "hdd", "cpu-online"].map(str::to_owned).to_vec()
    }

    fn asked(names: &[&str]) -> Result<Vec<String>> {
        let names: Vec<String> = names.iter().map(|n| (*n).to_owned()).collect();
        orders(&names, 4, &known()).map(|orders| orders.arguments)
    }

    #[test]
    fn a_suite_grows_with_the_machine_and_names_come_once() {
        let words = asked(&["kernel", "fork=9"]).unwrap().join(" ");
        assert_eq!(words, "--dentry 4 --fault 4 --fork 2 --hdd 1 --hdd-bytes 64m");
        assert_eq!(asked(&["fork=9"]).unwrap(), ["--fork", "9"]);
    }

    #[test]
    fn our_own_stressors_are_no_words_for_stress_ng() {
        let names = ["proc-walk=2", "fork=1", "veth", "x11=3", "hog=2"].map(str::to_owned);
        let all = orders(&names, 4, &known()).unwrap();
        assert_eq!(all.arguments, ["--fork", "1"]);
        assert_eq!((all.walkers, all.floods, all.draws, all.hogs), (2, 1, 3, 2));
        assert!(!all_own(&names) && all_own(&["hog".into(), "proc-walk=2".into()]));
    }

    #[test]
    fn unknown_forbidden_and_malformed_names_are_refused_with_a_sentence() {
        for (name, why) in [
            ("nonsense", "neither a suite"),
            ("--timeout", "neither a suite"),
            ("cpu-online", "not run"),
            ("fork=0", "1 to 4096"),
            ("fork=x", "1 to 4096"),
            ("\x1b[2J", "neither a suite"),
        ] {
            let error = asked(&[name]).unwrap_err().to_string();
            assert!(error.contains(why) && !error.contains('\x1b'), "{error}");
        }
        assert!(asked(&[]).is_err());
    }
}
