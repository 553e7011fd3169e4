//! The page of a tune: an effect a step, Lenth's plot, prices, the smallest set, every block.

use super::{capital, charts, data, findings, host, page, parts, when};
use crate::{
    svg::{Anchor, Mark, Scale, Svg, tick},
    tune::{confirmed_words, price_words, smallest_words, visible_words},
};
use maud::{Markup, PreEscaped, html};
use quiet_types::{
    Nanos,
    tune::{BlockPart, StepSays, TuneBlock, Tuned, TunedChoice, TunedStep},
    words,
};

/// The page of a tune and all its blocks.
pub fn tune_page(tuned: &Tuned) -> String {
    let body = html! {
        header {
            p.over { "quietcores tune of " (tuned.head.host.name) ", " (when(&tuned.head.started)) }
            h1.plain { (capital(&headline(tuned))) }
            p.lede { (tuned.sentence) }
            p.why { (capital(&tuned.question)) "." @if tuned.head.interrupted { " Ended before its time." } }
        }
        (effects(tuned))
        (lenth(tuned))
        (unseen(tuned))
        (prices(tuned))
        (smallest(tuned))
        @for choice in &tuned.choices { (chosen(choice)) }
        (drift(tuned))
        (findings(&tuned.findings))
        (left_out(tuned))
        h2 { "The chain file" }
        pre tabindex="0" { code { (tuned.chain) } }
        (boots(tuned))
        (blocks(tuned))
        @if let Some(restored) = &tuned.restored {
            h2 { "The machine afterwards" }
            p {
                @if restored.exact && !tuned.boots.is_empty() { "The boot loader's files are as they were before the first reboot, to the byte." }
                @else if restored.exact { "Every setting that was looked at is as it was before the first block." }
                @else { "Not as it was: " (restored.differences.join("; ")) "." }
            }
        }
        (host(&tuned.head.host))
        (parts::commands(&tuned.commands))
        (data(&tuned.head.id))
    };
    let json = serde_json::to_string(tuned).unwrap_or_default();
    page(&format!("tune of {}", tuned.head.host.name), &tuned.head.host.program, &body, &json)
}

fn headline(tuned: &Tuned) -> String {
    let helps = tuned.steps.iter().filter(|step| step.says == StepSays::Helps).count();
    match helps {
        0 => "no step is shown to help".to_owned(),
        1 => format!("1 step of {} helps", tuned.steps.len()),
        n => format!("{n} steps of {} help", tuned.steps.len()),
    }
}

fn class(says: StepSays) -> &'static str {
    match says {
        StepSays::Helps => "better",
        StepSays::Hurts => "worse",
        StepSays::NotShown | StepSays::Void => "not-shown",
    }
}

/// A row a step: each figure with its interval drawn.
fn effects(tuned: &Tuned) -> Markup {
    let told = || tuned.steps.iter().flat_map(|s| &s.effects).filter(|e| e.visible.is_finite());
    let (low, high) = charts::ratio_scale(told().map(|effect| effect.ratio));
    let scale = (low.max(1e-3), high.min(1e3));
    let drawn = |step: &TunedStep, shown: bool| if shown { class(step.says) } else { "" };
    html! {
        h2 { "What each step does" }
        p.why {
            (tuned.design.pairs) " pairs of blocks, each step on in one block of every pair and off in the other; seed "
            (tuned.design.seed) ". The bar is an interval that holds for all steps and figures at once; the upright line is x1, no "
            "change; left of it the step helps. Of a step that does nothing chance shows something in fewer than 5 of 100 such "
            "tunes, all together: by a randomization test (max-T), as was stated before the first pair."
        }
        @for (nth, response) in tuned.design.responses.iter().enumerate() {
            h3 { (capital(&response.title)) }
            div.box tabindex="0" {
                table.figures {
                    thead { tr {
                        th { "step" } th { "with it by without it" } th.n { "p" } th { "says" } th { "left out of the whole" } th.n { "seen from" }
                    } }
                    tbody {
                        @for step in &tuned.steps {
                            @if let Some(effect) = step.effects.get(nth) {
                                tr {
                                    td.name.primary[step.kept] { (step.factor.name) }
                                    td.ratio {
                                        @if effect.visible.is_finite() {
                                            (PreEscaped(charts::interval(effect.ratio, drawn(step, effect.shown), scale)))
                                            small { (words::ratio_between(effect.ratio)) }
                                        } @else { "–" }
                                    }
                                    td.n.p { (words::p_value(effect.p_value)) }
                                    td.says {
                                        @if effect.shown || step.says == StepSays::Void {
                                            span.verdict.(class(step.says)) { (step.says) }
                                        } @else { span.verdict.not-shown { "not shown" } }
                                    }
                                    td.wrap { @if nth == 0 { (confirmed_words(step)) } }
                                    td.n { @if effect.visible.is_finite() { (words::ratio(effect.visible)) } @else { "–" } }
                                }
                            }
                        }
                    }
                    tfoot { tr {
                        td.name {}
                        td.ratio { (PreEscaped(charts::interval_axis(scale))) }
                        td.p colspan="4" {}
                    } }
                }
            }
        }
        p.why { "Steps in bold are in the smallest set. Left out of the whole: the whole shield by the shield without that one step, in pairs." }
    }
}

