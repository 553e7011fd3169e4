//! One self-contained HTML page.

use quiet_types::{Proof, Run};

/// Stands near the beginning of every page: how an earlier page is told from a foreign file.
pub const PAGE_MARK: &str = "<meta name=\"generator\" content=\"quietcores\">";

/// The page of a proof.
pub fn proof_page(proof: &Proof) -> String {
    format!(
        "<!DOCTYPE html><html lang=en><head>{PAGE_MARK}</head><body>{}</body></html>",
        proof.verdict
    )
}

/// The page of one or several runs.
pub fn runs_page(runs: &[Run]) -> String {
    format!(
        "<!DOCTYPE html><html lang=en><head>{PAGE_MARK}</head><body>{}</body></html>",
        runs.len()
    )
}
