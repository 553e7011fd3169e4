//! What a file does not hold is shown by no face, and nothing is computed from it.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

use quiet_foreign as foreign;
use quiet_judge::{Ask, buffers_of, judge_proof, predict};
use quiet_report::{proof_text, run_text, runs_markdown, runs_page};
use quiet_types::{Nanos, Proof, Run, prediction::ClaimVerdict, proof::Verdict};

#[test]
fn an_imported_summary_predicts_nothing() {
    let text = "T: 0 ( 7163) P:99 I:1000 C:  10000 Min:     14 Act:   57 Avg:   55 Max:     131\n";
    let run = foreign::read(text, foreign::Format::Cyclictest).unwrap();
    let claims = vec![(Nanos::from_micros(10), Nanos::from_secs(60))];
    let it = predict(std::slice::from_ref(&run), &Ask { claims, ..Ask::default() });
    assert!(it.percentiles.is_empty() && it.levels.is_empty() && it.buffers.is_empty());
    assert_eq!(it.claims[0].verdict, ClaimVerdict::TooShort);
    assert!(it.claims[0].sentence.contains("not known"), "{}", it.claims[0].sentence);
    assert!(buffers_of(&[&run], &Ask::default()).is_empty());
    for face in [
        run_text(&run, 120),
        runs_page(std::slice::from_ref(&run)),
        runs_markdown(std::slice::from_ref(&run)),
    ] {
        for word in
            ["not locked", "own noise 0", "beyond 100 %", "100 %", "off the scale", "Linux ;"]
        {
            assert!(!face.contains(word), "{word}");
        }
        assert!(
            face.contains("not known") && !face.contains("none seen"),
            "no word of what is not known"
        );
    }
    assert!(!run_text(&run, 120).contains("10 000\n") && !run_text(&run, 120).contains('█'));
}

#[test]
fn what_lies_below_the_clocks_step_is_no_figure_of_any_face() {
    let mut run = quiet_judge::example::run();
    run.clock.as_mut().unwrap().step = Nanos(52);
    let readings = &mut run.threads[0].readings;
    (readings.min, run.threads[0].corrected) = (Some(Nanos(7)), None);
    let (text, page) = (run_text(&run, 120), runs_page(std::slice::from_ref(&run)));
    for face in [text, page.replace("&lt;", "<"), runs_markdown(std::slice::from_ref(&run))] {
        assert!(face.contains("< 52 ns"), "{face}");
        assert!(
            ![">7 ns", "| 7 ns", "  7 ns"].iter().any(|figure| face.contains(figure)),
            "{face}"
        );
    }
}

/// Proof and runs that a released version wrote: judged anew, an imported summary as what it is.
#[test]
fn what_0_1_0_wrote_is_judged_by_this_version() {
    let dir = quiet_testing::tree::fixture("released/0.1.0/store");
    let read = |path: &str| std::fs::read_to_string(dir.join(path)).unwrap();
    let proof: Proof =
        serde_json::from_str(&read("proofs/20261123T035343Z-prove-2183/proof.json")).unwrap();
    let mut proof = proof.from_first();
    judge_proof(&proof).into_proof(&mut proof);
    assert_eq!(proof.verdict, Verdict::NotShown);
    assert!(proof.findings.iter().any(|finding| finding.id == "proof.no_lot"));
    assert_eq!(proof.figures.len(), 6);
    assert!(proof_text(&proof, 100).contains("was fixed, not drawn"));
    let run: Run = serde_json::from_str(&read("runs/undated-cyclictest-d88527fa.json")).unwrap();
    let run = run.from_first();
    let text = {
        assert_eq!((run.threads[0].memory_locked, run.threads[0].missed), (None, None));
        assert_eq!((&run.clock, run.spec.threshold, &run.started), (&None, None, &None));
        run_text(&run, 120)
    };
    for invented in ["not locked", "own noise 0", "100 %", "off the scale of"] {
        assert!(!text.contains(invented), "{invented}: {text}");
    }
    let it = predict(&[run], &Ask::default());
    assert!(it.buffers.is_empty() && it.percentiles.is_empty());
    let run: Run = serde_json::from_str(&read("runs/20261123T035341Z-wakeup-b614.json")).unwrap();
    let run = run.from_first();
    assert!(!predict(&[run], &Ask::default()).percentiles.is_empty());
}
