//! Long work that a face has started: a process of this program for each, one at a time, told of while it runs and ended by hand.

use crate::{
    call::{Program, VerbCall, feed},
    clean::clean,
};
use quiet_linux::sys::process::spawn_bound;
use quiet_types::live::{JobState, JobWish, LiveJob};
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process, waitid};
use std::{
    collections::VecDeque,
    fmt,
    io::{BufRead, BufReader, Read},
    process::{Child, ChildStderr, ChildStdout, Command, Stdio},
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
    thread,
    time::{Duration, Instant, SystemTime},
};

/// Most jobs that are remembered.
const MOST_JOBS: usize = 20;
/// Most lines of a job that are kept, and the longest of them.
const MOST_LINES: usize = 50;
const LONGEST_LINE: u64 = 4096;
/// The longest result that is looked at for its id, and the longest that is kept where it has none.
const LONGEST_RESULT: u64 = 64 << 20;
const LONGEST_KEPT: usize = 2 << 20;

/// A job and what it takes to end it.
struct Entry {
    job: LiveJob,
    began: Instant,
    running: Option<Pid>,
    printed: Option<Arc<str>>,
}

#[derive(Default)]
struct Table {
    entries: VecDeque<Entry>,
    last: u64,
}

#[derive(Default)]
struct Hall {
    table: Mutex<Table>,
    news: Condvar,
}

impl Hall {
    fn table(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes a job, and says so.
    fn change(&self, id: u64, change: impl FnOnce(&mut Entry)) {
        let mut table = self.table();
        if let Some(entry) = table.entries.iter_mut().find(|entry| entry.job.id == id) {
            change(entry);
            entry.job.version += 1;
        }
        self.news.notify_all();
    }
}

/// The jobs of a face. What still runs is told to end when the program ends.
pub struct Jobs {
    hall: Arc<Hall>,
    program: Program,
}

impl fmt::Debug for Jobs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Jobs").finish_non_exhaustive()
    }
}

impl Jobs {
    /// None yet.
    pub fn new(program: Program) -> Jobs {
        Jobs { hall: Arc::default(), program }
    }

    /// Begins one: `call` is what `wish` comes to.
    ///
    /// # Errors
    /// A sentence: another one runs, or no process can be started.
    pub fn start(&self, wish: JobWish, call: VerbCall) -> Result<LiveJob, String> {
        let mut command = (self.program)(&call);
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let id = {
            let mut table = self.hall.table();
            if let Some(other) = table.entries.iter().find(|entry| entry.job.state.is_running()) {
                let which = format!("job {} ({})", other.job.id, other.job.what);
                return Err(format!("{which} runs: two at a time would measure each other"));
            }
            table.last += 1;
            let id = table.last;
            let started = humantime::format_rfc3339_seconds(SystemTime::now()).to_string();
            let job = LiveJob {
                id,
                what: wish.what(),
                started,
                length: wish.seconds(),
                wish,
                ..LiveJob::default()
            };
            table.entries.push_back(Entry {
                job,
                began: Instant::now(),
                running: None,
                printed: None,
            });
            while table.entries.len() > MOST_JOBS {
                table.entries.pop_front();
            }
            id
        };
        // Bound to the thread that starts it, which lives as long as it does.
        let hall = self.hall.clone();
        let follow = thread::Builder::new()
            .name("job".into())
            .spawn(move || follow(&hall, id, command, call.input));
        if let Err(error) = follow {
            self.hall.change(id, |entry| fail(entry, &format!("cannot begin: {error}")));
        }
        self.get(id).ok_or_else(|| "it is not known any more".to_owned())
    }

    /// All that are remembered, oldest first.
    pub fn list(&self) -> Vec<LiveJob> {
        self.hall.table().entries.iter().map(shown).collect()
    }

    /// One of them.
    pub fn get(&self, id: u64) -> Option<LiveJob> {
        self.hall.table().entries.iter().find(|entry| entry.job.id == id).map(shown)
    }

    /// What one printed that kept nothing under an id, as JSON.
    pub fn printed(&self, id: u64) -> Option<Arc<str>> {
        self.hall.table().entries.iter().find(|entry| entry.job.id == id)?.printed.clone()
    }

    /// Tells one to end: it keeps what it has, puts the machine back, and then is over.
    ///
    /// # Errors
    /// A sentence: there is none of that number, or it is over.
    pub fn cancel(&self, id: u64) -> Result<LiveJob, String> {
        let mut said = Err(format!("there is no job {id}"));
        self.hall.change(id, |entry| {
            said = match (entry.job.state.is_running(), entry.running) {
                (false, _) => Err(format!("job {id} is over")),
                (true, None) => Err(format!("job {id} begins or ends just now: ask again")),
                (true, Some(pid)) => {
                    entry.job.state = JobState::Ending;
                    kill_process(pid, Signal::TERM)
                        .map_err(|e| format!("cannot tell it to end: {e}"))
                }
            };
        });
        said?;
        self.get(id).ok_or_else(|| "it is not known any more".to_owned())
    }

