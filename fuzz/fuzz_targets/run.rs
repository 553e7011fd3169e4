//! A run that somebody else wrote: judged and shown in every form, whatever figures it holds.
#![no_main]
use libfuzzer_sys::fuzz_target;
use quiet_judge::judge_run;
use quiet_report::{run_text, runs_markdown, runs_page};
use quiet_types::Run;

fuzz_target!(|bytes: &[u8]| {
    let Ok(run) = serde_json::from_slice::<Run>(bytes) else { return };
    let run = run.from_first();
    let _ = judge_run(&run);
    let _ = run_text(&run, 80);
    let runs = [run];
    let _ = runs_markdown(&runs);
    let _ = runs_page(&runs);
});
