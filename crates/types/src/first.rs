//! Runs and proofs as 0.1.0 wrote them, `quietcores.run/1` and `quietcores.proof/1`.

use crate::{
    Nanos,
    machine::Policy,
    plan::Outcome,
    run::{FIRST_SCHEMA, Idle, Measured, Run, SCHEMA, TIMERLAT},
};
use serde::{Deserialize, Deserializer};

/// Formats that name the interval; the readers of the others put a millisecond there.
const TIMED: [&str; 4] = ["cyclictest", "latmus", "csv", "gnuplot"];

/// Formats that do not name policy and priority; the readers put some there.
const SILENT: [&str; 8] = [
    "cyclictest-histogram",
    "jitterdebugger",
    "hdr",
    "csv",
    "gnuplot",
    "openmetrics",
    "rtla",
    "rtla-analysis",
];

/// What became of a step; of the sentence of 0.1.0 what it was made from.
///
/// # Errors
/// Where it is neither.
pub(crate) fn outcome<'de, D: Deserializer<'de>>(from: D) -> Result<Outcome, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Either {
        Typed(Outcome),
        Sentence(String),
    }
    Ok(match Either::deserialize(from)? {
        Either::Typed(outcome) => outcome,
        Either::Sentence(said) => of_sentence(&said),
    })
}

fn of_sentence(said: &str) -> Outcome {
    let after = |beginning: &str| said.strip_prefix(beginning).map(str::to_owned);
    match said {
        "was so already" => return Outcome::Already,
        "not there" => return Outcome::Absent,
        _ => {}
    }
    if let Some(seen) = after("verified").map(|rest| rest.trim_start_matches(": ").to_owned()) {
        return Outcome::Done { seen };
    }
    if let Some(seen) = after("accepted, in force at the next interrupt: ") {
        return Outcome::Pending { seen };
    }
    if let Some(seen) = after("accepted and not done: reads ") {
        return Outcome::Ignored { seen };
    }
    if let Some((seen, refused)) = said.split_once("; refused: ") {
        let refused = refused.split(", ").map(str::to_owned).collect();
        return Outcome::Partly { seen: seen.to_owned(), refused };
    }
    Outcome::Refused { reason: after("refused: ").unwrap_or_else(|| said.to_owned()) }
}

impl Run {
    /// Makes a run of [`FIRST_SCHEMA`] one of [`SCHEMA`]; every other one stays as it is.
    ///
    /// The first schema had no word for what is not known. In a run of another tool the readers' stand-ins
    /// (`false`, 0, a threshold that nobody named) become `None`: what remains is what the file said.
    pub fn from_first(mut self) -> Run {
        if self.schema != FIRST_SCHEMA {
            return self;
        }
        self.schema = SCHEMA.to_owned();
        match self.origin.as_ref().map(|origin| origin.format.clone()) {
            // Before idle states were a setting of ours they were left alone.
            None => self.spec.idle = self.spec.idle.or(Some(Idle::AsIs)),
            Some(format) if format == TIMERLAT => {
                self.clock = None;
                for thread in &mut self.threads {
                    thread.memory_locked = thread.memory_locked.filter(|locked| *locked);
                }
            }
            Some(format) => self.forget(&format),
        }
        self
    }

    fn forget(&mut self, format: &str) {
        let unknown = self.findings.iter().any(|finding| finding.id == "import.missed_unknown");
        if let Measured::Wakeup { interval } = &mut self.spec.probe {
            let said = TIMED.contains(&format) || *interval != Some(Nanos::from_millis(1));
            *interval = interval.filter(|_| said);
        }
        let said = |time: Option<Nanos>| time.filter(|time| *time > Nanos::ZERO);
        self.lasted = said(self.lasted);
        (self.monotonic, self.interrupted, self.clock) = (None, None, None);
        self.started = self.started.take().filter(|text| !text.is_empty());
        for thread in &mut self.threads {
            let silent = SILENT.contains(&format)
                || thread.scheduling.is_some_and(|s| s.policy == Policy::Fifo && s.priority == 0);
            thread.scheduling = thread.scheduling.filter(|_| !silent);
            (thread.allowed, thread.memory_locked) = (None, None);
            (thread.beyond, thread.stolen) = (None, None);
            thread.max_at = said(thread.max_at);
            // Kept without its time.
            thread.worst.retain(|reading| reading.at > Nanos::ZERO);
            if unknown {
                (thread.expected, thread.missed) = (None, None);
            }
        }
        let first = self.threads.first().and_then(|thread| thread.scheduling);
        let spec = &mut self.spec;
        (spec.policy, spec.priority) = (first.map(|s| s.policy), first.map(|s| s.priority));
        (spec.length, spec.threshold, spec.idle) = (None, None, None);
        (spec.bucket, spec.buckets) = (None, None);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::words;

    #[test]
    fn sentences_of_the_first_version_become_what_they_were_made_from() {
        let all = [
            Outcome::Done { seen: "0-2".into() },
            Outcome::Already,
            Outcome::Pending { seen: "0-3".into() },
            Outcome::Partly {
                seen: "3 of 5".into(),
                refused: vec!["a: no".into(), "b: no".into()],
            },
            Outcome::Refused { reason: "Input/output error".into() },
            Outcome::Ignored { seen: "f".into() },
            Outcome::Absent,
        ];
        for outcome in all {
            assert_eq!(of_sentence(&words::outcome(&outcome)), outcome);
        }
    }
}
