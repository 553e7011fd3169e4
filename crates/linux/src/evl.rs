//! The EVL core (Xenomai 4): a second scheduler below the kernel's, whose threads no interrupt of the kernel's keeps waiting.
//!
//! # Source
//! <https://evlproject.org/core/>, the library's API level 26 and the core's ABI level 32. A thread is *out of band* while the core
//! schedules it. A system call of the kernel's, a fault or a signal takes it *in band*, where the kernel schedules it as any other.

use crate::{
    Root,
    sys::{
        clock,
        evl::{self, Closed, Library},
    },
};
use quiet_types::{CpuId, CpuSet, printable};
use std::{ffi::CString, fmt, io, marker::PhantomData, path::Path};

/// The core's door; where it is missing, this kernel has no such core.
pub const CONTROL: &str = "/dev/evl/control";
/// CPUs on which the core runs threads.
pub const CPUS: &str = "/sys/devices/virtual/evl/control/cpus";

/// The core, with its library loaded.
#[derive(Clone, Copy, Debug)]
pub struct Evl(Library);

/// Why the core cannot be used.
#[derive(Debug)]
#[non_exhaustive]
pub enum NoEvl {
    /// The kernel has none.
    NoCore,
    /// Its library is not there or does not fit.
    Library(Closed),
}

impl fmt::Display for NoEvl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            NoEvl::NoCore => write!(
                f,
                "this kernel has no EVL core (no {CONTROL}); boot one with EVL (Xenomai 4, CONFIG_EVL), or leave out --core"
            ),
            NoEvl::Library(Closed::Missing(why)) if cfg!(target_feature = "crt-static") => write!(
                f,
                "this program is a static one, which loads no library, and the EVL core needs libevl ({}); use the program of the package",
                printable(why, 200)
            ),
            NoEvl::Library(Closed::Missing(why)) => write!(
                f,
                "libevl cannot be loaded ({}); install it (https://evlproject.org), or name its folder in LD_LIBRARY_PATH",
                printable(why, 200)
            ),
            NoEvl::Library(Closed::Lacks(name)) => {
                write!(f, "this libevl has no {name}; quietcores knows libevl from release 20 on")
            }
            NoEvl::Library(Closed::Refused(libc::ENOEXEC)) => {
                f.write_str("libevl and the core of this kernel are of different ABI levels; install the libevl that fits it")
            }
            NoEvl::Library(Closed::Refused(libc::ENOSYS)) => {
                f.write_str("libevl finds no EVL core in this kernel; boot one with CONFIG_EVL, or leave out --core")
            }
            NoEvl::Library(Closed::Refused(error)) => write!(
                f,
                "libevl cannot begin: {}; run it as root",
                io::Error::from_raw_os_error(*error)
            ),
        }
    }
}

impl std::error::Error for NoEvl {}

impl Evl {
    /// Loads libevl and connects to the core. All memory of this process is locked from then on: libevl does so.
    ///
    /// # Errors
    /// Why there is no core, or no library for it.
    pub fn open() -> Result<Evl, NoEvl> {
        // The library would say so itself, on standard error.
        if !Path::new(CONTROL).exists() {
            return Err(NoEvl::NoCore);
        }
        evl::open().map(Evl).map_err(NoEvl::Library)
    }

    /// Attaches the calling thread to the core, until what is given back is dropped by the same thread.
    ///
    /// It is to have its CPU, its FIFO priority and its locked memory: the core takes them over. It has to keep `CAP_SYS_NICE`, for which
    /// the core asks at each call (`do_oob_syscall`, kernel/evl/syscall.c).
    ///
    /// # Errors
    /// The core's.
    pub fn attach(self, name: &str) -> io::Result<Attached> {
        let name = CString::new(name).map_err(io::Error::other)?;
        self.0.attach(&name)?;
        Ok(Attached { evl: self, _of_one_thread: PhantomData })
    }

    /// Takes the calling thread out of band.
    ///
    /// # Errors
    /// The core's, when the thread is not attached.
    pub fn enter(self) -> io::Result<()> {
        self.0.switch_oob()
    }

    /// How often the calling thread was taken in band since it was attached; `None` where the core does not count.
    ///
    /// # Real time
    /// One call of the core's; an attached thread stays out of band.
    pub fn in_band(self) -> Option<u64> {
        let counted = self.0.counted().ok()?;
        // A core without its account says 0 of everything.
        let counts = counted.switches > 0 || counted.in_band > 0;
        counts.then_some(counted.in_band.into())
    }

    /// Whether the calling thread is out of band.
    ///
    /// # Real time
    /// As [`Evl::in_band`].
    pub fn is_out_of_band(self) -> bool {
        self.0.counted().is_ok_and(|counted| !counted.is_in_band)
    }

    /// `CLOCK_MONOTONIC` in ns.
    ///
    /// # Real time
    /// Out of band too.
    pub fn monotonic(self) -> u64 {
        self.0.monotonic()
    }

    /// Sleeps until `CLOCK_MONOTONIC` reads `at` ns, or a signal came. The caller looks at the clock.
    ///
    /// # Real time
    /// One call of the core's: a thread that was in band is out of band then. Where the core refuses, the kernel has it sleep: a thread
    /// that waits for the clock must not spin.
    #[inline(always)]
    pub fn sleep_until(self, at: u64) {
        if self.0.sleep_until(at).is_err_and(|error| error.raw_os_error() != Some(libc::EINTR)) {
            clock::sleep_until(at);
        }
    }
}

/// A thread that is attached to the core; dropped, it is an ordinary thread.
#[derive(Debug)]
pub struct Attached {
    /// The core.
    pub evl: Evl,
    /// The core knows threads, not values: it stays with the one that made it.
    _of_one_thread: PhantomData<*const ()>,
}

impl Drop for Attached {
    fn drop(&mut self) {
        let _ = self.evl.0.detach();
    }
}

/// Whether the core runs threads on `cpu`.
///
/// # Errors
/// A sentence, when it does not, or does not say where it does.
pub fn runs_on(root: &Root, cpu: CpuId) -> Result<(), String> {
    let text = root.read(CPUS).map_err(|error| error.to_string())?;
    let able: CpuSet =
        text.trim().parse().map_err(|error| format!("cannot understand {CPUS}: {error}"))?;
    if able.contains(cpu) {
        return Ok(());
    }
    Err(format!("the EVL core runs no threads on CPU {cpu}, but on {able}: choose one of those"))
}
