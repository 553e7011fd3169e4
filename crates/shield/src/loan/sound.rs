//! The first sound: somebody opens a PCM device, or one that was open begins to run.

use rustix::fs::inotify;
use std::{
    collections::BTreeSet,
    fs,
    mem::MaybeUninit,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
};

/// Where the devices are.
const DEVICES: &str = "/dev/snd";
/// Where the kernel says what each does.
const STATES: &str = "/proc/asound";

/// Listens for the first sound. What sounds already when it begins is not the first one.
pub(super) struct Ear {
    /// `None` where there is no sound device, or too many programs watch files.
    opened: Option<OwnedFd>,
    /// PCM streams that run.
    running: BTreeSet<String>,
}

impl Ear {
    /// Begins to listen.
    pub fn new() -> Ear {
        let opened = inotify::init(inotify::CreateFlags::CLOEXEC | inotify::CreateFlags::NONBLOCK);
        let opened = opened
            .ok()
            .filter(|fd| inotify::add_watch(fd, DEVICES, inotify::WatchFlags::OPEN).is_ok());
        Ear { opened, running: running() }
    }

    /// What can be polled: readable when somebody opens a device.
    pub fn fd(&self) -> Option<BorrowedFd<'_>> {
        self.opened.as_ref().map(AsFd::as_fd)
    }

    /// Whether there was sound since the last look.
    pub fn heard(&mut self) -> bool {
        let opened = self.was_opened();
        let now = running();
        let begun = now.difference(&self.running).next().is_some();
        self.running = now;
        opened || begun
    }

    fn was_opened(&self) -> bool {
        let Some(fd) = &self.opened else { return false };
        let mut buffer = [MaybeUninit::uninit(); 4096];
        let mut reader = inotify::Reader::new(fd, &mut buffer);
        let mut heard = false;
        while let Ok(event) = reader.next() {
            heard |= event.file_name().is_some_and(|name| name.to_bytes().starts_with(b"pcm"));
        }
        heard
    }
}

/// The PCM streams that run now, by their files.
fn running() -> BTreeSet<String> {
    let below = |path: &str, begin: &str| -> Vec<String> {
        let entries = fs::read_dir(path).into_iter().flatten().flatten();
        let names = entries.filter_map(|entry| entry.file_name().into_string().ok());
        names.filter(|name| name.starts_with(begin)).map(|name| format!("{path}/{name}")).collect()
    };
    let cards = below(STATES, "card");
    let streams = cards.iter().flat_map(|card| below(card, "pcm"));
    let parts = streams.flat_map(|stream| below(&stream, "sub"));
    parts
        .map(|part| format!("{part}/status"))
        .filter(|file| fs::read_to_string(file).is_ok_and(|text| text.contains("state: RUNNING")))
        .collect()
}
