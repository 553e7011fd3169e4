//! Sound whose every frame tells its own number, and what became of it on its way through a loop.
//!
//!     loop make FORMAT CHANNELS FRAMES FILE     raw frames for aplay
//!     loop check FORMAT CHANNELS FILE           what arecord heard: runs of sound with one delay each
//!     loop same RENDERED.wav FILE               whether S32_LE x 2 that was heard is the rendered file, sample by sample
//!     loop say SOCKET LINE                      one line to a Unix socket, and its answer
//!     loop stop PID MILLISECONDS                SIGSTOP, so long, SIGCONT; prints how long it was
use std::{
    env, fs,
    io::{BufRead, BufReader, Read, Write},
    os::unix::net::UnixStream,
    process::{Command, exit},
    thread,
    time::{Duration, Instant},
};

/// Bytes of a sample, and its bits.
fn shape(format: &str) -> (usize, u32) {
    match format {
        "S16_LE" => (2, 16),
        "S24_3LE" => (3, 24),
        "S24_LE" | "S32_LE" | "FLOAT_LE" => (4, 24),
        _ => fail(&format!("no format is called {format}")),
    }
}

fn fail(why: &str) -> ! {
    eprintln!("loop: {why}");
    exit(2)
}

/// The channel in the three upper bits, a number that is never zero below: exact in 24 bits of a float.
fn code(frame: u64, channel: usize, bits: u32) -> i32 {
    let numbers = (1u64 << (bits - 3)) - 1;
    ((channel as i32 & 7) << (bits - 3)) | (1 + frame % numbers) as i32
}

fn encode(code: i32, format: &str, bits: u32) -> Vec<u8> {
    let signed = (code << (32 - bits)) >> (32 - bits);
    match format {
        "S16_LE" => (signed as i16).to_le_bytes().to_vec(),
        "S24_3LE" => signed.to_le_bytes()[..3].to_vec(),
        "S24_LE" => signed.to_le_bytes().to_vec(),
        "S32_LE" => (signed << 8).to_le_bytes().to_vec(),
        _ => (signed as f32 / 8_388_608.0).to_le_bytes().to_vec(),
    }
}

/// The bits as they were put in; None for what cannot have been.
fn decode(bytes: &[u8], format: &str) -> Option<i32> {
    let word = |at: usize| i32::from(*bytes.get(at).unwrap_or(&0));
    match format {
        "S16_LE" => Some(word(0) | word(1) << 8),
        "S24_3LE" | "S24_LE" => Some(word(0) | word(1) << 8 | word(2) << 16),
        "S32_LE" => (word(0) == 0).then_some(word(1) | word(2) << 8 | word(3) << 16),
        _ => {
            let whole = f32::from_le_bytes(bytes.try_into().ok()?) * 8_388_608.0;
            (whole.fract() == 0.0).then_some(whole as i32 & 0xff_ffff)
        }
    }
}

fn make(format: &str, channels: usize, frames: u64, path: &str) {
    let (_, bits) = shape(format);
    let mut all = Vec::new();
    for frame in 0..frames {
        for channel in 0..channels {
            all.extend(encode(code(frame, channel, bits), format, bits));
        }
    }
    fs::write(path, all).unwrap_or_else(|e| fail(&format!("{path}: {e}")));
}

