//! Sound whose every frame tells its own number, and what became of it on its way through a loop.
//!
//!     loop make FORMAT CHANNELS FRAMES FILE     raw frames for aplay
//!     loop wav FRAMES FILE                      the same of two channels for `quietcores render`
//!     loop check FORMAT CHANNELS PLAYED.json FILE   what arecord heard of the engine that says so of itself
//!     loop same RENDERED.wav FILE               whether S32_LE x 2 that was heard is the rendered file, sample by sample
//!     loop silence FRAMES FILE                  nothing, two channels of floats, for `quietcores render`
//!     loop played RENDERED.wav PLAYED.wav       whether 16 bits x 2 that QEMU wrote down are the rendered file from its first sound to
//!                                               its end, sample by sample
//!     loop noise FRAMES FILE                    S16_LE x 2, every value equally likely
//!     loop captured LEAST HEARD.raw PLAYED.wav  whether what QEMU wrote down is a piece of the noise that the card heard, from the first sound
//!                                               on, of LEAST frames
//!     loop tone FRAMES FILE                     997 Hz, S32_LE x 2, for aplay
//!     loop whole RING FILE                      whether S32_LE x 2 that was heard is such a tone without a click, up to a ring before
//!                                               each gap: there the card plays what still lies in its ring
//!     loop say SOCKET LINE                      one line to a Unix socket, and its answer
//!     loop stop PID MILLISECONDS                SIGSTOP, so long, SIGCONT; prints how long it was, at least and at most
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

fn wav(frames: u64, path: &str, sounds: bool) {
    let bytes = frames as u32 * 8;
    let mut all = b"RIFF".to_vec();
    all.extend((36 + bytes).to_le_bytes());
    all.extend(b"WAVEfmt \x10\0\0\0\x03\0\x02\0");
    for word in [48_000u32, 48_000 * 8, 8 | 32 << 16] {
        all.extend(word.to_le_bytes());
    }
    all.extend(b"data");
    all.extend(bytes.to_le_bytes());
    for frame in 0..frames {
        for channel in 0..2 {
            all.extend(encode(if sounds { code(frame, channel, 24) } else { 0 }, "FLOAT_LE", 24));
        }
    }
    fs::write(path, all).unwrap_or_else(|e| fail(&format!("{path}: {e}")));
}

/// Numbers under a key of JSON.
fn numbers<'a>(json: &'a str, key: &'a str) -> impl Iterator<Item = u64> + 'a {
    json.match_indices(key).filter_map(move |(at, _)| {
        let rest = json[at + key.len()..].trim_start().strip_prefix(':')?.trim_start();
        rest[..rest.find(|c: char| !c.is_ascii_digit())?].parse().ok()
    })
}

/// A stretch of sound between two silences: where it is, its delay, and how many frames of it tell of no frame or of another
/// delay, beside those at its end.
struct Stretch {
    begin: usize,
    end: usize,
    delay: Option<i64>,
    wrong: usize,
    /// Of those, the last ones, which are the same as a ring before: the card went round its ring once more before it was stopped.
    old: usize,
}

