//! What the program shows: results on standard output, everything else on standard error.

use anyhow::Context;
use quiet_types::Severity;
use serde::Serialize;
use std::{
    io::{self, IsTerminal, Write},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

/// Exit status when something was found or a limit exceeded: not an error.
pub const FINDINGS: u8 = 1;

/// Prints a result. A reader that has seen enough (`| head`) is no error.
pub fn print(text: &str) -> anyhow::Result<()> {
    let mut out = io::stdout().lock();
    let written = out.write_all(text.as_bytes()).and_then(|()| out.flush());
    match written {
        Err(e) if e.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        other => other.context("cannot write to standard output"),
    }
}

/// Prints a line of a stream; false where nobody reads it any more.
pub fn print_line(line: &str) -> anyhow::Result<bool> {
    let mut out = io::stdout().lock();
    match writeln!(out, "{line}").and_then(|()| out.flush()) {
        Ok(()) => Ok(true),
        Err(e) if e.kind() == io::ErrorKind::BrokenPipe => Ok(false),
        Err(e) => Err(e).context("cannot write to standard output"),
    }
}

/// Whether the locale's characters are Unicode's: by the first of these that is set, as the C library has it.
pub fn unicode() -> bool {
    let set = |name| std::env::var(name).ok().filter(|value: &String| !value.is_empty());
    let locale = ["LC_ALL", "LC_CTYPE", "LANG"].into_iter().find_map(set).unwrap_or_default();
    let locale = locale.to_ascii_lowercase();
    locale.contains("utf-8") || locale.contains("utf8")
}

/// Prints a result as JSON.
pub fn print_json(value: &impl Serialize) -> anyhow::Result<()> {
    let mut text = serde_json::to_string_pretty(value).context("cannot write this as JSON")?;
    text.push('\n');
    print(&text)
}

/// Says something beside the result.
pub fn say(text: &str) {
    let _ = writeln!(io::stderr().lock(), "{text}");
}

/// Says why the program failed, and what to do where that is known.
pub fn error(error: &anyhow::Error) {
    say(&format!("quietcores: {error:#}"));
}

/// Whether to colour standard output: a terminal, and `NO_COLOR` not set (no-color.org).
pub fn colour() -> bool {
    io::stdout().is_terminal() && std::env::var_os("NO_COLOR").is_none_or(|v| v.is_empty())
}

/// A flag that Ctrl-C, SIGTERM and SIGHUP raise in place of ending the program, so that what was
/// begun is ended well. A second Ctrl-C does not hurry it.
pub fn interrupt() -> anyhow::Result<Arc<AtomicBool>> {
    let raised = Arc::new(AtomicBool::new(false));
    for signal in
        [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM, signal_hook::consts::SIGHUP]
    {
        signal_hook::flag::register(signal, raised.clone()).context("cannot listen to signals")?;
    }
    Ok(raised)
}

/// How a finding of this severity begins.
pub fn severity(severity: Severity) -> &'static str {
    quiet_report::severity_word(severity)
}

/// What an ordinary user is told where the kernel refuses what only root may, with what to do.
pub fn only_root(error: impl Into<anyhow::Error>, what: &str, verb: &str) -> anyhow::Error {
    let error = error.into();
    let said = format!("{error:#}");
    let refused = ["Permission denied", "not permitted"].iter().any(|word| said.contains(word));
    if is_root() || !refused {
        return error;
    }
    anyhow::anyhow!("cannot {what} without root ({said}): sudo quietcores {verb}")
}

/// A bar over something that lasts so long; drawn on a terminal only.
pub fn bar(milliseconds: u64) -> indicatif::ProgressBar {
    let target = indicatif::ProgressDrawTarget::stderr_with_hz(10);
    let bar = indicatif::ProgressBar::with_draw_target(Some(milliseconds), target);
    let style = indicatif::ProgressStyle::with_template("{bar:20} {eta_precise} left  {wide_msg}");
    bar.set_style(style.unwrap_or_else(|_| indicatif::ProgressStyle::default_bar()));
    bar
}

/// Whether `flag` was raised.
pub fn raised(flag: &AtomicBool) -> bool {
    flag.load(Ordering::Relaxed)
}

/// Whether this process may change the machine.
pub fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// Columns for a table: `COLUMNS` where it is set, else those of the terminal. What is no terminal takes
/// whole tables; sentences are broken at 110 columns everywhere.
pub fn width() -> usize {
    let told = std::env::var("COLUMNS").ok().and_then(|text| text.parse::<usize>().ok());
    let terminal = || {
        let size = rustix::termios::tcgetwinsize(io::stdout()).ok()?;
        Some(usize::from(size.ws_col))
    };
    // A terminal that does not know its size says 0.
    told.or_else(terminal).filter(|columns| *columns > 0).map_or(WHOLE, |columns| columns.max(40))
}

/// Wider than any table.
const WHOLE: usize = 1000;

/// Lines that are longer than the terminal is wide, broken at blanks and set in by two more than they are; all as it is where standard
/// output is no terminal.
pub fn fitted(text: &str) -> String {
    match width() {
        WHOLE => text.to_owned(),
        columns => quiet_report::fit(text, columns),
    }
}

/// Columns for what fills its lines: 100 where standard output is no terminal.
pub fn page_width() -> usize {
    match width() {
        WHOLE => 100,
        columns => columns,
    }
}
