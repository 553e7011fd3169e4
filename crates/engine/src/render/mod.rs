//! Files through a strip: faster than real time, many at once, each written whole or not at all.

mod convert;
mod read;
mod write;

pub use crate::files::Files;
pub use quiet_dsp::strip::{Description, KINDS, camilla};
pub use write::WavFormat;

use crate::{Error, ErrorKind, ReadyStrip, Result, SecondThread, Ticks, two_cpus};
use convert::Convert;
use quiet_dsp::{
    Block, ProcessSpec,
    simd::Denormals,
    strip::{FileSource, Strip},
};
use quiet_types::{
    Finding, Frames, SampleRate, Severity,
    render::{FileOutcome, Rendered, Sound},
};
use read::Reader;
#[cfg(fuzzing)]
pub use read::fuzzed;
use std::{
    path::PathBuf,
    sync::{
        Mutex,
        atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering},
    },
    time::Instant,
};
use write::Writer;

/// Frames that are read at once.
const CHUNK: usize = 4096;
/// A tail is over when nothing has been further than this from rest for a while.
const SILENT: f32 = 1e-6;
/// Frames of silence after which a new strip is taken to rest: an amp may hum, or not rest at 0.
const RESTING: usize = 4096;
/// No tail is followed for longer than this beyond what the stages say of themselves, s.
const LONGEST_TAIL: f64 = 1.0;

/// A file, and where it goes.
#[derive(Clone, Debug)]
pub struct Job {
    /// WAV or FLAC.
    pub from: PathBuf,
    /// WAV.
    pub to: PathBuf,
}

/// How files are rendered.
#[derive(Clone, Debug)]
pub struct Order {
    /// The strip.
    pub strip: Description,
    /// Where the strip's own files come from.
    pub files: Files,
    /// Samples that are written.
    pub format: WavFormat,
    /// The rate at which the strip runs; files of another are converted, and back. None: each
    /// runs at its own.
    pub rate: Option<u32>,
    /// Channels of the input that are used, counted from 0; none: all.
    pub channels: Option<Vec<usize>>,
    /// Seconds of tail; none: until it is silent.
    pub tail: Option<f64>,
    /// Frames of a block.
    pub block: Frames,
    /// Writes over what is there.
    pub force: bool,
    /// Passes over what is there.
    pub skip: bool,
    /// Files at once.
    pub threads: usize,
    /// Each file's strip is cut in two, for two CPUs.
    pub halved: bool,
}

/// How far it has got, and whether to end.
#[derive(Debug, Default)]
pub struct RenderProgress {
    /// Frames done, of all files.
    pub frames: AtomicU64,
    /// Frames in all, as far as headers tell.
    pub total: AtomicU64,
    /// Files done.
    pub files: AtomicUsize,
    /// Raise it, and files in work are left unwritten.
    pub stop: AtomicBool,
}

/// Renders every file; results stand in the order of `jobs`.
pub fn render(jobs: &[Job], order: &Order, progress: &RenderProgress) -> Vec<Rendered> {
    for job in jobs {
        if let Ok(Some(frames)) = Reader::open(&job.from).map(|reader| reader.frames) {
            progress.total.fetch_add(frames, Ordering::Relaxed);
        }
    }
    let next = AtomicUsize::new(0);
    let done: Mutex<Vec<Option<Rendered>>> = Mutex::new(vec![None; jobs.len()]);
    std::thread::scope(|scope| {
        for _ in 0..order.threads.clamp(1, jobs.len().max(1)) {
            scope.spawn(|| {
                while let Some((at, job)) =
                    Some(next.fetch_add(1, Ordering::Relaxed)).and_then(|n| Some((n, jobs.get(n)?)))
                {
                    let rendered = one(job, order, progress);
                    progress.files.fetch_add(1, Ordering::Relaxed);
                    if let Ok(mut done) = done.lock() {
                        done[at] = Some(rendered);
                    }
                }
            });
        }
    });
    done.into_inner().unwrap_or_default().into_iter().flatten().collect()
}

