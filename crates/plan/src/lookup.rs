//! What chains name, found without a walk through all threads and interrupts of a machine.

use crate::{
    irq::only_cpu,
    names::{cut, served},
};
use quiet_types::{
    CpuId, Machine,
    machine::{Irq, Task},
};
#[cfg(test)]
use std::cell::Cell;
use std::collections::HashMap;

/// A machine, and where on it is what a link may name: made once for a plan or an audit. What it gives is in the machine's order.
pub(crate) struct Lookup<'a> {
    pub machine: &'a Machine,
    /// Places of interrupts by number.
    irqs: HashMap<u32, Vec<usize>>,
    /// Places of interrupts by the names of their handlers.
    actions: HashMap<&'a str, Vec<usize>>,
    /// Places of the first threads of users' processes, by name.
    firsts: HashMap<String, Vec<usize>>,
    /// Places of threads, by process.
    threads: HashMap<u32, Vec<usize>>,
    /// Places of the kernel's threads that handle an interrupt, by its number.
    handlers: HashMap<u32, Vec<usize>>,
    /// Places of the kernel's threads, by name.
    kernel: HashMap<&'a str, Vec<usize>>,
    /// The one CPU that every interrupt comes to, whatever is asked for.
    pub only: Option<CpuId>,
    /// How many threads and interrupts were given.
    #[cfg(test)]
    pub given: Cell<usize>,
}

impl<'a> Lookup<'a> {
    pub fn new(machine: &'a Machine) -> Lookup<'a> {
        let mut new = Lookup {
            machine,
            irqs: HashMap::new(),
            actions: HashMap::new(),
            firsts: HashMap::new(),
            threads: HashMap::new(),
            handlers: HashMap::new(),
            kernel: HashMap::new(),
            only: only_cpu(machine),
            #[cfg(test)]
            given: Cell::new(0),
        };
        for (at, irq) in machine.irqs.iter().enumerate() {
            new.irqs.entry(irq.number).or_default().push(at);
            for action in &irq.actions {
                new.actions.entry(action).or_default().push(at);
            }
        }
        for (at, task) in machine.tasks.iter().enumerate() {
            new.threads.entry(task.pid).or_default().push(at);
            if task.kernel.is_some() {
                new.kernel.entry(&task.comm).or_default().push(at);
                if let Some(number) = served(&task.comm) {
                    new.handlers.entry(number).or_default().push(at);
                }
            } else if task.pid == task.tid {
                new.firsts.entry(cut(&task.comm)).or_default().push(at);
            }
        }
        new
    }

    fn irqs_at(&self, mut places: Vec<usize>) -> Vec<&'a Irq> {
        places.sort_unstable();
        places.dedup();
        self.count(places.len());
        places.into_iter().map(|at| &self.machine.irqs[at]).collect()
    }

    fn tasks_at(&self, mut places: Vec<usize>) -> Vec<&'a Task> {
        places.sort_unstable();
        places.dedup();
        self.count(places.len());
        places.into_iter().map(|at| &self.machine.tasks[at]).collect()
    }

    #[cfg(test)]
    fn count(&self, more: usize) {
        self.given.set(self.given.get() + more);
    }

    #[cfg(not(test))]
    fn count(&self, _: usize) {}

    /// Interrupts with these numbers.
    pub fn irqs(&self, numbers: impl IntoIterator<Item = u32>) -> Vec<&'a Irq> {
        let places = numbers.into_iter().filter_map(|number| self.irqs.get(&number));
        self.irqs_at(places.flatten().copied().collect())
    }

    /// Interrupts that a handler of this name serves.
    pub fn acted(&self, name: &str) -> Vec<&'a Irq> {
        self.irqs_at(self.actions.get(name).cloned().unwrap_or_default())
    }

    /// First threads of users' processes that are called `comm`, as far as the kernel keeps a name.
    pub fn firsts(&self, comm: &str) -> Vec<&'a Task> {
        self.tasks_at(self.firsts.get(&cut(comm)).cloned().unwrap_or_default())
    }

    /// All threads of the processes of `firsts`.
    pub fn threads(&self, firsts: &[&Task]) -> Vec<&'a Task> {
        let places = firsts.iter().filter_map(|first| self.threads.get(&first.pid));
        self.tasks_at(places.flatten().copied().collect())
    }

    /// The kernel's threads that handle an interrupt.
    pub fn handlers(&self, number: u32) -> Vec<&'a Task> {
        self.tasks_at(self.handlers.get(&number).cloned().unwrap_or_default())
    }

    /// The kernel's threads of these names.
    pub fn kernel(&self, names: &[String]) -> Vec<&'a Task> {
        let places = names.iter().filter_map(|name| self.kernel.get(name.as_str()));
        self.tasks_at(places.flatten().copied().collect())
    }
}
