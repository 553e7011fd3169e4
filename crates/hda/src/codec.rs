//! Codecs: what widgets there are, and the ways between converters and jacks, found by search for any of them.
//!
//! # Source
//! High Definition Audio Specification, revision 1.0a, chapter 7.

use crate::{
    controller::{Controller, Fault},
    format::LinkFormat,
    registers::Door,
};
use std::collections::{BTreeMap, VecDeque};

/// What a widget is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WidgetKind {
    /// From the link to sound.
    Output,
    /// From sound to the link.
    Input,
    /// Several in, their sum out.
    Mixer,
    /// Several in, one of them out.
    Selector,
    /// A jack, or what is soldered on in its place.
    Pin,
    /// Anything else.
    Other,
}

/// A widget of a codec.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Widget {
    /// Its number.
    pub node: u8,
    /// What it is.
    pub kind: WidgetKind,
    /// Parameter 09h, as it was read.
    pub abilities: u32,
    /// Where its sound comes from, in its own order.
    pub from: Vec<u8>,
    /// Of a converter: rates and sizes, parameter 0Ah.
    pub formats: u32,
    /// Of amps: parameters 0Dh and 12h.
    pub amps: (u32, u32),
    /// Of a pin: its abilities (0Ch), and what the board's maker says of it (F1Ch).
    pub pin: (u32, u32),
    /// Of a pin: whether something is plugged in, where it can tell.
    pub plugged: Option<bool>,
}

/// A codec's function of sound.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Codec {
    /// Its address on the link.
    pub address: u8,
    /// Its maker and kind, parameter 00h.
    pub vendor: u32,
    /// The node of the function.
    pub group: u8,
    /// By their numbers.
    pub widgets: BTreeMap<u8, Widget>,
}

/// A way from a jack to a converter, or back: the widgets in the order in which each asks the next for its sound, and which of its
/// inputs that is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SoundPath {
    /// The codec's address.
    pub codec: u8,
    /// The node and the index of the input that it takes; the last one takes none.
    pub hops: Vec<(u8, u8)>,
    /// The converter.
    pub converter: u8,
    /// The pin.
    pub pin: u8,
    /// Whether it plays.
    pub plays: bool,
}

/// Of a widget's abilities.
const STEREO: u32 = 1;
const IN_AMP: u32 = 1 << 1;
const OUT_AMP: u32 = 1 << 2;
const OWN_AMPS: u32 = 1 << 3;
const OWN_FORMATS: u32 = 1 << 4;
const CONNECTED: u32 = 1 << 8;
const DIGITAL: u32 = 1 << 9;

/// Longest way that is searched.
const DEPTH: usize = 10;
/// Inputs of a widget that are listened to.
const INPUTS: usize = 64;

impl Widget {
    fn is_digital(&self) -> bool {
        self.abilities & DIGITAL != 0
    }

    /// What the board's maker says: what is plugged in there.
    fn device(&self) -> u32 {
        self.pin.1 >> 20 & 0xf
    }

    /// Whether something is connected to the pin.
    fn is_wired(&self) -> bool {
        self.pin.1 >> 30 != 1
    }

    /// What a pin is called.
    pub fn called(&self) -> &'static str {
        const NAMES: [&str; 16] = [
            "line out",
            "speaker",
            "headphones",
            "CD",
            "S/PDIF out",
            "digital out",
            "modem",
            "modem",
            "line in",
            "aux",
            "microphone",
            "telephone",
            "S/PDIF in",
            "digital in",
            "a jack",
            "a jack",
        ];
        NAMES[self.device() as usize]
    }

    /// How much a pin is wanted, less is more; `None` where it is of no use.
    fn rank(&self, plays: bool) -> Option<u32> {
        if self.kind != WidgetKind::Pin || !self.is_wired() {
            return None;
        }
        let can = if plays { 1 << 4 } else { 1 << 5 };
        if self.pin.0 & can == 0 {
            return None;
        }
        let device = match (plays, self.device()) {
            (true, 0) | (false, 8) => 0,
            (true, 2) | (false, 10) => 1,
            (true, 1) | (false, 9) => 2,
            (_, 14 | 15) => 3,
            (true, 4 | 5) | (false, 12 | 13) => 4,
            _ => return None,
        };
        let empty = if self.plugged == Some(false) { 16 } else { 0 };
        // The first of several, as their maker numbers them.
        Some((empty + device) << 8 | (self.pin.1 & 0xff))
    }
}

