//! The screen, put together.

use crate::{
    look::TopLook,
    panels,
    screen::{Cover, KeyPress, Screen},
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
    let (map, _) = panels::map(moment, screen.chosen, look, whole.width);
    let sound = panels::sound(moment, look, whole.width);
    let [title, verdict, map_at, sound_at, table, events, said, keys] =
        areas(whole, map.len(), sound.len());
    frame.render_widget(Paragraph::new(top_line(moment, look, title.width)), title);
    let sentence = Line::from(vec![
        Span::styled(format!("{} ", look.word(moment.quiet.state)), look.state(moment.quiet.state)),
        Span::raw(look.text(&moment.quiet.sentence)),
    ]);
    frame.render_widget(Paragraph::new(sentence).wrap(Wrap { trim: true }), verdict);
    frame.render_widget(Paragraph::new(map), map_at);
    frame.render_widget(Paragraph::new(sound), sound_at);
    frame.render_widget(Paragraph::new(panels::occupants(screen, moment, look, table)), table);
    happened(frame, screen, look, events);
    frame.render_widget(Paragraph::new(last_said(screen, moment, look)), said);
    frame.render_widget(Paragraph::new(keys_line(look, keys.width).0), keys);
    cover(frame, screen, look, whole);
}

/// Title, verdict, map, sound, who was there, what happened, what was said, keys.
fn areas(whole: Rect, map: usize, sound: usize) -> [Rect; 8] {
    let most_map = (whole.height / 4).max(2);
    Layout::vertical([
        Constraint::Length(1),
        Constraint::Length(2),
        Constraint::Length((map as u16).min(most_map)),
        Constraint::Length(sound.min(usize::from(whole.height / 3)) as u16),
        Constraint::Fill(3),
        Constraint::Fill(2),
        Constraint::Length(1),
        Constraint::Length(1),
    ])
    .areas(whole)
}

/// What happened; beside it, where there is room and something to show, the late moments.
fn happened(frame: &mut Frame<'_>, screen: &Screen, look: TopLook, area: Rect) {
    let has_late = !quiet_live::late_moments(&screen.events).is_empty();
    if !has_late || area.width < WIDE {
        frame.render_widget(Paragraph::new(panels::events(screen, look, area)), area);
        return;
    }
    let [left, right] = Layout::horizontal([Constraint::Fill(1), Constraint::Fill(1)]).areas(area);
    frame.render_widget(Paragraph::new(panels::events(screen, look, left)), left);
    let mut late = vec![Line::from(Span::styled("Late moments", look.title()))];
    late.extend(panels::late(screen, look));
    frame.render_widget(Paragraph::new(late), right);
}

/// From here on the late moments have a place of their own.
const WIDE: u16 = 140;

/// What a press of the mouse means at a place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Spot {
    /// As if this key had been pressed.
    Key(KeyPress),
    /// The CPU at this place of the map.
    Cpu(usize),
}

/// Where the mouse may press.
pub(crate) fn spots(screen: &Screen, look: TopLook, whole: Rect) -> Vec<(Rect, Spot)> {
    let Some(moment) = &screen.moment else { return Vec::new() };
    if whole.width < LEAST.0 || whole.height < LEAST.1 {
        return Vec::new();
    }
    match &screen.mode {
        Cover::Watching => {}
        Cover::Asking(..) => {
            let area = covered(screen, look, whole).map(|it| it.area).unwrap_or_default();
            let last = Rect { y: area.bottom().saturating_sub(2), height: 1, ..area };
            let yes = Rect { width: 11.min(last.width), ..last };
            return vec![
                (yes, Spot::Key(KeyPress::Char('y'))),
                (whole, Spot::Key(KeyPress::Char('n'))),
            ];
        }
        // Anywhere: away with it.
        Cover::Help | Cover::Late => return vec![(whole, Spot::Key(KeyPress::Escape))],
        Cover::Plan(..) | Cover::Strip(..) | Cover::Typing(..) => return Vec::new(),
    }
    let (map, cpus) = panels::map(moment, screen.chosen, look, whole.width);
    let sound = panels::sound(moment, look, whole.width);
    let [_, _, map_at, _, _, _, _, keys] = areas(whole, map.len(), sound.len());
    let cpu = |(line, from, wide, place): panels::MapSpot| {
        let area = Rect { x: map_at.x + from, y: map_at.y + line, width: wide, height: 1 };
        (area.intersection(map_at), Spot::Cpu(place))
    };
    let key = |(from, wide, letter): KeySpot| {
        let area = Rect { x: keys.x + from, y: keys.y, width: wide, height: 1 };
        (area.intersection(keys), Spot::Key(KeyPress::Char(letter)))
    };
    let keys = keys_line(look, keys.width).1.into_iter().map(key);
    cpus.into_iter().map(cpu).chain(keys).collect()
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

/// A key in the last line: its first column, its width with its word, itself.
type KeySpot = (u16, u16, char);

fn keys_line(look: TopLook, width: u16) -> (Line<'static>, Vec<KeySpot>) {
    let keys = [
        ('?', "help"),
        ('p', "plan"),
        ('a', "apply"),
        ('c', "confirm"),
        ('r', "revert"),
        ('l', "lend"),
        ('b', "bypass"),
        ('m', "mute"),
        ('q', "quit"),
        ('s', "strip"),
        ('w', "swap"),
        ('t', "late"),
        ('+', "louder"),
        ('-', "softer"),
    ];
    let (mut spans, mut spots, mut used) = (Vec::new(), Vec::new(), 0);
    for (key, word) in keys {
        let from = used;
        used += word.len() + 4;
        if used > usize::from(width) + 2 {
            break;
        }
        spots.push((from as u16, word.len() as u16 + 2, key));
        spans.push(Span::styled(key.to_string(), look.chosen()));
        spans.push(Span::raw(format!(" {word}  ")));
    }
    (Line::from(spans), spots)
}

/// What covers the screen.
struct Covering {
    title: &'static str,
    lines: Vec<Line<'static>>,
    /// How far down one has read.
    down: u16,
    area: Rect,
}

fn covered(screen: &Screen, look: TopLook, whole: Rect) -> Option<Covering> {
    let (title, lines, at) = match &screen.mode {
        Cover::Watching => return None,
        Cover::Help => ("Keys", panels::help(look), 0),
        Cover::Late => ("Late moments", panels::late(screen, look), 0),
        Cover::Plan(plan, at) => ("Plan: nothing is changed yet", panels::plan(plan, look), *at),
        Cover::Strip(_, knobs, at) => {
            let lines = panels::strip(knobs, *at, look);
            // The chosen one stays in sight.
            let room = usize::from(whole.height).saturating_sub(8);
            ("Strip", lines, at.saturating_sub(room) as u16)
        }
        Cover::Typing(_, text) => {
            let lines = vec![
                Line::from("A strip (.toml), an amp (.nam) or an impulse response (.wav):"),
                Line::from(look.text(&format!("{text}_"))),
            ];
            ("Swap", lines, 0)
        }
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
    Some(Covering { title, lines, down, area })
}

fn cover(frame: &mut Frame<'_>, screen: &Screen, look: TopLook, whole: Rect) {
    let Some(Covering { title, lines, down, area }) = covered(screen, look, whole) else { return };
    frame.render_widget(Clear, area);
    let block = panels::frame_of(title, look);
    let text = Paragraph::new(lines).wrap(Wrap { trim: false }).scroll((down, 0)).block(block);
    frame.render_widget(text, area);
}
