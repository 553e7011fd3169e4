//! Which boot of the machine this is.

use crate::{Error, Kernel, Result, Root};
use std::io;

const FILE: &str = "/proc/sys/kernel/random/boot_id";

/// This boot, for certain. A file that cannot be read tells of no boot, least of all of another one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BootId(String);

impl BootId {
    /// As the kernel tells.
    ///
    /// # Errors
    /// When it does not: no file could be opened, or the file is masked.
    pub fn of(kernel: &dyn Kernel) -> Result<BootId> {
        BootId::told(&kernel.read(FILE).map_err(untold)?)
    }

    /// As [`BootId::of`], by the files of `root`.
    ///
    /// # Errors
    /// As [`BootId::of`].
    pub fn in_root(root: &Root) -> Result<BootId> {
        BootId::told(&root.read(FILE)?)
    }

    fn told(text: &str) -> Result<BootId> {
        match text.trim() {
            "" => Err(untold(io::Error::other("it is empty: something masks it"))),
            id => Ok(BootId(id.to_owned())),
        }
    }

    /// As it is written down.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Whether what was noted in the boot `noted` is of another boot. Who could not tell its boot noted none: that may be this one.
    pub fn is_another(&self, noted: &str) -> bool {
        !noted.is_empty() && noted != self.0
    }
}

fn untold(error: io::Error) -> Error {
    Error::io("read", FILE, error)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_told_is_no_other_boot() {
        let this = BootId::told("one\n").unwrap();
        assert_eq!(this.as_str(), "one");
        assert!(!this.is_another("one") && this.is_another("two"));
        assert!(!this.is_another(""), "noted by who could not read it");
        for masked in ["", "\n"] {
            let said = BootId::told(masked).unwrap_err().to_string();
            assert!(said.contains("boot_id") && said.contains("empty"), "{said}");
        }
        let dir = tempfile::tempdir().unwrap();
        assert!(BootId::in_root(&Root::at(dir.path()).unwrap()).is_err());
    }
}
