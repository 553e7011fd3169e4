//! The last line of each verb: what is usually done after it.

use crate::face;
use clap::ArgMatches;
use quiet_types::printable;
use std::process::ExitCode;

/// What follows a verb; of several the first that fits.
struct Next {
    /// The verb, and the argument it was called with where that matters, by its name in `Args`: `apply --confirm`, `lend --back`.
    after: &'static str,
    ended: Ended,
    /// A command without the program's name. `{name}` stands for what that argument of the verb was.
    then: &'static str,
    why: &'static str,
}

/// How a verb ended.
#[derive(Clone, Copy, PartialEq)]
enum Ended {
    /// With 0.
    Well,
    /// With 1: something was found.
    Findings,
    /// With either.
    Anyhow,
}

use Ended::{Anyhow, Findings, Well};

const fn next(after: &'static str, ended: Ended, then: &'static str, why: &'static str) -> Next {
    Next { after, ended, then, why }
}

const NEXT: &[Next] = &[
    next("setup --dry_run", Anyhow, "setup", "do it"),
    next("setup", Anyhow, "status", "whether the shield is as it was made"),
    next("demo", Anyhow, "setup", "a shield for your own sound, by questions"),
    next("inspect", Anyhow, "check", "what stands in the way of low latency here"),
    next("check", Findings, "doctor", "mend what was found, one finding after the other"),
    next("check", Well, "prove --for 1min", "whether a shield helps here"),
    next("doctor --dry_run", Anyhow, "doctor", "mend it"),
    next("doctor", Anyhow, "check", "what is left"),
    next("plan", Anyhow, "apply {chain} --confirm 60", "do it, put back unless confirmed"),
    next("apply --confirm", Anyhow, "confirm", "keep it; else all is put back"),
    next("apply", Findings, "status", "what does not hold, and why"),
    next("apply", Well, "top", "who runs where now"),
    next("approve --withdraw", Anyhow, "approve", "the chains that are left"),
    next("approve", Anyhow, "apply {name} --confirm 60", "as an ordinary user"),
    next("confirm", Anyhow, "persist", "keep it across reboots too"),
    next("status", Findings, "revert", "put the machine back"),
    next("status", Well, "top", "who runs where now"),
    next("lend --back", Anyhow, "status", "whether the shield is as it was made"),
    next("lend --command", Anyhow, "status", "whether the shield is as it was made"),
    next("lend", Anyhow, "lend --return", "take the CPUs back"),
    next("revert", Findings, "status", "what is left, and why"),
    next("revert", Well, "inspect", "the machine as it is again"),
    next("watch", Anyhow, "status", "whether the shield is as it was made"),
    next("top", Anyhow, "serve", "the same as a page, for a phone"),
    next("serve", Anyhow, "top", "the same in a terminal"),
    next("persist --dry_run", Anyhow, "persist {chain}", "write it"),
    next("persist", Anyhow, "status", "after the next boot: whether it is what was asked for"),
    next("unpersist", Anyhow, "check", "after the next boot: what stands in the way again"),
    next("measure wakeup", Anyhow, "explain --probe wakeup", "who made it late"),
    next("measure gap", Anyhow, "explain", "who took the time"),
    next("measure buffers", Anyhow, "play --find-buffer", "play with the least buffer that works"),
    next("measure tracer", Anyhow, "explain --probe wakeup", "who made it late"),
    next("measure roundtrip", Anyhow, "measure buffers", "whether a smaller buffer holds"),
    next("explain", Anyhow, "plan", "what a shield would keep away, and how"),
    next("reach", Anyhow, "explain", "how long such acts take from the CPU"),
    next("stress", Anyhow, "prove", "what a shield does about it"),
    next("prove", Findings, "explain", "who was late, and why"),
    next("prove", Well, "apply {chain} --confirm 60", "put the shield up to stay"),
    next("tune --list", Anyhow, "tune {chain}", "try them"),
    next("tune", Anyhow, "apply {chain} --confirm 60", "put a shield up"),
    next("play", Anyhow, "measure buffers", "which buffers hold here"),
    next("campaign --status", Anyhow, "campaign {file}", "measure what is left"),
    next("campaign", Anyhow, "campaign {file} --html campaign.html", "the same as a page"),
    next("compare", Anyhow, "report {a} {b}", "the same as a page"),
    next("runs", Anyhow, "compare A B", "a verdict on two of them"),
    next("predict", Anyhow, "measure buffers", "whether it holds"),
    next("render", Anyhow, "bench --help", "what a strip costs on this machine"),
    next("bench", Anyhow, "play {strip}", "hear it"),
    next("report", Anyhow, "serve", "all runs on pages"),
    next("import", Anyhow, "runs", "what is kept"),
    next("export", Anyhow, "runs", "what is kept"),
    next("farm join --show", Anyhow, "farm join {url} --yes", "agree to it"),
    next("farm join", Anyhow, "farm send", "send what waits, now"),
    next("farm leave", Anyhow, "farm status", "what is left on this machine"),
    next("farm status", Anyhow, "farm send", "send what waits, now"),
    next("farm send", Anyhow, "farm status", "what waits still"),
    next("farm collect", Anyhow, "farm ask", "percentiles of all machines"),
    next("farm serve", Anyhow, "farm ask", "percentiles of all machines"),
    next("farm ask", Anyhow, "farm page -o farm.html", "the wall of machines as a page"),
    next("farm metrics", Anyhow, "farm metrics --help", "how a server scrapes them"),
    next("farm page", Anyhow, "farm ask", "percentiles of all machines"),
];

