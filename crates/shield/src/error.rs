//! Why a shield could not be put up, looked at or taken down.

use quiet_types::plan::Reverted;
use std::{fmt, io};

/// What stood in the way, as a sentence with its remedy.
#[derive(Debug)]
pub struct Error {
    kind: Kind,
    sentence: String,
    rolled_back: Option<Box<Reverted>>,
}

/// What kind of thing stood in the way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// The state directory cannot be used.
    State,
    /// The journal cannot be written or read: nothing is changed without it.
    Journal,
    /// Another quietcores is at work with this state directory.
    Busy,
    /// A shield is up already.
    AlreadyUp,
    /// An earlier apply or revert did not come to its end.
    Leftover,
    /// An essential step failed; what had been done is rolled back.
    Step,
    /// A signal asked to stop; what had been done is rolled back.
    Interrupted,
}

/// A result with [`Error`].
pub type Result<T> = std::result::Result<T, Error>;

impl Error {
    pub(crate) fn new(kind: Kind, sentence: impl Into<String>) -> Error {
        Error { kind, sentence: sentence.into(), rolled_back: None }
    }

    pub(crate) fn after(mut self, rolled_back: Reverted) -> Error {
        self.rolled_back = Some(Box::new(rolled_back));
        self
    }

    /// What kind of thing it is.
    pub fn kind(&self) -> Kind {
        self.kind
    }

    /// What was put back after the failure, where something had been done.
    pub fn rolled_back(&self) -> Option<&Reverted> {
        self.rolled_back.as_deref()
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.sentence)?;
        match &self.rolled_back {
            None => Ok(()),
            Some(back) if back.is_exact() => {
                f.write_str("; everything done before it was put back")
            }
            Some(back) if back.is_complete() => f.write_str(
                "; what was done before it was put back, except for values that somebody else \
                 has changed since",
            ),
            Some(_) => f.write_str(
                "; putting back what was done before it failed in part: run `quietcores revert`",
            ),
        }
    }
}

impl std::error::Error for Error {}

/// The kernel's text for an error, without std's ` (os error 5)`.
pub(crate) fn plain(error: &io::Error) -> String {
    let text = error.to_string();
    let end = text.find(" (os error").unwrap_or(text.len());
    text[..end].to_owned()
}

/// Error numbers as the kernel gives them; the same on every architecture that we know of.
pub(crate) mod errno {
    use rustix::io::Errno;
    pub const EPERM: i32 = Errno::PERM.raw_os_error();
    pub const ENOENT: i32 = Errno::NOENT.raw_os_error();
    pub const ESRCH: i32 = Errno::SRCH.raw_os_error();
    pub const EIO: i32 = Errno::IO.raw_os_error();
    pub const EACCES: i32 = Errno::ACCESS.raw_os_error();
    pub const EBUSY: i32 = Errno::BUSY.raw_os_error();
    pub const EAGAIN: i32 = Errno::AGAIN.raw_os_error();
    pub const ENODEV: i32 = Errno::NODEV.raw_os_error();
    pub const EINVAL: i32 = Errno::INVAL.raw_os_error();
    pub const ENOSPC: i32 = Errno::NOSPC.raw_os_error();
    pub const EROFS: i32 = Errno::ROFS.raw_os_error();
    pub const EOVERFLOW: i32 = Errno::OVERFLOW.raw_os_error();
    pub const ERANGE: i32 = Errno::RANGE.raw_os_error();
}

/// Whether the object of a failed act does not exist (any more).
pub(crate) fn is_gone(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(errno::ENOENT | errno::ESRCH | errno::ENODEV))
}

/// Why an interrupt's CPUs could not be set, in words.
///
/// # Source
/// `write_irq_affinity` and `irq_can_set_affinity_usr` of the kernel (kernel/irq/proc.c): EIO up to
/// 6.11, EPERM from 6.12 for interrupts that cannot be moved by user space.
pub(crate) fn irq_reason(error: &io::Error) -> String {
    match error.raw_os_error() {
        Some(errno::EPERM | errno::EIO) => {
            "the kernel keeps it where it is: a managed interrupt of a multi-queue device, or one \
             of a single CPU"
                .into()
        }
        Some(errno::EINVAL) => {
            "its interrupt controller cannot deliver it there, or no CPU of the set runs".into()
        }
        Some(errno::ENOSPC) => "the interrupt vectors of these CPUs are used up".into(),
        Some(errno::EBUSY | errno::EAGAIN) => "it is being moved just now; try again".into(),
        Some(errno::EOVERFLOW | errno::ERANGE) => "a CPU of the set does not run".into(),
        _ => plain(error),
    }
}

/// Why a write to a kernel file was refused, in words.
pub(crate) fn write_reason(error: &io::Error) -> String {
    match error.raw_os_error() {
        Some(errno::EPERM | errno::EACCES) => {
            "permission denied: root is needed, or the kernel is locked down".into()
        }
        Some(errno::EROFS) => "the file system is mounted read-only (a container?)".into(),
        Some(errno::EBUSY) => "in use (EBUSY)".into(),
        Some(errno::EINVAL) => "the kernel finds the value not valid here (EINVAL)".into(),
        Some(errno::ENOSPC) => "it would leave tasks without a CPU or memory node (ENOSPC)".into(),
        _ => plain(error),
    }
}

/// Why a thread could not be moved, in words.
pub(crate) fn task_reason(error: &io::Error) -> String {
    match error.raw_os_error() {
        Some(errno::EINVAL) => "bound by the kernel, or none of the CPUs is open to it".into(),
        Some(errno::EPERM | errno::EACCES) => {
            "not permitted (a group without real-time budget, or root is needed)".into()
        }
        Some(errno::ENOSPC) => "the group has no CPU or no memory node".into(),
        _ => plain(error),
    }
}