/// A number that begins a list of nodes and how many there are, kept within 1 to 255.
fn nodes(says: u32) -> impl Iterator<Item = u8> {
    let (first, count) = ((says >> 16 & 0xff).max(1), says & 0xff);
    (first..(first + count).min(256)).map(|node| node as u8)
}

impl Codec {
    /// The functions of sound of the codec at `address`.
    ///
    /// # Errors
    /// When it gives no answer.
    pub fn read<D: Door>(controller: &Controller<D>, address: u8) -> Result<Vec<Codec>, Fault> {
        let ask = |node, which| controller.parameter(address, node, which);
        let vendor = ask(0, 0)?;
        let mut found = Vec::new();
        for group in nodes(ask(0, 4)?).take(16) {
            if ask(group, 5)? & 0x7f != 1 {
                continue;
            }
            // Awake: some widgets tell nothing asleep.
            controller.order(address, group, 0x705, 0)?;
            let mut codec = Codec { address, vendor, group, widgets: BTreeMap::new() };
            let (formats, amps) = (ask(group, 0xa)?, (ask(group, 0xd)?, ask(group, 0x12)?));
            for node in nodes(ask(group, 4)?) {
                let widget = codec.read_widget(controller, node, formats, amps)?;
                codec.widgets.insert(node, widget);
            }
            // What leads nowhere is not followed; its place in the order stays.
            found.push(codec);
        }
        Ok(found)
    }

    fn read_widget<D: Door>(
        &self,
        controller: &Controller<D>,
        node: u8,
        group_formats: u32,
        group_amps: (u32, u32),
    ) -> Result<Widget, Fault> {
        let ask = |which| controller.parameter(self.address, node, which);
        let abilities = ask(9)?;
        let kind = match abilities >> 20 & 0xf {
            0 => WidgetKind::Output,
            1 => WidgetKind::Input,
            2 => WidgetKind::Mixer,
            3 => WidgetKind::Selector,
            4 => WidgetKind::Pin,
            _ => WidgetKind::Other,
        };
        let from = if abilities & CONNECTED == 0 {
            Vec::new()
        } else {
            self.read_inputs(controller, node, ask(0xe)?)?
        };
        let converts = matches!(kind, WidgetKind::Output | WidgetKind::Input);
        let own = if converts && abilities & OWN_FORMATS != 0 { ask(0xa)? } else { 0 };
        let formats = if own != 0 { own } else { group_formats };
        let amps = if abilities & OWN_AMPS != 0 { (ask(0xd)?, ask(0x12)?) } else { group_amps };
        let (mut pin, mut plugged) = ((0, 0), None);
        if kind == WidgetKind::Pin {
            pin = (ask(0xc)?, controller.ask(self.address, node, 0xf1c << 8)?);
            let tells = pin.0 & 4 != 0 && pin.1 >> 8 & 1 == 0;
            if tells {
                plugged = Some(controller.ask(self.address, node, 0xf09 << 8)? >> 31 == 1);
            }
        }
        Ok(Widget { node, kind, abilities, from, formats, amps, pin, plugged })
    }

