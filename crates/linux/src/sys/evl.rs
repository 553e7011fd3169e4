//! libevl, opened at run time: its functions by their names.
#![allow(unsafe_code)]

use std::{
    ffi::{CStr, c_char, c_int, c_void},
    sync::OnceLock,
};

/// Names under which libevl is installed, the library's own first.
const NAMES: [&CStr; 3] = [c"libevl.so.4", c"libevl.so", c"/usr/evl/lib/libevl.so"];

/// `EVL_CLOCK_MONOTONIC`.
const MONOTONIC: c_int = -libc::CLOCK_MONOTONIC;

/// `EVL_T_INBAND` of the state.
const IN_BAND: u32 = 0x80;

/// What libevl fills in of a thread, with room for more than it has.
///
/// # Source
/// `struct evl_thread_state`, include/uapi/evl/thread.h (ABI level 32): scheduling attributes of 24 bytes, then CPU, state, switches
/// in-band, context switches, system calls and remote wake-ups of 4 bytes each, then the time.
#[repr(C, align(8))]
struct State([u32; 64]);

/// What the core counts of a thread.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StageCount {
    /// Whether it is in band now.
    pub is_in_band: bool,
    /// Switches to the in-band stage.
    pub in_band: u32,
    /// Context switches of the core. None and no switch in-band: the core is built without its account.
    pub switches: u32,
}

type Init = unsafe extern "C" fn() -> c_int;
type Attach = unsafe extern "C" fn(c_int, *const c_char, ...) -> c_int;
type Plain = unsafe extern "C" fn() -> c_int;
type GetState = unsafe extern "C" fn(c_int, *mut State) -> c_int;
type ReadClock = unsafe extern "C" fn(c_int, *mut libc::timespec) -> c_int;
type SleepUntil = unsafe extern "C" fn(c_int, *const libc::timespec) -> c_int;

/// The functions. The library stays open until the program ends.
#[derive(Clone, Copy, Debug)]
pub struct Library {
    attach: Attach,
    detach: Plain,
    own: Plain,
    switch_oob: Plain,
    state: GetState,
    read_clock: ReadClock,
    sleep_until: SleepUntil,
}

/// Why libevl cannot be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Closed {
    /// It is not there, or cannot be loaded: the loader's words.
    Missing(String),
    /// It lacks a function.
    Lacks(&'static str),
    /// `evl_init` refused: an error number, such as ENOSYS without a core and ENOEXEC with a core of another ABI.
    Refused(i32),
}

/// Loads libevl and has it connect to the core; asked again it answers as the first time.
///
/// # Errors
/// [`Closed`] says why.
///
/// # Source
/// dlopen(3); `evl_init`, <https://evlproject.org/core/user-api/init/>.
pub fn open() -> Result<Library, Closed> {
    static OPENED: OnceLock<Result<Library, Closed>> = OnceLock::new();
    OPENED.get_or_init(load).clone()
}

fn load() -> Result<Library, Closed> {
    let mut why = String::new();
    let handle = NAMES.iter().find_map(|name| {
        // SAFETY: a name that ends with 0. Code of the library runs, as it does for any library that a program is linked to.
        let handle = unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
        if handle.is_null() && why.is_empty() {
            why = last_words();
        }
        (!handle.is_null()).then_some(handle)
    });
    let handle = handle.ok_or(Closed::Missing(why))?;
    let init: Init = function(handle, c"evl_init")?;
    let library = Library {
        attach: function(handle, c"evl_attach_thread")?,
        detach: function(handle, c"evl_detach_self")?,
        own: function(handle, c"evl_get_self")?,
        switch_oob: function(handle, c"evl_switch_oob")?,
        state: function(handle, c"evl_get_state")?,
        read_clock: function(handle, c"evl_read_clock")?,
        sleep_until: function(handle, c"evl_sleep_until")?,
    };
    // SAFETY: takes nothing; may be called from any thread, and again.
    match unsafe { init() } {
        0 => Ok(library),
        error => Err(Closed::Refused(-error)),
    }
}

