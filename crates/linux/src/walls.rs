//! Walls around a process that reads what strangers wrote: files outside some folders, other programs, other
//! processes and the network are out of its reach from then on.

use crate::sys::walls::{Rules, refuse};
use quiet_types::{Finding, Severity};
use std::{fs::File, io, os::fd::AsFd, os::unix::fs::OpenOptionsExt, path::Path};

// Kinds of access, by the version of Landlock that brought them.
const EXECUTE: u64 = 1;
const WRITE: u64 = 1 << 1;
const READ: u64 = 1 << 2;
const LIST: u64 = 1 << 3;
/// To remove and to make files, directories and links of every kind: bits 4 to 12.
const CHANGE: u64 = 0x1ff0;
const REFER: u64 = 1 << 13;
const TRUNCATE: u64 = 1 << 14;
const IOCTL: u64 = 1 << 15;
/// To listen at and to reach TCP ports.
const TCP: u64 = 3;

/// What a place may be used for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Use {
    /// Files are read and folders listed.
    Read,
    /// And made, written and removed.
    Write,
    /// Devices are opened and spoken to.
    Device,
}

/// Read by whoever plays: the kernel's files, libraries, and how sound and names are set up.
const READ_BY_ALL: [&str; 16] = [
    "/proc",
    "/sys",
    "/usr",
    "/lib",
    "/lib64",
    "/nix/store",
    "/etc/ld.so.cache",
    "/etc/alsa",
    "/etc/asound.conf",
    "/etc/pipewire",
    "/etc/localtime",
    "/etc/nsswitch.conf",
    "/etc/passwd",
    "/etc/group",
    "/var/lib/alsa",
    "/run/udev",
];

const DEVICES: [&str; 5] =
    ["/dev/snd", "/dev/null", "/dev/zero", "/dev/urandom", "/dev/cpu_dma_latency"];

/// System calls that playing has no use for: other programs, other processes, the machine's own settings, and the
/// kernel's larger surfaces.
const REFUSED: [libc::c_long; 50] = [
    libc::SYS_execve,
    libc::SYS_execveat,
    libc::SYS_ptrace,
    libc::SYS_process_vm_readv,
    libc::SYS_process_vm_writev,
    libc::SYS_process_madvise,
    libc::SYS_pidfd_getfd,
    libc::SYS_kcmp,
    libc::SYS_mount,
    libc::SYS_umount2,
    libc::SYS_mount_setattr,
    libc::SYS_move_mount,
    libc::SYS_open_tree,
    libc::SYS_fsopen,
    libc::SYS_fsconfig,
    libc::SYS_fsmount,
    libc::SYS_fspick,
    libc::SYS_pivot_root,
    libc::SYS_chroot,
    libc::SYS_unshare,
    libc::SYS_setns,
    libc::SYS_name_to_handle_at,
    libc::SYS_open_by_handle_at,
    libc::SYS_bpf,
    libc::SYS_perf_event_open,
    libc::SYS_userfaultfd,
    libc::SYS_io_uring_setup,
    libc::SYS_io_uring_enter,
    libc::SYS_io_uring_register,
    libc::SYS_init_module,
    libc::SYS_finit_module,
    libc::SYS_delete_module,
    libc::SYS_kexec_load,
    libc::SYS_kexec_file_load,
    libc::SYS_reboot,
    libc::SYS_swapon,
    libc::SYS_swapoff,
    libc::SYS_acct,
    libc::SYS_quotactl,
    libc::SYS_syslog,
    libc::SYS_add_key,
    libc::SYS_request_key,
    libc::SYS_keyctl,
    libc::SYS_settimeofday,
    libc::SYS_clock_settime,
    libc::SYS_clock_adjtime,
    libc::SYS_adjtimex,
    libc::SYS_sethostname,
    libc::SYS_setdomainname,
    libc::SYS_personality,
];

/// Rules about files, and what of them the kernel does not have.
#[derive(Debug)]
pub struct Walls {
    /// With the kinds of access that they are about.
    rules: Option<(Rules, u64)>,
    why_not: String,
}

impl Walls {
    /// With what everybody who plays needs: the kernel's files, libraries, how sound is set up, sound cards.
    /// Where the kernel has no Landlock there are none, and [`Walls::missing`] says so.
    pub fn new() -> Walls {
        let walls = Walls::bare();
        // What is not there cannot be opened either.
        for path in READ_BY_ALL {
            let _ = walls.allow(Path::new(path), Use::Read);
        }
        for path in DEVICES {
            let _ = walls.allow(Path::new(path), Use::Device);
        }
        // Rings that a sound server shares, and dmix.
        let _ = walls.allow(Path::new("/dev/shm"), Use::Write);
        walls
    }

