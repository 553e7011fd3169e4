//! What the readers of our TOML files have in common: values that are checked as they are read.

use quiet_types::{CpuSet, FileError, printable};
use std::ops::Range;
use toml::Spanned;

/// No name is longer.
const LONGEST: usize = 60;

/// A file that is being read.
pub(crate) struct Reader<'a> {
    pub text: &'a str,
    /// What messages call it.
    pub path: &'a str,
    /// CPUs of the machine that it is for, as far as they are known.
    pub known: Option<&'a CpuSet>,
}

impl Reader<'_> {
    pub(crate) fn wrong(
        &self,
        span: Range<usize>,
        title: &str,
        label: &str,
        help: &str,
    ) -> FileError {
        FileError::at(self.text, self.path, span, title, label, help)
    }

    /// What the TOML parser says; `help` gives the remedy for its message.
    pub(crate) fn toml(
        &self,
        error: &toml::de::Error,
        help: fn(&str) -> &'static str,
    ) -> FileError {
        let span = error.span().unwrap_or(0..0);
        let title = error.message().lines().next().unwrap_or("this is not TOML").to_owned();
        self.wrong(span, &title, "here", help(&title))
    }

    pub(crate) fn one_of<T: Copy>(
        &self,
        word: &Spanned<String>,
        what: &str,
        known: &[(&str, T)],
    ) -> Result<T, FileError> {
        let found = known.iter().find(|(name, _)| name == word.get_ref());
        found.map(|(_, value)| *value).ok_or_else(|| {
            let names: Vec<String> = known.iter().map(|(name, _)| format!("\"{name}\"")).collect();
            self.wrong(
                word.span(),
                &format!("`{}` is not {what}", printable(word.get_ref(), LONGEST)),
                "here",
                &format!("write {}", names.join(" or ")),
            )
        })
    }

    pub(crate) fn name(&self, name: &Spanned<String>) -> Result<String, FileError> {
        let text = name.get_ref();
        if text.trim().is_empty() {
            return Err(self.wrong(name.span(), "a name is empty", "here", "give it a name"));
        }
        if text.chars().count() > LONGEST || text.chars().any(char::is_control) {
            return Err(self.wrong(
                name.span(),
                "this is not a name",
                "here",
                "a name has at most 60 characters, none of them a control character",
            ));
        }
        Ok(text.clone())
    }

    pub(crate) fn cpus(&self, cpus: &Spanned<String>) -> Result<CpuSet, FileError> {
        let set: CpuSet = cpus.get_ref().parse().map_err(|error| {
            self.wrong(cpus.span(), &format!("{error}"), "here", "write a list such as 2-3,8")
        })?;
        if set.is_empty() {
            return Err(self.wrong(
                cpus.span(),
                "no CPU is named",
                "this list is empty",
                "write a list such as 2-3,8",
            ));
        }
        let unknown = self.known.map(|known| set.difference(known)).unwrap_or_default();
        if let (false, Some(known)) = (unknown.is_empty(), self.known) {
            let title = match unknown.len() {
                1 => format!("CPU {unknown} is not on this machine"),
                _ => format!("CPUs {unknown} are not on this machine"),
            };
            let label = format!("this machine has CPUs {known}");
            return Err(self.wrong(
                cpus.span(),
                &title,
                &label,
                "`quietcores inspect` shows the CPUs and which of them share a core",
            ));
        }
        Ok(set)
    }

    pub(crate) fn priority(&self, priority: &Spanned<i64>) -> Result<u8, FileError> {
        match u8::try_from(*priority.get_ref()) {
            Ok(value @ 1..=99) => Ok(value),
            _ => Err(self.wrong(
                priority.span(),
                &format!("{} is not a real-time priority", priority.get_ref()),
                "here",
                "priorities of SCHED_FIFO are 1 to 99; above 90 the kernel's own threads suffer",
            )),
        }
    }
}
