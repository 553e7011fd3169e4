//! A caller that speaks to the bus by hand: any message, also one that is none, as any user.

use rustix::{
    process::{Gid, Uid},
    thread::{set_thread_groups, set_thread_res_gid, set_thread_res_uid},
};
use std::{
    io::{Read, Write},
    os::unix::net::UnixStream,
    path::Path,
    thread,
    time::{Duration, Instant},
};

/// What came back.
#[derive(Debug)]
pub struct Reply {
    /// The error's name; `None` for an answer.
    pub error: Option<String>,
    pub body: Vec<u8>,
    pub took: Duration,
}

impl Reply {
    pub fn is(&self, error: &str) -> bool {
        self.error.as_deref() == Some(&format!("org.quietcores1.Error.{error}"))
    }

    /// A text that is the whole body.
    pub fn text(&self) -> String {
        String::from_utf8_lossy(self.body.get(4..).unwrap_or_default()).into_owned()
    }
}

/// The body of a message, little-endian, as it grows.
#[derive(Clone, Debug, Default)]
pub struct Body {
    pub signature: String,
    pub bytes: Vec<u8>,
}

impl Body {
    pub fn align(&mut self, to: usize) {
        while !self.bytes.len().is_multiple_of(to) {
            self.bytes.push(0);
        }
    }

    pub fn text(mut self, text: &str) -> Body {
        self.signature.push('s');
        self.align(4);
        self.bytes.extend((text.len() as u32).to_le_bytes());
        self.bytes.extend(text.as_bytes());
        self.bytes.push(0);
        self
    }

    pub fn number(mut self, number: u32) -> Body {
        self.signature.push('u');
        self.align(4);
        self.bytes.extend(number.to_le_bytes());
        self
    }

    pub fn byte(mut self, byte: u8) -> Body {
        self.signature.push('y');
        self.bytes.push(byte);
        self
    }

    pub fn flag(mut self, flag: bool) -> Body {
        self = self.number(flag.into());
        self.signature.pop();
        self.signature.push('b');
        self
    }

    /// What `Admit` takes.
    pub fn admit(thread: u32, cpus: &str, policy: &str, priority: u8) -> Body {
        Body::default().number(thread).text(cpus).text(policy).byte(priority)
    }
}

const SERVICE: &str = "org.quietcores1";

pub struct Raw {
    pub stream: UnixStream,
    serial: u32,
    /// Waits where it is to be asked for a password.
    pub interactive: bool,
}

