//! What a member does now and then: what its store keeps, and what its chains played, becomes records in its outbox.

use crate::{
    Around, Error, MemberDir, Membership, Outbox, Result, SecretKey,
    make::{self, LiveMinutes, moment},
    outbox::lock,
};
use quiet_linux::files::{self, Replace};
use quiet_store::{KeptKind, Store};
use quiet_types::{Histogram, Nanos, farm::FarmKind, live::LiveSound, run::Host};
use std::{collections::BTreeMap, fs::File, time::Duration};

/// How this machine is now.
#[derive(Clone, Debug, Default)]
pub struct NowHere {
    /// ms since 1970.
    pub at: i64,
    /// Its name, kernel and processor.
    pub host: Host,
    /// What is not kept with runs.
    pub around: Around,
    /// The shield in a sentence; `None` where it cannot be seen.
    pub shield: Option<String>,
    /// Chains that play.
    pub sounds: Vec<LiveSound>,
}

/// What a pass did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Passed {
    /// Records that wait now and did not before.
    pub put: u64,
    /// What could not be read or is too large, a sentence each.
    pub left_out: Vec<String>,
    /// Records that were added up or dropped.
    pub thinned: crate::Thinned,
}

/// A member that looks at its machine again and again.
#[derive(Debug, Default)]
pub struct Agent {
    before: BTreeMap<String, (i64, LiveSound)>,
    broken: std::collections::BTreeSet<String>,
    alone: Option<File>,
}

impl Agent {
    /// Keeps others from following until this one ends: two would each count the same minutes of a playing chain.
    ///
    /// # Errors
    /// When another one follows, or the lock cannot be made.
    pub fn follow(&mut self, dir: &MemberDir) -> Result<()> {
        if self.alone.is_none() {
            let path = dir.path().join("following");
            let why =
                "another `quietcores farm send --follow` is at work for this store; end it first";
            self.alone = Some(lock(&path, Duration::ZERO, why)?);
        }
        Ok(())
    }

    /// Puts what is new into the outbox, oldest first, and thins that where it is too large.
    ///
    /// # Errors
    /// When the store cannot be listed or the outbox cannot be written.
    pub fn pass(
        &mut self,
        store: &Store,
        dir: &MemberDir,
        member: &Membership,
        key: &SecretKey,
        outbox: &mut Outbox,
        here: &NowHere,
    ) -> Result<Passed> {
        let mut passed = Passed::default();
        let put = self
            .kept(store, member, key, outbox, here, &mut passed)
            .and_then(|()| shield(dir, member, key, outbox, here, &mut passed))
            .and_then(|()| match member.live {
                true => self.played(member, key, outbox, here, &mut passed),
                false => Ok(()),
            });
        // Where nothing could be put since the disk is full, room is made all the same.
        passed.thinned = outbox.thin(member.bound, key)?;
        put.map(|()| passed)
    }

