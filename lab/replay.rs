//! Power cuts out of a log of writes, as QEMU's blklogwrites and the kernel's dm-log-writes make it.
//!
//! `replay LOG marks`                     a line for each entry: its number, what was not flushed before it (pieces of 4 KiB); for a
//!                                        mark that the guest wrote also its seconds and name
//! `replay LOG IMAGE CUTS COMMAND...`     for each line `ENTRY SEED WORDS...` of CUTS, in the order of the entries,
//!                                        makes of IMAGE what a cut before that entry leaves, and runs COMMAND ENTRY SEED WORDS...
//!
//! With seed 0 the disk has kept all that was written. With another one the disk had a cache: what came before the last flush
//! stands, and of what came after it each piece of 4 KiB is there or not, by the seed; in what order it was written says nothing.
use std::{
    env,
    fs::{File, OpenOptions},
    io::{self, Error, ErrorKind},
    os::unix::fs::FileExt,
    process::{Command, ExitCode},
};

const MAGIC: u64 = 0x006a_7366_7773_6872;
const FLUSH: u64 = 1;
const DISCARD: u64 = 4;
const SECTOR: u64 = 512;
/// In the gap behind GRUB's core, where `mark` of guest/persist-cut writes.
const MARK: u64 = 2040;
const PIECE: usize = 4096;

struct Entry {
    flags: u64,
    /// On the disk, in bytes.
    to: u64,
    /// In the log, in bytes.
    from: u64,
    length: usize,
}

fn entries(log: &File) -> io::Result<Vec<Entry>> {
    let word = |at: u64| -> io::Result<u64> {
        let mut bytes = [0; 8];
        log.read_exact_at(&mut bytes, at)?;
        Ok(u64::from_le_bytes(bytes))
    };
    let sector = word(24)? & 0xffff_ffff;
    if word(0)? != MAGIC || word(8)? != 1 || sector != SECTOR {
        return Err(Error::new(
            ErrorKind::InvalidData,
            format!("no log of writes: {:x} {} {sector}", word(0)?, word(8)?),
        ));
    }
    let mut entries = Vec::new();
    let mut at = SECTOR;
    for _ in 0..word(16)? {
        let (to, many, flags) = (word(at)? * SECTOR, word(at + 8)? * SECTOR, word(at + 16)?);
        let length = if flags & DISCARD == 0 { many } else { 0 };
        entries.push(Entry { flags, to, from: at + SECTOR, length: length as usize });
        at += SECTOR + length;
    }
    Ok(entries)
}

fn data(log: &File, entry: &Entry) -> io::Result<Vec<u8>> {
    let mut bytes = vec![0; entry.length];
    log.read_exact_at(&mut bytes, entry.from)?;
    Ok(bytes)
}

fn marks(log: &File) -> io::Result<()> {
    let mut pending = 0;
    for (at, entry) in entries(log)?.iter().enumerate() {
        pending = if entry.flags & FLUSH != 0 { 0 } else { pending + entry.length.div_ceil(PIECE) };
        print!("{} {pending}", at + 1);
        if entry.to == MARK * SECTOR && entry.length == 512 {
            let bytes = data(log, entry)?;
            let text = String::from_utf8_lossy(&bytes);
            let mut words = text.split(['\n', '\0']).next().unwrap_or("").split(' ').skip(1);
            print!(" {} {}", words.next().unwrap_or("-"), words.next().unwrap_or("-"));
        }
        println!();
    }
    Ok(())
}

/// xorshift64*.
fn toss(state: &mut u64) -> bool {
    *state ^= *state >> 12;
    *state ^= *state << 25;
    *state ^= *state >> 27;
    state.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 63 == 1
}

fn cuts(log: &File, image: &str, cuts: &str, command: &[String]) -> io::Result<()> {
    let entries = entries(log)?;
    let disk = OpenOptions::new().read(true).write(true).open(image)?;
    let mut wanted: Vec<(usize, u64, Vec<String>)> = Vec::new();
    for line in std::fs::read_to_string(cuts)?.lines() {
        let mut words = line.split_whitespace();
        let number = |word: Option<&str>| {
            word.and_then(|w| w.parse::<u64>().ok()).ok_or_else(|| Error::other(line.to_owned()))
        };
        let (at, seed) = (number(words.next())? as usize, number(words.next())?);
        wanted.push((at.min(entries.len()), seed, words.map(Into::into).collect()));
    }
    wanted.sort_by_key(|cut| cut.0);
    let mut stands = 0;
    for (at, seed, words) in wanted {
        let flushed = entries[..at].iter().rposition(|e| e.flags & FLUSH != 0).unwrap_or(0);
        while stands < flushed {
            disk.write_all_at(&data(log, &entries[stands])?, entries[stands].to)?;
            stands += 1;
        }
        // What was there, to be put back: the next cut may lose something else.
        let mut before = Vec::new();
        let mut state = (at as u64 * 1_000_003 + seed).wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
        let held: usize = entries[stands..at].iter().map(|e| e.length.div_ceil(PIECE)).sum();
        let mut keeps: Vec<bool> = (0..held).map(|_| seed == 0 || toss(&mut state)).collect();
        // A disk with a cache loses something.
        if seed != 0 && held > 0 && keeps.iter().all(|keep| *keep) {
            keeps[(seed % held as u64) as usize] = false;
        }
        let lost = keeps.iter().filter(|keep| !*keep).count();
        let mut keeps = keeps.into_iter();
        for entry in &entries[stands..at] {
            for (n, piece) in data(log, entry)?.chunks(PIECE).enumerate() {
                if keeps.next() != Some(true) {
                    continue;
                }
                let to = entry.to + (n * PIECE) as u64;
                let mut old = vec![0; piece.len()];
                disk.read_exact_at(&mut old, to)?;
                before.push((to, old));
                disk.write_all_at(piece, to)?;
            }
        }
        let status = Command::new(&command[0])
            .args(&command[1..])
            .args([at.to_string(), seed.to_string()])
            .args(words)
            .env("LOST", lost.to_string())
            .env("HELD", held.to_string())
            .status()?;
        for (to, old) in before.iter().rev() {
            disk.write_all_at(old, *to)?;
        }
        if !status.success() {
            return Err(Error::other(format!("{}: {status}", command[0])));
        }
    }
    Ok(())
}

fn main() -> ExitCode {
    let arguments: Vec<String> = env::args().collect();
    let done = match &arguments[..] {
        [_, log, what] if what == "marks" => File::open(log).and_then(|log| marks(&log)),
        [_, log, image, list, command @ ..] if !command.is_empty() => {
            File::open(log).and_then(|log| cuts(&log, image, list, command))
        }
        _ => Err(Error::other("replay LOG marks; replay LOG IMAGE CUTS COMMAND...")),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("replay: {error}");
            ExitCode::FAILURE
        }
    }
}
