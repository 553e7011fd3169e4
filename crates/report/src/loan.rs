//! CPUs that are lent, and taken back.

use quiet_types::{
    loan::{FenceChange, Lent, Loan, LoanTerms, Reclaimed},
    printable,
};

/// What was lent, as text.
pub fn lent_text(lent: &Lent) -> String {
    let mut out = String::new();
    let again = if lent.renewed { "still " } else { "" };
    line(&mut out, &format!("CPU {} is {again}everybody's {}.", lent.cpus, until(&lent.terms)));
    refused(&mut out, &lent.changes);
    line(&mut out, "`quietcores lend --return` takes it back before that.");
    out
}

/// What was taken back, as text.
pub fn reclaimed_text(back: &Reclaimed) -> String {
    let mut out = String::new();
    if back.is_complete() {
        let took = back.took;
        line(&mut out, &format!("CPU {} is the chain's again, after {took}.", back.cpus));
    } else {
        line(
            &mut out,
            &format!("CPU {} is not the chain's alone yet; its guard tries again.", back.cpus),
        );
    }
    refused(&mut out, &back.changes);
    out
}

/// A loan as `status` has it, as one line.
pub(crate) fn loan_text(loan: &Loan) -> String {
    let left = length(loan.left);
    let who = match loan.guard {
        Some(pid) => format!("process {pid} takes them back"),
        None => "nobody takes them back: run `quietcores lend --return`".to_owned(),
    };
    format!("Its CPUs are everybody's {}: {left} are left, and {who}.", until(&loan.terms))
}

/// A time in the words of a clock; minutes are rounded up.
fn length(seconds: u64) -> String {
    match seconds {
        0..120 => format!("{seconds} s"),
        _ if seconds.is_multiple_of(3600) => format!("{} h", seconds / 3600),
        _ => format!("{} min", seconds.div_ceil(60)),
    }
}

fn until(terms: &LoanTerms) -> String {
    let mut ends = vec![format!("for {}", length(terms.seconds))];
    if terms.until_sound {
        ends.push("until the first sound".to_owned());
    }
    if let Some(unit) = &terms.unit {
        ends.push(format!("while {} runs", clean(unit)));
    }
    if let Some(process) = &terms.process {
        ends.push(format!("while {} runs", clean(&process.to_string())));
    }
    match ends.len() {
        1 => ends.concat(),
        _ => format!("{}, whichever ends first", ends.join(", ")),
    }
}

fn line(out: &mut String, text: &str) {
    out.push_str(text);
    out.push('\n');
}

fn clean(text: &str) -> String {
    printable(text, 300)
}

fn refused(out: &mut String, changes: &[FenceChange]) {
    for change in changes {
        if let Some(why) = &change.refused {
            line(out, &format!("  {}: {}", clean(&change.what), clean(why)));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use quiet_types::{
        Nanos,
        loan::{LENT_SCHEMA, LoanEnd, RECLAIMED_SCHEMA},
    };

    fn terms(until_sound: bool) -> LoanTerms {
        LoanTerms { seconds: 600, until_sound, unit: None, process: None }
    }

    #[test]
    fn a_loan_says_when_it_ends_and_how_to_end_it() {
        let lent = |terms| Lent {
            schema: LENT_SCHEMA.into(),
            cpus: "2-3".parse().unwrap(),
            terms,
            renewed: false,
            changes: Vec::new(),
        };
        assert_eq!(
            lent_text(&lent(terms(false))),
            "CPU 2-3 is everybody's for 10 min.\n`quietcores lend --return` takes it back before that.\n"
        );
        let text = lent_text(&lent(terms(true)));
        assert!(
            text.contains("for 10 min, until the first sound, whichever ends first."),
            "{text}"
        );
        let loan = Loan { since: "now".into(), terms: terms(false), left: 60, guard: None };
        assert!(loan_text(&loan).contains("60 s are left, and nobody takes them back"));
    }

    #[test]
    fn what_is_not_closed_is_named_with_its_reason() {
        let back = Reclaimed {
            schema: RECLAIMED_SCHEMA.into(),
            cpus: "1".parse().unwrap(),
            cause: LoanEnd::Hand,
            took: Nanos(2_000_000),
            changes: vec![FenceChange {
                what: "/sys/fs/cgroup/quietcores/cpuset.cpus.partition".into(),
                now: "member".into(),
                refused: Some("device or resource busy".into()),
            }],
        };
        let text = reclaimed_text(&back);
        assert!(text.contains("not the chain's alone yet"), "{text}");
        assert!(text.contains("cpuset.cpus.partition: device or resource busy"), "{text}");
    }
}
