//! What is kept of a map tells the same version as the whole, and a version that is told is one of a line that names the library;
//! settings of PipeWire's are numbers of the text.
#![no_main]
use libfuzzer_sys::fuzz_target;
use quiet_linux::parse::{pipewire_lines, pipewire_settings, pipewire_version};

fuzz_target!(|text: &str| {
    if let Some(settings) = pipewire_settings(text) {
        assert!(settings.rate > 0 && settings.quantum > 0);
        assert!(text.contains(&format!("'{}'", settings.rate).replacen("'", "", 1)));
    }
    let version = pipewire_version(text);
    let kept = pipewire_lines(text);
    assert_eq!(pipewire_version(&kept), version);
    assert_eq!(pipewire_lines(&kept), kept);
    assert_eq!(kept.is_empty(), version.is_none());
    if let Some(version) = version {
        let number = version.major * 1000 + version.minor * 100 + version.micro;
        assert!(version.minor < 10 && version.micro < 100);
        assert!(kept.contains(&number.to_string()));
    }
});
