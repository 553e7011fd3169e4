//! The table of verbs that are called under `/api/v1`: routes, checks of arguments, the description and a test are made of it.
//!
//! An argument is passed on only where it stands here, and none of them names a file: a run is named by its id, a chain by its name,
//! and what is uploaded comes by standard input. Whether a value makes sense the verb itself says.

use quiet_live::{OwnArguments, VerbCall};
use quiet_types::{
    buffers::Buffers,
    campaign::Campaigned,
    doctor::Doctored,
    explain::{Cost, Explained},
    farm::{FarmAnswer, FarmLeft, FarmSent, FarmStatus},
    history::History,
    live::given_text,
    proof::Proof,
    reach::Reach,
    run::Run,
    said::{ApprovedList, FactorList, Imported, Persisted, Stressed, Suites, Undone},
    setup::SetUp,
    trip::RoundTrip,
    tune::Tuned,
};
use schemars::{JsonSchema, SchemaGenerator};
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;

/// How a verb is called.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    /// It looks: GET, its JSON is the answer.
    Look,
    /// It looks, and what it prints is a file: GET.
    Text,
    /// It changes something and ends soon: POST, its JSON is the answer.
    Act,
    /// It takes long: POST begins a job.
    Job,
}

/// The argument that has no name on the command line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// There is none.
    Nothing,
    /// `chain`: an approved one, a ready-made one, or one that `setup` has written.
    Chain,
    /// `run`: an id, or the beginning of one.
    Run,
    /// Words under this name.
    Words(&'static str),
    /// A file of so many bytes at most, which is the body of the request.
    File(usize),
}

/// A verb that is called.
#[derive(Debug)]
pub(crate) struct VerbDoor {
    /// As on the command line.
    pub verb: &'static str,
    /// Below `/api/v1/`.
    pub path: &'static str,
    pub way: Way,
    pub about: &'static str,
    /// What it is always given.
    pub fixed: &'static [&'static str],
    pub place: Place,
    /// Arguments without a value.
    pub flags: &'static [&'static str],
    /// Arguments with words, numbers or lists of them.
    pub words: &'static [&'static str],
    /// More of them.
    pub more: &'static [&'static str],
    /// Arguments with free text.
    pub texts: &'static [&'static str],
    pub own: OwnArguments,
    /// The schema of what it prints.
    pub prints: fn(&mut SchemaGenerator) -> Value,
}

const BARE: VerbDoor = VerbDoor {
    verb: "",
    path: "",
    way: Way::Look,
    about: "",
    fixed: &[],
    place: Place::Nothing,
    flags: &[],
    words: &[],
    more: &[],
    texts: &[],
    own: OwnArguments { state: false, store: false, shield: false },
    prints: any,
};
const NO_OWN: OwnArguments = BARE.own;
const STATE: OwnArguments = OwnArguments { state: true, ..NO_OWN };
const STORE: OwnArguments = OwnArguments { store: true, ..NO_OWN };
const KEPT: OwnArguments = OwnArguments { state: true, store: true, shield: false };
const SHIELD: OwnArguments = OwnArguments { state: true, store: true, shield: true };

const PROBE: &[&str] = &[
    "cpus",
    "policy",
    "priority",
    "for",
    "threshold",
    "stress",
    "stress-cpus",
    "idle",
    "bucket",
    "buckets",
];
const PROBE_FLAGS: &[&str] = &["explain", "strict"];
const PERSIST: &[&str] = &["cpus", "with", "loader"];
const PERSIST_FLAGS: &[&str] = &["never-sleep", "smt-off", "trial", "no-unit"];
const SETUP: &[&str] = &["player", "card", "cores", "confirm", "pairs"];
const LABEL: &[&str] = &["label"];

/// The largest result of another tool, as `import` takes it, and the largest campaign file.
const LARGEST_IMPORT: usize = 32 << 20;
const LARGEST_CAMPAIGN: usize = 1 << 20;

