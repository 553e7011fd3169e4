//! The terminal: keys in, the screen out.

use crate::{
    draw::draw,
    look::TopLook,
    screen::{KeyPress, Screen, TopOrder},
};
use quiet_live::{Hands, Onlooker};
use quiet_types::{Plan, live::Deed};
use ratatui::{
    Terminal,
    backend::Backend,
    crossterm::event::{self, Event, KeyCode, KeyEventKind, KeyModifiers},
};
use serde_json::json;
use std::{
    io,
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
        mpsc,
    },
    time::Duration,
};

/// A key is answered within this.
const TURN: Duration = Duration::from_millis(50);

/// What `top` is given.
pub struct TopSetup {
    /// The stream.
    pub watch: Onlooker,
    /// What may be done.
    pub hands: Arc<dyn Hands>,
    /// Where control sockets are.
    pub engines: Option<PathBuf>,
    /// What the terminal can.
    pub look: TopLook,
    /// Raised where the program is to end.
    pub stop: Arc<AtomicBool>,
}

impl std::fmt::Debug for TopSetup {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TopSetup").field("look", &self.look).finish_non_exhaustive()
    }
}

enum Answer {
    Done(Result<Deed, String>),
    Plan(Result<Box<Plan>, String>),
}

/// Shows the stream until somebody quits.
///
/// # Errors
/// When the terminal cannot be written or read.
pub fn run(setup: &TopSetup) -> io::Result<()> {
    let mut terminal = ratatui::try_init()?;
    let done = watch(&mut terminal, setup);
    let back = ratatui::try_restore();
    done.and(back)
}

fn watch<B: Backend<Error = io::Error>>(
    terminal: &mut Terminal<B>,
    setup: &TopSetup,
) -> io::Result<()> {
    let mut screen = Screen::new(setup.hands.what());
    let (told, answers) = mpsc::channel();
    let (mut number, mut is_new) = (0, true);
    while !screen.quits && !setup.stop.load(Ordering::Relaxed) {
        if let Some(moment) = setup.watch.after(number, Duration::ZERO) {
            number = moment.number;
            screen.take(moment, setup.watch.events());
            is_new = true;
        }
        while let Ok(answer) = answers.try_recv() {
            match answer {
                Answer::Done(done) => screen.done(done),
                Answer::Plan(plan) => screen.planned(plan.map(|plan| *plan)),
            }
            setup.watch.poke();
            is_new = true;
        }
        if is_new {
            terminal.draw(|frame| draw(frame, &screen, setup.look))?;
        }
        is_new = false;
        if !event::poll(TURN)? {
            continue;
        }
        is_new = true;
        if let Some(order) = key_of(&event::read()?).and_then(|key| screen.key(key)) {
            carry_out(order, setup, &screen, told.clone())?;
        }
    }
    Ok(())
}

fn key_of(event: &Event) -> Option<KeyPress> {
    let Event::Key(key) = event else { return None };
    if key.kind == KeyEventKind::Release {
        return None;
    }
    Some(match key.code {
        KeyCode::Char('c') if key.modifiers.contains(KeyModifiers::CONTROL) => KeyPress::Interrupt,
        KeyCode::Char(letter) => KeyPress::Char(letter),
        KeyCode::Up => KeyPress::Up,
        KeyCode::Down => KeyPress::Down,
        KeyCode::Left => KeyPress::Left,
        KeyCode::Right => KeyPress::Right,
        KeyCode::Enter => KeyPress::Enter,
        KeyCode::Esc => KeyPress::Escape,
        _ => return None,
    })
}

/// On a thread of its own: a password may be asked for, and a shield takes its time.
fn carry_out(
    order: TopOrder,
    setup: &TopSetup,
    screen: &Screen,
    told: mpsc::Sender<Answer>,
) -> io::Result<()> {
    let (hands, engines) = (setup.hands.clone(), setup.engines.clone());
    let (confirm, lend) = (screen.confirm, screen.lend);
    std::thread::Builder::new().name("deed".into()).spawn(move || {
        let answer = match order {
            TopOrder::Plan => Answer::Plan(hands.plan().map(Box::new)),
            TopOrder::Apply => Answer::Done(hands.apply(Some(confirm))),
            TopOrder::Confirm => Answer::Done(hands.confirm()),
            TopOrder::Revert => Answer::Done(hands.revert()),
            TopOrder::Lend => Answer::Done(hands.lend(lend)),
            TopOrder::TakeBack => Answer::Done(hands.take_back()),
            TopOrder::Bypass { engine, on } => Answer::Done(switch(engines, &engine, "bypass", on)),
            TopOrder::Mute { engine, on } => Answer::Done(switch(engines, &engine, "mute", on)),
        };
        let _ = told.send(answer);
    })?;
    Ok(())
}

fn switch(dir: Option<PathBuf>, engine: &str, what: &str, on: bool) -> Result<Deed, String> {
    let dir = dir.ok_or("there is no private directory for control sockets")?;
    let request = json!({"do": what, "on": on});
    quiet_live::ask(&dir, engine, &request).map_err(|e| e.to_string())?;
    let said = format!("{what} {}", if on { "on" } else { "off" });
    Ok(Deed { asked: what.into(), done: true, said })
}
