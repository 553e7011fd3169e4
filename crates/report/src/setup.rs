//! What a setup found and came to, as text.

use quiet_types::{
    printable,
    setup::{SetUp, SetupProposal},
};
use std::fmt::Write as _;

/// What was found to play with.
pub fn found_text(found: &SetupProposal) -> String {
    let mut out = String::new();
    let running = found.players.iter().filter(|player| !player.running.is_empty());
    for player in running {
        let each: Vec<String> = player.running.iter().map(|one| printable(one, 200)).collect();
        let _ = writeln!(out, "Found {}: {}", player.kind, each.join("; "));
    }
    for card in &found.cards {
        let without = if card.has_interrupts { "" } else { " (its interrupts are not known)" };
        let _ = writeln!(out, "Found a card: {}{without}", printable(&card.about, 200));
    }
    if out.is_empty() {
        out += "No player that is known here runs, and there is no sound card.\n";
    }
    out
}

/// What it came to, in a few lines.
pub fn setup_text(set: &SetUp) -> String {
    let mut out = String::new();
    let cpus = &set.plan.shield.cpus;
    let chain = printable(&set.chain, 100);
    let _ = match (set.up, &set.applied) {
        (true, _) => writeln!(out, "The chain {chain} has CPU {cpus} to itself."),
        (false, Some(_)) => writeln!(out, "The machine is as it was before."),
        (false, None) => writeln!(out, "Nothing on the machine is changed."),
    };
    if let Some(file) = &set.file {
        let _ = writeln!(out, "Chain file: {}", printable(file, 300));
    }
    if let Some(proof) = &set.proof {
        let _ = writeln!(out, "Proof: {}", printable(&proof.sentence, 1000));
    }
    if let Some(written) = &set.persisted {
        let _ = writeln!(out, "From the next boot on it comes up by itself: {}", written.start);
    }
    for finding in &set.findings {
        let _ = writeln!(out, "{}", printable(&finding.title, 300));
        for line in [&finding.evidence, &finding.remedy] {
            if !line.is_empty() {
                let _ = writeln!(out, "    {}", printable(line, 1000));
            }
        }
    }
    if set.up {
        out += "`quietcores status` shows it; `quietcores revert` puts the machine back.\n";
    }
    out
}
