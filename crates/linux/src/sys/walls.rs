//! Landlock and seccomp: what a process takes from itself for good.
#![allow(unsafe_code)]

use std::{
    io,
    os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd},
};

fn call(number: libc::c_long, args: [usize; 4]) -> io::Result<libc::c_long> {
    // SAFETY: the callers below pass what each system call of this file takes: numbers, descriptors, and pointers
    // to values that live until it returns.
    let done = unsafe { libc::syscall(number, args[0], args[1], args[2], args[3]) };
    if done < 0 { Err(io::Error::last_os_error()) } else { Ok(done) }
}

/// `struct landlock_ruleset_attr`, as of version 4.
#[repr(C)]
struct Handled {
    files: u64,
    net: u64,
}

/// `struct landlock_path_beneath_attr`.
#[repr(C, packed)]
struct Beneath {
    rights: u64,
    parent: i32,
}

/// A set of Landlock's rules, for any thread to put itself under.
#[derive(Debug)]
pub struct Rules(OwnedFd);

impl Rules {
    /// The version of Landlock that the kernel has.
    ///
    /// # Errors
    /// `ENOSYS` before Linux 5.13, `EOPNOTSUPP` where it is not switched on.
    ///
    /// # Source
    /// `LANDLOCK_CREATE_RULESET_VERSION` in landlock_create_ruleset(2).
    pub fn version() -> io::Result<u32> {
        call(libc::SYS_landlock_create_ruleset, [0, 0, 1, 0]).map(|version| version as u32)
    }

    /// Rules under which these kinds of access to files are refused but where [`Rules::allow`] says otherwise, and these
    /// kinds of access to TCP ports altogether.
    ///
    /// # Errors
    /// `EINVAL` for a kind that this version does not know.
    pub fn refusing(files: u64, net: u64) -> io::Result<Rules> {
        let handled = Handled { files, net };
        // Older versions take the first field alone.
        let size = if net == 0 { size_of::<u64>() } else { size_of::<Handled>() };
        let at = (&raw const handled).addr();
        let fd = call(libc::SYS_landlock_create_ruleset, [at, size, 0, 0])?;
        // SAFETY: the kernel has just made this descriptor, and nobody else knows it.
        Ok(Rules(unsafe { OwnedFd::from_raw_fd(fd as i32) }))
    }

    /// Allows these kinds of access at and below a place.
    ///
    /// # Errors
    /// As landlock_add_rule(2).
    pub fn allow(&self, place: BorrowedFd<'_>, rights: u64) -> io::Result<()> {
        let beneath = Beneath { rights, parent: place.as_raw_fd() };
        let at = (&raw const beneath).addr();
        let one = 1; // LANDLOCK_RULE_PATH_BENEATH
        call(libc::SYS_landlock_add_rule, [self.0.as_raw_fd() as usize, one, at, 0]).map(|_| ())
    }

    /// Puts the calling thread, and those that it makes from now on, under the rules as they are now, for good.
    ///
    /// # Errors
    /// `EPERM` without `no_new_privs`; `E2BIG` after sixteen times.
    pub fn restrict(&self) -> io::Result<()> {
        call(libc::SYS_landlock_restrict_self, [self.0.as_raw_fd() as usize, 0, 0, 0]).map(|_| ())
    }
}

#[cfg(target_arch = "x86_64")]
const ARCH: Option<u32> = Some(0xc000_003e);
#[cfg(target_arch = "aarch64")]
const ARCH: Option<u32> = Some(0xc000_00b7);
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
const ARCH: Option<u32> = None;

/// Refuses all threads of this process these system calls (`EPERM`), and sockets of any other family than these, for
/// good. What is neither is as it was: the kernel answers for it from a table, no program is run.
///
/// # Errors
/// `ENOSYS` where the kernel has no filters, `EOPNOTSUPP` on processors for which nobody wrote this down.
///
/// # Source
/// seccomp(2): `SECCOMP_FILTER_FLAG_TSYNC` for all threads, `SECCOMP_FILTER_FLAG_SPEC_ALLOW` since the processor's
/// speculation would be switched off for them before Linux 5.16.
pub fn refuse(calls: &[libc::c_long], families: &[i32]) -> io::Result<()> {
    let arch = ARCH.ok_or_else(|| io::Error::from_raw_os_error(libc::EOPNOTSUPP))?;
    let step =
        |code: u32, jt: u8, jf: u8, k: u32| libc::sock_filter { code: code as u16, jt, jf, k };
    let load = |offset: u32| step(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0, offset);
    let equal =
        |k: u32, jt: u8, jf: u8| step(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, jt, jf, k);
    let end = |k: u32| step(libc::BPF_RET | libc::BPF_K, 0, 0, k);
    let refused = end(libc::SECCOMP_RET_ERRNO | libc::EPERM as u32);
    let allowed = end(libc::SECCOMP_RET_ALLOW);
    // `struct seccomp_data`: the number, the processor's kind, then the arguments from byte 16.
    let mut program = vec![load(4), equal(arch, 1, 0), refused, load(0)];
    if cfg!(target_arch = "x86_64") {
        // Numbers of the x32 ABI are others.
        let other = step(libc::BPF_JMP | libc::BPF_JGE | libc::BPF_K, 0, 1, 0x4000_0000);
        program.extend([other, refused]);
    }
    for number in calls {
        program.extend([equal(*number as u32, 0, 1), refused]);
    }
    let after = 2 * families.len() as u8 + 2;
    let argument = if cfg!(target_endian = "little") { 16 } else { 20 };
    program.extend([equal(libc::SYS_socket as u32, 0, after), load(argument)]);
    for family in families {
        program.extend([equal(*family as u32, 0, 1), allowed]);
    }
    program.extend([refused, allowed]);
    let program = libc::sock_fprog { len: program.len() as u16, filter: program.as_mut_ptr() };
    let flags = libc::SECCOMP_FILTER_FLAG_TSYNC | libc::SECCOMP_FILTER_FLAG_SPEC_ALLOW;
    let at = (&raw const program).addr();
    let set = libc::SECCOMP_SET_MODE_FILTER as usize;
    match call(libc::SYS_seccomp, [set, flags as usize, at, 0])? {
        0 => Ok(()),
        // A thread with a filter of its own.
        tid => Err(io::Error::other(format!("thread {tid} has another filter"))),
    }
}
