//! Memory shared with another process, and memory that stays present.
#![allow(unsafe_code)]

use rustix::{
    fs::{MemfdFlags, SealFlags},
    mm::{MapFlags, MlockAllFlags, ProtFlags},
};
use std::{ffi::c_void, fs::File, io, os::fd::AsFd, sync::atomic::AtomicU64};

/// Words that two processes share: a sealed memfd, mapped.
#[derive(Debug)]
pub struct SharedWords {
    at: *mut c_void,
    words: usize,
}

// SAFETY: the mapping is reached only as atomics, from any thread, until the value is dropped.
unsafe impl Send for SharedWords {}
// SAFETY: as above.
unsafe impl Sync for SharedWords {}

impl SharedWords {
    /// A new memfd whose first `words` words (8 bytes each, zero) are to be shared. More may be
    /// written behind them; the file cannot shrink.
    ///
    /// # Errors
    /// When the kernel refuses memory or descriptors.
    ///
    /// # Source
    /// memfd_create(2), `F_SEAL_SHRINK` in fcntl(2).
    pub fn create(words: usize) -> io::Result<(SharedWords, File)> {
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        let file = File::from(rustix::fs::memfd_create(c"quietcores", flags)?);
        file.set_len(words as u64 * 8)?;
        rustix::fs::fcntl_add_seals(&file, SealFlags::SHRINK)?;
        let shared = SharedWords::map(&file, words)?;
        Ok((shared, file))
    }

    /// Maps the first `words` words of a memfd that [`SharedWords::create`] made.
    ///
    /// # Errors
    /// `EINVAL` when the file is shorter or could shrink; else as mmap(2) refuses.
    pub fn map(file: &File, words: usize) -> io::Result<SharedWords> {
        let bytes = words * 8;
        let sealed = rustix::fs::fcntl_get_seals(file)?.contains(SealFlags::SHRINK);
        if words == 0 || !sealed || file.metadata()?.len() < bytes as u64 {
            return Err(io::Error::from_raw_os_error(libc::EINVAL));
        }
        // SAFETY: a new mapping at an address of the kernel's choice touches nothing that exists.
        // The file is at least that long and sealed against shrinking, so no access can fault.
        let at = unsafe {
            rustix::mm::mmap(
                std::ptr::null_mut(),
                bytes,
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::SHARED,
                file.as_fd(),
                0,
            )?
        };
        Ok(SharedWords { at, words })
    }

    /// The words.
    pub fn words(&self) -> &[AtomicU64] {
        // SAFETY: the mapping is `words * 8` bytes long, page-aligned, zeroed by the kernel, lives
        // as long as `self`, and is accessed by both processes through atomics alone.
        unsafe { std::slice::from_raw_parts(self.at.cast::<AtomicU64>(), self.words) }
    }
}

impl Drop for SharedWords {
    fn drop(&mut self) {
        // SAFETY: the range is the one that was mapped, and no borrow of it outlives `self`.
        let _ = unsafe { rustix::mm::munmap(self.at, self.words * 8) };
    }
}

/// Locks all memory of the process, present and future, and makes the present one present.
///
/// # Errors
/// `ENOMEM` or `EPERM` without `CAP_IPC_LOCK` when `RLIMIT_MEMLOCK` is too small.
///
/// # Source
/// mlockall(2).
pub fn lock_all() -> io::Result<()> {
    Ok(rustix::mm::mlockall(MlockAllFlags::CURRENT | MlockAllFlags::FUTURE)?)
}

/// Keeps what is freed within the process. Handing memory back to the kernel changes page tables,
/// and each change interrupts every CPU on which a thread of the process runs.
///
/// # Source
/// `M_TRIM_THRESHOLD` and `M_MMAP_MAX` in mallopt(3); without glibc it does nothing.
pub fn keep_freed() {
    #[cfg(target_env = "gnu")]
    for (what, value) in [(libc::M_TRIM_THRESHOLD, libc::c_int::MAX), (libc::M_MMAP_MAX, 0)] {
        // SAFETY: sets a number of the allocator.
        unsafe { libc::mallopt(what, value) };
    }
}

/// Touches 64 KiB of the calling thread's stack, so that its pages are there when it matters.
#[inline(never)]
pub fn touch_stack() {
    let mut room = [0u8; 64 << 10];
    for page in room.chunks_mut(1024) {
        page[0] = 1;
    }
    std::hint::black_box(&mut room);
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::Ordering::Relaxed;

    #[test]
    fn two_mappings_of_one_file_are_the_same_words() {
        let (mine, file) = SharedWords::create(512).unwrap();
        let theirs = SharedWords::map(&file, 512).unwrap();
        mine.words()[511].store(7, Relaxed);
        assert_eq!(theirs.words()[511].load(Relaxed), 7);
        assert_eq!(theirs.words().len(), 512);
    }

    #[test]
    fn a_file_that_is_short_or_can_shrink_is_refused() {
        let (_, file) = SharedWords::create(512).unwrap();
        assert!(SharedWords::map(&file, 513).is_err());
        assert!(file.set_len(8).is_err(), "the seal holds");
        let plain = rustix::fs::memfd_create(c"plain", MemfdFlags::ALLOW_SEALING).unwrap();
        let plain = File::from(plain);
        plain.set_len(4096).unwrap();
        assert!(SharedWords::map(&plain, 1).is_err());
    }
}
