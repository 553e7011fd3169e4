//! `rtirq.conf`: priorities of interrupt threads, highest first.

use super::{
    RecipeError,
    page::{Link, Page, Target},
};

/// What rtirq uses where its file is silent.
const HIGH: i64 = 90;
const STEP: i64 = 5;
const LOW: i64 = 51;

pub(super) fn import(text: &str, name: &str) -> Result<String, RecipeError> {
    let mut page = Page::new(
        name,
        "From rtirq.conf. It names interrupts, and no programs: add those before the card.",
    );
    let mut names: Option<Vec<String>> = None;
    let (mut high, mut step, mut low) = (HIGH, STEP, LOW);
    for (line, at) in text.lines().map(str::trim).zip(1..) {
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let Some((key, value)) = line.strip_prefix("export ").unwrap_or(line).split_once('=')
        else {
            page.say(format!("Not understood, and left out: {line}"));
            continue;
        };
        let value = value.split(" #").next().unwrap_or(value).trim().trim_matches(['"', '\'']);
        let number = || {
            let wrong = || {
                RecipeError::at(
                    at,
                    format!(
                        "{key} is `{}`, which is no priority",
                        quiet_types::printable(value, 40)
                    ),
                )
            };
            value.parse::<i64>().ok().filter(|n| (0..=99).contains(n)).ok_or_else(wrong)
        };
        match key.trim() {
            "RTIRQ_NAME_LIST" => {
                names = Some(value.split_whitespace().map(str::to_owned).collect())
            }
            "RTIRQ_PRIO_HIGH" => high = number()?,
            "RTIRQ_PRIO_DECR" => step = number()?,
            "RTIRQ_PRIO_LOW" => low = number()?,
            "RTIRQ_RESET_ALL" if value == "0" => {}
            "RTIRQ_RESET_ALL" => page.say(
                "RTIRQ_RESET_ALL: all other interrupt threads became \
                    SCHED_OTHER; a shield leaves them as they are, off its CPUs.",
            ),
            "RTIRQ_NON_THREADED" => page.say(format!(
                "RTIRQ_NON_THREADED={value}: no kernel of today lets single \
                    interrupts be handled without a thread; rtirq itself does not \
                    use it any more."
            )),
            "RTIRQ_HIGH_LIST" => page.say(format!(
                "RTIRQ_HIGH_LIST={value}: these threads got 99 downwards, \
                    above the card; the kernel's own threads are left as they are."
            )),
            other => page.say(format!("{other}={value}: has no place in a chain.")),
        }
    }
    let Some(names) = names else {
        return Err(RecipeError::whole(
            "it has no RTIRQ_NAME_LIST, so it gives no interrupt a priority",
        ));
    };
    let ranked: Vec<(String, i64)> = names
        .into_iter()
        .zip(0..)
        .map(|(name, at)| (name, (high - step * at).max(low).clamp(1, 99)))
        .collect();
    let (audio, rest): (Vec<_>, Vec<_>) = ranked.into_iter().partition(|(name, _)| is_audio(name));
    for (name, priority) in rest {
        page.say(format!(
            "{name} had priority {priority}: it is no part of the way of the \
                sound; its interrupt goes to the CPUs that are not shielded."
        ));
    }
    match audio.iter().max_by_key(|(_, priority)| *priority) {
        Some((name, priority)) => page.link(card(name, *priority as u8, &audio)),
        None => page.say("No sound card is among the names: nothing is left for a chain."),
    }
    Ok(page.text())
}

fn is_audio(name: &str) -> bool {
    ["snd", "usb", "xhci", "ehci", "ohci", "uhci", "firewire"]
        .iter()
        .any(|word| name.starts_with(word))
}

fn card(name: &str, priority: u8, audio: &[(String, i64)]) -> Link {
    let all: Vec<String> =
        audio.iter().map(|(name, priority)| format!("{name} {priority}")).collect();
    Link {
        comments: vec![
            format!(
                "rtirq: {}. It treats all cards and controllers of a name \
                    alike; here it is the interrupt of one card, which for a USB \
                    card is that of its controller.",
                all.join(", ")
            ),
            format!(
                "`{name}` was taken for the first card: put its id or name \
                    here (quietcores inspect)"
            ),
        ],
        name: "card".into(),
        target: Target::Card("card0".into()),
        cpus: None,
        priority: Some(priority),
    }
}
