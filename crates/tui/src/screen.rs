//! What is shown, and what keys do to it. No terminal.

use quiet_types::{
    Plan,
    live::{Deed, LiveCpu, LiveEvent, LiveSound, Moment, QuietState, SoundWish},
    plan::ShieldStanding,
    play::{Knob, Knobs},
};
use std::sync::Arc;

/// What somebody wants done. Nothing of it is done before it is agreed to, where it changes the machine.
#[derive(Clone, Debug, PartialEq)]
pub enum TopOrder {
    /// Show the plan.
    Plan,
    /// Put the shield up, to be confirmed.
    Apply,
    /// Keep it.
    Confirm,
    /// Put the machine back.
    Revert,
    /// Lend its CPUs.
    Lend,
    /// Take them back.
    TakeBack,
    /// Ask an engine for something.
    Sound {
        /// Its control socket.
        engine: String,
        /// What.
        wish: SoundWish,
    },
    /// Show what of an engine's strip can be turned.
    Knobs {
        /// Its control socket.
        engine: String,
    },
    /// Turn the strip's output by so many steps of half a dB.
    Gain {
        /// Its control socket.
        engine: String,
        /// Up, or down.
        steps: i32,
    },
    /// Give an engine a file in place of its own: a strip, an amp, an impulse response.
    Swap {
        /// Its control socket.
        engine: String,
        /// The file, as it was typed.
        file: String,
    },
}

impl TopOrder {
    /// The question before it, where it changes the machine.
    fn question(&self, what: &str, confirm: u64, lend: u64) -> Option<String> {
        Some(match self {
            TopOrder::Apply => format!(
                "Put a shield up ({what})? It is put back after {confirm} s unless you press c."
            ),
            TopOrder::Revert => "Put the machine back as it was before the shield?".into(),
            TopOrder::Lend => {
                format!("Lend the shield's CPUs to everybody for {} min?", lend.div_ceil(60))
            }
            TopOrder::Sound { wish: SoundWish::Mute { on: true }, .. } => {
                "Silence the output?".into()
            }
            _ => return None,
        })
    }

    /// What is being done, in a word or two.
    pub(crate) fn doing(&self) -> &'static str {
        match self {
            TopOrder::Plan => "planning",
            TopOrder::Apply => "applying",
            TopOrder::Confirm => "confirming",
            TopOrder::Revert => "putting back",
            TopOrder::Lend => "lending",
            TopOrder::TakeBack => "taking back",
            TopOrder::Sound { wish, .. } => wish.word(),
            TopOrder::Knobs { .. } => "asking for the knobs",
            TopOrder::Gain { .. } => "gain",
            TopOrder::Swap { .. } => "swapping",
        }
    }

    /// What is done at once, however fast one after the other: no other order waits for it.
    pub(crate) fn is_quick(&self) -> bool {
        matches!(self, TopOrder::Gain { .. } | TopOrder::Sound { wish: SoundWish::Set { .. }, .. })
    }
}

/// What covers the screen.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum Cover {
    /// Nothing.
    #[default]
    Watching,
    /// The keys.
    Help,
    /// The steps, and how far down one has read.
    Plan(Box<Plan>, u16),
    /// A question before something is done.
    Asking(TopOrder, String),
    /// What of an engine's strip can be turned, and which knob is chosen.
    Strip(String, Knobs, usize),
    /// The name of a file that an engine is to take.
    Typing(String, String),
    /// The last late moments.
    Late,
}

/// A key, as far as it matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyPress {
    /// A letter or sign.
    Char(char),
    /// One up.
    Up,
    /// One down.
    Down,
    /// To the left.
    Left,
    /// To the right.
    Right,
    /// Return.
    Enter,
    /// Away with what covers the screen.
    Escape,
    /// What was typed last goes.
    Backspace,
    /// Ctrl-C.
    Interrupt,
}

/// The state of the screen.
#[derive(Clone, Debug, Default)]
pub struct Screen {
    /// The last moment.
    pub moment: Option<Arc<Moment>>,
    /// What happened, oldest first.
    pub events: Vec<LiveEvent>,
    /// What covers it.
    pub mode: Cover,
    /// What was said last about something that was done, and whether it is good.
    pub said: Option<(bool, String)>,
    /// What is being done.
    pub doing: Option<TopOrder>,
    /// Which CPU of the map is chosen, by its place.
    pub chosen: Option<usize>,
    /// It is over.
    pub quits: bool,
    /// What would be applied, in words.
    pub what: String,
    /// Seconds to a confirmation.
    pub confirm: u64,
    /// Seconds of a loan.
    pub lend: u64,
}

impl Screen {
    /// With nothing to show yet; `what` is what would be applied.
    pub fn new(what: String) -> Screen {
        Screen { what, confirm: 30, lend: 600, ..Screen::default() }
    }

