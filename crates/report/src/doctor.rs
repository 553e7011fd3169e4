//! Mends of an audit as text.

use crate::{check::when, severity_word, wrap};
use quiet_types::{
    Finding,
    doctor::{Doctored, Mend, MendAnswer, MendWay},
    plan::{Step, Taken},
    printable, words,
};

/// Nothing in a finding is longer than this on a terminal.
const LONGEST: usize = 1_000;
/// More steps of one mend than this are counted, not told.
const TOLD: usize = 8;

/// One finding, and what can be done about it.
pub fn mend_text(mend: &Mend, width: usize) -> String {
    let mut out = head(&mend.finding, width);
    match &mend.way {
        MendWay::Steps { steps, shield } => {
            let what = if *shield { "a shield" } else { "settings" };
            out += &format!("  now     {what}; `revert` puts it back:\n");
            for step in steps.iter().take(TOLD) {
                out += &format!("            {}\n", change(step));
            }
            if steps.len() > TOLD {
                out += &format!(
                    "            and {} more; see `quietcores plan`\n",
                    steps.len() - TOLD
                );
            }
        }
        MendWay::Commands { commands } => {
            for command in commands {
                out += &format!("  run     {}\n", printable(command, LONGEST));
            }
            out += &remedy(&mend.finding, width);
        }
        MendWay::Hands => out += &remedy(&mend.finding, width),
    }
    out.push('\n');
    out
}

fn head(finding: &Finding, width: usize) -> String {
    let title = format!("{}: {}", severity_word(finding.severity), finding.title);
    let mut out = wrap(&printable(&title, LONGEST), width.max(40), 0) + "\n";
    out += &paragraph("  effect  ", &finding.effect, width);
    out
}

fn remedy(finding: &Finding, width: usize) -> String {
    match finding.when {
        Some(moment) if !finding.remedy.is_empty() => {
            let text = format!("{} ({})", finding.remedy, when(moment));
            paragraph("  remedy  ", &text, width)
        }
        _ => paragraph("  remedy  ", &finding.remedy, width),
    }
}

fn change(step: &Step) -> String {
    let (what, new) = (step.action.what(), step.action.new_value());
    let old = step.old.as_deref().map(|old| format!("{} -> ", printable(old, 100)));
    format!("{}: {}{}", printable(&what, 200), old.unwrap_or_default(), printable(&new, 200))
}

/// `first`, then the words, wrapped; later lines begin under the first word.
fn paragraph(first: &str, text: &str, width: usize) -> String {
    let blank = " ".repeat(first.chars().count());
    let lines = wrap(&printable(text, LONGEST), width.max(40) - blank.len(), 0);
    let lines = lines.lines().filter(|line| !line.is_empty()).enumerate();
    lines.map(|(at, line)| format!("{}{line}\n", if at == 0 { first } else { &blank })).collect()
}

/// What became of one mend, and whether a look at once after it still has the finding.
pub fn made_text(mend: &Mend, steps: &[Taken], still_there: bool) -> String {
    let refused: Vec<&Taken> = steps.iter().filter(|taken| !taken.outcome.holds()).collect();
    let held = steps.len() - refused.len();
    let mut out = format!("  done    {held} of {} steps hold", steps.len());
    out += match (still_there, &mend.way) {
        (false, _) => "; the finding is gone\n",
        (true, MendWay::Steps { shield: false, .. }) => "; the finding is still there\n",
        (true, _) => "; the finding is still there, see `quietcores status`\n",
    };
    for taken in refused.iter().take(TOLD) {
        let (what, became) = (taken.step.action.what(), words::outcome(&taken.outcome));
        out += &format!("            {}: {}\n", printable(&what, 200), printable(&became, LONGEST));
    }
    if matches!(mend.way, MendWay::Steps { shield: false, .. }) {
        let id = &mend.finding.id;
        out += &format!("          `quietcores doctor --undo {id}` takes this one back\n");
    }
    out + "\n"
}

/// What came of it.
pub fn doctored_text(done: &Doctored, width: usize) -> String {
    let mut out = String::new();
    for taken in &done.undone {
        let (what, became) = (taken.step.action.what(), words::outcome(&taken.outcome));
        out += &format!("put back: {}: {}\n", printable(&what, 200), printable(&became, LONGEST));
    }
    if !done.undone.is_empty() {
        return out + "What else was mended stays; `quietcores revert` puts the machine back.\n";
    }
    for one in done.mended.iter().filter(|one| one.answer == MendAnswer::Taken) {
        let became = match one.still_there {
            Some(false) => "mended",
            Some(true) => "still there",
            None => "not looked at again",
        };
        out += &format!("{became}: {}\n", printable(&one.mend.finding.title, LONGEST));
    }
    for finding in done.new.iter().chain(&done.findings) {
        out += &head(finding, width);
        out += &remedy(finding, width);
    }
    let count = |test: &dyn Fn(MendAnswer, &MendWay) -> bool| {
        done.mended.iter().filter(|one| test(one.answer, &one.mend.way)).count()
    };
    let taken = count(&|answer, _| answer == MendAnswer::Taken);
    let could =
        count(&|answer, way| answer != MendAnswer::Taken && matches!(way, MendWay::Steps { .. }));
    let by_hand = count(&|_, way| !matches!(way, MendWay::Steps { .. }));
    if done.mended.is_empty() {
        return out + "Nothing found that stands in the way.\n";
    }
    out += &format!(
        "{taken} mended now, {could} could be, {by_hand} {} by hand or after a reboot.\n",
        if by_hand == 1 { "is" } else { "are" }
    );
    if done.applied.is_some() {
        out += "`quietcores revert` puts the machine back.\n";
    }
    out
}
