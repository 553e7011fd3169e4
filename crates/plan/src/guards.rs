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
            // Only where the kernel has it: a step for what is not there would be told of on every older one.
            let path = format!("sys/kernel/debug/sched/ext_server/cpu{cpu}/runtime");
            if self.machine.text(&path).is_some() {
                let why =
                    "threads of a scheduler of sched_ext get no time of their own on this CPU";
                self.set(&path, "0", Form::Text, why);
            }
        }
    }
}

/// Whether a release such as `6.18.44` is at least `major.minor`: for words, and for choices of which either is right where a
/// distribution has carried a feature back.
pub(crate) fn since(release: &str, major: u32, minor: u32) -> bool {
    let mut parts = release.split(|c: char| !c.is_ascii_digit()).map(|n| n.parse::<u32>().ok());
    match (parts.next().flatten(), parts.next().flatten()) {
        (Some(a), Some(b)) => (a, b) >= (major, minor),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use crate::check::tests::good;
    use quiet_types::{Chain, boot::Mode, chain::Choice};

    #[test]
    fn both_deadline_servers_go_for_a_loop_that_never_sleeps_where_both_are_there() {
        let mut machine = good::machine();
        let chain = Chain {
            cpus: Choice::These("2".parse().unwrap()),
            mode: Mode::NeverSleepingCore,
            ..Chain::default()
        };
        let servers = |machine: &quiet_types::Machine| -> Vec<String> {
            let plan = crate::plan(machine, &chain).unwrap();
            let all = plan.steps.iter().map(|step| step.action.what());
            all.filter(|what| what.contains("/debug/sched/")).collect()
        };
        let path = |server: &str| format!("sys/kernel/debug/sched/{server}/cpu2/runtime");
        machine.settings.insert(path("fair_server"), "50000000".into());
        assert_eq!(servers(&machine), [format!("/{}", path("fair_server"))]);
        machine.settings.insert(path("ext_server"), "50000000".into());
        assert_eq!(servers(&machine).len(), 2);
        machine.settings.insert(path("ext_server"), "0".into());
        assert_eq!(servers(&machine).len(), 1);
    }
}
