//! Takes out of a record who uses the machine: names of its people, and the numbers of its disks.

use crate::snapshot::{Record, Seen};
use std::collections::BTreeMap;

/// Numbers of accounts from here on are people's (`UID_MIN` of login.defs(5)).
const PEOPLE: u32 = 1000;
/// `nobody`.
const NOBODY: u32 = 65534;
/// Texts that may name people, beside those below `/etc`.
const TEXTS: [&str; 6] = ["/cgroup", "/mounts", "/mountinfo", "/maps", "/swaps", "/cmdline"];
/// Where the hyphens of a UUID are, and how long it is: RFC 9562.
const HYPHENS: [usize; 4] = [8, 13, 18, 23];
const UUID: usize = 36;

/// Gives each person a name by number (`user1`), where an account is named or a folder by it, and each UUID another one.
///
/// Names of threads, groups and units stay: what runs is what a capture is about.
pub(crate) fn anonymous(record: &mut Record) {
    let names = people(record);
    let mut ids = BTreeMap::new();
    for (path, seen) in &mut record.seen {
        match seen {
            Seen::File(content) if is_text(path) => {
                let text = String::from_utf8_lossy(content);
                let text = if path == "/etc/passwd" || path == "/etc/group" {
                    accounts(&text, &names)
                } else {
                    folders(&text, &names)
                };
                *content = without_ids(&text, &mut ids).into_bytes();
            }
            Seen::Link(target) => *target = folders(target, &names),
            _ => {}
        }
    }
}

fn is_text(path: &str) -> bool {
    path.starts_with("/etc/") || TEXTS.iter().any(|end| path.ends_with(end))
}

/// The people of `/etc/passwd`, and what they are called from now on.
fn people(record: &Record) -> BTreeMap<String, String> {
    let Some(Seen::File(passwd)) = record.seen.get("/etc/passwd") else { return BTreeMap::new() };
    let passwd = String::from_utf8_lossy(passwd);
    let lines = passwd.lines().filter_map(|line| {
        let mut fields = line.split(':');
        let name = fields.next().filter(|name| !name.is_empty())?;
        let uid: u32 = fields.nth(1)?.parse().ok()?;
        (uid >= PEOPLE && uid != NOBODY).then(|| name.to_owned())
    });
    lines.enumerate().map(|(at, name)| (name, format!("user{}", at + 1))).collect()
}

/// `NAME:x:...` line by line.
fn accounts(text: &str, names: &BTreeMap<String, String>) -> String {
    let line = |line: &str| match line.split_once(':') {
        Some((name, rest)) => match names.get(name) {
            Some(other) => format!("{other}:{rest}\n"),
            None => format!("{line}\n"),
        },
        None => format!("{line}\n"),
    };
    text.lines().map(line).collect()
}

/// Paths of which one part is somebody's name.
fn folders(text: &str, names: &BTreeMap<String, String>) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find('/') {
        let (before, part) = rest.split_at(at + 1);
        out += before;
        let ends = |c: char| !(c.is_alphanumeric() || matches!(c, '-' | '_' | '.'));
        let end = part.find(ends).unwrap_or(part.len());
        out += names.get(&part[..end]).map_or(&part[..end], String::as_str);
        rest = &part[end..];
    }
    out + rest
}

/// Each UUID by its own number, the same one everywhere.
fn without_ids(text: &str, known: &mut BTreeMap<String, usize>) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while !rest.is_empty() {
        match rest.get(..UUID).filter(|id| is_uuid(id)) {
            Some(id) => {
                let next = known.len() + 1;
                let number = *known.entry(id.to_ascii_lowercase()).or_insert(next);
                out += &format!("00000000-0000-0000-0000-{number:012}");
                rest = &rest[UUID..];
            }
            None => {
                let length = rest.chars().next().map_or(1, char::len_utf8);
                out += &rest[..length];
                rest = &rest[length..];
            }
        }
    }
    out
}

fn is_uuid(text: &str) -> bool {
    text.bytes().enumerate().all(|(at, byte)| {
        if HYPHENS.contains(&at) { byte == b'-' } else { byte.is_ascii_hexdigit() }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn people_and_disks_lose_their_names_everywhere_alike() {
        let mut record = Record::default();
        let mut put = |path: &str, text: &str| {
            record.seen.insert(path.into(), Seen::File(text.as_bytes().to_vec()));
        };
        let disk = "0F3ab1c2-1111-2222-3333-444455556666";
        put("/etc/passwd", "root:x:0:\nanna:x:1000:\nnobody:x:65534:\nben.b:x:1001:\n");
        put("/etc/group", "audio:x:29:\nanna:x:1000:\n");
        put("/proc/cmdline", &format!("root=UUID={disk} é quiet"));
        put("/proc/7/mounts", &format!("/dev/sda /home/anna/annalen ext4 {disk}\n/ben.b /anna"));
        put("/proc/7/task/7/stat", "7 (anna) S");
        put("/sys/anna", "/home/anna");
        record.seen.insert("/proc/7/exe".into(), Seen::Link("/home/ben.b/bin/tool".into()));
        anonymous(&mut record);
        let text = |path: &str| match &record.seen[path] {
            Seen::File(content) => String::from_utf8_lossy(content).into_owned(),
            Seen::Link(target) => target.clone(),
            _ => String::new(),
        };
        let id = "00000000-0000-0000-0000-000000000001";
        assert_eq!(
            text("/etc/passwd"),
            "root:x:0:\nuser1:x:1000:\nnobody:x:65534:\nuser2:x:1001:\n"
        );
        assert_eq!(text("/etc/group"), "audio:x:29:\nuser1:x:1000:\n");
        assert_eq!(text("/proc/cmdline"), format!("root=UUID={id} é quiet"));
        let mounts = format!("/dev/sda /home/user1/annalen ext4 {id}\n/user2 /user1");
        assert_eq!(text("/proc/7/mounts"), mounts);
        // A thread's name stays, and so does what the kernel says of itself.
        assert_eq!(text("/proc/7/task/7/stat"), "7 (anna) S");
        assert_eq!(text("/sys/anna"), "/home/anna");
        assert_eq!(text("/proc/7/exe"), "/home/user2/bin/tool");
    }
}
