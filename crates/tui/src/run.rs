//! The terminal: keys in, the screen out.

use crate::{
    draw::{Spot, draw, spots},
    look::TopLook,
    screen::{KeyPress, Screen, TopOrder},
};
use quiet_live::{Hands, Onlooker};
use quiet_types::{
    Plan,
    live::{Deed, SoundWish},
    play::{Knobs, unit_sign},
};
use ratatui::{
    Terminal,
    backend::Backend,
    crossterm::{
        event::{
            self, DisableMouseCapture, EnableMouseCapture, Event, KeyCode, KeyEventKind,
            KeyModifiers, MouseButton, MouseEvent, MouseEventKind,
        },
        execute,
    },
    layout::{Position, Rect},
};
use rustix::{
    event::{PollFd, PollFlags, Timespec},
    io::Errno,
};
use std::{
    io,
    path::{Path, PathBuf},
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
    /// Where sounds are kept that an engine is given.
    pub sounds: Option<PathBuf>,
    /// What the terminal can.
    pub look: TopLook,
    /// Whether it is to tell of the mouse.
    pub mouse: bool,
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
    Knobs(String, Result<Knobs, String>),
    /// Of what was done beside something else.
    Quick(Result<Deed, String>),
}

/// Shows the stream until somebody quits.
///
/// # Errors
/// When the terminal cannot be written or read.
pub fn run(setup: &TopSetup) -> io::Result<()> {
    let mut terminal = ratatui::try_init()?;
    if setup.mouse {
        // A terminal without one does without.
        let _ = execute!(io::stdout(), EnableMouseCapture);
    }
    let done = watch(&mut terminal, setup);
    if setup.mouse {
        let _ = execute!(io::stdout(), DisableMouseCapture);
    }
    let back = ratatui::try_restore();
    done.and(back)
}

fn watch<B: Backend<Error = io::Error>>(
    terminal: &mut Terminal<B>,
    setup: &TopSetup,
) -> io::Result<()> {
    let mut screen = Screen::new(setup.hands.what());
    let (told, answers) = mpsc::channel();
    let quick = quick_hand(setup, told.clone())?;
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
                Answer::Quick(done) => screen.heard(done),
                Answer::Knobs(engine, knobs) => screen.knobs(engine, knobs),
            }
            setup.watch.poke();
            is_new = true;
        }
        if is_new {
            terminal.draw(|frame| draw(frame, &screen, setup.look))?;
        }
        is_new = false;
        match asked(TURN)? {
            Asked::Nothing => continue,
            Asked::Gone => return Ok(()),
            Asked::Something if !event::poll(Duration::ZERO)? => continue,
            Asked::Something => {}
        }
        is_new = true;
        let event = event::read()?;
        let key = match &event {
            Event::Mouse(mouse) => {
                let size = terminal.size()?;
                let whole = Rect::new(0, 0, size.width, size.height);
                key_of_mouse(mouse, &mut screen, setup.look, whole)
            }
            event => key_of(event),
        };
        match key.and_then(|key| screen.key(key)) {
            // In their order, however fast keys come.
            Some(order @ (TopOrder::Gain { .. } | TopOrder::Sound { .. })) => {
                let _ = quick.send(order);
            }
            Some(order) => carry_out(order, setup, &screen, told.clone())?,
            None => {}
        }
    }
    Ok(())
}

/// What came from the terminal.
enum Asked {
    Nothing,
    Something,
    /// The line was cut, or its window closed.
    Gone,
}

/// Waits for a key, a change of size or the end of the terminal. crossterm would read a terminal that has gone for ever, on a whole CPU:
/// its loop takes an empty read for one of many.
fn asked(most: Duration) -> io::Result<Asked> {
    let stdin = io::stdin();
    let mut terminal = [PollFd::new(&stdin, PollFlags::IN)];
    let most = Timespec::try_from(most).map_err(io::Error::other)?;
    match rustix::event::poll(&mut terminal, Some(&most)) {
        // A change of size comes as a signal, which crossterm has noted.
        Ok(0) | Err(Errno::INTR) if event::poll(Duration::ZERO)? => Ok(Asked::Something),
        Ok(0) | Err(Errno::INTR) => Ok(Asked::Nothing),
        Ok(_) if terminal[0].revents().intersects(PollFlags::HUP | PollFlags::ERR) => {
            Ok(Asked::Gone)
        }
        Ok(_) => Ok(Asked::Something),
        Err(error) => Err(error.into()),
    }
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
        KeyCode::Backspace | KeyCode::Delete => KeyPress::Backspace,
        _ => return None,
    })
}