    /// A job when it is another than at `version`, or after `wait` as it is; `None` where there is none of that number.
    pub fn after(&self, id: u64, version: u64, wait: Duration) -> Option<LiveJob> {
        let until = Instant::now() + wait;
        let mut table = self.hall.table();
        loop {
            let entry = table.entries.iter().find(|entry| entry.job.id == id)?;
            let left = until.saturating_duration_since(Instant::now());
            if entry.job.version != version || left.is_zero() {
                return Some(shown(entry));
            }
            table =
                self.hall.news.wait_timeout(table, left).unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}

fn shown(entry: &Entry) -> LiveJob {
    let mut job = entry.job.clone();
    if job.state.is_running() {
        job.elapsed = entry.began.elapsed().as_secs();
    }
    job
}

fn fail(entry: &mut Entry, why: &str) {
    entry.job.state = JobState::Failed;
    entry.job.said.push(clean(why, 1000));
    entry.running = None;
}

/// From its start to its end.
fn follow(hall: &Arc<Hall>, id: u64, mut command: Command, input: Option<Vec<u8>>) {
    command.stdin(if input.is_some() { Stdio::piped() } else { Stdio::null() });
    let mut child = match spawn_bound(&mut command, Signal::TERM) {
        Ok(child) => child,
        Err(error) => {
            return hall.change(id, |entry| fail(entry, &format!("cannot begin: {error}")));
        }
    };
    let pid = Pid::from_child(&child);
    hall.change(id, |entry| entry.running = Some(pid));
    feed(&mut child, input);
    let result = child.stdout.take().map(|out| thread::spawn(move || result(out)));
    if let Some(errors) = child.stderr.take() {
        lines(hall, id, errors);
    }
    let result = result.and_then(|reading| reading.join().ok()).unwrap_or_default();
    end(hall, id, &mut child, result);
}

fn end(hall: &Arc<Hall>, id: u64, child: &mut Child, result: JobResult) {
    // Until it is waited for its number is its own: only then nobody may tell it to end any more.
    let over = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT;
    let _ = waitid(WaitId::Pid(Pid::from_child(child)), over);
    hall.change(id, |entry| entry.running = None);
    let ended = child.wait();
    hall.change(id, |entry| {
        entry.running = None;
        entry.job.elapsed = entry.began.elapsed().as_secs();
        entry.job.result = result.id;
        entry.job.printed = result.printed.is_some();
        entry.printed = result.printed;
        let was_told = entry.job.state == JobState::Ending;
        match ended.map(|status| status.code()) {
            // 1: done, and something was found.
            Ok(Some(0 | 1)) if was_told => entry.job.state = JobState::Ended,
            Ok(Some(0 | 1)) => entry.job.state = JobState::Done,
            _ if was_told => entry.job.state = JobState::Ended,
            Ok(code) => {
                entry.job.state = JobState::Failed;
                if entry.job.said.is_empty() {
                    let why = code
                        .map_or("it was killed".to_owned(), |code| format!("it ended with {code}"));
                    entry.job.said.push(why);
                }
            }
            Err(error) => fail(entry, &error.to_string()),
        }
    });
}

/// What it says on the way.
fn lines(hall: &Arc<Hall>, id: u64, errors: ChildStderr) {
    let mut errors = BufReader::new(errors);
    loop {
        let mut line = Vec::new();
        match errors.by_ref().take(LONGEST_LINE).read_until(b'\n', &mut line) {
            Ok(0) | Err(_) => return,
            Ok(_) => {}
        }
        let text = String::from_utf8_lossy(&line);
        let text = text.trim().trim_start_matches("quietcores: ");
        if !text.is_empty() {
            let text = clean(text, 500);
            hall.change(id, |entry| {
                if entry.job.said.len() >= MOST_LINES {
                    entry.job.said.remove(0);
                }
                entry.job.said.push(text);
            });
        }
    }
}

/// What a job left.
#[derive(Default)]
struct JobResult {
    /// The id of what it kept.
    id: Option<String>,
    /// What it printed, where it kept nothing.
    printed: Option<Arc<str>>,
}

/// Keeps the first bytes of what is read through it.
struct Keeping<R> {
    from: R,
    kept: Vec<u8>,
}

impl<R: Read> Read for Keeping<R> {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        let n = self.from.read(buffer)?;
        // One byte more than is kept tells that it is too long.
        let room = (LONGEST_KEPT + 1).saturating_sub(self.kept.len()).min(n);
        self.kept.extend_from_slice(&buffer[..room]);
        Ok(n)
    }
}

/// A result is read to its end, so that its process can end.
fn result(mut out: ChildStdout) -> JobResult {
    #[derive(serde::Deserialize)]
    struct Kept {
        id: Option<String>,
    }
    let mut keeping = Keeping { from: out.by_ref().take(LONGEST_RESULT), kept: Vec::new() };
    let found = serde_json::from_reader::<_, Kept>(BufReader::new(&mut keeping));
    let kept = keeping.kept;
    let _ = std::io::copy(&mut out, &mut std::io::sink());
    let Ok(Kept { id }) = found else { return JobResult::default() };
    let fine = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    let id = id.filter(|id| !id.is_empty() && id.len() <= 200 && id.chars().all(fine));
    let text = || String::from_utf8(kept).ok().filter(|text| text.len() <= LONGEST_KEPT);
    let printed = if id.is_none() { text().map(Arc::from) } else { None };
    JobResult { id, printed }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn jobs(script: &'static str) -> Jobs {
        Jobs::new(Arc::new(move |_| {
            let mut command = Command::new("sh");
            command.args(["-c", script]);
            command
        }))
    }

    fn wish() -> JobWish {
        let given = [("pairs".to_owned(), serde_json::json!(8))].into_iter().collect();
        JobWish { verb: "prove".to_owned(), given }
    }

    fn begin(jobs: &Jobs) -> Result<LiveJob, String> {
        jobs.start(wish(), VerbCall::default())
    }

    fn over(jobs: &Jobs, id: u64) -> LiveJob {
        let mut version = 0;
        loop {
            let job = jobs.after(id, version, Duration::from_secs(60)).unwrap();
            if !job.state.is_running() {
                return job;
            }
            version = job.version;
        }
    }

    #[test]
    fn a_job_is_told_of_and_its_result_has_an_id() {
        let jobs = jobs(
            "echo 'quietcores: pair 1' >&2; echo '{\"id\":\"20261124T1-a\",\"more\":[1,2]}'; exit 1",
        );
        let first = begin(&jobs).unwrap();
        assert_eq!((first.id, first.what.as_str()), (1, "prove, pairs 8"));
        let job = over(&jobs, 1);
        assert_eq!((job.state, job.result.as_deref()), (JobState::Done, Some("20261124T1-a")));
        assert_eq!(job.said, ["pair 1"]);
        assert_eq!(jobs.cancel(1).unwrap_err(), "job 1 is over");
        assert_eq!(jobs.cancel(7).unwrap_err(), "there is no job 7");
        assert_eq!(begin(&jobs).unwrap().id, 2);
    }

    #[test]
    fn one_at_a_time_and_one_that_is_told_to_ends() {
        let jobs =
            jobs("trap 'echo kept >&2; exit 0' TERM; echo begun >&2; while :; do sleep 0.05; done");
        let id = begin(&jobs).unwrap().id;
        assert!(begin(&jobs).unwrap_err().contains("two at a time"));
        // The shell has set its trap by then.
        while jobs.get(id).unwrap().said.is_empty() {
            thread::sleep(Duration::from_millis(5));
        }
        assert_eq!(jobs.cancel(id).unwrap().state, JobState::Ending);
        let job = over(&jobs, id);
        assert_eq!(
            (job.state, job.said),
            (JobState::Ended, vec!["begun".to_owned(), "kept".to_owned()])
        );
    }

    #[test]
    fn what_fails_and_what_floods_is_told_and_bounded() {
        let flood = jobs(
            "i=0; while [ $i -lt 200 ]; do echo \"line $i\" >&2; i=$((i+1)); done; head -c 9000000 /dev/zero; exit 2",
        );
        let id = begin(&flood).unwrap().id;
        let job = over(&flood, id);
        assert_eq!((job.state, job.said.len(), job.result), (JobState::Failed, MOST_LINES, None));
        assert_eq!(job.said.last().unwrap(), "line 199");
        let none = Jobs::new(Arc::new(|_| Command::new("/nowhere/at/all")));
        let id = begin(&none).unwrap().id;
        let job = over(&none, id);
        assert!(job.state == JobState::Failed && job.said[0].contains("cannot begin"), "{job:?}");
    }

    #[test]
    fn what_was_given_to_it_is_read_and_what_it_printed_without_an_id_is_kept() {
        let reads = jobs("printf '{\"told\":\"%s\"}' \"$(cat)\"");
        let call = VerbCall { input: Some(b"a file".to_vec()), ..VerbCall::default() };
        let id = reads.start(wish(), call).unwrap().id;
        let job = over(&reads, id);
        assert!(job.state == JobState::Done && job.printed && job.result.is_none(), "{job:?}");
        assert_eq!(reads.printed(id).as_deref(), Some(r#"{"told":"a file"}"#));
        // More than is kept, and what is no JSON, is not.
        for script in
            ["printf '{\"a\":\"'; head -c 3000000 /dev/zero | tr '\\0' x; printf '\"}'", "echo no"]
        {
            let jobs = jobs(script);
            let id = begin(&jobs).unwrap().id;
            assert!(!over(&jobs, id).printed && jobs.printed(id).is_none(), "{script}");
        }
    }
}
