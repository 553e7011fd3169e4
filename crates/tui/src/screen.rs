//! What is shown, and what keys do to it. No terminal.

use quiet_types::{
    Plan,
    live::{Deed, LiveCpu, LiveEvent, Moment, QuietState},
    plan::ShieldStanding,
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
    /// Let the input of an engine through, or not.
    Bypass {
        /// Its control socket.
        engine: String,
        /// Or back.
        on: bool,
    },
    /// Silence an engine, or let it be heard again.
    Mute {
        /// Its control socket.
        engine: String,
        /// Or back.
        on: bool,
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
            TopOrder::Mute { on: true, .. } => "Silence the output?".into(),
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
            TopOrder::Bypass { .. } => "bypass",
            TopOrder::Mute { .. } => "mute",
        }
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

    /// What a key does; an order that is to be carried out now.
    pub fn key(&mut self, key: KeyPress) -> Option<TopOrder> {
        if key == KeyPress::Interrupt {
            self.quits = true;
            return None;
        }
        match std::mem::take(&mut self.mode) {
            Cover::Watching => self.watching(key),
            Cover::Help => None,
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
            KeyPress::Char('b') => {
                return self.sound(|engine, is, _| TopOrder::Bypass { engine, on: !is });
            }
            KeyPress::Char('m') => {
                return self.sound(|engine, _, is| TopOrder::Mute { engine, on: !is });
            }
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

    fn sound(&mut self, order: impl FnOnce(String, bool, bool) -> TopOrder) -> Option<TopOrder> {
        let sound = self.moment.as_ref().and_then(|moment| moment.sounds.first());
        let Some(sound) = sound else {
            self.said = Some((false, "no engine of yours plays here".into()));
            return None;
        };
        let order = order(sound.name.clone(), sound.bypass, sound.mute);
        self.wish(order)
    }

    fn wish(&mut self, order: TopOrder) -> Option<TopOrder> {
        if let Some(doing) = &self.doing {
            self.said = Some((false, format!("not yet: {} is not at its end", doing.doing())));
            return None;
        }
        let is_up = self
            .moment
            .as_ref()
            .and_then(|moment| moment.shield.as_ref())
            .is_some_and(|shield| shield.state == ShieldStanding::Up);
        let needs_one = matches!(order, TopOrder::Confirm | TopOrder::Lend | TopOrder::TakeBack);
        if needs_one && !is_up {
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
