//! Boot parameters, judged by boots: what was asked, how far it is, and what each boot read.

use crate::{
    CpuSet, Nanos,
    boot::Parameter,
    run::Spec,
    tune::{Factor, LeftOut, TuneDesign, TunedBoot},
};
use serde::{Deserialize, Serialize};

/// The schema of [`BootTune`] where it lies on the disk.
pub const SCHEMA: &str = "quietcores.boot-tune/1";

/// A tune of boot parameters that is under way: all that a boot has to know to go on.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct BootTune {
    /// [`SCHEMA`].
    pub schema: String,
    /// Name of the result.
    pub id: String,
    /// Free words, kept with it.
    pub label: String,
    /// Start, UTC.
    pub started: String,
    /// CPUs that the parameters keep for the chain.
    pub cpus: CpuSet,
    /// CPUs for everybody else.
    pub housekeeping: CpuSet,
    /// What is measured in every block; `None` only before it was asked.
    pub spec: Option<Spec>,
    /// Suites and stressors that run meanwhile.
    pub stress: Vec<String>,
    /// Whether blocks are measured under the whole run-time shield.
    pub shielded: bool,
    /// Blocks a boot.
    pub blocks: u32,
    /// How long a boot comes to rest before it is measured.
    pub settle: Nanos,
    /// When it began, in seconds since 1970.
    pub began: u64,
    /// What is switched, by boot.
    pub factors: Vec<BootFactor>,
    /// What is not, and why.
    pub left_out: Vec<LeftOut>,
    /// Which of them are on in each boot, in the order of the boots.
    pub order: Vec<BootPlot>,
    /// As it was stated before the first reboot.
    pub design: TuneDesign,
    /// The kernel that boots where none is asked for.
    pub kernel: String,
    /// The boot loader: `grub`, `systemd-boot` ...
    pub loader: String,
    /// The boot loader's files as they were found.
    pub files: Vec<BootFileMark>,
    /// Boots that are done.
    pub boots: Vec<TunedBoot>,
    /// What the next boot was asked for, and in which boot that was; `None` where nothing is asked.
    pub asked: Option<AskedBoot>,
    /// Boots of the present plot that did not come as asked, or were cut short.
    pub tries: u32,
    /// Whether the user reboots.
    pub by_hand: bool,
    /// Where the result is kept; `None` for the usual place.
    pub store: Option<String>,
    /// Where the page is written.
    pub page: Option<String>,
}

/// A boot parameter, or a kernel, that is switched from boot to boot.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct BootFactor {
    /// Its name, words and reason.
    pub factor: Factor,
    /// The parameter; of a kernel the name is `kernel` and the value its release.
    pub parameter: Parameter,
}

impl BootFactor {
    /// The release, where this is a kernel.
    pub fn kernel(&self) -> Option<&str> {
        (self.parameter.name == "kernel").then_some(self.parameter.value.as_deref()).flatten()
    }
}

/// What one boot is asked for.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct BootPlot {
    /// Number of its pair: this boot and its mirror image.
    pub pair: u32,
    /// By factor.
    pub on: Vec<bool>,
}

/// A boot that was asked for.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct AskedBoot {
    /// The boot in which it was asked.
    pub by: String,
}

/// A file of the boot loader: its length, and a number of its bytes (FNV-1a).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct BootFileMark {
    /// Where.
    pub path: String,
    /// Bytes; `None` where there is no such file.
    pub length: Option<u64>,
    /// The number.
    pub mark: u64,
}

/// The number of some bytes (FNV-1a, 64 bits): it tells whether they changed, and keeps nobody from forging them.
pub fn mark_of(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |mark, byte| {
        (mark ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

impl BootTune {
    /// The plot that comes next; `None` where all are done.
    pub fn next(&self) -> Option<&BootPlot> {
        self.order.get(self.boots.len())
    }

    /// The words that a plot has on the kernel's command line.
    pub fn words(&self, plot: &BootPlot) -> Vec<String> {
        self.on(plot).filter(|one| one.kernel().is_none()).map(|one| one.parameter.word()).collect()
    }

    /// The kernel of a plot.
    pub fn kernel_of<'a>(&'a self, plot: &'a BootPlot) -> &'a str {
        self.on(plot).find_map(BootFactor::kernel).unwrap_or(&self.kernel)
    }

    /// What is on in a plot.
    pub fn on<'a>(&'a self, plot: &'a BootPlot) -> impl Iterator<Item = &'a BootFactor> {
        self.factors.iter().zip(&plot.on).filter(|(_, on)| **on).map(|(one, _)| one)
    }

    /// About how long a boot's blocks take.
    pub fn measuring(&self) -> Nanos {
        Nanos(self.design.block.0 * u64::from(self.blocks))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_bit_changes_the_mark() {
        assert_eq!(mark_of(b""), 0xcbf2_9ce4_8422_2325);
        assert_ne!(mark_of(b"quiet"), mark_of(b"quieu"));
    }
}
