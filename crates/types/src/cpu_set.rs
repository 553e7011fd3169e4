//! A set of logical CPUs, in the kernel's list form and mask form.

use crate::{CpuId, printable};
use std::{fmt, str::FromStr};

/// The largest CPU number that is believed: Linux's own limit (`NR_CPUS`) is 8192.
const MOST: u32 = 8192;

/// A set of logical CPUs. Reads and prints the kernel's list form, `0-3,8`.
///
/// # Source
/// "List format" and "mask format" of cpuset(7).
#[derive(Clone, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CpuSet {
    /// 64 CPUs a word, no trailing zero words: equal sets are equal vectors.
    words: Vec<u64>,
}

/// Why a CPU list or mask was not understood.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParseCpuSetError {
    text: String,
    why: &'static str,
}

impl fmt::Display for ParseCpuSetError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "`{}` is not a CPU list such as 0-3,8: {}", self.text, self.why)
    }
}

impl std::error::Error for ParseCpuSetError {}

impl CpuSet {
    /// The empty set.
    pub const fn new() -> CpuSet {
        CpuSet { words: Vec::new() }
    }

    /// Adds `cpu`. CPU numbers above 8191 do not exist in Linux and are ignored.
    pub fn insert(&mut self, cpu: CpuId) {
        if cpu.0 < MOST {
            let word = cpu.0 as usize / 64;
            if word >= self.words.len() {
                self.words.resize(word + 1, 0);
            }
            self.words[word] |= 1 << (cpu.0 % 64);
        }
    }

    /// Takes `cpu` out.
    pub fn remove(&mut self, cpu: CpuId) {
        if let Some(word) = self.words.get_mut(cpu.0 as usize / 64) {
            *word &= !(1 << (cpu.0 % 64));
        }
        self.trim();
    }

    /// Whether `cpu` is a member.
    pub fn contains(&self, cpu: CpuId) -> bool {
        self.words.get(cpu.0 as usize / 64).is_some_and(|word| word >> (cpu.0 % 64) & 1 == 1)
    }

    /// Whether no CPU is a member.
    pub fn is_empty(&self) -> bool {
        self.words.is_empty()
    }

    /// How many CPUs are members.
    pub fn len(&self) -> usize {
        self.words.iter().map(|word| word.count_ones() as usize).sum()
    }

