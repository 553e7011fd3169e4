//! Real-time priority as desktops lend it: from rtkit, asked over the system bus.
//!
//! Two calls and two properties do not pay for a library of D-Bus, which would bring a runtime: what is
//! spoken here is the part of the protocol that they need.
//!
//! # Source
//! D-Bus Specification 0.42, "Message Protocol" and "Authentication Protocol"; rtkit's own README.

use quiet_linux::seat::tid;
use quiet_types::{Finding, Severity};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::{
    io::{self, BufRead, BufReader, Read, Write},
    os::unix::net::UnixStream,
    path::PathBuf,
    time::Duration,
};

/// What rtkit would give.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Offer {
    /// Highest priority, of policy round robin.
    pub priority: u8,
    /// Longest run without a pause, us: what RLIMIT_RTTIME must be set to, at most.
    pub run: u64,
}

const NAME: &str = "org.freedesktop.RealtimeKit1";
const PATH: &str = "/org/freedesktop/RealtimeKit1";
/// The bus may have to start rtkit first.
const PATIENCE: Duration = Duration::from_secs(5);
/// Longest answer that is read, bytes.
const LONGEST: usize = 64 << 10;

/// What rtkit offers; `None` where there is no bus, no rtkit, or it offers nothing.
pub(crate) fn offer() -> Option<Offer> {
    let mut bus = Bus::connect().ok()?;
    let priority = u8::try_from(bus.number("MaxRealtimePriority").ok()?).ok()?;
    let run = u64::try_from(bus.number("RTTimeUSecMax").ok()?).ok()?;
    (priority > 0 && run > 0).then_some(Offer { priority, run })
}

/// What to know about what is lent.
pub(crate) fn finding(offer: Offer) -> Finding {
    Finding::new(Severity::Note, "play.rtkit", "Real-time priority as the desktop lends it")
        .evidence(format!(
            "the kernel refuses SCHED_FIFO to this process; rtkit gives round robin up to {} to a thread \
             that never runs longer than {} us without a pause",
            offer.priority, offer.run
        ))
        .effect(
            "Interrupts' threads go first (50 and above); a thread that runs on for longer is ended by \
             the kernel, and the program with it.",
        )
        .remedy("Run as root, or allow `rtprio` to your user in /etc/security/limits.conf.")
}

/// Asks rtkit to make the calling thread a real-time one.
///
/// # Errors
/// Why not: rtkit's own words where it has some.
pub(crate) fn borrow(offer: Offer, priority: u8) -> io::Result<()> {
    // rtkit wants to see the limit first.
    let hard = getrlimit(Resource::Rttime).maximum.map_or(offer.run, |hard| hard.min(offer.run));
    setrlimit(Resource::Rttime, Rlimit { current: Some(hard), maximum: Some(hard) })?;
    ask(tid(), priority.min(offer.priority))
}

fn ask(thread: u32, priority: u8) -> io::Result<()> {
    let mut body = u64::from(thread).to_le_bytes().to_vec();
    body.extend(u32::from(priority).to_le_bytes());
    let call = Call { path: PATH, interface: NAME, member: "MakeThreadRealtime", to: NAME };
    Bus::connect()?.call(&call, "tu", &body).map(drop)
}

struct Bus {
    stream: BufReader<UnixStream>,
    serial: u32,
}

/// Whom to call, and what.
struct Call<'a> {
    path: &'a str,
    interface: &'a str,
    member: &'a str,
    to: &'a str,
}

fn wrong(what: &str) -> io::Error {
    io::Error::other(format!("the system bus answered {what}"))
}

impl Bus {
    fn connect() -> io::Result<Bus> {
        let stream = UnixStream::connect(address())?;
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.set_write_timeout(Some(PATIENCE))?;
        let mut bus = Bus { stream: BufReader::new(stream), serial: 0 };
        let user = rustix::process::geteuid().as_raw().to_string();
        let name: String = user.bytes().map(|digit| format!("{digit:02x}")).collect();
        bus.send(format!("\0AUTH EXTERNAL {name}\r\n").as_bytes())?;
        let mut line = String::new();
        bus.stream.by_ref().take(1024).read_line(&mut line)?;
        if !line.starts_with("OK ") {
            return Err(wrong("that it does not know this user"));
        }
        bus.send(b"BEGIN\r\n")?;
        let bus_itself = "org.freedesktop.DBus";
        let path = "/org/freedesktop/DBus";
        let hello = Call { path, interface: bus_itself, member: "Hello", to: bus_itself };
        bus.call(&hello, "", &[])?;
        Ok(bus)
    }

