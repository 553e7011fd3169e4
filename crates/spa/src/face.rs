//! C's side: the factory that PipeWire looks for in the library, and the system calls that a loop makes through it.
//!
//! An error is a negative number of errno, as everywhere in SPA.
#![allow(
    unsafe_code,
    reason = "PipeWire calls these functions through C, with pointers and files of its own"
)]

use crate::{
    right::{Facts, may_poll, text},
    wait::{Asked, Kernel, REST, wait},
};
use libc::{c_char, c_int, c_ulong, c_void, clockid_t, itimerspec, size_t, ssize_t, timespec};
use std::{
    cell::Cell,
    ffi::CStr,
    io, mem,
    os::fd::{AsRawFd, FromRawFd, OwnedFd},
    ptr,
    sync::OnceLock,
    time::Instant,
};

const NAME: &CStr = c"support.system";
const SYSTEM: &CStr = c"Spa:Pointer:Interface:System";
/// How many files that are ready one wait hands over at most; PipeWire asks for 32.
const MOST: usize = 64;

// SPA's own flags of new files.
const CLOEXEC: c_int = 1;
const NONBLOCK: c_int = 2;
const SEMAPHORE: c_int = 4;
const ABSOLUTE: c_int = 8;
const CANCEL_ON_SET: c_int = 16;

/// `struct spa_poll_event`.
#[repr(C)]
pub struct PollEvent {
    events: u32,
    data: *mut c_void,
}

/// `struct spa_system_methods`, version 0.
#[repr(C)]
struct Methods {
    version: u32,
    read: unsafe extern "C" fn(*mut c_void, c_int, *mut c_void, size_t) -> ssize_t,
    write: unsafe extern "C" fn(*mut c_void, c_int, *const c_void, size_t) -> ssize_t,
    /// Variadic in C. What stands for the dots is one word, which the calling conventions of amd64 and arm64 pass as a fourth argument.
    ioctl: unsafe extern "C" fn(*mut c_void, c_int, c_ulong, *mut c_void) -> c_int,
    close: extern "C" fn(*mut c_void, c_int) -> c_int,
    clock_gettime: unsafe extern "C" fn(*mut c_void, c_int, *mut timespec) -> c_int,
    clock_getres: unsafe extern "C" fn(*mut c_void, c_int, *mut timespec) -> c_int,
    pollfd_create: extern "C" fn(*mut c_void, c_int) -> c_int,
    pollfd_add: extern "C" fn(*mut c_void, c_int, c_int, u32, *mut c_void) -> c_int,
    pollfd_mod: extern "C" fn(*mut c_void, c_int, c_int, u32, *mut c_void) -> c_int,
    pollfd_del: extern "C" fn(*mut c_void, c_int, c_int) -> c_int,
    pollfd_wait: unsafe extern "C" fn(*mut c_void, c_int, *mut PollEvent, c_int, c_int) -> c_int,
    timerfd_create: extern "C" fn(*mut c_void, c_int, c_int) -> c_int,
    timerfd_settime: unsafe extern "C" fn(
        *mut c_void,
        c_int,
        c_int,
        *const itimerspec,
        *mut itimerspec,
    ) -> c_int,
    timerfd_gettime: unsafe extern "C" fn(*mut c_void, c_int, *mut itimerspec) -> c_int,
    timerfd_read: unsafe extern "C" fn(*mut c_void, c_int, *mut u64) -> c_int,
    eventfd_create: extern "C" fn(*mut c_void, c_int) -> c_int,
    eventfd_write: extern "C" fn(*mut c_void, c_int, u64) -> c_int,
    eventfd_read: unsafe extern "C" fn(*mut c_void, c_int, *mut u64) -> c_int,
    signalfd_create: extern "C" fn(*mut c_void, c_int, c_int) -> c_int,
    signalfd_read: unsafe extern "C" fn(*mut c_void, c_int, *mut c_int) -> c_int,
}

static METHODS: Methods = Methods {
    version: 0,
    read,
    write,
    ioctl,
    close,
    clock_gettime,
    clock_getres,
    pollfd_create,
    pollfd_add,
    pollfd_mod,
    pollfd_del,
    pollfd_wait,
    timerfd_create,
    timerfd_settime,
    timerfd_gettime,
    timerfd_read,
    eventfd_create,
    eventfd_write,
    eventfd_read,
    signalfd_create,
    signalfd_read,
};

/// `struct spa_interface`.
#[repr(C)]
struct Interface {
    kind: *const c_char,
    version: u32,
    methods: *const Methods,
    data: *mut c_void,
}