    /// A new moment, with all that happened up to it.
    pub fn take(&mut self, moment: Arc<Moment>, events: Vec<LiveEvent>) {
        let cpus = moment.cpus.len();
        self.chosen = self.chosen.map(|at| at.min(cpus.saturating_sub(1)));
        self.moment = Some(moment);
        self.events = events;
    }

    /// What came of an order.
    pub fn done(&mut self, done: Result<Deed, String>) {
        self.doing = None;
        self.said = Some(match done {
            Ok(deed) => (deed.done, deed.said),
            Err(why) => (false, why),
        });
    }

    /// What came of an order beside which another one may be under way.
    pub fn heard(&mut self, done: Result<Deed, String>) {
        let doing = self.doing.take();
        self.done(done);
        self.doing = doing;
    }

    /// The plan that was asked for.
    pub fn planned(&mut self, plan: Result<Plan, String>) {
        self.doing = None;
        match plan {
            Ok(plan) => self.mode = Cover::Plan(Box::new(plan), 0),
            Err(why) => self.said = Some((false, why)),
        }
    }

    /// CPUs in the order in which they are told of: shielded ones first.
    pub(crate) fn told(&self) -> Vec<&LiveCpu> {
        let cpus = self.moment.iter().flat_map(|moment| &moment.cpus).filter(|cpu| cpu.online);
        let (mut first, rest): (Vec<&LiveCpu>, Vec<&LiveCpu>) = cpus.partition(|cpu| cpu.shielded);
        first.extend(rest);
        if let Some(chosen) = self.chosen
            && let Some(id) =
                self.moment.as_ref().and_then(|m| m.cpus.get(chosen)).map(|cpu| cpu.id)
        {
            first.sort_by_key(|cpu| cpu.id != id);
        }
        first
    }

    /// What can be turned, as it was asked for.
    pub fn knobs(&mut self, engine: String, knobs: Result<Knobs, String>) {
        self.doing = None;
        match knobs {
            Ok(knobs) if knobs.params.is_empty() => {
                self.said = Some((true, "this strip has no parameters".into()));
            }
            Ok(knobs) => self.mode = Cover::Strip(engine, knobs, 0),
            Err(why) => self.said = Some((false, why)),
        }
    }

    /// A CPU of the map was pressed.
    pub fn press_cpu(&mut self, place: usize) {
        self.chosen = Some(place);
    }

    /// What a key does; an order that is to be carried out now.
    pub fn key(&mut self, key: KeyPress) -> Option<TopOrder> {
        if key == KeyPress::Interrupt {
            self.quits = true;
            return None;
        }
        match std::mem::take(&mut self.mode) {
            Cover::Watching => self.watching(key),
            Cover::Help | Cover::Late => None,
            Cover::Strip(engine, knobs, at) => self.turning(key, engine, knobs, at),
            Cover::Typing(engine, text) => self.typing(key, engine, text),
            Cover::Plan(plan, at) => {
                self.mode = match key {
                    KeyPress::Up => Cover::Plan(plan, at.saturating_sub(1)),
                    KeyPress::Down => Cover::Plan(plan, at.saturating_add(1)),
                    KeyPress::Char('a') => return self.wish(TopOrder::Apply),
                    _ => Cover::Watching,
                };
                None
            }
            Cover::Asking(order, _) => match key {
                KeyPress::Char('y' | 'Y') => self.give(order),
                _ => {
                    self.said = Some((true, "not done".into()));
                    None
                }
            },
        }
    }

    fn watching(&mut self, key: KeyPress) -> Option<TopOrder> {
        match key {
            KeyPress::Char('q') | KeyPress::Escape => self.quits = true,
            KeyPress::Char('?' | 'h') => self.mode = Cover::Help,
            KeyPress::Char('p') => return self.wish(TopOrder::Plan),
            KeyPress::Char('a') => return self.wish(TopOrder::Apply),
            KeyPress::Char('c') => return self.wish(TopOrder::Confirm),
            KeyPress::Char('r') => return self.wish(TopOrder::Revert),
            KeyPress::Char('l') => {
                let is_lent =
                    self.moment.as_ref().is_some_and(|m| m.quiet.state == QuietState::Lent);
                return self.wish(if is_lent { TopOrder::TakeBack } else { TopOrder::Lend });
            }
            KeyPress::Char('b') => return self.wished(|s| SoundWish::Bypass { on: !s.bypass }),
            KeyPress::Char('m') => return self.wished(|s| SoundWish::Mute { on: !s.mute }),
            KeyPress::Char('s') => {
                return self.sound(|s| TopOrder::Knobs { engine: s.name.clone() });
            }
            KeyPress::Char('+' | '=') => return self.gain(1),
            KeyPress::Char('-') => return self.gain(-1),
            KeyPress::Char('w') => {
                if let Some(engine) = self.engine() {
                    self.mode = Cover::Typing(engine, String::new());
                }
            }
            KeyPress::Char('t') => self.mode = Cover::Late,
            KeyPress::Right | KeyPress::Down => self.choose(1),
            KeyPress::Left | KeyPress::Up => self.choose(-1),
            _ => {}
        }
        None
    }

