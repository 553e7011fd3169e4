//! The parts of the screen, as lines.

use crate::{look::TopLook, screen::Screen};
use quiet_types::{
    Plan,
    live::{LiveCpu, LiveProbe, LiveSound, Moment, Occupant, OccupantKind},
    play::{Knob, Knobs, Pitch, unit_sign},
};
use ratatui::{
    layout::Rect,
    symbols::border,
    text::{Line, Span},
    widgets::Block,
};

pub(crate) fn frame_of(title: &'static str, look: TopLook) -> Block<'static> {
    let ascii = border::Set {
        top_left: "+",
        top_right: "+",
        bottom_left: "+",
        bottom_right: "+",
        vertical_left: "|",
        vertical_right: "|",
        horizontal_top: "-",
        horizontal_bottom: "-",
    };
    let set = if look.unicode { border::PLAIN } else { ascii };
    Block::bordered().border_set(set).title(Span::styled(title, look.title()))
}

/// A CPU on the map: its line, its first column, its width, its place.
pub(crate) type MapSpot = (u16, u16, u16, usize);

/// The machine as a map: clusters one after the other, siblings of a core joined; and where each CPU stands on it.
pub(crate) fn map(
    moment: &Moment,
    chosen: Option<usize>,
    look: TopLook,
    width: u16,
) -> (Vec<Line<'static>>, Vec<MapSpot>) {
    let mut lines: Vec<Line<'static>> = Vec::new();
    let mut spots = Vec::new();
    let (mut spans, mut used) = (vec![Span::raw("CPUs ")], 5);
    let mut last: Option<&LiveCpu> = None;
    for (at, cpu) in moment.cpus.iter().enumerate() {
        let cell = cell(cpu, look);
        let between = match last {
            None => "",
            Some(last) if last.cluster != cpu.cluster => {
                if look.unicode {
                    " │ "
                } else {
                    " | "
                }
            }
            Some(last)
                if cpu.core.is_some() && (last.core, last.package) == (cpu.core, cpu.package) =>
            {
                "+"
            }
            Some(_) => " ",
        };
        let wide = cell.chars().count() + between.chars().count();
        if used + wide > usize::from(width) {
            lines.push(Line::from(std::mem::replace(&mut spans, vec![Span::raw("     ")])));
            used = 5;
        } else {
            spans.push(Span::raw(between));
            used += between.chars().count();
        }
        let cells = cell.chars().count();
        spots.push((lines.len() as u16, used as u16, cells as u16, at));
        used += cells;
        let style =
            match (chosen == Some(at), cpu.shielded, cpu.occupants.iter().any(|o| o.foreign)) {
                (true, _, _) => look.chosen(),
                (_, true, true) => look.bad(),
                (_, true, false) => look.good(),
                _ if !cpu.online => look.faint(),
                _ => ratatui::style::Style::new(),
            };
        spans.push(Span::styled(cell, style));
        last = Some(cpu);
    }
    lines.push(Line::from(spans));
    (lines, spots)
}

/// `[2 12%]` for a shielded CPU, `2 12%` for another, `2 off`.
fn cell(cpu: &LiveCpu, _look: TopLook) -> String {
    let busy = match cpu.busy {
        _ if !cpu.online => "off".to_owned(),
        Some(busy) => format!("{:>3.0}%", busy * 100.0),
        None => "  - ".to_owned(),
    };
    if cpu.shielded { format!("[{} {busy}]", cpu.id) } else { format!(" {} {busy} ", cpu.id) }
}

/// Who was on each CPU, shielded ones first.
pub(crate) fn occupants(
    screen: &Screen,
    moment: &Moment,
    look: TopLook,
    area: Rect,
) -> Vec<Line<'static>> {
    let told = screen.told();
    let mut lines = vec![Line::from(Span::styled(
        "Who was there (the longest first; threads since the last look at them)",
        look.title(),
    ))];
    let room = usize::from(area.height);
    for cpu in told {
        if lines.len() >= room {
            break;
        }
        let head = format!(
            "CPU {:<3} {:<6} {} ",
            cpu.id,
            if cpu.shielded { "shield" } else { "" },
            look.bar(cpu.busy.unwrap_or_default(), 8)
        );
        let left = usize::from(area.width).saturating_sub(head.chars().count());
        let mut spans = vec![Span::raw(head)];
        spans.extend(names(cpu, look, left));
        lines.push(Line::from(spans));
    }
    let _ = moment;
    lines
}

fn names(cpu: &LiveCpu, look: TopLook, room: usize) -> Vec<Span<'static>> {
    let (mut spans, mut used, mut left_out) = (Vec::new(), 0, cpu.more as usize);
    for (at, one) in cpu.occupants.iter().enumerate() {
        let text = look.text(&occupant(one));
        let wide = text.chars().count() + 2;
        // Room for what says that there are more.
        if used + wide + 8 > room {
            left_out += cpu.occupants.len() - at;
            break;
        }
        used += wide;
        let style = if one.foreign { look.bad() } else { ratatui::style::Style::new() };
        let mark = if one.foreign { "!" } else { "" };
        spans.push(Span::styled(format!("{mark}{text}"), style));
        spans.push(Span::raw("  "));
    }
    if left_out > 0 {
        spans.push(Span::styled(format!("+{left_out}"), look.faint()));
    }
    spans
}

