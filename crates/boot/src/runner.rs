//! The loader's own programs, and the text that they make.

use super::{
    error::{Error, ErrorKind, Result},
    grub,
    record::Shelf,
};
use quiet_linux::files::{FileOwner, NewText, Tree};
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
fn generate(
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

/// How often a file is read again that others write just now.
pub(super) const TURNS: usize = 8;

/// Has the loader's own program make the file at `path` anew, and puts it in place; the new text, or `None` where nothing is run.
///
/// Making a menu takes seconds, and a kernel's package may have its own made meanwhile: ours, which does not know that kernel, is not put
/// in its place but made anew. `before` sees each text before it is put in place. `owner` is for a file that is not there.
pub(super) fn renew(
    (place, shelf, runner): (&Tree, &Shelf<'_>, &dyn Runner),
    command: &[String],
    (path, owner): (&str, FileOwner),
    before: &dyn Fn(&[u8]) -> Result<()>,
) -> Result<Option<Vec<u8>>> {
    let mut turn = 0;
    loop {
        turn += 1;
        let found = place.read(path)?;
        let Some(text) = generate(place, shelf, runner, command, path)? else { return Ok(None) };
        before(&text)?;
        let put = place.write(NewText {
            path,
            was: found.as_ref().map(|found| found.bytes.as_slice()),
            text: &text,
            owner: found.as_ref().map_or(owner, |found| found.owner),
        });
        match put.map_err(Error::from) {
            Ok(()) => return Ok(Some(text)),
            Err(error) if error.is_changed() && turn < TURNS => {}
            Err(error) if error.is_changed() => {
                return Err(
                    error.and("it is written again and again: wait for the package manager to end")
                );
            }
            Err(error) => return Err(error),
        }
    }
}
