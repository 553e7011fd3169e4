//! MIDI through ALSA's sequencer: program changes call presets, controllers turn parameters.
//!
//! Heard on the thread that serves the control socket, never on the playing one.

use crate::{
    Error, ErrorKind, Result,
    control::{Request, Session},
};
use alsa::{
    Direction,
    seq::{Addr, ClientIter, EvCtrl, EventType, PortCap, PortIter, PortSubscribe, PortType, Seq},
};
use quiet_types::live::SoundWish;
use std::{collections::BTreeMap, str::FromStr};

/// What one controller does: `7=out.gain`, or `16/7=out.gain` on channel 16 alone. The parameter
/// `bypass` is on from 64 upwards.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Turns {
    /// 1 to 16; none: any.
    pub channel: Option<u8>,
    /// 0 to 127.
    pub controller: u8,
    /// A parameter of the strip, or `bypass`.
    pub param: String,
}

impl FromStr for Turns {
    type Err = Error;

    fn from_str(text: &str) -> Result<Turns> {
        let wrong = || {
            Error::new(format!(
                "`{}` is no controller; write NUMBER=PARAMETER, such as 7=out.gain, or \
                 CHANNEL/NUMBER=PARAMETER; channels are 1 to 16, controllers 0 to 127",
                quiet_types::printable(text, 60)
            ))
        };
        let (source, param) = text.split_once('=').ok_or_else(wrong)?;
        let (channel, controller) = match source.split_once('/') {
            Some((channel, controller)) => (Some(channel), controller),
            None => (None, source),
        };
        let within = |text: &str, least: u8, most: u8| -> Result<u8> {
            let number = text.trim().parse().map_err(|_| wrong())?;
            if (least..=most).contains(&number) { Ok(number) } else { Err(wrong()) }
        };
        let param = param.trim();
        if param.is_empty() {
            return Err(wrong());
        }
        Ok(Turns {
            channel: channel.map(|channel| within(channel, 1, 16)).transpose()?,
            controller: within(controller, 0, 127)?,
            param: param.to_owned(),
        })
    }
}

/// What to listen to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Wishes {
    /// A sender to be connected: `CLIENT:PORT`, or how a client's name begins. None: somebody else
    /// connects (`aconnect`).
    pub from: Option<String>,
    /// What controllers do.
    pub turns: Vec<Turns>,
}

/// A message that means something here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Message {
    /// Channel from 0, number, value.
    Control(u8, u8, u8),
    /// Channel from 0, program from 0.
    Program(u8),
}

/// What a message asks for.
#[derive(Clone, Debug, PartialEq)]
enum Order {
    Turn(String, f32),
    Bypass(bool),
    Program(usize),
}

/// Pure: tested without a sequencer. The last value of each controller and the last program are
/// what counts, however many came.
fn orders(turns: &[Turns], messages: &[Message]) -> Vec<Order> {
    let mut last = BTreeMap::new();
    let mut program = None;
    for message in messages {
        match *message {
            Message::Program(number) => program = Some(Order::Program(number.into())),
            Message::Control(channel, controller, value) => {
                let means = |turn: &&Turns| {
                    turn.controller == controller
                        && turn.channel.is_none_or(|own| own == channel + 1)
                };
                for turn in turns.iter().filter(means) {
                    last.insert(turn.param.clone(), value);
                }
            }
        }
    }
    // The program first: it may bring the parameters.
    program
        .into_iter()
        .chain(last.into_iter().map(|(param, value)| match param.as_str() {
            "bypass" => Order::Bypass(value >= 64),
            _ => Order::Turn(param, f32::from(value.min(127)) / 127.0),
        }))
        .collect()
}

/// A port of the sequencer that is listened to.
pub struct Midi {
    seq: Seq,
    address: Addr,
    turns: Vec<Turns>,
    heard: Vec<Message>,
}

impl std::fmt::Debug for Midi {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Midi").field("address", &self.address).finish_non_exhaustive()
    }
}

/// Messages taken in one turn; the rest waits in the sequencer.
const PER_TURN: usize = 1024;

impl Midi {
    /// Opens a port, and connects the sender that is wished for.
    ///
    /// # Errors
    /// A sentence, when this kernel has no sequencer or the sender is not there.
    pub fn open(wishes: &Wishes) -> Result<Midi> {
        let cannot = |doing: &str, e: alsa::Error| {
            let sentence = format!(
                "cannot {doing}: {}; `modprobe snd-seq` brings the sequencer, `aconnect -l` lists \
                 who is on it",
                crate::host::alsa::said(&e)
            );
            Error::of(ErrorKind::Device, sentence).because(e)
        };
        crate::host::alsa::hush();
        let seq = Seq::open(None, Some(Direction::Capture), true)
            .map_err(|e| cannot("open ALSA's sequencer", e))?;
        seq.set_client_name(c"quietcores").map_err(|e| cannot("name a client", e))?;
        let port = seq
            .create_simple_port(
                c"control",
                PortCap::WRITE | PortCap::SUBS_WRITE,
                PortType::MIDI_GENERIC | PortType::APPLICATION,
            )
            .map_err(|e| cannot("make a port", e))?;
        let client = seq.client_id().map_err(|e| cannot("ask for the client's number", e))?;
        let address = Addr { client, port };
        if let Some(name) = &wishes.from {
            let from = find(&seq, name)?;
            let wire = PortSubscribe::empty().map_err(|e| cannot("connect", e))?;
            wire.set_sender(from);
            wire.set_dest(address);
            seq.subscribe_port(&wire).map_err(|e| cannot(&format!("connect MIDI of {name}"), e))?;
        }
        Ok(Midi { seq, address, turns: wishes.turns.clone(), heard: Vec::new() })
    }

