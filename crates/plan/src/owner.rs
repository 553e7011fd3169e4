//! Whose a process is: a name alone is anybody's to take.

use crate::{is_ours, lookup::Lookup, names::cut};
use quiet_types::{
    Chain, GroupPath, Machine,
    chain::{Owner, Target, User},
    machine::Task,
    printable,
};

/// First threads of the processes that are called `comm`: those of `owner`, and all others.
pub(crate) fn processes<'a>(
    on: &Lookup<'a>,
    comm: &str,
    owner: &Owner,
) -> (Vec<&'a Task>, Vec<&'a Task>) {
    on.firsts(comm).into_iter().partition(|task| owns(on.machine, task, owner))
}

/// What a process is called that a chain waits for, and whose it may be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WantedProcess {
    /// Its name as the kernel keeps it.
    pub comm: String,
    /// Numbers of its users; empty where anybody's is looked at, or a user's number is not known yet.
    pub users: Vec<u32>,
}

/// The processes that the links of a chain are.
pub fn wanted(machine: &Machine, chain: &Chain) -> Vec<WantedProcess> {
    let users = |owner: &Owner| -> Option<Vec<u32>> {
        let uid = |user: &User| match user {
            User::Uid(uid) => Some(*uid),
            User::Name(name) => uid_of(machine, name),
        };
        match owner.users.as_slice() {
            [] => owner.unit.is_none().then(|| vec![0]),
            users => users.iter().map(uid).collect(),
        }
    };
    let processes = chain.links.iter().filter_map(|link| match &link.target {
        Target::Process { comm, owner, .. } => {
            Some(WantedProcess { comm: cut(comm), users: users(owner).unwrap_or_default() })
        }
        Target::Irq(_) => None,
    });
    processes.collect()
}

/// Whether all that is said of the owner holds for a process.
fn owns(machine: &Machine, first: &Task, owner: &Owner) -> bool {
    let user = |user: &User| match user {
        User::Uid(uid) => *uid == first.uid,
        User::Name(name) => uid_of(machine, name) == Some(first.uid),
    };
    let by_user = match owner.users.as_slice() {
        [] => owner.unit.is_some() || first.uid == 0,
        users => users.iter().any(user),
    };
    // After an upgrade the file that runs is not the one that lies there.
    let path = first.exe.as_deref().map(|exe| exe.strip_suffix(" (deleted)").unwrap_or(exe));
    by_user
        && owner.exe.as_deref().is_none_or(|exe| path == Some(exe))
        && owner.unit.as_deref().is_none_or(|unit| in_unit(first, unit, !owner.users.is_empty()))
}

/// The number of a user's name. Captures that hold no users have root all the same.
fn uid_of(machine: &Machine, name: &str) -> Option<u32> {
    machine.users.get(name).copied().or_else(|| (name == "root").then_some(0))
}

/// Whether a process belongs to a unit of systemd. Below its own manager a user may give groups any name, so that there a unit counts
/// only where the user is named too.
fn in_unit(first: &Task, wanted: &str, user_named: bool) -> bool {
    let Some(path) = unit_group(first) else { return false };
    // Only root puts anybody there, and what it put there was the link's.
    if is_ours(path) {
        return true;
    }
    let Some((unit, below)) = unit(path) else { return false };
    let manager = || user_named && unit == format!("user@{}.service", first.uid);
    unit == wanted || (manager() && self::unit(below).is_some_and(|(unit, _)| unit == wanted))
}

fn unit_group(first: &Task) -> Option<&GroupPath> {
    first.unit_group.as_ref().or(first.cgroup.as_ref())
}

/// The unit that made a group, by its path below the first process's or a user's manager, and the path below it.
fn unit(path: &str) -> Option<(&str, &str)> {
    let mut rest = path.trim_matches('/');
    loop {
        let (part, below) = rest.split_once('/').unwrap_or((rest, ""));
        match part {
            _ if part.ends_with(".service") || part.ends_with(".scope") => {
                return Some((part, below));
            }
            _ if part.ends_with(".slice") => rest = below,
            _ => return None,
        }
    }
}

/// The unit of its user's own manager that a process belongs to.
pub(crate) fn user_unit(first: &Task) -> Option<&str> {
    let (manager, below) = unit(unit_group(first)?)?;
    (manager == format!("user@{}.service", first.uid)).then(|| unit(below))?.map(|found| found.0)
}

