//! A proof that somebody else wrote, also one of the first version: judged and shown in every form, whatever it holds.
#![no_main]
use libfuzzer_sys::fuzz_target;
use quiet_judge::judge_proof;
use quiet_report::{proof_markdown, proof_page, proof_text};
use quiet_types::Proof;

fuzz_target!(|bytes: &[u8]| {
    let Ok(proof) = serde_json::from_slice::<Proof>(bytes) else { return };
    let mut proof = proof.from_first();
    judge_proof(&proof).into_proof(&mut proof);
    let _ = proof_text(&proof, 80);
    let _ = proof_markdown(&proof);
    let _ = proof_page(&proof);
    // What was read can be written, and reads as the same.
    let written = serde_json::to_vec(&proof).expect("written");
    let again: Proof = serde_json::from_slice(&written).expect("read again");
    assert_eq!(serde_json::to_vec(&again).expect("written again"), written);
});
