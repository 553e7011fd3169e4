//! As PipeWire does: by the symbol, the factory, a handle and the functions behind it.
#![allow(
    clippy::undocumented_unsafe_blocks,
    clippy::multiple_unsafe_ops_per_block,
    reason = "every pointer is to a place of the test's own"
)]

use super::*;

/// A system in memory of the host's own.
struct Host {
    handle: Box<mem::MaybeUninit<Handle>>,
}

impl Host {
    fn new() -> Host {
        let (mut factory, mut index) = (ptr::null(), 0);
        assert_eq!(unsafe { spa_handle_factory_enum(&raw mut factory, &raw mut index) }, 1);
        assert_eq!(unsafe { spa_handle_factory_enum(&raw mut factory, &raw mut index) }, 0);
        let factory = unsafe { &*factory };
        assert_eq!(unsafe { CStr::from_ptr(factory.name) }, NAME);
        let mut handle = Box::new(mem::MaybeUninit::uninit());
        assert_eq!((factory.get_size)(factory, ptr::null()), size_of::<Handle>());
        assert_eq!(
            unsafe { (factory.init)(factory, handle.as_mut_ptr(), ptr::null(), ptr::null(), 0) },
            0
        );
        Host { handle }
    }

    fn interface(&mut self, kind: &CStr) -> Result<(&Methods, *mut c_void), c_int> {
        let handle = self.handle.as_mut_ptr();
        let get = unsafe { &*handle }.get_interface;
        let mut found = ptr::null_mut();
        match unsafe { get(handle, kind.as_ptr(), &raw mut found) } {
            0 => {
                let interface = unsafe { &*found.cast::<Interface>() };
                Ok((unsafe { &*interface.methods }, interface.data))
            }
            error => Err(error),
        }
    }
}

fn ready(
    methods: &Methods,
    data: *mut c_void,
    poll: c_int,
    timeout: c_int,
) -> Result<Vec<(u32, usize)>, c_int> {
    let mut events = [const { PollEvent { events: 0, data: ptr::null_mut() } }; 8];
    let count = unsafe { (methods.pollfd_wait)(data, poll, events.as_mut_ptr(), 8, timeout) };
    match usize::try_from(count) {
        Ok(count) => {
            Ok(events[..count].iter().map(|one| (one.events, one.data as usize)).collect())
        }
        Err(_) => Err(count),
    }
}

#[test]
fn events_and_timers_come_with_what_was_laid_beside_them() {
    let mut host = Host::new();
    let (calls, data) = host.interface(SYSTEM).unwrap();
    let poll = (calls.pollfd_create)(data, CLOEXEC);
    let event = (calls.eventfd_create)(data, CLOEXEC | NONBLOCK);
    let timer = (calls.timerfd_create)(data, libc::CLOCK_MONOTONIC, CLOEXEC | NONBLOCK);
    assert!(poll >= 0 && event >= 0 && timer >= 0);
    assert_eq!((calls.pollfd_add)(data, poll, event, libc::EPOLLIN as u32, 17 as *mut c_void), 0);
    assert_eq!((calls.pollfd_add)(data, poll, timer, libc::EPOLLIN as u32, 18 as *mut c_void), 0);
    assert_eq!(ready(calls, data, poll, 0), Ok(vec![]));
    assert_eq!(ready(calls, data, poll, 3), Ok(vec![]));
    assert_eq!((calls.eventfd_write)(data, event, 5), 0);
    assert_eq!(ready(calls, data, poll, -1), Ok(vec![(libc::EPOLLIN as u32, 17)]));
    let mut count = 0;
    assert_eq!(unsafe { (calls.eventfd_read)(data, event, &raw mut count) }, 0);
    assert_eq!(count, 5);
    assert_eq!(unsafe { (calls.eventfd_read)(data, event, &raw mut count) }, -libc::EAGAIN);
    let mut when = itimerspec {
        it_interval: timespec { tv_sec: 0, tv_nsec: 0 },
        it_value: timespec { tv_sec: 0, tv_nsec: 1 },
    };
    assert_eq!(
        unsafe { (calls.timerfd_settime)(data, timer, 0, &raw const when, ptr::null_mut()) },
        0
    );
    assert_eq!(ready(calls, data, poll, -1), Ok(vec![(libc::EPOLLIN as u32, 18)]));
    assert_eq!(unsafe { (calls.timerfd_read)(data, timer, &raw mut count) }, 0);
    assert_eq!(count, 1);
    assert_eq!(unsafe { (calls.timerfd_gettime)(data, timer, &raw mut when) }, 0);
    assert_eq!((when.it_value.tv_sec, when.it_value.tv_nsec), (0, 0));
    assert_eq!((calls.pollfd_mod)(data, poll, event, libc::EPOLLOUT as u32, 19 as *mut c_void), 0);
    assert_eq!(ready(calls, data, poll, 0), Ok(vec![(libc::EPOLLOUT as u32, 19)]));
    assert_eq!((calls.pollfd_del)(data, poll, event), 0);
    assert_eq!(ready(calls, data, poll, 0), Ok(vec![]));
    for fd in [poll, event, timer] {
        assert_eq!((calls.close)(data, fd), 0);
    }
    assert_eq!(ready(calls, data, poll, 0), Err(-libc::EBADF));
}

