//! What the kernel does against threads that never sleep, left or taken away knowingly.

use crate::{note, steps::List, warning};
use quiet_types::plan::Form;

impl List<'_> {
    /// A chain that sleeps lets the kernel's guards be.
    pub fn guards_stay(&mut self) {
        let setting = |name: &str| self.machine.settings.get(name).map(|text| text.trim());
        let runtime = setting("proc/sys/kernel/sched_rt_runtime_us").and_then(|t| t.parse().ok());
        let period = setting("proc/sys/kernel/sched_rt_period_us").and_then(|t| t.parse().ok());
        let (Some(runtime), Some(period)): (Option<i64>, Option<i64>) = (runtime, period) else {
            return;
        };
        if runtime < 0 {
            return;
        }
        let released = &self.machine.kernel.release;
        let effect = if since(released, 6, 12) {
            "a real-time thread that never sleeps gives up to 50 ms of each second to a waiting \
             ordinary thread (the fair server)"
                .to_owned()
        } else {
            format!(
                "real-time threads that never sleep are stopped for {} ms of each {} ms",
                (period - runtime) / 1000,
                period / 1000
            )
        };
        self.findings.push(
            note("plan.guards-stay", "the kernel's guard against starvation stays in force")
                .evidence(format!("sched_rt_runtime_us is {runtime} of {period}; Linux {released}"))
                .effect(format!("{effect}; a chain that sleeps between periods never meets it"))
                .remedy("for a loop that never sleeps: --never-sleep"),
        );
    }

    /// A loop that never sleeps must not be stopped for the sake of others.
    pub fn guards_go(&mut self) {
        self.findings.push(
            warning("plan.guards-go", "the kernel's guards against starvation are taken away")
                .effect(
                    "a real-time thread that never sleeps is not stopped any more; kernel threads \
                     of its CPU wait for ever, and a thread gone wild cannot be stopped from that \
                     CPU",
                )
                .remedy("use it only with a loop that ends by itself; `revert` puts them back"),
        );
        self.set(
            "proc/sys/kernel/sched_rt_runtime_us",
            "-1",
            Form::Text,
            "real-time threads are not throttled (all CPUs and groups: there is one value)",
        );
        for cpu in self.shield.cpus.clone().iter() {
            self.set(
                &format!("sys/kernel/debug/sched/fair_server/cpu{cpu}/runtime"),
                "0",
                Form::Text,
                "ordinary threads of this CPU get no time of their own (Linux 6.12 and newer)",
            );
        }
    }
}

/// Whether a release such as `6.18.44` is at least `major.minor`; only for words, never for
/// choosing what to do.
fn since(release: &str, major: u32, minor: u32) -> bool {
    let mut parts = release.split(|c: char| !c.is_ascii_digit()).map(|n| n.parse::<u32>().ok());
    match (parts.next().flatten(), parts.next().flatten()) {
        (Some(a), Some(b)) => (a, b) >= (major, minor),
        _ => false,
    }
}
