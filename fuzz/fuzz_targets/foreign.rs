//! Results of other tools: any bytes give a run or a sentence, and what was read can be written in
//! every form.
#![no_main]

use libfuzzer_sys::fuzz_target;
use quiet_foreign as foreign;

fuzz_target!(|data: &[u8]| {
    let Some((which, rest)) = data.split_first() else { return };
    let Ok(text) = std::str::from_utf8(rest) else { return };
    let _ = foreign::detect(text);
    let (format, _) = foreign::FORMATS[usize::from(*which) % foreign::FORMATS.len()];
    let Ok(run) = foreign::read(text, format) else { return };
    assert!(run.readings().count < u64::MAX / 2);
    for (form, _) in foreign::FORMATS {
        let _ = foreign::write(&run, form);
    }
    // What a tool would have written is read again as the same readings.
    if let Ok(again) = foreign::write(&run, format).map(|written| written.text) {
        let _ = foreign::read(&again, format);
    }
});
