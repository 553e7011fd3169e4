//! A name on the local network (`quietcores.local`), said by multicast DNS to who asks for it: one name, one address, one interface.
//!
//! # Source
//! RFC 6762: probing (8.1), announcing (8.3), conflicts (9), goodbye (10.1), legacy unicast (6.7), negative answers (6.1).

use rustix::net::{AddressFamily, SocketType, bind, ipproto, socket, sockopt};
use std::{
    io,
    net::{Ipv4Addr, SocketAddr, SocketAddrV4, UdpSocket},
    os::fd::OwnedFd,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    thread::JoinHandle,
    time::{Duration, Instant},
};

const GROUP: Ipv4Addr = Ipv4Addr::new(224, 0, 0, 251);
const PORT: u16 = 5353;
/// Seconds that a record is good for, and the most for those who do not know multicast.
const TTL: u32 = 120;
const TTL_LEGACY: u32 = 10;
/// Types and classes.
const A: u16 = 1;
const NSEC: u16 = 47;
const ANY: u16 = 255;
const IN: u16 = 1;
/// In a question: answer me alone. In an answer: forget what was known before.
const TOP: u16 = 0x8000;
/// Most questions of a packet that are looked at, and most records of one that are read for a conflict.
const MOST: usize = 32;
/// Between two questions before the name is taken, and how many there are.
const PROBE: Duration = Duration::from_millis(250);
const PROBES: u32 = 3;
/// Most packets that are answered in a second.
const MOST_A_SECOND: u32 = 50;

/// A question of a packet, as far as it is ours.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Question {
    kind: u16,
    alone: bool,
}

/// What a packet is to us.
#[derive(Debug, Default, PartialEq, Eq)]
struct Heard {
    id: u16,
    questions: Vec<Question>,
    /// Addresses that somebody says the name has.
    said: Vec<Ipv4Addr>,
    is_answer: bool,
}

/// Whether it may be a name: letters, digits and hyphens, at most 63.
fn is_label(label: &str) -> bool {
    let fine = |b: u8| b.is_ascii_alphanumeric() || b == b'-';
    (1..=63).contains(&label.len())
        && label.bytes().all(fine)
        && !label.starts_with('-')
        && !label.ends_with('-')
}

