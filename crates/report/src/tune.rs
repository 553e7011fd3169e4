//! Which step helped: a line a step, and the smallest set.

use crate::text::{Column, Table, findings_text, wrap};
use quiet_judge::tune::step_line;
use quiet_types::{
    Nanos,
    boots::BootTune,
    printable,
    tune::{
        Factor, LeftOut, Smallest, StepPrice, StepSays, TuneDesign, Tuned, TunedChoice, TunedStep,
    },
    words,
};
use std::fmt::Write;

/// What is said before the first pair is measured: how many pairs, how often chance may speak, and what can be seen at all.
pub fn design_text(design: &TuneDesign, steps: usize) -> String {
    let mut text = format!(
        "{} pairs of blocks of about {} for {steps} steps (seed {}). Of a step that does nothing chance shows something in fewer than 5 \
         of 100 such tunes, all steps and figures together.",
        design.pairs,
        Nanos(design.block.0 / 1_000_000 * 1_000_000),
        design.seed
    );
    let screening = Nanos(design.block.0 * 2 * u64::from(design.pairs));
    let _ = write!(text, " The screening takes about {}.", words::span(screening));
    for response in &design.responses {
        if response.noise == 0.0 {
            let _ = write!(text, " {}: every block of the pilot read the same.", response.title);
        } else if response.resolves.is_finite() {
            let _ = write!(
                text,
                " {}: a change of {} or more is seen in 4 of 5 cases.",
                response.title,
                words::ratio(response.resolves)
            );
        }
    }
    text
}

/// What is said before the first reboot: how many boots, how often chance may speak, and the least that can be seen.
pub fn boots_design_text(tune: &BootTune) -> String {
    let boots = tune.order.len();
    let mut text = format!(
        "{boots} boots in {} pairs for {} (seed {}), {} blocks of about {} in each.",
        boots / 2,
        count(tune.factors.len(), "parameter"),
        tune.design.seed,
        tune.blocks,
        words::span(tune.design.block),
    );
    let measuring = tune.measuring().0 + tune.settle.0;
    let _ = write!(
        text,
        " Measuring takes about {}, and each reboot on top of it.",
        words::span(Nanos(measuring * boots as u64))
    );
    match quiet_judge::tune::fewest_boots(tune.factors.len()) {
        Some(fewest) if boots < fewest => {
            let _ = write!(
                text,
                " So few boots can show nothing, whatever they read: {fewest} are the fewest that can."
            );
        }
        _ => {
            let _ = write!(
                text,
                " Of a parameter that does nothing chance shows something in fewer than 5 of 100 such tunes, all parameters and figures \
                 together."
            );
            for response in tune.design.responses.iter().filter(|one| one.resolves.is_finite()) {
                let _ = write!(
                    text,
                    " {}: were boots alike, a change of {} would be seen in 4 of 5 cases; where they differ by 20 %, {}.",
                    response.title,
                    words::ratio(response.resolves),
                    words::ratio(quiet_judge::tune::boots_resolve(
                        response.noise.hypot(0.2 * 2f64.sqrt()),
                        boots / 2,
                        tune.factors.len(),
                        tune.design.responses.len()
                    ))
                );
            }
        }
    }
    text
}

fn count(many: usize, what: &str) -> String {
    if many == 1 { format!("one {what}") } else { format!("{many} {what}s") }
}

/// A tune of boot parameters: what is switched, what is not, and how far it is.
pub fn boots_text(tune: &BootTune, width: usize) -> String {
    let mut text = String::new();
    for one in &tune.factors {
        let word = printable(&one.parameter.word(), 120);
        let _ = writeln!(text, "{}", wrap(&format!("{word}: {}", one.factor.why), width, 4));
    }
    for left in &tune.left_out {
        let line = format!("not {}: {}", printable(&left.what, 60), printable(&left.why, 300));
        let _ = writeln!(text, "{}", wrap(&line, width, 4));
    }
    let _ = writeln!(text, "\n{}", wrap(&boots_design_text(tune), width, 0));
    let (done, all) = (tune.boots.len(), tune.order.len());
    if tune.asked.is_some() || done > 0 {
        let left = Nanos((tune.measuring().0 + tune.settle.0) * (all - done) as u64);
        let line = format!(
            "{done} of {all} boots are measured; the rest measures for about {}.",
            words::span(left)
        );
        let _ = writeln!(text, "{}", wrap(&line, width, 0));
    }
    text
}

