//! Reads through a [`Root`], keeps a note of what could not be read, and, for a capture, of all
//! that was seen.

use crate::{
    Error, Result, Root,
    parse::{self, Wrong},
};
use quiet_types::{CpuSet, Finding, Severity, printable};
use rustix::fs::{FileType, Mode};
use std::{
    cell::RefCell,
    collections::{BTreeMap, BTreeSet},
    io,
    str::FromStr,
};

/// Where a captured tree keeps what files cannot say: refusals and write permissions.
pub(crate) const NOTES: &str = "/CAPTURE";

/// Findings beyond this number are counted, not listed.
const MOST_FINDINGS: usize = 100;

/// What was seen at a path that holds no link.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Seen {
    Directory,
    /// A file that was not read.
    Unread,
    File(Vec<u8>),
    Link(String),
}

/// All that a snapshot saw.
#[derive(Debug, Default)]
pub(crate) struct Record {
    pub(crate) seen: BTreeMap<String, Seen>,
    pub(crate) notes: Notes,
}

/// What a tree of plain files cannot hold, by the path that was asked for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Notes {
    /// Files that answered with this error number.
    pub(crate) refused: BTreeMap<String, i32>,
    /// Files that nobody may write.
    pub(crate) read_only: BTreeSet<String>,
}

/// The one way in which a snapshot reads. With a record, whatever was seen once is seen so
/// again, and [`crate::capture`] writes it down: so a captured tree reads back identically.
pub(crate) struct Reader<'r> {
    root: &'r Root,
    /// What the tree itself says of its files.
    told: Notes,
    record: Option<RefCell<Record>>,
    unread: RefCell<Vec<Finding>>,
    hushed: bool,
}

