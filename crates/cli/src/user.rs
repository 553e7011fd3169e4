//! For whom root runs the program: results belong to the user who asked, not to root.

use quiet_store::StoreOwner;
use rustix::{
    fs::{Access, AtFlags, CWD, accessat},
    process::{geteuid, getuid},
};
use std::{
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
};

/// The user who called `sudo`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct User {
    /// With whose rights root keeps files.
    pub owner: StoreOwner,
    /// The home directory in the system's list of users.
    pub home: PathBuf,
}

/// The user who asked root through sudo, where this is root and there is such a user.
///
/// # Source
/// sudo(8), "ENVIRONMENT": `SUDO_UID`, `SUDO_GID`.
pub fn asking() -> Option<User> {
    // Who is not root has nothing to give away, whatever the environment holds.
    if !(geteuid().is_root() && getuid().is_root()) {
        return None;
    }
    let number = |name| std::env::var(name).ok()?.parse::<u32>().ok();
    let users = std::fs::read_to_string("/etc/passwd").unwrap_or_default();
    let home = std::env::var_os("SUDO_HOME").map(PathBuf::from);
    found(&users, number("SUDO_UID")?, number("SUDO_GID")?, home)
}

/// The user with these numbers: in the list, or, where the list is elsewhere (LDAP), with the home that
/// sudo names.
fn found(users: &str, uid: u32, gid: u32, named: Option<PathBuf>) -> Option<User> {
    // All ones: "leave as it is" for the kernel.
    if uid == 0 || [uid, gid].contains(&u32::MAX) {
        return None;
    }
    let home = home_of(users, uid).or(named).filter(|home| home.is_absolute())?;
    Some(User { owner: StoreOwner { uid, gid }, home })
}

/// A line is `name:password:uid:gid:comment:home:shell`, passwd(5).
fn home_of(users: &str, uid: u32) -> Option<PathBuf> {
    users.lines().find_map(|line| {
        let mut fields = line.split(':').skip(2);
        (fields.next()?.parse() == Ok(uid)).then(|| fields.nth(2).map(PathBuf::from))?
    })
}

/// The folder in which the program keeps this user's own: dropped sounds, presets. `$XDG_STATE_HOME/quietcores`, else
/// `~/.local/state/quietcores`; of whoever this process is now, whatever another user's environment says. It may not be there yet.
///
/// # Source
/// XDG Base Directory Specification 0.8.
pub fn state_dir() -> Option<PathBuf> {
    let me = geteuid().as_raw();
    let own = |dir: &PathBuf| {
        // Of a folder that is not there yet, the nearest one that is.
        let there = dir.ancestors().find_map(|dir| dir.metadata().ok());
        dir.is_absolute() && there.is_some_and(|about| about.uid() == me)
    };
    let told = |name| std::env::var_os(name).map(PathBuf::from).filter(own);
    let home = || {
        let users = std::fs::read_to_string("/etc/passwd").unwrap_or_default();
        told("HOME").or_else(|| home_of(&users, me).filter(own))
    };
    let state = told("XDG_STATE_HOME").or_else(|| Some(home()?.join(".local/state")))?;
    Some(state.join("quietcores"))
}

/// Where sounds lie that were dropped onto a page.
pub fn sounds_dir() -> Option<PathBuf> {
    Some(state_dir()?.join("sounds"))
}

/// Root's own home directory.
pub fn roots_home() -> PathBuf {
    let users = std::fs::read_to_string("/etc/passwd").unwrap_or_default();
    home_of(&users, 0).unwrap_or_else(|| PathBuf::from("/root"))
}

/// With whose rights root writes to `path`: with the user's wherever something on the way is the user's,
/// a link for instance, or the user may write there; elsewhere with its own.
pub fn owner(path: &Path) -> Option<StoreOwner> {
    let owner = asking()?.owner;
    let path = std::path::absolute(path).ok()?;
    let theirs = path
        .ancestors()
        .any(|part| part.symlink_metadata().is_ok_and(|meta| meta.uid() == owner.uid));
    (theirs || may_write(owner, &path)).then_some(owner)
}

/// Whether the user may make a file in the nearest directory that is there.
fn may_write(owner: StoreOwner, path: &Path) -> bool {
    let there = |part: &&Path| part.symlink_metadata().is_ok();
    let Some(dir) = path.ancestors().skip(1).find(there) else { return false };
    let how = Access::WRITE_OK | Access::EXEC_OK;
    owner.act(|| accessat(CWD, dir, how, AtFlags::EACCESS)).is_ok_and(|done| done.is_ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_user_of_the_system_is_acted_for() {
        let users = "root:x:0:0:root:/root:/bin/bash\nann:x:1000:1000:Ann,,,:/home/ann:/bin/sh\n\
                     torn:x:1001\nrel:x:1002:1002::tmp:/bin/sh\n";
        let ann = User { owner: StoreOwner { uid: 1000, gid: 100 }, home: "/home/ann".into() };
        assert_eq!(found(users, 1000, 100, None), Some(ann));
        for (uid, gid) in
            [(0, 0), (1001, 1001), (1002, 1002), (77, 77), (u32::MAX, 0), (1000, u32::MAX)]
        {
            assert_eq!(found(users, uid, gid, None), None, "{uid} {gid}");
        }
        let far = found(users, 77, 77, Some("/net/home/x".into())).unwrap();
        assert_eq!(far.home, Path::new("/net/home/x"));
    }
}