    /// The members, rising.
    pub fn iter(&self) -> impl Iterator<Item = CpuId> + '_ {
        self.words.iter().enumerate().flat_map(|(at, &word)| {
            (0..64)
                .filter(move |bit| word >> bit & 1 == 1)
                .map(move |bit| CpuId(at as u32 * 64 + bit))
        })
    }

    /// The lowest member.
    pub fn first(&self) -> Option<CpuId> {
        self.iter().next()
    }

    /// Members of either.
    pub fn union(&self, other: &CpuSet) -> CpuSet {
        self.zip(other, |a, b| a | b)
    }

    /// Members of both.
    pub fn intersection(&self, other: &CpuSet) -> CpuSet {
        self.zip(other, |a, b| a & b)
    }

    /// Members of this one that are not in `other`.
    pub fn difference(&self, other: &CpuSet) -> CpuSet {
        self.zip(other, |a, b| a & !b)
    }

    /// Whether the two share a member.
    pub fn intersects(&self, other: &CpuSet) -> bool {
        !self.intersection(other).is_empty()
    }

    /// Whether every member is also in `other`.
    pub fn is_subset(&self, other: &CpuSet) -> bool {
        self.difference(other).is_empty()
    }

    /// The words of 64 CPUs each, lowest first, without trailing zeros.
    pub fn words(&self) -> &[u64] {
        &self.words
    }

    /// Reads the mask form: hexadecimal, comma-separated in groups of 32 bits, highest first
    /// (`/proc/irq/*/smp_affinity`, workqueue `cpumask`).
    ///
    /// # Errors
    /// When a group is not hexadecimal, is longer than 8 digits, or a CPU above 8191 is named.
    pub fn from_mask(text: &str) -> Result<CpuSet, ParseCpuSetError> {
        let wrong = |why| ParseCpuSetError { text: printable(text, 60), why };
        let mut set = CpuSet::new();
        let groups: Vec<&str> = text.trim().split(',').collect();
        if groups.len() > MOST as usize / 32 {
            return Err(wrong("the mask is longer than 8192 CPUs"));
        }
        for (at, group) in groups.iter().rev().enumerate() {
            // The kernel writes groups of 8; a person may type one longer number alone.
            let digits = group.strip_prefix("0x").unwrap_or(group);
            let longest = if groups.len() == 1 { 16 } else { 8 };
            if digits.is_empty() || digits.len() > longest {
                return Err(wrong("a mask group has 1 to 8 hexadecimal digits"));
            }
            if !digits.bytes().all(|b| b.is_ascii_hexdigit()) {
                return Err(wrong("a mask is hexadecimal"));
            }
            let bits =
                u64::from_str_radix(digits, 16).map_err(|_| wrong("a mask is hexadecimal"))?;
            for bit in (0..64).filter(|bit| bits >> bit & 1 == 1) {
                set.insert(CpuId(at as u32 * 32 + bit));
            }
        }
        Ok(set)
    }

    /// The mask form that the kernel accepts: groups of 32 bits, highest first; `0` when empty.
    pub fn to_mask(&self) -> String {
        let halves: Vec<u32> =
            self.words.iter().flat_map(|w| [*w as u32, (*w >> 32) as u32]).collect();
        let top = halves.iter().rposition(|half| *half != 0).unwrap_or(0);
        let mut text = format!("{:x}", halves.get(top).copied().unwrap_or(0));
        for half in halves[..top.min(halves.len())].iter().rev() {
            text.push_str(&format!(",{half:08x}"));
        }
        text
    }

    fn zip(&self, other: &CpuSet, join: fn(u64, u64) -> u64) -> CpuSet {
        let word = |set: &CpuSet, at| set.words.get(at).copied().unwrap_or(0);
        let longest = self.words.len().max(other.words.len());
        let mut set = CpuSet {
            words: (0..longest).map(|at| join(word(self, at), word(other, at))).collect(),
        };
        set.trim();
        set
    }

    fn trim(&mut self) {
        while self.words.last() == Some(&0) {
            self.words.pop();
        }
    }
}

impl FromIterator<CpuId> for CpuSet {
    fn from_iter<T: IntoIterator<Item = CpuId>>(cpus: T) -> CpuSet {
        let mut set = CpuSet::new();
        cpus.into_iter().for_each(|cpu| set.insert(cpu));
        set
    }
}

/// The list form, and the kernel's strides (`0-8:1/2` is 0,2,4,6,8). White space around is
/// ignored; the empty text is the empty set.
impl FromStr for CpuSet {
    type Err = ParseCpuSetError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let wrong = |why| ParseCpuSetError { text: printable(text, 60), why };
        let number = |digits: &str| match digits {
            "" => Err(wrong("a number is missing")),
            _ if !digits.bytes().all(|b| b.is_ascii_digit()) => {
                Err(wrong("a CPU is a decimal number"))
            }
            _ => match digits.parse::<u32>() {
                Ok(cpu) if cpu < MOST => Ok(cpu),
                _ => Err(wrong("CPU numbers end at 8191")),
            },
        };
        let mut set = CpuSet::new();
        if text.trim().is_empty() {
            return Ok(set);
        }
        for part in text.trim().split(',') {
            let (range, stride) = match part.split_once(':') {
                Some((range, stride)) => (range, Some(stride)),
                None => (part, None),
            };
            let (first, last) = match range.split_once('-') {
                Some((first, last)) => (number(first.trim())?, number(last.trim())?),
                None => {
                    let cpu = number(range.trim())?;
                    (cpu, cpu)
                }
            };
            if last < first {
                return Err(wrong("a range runs upwards"));
            }
            let (used, group) = match stride.map(|s| s.split_once('/')) {
                None => (1, 1),
                Some(Some((used, group))) => (number(used)?, number(group)?),
                Some(None) => return Err(wrong("a stride is written :used/group")),
            };
            if used == 0 || group == 0 || used > group {
                return Err(wrong("a stride uses at least 1 and at most all of its group"));
            }
            for cpu in (first..=last).filter(|cpu| (cpu - first) % group < used) {
                set.insert(CpuId(cpu));
            }
        }
        Ok(set)
    }
}

