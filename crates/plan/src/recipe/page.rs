//! A chain file as it is written.

use quiet_types::{CpuSet, printable};

/// The longest name that a chain file may hold.
const LONGEST: usize = 60;

/// A chain file in the making: comments, the head, links.
pub(super) struct Page {
    /// What the file came from, and what could not be carried over.
    comments: Vec<String>,
    name: String,
    /// `None` for `auto`.
    cpus: Option<CpuSet>,
    links: Vec<Link>,
}

/// One link in the making.
#[derive(Clone, Debug)]
pub(super) struct Link {
    pub comments: Vec<String>,
    pub name: String,
    pub target: Target,
    pub cpus: Option<CpuSet>,
    pub priority: Option<u8>,
}

#[derive(Clone, Debug)]
pub(super) enum Target {
    /// Key and value of `irq = { key = value }`.
    Net(String),
    Card(String),
    Action(String),
    Process {
        comm: String,
        /// Whose it was.
        user: String,
        threads: Vec<String>,
    },
}

impl Page {
    pub fn new(name: &str, origin: &str) -> Page {
        Page { comments: vec![origin.to_owned()], name: short(name), cpus: None, links: Vec::new() }
    }

    pub fn say(&mut self, comment: impl Into<String>) {
        self.comments.push(comment.into());
    }

    pub fn cpus(&mut self, cpus: CpuSet) {
        self.cpus = (!cpus.is_empty()).then_some(cpus);
    }

    /// Adds a link; its name gets a number when it is taken.
    pub fn link(&mut self, mut link: Link) {
        let wanted = short(&link.name);
        let mut name = wanted.clone();
        let mut next = 2;
        while self.links.iter().any(|other| other.name == name) {
            name =
                format!("{} {next}", short(&wanted).chars().take(LONGEST - 6).collect::<String>());
            next += 1;
        }
        link.name = name;
        self.links.push(link);
    }

    /// The file. Priorities that do not rise are left out, and said so.
    pub fn text(mut self) -> String {
        let mut last = 0;
        for link in &mut self.links {
            match link.priority {
                Some(priority) if priority <= last => {
                    link.comments.push(format!(
                        "its priority was {priority}, which is not above that \
                            of the link before it: choose one that rises"
                    ));
                    link.priority = None;
                }
                Some(priority) => last = priority,
                None => {}
            }
        }
        let mut text = String::new();
        for comment in &self.comments {
            push_comment(&mut text, comment);
        }
        text += &format!("\n[chain]\nname = {}\n", quoted(&self.name));
        let cpus = self.cpus.map_or("auto".to_owned(), |cpus| cpus.to_string());
        text += &format!("cpus = {}\n", quoted(&cpus));
        for link in &self.links {
            text += &link_text(link);
        }
        text
    }
}

fn link_text(link: &Link) -> String {
    let mut text = String::from("\n");
    for comment in &link.comments {
        push_comment(&mut text, comment);
    }
    text += &format!("[[link]]\nname = {}\n", quoted(&link.name));
    match &link.target {
        Target::Net(name) => text += &format!("irq = {{ net = {} }}\n", quoted(&short(name))),
        Target::Card(name) => text += &format!("irq = {{ card = {} }}\n", quoted(&short(name))),
        Target::Action(name) => text += &format!("irq = {{ action = {} }}\n", quoted(&short(name))),
        Target::Process { comm, user, threads } => {
            text += &format!("process = {}\nuser = {}\n", quoted(&short(comm)), quoted(user));
            if !threads.is_empty() {
                let names: Vec<String> = threads.iter().map(|name| quoted(&short(name))).collect();
                text += &format!("threads = [{}]\n", names.join(", "));
            }
        }
    }
    if let Some(cpus) = link.cpus.as_ref().filter(|cpus| !cpus.is_empty()) {
        text += &format!("cpus = {}\n", quoted(&cpus.to_string()));
    }
    if let Some(priority) = link.priority {
        text += &format!("priority = {priority}\n");
    }
    text
}

/// Comments are wrapped at 96 columns.
fn push_comment(text: &mut String, comment: &str) {
    let mut line = String::from("#");
    for word in printable(comment, 4_000).split_whitespace() {
        if line.len() > 1 && line.chars().count() + 1 + word.chars().count() > 96 {
            text.push_str(&line);
            text.push('\n');
            line = String::from("#  ");
        }
        line.push(' ');
        line.push_str(word);
    }
    text.push_str(&line);
    text.push('\n');
}

/// A name that a chain file accepts: no control characters, not empty, not too long.
fn short(name: &str) -> String {
    let clean: String =
        name.chars().filter(|c| !c.is_control()).take(LONGEST).collect::<String>().trim().into();
    if clean.is_empty() { "unnamed".into() } else { clean }
}

/// A basic string of TOML.
fn quoted(text: &str) -> String {
    format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\""))
}
