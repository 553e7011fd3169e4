//! What the kernel tells at once: devices that come and go, programs and threads that are born.

use rustix::{
    io::Errno,
    net::{
        AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, bind,
        netlink::{self, SocketAddrNetlink},
        recvfrom, send, socket_with,
    },
};
use std::{io, os::fd::OwnedFd};

/// Larger than any message of the two families.
const MESSAGE: usize = 8192;

/// One message of the kernel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Message {
    /// A device: what became of it (`add`, `remove`, `online` ...) and its subsystem.
    Device { action: String, subsystem: String },
    /// A process or thread was born.
    Fork { parent: u32, process: u32 },
    /// A program was started.
    Exec { process: u32 },
    /// A process became another user's.
    User { process: u32 },
    /// A thread took a name.
    Name { process: u32, comm: String },
    /// Messages were lost: anything may have happened.
    Lost,
}

/// A socket on which the kernel tells.
pub(super) struct Socket {
    fd: OwnedFd,
    read: fn(&[u8]) -> Option<Message>,
}

/// Devices.
///
/// # Source
/// lib/kobject_uevent.c of the kernel: multicast group 1 holds the kernel's own messages.
pub(super) fn devices() -> io::Result<Socket> {
    let fd = open(netlink::KOBJECT_UEVENT, 1)?;
    Ok(Socket { fd, read: device })
}

/// Programs and threads.
///
/// # Source
/// Documentation/driver-api/connector.rst, include/uapi/linux/cn_proc.h.
pub(super) fn processes() -> io::Result<Socket> {
    let fd = open(netlink::CONNECTOR, CN_IDX_PROC)?;
    // nlmsghdr, cn_msg and the word PROC_CN_MCAST_LISTEN.
    let mut message = Vec::with_capacity(40);
    message.extend(40u32.to_ne_bytes());
    message.extend(NLMSG_DONE.to_ne_bytes());
    message.extend(0u16.to_ne_bytes());
    message.extend(0u32.to_ne_bytes());
    message.extend(rustix::process::getpid().as_raw_nonzero().get().to_ne_bytes());
    message.extend(CN_IDX_PROC.to_ne_bytes());
    message.extend(1u32.to_ne_bytes()); // CN_VAL_PROC
    message.extend([0u8; 8]);
    message.extend(4u16.to_ne_bytes());
    message.extend(0u16.to_ne_bytes());
    message.extend(1u32.to_ne_bytes()); // PROC_CN_MCAST_LISTEN
    send(&fd, &message, SendFlags::empty())?;
    Ok(Socket { fd, read: process })
}

const CN_IDX_PROC: u32 = 1;
const NLMSG_DONE: u16 = 3;

fn open(protocol: rustix::net::Protocol, groups: u32) -> io::Result<OwnedFd> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let fd = socket_with(AddressFamily::NETLINK, SocketType::DGRAM, flags, Some(protocol))?;
    // A burst of programs should fit; without the right to so much the default does.
    let _ = rustix::net::sockopt::set_socket_recv_buffer_size_force(&fd, 1 << 20);
    bind(&fd, &SocketAddrNetlink::new(0, groups))?;
    Ok(fd)
}

impl Socket {
    pub fn fd(&self) -> &OwnedFd {
        &self.fd
    }

    /// The next message that waits and makes sense; `None` where there is none.
    pub fn next(&self) -> Option<Message> {
        let mut buffer = [0u8; MESSAGE];
        loop {
            match recvfrom(&self.fd, &mut buffer[..], RecvFlags::empty()) {
                // Any process may send to this socket; only the kernel has number 0.
                Ok((length, _, from)) => {
                    let kernel = from
                        .and_then(|from| SocketAddrNetlink::try_from(from).ok())
                        .is_some_and(|from| from.pid() == 0);
                    let message = buffer.get(..length).and_then(self.read);
                    if let Some(message) = message.filter(|_| kernel) {
                        return Some(message);
                    }
                }
                Err(Errno::INTR) => {}
                Err(Errno::NOBUFS) => return Some(Message::Lost),
                Err(_) => return None,
            }
        }
    }
}

/// `add@/devices/...`, then `KEY=value`, each ended by a zero byte.
fn device(bytes: &[u8]) -> Option<Message> {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let mut parts = bytes.split(|byte| *byte == 0);
    let head = text(parts.next()?);
    let (action, _) = head.split_once('@')?;
    let subsystem = parts.find_map(|part| part.strip_prefix(b"SUBSYSTEM=")).map(text);
    Some(Message::Device { action: action.to_owned(), subsystem: subsystem.unwrap_or_default() })
}

/// nlmsghdr (16 bytes), cn_msg (20), then proc_event: what, cpu, timestamp (16), and the event.
fn process(bytes: &[u8]) -> Option<Message> {
    let event = bytes.get(36..)?;
    let word = |at: usize| -> Option<u32> {
        Some(u32::from_ne_bytes(event.get(at..at + 4)?.try_into().ok()?))
    };
    match word(0)? {
        // parent_pid, parent_tgid, child_pid, child_tgid
        0x1 => Some(Message::Fork { parent: word(20)?, process: word(28)? }),
        // process_pid, process_tgid
        0x2 => Some(Message::Exec { process: word(20)? }),
        // process_pid, process_tgid, ruid, euid
        0x4 => Some(Message::User { process: word(20)? }),
        // process_pid, process_tgid, comm[16]
        0x200 => {
            let comm = event.get(24..40)?;
            let end = comm.iter().position(|byte| *byte == 0).unwrap_or(comm.len());
            let comm = String::from_utf8_lossy(&comm[..end]).into_owned();
            Some(Message::Name { process: word(20)?, comm })
        }
        _ => None,
    }
}

/// A message of either family, for the fuzz targets.
#[cfg(fuzzing)]
pub(crate) fn message(bytes: &[u8]) {
    let _ = (device(bytes), process(bytes));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_device_is_read_from_its_message() {
        let bytes = b"remove@/devices/pci0000:00/usb1/1-1/sound/card0\0ACTION=remove\0SUBSYSTEM=sound\0SEQNUM=7\0";
        let wanted = Message::Device { action: "remove".into(), subsystem: "sound".into() };
        assert_eq!(device(bytes), Some(wanted));
        assert_eq!(device(b"libudev\0\xfe\xed\xca\xfe"), None);
        assert_eq!(device(b""), None);
    }

    #[test]
    fn messages_about_processes_are_read_and_torn_ones_are_not() {
        let mut bytes = vec![0u8; 36];
        for word in [0x200u32, 1, 0, 0, 77, 70] {
            bytes.extend(word.to_ne_bytes());
        }
        bytes.extend(b"output\0\0\0\0\0\0\0\0\0\0");
        let wanted = Message::Name { process: 70, comm: "output".into() };
        assert_eq!(process(&bytes), Some(wanted));
        for length in 0..bytes.len() {
            assert_eq!(process(&bytes[..length]), None, "{length}");
        }
        bytes[36..40].copy_from_slice(&4u32.to_ne_bytes());
        assert_eq!(process(&bytes), Some(Message::User { process: 70 }));
    }
}