    /// With nothing but what is allowed later: for who reads files and does nothing else.
    pub fn bare() -> Walls {
        match Walls::rules() {
            Ok(rules) => Walls { rules: Some(rules), why_not: String::new() },
            Err(error) => Walls { rules: None, why_not: error.to_string() },
        }
    }

    fn rules() -> io::Result<(Rules, u64)> {
        let version = Rules::version()?;
        let mut files = EXECUTE | WRITE | READ | LIST | CHANGE;
        for (since, right) in [(2, REFER), (3, TRUNCATE), (5, IOCTL)] {
            files |= if version >= since { right } else { 0 };
        }
        let net = if version >= 4 { TCP } else { 0 };
        Ok((Rules::refusing(files, net)?, files))
    }

    /// Allows the use of a place and all below it.
    ///
    /// # Errors
    /// When it cannot be looked up.
    pub fn allow(&self, place: &Path, what: Use) -> io::Result<()> {
        let Some((rules, handled)) = &self.rules else { return Ok(()) };
        let place = File::options().read(true).custom_flags(libc::O_PATH).open(place)?;
        let mut rights = READ
            | match what {
                Use::Read => LIST | EXECUTE,
                Use::Write => LIST | WRITE | CHANGE | TRUNCATE,
                Use::Device => LIST | WRITE | IOCTL,
            };
        if !place.metadata()?.is_dir() {
            rights &= EXECUTE | WRITE | READ | TRUNCATE | IOCTL;
        }
        rules.allow(place.as_fd(), rights & handled)
    }

    /// Puts the calling thread behind them, and all threads that it makes from now on, for good. To be called after
    /// [`crate::rights::no_new`].
    ///
    /// # Errors
    /// As the kernel says.
    pub fn close(&self) -> io::Result<()> {
        self.rules.as_ref().map_or(Ok(()), |(rules, _)| rules.restrict())
    }

    /// What to know where the kernel has no such rules.
    pub fn missing(&self) -> Option<Finding> {
        self.rules.is_none().then(|| {
            Finding::new(
                Severity::Note,
                "play.no_landlock",
                "The kernel does not keep what plays to its folders",
            )
            .evidence(format!("Landlock: {}", self.why_not))
            .effect("A broken strip could read whatever its user may.")
            .remedy("Linux 5.13 has it; CONFIG_SECURITY_LANDLOCK, and `landlock` in lsm=.")
        })
    }
}

impl Default for Walls {
    fn default() -> Walls {
        Walls::new()
    }
}

/// Refuses all threads of this process the system calls that playing has no use for, and every socket but those of
/// this machine. What to know where that cannot be done.
pub fn refuse_calls() -> Option<Finding> {
    let refused = refuse(&REFUSED, &[libc::AF_UNIX, libc::AF_NETLINK]);
    refused.err().map(|error| {
        Finding::new(
            Severity::Note,
            "play.no_seccomp",
            "The kernel does not refuse what plays the calls it has no use for",
        )
        .evidence(format!("seccomp: {error}"))
        .effect("A broken strip could start other programs as its user.")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn behind_the_walls_only_what_was_allowed_is_opened() {
        let (inside, outside) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        for dir in [&inside, &outside] {
            std::fs::write(dir.path().join("file"), "x").unwrap();
        }
        let (inside, outside) = (inside.path().to_owned(), outside.path().to_owned());
        let walls = Walls::new();
        if walls.missing().is_some() {
            return quiet_testing::skip(quiet_testing::Why::Machine(format!(
                "{:?}",
                walls.missing()
            )));
        }
        walls.allow(&inside, Use::Read).unwrap();
        // In a thread of its own: it is for good.
        std::thread::spawn(move || {
            crate::rights::no_new().unwrap();
            walls.close().unwrap();
            let read = |dir: &Path| std::fs::read_to_string(dir.join("file"));
            assert_eq!(read(&inside).unwrap(), "x");
            let refused = read(&outside).unwrap_err();
            assert_eq!(refused.kind(), io::ErrorKind::PermissionDenied);
            assert!(std::fs::write(inside.join("new"), "x").is_err());
            assert!(std::fs::read("/etc/shadow").is_err());
            assert!(std::thread::spawn(move || read(&outside).is_err()).join().unwrap());
        })
        .join()
        .unwrap();
    }
}