/// The price in a few words: only what its interval tells from none.
pub(crate) fn price_words(price: &StepPrice) -> String {
    let said = format!("{} {:+.1} {}", price.title, price.change + 0.0, price.unit);
    if price.low <= 0.0 && price.high >= 0.0 {
        let most = price.low.abs().max(price.high.abs());
        format!("{}: none shown, at most {most:.1} {}", price.title, price.unit)
    } else {
        said
    }
}

fn effect_words(step: &TunedStep, nth: usize) -> String {
    match step.effects.get(nth) {
        Some(effect) if effect.visible.is_finite() => words::ratio_between(effect.ratio),
        _ => "-".to_owned(),
    }
}

/// How it was confirmed, in a few words.
pub(crate) fn confirmed_words(step: &TunedStep) -> String {
    match &step.confirmed {
        None => "-".to_owned(),
        Some(one) if one.shown => format!("yes, {}", words::ratio(one.ratio.value)),
        Some(one) => format!("no, {}", words::ratio_between(one.ratio)),
    }
}

/// The smallest change that would have been seen.
pub(crate) fn visible_words(step: &TunedStep) -> String {
    match step.effects.first().map(|effect| effect.visible) {
        Some(visible) if visible.is_finite() => words::ratio(visible),
        _ => "-".to_owned(),
    }
}

/// The smallest set against the whole.
pub(crate) fn smallest_words(smallest: &Smallest, tuned: &Tuned) -> String {
    let set = match smallest.steps.as_slice() {
        [] => "No step at all".to_owned(),
        names => names.join(" + "),
    };
    let mut text = format!(
        "{set} against the whole shield, {} pairs: {} (margin {}).",
        smallest.pairs,
        smallest.says,
        words::ratio(tuned.design.margin)
    );
    for one in &smallest.ratios {
        let title = tuned.design.responses.iter().find(|r| r.id == one.id);
        let title = title.map_or(one.id.as_str(), |r| r.title.as_str());
        let _ = write!(text, " {title} {}.", words::ratio_between(one.ratio));
    }
    text
}

/// The table of a choice.
fn choice_text(choice: &TunedChoice, width: usize) -> String {
    let mut table = Table::new([
        Column::Left(""),
        Column::Right("rounds"),
        Column::Right("median"),
        Column::Left("the best by it"),
        Column::Right("p"),
    ]);
    for one in &choice.tried {
        table.row([
            printable(&one.name, 40),
            one.blocks.to_string(),
            Nanos(one.median.max(0.0) as u64).to_string(),
            one.ratio.map_or("-".into(), words::ratio_between),
            one.p_value.map_or("-".into(), words::p_value),
        ]);
    }
    format!("{}: {}\n{}", choice.what, wrap(&choice.sentence, width, 2), table.text(width))
}

/// A tune as text, at most `width` columns wide.
pub fn tune_text(tuned: &Tuned, width: usize) -> String {
    let mut text = format!("{}\n\n", wrap(&tuned.sentence, width, 0));
    let mut table = Table::new([
        Column::Left("step"),
        Column::Left("says"),
        Column::Left("by how much"),
        Column::Left("late"),
        Column::Right("p"),
        Column::Left("left out of the whole"),
        Column::Right("seen from"),
    ])
    .yields(&["late", "p", "seen from", "left out of the whole"]);
    for step in &tuned.steps {
        let p = step.effects.iter().map(|effect| effect.p_value).fold(1.0, f64::min);
        table.row([
            printable(&step.factor.name, 40),
            step.says.to_string(),
            effect_words(step, 0),
            effect_words(step, 1),
            words::p_value(p),
            confirmed_words(step),
            visible_words(step),
        ]);
    }
    text.push_str(&table.text(width));
    let first = tuned.design.responses.first().map_or("", |one| one.title.as_str());
    let legend = format!(
        "by how much: {first} with the step by {first} without it, and an interval that holds for all steps at once; below x1 it helps; \
         seen from: the smallest change that 4 of 5 such tunes show"
    );
    let _ = writeln!(text, "{}", wrap(&legend, width, 2));
    prices(&mut text, tuned, width);
    if let Some(smallest) = &tuned.smallest {
        let _ = writeln!(text, "\n{}", wrap(&smallest_words(smallest, tuned), width, 2));
    }
    for choice in &tuned.choices {
        let _ = write!(text, "\n{}", choice_text(choice, width));
    }
    left_out(&mut text, &tuned.left_out, width);
    if let Some(restored) = tuned.restored.as_ref().filter(|restored| !restored.exact) {
        let _ =
            writeln!(text, "\nThe machine is not as it was: {}", restored.differences.join("; "));
    }
    if !tuned.findings.is_empty() {
        text.push('\n');
        text.push_str(&findings_text(&tuned.findings, width));
    }
    text
}