/// `label.local` as DNS writes it.
fn written(label: &str) -> Vec<u8> {
    let mut name = Vec::with_capacity(label.len() + 8);
    for part in [label, "local"] {
        name.push(u8::try_from(part.len()).unwrap_or_default());
        name.extend_from_slice(part.as_bytes());
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
fn heard(packet: &[u8], name: &[u8]) -> Option<Heard> {
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
    let records = counts[1..].iter().map(|n| usize::from(*n)).sum::<usize>().min(MOST);
    for _ in 0..records {
        // What is broken behind the questions takes nothing from them.
        let Some(record) = record(&mut reader) else { break };
        if let (of, A, Some(address)) = record
            && of == name
        {
            heard.said.push(address);
        }
    }
    Some(heard)
}

fn record(reader: &mut Reader<'_>) -> Option<(Vec<u8>, u16, Option<Ipv4Addr>)> {
    let of = reader.name()?;
    let (kind, _class) = (reader.word()?, reader.word()?);
    reader.skip(4)?;
    let length = usize::from(reader.word()?);
    let data = reader.packet.get(reader.at..reader.at + length)?;
    let address = <[u8; 4]>::try_from(data).ok().map(Ipv4Addr::from);
    reader.skip(length)?;
    Some((of, kind, address))
}

/// The answer that the name has this address; for another kind of record, that there is none.
fn answer(
    name: &[u8],
    kind: u16,
    address: Ipv4Addr,
    (id, legacy): (u16, bool),
    ttl: u32,
) -> Vec<u8> {
    let mut packet = Vec::with_capacity(64);
    let words = |packet: &mut Vec<u8>, all: &[u16]| {
        for word in all {
            packet.extend_from_slice(&word.to_be_bytes());
        }
    };
    // An answer with authority; who does not know multicast gets his question back.
    words(&mut packet, &[if legacy { id } else { 0 }, 0x8400, u16::from(legacy), 1, 0, 0]);
    if legacy {
        packet.extend_from_slice(name);
        words(&mut packet, &[kind, IN]);
    }
    packet.extend_from_slice(name);
    let class = if legacy { IN } else { IN | TOP };
    let is_address = matches!(kind, A | ANY);
    words(&mut packet, &[if is_address { A } else { NSEC }, class]);
    packet.extend_from_slice(&ttl.to_be_bytes());
    if is_address {
        words(&mut packet, &[4]);
        packet.extend_from_slice(&address.octets());
    } else {
        // The only type that this name has is A: bit 1 of the first window.
        words(&mut packet, &[name.len() as u16 + 3]);
        packet.extend_from_slice(name);
        packet.extend_from_slice(&[0, 1, 0x40]);
    }
    packet
}

/// Whether anybody has this name: the question before it is taken, with what it is wanted for.
fn probe(name: &[u8], address: Ipv4Addr) -> Vec<u8> {
    let mut packet = Vec::with_capacity(64);
    for word in [0u16, 0, 1, 0, 1, 0] {
        packet.extend_from_slice(&word.to_be_bytes());
    }
    packet.extend_from_slice(name);
    for word in [ANY, IN | TOP] {
        packet.extend_from_slice(&word.to_be_bytes());
    }
    packet.extend_from_slice(name);
    for word in [A, IN] {
        packet.extend_from_slice(&word.to_be_bytes());
    }
    packet.extend_from_slice(&TTL.to_be_bytes());
    packet.extend_from_slice(&4u16.to_be_bytes());
    packet.extend_from_slice(&address.octets());
    packet
}

/// A name that is said on one interface. Dropped, it is taken back.
pub struct LocalName {
    name: String,
    stop: Arc<AtomicBool>,
    worker: Option<JoinHandle<()>>,
}

impl std::fmt::Debug for LocalName {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("LocalName").field("name", &self.name).finish_non_exhaustive()
    }
}

impl LocalName {
    /// Takes `label`.local for `address` on the interface that has this address, after asking whether anybody has it.
    ///
    /// # Errors
    /// A sentence: it is no name, somebody has it, or the interface takes no multicast.
    pub fn take(label: &str, address: Ipv4Addr) -> Result<LocalName, String> {
        if !is_label(label) {
            return Err(format!(
                "`{}` is no name: up to 63 letters, digits and hyphens",
                quiet_live::clean(label, 80)
            ));
        }
        let cannot = |e: io::Error| format!("cannot say the name {label}.local on {address}: {e}");
        let socket = open(address).map_err(cannot)?;
        let name = written(&label.to_ascii_lowercase());
        if let Some(other) = is_taken(&socket, &name, address).map_err(cannot)? {
            return Err(format!("{other} has the name {label}.local already: give another one"));
        }
        let stop = Arc::new(AtomicBool::new(false));
        let ended = stop.clone();
        let worker = std::thread::Builder::new().name("mdns".into()).spawn(move || {
            serve(&socket, &name, address, &ended);
        });
        Ok(LocalName {
            name: format!("{label}.local"),
            stop,
            worker: Some(worker.map_err(cannot)?),
        })
    }

    /// With `.local`.
    pub fn name(&self) -> &str {
        &self.name
    }
}

impl Drop for LocalName {
    fn drop(&mut self) {
        self.stop.store(true, Relaxed);
        if let Some(worker) = self.worker.take() {
            let _ = worker.join();
        }
    }
}

/// A socket beside those of other responders, that hears the group on this interface alone.
fn open(address: Ipv4Addr) -> io::Result<UdpSocket> {
    let fd: OwnedFd = socket(AddressFamily::INET, SocketType::DGRAM, Some(ipproto::UDP))?;
    sockopt::set_socket_reuseaddr(&fd, true)?;
    sockopt::set_socket_reuseport(&fd, true)?;
    bind(&fd, &SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, PORT))?;
    sockopt::set_ip_multicast_if(&fd, &address)?;
    sockopt::set_ip_multicast_ttl(&fd, 255)?;
    let socket = UdpSocket::from(fd);
    socket.join_multicast_v4(&GROUP, &address)?;
    socket.set_multicast_loop_v4(true)?;
    Ok(socket)
}

fn receive<'a>(
    socket: &UdpSocket,
    buffer: &'a mut [u8],
    wait: Duration,
) -> Option<(&'a [u8], SocketAddrV4)> {
    socket.set_read_timeout(Some(wait.max(Duration::from_millis(1)))).ok()?;
    match socket.recv_from(buffer) {
        Ok((n, SocketAddr::V4(from))) => Some((&buffer[..n], from)),
        _ => None,
    }
}

/// Who has the name with another address.
fn is_taken(socket: &UdpSocket, name: &[u8], address: Ipv4Addr) -> io::Result<Option<Ipv4Addr>> {
    let mut buffer = [0u8; 9000];
    for _ in 0..PROBES {
        socket.send_to(&probe(name, address), (GROUP, PORT))?;
        let until = Instant::now() + PROBE;
        while let Some(left) = until.checked_duration_since(Instant::now()) {
            let Some((packet, _)) = receive(socket, &mut buffer, left) else { continue };
            let heard = heard(packet, name).unwrap_or_default();
            if let Some(other) = heard.said.iter().find(|said| heard.is_answer && **said != address)
            {
                return Ok(Some(*other));
            }
        }
    }
    Ok(None)
}

