//! What the plugin does in LV2, without a line of C: the worker's side and the audio thread's.

use super::atoms::{Asked, FILES, Names, Told, hear};
use crate::{
    heart::{Heart, Way, heart},
    wish::PluginState,
};
use quiet_dsp::Stage as _;
use quiet_engine::{Error, ErrorKind, ProcessSpec, Result};
use std::{mem::take, path::PathBuf};

/// No name of a file is longer, bytes.
const LONGEST_PATH: usize = 4096;
/// Before the name in an order to the worker: which file. In its answer: which, whether it was done, the latency.
const HEAD: usize = 8;
/// Of an order or an answer, bytes.
const LONGEST_ORDER: usize = HEAD + LONGEST_PATH;
/// Orders in one cycle; a host that sends more is told what holds.
pub(super) const ORDERS: usize = 8;

/// The places that are emptied when a file is set: a strip stands in place of amp and impulse response, and they in
/// place of it. One that is emptied itself changes no other.
fn others(file: usize, empty: bool) -> std::ops::Range<usize> {
    match (file, empty) {
        (_, true) => 0..0,
        (0, _) => 1..FILES,
        _ => 0..1,
    }
}

/// The state that names `files`; an empty name is none.
pub(super) fn state_of(files: [PathBuf; FILES]) -> PluginState {
    let [strip, amp, ir] = files.map(|path| Some(path).filter(|p| !p.as_os_str().is_empty()));
    PluginState { strip, amp, ir, ..PluginState::default() }
}

/// The files that a state names.
pub(super) fn files_of(state: &PluginState) -> [PathBuf; FILES] {
    [&state.strip, &state.amp, &state.ir].map(|path| path.clone().unwrap_or_default())
}

/// What is not the audio thread's.
pub(super) struct Desk {
    pub(super) state: PluginState,
    way: Way,
    setting: ProcessSpec,
}

/// What the audio thread holds.
pub(super) struct Audio {
    heart: Heart,
    pub(super) latency: u32,
    /// Each of them has room for the longest.
    files: [Vec<u8>; FILES],
    /// What the host is to be told.
    tell: [bool; FILES],
    changed: bool,
    /// Orders to the worker that were not sent yet, empty where there is none; each has room for the longest.
    orders: [Vec<u8>; ORDERS],
    sounded: bool,
}

/// Both sides, in one channel, with nothing loaded.
pub(super) fn open(setting: ProcessSpec) -> Result<(Desk, Audio)> {
    let state = PluginState::default();
    let strip = state.strip(setting.rate, setting.block, setting.channels)?;
    let latency = strip.latency().0;
    let (heart, way) = heart(strip, setting, [0.0; 2])?;
    let text = || Vec::with_capacity(LONGEST_PATH);
    let audio = Audio {
        heart,
        latency,
        files: [text(), text(), text()],
        tell: [false; FILES],
        changed: false,
        orders: [(); ORDERS].map(|()| Vec::with_capacity(LONGEST_ORDER)),
        sounded: false,
    };
    Ok((Desk { state, way, setting }, audio))
}

impl Desk {
    /// Loads the file of an order and crossfades to it; the answer is for [`Audio::answered`].
    pub(super) fn work(&mut self, order: &[u8]) -> (Vec<u8>, Result<()>) {
        let mut answer = order.to_vec();
        let done = self.change(order);
        if let (Ok(latency), Some(head)) = (&done, answer.first_chunk_mut::<HEAD>()) {
            head[1] = 1;
            head[4..].copy_from_slice(&latency.to_ne_bytes());
        }
        (answer, done.map(drop))
    }

    fn change(&mut self, order: &[u8]) -> Result<u32> {
        let wrong = |why: &str| Error::of(ErrorKind::Asked, why.to_owned());
        let (head, path) = order
            .split_first_chunk::<HEAD>()
            .filter(|(head, _)| usize::from(head[0]) < FILES)
            .ok_or_else(|| wrong("an order that is none of this plugin's"))?;
        let path = std::str::from_utf8(path)
            .map_err(|_| wrong("the name of the file is not UTF-8: rename it"))?;
        let mut files = files_of(&self.state);
        let file = usize::from(head[0]);
        files[others(file, path.is_empty())].fill_with(PathBuf::new);
        files[file] = PathBuf::from(path);
        let state = state_of(files);
        let strip = self.way.build(&state)?;
        let latency = strip.latency().0;
        self.way.swap(strip)?;
        self.state = state;
        Ok(latency)
    }

