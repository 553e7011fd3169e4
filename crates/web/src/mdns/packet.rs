//! Packets of multicast DNS, as far as one name with one address needs them. Pure.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Seconds that a record is good for, and the most for those who do not know multicast.
pub(super) const TTL: u32 = 120;
pub(super) const TTL_LEGACY: u32 = 10;
/// Types and classes.
pub(super) const A: u16 = 1;
pub(super) const AAAA: u16 = 28;
const NSEC: u16 = 47;
const ANY: u16 = 255;
const IN: u16 = 1;
/// In a question: answer me alone. In an answer: forget what was known before. In the flags: it is an answer.
const TOP: u16 = 0x8000;
/// Most questions of a packet that are looked at, and most records of one.
const MOST: usize = 32;

/// An address that a name has. Ordered as two who want the same name compare what they want it for: by type, then by bytes.
///
/// # Source
/// RFC 6762, 8.2.1; the class is always the same here.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct NameRecord {
    pub kind: u16,
    pub data: Vec<u8>,
}

impl From<IpAddr> for NameRecord {
    fn from(address: IpAddr) -> NameRecord {
        match address {
            IpAddr::V4(address) => NameRecord { kind: A, data: address.octets().into() },
            IpAddr::V6(address) => NameRecord { kind: AAAA, data: address.octets().into() },
        }
    }
}

impl std::fmt::Display for NameRecord {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let four = <[u8; 4]>::try_from(&self.data[..]).map(|data| Ipv4Addr::from(data).to_string());
        let six = <[u8; 16]>::try_from(&self.data[..]).map(|data| Ipv6Addr::from(data).to_string());
        f.write_str(&four.or(six).unwrap_or_else(|_| "somebody".to_owned()))
    }
}

/// A question of a packet, as far as it is ours.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Question {
    pub kind: u16,
    pub alone: bool,
}

/// What a packet is to us.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Heard {
    pub id: u16,
    pub is_answer: bool,
    pub questions: Vec<Question>,
    /// Of an answer: addresses that somebody says the name has.
    pub said: Vec<NameRecord>,
    /// Of a question: what whoever asks wants the name for.
    pub wanted: Vec<NameRecord>,
    /// Of a question: what whoever asks knows already, and need not be told.
    pub known: Vec<NameRecord>,
}

/// Whether it may be a name: letters, digits and hyphens, at most 63.
pub(super) fn is_label(label: &str) -> bool {
    let fine = |b: u8| b.is_ascii_alphanumeric() || b == b'-';
    (1..=63).contains(&label.len())
        && label.bytes().all(fine)
        && !label.starts_with('-')
        && !label.ends_with('-')
}

/// `label.local` as DNS writes it, in small letters.
pub(super) fn written(label: &str) -> Vec<u8> {
    let mut name = Vec::with_capacity(label.len() + 8);
    for part in [label, "local"] {
        name.push(u8::try_from(part.len()).unwrap_or_default());
        name.extend(part.bytes().map(|byte| byte.to_ascii_lowercase()));
    }
    name.push(0);
    name
}

/// Reads what it needs and never beyond the packet.
struct Reader<'a> {
    packet: &'a [u8],
    at: usize,
}

impl Reader<'_> {
    fn byte(&mut self) -> Option<u8> {
        let byte = *self.packet.get(self.at)?;
        self.at += 1;
        Some(byte)
    }

    fn word(&mut self) -> Option<u16> {
        Some(u16::from_be_bytes([self.byte()?, self.byte()?]))
    }

    fn skip(&mut self, bytes: usize) -> Option<()> {
        self.at = self.at.checked_add(bytes).filter(|at| *at <= self.packet.len())?;
        Some(())
    }

    /// A name in small letters as DNS writes it, its pointers followed: each leads back, so that there is an end.
    fn name(&mut self) -> Option<Vec<u8>> {
        let (mut name, mut at, mut after) = (Vec::new(), self.at, None);
        let mut least = self.at;
        loop {
            let length = usize::from(*self.packet.get(at)?);
            match length {
                0 => {
                    name.push(0);
                    self.at = after.unwrap_or(at + 1);
                    return Some(name);
                }
                1..=63 => {
                    let label = self.packet.get(at + 1..at + 1 + length)?;
                    name.push(length as u8);
                    name.extend(label.iter().map(u8::to_ascii_lowercase));
                    at += 1 + length;
                }
                0xC0.. => {
                    let to = (length & 0x3F) << 8 | usize::from(*self.packet.get(at + 1)?);
                    after = after.or(Some(at + 2));
                    if to >= least {
                        return None;
                    }
                    (at, least) = (to, to);
                }
                _ => return None,
            }
            if name.len() > 255 {
                return None;
            }
        }
    }
}