/// Prints the stretches of sound and a line that sums up.
///
/// An xrun is followed by a whole ring of silence. Before it, the card plays what still lies in its ring until the kernel
/// notices, and a frame may be half written: the last ring's worth of frames before a gap is not looked at.
/// Where the whole machine was held up for longer than the ring lasts, the card goes round it again: what is heard there once more is old,
/// and no more of it may be than the engine says that it missed.
/// An xrun that comes before sound is back makes the gap longer by a ring at least, so the gaps tell how many there can be.
fn check(format: &str, channels: usize, played: &str, path: &str) {
    let (bytes, bits) = shape(format);
    let wrap = (1i64 << (bits - 3)) - 1;
    let heard = fs::read(path).unwrap_or_else(|e| fail(&format!("{path}: {e}")));
    let json = fs::read_to_string(played).unwrap_or_else(|e| fail(&format!("{played}: {e}")));
    let key = |name: &'static str| numbers(&json, name).next().unwrap_or_else(|| fail(&format!("{played}: no {name}")));
    let ring = key("\"buffer\"") as usize;
    let frames: Vec<_> = heard.chunks_exact(bytes * channels).collect();
    let silent = |frame: &[u8]| frame.iter().all(|byte| *byte == 0);
    let mut stretches: Vec<Stretch> = Vec::new();
    for (at, _) in frames.iter().enumerate().filter(|(_, frame)| !silent(frame)) {
        match stretches.last_mut() {
            // What aloop has of a jiffy may be missing from the silence.
            Some(last) if at - last.end < ring * 3 / 4 => last.end = at + 1,
            _ => stretches.push(Stretch { begin: at, end: at + 1, delay: None, wrong: 0, old: 0 }),
        }
    }
    let mut sound = 0;
    for stretch in &mut stretches {
        let ragged = (stretch.end - stretch.begin).saturating_sub(ring + 256);
        for (at, frame) in frames.iter().enumerate().skip(stretch.begin).take(ragged) {
            let samples: Vec<_> = frame.chunks_exact(bytes).map(|s| decode(s, format)).collect();
            let number = samples[0].map_or(-1, |s| i64::from(s) & wrap) - 1;
            let right = number >= 0 && (0..channels).all(|c| samples[c] == Some(code(number as u64, c, bits)));
            let delay = (at as i64 - number).rem_euclid(wrap);
            if right && *stretch.delay.get_or_insert(delay) == delay {
                sound += 1;
            } else {
                if stretch.wrong == 0 {
                    println!("wrong first at {at}: {frame:02x?}, delay {delay}");
                }
                stretch.wrong += 1;
                let again = at.checked_sub(ring).is_some_and(|before| frames[before] == *frame);
                stretch.old = if again { stretch.old + 1 } else { 0 };
                continue;
            }
            stretch.old = 0;
        }
        stretch.wrong -= stretch.old;
    }
    for Stretch { begin, end, delay, wrong, old } in &stretches {
        println!("sound from {begin} to {end}, delay {delay:?}, wrong {wrong}, old {old}");
    }
    let gaps: Vec<usize> = stretches.windows(2).map(|pair| pair[1].begin - pair[0].end).collect();
    let mut delays: Vec<_> = stretches.iter().filter_map(|s| s.delay).collect();
    delays.sort_unstable();
    // Xruns before anything can be heard, or so late that nothing is any more, leave no gap.
    let (edge, lasted) = (2 * ring as u64 * 1_000_000_000 / key("\"rate\""), key("\"lasted\""));
    let inside = numbers(&json, "\"at\"").filter(|at| *at > edge && *at + edge < lasted).count();
    println!(
        "sound={sound} wrong={} old={} gaps={} could={} xruns={} inside={inside} missed={} lost={} silent={} apart={}",
        stretches.iter().map(|s| s.wrong).sum::<usize>(),
        stretches.iter().map(|s| s.old).sum::<usize>(),
        gaps.len(),
        gaps.iter().map(|gap| (gap + ring / 4) / ring).sum::<usize>(),
        numbers(&json, "\"xruns\"").next().unwrap_or(0),
        key("\"missed\""),
        key("\"missed\"") * key("\"period\""),
        gaps.iter().sum::<usize>(),
        delays.last().zip(delays.first()).map_or(-1, |(most, least)| most - least)
    );
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

/// QEMU writes 44 bytes of header first.
fn played(rendered: &str, heard: &str) {
    let wanted: Vec<i16> = floats(rendered).iter().map(|x| (x * 32_768.0).round_ties_even() as i16).collect();
    let exact = floats(rendered).iter().all(|x| (x * 32_768.0).fract() == 0.0);
    let heard = fs::read(heard).unwrap_or_else(|e| fail(&format!("{heard}: {e}")));
    let heard: Vec<i16> = heard[44..].chunks_exact(2).map(|b| i16::from_le_bytes([b[0], b[1]])).collect();
    let first = |all: &[i16]| all.iter().position(|x| *x != 0).unwrap_or_else(|| fail("all is silent")) / 2 * 2;
    let (a, b) = (first(&wanted), first(&heard));
    let pairs = || wanted[a..].iter().zip(&heard[b..]);
    let wrong = pairs().filter(|(x, y)| x != y).count();
    let right = pairs().take_while(|(x, y)| x == y).count();
    println!(
        "exact={exact} silence={} frames={} of={} wrong={wrong} right={}",
        b / 2, pairs().count() / 2, wanted[a..].len() / 2, right / 2
    );
    exit(i32::from(wrong > 0 || pairs().count() < wanted[a..].len()));
}

/// Knuth's MMIX generator; its upper bits.
fn noise(frames: u64, path: &str) {
    let mut state = 1u64;
    let words = (0..frames * 2).flat_map(|_| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        ((state >> 48) as u16).to_le_bytes()
    });
    fs::write(path, words.collect::<Vec<u8>>()).unwrap_or_else(|e| fail(&format!("{path}: {e}")));
}