    /// Takes a state over, where the audio thread stands still: by a crossfade if it has sounded, else as if it had
    /// always been so.
    pub(super) fn restore(&mut self, audio: &mut Audio, state: PluginState) -> Result<()> {
        let strip = self.way.build(&state)?;
        let latency = strip.latency().0;
        if audio.sounded {
            self.way.swap(strip)?;
        } else {
            (audio.heart, self.way) = heart(strip, self.setting, [0.0; 2])?;
        }
        audio.latency = latency;
        for (to, path) in audio.files.iter_mut().zip(files_of(&state)) {
            to.clear();
            to.extend(path.as_os_str().as_encoded_bytes().iter().take(LONGEST_PATH));
        }
        audio.tell = [true; FILES];
        self.state = state;
        Ok(())
    }

    /// Forgets what sounded.
    pub(super) fn renew(&mut self, audio: &mut Audio) -> Result<()> {
        if take(&mut audio.sounded) {
            let state = self.state.clone();
            self.restore(audio, state)?;
        }
        Ok(())
    }
}

/// Is called in real time: nothing here allocates.
impl Audio {
    /// What the host says at the beginning of a cycle; what it orders is for [`Audio::order`].
    pub(super) fn hear(&mut self, names: &Names, sequence: &[u8]) {
        hear(names, sequence, |asked| match asked {
            Asked::Get(Some(file)) => self.tell[file] = true,
            Asked::Get(None) => self.tell = [true; FILES],
            Asked::Set(file, path) => {
                let free = self.orders.iter_mut().find(|order| order.is_empty());
                if let Some(order) = free.filter(|_| path.len() <= LONGEST_PATH) {
                    order.extend([file as u8, 0, 0, 0, 0, 0, 0, 0]);
                    order.extend(path);
                } else {
                    self.tell[file] = true;
                }
            }
        });
    }

    /// Order `n` to the worker, if there is one: it is lent, as the worker may answer before it is sent.
    pub(super) fn order(&mut self, n: usize) -> Option<Vec<u8>> {
        let order = self.orders.get_mut(n)?;
        (!order.is_empty()).then(|| take(order))
    }

    /// Takes an order back that was lent; where it did not go to the worker, the host is told what holds.
    pub(super) fn sent(&mut self, n: usize, mut order: Vec<u8>, went: bool) {
        if !went {
            self.answered(&order);
        }
        order.clear();
        self.orders[n] = order;
    }

    /// The worker's answer.
    pub(super) fn answered(&mut self, answer: &[u8]) {
        let Some((head, path)) = answer.split_first_chunk::<HEAD>() else { return };
        let [file, done, _, _, latency @ ..] = *head;
        let file = usize::from(file);
        if file >= FILES || path.len() > LONGEST_PATH {
            return;
        }
        self.tell[file] = true;
        if done == 1 {
            self.latency = u32::from_ne_bytes(latency);
            let before = self.files.each_ref().map(Vec::len);
            // The room of each is kept: it was made for the longest.
            self.files[others(file, path.is_empty())].iter_mut().for_each(Vec::clear);
            self.files[file].clear();
            self.files[file].extend(path);
            for (n, before) in before.into_iter().enumerate() {
                self.tell[n] |= before > 0 && self.files[n].is_empty();
            }
            self.changed = true;
        }
    }

    /// Levels before and behind, dB; what is out of range stays as it was.
    pub(super) fn level(&mut self, wanted: [f32; 2]) {
        if self.sounded {
            self.heart.level(wanted);
        } else {
            self.heart.begin(wanted);
        }
    }

    /// Longest piece for [`Audio::play`], frames.
    pub(super) const fn block(&self) -> usize {
        self.heart.block()
    }

    /// Takes a piece of the input, as long as a block at most.
    pub(super) fn take(&mut self, input: &[f32]) {
        self.heart.room(input.len()).copy_from_slice(input);
    }

    /// Plays what was taken.
    pub(super) fn play(&mut self, count: usize) -> &[f32] {
        self.sounded = true;
        self.heart.play(count);
        self.heart.room(count)
    }

    /// Tells the host what it asked for and what has changed; what finds no room is told in the next cycle.
    pub(super) fn tell(&mut self, names: &Names, to: &mut [u8]) {
        let Some(mut told) = Told::begin(names, to) else { return };
        for file in 0..FILES {
            if self.tell[file] {
                self.tell[file] = !told.set(names, file, &self.files[file]);
            }
        }
        if self.changed {
            self.changed = !told.changed(names);
        }
    }
}