/// Lenth's plot: every effect as a bar, and the margin that noise alone would keep to.
fn lenth(tuned: &Tuned) -> Markup {
    let told: Vec<(&str, f64, StepSays)> = tuned
        .steps
        .iter()
        .filter_map(|step| {
            let effect = step.effects.first().filter(|effect| effect.visible.is_finite())?;
            Some((step.factor.name.as_str(), effect.ratio.value.ln(), step.says))
        })
        .collect();
    if told.len() < 3 {
        return html! {};
    }
    let error = quiet_judge::screen::lenth(&told.iter().map(|one| one.1).collect::<Vec<_>>());
    // Lenth's margin of error: the 97.5 % point of Student's distribution with a third of the effects.
    let margin = error * quiet_judge::screen::student(0.975, (told.len() / 3).max(2));
    let most = told.iter().map(|one| one.1.abs()).fold(margin, f64::max).max(1e-9) * 1.15;
    let draw = |form: &str, width: f64| {
        let (row, left, right) = (22.0, 130.0, width - 14.0);
        let height = told.len() as f64 * row + 44.0;
        let at = |value: f64| left + (right - left) * (value / most + 1.0) / 2.0;
        let mut svg = Svg::new(width, height);
        let bottom = height - 34.0;
        svg.line("one", (at(0.0), 4.0), (at(0.0), bottom));
        for side in [-margin, margin] {
            svg.line("limit", (at(side), 4.0), (at(side), bottom));
        }
        for (nth, (name, value, says)) in told.iter().enumerate() {
            let y = 4.0 + row * (nth as f64 + 0.5);
            let class =
                if matches!(says, StepSays::Helps | StepSays::Hurts) { class(*says) } else { "" };
            svg.text("tick", (left - 8.0, y + 4.0), Anchor::End, &quiet_types::printable(name, 18));
            svg.line(&format!("span {class}"), (at(0.0), y), (at(*value), y));
            svg.mark(&format!("point {class}"), Mark::Diamond, (at(*value), y), 3.8);
        }
        for part in [-0.75, -0.375, 0.0, 0.375, 0.75] {
            let value = part * most;
            svg.text(
                "tick",
                (at(value), bottom + 16.0),
                Anchor::Middle,
                &words::ratio(value.exp()),
            );
        }
        svg.finish(&format!("chart {form}"), "Lenth's plot of the effects")
    };
    html! {
        h2 { "Effects against noise" }
        p.why {
            "Lenth's plot: most steps do nothing, so that the size of their effects tells what noise makes of nothing. Within the "
            "two lines (Lenth's margin of error) an effect is as noise would be. It is a drawing for the eye; no verdict rests on it."
        }
        (PreEscaped(charts::FORMS.map(|(form, width)| draw(form, width)).concat()))
    }
}

/// What could not be seen.
fn unseen(tuned: &Tuned) -> Markup {
    let open: Vec<&TunedStep> =
        tuned.steps.iter().filter(|step| step.says == StepSays::NotShown).collect();
    html! {
        @if !open.is_empty() {
            h2 { "What could not be seen" }
            p {
                "Not shown is not nothing: of "
                @for (nth, step) in open.iter().enumerate() {
                    @if nth > 0 { ", " }
                    (step.factor.name) " a change of " (visible_words(step)) " or more"
                }
                " would have been seen in 4 of 5 such tunes; smaller ones may be there."
            }
        }
    }
}