    fn send(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.stream.get_mut().write_all(bytes)
    }

    /// A property of rtkit that is a whole number.
    fn number(&mut self, property: &str) -> io::Result<i64> {
        let mut body = Vec::new();
        put_text(&mut body, NAME);
        put_text(&mut body, property);
        let interface = "org.freedesktop.DBus.Properties";
        let call = Call { path: PATH, interface, member: "Get", to: NAME };
        let body = self.call(&call, "ss", &body)?;
        // A variant: the length of its signature, the signature, a zero byte, the value.
        let mut fields = Reader { bytes: &body, at: 0 };
        match fields.signature()? {
            [b'i'] => Ok(i64::from(fields.word()? as i32)),
            [b'u'] => Ok(i64::from(fields.word()?)),
            [b'x' | b't'] => {
                fields.align(8)?;
                Ok(i64::from_le_bytes(fields.take()?))
            }
            _ => Err(wrong("with something that is no number")),
        }
    }

    /// One call and the body of its answer.
    fn call(&mut self, call: &Call<'_>, signature: &str, body: &[u8]) -> io::Result<Vec<u8>> {
        self.serial += 1;
        let serial = self.serial;
        let message = message(serial, call, signature, body);
        self.send(&message)?;
        // The bus says things of its own meanwhile, such as our name.
        loop {
            let answer = self.read()?;
            if answer.to == Some(serial) {
                return match answer.kind {
                    2 => Ok(answer.body),
                    _ => Err(io::Error::other(answer.says())),
                };
            }
        }
    }

    fn read(&mut self) -> io::Result<Answer> {
        let mut head = [0u8; 16];
        self.stream.read_exact(&mut head)?;
        let mut words = Reader { bytes: &head, at: 4 };
        let (body, _serial, fields) = (words.word()?, words.word()?, words.word()?);
        let (body, fields) = (body as usize, fields as usize);
        if head[0] != b'l' || body > LONGEST || fields > LONGEST {
            return Err(wrong("in a way that is not understood here"));
        }
        let mut rest = vec![0u8; fields.next_multiple_of(8) + body];
        self.stream.read_exact(&mut rest)?;
        let body = rest.split_off(fields.next_multiple_of(8));
        let mut answer = Answer { kind: head[1], to: None, error: String::new(), body };
        // After a head of sixteen bytes the fields are aligned as the message is.
        let mut fields = Reader { bytes: &rest[..fields], at: 0 };
        while fields.at < fields.bytes.len() {
            fields.align(8)?;
            let [code] = fields.take()?;
            match (code, fields.signature()?) {
                (5, [b'u']) => answer.to = Some(fields.word()?),
                (4, [b's']) => answer.error = fields.text()?,
                (_, [b'u']) => drop(fields.word()?),
                (_, [b's' | b'o']) => drop(fields.text()?),
                (_, [b'g']) => drop(fields.signature()?),
                _ => return Err(wrong("with a field that is not understood here")),
            }
        }
        Ok(answer)
    }
}

struct Answer {
    /// 2: it was done; 3: an error.
    kind: u8,
    /// The call that it answers.
    to: Option<u32>,
    error: String,
    body: Vec<u8>,
}

impl Answer {
    /// An error's own words, else its name.
    fn says(&self) -> String {
        let words = Reader { bytes: &self.body, at: 0 }.text().unwrap_or_default();
        let said = if words.is_empty() { &self.error } else { &words };
        quiet_types::printable(said, 200)
    }
}

/// The system bus: where the environment says, else its usual place.
fn address() -> PathBuf {
    let said = std::env::var("DBUS_SYSTEM_BUS_ADDRESS").unwrap_or_default();
    let path = said.split(';').find_map(|one| {
        one.strip_prefix("unix:")?.split(',').find_map(|part| part.strip_prefix("path="))
    });
    PathBuf::from(path.unwrap_or("/run/dbus/system_bus_socket"))
}

fn message(serial: u32, call: &Call<'_>, signature: &str, body: &[u8]) -> Vec<u8> {
    let mut fields = Vec::new();
    for (code, kind, text) in [
        (1, b'o', call.path),
        (2, b's', call.interface),
        (3, b's', call.member),
        (6, b's', call.to),
    ] {
        pad(&mut fields, 8);
        fields.extend([code, 1, kind, 0]);
        put_text(&mut fields, text);
    }
    if !signature.is_empty() {
        pad(&mut fields, 8);
        fields.extend([8, 1, b'g', 0, signature.len() as u8]);
        fields.extend(signature.bytes());
        fields.push(0);
    }
    // Little-endian, a call, no flags, version 1.
    let mut message = vec![b'l', 1, 0, 1];
    message.extend((body.len() as u32).to_le_bytes());
    message.extend(serial.to_le_bytes());
    message.extend((fields.len() as u32).to_le_bytes());
    message.extend(fields);
    pad(&mut message, 8);
    message.extend(body);
    message
}

