//! Frequencies and idle states of the shielded CPUs.

use crate::{Mode, say, steps::List};
use quiet_types::{CpuId, CpuSet, plan::Form};

impl List<'_> {
    /// Preference, governor, lowest frequency; then idle states. In this order, so that the
    /// preference is put back after the governor: under `performance` the kernel takes no other.
    pub fn power(&mut self) {
        let mut done = CpuSet::new();
        for id in self.shield.cpus.clone().iter() {
            if !done.contains(id) {
                let together = self.frequency(id);
                done = done.union(&together);
            }
        }
        if self.mode == Mode::NeverSleepingCore {
            return;
        }
        for cpu in self.machine.cpus.iter().filter(|cpu| self.shield.cpus.contains(cpu.id)) {
            // `0` is no constraint; `n/a` is a latency of zero.
            if cpu.resume_latency.as_deref().is_some_and(|now| now.trim() != "n/a") {
                let path =
                    format!("sys/devices/system/cpu/cpu{}/power/pm_qos_resume_latency_us", cpu.id);
                let old = cpu.resume_latency.as_deref().map(|now| now.trim().to_owned());
                let why = "this CPU keeps to the idle state that it leaves at once, also where the \
                           holder of /dev/cpu_dma_latency is ended";
                self.set(&path, "n/a", Form::Text, why);
                if let Some(step) = self.steps.last_mut() {
                    step.old = old;
                }
            }
        }
    }

    /// Sets the frequency of a CPU; gives those that have one with it.
    fn frequency(&mut self, id: CpuId) -> CpuSet {
        let machine = self.machine;
        let dir = format!("sys/devices/system/cpu/cpu{id}/cpufreq");
        let alone: CpuSet = [id].into_iter().collect();
        let Some(cpu) = machine.cpu(id) else { return alone };
        let Some(governor) = cpu.governor.as_deref().map(str::trim) else { return alone };
        let read = |name: &str| machine.text(&format!("{dir}/{name}"));
        let together = read("affected_cpus")
            .map(|text| text.split_whitespace().filter_map(|n| n.parse().ok()).map(CpuId).collect())
            .filter(|set: &CpuSet| set.contains(id))
            .unwrap_or(alone);
        let for_all = if together.is_subset(&self.shield.cpus) {
            String::new()
        } else {
            format!(" ({} have one frequency)", say(&together))
        };
        if read("energy_performance_preference").is_some_and(|now| now != "performance") {
            let why = format!("the processor itself prefers speed{for_all}");
            let path = format!("{dir}/energy_performance_preference");
            self.set(&path, "performance", Form::Text, why);
        }
        let offered = read("scaling_available_governors");
        let has = offered.is_none_or(|all| all.split_whitespace().any(|one| one == "performance"));
        if governor != "performance" && has {
            let why = format!("no ramping up while a period waits{for_all}");
            self.set(&format!("{dir}/scaling_governor"), "performance", Form::Text, why);
            if let Some(step) = self.steps.last_mut() {
                step.old = Some(governor.to_owned());
            }
        }
        if let (Some(least), Some(most)) = (read("scaling_min_freq"), read("scaling_max_freq"))
            && least != most
        {
            let why = format!("not below {most} kHz, whoever sets the governor later{for_all}");
            self.set(&format!("{dir}/scaling_min_freq"), most, Form::Text, why);
        }
        together
    }
}
