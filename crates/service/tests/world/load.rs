//! What storms of calls are made of: numbers drawn by lot, bodies, and what the service holds and how long it takes meanwhile.

use super::raw::{Body, Raw};
use quiet_testing::bus::as_user;
use std::{
    fs,
    process::{Child, Stdio},
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::{Duration, Instant},
};

/// `nobody`, `daemon` and `bin`.
pub const USERS: [u32; 3] = [65534, 1, 2];
/// All that the service has.
pub const METHODS: [&str; 13] = [
    "ListChains",
    "Plan",
    "Apply",
    "ApplyBound",
    "Watch",
    "Trace",
    "Confirm",
    "Admit",
    "Release",
    "Lend",
    "TakeBack",
    "Revert",
    "Status",
];

/// Numbers that are the same in each run.
pub struct Lot(pub u64);

impl Lot {
    pub fn draw(&mut self, below: usize) -> usize {
        // xorshift64*: Vigna, "An experimental exploration of Marsaglia's xorshift generators".
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 33) as usize % below
    }

    pub fn of<'a, T: ?Sized>(&mut self, some: &[&'a T]) -> &'a T {
        some[self.draw(some.len())]
    }
}

/// A body that may be what a method takes, and mostly is not.
pub fn body(lot: &mut Lot) -> Body {
    let mut body = Body::default();
    for _ in 0..lot.draw(5) {
        let number = [0, 1, 85, 4_194_304, u32::MAX, std::process::id()][lot.draw(6)];
        body = match lot.draw(8) {
            0 | 1 => body.number(number),
            2 => body.byte(number as u8),
            3 => {
                let many = "x".repeat([0, 1, 64, 65, 4096, 4097, 200_000][lot.draw(7)]);
                body.text(&many)
            }
            4 | 5 => {
                let words =
                    ["room", "", "../room", "fifo", "rr", "0-3", "1", "/etc/shadow", "\u{202e}x"];
                body.text(words[lot.draw(words.len())])
            }
            6 => {
                // An array of bytes.
                body.signature.push_str("ay");
                body.align(4);
                let many = [0usize, 3, 100_000][lot.draw(3)];
                body.bytes.extend((many as u32).to_le_bytes());
                body.bytes.resize(body.bytes.len() + many, 7);
                body
            }
            _ => {
                // A variant in a variant, with a number.
                body.signature.push('v');
                body.bytes.extend(b"\x01v\0\x01u\0");
                body.align(4);
                body.bytes.extend(number.to_le_bytes());
                body
            }
        };
    }
    body
}

/// What the service holds: files, threads, kilobytes of memory.
pub fn held(pid: u32) -> (usize, usize, u64) {
    let count = |what| fs::read_dir(format!("/proc/{pid}/{what}")).unwrap().count();
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let memory = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    (count("fd"), count("task"), memory.trim().split(' ').next().unwrap().parse().unwrap())
}

/// The slowest answer while others called, and what is no longer than it may be.
pub struct Waited {
    pub service: Duration,
    pub bus: Duration,
    pub hundred: Duration,
}

/// Asks the service and the bus in turn for as long as `while_` runs, as `caller`.
pub fn waited<T>(mut caller: Raw, while_: impl FnOnce() -> T) -> (T, Waited) {
    let over = AtomicBool::new(false);
    let since = Instant::now();
    for _ in 0..100 {
        caller.call("Status", &Body::default());
    }
    let hundred = since.elapsed();
    thread::scope(|scope| {
        let asks = scope.spawn(|| {
            let (mut service, mut bus) = (Duration::ZERO, Duration::ZERO);
            while !over.load(Ordering::Relaxed) {
                service = service.max(caller.call("Status", &Body::default()).took);
                bus = bus.max(caller.ping());
                thread::sleep(Duration::from_millis(5));
            }
            Waited { service, bus, hundred }
        });
        let done = while_();
        over.store(true, Ordering::Relaxed);
        (done, asks.join().unwrap())
    })
}

/// No call of another user hangs over a second. A machine may be so busy that everything takes long, so what the bus alone takes, and
/// what a hundred calls take that nobody disturbs, count as well.
pub fn nobody_hangs(waited: &Waited) {
    let Waited { service, bus, hundred } = *waited;
    quiet_testing::report(format_args!(
        "slowest answer: service {service:?}, bus {bus:?}; a hundred before that {hundred:?}"
    ));
    let most = Duration::from_secs(1) + bus * 10 + hundred;
    assert!(service < most, "{service:?}, and {most:?} are the most");
}

pub fn policy_of(tid: u32) -> Option<i32> {
    let stat = fs::read_to_string(format!("/proc/{tid}/stat")).ok()?;
    stat.rsplit(')').next()?.split_ascii_whitespace().nth(38)?.parse().ok()
}

/// Ends with the test, however that ends.
pub struct Ends(pub Child);

impl Drop for Ends {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A program of this user's. It is its own only once setpriv(1), which is root's at first, has become it.
pub fn started(uid: &str, program: &str, words: &[&str]) -> Child {
    let mut command = as_user(uid, "", program);
    let child = command.args(words).stdout(Stdio::null()).spawn().unwrap();
    let comm = format!("/proc/{}/comm", child.id());
    quiet_testing::until("it is the user's", || {
        fs::read(&comm).is_ok_and(|name| name != b"setpriv\n").then_some(())
    });
    child
}

pub fn sleeper(uid: &str) -> Ends {
    Ends(started(uid, "sleep", &["600"]))
}