fn pad(bytes: &mut Vec<u8>, to: usize) {
    bytes.resize(bytes.len().next_multiple_of(to), 0);
}

fn put_text(bytes: &mut Vec<u8>, text: &str) {
    pad(bytes, 4);
    bytes.extend((text.len() as u32).to_le_bytes());
    bytes.extend(text.bytes());
    bytes.push(0);
}

/// Reads what the bus sent, which may end anywhere.
struct Reader<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Reader<'a> {
    fn align(&mut self, to: usize) -> io::Result<()> {
        self.at = self.at.next_multiple_of(to);
        Ok(())
    }

    fn slice(&mut self, length: usize) -> io::Result<&'a [u8]> {
        let end = self.at.checked_add(length);
        let there = end.and_then(|end| self.bytes.get(self.at..end));
        self.at = end.unwrap_or(self.at);
        there.ok_or_else(|| wrong("with a message that ends early"))
    }

    fn take<const N: usize>(&mut self) -> io::Result<[u8; N]> {
        let mut taken = [0; N];
        taken.copy_from_slice(self.slice(N)?);
        Ok(taken)
    }

    fn word(&mut self) -> io::Result<u32> {
        self.align(4)?;
        Ok(u32::from_le_bytes(self.take()?))
    }

    fn text(&mut self) -> io::Result<String> {
        let length = self.word()? as usize;
        let text = self.slice(length)?;
        self.slice(1)?;
        Ok(String::from_utf8_lossy(text).into_owned())
    }

    fn signature(&mut self) -> io::Result<&'a [u8]> {
        let [length] = self.take()?;
        let signature = self.slice(length.into())?;
        self.slice(1)?;
        Ok(signature)
    }
}

/// Answers of a bus that ends after these bytes, for the fuzz targets.
#[cfg(fuzzing)]
pub fn fuzzed(bytes: &[u8]) {
    let Ok((ours, theirs)) = UnixStream::pair() else { return };
    // As much as a socket holds without a reader.
    let bytes = bytes.get(..bytes.len().min(32 << 10)).unwrap_or(bytes);
    (&theirs).write_all(bytes).expect("room in a socket");
    drop(theirs);
    let mut bus = Bus { stream: BufReader::new(ours), serial: 0 };
    while let Ok(answer) = bus.read() {
        assert!(answer.says().len() < 2000);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_is_laid_out_as_the_specification_has_it() {
        let call = Call { path: "/a", interface: "b.c", member: "D", to: "e.f" };
        let made = message(7, &call, "u", &[1, 0, 0, 0]);
        // By hand from the specification: head, four fields and the signature, each at a multiple of 8.
        let mut wanted = b"l\x01\x00\x01\x04\0\0\0\x07\0\0\0\x47\0\0\0".to_vec();
        wanted.extend(b"\x01\x01o\0\x02\0\0\0/a\0\0\0\0\0\0");
        wanted.extend(b"\x02\x01s\0\x03\0\0\0b.c\0\0\0\0\0");
        wanted.extend(b"\x03\x01s\0\x01\0\0\0D\0\0\0\0\0\0\0");
        wanted.extend(b"\x06\x01s\0\x03\0\0\0e.f\0\0\0\0\0");
        wanted.extend(b"\x08\x01g\0\x01u\0\0");
        wanted.extend([1, 0, 0, 0]);
        assert_eq!(made, wanted);
    }

    #[test]
    fn what_ends_early_is_refused() {
        let (ours, theirs) = UnixStream::pair().unwrap();
        let mut bus = Bus { stream: BufReader::new(ours), serial: 0 };
        // A text of 200 bytes in a field of twelve.
        let mut sent = b"l\x03\x00\x01\0\0\0\0\x01\0\0\0\x0c\0\0\0".to_vec();
        sent.extend(b"\x04\x01s\0\xc8\0\0\0abcd\0\0\0\0");
        (&theirs).write_all(&sent).unwrap();
        assert!(bus.read().err().unwrap().to_string().contains("ends early"));
        drop(theirs);
        assert!(bus.read().is_err());
    }
}
