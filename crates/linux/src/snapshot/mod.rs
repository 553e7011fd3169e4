//! One snapshot of a machine, read through a [`Root`].

mod cgroups;
mod cpus;
mod devices;
mod heat;
mod irqs;
mod kernel;
pub(crate) mod reader;
mod settings;
mod surroundings;
mod tasks;

use crate::{Error, Result, Root};
use quiet_types::{
    Machine,
    machine::{Cgroups, SCHEMA},
};
pub(crate) use reader::{Reader, Record, Seen};

/// Whose command lines a snapshot holds. Arguments may carry secrets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CommandLines {
    /// Nobody's.
    None,
    /// Those of the caller's own processes; in a captured tree those that it holds.
    #[default]
    Own,
    /// Everybody's, as far as they may be read.
    All,
}

/// What a snapshot holds beside the facts that it always holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Options {
    /// Whose command lines.
    pub command_lines: CommandLines,
}

/// Reads the machine. Facts that this kernel lacks are `None`; what could not be read or
/// understood is named in [`Machine::unread`], and the snapshot goes on. Threads that end
/// meanwhile are left out.
///
/// Values of boot parameters and arguments whose names look like those of credentials
/// (`password`, `token`, `key`, `secret` ...) are replaced by `***`.
///
/// # Errors
/// When the root has no `/proc` or no CPUs: then it is not one of a machine.
pub fn snapshot(root: &Root, options: Options) -> Result<Machine> {
    read(Reader::new(root)?, root, options).map(|(machine, _)| machine)
}

/// As [`snapshot`], without the files that some kernels answer by interrupting every CPU: the clock
/// frequencies and `/proc/cpuinfo`. Nothing that a plan is made from.
///
/// # Errors
/// As [`snapshot`].
///
/// # Source
/// arch/x86/kernel/cpu/aperfmperf.c of the kernel, before 5.18.
pub fn glance(root: &Root, options: Options) -> Result<Machine> {
    read(Reader::new(root)?.hushed(), root, options).map(|(machine, _)| machine)
}

/// What machine this is, and nothing else: kernel, processor, board, clock sources, hypervisor.
///
/// # Errors
/// When the root cannot be read at all.
pub fn identity(root: &Root) -> Result<Machine> {
    let reader = Reader::new(root)?;
    let mut machine = Machine { schema: SCHEMA.to_owned(), ..Machine::default() };
    kernel::read(&reader, &mut machine);
    Ok(machine)
}

/// Where the cpuset cgroups are mounted, and nothing else: [`Cgroups::groups`] is empty. It costs a few files, however many tasks
/// the machine has.
///
/// # Errors
/// When the root cannot be read at all.
pub fn cgroup_mounts(root: &Root) -> Result<Cgroups> {
    let reader = Reader::new(root)?;
    Ok(cgroups::mounted(&reader).0)
}

/// As [`snapshot`], and all that was seen for it.
pub(crate) fn recorded(root: &Root, options: Options) -> Result<(Machine, Record)> {
    read(Reader::recording(root)?, root, options)
}

fn read(reader: Reader<'_>, root: &Root, options: Options) -> Result<(Machine, Record)> {
    if !reader.exists("/proc") {
        let why = "it holds no /proc; name a captured tree, as `inspect --capture DIR` writes it";
        return Err(Error::nonsense(root.shown("/"), None, why));
    }
    let mut machine = Machine { schema: SCHEMA.to_owned(), ..Machine::default() };
    cpus::read(&reader, &mut machine);
    if machine.online.is_empty() {
        let object = root.shown("/sys/devices/system/cpu/online");
        return Err(Error::nonsense(object, None, "no CPU is named as online"));
    }
    kernel::read(&reader, &mut machine);
    irqs::read(&reader, &mut machine);
    devices::read(&reader, &mut machine);
    machine.heat = heat::read(&reader);
    let cgroup_root = cgroups::read(&reader, &mut machine);
    tasks::read(&reader, &mut machine, options.command_lines);
    cgroups::count_tasks(&mut machine, &cgroup_root);
    settings::read(&reader, &mut machine);
    surroundings::read(&reader, &mut machine);
    let (unread, record) = reader.finish();
    machine.unread = unread;
    Ok((machine, record))
}
