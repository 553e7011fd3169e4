//! What a watch tells, a line each.

use quiet_types::{
    plan::Outcome,
    printable,
    watch::{Event, Happened, Trigger},
};

/// One event as one line, without its end.
pub fn event_text(event: &Event) -> String {
    let clean = |text: &str| printable(text, 400);
    let said = match &event.what {
        Happened::Started { shield, report_only, missing } => {
            let does = if *report_only { "reports on" } else { "keeps" };
            let mut text = format!("{does} the shield of CPU {}", shield.cpus);
            for one in missing {
                text += &format!("; told only at the regular look: {}", clean(one));
            }
            text
        }
        Happened::Drift { cause, step, outcome } => {
            let what = clean(&step.action.what());
            let new = clean(&step.action.new_value());
            let became = match outcome {
                None => format!("is not {new}"),
                Some(Outcome::Done { .. } | Outcome::Already) => format!("put right: {new}"),
                Some(Outcome::Pending { .. }) => format!("put right when it next fires: {new}"),
                Some(Outcome::Partly { seen, refused }) => {
                    format!(
                        "put right in part: {}; not: {}",
                        clean(seen),
                        clean(&refused.join("; "))
                    )
                }
                Some(Outcome::Refused { reason }) => format!("refused ({new}): {}", clean(reason)),
                Some(Outcome::Ignored { seen }) => {
                    format!("accepted and ignored ({new}): it still is {}", clean(seen))
                }
                Some(Outcome::Absent) => format!("gone meanwhile ({new})"),
            };
            format!("{what}: {became} ({}; {})", because(*cause), clean(&step.why))
        }
        Happened::Contested { what, times, pause } => format!(
            "{}: somebody keeps changing it back ({times} times): left for {pause} s; \
             `quietcores check` names services that write such files",
            clean(what)
        ),
        Happened::Finding { finding } => {
            let evidence = match finding.evidence.is_empty() {
                true => String::new(),
                false => format!(" ({})", clean(&finding.evidence)),
            };
            format!("{}{evidence}", clean(&finding.title))
        }
        Happened::Over { finding } => format!("not any more: {}", clean(finding)),
        Happened::Unplanned { why } => format!("no plan can be made now: {}", clean(why)),
        Happened::Ended { why } => format!("ended: {}", clean(why)),
    };
    format!("{}  {said}", event.at)
}

fn because(cause: Trigger) -> &'static str {
    match cause {
        Trigger::Start => "seen at the start",
        Trigger::Regular => "seen at the regular look",
        Trigger::Partition => "the partition changed",
        Trigger::Device => "a device or CPU came or went",
        Trigger::Process => "a program or thread was born",
        Trigger::Resume => "the machine slept",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use quiet_types::watch::WATCH_SCHEMA;

    #[test]
    fn a_name_that_somebody_chose_cannot_write_to_the_terminal() {
        let what = Happened::Contested { what: "IRQ 4\u{1b}[2J\n".into(), times: 5, pause: 60 };
        let event = Event { schema: WATCH_SCHEMA.into(), at: "20260101T000000Z".into(), what };
        let text = event_text(&event);
        assert!(text.starts_with("20260101T000000Z  IRQ 4"), "{text}");
        assert!(!text.contains('\u{1b}') && !text.contains('\n'), "{text}");
    }
}
