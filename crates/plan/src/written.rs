//! A chain as the text of a chain file.

use quiet_types::{
    Chain,
    boot::Mode,
    chain::{Choice, IrqSource, Link, Owner, PipeWire, Target, User},
    printable,
};
use std::fmt::Write as _;

/// The file of a chain, with comments above it. Read again by [`crate::chain::parse`] it is the same chain.
pub fn chain_text(chain: &Chain, comments: &[String]) -> String {
    let mut text = String::new();
    for comment in comments {
        let _ = writeln!(text, "# {}", printable(comment, 400));
    }
    text += if comments.is_empty() { "[chain]\n" } else { "\n[chain]\n" };
    if let Some(name) = &chain.name {
        let _ = writeln!(text, "name = {}", quoted(name));
    }
    let cpus = match &chain.cpus {
        Choice::Auto => "auto".to_owned(),
        Choice::Cores(cores) => format!("auto:{cores}"),
        Choice::These(cpus) => cpus.to_string(),
    };
    let _ = writeln!(text, "cpus = {}", quoted(&cpus));
    if chain.mode == Mode::NeverSleepingCore {
        text += "mode = \"never-sleep\"\n";
    }
    if chain.smt_off {
        text += "smt = \"off\"\n";
    }
    if let Some(steps) = &chain.steps {
        let names: Vec<String> = steps.iter().map(|name| quoted(name)).collect();
        let _ = writeln!(text, "steps = [{}]", names.join(", "));
    }
    for link in &chain.links {
        link_text(&mut text, link);
    }
    text
}

fn link_text(text: &mut String, link: &Link) {
    let _ = writeln!(text, "\n[[link]]\nname = {}", quoted(&link.name));
    match &link.target {
        Target::Irq(source) => {
            let (key, value) = match source {
                IrqSource::Net(name) => ("net", quoted(name)),
                IrqSource::Card(name) => ("card", quoted(name)),
                IrqSource::Number(number) => ("number", number.to_string()),
                IrqSource::Action(name) => ("action", quoted(name)),
            };
            let _ = writeln!(text, "irq = {{ {key} = {value} }}");
        }
        Target::Process { comm, threads, owner, pipewire } => {
            let _ = match pipewire {
                None => writeln!(text, "process = {}", quoted(comm)),
                Some(PipeWire::Server) => writeln!(text, "pipewire = \"server\""),
                Some(PipeWire::Client) => {
                    writeln!(text, "pipewire = {{ client = {} }}", quoted(comm))
                }
            };
            owner_text(text, owner);
            let usual = pipewire.is_some() && threads.iter().all(|name| name == PipeWire::LOOPS);
            if !threads.is_empty() && !usual {
                let names: Vec<String> = threads.iter().map(|name| quoted(name)).collect();
                let _ = writeln!(text, "threads = [{}]", names.join(", "));
            }
        }
    }
    if let Some(cpus) = &link.cpus {
        let _ = writeln!(text, "cpus = {}", quoted(&cpus.to_string()));
    }
    if let Some(priority) = link.priority {
        let _ = writeln!(text, "priority = {priority}");
    }
}

fn owner_text(text: &mut String, owner: &Owner) {
    let user = |user: &User| match user {
        User::Uid(uid) => uid.to_string(),
        User::Name(name) => quoted(name),
    };
    let users: Vec<String> = owner.users.iter().map(user).collect();
    let _ = match users.as_slice() {
        [] => Ok(()),
        [one] => writeln!(text, "user = {one}"),
        several => writeln!(text, "user = [{}]", several.join(", ")),
    };
    for (key, value) in [("exe", &owner.exe), ("unit", &owner.unit)] {
        if let Some(value) = value {
            let _ = writeln!(text, "{key} = {}", quoted(value));
        }
    }
}

/// A basic string of TOML.
fn quoted(text: &str) -> String {
    let mut quoted = String::from("\"");
    for letter in text.chars() {
        match letter {
            '"' | '\\' => quoted.extend(['\\', letter]),
            _ if letter.is_control() => {
                let _ = write!(quoted, "\\u{:04X}", letter as u32);
            }
            _ => quoted.push(letter),
        }
    }
    quoted.push('"');
    quoted
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::chain::parse;
    use proptest::prelude::*;

    fn name() -> impl Strategy<Value = String> {
        "[a-zA-Z0-9 _:*\"\\\\äß#=-]{1,12}".prop_map(|name| format!("a{name}z"))
    }

    fn owner() -> impl Strategy<Value = Owner> {
        let user = prop_oneof![
            any::<u32>().prop_map(User::Uid),
            "[a-z][a-z0-9-]{0,9}".prop_map(User::Name)
        ];
        let users = prop::collection::vec(user, 0..3);
        (users, any::<bool>(), any::<bool>()).prop_map(|(users, exe, unit)| Owner {
            users,
            exe: exe.then(|| "/usr/bin/mp d".into()),
            unit: unit.then(|| "mpd.service".into()),
        })
    }

    fn target() -> impl Strategy<Value = Target> {
        let irq = prop_oneof![
            name().prop_map(IrqSource::Net),
            name().prop_map(IrqSource::Card),
            any::<u32>().prop_map(IrqSource::Number),
            name().prop_map(IrqSource::Action),
        ];
        let threads = prop::collection::vec(name(), 0..3);
        let process =
            (name(), threads, owner(), 0..3).prop_map(|(comm, mut threads, owner, kind)| {
                let pipewire =
                    [None, Some(PipeWire::Server), Some(PipeWire::Client)][kind as usize];
                if pipewire.is_some() && threads.is_empty() {
                    threads.push(PipeWire::LOOPS.into());
                }
                let server = pipewire == Some(PipeWire::Server);
                let comm = if server { PipeWire::SERVER.to_owned() } else { comm };
                Target::Process { comm, threads, owner, pipewire }
            });
        prop_oneof![irq.prop_map(Target::Irq), process]
    }

    proptest! {
        #[test]
        fn a_chain_that_was_written_reads_back_as_itself(
            head in prop::option::of(name()),
            cores in 0u32..9,
            never in any::<bool>(),
            smt_off in any::<bool>(),
            steps in prop::option::of(prop::collection::vec("[a-z0-9_.-]{1,40}", 0..4)),
            targets in prop::collection::vec(target(), 0..6),
        ) {
            let cpus = match cores {
                0 => Choice::Auto,
                1 => Choice::These("2-3".parse().unwrap()),
                more => Choice::Cores(more),
            };
            let mode = if never { Mode::NeverSleepingCore } else { Mode::SleepingChain };
            let links = targets.into_iter().enumerate().map(|(at, target)| Link {
                name: format!("link {at}"),
                target,
                cpus: (at == 1).then(|| "2".parse().unwrap()),
                priority: (at != 2).then_some(50 + at as u8),
            });
            let chain = Chain { name: head, cpus, mode, smt_off, steps, links: links.collect() };
            let text = chain_text(&chain, &["made\nby chance".into()]);
            prop_assert_eq!(parse(&text, "x.toml", None).map_err(|e| format!("{e}\n{text}")), Ok(chain));
        }
    }
}