    /// Its address, as `aconnect` and `aplaymidi` take it.
    pub fn address(&self) -> String {
        format!("{}:{}", self.address.client, self.address.port)
    }

    /// Carries out what came; gives what could not be done as sentences. Does not wait.
    pub fn turn(&mut self, session: &mut Session) -> Vec<String> {
        self.hear();
        let done = orders(&self.turns, &self.heard).into_iter().map(|order| match order {
            Order::Turn(param, share) => session.turn(&param, share),
            Order::Bypass(on) => session.ask(&Request::Wish(SoundWish::Bypass { on })),
            Order::Program(place) => session.program(place),
        });
        let failed = done.filter_map(|answer| answer.err().map(|e| format!("MIDI: {e}"))).collect();
        self.heard.clear();
        failed
    }

    fn hear(&mut self) {
        let mut input = self.seq.input();
        // More than its pool holds is lost by the kernel, which says so here: the next values count.
        while self.heard.len() < PER_TURN
            && input.event_input_pending(true).is_ok_and(|waiting| waiting > 0)
        {
            let Ok(event) = input.event_input() else { continue };
            let Some(data) = event.get_data::<EvCtrl>() else { continue };
            let small = |n: i64| u8::try_from(n.clamp(0, 127)).unwrap_or(0);
            match event.get_type() {
                EventType::Controller => self.heard.push(Message::Control(
                    data.channel,
                    small(data.param.into()),
                    small(data.value.into()),
                )),
                EventType::Pgmchange => {
                    self.heard.push(Message::Program(small(data.value.into())));
                }
                _ => {}
            }
        }
    }
}

/// `CLIENT:PORT`, or the first port that can be read of a client whose name begins so.
fn find(seq: &Seq, name: &str) -> Result<Addr> {
    if let Some((client, port)) = name.split_once(':')
        && let (Ok(client), Ok(port)) = (client.parse(), port.parse())
    {
        return Ok(Addr { client, port });
    }
    let readable = PortCap::READ | PortCap::SUBS_READ;
    let mut there = Vec::new();
    for client in ClientIter::new(seq) {
        let its = client.get_name().unwrap_or_default();
        for port in PortIter::new(seq, client.get_client()) {
            if port.get_capability().contains(readable) {
                if its.starts_with(name) {
                    return Ok(port.addr());
                }
                there.push(format!("{its} ({}:{})", port.get_client(), port.get_port()));
            }
        }
    }
    Err(Error::new(format!(
        "nothing on ALSA's sequencer begins with `{}`; there are: {}",
        quiet_types::printable(name, 60),
        there.join(", ")
    )))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn controllers_are_numbers_with_a_parameter() {
        let turn = |channel, controller, param: &str| Turns {
            channel,
            controller,
            param: param.to_owned(),
        };
        assert_eq!("7=out.gain".parse::<Turns>().unwrap(), turn(None, 7, "out.gain"));
        assert_eq!(" 16/127 = bypass".parse::<Turns>().unwrap(), turn(Some(16), 127, "bypass"));
        for bad in ["", "7", "7=", "=x", "128=x", "0/7=x", "17/7=x", "a=x", "-1=x", "1/2/3=x"] {
            let said = bad.parse::<Turns>().unwrap_err().to_string();
            assert!(said.contains("7=out.gain"), "{bad}: {said}");
        }
    }

    #[test]
    fn the_last_value_counts_and_the_program_comes_first() {
        let turns: Vec<Turns> = ["7=out.gain", "2/11=drive.gain", "64=bypass", "7=drive.tone"]
            .into_iter()
            .map(|text| text.parse().unwrap())
            .collect();
        let messages = [
            Message::Control(0, 7, 1),
            // Channels are counted from 0 on the wire: this is the second.
            Message::Control(1, 11, 127),
            Message::Control(0, 11, 3),
            Message::Control(5, 64, 64),
            Message::Control(0, 99, 5),
            Message::Program(4),
            Message::Program(2),
            Message::Control(3, 7, 0),
        ];
        assert_eq!(
            orders(&turns, &messages),
            [
                Order::Program(2),
                Order::Bypass(true),
                Order::Turn("drive.gain".into(), 1.0),
                Order::Turn("drive.tone".into(), 0.0),
                Order::Turn("out.gain".into(), 0.0),
            ]
        );
        assert_eq!(orders(&turns, &[Message::Control(0, 64, 63)]), [Order::Bypass(false)]);
        assert_eq!(orders(&[], &messages), [Order::Program(2)]);
    }
}