fn occupant(one: &Occupant) -> String {
    match (one.kind, one.number, one.ran) {
        (_, _, Some(ran)) => format!("{} {ran}", one.name),
        (OccupantKind::Irq, Some(number), _) => {
            format!("IRQ {number} {} x{}", one.name, one.times)
        }
        _ => format!("{} x{}", one.name, one.times),
    }
}

/// What happened, the newest last.
pub(crate) fn events(screen: &Screen, look: TopLook, area: Rect) -> Vec<Line<'static>> {
    let mut lines = vec![Line::from(Span::styled("What happened", look.title()))];
    let room = usize::from(area.height).saturating_sub(1);
    let from = screen.events.len().saturating_sub(room);
    lines.extend(screen.events[from..].iter().map(|event| event_line(event, look)));
    if screen.events.is_empty() && room > 0 {
        lines.push(Line::from(Span::styled("nothing yet", look.faint())));
    }
    lines
}

fn event_line(event: &quiet_types::live::LiveEvent, look: TopLook) -> Line<'static> {
    let time = event.at.get(11..19).unwrap_or("");
    let text = look.text(&format!("{time}  {}", event.said));
    Line::from(Span::styled(text, look.event(event.kind)))
}

/// The last late moments, the newest first.
pub(crate) fn late(screen: &Screen, look: TopLook) -> Vec<Line<'static>> {
    let late = quiet_live::late_moments(&screen.events);
    if late.is_empty() {
        return vec![Line::from(
            "none yet; who came between two looks is told by quietcores explain",
        )];
    }
    late.into_iter().map(|event| event_line(event, look)).collect()
}

/// Blocks by the share of a period that they took, each column as high as the logarithm of its count.
fn loads(sound: &LiveSound, look: TopLook, width: usize) -> Option<Line<'static>> {
    let bars = quiet_live::load_bars(&sound.status.load.histogram, width.clamp(12, 102));
    let (late, within) = bars.split_last()?;
    if bars.iter().all(|bar| *bar == 0.0) {
        return None;
    }
    Some(Line::from(vec![
        Span::raw("  load 0% "),
        Span::raw(within.iter().map(|bar| column(*bar, look)).collect::<String>()),
        Span::raw(" late "),
        Span::styled(column(*late, look).to_string(), look.bad()),
    ]))
}

/// A probe's readings by length, both logarithmic.
fn readings(probe: &LiveProbe, look: TopLook) -> Option<Line<'static>> {
    let (bars, from, to) = quiet_live::probe_bars(&probe.bars)?;
    let bars: String = bars.into_iter().map(|bar| column(bar, look)).collect();
    Some(Line::from(format!("  {from} [{bars}] {to}")))
}

/// A column of a histogram, one cell high.
fn column(bar: f64, look: TopLook) -> char {
    const ROUND: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
    const PLAIN: [char; 8] = ['.', ':', '-', '=', '+', '*', '%', '#'];
    let heights = if look.unicode { ROUND } else { PLAIN };
    if bar == 0.0 { ' ' } else { heights[((bar * 8.0) as usize).min(7)] }
}

/// A tuner's needle: the note, and how far from it.
fn tuned(pitch: &Pitch, look: TopLook) -> Line<'static> {
    if pitch.note.is_empty() {
        return Line::from(format!("  {}: -", look.text(&pitch.stage)));
    }
    let (cells, middle) = (21usize, 10.0);
    let at = (middle + pitch.cents / 50.0 * 10.0).round().clamp(0.0, 20.0) as usize;
    let needle: String = (0..cells)
        .map(|cell| match cell {
            cell if cell == at => '#',
            10 => '|',
            _ => '-',
        })
        .collect();
    let style = if pitch.cents.abs() <= 5.0 { look.good() } else { look.title() };
    Line::from(vec![
        Span::raw(format!("  {}: ", look.text(&pitch.stage))),
        Span::styled(format!("{:<4}", pitch.note), style),
        Span::raw(format!("[{needle}] {:+.0} cents", pitch.cents)),
    ])
}

/// What can be turned; the chosen knob stands out.
pub(crate) fn strip(knobs: &Knobs, chosen: usize, look: TopLook) -> Vec<Line<'static>> {
    let keys = "up, down: choose   left, right: turn (< >: far)   d: as the file says   w: swap";
    let mut lines = vec![Line::from(Span::styled(keys, look.faint())), Line::default()];
    let wide = knobs.params.iter().map(|knob| knob.name.chars().count()).max().unwrap_or(0);
    for (at, knob) in knobs.params.iter().enumerate() {
        let name = format!("{:<wide$}  ", look.text(&knob.name));
        let style = if at == chosen { look.chosen() } else { ratatui::style::Style::new() };
        lines.push(Line::from(vec![
            Span::styled(name, style),
            Span::raw(look.bar(f64::from(knob.share()), 20)),
            Span::raw(format!("  {}", knob_value(knob))),
            Span::styled(knob_range(knob), look.faint()),
        ]));
    }
    lines
}

