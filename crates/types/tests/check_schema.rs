//! The committed schema of the audit is the one that the types make.
#![allow(clippy::unwrap_used)]

use quiet_types::check::Checked;
use std::{fs, path::Path};

/// To renew it after a deliberate change: `RENEW=1 cargo test -p quiet-types --test check_schema`
#[test]
fn the_committed_schema_of_check_is_that_of_its_types() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/schema/check.json");
    let made = serde_json::to_string_pretty(&schemars::schema_for!(Checked)).unwrap() + "\n";
    if std::env::var_os("RENEW").is_some() {
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, &made).unwrap();
    }
    assert_eq!(fs::read_to_string(&path).unwrap_or_default(), made);
}
