//! What a process may do, what it used, and how file systems are mounted.

use quiet_types::surroundings::Mount;
use std::collections::BTreeMap;

/// Linux's useradd allows 32 bytes for the name of a user.
const LONGEST_NAME: usize = 256;

/// `CAP_IPC_LOCK` of capabilities(7).
pub const CAP_IPC_LOCK: u32 = 14;
/// `CAP_SYS_NICE` of capabilities(7).
pub const CAP_SYS_NICE: u32 = 23;

/// Soft limits of `/proc/PID/limits`; `None` for unlimited or not told.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Limits {
    /// `RLIMIT_RTPRIO`.
    pub rtprio: Option<u64>,
    /// `RLIMIT_MEMLOCK`, bytes.
    pub memlock: Option<u64>,
    /// `RLIMIT_RTTIME`, us.
    pub rttime: Option<u64>,
}

/// Reads `/proc/PID/limits`.
pub fn limits(text: &str) -> Limits {
    let soft = |name: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix(name))?;
        line.split_whitespace().next()?.parse().ok()
    };
    Limits {
        rtprio: soft("Max realtime priority"),
        memlock: soft("Max locked memory"),
        rttime: soft("Max realtime timeout"),
    }
}

/// Who a process is, by `/proc/PID/status`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Credentials {
    /// Effective user.
    pub uid: u32,
    /// Effective and supplementary groups.
    pub groups: Vec<u32>,
    effective: u64,
}

impl Credentials {
    /// Whether it has a capability, by its number.
    pub fn has(&self, capability: u32) -> bool {
        self.effective.checked_shr(capability).is_some_and(|bits| bits & 1 == 1)
    }
}

/// Reads the lines `Uid`, `Gid`, `Groups` and `CapEff` of `/proc/PID/status`; `None` where there
/// is no user.
pub fn credentials(text: &str) -> Option<Credentials> {
    let line = |name: &str| {
        text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':').map(str::trim))
    };
    let second = |name: &str| line(name)?.split_whitespace().nth(1)?.parse().ok();
    let mut groups: Vec<u32> = second("Gid").into_iter().collect();
    let more = line("Groups").unwrap_or_default().split_whitespace();
    groups.extend(more.filter_map(|gid| gid.parse::<u32>().ok()));
    let effective = line("CapEff").and_then(|hex| u64::from_str_radix(hex, 16).ok()).unwrap_or(0);
    Some(Credentials { uid: second("Uid")?, groups, effective })
}

/// A value in KiB of `/proc/PID/status`: `VmLck: 0 kB`.
pub fn status_kib(text: &str, name: &str) -> Option<u64> {
    let rest = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
    rest.trim().strip_suffix("kB")?.trim().parse().ok()
}

/// How often a thread changed its CPU, by `/proc/PID/task/TID/sched`, which kernels with `CONFIG_SCHED_DEBUG` have.
pub fn migrations(text: &str) -> Option<u64> {
    let line = text.lines().find(|line| line.starts_with("se.nr_migrations"))?;
    line.rsplit(':').next()?.trim().parse().ok()
}

/// What a process used since its start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Used {
    /// Page faults that waited for a disk.
    pub major_faults: u64,
    /// CPU time of all its threads, in user space and in the kernel, ticks of 1/100 s.
    pub ticks: u64,
}

/// Reads fields 12, 14 and 15 of `/proc/PID/stat`; `None` where they are not there.
pub fn used(text: &str) -> Option<Used> {
    let fields: Vec<&str> = text[text.rfind(')')? + 1..].split_whitespace().collect();
    let field = |number: usize| fields.get(number - 3)?.parse::<u64>().ok();
    Some(Used { major_faults: field(12)?, ticks: field(14)?.checked_add(field(15)?)? })
}

/// Groups of `/etc/group` made for audio or real time: name and number.
pub fn audio_groups(text: &str) -> Vec<(String, u32)> {
    let known = ["audio", "realtime", "jackuser", "pipewire"];
    let group = |line: &str| {
        let mut fields = line.split(':');
        let name = fields.next().filter(|name| known.contains(name))?;
        Some((name.to_owned(), fields.nth(1)?.trim().parse().ok()?))
    };
    text.lines().filter_map(group).collect()
}

