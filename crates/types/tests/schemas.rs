//! The committed JSON schemas are those of the types: what programs read is a contract.
//!
//! After a deliberate change: `QUIETCORES_BLESS=1 cargo test -p quiet-types --test schemas`.
#![allow(clippy::unwrap_used, reason = "a test may panic")]
#![cfg(feature = "std")]

use quiet_types::{Machine, Plan, Proof, Run, check::Checked};
use schemars::{JsonSchema, schema_for};
use std::path::Path;

fn check<T: JsonSchema>(name: &str) {
    let mut now = serde_json::to_string_pretty(&schema_for!(T)).unwrap();
    now.push('\n');
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../docs/schema")
        .join(format!("{name}.json"));
    if std::env::var_os("QUIETCORES_BLESS").is_some_and(|v| v == "1") {
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, now).unwrap();
        return;
    }
    let committed = std::fs::read_to_string(&path).unwrap_or_default();
    let line = committed.lines().zip(now.lines()).position(|(a, b)| a != b);
    assert!(
        committed == now,
        "docs/schema/{name}.json is not the schema of the type (line {}): if the change is meant, \
         run again with QUIETCORES_BLESS=1",
        line.map_or(1, |at| at + 1)
    );
}

#[test]
fn the_committed_machine_schema_is_that_of_the_type() {
    check::<Machine>("machine");
}

#[test]
fn the_committed_run_schema_is_that_of_the_type() {
    check::<Run>("run");
}

#[test]
fn the_committed_proof_schema_is_that_of_the_type() {
    check::<Proof>("proof");
}

#[test]
fn the_committed_tune_schemas_are_those_of_the_types() {
    check::<quiet_types::tune::Tuned>("tune");
    check::<quiet_types::said::FactorList>("factors");
}

#[test]
fn the_committed_farm_schemas_are_those_of_the_types() {
    check::<quiet_types::farm::FarmRecord>("farm-record");
    check::<quiet_types::farm::FarmAnswer>("farm-answer");
    check::<quiet_types::farm::FarmMember>("farm-join");
    check::<quiet_types::farm::FarmLeft>("farm-leave");
    check::<quiet_types::farm::FarmStatus>("farm-status");
    check::<quiet_types::farm::FarmSent>("farm-send");
    check::<quiet_types::farm::FarmGathered>("farm-collect");
    check::<quiet_types::farm::FarmMetrics>("farm-metrics");
    check::<quiet_types::farm::FarmPage>("farm-page");
}

#[test]
fn the_committed_plan_schema_is_that_of_the_type() {
    check::<Plan>("plan");
}

#[test]
fn the_committed_applied_schema_is_that_of_the_type() {
    check::<quiet_types::plan::Applied>("applied");
    check::<quiet_types::plan::Admitted>("admitted");
    check::<quiet_types::plan::Released>("released");
    check::<quiet_types::loan::Lent>("lent");
    check::<quiet_types::loan::Reclaimed>("reclaimed");
}

#[test]
fn the_committed_status_schema_is_that_of_the_type() {
    check::<quiet_types::plan::Status>("status");
}

#[test]
fn the_committed_reverted_schema_is_that_of_the_type() {
    check::<quiet_types::plan::Reverted>("reverted");
}

#[test]
fn the_committed_demo_schema_is_that_of_the_type() {
    check::<quiet_types::demo::Demonstration>("demo");
}

#[test]
fn the_committed_played_schema_is_that_of_the_type() {
    check::<quiet_types::play::Played>("played");
}

#[test]
fn the_committed_check_schema_is_that_of_the_type() {
    check::<Checked>("check");
}

#[test]
fn the_committed_explain_schema_is_that_of_the_type() {
    check::<quiet_types::explain::Explained>("explain");
    check::<quiet_types::explain::Cost>("explain-cost");
}

#[test]
fn the_committed_compared_schema_is_that_of_the_type() {
    check::<quiet_types::compared::Compared>("compared");
}

#[test]
fn the_committed_campaign_schema_is_that_of_the_type() {
    check::<quiet_types::campaign::Campaigned>("campaign");
}

#[test]
fn the_committed_history_schema_is_that_of_the_type() {
    check::<quiet_types::history::History>("history");
}

#[test]
fn the_committed_prediction_schema_is_that_of_the_type() {
    check::<quiet_types::prediction::Prediction>("prediction");
}

#[test]
fn the_committed_live_schema_is_that_of_the_type() {
    check::<quiet_types::live::Moment>("live");
    check::<quiet_types::live::Deed>("deed");
    check::<quiet_types::live::Serving>("serving");
}

#[test]
fn the_committed_watch_schema_is_that_of_the_type() {
    check::<quiet_types::watch::Event>("watch");
}

#[test]
fn the_committed_reach_schema_is_that_of_the_type() {
    check::<quiet_types::reach::Reach>("reach");
}

#[test]
fn the_committed_render_schema_is_that_of_the_type() {
    check::<quiet_types::render::Rendering>("render");
}

#[test]
fn the_committed_bench_schema_is_that_of_the_type() {
    check::<quiet_types::bench::Bench>("bench");
}

#[test]
fn the_committed_roundtrip_schema_is_that_of_the_type() {
    check::<quiet_types::trip::RoundTrip>("roundtrip");
}

#[test]
fn the_committed_buffers_schema_is_that_of_the_type() {
    check::<quiet_types::buffers::Buffers>("buffers");
}

#[test]
fn the_committed_doctor_schema_is_that_of_the_type() {
    check::<quiet_types::doctor::Doctored>("doctor");
}

#[test]
fn the_committed_setup_schema_is_that_of_the_type() {
    check::<quiet_types::setup::SetUp>("setup");
}

#[test]
fn the_committed_schemas_of_what_verbs_say_are_those_of_the_types() {
    use quiet_types::said;
    check::<said::Exported>("export");
    check::<said::Imported>("import");
    check::<said::Reported>("report");
    check::<said::ApprovedList>("approve");
    check::<said::Confirmed>("confirm");
    check::<said::Generated>("generate");
    check::<said::Persisted>("persisted");
    check::<said::Undone>("unpersist");
    check::<said::Devices>("devices");
    check::<said::Stressed>("stress");
    check::<said::Suites>("suites");
}
