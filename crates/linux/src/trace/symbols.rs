//! Functions of the kernel by their address.

use std::collections::HashMap;

/// Functions in the order of their addresses.
#[derive(Clone, Debug, Default)]
pub struct Symbols {
    /// Address, and where its name ends in `names`.
    ends: Vec<(u64, u32)>,
    names: String,
}

impl Symbols {
    /// Reads `/proc/kallsyms`. Where addresses are hidden (`kernel.kptr_restrict`) it is empty.
    pub fn parse(text: &str) -> Symbols {
        let mut all: Vec<(u64, &str)> = text
            .lines()
            .filter_map(|line| {
                let mut words = line.split_ascii_whitespace();
                let address = u64::from_str_radix(words.next()?, 16).ok().filter(|a| *a > 0)?;
                let code = matches!(words.next()?, "t" | "T" | "w" | "W");
                code.then_some((address, words.next()?))
            })
            .collect();
        // Of several names at one address, the first.
        all.sort_by_key(|(address, _)| *address);
        all.dedup_by_key(|(address, _)| *address);
        let mut symbols = Symbols::default();
        for (address, name) in all {
            symbols.names.push_str(name);
            let Ok(end) = u32::try_from(symbols.names.len()) else { break };
            symbols.ends.push((address, end));
        }
        symbols
    }

    /// The function that an address lies in.
    pub fn at(&self, address: u64) -> Option<&str> {
        let after = self.ends.partition_point(|(start, _)| *start <= address);
        let at = after.checked_sub(1)?;
        let from = at.checked_sub(1).map_or(0, |before| self.ends[before].1);
        self.names.get(from as usize..self.ends[at].1 as usize)
    }
}

/// Words, each once.
#[derive(Clone, Debug, Default)]
pub(super) struct Words {
    known: HashMap<String, u32>,
    pub(super) all: Vec<String>,
}

impl Words {
    /// At most so many different words are kept; further ones are the last.
    const MOST: usize = 1 << 16;

    pub(super) fn put(&mut self, word: &str) -> quiet_types::trace::Name {
        if let Some(at) = self.known.get(word) {
            return quiet_types::trace::Name(*at);
        }
        let word = if self.all.len() < Self::MOST { word } else { "?" };
        let next = self.all.len() as u32;
        let at = *self.known.entry(word.to_owned()).or_insert(next);
        if at == next {
            self.all.push(word.to_owned());
        }
        quiet_types::trace::Name(at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_lies_in_the_function_that_begins_before_it() {
        let text = "ffffffff81000100 T second\nffffffff81000000 t first\nffffffff81000100 T alias\n\
            ffffffff81000200 d data\n0000000000000000 T hidden\nffffffff81000300 T third\t[module]\n";
        let symbols = Symbols::parse(text);
        assert_eq!(symbols.at(0xffffffff81000000), Some("first"));
        assert_eq!(symbols.at(0xffffffff810000ff), Some("first"));
        assert_eq!(symbols.at(0xffffffff810002ff), Some("second"));
        assert_eq!(symbols.at(0xffffffff81000300), Some("third"));
        assert_eq!(symbols.at(1), None);
        assert_eq!(Symbols::default().at(1), None);
    }

    #[test]
    fn words_are_kept_once() {
        let mut words = Words::default();
        let (a, b) = (words.put("a"), words.put("b"));
        assert_eq!((words.put("a"), words.put("b")), (a, b));
        assert_eq!(words.all, ["a", "b"]);
    }
}