    fn kept(
        &mut self,
        store: &Store,
        member: &Membership,
        key: &SecretKey,
        outbox: &mut Outbox,
        here: &NowHere,
        passed: &mut Passed,
    ) -> Result<()> {
        let discretion = member.discretion();
        for entry in store.list()? {
            let kind = match entry.kind {
                KeptKind::Run => FarmKind::Run,
                KeptKind::Proof => FarmKind::Proof,
                KeptKind::Tune => FarmKind::Tune,
                KeptKind::Buffers | KeptKind::RoundTrip => continue,
            };
            if outbox.knows(kind, &entry.id)
                || self.broken.contains(&entry.id)
                || too_old(&entry.id, member.since)
            {
                continue;
            }
            let record = match quiet_store::load(&entry.path) {
                Ok(kept) => make::record(&kept, &here.around, &discretion),
                Err(error) => {
                    self.leave_out(&entry.id, &error.into(), passed);
                    continue;
                }
            };
            // A checkpoint is looked at again when its run has ended.
            let Some(record) = record else { continue };
            match outbox.put(&record, key) {
                Ok(new) => passed.put += u64::from(new),
                Err(error) if error.is_of_the_record() => {
                    self.leave_out(&entry.id, &error, passed);
                }
                // A full disk, say: the same record comes first the next time.
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    fn leave_out(&mut self, id: &str, why: &Error, passed: &mut Passed) {
        self.broken.insert(id.to_owned());
        passed.left_out.push(why.to_string());
    }

    fn played(
        &mut self,
        member: &Membership,
        key: &SecretKey,
        outbox: &mut Outbox,
        here: &NowHere,
        passed: &mut Passed,
    ) -> Result<()> {
        let discretion = member.discretion();
        for sound in &here.sounds {
            // The first look only says where counting begins.
            let before = self.before.get(&sound.name);
            let minutes = before.and_then(|(at, before)| minutes(*at, before, here.at, sound));
            if let Some(minutes) = minutes {
                let record = make::of_live(&here.host, minutes, &here.around, &discretion);
                // What cannot be put is counted into the next record.
                passed.put += u64::from(outbox.put(&record, key)?);
            }
            self.before.insert(sound.name.clone(), (here.at, sound.clone()));
        }
        self.before.retain(|name, _| here.sounds.iter().any(|sound| sound.name == *name));
        Ok(())
    }
}

/// Ids begin with the time of their start, as `20261121T213000Z`.
fn too_old(id: &str, since: i64) -> bool {
    let digits: String = id.chars().take(16).filter(char::is_ascii_digit).collect();
    let Some((day, time)) = digits.split_at_checked(8).filter(|(_, time)| time.len() == 6) else {
        return false;
    };
    let part = |text: &str, at: usize| text.get(at..at + 2).unwrap_or("00").to_owned();
    let text = format!(
        "{}-{}-{}T{}:{}:{}Z",
        &day[..4],
        part(day, 4),
        part(day, 6),
        part(time, 0),
        part(time, 2),
        part(time, 4)
    );
    let at = moment(&text);
    // A second, since ids know no finer time.
    at > 0 && at + 999 < since
}

/// A record where the shield is not as it was said last.
fn shield(
    dir: &MemberDir,
    member: &Membership,
    key: &SecretKey,
    outbox: &mut Outbox,
    here: &NowHere,
    passed: &mut Passed,
) -> Result<()> {
    let Some(says) = &here.shield else { return Ok(()) };
    let path = dir.path().join("shield");
    if files::read_text(&path, 4096).unwrap_or_default() == *says {
        return Ok(());
    }
    let record = make::of_shield(&here.host, here.at, says, &here.around, &member.discretion());
    passed.put += u64::from(outbox.put(&record, key)?);
    let done = files::write_whole(&path, says.as_bytes(), Replace::Always);
    done.map_err(|error| Error::io("write", &path, &error))
}

/// What an engine counted between two looks; of one that was started anew, since then.
fn minutes(at: i64, before: &LiveSound, now: i64, sound: &LiveSound) -> Option<LiveMinutes> {
    let (old, new) = (&before.status, &sound.status);
    let anew = new.blocks < old.blocks || new.rate != old.rate || new.period != old.period;
    let was = |place: usize| {
        let known = if anew { None } else { old.load.histogram.get(place) };
        known.copied().unwrap_or(0)
    };
    let period = u64::from(new.period) * 1_000_000_000 / u64::from(new.rate.max(1));
    let edge = |percent: usize| percent as u64 * period / 100;
    let counts: Vec<(usize, u64)> = new
        .load
        .histogram
        .iter()
        .enumerate()
        .map(|(place, n)| (place, n.saturating_sub(was(place))))
        .filter(|(_, n)| *n > 0)
        .collect();
    let (first, last) = (counts.first()?.0, counts.last()?.0);
    // The worst block is known to the nanosecond where it is of these minutes.
    let worst = new.load.worst.0;
    let of_now = anew || worst > old.load.worst.0;
    let max =
        if of_now { worst.max(edge(last)) } else { edge(last + 1).saturating_sub(1).min(worst) };
    let max = Nanos(max.max(edge(last)));
    let ranges = counts.iter().map(|(place, n)| {
        // The last place holds whatever took longer.
        let upper = if *place == last { edge(place + 1).max(max.0 + 1) } else { edge(place + 1) };
        (edge(*place), upper, *n)
    });
    let sum = counts.iter().map(|(place, n)| (edge(*place) + period / 200).saturating_mul(*n));
    let sum = sum.fold(0u64, u64::saturating_add);
    let readings =
        Histogram::from_ranges(ranges, 0, Some(Nanos(edge(first))), Some(max), Nanos(sum));
    Some(LiveMinutes {
        at,
        lasted: Nanos(u64::try_from(now - at).unwrap_or(0).saturating_mul(1_000_000)),
        period: Nanos(period),
        chain: sound.name.trim_end_matches(".sock").to_owned(),
        readings: settled(readings),
        missed: new.missed.saturating_sub(if anew { 0 } else { old.missed }),
    })
}

/// With extremes that lie in its own first and last bucket.
fn settled(mut all: Histogram) -> Histogram {
    use quiet_types::histogram::upper_of;
    if let (Some(first), Some(last)) = (all.buckets.first().copied(), all.buckets.last().copied()) {
        let within = |edge: Nanos, bucket: u64| edge.0.clamp(bucket, upper_of(bucket) - 1);
        all.min = all.min.map(|min| Nanos(within(min, first.0)));
        if all.over == 0 {
            all.max = all.max.map(|max| Nanos(within(max, last.0)));
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use quiet_types::play::{Load, PlayStatus};

    fn sound(histogram: &[u64], worst: u64) -> LiveSound {
        let status = PlayStatus {
            rate: 48_000,
            period: 48,
            buffer: 96,
            mode: "sleep".into(),
            cpus: "1".into(),
            real_time: true,
            shielded: true,
            blocks: histogram.iter().sum(),
            xruns: 0,
            missed: histogram.len() as u64,
            dropped_events: 0,
            broken: 0,
            cured: 0,
            bypassed: false,
            gone: 0,
            load: Load {
                mean: 1.0,
                p50: 1,
                p99: 1,
                worst: Nanos(worst),
                worst_at: Nanos(1),
                histogram: histogram.to_vec(),
            },
            between: Nanos(1),
            waiting: 0,
            levels: Vec::new(),
            ratio: None,
        };
        LiveSound {
            name: "guitar.sock".into(),
            strip: String::new(),
            bypass: false,
            mute: false,
            status,
            told: String::new(),
            last_xruns: Vec::new(),
            readings: Vec::new(),
            late: 0,
        }
    }

    #[test]
    fn minutes_are_what_was_counted_between_two_looks() {
        let old = sound(&[0, 100, 50], 29_000);
        let new = sound(&[0, 130, 70, 0, 3], 47_500);
        let one = minutes(1_000, &old, 301_000, &new).unwrap();
        assert_eq!((one.readings.count, one.period, one.missed), (53, Nanos(1_000_000), 2));
        assert_eq!((one.readings.max, one.lasted), (Some(Nanos(47_500)), Nanos(300_000_000_000)));
        let below = one.readings.count - one.readings.above(Nanos(39_000));
        assert_eq!(below, 50);
        assert_eq!(minutes(1_000, &new, 301_000, &new), None);
        // Started anew: all that it counted since.
        let anew = minutes(1_000, &new, 301_000, &sound(&[0, 0, 9], 21_000)).unwrap();
        assert_eq!((anew.readings.count, anew.readings.max), (9, Some(Nanos(21_000))));
        let packed = crate::packed::pack(&one.readings);
        assert_eq!(crate::packed::unpack(&packed), Some(one.readings));
    }

    #[test]
    fn what_was_kept_before_joining_stays() {
        let since = moment("2026-11-24T12:00:00Z");
        assert!(too_old("20261124T115959Z-wakeup-3f9a", since));
        assert!(!too_old("20261124T120000Z-wakeup-3f9a", since));
        assert!(!too_old("anything", since));
    }
}