/// Who a process is, for people: `process 812 of user mpd (107), /usr/bin/mpd, unit mpd.service`.
pub(crate) fn who(machine: &Machine, first: &Task) -> String {
    let mut text = format!("process {} of user {}", first.pid, user_name(machine, first.uid));
    if let Some(exe) = &first.exe {
        text += &format!(", {}", printable(exe, 200));
    }
    if let Some((unit, _)) = unit_group(first).and_then(|path| unit(path)) {
        text += &format!(", unit {}", printable(unit, 80));
    }
    text
}

fn user_name(machine: &Machine, uid: u32) -> String {
    match name_of(machine, uid) {
        Some(name) => format!("{} ({uid})", printable(name, 40)),
        None => uid.to_string(),
    }
}

pub(crate) fn name_of(machine: &Machine, uid: u32) -> Option<&str> {
    machine.users.iter().find(|(_, known)| **known == uid).map(|(name, _)| name.as_str())
}

/// The line of a chain file that makes processes of these users the link's.
pub(crate) fn line(machine: &Machine, firsts: &[&Task]) -> String {
    let mut uids: Vec<u32> = firsts.iter().map(|first| first.uid).collect();
    uids.sort_unstable();
    uids.dedup();
    let quoted = |uid: &u32| match name_of(machine, *uid) {
        Some(name) => format!("\"{}\"", printable(name, 40)),
        None => uid.to_string(),
    };
    let names: Vec<String> = uids.iter().map(quoted).collect();
    let lines: Vec<String> = names.iter().map(|name| format!("`user = {name}`")).collect();
    lines.join(" or ")
}

/// Whether a thread's name is one that a chain file means: the same; the same up to a `:` (mpd calls its threads
/// `decoder:flac`, `output:usb`); or alike, with `*` for any characters and `?` for one.
pub(crate) fn is_thread(wanted: &str, comm: &str) -> bool {
    if wanted.contains(['*', '?']) {
        return is_like(wanted, comm);
    }
    cut(wanted) == cut(comm) || comm.strip_prefix(wanted).is_some_and(|rest| rest.starts_with(':'))
}

