//! The loader's own programs, and the text that they make.

use super::{
    error::{Error, ErrorKind, Result},
    grub,
    record::Shelf,
};
use quiet_linux::files::Tree;
use std::process::{Command, Stdio};

/// What runs the loader's own programs.
pub trait Runner {
    /// Runs a program with fixed arguments and waits for it; tells whether it ran.
    ///
    /// # Errors
    /// The program's own words when it fails.
    fn run(&self, command: &[String]) -> std::result::Result<Ran, String>;
}

/// What became of a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ran {
    /// It ran and ended well.
    Done,
    /// It is not for this machine: a tree of files.
    NotHere,
}

/// Runs programs of the running system, with a plain environment and without a shell.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemRunner;

impl Runner for SystemRunner {
    fn run(&self, command: &[String]) -> std::result::Result<Ran, String> {
        let (program, arguments) = command.split_first().ok_or("no program")?;
        let output = Command::new(program)
            .args(arguments)
            .env_clear()
            .env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin")
            .env("LC_ALL", "C")
            .stdin(Stdio::null())
            .output()
            .map_err(|e| super::error::plain(&e))?;
        if output.status.success() {
            return Ok(Ran::Done);
        }
        let said = String::from_utf8_lossy(&output.stderr);
        let last =
            said.lines().rev().find(|line| !line.trim().is_empty()).unwrap_or("no word of why");
        Err(format!("{} ({})", quiet_types::printable(last, 300), output.status))
    }
}

/// For trees of files: runs nothing.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoRunner;

impl Runner for NoRunner {
    fn run(&self, _: &[String]) -> std::result::Result<Ran, String> {
        Ok(Ran::NotHere)
    }
}

/// The text that the loader's own program makes now; `None` where nothing is run.
///
/// The program is given a file of ours to write: the one that the loader reads it would cut to nothing and fill
/// again, and with the power gone in between, the machine had no menu.
pub(super) fn generate(
    place: &Tree,
    shelf: &Shelf<'_>,
    runner: &dyn Runner,
    command: &[String],
    path: &str,
) -> Result<Option<Vec<u8>>> {
    let made = shelf.room_for(path)?;
    let shown = made.display().to_string();
    let program = command.first().and_then(|program| place.text(program));
    let command = grub::aimed(command, program.as_deref(), &shown).ok_or_else(|| {
        Error::of(ErrorKind::Command, format!(
            "{} hands no arguments on to grub-mkconfig, so it can write {path} only in place, where a \
             power cut would leave half a menu; let it end with \"$@\", as the usual one does",
            command.join(" ")
        ))
    })?;
    let run = |command: &[String]| {
        runner.run(command).map_err(|why| {
            Error::of(ErrorKind::Command, format!("{} failed: {why}", command.join(" ")))
        })
    };
    if run(&command)? == Ran::NotHere {
        return Ok(None);
    }
    let text = std::fs::read(&made).map_err(|e| Error::io("read", &shown, e))?;
    if text.is_empty() {
        return Err(Error::of(
            ErrorKind::Command,
            format!("{} made an empty menu", command.join(" ")),
        ));
    }
    if let Some(check) = grub::script_check(place) {
        run(&[check, shown.clone()])?;
    }
    let _ = std::fs::remove_file(&made);
    Ok(Some(text))
}