/// Every verb that is called.
pub(crate) const VERBS: &[VerbDoor] = &[
    VerbDoor {
        verb: "setup",
        path: "setup",
        about: "The chain that `setup` would write for this machine, and its plan",
        fixed: &["--dry-run", "--yes"],
        flags: &["last"],
        words: SETUP,
        own: STATE,
        prints: of::<SetUp>,
        ..BARE
    },
    VerbDoor {
        verb: "setup",
        path: "setup",
        way: Way::Job,
        about: "Write a chain for this machine, apply it and prove it, with the default of every question",
        fixed: &["--yes"],
        flags: &["last", "force", "no-proof"],
        words: SETUP,
        own: KEPT,
        prints: of::<SetUp>,
        ..BARE
    },
    VerbDoor {
        verb: "doctor",
        path: "doctor",
        about: "What could be mended, and by what",
        fixed: &["--dry-run"],
        place: Place::Chain,
        own: STATE,
        prints: of::<Doctored>,
        ..BARE
    },
    VerbDoor {
        verb: "doctor",
        path: "doctor",
        way: Way::Act,
        about: "Mend what stands in the way, with the default of every question",
        fixed: &["--yes"],
        place: Place::Chain,
        words: &["confirm"],
        own: STATE,
        prints: of::<Doctored>,
        ..BARE
    },
    VerbDoor {
        verb: "doctor",
        path: "doctor/undo",
        way: Way::Act,
        about: "Put back what mended one finding",
        words: &["undo"],
        own: STATE,
        prints: of::<Doctored>,
        ..BARE
    },
    VerbDoor {
        verb: "approve",
        path: "approve",
        about: "Which chains are approved",
        prints: of::<ApprovedList>,
        ..BARE
    },
    VerbDoor {
        verb: "approve",
        path: "approve",
        way: Way::Act,
        about: "Approve a ready-made chain or one that `setup` has written (root)",
        place: Place::Chain,
        words: &["name"],
        prints: of::<ApprovedList>,
        ..BARE
    },
    VerbDoor {
        verb: "approve",
        path: "approve/withdraw",
        way: Way::Act,
        about: "Take the approval of a chain back (root)",
        words: &["withdraw"],
        prints: of::<ApprovedList>,
        ..BARE
    },
    VerbDoor {
        verb: "persist",
        path: "persist",
        about: "What would be written for the next boots",
        fixed: &["--dry-run"],
        place: Place::Chain,
        flags: PERSIST_FLAGS,
        words: PERSIST,
        own: STATE,
        prints: of::<Persisted>,
        ..BARE
    },
    VerbDoor {
        verb: "persist",
        path: "persist",
        way: Way::Act,
        about: "Have the next boots keep it (root)",
        fixed: &["--yes"],
        place: Place::Chain,
        flags: PERSIST_FLAGS,
        words: PERSIST,
        own: STATE,
        prints: of::<Persisted>,
        ..BARE
    },
    VerbDoor {
        verb: "persist",
        path: "persist/bless",
        way: Way::Act,
        about: "Keep the trial that is running (root)",
        fixed: &["--yes", "--bless"],
        own: STATE,
        prints: of::<Persisted>,
        ..BARE
    },
    VerbDoor {
        verb: "unpersist",
        path: "unpersist",
        way: Way::Act,
        about: "Take back what `persist` wrote (root)",
        own: STATE,
        prints: of::<Undone>,
        ..BARE
    },
    VerbDoor {
        verb: "measure wakeup",
        path: "measure/wakeup",
        way: Way::Job,
        about: "Measure how late a thread wakes, and keep the run",
        flags: PROBE_FLAGS,
        words: PROBE,
        more: &["interval", "checkpoint"],
        texts: LABEL,
        own: KEPT,
        prints: of::<Run>,
        ..BARE
    },
    VerbDoor {
        verb: "measure gap",
        path: "measure/gap",
        way: Way::Job,
        about: "Measure what is taken from a thread that spins, and keep the run",
        flags: PROBE_FLAGS,
        words: PROBE,
        more: &["checkpoint"],
        texts: LABEL,
        own: KEPT,
        prints: of::<Run>,
        ..BARE
    },
    VerbDoor {
        verb: "measure tracer",
        path: "measure/tracer",
        way: Way::Job,
        about: "A second opinion by the kernel's own tracer, kept as a run (root)",
        flags: &["user", "explain", "strict"],
        words: PROBE,
        more: &["interval"],
        texts: LABEL,
        own: KEPT,
        prints: of::<Run>,
        ..BARE
    },
    VerbDoor {
        verb: "measure buffers",
        path: "measure/buffers",
        way: Way::Job,
        about: "Tell which buffers hold, and keep the table",
        flags: &["shield"],
        words: &[
            "host",
            "device",
            "capture",
            "rate",
            "channels",
            "cpu",
            "mode",
            "priority",
            "cable",
            "periods",
            "counts",
            "stress",
            "stress-cpus",
            "modes",
            "dsp-load",
            "for",
            "rounds",
        ],
        texts: LABEL,
        own: KEPT,
        prints: of::<Buffers>,
        ..BARE
    },
    VerbDoor {
        verb: "measure roundtrip",
        path: "measure/roundtrip",
        way: Way::Job,
        about: "Measure from playback to capture by sound, and keep it",
        flags: &["own"],
        words: &[
            "host", "device", "capture", "rate", "period", "buffer", "channels", "cpu", "mode",
            "priority", "cable", "cycles", "longest", "level", "out", "in",
        ],
        texts: LABEL,
        own: KEPT,
        prints: of::<RoundTrip>,
        ..BARE
    },
    VerbDoor {
        verb: "explain",
        path: "explain",
        way: Way::Job,
        about: "Tell who takes time from a CPU",
        flags: &["counters", "cost"],
        words: &[
            "cpus",
            "for",
            "probe",
            "interval",
            "policy",
            "priority",
            "threshold",
            "stress",
            "stress-cpus",
            "block",
        ],
        own: STATE,
        prints: |schemas| json!({ "anyOf": [of::<Explained>(schemas), of::<Cost>(schemas)] }),
        ..BARE
    },
    VerbDoor {
        verb: "reach",
        path: "reach",
        way: Way::Job,
        about: "Tell which acts on other CPUs touch a CPU (root)",
        words: &["cpus", "each", "only", "also"],
        prints: of::<Reach>,
        ..BARE
    },
    VerbDoor {
        verb: "stress",
        path: "stress",
        about: "The suites of stresses",
        fixed: &["--list"],
        prints: of::<Suites>,
        ..BARE
    },
    VerbDoor {
        verb: "stress",
        path: "stress",
        way: Way::Job,
        about: "Run stresses alone",
        place: Place::Words("names"),
        words: &["for", "cpus"],
        prints: of::<Stressed>,
        ..BARE
    },
    VerbDoor {
        verb: "prove",
        path: "prove",
        way: Way::Job,
        about: "Measure shared against shielded, in turn, and keep the proof",
        place: Place::Chain,
        flags: &["never-sleep", "smt-off", "explain"],
        words: &[
            "cpus",
            "pairs",
            "seed",
            "for",
            "gap",
            "interval",
            "priority",
            "threshold",
            "stress",
            "slice",
            "work",
        ],
        own: SHIELD,
        prints: of::<Proof>,
        ..BARE
    },
    VerbDoor {
        verb: "tune",
        path: "tune",
        about: "The steps that can be taken or left",
        fixed: &["--list"],
        place: Place::Chain,
        flags: &["never-sleep", "smt-off"],
        words: &["cpus"],
        own: SHIELD,
        prints: of::<FactorList>,
        ..BARE
    },
    VerbDoor {
        verb: "tune",
        path: "tune",
        way: Way::Job,
        about: "Tell which steps help, and keep the tune",
        place: Place::Chain,
        flags: &["never-sleep", "smt-off"],
        words: &[
            "cpus",
            "for",
            "block",
            "probe",
            "interval",
            "work",
            "period",
            "load",
            "choose",
            "priority",
            "threshold",
            "stress",
            "keep-off",
            "margin",
            "seed",
        ],
        texts: LABEL,
        own: SHIELD,
        prints: of::<Tuned>,
        ..BARE
    },
    VerbDoor {
        verb: "tune",
        path: "tune/boots",
        about: "How far a tune of boot parameters is; null where none is under way",
        fixed: &["--boot-status"],
        own: STATE,
        prints: |_| json!({ "type": ["object", "null"] }),
        ..BARE
    },
    VerbDoor {
        verb: "campaign",
        path: "campaign",
        way: Way::Job,
        about: "Measure what is left of a campaign; with `status` only tell how it stands. The body is the campaign file, which names no chain file",
        place: Place::File(LARGEST_CAMPAIGN),
        flags: &["status"],
        own: KEPT,
        prints: of::<Campaigned>,
        ..BARE
    },
    VerbDoor {
        verb: "runs",
        path: "trend",
        about: "What changed within series of runs, between kernels or settings",
        fixed: &["--trend"],
        place: Place::Words("conditions"),
        own: STORE,
        prints: of::<History>,
        ..BARE
    },
    VerbDoor {
        verb: "import",
        path: "import",
        way: Way::Act,
        about: "Read another tool's result as a run, which is kept, or its recipe as a chain. The body is the file",
        place: Place::File(LARGEST_IMPORT),
        words: &["format"],
        texts: LABEL,
        own: STORE,
        prints: |schemas| json!({ "anyOf": [of::<Run>(schemas), of::<Imported>(schemas)] }),
        ..BARE
    },
    VerbDoor {
        verb: "export",
        path: "export",
        way: Way::Text,
        about: "A run in the form of another tool, as a file; what the form has no words for stands in the head x-quietcores-said",
        place: Place::Run,
        words: &["format"],
        own: STORE,
        ..BARE
    },
    VerbDoor {
        verb: "farm status",
        path: "farm",
        about: "What was agreed to leave this machine, and what waits",
        own: STORE,
        prints: of::<FarmStatus>,
        ..BARE
    },
    VerbDoor {
        verb: "farm send",
        path: "farm/send",
        way: Way::Act,
        about: "Make records of what is new, and send what waits",
        own: KEPT,
        prints: of::<FarmSent>,
        ..BARE
    },
    VerbDoor {
        verb: "farm leave",
        path: "farm/leave",
        way: Way::Act,
        about: "Nothing is made or sent any more",
        own: STORE,
        prints: of::<FarmLeft>,
        ..BARE
    },
    VerbDoor {
        verb: "farm ask",
        path: "farm/ask",
        about: "Ask the collector of this machine about all machines",
        place: Place::Words("conditions"),
        flags: &["trend", "changes"],
        words: &["by"],
        prints: of::<FarmAnswer>,
        own: STORE,
        ..BARE
    },
    VerbDoor {
        verb: "farm metrics",
        path: "farm/metrics",
        way: Way::Text,
        about: "All sums for a Prometheus, as OpenMetrics text",
        place: Place::Words("conditions"),
        words: &["by"],
        own: STORE,
        ..BARE
    },
];

