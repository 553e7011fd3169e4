//! Does ordinary acts on some CPUs and watches whether others notice.

use crate::{
    CpuWatch, Error, ErrorKind, Result,
    host::host,
    host::stamp,
    keeper::{Keeper, Old, switch},
    request,
    run::Elsewhere,
};
use quiet_linux::{
    Root,
    sys::{process, sched},
};
use quiet_types::{
    CpuId, CpuSet, Nanos,
    reach::{Act, Hit, Reach, SCHEMA},
    trace::{Handler, Trace, What},
};
use std::{
    collections::BTreeMap,
    fs, io,
    io::Write,
    net::UdpSocket,
    path::Path,
    process::{Command, Stdio},
    sync::atomic::{AtomicBool, Ordering::Relaxed},
    thread,
    time::{Duration, Instant},
};

/// Name of the thread that acts: so its interrupts are known from others'.
const NAME: &str = "reach";

/// An act: done again and again on the other CPUs.
struct Ordinary {
    name: &'static str,
    about: &'static str,
    act: fn(&Path) -> io::Result<()>,
}

/// The CPU that is switched off for a moment: the last of those that are not watched.
fn spare(from: &CpuSet) -> io::Result<CpuId> {
    let able = from.iter().filter(|cpu| Path::new(&switch(*cpu)).exists());
    able.last()
        .filter(|_| from.len() > 1)
        .ok_or_else(|| io::Error::other("no other CPU can be spared for a moment"))
}

/// Acts that change the machine for a moment, so that they are done on request alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Special {
    /// Load a module (`dummy`, which makes no device here) and unload it.
    Module,
    /// Start and end a profiler (`perf record`).
    Profile,
    /// Switch another CPU off and on again.
    Hotplug,
}

impl Special {
    fn ordinary(self) -> Ordinary {
        match self {
            Special::Module => Ordinary {
                name: "module",
                about: "load the module dummy and unload it (modprobe; root)",
                act: |_| {
                    if Path::new("/sys/module/dummy").exists() {
                        return Err(io::Error::other("the module dummy is in use here already"));
                    }
                    tool("modprobe", &["dummy", "numdummies=0"])?;
                    tool("modprobe", &["-r", "dummy"])
                },
            },
            Special::Profile => Ordinary {
                name: "profile",
                about: "start and end a profiler of one short process (perf record)",
                act: |dir| {
                    let file = dir.join("perf.data").to_string_lossy().into_owned();
                    tool("perf", &["record", "-q", "-o", &file, "--", "true"])
                },
            },
            Special::Hotplug => Ordinary {
                name: "hotplug",
                about: "switch another CPU off and on again (root)",
                act: |_| {
                    let allowed = sched::affinity(0)?;
                    let file = switch(spare(&allowed)?);
                    fs::write(&file, "0")?;
                    let back = fs::write(&file, "1");
                    // It left this thread's mask with the CPU.
                    let _ = sched::set_affinity(0, &allowed);
                    back
                },
            },
        }
    }
}

/// Runs a program of the system that says nothing.
fn tool(name: &str, arguments: &[&str]) -> io::Result<()> {
    let mut command = Command::new(name);
    command.args(arguments).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
    let output = command.output().map_err(|e| match e.kind() {
        io::ErrorKind::NotFound => io::Error::other(format!("the program {name} is not installed")),
        _ => e,
    })?;
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    let said = quiet_types::printable(said.trim(), 200);
    Err(io::Error::other(format!("{name} ended with {}: {said}", output.status)))
}