fn knob_value(knob: &Knob) -> String {
    match knob.unit.as_str() {
        "switch" => if knob.value >= 0.5 { "on" } else { "off" }.to_owned(),
        unit => format!("{} {}", knob.value, unit_sign(unit)),
    }
}

fn knob_range(knob: &Knob) -> String {
    match knob.unit.as_str() {
        "switch" => String::new(),
        _ => format!("  {} to {}", knob.low, knob.high),
    }
}

/// The engines that play: load, counts, meters.
pub(crate) fn sound(moment: &Moment, look: TopLook, width: u16) -> Vec<Line<'static>> {
    let mut lines = Vec::new();
    for sound in &moment.sounds {
        lines.push(Line::from(vec![
            Span::styled(look.text(&sound.strip), look.title()),
            Span::raw(look.text(&format!("  {}{}", state(sound), sound.told))),
        ]));
        let cells = (usize::from(width) / 3).clamp(10, 40);
        for (channel, level) in sound.status.levels.iter().enumerate().take(2) {
            // -60 dB to 0.
            let share = |decibels: f32| f64::from((decibels + 60.0) / 60.0);
            let line = format!(
                "  {} in  {} {:>6.1} dB   out {} {:>6.1} dB",
                channel + 1,
                look.bar(share(level.input), cells / 2),
                level.input,
                look.bar(share(level.output), cells / 2),
                level.output
            );
            lines.push(Line::from(line));
        }
        lines.extend(loads(sound, look, usize::from(width).saturating_sub(20)));
        lines.extend(Pitch::of(&sound.readings).iter().map(|pitch| tuned(pitch, look)));
    }
    for probe in &moment.probes {
        lines.push(Line::from(vec![
            Span::styled(
                look.text(&format!("probe {} {}", probe.probe, probe.label)),
                look.title(),
            ),
            Span::raw(look.text(&format!("  {}", probe.told))),
        ]));
        lines.extend(readings(probe, look));
    }
    lines
}

/// What the strip is replaced by, where it is.
fn state(sound: &LiveSound) -> &'static str {
    match (sound.mute, sound.bypass) {
        (true, _) => "MUTED  ",
        (_, true) => "BYPASSED  ",
        _ => "",
    }
}

/// The steps, old and new.
pub(crate) fn plan(plan: &Plan, look: TopLook) -> Vec<Line<'static>> {
    let mut lines = vec![Line::from(format!(
        "shields CPU {}, leaves CPU {} to everybody else; {} steps; a: apply, up and down: read on",
        plan.shield.cpus,
        plan.shield.housekeeping,
        plan.steps.len()
    ))];
    for reason in &plan.reasons {
        lines.push(Line::from(Span::styled(look.text(reason), look.faint())));
    }
    let arrow = if look.unicode { "→" } else { "->" };
    for step in &plan.steps {
        let old = step.old.as_deref().unwrap_or("(not there)");
        let text = format!(
            "{}: {} {arrow} {}",
            step.action.what(),
            one_line(old),
            one_line(&step.action.new_value())
        );
        lines.push(Line::from(look.text(&text)));
    }
    for finding in &plan.findings {
        lines.push(Line::from(Span::styled(look.text(&finding.title), look.bad())));
    }
    lines
}

fn one_line(text: &str) -> String {
    quiet_live::clean(&text.trim().replace('\n', " "), 120)
}

pub(crate) fn help(_look: TopLook) -> Vec<Line<'static>> {
    [
        "p        the plan: what apply would change, old and new",
        "a        put the shield up; it is put back by itself unless it is confirmed",
        "c        confirm: the shield stays until revert",
        "r        put the machine back",
        "l        lend the shield's CPUs to everybody for a while; again: take them back",
        "b        let the input of the playing engine through; again: the strip",
        "m        silence the playing engine; again: let it be heard",
        "+ -      turn the playing engine's last gain by half a dB",
        "s        the strip: all that can be turned",
        "w        swap: type a file, .toml for a strip, .nam for an amp, .wav for an IR",
        "t        the last ten late moments, with who was there",
        "arrows   choose a CPU, whose occupants come first; so does a press of the mouse",
        "q        quit; what is applied stays as it is",
        "",
        "[2 1%]   a shielded CPU and the share of time that it was busy; 2+3 are siblings of",
        "         a core; a bar stands between clusters. ! marks who does not belong there.",
        "Threads are put down to the CPU where they ran last. Who came and went between two",
        "looks is not seen: `quietcores explain` sees everybody, by the kernel's trace.",
    ]
    .into_iter()
    .map(Line::from)
    .collect()
}
