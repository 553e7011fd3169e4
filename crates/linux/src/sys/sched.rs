//! Scheduling and affinity of threads.
#![allow(unsafe_code)]

use quiet_types::{
    CpuId, CpuSet, Nanos,
    machine::{Policy, Scheduling},
};
use std::io;

/// `struct sched_attr` of sched_setattr(2), first version (48 bytes).
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct SchedAttr {
    size: u32,
    policy: u32,
    flags: u64,
    nice: i32,
    priority: u32,
    runtime: u64,
    deadline: u64,
    period: u64,
}

const SIZE: u32 = size_of::<SchedAttr>() as u32;
const RESET_ON_FORK: u64 = 1;
/// The kernel's second thread.
const KTHREADD: u32 = 2;

/// Budget of a `SCHED_DEADLINE` thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Deadline {
    /// Time it may run in each period.
    pub runtime: Nanos,
    /// Within which it gets that time.
    pub deadline: Nanos,
    /// Time between its activations.
    pub period: Nanos,
}

/// sched_getaffinity(2): the CPUs that thread `tid` may run on; 0 is the caller.
///
/// # Errors
/// `ESRCH` when the thread is gone.
pub fn affinity(tid: u32) -> io::Result<CpuSet> {
    let mut words = [0u64; 128];
    // SAFETY: the buffer is writable and its size in bytes is given.
    let got = unsafe {
        libc::syscall(
            libc::SYS_sched_getaffinity,
            tid as libc::pid_t,
            size_of_val(&words),
            words.as_mut_ptr(),
        )
    };
    let bytes = usize::try_from(got).map_err(|_| io::Error::last_os_error())?;
    Ok((0..bytes as u32 * 8)
        .filter(|cpu| words[*cpu as usize / 64] >> (cpu % 64) & 1 == 1)
        .map(CpuId)
        .collect())
}

/// sched_setaffinity(2): lets thread `tid` run on `cpus` only; 0 is the caller.
///
/// # Errors
/// `EINVAL` when no CPU of the set is online and in the thread's cpuset, or for a kernel thread
/// with `PF_NO_SETAFFINITY`; `EPERM` for other users' threads; `ESRCH` when it is gone.
pub fn set_affinity(tid: u32, cpus: &CpuSet) -> io::Result<()> {
    let mut words = [0u64; 128];
    words[..cpus.words().len()].copy_from_slice(cpus.words());
    // SAFETY: the buffer is readable and its size in bytes is given.
    let done = unsafe {
        libc::syscall(
            libc::SYS_sched_setaffinity,
            tid as libc::pid_t,
            size_of_val(&words),
            words.as_ptr(),
        )
    };
    check(done)
}

/// sched_getattr(2): how thread `tid` is scheduled, and whether its children start afresh
/// (`SCHED_FLAG_RESET_ON_FORK`); 0 is the caller.
///
/// # Errors
/// `ESRCH` when the thread is gone.
pub fn scheduling(tid: u32) -> io::Result<(Scheduling, bool)> {
    let attr = get(tid)?;
    let policy = Policy::from_number(attr.policy.into()).ok_or_else(|| {
        io::Error::other(format!("the kernel names an unknown policy {}", attr.policy))
    })?;
    let scheduling =
        Scheduling { policy, priority: attr.priority as u8, nice: attr.nice.clamp(-20, 19) as i8 };
    Ok((scheduling, attr.flags & RESET_ON_FORK != 0))
}

/// The slice that a thread of a fair policy was given of its own (EEVDF, Linux 6.12 and newer); `None` where it has the kernel's, which
/// the kernel tells in the same place: it is the one of kthreadd, who never asks for another.
///
/// # Errors
/// `ESRCH` when the thread is gone.
///
/// # Source
/// `get_params` and `__setparam_fair` of kernel/sched/syscalls.c.
pub fn slice(tid: u32) -> io::Result<Option<Nanos>> {
    let of = |tid| -> io::Result<Option<u64>> {
        let attr = get(tid)?;
        Ok((matches!(attr.policy, 0 | 3) && attr.runtime > 0).then_some(attr.runtime))
    };
    let own = of(tid)?;
    let kernels = of(KTHREADD).unwrap_or_default();
    Ok(own.filter(|own| Some(*own) != kernels).map(Nanos))
}