fn prices(text: &mut String, tuned: &Tuned, width: usize) {
    let with: Vec<&TunedStep> = tuned.steps.iter().filter(|step| !step.prices.is_empty()).collect();
    if with.is_empty() {
        return;
    }
    text.push_str("\nPrices:\n");
    for step in with {
        let words: Vec<String> = step.prices.iter().map(price_words).collect();
        let line = format!("  {}: {}", printable(&step.factor.name, 40), words.join("; "));
        let _ = writeln!(text, "{}", wrap(&line, width, 4));
    }
}

fn left_out(text: &mut String, left: &[LeftOut], width: usize) {
    if left.is_empty() {
        return;
    }
    text.push_str("\nNot tried:\n");
    for one in left.iter().take(40) {
        let line = format!("  {}: {}", printable(&one.what, 80), printable(&one.why, 200));
        let _ = writeln!(text, "{}", wrap(&line, width, 4));
    }
}

/// The steps of this machine's plan that can be taken or left.
pub fn factors_text(factors: &[Factor], left: &[LeftOut], width: usize) -> String {
    let mut text = String::new();
    for factor in factors {
        let what = match factor.steps.as_slice() {
            [one] => one.clone(),
            [first, rest @ ..] => format!("{first} and {} more", rest.len()),
            [] => String::new(),
        };
        let line =
            format!("{}: {} ({})", factor.name, printable(&factor.why, 200), printable(&what, 120));
        let _ = writeln!(text, "{}", wrap(&line, width, 4));
    }
    left_out(&mut text, left, width);
    text
}

/// A tune in a line of the history.
pub fn tune_line(tuned: &Tuned) -> String {
    let lines = tuned.steps.iter().filter(|step| step.says != StepSays::NotShown);
    let lines: Vec<String> = lines.map(|step| step_line(step, &tuned.design)).collect();
    if lines.is_empty() { tuned.sentence.clone() } else { lines.join("; ") }
}

#[cfg(test)]
mod tests {
    use super::*;
    use quiet_judge::tune::{boot_order, boots_resolve, example};
    use quiet_types::{boot::Parameter, boots::BootFactor, tune::TuneResponse};

    fn boots(many: usize) -> BootTune {
        let one = |name: &str| BootFactor {
            factor: Factor { name: name.into(), steps: Vec::new(), why: "for a test".into() },
            parameter: Parameter { name: name.into(), value: None, why: String::new() },
        };
        let response = TuneResponse {
            id: "wakeup.p99".into(),
            title: "p99".into(),
            noise: 0.05,
            resolves: boots_resolve(0.05, many / 2, 2, 1),
        };
        BootTune {
            factors: vec![one("threadirqs"), one("skew_tick")],
            order: boot_order(1, 2, many),
            blocks: 10,
            design: TuneDesign {
                responses: vec![response],
                block: Nanos::from_secs(2),
                ..TuneDesign::default()
            },
            ..BootTune::default()
        }
    }

    #[test]
    fn what_boots_can_show_is_said_before_and_that_too_few_can_show_nothing() {
        let enough = boots_text(&boots(24), 100).replace('\n', " ");
        assert!(
            enough.contains("24 boots in 12 pairs") && enough.contains("threadirqs: for a test"),
            "{enough}"
        );
        assert!(
            enough.contains("fewer than 5 of 100") && enough.contains("were boots alike"),
            "{enough}"
        );
        let few = boots_text(&boots(4), 100).replace('\n', " ");
        assert!(few.contains("can show nothing") && few.contains("16 are the fewest"), "{few}");
    }

    #[test]
    fn a_tune_is_told_with_its_figures_and_what_it_could_not_see() {
        let tuned = example();
        let text = tune_text(&tuned, 200);
        for word in [
            "partition helps",
            "x0.50 [0.40, 0.62]",
            "stat_interval",
            "not shown",
            "seen from",
            "x1.15",
            "what the stress got done -4.0 %",
            "yes, x0.52",
            "as good",
            "it was forbidden by --keep-off",
        ] {
            assert!(text.contains(word), "{word}: {text}");
        }
        assert!(tune_text(&tuned, 60).lines().all(|line| line.chars().count() <= 60));
        assert!(
            tune_line(&tuned).starts_with("partition: helps, p99 x0.50"),
            "{}",
            tune_line(&tuned)
        );
    }

    #[test]
    fn the_design_says_what_it_will_see() {
        let said = design_text(&example().design, 8);
        assert!(said.contains("60 pairs") && said.contains("x1.15"), "{said}");
    }
}
