//! What watching costs: percentiles of watched and unwatched blocks, with an interval over pairs.

use quiet_types::explain::Cost;
use std::fmt::Write;

/// A line for each percentile, and what it stands on.
pub fn cost_text(cost: &Cost) -> String {
    let mut out = String::new();
    let _ = writeln!(
        out,
        "What watching CPU {} costs its wake-ups every {}{}: {} pairs of blocks of {}, in turn.",
        cost.cpu,
        cost.interval,
        match cost.stress.join(", ").as_str() {
            "" => String::new(),
            names => format!(", under the stress {names}"),
        },
        cost.pairs,
        cost.block
    );
    for figure in &cost.figures {
        let _ = writeln!(
            out,
            "  {}: pair by pair x{:.3}, 95 % interval {:.3} to {:.3}; all together {} without, {} with: x{:.3}, {:.3} to {:.3}",
            figure.name,
            figure.by_pair.value,
            figure.by_pair.low,
            figure.by_pair.high,
            figure.without,
            figure.with,
            figure.ratio.value,
            figure.ratio.low,
            figure.ratio.high
        );
    }
    if cost.figures.is_empty() {
        let _ = writeln!(out, "  Too short: no pair is whole.");
    }
    let _ = writeln!(out, "{} events recorded, {} lost.", cost.events, cost.lost);
    out
}