#[test]
fn the_clock_files_and_controls_are_the_kernels() {
    let mut host = Host::new();
    let (calls, data) = host.interface(SYSTEM).unwrap();
    let mut now = timespec { tv_sec: 0, tv_nsec: 0 };
    assert_eq!(unsafe { (calls.clock_gettime)(data, libc::CLOCK_MONOTONIC, &raw mut now) }, 0);
    assert!(now.tv_sec > 0 || now.tv_nsec > 0);
    assert_eq!(unsafe { (calls.clock_getres)(data, libc::CLOCK_MONOTONIC, &raw mut now) }, 0);
    assert_eq!(unsafe { (calls.clock_gettime)(data, -77, &raw mut now) }, -libc::EINVAL);
    let event = (calls.eventfd_create)(data, NONBLOCK);
    let (word, mut back) = (7u64, 0u64);
    assert_eq!(unsafe { (calls.write)(data, event, (&raw const word).cast(), 8) }, 8);
    assert_eq!(unsafe { (calls.read)(data, event, (&raw mut back).cast(), 8) }, 8);
    assert_eq!(back, word);
    assert_eq!(
        unsafe { (calls.read)(data, event, (&raw mut back).cast(), 8) },
        -(libc::EAGAIN as ssize_t)
    );
    let pair = io::pipe().unwrap();
    io::Write::write_all(&mut &pair.1, b"four").unwrap();
    let mut waiting: c_int = 0;
    let fd = pair.0.as_raw_fd();
    assert_eq!(
        unsafe { (calls.ioctl)(data, fd, libc::FIONREAD as c_ulong, (&raw mut waiting).cast()) },
        0
    );
    assert_eq!(waiting, 4);
    assert_eq!((calls.close)(data, event), 0);
}

#[test]
fn a_signal_comes_by_its_file() {
    let mut host = Host::new();
    let (calls, data) = host.interface(SYSTEM).unwrap();
    let fd = (calls.signalfd_create)(data, libc::SIGUSR1, CLOEXEC | NONBLOCK);
    assert!(fd >= 0);
    let mut signal = 0;
    assert_eq!(unsafe { (calls.signalfd_read)(data, fd, &raw mut signal) }, -libc::EAGAIN);
    assert_eq!(unsafe { libc::pthread_kill(libc::pthread_self(), libc::SIGUSR1) }, 0);
    assert_eq!(unsafe { (calls.signalfd_read)(data, fd, &raw mut signal) }, 0);
    assert_eq!(signal, libc::SIGUSR1);
    assert_eq!((calls.signalfd_create)(data, 9_999, 0), -libc::EINVAL);
    (calls.close)(data, fd);
}

#[test]
fn what_it_does_not_have_is_refused() {
    let mut host = Host::new();
    assert_eq!(host.interface(c"Spa:Pointer:Interface:Loop").err(), Some(-libc::ENOENT));
    assert_eq!(unsafe { spa_handle_factory_enum(ptr::null_mut(), ptr::null_mut()) }, -libc::EINVAL);
    let (mut info, mut index) = (ptr::null(), 0);
    assert_eq!(
        unsafe { (FACTORY.enum_interface_info)(&raw const FACTORY, &raw mut info, &raw mut index) },
        1
    );
    assert_eq!(unsafe { CStr::from_ptr((*info).kind) }, SYSTEM);
    assert_eq!(
        unsafe { (FACTORY.enum_interface_info)(&raw const FACTORY, &raw mut info, &raw mut index) },
        0
    );
}

#[test]
fn a_thread_of_many_cpus_or_without_a_shield_may_not_poll() {
    assert!(!may_poll(&facts(&mut [0; 4096])));
}

/// Each thread has a CPU of its own, or they share one.
#[test]
fn a_cpu_is_ones_own_where_every_other_thread_is_kept_from_it() {
    let mut here: libc::cpu_set_t = unsafe { mem::zeroed() };
    assert_eq!(unsafe { libc::sched_getaffinity(0, size_of_val(&here), &raw mut here) }, 0);
    let cpus: Vec<usize> = (0..1024).filter(|cpu| has(&here, *cpu)).collect();
    // The other threads of the tests may use all of them.
    for cpu in &cpus {
        let (send, wait) = std::sync::mpsc::channel::<()>();
        let other = std::thread::spawn(move || wait.recv());
        assert!(!no_other_has(*cpu), "CPU {cpu}");
        drop(send);
        let _ = other.join();
    }
    assert!(no_other_has(1023) || cpus.contains(&1023));
}
