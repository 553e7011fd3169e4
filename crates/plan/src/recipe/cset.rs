//! Listings of cset: `cset set -l`, and `cset proc -l -s NAME` for each set.
//!
//! # Source
//! `cset set --help`, `cset proc --help` and the listings that users post.

use super::{
    RecipeError,
    page::{Link, Page, Target},
};
use quiet_types::CpuSet;

/// A row of `cset set -l`: `player 2 y 0 n 7 0 /player`.
struct Set<'a> {
    name: &'a str,
    cpus: CpuSet,
    tasks: &'a str,
    /// Memory nodes.
    nodes: &'a str,
}

/// A row of `cset proc -l`: `root 1082 1 Sr75 [mpd]`.
struct Row<'a> {
    set: String,
    user: &'a str,
    pid: u32,
    parent: u32,
    priority: Option<u8>,
    name: &'a str,
}

/// Sets in which cset keeps what is not the chain.
const REST: [&str; 2] = ["root", "system"];

pub(super) fn looks_so(text: &str) -> bool {
    text.lines().any(|line| {
        let line = line.trim();
        line.starts_with("cset: \"") || (line.starts_with("Name") && line.contains("CPUs"))
    })
}

pub(super) fn import(text: &str, name: &str) -> Result<String, RecipeError> {
    let (sets, rows, odd) = read(text)?;
    if sets.is_empty() && rows.is_empty() {
        return Err(RecipeError::whole(
            "it holds no listing of `cset set -l` or `cset proc -l`: their \
                heading lines are needed",
        ));
    }
    let mut page = Page::new(name, "From listings of cset (cset set -l, cset proc -l).");
    let of_chain = |name: &str| !REST.contains(&name);
    let cpus_of = |name: &str| sets.iter().find(|s| s.name == name).map(|s| s.cpus.clone());
    let chosen = sets.iter().filter(|set| of_chain(set.name));
    let shielded = chosen.fold(CpuSet::new(), |all, set| all.union(&set.cpus));
    page.cpus(shielded.clone());
    say_of_sets(&mut page, &sets, &shielded);
    let mut links = links(&rows, cpus_of, &mut page);
    // The sound flows towards the higher priority: 55 < 75 < 80 < 85.
    links.sort_by_key(|link| link.priority.unwrap_or(0));
    if links.iter().any(|link| matches!(link.target, Target::Action(_) | Target::Net(_))) {
        page.say(
            "cset moved the threads of interrupts; here the interrupt itself \
                is delivered to the link's CPUs, and its thread follows.",
        );
    }
    if !links.is_empty() {
        page.say(
            "The order of the links was taken from their priorities: see that \
                it is the way of the sound.",
        );
    }
    links.into_iter().for_each(|link| page.link(link));
    for line in odd {
        page.say(format!("Not understood, and left out: {line}"));
    }
    Ok(page.text())
}