/// Verbs whose address is older than the table, or has another form: a verb, and where it is below `/api/v1/`.
const ELSEWHERE: &[(&str, &str)] = &[
    ("inspect", "machine"),
    ("check", "check"),
    ("plan", "plan"),
    ("apply", "apply"),
    ("confirm", "confirm"),
    ("status", "status"),
    ("lend", "lend"),
    ("revert", "revert"),
    ("top", "stream"),
    ("compare", "compare"),
    ("runs", "runs"),
    ("predict", "predict"),
    ("report", "runs/{id}/report"),
];

/// Verbs without an address, and why.
pub const WITHOUT_ADDRESS: &[(&str, &str)] = &[
    ("demo", "it is heard and seen where it plays, and writes its files there"),
    ("watch", "it does not end; the service runs it, and the events tell what it mended"),
    ("serve", "it is what answers here"),
    ("play", "it does not end; an engine that plays is at `sound`"),
    ("render", "it reads and writes files of sound"),
    ("bench", "it reads a strip and the files that this names"),
    ("farm join", "what leaves the machine is agreed to at the machine"),
    ("farm collect", "it reads folders of this machine"),
    ("farm serve", "it does not end"),
    ("farm page", "it writes a file; `farm ask` has what is on it"),
    ("generate", "it writes man pages and completions for a package"),
    ("worker", "the program starts it itself"),
    ("taster", "the program starts it itself"),
    ("keeper", "the program starts it itself"),
    ("hold", "the program starts it itself"),
    ("guard", "the program starts it itself"),
];