fn prices(tuned: &Tuned) -> Markup {
    html! {
        @if tuned.steps.iter().any(|step| !step.prices.is_empty()) {
            h2 { "The price" }
            p.why { "With the step, less without it, by the same pairs; each price is a family of its own." }
            div.box tabindex="0" {
                table {
                    thead { tr { th { "step" } th { "price" } } }
                    tbody {
                        @for step in &tuned.steps {
                            @for (nth, price) in step.prices.iter().enumerate() {
                                tr {
                                    td { @if nth == 0 { (step.factor.name) } }
                                    td.wrap { (price_words(price)) }
                                }
                            }
                        }
                    }
                }
            }
        }
    }
}

fn smallest(tuned: &Tuned) -> Markup {
    html! {
        @if let Some(smallest) = &tuned.smallest {
            h2 { "The smallest shield that is enough" }
            p { (smallest_words(smallest, tuned)) }
            p.why {
                "As good is a claim of its own: two one-sided tests of the paired ratios (signed ranks) against the margin, each at "
                "2.5 %. No verdict here says that nothing differs."
            }
        }
    }
}

fn chosen(choice: &TunedChoice) -> Markup {
    html! {
        h2 { "Choice of " (choice.what) }
        p { (capital(&choice.sentence)) "." }
        div.box tabindex="0" {
            table {
                thead { tr { th { "tried" } th.n { "rounds" } th.n { "median" } th { "the best by it" } th.n { "p" } } }
                tbody {
                    @for one in &choice.tried {
                        tr {
                            td { (one.name) } td.n { (one.blocks) }
                            td.n { (Nanos(one.median.max(0.0) as u64)) }
                            td { (one.ratio.map_or("–".into(), words::ratio_between)) }
                            td.n { (one.p_value.map_or("–".into(), words::p_value)) }
                        }
                    }
                }
            }
        }
    }
}

/// The reference blocks in the order of time.
fn drift(tuned: &Tuned) -> Markup {
    let points: Vec<(f64, f64)> = tuned
        .blocks
        .iter()
        .filter(|block| block.part == BlockPart::Reference && block.lost.is_none())
        .filter_map(|block| Some((block.at.0 as f64 / 6e10, block.values.first()?.value)))
        .filter(|(_, value)| *value > 0.0)
        .collect();
    if points.len() < 2 {
        return html! {};
    }
    let high = points.iter().map(|one| one.1).fold(f64::MIN_POSITIVE, f64::max);
    let low = points.iter().map(|one| one.1).fold(high, f64::min);
    let end = points.iter().map(|one| one.0).fold(1e-9, f64::max);
    let draw = |form: &str, width: f64| {
        let y = Scale { low: low / 1.5, high: high * 1.5, from: 150.0, to: 12.0 };
        let x = |minute: f64| 70.0 + (width - 90.0) * minute / end;
        let mut svg = Svg::new(width, 190.0);
        for value in [low, high] {
            svg.line("grid", (64.0, y.at(value)), (width - 14.0, y.at(value)));
            let shown = match tuned.design.responses.first().map(|one| one.id.as_str()) {
                Some("gap.stolen") => words::share(value),
                _ => tick(value),
            };
            svg.text("tick", (60.0, y.at(value) + 4.0), Anchor::End, &shown);
        }
        let line: Vec<(f64, f64)> =
            points.iter().map(|(at, value)| (x(*at), y.at(*value))).collect();
        svg.path("line a", &line);
        for at in line {
            svg.mark("mark a", Mark::Circle, at, 3.8);
        }
        svg.text("axis", (width - 14.0, 182.0), Anchor::End, &format!("minutes, to {end:.0}"));
        svg.finish(&format!("chart {form}"), "Reference blocks in the order of time")
    };
    html! {
        h2 { "How the machine drifted" }
        p.why { "Blocks with no step at all, measured again and again. What drifts falls out of the pairs." }
        (PreEscaped(charts::FORMS.map(|(form, width)| draw(form, width)).concat()))
    }
}

fn left_out(tuned: &Tuned) -> Markup {
    html! {
        @if !tuned.left_out.is_empty() {
            h2 { "Not tried" }
            ul { @for one in &tuned.left_out { li { (one.what) ": " (one.why) } } }
        }
    }
}

