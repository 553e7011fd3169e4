//! Paths of cgroups, taken apart in one place.

use serde::{Deserialize, Serialize};
use std::{fmt, ops::Deref, str::FromStr};

/// The path of a cgroup, or of a file in one: from `/`, or from the mount point of its hierarchy.
///
/// It is kept, compared and written to the byte as it was read. Kernel files take it as the text that it is.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct GroupPath(String);

/// Why a text is no path of a cgroup.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NoGroupPath;

impl fmt::Display for NoGroupPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a cgroup's path begins with `/`, such as /sys/fs/cgroup/quietcores")
    }
}

impl std::error::Error for NoGroupPath {}

impl GroupPath {
    /// The root of a hierarchy, seen from its mount point.
    pub fn root() -> GroupPath {
        GroupPath("/".to_owned())
    }

    /// As text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Whether it is `/`.
    pub fn is_root(&self) -> bool {
        self.plain().is_empty()
    }

    /// Its last part; empty for the root.
    pub fn name(&self) -> &str {
        self.plain().rsplit('/').next().unwrap_or_default()
    }

    /// Its first part; empty for the root.
    pub fn top(&self) -> &str {
        self.parts().next().unwrap_or_default()
    }

    /// Its parts, outermost first.
    pub fn parts(&self) -> impl Iterator<Item = &str> {
        self.0.split('/').filter(|part| !part.is_empty())
    }

    /// The group that this one, or this file, is in; `None` above the root.
    pub fn parent(&self) -> Option<GroupPath> {
        let (above, _) = self.plain().rsplit_once('/')?;
        let above = above.trim_end_matches('/');
        Some(GroupPath(if above.is_empty() { "/" } else { above }.to_owned()))
    }

    /// Itself, the group that it is in, and so on up to the root.
    pub fn ancestors(&self) -> impl Iterator<Item = GroupPath> {
        std::iter::successors(Some(self.clone()), GroupPath::parent)
    }

    /// A group or a file in this group, or further below: `quietcores`, `/quietcores/chain`, `cgroup.procs`. For `/` the group itself.
    pub fn join(&self, below: &str) -> GroupPath {
        match below.trim_matches('/') {
            "" => self.clone(),
            below => GroupPath(format!("{}/{below}", self.plain())),
        }
    }

    /// Another file of the same group.
    pub fn beside(&self, name: &str) -> GroupPath {
        self.parent().unwrap_or_default().join(name)
    }

    /// What is left of it below `above`, without a `/` at its ends; `None` where it is not below, or the same.
    pub fn below(&self, above: &GroupPath) -> Option<&str> {
        let rest = self.plain().strip_prefix(above.plain())?.strip_prefix('/')?;
        Some(rest.trim_start_matches('/')).filter(|rest| !rest.is_empty())
    }

    /// Whether it is in the group `above`, however deep.
    pub fn is_below(&self, above: &GroupPath) -> bool {
        self.below(above).is_some()
    }

    /// Without a `/` at its end; empty for the root.
    fn plain(&self) -> &str {
        self.0.trim_end_matches('/')
    }
}

impl TryFrom<String> for GroupPath {
    type Error = NoGroupPath;

    fn try_from(path: String) -> Result<GroupPath, NoGroupPath> {
        // `..` leads out of a cgroup namespace, and captured trees hold names with any byte.
        let is_path = path.starts_with('/') && !path.contains('\0');
        if is_path { Ok(GroupPath(path)) } else { Err(NoGroupPath) }
    }
}

impl FromStr for GroupPath {
    type Err = NoGroupPath;

    fn from_str(path: &str) -> Result<GroupPath, NoGroupPath> {
        path.to_owned().try_into()
    }
}

impl From<GroupPath> for String {
    fn from(path: GroupPath) -> String {
        path.0
    }
}

impl Default for GroupPath {
    fn default() -> GroupPath {
        GroupPath::root()
    }
}

impl Deref for GroupPath {
    type Target = str;

    fn deref(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for GroupPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}

impl schemars::JsonSchema for GroupPath {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> std::borrow::Cow<'static, str> {
        "GroupPath".into()
    }

    fn json_schema(schemas: &mut schemars::SchemaGenerator) -> schemars::Schema {
        String::json_schema(schemas)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn path(text: &str) -> GroupPath {
        text.parse().unwrap()
    }

    #[test]
    fn a_path_is_taken_apart_and_put_together() {
        let mount = path("/sys/fs/cgroup");
        let chain = mount.join("quietcores/chain");
        let procs = chain.join("cgroup.procs");
        assert_eq!(procs.as_str(), "/sys/fs/cgroup/quietcores/chain/cgroup.procs");
        assert_eq!(procs.beside("cgroup.threads"), chain.join("/cgroup.threads"));
        assert_eq!((procs.parent(), procs.name()), (Some(chain.clone()), "cgroup.procs"));
        assert_eq!(chain.below(&mount), Some("quietcores/chain"));
        assert_eq!(mount.join("/"), mount);
        assert!(chain.is_below(&mount) && !mount.is_below(&chain) && !mount.is_below(&mount));
        assert!(!path("/sys/fs/cgroups/x").is_below(&mount), "a name that begins alike");
        let up: Vec<String> = path("/a/b").ancestors().map(String::from).collect();
        assert_eq!(up, ["/a/b", "/a", "/"]);
        assert_eq!(path("/quietcores.slice/x").top(), "quietcores.slice");
    }

    #[test]
    fn the_root_has_no_name_and_nothing_above() {
        let root = GroupPath::root();
        assert_eq!((root.name(), root.top(), root.parent()), ("", "", None));
        assert_eq!(root.join("tasks").as_str(), "/tasks");
        assert_eq!(path("/tasks").parent(), Some(root.clone()));
        assert_eq!(path("/a").below(&root), Some("a"));
        assert_eq!(root.beside("tasks").as_str(), "/tasks");
    }

    #[test]
    fn what_is_no_path_is_refused() {
        for text in ["", "quietcores", "quietcores/a", "/a\0"] {
            assert_eq!(text.parse::<GroupPath>(), Err(NoGroupPath), "{text:?}");
            let json = serde_json::to_string(text).unwrap();
            let error = serde_json::from_str::<GroupPath>(&json).unwrap_err().to_string();
            assert!(error.contains("/sys/fs/cgroup/quietcores"), "{error}");
        }
    }

    proptest! {
        #[test]
        fn any_path_comes_back_to_the_byte(text in "/[a-z/. \né\\\\]{0,20}") {
            let json = serde_json::to_string(&text).unwrap();
            let read: GroupPath = serde_json::from_str(&json).unwrap();
            prop_assert_eq!(serde_json::to_string(&read).unwrap(), json);
            prop_assert_eq!(read.as_str(), text);
        }

        #[test]
        fn what_was_joined_is_below_and_comes_apart(
            above in "(/[a-z]{1,3}){0,3}",
            below in "[a-z]{1,3}(/[a-z]{1,3}){0,3}",
        ) {
            let above = if above.is_empty() { GroupPath::root() } else { path(&above) };
            let joined = above.join(&below);
            prop_assert_eq!(joined.below(&above), Some(&*below));
            prop_assert_eq!(joined.ancestors().nth(below.split('/').count()), Some(above));
            prop_assert_eq!(joined.parent().unwrap().join(joined.name()), joined.clone());
        }
    }
}