fn one(job: &Job, order: &Order, progress: &RenderProgress) -> Rendered {
    let shown = |path: &PathBuf| quiet_types::printable(&path.display().to_string(), 1000);
    let mut rendered = Rendered {
        from: shown(&job.from),
        to: shown(&job.to),
        outcome: FileOutcome::Done,
        error: None,
        sound: None,
        findings: Vec::new(),
    };
    // A link that leads nowhere is there, too.
    let there = std::fs::symlink_metadata(&job.to).is_ok();
    if there && order.skip {
        rendered.outcome = FileOutcome::Skipped;
        return rendered;
    }
    let made = if there && !order.force {
        let to = &rendered.to;
        Err(Error::new(format!("{to} is there already: --force writes over it, --skip keeps it")))
    } else {
        sound(job, order, progress, &mut rendered.findings)
    };
    match made {
        Ok(sound) => rendered.sound = Some(sound),
        Err(error) => {
            rendered.outcome = FileOutcome::Failed;
            rendered.error = Some(error.to_string());
        }
    }
    rendered
}

/// A strip in its blocks, and what is still to come out of it.
struct Running {
    strip: ReadyStrip,
    width: usize,
    outputs: usize,
    work: Vec<f32>,
    block: usize,
    skip: usize,
    /// Least and greatest sample of each output at rest.
    rest: Vec<(f32, f32)>,
    /// Frames since the output last left its rest.
    silent: u64,
    /// When the tail is over; none while there is input, or where the tail's length is given.
    ending: Option<Ending>,
}

/// When a tail is over: told frame by frame, so that the length of the blocks does not tell.
struct Ending {
    /// Frames of tail so far.
    fed: u64,
    /// Before so many it is not over.
    enough: u64,
    /// Frames at rest that end it.
    quiet: u64,
    over: bool,
}

impl Running {
    fn new(mut strip: ReadyStrip, width: usize, outputs: usize, block: usize) -> Running {
        let mut work = vec![0.0; width * block];
        let mut rest = vec![(0.0f32, 0.0f32); outputs];
        let _flushed = Denormals::flush();
        let mut left = RESTING;
        while left > 0 {
            let count = left.min(block);
            left -= count;
            let work = &mut work[..width * count];
            work.fill(0.0);
            strip.process(&mut Block::new(work, width));
            for (rest, channel) in rest.iter_mut().zip(work.chunks_exact(count)) {
                rest.0 = channel.iter().copied().fold(rest.0, f32::min);
                rest.1 = channel.iter().copied().fold(rest.1, f32::max);
            }
        }
        strip.reset();
        let skip = strip.latency().0 as usize;
        Running { strip, width, outputs, work, block, skip, rest, silent: 0, ending: None }
    }

    /// Whether the tail is over.
    fn over(&self) -> bool {
        self.ending.as_ref().is_some_and(|end| end.over)
    }

    /// Plays planar `input` and hands on the output, its latency taken out.
    fn push(
        &mut self,
        input: &[&[f32]],
        sink: &mut dyn FnMut(&[&[f32]]) -> Result<()>,
    ) -> Result<()> {
        let frames = input.first().map_or(0, |channel| channel.len());
        let (width, outputs) = (self.width, self.outputs);
        let mut from = 0;
        while from < frames {
            let count = (frames - from).min(self.block);
            let work = &mut self.work[..width * count];
            for (to, channel) in work.chunks_exact_mut(count).zip(input) {
                to.copy_from_slice(&channel[from..][..count]);
            }
            {
                let _flushed = Denormals::flush();
                self.strip.process(&mut Block::new(work, width));
            }
            let kept = follow(work, count, &self.rest, &mut self.silent, &mut self.ending);
            let skipped = self.skip.min(kept);
            self.skip -= skipped;
            if skipped < kept {
                let parts: Vec<&[f32]> =
                    work.chunks_exact(count).take(outputs).map(|c| &c[skipped..kept]).collect();
                sink(&parts)?;
            }
            from += count;
            if self.over() {
                break;
            }
        }
        Ok(())
    }
}