/// Users of `/etc/passwd` by name; of a name that stands there twice the first one counts, as for getpwnam(3). Lines that make no
/// sense are left out.
pub fn users(text: &str) -> BTreeMap<String, u32> {
    let mut found = BTreeMap::new();
    for line in text.lines() {
        let mut fields = line.split(':');
        let name = fields.next().filter(|name| !name.is_empty() && name.len() <= LONGEST_NAME);
        let uid = fields.nth(1).and_then(|uid| uid.parse::<u32>().ok());
        if let (Some(name), Some(uid)) = (name, uid) {
            found.entry(name.to_owned()).or_insert(uid);
        }
    }
    found
}

/// Reads `/proc/self/mounts`. Lines that make no sense are left out.
pub fn mounts(text: &str) -> Vec<Mount> {
    let mount = |line: &str| {
        let mut fields = line.split(' ').skip(1);
        let (path, kind, options) = (fields.next()?, fields.next()?, fields.next()?);
        Some(Mount {
            path: path.replace("\\040", " "),
            kind: kind.to_owned(),
            options: options.split(',').map(str::to_owned).collect(),
        })
    };
    text.lines().filter_map(mount).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const LIMITS: &str = "\
Limit                     Soft Limit           Hard Limit           Units
Max locked memory         8388608              8388608              bytes
Max realtime priority     95                   95
Max realtime timeout      unlimited            unlimited            us
";

    #[test]
    fn limits_are_read_and_unlimited_is_none() {
        let wanted = Limits { rtprio: Some(95), memlock: Some(8_388_608), rttime: None };
        assert_eq!(limits(LIMITS), wanted);
    }

    #[test]
    fn credentials_hold_the_effective_user_groups_and_capabilities() {
        let text = "Uid:\t1000\t1001\t1000\t1000\nGid:\t1000\t1000\t1000\t1000\n\
                    Groups:\t29 44 \nCapEff:\t0000000000804000\n";
        let who = credentials(text).unwrap();
        assert_eq!((who.uid, who.groups.as_slice()), (1001, &[1000, 29, 44][..]));
        assert!(who.has(CAP_SYS_NICE) && who.has(CAP_IPC_LOCK) && !who.has(0) && !who.has(200));
    }

    #[test]
    fn use_is_read_past_a_name_with_parentheses() {
        let text = "7 (a) (b) S 1 7 7 0 -1 4194304 102 5 3 4 200 50 0 0 20 0 1 0 216 0";
        assert_eq!(used(text), Some(Used { major_faults: 3, ticks: 250 }));
    }

    #[test]
    fn a_user_has_the_number_of_its_first_line() {
        let text = "root:x:0:0:root:/root:/bin/sh\nmpd:x:107:29::/var/lib/mpd:\nmpd:x:0:0:::\n+nis::\n:x:5:\na:b\n";
        let wanted = [("mpd".to_owned(), 107), ("root".to_owned(), 0)];
        assert_eq!(users(text), BTreeMap::from(wanted));
    }

    #[test]
    fn audio_groups_and_mounts_are_read() {
        let groups = "root:x:0:\naudio:x:29:pulse\nmyaudio:x:1001:\naudio:x:30:\n";
        assert_eq!(audio_groups(groups), [("audio".to_owned(), 29), ("audio".to_owned(), 30)]);
        let mounts = mounts("nas:/music /mnt/my\\040music nfs4 rw,noatime 0 0\nodd\n");
        assert_eq!(mounts[0].path, "/mnt/my music");
        assert_eq!((mounts.len(), mounts[0].options.len()), (1, 2));
    }

    proptest! {
        #[test]
        fn any_text_is_answered(text in "(?s).{0,80}") {
            limits(&text);
            credentials(&text);
            used(&text);
            audio_groups(&text);
            users(&text);
            mounts(&text);
            status_kib(&text, "VmLck");
        }
    }
}
