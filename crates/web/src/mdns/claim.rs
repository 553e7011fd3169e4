//! How a name is asked for, held, defended and lost: decided from packets and the time. Pure.
//!
//! # Source
//! RFC 6762: probing (8.1), two who want it at the same time (8.2), announcing (8.3), conflicts (9).

use super::packet::{Heard, NameRecord, TTL, answer, probe, written};
use std::{
    collections::VecDeque,
    time::{Duration, Instant},
};

/// Questions before a name is taken, and the time after each.
const PROBES: u32 = 3;
const PROBE: Duration = Duration::from_millis(250);
/// Who wants it for less waits so long before he asks again.
const GIVES_WAY: Duration = Duration::from_secs(1);
/// After so many conflicts within so long each further question waits.
const MANY: usize = 15;
const WITHIN: Duration = Duration::from_secs(10);
const PATIENT: Duration = Duration::from_secs(5);
/// The last number that is tried.
const LAST: u32 = 99;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// So many questions were sent; the next one, or the name, is due then.
    Asks(u32, Instant),
    /// It is ours; said once more then.
    Holds(Option<Instant>),
    /// Every name is somebody's.
    GivesUp,
}

/// A name that is wanted for one address.
#[derive(Debug)]
pub(super) struct Claim {
    label: String,
    number: u32,
    pub record: NameRecord,
    /// As DNS writes it.
    pub name: Vec<u8>,
    stage: Stage,
    conflicts: VecDeque<Instant>,
}

/// What is due.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Due {
    /// To be sent to all.
    Send(Vec<u8>),
    /// The same, and from now on it is ours.
    Ours(Vec<u8>),
    /// Nothing for so long; `None`: for ever.
    Nothing(Option<Duration>),
}

impl Claim {
    /// Asks after `delay`, which is to be drawn by lot, up to 250 ms.
    pub(super) fn new(label: &str, record: NameRecord, now: Instant, delay: Duration) -> Claim {
        let stage = Stage::Asks(0, now + delay);
        let (name, label) = (written(label), label.to_owned());
        Claim { label, number: 1, record, name, stage, conflicts: VecDeque::new() }
    }

    /// The name as it is shown: `quietcores.local`, `quietcores-2.local`.
    pub(super) fn shown(&self) -> String {
        format!("{}.local", self.current())
    }

    fn current(&self) -> String {
        if self.number == 1 {
            return self.label.clone();
        }
        let end = format!("-{}", self.number);
        let room = self.label.len().min(63 - end.len());
        format!("{}{end}", &self.label[..room])
    }

    pub(super) fn holds(&self) -> bool {
        matches!(self.stage, Stage::Holds(_))
    }

    pub(super) fn gave_up(&self) -> bool {
        self.stage == Stage::GivesUp
    }

    fn announcement(&self) -> Vec<u8> {
        answer(&self.name, self.record.kind, &self.record, (0, false), TTL)
    }

    /// What is due now.
    pub(super) fn due(&mut self, now: Instant) -> Due {
        match self.stage {
            Stage::Asks(_, due) if due > now => Due::Nothing(Some(due - now)),
            Stage::Asks(PROBES, _) => {
                self.stage = Stage::Holds(Some(now + Duration::from_secs(1)));
                Due::Ours(self.announcement())
            }
            Stage::Asks(sent, _) => {
                self.stage = Stage::Asks(sent + 1, now + PROBE);
                Due::Send(probe(&self.name, &self.record))
            }
            Stage::Holds(Some(again)) if again > now => Due::Nothing(Some(again - now)),
            Stage::Holds(Some(_)) => {
                self.stage = Stage::Holds(None);
                Due::Send(self.announcement())
            }
            Stage::Holds(None) | Stage::GivesUp => Due::Nothing(None),
        }
    }

    /// Takes note of a packet; who has the name, where another one is asked for from now on.
    pub(super) fn hear(&mut self, heard: &Heard, now: Instant) -> Option<NameRecord> {
        let other = heard.said.iter().find(|said| **said != self.record);
        match self.stage {
            Stage::GivesUp => None,
            // It is asked for again: whoever has it says so then.
            Stage::Holds(_) => {
                let same = |said: &&NameRecord| said.kind == self.record.kind;
                if other.filter(same).is_some() {
                    self.stage = Stage::Asks(0, now + self.patience(now));
                }
                None
            }
            Stage::Asks(..) => {
                if let Some(other) = other.cloned() {
                    self.next(now);
                    return Some(other);
                }
                let mut wanted: Vec<&NameRecord> = heard.wanted.iter().collect();
                wanted.sort_unstable();
                // Lists are compared record by record; the longer one wins where the other one ends.
                if wanted.as_slice() > [&self.record].as_slice() {
                    self.stage = Stage::Asks(0, now + GIVES_WAY);
                }
                None
            }
        }
    }

    /// Another name.
    fn next(&mut self, now: Instant) {
        let wait = self.patience(now);
        self.number += 1;
        self.name = written(&self.current());
        self.stage = if self.number > LAST { Stage::GivesUp } else { Stage::Asks(0, now + wait) };
    }

