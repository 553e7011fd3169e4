//! What ALSA says when it cannot.

/// Error numbers without the C library's crate.
pub(super) mod libc_errno {
    use rustix::io::Errno;
    pub(in super::super) const EBUSY: i32 = Errno::BUSY.raw_os_error();
    pub(in super::super) const EACCES: i32 = Errno::ACCESS.raw_os_error();
    pub(in super::super) const EPIPE: i32 = Errno::PIPE.raw_os_error();
    pub(in super::super) const ESTRPIPE: i32 = Errno::STRPIPE.raw_os_error();
    /// What a wait may say of a card that is still there: an xrun, a suspended card, a signal.
    pub(in super::super) const OF_A_STREAM: [i32; 4] =
        [EPIPE, ESTRPIPE, Errno::INTR.raw_os_error(), Errno::AGAIN.raw_os_error()];
}

pub(crate) fn said(e: &alsa::Error) -> String {
    let text = std::io::Error::from_raw_os_error(e.errno()).to_string();
    text.split(" (os error").next().unwrap_or_default().to_owned()
}

/// The library prints on its own accord; what matters comes as errors.
pub(crate) fn hush() {
    let _ = alsa::Output::local_error_handler();
}
