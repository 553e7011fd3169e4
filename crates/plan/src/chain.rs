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

use annotate_snippets::{AnnotationKind, Level, Renderer, Snippet};
use quiet_types::{
    Chain, CpuSet,
    boot::Mode,
    chain::{Choice, IrqSource, Link, Target},
    printable,
};
use serde::Deserialize;
use std::{fmt, ops::Range};
use toml::Spanned;

/// No chain is longer.
const MOST_LINKS: usize = 256;
/// No name is longer.
const LONGEST: usize = 60;

/// What is wrong with a chain file: the sentence, the line with a caret, and the remedy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChainError {
    line: usize,
    title: String,
    text: String,
}

impl ChainError {
    /// The line that is wrong, from 1.
    pub fn line(&self) -> usize {
        self.line
    }

    /// What is wrong, in one sentence.
    pub fn title(&self) -> &str {
        &self.title
    }
}

impl fmt::Display for ChainError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl std::error::Error for ChainError {}

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
pub fn parse(text: &str, path: &str, known: Option<&CpuSet>) -> Result<Chain, ChainError> {
    let reader = Reader { text, path, known };
    let file: RawFile = toml::from_str(text).map_err(|error| {
        let span = error.span().unwrap_or(0..0);
        let title = error.message().lines().next().unwrap_or("this is not TOML").to_owned();
        let remedy = remedy_of(&title);
        reader.wrong(span, &title, "here", remedy)
    })?;
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

struct Reader<'a> {
    text: &'a str,
    path: &'a str,
    known: Option<&'a CpuSet>,
}

impl Reader<'_> {
    fn wrong(&self, span: Range<usize>, title: &str, label: &str, help: &str) -> ChainError {
        let end = self.text.len();
        let span = span.start.min(end)..span.end.min(end);
        let line = self.text[..self.floor(span.start)].matches('\n').count() + 1;
        let title = printable(title, 200);
        let span = self.floor(span.start)..self.floor(span.end).max(self.floor(span.start));
        let snippet = Snippet::source(self.text)
            .path(self.path)
            .annotation(AnnotationKind::Primary.span(span).label(label));
        let report = [Level::ERROR
            .primary_title(title.as_str())
            .element(snippet)
            .element(Level::HELP.message(help))];
        let rendered = Renderer::plain().render(&report);
        let text = rendered.strip_prefix("error: ").unwrap_or(&rendered).to_owned();
        ChainError { line, title, text }
    }

    /// The start of the character at `at`.
    fn floor(&self, at: usize) -> usize {
        (0..=at).rev().find(|at| self.text.is_char_boundary(*at)).unwrap_or(0)
    }

    fn chain(&self, file: &RawFile) -> Result<Chain, ChainError> {
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

    fn link(&self, link: &Spanned<RawLink>) -> Result<Link, ChainError> {
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

    fn irq(&self, irq: &Spanned<RawIrq>) -> Result<IrqSource, ChainError> {
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

    fn one_of<T: Copy>(
        &self,
        word: &Spanned<String>,
        what: &str,
        known: &[(&str, T)],
    ) -> Result<T, ChainError> {
        let found = known.iter().find(|(name, _)| name == word.get_ref());
        found.map(|(_, value)| *value).ok_or_else(|| {
            let names: Vec<String> = known.iter().map(|(name, _)| format!("\"{name}\"")).collect();
            self.wrong(
                word.span(),
                &format!("`{}` is not {what}", printable(word.get_ref(), LONGEST)),
                "here",
                &format!("write {}", names.join(" or ")),
            )
        })
    }

    fn name(&self, name: &Spanned<String>) -> Result<String, ChainError> {
        let text = name.get_ref();
        if text.trim().is_empty() {
            return Err(self.wrong(name.span(), "a name is empty", "here", "give it a name"));
        }
        if text.chars().count() > LONGEST || text.chars().any(char::is_control) {
            return Err(self.wrong(
                name.span(),
                "this is not a name",
                "here",
                "a name has at most 60 characters, none of them a control character",
            ));
        }
        Ok(text.clone())
    }

    fn cpus(&self, cpus: &Spanned<String>) -> Result<CpuSet, ChainError> {
        let set: CpuSet = cpus.get_ref().parse().map_err(|error| {
            self.wrong(cpus.span(), &format!("{error}"), "here", "write a list such as 2-3,8")
        })?;
        if set.is_empty() {
            return Err(self.wrong(
                cpus.span(),
                "no CPU is named",
                "this list is empty",
                "write a list such as 2-3,8",
            ));
        }
        let unknown = self.known.map(|known| set.difference(known)).unwrap_or_default();
        if let (false, Some(known)) = (unknown.is_empty(), self.known) {
            let title = match unknown.len() {
                1 => format!("CPU {unknown} is not on this machine"),
                _ => format!("CPUs {unknown} are not on this machine"),
            };
            let label = format!("this machine has CPUs {known}");
            return Err(self.wrong(
                cpus.span(),
                &title,
                &label,
                "`quietcores inspect` shows the CPUs and which of them share a core",
            ));
        }
        Ok(set)
    }

    fn priority(&self, priority: &Spanned<i64>) -> Result<u8, ChainError> {
        match u8::try_from(*priority.get_ref()) {
            Ok(value @ 1..=99) => Ok(value),
            _ => Err(self.wrong(
                priority.span(),
                &format!("{} is not a real-time priority", priority.get_ref()),
                "here",
                "priorities of SCHED_FIFO are 1 to 99; above 90 the kernel's own threads suffer",
            )),
        }
    }

    fn check_names(&self, links: &[Spanned<RawLink>]) -> Result<(), ChainError> {
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

    fn check_priorities(&self, links: &[Spanned<RawLink>]) -> Result<(), ChainError> {
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

    fn check_within(&self, chain: &Chain, links: &[Spanned<RawLink>]) -> Result<(), ChainError> {
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

    fn error(text: &str) -> ChainError {
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