/// Counts how long `work` has been at rest; says how many of its frames come before the end of the tail.
fn follow(
    work: &[f32],
    frames: usize,
    rest: &[(f32, f32)],
    silent: &mut u64,
    ending: &mut Option<Ending>,
) -> usize {
    for frame in 0..frames {
        let loud = work.chunks_exact(frames).zip(rest).any(|(channel, rest)| {
            channel[frame] < rest.0 - SILENT || channel[frame] > rest.1 + SILENT
        });
        *silent = if loud { 0 } else { *silent + 1 };
        if let Some(end) = ending {
            end.fed += 1;
            if end.fed >= end.enough && *silent > end.quiet {
                end.over = true;
                return frame + 1;
            }
        }
    }
    frames
}

fn sound(
    job: &Job,
    order: &Order,
    progress: &RenderProgress,
    findings: &mut Vec<Finding>,
) -> Result<Sound> {
    let begun = Instant::now();
    let mut reader = Reader::open(&job.from)?;
    let chosen = chosen(job, order, &reader)?;
    let (rate, strip_rate) = (reader.rate, order.rate.unwrap_or(reader.rate));
    let mut files: Box<dyn FileSource> = Box::new(order.files.clone());
    let strip = order
        .strip
        .prepare(chosen.len(), SampleRate(strip_rate), order.block, &mut *files)
        .map_err(Error::strip)?;
    for note in strip.notes() {
        findings.push(finding("render.file", note.clone()));
    }
    if rate != strip_rate {
        let says = format!("converted from {rate} Hz to {strip_rate} Hz and back");
        findings.push(finding("render.rate", says));
    }
    let (outputs, width, own_tail) = (strip.outputs(), strip.width(), strip.tail());
    let setting = ProcessSpec { rate: SampleRate(strip_rate), channels: width, block: order.block };
    // Dropped after the strip.
    let (strip, _second) = placed(strip, setting, order.halved, findings)?;
    let latency = strip.latency();
    let block = order.block.0.max(1) as usize;
    let mut running = Running::new(strip, width, outputs, block);
    let mut into = Convert::new(rate, strip_rate, chosen.len())?;
    let mut back = Convert::new(strip_rate, rate, outputs)?;
    let mut writer = Writer::create(&job.to, order.force, order.format, outputs, rate)?;
    let mut read: Vec<Vec<f32>> = vec![Vec::new(); reader.channels];
    let (mut frames, mut written, mut not_finite) = (0u64, 0u64, 0u64);
    // The input ends here; what is written beyond it is tail.
    let mut most = u64::MAX;
    let mut write = |parts: &[&[f32]], most: u64, written: &mut u64| {
        let count = (parts[0].len() as u64).min(most - *written) as usize;
        *written += count as u64;
        let parts: Vec<&[f32]> = parts.iter().map(|part| &part[..count]).collect();
        writer.write(&parts)
    };
    loop {
        if progress.stop.load(Ordering::Relaxed) {
            return Err(Error::of(ErrorKind::Stopped, "it was interrupted; nothing is written"));
        }
        read.iter_mut().for_each(Vec::clear);
        let count = reader.read(&mut read, CHUNK)?;
        if count == 0 {
            break;
        }
        frames += count as u64;
        not_finite +=
            chosen.iter().flat_map(|n| &read[*n]).filter(|x| !x.is_finite()).count() as u64;
        progress.frames.fetch_add(count as u64, Ordering::Relaxed);
        let parts: Vec<&[f32]> = chosen.iter().map(|channel| &read[*channel][..]).collect();
        into.push(&parts, &mut |parts| {
            running.push(parts, &mut |parts| {
                back.push(parts, &mut |parts| write(parts, most, &mut written))
            })
        })?;
    }
    into.end(&mut |parts| {
        running.push(parts, &mut |parts| {
            back.push(parts, &mut |parts| write(parts, most, &mut written))
        })
    })?;
    // Silence in, until what is late and what rings is out.
    let Silence { mut left, enough } = Silence::after(order, latency, own_tail, strip_rate);
    if let Some(tail) = order.tail {
        most = frames + (tail * f64::from(rate)).round() as u64;
    }
    let zeros = vec![0.0; block];
    let parts: Vec<&[f32]> = chosen.iter().map(|_| &zeros[..]).collect();
    let quiet = u64::from(strip_rate) / 20;
    running.ending = order.tail.is_none().then_some(Ending { fed: 0, enough, quiet, over: false });
    while left > 0 && !running.over() {
        let count = left.min(block as u64);
        let parts: Vec<&[f32]> = parts.iter().map(|part| &part[..count as usize]).collect();
        running.push(&parts, &mut |parts| {
            back.push(parts, &mut |parts| write(parts, most, &mut written))
        })?;
        left -= count;
    }
    back.end(&mut |parts| write(parts, most, &mut written))?;
    let (peak, clipped) = (writer.peak, writer.clipped);
    writer.finish()?;
    findings.extend((not_finite > 0).then(|| no_numbers(not_finite)));
    findings.extend((clipped > 0).then(|| clipping(clipped, peak, order.format)));
    let seconds = begun.elapsed().as_secs_f64();
    Ok(Sound {
        rate,
        strip_rate,
        channels: [chosen.len() as u32, outputs as u32],
        frames,
        tail: written.saturating_sub(frames),
        latency: latency.0,
        peak: (peak > 0.0).then(|| 20.0 * f64::from(peak).log10()),
        clipped,
        not_finite,
        seconds,
        speed: frames as f64 / f64::from(rate) / seconds,
    })
}

