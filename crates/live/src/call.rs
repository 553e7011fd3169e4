//! A verb of the command line, called by a face: this very program once more, with the rights of whoever runs it.

use crate::clean::clean;
use quiet_linux::sys::process::spawn_bound;
use rustix::process::{Pid, Signal, kill_process};
use std::{
    io::{Read, Write},
    process::{Child, Command, Stdio},
    sync::{Arc, mpsc},
    thread,
    time::Duration,
};

/// The longest answer of a verb, bytes, and the most of what it says beside it.
const LONGEST_ANSWER: u64 = 32 << 20;
const LONGEST_SAID: u64 = 64 << 10;
/// From being told to end until it is ended.
const GRACE: Duration = Duration::from_secs(10);

/// What a verb is given of what the face was started with.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OwnArguments {
    /// The directory of the journal.
    pub state: bool,
    /// Where runs are kept.
    pub store: bool,
    /// What is to be shielded.
    pub shield: bool,
}

/// A call of a verb whose arguments were checked.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct VerbCall {
    /// The verb and its arguments.
    pub words: Vec<String>,
    /// What it is given beside them.
    pub own: OwnArguments,
    /// What stands on its standard input.
    pub input: Option<Vec<u8>>,
}

/// Makes the command of a call.
pub type Program = Arc<dyn Fn(&VerbCall) -> Command + Send + Sync>;

/// What a verb answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VerbAnswer {
    /// What it printed.
    pub printed: Vec<u8>,
    /// What it said beside it, fit to be shown.
    pub said: String,
}

/// Writes what a process is given, from a thread of its own: it may not read it at all.
pub(crate) fn feed(child: &mut Child, input: Option<Vec<u8>>) {
    if let (Some(mut to), Some(input)) = (child.stdin.take(), input) {
        thread::spawn(move || to.write_all(&input));
    }
}

fn all_of(from: Option<impl Read + Send + 'static>, most: u64) -> mpsc::Receiver<Vec<u8>> {
    let (tell, told) = mpsc::channel();
    thread::spawn(move || {
        let mut bytes = Vec::new();
        if let Some(mut from) = from {
            let _ = from.by_ref().take(most).read_to_end(&mut bytes);
            // What is over is read all the same, so that it can end.
            let _ = std::io::copy(&mut from, &mut std::io::sink());
        }
        tell.send(bytes)
    });
    told
}

/// Calls a verb that ends soon, and waits for its end. It is ended with the calling thread, and after `most`.
///
/// # Errors
/// A sentence: it could not be started, what it said when it failed, or that it took too long.
pub fn call_verb(program: &Program, call: VerbCall, most: Duration) -> Result<VerbAnswer, String> {
    let mut command = program(&call);
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    command.stdin(if call.input.is_some() { Stdio::piped() } else { Stdio::null() });
    let mut child =
        spawn_bound(&mut command, Signal::TERM).map_err(|e| format!("cannot begin: {e}"))?;
    feed(&mut child, call.input);
    let printed = all_of(child.stdout.take(), LONGEST_ANSWER);
    let said = all_of(child.stderr.take(), LONGEST_SAID);
    let in_time = printed.recv_timeout(most);
    if in_time.is_err() {
        // It has not been waited for: the number is its own.
        let _ = kill_process(Pid::from_child(&child), Signal::TERM);
        if printed.recv_timeout(GRACE).is_err() {
            let _ = child.kill();
        }
    }
    let ended = child.wait().map_err(|e| e.to_string())?;
    let Ok(printed) = in_time else {
        return Err(format!("it did not end within {} s", most.as_secs()));
    };
    let said = said.recv_timeout(GRACE).unwrap_or_default();
    let said = clean(String::from_utf8_lossy(&said).trim(), 2000);
    let said = said.trim_start_matches("quietcores: ").to_owned();
    match ended.code() {
        // 1: done, and something was found.
        Some(0 | 1) => Ok(VerbAnswer { printed, said }),
        _ if said.is_empty() => Err(format!("it ended: {ended}")),
        _ => Err(said),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &'static str) -> Program {
        Arc::new(move |_| {
            let mut command = Command::new("sh");
            command.args(["-c", script]);
            command
        })
    }

    fn asked(script: &'static str, most: Duration) -> Result<VerbAnswer, String> {
        let call = VerbCall { input: Some(b"given".to_vec()), ..VerbCall::default() };
        call_verb(&shell(script), call, most)
    }

    #[test]
    fn a_verb_answers_says_fails_or_takes_too_long() {
        let minute = Duration::from_secs(60);
        let done = asked("cat; echo 'quietcores: a word' >&2; exit 1", minute).unwrap();
        assert_eq!((done.printed.as_slice(), done.said.as_str()), (&b"given"[..], "a word"));
        let why = asked("echo 'quietcores: cannot: \x1b[2Jno' >&2; exit 2", minute).unwrap_err();
        assert!(why.starts_with("cannot:") && !why.contains('\u{1b}'), "{why}");
        assert!(asked("kill -9 $$", minute).unwrap_err().contains("ended"));
        let slow = asked("exec sleep 600", Duration::from_millis(100)).unwrap_err();
        assert!(slow.contains("did not end"), "{slow}");
        let flood = asked("head -c 50000000 /dev/zero", minute).unwrap();
        assert_eq!(flood.printed.len() as u64, LONGEST_ANSWER);
    }
}
