//! How it looks: with or without colour and Unicode.

use quiet_types::live::{LiveEventKind, QuietState};
use ratatui::style::{Color, Modifier, Style};

/// What the terminal can.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TopLook {
    /// Colours; without, weight and words say the same.
    pub colour: bool,
    /// Characters beyond ASCII.
    pub unicode: bool,
}

impl TopLook {
    fn tinted(self, colour: Color) -> Style {
        match self.colour {
            true => Style::new().fg(colour),
            false => Style::new(),
        }
    }

    pub(crate) fn state(self, state: QuietState) -> Style {
        let colour = match state {
            QuietState::Quiet => Color::Green,
            QuietState::Disturbed => Color::Red,
            QuietState::Lent => Color::Yellow,
            QuietState::Open | QuietState::Unknown => Color::Cyan,
        };
        self.tinted(colour).add_modifier(Modifier::BOLD)
    }

    /// A word for the state that does without colour.
    pub(crate) fn word(self, state: QuietState) -> &'static str {
        match state {
            QuietState::Quiet => "QUIET",
            QuietState::Disturbed => "DISTURBED",
            QuietState::Lent => "LENT",
            QuietState::Open => "OPEN",
            QuietState::Unknown => "UNKNOWN",
        }
    }

    pub(crate) fn event(self, kind: LiveEventKind) -> Style {
        if kind.is_bad() { self.bad() } else { Style::new() }
    }

    pub(crate) fn bad(self) -> Style {
        self.tinted(Color::Red).add_modifier(Modifier::BOLD)
    }

    pub(crate) fn good(self) -> Style {
        self.tinted(Color::Green)
    }

    pub(crate) fn faint(self) -> Style {
        // A faint grey is not to be read on every terminal; without colour it is plain.
        self.tinted(Color::DarkGray)
    }

    pub(crate) fn title(self) -> Style {
        self.tinted(Color::Cyan).add_modifier(Modifier::BOLD)
    }

    pub(crate) fn chosen(self) -> Style {
        Style::new().add_modifier(Modifier::REVERSED)
    }

    /// A bar of so many cells.
    pub(crate) fn bar(self, share: f64, cells: usize) -> String {
        let full = ((share.clamp(0.0, 1.0) * cells as f64).round() as usize).min(cells);
        let (on, off) = if self.unicode { ("█", "·") } else { ("#", ".") };
        on.repeat(full) + &off.repeat(cells - full)
    }

    /// Text that this terminal can show; names may hold anything.
    pub(crate) fn text(self, text: &str) -> String {
        match self.unicode {
            true => text.to_owned(),
            false => text.chars().map(|c| if c.is_ascii() { c } else { '?' }).collect(),
        }
    }
}