/// The slice that a thread of a fair policy has, its own or the kernel's; `None` under other policies, and where the kernel tells none
/// (before Linux 6.12).
///
/// # Errors
/// `ESRCH` when the thread is gone.
///
/// # Source
/// `get_params` of kernel/sched/syscalls.c.
pub fn slice_in_force(tid: u32) -> io::Result<Option<Nanos>> {
    let attr = get(tid)?;
    Ok((matches!(attr.policy, 0 | 3) && attr.runtime > 0).then_some(Nanos(attr.runtime)))
}

/// As [`set_scheduling`], with a slice of its own for a fair policy.
///
/// # Errors
/// As [`set_scheduling`].
pub fn set_scheduling_with(tid: u32, to: Scheduling, slice: Option<Nanos>) -> io::Result<()> {
    let Nanos(runtime) = slice.unwrap_or_default();
    set_all(tid, to, runtime)
}

/// sched_setattr(2) with any policy but `Deadline`. The reset-on-fork flag stays as it is.
///
/// # Errors
/// `EPERM` without the right (`CAP_SYS_NICE`, `RLIMIT_RTPRIO`, or a cgroup without real-time
/// budget under `CONFIG_RT_GROUP_SCHED`); `EINVAL` for a priority that the policy does not have;
/// `ESRCH` when the thread is gone.
pub fn set_scheduling(tid: u32, to: Scheduling) -> io::Result<()> {
    set_all(tid, to, 0)
}

fn set_all(tid: u32, to: Scheduling, runtime: u64) -> io::Result<()> {
    let policy = match to.policy {
        Policy::Other => 0,
        Policy::Fifo => 1,
        Policy::Rr => 2,
        Policy::Batch => 3,
        Policy::Idle => 5,
        Policy::Ext => 7,
        Policy::Deadline => return Err(io::Error::from_raw_os_error(libc::EINVAL)),
    };
    let flags = get(tid)?.flags & RESET_ON_FORK;
    let (nice, priority) = (to.nice.into(), to.priority.into());
    set(
        tid,
        &SchedAttr { size: SIZE, policy, flags, nice, priority, runtime, ..Default::default() },
    )
}

/// sched_setattr(2) of `SCHED_FLAG_RESET_ON_FORK` alone: whether what thread `tid` starts begins under the ordinary policy.
///
/// # Errors
/// `EPERM` where it is to be taken back without `CAP_SYS_NICE`; `ESRCH` when the thread is gone.
pub fn reset_on_fork(tid: u32, on: bool) -> io::Result<()> {
    let mut attr = get(tid)?;
    if matches!(attr.policy, 0 | 3) {
        // What is read there is the kernel's where the thread has none of its own.
        attr.runtime = slice(tid)?.unwrap_or_default().0;
    }
    attr.flags = if on { attr.flags | RESET_ON_FORK } else { attr.flags & !RESET_ON_FORK };
    set(tid, &attr)
}

/// sched_setattr(2) with `SCHED_DEADLINE`.
///
/// # Errors
/// `EPERM` for a thread whose affinity is narrower than its root domain (see "Deadline
/// scheduling" in sched(7)); `EBUSY` when the admission test fails.
pub fn set_deadline(tid: u32, to: Deadline) -> io::Result<()> {
    set(
        tid,
        &SchedAttr {
            size: SIZE,
            policy: 6,
            runtime: to.runtime.0,
            deadline: to.deadline.0,
            period: to.period.0,
            ..Default::default()
        },
    )
}

fn get(tid: u32) -> io::Result<SchedAttr> {
    let mut attr = SchedAttr::default();
    // SAFETY: the buffer is writable and its size is given.
    let done = unsafe {
        libc::syscall(libc::SYS_sched_getattr, tid as libc::pid_t, &raw mut attr, SIZE, 0u32)
    };
    check(done).map(|()| attr)
}

fn set(tid: u32, attr: &SchedAttr) -> io::Result<()> {
    // SAFETY: the kernel reads `attr.size` bytes, which is the size of the struct.
    let done = unsafe {
        libc::syscall(libc::SYS_sched_setattr, tid as libc::pid_t, std::ptr::from_ref(attr), 0u32)
    };
    check(done)
}