/// The key that stands where the mouse pressed; a CPU there is chosen. The wheel is the arrows.
fn key_of_mouse(
    mouse: &MouseEvent,
    screen: &mut Screen,
    look: TopLook,
    whole: Rect,
) -> Option<KeyPress> {
    match mouse.kind {
        MouseEventKind::ScrollUp => Some(KeyPress::Up),
        MouseEventKind::ScrollDown => Some(KeyPress::Down),
        MouseEventKind::Down(MouseButton::Left) => {
            let at = Position::new(mouse.column, mouse.row);
            let all = spots(screen, look, whole);
            let (_, spot) = all.into_iter().find(|(area, _)| area.contains(at))?;
            match spot {
                Spot::Key(key) => return Some(key),
                Spot::Cpu(place) => screen.press_cpu(place),
            }
            None
        }
        _ => None,
    }
}

/// Asks engines for what takes no time, one after the other.
fn quick_hand(setup: &TopSetup, told: mpsc::Sender<Answer>) -> io::Result<mpsc::Sender<TopOrder>> {
    let (give, orders) = mpsc::channel::<TopOrder>();
    let engines = setup.engines.clone();
    std::thread::Builder::new().name("knobs".into()).spawn(move || {
        while let Ok(order) = orders.recv() {
            let is_quick = order.is_quick();
            let done = match order {
                TopOrder::Sound { engine, wish } => sound(engines.as_deref(), &engine, &wish),
                TopOrder::Gain { engine, steps } => gain(engines.as_deref(), &engine, steps),
                _ => continue,
            };
            let answer = if is_quick { Answer::Quick(done) } else { Answer::Done(done) };
            if told.send(answer).is_err() {
                return;
            }
        }
    })?;
    Ok(give)
}

/// On a thread of its own: a password may be asked for, and a shield takes its time.
fn carry_out(
    order: TopOrder,
    setup: &TopSetup,
    screen: &Screen,
    told: mpsc::Sender<Answer>,
) -> io::Result<()> {
    let (hands, engines, sounds) =
        (setup.hands.clone(), setup.engines.clone(), setup.sounds.clone());
    let (confirm, lend) = (screen.confirm, screen.lend);
    std::thread::Builder::new().name("deed".into()).spawn(move || {
        let answer = match order {
            TopOrder::Plan => Answer::Plan(hands.plan().map(Box::new)),
            TopOrder::Apply => Answer::Done(hands.apply(Some(confirm))),
            TopOrder::Confirm => Answer::Done(hands.confirm()),
            TopOrder::Revert => Answer::Done(hands.revert()),
            TopOrder::Lend => Answer::Done(hands.lend(lend)),
            TopOrder::TakeBack => Answer::Done(hands.take_back()),
            TopOrder::Knobs { engine } => {
                let asked = |dir: &Path| quiet_live::knobs(dir, &engine).map_err(|e| e.to_string());
                let knobs = folder(engines.as_deref()).and_then(asked);
                Answer::Knobs(engine, knobs)
            }
            TopOrder::Swap { engine, file } => {
                Answer::Done(folder(engines.as_deref()).and_then(|dir| {
                    quiet_live::swap_file((dir, &engine), sounds.as_deref(), Path::new(&file))
                }))
            }
            TopOrder::Sound { engine, wish } => {
                Answer::Done(sound(engines.as_deref(), &engine, &wish))
            }
            TopOrder::Gain { engine, steps } => {
                Answer::Done(gain(engines.as_deref(), &engine, steps))
            }
        };
        let _ = told.send(answer);
    })?;
    Ok(())
}

fn folder(engines: Option<&Path>) -> Result<&Path, String> {
    engines.ok_or_else(|| "there is no private directory for control sockets".to_owned())
}

fn sound(engines: Option<&Path>, engine: &str, wish: &SoundWish) -> Result<Deed, String> {
    quiet_live::wished(folder(engines)?, engine, wish).map_err(|e| e.to_string())
}

/// Turns the last gain of the strip, which is what is heard.
fn gain(engines: Option<&Path>, engine: &str, steps: i32) -> Result<Deed, String> {
    let dir = folder(engines)?;
    let knobs = quiet_live::knobs(dir, engine).map_err(|e| e.to_string())?;
    let gains = knobs.params.iter().rev().filter(|knob| knob.unit == "decibel");
    let is_gain = |knob: &&&quiet_types::play::Knob| knob.name.ends_with(".gain");
    let all: Vec<_> = gains.collect();
    let knob = all.iter().find(is_gain).or(all.first());
    let knob = knob.ok_or("this strip has no gain; s shows what it has")?;
    let value = knob.stepped(steps);
    let wish = SoundWish::Set { param: knob.name.clone(), value };
    let deed = quiet_live::wished(dir, engine, &wish).map_err(|e| e.to_string())?;
    Ok(Deed { said: format!("{} {value} {}", knob.name, unit_sign(&knob.unit)), ..deed })
}