/// None of them changes the machine.
const ACTS: [Ordinary; 9] = [
    Ordinary { name: "nothing", about: "sleep", act: |_| Ok(()) },
    Ordinary {
        name: "fork",
        about: "start a process and wait for its end",
        act: |_| {
            let mut command = Command::new("/proc/self/exe");
            command.arg("--version").stdin(Stdio::null()).stdout(Stdio::null());
            command.stderr(Stdio::null()).status().map(drop)
        },
    },
    Ordinary {
        name: "unmap",
        about: "map, touch and unmap 8 MiB in a process of several threads (TLB shoot-down)",
        act: |_| {
            let mut memory = vec![0u8; 8 << 20];
            memory.iter_mut().step_by(4096).for_each(|byte| *byte = 1);
            std::hint::black_box(&memory);
            Ok(())
        },
    },
    Ordinary {
        name: "membarrier",
        about: "a memory barrier in all threads of a process (membarrier(2))",
        act: |_| process::membarrier(),
    },
    Ordinary {
        name: "flush",
        about: "write a file and flush it to the disk",
        act: |dir| {
            let mut file = fs::File::create(dir.join("flushed"))?;
            file.write_all(&[7; 4096])?;
            file.sync_all()
        },
    },
    Ordinary {
        name: "loopback",
        about: "100 datagrams to this machine itself",
        act: |_| {
            let (to, from) = (UdpSocket::bind("127.0.0.1:0")?, UdpSocket::bind("127.0.0.1:0")?);
            let address = to.local_addr()?;
            (0..100).try_for_each(|_| from.send_to(&[0; 512], address).map(drop))
        },
    },
    Ordinary {
        name: "proc",
        about: "read the state of every process, as top does",
        act: |_| {
            for entry in fs::read_dir("/proc")?.flatten() {
                if entry.file_name().as_encoded_bytes()[0].is_ascii_digit() {
                    let _ = fs::read(entry.path().join("stat"));
                }
            }
            Ok(())
        },
    },
    Ordinary {
        name: "cpuinfo",
        about: "read /proc/cpuinfo, which asks each CPU for its frequency on some machines",
        act: |_| fs::read("/proc/cpuinfo").map(drop),
    },
    Ordinary {
        name: "vmstat",
        about: "have the kernel add up its statistics (/proc/sys/vm/stat_refresh; root)",
        act: |_| fs::write("/proc/sys/vm/stat_refresh", "1"),
    },
];

/// How far it is.
#[derive(Clone, Copy, Debug)]
pub struct Reaching {
    /// What is being done.
    pub act: &'static str,
    /// How many acts were done before.
    pub done: usize,
    /// Of so many.
    pub acts: usize,
    /// Since this act began.
    pub elapsed: Duration,
}

/// How often progress is told and the stop flag looked at.
const LOOK: Duration = Duration::from_millis(50);

/// Does each act (of `only`, where it names some), and those of `also`, for `length` on all other CPUs, while
/// `cpus` are watched, and ends early with what there is when `stop` is raised. Doing nothing comes first,
/// whatever is named. `progress` is called about twenty times a second, on the calling thread.
///
/// # Errors
/// When the kernel's trace may not be used, no CPU is left to act on, or `only` names what is no act.
pub fn reach(
    cpus: &CpuSet,
    length: Duration,
    only: &[String],
    also: &[Special],
    stop: &AtomicBool,
    progress: &mut dyn FnMut(&Reaching),
) -> Result<Reach> {
    let acts: Vec<&str> = ACTS.iter().map(|act| act.name).collect();
    if let Some(unknown) = only.iter().find(|name| !acts.contains(&name.as_str())) {
        return Err(Error::new(format!(
            "`{}` is no act; they are {}, and by --also module, profile, hotplug",
            quiet_types::printable(unknown, 40),
            acts.join(", ")
        )));
    }
    let root = Root::system()?;
    let online = request::online(&root)?;
    let from = sched::affinity(0)
        .map_err(|e| {
            Error::of(ErrorKind::Machine, format!("cannot read where this thread may run: {e}"))
                .because(e)
        })?
        .difference(cpus);
    if cpus.is_empty() || !cpus.is_subset(&online) {
        return Err(Error::new(format!(
            "CPU {cpus} cannot be watched; online are {online}: give --cpus a list of those"
        )));
    }
    if from.is_empty() {
        return Err(Error::new(format!(
            "nothing can be done beside CPU {cpus}: no other CPU is left for this program"
        )));
    }
    let dir = crate::stress::temp_dir().map_err(|e| {
        Error::of(ErrorKind::Machine, format!("cannot make a directory for files to flush: {e}"))
            .because(e)
    })?;
    let (started, _) = stamp(&root, NAME);
    let mut acts = Vec::new();
    let also: Vec<Ordinary> = also.iter().map(|special| special.ordinary()).collect();
    let wanted = |act: &&Ordinary| {
        only.is_empty() || act.name == ACTS[0].name || only.iter().any(|name| name == act.name)
    };
    let wanted: Vec<&Ordinary> = ACTS.iter().filter(wanted).chain(&also).collect();
    // Looking how far it is must not touch the watched CPUs either.
    let _elsewhere = Elsewhere::than(cpus);
    for (done, ordinary) in wanted.iter().enumerate() {
        if stop.load(Relaxed) {
            break;
        }
        let mut told = |elapsed| {
            progress(&Reaching { act: ordinary.name, done, acts: wanted.len(), elapsed });
        };
        let on = On { cpus, online: &online, from: &from };
        acts.push(one(ordinary, on, length, dir.path(), stop, &mut told)?);
    }
    Ok(Reach {
        schema: SCHEMA.to_owned(),
        started,
        host: host(&root)?,
        cpus: cpus.clone(),
        from,
        interrupted: stop.load(Relaxed),
        acts,
        findings: Vec::new(),
    })
}