    fn choose(&mut self, by: i64) {
        let cpus = self.moment.as_ref().map_or(0, |moment| moment.cpus.len()) as i64;
        if cpus > 0 {
            let at = self.chosen.map_or(if by > 0 { -1 } else { 0 }, |at| at as i64);
            self.chosen = Some((at + by).rem_euclid(cpus) as usize);
        }
    }

    /// The first engine; says so where there is none.
    fn engine(&mut self) -> Option<String> {
        let sound = self.moment.as_ref().and_then(|moment| moment.sounds.first());
        let name = sound.map(|sound| sound.name.clone());
        if name.is_none() {
            self.said = Some((false, "no engine of yours plays here".into()));
        }
        name
    }

    fn sound(&mut self, order: impl FnOnce(&LiveSound) -> TopOrder) -> Option<TopOrder> {
        self.engine()?;
        let order = order(self.moment.as_ref()?.sounds.first()?);
        self.wish(order)
    }

    fn wished(&mut self, wish: impl FnOnce(&LiveSound) -> SoundWish) -> Option<TopOrder> {
        self.sound(|sound| TopOrder::Sound { engine: sound.name.clone(), wish: wish(sound) })
    }

    fn gain(&mut self, steps: i32) -> Option<TopOrder> {
        self.sound(|sound| TopOrder::Gain { engine: sound.name.clone(), steps })
    }

    /// Keys while the knobs are shown.
    fn turning(
        &mut self,
        key: KeyPress,
        engine: String,
        mut knobs: Knobs,
        at: usize,
    ) -> Option<TopOrder> {
        let most = knobs.params.len().saturating_sub(1);
        let turned = |knob: &Knob| match key {
            KeyPress::Right | KeyPress::Char('+' | '=') => Some(knob.stepped(1)),
            KeyPress::Left | KeyPress::Char('-') => Some(knob.stepped(-1)),
            KeyPress::Char('>') => Some(knob.stepped(10)),
            KeyPress::Char('<') => Some(knob.stepped(-10)),
            KeyPress::Char('d') | KeyPress::Backspace => knob.default,
            _ => None,
        };
        let next = match key {
            KeyPress::Up => at.saturating_sub(1),
            KeyPress::Down => (at + 1).min(most),
            KeyPress::Char('w') => {
                self.mode = Cover::Typing(engine, String::new());
                return None;
            }
            KeyPress::Escape | KeyPress::Char('q' | 's') | KeyPress::Enter => return None,
            _ => at,
        };
        let order = knobs.params.get_mut(at).and_then(|knob| {
            let value = turned(knob)?;
            knob.value = value;
            let wish = SoundWish::Set { param: knob.name.clone(), value };
            Some(TopOrder::Sound { engine: engine.clone(), wish })
        });
        self.mode = Cover::Strip(engine, knobs, next);
        order.and_then(|order| self.wish(order))
    }

    /// Keys while a file's name is typed.
    fn typing(&mut self, key: KeyPress, engine: String, mut text: String) -> Option<TopOrder> {
        match key {
            KeyPress::Escape => return None,
            KeyPress::Enter if text.trim().is_empty() => return None,
            KeyPress::Enter => {
                return self.wish(TopOrder::Swap { engine, file: text.trim().to_owned() });
            }
            KeyPress::Backspace => drop(text.pop()),
            KeyPress::Char(letter) if text.len() < 4096 => text.push(letter),
            _ => {}
        }
        self.mode = Cover::Typing(engine, text);
        None
    }

    fn wish(&mut self, order: TopOrder) -> Option<TopOrder> {
        if order.is_quick() {
            return Some(order);
        }
        if let Some(doing) = &self.doing {
            self.said = Some((false, format!("not yet: {} is not at its end", doing.doing())));
            return None;
        }
        // The moment may be one in which an apply that has ended since was at work: it looks half done then, and the machine says better.
        let is_there = self
            .moment
            .as_ref()
            .and_then(|moment| moment.shield.as_ref())
            .is_some_and(|s| matches!(s.state, ShieldStanding::Up | ShieldStanding::Leftover));
        let needs_one = matches!(order, TopOrder::Confirm | TopOrder::Lend | TopOrder::TakeBack);
        if needs_one && !is_there {
            self.said = Some((false, "no shield is up".into()));
            return None;
        }
        match order.question(&self.what, self.confirm, self.lend) {
            Some(question) => {
                self.mode = Cover::Asking(order, question);
                None
            }
            None => self.give(order),
        }
    }

    fn give(&mut self, order: TopOrder) -> Option<TopOrder> {
        self.said = None;
        self.doing = Some(order.clone());
        Some(order)
    }
}
