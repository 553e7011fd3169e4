//! The page of a campaign.
use quiet_types::{Run, campaign::Campaigned};
/// x
pub fn campaign_page(_it: &Campaigned, runs: &[Run]) -> String {
    super::runs_page(runs)
}
