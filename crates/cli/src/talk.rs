//! A conversation, line by line: a question with its default, and an answer.
//!
//! Questions go to standard error, so that standard output has the result alone. What is waited for can be broken off by a signal.

use crate::face;
use anyhow::{Context, anyhow, bail};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::{
    io::{self, Read},
    os::fd::AsFd,
    sync::atomic::{AtomicBool, Ordering},
};

/// Nobody answers with more.
const LONGEST: usize = 4096;
/// So often it is looked whether a signal has come, ns.
const LOOK: i64 = 100_000_000;
/// So often a question is asked again.
const TRIES: usize = 5;

/// Asks, and hears answers from `from`.
pub struct Talk<'a, R> {
    from: R,
    /// Read, and not heard yet.
    ahead: Vec<u8>,
    /// Every default is taken, and nothing is read.
    yes: bool,
    stop: &'a AtomicBool,
    /// Where questions go.
    say: fn(&str),
}

impl<'a, R: Read + AsFd> Talk<'a, R> {
    /// Nothing is said yet. With `yes` every default is taken without a question.
    pub fn new(from: R, yes: bool, stop: &'a AtomicBool) -> Talk<'a, R> {
        Talk { from, ahead: Vec::new(), yes, stop, say: face::say }
    }

    /// One of the options, by its number or name: its place.
    ///
    /// # Errors
    /// When the input ends before there is an answer, or a signal comes.
    pub fn choose(
        &mut self,
        question: &str,
        options: &[(String, String)],
        usual: usize,
    ) -> anyhow::Result<usize> {
        let found = self.choose_some(question, options, &[usual], 1)?;
        Ok(found.first().copied().unwrap_or(usual))
    }

    /// One or several of the options, by numbers or names with commas between: their places, at most `most`.
    ///
    /// # Errors
    /// As [`Talk::choose`].
    pub fn choose_some(
        &mut self,
        question: &str,
        options: &[(String, String)],
        usual: &[usize],
        most: usize,
    ) -> anyhow::Result<Vec<usize>> {
        if self.yes {
            return Ok(usual.to_vec());
        }
        (self.say)(question);
        for (at, (name, about)) in options.iter().enumerate() {
            (self.say)(&format!("  {} {name}{about}", at + 1));
        }
        let numbers: Vec<String> = usual.iter().map(|at| (at + 1).to_string()).collect();
        let which = if most == 1 { "Its number" } else { "Their numbers, with commas between" };
        let prompt = format!("{which} [{}]", numbers.join(","));
        let place = |word: &str| {
            let by_name = options.iter().position(|(name, _)| name == word);
            by_name.or_else(|| {
                let number: usize = word.parse().ok()?;
                number.checked_sub(1).filter(|at| *at < options.len())
            })
        };
        self.ask(question, &prompt, usual.to_vec(), |answer| {
            let words = answer.split(',').map(str::trim).filter(|word| !word.is_empty());
            let places: Option<Vec<usize>> = words.map(place).collect();
            places.filter(|places| (1..=most).contains(&places.len())).ok_or_else(|| {
                let several = if most == 1 { "" } else { ", or several with commas between" };
                format!("write a number from 1 to {}{several}", options.len())
            })
        })
    }

    /// A number within a range.
    ///
    /// # Errors
    /// As [`Talk::choose`].
    pub fn number(
        &mut self,
        question: &str,
        range: std::ops::RangeInclusive<u32>,
        usual: u32,
    ) -> anyhow::Result<u32> {
        let (least, most) = (*range.start(), *range.end());
        let prompt = format!("{question} {least} to {most} [{usual}]");
        self.ask(question, &prompt, usual, |answer| {
            let number = answer.parse().ok().filter(|number| range.contains(number));
            number.ok_or_else(|| format!("write a number from {least} to {most}"))
        })
    }

    /// Yes or no.
    ///
    /// # Errors
    /// As [`Talk::choose`].
    pub fn agrees(&mut self, question: &str, usual: bool) -> anyhow::Result<bool> {
        let prompt = format!("{question} [{}]", if usual { "Y/n" } else { "y/N" });
        self.ask(question, &prompt, usual, |answer| match answer.to_lowercase().as_str() {
            "y" | "yes" => Ok(true),
            "n" | "no" => Ok(false),
            _ => Err("write y or n".to_owned()),
        })
    }

    fn ask<T>(
        &mut self,
        question: &str,
        prompt: &str,
        usual: T,
        read: impl Fn(&str) -> Result<T, String>,
    ) -> anyhow::Result<T> {
        if self.yes {
            return Ok(usual);
        }
        for _ in 0..TRIES {
            (self.say)(prompt);
            let Some(line) = self.line()? else {
                bail!(
                    "standard input has ended without an answer to \"{question}\"; add --yes to take the \
                     default of every question"
                );
            };
            let answer = line.trim();
            if answer.is_empty() {
                return Ok(usual);
            }
            match read(answer) {
                Ok(answer) => return Ok(answer),
                Err(remedy) => (self.say)(&format!(
                    "`{}` is no answer: {remedy}; nothing for the default",
                    quiet_types::printable(answer, 60)
                )),
            }
        }
        bail!("no answer to \"{question}\" was understood in {TRIES} tries")
    }

    /// The next line; `None` at the end.
    fn line(&mut self) -> anyhow::Result<Option<String>> {
        loop {
            if let Some(at) = self.ahead.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = self.ahead.drain(..=at).collect();
                return Ok(Some(String::from_utf8_lossy(&line).into_owned()));
            }
            if self.ahead.len() > LONGEST {
                bail!("cannot read the answer: it is longer than {LONGEST} characters");
            }
            self.wait()?;
            let mut more = [0; 512];
            match self.from.read(&mut more) {
                Ok(0) if self.ahead.is_empty() => return Ok(None),
                // The last line of a file may have no end.
                Ok(0) => self.ahead.push(b'\n'),
                Ok(count) => self.ahead.extend_from_slice(&more[..count]),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error).context("cannot read the answer"),
            }
        }
    }

    /// Until there is something to read, or a signal.
    fn wait(&self) -> anyhow::Result<()> {
        let look = Timespec { tv_sec: 0, tv_nsec: LOOK };
        loop {
            if self.stop.load(Ordering::Relaxed) {
                return Err(anyhow!("stopped by a signal"));
            }
            match poll(&mut [PollFd::new(&self.from, PollFlags::IN)], Some(&look)) {
                Ok(0) | Err(rustix::io::Errno::INTR) => {}
                Ok(_) => return Ok(()),
                Err(error) => return Err(error).context("cannot wait for the answer"),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{io::Write, os::unix::net::UnixStream};

    fn hears<T>(said: &str, ask: impl FnOnce(&mut Talk<'_, UnixStream>) -> T) -> T {
        let (mut mouth, ear) = UnixStream::pair().unwrap();
        mouth.write_all(said.as_bytes()).unwrap();
        drop(mouth);
        let stop = AtomicBool::new(false);
        ask(&mut Talk { from: ear, ahead: Vec::new(), yes: false, stop: &stop, say: |_| {} })
    }

    fn options() -> Vec<(String, String)> {
        ["mpd", "jack"].map(|name| (name.to_owned(), String::new())).to_vec()
    }

    #[test]
    fn an_empty_line_is_the_default_and_a_wrong_answer_is_asked_again() {
        assert_eq!(hears("\n", |talk| talk.number("How many?", 1..=3, 2).unwrap()), 2);
        assert_eq!(hears("9\nx\n3", |talk| talk.number("How many?", 1..=3, 2).unwrap()), 3);
        assert!(hears("NO\n", |talk| !talk.agrees("Now?", true).unwrap()));
        assert_eq!(hears("jack\n", |talk| talk.choose("Who?", &options(), 0).unwrap()), 1);
        let both = hears("2, mpd\n", |talk| talk.choose_some("Who?", &options(), &[0], 2).unwrap());
        assert_eq!(both, [1, 0]);
        let none = hears("0\n1,2\n2\n", |talk| talk.choose("Who?", &options(), 0).unwrap());
        assert_eq!(none, 1);
        let never = hears(&"x\n".repeat(9), |talk| talk.agrees("Now?", true).unwrap_err());
        assert!(never.to_string().contains("5 tries"), "{never}");
    }

    #[test]
    fn the_end_of_input_is_no_answer_but_where_defaults_are_taken() {
        let ended = hears("y\n", |talk| {
            assert!(talk.agrees("First?", false).unwrap());
            talk.agrees("Second?", false).unwrap_err().to_string()
        });
        assert!(ended.contains("\"Second?\"") && ended.contains("--yes"), "{ended}");
        let stop = AtomicBool::new(false);
        let (_mouth, ear) = UnixStream::pair().unwrap();
        // Nothing is read: nobody says anything here, and it does not wait.
        let mut talk = Talk::new(ear, true, &stop);
        assert_eq!(talk.number("How many?", 1..=3, 2).unwrap(), 2);
        assert_eq!(talk.choose("Who?", &options(), 1).unwrap(), 1);
    }

    #[test]
    fn a_signal_ends_the_waiting_and_a_line_without_end_is_refused() {
        let (_mouth, ear) = UnixStream::pair().unwrap();
        let stop = AtomicBool::new(true);
        let said = Talk::new(ear, false, &stop).agrees("Now?", true).unwrap_err();
        assert!(said.to_string().contains("signal"), "{said}");
        let long = hears(&"y".repeat(10_000), |talk| talk.agrees("Now?", true).unwrap_err());
        assert!(long.to_string().contains("longer than"), "{long}");
    }
}