/// Shell-like patterns; each star is tried again one further, and only the last one: that is enough.
fn is_like(pattern: &str, text: &str) -> bool {
    let (pattern, text): (Vec<char>, Vec<char>) =
        (pattern.chars().collect(), text.chars().collect());
    let (mut p, mut t) = (0, 0);
    let mut star: Option<(usize, usize)> = None;
    while t < text.len() {
        match pattern.get(p) {
            Some('*') => {
                star = Some((p, t));
                p += 1;
            }
            Some(c) if *c == '?' || *c == text[t] => (p, t) = (p + 1, t + 1),
            _ => match star {
                Some((at, from)) => {
                    star = Some((at, from + 1));
                    (p, t) = (at + 1, from + 1);
                }
                None => return false,
            },
        }
    }
    pattern[p..].iter().all(|c| *c == '*')
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::check::tests::good::task;
    use proptest::prelude::*;
    use quiet_types::machine::Policy;

    fn first(comm: &str, uid: u32, exe: &str, cgroup: &str) -> Task {
        Task {
            uid,
            exe: Some(exe.into()).filter(|exe: &String| !exe.is_empty()),
            cgroup: cgroup.parse().ok(),
            ..task(uid + 1, comm, "0-3", Policy::Other, 0)
        }
    }

    fn machine(tasks: Vec<Task>) -> Machine {
        let users = [("mpd", 107), ("ann", 1000), ("root", 0), ("alias", 107)];
        let users = users.into_iter().map(|(name, uid)| (name.to_owned(), uid)).collect();
        Machine { tasks, users, ..Machine::default() }
    }

    fn named(users: &[&str]) -> Owner {
        let users = users.iter().map(|name| User::Name((*name).into())).collect();
        Owner { users, ..Owner::default() }
    }

    fn uids(machine: &Machine, owner: &Owner) -> Vec<u32> {
        processes(&Lookup::new(machine), "mpd", owner).0.iter().map(|first| first.uid).collect()
    }

    #[test]
    fn a_name_alone_is_roots_and_a_user_is_told_by_number() {
        let of = |uid| first("mpd", uid, "/usr/bin/mpd", "/");
        let machine = machine(vec![of(0), of(107), of(1000), of(65534)]);
        assert_eq!(uids(&machine, &Owner::default()), [0]);
        assert_eq!(uids(&machine, &named(&["mpd"])), [107]);
        assert_eq!(uids(&machine, &named(&["alias", "ann"])), [107, 1000]);
        assert_eq!(uids(&machine, &named(&["nobody-knows"])), [0u32; 0]);
        let by_number = Owner { users: vec![User::Uid(65534)], ..Owner::default() };
        assert_eq!(uids(&machine, &by_number), [65534]);
        let others = processes(&Lookup::new(&machine), "mpd", &named(&["mpd"])).1;
        assert_eq!(others.len(), 3);
        assert_eq!(
            line(&machine, &others),
            "`user = \"root\"` or `user = \"ann\"` or `user = 65534`"
        );
    }

    #[test]
    fn an_executable_and_a_unit_narrow_and_never_widen() {
        let mut list = vec![
            first("mpd", 107, "/usr/bin/mpd", "/system.slice/mpd.service"),
            first(
                "mpd",
                1000,
                "/home/ann/mpd",
                "/user.slice/user-1000.slice/user@1000.service/app.slice/mpd.service",
            ),
            first(
                "mpd",
                65534,
                "/usr/bin/mpd (deleted)",
                "/user.slice/user-65534.slice/user@65534.service/mpd.service",
            ),
            // Groups that a user's own manager, or a container's, may name as they like.
            first("mpd", 65534, "/x", "/user.slice/user@65534.service/system.slice/mpd.service"),
            first("mpd", 65534, "/x", "/machine.slice/box.scope/system.slice/mpd.service"),
        ];
        let unit = |users: &[&str]| Owner { unit: Some("mpd.service".into()), ..named(users) };
        let exe = |users: &[&str]| Owner { exe: Some("/usr/bin/mpd".into()), ..named(users) };
        let machine_of = |list: &[Task]| machine(list.to_vec());
        assert_eq!(uids(&machine_of(&list), &unit(&[])), [107]);
        assert_eq!(uids(&machine_of(&list), &unit(&["ann"])), [1000]);
        assert_eq!(uids(&machine_of(&list), &exe(&[])), [0u32; 0]);
        assert_eq!(uids(&machine_of(&list), &exe(&["mpd", "ann"])), [107]);
        let by_number = Owner { users: vec![User::Uid(65534)], ..exe(&[]) };
        assert_eq!(uids(&machine_of(&list), &by_number), [65534]);
        // Once it is in the shield its own group is not seen any more; on v1 it is.
        list[0].cgroup = "/quietcores".parse().ok();
        assert_eq!(uids(&machine_of(&list), &unit(&[])), [107]);
        list[0].unit_group = "/system.slice/other.service".parse().ok();
        assert_eq!(uids(&machine_of(&list), &unit(&[])), [0u32; 0]);
    }

    #[test]
    fn threads_are_named_whole_up_to_a_colon_or_by_a_pattern() {
        for (wanted, comm, is) in [
            ("decoder", "decoder", true),
            ("decoder", "decoder:ffmpeg", true),
            ("decoder", "decoders", false),
            ("output", "output:hda", true),
            ("output:usb", "output:hda", false),
            ("a_very_long_name_indeed", "a_very_long_nam", true),
            ("output*", "output:hda", true),
            ("*:hda", "output:hda", true),
            ("o?tput:*a", "output:hda", true),
            ("?", "", false),
            ("*", "", true),
            ("a*b*c", "a-b-b-c", true),
            ("a*b*c", "a-b-b", false),
        ] {
            assert_eq!(is_thread(wanted, comm), is, "{wanted} {comm}");
        }
    }

    proptest! {
        #[test]
        fn a_pattern_is_what_a_slow_one_says(pattern in "[ab*?]{0,6}", text in "[ab]{0,6}") {
            fn slow(p: &[u8], t: &[u8]) -> bool {
                match (p.first(), t.first()) {
                    (None, t) => t.is_none(),
                    (Some(b'*'), _) => slow(&p[1..], t) || (!t.is_empty() && slow(p, &t[1..])),
                    (Some(c), Some(d)) => (*c == b'?' || c == d) && slow(&p[1..], &t[1..]),
                    (Some(_), None) => false,
                }
            }
            prop_assert_eq!(is_like(&pattern, &text), slow(pattern.as_bytes(), text.as_bytes()));
        }
    }
}