/// `struct spa_handle`, and behind it what is this library's. PipeWire owns the memory.
#[repr(C)]
pub struct Handle {
    version: u32,
    get_interface: unsafe extern "C" fn(*mut Handle, *const c_char, *mut *mut c_void) -> c_int,
    clear: extern "C" fn(*mut Handle) -> c_int,
    system: Interface,
}

/// `struct spa_interface_info`.
#[repr(C)]
pub struct InterfaceInfo {
    kind: *const c_char,
}

/// `struct spa_handle_factory`.
#[repr(C)]
pub struct Factory {
    version: u32,
    name: *const c_char,
    info: *const c_void,
    get_size: extern "C" fn(*const Factory, *const c_void) -> size_t,
    init: unsafe extern "C" fn(
        *const Factory,
        *mut Handle,
        *const c_void,
        *const c_void,
        u32,
    ) -> c_int,
    enum_interface_info:
        unsafe extern "C" fn(*const Factory, *mut *const InterfaceInfo, *mut u32) -> c_int,
}

// SAFETY: constant, and what it points to is too.
unsafe impl Sync for Factory {}
// SAFETY: likewise.
unsafe impl Sync for InterfaceInfo {}

static FACTORY: Factory = Factory {
    version: 1,
    name: NAME.as_ptr(),
    info: ptr::null(),
    get_size,
    init,
    enum_interface_info,
};
static INTERFACES: [InterfaceInfo; 1] = [InterfaceInfo { kind: SYSTEM.as_ptr() }];

/// The library's one symbol: its factories, one after the other. 1 for one, 0 at their end.
///
/// # Safety
/// Both point to memory of the caller's, or are null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn spa_handle_factory_enum(
    factory: *mut *const Factory,
    index: *mut u32,
) -> c_int {
    // SAFETY: the caller's promise.
    let (Some(factory), Some(index)) = (unsafe { factory.as_mut() }, unsafe { index.as_mut() })
    else {
        return -libc::EINVAL;
    };
    if *index > 0 {
        return 0;
    }
    *factory = &raw const FACTORY;
    *index = 1;
    1
}

extern "C" fn get_size(_: *const Factory, _: *const c_void) -> size_t {
    size_of::<Handle>()
}

unsafe extern "C" fn init(
    _: *const Factory,
    handle: *mut Handle,
    _: *const c_void,
    _: *const c_void,
    _: u32,
) -> c_int {
    if handle.is_null() {
        return -libc::EINVAL;
    }
    let system = Interface {
        kind: SYSTEM.as_ptr(),
        version: 0,
        methods: &raw const METHODS,
        data: handle.cast(),
    };
    // SAFETY: PipeWire gives memory of the size that was asked for, aligned as malloc aligns.
    unsafe { handle.write(Handle { version: 0, get_interface, clear, system }) };
    0
}

unsafe extern "C" fn enum_interface_info(
    _: *const Factory,
    info: *mut *const InterfaceInfo,
    index: *mut u32,
) -> c_int {
    // SAFETY: the caller's own places, or null.
    let (Some(info), Some(index)) = (unsafe { info.as_mut() }, unsafe { index.as_mut() }) else {
        return -libc::EINVAL;
    };
    let Some(one) = INTERFACES.get(*index as usize) else { return 0 };
    *info = one;
    *index += 1;
    1
}

unsafe extern "C" fn get_interface(
    handle: *mut Handle,
    kind: *const c_char,
    interface: *mut *mut c_void,
) -> c_int {
    if kind.is_null() {
        return -libc::EINVAL;
    }
    // SAFETY: a handle that `init` wrote, and a place of the caller's, or null.
    let (Some(handle), Some(interface)) =
        (unsafe { handle.as_mut() }, unsafe { interface.as_mut() })
    else {
        return -libc::EINVAL;
    };
    // SAFETY: not null; a string of C's, as the interface demands.
    if unsafe { CStr::from_ptr(kind) } != SYSTEM {
        return -libc::ENOENT;
    }
    *interface = (&raw mut handle.system).cast();
    0
}

extern "C" fn clear(_: *mut Handle) -> c_int {
    0
}

fn failed() -> c_int {
    -io::Error::last_os_error().raw_os_error().unwrap_or(libc::EIO)
}

/// What a call gave, or its error.
fn given(result: c_int) -> c_int {
    if result < 0 { failed() } else { result }
}

fn long(result: ssize_t) -> ssize_t {
    if result < 0 { failed() as ssize_t } else { result }
}

/// Flags of a new file in the kernel's words.
fn flags(flags: c_int, words: &[(c_int, c_int)]) -> c_int {
    words.iter().filter(|(one, _)| flags & one != 0).fold(0, |all, (_, word)| all | word)
}