    /// The list of a widget's inputs: short or long entries, single or a range up to here.
    fn read_inputs<D: Door>(
        &self,
        controller: &Controller<D>,
        node: u8,
        says: u32,
    ) -> Result<Vec<u8>, Fault> {
        let (count, long) = ((says & 0x7f) as usize, says & 0x80 != 0);
        let (each, bits) = if long { (2, 16) } else { (4, 8) };
        let mut from: Vec<u8> = Vec::new();
        let mut read = 0;
        while read < count && from.len() < INPUTS {
            let entries = controller.ask(self.address, node, 0xf02 << 8 | read as u32)?;
            for n in 0..each.min(count - read) {
                let entry = entries >> (n * bits) & ((1u32 << bits) - 1);
                let is_range = entry >> (bits - 1) == 1;
                let to = (entry & ((1u32 << (bits - 1)) - 1)) as u8;
                match from.last().copied().filter(|last| is_range && *last < to) {
                    Some(last) => from.extend(last + 1..=to),
                    None => from.push(to),
                }
            }
            read += each;
        }
        from.truncate(INPUTS);
        Ok(from)
    }

    /// The shortest way from a widget back to one that is wanted, and what each on it asks.
    fn way(&self, begin: u8, wanted: impl Fn(&Widget) -> bool) -> Option<Vec<(u8, u8)>> {
        let mut open = VecDeque::from([vec![(begin, 0)]]);
        let mut seen = [false; 256];
        seen[usize::from(begin)] = true;
        while let Some(way) = open.pop_front() {
            let (node, _) = *way.last()?;
            let widget = self.widgets.get(&node)?;
            if way.len() > 1 && wanted(widget) {
                return Some(way);
            }
            let passes = matches!(widget.kind, WidgetKind::Mixer | WidgetKind::Selector);
            if way.len() > DEPTH || !(passes || way.len() == 1) {
                continue;
            }
            for (index, from) in widget.from.iter().enumerate() {
                let known = self.widgets.contains_key(from);
                if known && !std::mem::replace(&mut seen[usize::from(*from)], true) {
                    let mut next = way.clone();
                    if let Some(last) = next.last_mut() {
                        last.1 = index as u8;
                    }
                    next.push((*from, 0));
                    open.push_back(next);
                }
            }
        }
        None
    }

    /// Every way that sound can take in one direction, the most wanted first; analogue ones before digital ones.
    pub fn paths(&self, plays: bool) -> Vec<SoundPath> {
        let mut found: Vec<((bool, u32), SoundPath)> = Vec::new();
        let all = || self.widgets.values();
        if plays {
            for pin in all() {
                let Some(rank) = pin.rank(true) else { continue };
                let digital = pin.is_digital();
                let converter =
                    |w: &Widget| w.kind == WidgetKind::Output && w.is_digital() == digital;
                if let Some(hops) = self.way(pin.node, converter) {
                    let converter = hops.last().map_or(0, |last| last.0);
                    let path =
                        SoundPath { codec: self.address, hops, converter, pin: pin.node, plays };
                    found.push(((digital, rank), path));
                }
            }
        } else {
            for input in all().filter(|w| w.kind == WidgetKind::Input) {
                for pin in all() {
                    let Some(rank) = pin.rank(false) else { continue };
                    if let Some(hops) = self.way(input.node, |w| w.node == pin.node) {
                        let path = SoundPath {
                            codec: self.address,
                            hops,
                            converter: input.node,
                            pin: pin.node,
                            plays,
                        };
                        found.push(((input.is_digital(), rank), path));
                    }
                }
            }
        }
        found.sort_by_key(|(rank, _)| *rank);
        found.into_iter().map(|(_, path)| path).collect()
    }

