//! Writes the constructed proof and one of its runs, as JSON and as pages, into the directory
//! named; without one, prints them as text.

fn main() -> std::io::Result<()> {
    let proof = quiet_judge::example::proof();
    let run = quiet_judge::example::run();
    let Some(dir) = std::env::args_os().nth(1) else {
        print!("{}", quiet_report::proof_text(&proof, 100));
        print!("\n{}", quiet_report::run_text(&run, 100));
        return Ok(());
    };
    let dir = std::path::PathBuf::from(dir);
    std::fs::create_dir_all(&dir)?;
    std::fs::write(dir.join("proof.json"), serde_json::to_string(&proof)?)?;
    std::fs::write(dir.join("run.json"), serde_json::to_string(&run)?)?;
    std::fs::write(dir.join("proof.html"), quiet_report::proof_page(&proof))?;
    std::fs::write(dir.join("run.html"), quiet_report::runs_page(&[run]))?;
    let runs: Vec<_> = proof.arms.iter().take(5).map(|arm| arm.wakeup.clone()).collect();
    std::fs::write(dir.join("runs.html"), quiet_report::runs_page(&runs))?;
    let mut few = proof.clone();
    few.arms.retain(|arm| arm.pair < 4);
    few.arms[2].void = Some("the governor of CPU 3 changed while it was measured".into());
    quiet_judge::judge_proof(&few).into_proof(&mut few);
    std::fs::write(dir.join("few.html"), quiet_report::proof_page(&few))
}