/// The CPUs that are watched, those that run, and those on which the acts are done.
#[derive(Clone, Copy)]
struct On<'a> {
    cpus: &'a CpuSet,
    online: &'a CpuSet,
    from: &'a CpuSet,
}

fn one(
    ordinary: &Ordinary,
    On { cpus, online, from }: On<'_>,
    length: Duration,
    dir: &Path,
    stop: &AtomicBool,
    told: &mut dyn FnMut(Duration),
) -> Result<Act> {
    // Killed in between, somebody must still switch the CPU on again.
    let keeper = match ordinary.name {
        "hotplug" => spare(from).and_then(|cpu| Keeper::start(&Old::On(cpu))).map(Some),
        _ => Ok(None),
    };
    let watch = CpuWatch::start(cpus, online)?;
    let began = Instant::now();
    let (mut times, mut refused) = (0, String::new());
    let goes_on = || began.elapsed() < length && !stop.load(Relaxed);
    let done = keeper.and_then(|_keeper| {
        thread::scope(|scope| {
            // A second thread of the process: what concerns all threads concerns another CPU too.
            scope.spawn(|| {
                let _ = sched::set_affinity(0, from);
                while goes_on() {
                    thread::sleep(LOOK.min(length.saturating_sub(began.elapsed())));
                }
            });
            let acting =
                thread::Builder::new().name(NAME.to_owned()).spawn_scoped(scope, || {
                    sched::set_affinity(0, from)?;
                    let mut times = 0u64;
                    while goes_on() {
                        (ordinary.act)(dir)?;
                        times += 1;
                        // The machine is not to be brought down by it.
                        thread::sleep(Duration::from_millis(1));
                    }
                    Ok::<u64, io::Error>(times)
                })?;
            while !acting.is_finished() {
                told(began.elapsed());
                thread::sleep(LOOK.min(length));
            }
            acting.join().unwrap_or_else(|_| Err(io::Error::other("it ended at once")))
        })
    });
    let lasted = Nanos(u64::try_from(began.elapsed().as_nanos()).unwrap_or(u64::MAX));
    match done {
        Ok(n) => times = n,
        Err(error) => refused = error.to_string(),
    }
    let trace = watch.stop()?;
    let (sent, others, hits) = hits(&trace, cpus);
    Ok(Act {
        name: ordinary.name.to_owned(),
        about: ordinary.about.to_owned(),
        refused,
        times,
        lasted,
        sent,
        others,
        hits,
    })
}

/// What the act sent, what else began, and each by name.
fn hits(trace: &Trace, cpus: &CpuSet) -> (u64, u64, Vec<Hit>) {
    let mut each: BTreeMap<(bool, String), u64> = BTreeMap::new();
    for event in &trace.events {
        let (sent, what) = match event.what {
            What::Sent { to, site, function } if cpus.contains(to) && !cpus.contains(event.cpu) => {
                let by = trace.task(event.task);
                // The processes that it starts are named after their file.
                if ![NAME, "exe", "modprobe", "perf", "true"].contains(&by) {
                    continue;
                }
                let what = match function {
                    Some(function) => trace.name(function),
                    None => "reschedule",
                };
                (true, format!("IPI {what}, sent in {}", trace.name(site)))
            }
            _ if !cpus.contains(event.cpu) => continue,
            What::Enter(Handler::Irq { number, name }) => {
                (false, format!("IRQ {number} ({})", trace.name(name)))
            }
            What::Enter(Handler::Vector(name)) => {
                (false, format!("interrupt {}", trace.name(name)))
            }
            What::Enter(Handler::Work(name)) => (false, format!("work item {}", trace.name(name))),
            What::Enter(Handler::Softirq(name)) => (false, format!("softirq {}", trace.name(name))),
            What::Switch { to, .. } if to != 0 => (false, format!("task {}", trace.task(to))),
            _ => continue,
        };
        *each.entry((sent, what)).or_default() += 1;
    }
    let sum = |of: bool| each.iter().filter(|((sent, _), _)| *sent == of).map(|(_, n)| n).sum();
    let (sent, others) = (sum(true), sum(false));
    let mut hits: Vec<Hit> =
        each.into_iter().map(|((sent, what), times)| Hit { what, sent, times }).collect();
    hits.sort_by_key(|hit| (!hit.sent, std::cmp::Reverse(hit.times)));
    hits.truncate(40);
    (sent, others, hits)
}