/// What a packet asks and says of `name`; `None` for what is no packet of DNS.
pub(super) fn heard(packet: &[u8], name: &[u8]) -> Option<Heard> {
    let mut reader = Reader { packet, at: 0 };
    let (id, flags) = (reader.word()?, reader.word()?);
    let counts = [reader.word()?, reader.word()?, reader.word()?, reader.word()?];
    // An operation other than a plain question is not ours.
    if flags & 0x7800 != 0 {
        return None;
    }
    let mut heard = Heard { id, is_answer: flags & TOP != 0, ..Heard::default() };
    for _ in 0..usize::from(counts[0]).min(MOST) {
        let asked = reader.name()?;
        let (kind, class) = (reader.word()?, reader.word()?);
        let is_in = matches!(class & !TOP, IN | ANY);
        if asked == name && is_in && !heard.is_answer {
            heard.questions.push(Question { kind, alone: class & TOP != 0 });
        }
    }
    let mut left = MOST;
    for (section, count) in counts[1..].iter().enumerate() {
        for _ in 0..usize::from(*count).min(left) {
            left -= 1;
            // What is broken behind the questions takes nothing from them.
            let Some((of, record, ttl)) = record(&mut reader) else { return Some(heard) };
            let Some(record) = record.filter(|_| of == name) else { continue };
            match (heard.is_answer, section) {
                // One that is good for no time is taken back.
                (true, _) if ttl > 0 => heard.said.push(record),
                (false, 0) if ttl >= TTL / 2 => heard.known.push(record),
                (false, 1) => heard.wanted.push(record),
                _ => {}
            }
        }
    }
    Some(heard)
}

/// A record: of which name, its address where it is one, and for how long it is good.
fn record(reader: &mut Reader<'_>) -> Option<(Vec<u8>, Option<NameRecord>, u32)> {
    let of = reader.name()?;
    let (kind, _class) = (reader.word()?, reader.word()?);
    let ttl = u32::from(reader.word()?) << 16 | u32::from(reader.word()?);
    let length = usize::from(reader.word()?);
    let data = reader.packet.get(reader.at..reader.at + length)?.to_vec();
    reader.skip(length)?;
    let is_address = matches!((kind, length), (A, 4) | (AAAA, 16));
    Some((of, is_address.then_some(NameRecord { kind, data }), ttl))
}

fn words(packet: &mut Vec<u8>, all: &[u16]) {
    for word in all {
        packet.extend_from_slice(&word.to_be_bytes());
    }
}

fn put(packet: &mut Vec<u8>, name: &[u8], (kind, class): (u16, u16), ttl: u32, data: &[u8]) {
    packet.extend_from_slice(name);
    words(packet, &[kind, class]);
    packet.extend_from_slice(&ttl.to_be_bytes());
    words(packet, &[data.len() as u16]);
    packet.extend_from_slice(data);
}

/// The answer that the name has this address; for another kind of record, that there is none.
pub(super) fn answer(
    name: &[u8],
    kind: u16,
    record: &NameRecord,
    (id, legacy): (u16, bool),
    ttl: u32,
) -> Vec<u8> {
    let mut packet = Vec::with_capacity(128);
    // An answer with authority; who does not know multicast gets his question back.
    words(&mut packet, &[if legacy { id } else { 0 }, 0x8400, u16::from(legacy), 1, 0, 0]);
    if legacy {
        packet.extend_from_slice(name);
        words(&mut packet, &[kind, IN]);
    }
    let class = if legacy { IN } else { IN | TOP };
    if kind == record.kind || kind == ANY {
        put(&mut packet, name, (record.kind, class), ttl, &record.data);
    } else {
        // The only type that this name has, as a bit of the first window.
        let mut only = name.to_vec();
        let (byte, bit) = (record.kind / 8, record.kind % 8);
        only.extend([0, byte as u8 + 1]);
        only.extend((0..byte).map(|_| 0));
        only.push(0x80 >> bit);
        put(&mut packet, name, (NSEC, class), ttl, &only);
    }
    packet
}

/// Whether anybody has this name: the question before it is taken, with what it is wanted for.
///
/// It asks for answers to all: the port is shared with other responders of this machine, and an answer to one alone may come to another one
/// of them (RFC 6762, 15.1).
pub(super) fn probe(name: &[u8], record: &NameRecord) -> Vec<u8> {
    let mut packet = Vec::with_capacity(128);
    words(&mut packet, &[0, 0, 1, 0, 1, 0]);
    packet.extend_from_slice(name);
    words(&mut packet, &[ANY, IN]);
    put(&mut packet, name, (record.kind, IN), TTL, &record.data);
    packet
}

