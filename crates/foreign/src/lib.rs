//! Results of other measuring tools, in and out.
//!
//! Each reader gives a [`Run`] whose [`Origin`](quiet_types::run::Origin) says what the tool said beside its readings, and
//! how fine they are. Bucket keys are converted to edges on the way: cyclictest, jitterdebugger
//! and rtla name a bucket by its lower edge, oslat by its upper one.
//!
//! Readers are lenient with the tools' known defects and strict with files that contradict
//! themselves: a header that counts other readings than its histogram holds is refused.

mod cyclictest;
mod draft;
mod hdr;
mod jitterdebugger;
mod latmus;
mod oslat;
mod plain;
mod rt_json;
mod rtla;
#[cfg(test)]
mod tests;

use quiet_types::{Run, printable};
use std::fmt;

/// A format of another tool, or one that other tools read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Format {
    /// cyclictest's summary lines, `T: 0 (18045) P:90 I:200 ...`.
    Cyclictest,
    /// cyclictest's histogram, `-h` and `-H`.
    CyclictestHistogram,
    /// cyclictest's `--json`.
    CyclictestJson,
    /// latmus's histogram, `-g`.
    Latmus,
    /// oslat's report.
    Oslat,
    /// oslat's `--json`.
    OslatJson,
    /// rtla timerlat's and osnoise's `hist`.
    Rtla,
    /// rtla's automatic analysis of a late wake-up.
    RtlaAnalysis,
    /// jitterdebugger's JSON.
    Jitterdebugger,
    /// An HdrHistogram log, V2.
    Hdr,
    /// Buckets as comma-separated values.
    Csv,
    /// Columns for gnuplot.
    Gnuplot,
    /// OpenMetrics (Prometheus) text.
    OpenMetrics,
}

/// Every format with its name on the command line.
pub const FORMATS: [(Format, &str); 13] = [
    (Format::Cyclictest, "cyclictest"),
    (Format::CyclictestHistogram, "cyclictest-histogram"),
    (Format::CyclictestJson, "cyclictest-json"),
    (Format::Latmus, "latmus"),
    (Format::Oslat, "oslat"),
    (Format::OslatJson, "oslat-json"),
    (Format::Rtla, "rtla"),
    (Format::RtlaAnalysis, "rtla-analysis"),
    (Format::Jitterdebugger, "jitterdebugger"),
    (Format::Hdr, "hdr"),
    (Format::Csv, "csv"),
    (Format::Gnuplot, "gnuplot"),
    (Format::OpenMetrics, "openmetrics"),
];

impl Format {
    /// Its name on the command line.
    pub fn name(self) -> &'static str {
        FORMATS.iter().find(|(format, _)| *format == self).map_or("", |(_, name)| name)
    }

    /// The format of this name.
    pub fn from_name(name: &str) -> Option<Format> {
        FORMATS.iter().find(|(_, known)| *known == name).map(|(format, _)| *format)
    }

    /// The format that a file of this name is most likely meant to have.
    pub fn from_file_name(name: &str) -> Option<Format> {
        let end = name.rsplit_once('.').map(|(_, end)| end.to_ascii_lowercase())?;
        Some(match end.as_str() {
            "csv" => Format::Csv,
            "hlog" | "hgrm" => Format::Hdr,
            "dat" | "gnuplot" => Format::Gnuplot,
            "prom" | "om" => Format::OpenMetrics,
            "latmus" => Format::Latmus,
            _ => return None,
        })
    }
}

impl fmt::Display for Format {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// Why a foreign file could not be read, or a run not be written, with the line where there is one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ForeignError {
    line: Option<usize>,
    why: String,
}

impl ForeignError {
    fn at(line: usize, why: impl Into<String>) -> ForeignError {
        ForeignError { line: Some(line), why: why.into() }
    }

    fn whole(why: impl Into<String>) -> ForeignError {
        ForeignError { line: None, why: why.into() }
    }

    /// The line, from 1, where it is one line that is wrong.
    pub fn line(&self) -> Option<usize> {
        self.line
    }
}

impl fmt::Display for ForeignError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let why = printable(&self.why, 400);
        match self.line {
            Some(line) => write!(f, "line {line}: {why}"),
            None => f.write_str(&why),
        }
    }
}

impl std::error::Error for ForeignError {}

type Result<T> = std::result::Result<T, ForeignError>;

/// A run in a foreign format, and what that format has no words for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ForeignFile {
    /// The file.
    pub text: String,
    /// What of the run is not in it, a sentence each.
    pub lost: Vec<String>,
}