/// The function of that name. `F` is the type of a function with its signature: those here are in evl/evl.h, evl/thread-evl.h and
/// evl/clock-evl.h of libevl 47, the same since API level 10.
fn function<F: Copy>(handle: *mut c_void, name: &'static CStr) -> Result<F, Closed> {
    const { assert!(size_of::<F>() == size_of::<*mut c_void>()) };
    // SAFETY: a handle of dlopen's that is never closed, and a name that ends with 0.
    let found = unsafe { libc::dlsym(handle, name.as_ptr()) };
    if found.is_null() {
        return Err(Closed::Lacks(name.to_str().unwrap_or_default()));
    }
    // SAFETY: a pointer to a function has the size of a pointer to data on every system of Linux, and it is not null.
    Ok(unsafe { std::mem::transmute_copy::<*mut c_void, F>(&found) })
}

/// What the loader said last.
fn last_words() -> String {
    // SAFETY: answers with a string of its own that lasts until the next call of the loader's in this thread, or with null.
    let said = unsafe { libc::dlerror() };
    if said.is_null() {
        return "the loader does not say why".to_owned();
    }
    // SAFETY: see above: it is not null and ends with 0.
    unsafe { CStr::from_ptr(said) }.to_string_lossy().into_owned()
}

/// A number of libevl's: the negative of an error number where it failed.
fn done(answer: c_int) -> std::io::Result<c_int> {
    if answer < 0 { Err(std::io::Error::from_raw_os_error(-answer)) } else { Ok(answer) }
}

impl Library {
    /// Attaches the calling thread to the core under `name`, with the priority that it has.
    ///
    /// # Errors
    /// The core's: the name is taken, the thread is attached, no right.
    pub fn attach(&self, name: &CStr) -> std::io::Result<()> {
        // SAFETY: two strings that end with 0, the second what the first's `%s` stands for. 0 is `EVL_CLONE_PRIVATE`.
        done(unsafe { (self.attach)(0, c"%s".as_ptr(), name.as_ptr()) }).map(drop)
    }

    /// Detaches the calling thread, which is an ordinary one again.
    ///
    /// # Errors
    /// The core's, when it is not attached.
    pub fn detach(&self) -> std::io::Result<()> {
        // SAFETY: takes nothing and speaks of the calling thread.
        done(unsafe { (self.detach)() }).map(drop)
    }

    /// Takes the calling thread to the out-of-band stage, where it stays until it makes a system call of the kernel's or faults.
    ///
    /// # Errors
    /// The core's, when it is not attached.
    pub fn switch_oob(&self) -> std::io::Result<()> {
        // SAFETY: takes nothing and speaks of the calling thread.
        done(unsafe { (self.switch_oob)() }).map(drop)
    }

    /// What the core counts of the calling thread. It stays on its stage.
    ///
    /// # Errors
    /// The core's, when it is not attached.
    pub fn counted(&self) -> std::io::Result<StageCount> {
        let mut state = State([0; 64]);
        // SAFETY: takes nothing and speaks of the calling thread.
        let own = done(unsafe { (self.own)() })?;
        // SAFETY: `state` has more room than the library writes.
        done(unsafe { (self.state)(own, &raw mut state) })?;
        let [flags, in_band, switches] = [state.0[7], state.0[8], state.0[9]];
        Ok(StageCount { is_in_band: flags & IN_BAND != 0, in_band, switches })
    }

    /// The core's monotonic clock in ns: `CLOCK_MONOTONIC`, read without a system call.
    pub fn monotonic(&self) -> u64 {
        let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        // SAFETY: `now` is written.
        unsafe { (self.read_clock)(MONOTONIC, &raw mut now) };
        now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
    }

    /// Sleeps until the core's monotonic clock reads `at` ns.
    ///
    /// # Errors
    /// The core's: a signal came, the thread is not attached, or it has no right to (`CAP_SYS_NICE`).
    #[inline(always)]
    pub fn sleep_until(&self, at: u64) -> std::io::Result<()> {
        let at = libc::timespec {
            tv_sec: (at / 1_000_000_000) as _,
            tv_nsec: (at % 1_000_000_000) as _,
        };
        // SAFETY: `at` is read.
        done(unsafe { (self.sleep_until)(MONOTONIC, &raw const at) }).map(drop)
    }
}