fn serve(socket: &UdpSocket, name: &[u8], address: Ipv4Addr, stop: &AtomicBool) {
    let say = |ttl| {
        let _ = socket.send_to(&answer(name, A, address, (0, false), ttl), (GROUP, PORT));
    };
    say(TTL);
    let mut again = Some(Instant::now() + Duration::from_secs(1));
    let mut buffer = [0u8; 9000];
    let mut second = (Instant::now(), 0);
    while !stop.load(Relaxed) {
        if again.is_some_and(|at| Instant::now() >= at) {
            again = None;
            say(TTL);
        }
        let Some((packet, from)) = receive(socket, &mut buffer, Duration::from_millis(200)) else {
            continue;
        };
        let Some(heard) = heard(packet, name) else { continue };
        if second.0.elapsed() > Duration::from_secs(1) {
            second = (Instant::now(), 0);
        }
        for question in heard.questions {
            second.1 += 1;
            if second.1 > MOST_A_SECOND {
                break;
            }
            let legacy = from.port() != PORT;
            let ttl = if legacy { TTL_LEGACY } else { TTL };
            let packet = answer(name, question.kind, address, (heard.id, legacy), ttl);
            let to = if legacy || question.alone { from } else { SocketAddrV4::new(GROUP, PORT) };
            let _ = socket.send_to(&packet, to);
        }
    }
    // Nobody is to look for it here any more.
    say(0);
}

#[cfg(test)]
mod tests {
    use super::*;

    const HERE: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 7);

    #[test]
    fn a_question_is_understood_in_any_case_of_letters_and_by_pointers() {
        let name = written("quietcores");
        let mut packet = vec![0x12, 0x34, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0];
        packet.extend(b"\x0aQuietCores\x05LOCAL\x00\x00\x01\x80\x01");
        // The second one points to the first one's name.
        packet.extend([0xC0, 12, 0, 28, 0, 1]);
        let heard = heard(&packet, &name).unwrap();
        assert_eq!(heard.id, 0x1234);
        let questions = [Question { kind: A, alone: true }, Question { kind: 28, alone: false }];
        assert_eq!(heard.questions, questions);
    }

    #[test]
    fn an_answer_is_read_back_and_is_no_question() {
        let name = written("box");
        for (id, legacy) in [(0, false), (77, true)] {
            let packet = answer(&name, A, HERE, (id, legacy), TTL);
            let heard = heard(&packet, &name).unwrap();
            assert!(heard.is_answer && heard.questions.is_empty());
            assert_eq!((heard.id, heard.said), (id, vec![HERE]));
        }
        // IPv6: there is none, and that is said.
        let none = answer(&name, 28, HERE, (0, false), TTL);
        assert!(heard(&none, &name).unwrap().said.is_empty());
        assert!(none.ends_with(&[0, 1, 0x40]));
        // What asks before the name is taken is a question with what is wanted.
        let asks = heard(&probe(&name, HERE), &name).unwrap();
        assert_eq!((asks.questions.len(), asks.said, asks.is_answer), (1, vec![HERE], false));
    }

    #[test]
    fn no_packet_is_trouble() {
        let name = written("box");
        let mut good = probe(&name, HERE);
        good.extend(answer(&name, 28, HERE, (0, true), 1));
        for cut in 0..good.len() {
            let _ = heard(&good[..cut], &name);
        }
        // Pointers in a ring, and forward.
        for at in [12u8, 14, 200] {
            let mut ring = vec![0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0xC0, at, 0, 1, 0, 1];
            assert_eq!(heard(&ring, &name), None);
            ring[12] = 0x80;
            assert_eq!(heard(&ring, &name), None);
        }
        let mut state = 7u32;
        for _ in 0..20_000 {
            let mut noise = good.clone();
            for _ in 0..4 {
                state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                let at = state as usize % noise.len();
                noise[at] = (state >> 24) as u8;
            }
            let _ = heard(&noise, &name);
        }
    }

    #[test]
    fn what_is_no_name_is_refused() {
        for bad in ["", "a.b", "-x", "x-", "a b", "ü", &"x".repeat(64)] {
            assert!(LocalName::take(bad, HERE).unwrap_err().contains("no name"), "{bad}");
        }
        assert!(is_label("quietcores") && is_label("a-1"));
    }
}