fn check(result: libc::c_long) -> io::Result<()> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use quiet_testing::{Why, skip};

    #[test]
    fn affinity_is_read_back_as_it_was_set() {
        // Who puts a shield up moves everybody's threads.
        quiet_testing::machine_still();
        std::thread::spawn(|| {
            let all = affinity(0).unwrap();
            let one: CpuSet = all.first().into_iter().collect();
            set_affinity(0, &one).unwrap();
            assert_eq!(affinity(0).unwrap(), one);
            assert_eq!(rustix::thread::sched_getcpu() as u32, one.first().unwrap().0);
            let none = set_affinity(0, &CpuSet::new()).unwrap_err();
            assert_eq!(none.raw_os_error(), Some(libc::EINVAL));
        })
        .join()
        .unwrap();
    }

    #[test]
    fn scheduling_is_read_back_as_it_was_set() {
        std::thread::spawn(|| {
            let batch = Scheduling { policy: Policy::Batch, priority: 0, nice: 5 };
            set_scheduling(0, batch).unwrap();
            assert_eq!(scheduling(0).unwrap(), (batch, false));
            let wrong = Scheduling { policy: Policy::Other, priority: 9, nice: 0 };
            assert_eq!(set_scheduling(0, wrong).unwrap_err().raw_os_error(), Some(libc::EINVAL));
        })
        .join()
        .unwrap();
    }

    #[test]
    fn a_slice_of_its_own_is_read_back_and_given_back() {
        std::thread::spawn(|| {
            let batch = Scheduling { policy: Policy::Batch, priority: 0, nice: 0 };
            let own = Some(Nanos(7_000_000));
            set_scheduling_with(0, batch, own).unwrap();
            if slice(0).unwrap().is_none() {
                return skip(Why::Machine("this kernel has no slices (before 6.12)".into()));
            }
            assert_eq!(slice(0).unwrap(), own);
            assert_eq!(slice_in_force(0).unwrap(), own);
            assert_eq!(scheduling(0).unwrap().0, batch);
            // As another policy does to it.
            set_scheduling(0, batch).unwrap();
            assert_eq!(slice(0).unwrap(), None);
            assert!(slice_in_force(0).unwrap() != own);
            set_scheduling_with(0, batch, own).unwrap();
            assert_eq!(slice(0).unwrap(), own);
        })
        .join()
        .unwrap();
    }

    #[test]
    fn what_a_thread_starts_begins_afresh_where_that_is_asked_and_the_rest_stays() {
        std::thread::spawn(|| {
            let batch = Scheduling { policy: Policy::Batch, priority: 0, nice: 5 };
            set_scheduling_with(0, batch, Some(Nanos(7_000_000))).unwrap();
            let had = slice(0).unwrap();
            reset_on_fork(0, true).unwrap();
            assert_eq!((scheduling(0).unwrap(), slice(0).unwrap()), ((batch, true), had));
            // Whoever may, may also take it back.
            let back = reset_on_fork(0, false);
            let on = !quiet_testing::is_root();
            assert_eq!(
                back.map_err(|e| e.raw_os_error()),
                if on { Err(Some(libc::EPERM)) } else { Ok(()) }
            );
            assert_eq!((scheduling(0).unwrap(), slice(0).unwrap()), ((batch, on), had));
            if quiet_testing::is_root() {
                let fifo = Scheduling { policy: Policy::Fifo, priority: 3, nice: 0 };
                reset_on_fork(0, true).unwrap();
                set_scheduling(0, fifo).unwrap();
                assert_eq!(scheduling(0).unwrap(), (fifo, true));
                let child = std::thread::spawn(|| scheduling(0).unwrap().0.policy);
                assert_eq!(child.join().unwrap(), Policy::Other);
            }
        })
        .join()
        .unwrap();
    }

    #[test]
    fn a_thread_that_is_gone_is_named_so() {
        assert_eq!(affinity(u32::MAX / 4).unwrap_err().raw_os_error(), Some(libc::ESRCH));
    }
}