/// Every verb that has an address: the verb, the address as the description has it, and the arguments that it is given by name.
pub fn addresses() -> Vec<(&'static str, String, Vec<&'static str>)> {
    let named = |door: &VerbDoor| {
        let fixed = door.fixed.iter().filter_map(|word| word.strip_prefix("--"));
        fixed.chain([door.flags, door.words, door.more, door.texts].concat()).collect()
    };
    let called =
        VERBS.iter().map(|door| (door.verb, format!("/api/v1/{}", door.path), named(door)));
    let elsewhere = ELSEWHERE.iter().map(|(verb, at)| (*verb, format!("/api/v1/{at}"), Vec::new()));
    called.chain(elsewhere).collect()
}

fn of<T: JsonSchema>(schemas: &mut SchemaGenerator) -> Value {
    schemas.subschema_for::<T>().to_value()
}

fn any(_: &mut SchemaGenerator) -> Value {
    json!({ "type": "object" })
}

/// What words may hold: nothing that leads to another folder, nothing that ends them.
const WORDS: &str = r"^[A-Za-z0-9_.:,+%@=*?<> -]*$";
/// A chain's name; behind `ready:` may stand whose programs are meant.
const CHAIN: &str = r"^(ready:)?[A-Za-z0-9_][A-Za-z0-9_.@-]{0,80}$";
/// The longest of them.
const LONGEST: usize = 300;

