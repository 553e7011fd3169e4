//! Chain files: TOML, in the order of the links from input to output.
//!
//! ```toml
//! [chain]
//! name = "living room"
//! cpus = "2-3"              # or "auto"
//! mode = "sleep"            # or "never-sleep": one thread a CPU that spins
//! smt = "as-is"             # or "off": siblings of shielded CPUs are switched off
//!
//! [[link]]
//! name = "player"
//! process = "mpd"
//! threads = ["output"]
//! priority = 75
//!
//! [[link]]
//! name = "output"
//! irq = { card = "USB" }    # or { net = "eth0" }, { number = 127 }, { action = "xhci_hcd" }
//! priority = 85
//! ```

use crate::file::Reader;
use quiet_types::{
    Chain, CpuSet, FileError,
    boot::Mode,
    chain::{Choice, IrqSource, Link, Target},
};
use serde::Deserialize;
use toml::Spanned;

/// No chain is longer.
const MOST_LINKS: usize = 256;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawFile {
    chain: Option<RawChain>,
    #[serde(default)]
    link: Vec<Spanned<RawLink>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawChain {
    name: Option<Spanned<String>>,
    cpus: Option<Spanned<String>>,
    mode: Option<Spanned<String>>,
    smt: Option<Spanned<String>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawLink {
    name: Spanned<String>,
    irq: Option<Spanned<RawIrq>>,
    process: Option<Spanned<String>>,
    threads: Option<Spanned<Vec<Spanned<String>>>>,
    cpus: Option<Spanned<String>>,
    priority: Option<Spanned<i64>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawIrq {
    net: Option<String>,
    card: Option<String>,
    number: Option<u32>,
    action: Option<String>,
}

/// Reads a chain file; `path` is what messages call it, `known` the CPUs of the machine that it is
/// for, as far as they are known.
///
/// # Errors
/// The first thing that is wrong, with its line: no TOML, an unknown key, a link that names
/// nothing or two things, a name that is empty or given twice, CPUs that are not on the machine,
/// a priority outside 1 to 99 or not above the one before it.
pub fn parse(text: &str, path: &str, known: Option<&CpuSet>) -> Result<Chain, FileError> {
    let reader = Reader { text, path, known };
    let file: RawFile = toml::from_str(text).map_err(|error| reader.toml(&error, remedy_of))?;
    reader.chain(&file)
}

fn remedy_of(message: &str) -> &'static str {
    if message.starts_with("unknown field") {
        "remove it, or correct its spelling: nothing that is not understood is passed over"
    } else if message.starts_with("missing field") {
        "every link needs a name"
    } else if message.starts_with("invalid type") {
        "names and CPU lists are in quotes, numbers are not"
    } else {
        "chain files are TOML; see the example of `quietcores plan --help`"
    }
}

impl Reader<'_> {
    fn chain(&self, file: &RawFile) -> Result<Chain, FileError> {
        let mut chain = Chain::default();
        if let Some(head) = &file.chain {
            if let Some(name) = &head.name {
                chain.name = Some(self.name(name)?);
            }
            match &head.cpus {
                Some(cpus) if cpus.get_ref() == "auto" => {}
                Some(cpus) => chain.cpus = Choice::These(self.cpus(cpus)?),
                None => {}
            }
            if let Some(mode) = &head.mode {
                chain.mode = self.one_of(
                    mode,
                    "a mode",
                    &[("sleep", Mode::SleepingChain), ("never-sleep", Mode::NeverSleepingCore)],
                )?;
            }
            if let Some(smt) = &head.smt {
                chain.smt_off =
                    self.one_of(smt, "a setting of SMT", &[("as-is", false), ("off", true)])?;
            }
        }
        if let Some(extra) = file.link.get(MOST_LINKS) {
            return Err(self.wrong(
                extra.span(),
                "the chain is too long",
                "the 257th link",
                "a chain has at most 256 links",
            ));
        }
        for link in &file.link {
            chain.links.push(self.link(link)?);
        }
        self.check_names(&file.link)?;
        self.check_priorities(&file.link)?;
        self.check_within(&chain, &file.link)?;
        Ok(chain)
    }

    fn link(&self, link: &Spanned<RawLink>) -> Result<Link, FileError> {
        let raw = link.get_ref();
        let name = self.name(&raw.name)?;
        let target = match (&raw.irq, &raw.process) {
            (Some(irq), None) => {
                if let Some(threads) = &raw.threads {
                    return Err(self.wrong(
                        threads.span(),
                        "an interrupt has no threads to name",
                        "this goes with `process`",
                        "its handler threads are found by themselves",
                    ));
                }
                Target::Irq(self.irq(irq)?)
            }
            (None, Some(process)) => {
                let mut threads = Vec::new();
                for thread in raw.threads.iter().flat_map(|list| list.get_ref()) {
                    threads.push(self.name(thread)?);
                }
                Target::Process { comm: self.name(process)?, threads }
            }
            (Some(_), Some(process)) => {
                return Err(self.wrong(
                    process.span(),
                    &format!("link `{name}` is both an interrupt and a process"),
                    "the second one",
                    "make two links of it, in the order in which the sound passes them",
                ));
            }
            (None, None) => {
                return Err(self.wrong(
                    raw.name.span(),
                    &format!("link `{name}` names nothing on the machine"),
                    "this link",
                    "give it `irq = { card = \"...\" }` or `process = \"...\"`",
                ));
            }
        };
        let cpus = raw.cpus.as_ref().map(|cpus| self.cpus(cpus)).transpose()?;
        let priority = raw.priority.as_ref().map(|priority| self.priority(priority)).transpose()?;
        Ok(Link { name, target, cpus, priority })
    }

    fn irq(&self, irq: &Spanned<RawIrq>) -> Result<IrqSource, FileError> {
        let raw = irq.get_ref();
        let mut named: Vec<IrqSource> = Vec::new();
        named.extend(raw.net.clone().map(IrqSource::Net));
        named.extend(raw.card.clone().map(IrqSource::Card));
        named.extend(raw.number.map(IrqSource::Number));
        named.extend(raw.action.clone().map(IrqSource::Action));
        match named.as_slice() {
            [one] => Ok(one.clone()),
            _ => Err(self.wrong(
                irq.span(),
                "an interrupt is named in one way",
                if named.is_empty() { "none is given" } else { "several are given" },
                "write one of `net`, `card`, `number` and `action`",
            )),
        }
    }

    fn check_names(&self, links: &[Spanned<RawLink>]) -> Result<(), FileError> {
        for (at, link) in links.iter().enumerate() {
            let name = &link.get_ref().name;
            if links[..at].iter().any(|l| l.get_ref().name.get_ref() == name.get_ref()) {
                return Err(self.wrong(
                    name.span(),
                    &format!("two links are called `{}`", name.get_ref()),
                    "the second one",
                    "give each link a name of its own: reports tell them apart by it",
                ));
            }
        }
        Ok(())
    }

    fn check_priorities(&self, links: &[Spanned<RawLink>]) -> Result<(), FileError> {
        let mut last: Option<(i64, &str)> = None;
        for link in links.iter().map(Spanned::get_ref) {
            let Some(priority) = &link.priority else { continue };
            let value = *priority.get_ref();
            if let Some((before, name)) = last.filter(|(before, _)| value <= *before) {
                return Err(self.wrong(
                    priority.span(),
                    &format!("priority {value} does not rise above the {before} of link `{name}`"),
                    "not above the link before it",
                    "priorities rise down the chain, so that each link is ready for what the one \
                     before it hands over",
                ));
            }
            last = Some((value, link.name.get_ref()));
        }
        Ok(())
    }

    fn check_within(&self, chain: &Chain, links: &[Spanned<RawLink>]) -> Result<(), FileError> {
        let Choice::These(shield) = &chain.cpus else { return Ok(()) };
        for (link, raw) in chain.links.iter().zip(links) {
            let (Some(cpus), Some(written)) = (&link.cpus, &raw.get_ref().cpus) else { continue };
            if !cpus.is_subset(shield) {
                return Err(self.wrong(
                    written.span(),
                    &format!("link `{}` is outside the shield", link.name),
                    &format!("the chain has CPUs {shield}"),
                    "widen `cpus` of the chain, or place the link within them",
                ));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const LIVING_ROOM: &str = r#"
[chain]
name = "living room"
cpus = "1-3"

[[link]]
name = "network"
irq = { net = "eth0" }
priority = 55

[[link]]
name = "player"
process = "mpd"
threads = ["io", "output"]
cpus = "2"
priority = 75

[[link]]
name = "output"
irq = { card = "USB" }
cpus = "1"
priority = 85
"#;

    fn known() -> CpuSet {
        "0-3".parse().unwrap()
    }

    fn error(text: &str) -> FileError {
        parse(text, "my.toml", Some(&known())).unwrap_err()
    }

    #[test]
    fn the_mode_and_smt_are_words() {
        let read = |head: &str| parse(&format!("[chain]\n{head}\n"), "my.toml", None);
        assert_eq!(read("mode = \"sleep\"").unwrap().mode, Mode::SleepingChain);
        let chain = read("mode = \"never-sleep\"\nsmt = \"off\"").unwrap();
        assert!(chain.mode == Mode::NeverSleepingCore && chain.smt_off);
        let wrong = read("mode = \"spin\"").unwrap_err();
        assert_eq!((wrong.line(), wrong.title()), (2, "`spin` is not a mode"));
        assert!(wrong.to_string().contains("write \"sleep\" or \"never-sleep\""), "{wrong}");
        assert!(read("smt = false").is_err());
    }

    #[test]
    fn a_chain_is_read_in_the_order_of_its_links() {
        let chain = parse(LIVING_ROOM, "my.toml", Some(&known())).unwrap();
        assert_eq!(chain.name.as_deref(), Some("living room"));
        assert_eq!(chain.cpus, Choice::These("1-3".parse().unwrap()));
        let names: Vec<&str> = chain.links.iter().map(|link| link.name.as_str()).collect();
        assert_eq!(names, ["network", "player", "output"]);
        assert_eq!(chain.links[0].target, Target::Irq(IrqSource::Net("eth0".into())));
        assert_eq!(
            chain.links[1].target,
            Target::Process { comm: "mpd".into(), threads: vec!["io".into(), "output".into()] }
        );
        assert_eq!(chain.links[2].priority, Some(85));
    }

    #[test]
    fn each_mistake_is_named_with_its_line() {
        let cases: [(&str, &str, usize, &str); 14] = [
            ("cpus = \"1-3\"", "cpus = \"1-7\"", 4, "CPUs 4-7 are not on this machine"),
            ("cpus = \"1-3\"", "cpus = \"3-1\"", 4, "a range runs upwards"),
            ("cpus = \"1-3\"", "cpus = 1", 4, "invalid type"),
            ("cpus = \"1-3\"", "colour = 1", 4, "unknown field `colour`"),
            ("name = \"network\"", "name = \" \"", 7, "a name is empty"),
            ("name = \"output\"", "name = \"player\"", 19, "two links are called `player`"),
            ("priority = 85", "priority = 75", 22, "does not rise above the 75 of link `player`"),
            ("priority = 85", "priority = 100", 22, "100 is not a real-time priority"),
            ("cpus = \"2\"", "cpus = \"0\"", 15, "link `player` is outside the shield"),
            ("process = \"mpd\"", "", 12, "names nothing on the machine"),
            ("irq = { card = \"USB\" }", "irq = { }", 20, "named in one way"),
            ("card = \"USB\"", "card = \"USB\", number = 3", 20, "named in one way"),
            ("irq = { net = \"eth0\" }", "irq = { net = \"eth0\" }\nprocess = \"x\"", 9, "both"),
            ("[[link]]", "[[link", 6, ""),
        ];
        for (from, to, line, title) in cases {
            let error = error(&LIVING_ROOM.replacen(from, to, 1));
            assert_eq!(error.line(), line, "{to}: {error}");
            assert!(error.title().contains(title), "{to}: {error}");
            assert!(error.to_string().contains(&format!("my.toml:{line}")), "{to}: {error}");
            assert!(error.to_string().contains("help: "), "{to}: {error}");
        }
    }

    #[test]
    fn a_mistake_is_shown_with_a_caret_and_the_remedy() {
        let text = "[chain]\ncpus = \"0-9\"\n";
        assert_eq!(
            error(text).to_string(),
            "\
CPUs 4-9 are not on this machine
 --> my.toml:2:8
  |
2 | cpus = \"0-9\"
  |        ^^^^^ this machine has CPUs 0-3
  |
  = help: `quietcores inspect` shows the CPUs and which of them share a core"
        );
    }

    proptest! {
        #[test]
        fn any_text_is_answered(text in "\\PC{0,200}") {
            let _ = parse(&text, "my.toml", Some(&known()));
        }

        #[test]
        fn any_damage_to_a_chain_is_answered(at in 0usize..400, with in "\\PC{0,6}") {
            let at = (0..=at.min(LIVING_ROOM.len())).rev()
                .find(|at| LIVING_ROOM.is_char_boundary(*at)).unwrap();
            let text = format!("{}{with}{}", &LIVING_ROOM[..at], &LIVING_ROOM[at..]);
            let _ = parse(&text, "my.toml", Some(&known()));
        }
    }
}