fn say_of_sets(page: &mut Page, sets: &[Set<'_>], shielded: &CpuSet) {
    for set in sets {
        if set.nodes != "0" && set.name != "root" {
            page.say(format!(
                "Set {} used memory nodes {}: a chain file does not choose memory.",
                set.name, set.nodes
            ));
        }
        let what = match REST.contains(&set.name) {
            true if set.name == "root" => continue,
            true => "it held everybody else, who get the CPUs that are not shielded",
            false if set.cpus.is_empty() => "it has no CPU",
            false => continue,
        };
        page.say(format!("Set {} (CPUs {}, {} tasks): {what}.", set.name, set.cpus, set.tasks));
    }
    let rest = sets.iter().find(|set| set.name == "system");
    if let Some(rest) = rest.filter(|rest| rest.cpus.intersects(shielded)) {
        page.say(format!(
            "Sets shared CPUs with the system ({}); a shield does not.",
            rest.cpus.intersection(shielded)
        ));
    }
}

fn links(rows: &[Row<'_>], cpus_of: impl Fn(&str) -> Option<CpuSet>, page: &mut Page) -> Vec<Link> {
    let mut links: Vec<Link> = Vec::new();
    let mut groups: Vec<Vec<&Row>> = Vec::new();
    for row in rows {
        if REST.contains(&row.set.as_str()) {
            continue;
        }
        let alike = |group: &&mut Vec<&Row>| {
            let first = group[0];
            first.set == row.set
                && first.user == row.user
                && first.priority == row.priority
                && first.parent == row.parent
                && irq(first.name).is_none()
        };
        match groups.iter_mut().find(alike).filter(|_| irq(row.name).is_none()) {
            Some(group) => group.push(row),
            None => groups.push(vec![row]),
        }
    }
    for mut group in groups {
        group.sort_by_key(|row| row.pid);
        let first = group[0];
        let cpus = cpus_of(&first.set);
        let (target, comments) = match irq(first.name) {
            Some((number, handler)) => irq_target(number, handler),
            // A kernel thread that serves no interrupt is nobody's link.
            None if first.parent == 2 => {
                page.say(format!(
                    "Kernel thread {} (PID {}) in set {}: a shield places kernel threads itself.",
                    first.name, first.pid, first.set
                ));
                continue;
            }
            None => process_target(&group),
        };
        let name = match &target {
            Target::Process { comm, .. } => comm.clone(),
            Target::Net(name) => format!("network {name}"),
            Target::Card(name) | Target::Action(name) => name.clone(),
        };
        links.push(Link { comments, name, target, cpus, priority: first.priority });
    }
    links
}

fn process_target(group: &[&Row<'_>]) -> (Target, Vec<String>) {
    let mut threads: Vec<String> = Vec::new();
    for row in group {
        if !threads.iter().any(|name| name == row.name) {
            threads.push(row.name.to_owned());
        }
    }
    let comm = threads[0].clone();
    let pids: Vec<String> = group.iter().map(|row| row.pid.to_string()).collect();
    let mut comments = vec![format!("PIDs {} in set {}", pids.join(", "), group[0].set)];
    if threads.len() > 1 {
        comments.push(format!(
            "cset does not tell threads from processes: these were taken for \
                threads of {comm}, since they share set, priority and parent"
        ));
    } else {
        threads.clear();
    }
    // What no user can be called is for people to correct.
    let user = group[0].user;
    let is_user =
        user.len() <= 32 && user.chars().all(|c| c.is_ascii_alphanumeric() || "._-".contains(c));
    if !is_user {
        comments.push(format!("its user was {user}: write whose it is, by name or number"));
    }
    let user = if is_user { user } else { "root" }.to_owned();
    (Target::Process { comm, user, threads }, comments)
}

/// Number and handler of `irq/127-eth0`.
fn irq(name: &str) -> Option<(u32, &str)> {
    let (number, handler) = name.strip_prefix("irq/")?.split_once('-')?;
    Some((number.parse().ok()?, handler))
}

fn irq_target(number: u32, handler: &str) -> (Target, Vec<String>) {
    let network = ["eth", "en", "wl", "usb0", "end"];
    let was = format!("IRQ {number} then; numbers change with every boot");
    if network.iter().any(|prefix| handler.starts_with(prefix)) && handler.len() < 16 {
        // The interrupt may carry the name of a queue behind that of the card: eth0-TxRx-0.
        let card = handler.split('-').next().unwrap_or(handler);
        return (Target::Net(card.to_owned()), vec![was]);
    }
    // The kernel cuts names of threads to 15 characters.
    let whole = ["xhci_hcd", "ehci_hcd", "ohci_hcd", "uhci_hcd"];
    let full = whole.iter().find(|full| full.starts_with(handler) && handler.len() >= 4);
    match full {
        Some(full) => {
            let hint = "several controllers may have this handler: irq = { card = \"...\" \
                } with the name of the USB card says which";
            (Target::Action((*full).to_owned()), vec![was, hint.to_owned()])
        }
        None if handler.starts_with("snd_") => {
            let hint = format!("the handler was {handler}, cut to 15 characters: card0 is a guess");
            (Target::Card("card0".into()), vec![was, hint])
        }
        None => (Target::Action(handler.to_owned()), vec![was]),
    }
}

type Listing<'a> = (Vec<Set<'a>>, Vec<Row<'a>>, Vec<&'a str>);

#[derive(Clone, Copy, PartialEq)]
enum Part {
    Outside,
    Sets,
    Tasks,
}

fn read(text: &str) -> Result<Listing<'_>, RecipeError> {
    let (mut sets, mut rows, mut odd) = (Vec::new(), Vec::new(), Vec::new());
    let mut part = Part::Outside;
    let mut current = String::new();
    for (line, at) in text.lines().map(str::trim).zip(1..) {
        let words: Vec<&str> = line.split_whitespace().collect();
        let is_rule = !line.is_empty() && line.chars().all(|c| c == '-' || c == ' ');
        match words.as_slice() {
            [] => continue,
            _ if is_rule => continue,
            ["cset:"] => continue,
            ["Name", ..] if line.contains("CPUs") => part = Part::Sets,
            ["USER", "PID", ..] => part = Part::Tasks,
            ["cset:", name, ..] if name.starts_with('"') => {
                current = name.trim_matches('"').to_owned();
                part = Part::Outside;
            }
            _ if line.starts_with(['$', '#']) => part = Part::Outside,
            [name, cpus, _, nodes, _, tasks, _, path]
                if part == Part::Sets && path.starts_with('/') =>
            {
                let cpus = cpus.trim_start_matches('*').parse();
                let cpus =
                    cpus.map_err(|error| RecipeError::at(at, format!("set {name}: {error}")))?;
                sets.push(Set { name, cpus, tasks, nodes });
            }
            _ if part == Part::Tasks && is_row(&words) => {
                rows.push(row(&words, &current).map_err(|why| RecipeError::at(at, why))?);
            }
            _ => {
                // Around listings people write; within one a line matters that is a row but for something.
                if part != Part::Outside && is_like_a_row(&words) {
                    odd.push(line);
                }
                part = Part::Outside;
            }
        }
    }
    Ok((sets, rows, odd))
}

/// Whether five columns or more are there, two of them numbers: what people write around a
/// listing is not a row.
fn is_row(words: &[&str]) -> bool {
    let digits = |at: usize| words[at].starts_with(|c: char| c.is_ascii_digit());
    words.len() >= 5 && (digits(1) || digits(2))
}

/// Whether a line has what a row of either listing has: a number where it has one, or a path at its end.
fn is_like_a_row(words: &[&str]) -> bool {
    let number =
        |word: &&str| word.trim_start_matches('*').starts_with(|c: char| c.is_ascii_digit());
    let path = words.last().is_some_and(|last| last.starts_with('/'));
    words.len() >= 3 && (path || words[1..3].iter().any(number))
}

fn row<'a>(words: &[&'a str], set: &str) -> Result<Row<'a>, String> {
    let number = |text: &str, what: &str| {
        text.parse::<u32>()
            .map_err(|_| format!("`{}` is no {what}", quiet_types::printable(text, 40)))
    };
    let [user, pid, parent, state, name, ..] = words else {
        return Err("a row has five columns".into());
    };
    let digits = state.trim_start_matches(|c: char| !c.is_ascii_digit());
    let priority = digits.parse::<u8>().ok().filter(|p| (1..=99).contains(p));
    Ok(Row {
        set: set.to_owned(),
        user,
        pid: number(pid, "PID")?,
        parent: number(parent, "PPID")?,
        priority,
        name: name.trim_start_matches('[').trim_end_matches(']'),
    })
}