    /// How long to wait after a conflict.
    fn patience(&mut self, now: Instant) -> Duration {
        self.conflicts.retain(|at| now.duration_since(*at) < WITHIN);
        self.conflicts.push_back(now);
        if self.conflicts.len() >= MANY { PATIENT } else { Duration::ZERO }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mdns::packet::heard;
    use std::net::IpAddr;

    fn record(address: &str) -> NameRecord {
        address.parse::<IpAddr>().unwrap().into()
    }

    fn claim(label: &str, now: Instant) -> Claim {
        Claim::new(label, record("192.0.2.7"), now, Duration::from_millis(100))
    }

    /// Goes on until nothing is due before `until`: what was sent, each with when.
    fn run(claim: &mut Claim, mut now: Instant, until: Instant) -> Vec<(Instant, Due)> {
        let mut sent = Vec::new();
        while now <= until {
            match claim.due(now) {
                Due::Nothing(None) => break,
                Due::Nothing(Some(wait)) => now += wait,
                due => sent.push((now, due)),
            }
        }
        sent
    }

    #[test]
    fn a_name_is_asked_for_three_times_and_said_twice() {
        let begun = Instant::now();
        let mut claim = claim("box", begun);
        let sent = run(&mut claim, begun, begun + Duration::from_secs(60));
        let after: Vec<u128> =
            sent.iter().map(|(at, _)| at.duration_since(begun).as_millis()).collect();
        assert_eq!(after, [100, 350, 600, 850, 1850]);
        for (_, due) in &sent[..3] {
            let Due::Send(packet) = due else { panic!("{due:?}") };
            let asks = heard(packet, &claim.name).unwrap();
            assert!(!asks.is_answer && asks.wanted == [record("192.0.2.7")]);
        }
        assert!(matches!(&sent[3].1, Due::Ours(_)) && claim.holds());
        assert_eq!(claim.shown(), "box.local");
    }

    fn says(claim: &Claim, address: &str) -> Heard {
        let other = record(address);
        heard(&answer(&claim.name, other.kind, &other, (0, false), TTL), &claim.name).unwrap()
    }

    fn wants(claim: &Claim, address: &str) -> Heard {
        heard(&probe(&claim.name, &record(address)), &claim.name).unwrap()
    }

    #[test]
    fn a_name_that_somebody_has_is_left_to_him_and_another_one_is_asked_for() {
        let begun = Instant::now();
        let mut claim = claim("box", begun);
        run(&mut claim, begun, begun + Duration::from_millis(200));
        // Its own packets come back, and others of this machine may say the same.
        assert_eq!(claim.hear(&says(&claim, "192.0.2.7"), begun), None);
        assert_eq!(claim.shown(), "box.local");
        for other in ["192.0.2.8", "fd00::8"] {
            let said = says(&claim, other);
            assert_eq!(claim.hear(&said, begun), Some(record(other)));
        }
        assert_eq!(claim.shown(), "box-3.local");
        let sent = run(&mut claim, begun, begun + Duration::from_secs(60));
        assert_eq!(sent.len(), 5);
        // A name that is long enough already keeps its length.
        let mut long = self::claim(&"x".repeat(63), begun);
        long.hear(&says(&long, "192.0.2.8"), begun);
        assert_eq!(long.shown(), format!("{}-2.local", "x".repeat(61)));
    }

    #[test]
    fn of_two_who_ask_at_once_one_gives_way() {
        let begun = Instant::now();
        let late = begun + Duration::from_secs(60);
        // Who wants it for less, or for the same, is no reason.
        for less in ["192.0.2.6", "192.0.2.7", "10.0.0.200"] {
            let mut claim = claim("box", begun);
            claim.hear(&wants(&claim, less), begun);
            assert_eq!(run(&mut claim, begun, late).len(), 5, "{less}");
        }
        for more in ["192.0.2.8", "fd00::1"] {
            let mut claim = claim("box", begun);
            let now = begun + Duration::from_millis(400);
            assert_eq!(run(&mut claim, begun, begun + Duration::from_millis(400)).len(), 2);
            assert_eq!(claim.hear(&wants(&claim, more), now), None);
            // It asks again a second later; the other one has it by then, and says so.
            let sent = run(&mut claim, now, now + Duration::from_millis(1100));
            assert_eq!((sent.len(), sent[0].0 - now), (1, GIVES_WAY));
            claim.hear(&says(&claim, more), now);
            assert_eq!(claim.shown(), "box-2.local");
        }
    }

    #[test]
    fn a_name_that_is_held_is_asked_for_again_when_another_one_says_it() {
        let begun = Instant::now();
        let late = begun + Duration::from_secs(60);
        let mut claim = claim("box", begun);
        run(&mut claim, begun, late);
        // An address of the other family is another record; a question is answered, and no conflict.
        for fine in [says(&claim, "fd00::8"), says(&claim, "192.0.2.7"), wants(&claim, "192.0.2.8")]
        {
            assert_eq!(claim.hear(&fine, late), None);
            assert!(claim.holds());
        }
        assert_eq!(claim.hear(&says(&claim, "192.0.2.8"), late), None);
        assert!(!claim.holds());
        // Where nobody answers, it stays; where he does, it is his.
        let mut stays = claim;
        assert_eq!(run(&mut stays, late, late + Duration::from_secs(9)).len(), 5);
        assert!(stays.holds());
        stays.hear(&says(&stays, "192.0.2.8"), late);
        assert_eq!(stays.hear(&says(&stays, "192.0.2.8"), late), Some(record("192.0.2.8")));
        assert_eq!(stays.shown(), "box-2.local");
    }

    #[test]
    fn whoever_has_every_name_is_asked_slowly_and_not_for_ever() {
        let begun = Instant::now();
        let mut claim = claim("box", begun);
        let mut now = begun;
        let mut waits = Vec::new();
        while !claim.gave_up() {
            let said = says(&claim, "192.0.2.8");
            claim.hear(&said, now);
            if let Due::Nothing(Some(wait)) = claim.due(now) {
                waits.push(wait);
                now += wait;
            }
            assert!(waits.len() < 200);
        }
        assert!(waits.contains(&PATIENT));
        assert_eq!(claim.due(now), Due::Nothing(None));
    }
}
