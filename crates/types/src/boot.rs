//! What a machine is asked to boot with: as planned, as kept on disk, as compared after the reboot.

use crate::CpuSet;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The schema of [`BootParameters`] where it stands alone in a file or in `--json`.
pub const SCHEMA: &str = "quietcores.boot/1";

/// How the chain on the shielded CPUs spends its time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Mode {
    /// It sleeps between periods: several threads and interrupts share the CPUs, the tick stays.
    #[default]
    SleepingChain,
    /// One thread a CPU that never sleeps and hardly enters the kernel: the tick is stopped too.
    NeverSleepingCore,
}

impl Mode {
    /// `sleeping chain`, `never-sleeping core`.
    pub fn name(self) -> &'static str {
        match self {
            Mode::SleepingChain => "sleeping chain",
            Mode::NeverSleepingCore => "never-sleeping core",
        }
    }
}

/// One boot parameter of ours.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Parameter {
    /// `isolcpus`.
    pub name: String,
    /// `managed_irq,domain,2-3`; `None` for a bare word.
    pub value: Option<String>,
    /// What it does, and why here.
    pub why: String,
}

impl Parameter {
    /// As it stands on the kernel's command line. Never holds a blank or a quote.
    pub fn word(&self) -> String {
        match &self.value {
            Some(value) => format!("{}={value}", self.name),
            None => self.name.clone(),
        }
    }
}

/// What was asked of the next boots.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct BootParameters {
    /// CPUs kept for the chain.
    pub cpus: CpuSet,
    /// CPUs left to everybody else.
    pub housekeeping: CpuSet,
    /// How the chain uses its CPUs.
    pub mode: Mode,
    /// In the order in which they are written.
    pub parameters: Vec<Parameter>,
}

impl BootParameters {
    /// The words for the kernel's command line, in order.
    pub fn words(&self) -> Vec<String> {
        self.parameters.iter().map(Parameter::word).collect()
    }

    /// The value of one parameter, `""` for a bare word.
    pub fn value(&self, name: &str) -> Option<&str> {
        let found = self.parameters.iter().find(|parameter| parameter.name == name)?;
        Some(found.value.as_deref().unwrap_or(""))
    }
}

/// A boot entry: what it says now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BootEntry {
    /// File and line: `/boot/loader/entries/debian.conf, line 5`.
    pub place: String,
    /// Its parameters, a word each.
    pub words: Vec<String>,
}

/// The words of a kernel command line, as the kernel splits it: blanks separate, double quotes
/// hold blanks together.
///
/// # Source
/// `next_arg` of the kernel (lib/cmdline.c).
pub fn split(line: &str) -> Vec<String> {
    let mut words = Vec::new();
    let mut word = String::new();
    let mut quoted = false;
    for c in line.chars() {
        match c {
            '"' => {
                quoted = !quoted;
                word.push(c);
            }
            c if c.is_ascii_whitespace() && !quoted => {
                if !word.is_empty() {
                    words.push(std::mem::take(&mut word));
                }
            }
            c => word.push(c),
        }
    }
    if !word.is_empty() {
        words.push(word);
    }
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_line_splits_as_the_kernel_does() {
        let words = split("root=/dev/vda2 rw  dyndbg=\"file a.c +p\"\tquiet\n");
        assert_eq!(words, ["root=/dev/vda2", "rw", "dyndbg=\"file a.c +p\"", "quiet"]);
        assert_eq!(split(" \t"), Vec::<String>::new());
    }
}
