//! Whose files these are: root acts for the user who asked, and only with that user's rights.

use crate::Error;
use rustix::{
    process::{Gid, Uid, getegid, geteuid, getgroups},
    thread::{set_thread_groups, set_thread_res_gid, set_thread_res_uid},
};

/// A user for whom root keeps files.
///
/// A path of a user's may lead anywhere: through links that the user may place at any moment. So root
/// does not look at paths and give files away afterwards; it opens, makes and renames with the rights of
/// that user, and the kernel judges each step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StoreOwner {
    /// User id, not 0.
    pub uid: u32,
    /// Its group.
    pub gid: u32,
}

impl StoreOwner {
    /// Does `act` with the rights of this user, on this thread alone; the others stay root's.
    ///
    /// The real and the saved user stay root, so that the user cannot send signals to this process, and
    /// the way back is open.
    ///
    /// # Errors
    /// When this process may not become that user; then nothing was done.
    ///
    /// # Source
    /// credentials(7), setresuid(2): the kernel keeps credentials by thread, and its file checks go by the
    /// effective ids, which setresuid copies to those for files; capabilities go with them
    /// (capabilities(7), "Effect of user ID changes on capabilities").
    pub fn act<T>(self, act: impl FnOnce() -> T) -> Result<T, Error> {
        let cannot = |e: rustix::io::Errno| {
            Error::io("act for", std::path::Path::new(&format!("user {}", self.uid)), e.into())
        };
        let _acting = Acting::begin(self).map_err(cannot)?;
        Ok(act())
    }
}

/// As long as this lives the thread has the rights of somebody else.
struct Acting {
    uid: Uid,
    gid: Gid,
    /// Those of before, once they are exchanged.
    groups: Option<Vec<Gid>>,
}

impl Acting {
    fn begin(owner: StoreOwner) -> rustix::io::Result<Acting> {
        let groups = getgroups()?;
        let gid = Gid::from_raw(owner.gid);
        // From here on, dropping it takes the thread back.
        let mut acting = Acting { uid: geteuid(), gid: getegid(), groups: None };
        set_thread_groups(&[gid])?;
        acting.groups = Some(groups);
        set_thread_res_gid(None, gid, None)?;
        set_thread_res_uid(None, Uid::from_raw(owner.uid), None)?;
        Ok(acting)
    }
}

impl Drop for Acting {
    fn drop(&mut self) {
        let Some(groups) = &self.groups else { return };
        let back = set_thread_res_uid(None, self.uid, None)
            .and_then(|()| set_thread_res_gid(None, self.gid, None))
            .and_then(|()| set_thread_groups(groups));
        if back.is_err() {
            // A thread that is half somebody else must not go on; the kernel does not refuse this.
            std::process::abort();
        }
    }
}
