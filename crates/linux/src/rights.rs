//! Giving rights up: after the CPU, the priority and the memory are had, what plays needs none of root's.

use crate::{Error, ErrorKind, Result, Root};
use rustix::{
    process::{Gid, Resource, Rlimit, Uid},
    thread::{self, CapabilitySet, CapabilitySets},
};
use std::{io, os::unix::fs::MetadataExt, path::Path};

/// As whom to go on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunAs {
    /// His number.
    pub uid: u32,
    /// His own group.
    pub gid: u32,
    /// The other groups to be in.
    pub groups: Vec<u32>,
    /// His name, or his number.
    pub name: String,
}

/// What is given up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Less {
    /// Every capability (but that to lock memory, where its limit cannot be lifted); the user stays.
    Capabilities,
    /// The user as well.
    User(RunAs),
}

/// Takes from this process, and from all that it starts, the way to more rights than it has: a set-user-ID file gives it none
/// any more. To be called before there are threads; each has its own word of it, and inherits it.
///
/// # Errors
/// As the kernel says.
///
/// # Source
/// `PR_SET_NO_NEW_PRIVS` in prctl(2).
pub fn no_new() -> io::Result<()> {
    Ok(thread::set_no_new_privs(true)?)
}

/// The user called `name`, or with that number, by the machine's own files; in the groups of sound cards, too.
///
/// # Errors
/// [`ErrorKind::Absent`] where there is no such user.
pub fn user(root: &Root, name: &str) -> Result<RunAs> {
    let passwd = root.read_if_there("/etc/passwd").ok().flatten().unwrap_or_default();
    let group = root.read_if_there("/etc/group").ok().flatten().unwrap_or_default();
    let mut user = find(&passwd, &group, name)?;
    user.groups.extend(sound_groups(Path::new("/dev/snd")));
    user.groups.sort_unstable();
    user.groups.dedup();
    Ok(user)
}

/// Whether a process of user `uid`, in the groups `groups` where they are known, is in the group called `name`; where they are
/// not known, by the machine's own files.
pub fn in_group(root: &Root, uid: u32, groups: Option<&[u32]>, name: &str) -> bool {
    let passwd = root.read_if_there("/etc/passwd").ok().flatten().unwrap_or_default();
    let group = root.read_if_there("/etc/group").ok().flatten().unwrap_or_default();
    let own;
    let groups = match groups {
        Some(groups) => groups,
        None => {
            own = find(&passwd, &group, &uid.to_string()).map_or_else(|_| Vec::new(), |u| u.groups);
            &own
        }
    };
    group_of(&group, name).is_some_and(|gid| groups.contains(&gid))
}

/// Pure: the number of a group, from the text of /etc/group.
fn group_of(group: &str, name: &str) -> Option<u32> {
    group.lines().find_map(|line| {
        let mut fields = line.split(':');
        (fields.next()? == name).then(|| fields.nth(1)?.parse().ok())?
    })
}

/// Pure: from the texts of /etc/passwd and /etc/group.
fn find(passwd: &str, group: &str, name: &str) -> Result<RunAs> {
    let number: Option<u32> = name.parse().ok();
    let entry = passwd.lines().find_map(|line| {
        let mut fields = line.split(':');
        let (own, _, uid, gid) = (fields.next()?, fields.next()?, fields.next()?, fields.next()?);
        let (uid, gid): (u32, u32) = (uid.parse().ok()?, gid.parse().ok()?);
        (own == name || number == Some(uid)).then(|| (own.to_owned(), uid, gid))
    });
    let (name, uid, gid) = match (entry, number) {
        (Some(entry), _) => entry,
        // A number needs no name: directories of users that are elsewhere are not asked.
        (None, Some(uid)) if uid != u32::MAX => (name.to_owned(), uid, uid),
        _ => {
            let name = quiet_types::printable(name, 60);
            return Err(Error::because(
                ErrorKind::Absent,
                "find",
                format!("the user `{name}`"),
                "no such name in /etc/passwd; give a name or a number of there",
            ));
        }
    };
    let groups = group.lines().filter_map(|line| {
        let mut fields = line.split(':');
        let (gid, members) = (fields.nth(2)?, fields.next()?);
        members.split(',').any(|member| member == name).then(|| gid.parse().ok())?
    });
    let groups = groups.chain([gid]).collect();
    Ok(RunAs { uid, gid, groups, name })
}

/// The groups to which sound cards belong: a card that is put in again is opened as that user.
fn sound_groups(dir: &Path) -> Vec<u32> {
    let entries = std::fs::read_dir(dir).into_iter().flatten().flatten();
    entries.filter_map(|entry| Some(entry.metadata().ok()?.gid())).filter(|gid| *gid != 0).collect()
}

impl Less {
    /// Gives it up in the calling thread, and reads back that it is gone. Threads made later have as little.
    ///
    /// # Errors
    /// What of it could not be given up: the kernel refused it, or it is not gone ([`ErrorKind::Unsafe`]). The thread may then have
    /// lost a part.
    pub fn give_up(&self) -> Result<()> {
        self.give_up_but(CapabilitySet::empty())
    }

    /// The same, and `CAP_SYS_NICE` stays with the calling thread.
    ///
    /// # Errors
    /// As [`Less::give_up`].
    pub fn give_up_but_nice(&self) -> Result<()> {
        self.give_up_but(CapabilitySet::SYS_NICE)
    }

