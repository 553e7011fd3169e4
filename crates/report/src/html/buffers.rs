//! The table of buffers: how often each would run dry.

use maud::{Markup, html};
use quiet_judge::{Ask, buffers_of};
use quiet_types::Run;
use quiet_types::words;

/// How often a buffer of so many frames would run dry.
pub(super) fn buffers(measured: &[(String, Vec<&Run>)]) -> Markup {
    let ask = Ask::default();
    let columns: Vec<_> = measured.iter().map(|(_, runs)| buffers_of(runs, &ask)).collect();
    html! {
        @if columns.iter().any(|column| !column.is_empty()) {
            h3 { "Which buffer stands it" }
            div.box tabindex="0" {
                table {
                    thead { tr {
                        th.n { "frames" } th.n { "at 48 kHz" }
                        @for (name, _) in measured { th.n { (name) } }
                    } }
                    tbody {
                        @for (row, frames) in ask.frames.iter().enumerate() {
                            tr {
                                td.n { (frames.0) } td.n { (frames.lasting(ask.rate)) }
                                @for column in &columns {
                                    td.n {
                                        @if let Some(buffer) = column.get(row) {
                                            (words::rare(buffer.an_hour))
                                            br; small { "at most " (words::rare(buffer.most)) }
                                        } @else { "–" }
                                    }
                                }
                            }
                        }
                    }
                }
            }
            p.why {
                "How often an hour a buffer would run dry, were the same delays to hit a chain whose work takes half of each "
                "period: reckoned from the readings, not played."
            }
        }
    }
}
