//! Brings requests from a Unix socket: bounded lines, bounded clients, one user.

use super::session::Session;
use crate::{Error, Result};
use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    fs::{Mode, OFlags},
    net::sockopt::socket_peercred,
};
use std::{
    fs,
    io::{ErrorKind, Read, Write},
    os::unix::{
        fs::{DirBuilderExt, MetadataExt, PermissionsExt},
        net::{UnixListener, UnixStream},
    },
    path::{Path, PathBuf},
    time::Duration,
};

/// Most clients at a time.
pub const CLIENTS: usize = 16;
/// Longest line, bytes.
pub const LINE: usize = 64 << 10;
/// Most lines of one client in one turn: the others, and the terminal, have theirs.
const LINES: usize = 32;
/// Most bytes that wait for a client that does not read.
const WAITING: usize = 1 << 20;
/// Pause after a turn that had something to do.
const BREATH: Duration = Duration::from_millis(1);
/// Most new clients in one turn.
const ARRIVALS: usize = 64;

struct Client {
    stream: UnixStream,
    /// Received, and not yet a whole line.
    received: Vec<u8>,
    /// A line that is too long is thrown away to its end.
    skipping: bool,
    /// To be sent.
    sending: Vec<u8>,
    /// Nothing more will come.
    closed: bool,
    ended: bool,
}

/// The socket and its clients; served by whoever calls [`Server::turn`].
pub struct Server {
    listener: UnixListener,
    path: PathBuf,
    clients: Vec<Client>,
}

impl std::fmt::Debug for Server {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Server").field("path", &self.path).finish_non_exhaustive()
    }
}

/// The directory of this user's sockets: `$XDG_RUNTIME_DIR/quietcores`, or where that is not this
/// user's own `/run/user/UID/quietcores`, for root `/run/quietcores`; made where it is not there, with nobody else let in.
///
/// # Errors
/// When it cannot be made, is a link, or belongs to somebody else.
pub fn private_dir() -> Result<PathBuf> {
    let user = rustix::process::geteuid();
    // Whoever was root before may have root's environment, or none.
    let own = |dir: &PathBuf| fs::metadata(dir).is_ok_and(|about| about.uid() == user.as_raw());
    let told = std::env::var_os("XDG_RUNTIME_DIR").filter(|dir| !dir.is_empty()).map(PathBuf::from);
    let usual = PathBuf::from(format!("/run/user/{}", user.as_raw()));
    let base = match told.filter(own).or_else(|| Some(usual).filter(own)) {
        _ if user.is_root() => PathBuf::from("/run"),
        Some(dir) => dir,
        None => {
            return Err(Error::new(
                "there is no private directory for the control socket (XDG_RUNTIME_DIR is not \
                 set, or somebody else's); give --control PATH, or --control none",
            ));
        }
    };
    let dir = base.join("quietcores");
    make_private(&dir)?;
    Ok(dir)
}

fn make_private(dir: &Path) -> Result<()> {
    let cannot = |e: std::io::Error| {
        let sentence = format!("cannot make the directory {}: {e}", dir.display());
        Error::of(crate::ErrorKind::Machine, sentence).because(e)
    };
    match fs::DirBuilder::new().mode(0o700).create(dir) {
        Err(e) if e.kind() != ErrorKind::AlreadyExists => return Err(cannot(e)),
        _ => {}
    }
    // Through the descriptor: what is looked at is what is used, and no link is followed.
    let flags = OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let fd = rustix::fs::open(dir, flags, Mode::empty()).map_err(|e| cannot(e.into()))?;
    let about = rustix::fs::fstat(&fd).map_err(|e| cannot(e.into()))?;
    if about.st_uid != rustix::process::geteuid().as_raw() {
        return Err(Error::new(format!(
            "the directory {} belongs to user {}; remove it, or give --control PATH",
            dir.display(),
            about.st_uid
        )));
    }
    if about.st_mode & 0o077 != 0 {
        rustix::fs::fchmod(&fd, Mode::from_raw_mode(0o700)).map_err(|e| cannot(e.into()))?;
    }
    Ok(())
}

impl Server {
    /// Listens at `path`, for this user (and root) alone.
    ///
    /// # Errors
    /// When another program listens there, or something else than a socket lies there.
    pub fn listen(path: &Path) -> Result<Server> {
        let cannot = |e: std::io::Error| {
            let sentence = format!("cannot listen at {}: {e}; give --control PATH", path.display());
            Error::of(crate::ErrorKind::Machine, sentence).because(e)
        };
        if let Ok(there) = fs::symlink_metadata(path) {
            use std::os::unix::fs::FileTypeExt;
            if !there.file_type().is_socket() {
                return Err(Error::new(format!(
                    "{} is there and no socket; give --control another path",
                    path.display()
                )));
            }
            if UnixStream::connect(path).is_ok() {
                return Err(Error::new(format!(
                    "another program listens at {}; give --control another path",
                    path.display()
                )));
            }
            if there.uid() != rustix::process::geteuid().as_raw() {
                return Err(Error::new(format!(
                    "{} belongs to somebody else; give --control another path",
                    path.display()
                )));
            }
            fs::remove_file(path).map_err(cannot)?;
        }
        // Between bind and chmod the umask guards it: nobody else can connect meanwhile.
        let before = rustix::process::umask(Mode::from_raw_mode(0o177));
        let listener = UnixListener::bind(path);
        rustix::process::umask(before);
        let listener = listener.map_err(cannot)?;
        fs::set_permissions(path, fs::Permissions::from_mode(0o600)).map_err(cannot)?;
        listener.set_nonblocking(true).map_err(cannot)?;
        Ok(Server { listener, path: path.to_owned(), clients: Vec::new() })
    }

