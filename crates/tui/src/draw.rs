//! The screen, put together.

use crate::{
    look::TopLook,
    panels,
    screen::{Cover, Screen},
};
use quiet_types::live::Moment;
use ratatui::{
    Frame,
    layout::{Constraint, Layout, Rect},
    text::{Line, Span},
    widgets::{Clear, Paragraph, Wrap},
};

/// Smaller than this it only says that it is too small.
const LEAST: (u16, u16) = (40, 10);

/// Draws the screen into a frame of any size.
pub fn draw(frame: &mut Frame<'_>, screen: &Screen, look: TopLook) {
    let whole = frame.area();
    if whole.width < LEAST.0 || whole.height < LEAST.1 {
        let text = format!("too small: {} by {} at least", LEAST.0, LEAST.1);
        frame.render_widget(Paragraph::new(text), whole);
        return;
    }
    let Some(moment) = &screen.moment else {
        frame.render_widget(Paragraph::new("looking ..."), whole);
        return;
    };
    let map = panels::map(moment, screen.chosen, look, whole.width);
    let sound = panels::sound(moment, look, whole.width);
    let (most_map, map_lines) = (whole.height / 4, map.len() as u16);
    let [title, verdict, map_at, sound_at, table, events, said, keys] = Layout::vertical([
        Constraint::Length(1),
        Constraint::Length(2),
        Constraint::Length(map_lines.min(most_map.max(2))),
        Constraint::Length(sound.len().min(usize::from(whole.height / 3)) as u16),
        Constraint::Fill(3),
        Constraint::Fill(2),
        Constraint::Length(1),
        Constraint::Length(1),
    ])
    .areas(whole);
    frame.render_widget(Paragraph::new(top_line(moment, look, title.width)), title);
    let sentence = Line::from(vec![
        Span::styled(format!("{} ", look.word(moment.quiet.state)), look.state(moment.quiet.state)),
        Span::raw(look.text(&moment.quiet.sentence)),
    ]);
    frame.render_widget(Paragraph::new(sentence).wrap(Wrap { trim: true }), verdict);
    frame.render_widget(Paragraph::new(map), map_at);
    frame.render_widget(Paragraph::new(sound), sound_at);
    frame.render_widget(Paragraph::new(panels::occupants(screen, moment, look, table)), table);
    frame.render_widget(Paragraph::new(panels::events(screen, look, events)), events);
    frame.render_widget(Paragraph::new(last_said(screen, moment, look)), said);
    frame.render_widget(Paragraph::new(keys_line(look, keys.width)), keys);
    cover(frame, screen, look, whole);
}

fn top_line(moment: &Moment, look: TopLook, width: u16) -> Line<'static> {
    let time = moment.at.get(11..19).unwrap_or("").to_owned();
    let heat = moment
        .temperature
        .map(|millis| format!("  {:.0} C", millis as f64 / 1e3))
        .unwrap_or_default();
    let right = format!(
        "{} threads, seen every {:.1} s  {:.1} % of a CPU{heat}  {time} UTC",
        moment.look.threads,
        moment.look.since.as_secs_f64(),
        moment.cost * 100.0
    );
    let left = "quietcores top";
    let gap = usize::from(width).saturating_sub(left.len() + right.len());
    if gap == 0 {
        return Line::from(Span::styled(left, look.title()));
    }
    Line::from(vec![
        Span::styled(left, look.title()),
        Span::raw(" ".repeat(gap)),
        Span::styled(right, look.faint()),
    ])
}

fn last_said(screen: &Screen, moment: &Moment, look: TopLook) -> Line<'static> {
    if let Some(doing) = &screen.doing {
        return Line::from(Span::styled(format!("{} ...", doing.doing()), look.title()));
    }
    let waits = moment.shield.as_ref().and_then(|shield| shield.confirm);
    let said = screen.said.as_ref();
    if let Some(left) = waits.filter(|_| said.is_none_or(|(good, _)| *good)) {
        let text = format!("put back in {left} s unless confirmed: press c");
        return Line::from(Span::styled(text, look.bad()));
    }
    if let Some((good, said)) = said {
        let style = if *good { look.good() } else { look.bad() };
        let said = said.lines().next().unwrap_or_default();
        return Line::from(Span::styled(look.text(said), style));
    }
    match moment.unread.first() {
        Some(why) => Line::from(Span::styled(look.text(why), look.faint())),
        None => Line::default(),
    }
}

fn keys_line(look: TopLook, width: u16) -> Line<'static> {
    let keys = [
        ("?", "help"),
        ("p", "plan"),
        ("a", "apply"),
        ("c", "confirm"),
        ("r", "revert"),
        ("l", "lend"),
        ("b", "bypass"),
        ("m", "mute"),
        ("q", "quit"),
    ];
    let (mut spans, mut used) = (Vec::new(), 0);
    for (key, word) in keys {
        used += key.len() + word.len() + 3;
        if used > usize::from(width) + 2 {
            break;
        }
        spans.push(Span::styled(key, look.chosen()));
        spans.push(Span::raw(format!(" {word}  ")));
    }
    Line::from(spans)
}

fn cover(frame: &mut Frame<'_>, screen: &Screen, look: TopLook, whole: Rect) {
    let (title, lines, at) = match &screen.mode {
        Cover::Watching => return,
        Cover::Help => ("Keys", panels::help(look), 0),
        Cover::Plan(plan, at) => ("Plan: nothing is changed yet", panels::plan(plan, look), *at),
        Cover::Asking(_, question) => {
            let lines = vec![
                Line::from(look.text(question)),
                Line::default(),
                Line::from("y: do it    any other key: do not"),
            ];
            ("Sure?", lines, 0)
        }
    };
    let widest = whole.width.saturating_sub(4).min(100);
    let wrapped: usize = lines
        .iter()
        .map(|line| line.width().div_ceil(usize::from(widest.saturating_sub(2)).max(1)).max(1))
        .sum();
    let height = (wrapped as u16 + 2).min(whole.height.saturating_sub(2));
    let area = Rect {
        x: (whole.width - widest) / 2,
        y: (whole.height - height) / 2,
        width: widest,
        height,
    };
    let down = at.min((wrapped as u16).saturating_sub(height.saturating_sub(2)));
    frame.render_widget(Clear, area);
    let block = panels::frame_of(title, look);
    let text = Paragraph::new(lines).wrap(Wrap { trim: false }).scroll((down, 0)).block(block);
    frame.render_widget(text, area);
}