fn is_words(text: &str) -> bool {
    let fine = |c: char| c.is_ascii_alphanumeric() || "_.:,+%@=*?<> -".contains(c);
    text.len() <= LONGEST && text.chars().all(fine)
}

fn is_chain(text: &str) -> bool {
    let name = text.strip_prefix("ready:").unwrap_or(text);
    let fine = |c: char| c.is_ascii_alphanumeric() || "_.@-".contains(c);
    (1..=81).contains(&name.len()) && name.chars().all(fine) && !name.starts_with(['.', '-', '@'])
}

impl VerbDoor {
    /// Under which name the argument without one is given here.
    fn place_name(&self) -> Option<&'static str> {
        match self.place {
            Place::Nothing | Place::File(_) => None,
            Place::Chain => Some("chain"),
            Place::Run => Some("run"),
            Place::Words(name) => Some(name),
        }
    }

    /// How many bytes its file may have, where it takes one.
    pub(crate) fn file(&self) -> Option<usize> {
        match self.place {
            Place::File(most) => Some(most),
            _ => None,
        }
    }

    /// Whether it is asked by GET.
    pub(crate) fn looks(&self) -> bool {
        matches!(self.way, Way::Look | Way::Text)
    }

    /// What it comes to with these arguments. `run` gives the file of a run by its id.
    ///
    /// # Errors
    /// A sentence: an argument is not of this verb, or may not hold this.
    pub(crate) fn call(
        &self,
        given: &BTreeMap<String, Value>,
        input: Option<Vec<u8>>,
        run: impl FnOnce(&str) -> Result<String, String>,
    ) -> Result<VerbCall, String> {
        let mut words: Vec<String> = self.verb.split(' ').map(str::to_owned).collect();
        words.extend(self.fixed.iter().map(|word| (*word).to_owned()));
        if self.way != Way::Text {
            words.push("--json".into());
        }
        let mut own = self.own;
        let (mut place, mut run) = (Vec::new(), Some(run));
        for (name, value) in given {
            let name = name.as_str();
            let text = given_text(value);
            let cannot = |why: &str| Err(format!("`{}` {why}", quiet_live::clean(name, 40)));
            if self.flags.contains(&name) {
                match text.as_str() {
                    "true" | "" => words.push(format!("--{name}")),
                    "false" => {}
                    _ => return cannot("is true or false"),
                }
            } else if self.texts.contains(&name) {
                words.push(format!("--{name}={}", quiet_types::printable(&text, LONGEST)));
            } else if self.words.contains(&name) || self.more.contains(&name) {
                if !is_words(&text) {
                    return cannot(
                        "holds more than letters, digits and _.:,+%@=*?<>-, or is too long",
                    );
                }
                words.push(format!("--{name}={text}"));
            } else if self.place_name() == Some(name) {
                match self.place {
                    Place::Chain if is_chain(&text) => place.push(text),
                    Place::Chain => return cannot("is no name of a chain, and no ready-made one"),
                    Place::Run => {
                        if let Some(run) = run.take() {
                            place.push(run(&text)?);
                        }
                    }
                    // Words that are parted by commas or spaces are several.
                    _ if is_words(&text) => {
                        let parts = text.split([',', ' ']).filter(|part| !part.is_empty());
                        place.extend(parts.map(str::to_owned));
                    }
                    _ => return cannot("holds more than words"),
                }
            } else {
                return cannot(&format!("is not an argument of `{}` here", self.verb));
            }
            own.shield &= !["cpus", "chain"].contains(&name);
        }
        if self.file().is_some() {
            place.push("-".into());
        }
        if place.iter().any(|word| word.starts_with('-') && word != "-") {
            return Err("what has no name cannot begin with a hyphen".into());
        }
        words.append(&mut place);
        Ok(VerbCall { words, own, input })
    }

    /// The schemas of its arguments, by name.
    pub(crate) fn arguments(&self) -> Map<String, Value> {
        let about = |name: &str| format!("As `--{name}` of `quietcores {}`", self.verb);
        let mut all = Map::new();
        for name in self.flags {
            all.insert((*name).into(), json!({ "description": about(name), "type": "boolean" }));
        }
        for name in self.words.iter().chain(self.more) {
            let words = json!({
                "description": about(name), "type": ["string", "number", "array"], "pattern": WORDS,
                "maxLength": LONGEST, "items": { "type": ["string", "number"] }
            });
            all.insert((*name).into(), words);
        }
        for name in self.texts {
            let text =
                json!({ "description": about(name), "type": "string", "maxLength": LONGEST });
            all.insert((*name).into(), text);
        }
        let place = match self.place {
            Place::Nothing | Place::File(_) => None,
            Place::Chain => Some(json!({
                "description": "An approved chain, a ready-made one (`ready:mpd`), or one that `setup` has written (`mpd.toml`); left out: what the server would apply",
                "type": "string", "pattern": CHAIN
            })),
            Place::Run => {
                Some(json!({ "description": "An id, or the beginning of one", "type": "string" }))
            }
            Place::Words(_) => Some(json!({
                "description": format!("As `quietcores {}` takes them, joined by commas", self.verb),
                "type": ["string", "array"], "pattern": WORDS, "items": { "type": "string" }
            })),
        };
        if let (Some(name), Some(schema)) = (self.place_name(), place) {
            all.insert(name.into(), schema);
        }
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn door(verb: &str, way: Way) -> &'static VerbDoor {
        VERBS.iter().find(|door| door.verb == verb && door.way == way).unwrap()
    }

    fn call(door: &VerbDoor, given: &Value) -> Result<VerbCall, String> {
        let given = given.as_object().unwrap().clone().into_iter().collect();
        door.call(&given, None, |id| Ok(format!("/store/{id}.json")))
    }

    #[test]
    fn arguments_come_to_the_words_of_a_command_line() {
        let given = json!({"cpus": "1-2", "for": "5s", "stress": ["kernel", "hdd"], "explain": true, "strict": false,
            "label": "-a b/c\u{1b}", "priority": 80});
        let done = call(door("measure wakeup", Way::Job), &given).unwrap();
        assert_eq!(
            done.words,
            [
                "measure",
                "wakeup",
                "--json",
                "--cpus=1-2",
                "--explain",
                "--for=5s",
                "--label=-a b/c\u{fffd}",
                "--priority=80",
                "--stress=kernel,hdd"
            ]
        );
        assert_eq!(done.own, KEPT);
        let done = call(door("prove", Way::Job), &json!({"chain": "ready:mpd@ann"})).unwrap();
        assert_eq!(done.words, ["prove", "--json", "ready:mpd@ann"]);
        assert!(!done.own.shield && call(door("prove", Way::Job), &json!({})).unwrap().own.shield);
        let done =
            call(door("stress", Way::Job), &json!({"names": "fork=2,hdd", "for": 3})).unwrap();
        assert_eq!(done.words, ["stress", "--json", "--for=3", "fork=2", "hdd"]);
        let done = call(door("export", Way::Text), &json!({"run": "a", "format": "csv"})).unwrap();
        assert_eq!(done.words, ["export", "--format=csv", "/store/a.json"]);
        let done = call(door("import", Way::Act), &json!({})).unwrap();
        assert_eq!(done.words, ["import", "--json", "-"]);
    }

    #[test]
    fn nothing_that_is_given_leads_to_a_file_or_to_another_argument() {
        for (verb, way, given) in [
            ("measure wakeup", Way::Job, json!({"output": "x"})),
            ("measure wakeup", Way::Job, json!({"store": "/tmp"})),
            ("measure wakeup", Way::Job, json!({"cpus": "../x"})),
            ("measure wakeup", Way::Job, json!({"cpus": "/etc/passwd"})),
            ("measure wakeup", Way::Job, json!({"stress": "a\nb"})),
            ("measure wakeup", Way::Job, json!({"explain": "--output=x"})),
            ("measure wakeup", Way::Job, json!({"explain=--output": true})),
            ("measure wakeup", Way::Job, json!({"for": {"a": "/"}})),
            ("stress", Way::Job, json!({"names": "--list"})),
            ("stress", Way::Job, json!({"names": "a --list"})),
            ("stress", Way::Job, json!({"names": ["a", "-l"]})),
            ("prove", Way::Job, json!({"chain": "/etc/passwd"})),
            ("prove", Way::Job, json!({"chain": "../room.toml"})),
            ("prove", Way::Job, json!({"chain": "--html=x"})),
            ("prove", Way::Job, json!({"chain": ""})),
            ("prove", Way::Job, json!({"chain": ".."})),
            ("prove", Way::Job, json!({"html": "x"})),
            ("tune", Way::Job, json!({"try": "/proc/x=1"})),
            ("tune", Way::Job, json!({"player": "x"})),
            ("campaign", Way::Job, json!({"html": "x"})),
        ] {
            let why = call(door(verb, way), &given);
            assert!(why.is_err(), "{verb} {given}: {why:?}");
        }
    }

    #[test]
    fn a_verb_has_addresses_or_a_reason_and_an_address_one_meaning() {
        let addresses = addresses();
        for (verb, why) in WITHOUT_ADDRESS {
            assert!(
                !why.is_empty() && !addresses.iter().any(|(other, ..)| other == verb),
                "{verb}"
            );
        }
        let mut all: Vec<_> = VERBS.iter().map(|door| (door.path, door.looks())).collect();
        all.sort_unstable();
        all.dedup();
        assert_eq!(all.len(), VERBS.len());
    }
}