/// Boots in their order: a parameter is judged by boots, not by what was measured in them.
fn boots(tuned: &Tuned) -> Markup {
    html! {
        @if !tuned.boots.is_empty() {
            h2 { "The boots" }
            div.box tabindex="0" {
                table {
                    thead { tr { th.n { "pair" } th { "measured" } th { "kernel" } th { "in force" } th.n { "blocks" } th.n { "asked for" } } }
                    tbody {
                        @for boot in &tuned.boots {
                            tr {
                                td.n { (boot.pair + 1) } td { (boot.started) } td { (boot.kernel) }
                                td.wrap {
                                    (if boot.on.is_empty() { "–".to_owned() } else { boot.on.join(", ") })
                                    @if !boot.void.is_empty() { "; void: " (boot.void.join(", ")) }
                                }
                                td.n { (boot.blocks.len()) } td.n { (boot.tries) }
                            }
                        }
                    }
                }
            }
        }
    }
}

fn blocks(tuned: &Tuned) -> Markup {
    let part = |block: &TuneBlock| match block.part {
        BlockPart::Pilot => "pilot",
        BlockPart::Screening => "screening",
        BlockPart::Reference => "reference",
        BlockPart::Confirmation => "confirmation",
        BlockPart::Comparison => "comparison",
        BlockPart::Choice => "choice",
        BlockPart::Boot => "boot",
    };
    let value = |block: &TuneBlock, nth: usize| {
        let id = tuned.design.responses.get(nth).map_or("", |one| one.id.as_str());
        block.values.get(nth).map_or("–".to_owned(), |one| match id {
            "wakeup.p99" => Nanos(one.value.max(0.0) as u64).to_string(),
            _ => words::share(one.value),
        })
    };
    let title = if tuned.boots.is_empty() {
        "Every block"
    } else {
        "Every boot, by the medians of its blocks"
    };
    html! {
        h2 { (title) }
        details {
            summary { (tuned.blocks.len()) " blocks, in the order measured" }
            div.box tabindex="0" {
                table {
                    thead { tr {
                        th { "for" } th.n { "pair" } th { "in force" }
                        @for response in &tuned.design.responses { th.n { (response.title) } }
                        th {}
                    } }
                    tbody {
                        @for block in &tuned.blocks {
                            tr class=[block.lost.is_some().then_some("void")] {
                                td { (part(block)) } td.n { (block.pair + 1) }
                                td.wrap { (if block.on.is_empty() { "–".to_owned() } else { block.on.join(", ") }) }
                                @for nth in 0..tuned.design.responses.len() { td.n { (value(block, nth)) } }
                                td.wrap {
                                    @if !block.void.is_empty() { "void: " (block.void.join(", ")) " " }
                                    @if let Some(why) = &block.lost { "lost: " (why) }
                                }
                            }
                        }
                    }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn boots_stand_on_the_page_with_what_was_in_force_in_each() {
        let mut tuned = quiet_judge::tune::example();
        tuned.boots = vec![quiet_types::tune::TunedBoot {
            on: vec!["isolcpus".to_owned()],
            void: vec!["<i>x</i>".to_owned()],
            kernel: "6.12.9-amd64".to_owned(),
            tries: 2,
            ..Default::default()
        }];
        let page = tune_page(&tuned);
        for part in
            ["The boots", "isolcpus; void: &lt;i&gt;x&lt;/i&gt;", "6.12.9-amd64", "to the byte"]
        {
            assert!(page.contains(part), "{part}");
        }
    }

    #[test]
    fn the_page_has_every_step_its_interval_and_what_was_not_seen() {
        let mut tuned = quiet_judge::tune::example();
        tuned.left_out[0].what = "<b>x</b>".to_owned();
        let page = tune_page(&tuned);
        for word in [
            "1 step of 3 helps",
            "x0.50 [0.40, 0.62]",
            "Effects against noise",
            "What could not be seen",
            "How the machine drifted",
            "The smallest shield that is enough",
            "Choice of cpu",
            "steps = [&quot;partition&quot;]",
            "application/json",
        ] {
            assert!(page.contains(word), "{word}");
        }
        assert!(!page.contains("<b>x</b>") && !page.contains("NaN") && !page.contains("inf"));
    }
}
