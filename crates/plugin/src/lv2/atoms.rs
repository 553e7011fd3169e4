//! Messages of a host, as LV2's atoms: read from bytes and written to bytes, each length checked.

/// The files that a host may set, in the order of [`Names::files`].
pub(super) const FILES: usize = 3;

/// The numbers that the host gave to the names used here.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Names {
    pub(super) path: u32,
    pub(super) object: u32,
    pub(super) sequence: u32,
    pub(super) urid: u32,
    pub(super) get: u32,
    pub(super) set: u32,
    pub(super) property: u32,
    pub(super) value: u32,
    pub(super) changed: u32,
    pub(super) error: u32,
    pub(super) int: u32,
    pub(super) longest: u32,
    /// Strip, amp, impulse response.
    pub(super) files: [u32; FILES],
}

/// What a host asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Asked<'a> {
    /// One file, or all.
    Get(Option<usize>),
    /// A file and its name, without the zero at its end; empty for none.
    Set(usize, &'a [u8]),
}

fn number(bytes: &[u8], at: usize) -> Option<u32> {
    let four = bytes.get(at..at.checked_add(4)?)?;
    Some(u32::from_ne_bytes(four.try_into().ok()?))
}

/// An atom at `at`: its type, its body, and where the next one may begin.
fn atom(bytes: &[u8], at: usize) -> Option<(u32, &[u8], usize)> {
    let size = number(bytes, at)? as usize;
    let from = at.checked_add(8)?;
    let body = bytes.get(from..from.checked_add(size)?)?;
    Some((number(bytes, at + 4)?, body, (from + size).next_multiple_of(8)))
}

/// Hands on what the events of a sequence ask for. What is none of ours or cut short is passed over.
pub(super) fn hear<'a>(names: &Names, sequence: &'a [u8], mut told: impl FnMut(Asked<'a>)) {
    let Some((kind, events, _)) = atom(sequence, 0) else { return };
    if kind != names.sequence {
        return;
    }
    // The unit of time, and of each event its time.
    let mut at = 8;
    while let Some((kind, body, next)) = atom(events, at + 8) {
        if kind == names.object
            && let Some(asked) = asked(names, body)
        {
            told(asked);
        }
        at = next;
    }
}

fn asked<'a>(names: &Names, object: &'a [u8]) -> Option<Asked<'a>> {
    let what = number(object, 4)?;
    let (mut file, mut value, mut at) = (None, None, 8);
    while let Some(key) = number(object, at) {
        let Some((kind, body, next)) = atom(object, at + 8) else { break };
        if key == names.property && kind == names.urid {
            file = number(body, 0);
        } else if key == names.value && kind == names.path {
            value = Some(body);
        }
        at = next;
    }
    let place = |key: u32| names.files.iter().position(|known| *known == key);
    if what == names.get {
        return match file {
            Some(key) => place(key).map(|n| Asked::Get(Some(n))),
            None => Some(Asked::Get(None)),
        };
    }
    let value = value?;
    let end = value.iter().position(|byte| *byte == 0).unwrap_or(value.len());
    (what == names.set).then_some(Asked::Set(place(file?)?, &value[..end]))
}

/// Writes a sequence of events into what the host gave room for.
pub(super) struct Told<'a> {
    to: &'a mut [u8],
    used: usize,
}

impl<'a> Told<'a> {
    /// Begins an empty sequence; `None` where there is no room for its head.
    pub(super) fn begin(names: &Names, to: &'a mut [u8]) -> Option<Told<'a>> {
        if to.len() < 16 {
            return None;
        }
        let mut told = Told { to, used: 0 };
        told.numbers(&[8, names.sequence, 0, 0]);
        Some(told)
    }

    fn numbers(&mut self, numbers: &[u32]) {
        for number in numbers {
            self.to[self.used..][..4].copy_from_slice(&number.to_ne_bytes());
            self.used += 4;
        }
    }

    /// An event at frame 0 with the head of an object whose properties take `size` bytes; whether there was room.
    fn event(&mut self, names: &Names, what: u32, size: usize) -> bool {
        let all = (24 + 8 + size).next_multiple_of(8);
        if self.to.len() - self.used < all - 8 {
            return false;
        }
        // Time, then the atom's head and the object's: no name of its own.
        self.numbers(&[0, 0, (8 + size) as u32, names.object, 0, what]);
        true
    }

    /// All of the sequence so far is what its head says.
    fn end(&mut self) {
        let size = (self.used - 8) as u32;
        self.to[..4].copy_from_slice(&size.to_ne_bytes());
    }

    /// Says the name of a file; whether there was room.
    pub(super) fn set(&mut self, names: &Names, file: usize, path: &[u8]) -> bool {
        let text = path.len() + 1;
        if !self.event(names, names.set, 24 + 16 + text.next_multiple_of(8)) {
            return false;
        }
        self.numbers(&[names.property, 0, 4, names.urid, names.files[file], 0]);
        self.numbers(&[names.value, 0, text as u32, names.path]);
        let room = &mut self.to[self.used..][..text.next_multiple_of(8)];
        room.fill(0);
        room[..path.len()].copy_from_slice(path);
        self.used += text.next_multiple_of(8);
        self.end();
        true
    }

    /// Says that the state is another than the host saved; whether there was room.
    pub(super) fn changed(&mut self, names: &Names) -> bool {
        let there = self.event(names, names.changed, 0);
        if there {
            self.end();
        }
        there
    }
}