unsafe extern "C" fn read(
    _: *mut c_void,
    fd: c_int,
    buffer: *mut c_void,
    count: size_t,
) -> ssize_t {
    // SAFETY: the caller's buffer of that size.
    long(unsafe { libc::read(fd, buffer, count) })
}

unsafe extern "C" fn write(
    _: *mut c_void,
    fd: c_int,
    buffer: *const c_void,
    count: size_t,
) -> ssize_t {
    // SAFETY: the caller's buffer of that size.
    long(unsafe { libc::write(fd, buffer, count) })
}

unsafe extern "C" fn ioctl(
    _: *mut c_void,
    fd: c_int,
    request: c_ulong,
    word: *mut c_void,
) -> c_int {
    // SAFETY: what the caller asks of the kernel, word by word.
    given(unsafe { libc::ioctl(fd, request as _, word) })
}

extern "C" fn close(_: *mut c_void, fd: c_int) -> c_int {
    // SAFETY: a file of the caller's.
    given(unsafe { libc::close(fd) })
}

unsafe extern "C" fn clock_gettime(_: *mut c_void, clock: c_int, value: *mut timespec) -> c_int {
    // SAFETY: the caller's place.
    given(unsafe { libc::clock_gettime(clock as clockid_t, value) })
}

unsafe extern "C" fn clock_getres(_: *mut c_void, clock: c_int, value: *mut timespec) -> c_int {
    // SAFETY: the caller's place.
    given(unsafe { libc::clock_getres(clock as clockid_t, value) })
}

extern "C" fn pollfd_create(_: *mut c_void, asked: c_int) -> c_int {
    // SAFETY: no pointers.
    given(unsafe { libc::epoll_create1(flags(asked, &[(CLOEXEC, libc::EPOLL_CLOEXEC)])) })
}

/// SPA's events are those of poll(2), and epoll's.
fn control(what: c_int, poll: c_int, fd: c_int, events: u32, data: *mut c_void) -> c_int {
    let mut event = libc::epoll_event { events, u64: data as u64 };
    // SAFETY: the event is read during the call.
    given(unsafe { libc::epoll_ctl(poll, what, fd, &raw mut event) })
}

extern "C" fn pollfd_add(
    _: *mut c_void,
    poll: c_int,
    fd: c_int,
    events: u32,
    data: *mut c_void,
) -> c_int {
    control(libc::EPOLL_CTL_ADD, poll, fd, events, data)
}

extern "C" fn pollfd_mod(
    _: *mut c_void,
    poll: c_int,
    fd: c_int,
    events: u32,
    data: *mut c_void,
) -> c_int {
    control(libc::EPOLL_CTL_MOD, poll, fd, events, data)
}

extern "C" fn pollfd_del(_: *mut c_void, poll: c_int, fd: c_int) -> c_int {
    control(libc::EPOLL_CTL_DEL, poll, fd, 0, ptr::null_mut())
}

thread_local! {
    /// Without a destructor: the library may be gone when a thread ends.
    static ASKED: Cell<Asked> = const { Cell::new(Asked::new()) };
}

unsafe extern "C" fn pollfd_wait(
    _: *mut c_void,
    poll: c_int,
    events: *mut PollEvent,
    count: c_int,
    timeout: c_int,
) -> c_int {
    let mut found = [libc::epoll_event { events: 0, u64: 0 }; MOST];
    let most = usize::try_from(count).unwrap_or(0).min(MOST);
    let mut asked = ASKED.get();
    let ready = wait(&mut Epoll { poll, found: &mut found[..most] }, &mut asked, timeout);
    ASKED.set(asked);
    let there = usize::try_from(ready).unwrap_or(0).min(most);
    for (at, one) in found[..there].iter().enumerate() {
        let one = PollEvent { events: one.events, data: one.u64 as *mut c_void };
        // SAFETY: the caller has room for `count` of them, and `at` is below it.
        let to = unsafe { events.add(at) };
        // SAFETY: likewise.
        unsafe { to.write(one) };
    }
    ready
}

/// The kernel's own wait, and the clock.
struct Epoll<'a> {
    poll: c_int,
    found: &'a mut [libc::epoll_event],
}