impl<'r> Reader<'r> {
    /// Leaves out what interrupts other CPUs when it is read.
    pub(crate) fn hushed(mut self) -> Reader<'r> {
        self.hushed = true;
        self
    }

    /// Whether that is left out.
    pub(crate) fn is_hushed(&self) -> bool {
        self.hushed
    }

    pub(crate) fn new(root: &'r Root) -> Result<Reader<'r>> {
        let told = match root.is_captured().then(|| root.read_bytes(NOTES)) {
            Some(Ok(bytes)) => Notes::parse(&String::from_utf8_lossy(&bytes))
                .map_err(|w| Error::nonsense(root.shown(NOTES), Some(w.line), w.why))?,
            _ => Notes::default(),
        };
        Ok(Reader { root, told, record: None, unread: RefCell::default(), hushed: false })
    }

    /// One that remembers all that it sees.
    pub(crate) fn recording(root: &'r Root) -> Result<Reader<'r>> {
        let reader = Reader::new(root)?;
        let record = Record { notes: reader.told.clone(), ..Record::default() };
        Ok(Reader { record: Some(RefCell::new(record)), ..reader })
    }

    pub(crate) fn is_captured(&self) -> bool {
        self.root.is_captured()
    }

    /// What could not be read, and what was seen.
    pub(crate) fn finish(self) -> (Vec<Finding>, Record) {
        let mut unread = self.unread.into_inner();
        let more = unread.len().saturating_sub(MOST_FINDINGS);
        if more > 0 {
            unread.truncate(MOST_FINDINGS);
            unread.push(finding(format!("{more} more files could not be read or understood")));
        }
        (unread, self.record.map(RefCell::into_inner).unwrap_or_default())
    }

    /// Notes that `path` makes no sense.
    pub(crate) fn complain(&self, path: &str, wrong: &Wrong) {
        let error = Error::nonsense(path, Some(wrong.line), wrong.why.clone());
        self.unread.borrow_mut().push(finding(error.to_string()));
    }

    /// The trimmed text of a file; `None` where it is absent, or the kernel says that it does not
    /// apply to this device. A refusal is noted.
    pub(crate) fn text(&self, path: &str) -> Option<String> {
        self.whole_text(path).map(|text| text.trim().to_owned())
    }

    /// As [`Reader::text`], untrimmed.
    pub(crate) fn whole_text(&self, path: &str) -> Option<String> {
        self.bytes_through(path, |bytes| bytes)
            .map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
    }

    /// The bytes of a file after `change`. What `change` takes out is in no record.
    pub(crate) fn bytes_through(
        &self,
        path: &str,
        change: impl Fn(Vec<u8>) -> Vec<u8>,
    ) -> Option<Vec<u8>> {
        match self.bytes(path, change) {
            Ok(bytes) => Some(bytes),
            Err(error) => {
                if !does_not_apply(&error) {
                    let error = Error::io("read", path, error);
                    self.unread.borrow_mut().push(finding(error.to_string()));
                }
                None
            }
        }
    }

    /// The trimmed text of a file that most users may not read: a refusal is not noted.
    pub(crate) fn text_if_allowed(&self, path: &str) -> Option<String> {
        let bytes = self.bytes(path, |bytes| bytes).ok()?;
        Some(String::from_utf8_lossy(&bytes).trim().to_owned())
    }

    /// The bytes after `change` of a file that most users may not read: a refusal is not noted.
    pub(crate) fn bytes_if_allowed(
        &self,
        path: &str,
        change: impl Fn(Vec<u8>) -> Vec<u8>,
    ) -> Option<Vec<u8>> {
        self.bytes(path, change).ok()
    }

    /// What `read` makes of a device file, which has no size. A captured tree holds just that, as
    /// a plain file.
    pub(crate) fn device(
        &self,
        path: &str,
        read: impl Fn(&str) -> io::Result<Vec<u8>>,
    ) -> io::Result<Vec<u8>> {
        if self.root.is_captured() {
            return self.bytes(path, |bytes| bytes);
        }
        let answer = read(path);
        if let (Some(record), Some(real)) = (&self.record, self.resolve(path)) {
            match &answer {
                Ok(bytes) => {
                    record.borrow_mut().seen.insert(real, Seen::File(bytes.clone()));
                }
                Err(error) => match error.raw_os_error().filter(|_| !does_not_apply(error)) {
                    Some(errno) => self.note_refusal(path, errno),
                    None => {
                        record.borrow_mut().seen.remove(&real);
                    }
                },
            }
        }
        answer
    }

    /// A file with one number.
    pub(crate) fn number<T: FromStr>(&self, path: &str) -> Option<T> {
        let text = self.text(path)?;
        let number = text.parse().ok();
        if number.is_none() {
            let why = format!("`{}` is not a number that is possible here", printable(&text, 40));
            self.complain(path, &Wrong { line: 1, why });
        }
        number
    }

    /// A file with a CPU list.
    pub(crate) fn cpus(&self, path: &str) -> Option<CpuSet> {
        self.set(path, str::parse)
    }

    /// A file with a CPU mask.
    pub(crate) fn mask(&self, path: &str) -> Option<CpuSet> {
        self.set(path, CpuSet::from_mask)
    }

    fn set<E: std::fmt::Display>(
        &self,
        path: &str,
        read: fn(&str) -> std::result::Result<CpuSet, E>,
    ) -> Option<CpuSet> {
        // `(null)` is how kernels print a mask that they do not have.
        let text = self.text(path).filter(|text| text != "(null)")?;
        parse::cpus(&text, 1, read).map_err(|wrong| self.complain(path, &wrong)).ok()
    }

    /// The numbers N of the entries `prefixN` of a directory, rising; empty where it is absent.
    pub(crate) fn numbered(&self, path: &str, prefix: &str) -> Vec<u32> {
        let number = |name: &str| -> Option<u32> {
            let digits = name.strip_prefix(prefix)?;
            let plain = digits.bytes().all(|b| b.is_ascii_digit())
                && (digits.len() == 1 || !digits.starts_with('0'));
            plain.then(|| digits.parse().ok())?
        };
        let names = self.names(path, |name| number(name).is_some());
        let mut numbers: Vec<u32> = names.iter().filter_map(|name| number(name)).collect();
        numbers.sort_unstable();
        numbers
    }

    /// The names in a directory that `keep` wants, sorted; empty where it is absent. Names that
    /// are not kept are in no record.
    pub(crate) fn names(&self, path: &str, keep: impl Fn(&str) -> bool) -> Vec<String> {
        match self.list(path) {
            Ok(mut names) => {
                names.retain(|name| keep(name));
                for name in &names {
                    self.note_entry(&format!("{path}/{name}"));
                }
                names
            }
            Err(error) => {
                // The reader names the file as the machine does: a captured tree must say the same.
                let error = Error::io("list", path, error);
                self.unread.borrow_mut().push(finding(error.to_string()));
                Vec::new()
            }
        }
    }

    fn list(&self, path: &str) -> io::Result<Vec<String>> {
        if let Some(errno) = self.told.refused.get(path) {
            return Err(io::Error::from_raw_os_error(*errno));
        }
        match self.root.list(path) {
            Ok(names) => {
                self.resolve(path);
                Ok(names)
            }
            Err(error) => {
                let errno = error.errno().unwrap_or(libc::EIO);
                let error = io::Error::from_raw_os_error(errno);
                if does_not_apply(&error) {
                    return Ok(Vec::new());
                }
                self.note_refusal(path, errno);
                Err(error)
            }
        }
    }

    /// Whether something is there.
    pub(crate) fn exists(&self, path: &str) -> bool {
        if self.record.is_some() { self.resolve(path).is_some() } else { self.root.exists(path) }
    }

    /// The path with every link resolved.
    pub(crate) fn real_path(&self, path: &str) -> Option<String> {
        if self.record.is_some() { self.resolve(path) } else { self.root.real_path(path) }
    }

    /// The last part of what the link at `path` points to: the driver of a device.
    pub(crate) fn link_name(&self, path: &str) -> Option<String> {
        let target = self.link(path)?;
        target.rsplit('/').next().filter(|last| !last.is_empty()).map(str::to_owned)
    }

    /// What the link at `path` points to.
    pub(crate) fn link(&self, path: &str) -> Option<String> {
        let (parent, name) = path.rsplit_once('/')?;
        if self.record.is_some() {
            let parent = self.resolve(parent)?;
            // As it was when it was first seen.
            return match self.note_entry(&format!("{parent}/{name}"))? {
                Seen::Link(target) => Some(target),
                _ => None,
            };
        }
        self.root.link(path)
    }

    /// Whether the file is there and nobody may write it.
    pub(crate) fn is_read_only(&self, path: &str) -> bool {
        if self.root.is_captured() {
            return self.told.read_only.contains(path);
        }
        let nobody = |(_, mode): (FileType, Mode)| !mode.intersects(Mode::WUSR | Mode::WGRP);
        let read_only = self.root.mode(path).is_some_and(nobody);
        if let Some(record) = self.record.as_ref().filter(|_| read_only) {
            record.borrow_mut().notes.read_only.insert(path.to_owned());
        }
        read_only
    }

    fn bytes(&self, path: &str, change: impl Fn(Vec<u8>) -> Vec<u8>) -> io::Result<Vec<u8>> {
        if let Some(errno) = self.told.refused.get(path) {
            return Err(io::Error::from_raw_os_error(*errno));
        }
        let Some(record) = &self.record else {
            return self.root.read_bytes(path).map(change);
        };
        let real = self.resolve(path).ok_or(io::ErrorKind::NotFound)?;
        if let Some(Seen::File(bytes)) = record.borrow().seen.get(&real) {
            return Ok(bytes.clone());
        }
        match self.root.read_bytes(path).map(change) {
            Ok(bytes) => {
                record.borrow_mut().seen.insert(real, Seen::File(bytes.clone()));
                Ok(bytes)
            }
            Err(error) => {
                if let Some(errno) = error.raw_os_error().filter(|_| !does_not_apply(&error)) {
                    self.note_refusal(path, errno);
                } else {
                    // Absent in the captured tree too: not even an empty file.
                    record.borrow_mut().seen.remove(&real);
                }
                Err(error)
            }
        }
    }

    fn note_refusal(&self, path: &str, errno: i32) {
        if let Some(record) = &self.record {
            record.borrow_mut().notes.refused.insert(path.to_owned(), errno);
        }
    }

    /// [`Root::real_path`] that records the links and directories on its way.
    fn resolve(&self, path: &str) -> Option<String> {
        self.record.as_ref()?;
        let mut done = String::new();
        let mut todo: Vec<String> = path.split('/').rev().map(str::to_owned).collect();
        let mut steps = 0;
        while let Some(part) = todo.pop() {
            steps += 1;
            match part.as_str() {
                "" | "." => continue,
                ".." => {
                    done.truncate(done.rfind('/').unwrap_or(0));
                    continue;
                }
                _ if steps > 400 => return None,
                _ => {}
            }
            let here = format!("{done}/{part}");
            match self.note_entry(&here)? {
                Seen::Link(target) => {
                    if target.starts_with('/') {
                        done.clear();
                    }
                    todo.extend(target.split('/').rev().map(str::to_owned));
                }
                _ => done = here,
            }
        }
        Some(done)
    }

    /// Records what stands at `path`; `None` where nothing does.
    fn note_entry(&self, path: &str) -> Option<Seen> {
        let record = self.record.as_ref()?;
        let (parent, name) = path.rsplit_once('/')?;
        // A directory that is on record stands there under its real path.
        let is_real =
            parent.is_empty() || matches!(record.borrow().seen.get(parent), Some(Seen::Directory));
        let path = match is_real {
            true => path.to_owned(),
            false => format!("{}/{name}", self.resolve(parent)?),
        };
        if let Some(seen) = record.borrow().seen.get(&path) {
            return Some(seen.clone());
        }
        let seen = match self.root.link(&path) {
            Some(target) => Seen::Link(target),
            None => match self.root.mode(&path)?.0 {
                FileType::Directory => Seen::Directory,
                _ => Seen::Unread,
            },
        };
        record.borrow_mut().seen.insert(path, seen.clone());
        Some(seen)
    }
}

fn finding(title: String) -> Finding {
    Finding::new(Severity::Warning, "inspect.unread", title)
}

/// How kernels say that a file is not there, its task is gone, or a device does not have it.
pub(crate) fn does_not_apply(error: &io::Error) -> bool {
    matches!(
        error.raw_os_error(),
        Some(
            libc::ENOENT
                | libc::ENOTDIR
                | libc::ESRCH
                | libc::ENODEV
                | libc::ENXIO
                | libc::EOPNOTSUPP
                | libc::EINVAL
                | libc::EBUSY
                | libc::EAGAIN
        )
    ) || error.kind() == io::ErrorKind::NotFound
}

const TITLE: &str = "quietcores capture 1";

impl Notes {
    /// `refused ERRNO PATH` and `read-only PATH` below a title, a line each; in paths `%` and
    /// control characters stand as `%XX`.
    pub(crate) fn print(&self) -> String {
        let mut text = format!("{TITLE}\n");
        for (path, errno) in &self.refused {
            text += &format!("refused {errno} {}\n", escaped(path));
        }
        for path in &self.read_only {
            text += &format!("read-only {}\n", escaped(path));
        }
        text
    }

    pub(crate) fn parse(text: &str) -> std::result::Result<Notes, Wrong> {
        let mut notes = Notes::default();
        let mut lines = text.lines().zip(1..);
        if lines.next().map(|(line, _)| line) != Some(TITLE) {
            return Err(Wrong { line: 1, why: format!("it does not begin with `{TITLE}`") });
        }
        for (line, at) in lines {
            let wrong = |why: &str| Wrong { line: at, why: why.to_owned() };
            if let Some(path) = line.strip_prefix("read-only ") {
                notes.read_only.insert(unescaped(path).ok_or_else(|| wrong("a bad escape"))?);
            } else if let Some((errno, path)) =
                line.strip_prefix("refused ").and_then(|rest| rest.split_once(' '))
            {
                let errno = errno.parse().ok().filter(|errno| (1..4096).contains(errno));
                let errno = errno.ok_or_else(|| wrong("an error number is from 1 to 4095"))?;
                let path = unescaped(path).ok_or_else(|| wrong("a bad escape"))?;
                notes.refused.insert(path, errno);
            } else {
                return Err(wrong("a note is `refused ERRNO PATH` or `read-only PATH`"));
            }
        }
        Ok(notes)
    }
}

fn escaped(path: &str) -> String {
    let mut text = String::new();
    for c in path.chars() {
        if c == '%' || c.is_ascii_control() {
            text += &format!("%{:02X}", c as u32);
        } else {
            text.push(c);
        }
    }
    text
}

fn unescaped(text: &str) -> Option<String> {
    let mut parts = text.split('%');
    let mut path = parts.next()?.to_owned();
    for part in parts {
        let code = u8::from_str_radix(part.get(..2)?, 16).ok().filter(u8::is_ascii)?;
        path.push(code.into());
        path.push_str(&part[2..]);
    }
    Some(path)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn notes_come_back_as_they_were_printed(
            refused in proptest::collection::btree_map("(?s)/.{0,12}", 1i32..4096, 0..4),
            read_only in proptest::collection::btree_set("(?s)/.{0,12}", 0..4),
        ) {
            let notes = Notes { refused, read_only };
            prop_assert_eq!(Notes::parse(&notes.print()), Ok(notes));
        }

        #[test]
        fn any_notes_are_answered(text in "(quietcores capture 1\n)?(refused |read-only )?.{0,20}") {
            let _ = Notes::parse(&text);
        }
    }
}