/// The end of what was written down is left out: what the card had not yet played when it was stopped is not there.
fn captured(least: usize, heard: &str, played: &str) {
    let read = |path: &str| fs::read(path).unwrap_or_else(|e| fail(&format!("{path}: {e}")));
    let (heard, played) = (read(heard), read(played));
    let heard: Vec<&[u8]> = heard.chunks_exact(4).collect();
    let played: Vec<&[u8]> = played.get(44..).unwrap_or_default().chunks_exact(4).collect();
    let sounds = |frame: &&&[u8]| frame.iter().any(|byte| *byte != 0);
    let first = played.iter().position(|frame| sounds(&frame)).unwrap_or_else(|| fail("all is silent"));
    let last = played.len() - played.iter().rev().position(|frame| sounds(&frame)).unwrap_or(0);
    let piece = &played[first..last];
    let from = heard.windows(16).position(|w| piece.starts_with(w)).unwrap_or_else(|| fail("the first sound was never heard"));
    let wrong = piece.iter().zip(&heard[from..]).filter(|(x, y)| x != y).count();
    let right = piece.iter().zip(&heard[from..]).take_while(|(x, y)| x == y).count();
    println!("silence={first} heard_from={from} frames={} wrong={wrong} right={right}", piece.len());
    exit(i32::from(wrong > 0 || right < least));
}

const TONE: f64 = std::f64::consts::TAU * 997.0 / 48_000.0;

fn tone(frames: u64, path: &str) {
    let mut all = Vec::new();
    for frame in 0..frames {
        let sample = ((frame as f64 * TONE).sin() * 0.25 * 2_147_483_648.0) as i32;
        all.extend([sample.to_le_bytes(), sample.to_le_bytes()].concat());
    }
    fs::write(path, all).unwrap_or_else(|e| fail(&format!("{path}: {e}")));
}

/// Three samples of a tone in a row lie on a cosine; where they do not, there was a click. Gaps are silences of 256 frames at least;
/// 64 frames after one are not looked at, for there it begins.
fn whole(ring: usize, path: &str) {
    let heard = fs::read(path).unwrap_or_else(|e| fail(&format!("{path}: {e}")));
    let all: Vec<f64> = heard
        .chunks_exact(8)
        .map(|b| f64::from(i32::from_le_bytes([b[0], b[1], b[2], b[3]])) / 2_147_483_648.0 / 0.25)
        .collect();
    let mut stretches: Vec<(usize, usize)> = Vec::new();
    for (at, _) in all.iter().enumerate().filter(|(_, x)| **x != 0.0) {
        match stretches.last_mut() {
            Some(last) if at - last.1 < 256 => last.1 = at,
            _ => stretches.push((at, at)),
        }
    }
    let (mut sound, mut clicks, mut worst) = (0, 0, 0.0f64);
    for (begin, end) in &stretches {
        println!("sound from {begin} to {end}");
        let mut last = 0;
        for at in begin + 64..end.saturating_sub(ring + 256) {
            let off = (all[at + 1] + all[at - 1] - 2.0 * TONE.cos() * all[at]).abs();
            worst = worst.max(off);
            sound += 1;
            if off > 0.002 && at > last + 64 {
                println!("a click of {off:.4} at {at}");
                (clicks, last) = (clicks + 1, at);
            }
        }
    }
    println!("sound={sound} clicks={clicks} worst={worst:.6} gaps={}", stretches.len().saturating_sub(1));
}

fn main() {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let number = |text: &str| text.parse::<u64>().unwrap_or_else(|_| fail(&format!("{text} is no number")));
    match words[..] {
        ["make", format, channels, frames, path] => make(format, number(channels) as usize, number(frames), path),
        ["wav", frames, path] => wav(number(frames), path, true),
        ["silence", frames, path] => wav(number(frames), path, false),
        ["played", rendered, heard] => played(rendered, heard),
        ["noise", frames, path] => noise(number(frames), path),
        ["captured", least, heard, played] => captured(number(least) as usize, heard, played),
        ["check", format, channels, played, path] => check(format, number(channels) as usize, played, path),
        ["tone", frames, path] => tone(number(frames), path),
        ["whole", ring, path] => whole(number(ring) as usize, path),
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
            let surely = Instant::now();
            thread::sleep(Duration::from_millis(number(length)));
            let least = surely.elapsed().as_micros();
            if !(send("-CONT") && stopped) {
                fail(&format!("cannot stop {pid}"));
            }
            println!("least={least} most={}", began.elapsed().as_micros());
        }
        _ => fail("make, wav, silence, played, noise, captured, check, same, tone, whole, say or stop"),
    }
}