/// The strip as it is, or cut in two, with the second one's thread.
fn placed(
    strip: Strip,
    setting: ProcessSpec,
    halved: bool,
    findings: &mut Vec<Finding>,
) -> Result<(ReadyStrip, Option<SecondThread>)> {
    if !halved {
        return Ok((Box::new(strip), None));
    }
    let stages = strip.stages().count();
    let (cutter, bench) = two_cpus(Ticks::plain(), true);
    let cut = cutter.cut(strip, setting)?;
    findings.push(finding("render.halves", cut.note(stages, setting)));
    Ok((cut.strip, Some(SecondThread::anywhere(bench)?)))
}

/// Frames of silence that are put in behind the sound.
struct Silence {
    /// At most.
    left: u64,
    /// Before it may end because nothing rings any more.
    enough: u64,
}

impl Silence {
    fn after(order: &Order, latency: Frames, own_tail: Frames, strip_rate: u32) -> Silence {
        let own = f64::from(own_tail.0) / f64::from(strip_rate);
        let tail = order.tail.unwrap_or(own + LONGEST_TAIL);
        let left = u64::from(latency.0) + (tail * f64::from(strip_rate)).ceil() as u64;
        let enough = u64::from(latency.0) + u64::from(own_tail.0) + u64::from(strip_rate) / 20;
        Silence { left, enough }
    }
}

/// The input's channels that are played.
fn chosen(job: &Job, order: &Order, reader: &Reader) -> Result<Vec<usize>> {
    let chosen: Vec<usize> = match &order.channels {
        Some(chosen) => chosen.clone(),
        None => (0..reader.channels).collect(),
    };
    if let Some(missing) = chosen.iter().find(|channel| **channel >= reader.channels) {
        return Err(Error::new(format!(
            "{} has {} channels, and none with number {missing} (counted from 0)",
            job.from.display(),
            reader.channels
        )));
    }
    Ok(chosen)
}

fn finding(id: &str, says: String) -> Finding {
    Finding::new(Severity::Note, id, says)
}

fn no_numbers(count: u64) -> Finding {
    let says = format!("{count} samples of the input are no finite numbers: played as silence");
    Finding::new(Severity::Warning, "render.not-finite", says)
        .remedy("look at what wrote the input: NaN and infinities are a fault of it")
}

fn clipping(clipped: u64, peak: f32, format: WavFormat) -> Finding {
    let over = 20.0 * peak.log10();
    let what = match format {
        WavFormat::Float => "kept, but will be cut by whatever plays them",
        WavFormat::Whole(_) => "cut to full scale",
    };
    let says = format!("{clipped} samples are above full scale, by up to {over:.1} dB: {what}");
    Finding::new(Severity::Warning, "render.clipped", says)
        .remedy("turn the strip down, or end it with a limiter")
}
