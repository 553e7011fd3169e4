//! Chain files: TOML, in the order of the links from input to output.
//!
//! ```toml
//! [chain]
//! name = "living room"
//! cpus = "2-3"              # or "auto": as many cores as the links need; "auto:3"
//! mode = "sleep"            # or "never-sleep": one thread a CPU that spins
//! smt = "as-is"             # or "off": siblings of shielded CPUs are switched off
//! steps = ["partition"]     # only these steps of the plan, by what they are for; all where left out
//!
//! [[link]]
//! name = "player"
//! process = "mpd"
//! user = "mpd"              # whose it is: a name, a number or several; root's where nothing is said
//! threads = ["output"]      # also output:usb; * stands for any characters
//! priority = 75
//!
//! [[link]]
//! name = "desktop"
//! pipewire = "server"       # or { client = "mpv" }: the data loops of PipeWire's server, or of a program that plays through it
//! user = "ann"
//! priority = 80
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
    chain::{Choice, IrqSource, Link, Owner, PipeWire, Target, User},
    printable,
};
use serde::Deserialize;
use toml::Spanned;

/// No chain is longer.
const MOST_LINKS: usize = 256;
/// No machine has more.
const MOST_CORES: u32 = 8192;
/// No link is more people's.
const MOST_USERS: usize = 64;

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
    steps: Option<Vec<Spanned<String>>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawLink {
    name: Spanned<String>,
    irq: Option<Spanned<RawIrq>>,
    process: Option<Spanned<String>>,
    pipewire: Option<Spanned<RawPipeWire>>,
    user: Option<Spanned<toml::Value>>,
    exe: Option<Spanned<String>>,
    unit: Option<Spanned<String>>,
    threads: Option<Spanned<Vec<Spanned<String>>>>,
    cpus: Option<Spanned<String>>,
    priority: Option<Spanned<i64>>,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum RawPipeWire {
    Word(String),
    Table(toml::Table),
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
                Some(cpus) if cpus.get_ref().starts_with("auto:") => {
                    chain.cpus = Choice::Cores(self.cores(cpus)?);
                }
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
            if let Some(steps) = &head.steps {
                let names = steps.iter().map(|name| self.step_name(name));
                chain.steps = Some(names.collect::<Result<_, _>>()?);
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

    /// The name of a factor: which ones there are depends on the machine.
    fn step_name(&self, name: &Spanned<String>) -> Result<String, FileError> {
        let text = name.get_ref();
        let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || "_-.".contains(c);
        if text.is_empty() || text.len() > 60 || !text.chars().all(plain) {
            return Err(self.wrong(
                name.span(),
                "this is no name of a step",
                "1 to 60 small letters, digits, `_`, `-` and `.`",
                "`quietcores tune --list` names the steps of this machine",
            ));
        }
        Ok(text.clone())
    }

    fn link(&self, link: &Spanned<RawLink>) -> Result<Link, FileError> {
        let raw = link.get_ref();
        let name = self.name(&raw.name)?;
        let target = match (&raw.irq, &raw.process, &raw.pipewire) {
            (Some(irq), None, None) => self.interrupt(raw, irq)?,
            (None, Some(process), None) => Target::Process {
                comm: self.name(process)?,
                threads: self.threads(raw)?,
                owner: self.owner(raw)?,
                pipewire: None,
            },
            (None, None, Some(pipewire)) => self.pipewire(raw, pipewire)?,
            (None, None, None) => {
                return Err(self.wrong(
                    raw.name.span(),
                    &format!("link `{name}` names nothing on the machine"),
                    "this link",
                    "give it `irq = { card = \"...\" }`, `process = \"...\"` or `pipewire = \"server\"`",
                ));
            }
            (irq, process, pipewire) => {
                let second =
                    pipewire.as_ref().map(Spanned::span).or(process.as_ref().map(Spanned::span));
                let what = match (irq, process, pipewire) {
                    (Some(_), Some(_), _) => "both an interrupt and a process",
                    (Some(_), ..) => "both an interrupt and PipeWire's",
                    _ => "named in two ways",
                };
                return Err(self.wrong(
                    second.unwrap_or(raw.name.span()),
                    &format!("link `{name}` is {what}"),
                    "the second one",
                    "make two links of it, in the order in which the sound passes them",
                ));
            }
        };
        let cpus = raw.cpus.as_ref().map(|cpus| self.cpus(cpus)).transpose()?;
        let priority = raw.priority.as_ref().map(|priority| self.priority(priority)).transpose()?;
        Ok(Link { name, target, cpus, priority })
    }

    fn interrupt(&self, raw: &RawLink, irq: &Spanned<RawIrq>) -> Result<Target, FileError> {
        if let Some(threads) = &raw.threads {
            return Err(self.wrong(
                threads.span(),
                "an interrupt has no threads to name",
                "this goes with `process`",
                "its handler threads are found by themselves",
            ));
        }
        let spans = [
            raw.user.as_ref().map(Spanned::span),
            raw.exe.as_ref().map(Spanned::span),
            raw.unit.as_ref().map(Spanned::span),
        ];
        if let Some(span) = spans.into_iter().flatten().next() {
            return Err(self.wrong(
                span,
                "an interrupt is nobody's",
                "this goes with `process`",
                "take it out: only the kernel serves interrupts",
            ));
        }
        Ok(Target::Irq(self.irq(irq)?))
    }

    fn threads(&self, raw: &RawLink) -> Result<Vec<String>, FileError> {
        raw.threads.iter().flat_map(|list| list.get_ref()).map(|thread| self.name(thread)).collect()
    }

    fn pipewire(
        &self,
        raw: &RawLink,
        pipewire: &Spanned<RawPipeWire>,
    ) -> Result<Target, FileError> {
        let (comm, part) = match pipewire.get_ref() {
            RawPipeWire::Word(word) if word == "server" => {
                (PipeWire::SERVER.to_owned(), PipeWire::Server)
            }
            RawPipeWire::Table(table) if table.len() == 1 => match table.get("client") {
                Some(toml::Value::String(client)) => {
                    let client = Spanned::new(pipewire.span(), client.clone());
                    (self.name(&client)?, PipeWire::Client)
                }
                _ => return Err(self.no_pipewire(pipewire)),
            },
            _ => return Err(self.no_pipewire(pipewire)),
        };
        let mut threads = self.threads(raw)?;
        if threads.is_empty() {
            threads.push(PipeWire::LOOPS.to_owned());
        }
        Ok(Target::Process { comm, threads, owner: self.owner(raw)?, pipewire: Some(part) })
    }

    fn no_pipewire(&self, pipewire: &Spanned<RawPipeWire>) -> FileError {
        self.wrong(
            pipewire.span(),
            "this is no part of PipeWire",
            "here",
            "write \"server\", or { client = \"mpv\" } for a program that plays through it",
        )
    }

    /// The number of `auto:3`.
    fn cores(&self, cpus: &Spanned<String>) -> Result<u32, FileError> {
        let number = cpus.get_ref().strip_prefix("auto:").unwrap_or_default();
        match number.parse::<u32>() {
            Ok(cores @ 1..=MOST_CORES) => Ok(cores),
            _ => Err(self.wrong(
                cpus.span(),
                &format!("`{}` is not a number of cores", printable(number, 40)),
                "here",
                "write \"auto:3\" for three cores, \"auto\" for as many as the links need",
            )),
        }
    }

    fn owner(&self, raw: &RawLink) -> Result<Owner, FileError> {
        let mut owner = Owner::default();
        if let Some(user) = &raw.user {
            let several = match user.get_ref() {
                toml::Value::Array(several) => several.as_slice(),
                one => std::slice::from_ref(one),
            };
            let users = several.iter().map(one_user).collect::<Option<Vec<User>>>();
            owner.users = users.filter(|users| (1..=MOST_USERS).contains(&users.len())).ok_or_else(|| {
                self.wrong(
                    user.span(),
                    "this names no user",
                    "here",
                    "write a name of /etc/passwd in quotes, a number, or several in brackets: [\"mpd\", 1000]",
                )
            })?;
        }
        if let Some(exe) = &raw.exe {
            let path = exe.get_ref();
            if !path.starts_with('/') || path.len() > 4096 || path.chars().any(char::is_control) {
                return Err(self.wrong(
                    exe.span(),
                    "this is not the path of a program",
                    "here",
                    "write it whole and as the kernel does, without links: see `ls -l /proc/PID/exe`",
                ));
            }
            owner.exe = Some(path.clone());
        }
        if let Some(unit) = &raw.unit {
            let name = unit.get_ref();
            let is_unit = [".service", ".scope"]
                .iter()
                .any(|end| name.len() > end.len() && name.ends_with(end));
            if !is_unit || name.len() > 255 || name.contains(|c: char| c == '/' || c.is_control()) {
                return Err(self.wrong(
                    unit.span(),
                    "this is not the name of a unit that runs processes",
                    "here",
                    "write it with its ending, as mpd.service: see `systemctl status PID`",
                ));
            }
            owner.unit = Some(name.clone());
        }
        Ok(owner)
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

/// A name, or a number with or without quotes.
fn one_user(value: &toml::Value) -> Option<User> {
    match value {
        toml::Value::Integer(uid) => u32::try_from(*uid).ok().map(User::Uid),
        toml::Value::String(text)
            if !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit()) =>
        {
            text.parse().ok().map(User::Uid)
        }
        toml::Value::String(name) => {
            let odd = |c: char| c.is_control() || c.is_whitespace() || c == ':';
            (!name.is_empty() && name.len() <= 256 && !name.contains(odd))
                .then(|| User::Name(name.clone()))
        }
        _ => None,
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
            Target::Process {
                comm: "mpd".into(),
                threads: vec!["io".into(), "output".into()],
                owner: Owner::default(),
                pipewire: None,
            }
        );
        assert_eq!(chain.links[2].priority, Some(85));
    }

    #[test]
    fn a_process_says_whose_it_is_and_auto_how_many() {
        let owner = |lines: &str| {
            let text = format!("[[link]]\nname = \"p\"\nprocess = \"mpd\"\n{lines}\n");
            match parse(&text, "my.toml", None).map(|chain| chain.links[0].target.clone()) {
                Ok(Target::Process { owner, .. }) => Ok(owner),
                Ok(other) => panic!("{other:?}"),
                Err(error) => Err((error.line(), error.title().to_owned())),
            }
        };
        let name = |name: &str| User::Name(name.into());
        assert_eq!(owner("").unwrap(), Owner::default());
        assert_eq!(owner("user = \"mpd\"").unwrap().users, [name("mpd")]);
        assert_eq!(owner("user = 107").unwrap().users, [User::Uid(107)]);
        assert_eq!(
            owner("user = [\"107\", \"ann\"]").unwrap().users,
            [User::Uid(107), name("ann")]
        );
        let all = owner("user = \"mpd\"\nexe = \"/usr/bin/mpd\"\nunit = \"mpd.service\"").unwrap();
        assert_eq!(all.exe.as_deref(), Some("/usr/bin/mpd"));
        assert_eq!(all.unit.as_deref(), Some("mpd.service"));
        for wrong in [
            "user = []",
            "user = -1",
            "user = \"\"",
            "user = \"a b\"",
            "user = [[1]]",
            "user = 4294967296",
            "user = true",
        ] {
            assert_eq!(owner(wrong).unwrap_err(), (4, "this names no user".to_owned()), "{wrong}");
        }
        assert!(owner("exe = \"mpd\"").unwrap_err().1.contains("not the path"));
        assert!(owner("unit = \"mpd\"").unwrap_err().1.contains("not the name of a unit"));
        assert!(owner("unit = \".service\"").is_err());
        let cpus = |cpus: &str| {
            parse(&format!("[chain]\ncpus = \"{cpus}\"\n"), "my.toml", None).map(|c| c.cpus)
        };
        assert_eq!(cpus("auto").unwrap(), Choice::Auto);
        assert_eq!(cpus("auto:3").unwrap(), Choice::Cores(3));
        for wrong in ["auto:0", "auto:", "auto:x", "auto:9999"] {
            assert!(cpus(wrong).unwrap_err().title().contains("not a number of cores"), "{wrong}");
        }
    }

    #[test]
    fn pipewire_is_its_server_or_a_client_of_it() {
        let read = |lines: &str| {
            let text = format!("[[link]]\nname = \"p\"\nuser = \"ann\"\n{lines}\n");
            parse(&text, "my.toml", None)
                .map(|chain| chain.links[0].target.clone())
                .map_err(|error| (error.line(), error.title().to_owned()))
        };
        let target = |comm: &str, thread: &str, part| Target::Process {
            comm: comm.into(),
            threads: vec![thread.into()],
            owner: Owner { users: vec![User::Name("ann".into())], ..Owner::default() },
            pipewire: Some(part),
        };
        let server = target("pipewire", "data-loop*", PipeWire::Server);
        assert_eq!(read("pipewire = \"server\"").unwrap(), server);
        let client = target("mpv", "data-loop*", PipeWire::Client);
        assert_eq!(read("pipewire = { client = \"mpv\" }").unwrap(), client);
        let named = target("pipewire", "my-loop", PipeWire::Server);
        assert_eq!(read("pipewire = \"server\"\nthreads = [\"my-loop\"]").unwrap(), named);
        for wrong in [
            "pipewire = \"mpv\"",
            "pipewire = 1",
            "pipewire = { }",
            "pipewire = { client = 1 }",
            "pipewire = { server = \"x\" }",
            "pipewire = { client = \"mpv\", x = 1 }",
            "pipewire = { client = \" \" }",
        ] {
            assert_eq!(read(wrong).unwrap_err().0, 4, "{wrong}");
        }
        let two = read("pipewire = \"server\"\nprocess = \"mpv\"").unwrap_err();
        assert_eq!(two, (4, "link `p` is named in two ways".to_owned()));
    }

    #[test]
    fn each_mistake_is_named_with_its_line() {
        let cases: [(&str, &str, usize, &str); 15] = [
            ("irq = { net = \"eth0\" }", "irq = { net = \"eth0\" }\nuser = \"x\"", 9, "nobody's"),
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
