//! Which PipeWire runs in a process, and what it goes by.

use quiet_types::{machine::PipeWireVersion, surroundings::PipeWireSettings};

/// How the name of the library's file begins; its number and `.0` follow.
const LIBRARY: &str = "libpipewire-0.3.so.0.";
/// No rate and no quantum is larger.
const LARGEST: u32 = 10_000_000;
/// What the kernel adds to the name of a file that was removed: an upgrade leaves the old library running.
const REMOVED: &str = " (deleted)";

/// The version of PipeWire whose library `/proc/PID/maps` names; `None` where it names none.
///
/// # Source
/// proc_pid_maps(5). `libversion_minor` of PipeWire's meson.build: 1000 major + 100 minor + micro, so that 0.3.65 is 365 and 1.4.2 is
/// 1402, for as long as no micro version is beyond 99.
pub fn pipewire_version(maps: &str) -> Option<PipeWireVersion> {
    maps.lines().find_map(version)
}

/// The folder in which the library that [`pipewire_version`] found lies; its plugins are below it.
pub fn pipewire_folder(maps: &str) -> Option<&str> {
    let line = maps.lines().find(|line| version(line).is_some())?;
    Some(&line[line.find('/')?..line.rfind('/')?])
}

/// The lines of `/proc/PID/maps` that [`pipewire_version`] understands, and no others.
pub fn pipewire_lines(maps: &str) -> String {
    maps.lines().filter(|line| version(line).is_some()).map(|line| format!("{line}\n")).collect()
}

fn version(line: &str) -> Option<PipeWireVersion> {
    let (_, file) = line.rsplit_once('/')?;
    let number = file.strip_suffix(REMOVED).unwrap_or(file).strip_prefix(LIBRARY)?;
    let number = number.strip_suffix(".0")?;
    if number.is_empty() || number.len() > 6 || !number.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let number: u32 = number.parse().ok()?;
    let (major, minor, micro) = (number / 1000, number / 100 % 10, number % 100);
    Some(PipeWireVersion { major, minor, micro })
}

/// The settings of a server, as `pw-metadata -n settings` prints them; `None` where rate or quantum are not among them.
///
/// # Source
/// `metadata_property` of PipeWire's pw-metadata.c: `update: id:0 key:'clock.rate' value:'48000' type:''`.
pub fn pipewire_settings(text: &str) -> Option<PipeWireSettings> {
    let value = |wanted: &str| {
        let mut values = text.lines().filter_map(|line| {
            let (_, rest) = line.strip_prefix("update: id:0 ")?.split_once("key:'")?;
            let (key, rest) = rest.split_once("' value:'")?;
            let (value, _) = rest.split_once('\'')?;
            (key == wanted).then(|| value.parse::<u32>().ok()).flatten()
        });
        values.next().filter(|value| (1..=LARGEST).contains(value))
    };
    let (rate, quantum) = (value("clock.force-rate"), value("clock.force-quantum"));
    Some(PipeWireSettings {
        rate: rate.or_else(|| value("clock.rate"))?,
        quantum: quantum.or_else(|| value("clock.quantum"))?,
        least_quantum: value("clock.min-quantum"),
        most_quantum: value("clock.max-quantum"),
        forced: quantum.is_some(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn line(file: &str) -> String {
        format!("7f3c8e1b2000-7f3c8e1d0000 r--p 00000000 fe:01 131620                     {file}\n")
    }

    #[test]
    fn the_library_that_runs_tells_its_version() {
        let lib = "/usr/lib/x86_64-linux-gnu/libpipewire-0.3.so.0";
        for (file, wanted) in [
            (format!("{lib}.365.0"), Some("0.3.65")),
            (format!("{lib}.1402.0"), Some("1.4.2")),
            (format!("{lib}.1200.0"), Some("1.2.0")),
            (format!("{lib}.1005.0 (deleted)"), Some("1.0.5")),
            (format!("{lib}.1700.0"), Some("1.7.0")),
            (lib.to_owned(), None),
            (format!("{lib}..0"), None),
            (format!("{lib}.1402.1"), None),
            (format!("{lib}.-402.0"), None),
            (format!("{lib}.99999999.0"), None),
            (format!("{lib}.1402.0/x"), None),
            ("/usr/lib/libpipewire-0.2.so.1.207.0".to_owned(), None),
            ("[heap]".to_owned(), None),
        ] {
            let text = format!("{}{}", line("/usr/bin/pipewire"), line(&file));
            let found = pipewire_version(&text).map(|version| version.to_string());
            assert_eq!(found.as_deref(), wanted, "{file}");
            let kept = if wanted.is_some() { line(&file) } else { String::new() };
            let folder = wanted.map(|_| "/usr/lib/x86_64-linux-gnu");
            assert_eq!(pipewire_folder(&text), folder, "{file}");
            assert_eq!(pipewire_lines(&text), kept, "{file}");
        }
    }

    /// As 1.4.2 prints them.
    const SETTINGS: &str = "\
Found \"settings\" metadata 30
update: id:0 key:'log.level' value:'2' type:''
update: id:0 key:'clock.rate' value:'48000' type:''
update: id:0 key:'clock.allowed-rates' value:'[ 48000 ]' type:''
update: id:0 key:'clock.quantum' value:'1024' type:''
update: id:0 key:'clock.min-quantum' value:'32' type:''
update: id:0 key:'clock.max-quantum' value:'2048' type:''
update: id:0 key:'clock.force-quantum' value:'0' type:''
update: id:0 key:'clock.force-rate' value:'0' type:''
";

    #[test]
    fn settings_are_read_and_what_is_forced_counts() {
        let wanted = PipeWireSettings {
            rate: 48_000,
            quantum: 1024,
            least_quantum: Some(32),
            most_quantum: Some(2048),
            forced: false,
        };
        assert_eq!(pipewire_settings(SETTINGS), Some(wanted));
        let forced = SETTINGS.replace("force-quantum' value:'0'", "force-quantum' value:'64'");
        let wanted = PipeWireSettings { quantum: 64, forced: true, ..wanted };
        assert_eq!(pipewire_settings(&forced), Some(wanted));
        for bad in ["-1", "", "0", "99999999", "48000 ", "x"] {
            let text = SETTINGS.replace("rate' value:'48000'", &format!("rate' value:'{bad}'"));
            assert_eq!(pipewire_settings(&text), None, "{bad}");
        }
    }

    #[test]
    fn versions_are_in_order() {
        let version =
            |number: u32| pipewire_version(&line(&format!("/{LIBRARY}{number}.0"))).unwrap();
        let all = [365, 1000, 1005, 1200, 1204, 1402, 1600, 2000].map(version);
        assert!(all.is_sorted());
        let has_loops = all.map(|version| version >= PipeWireVersion::DATA_LOOPS);
        assert_eq!(has_loops, [false, false, false, true, true, true, true, true]);
    }

    proptest! {
        #[test]
        fn any_text_is_answered(text in "(?s).{0,80}", number in "[0-9.()a-z ]{0,12}") {
            pipewire_version(&text);
            pipewire_folder(&text);
            pipewire_settings(&text);
            let kept = pipewire_lines(&line(&format!("/{LIBRARY}{number}")));
            // What is kept says the same as the whole.
            let whole = pipewire_version(&line(&format!("/{LIBRARY}{number}")));
            prop_assert_eq!(pipewire_version(&kept), whole);
        }
    }
}
