//! Amps and impulse responses that somebody drops onto a face: kept in a folder of the user's, then swapped in.

use crate::{
    clean::clean,
    sound::{self, ControlError},
};
use quiet_linux::files::{self, Replace};
use quiet_types::live::Deed;
use serde_json::{Value, json};
use std::{
    fs,
    path::{Path, PathBuf},
};

/// The largest file that is taken, bytes.
pub const MOST_DROPPED: usize = 32 << 20;
/// Most files that the folder may hold.
const MOST_FILES: usize = 1000;

/// What a dropped file is, told by its name's end.
fn kind_of(name: &str) -> Option<&'static str> {
    let (_, end) = name.rsplit_once('.')?;
    match end.to_ascii_lowercase().as_str() {
        "nam" | "json" | "aidax" => Some("amp"),
        "wav" => Some("ir"),
        _ => None,
    }
}

/// A number for the bytes, so that two files of one name stand beside each other and one that comes twice is kept once.
///
/// # Source
/// G. Fowler, L. Noll, K.-P. Vo: FNV-1a, 64 bits.
fn number(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |sum, byte| {
        (sum ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3)
    })
}

/// Where a file of that name and these bytes is kept: nothing of a stranger's name is more than letters and digits.
fn place(folder: &Path, name: &str, bytes: &[u8]) -> Option<PathBuf> {
    let (stem, end) = name.rsplit_once('.')?;
    let fine = |c: char| if c.is_alphanumeric() || "-_".contains(c) { c } else { '-' };
    let stem: String = stem.chars().take(40).map(fine).collect();
    let end = end.to_ascii_lowercase();
    Some(folder.join(format!("{}-{:016x}.{end}", stem.trim_matches('-'), number(bytes))))
}

/// Keeps a dropped file in `folder` and has the engine swap it in: the engine tries it first, in a process apart. What it refuses is not kept.
///
/// # Errors
/// A sentence: the file is none of these, there is no room, or the engine does not take it.
pub fn drop_sound(
    engine: (&Path, &str),
    folder: &Path,
    (name, bytes): (&str, &[u8]),
) -> Result<Deed, String> {
    let shown = clean(name, 80);
    let kind = kind_of(name).ok_or_else(|| {
        format!("`{shown}` is neither an amp (.nam, .json, .aidax) nor an impulse response (.wav)")
    })?;
    if bytes.is_empty() || bytes.len() > MOST_DROPPED {
        return Err(format!("`{shown}` has {} bytes; {MOST_DROPPED} are the most", bytes.len()));
    }
    let cannot = |e: std::io::Error| format!("cannot keep `{shown}` in {}: {e}", folder.display());
    let path = place(folder, name, bytes).ok_or("the file has no name")?;
    let is_new = fs::symlink_metadata(&path).is_err();
    if is_new {
        files::make_dir(folder).map_err(cannot)?;
        let kept = fs::read_dir(folder).map_err(cannot)?.take(MOST_FILES + 1).count();
        if kept >= MOST_FILES {
            return Err(format!(
                "{} holds {MOST_FILES} files already: take some away",
                folder.display()
            ));
        }
    }
    files::write_whole(&path, bytes, Replace::Always).map_err(cannot)?;
    let request: Value = json!({"do": "swap", kind: path});
    match sound::ask(engine.0, engine.1, &request) {
        Ok(answer) => {
            let said = format!("{shown}: {}", sound::swapped(&answer));
            Ok(Deed { asked: "swap".into(), done: true, said })
        }
        Err(why) => {
            // One that does not answer may take it yet.
            if is_new && !matches!(why, ControlError::Silent(_)) {
                let _ = fs::remove_file(&path);
            }
            Err(why.to_string())
        }
    }
}

/// Has the engine take a file of this user's: a strip where it lies, an amp or an impulse response as if it had been dropped.
///
/// # Errors
/// As for [`drop_sound`]; or the file cannot be read.
pub fn swap_file(
    engine: (&Path, &str),
    folder: Option<&Path>,
    file: &Path,
) -> Result<Deed, String> {
    let shown = clean(&file.display().to_string(), 200);
    let cannot = |e: std::io::Error| format!("cannot read {shown}: {e}");
    let file = std::path::absolute(file).map_err(cannot)?;
    if file.extension().is_some_and(|end| end.eq_ignore_ascii_case("toml")) {
        let request = json!({"do": "swap", "strip": file});
        let answer = sound::ask(engine.0, engine.1, &request).map_err(|e| e.to_string())?;
        return Ok(Deed { asked: "swap".into(), done: true, said: sound::swapped(&answer) });
    }
    let bytes = files::read(&file, MOST_DROPPED as u64).map_err(cannot)?;
    let name = file.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let folder = folder.ok_or("this user has no folder for amps and impulse responses")?;
    drop_sound(engine, folder, (&name, &bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_strangers_name_leads_nowhere_else() {
        let folder = Path::new("/own");
        for name in ["../../etc/passwd.nam", "/etc/x.nam", "a\0b.nam", ".nam", "..nam", "a\nb.NAM"]
        {
            let path = place(folder, name, b"x").unwrap();
            assert_eq!(path.parent(), Some(folder), "{name}");
            let file = path.file_name().unwrap().to_str().unwrap();
            assert!(file.ends_with(".nam") && !file.starts_with('.'), "{file}");
            assert!(file.chars().all(|c| c.is_alphanumeric() || "-.".contains(c)), "{file}");
        }
        assert_ne!(place(folder, "a.nam", b"x"), place(folder, "a.nam", b"y"));
        assert_eq!(place(folder, "a.nam", b"x"), place(folder, "a.nam", b"x"));
        assert_eq!(
            (kind_of("a.b.NAM"), kind_of("cab.wav"), kind_of("a.toml")),
            (Some("amp"), Some("ir"), None)
        );
        assert_eq!(number(b""), 0xcbf2_9ce4_8422_2325);
        assert_eq!(number(b"a"), 0xaf63_dc4c_8601_ec8c);
    }

    #[test]
    fn what_is_no_sound_or_has_no_engine_is_not_kept() {
        let dir = tempfile::tempdir().unwrap();
        let folder = dir.path().join("sounds");
        let engine = (dir.path(), "play.sock");
        let refused = drop_sound(engine, &folder, ("a.exe", b"x")).unwrap_err();
        assert!(refused.contains("neither"), "{refused}");
        assert!(drop_sound(engine, &folder, ("a.nam", b"")).is_err());
        assert!(!folder.exists());
        let refused = drop_sound(engine, &folder, ("a.nam", b"{}")).unwrap_err();
        assert!(refused.contains("no engine plays"), "{refused}");
        assert_eq!(fs::read_dir(&folder).unwrap().count(), 0);
    }
}
