//! From what is found on a machine to a proven chain: what is proposed, what was answered, what came of it.

use crate::{
    Finding, Plan,
    plan::Applied,
    proof::{Proof, Verdict},
    said::Persisted,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::fmt;

/// The schema of [`SetUp`] in JSON.
pub const SCHEMA: &str = "quietcores.setup/1";

/// What somebody plays with, in the order in which sound passes them.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "lowercase")]
pub enum PlayerKind {
    /// Music Player Daemon.
    Mpd,
    /// CamillaDSP.
    CamillaDsp,
    /// A JACK server.
    Jack,
    /// The server of PipeWire.
    PipeWire,
    /// `quietcores play`, which seats its own thread.
    Engine,
}

impl PlayerKind {
    /// All of them, with the word that names each.
    pub const ALL: [(PlayerKind, &str); 5] = [
        (PlayerKind::Mpd, "mpd"),
        (PlayerKind::CamillaDsp, "camilladsp"),
        (PlayerKind::Jack, "jack"),
        (PlayerKind::PipeWire, "pipewire"),
        (PlayerKind::Engine, "engine"),
    ];

    /// The word that names it, as `--player` takes it.
    pub fn name(self) -> &'static str {
        PlayerKind::ALL.iter().find(|(kind, _)| *kind == self).map_or("", |(_, name)| name)
    }
}

impl fmt::Display for PlayerKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            PlayerKind::Mpd => "mpd",
            PlayerKind::CamillaDsp => "CamillaDSP",
            PlayerKind::Jack => "JACK",
            PlayerKind::PipeWire => "PipeWire",
            PlayerKind::Engine => "the engine of quietcores (`quietcores play`)",
        })
    }
}

/// What was found by looking, and what is right where nobody says otherwise.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SetupProposal {
    /// What one can play with, each kind once.
    pub players: Vec<PlayerFound>,
    /// Sound cards, the likeliest first.
    pub cards: Vec<CardFound>,
    /// Cores that the chain may have at most; 0 where the machine has one core, whose last CPU can be given.
    pub most_cores: u32,
    /// Whether it is to last across reboots.
    pub last: bool,
}

/// Something to play with.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct PlayerFound {
    /// What it is.
    pub kind: PlayerKind,
    /// Its processes, for people; empty where none runs.
    pub running: Vec<String>,
    /// Whether it is proposed.
    pub proposed: bool,
}

/// A sound card.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct CardFound {
    /// As a chain names it: its id where that is unmistakable, else `cardN`.
    pub name: String,
    /// For people.
    pub about: String,
    /// Whether interrupts of its controller are known: without any it is no link.
    pub has_interrupts: bool,
}

/// What was answered.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SetupAnswers {
    /// What plays, in the order in which sound passes them.
    pub players: Vec<PlayerKind>,
    /// The card's name; `None` for none.
    pub card: Option<String>,
    /// Cores of its own; 0: the last CPU of a machine with one core.
    pub cores: u32,
    /// Whether it is to last across reboots.
    pub last: bool,
}

/// What `setup` came to.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct SetUp {
    /// [`SCHEMA`].
    pub schema: String,
    /// What was found.
    pub found: SetupProposal,
    /// What was answered; `None` where an approved chain was taken.
    pub answers: Option<SetupAnswers>,
    /// What the chain is called.
    pub chain: String,
    /// The chain file that was written; `None` where none was.
    pub file: Option<String>,
    /// Its text; `None` where an approved chain was taken.
    pub text: Option<String>,
    /// The steps.
    pub plan: Plan,
    /// What became of them; `None` where it ended with the plan.
    pub applied: Option<Applied>,
    /// Whether the shield was up at the end, and stays.
    pub up: bool,
    /// What the proof came to; `None` where none was made.
    pub proof: Option<ProofTold>,
    /// What the next boots were asked for; `None` where nothing was.
    pub persisted: Option<Persisted>,
    /// What is left to do, and what did not come about.
    pub findings: Vec<Finding>,
}

/// A proof in a few words; the whole of it lies in the store.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ProofTold {
    /// Its id in the store.
    pub id: String,
    /// The verdict.
    pub verdict: Verdict,
    /// The verdict in one sentence.
    pub sentence: String,
}

impl From<&Proof> for ProofTold {
    fn from(proof: &Proof) -> ProofTold {
        ProofTold { id: proof.id.clone(), verdict: proof.verdict, sentence: proof.sentence.clone() }
    }
}