/// Says what is usually done after the verb that ended so; nothing after an error, and nothing to programs.
pub fn say(called: &ArgMatches, ended: ExitCode) {
    let Some((verb, args)) = innermost(called) else { return };
    if args.try_get_one::<bool>("json").ok().flatten() == Some(&true) {
        return;
    }
    let how = if ended == ExitCode::SUCCESS {
        Well
    } else if ended == ExitCode::from(face::FINDINGS) {
        Findings
    } else {
        return;
    };
    if let Some(next) = NEXT.iter().find(|next| next.fits(&verb, args, how)) {
        face::say(&format!("next: quietcores {} ({})", next.command(args), next.why));
    }
}

/// The verb with its own verb, `farm ask`, and the arguments of the last.
fn innermost(called: &ArgMatches) -> Option<(String, &ArgMatches)> {
    let (name, args) = called.subcommand()?;
    Some(match args.subcommand() {
        Some((inner, args)) => (format!("{name} {inner}"), args),
        None => (name.to_owned(), args),
    })
}

impl Next {
    fn fits(&self, verb: &str, args: &ArgMatches, how: Ended) -> bool {
        let (of, id) = self.after.split_once(" --").unwrap_or((self.after, ""));
        of == verb
            && (self.ended == Anyhow || self.ended == how)
            && (id.is_empty() || given(args, id))
    }

    fn command(&self, args: &ArgMatches) -> String {
        let word = |word: &str| match word.strip_prefix('{').and_then(|word| word.strip_suffix('}'))
        {
            None => Some(word.to_owned()),
            Some(id) => {
                let values = args.try_get_raw(id).ok().flatten().filter(|_| given(args, id))?;
                let values = values.map(|value| quoted(&printable(&value.to_string_lossy(), 300)));
                Some(values.collect::<Vec<_>>().join(" "))
            }
        };
        self.then.split(' ').filter_map(word).collect::<Vec<_>>().join(" ")
    }
}

fn given(args: &ArgMatches, id: &str) -> bool {
    args.try_contains_id(id).unwrap_or(false)
        && args.value_source(id) == Some(clap::parser::ValueSource::CommandLine)
}

/// As a shell takes it for one word.
fn quoted(word: &str) -> String {
    let plain = |c: char| c.is_alphanumeric() || "._/:=,@%+-".contains(c);
    match !word.is_empty() && word.chars().all(plain) {
        true => word.to_owned(),
        false => format!("'{}'", word.replace('\'', r"'\''")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Cli;
    use clap::{Command, CommandFactory};
    use std::collections::BTreeSet;

    fn verbs(of: &Command, before: &str, all: &mut BTreeSet<String>) {
        for verb in of.get_subcommands().filter(|verb| !verb.is_hide_set()) {
            let name = format!("{before}{}", verb.get_name());
            match verb.get_subcommands().any(|inner| inner.get_name() != "help") {
                true => verbs(verb, &format!("{name} "), all),
                false => _ = all.insert(name),
            }
        }
    }

    #[test]
    fn something_follows_every_verb_and_can_be_called() {
        let mut all = BTreeSet::new();
        verbs(&Cli::command(), "", &mut all);
        for verb in all.iter().filter(|verb| *verb != "help") {
            let of = |next: &&Next| next.after == verb;
            for how in [Well, Findings] {
                assert!(
                    NEXT.iter().filter(of).any(|next| [Anyhow, how].contains(&next.ended)),
                    "nothing follows {verb}"
                );
            }
        }
        for next in NEXT {
            let verb = next.after.split(" --").next().unwrap();
            assert!(all.contains(verb), "there is no verb {verb}");
            let words = next.then.split(' ').filter(|word| !word.starts_with('{'));
            let words: Vec<&str> = ["quietcores"].into_iter().chain(words).collect();
            let called = Cli::command().try_get_matches_from(&words);
            // What stands for a name of the caller's may be missing here.
            let is_good = called.as_ref().map_or_else(
                |error| {
                    use clap::error::ErrorKind::{DisplayHelp, MissingRequiredArgument};
                    error.kind() == DisplayHelp
                        || next.then.contains('{') && error.kind() == MissingRequiredArgument
                },
                |_| true,
            );
            assert!(is_good, "{}: {}", next.then, called.unwrap_err());
        }
    }

    fn after(line: &str, ended: Ended) -> String {
        let called = Cli::command().try_get_matches_from(line.split(' ')).unwrap();
        let (verb, args) = innermost(&called).unwrap();
        let next = NEXT.iter().find(|next| next.fits(&verb, args, ended)).unwrap();
        next.command(args)
    }

    #[test]
    fn it_follows_from_how_the_verb_was_called_and_ended() {
        assert_eq!(after("quietcores plan it's.toml", Well), r"apply 'it'\''s.toml' --confirm 60");
        assert_eq!(after("quietcores plan", Well), "apply --confirm 60");
        assert_eq!(after("quietcores apply a.toml --confirm 9", Well), "confirm");
        assert_eq!(after("quietcores apply a.toml", Well), "top");
        assert_eq!(after("quietcores check", Findings), "doctor");
        assert_eq!(after("quietcores lend --return", Well), "status");
        assert_eq!(after("quietcores lend -- make", Well), "status");
        assert_eq!(after("quietcores lend --for 5min", Well), "lend --return");
        assert_eq!(after("quietcores campaign c.toml --status", Well), "campaign c.toml");
        assert_eq!(after("quietcores compare x y", Findings), "report x y");
    }
}
