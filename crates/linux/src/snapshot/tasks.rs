//! Every thread.

use super::{CommandLines, Reader};
use crate::parse;
use quiet_types::{
    Machine,
    chain::PipeWire,
    machine::{PipeWireProcess, Task},
};
use std::collections::BTreeSet;

pub(super) fn read(reader: &Reader<'_>, machine: &mut Machine, lines: CommandLines) {
    let me = rustix::process::getuid().as_raw();
    for pid in reader.numbered("/proc", "") {
        let process = format!("/proc/{pid}");
        let mut command = None;
        for tid in reader.numbered(&format!("{process}/task"), "") {
            let Some(mut task) = task(reader, &process, pid, tid) else { continue };
            if task.kernel.is_none() {
                let wanted = match lines {
                    CommandLines::None => false,
                    CommandLines::Own => reader.is_captured() || task.uid == me,
                    CommandLines::All => true,
                };
                let known = command.get_or_insert_with(|| match wanted {
                    true => command_line(reader, &process),
                    false => String::new(),
                });
                task.command.clone_from(known);
            }
            machine.tasks.push(task);
        }
    }
    machine.tasks.sort_by_key(|task| task.tid);
    users(reader, machine);
    pipewire(reader, machine);
}

/// Of what a process has mapped only the lines with PipeWire's library.
fn pipewire(reader: &Reader<'_>, machine: &mut Machine) {
    let begin = PipeWire::LOOPS.trim_end_matches('*');
    let loops = machine.tasks.iter().filter(|task| task.comm.starts_with(begin));
    let pids: BTreeSet<u32> = loops.map(|task| task.pid).collect();
    let ours =
        |bytes: Vec<u8>| parse::pipewire_lines(&String::from_utf8_lossy(&bytes)).into_bytes();
    for pid in pids {
        let bytes = reader.bytes_if_allowed(&format!("/proc/{pid}/maps"), ours);
        let Some(maps) = bytes.map(|b| String::from_utf8_lossy(&b).into_owned()) else { continue };
        let plugin = |folder: &str| format!("{folder}/spa-0.2/{}.so", PipeWireProcess::POLLING);
        let polls = parse::pipewire_folder(&maps).is_some_and(|f| reader.exists(&plugin(f)));
        let version = parse::pipewire_version(&maps);
        machine.pipewire.extend(version.map(|version| PipeWireProcess { pid, version, polls }));
    }
}

/// Of `/etc/passwd` only the names and numbers of those whose threads run.
fn users(reader: &Reader<'_>, machine: &mut Machine) {
    let uids: BTreeSet<u32> = machine.tasks.iter().map(|task| task.uid).collect();
    let ours = |bytes: Vec<u8>| {
        let mut users = parse::users(&String::from_utf8_lossy(&bytes));
        users.retain(|_, uid| uids.contains(uid));
        let lines = users.iter().map(|(name, uid)| format!("{name}:x:{uid}:\n"));
        lines.collect::<String>().into_bytes()
    };
    let bytes = reader.bytes_if_allowed("/etc/passwd", ours).unwrap_or_default();
    machine.users = parse::users(&String::from_utf8_lossy(&bytes));
}

/// `None` where it ended meanwhile, or its files make no sense (which is noted).
fn task(reader: &Reader<'_>, process: &str, pid: u32, tid: u32) -> Option<Task> {
    let file = |name: &str| format!("{process}/task/{tid}/{name}");
    let (stat_file, status_file) = (file("stat"), file("status"));
    let stat = parse::pid_stat(&reader.whole_text(&stat_file)?)
        .map_err(|wrong| reader.complain(&stat_file, &wrong))
        .ok()?;
    let status = parse::pid_status(&reader.whole_text(&status_file)?)
        .map_err(|wrong| reader.complain(&status_file, &wrong))
        .ok()?;
    let cgroup = reader.whole_text(&file("cgroup"));
    let group = cgroup.as_deref().and_then(parse::task_cgroup);
    let unit_group = cgroup.as_deref().and_then(parse::task_unit_group);
    let exe = (stat.kernel.is_none() && tid == pid).then(|| reader.link(&format!("{process}/exe")));
    Some(Task {
        pid,
        tid,
        start: stat.start,
        comm: stat.comm,
        command: String::new(),
        state: stat.state,
        cpu: stat.cpu,
        allowed: status.allowed,
        scheduling: stat.scheduling,
        kernel: stat.kernel,
        cpu_group: cgroup.as_deref().and_then(|text| parse::v1_group(text, "cpu")),
        unit_group: unit_group.filter(|path| Some(path) != group.as_ref()),
        cgroup: group,
        exe: exe.flatten(),
        uid: status.uid,
    })
}

/// The arguments, joined by blanks, without values that look like credentials.
fn command_line(reader: &Reader<'_>, process: &str) -> String {
    let masked = |bytes: Vec<u8>| {
        let text = String::from_utf8_lossy(&bytes);
        let arguments = text.trim_end_matches('\0').split('\0');
        parse::mask_arguments(arguments).join("\0").into_bytes()
    };
    let bytes = reader.bytes_through(&format!("{process}/cmdline"), masked).unwrap_or_default();
    String::from_utf8_lossy(&bytes).replace('\0', " ").trim_end().to_owned()
}