    fn give_up_but(&self, more: CapabilitySet) -> Result<()> {
        let cannot =
            |what: &str, e: rustix::io::Errno| Error::io("give up", what, io::Error::from(e));
        let had = thread::capabilities(None).map_err(|e| cannot("capabilities", e))?.permitted;
        let kept = self.kept().map_err(|e| cannot("capabilities", e))? | had & more;
        thread::set_keep_capabilities(!kept.is_empty()).map_err(|e| cannot("capabilities", e))?;
        if let Less::User(user) = self {
            let groups: Vec<Gid> = user.groups.iter().map(|gid| Gid::from_raw(*gid)).collect();
            let (uid, gid) = (Uid::from_raw(user.uid), Gid::from_raw(user.gid));
            thread::set_thread_groups(&groups).map_err(|e| cannot("root's groups", e))?;
            thread::set_thread_res_gid(gid, gid, gid).map_err(|e| cannot("root's group", e))?;
            thread::set_thread_res_uid(uid, uid, uid).map_err(|e| cannot("root's user", e))?;
        }
        let _ = thread::clear_ambient_capability_set();
        let inheritable = CapabilitySet::empty();
        let left = CapabilitySets { effective: kept, permitted: kept, inheritable };
        thread::set_capabilities(None, left).map_err(|e| cannot("capabilities", e))?;
        self.given_up(kept)
    }

    /// What has to stay. Memory that is locked, and all that is allocated later is, counts against a limit for whoever may not
    /// lock as he likes: where that limit cannot be taken away, the one capability that lifts it stays, or the next strip
    /// would find no room and end the program.
    fn kept(&self) -> rustix::io::Result<CapabilitySet> {
        let endless = Rlimit { current: None, maximum: None };
        let lifted = rustix::process::setrlimit(Resource::Memlock, endless).is_ok();
        if lifted || rustix::process::getrlimit(Resource::Memlock).current.is_none() {
            return Ok(CapabilitySet::empty());
        }
        Ok(thread::capabilities(None)?.permitted & CapabilitySet::IPC_LOCK)
    }

    fn given_up(&self, kept: CapabilitySet) -> Result<()> {
        let still =
            |what: &str, why: String| Err(Error::because(ErrorKind::Unsafe, "give up", what, why));
        let left = thread::capabilities(None)
            .map_err(|e| Error::io("read back", "which rights are left", e.into()))?;
        if !kept.contains(left.effective | left.permitted) {
            return still("capabilities", format!("these are left: {:?}", left.permitted));
        }
        if let Less::User(user) = self
            && (rustix::process::geteuid().as_raw() != user.uid
                || user.uid != 0 && thread::set_thread_uid(Uid::ROOT).is_ok())
        {
            let why = format!("the way back to it is open from the user {}", user.name);
            return still("root's user", why);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PASSWD: &str =
        "root:x:0:0:root:/root:/bin/sh\nanna:x:1000:1001::/home/anna:/bin/sh\nbroken\n";
    const GROUP: &str = "root:x:0:\naudio:x:29:bob,anna\nvideo:x:44:anna2\nanna:x:1001:\n";

    #[test]
    fn a_user_is_found_by_name_and_by_number_with_his_groups() {
        let anna = find(PASSWD, GROUP, "anna").unwrap();
        assert_eq!((anna.uid, anna.gid, &anna.groups[..]), (1000, 1001, &[29, 1001][..]));
        assert_eq!(find(PASSWD, GROUP, "1000").unwrap(), anna);
        let far = find(PASSWD, GROUP, "70000").unwrap();
        assert_eq!((far.uid, far.gid, far.groups), (70_000, 70_000, vec![70_000]));
        assert!(find(PASSWD, GROUP, "4294967295").is_err(), "it means `as it is`");
        assert_eq!(find(PASSWD, GROUP, "nobody-of-here").unwrap_err().kind(), ErrorKind::Absent);
        assert!(
            find(PASSWD, GROUP, "nobody-of-here").unwrap_err().to_string().contains("/etc/passwd")
        );
    }

    #[test]
    fn what_is_given_up_is_gone_for_this_thread_and_those_it_makes() {
        if !quiet_testing::is_root() {
            return quiet_testing::skip(quiet_testing::Why::Root);
        }
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::set_permissions(file.path(), std::os::unix::fs::PermissionsExt::from_mode(0o000))
            .unwrap();
        let reads = || std::fs::read(file.path()).is_ok();
        std::thread::scope(|scope| {
            let without = scope.spawn(|| {
                Less::Capabilities.give_up().unwrap();
                // Root's own file of mode 0: only a capability opens it.
                (reads(), scope.spawn(reads).join().unwrap(), rustix::process::geteuid().is_root())
            });
            assert_eq!(without.join().unwrap(), (false, false, true));
            let other = scope.spawn(|| {
                let groups = vec![65_534];
                let user = RunAs { uid: 65_534, gid: 65_534, groups, name: "nobody".to_owned() };
                Less::User(user).give_up().unwrap();
                let back = thread::set_thread_uid(Uid::ROOT).is_ok();
                (reads(), back, rustix::process::geteuid().as_raw())
            });
            assert_eq!(other.join().unwrap(), (false, false, 65_534));
        });
        assert!(reads(), "the other threads keep theirs");
    }
}