    /// Where it listens.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// How many are connected.
    pub fn clients(&self) -> usize {
        self.clients.len()
    }

    /// Waits up to `wait` for something to come, and serves everybody a little.
    pub fn turn(&mut self, session: &mut Session, wait: Duration) {
        let wait =
            Timespec { tv_sec: wait.as_secs() as i64, tv_nsec: i64::from(wait.subsec_nanos()) };
        let mut fds = vec![PollFd::new(&self.listener, PollFlags::IN)];
        fds.extend(self.clients.iter().map(|client| {
            let out = if client.sending.is_empty() { PollFlags::empty() } else { PollFlags::OUT };
            let come = if client.closed { PollFlags::empty() } else { PollFlags::IN };
            PollFd::new(&client.stream, come | out)
        }));
        // A signal is the caller's business.
        if !poll(&mut fds, Some(&wait)).is_ok_and(|ready| ready > 0) && !self.pending() {
            return;
        }
        self.accept();
        for client in &mut self.clients {
            client.receive();
            client.serve(session);
            client.send();
            // Half a line at the end is no request.
            let done = client.sending.is_empty() && !client.received.contains(&b'\n');
            client.ended |= client.closed && done;
        }
        self.clients.retain(|client| !client.ended);
        // A flood gets its turns, and no more than a share of this CPU.
        std::thread::sleep(BREATH);
    }

    /// Whether whole lines wait that had no turn yet.
    fn pending(&self) -> bool {
        self.clients.iter().any(|client| client.received.contains(&b'\n'))
    }

    fn accept(&mut self) {
        for _ in 0..ARRIVALS {
            let Ok((mut stream, _)) = self.listener.accept() else { return };
            if stream.set_nonblocking(true).is_err() {
                continue;
            }
            // Beside the file's mode: a descriptor may have been handed on.
            let ours = rustix::process::geteuid();
            let welcome =
                socket_peercred(&stream).is_ok_and(|peer| peer.uid == ours || peer.uid.is_root());
            let refusal = if !welcome {
                "{\"ok\":false,\"error\":\"this socket belongs to another user\"}\n".to_owned()
            } else if self.clients.len() >= CLIENTS {
                format!(
                    "{{\"ok\":false,\"error\":\"{CLIENTS} clients are connected already; \
                     disconnect one\"}}\n"
                )
            } else {
                self.clients.push(Client {
                    stream,
                    received: Vec::new(),
                    skipping: false,
                    sending: Vec::new(),
                    closed: false,
                    ended: false,
                });
                continue;
            };
            let _ = stream.write(refusal.as_bytes());
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.path);
    }
}

impl Client {
    /// Takes what came, up to a line's length beyond what waits.
    fn receive(&mut self) {
        let mut room = [0u8; 8192];
        while self.received.len() < LINE + room.len() {
            match self.stream.read(&mut room) {
                Ok(0) => {
                    self.closed = true;
                    return;
                }
                Ok(n) => self.received.extend_from_slice(&room[..n]),
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                Err(e) if e.kind() == ErrorKind::WouldBlock => return,
                Err(_) => {
                    self.ended = true;
                    return;
                }
            }
        }
    }

    fn serve(&mut self, session: &mut Session) {
        let mut used = 0;
        for _ in 0..LINES {
            let rest = &self.received[used..];
            let Some(end) = rest.iter().position(|byte| *byte == b'\n') else { break };
            let line = &rest[..end];
            used += end + 1;
            if std::mem::take(&mut self.skipping) || line.iter().all(u8::is_ascii_whitespace) {
                continue;
            }
            self.sending.extend_from_slice(session.line(line).as_bytes());
            if self.sending.len() > WAITING {
                // It asks and asks, and never reads.
                self.ended = true;
                return;
            }
        }
        self.received.drain(..used);
        if self.received.len() > LINE && !self.received.contains(&b'\n') {
            if !self.skipping {
                let error = format!(
                    "{{\"ok\":false,\"error\":\"a line is longer than {LINE} bytes; it is left \
                     out\"}}\n"
                );
                self.sending.extend_from_slice(error.as_bytes());
            }
            self.skipping = true;
            self.received.clear();
        }
    }

    fn send(&mut self) {
        while !self.sending.is_empty() {
            match self.stream.write(&self.sending) {
                Ok(0) => self.ended = true,
                Ok(n) => {
                    self.sending.drain(..n);
                    continue;
                }
                Err(e) if e.kind() == ErrorKind::Interrupted => continue,
                Err(e) if e.kind() == ErrorKind::WouldBlock => {}
                Err(_) => self.ended = true,
            }
            return;
        }
    }
}
