//! `rtirq.conf`: priorities of interrupt threads, highest first.

use super::{
    RecipeError,
    page::{Link, Page, Target},
};

struct Settings {
    names: Option<Vec<String>>,
    high: i64,
    step: i64,
    low: i64,
}

pub(super) fn import(text: &str, name: &str) -> Result<String, RecipeError> {
    let mut page = Page::new(
        name,
        "From rtirq.conf. It names interrupts, and no programs: add those before \
        the card.",
    );
    let settings = read(text, &mut page)?;
    let Some(names) = settings.names else {
        return Err(RecipeError::whole(
            "it has no RTIRQ_NAME_LIST, so it gives no interrupt a priority",
        ));
    };
    let priority = |at: i64| (settings.high - settings.step * at).max(settings.low).clamp(1, 99);
    let ranked = names.into_iter().zip(0..).map(|(name, at)| (name, priority(at)));
    let (audio, rest): (Vec<_>, Vec<_>) = ranked.partition(|(name, _)| is_audio(name));
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

/// What rtirq uses where its file is silent, and what the file says.
fn read(text: &str, page: &mut Page) -> Result<Settings, RecipeError> {
    let mut settings = Settings { names: None, high: 90, step: 5, low: 51 };
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
            let shown = quiet_types::printable(value, 40);
            let wrong = || RecipeError::at(at, format!("{key} is `{shown}`, which is no priority"));
            value.parse::<i64>().ok().filter(|n| (0..=99).contains(n)).ok_or_else(wrong)
        };
        match key.trim() {
            "RTIRQ_NAME_LIST" => {
                settings.names = Some(value.split_whitespace().map(str::to_owned).collect());
            }
            "RTIRQ_PRIO_HIGH" => settings.high = number()?,
            "RTIRQ_PRIO_DECR" => settings.step = number()?,
            "RTIRQ_PRIO_LOW" => settings.low = number()?,
            "RTIRQ_RESET_ALL" if value == "0" => {}
            other => page.say(left_behind(other, value)),
        }
    }
    Ok(settings)
}

/// A setting that has no place in a chain, and why.
fn left_behind(key: &str, value: &str) -> String {
    match key {
        "RTIRQ_RESET_ALL" => "RTIRQ_RESET_ALL: all other interrupt threads became SCHED_OTHER; a \
            shield leaves them as they are, off its CPUs."
            .into(),
        "RTIRQ_NON_THREADED" => format!(
            "RTIRQ_NON_THREADED={value}: no kernel of today lets single interrupts \
            be handled without a thread; rtirq itself does not use it any more."
        ),
        "RTIRQ_HIGH_LIST" => format!(
            "RTIRQ_HIGH_LIST={value}: these threads got 99 downwards, above the \
            card; the kernel's own threads are left as they are."
        ),
        _ => format!("{key}={value}: has no place in a chain."),
    }
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