impl Raw {
    /// A stream of user `uid`, who is in `groups`, before he has said anything.
    pub fn stream(socket: &Path, uid: u32, groups: &[u32]) -> UnixStream {
        let (socket, groups) = (socket.to_owned(), groups.to_vec());
        // The kernel notes who connects: a thread may be another user for that.
        let connect = move || {
            let (user, group) = (Uid::from_raw(uid), Gid::from_raw(uid));
            let groups: Vec<Gid> = groups.into_iter().map(Gid::from_raw).collect();
            set_thread_groups(&groups).unwrap();
            set_thread_res_gid(group, group, group).unwrap();
            set_thread_res_uid(user, user, user).unwrap();
            UnixStream::connect(socket).unwrap()
        };
        let stream = thread::spawn(connect).join().unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(150))).unwrap();
        stream.set_write_timeout(Some(Duration::from_secs(60))).unwrap();
        stream
    }

    /// Connected, and known to the bus.
    pub fn connect(socket: &Path, uid: u32, groups: &[u32]) -> Raw {
        let mut stream = Raw::stream(socket, uid, groups);
        let hex: String = uid.to_string().bytes().map(|byte| format!("{byte:02x}")).collect();
        stream.write_all(format!("\0AUTH EXTERNAL {hex}\r\n").as_bytes()).unwrap();
        let mut line = Vec::new();
        while !line.ends_with(b"\r\n") {
            let mut one = [0];
            stream.read_exact(&mut one).unwrap();
            line.push(one[0]);
        }
        assert!(line.starts_with(b"OK "), "{}", String::from_utf8_lossy(&line));
        // What comes with an answer is closed as soon as it is there: nobody here takes it.
        stream.write_all(b"NEGOTIATE_UNIX_FD\r\n").unwrap();
        let mut agreed = [0; 15];
        stream.read_exact(&mut agreed).unwrap();
        assert_eq!(&agreed, b"AGREE_UNIX_FD\r\n");
        stream.write_all(b"BEGIN\r\n").unwrap();
        let mut raw = Raw { stream, serial: 0, interactive: false };
        let bus = "org.freedesktop.DBus";
        let hello = raw.message((bus, "/org/freedesktop/DBus", bus, "Hello"), &Body::default());
        let reply = raw.ask(&hello);
        assert_eq!(reply.error, None);
        raw
    }

    /// A call, to (destination, path, interface, method).
    pub fn message(&mut self, to: (&str, &str, &str, &str), body: &Body) -> Vec<u8> {
        self.serial += 1;
        let mut fields = Vec::new();
        let mut field = |code: u8, kind: u8, text: &str| {
            while fields.len() % 8 != 0 {
                fields.push(0);
            }
            fields.extend([code, 1, kind, 0]);
            if kind == b'g' {
                fields.push(text.len() as u8);
            } else {
                fields.extend((text.len() as u32).to_le_bytes());
            }
            fields.extend(text.as_bytes());
            fields.push(0);
        };
        let (destination, path, interface, method) = to;
        field(1, b'o', path);
        field(2, b's', interface);
        field(3, b's', method);
        field(6, b's', destination);
        if !body.signature.is_empty() {
            field(8, b'g', &body.signature);
        }
        let mut bytes = vec![b'l', 1, u8::from(self.interactive) * 4, 1];
        bytes.extend((body.bytes.len() as u32).to_le_bytes());
        bytes.extend(self.serial.to_le_bytes());
        bytes.extend((fields.len() as u32).to_le_bytes());
        bytes.extend(fields);
        while bytes.len() % 8 != 0 {
            bytes.push(0);
        }
        bytes.extend(&body.bytes);
        bytes
    }

    /// A call of the service's.
    pub fn of_service(&mut self, method: &str, body: &Body) -> Vec<u8> {
        self.message((SERVICE, "/org/quietcores1", "org.quietcores1.Shield", method), body)
    }

    pub fn call(&mut self, method: &str, body: &Body) -> Reply {
        let message = self.of_service(method, body);
        self.ask(&message)
    }

    /// How long the bus itself takes.
    pub fn ping(&mut self) -> Duration {
        let to = "org.freedesktop.DBus";
        let message = self.message((to, "/org/freedesktop/DBus", to, "GetId"), &Body::default());
        self.ask(&message).took
    }

    /// Sends the last message that was made, and waits for what answers it.
    pub fn ask(&mut self, message: &[u8]) -> Reply {
        let since = Instant::now();
        self.stream.write_all(message).unwrap();
        loop {
            let (serial, error, body) = self.next();
            if serial == Some(self.serial) {
                return Reply { error, body, took: since.elapsed() };
            }
        }
    }

    /// The next message: what it answers, its error, its body.
    fn next(&mut self) -> (Option<u32>, Option<String>, Vec<u8>) {
        let mut head = [0; 16];
        self.stream.read_exact(&mut head).unwrap();
        let word = |at: usize| u32::from_le_bytes(head[at..at + 4].try_into().unwrap()) as usize;
        let (body, fields) = (word(4), word(12));
        let mut rest = vec![0; fields.next_multiple_of(8) + body];
        self.stream.read_exact(&mut rest).unwrap();
        let (mut serial, mut error, mut at) = (None, None, 0usize);
        while at < fields {
            at = at.next_multiple_of(8);
            let (code, length) = (rest[at], usize::from(rest[at + 1]));
            let kind = rest[at + 2];
            at += 3 + length;
            match kind {
                b'g' => at += usize::from(rest[at]) + 2,
                _ => {
                    at = at.next_multiple_of(4);
                    let value = u32::from_le_bytes(rest[at..at + 4].try_into().unwrap());
                    at += 4;
                    if kind == b'u' {
                        serial = if code == 5 { Some(value) } else { serial };
                    } else {
                        let text = String::from_utf8_lossy(&rest[at..at + value as usize]);
                        error = if code == 4 { Some(text.into_owned()) } else { error };
                        at += value as usize + 1;
                    }
                }
            }
        }
        (serial, error, rest.split_off(fields.next_multiple_of(8)))
    }
}