#[cfg(test)]
mod tests {
    use super::*;

    fn here() -> NameRecord {
        IpAddr::from([192, 0, 2, 7]).into()
    }

    fn six() -> NameRecord {
        "fd00::7".parse::<IpAddr>().unwrap().into()
    }

    #[test]
    fn a_question_is_understood_in_any_case_of_letters_and_by_pointers() {
        let name = written("QuietCores");
        let mut packet = vec![0x12, 0x34, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0];
        packet.extend(b"\x0aQuietCores\x05LOCAL\x00\x00\x01\x80\x01");
        // The second one points to the first one's name.
        packet.extend([0xC0, 12, 0, 28, 0, 1]);
        let heard = heard(&packet, &name).unwrap();
        assert_eq!(heard.id, 0x1234);
        let questions = [Question { kind: A, alone: true }, Question { kind: AAAA, alone: false }];
        assert_eq!(heard.questions, questions);
    }

    #[test]
    fn an_answer_is_read_back_and_is_no_question() {
        let name = written("box");
        for record in [here(), six()] {
            for (id, legacy) in [(0, false), (77, true)] {
                let packet = answer(&name, record.kind, &record, (id, legacy), TTL);
                let heard = heard(&packet, &name).unwrap();
                assert!(heard.is_answer && heard.questions.is_empty());
                assert_eq!((heard.id, heard.said), (id, vec![record.clone()]));
            }
            // Taken back, it says of nobody that he has it.
            let gone = answer(&name, ANY, &record, (0, false), 0);
            assert!(heard(&gone, &name).unwrap().said.is_empty());
            // What asks before the name is taken is a question with what is wanted.
            let asks = heard(&probe(&name, &record), &name).unwrap();
            assert_eq!((asks.questions.len(), asks.is_answer), (1, false));
            assert_eq!((asks.wanted, asks.said), (vec![record.clone()], vec![]));
        }
        // Of the other family there is none, and that is said: by the picture of RFC 4034, 4.1.2, bits of the types 1 and 28.
        let none = answer(&name, AAAA, &here(), (0, false), TTL);
        assert!(heard(&none, &name).unwrap().said.is_empty() && none.ends_with(&[0, 1, 0x40]));
        let none = answer(&name, A, &six(), (0, false), TTL);
        assert!(none.ends_with(&[0, 4, 0, 0, 0, 0x08]));
    }

    #[test]
    fn what_is_known_already_is_understood() {
        let name = written("box");
        for (ttl, known) in [(TTL, 1), (TTL / 2 - 1, 0)] {
            let mut packet = vec![0, 0, 0, 0, 0, 1, 0, 1, 0, 0, 0, 0];
            packet.extend_from_slice(&name);
            words(&mut packet, &[A, IN]);
            put(&mut packet, &name, (A, IN), ttl, &here().data);
            assert_eq!(heard(&packet, &name).unwrap().known.len(), known);
        }
    }

    #[test]
    fn who_wants_it_for_more_is_told_by_type_and_bytes() {
        // The example of RFC 6762, 8.2: 169.254.200.50 wins against 169.254.99.200.
        let record = |address: &str| NameRecord::from(address.parse::<IpAddr>().unwrap());
        assert!(record("169.254.200.50") > record("169.254.99.200"));
        assert!(six() > here() && record("fd00::8") > six());
        assert_eq!((here().to_string(), six().to_string()), ("192.0.2.7".into(), "fd00::7".into()));
    }

    #[test]
    fn no_packet_is_trouble() {
        let name = written("box");
        let mut good = probe(&name, &here());
        good.extend(answer(&name, AAAA, &here(), (0, true), 1));
        for cut in 0..good.len() {
            let _ = heard(&good[..cut], &name);
        }
        // Pointers in a ring, and forward.
        for at in [12u8, 14, 200] {
            let ring = vec![0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0xC0, at, 0, 1, 0, 1];
            assert!(heard(&ring, &name).is_none());
        }
        let mut state = 1u32;
        let mut noise = good.clone();
        for _ in 0..20_000 {
            for _ in 0..4 {
                state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                let at = state as usize % noise.len();
                noise[at] = (state >> 24) as u8;
            }
            let _ = heard(&noise, &name);
        }
    }
}