impl fmt::Display for CpuSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut text = String::new();
        let mut cpus = self.iter().map(|cpu| cpu.0).peekable();
        while let Some(first) = cpus.next() {
            let mut last = first;
            while cpus.peek() == Some(&(last + 1)) {
                last += 1;
                cpus.next();
            }
            if !text.is_empty() {
                text.push(',');
            }
            text.push_str(&first.to_string());
            if last > first {
                text.push_str(&format!("-{last}"));
            }
        }
        f.pad(&text)
    }
}

impl fmt::Debug for CpuSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "CpuSet({self})")
    }
}

impl serde::Serialize for CpuSet {
    fn serialize<S: serde::Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(self)
    }
}

impl<'de> serde::Deserialize<'de> for CpuSet {
    fn deserialize<D: serde::Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let text = <std::borrow::Cow<'de, str>>::deserialize(from)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}

impl schemars::JsonSchema for CpuSet {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "CpuSet".into()
    }

    fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
        schemars::json_schema!({
            "type": "string",
            "description": "logical CPUs in the kernel's list form, as 0-3,8",
            "pattern": "^([0-9]+(-[0-9]+)?(,[0-9]+(-[0-9]+)?)*)?$"
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn set(text: &str) -> CpuSet {
        text.parse().unwrap()
    }

    #[test]
    fn lists_read_as_the_kernel_reads_them() {
        assert_eq!(set("0-3,8").iter().map(|c| c.0).collect::<Vec<_>>(), [0, 1, 2, 3, 8]);
        assert_eq!(set("0-8:1/2").to_string(), "0,2,4,6,8");
        assert_eq!(set(" 1\n").to_string(), "1");
        assert_eq!(set("\n"), CpuSet::new());
        assert_eq!(set("64,63").to_string(), "63-64");
    }

    #[test]
    fn nonsense_is_refused_with_a_reason() {
        for (text, why) in [
            ("3-1", "upwards"),
            ("0-99999999999", "8191"),
            ("a", "decimal"),
            ("1,,2", "missing"),
            ("-1", "missing"),
            ("0-3:0/2", "stride"),
            ("0-3:2", "stride"),
            ("+1", "decimal"),
        ] {
            let error = text.parse::<CpuSet>().unwrap_err().to_string();
            assert!(error.contains(why), "{text}: {error}");
        }
    }

    #[test]
    fn masks_read_and_print_in_groups_of_32() {
        assert_eq!(CpuSet::from_mask("00000001,00000003").unwrap().to_string(), "0-1,32");
        assert_eq!(set("0-1,32").to_mask(), "1,00000003");
        assert_eq!(set("64").to_mask(), "1,00000000,00000000");
        assert_eq!(CpuSet::new().to_mask(), "0");
        assert!(CpuSet::from_mask("g").is_err());
        assert!(CpuSet::from_mask("").is_err());
    }

    proptest! {
        #[test]
        fn list_and_mask_come_back(cpus in proptest::collection::btree_set(0u32..8192, 0..50)) {
            let set: CpuSet = cpus.iter().map(|c| CpuId(*c)).collect();
            prop_assert_eq!(&set.to_string().parse::<CpuSet>().unwrap(), &set);
            prop_assert_eq!(&CpuSet::from_mask(&set.to_mask()).unwrap(), &set);
            prop_assert_eq!(set.len(), cpus.len());
        }

        #[test]
        fn algebra_agrees_with_the_standard_library(
            a in proptest::collection::btree_set(0u32..300, 0..50),
            b in proptest::collection::btree_set(0u32..300, 0..50),
        ) {
            let make = |s: &std::collections::BTreeSet<u32>| -> CpuSet {
                s.iter().map(|c| CpuId(*c)).collect()
            };
            let (x, y) = (make(&a), make(&b));
            prop_assert_eq!(x.union(&y), make(&(&a | &b)));
            prop_assert_eq!(x.intersection(&y), make(&(&a & &b)));
            prop_assert_eq!(x.difference(&y), make(&(&a - &b)));
            prop_assert_eq!(x.is_subset(&y), a.is_subset(&b));
        }

        #[test]
        fn any_text_is_answered(text in ".{0,60}") {
            let _ = text.parse::<CpuSet>();
            let _ = CpuSet::from_mask(&text);
        }
    }
}
