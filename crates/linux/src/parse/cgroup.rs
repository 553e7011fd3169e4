//! Where cgroups are mounted, and in which a task is.

use quiet_types::GroupPath;

/// A mounted cgroup hierarchy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CgroupMount {
    /// Where it is mounted.
    pub at: GroupPath,
    /// Which cgroup of the hierarchy stands at the mount point: `/` but in containers.
    pub root: GroupPath,
    /// Controllers of a v1 hierarchy; `None` for v2.
    pub v1: Option<Vec<String>>,
}

/// The lines of `/proc/self/mountinfo` that are cgroup hierarchies, and no others: the rest tells
/// what else the machine mounts and is nobody's business.
pub fn only_cgroup_mounts(text: &str) -> String {
    text.lines().filter(|line| mount(line).is_some()).map(|line| format!("{line}\n")).collect()
}

/// The cgroup hierarchies in `/proc/self/mountinfo`, in the order of mounting. Lines of other
/// kinds are passed over.
///
/// # Source
/// proc_pid_mountinfo(5)
pub fn cgroup_mounts(text: &str) -> Vec<CgroupMount> {
    text.lines().filter_map(mount).collect()
}

fn mount(line: &str) -> Option<CgroupMount> {
    let (place, kind) = line.split_once(" - ")?;
    let mut place = place.split(' ').skip(3);
    let mut path = || unescaped(place.next()?).parse().ok();
    let (root, at) = (path()?, path()?);
    let mut kind = kind.split(' ');
    let v1 = match kind.next()? {
        "cgroup2" => None,
        "cgroup" => {
            let options = kind.nth(1)?.split(',').filter(|word| !matches!(*word, "rw" | "ro"));
            Some(options.map(str::to_owned).collect())
        }
        _ => return None,
    };
    Some(CgroupMount { at, root, v1 })
}

/// Blanks, tabs, line ends and backslashes stand as `\040`, `\011`, `\012`, `\134`.
fn unescaped(text: &str) -> String {
    let mut plain = String::new();
    let mut rest = text;
    while let Some(at) = rest.find('\\') {
        plain.push_str(&rest[..at]);
        let code = rest.get(at + 1..at + 4).and_then(|octal| u8::from_str_radix(octal, 8).ok());
        match code.filter(u8::is_ascii) {
            Some(byte) => {
                plain.push(byte.into());
                rest = &rest[at + 4..];
            }
            None => {
                plain.push('\\');
                rest = &rest[at + 1..];
            }
        }
    }
    plain + rest
}

/// The cgroup that governs a task's CPUs, from its `/proc/PID/cgroup`: that of the v1 hierarchy
/// with the controller cpuset, else that of v2.
///
/// # Source
/// `/proc/PID/cgroup` in cgroups(7)
pub fn task_cgroup(text: &str) -> Option<GroupPath> {
    v1_group(text, "cpuset").or_else(|| v2_group(text))
}

/// The group of the hierarchy in which systemd keeps its units: its own v1 hierarchy where there is one, else that of v2.
pub fn task_unit_group(text: &str) -> Option<GroupPath> {
    v1_group(text, "name=systemd").or_else(|| v2_group(text))
}

/// The task's group in the v1 hierarchy that has this controller, where there is one.
pub fn v1_group(text: &str, controller: &str) -> Option<GroupPath> {
    group(text, |_, controllers| controllers.split(',').any(|name| name == controller))
}

/// The task's group in the v2 hierarchy.
pub fn v2_group(text: &str) -> Option<GroupPath> {
    group(text, |id, controllers| id == "0" && controllers.is_empty())
}

fn group(text: &str, wanted: impl Fn(&str, &str) -> bool) -> Option<GroupPath> {
    text.lines().find_map(|line| {
        let mut parts = line.splitn(3, ':');
        let (id, controllers, path) = (parts.next()?, parts.next()?, parts.next()?);
        if wanted(id, controllers) { path.parse().ok() } else { None }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const HYBRID: &str = "23 28 0:21 / /sys rw,relatime - sysfs sysfs rw\n\
        34 31 0:31 / /sys/fs/cgroup/cpu\\040set rw,relatime shared:3 - cgroup cgroup rw,cpuset\n\
        40 31 0:37 / /sys/fs/cgroup/systemd rw - cgroup cgroup rw,name=systemd\n\
        41 31 0:38 /box /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw\n\
        99 31 0:99 / /secret/share rw - cifs //server/x rw,username=u\n";

    #[test]
    fn mounts_of_both_versions_are_found() {
        let mounts = cgroup_mounts(HYBRID);
        assert_eq!(mounts.len(), 3);
        assert_eq!(mounts[0].at.as_str(), "/sys/fs/cgroup/cpu set");
        assert_eq!(mounts[0].v1.as_deref(), Some(&["cpuset".to_owned()][..]));
        assert_eq!((mounts[2].root.as_str(), &mounts[2].v1), ("/box", &None));
        let kept = only_cgroup_mounts(HYBRID);
        assert_eq!(cgroup_mounts(&kept), mounts);
        assert!(!kept.contains("secret") && !kept.contains("sysfs"));
    }

    #[test]
    fn the_cpuset_hierarchy_wins_over_v2() {
        let is = |found: Option<GroupPath>, path: &str| {
            assert_eq!(found.as_deref(), Some(path));
        };
        is(task_cgroup("8:pids:/p\n3:cpu,cpuset:/audio\n0::/user"), "/audio");
        is(task_cgroup("1:name=systemd:/x\n0::/user:a\n"), "/user:a");
        assert_eq!(task_cgroup("nonsense\n"), None);
        let hybrid = "3:cpuset:/quietcores\n1:name=systemd:/system.slice/mpd.service\n0::/x\n";
        is(task_unit_group(hybrid), "/system.slice/mpd.service");
        is(task_unit_group("0::/system.slice/a.service\n"), "/system.slice/a.service");
        assert_eq!(task_unit_group("3:cpuset:/quietcores\n"), None);
        is(v1_group("4:cpuset:/c\n3:cpuacct,cpu:/audio\n0::/x\n", "cpu"), "/audio");
        assert_eq!(v1_group("4:cpuset:/c\n0::/user\n", "cpu"), None);
    }

    proptest! {
        #[test]
        fn any_text_is_answered(text in "([0-9: /a-z\\\\-]{0,30} - cgroup2? .{0,9}\n){0,3}.{0,30}") {
            let _ = task_cgroup(&text);
            prop_assert_eq!(cgroup_mounts(&only_cgroup_mounts(&text)), cgroup_mounts(&text));
        }
    }
}
