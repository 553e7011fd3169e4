//! Out of the login session or service that a process was started in.

use std::{fs::OpenOptions, io::Write};

/// A login session or a service that ends may end all processes of its group.
pub(crate) fn leave_session() {
    let groups = std::fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    let own = rustix::process::getpid().as_raw_nonzero().get().to_string();
    for (line, mount) in groups.lines().filter_map(|line| {
        let (number, rest) = line.split_once(':')?;
        let mount = match rest.split_once(':')?.0 {
            "" if number == "0" => "/sys/fs/cgroup",
            "name=systemd" => "/sys/fs/cgroup/systemd",
            _ => return None,
        };
        Some((rest, mount))
    }) {
        if [".scope", ".service", "/user.slice"].iter().any(|part| line.contains(part)) {
            let file = OpenOptions::new().write(true).open(format!("{mount}/cgroup.procs"));
            let _ = file.and_then(|mut file| file.write_all(own.as_bytes()));
        }
    }
}