/// What a file seems to be, by its content.
pub fn detect(text: &str) -> Option<Format> {
    let has = |word: &str| text.contains(word);
    if text.trim_start().starts_with('{') {
        let timed = has("\"duration\"") && has("\"freq\"");
        return if has("rt_test_version") || has("\"cmdline") || timed {
            Some(if timed { Format::OslatJson } else { Format::CyclictestJson })
        } else if has("\"cpu\"") && has("\"histogram\"") {
            Some(Format::Jitterdebugger)
        } else {
            None
        };
    }
    let starts = |word: &str| text.lines().any(|line| line.trim_start().starts_with(word));
    Some(match () {
        () if has("# sampling period:") && has("# sample count:") => Format::Latmus,
        () if has("# RTLA timerlat histogram") || has("# RTLA osnoise histogram") => Format::Rtla,
        () if starts("IRQ handler delay:") || starts("Thread latency:") => Format::RtlaAnalysis,
        () if has("Counter Freq:") || starts("oslat V") => Format::Oslat,
        () if has("# Histogram") && has("# Min Latencies:") => Format::CyclictestHistogram,
        () if starts("T:") && has("Min:") && has("Max:") => Format::Cyclictest,
        () if has("HISTFAAA") => Format::Hdr,
        () if starts(plain::CSV_HEAD) => Format::Csv,
        () if starts(plain::GNUPLOT_HEAD) => Format::Gnuplot,
        () if starts("# EOF") && has("_bucket{") => Format::OpenMetrics,
        () => return None,
    })
}

/// Reads a file of this format.
///
/// # Errors
/// When it is not in that format, is cut short, or contradicts itself; with the line.
pub fn read(text: &str, format: Format) -> Result<Run> {
    match format {
        Format::Cyclictest => cyclictest::read_summary(text),
        Format::CyclictestHistogram => cyclictest::read_histogram(text),
        Format::CyclictestJson => rt_json::read(text, Format::CyclictestJson),
        Format::Latmus => latmus::read(text),
        Format::Oslat => oslat::read(text),
        Format::OslatJson => rt_json::read(text, Format::OslatJson),
        Format::Rtla => rtla::read(text),
        Format::RtlaAnalysis => rtla::read_analysis(text),
        Format::Jitterdebugger => jitterdebugger::read(text),
        Format::Hdr => hdr::read(text),
        Format::Csv => plain::read_csv(text),
        Format::Gnuplot => plain::read_gnuplot(text),
        Format::OpenMetrics => plain::read_open_metrics(text),
    }
}

/// Writes a run in this format.
///
/// # Errors
/// When the run has nothing that the format could hold.
pub fn write(run: &Run, format: Format) -> Result<ForeignFile> {
    if run.threads.is_empty() {
        return Err(ForeignError::whole(
            "the run has no measuring thread, so there is nothing to write",
        ));
    }
    let text = match format {
        Format::Cyclictest => cyclictest::write_summary(run)?,
        Format::CyclictestHistogram => cyclictest::write_histogram(run),
        Format::CyclictestJson => rt_json::write(run, Format::CyclictestJson),
        Format::Latmus => latmus::write(run)?,
        Format::Oslat => oslat::write(run),
        Format::OslatJson => rt_json::write(run, Format::OslatJson),
        Format::Rtla => rtla::write(run),
        Format::RtlaAnalysis => rtla::write_analysis(run)?,
        Format::Jitterdebugger => jitterdebugger::write(run),
        Format::Hdr => hdr::write(run)?,
        Format::Csv => plain::write_csv(run),
        Format::Gnuplot => plain::write_gnuplot(run),
        Format::OpenMetrics => plain::write_open_metrics(run),
    };
    Ok(ForeignFile { text, lost: lost(run, format) })
}

fn lost(run: &Run, format: Format) -> Vec<String> {
    let mut lost = Vec::new();
    let counts_missed = matches!(format, Format::Csv | Format::OpenMetrics | Format::Latmus);
    if let Some(missed) = run.missed().filter(|missed| *missed > 0 && !counts_missed) {
        lost.push(format!(
            "{missed} missed periods: {format} has no word for them, so its figures are of the readings \
             that were taken"
        ));
    }
    if run.origin.as_ref().is_none_or(|origin| origin.format != format.name()) {
        let what = "the state of the machine, the findings, the worst readings with their times";
        lost.push(format!("{what}: only the run's own JSON holds them"));
    }
    lost
}