impl Kernel for Epoll<'_> {
    fn ready(&mut self, timeout: i32) -> i32 {
        let most = c_int::try_from(self.found.len()).unwrap_or(c_int::MAX);
        // SAFETY: room for so many events.
        given(unsafe { libc::epoll_wait(self.poll, self.found.as_mut_ptr(), most, timeout) })
    }

    fn now(&mut self) -> u64 {
        static FIRST: OnceLock<Instant> = OnceLock::new();
        u64::try_from(FIRST.get_or_init(Instant::now).elapsed().as_nanos()).unwrap_or(u64::MAX)
    }

    fn rest(&mut self) {
        let time = timespec { tv_sec: 0, tv_nsec: REST.into() };
        // SAFETY: a time of ours; what would be left of it is not asked for.
        unsafe { libc::nanosleep(&raw const time, ptr::null_mut()) };
    }

    fn may(&mut self) -> bool {
        may_poll(&facts(&mut [0; 4096]))
    }
}

fn facts(room: &mut [u8; 4096]) -> Facts<'_> {
    // SAFETY: a set of zeros is a set.
    let mut set: libc::cpu_set_t = unsafe { mem::zeroed() };
    // SAFETY: a place of that size.
    let known = unsafe { libc::sched_getaffinity(0, size_of_val(&set), &raw mut set) } == 0;
    // SAFETY: no pointers beyond the set.
    let cpus = if known { unsafe { libc::CPU_COUNT(&set) } } else { 0 };
    let cpus = usize::try_from(cpus).unwrap_or(0);
    // A loop with several CPUs is most loops: nothing else is asked.
    if cpus != 1 {
        return Facts { cpus, ..Facts::default() };
    }
    let own = (0..libc::CPU_SETSIZE.cast_unsigned() as usize).find(|cpu| has(&set, *cpu));
    // SAFETY: no pointers.
    let policy = unsafe { libc::sched_getscheduler(0) } & !libc::SCHED_RESET_ON_FORK;
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: a place of that size.
    let known = unsafe { libc::getrlimit(libc::RLIMIT_RTTIME, &raw mut limit) } == 0;
    let mut number = [0; 32];
    let runtime = text("/proc/sys/kernel/sched_rt_runtime_us", &mut number).trim().parse().ok();
    Facts {
        cpus,
        alone: own.is_some_and(no_other_has),
        groups: text("/proc/thread-self/cgroup", room),
        real_time: ![libc::SCHED_OTHER, libc::SCHED_BATCH, libc::SCHED_IDLE].contains(&policy),
        limited: !known || limit.rlim_cur != libc::RLIM_INFINITY,
        runtime,
    }
}

fn has(set: &libc::cpu_set_t, cpu: usize) -> bool {
    // SAFETY: the number is below the size of a set.
    cpu < libc::CPU_SETSIZE.cast_unsigned() as usize && unsafe { libc::CPU_ISSET(cpu, set) }
}

/// Whether all other threads of this process are kept from a CPU. Allocates nothing; false where that cannot be read.
///
/// # Source
/// getdents(2): `struct linux_dirent64`.
fn no_other_has(cpu: usize) -> bool {
    // SAFETY: a string of C's.
    let fd = unsafe {
        libc::open(
            c"/proc/self/task".as_ptr(),
            libc::O_RDONLY | libc::O_DIRECTORY | libc::O_CLOEXEC,
        )
    };
    if fd < 0 {
        return false;
    }
    // SAFETY: just opened, and nobody else's.
    let folder = unsafe { OwnedFd::from_raw_fd(fd) };
    // SAFETY: no pointers.
    let me = unsafe { libc::gettid() };
    let mut room = [0u8; 2048];
    loop {
        // SAFETY: room of that size.
        let filled = unsafe {
            libc::syscall(libc::SYS_getdents64, folder.as_raw_fd(), room.as_mut_ptr(), room.len())
        };
        let Ok(filled) = usize::try_from(filled) else { return false };
        if filled == 0 {
            return true;
        }
        let mut rest = &room[..filled.min(room.len())];
        // Number, place, length, kind: 19 bytes, then the name.
        while let Some(head) = rest.first_chunk::<19>() {
            let length = usize::from(u16::from_ne_bytes([head[16], head[17]]));
            let Some(entry) = rest.get(19..length) else { return false };
            let name = entry.split(|byte| *byte == 0).next().unwrap_or_default();
            let tid =
                std::str::from_utf8(name).ok().and_then(|name| name.parse::<libc::pid_t>().ok());
            if tid.is_some_and(|tid| tid != me && may_use(tid, cpu)) {
                return false;
            }
            rest = &rest[length..];
        }
    }
}

/// Whether a thread may use a CPU; one that has just ended may not.
fn may_use(tid: libc::pid_t, cpu: usize) -> bool {
    // SAFETY: a set of zeros is a set.
    let mut set: libc::cpu_set_t = unsafe { mem::zeroed() };
    // SAFETY: a place of that size.
    let known = unsafe { libc::sched_getaffinity(tid, size_of_val(&set), &raw mut set) } == 0;
    known && has(&set, cpu)
}

