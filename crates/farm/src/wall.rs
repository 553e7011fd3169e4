//! What the page of a farm is drawn from.

use crate::{Collector, FarmQuestion, Result, collector::DAY, day_text};
use quiet_types::farm::{FarmWall, WallMachine};
use std::collections::BTreeMap;

/// Days that are drawn; the newest.
const DRAWN: i64 = 30;
/// Kept records of a machine.
const KEPT: usize = 20;

impl Collector {
    /// The wall of the machines that a question chooses, the worst first.
    ///
    /// # Errors
    /// When the database cannot be read.
    pub fn wall(&self, question: &FarmQuestion, now: i64) -> Result<FarmWall> {
        let answer = self.ask(question, now)?;
        let (each, abouts) = self.ask_machines(&question.by_host(), now)?;
        let last = self
            .db
            .query_row("select max(day) from days", [], |row| row.get::<_, Option<i64>>(0))?;
        let last = last.unwrap_or(now / DAY);
        let days: Vec<String> = (last - DRAWN + 1..=last).map(day_text).collect();
        let place: BTreeMap<&str, usize> =
            days.iter().enumerate().map(|(at, day)| (day.as_str(), at)).collect();
        let mut machines: BTreeMap<String, WallMachine> = BTreeMap::new();
        for group in each.groups {
            let host = group.name.first().cloned().unwrap_or_default();
            let machine = machines.entry(host.clone()).or_default();
            machine.about.host = host;
            let course: Vec<_> = group
                .days
                .into_iter()
                .filter_map(|day| Some((*place.get(day.day.as_str())?, day)))
                .collect();
            if !course.is_empty() {
                machine.courses.push((group.probe, course));
            }
        }
        let mut all = Vec::new();
        for (host, mut machine) in machines {
            machine.about = abouts.get(&host).cloned().unwrap_or(machine.about);
            machine.kept = self.kept_of(&host, KEPT)?;
            // What plays comes first, since it is what the wall is looked at for.
            machine.courses.sort_by_key(|(probe, course)| {
                (probe != "blocks", std::cmp::Reverse(course.len()))
            });
            all.push(machine);
        }
        let bad =
            |m: &WallMachine| (m.about.late_share.unwrap_or(0.0), m.about.p99_9.map_or(0, |t| t.0));
        all.sort_by(|a, b| bad(b).partial_cmp(&bad(a)).unwrap_or(std::cmp::Ordering::Equal));
        Ok(FarmWall { answer, days, machines: all })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Trust, example::record};

    #[test]
    fn a_wall_has_every_machine_with_its_days() {
        let mut collector = Collector::in_memory(Trust::FirstKey).unwrap();
        let mut batch = collector.batch().unwrap();
        for day in 0..3 {
            batch.take_copied(&record("a", 1_700_006_400 + day * 86_400, 50)).unwrap();
        }
        batch.take_copied(&record("b", 1_700_006_400, 5)).unwrap();
        batch.commit().unwrap();
        let question = FarmQuestion::parse(&[], &[], 19_700).unwrap();
        let wall = collector.wall(&question, 1_700_200_000_000).unwrap();
        let told: Vec<(&str, usize)> =
            wall.machines.iter().map(|m| (m.about.host.as_str(), m.courses[0].1.len())).collect();
        assert_eq!(told, [("b", 1), ("a", 3)]);
        assert_eq!(wall.days.len(), 30);
    }
}
