//! What a judgement says: a fact, its evidence, what it does to the sound, and the remedy.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// How much a finding matters, least first.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// Good to know; nothing to do.
    Note,
    /// Costs something, or makes a figure weaker.
    Warning,
    /// Stands in the way of what was asked.
    Problem,
}

/// One judgement as data: every face (text, JSON, HTML) prints the same one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Finding {
    /// Stable, machine-readable: `irq.immovable`, `run.missed`.
    pub id: String,
    /// How much it matters.
    pub severity: Severity,
    /// One sentence: what is so.
    pub title: String,
    /// What was measured or read, and where.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub evidence: String,
    /// What it does to latency.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub effect: String,
    /// What to do about it.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub remedy: String,
    /// From when on the remedy works.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub when: Option<When>,
}

/// From when on a remedy works.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum When {
    /// At once, on the running system.
    RunTime,
    /// After the next login of the user.
    Login,
    /// After a reboot.
    Reboot,
    /// Something is unplugged, moved or set in the firmware by hand.
    Hands,
}

impl Finding {
    /// A finding with its id and one sentence; evidence, effect and remedy are added by the
    /// methods below.
    pub fn new(severity: Severity, id: impl Into<String>, title: impl Into<String>) -> Finding {
        Finding {
            id: id.into(),
            severity,
            title: title.into(),
            evidence: String::new(),
            effect: String::new(),
            remedy: String::new(),
            when: None,
        }
    }

    /// With what was measured or read.
    pub fn evidence(mut self, text: impl Into<String>) -> Finding {
        self.evidence = text.into();
        self
    }

    /// With what it does to latency.
    pub fn effect(mut self, text: impl Into<String>) -> Finding {
        self.effect = text.into();
        self
    }

    /// With what to do about it.
    pub fn remedy(mut self, text: impl Into<String>) -> Finding {
        self.remedy = text.into();
        self
    }

    /// With the moment from which on the remedy works.
    pub fn when(mut self, when: When) -> Finding {
        self.when = Some(when);
        self
    }
}
