//! The file of a partition that the kernel tells of changes on.

use crate::error::plain;
use quiet_types::{
    GroupPath,
    shield::{Mechanism, Shield},
};
use std::{
    fs::File,
    io::{self, Read, Seek},
};

/// The file, for as long as its group is there. Of a group that is gone the kernel tells for ever: such a file is closed, and the one of the
/// next group of that name is another.
pub(super) struct Partition {
    path: GroupPath,
    file: Option<File>,
}

impl Partition {
    /// That of a shield, where it has one.
    pub fn of(shield: &Shield) -> Option<Partition> {
        let entry = shield.entry.as_ref().filter(|_| shield.mechanism == Mechanism::PartitionV2)?;
        Some(Partition { path: entry.file.beside("cpuset.cpus.partition"), file: None })
    }

    /// What is listened to.
    pub fn file(&self) -> Option<&File> {
        self.file.as_ref()
    }

    /// Opens it where that is not done, or was in vain.
    ///
    /// # Errors
    /// Why it cannot be listened to now.
    pub fn open(&mut self) -> Result<(), String> {
        if self.file.is_none() {
            let said = |e: io::Error| format!("{}: {}", self.path, plain(&e));
            self.file = Some(File::open(self.path.as_str()).map_err(said)?);
            self.read();
        }
        Ok(())
    }

    /// The kernel tells of the next change once this one is read.
    pub fn read(&mut self) {
        let text = |mut file: &File| {
            file.rewind()?;
            file.take(4096).read_to_string(&mut String::new())
        };
        if self.file.as_ref().is_some_and(|file| text(file).is_err()) {
            self.file = None;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use quiet_testing::within;
    use rustix::event::{PollFd, PollFlags, Timespec, poll};
    use std::fs;

    #[test]
    fn the_file_of_a_group_that_is_gone_is_closed_and_that_of_the_next_one_opened() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("cpuset.cpus.partition");
        let mut partition = Partition { path: path.to_str().unwrap().parse().unwrap(), file: None };
        assert!(partition.open().unwrap_err().contains("cpuset.cpus.partition"));
        fs::write(&path, "root\n").unwrap();
        partition.open().unwrap();
        partition.read();
        assert!(partition.file().is_some());
        // As the file of a removed group does: it tells of something, and cannot be read.
        let (end, told) = io::pipe().unwrap();
        drop(end);
        partition.file = Some(File::from(std::os::fd::OwnedFd::from(told)));
        partition.read();
        assert!(partition.file().is_none());
        partition.open().unwrap();
        assert!(partition.file().is_some());
    }

    #[test]
    fn a_removed_group_tells_for_ever_and_is_not_listened_to() {
        let mount = "/sys/fs/cgroup";
        if !within("--mount", &format!("mount -t cgroup2 none {mount}")) {
            return;
        }
        let group = format!("{mount}/quietcores-test-{}", std::process::id());
        let told = |partition: &Partition| {
            let mut fds = [PollFd::new(partition.file().unwrap(), PollFlags::PRI)];
            poll(&mut fds, Some(&Timespec { tv_sec: 0, tv_nsec: 0 })).unwrap() > 0
        };
        fs::create_dir(&group).unwrap();
        let path = format!("{group}/cgroup.events").parse().unwrap();
        let mut partition = Partition { path, file: None };
        partition.open().unwrap();
        assert!(!told(&partition));
        fs::remove_dir(&group).unwrap();
        assert!(told(&partition), "not by this kernel");
        partition.read();
        assert!(partition.file().is_none());
        assert!(partition.open().is_err());
        fs::create_dir(&group).unwrap();
        partition.open().unwrap();
        let is_quiet = !told(&partition);
        fs::remove_dir(&group).unwrap();
        assert!(is_quiet);
    }
}
