//! Other engines, each a driver of its own: a program that is called with `FILE BLOCK INPUT PASSES [OUTPUT]`.
//!
//! It plays INPUT (f32, little endian) through what it makes of FILE, block after block, PASSES times, and prints the
//! mean (over the blocks, of the least over the passes) and the worst block, in ns a sample. What it made in the first
//! pass goes to OUTPUT. A driver that fails is an error in the table, and so is one that plays something else.

use std::{fs, path::Path, process::Command};

/// An engine to compare with.
pub struct Peer {
    pub name: String,
    program: String,
}

/// What a peer made, against what we made.
pub struct Heard {
    /// Energy of the difference over that of ours.
    pub off: f64,
    /// Samples that it is later.
    pub late: usize,
}

/// More than this is another sound: the quickest tanh that any of them has makes 0.01.
const OTHER: f64 = 0.05;
/// No engine is later than this.
const LATEST: usize = 128;

/// Those of the environment's `NAME=PROGRAM,...`.
pub fn of(variable: &str) -> Vec<Peer> {
    let list = std::env::var(variable).unwrap_or_default();
    let parts = list.split(',').filter(|one| !one.is_empty());
    parts
        .map(|one| {
            let (name, program) = one.split_once('=').expect("NAME=PROGRAM,...");
            Peer { name: name.to_owned(), program: program.to_owned() }
        })
        .collect()
}

impl Peer {
    fn run(
        &self,
        (file, block, input): (&Path, usize, &Path),
        passes: usize,
        more: Option<&Path>,
    ) -> Result<(f64, f64), String> {
        let mut command = Command::new(&self.program);
        command.arg(file).arg(block.to_string()).arg(input).arg(passes.to_string());
        let out = command.args(more).output().map_err(|error| format!("did not start: {error}"))?;
        if !out.status.success() {
            let said = String::from_utf8_lossy(&out.stderr);
            let last = said.lines().rfind(|line| !line.trim().is_empty()).unwrap_or("");
            // Where it lies on this machine is nobody's business.
            let name = file.file_name().unwrap_or_default().to_string_lossy();
            let last = last.replace(&*file.to_string_lossy(), &name);
            return Err(format!("{}: {last}", out.status));
        }
        let text = String::from_utf8_lossy(&out.stdout);
        let numbers = text.lines().last().map(str::split_whitespace).into_iter().flatten();
        let numbers: Vec<f64> = numbers.map_while(|word| word.parse().ok()).collect();
        match numbers[..] {
            [mean, worst, ..] if mean > 0.0 => Ok((mean, worst)),
            _ => Err(format!("printed no figures but {text:?}")),
        }
    }

    /// Plays it once and compares it with `ours`.
    pub fn check(&self, what: (&Path, usize, &Path), ours: &[f32]) -> Result<Heard, String> {
        let made = std::env::temp_dir().join(format!("quiet-peer-{}.f32", std::process::id()));
        let ran = self.run(what, 1, Some(&made));
        let theirs = read(&made);
        let _ = fs::remove_file(&made);
        ran?;
        let theirs = theirs.map_err(|error| format!("wrote no output: {error}"))?;
        if theirs.len() < ours.len() / 2 {
            return Err(format!("wrote {} samples of {}", theirs.len(), ours.len()));
        }
        let heard = (0..=LATEST)
            .map(|late| Heard { off: off(ours, &theirs[late..]), late })
            .min_by(|a, b| a.off.total_cmp(&b.off))
            .expect("some lateness");
        if heard.off < OTHER {
            Ok(heard)
        } else {
            Err(format!(
                "plays something else: its difference to ours has {:.2} of the energy",
                heard.off
            ))
        }
    }

    /// Mean and worst, ns a sample.
    pub fn time(&self, what: (&Path, usize, &Path), passes: usize) -> Result<(f64, f64), String> {
        self.run(what, passes, None)
    }
}

/// Numbers of a file.
pub fn read(path: &Path) -> std::io::Result<Vec<f32>> {
    let bytes = fs::read(path)?;
    Ok(bytes.as_chunks::<4>().0.iter().map(|b| f32::from_le_bytes(*b)).collect())
}

/// Energy of the difference over that of the first; no number counts as everything.
fn off(ours: &[f32], theirs: &[f32]) -> f64 {
    let square = |x: f64| x * x;
    let (mut all, mut apart) = (0.0, 0.0);
    for (&a, &b) in ours.iter().zip(theirs) {
        all += square(a.into());
        apart += square(f64::from(a) - f64::from(b));
    }
    if apart.is_finite() { apart / all.max(f64::MIN_POSITIVE) } else { f64::INFINITY }
}

/// The middle one, or the mean of the two.
pub fn median(of: &[f64]) -> f64 {
    let mut of = of.to_vec();
    of.sort_by(f64::total_cmp);
    let (low, high) = (of.len().saturating_sub(1) / 2, of.len() / 2);
    of.get(low).zip(of.get(high)).map_or(f64::NAN, |(a, b)| (a + b) / 2.0)
}
