//! A door for the fuzz targets, in their builds alone: what reads bytes that others may have written.

use quiet_linux::fuzzing::in_state;

/// A record of what lasts across reboots of these bytes.
///
/// # Panics
/// When it is not refused with a sentence and not read as what it is.
pub fn persist_record(bytes: &[u8]) {
    in_state("persist.json", bytes, |dir| match crate::record(dir) {
        Ok(record) => {
            let record = record.expect("it is there");
            let text = serde_json::to_string(&record).expect("what was read can be written");
            let again: crate::Record = serde_json::from_str(&text).expect("and be read again");
            assert_eq!(serde_json::to_string(&again).expect("as before"), text);
        }
        Err(why) => assert!(why.to_string().contains("persist")),
    });
}
