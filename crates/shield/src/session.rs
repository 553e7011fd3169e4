//! Out of the login session or service that a process was started in.

use quiet_linux::parse;
use quiet_linux::sys::sched;
use std::{fs::OpenOptions, io::Write};

/// A login session or a service that ends may end all processes of its group.
pub(crate) fn leave_session() {
    let groups = std::fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    let own = rustix::process::getpid().as_raw_nonzero().get().to_string();
    let allowed = sched::affinity(0);
    for (group, mount) in [
        (parse::v1_group(&groups, "name=systemd"), "/sys/fs/cgroup/systemd"),
        (parse::v2_group(&groups), "/sys/fs/cgroup"),
    ] {
        let Some(group) = group else { continue };
        if [".scope", ".service", "/user.slice"].iter().any(|part| group.contains(part)) {
            let file = OpenOptions::new().write(true).open(format!("{mount}/cgroup.procs"));
            let _ = file.and_then(|mut file| file.write_all(own.as_bytes()));
        }
    }
    // Older kernels (6.1) give whoever enters the root group all CPUs, those of a partition as well.
    if let Ok(allowed) = allowed
        && sched::affinity(0).is_ok_and(|now| now != allowed)
    {
        let _ = sched::set_affinity(0, &allowed);
    }
}