/// Prints each run of sound with its delay, and a line that sums up.
fn check(format: &str, channels: usize, path: &str) {
    let (bytes, bits) = shape(format);
    let numbers = (1i64 << (bits - 3)) - 1;
    let heard = fs::read(path).unwrap_or_else(|e| fail(&format!("{path}: {e}")));
    let (mut sound, mut broken, mut first_broken) = (0u64, 0u64, None);
    // Where it began, how long it is, its delay.
    let mut runs: Vec<(u64, u64, i64)> = Vec::new();
    let mut frames = 0;
    for (at, frame) in heard.chunks_exact(bytes * channels).enumerate() {
        frames = at as u64 + 1;
        let samples: Vec<_> = frame.chunks_exact(bytes).map(|s| decode(s, format)).collect();
        if samples.iter().all(|s| *s == Some(0)) {
            continue;
        }
        let number = samples[0].map(|s| i64::from(s & numbers as i32) - 1).unwrap_or(-1);
        let right = (0..channels).all(|c| samples[c] == Some(code(number.max(0) as u64, c, bits)));
        if number < 0 || !right {
            broken += 1;
            first_broken = first_broken.or(Some((at, frame.to_vec())));
            continue;
        }
        sound += 1;
        let delay = (at as i64 - number).rem_euclid(numbers);
        match runs.last_mut() {
            Some((began, length, same)) if *same == delay && *began + *length == at as u64 => *length += 1,
            _ => runs.push((at as u64, 1, delay)),
        }
    }
    for (at, length, delay) in &runs {
        println!("run at {at} frames {length} delay {delay}");
    }
    if let Some((at, frame)) = first_broken {
        println!("broken first at {at}: {frame:02x?}");
    }
    let mut delays: Vec<_> = runs.iter().map(|run| run.2).collect();
    delays.sort_unstable();
    delays.dedup();
    println!("frames={frames} sound={sound} broken={broken} runs={} delays={}", runs.len(), delays.len());
}

/// The samples of a WAV file of 32-bit floats.
fn floats(path: &str) -> Vec<f32> {
    let file = fs::read(path).unwrap_or_else(|e| fail(&format!("{path}: {e}")));
    let at = file.windows(4).position(|w| w == b"data").unwrap_or_else(|| fail("no data in the WAV file")) + 8;
    file[at..].chunks_exact(4).map(|b| f32::from_le_bytes([b[0], b[1], b[2], b[3]])).collect()
}

fn same(rendered: &str, heard: &str) {
    let wanted: Vec<i32> = floats(rendered).iter().map(|x| (x * 2_147_483_648.0).round_ties_even() as i32).collect();
    let heard = fs::read(heard).unwrap_or_else(|e| fail(&format!("{heard}: {e}")));
    let heard: Vec<i32> = heard.chunks_exact(4).map(|b| i32::from_le_bytes([b[0], b[1], b[2], b[3]])).collect();
    let first = |all: &[i32]| all.iter().position(|x| *x != 0).unwrap_or_else(|| fail("all is silent"));
    let (a, b) = (first(&wanted) / 2 * 2, first(&heard) / 2 * 2);
    let pairs = || wanted[a..].iter().zip(&heard[b..]);
    let wrong = pairs().filter(|(x, y)| x != y).count();
    let worst = pairs().map(|(x, y)| (i64::from(*x) - i64::from(*y)).abs()).max().unwrap_or(0);
    println!("compared={} wrong={wrong} worst={worst}", pairs().count());
}

fn main() {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let number = |text: &str| text.parse::<u64>().unwrap_or_else(|_| fail(&format!("{text} is no number")));
    match words[..] {
        ["make", format, channels, frames, path] => make(format, number(channels) as usize, number(frames), path),
        ["check", format, channels, path] => check(format, number(channels) as usize, path),
        ["same", rendered, heard] => same(rendered, heard),
        ["say", socket, line] => {
            let mut to = UnixStream::connect(socket).unwrap_or_else(|e| fail(&format!("{socket}: {e}")));
            to.write_all(format!("{line}\n").as_bytes()).unwrap_or_else(|e| fail(&e.to_string()));
            let mut answer = String::new();
            let _ = BufReader::new(to.take(1 << 20)).read_line(&mut answer);
            print!("{answer}");
        }
        ["stop", pid, length] => {
            let send = |signal: &str| Command::new("kill").args([signal, pid]).status().is_ok_and(|s| s.success());
            let began = Instant::now();
            let stopped = send("-STOP");
            thread::sleep(Duration::from_millis(number(length)));
            if !(send("-CONT") && stopped) {
                fail(&format!("cannot stop {pid}"));
            }
            println!("stopped_us={}", began.elapsed().as_micros());
        }
        _ => fail("make, check, same, say or stop"),
    }
}
