//! Periodic and occasional work of the kernel that can be kept off, put off or switched off.

use crate::{Mode, links::Found, say, steps::List};
use quiet_types::{CpuSet, chain::Target, plan::Form};

const USB: &str = "/usb";

impl List<'_> {
    /// The machine's own settings, each only where it stands in the way.
    pub fn calm(&mut self) {
        let never = self.mode == Mode::NeverSleepingCore;
        self.watchdogs();
        let interval = if never { 120 } else { 10 };
        let now =
            self.machine.text("proc/sys/vm/stat_interval").and_then(|t| t.parse::<u32>().ok());
        if now.is_some_and(|now| now < interval) {
            let why = "each CPU folds its memory counters less often (all CPUs: one value)";
            self.set("proc/sys/vm/stat_interval", &interval.to_string(), Form::Text, why);
        }
        if self.machine.text("proc/sys/kernel/numa_balancing").is_some_and(|now| now != "0") {
            let why = "no page is taken from the chain to see where it is used (all CPUs)";
            self.set("proc/sys/kernel/numa_balancing", "0", Form::Text, why);
        }
        if self.machine.text("proc/sys/kernel/timer_migration") == Some("0") {
            let why = "timers may leave idle CPUs";
            self.set("proc/sys/kernel/timer_migration", "1", Form::Text, why);
        }
        if self.machine.text("sys/kernel/mm/ksm/run") == Some("1") {
            let why = "pages are not merged: unmerging is a page fault (all processes)";
            self.set("sys/kernel/mm/ksm/run", "0", Form::Text, why);
        }
        for file in ["enabled", "defrag"] {
            let path = format!("sys/kernel/mm/transparent_hugepage/{file}");
            let Some(now) = self.machine.text(&path).and_then(chosen).map(str::to_owned) else {
                continue;
            };
            let (to, why) = match now.as_str() {
                "never" => continue,
                _ if never => (
                    "never",
                    "no pages are put together behind a loop that never sleeps: each such change \
                     interrupts it",
                ),
                "always" => (
                    "madvise",
                    "huge pages are made for those who ask: faults of the chain do not wait for \
                     them",
                ),
                _ => continue,
            };
            self.set(&path, to, Form::Chosen, why);
        }
    }

    fn watchdogs(&mut self) {
        let on = |name: &str| {
            self.machine.text(&format!("proc/sys/kernel/{name}")).is_some_and(|now| now != "0")
        };
        let (soft, hard) = (on("watchdog") || on("soft_watchdog"), on("nmi_watchdog"));
        let path = "proc/sys/kernel/watchdog_cpumask";
        let mask = self.machine.text(path).and_then(|now| now.parse::<CpuSet>().ok());
        match mask {
            Some(mask) if (soft || hard) && mask.intersects(&self.shield.cpus) => {
                let left = self.outside(&mask).to_string();
                let why = "the watchdogs of lock-ups look at the other CPUs only: no timer, no NMI \
                           of theirs on the shield";
                self.set(path, &left, Form::List, why);
            }
            None if hard => {
                let why = "this kernel has no watchdog_cpumask: the NMI watchdog is off everywhere";
                self.set("proc/sys/kernel/nmi_watchdog", "0", Form::Text, why);
            }
            _ => {}
        }
    }

    /// A USB card, and the hubs that it hangs on, stay awake.
    pub fn cards(&mut self, links: &[Found<'_>]) {
        let machine = self.machine;
        for link in links {
            let Target::Irq(source) = link.target else { continue };
            for card in crate::sources::cards(self.on, source) {
                let Some(device) = usb_device(&card.path) else { continue };
                let around = machine.surroundings.iter().flat_map(|around| &around.usb);
                let known = around.flat_map(|usb| &usb.devices).find(|one| one.path == device);
                let own = known.and_then(|one| one.power_control.as_deref());
                let all = hubs(device).into_iter().map(|hub| (hub, None)).chain([(device, own)]);
                for (path, now) in all {
                    let file = format!("{}/power/control", path.trim_start_matches('/'));
                    if now.or(machine.text(&file)) != Some("on") {
                        let why = format!("link `{}`: the USB bus stays awake under it", link.name);
                        self.set(&file, "on", Form::Text, why);
                    }
                }
            }
        }
    }

    /// Siblings of shielded CPUs go off line, on request.
    pub fn siblings_off(&mut self) {
        for cpu in self.off.clone().iter() {
            let why = format!(
                "CPU {cpu} shares a core with {}: its execution units and caches are the chain's",
                say(&self.shield.cpus)
            );
            let path = format!("sys/devices/system/cpu/cpu{cpu}/online");
            self.set(&path, "0", Form::Text, why);
        }
    }
}

/// The word in brackets of `always [madvise] never`.
fn chosen(text: &str) -> Option<&str> {
    let (_, rest) = text.split_once('[')?;
    rest.split_once(']').map(|(word, _)| word)
}

/// The USB device that a card belongs to: what is above its interface, `.../usb1/1-2` of
/// `.../usb1/1-2/1-2:1.0/sound/card1`.
fn usb_device(card: &str) -> Option<&str> {
    let root = card.find(USB)?;
    let interface = card[root..].find(':')? + root;
    card[..interface].rsplit_once('/').map(|(device, _)| device)
}

/// The hubs above a USB device, the root hub among them: `.../usb1`, `.../usb1/1-2`.
fn hubs(path: &str) -> Vec<&str> {
    let Some(root) = path.find(USB) else { return Vec::new() };
    let after = root + USB.len();
    path.match_indices('/')
        .map(|(at, _)| at)
        .filter(|at| *at > after)
        .map(|at| &path[..at])
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hubs_are_what_a_device_hangs_on() {
        let device = "/sys/devices/pci0000:00/0000:00:14.0/usb1/1-2/1-2.3";
        let top = "/sys/devices/pci0000:00/0000:00:14.0/usb1";
        assert_eq!(hubs(device), [top.to_owned(), format!("{top}/1-2")]);
        assert_eq!(hubs("/sys/devices/pci0000:00/sound"), [""; 0]);
        assert_eq!(usb_device(&format!("{device}/1-2.3:1.0/sound/card1")), Some(device));
        assert_eq!(usb_device("/sys/devices/pci0000:00/0000:00:1f.3/sound/card0"), None);
    }

    #[test]
    fn the_word_in_brackets_is_the_one_in_force() {
        assert_eq!(chosen("always [madvise] never"), Some("madvise"));
        assert_eq!(chosen("always"), None);
    }
}
