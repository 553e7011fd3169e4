//! Campaign files: TOML, a matrix of probes, stresses and settings.
//!
//! ```toml
//! [campaign]
//! name = "two kernels"
//! cpus = "3"                # that are measured
//! rounds = 6                # runs of each cell
//! for = "10s"               # length of a run
//!
//! [[probe]]
//! kind = "wakeup"           # or "gap"
//! interval = "200us"
//!
//! [[stress]]
//! name = "none"
//!
//! [[stress]]
//! name = "kernel"
//! run = ["kernel"]          # suites and stressors
//!
//! [[setting]]
//! name = "6.1"
//! kernel = "6.1.*"          # measured while such a kernel runs
//! shield = true             # around the measured CPUs; or chain = "living-room.toml"
//! ```

use crate::file::Reader;
use quiet_types::{
    CpuSet, FileError, Nanos,
    campaign::{Campaign, MachineSetting, NamedStress, Question, Shielding},
    machine::Policy,
    printable,
    run::{Idle, Probe, Spec},
};
use serde::Deserialize;
use std::ops::Range;
use toml::Spanned;

/// A matrix of more runs is a mistake.
const MOST: usize = 20_000;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawFile {
    campaign: Spanned<RawHead>,
    #[serde(default)]
    probe: Vec<Spanned<RawProbe>>,
    #[serde(default)]
    stress: Vec<RawStress>,
    #[serde(default)]
    setting: Vec<RawSetting>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawHead {
    name: Spanned<String>,
    cpus: Spanned<String>,
    rounds: Option<Spanned<i64>>,
    #[serde(rename = "for")]
    length: Option<Spanned<String>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawProbe {
    kind: Spanned<String>,
    name: Option<Spanned<String>>,
    interval: Option<Spanned<String>>,
    policy: Option<Spanned<String>>,
    priority: Option<Spanned<i64>>,
    threshold: Option<Spanned<String>>,
    #[serde(rename = "for")]
    length: Option<Spanned<String>>,
    #[serde(default)]
    explain: bool,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawStress {
    name: Spanned<String>,
    #[serde(default)]
    run: Vec<Spanned<String>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawSetting {
    name: Spanned<String>,
    kernel: Option<Spanned<String>>,
    shield: Option<Spanned<bool>>,
    chain: Option<Spanned<String>>,
    idle: Option<Spanned<String>>,
    #[serde(rename = "stress-cpus")]
    stress_cpus: Option<Spanned<String>>,
}

#[derive(Clone, Copy, PartialEq)]
enum Kind {
    Wakeup,
    Gap,
}

/// Reads a campaign file; `path` is what messages call it, `known` the CPUs of the machine, as far
/// as they are known.
///
/// # Errors
/// The first thing that is wrong, with its line: no TOML, an unknown key, a value out of range, a
/// name that is given twice, no probe.
pub fn parse(text: &str, path: &str, known: Option<&CpuSet>) -> Result<Campaign, FileError> {
    let reader = Reader { text, path, known };
    let file: RawFile = toml::from_str(text).map_err(|error| reader.toml(&error, remedy_of))?;
    reader.campaign(&file)
}

fn remedy_of(message: &str) -> &'static str {
    if message.starts_with("unknown field") {
        "remove it, or correct its spelling: nothing that is not understood is passed over"
    } else if message.starts_with("missing field `campaign`") {
        "a campaign begins with `[campaign]`, its name and the CPUs to measure"
    } else if message.starts_with("missing field") {
        "a campaign has `name` and `cpus`, a probe its `kind`, stresses and settings their `name`"
    } else if message.starts_with("invalid type") {
        "names, times and CPU lists are in quotes, numbers are not, `run` is a list"
    } else {
        "campaign files are TOML; see the example of `quietcores campaign --help`"
    }
}

impl Reader<'_> {
    fn campaign(&self, file: &RawFile) -> Result<Campaign, FileError> {
        let head = file.campaign.get_ref();
        let cpus = self.cpus(&head.cpus)?;
        let rounds = match &head.rounds {
            None => 8,
            Some(rounds) => self.rounds(rounds)?,
        };
        let length = self.time(head.length.as_ref(), Nanos::from_secs(10))?;
        if file.probe.is_empty() {
            return Err(self.wrong(
                file.campaign.span(),
                "the campaign measures nothing",
                "no probe follows",
                "add `[[probe]]` with `kind = \"wakeup\"` or `kind = \"gap\"`",
            ));
        }
        let mut probes: Vec<Question> = Vec::new();
        for probe in &file.probe {
            let raw = probe.get_ref();
            let question = self.probe(raw, &cpus, length)?;
            let at = raw.name.as_ref().map_or(raw.kind.span(), Spanned::span);
            self.new_name(probes.iter().map(|p| p.name.as_str()), &question.name, at, "probes")?;
            probes.push(question);
        }
        let mut stresses: Vec<NamedStress> = Vec::new();
        for raw in &file.stress {
            let name = self.name(&raw.name)?;
            self.new_name(
                stresses.iter().map(|s| s.name.as_str()),
                &name,
                raw.name.span(),
                "stresses",
            )?;
            let run = raw.run.iter().map(|word| self.name(word)).collect::<Result<_, _>>()?;
            stresses.push(NamedStress { name, run });
        }
        if stresses.is_empty() {
            stresses.push(NamedStress { name: "none".into(), run: Vec::new() });
        }
        let mut settings: Vec<MachineSetting> = Vec::new();
        for raw in &file.setting {
            let setting = self.setting(raw)?;
            let names = settings.iter().map(|s| s.name.as_str());
            self.new_name(names, &setting.name, raw.name.span(), "settings")?;
            settings.push(setting);
        }
        if settings.is_empty() {
            settings.push(MachineSetting {
                name: "as it is".into(),
                kernel: None,
                shield: Shielding::None,
                idle: Idle::Shallow,
                stress_cpus: None,
            });
        }
        let runs = rounds as usize * probes.len() * stresses.len() * settings.len();
        if runs > MOST {
            return Err(self.wrong(
                file.campaign.span(),
                &format!("the campaign would make {runs} runs"),
                "here",
                "a campaign has at most 20000; lower `rounds`, or make two of it",
            ));
        }
        Ok(Campaign { name: self.name(&head.name)?, rounds, probes, stresses, settings })
    }

    fn probe(&self, raw: &RawProbe, cpus: &CpuSet, length: Nanos) -> Result<Question, FileError> {
        let kind =
            self.one_of(&raw.kind, "a probe", &[("wakeup", Kind::Wakeup), ("gap", Kind::Gap)])?;
        let probe = match (kind, &raw.interval) {
            (Kind::Wakeup, interval) => {
                let interval_of = self.time(interval.as_ref(), Nanos::from_micros(200))?;
                let (least, most) = (Nanos::from_micros(10), Nanos::from_secs(1));
                if let Some(written) = interval
                    && !(least..=most).contains(&interval_of)
                {
                    let title = format!("an interval of {interval_of} is not measured");
                    let help = "it can be 10us to 1s, as \"200us\"";
                    return Err(self.wrong(written.span(), &title, "here", help));
                }
                Probe::wakeup(interval_of)
            }
            (Kind::Gap, None) => Probe::Gap,
            (Kind::Gap, Some(interval)) => {
                return Err(self.wrong(
                    interval.span(),
                    "the gap probe has no interval",
                    "here",
                    "remove it: that thread never sleeps",
                ));
            }
        };
        let usual = if kind == Kind::Gap { Policy::Other } else { Policy::Fifo };
        let known = [
            ("fifo", Policy::Fifo),
            ("rr", Policy::Rr),
            ("other", Policy::Other),
            ("batch", Policy::Batch),
            ("deadline", Policy::Deadline),
        ];
        let policy = match &raw.policy {
            None => usual,
            Some(word) => self.one_of(word, "a policy", &known)?,
        };
        let real_time = matches!(policy, Policy::Fifo | Policy::Rr);
        let priority = match &raw.priority {
            None => {
                if real_time {
                    90
                } else {
                    0
                }
            }
            Some(written) if real_time => self.priority(written)?,
            Some(written) => {
                return Err(self.wrong(
                    written.span(),
                    "only fifo and rr have a priority",
                    "here",
                    "remove it, or give `policy = \"fifo\"`",
                ));
            }
        };
        let threshold = Nanos::from_micros(if kind == Kind::Gap { 5 } else { 100 });
        let name = match (&raw.name, probe) {
            (Some(name), _) => self.name(name)?,
            (None, Probe::Wakeup { interval, .. }) => format!("wakeup {interval}"),
            (None, Probe::Gap) => "gap".into(),
        };
        Ok(Question {
            name,
            spec: Spec {
                probe,
                cpus: cpus.clone(),
                policy,
                priority,
                length: self.time(raw.length.as_ref(), length)?,
                threshold: self.time(raw.threshold.as_ref(), threshold)?,
                bucket: Nanos::from_micros(1),
                buckets: 1000,
                idle: Idle::Shallow,
                core: Default::default(),
            },
            explain: raw.explain,
        })
    }

    fn setting(&self, raw: &RawSetting) -> Result<MachineSetting, FileError> {
        let shield = match (&raw.shield, &raw.chain) {
            (Some(both), Some(chain)) if *both.get_ref() => {
                return Err(self.wrong(
                    chain.span(),
                    "a setting has one shield",
                    "and this is a second one",
                    "write `shield = true` for the measured CPUs, or `chain` for a chain's",
                ));
            }
            (_, Some(chain)) => Shielding::Chain(self.path(chain)?),
            (Some(shield), None) if *shield.get_ref() => Shielding::Measured,
            _ => Shielding::None,
        };
        let idle = match &raw.idle {
            None => Idle::Shallow,
            Some(word) => self.one_of(
                word,
                "a way with idle states",
                &[("shallow", Idle::Shallow), ("as-is", Idle::AsIs)],
            )?,
        };
        Ok(MachineSetting {
            name: self.name(&raw.name)?,
            kernel: raw.kernel.as_ref().map(|kernel| self.name(kernel)).transpose()?,
            shield,
            idle,
            stress_cpus: raw.stress_cpus.as_ref().map(|cpus| self.cpus(cpus)).transpose()?,
        })
    }

    fn path(&self, path: &Spanned<String>) -> Result<String, FileError> {
        let text = path.get_ref();
        if text.is_empty() || text.len() > 4000 || text.contains('\0') {
            let help = "write the path of a chain file, beside this one";
            return Err(self.wrong(path.span(), "this is not a path", "here", help));
        }
        Ok(text.clone())
    }

    fn rounds(&self, rounds: &Spanned<i64>) -> Result<u32, FileError> {
        match u32::try_from(*rounds.get_ref()) {
            Ok(count @ 1..=1000) => Ok(count),
            _ => Err(self.wrong(
                rounds.span(),
                &format!("{} rounds are not measured", rounds.get_ref()),
                "here",
                "1 to 1000; 6 and more can show a difference, 1 shows none",
            )),
        }
    }

    fn time(&self, time: Option<&Spanned<String>>, usual: Nanos) -> Result<Nanos, FileError> {
        let Some(time) = time else { return Ok(usual) };
        let wrong = |title: &str| {
            self.wrong(
                time.span(),
                title,
                "here",
                "write a number and a unit, as \"200us\" or \"10s\"",
            )
        };
        match time.get_ref().parse::<Nanos>() {
            Ok(Nanos::ZERO) => Err(wrong("no time at all is not measured")),
            Ok(length) if length > Nanos::from_secs(24 * 3600) => {
                Err(wrong("a run lasts at most 24 hours"))
            }
            Ok(length) => Ok(length),
            Err(_) => Err(wrong(&format!("`{}` is not a duration", printable(time.get_ref(), 40)))),
        }
    }

    fn new_name<'n>(
        &self,
        mut taken: impl Iterator<Item = &'n str>,
        name: &str,
        span: Range<usize>,
        what: &str,
    ) -> Result<(), FileError> {
        if taken.any(|known| known == name) {
            return Err(self.wrong(
                span,
                &format!("two {what} are called `{}`", printable(name, 60)),
                "the second one",
                "give each a `name` of its own: results tell them apart by it",
            ));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WHOLE: &str = r#"
[campaign]
name = "two kernels"
cpus = "1"
rounds = 8
for = "2s"

[[probe]]
kind = "wakeup"
interval = "1ms"
explain = true

[[probe]]
kind = "gap"
for = "500ms"

[[stress]]
name = "none"

[[stress]]
name = "kernel"
run = ["kernel", "fork=2"]

[[setting]]
name = "old"
kernel = "6.1.*"

[[setting]]
name = "new"
kernel = "6.12.*"
shield = true
stress-cpus = "0"
"#;

    #[test]
    fn the_whole_matrix_is_read_with_its_defaults() {
        let known = "0-1".parse().unwrap();
        let campaign = parse(WHOLE, "a.toml", Some(&known)).unwrap();
        assert_eq!((campaign.name.as_str(), campaign.rounds), ("two kernels", 8));
        assert_eq!(campaign.tasks(1).len(), 64);
        let [wakeup, gap] = &campaign.probes[..] else { panic!("two probes") };
        assert_eq!((wakeup.name.as_str(), wakeup.spec.priority), ("wakeup 1.00 ms", 90));
        assert_eq!(wakeup.spec.length, Nanos::from_secs(2));
        assert!(wakeup.explain && !gap.explain);
        assert_eq!((gap.spec.policy, gap.spec.length), (Policy::Other, Nanos::from_millis(500)));
        assert_eq!(campaign.stresses[1].run, ["kernel", "fork=2"]);
        assert_eq!(campaign.settings[1].shield, Shielding::Measured);
        assert_eq!(campaign.settings[1].stress_cpus, Some("0".parse().unwrap()));

        let least = "[campaign]\nname='x'\ncpus='1'\n[[probe]]\nkind='gap'\n";
        let campaign = parse(least, "a.toml", None).unwrap();
        assert_eq!((campaign.tasks(1).len(), campaign.stresses[0].run.len()), (8, 0));
    }

    #[test]
    fn what_is_wrong_is_told_with_its_line() {
        let with = |from: &str, to: &str| WHOLE.replacen(from, to, 1);
        let known = "0-1".parse().unwrap();
        for (text, line, title) in [
            (with("rounds = 8", "rounds = 0"), 5, "0 rounds are not measured"),
            (with("rounds = 8", "rounds = 1000000"), 5, "1000000 rounds are not measured"),
            (with("rounds = 8", "round = 8"), 5, "unknown field `round`"),
            (with("\"2s\"", "\"2\""), 6, "`2` is not a duration"),
            (with("\"2s\"", "\"0s\""), 6, "no time at all is not measured"),
            (with("\"1ms\"", "\"2s\""), 10, "an interval of 2.00 s is not measured"),
            (with("kind = \"gap\"", "kind = \"gaps\""), 14, "`gaps` is not a probe"),
            (
                with("kind = \"gap\"", "kind = \"gap\"\ninterval = \"1ms\""),
                15,
                "the gap probe has no",
            ),
            (with("kind = \"gap\"", "kind = \"gap\"\npriority = 9"), 15, "only fifo and rr have"),
            (with("name = \"kernel\"", "name = \"none\""), 21, "two stresses are called `none`"),
            (with("name = \"new\"", "name = \"old\""), 29, "two settings are called `old`"),
            (with("\"0\"", "\"7\""), 32, "CPU 7 is not on this machine"),
            (with("cpus = \"1\"", "cpus = \"\""), 4, "no CPU is named"),
            (with("shield = true", "shield = 1"), 31, "invalid type: integer"),
            (with("shield = true", "shield = true\nchain = 'x'"), 32, "a setting has one shield"),
            ("[campaign]\nname='x'\ncpus='1'\n".into(), 1, "the campaign measures nothing"),
            (String::new(), 1, "missing field `campaign`"),
            ("[campaign\n".into(), 1, ""),
        ] {
            let error = parse(&text, "a.toml", Some(&known)).unwrap_err();
            assert!(error.title().starts_with(title), "{error}");
            assert_eq!(error.line(), line, "{error}");
            assert!(error.to_string().contains("a.toml:"), "{error}");
        }
    }
}