    /// Opens a way: power, selections, amps at 0 dB, the pin, the converter on stream `tag` in that format.
    ///
    /// # Errors
    /// When the codec gives no answer.
    pub fn open<D: Door>(
        &self,
        controller: &Controller<D>,
        path: &SoundPath,
        format: LinkFormat,
        tag: u8,
    ) -> Result<(), Fault> {
        let order = |node, verb, with| controller.order(self.address, node, verb, with);
        order(self.group, 0x705, 0)?;
        // Whoever was on this stream before is off it.
        for other in self.widgets.values() {
            let same = if path.plays { WidgetKind::Output } else { WidgetKind::Input };
            if other.kind == same && other.node != path.converter {
                order(other.node, 0x706, 0)?;
            }
        }
        for (node, index) in &path.hops {
            let Some(widget) = self.widgets.get(node) else { continue };
            order(*node, 0x705, 0)?;
            let is_last = path.hops.last().is_some_and(|last| last.0 == *node);
            if !is_last {
                if widget.from.len() > 1 && widget.kind != WidgetKind::Mixer {
                    order(*node, 0x701, *index)?;
                }
                self.open_inputs(controller, widget, *index)?;
            } else if widget.kind == WidgetKind::Pin {
                // A pin that sound comes in by: its own amp of the input.
                self.open_inputs(controller, widget, 0)?;
            }
            if widget.abilities & OUT_AMP != 0 {
                self.amp(controller, *node, 0xb000, widget.amps.1, false)?;
            }
        }
        self.open_pin(controller, path)?;
        controller.order_long(self.address, path.converter, 2, format.word())?;
        order(path.converter, 0x706, tag << 4)?;
        let Some(converter) = self.widgets.get(&path.converter) else { return Ok(()) };
        if converter.is_digital() {
            order(path.converter, 0x70d, 1)?;
        }
        Ok(())
    }

    /// The amps of a widget's inputs: the one that is wanted at 0 dB, a mixer's others mute.
    fn open_inputs<D: Door>(
        &self,
        controller: &Controller<D>,
        widget: &Widget,
        index: u8,
    ) -> Result<(), Fault> {
        if widget.abilities & IN_AMP == 0 {
            return Ok(());
        }
        let at = |n: u8| 0x7000 | u16::from(n & 0xf) << 8;
        if widget.kind == WidgetKind::Mixer {
            for other in (0..widget.from.len().min(16) as u8).filter(|n| *n != index) {
                self.amp(controller, widget.node, at(other), widget.amps.0, true)?;
            }
        }
        // A selector's, a pin's or a converter's amp may be one for all its inputs, or one for each.
        self.amp(controller, widget.node, at(index), widget.amps.0, false)?;
        if index != 0 && widget.kind != WidgetKind::Mixer {
            self.amp(controller, widget.node, at(0), widget.amps.0, false)?;
        }
        Ok(())
    }

    /// An amp at 0 dB, or mute.
    fn amp<D: Door>(
        &self,
        controller: &Controller<D>,
        node: u8,
        which: u16,
        abilities: u32,
        mute: bool,
    ) -> Result<(), Fault> {
        let level = (abilities & 0x7f).min(abilities >> 8 & 0x7f) as u16;
        let with = which | if mute { 0x80 } else { level };
        controller.order_long(self.address, node, 3, with)
    }

    fn open_pin<D: Door>(&self, controller: &Controller<D>, path: &SoundPath) -> Result<(), Fault> {
        let Some(pin) = self.widgets.get(&path.pin) else { return Ok(()) };
        let order = |verb, with| controller.order(self.address, pin.node, verb, with);
        if path.plays {
            let drives = if pin.pin.0 & 8 != 0 && pin.device() == 2 { 0x80 } else { 0 };
            order(0x707, 0x40 | drives)?;
            if pin.pin.0 & 1 << 16 != 0 {
                order(0x70c, 2)?;
            }
            return Ok(());
        }
        // A microphone's bias: 80 %, else 50 %, where the pin has it.
        let bias = match pin.pin.0 >> 8 & 0xff {
            _ if pin.device() != 10 => 0,
            can if can & 1 << 4 != 0 => 4,
            can if can & 1 << 1 != 0 => 1,
            _ => 0,
        };
        order(0x707, 0x20 | bias)
    }

    /// Channels of a converter: two, or one.
    pub fn channels(&self, converter: u8) -> u8 {
        let stereo = self.widgets.get(&converter).is_some_and(|w| w.abilities & STEREO != 0);
        if stereo { 2 } else { 1 }
    }
}