extern "C" fn timerfd_create(_: *mut c_void, clock: c_int, asked: c_int) -> c_int {
    let words = [(CLOEXEC, libc::TFD_CLOEXEC), (NONBLOCK, libc::TFD_NONBLOCK)];
    // SAFETY: no pointers.
    given(unsafe { libc::timerfd_create(clock as clockid_t, flags(asked, &words)) })
}

unsafe extern "C" fn timerfd_settime(
    _: *mut c_void,
    fd: c_int,
    asked: c_int,
    new: *const itimerspec,
    old: *mut itimerspec,
) -> c_int {
    let words =
        [(ABSOLUTE, libc::TFD_TIMER_ABSTIME), (CANCEL_ON_SET, libc::TFD_TIMER_CANCEL_ON_SET)];
    // SAFETY: the caller's places; `old` may be null.
    given(unsafe { libc::timerfd_settime(fd, flags(asked, &words), new, old) })
}

unsafe extern "C" fn timerfd_gettime(_: *mut c_void, fd: c_int, value: *mut itimerspec) -> c_int {
    // SAFETY: the caller's place.
    given(unsafe { libc::timerfd_gettime(fd, value) })
}

/// The eight bytes of a timer or an event.
unsafe fn number(fd: c_int, value: *mut u64) -> c_int {
    // SAFETY: the caller's place, of eight bytes.
    match unsafe { libc::read(fd, value.cast(), 8) } {
        8 => 0,
        less if less < 0 => failed(),
        _ => -libc::EIO,
    }
}

unsafe extern "C" fn timerfd_read(_: *mut c_void, fd: c_int, expirations: *mut u64) -> c_int {
    // SAFETY: the caller's place.
    unsafe { number(fd, expirations) }
}

extern "C" fn eventfd_create(_: *mut c_void, asked: c_int) -> c_int {
    let words = [
        (CLOEXEC, libc::EFD_CLOEXEC),
        (NONBLOCK, libc::EFD_NONBLOCK),
        (SEMAPHORE, libc::EFD_SEMAPHORE),
    ];
    // SAFETY: no pointers.
    given(unsafe { libc::eventfd(0, flags(asked, &words)) })
}

extern "C" fn eventfd_write(_: *mut c_void, fd: c_int, count: u64) -> c_int {
    // SAFETY: eight bytes that are there during the call.
    match unsafe { libc::write(fd, (&raw const count).cast(), 8) } {
        8 => 0,
        less if less < 0 => failed(),
        _ => -libc::EIO,
    }
}

unsafe extern "C" fn eventfd_read(_: *mut c_void, fd: c_int, count: *mut u64) -> c_int {
    // SAFETY: the caller's place.
    unsafe { number(fd, count) }
}

extern "C" fn signalfd_create(_: *mut c_void, signal: c_int, asked: c_int) -> c_int {
    // SAFETY: a set of zeros is a set.
    let mut set: libc::sigset_t = unsafe { mem::zeroed() };
    // SAFETY: our own set.
    unsafe { libc::sigemptyset(&raw mut set) };
    // SAFETY: our own set; a number that is no signal is refused.
    if unsafe { libc::sigaddset(&raw mut set, signal) } < 0 {
        return failed();
    }
    let words = [(CLOEXEC, libc::SFD_CLOEXEC), (NONBLOCK, libc::SFD_NONBLOCK)];
    // SAFETY: our own set.
    let fd = given(unsafe { libc::signalfd(-1, &raw const set, flags(asked, &words)) });
    if fd >= 0 {
        // What comes by the file is not to come as a signal.
        // SAFETY: our own set.
        unsafe { libc::pthread_sigmask(libc::SIG_BLOCK, &raw const set, ptr::null_mut()) };
    }
    fd
}

unsafe extern "C" fn signalfd_read(_: *mut c_void, fd: c_int, signal: *mut c_int) -> c_int {
    // SAFETY: zeros are such a record.
    let mut info: libc::signalfd_siginfo = unsafe { mem::zeroed() };
    let size = size_of_val(&info);
    // SAFETY: room for one record.
    let read = unsafe { libc::read(fd, (&raw mut info).cast(), size) };
    if read < 0 {
        return failed();
    }
    if usize::try_from(read) != Ok(size) {
        return -libc::EIO;
    }
    // SAFETY: the caller's place.
    unsafe { signal.write(info.ssi_signo.cast_signed()) };
    0
}

#[cfg(test)]
mod tests;
