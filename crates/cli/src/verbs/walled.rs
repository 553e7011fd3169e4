//! Behind walls: what `play` may read and write from before the first strip is read until its end, and where other verbs read
//! what strangers wrote.

use crate::face;
use quiet_engine::{
    AudioHost, Error, ErrorKind, Loaded, ProcessSpec, Setup, Shelf, StripTrial, Strips, Taster,
    WantedStrip, control::private_dir,
};
use quiet_linux::{
    rights::no_new,
    walls::{Use, Walls, refuse_calls},
};
use quiet_types::{Finding, Severity};
use std::{
    io,
    path::{Path, PathBuf},
};

/// What `play` may read and write.
pub struct Reach<'a> {
    /// Folders that are allowed by name.
    pub allow: &'a [PathBuf],
    /// The strip.
    pub strip: Option<&'a Path>,
    /// Where presets are.
    pub presets: Option<&'a Path>,
    /// Where sounds lie that are dropped onto a page.
    pub sounds: Option<&'a Path>,
    /// The control socket; `none` for none.
    pub control: Option<&'a Path>,
}

/// What came of closing the walls.
pub struct Within {
    /// Folders that are read, in words; empty where everything is.
    folders: String,
    /// The same, as they are.
    read: Vec<PathBuf>,
    /// Whether a strip is read before anything sounds.
    first: bool,
    /// What the kernel does not have.
    pub findings: Vec<Finding>,
}

/// Walls for the engine's own thread, which may go behind them first: of files it opens those of the host alone.
pub fn build(setup: &Setup) -> Walls {
    let walls = Walls::new();
    if let AudioHost::File { input, output } = &setup.host {
        let _ = walls.allow(&folder(input), Use::Read);
        let _ = walls.allow(&folder(output), Use::Write);
    }
    walls
}

/// Shuts this thread, and those that it makes later, off from everything but writing to these folders, as far as the kernel can: before
/// it reads what a stranger wrote.
pub fn shut(write: &[&Path]) {
    let walls = Walls::bare();
    for dir in write {
        let _ = walls.allow(dir, Use::Write);
    }
    // The list of CPUs that are there.
    let _ = walls.allow(Path::new("/sys/devices/system/cpu"), Use::Read);
    if no_new().is_ok() {
        let _ = walls.close();
    }
}

/// The same of this whole process, which starts no other program from then on.
pub fn shut_all(write: &[&Path]) {
    shut(write);
    let _ = refuse_calls();
}

/// The folder that a file lies in.
pub fn folder(path: &Path) -> PathBuf {
    match path.parent() {
        Some(dir) if dir != Path::new("") => dir.to_owned(),
        _ => PathBuf::from("."),
    }
}

/// Closes the walls around this process: its folders are those of the strip, of the presets, of the control socket,
/// and what was allowed.
pub fn close(reach: &Reach<'_>, setup: &Setup, walls: &Walls) -> Within {
    let first = reach.strip.is_some();
    let mut findings: Vec<Finding> = refuse_calls().into_iter().collect();
    #[cfg(not(feature = "audio"))]
    let _ = setup;
    // Its library makes sockets and memory where the server says, and nobody has written down where.
    #[cfg(feature = "audio")]
    if let AudioHost::Jack(_) = setup.host {
        let title = "A client of JACK is not kept to its folders";
        findings.push(
            Finding::new(Severity::Note, "play.jack_reach", title)
                .effect("A broken strip could read whatever its user may."),
        );
        return Within { folders: String::new(), read: folders(reach).0, first, findings };
    }
    let (read, write) = folders(reach);
    let mut refused = Vec::new();
    for (places, what) in [(&read, Use::Read), (&write, Use::Write)] {
        for place in places {
            if let Err(error) = walls.allow(place, what) {
                refused.push(format!("{}: {error}", place.display()));
            }
        }
    }
    if !refused.is_empty() {
        face::say(&format!("not there to be allowed: {}", refused.join("; ")));
    }
    // For ALSA's own settings of this user.
    for name in [".asoundrc", ".config/alsa", ".config/pipewire"] {
        if let Some(home) = std::env::var_os("HOME") {
            let _ = walls.allow(&Path::new(&home).join(name), Use::Read);
        }
    }
    findings.extend(walls.missing());
    let closed = walls.close().map_err(|error| {
        findings.push(
            Finding::new(Severity::Warning, "play.no_walls", "The kernel refused Landlock's rules")
                .evidence(error.to_string())
                .effect("A broken strip could read whatever its user may."),
        );
    });
    let kept = closed.is_ok() && walls.missing().is_none();
    let shown: Vec<String> =
        read.iter().chain(&write).map(|dir| dir.display().to_string()).collect();
    Within { folders: if kept { shown.join(", ") } else { String::new() }, read, first, findings }
}

/// What is read, and what is written.
fn folders(reach: &Reach<'_>) -> (Vec<PathBuf>, Vec<PathBuf>) {
    let mut read = reach.allow.to_vec();
    match reach.strip {
        Some(strip) => {
            read.push(folder(strip));
            // A link's own folder, and that of what it leads to.
            read.extend(strip.canonicalize().ok().map(|file| folder(&file)));
        }
        None if reach.allow.is_empty() => read.push(PathBuf::from(".")),
        None => {}
    }
    if let Some(sounds) = reach.sounds {
        // Not there before the first one is dropped.
        if std::fs::create_dir_all(sounds).is_ok() {
            read.push(sounds.to_owned());
        }
    }
    let mut write = Vec::new();
    if let Some(presets) = reach.presets {
        // Not there before the first one is saved.
        if std::fs::create_dir_all(presets).is_ok() || reach.sounds.is_none() {
            write.push(presets.to_owned());
        }
    }
    match reach.control {
        Some(path) if path.as_os_str() == "none" => {}
        Some(path) => write.push(folder(path)),
        None => write.extend(private_dir().ok()),
    }
    read.dedup();
    (read, write)
}

impl Within {
    /// Strips that are read from within; all but the first one after `taster` has had them tried.
    pub fn around(&self, strips: Strips, taster: Option<Taster>) -> Walled {
        Walled {
            strips,
            folders: self.folders.clone(),
            read: self.read.clone(),
            taster,
            first: self.first,
        }
    }

    /// With the remedy, where the walls may be the reason.
    pub fn refused(&self, error: Error) -> Error {
        explained(error, &self.folders)
    }
}

/// Strips, and why some of them are not read.
pub struct Walled {
    strips: Strips,
    folders: String,
    read: Vec<PathBuf>,
    taster: Option<Taster>,
    /// Nothing sounds yet that a bad one could end.
    first: bool,
}

impl Shelf for Walled {
    fn load(&mut self, wanted: &WantedStrip, setting: ProcessSpec) -> Result<Loaded, Error> {
        if !std::mem::take(&mut self.first)
            && let Some(taster) = &mut self.taster
        {
            let trial = StripTrial::new(&self.strips, wanted, setting, &self.read);
            match taster.taste(&trial) {
                Err(error) if error.kind() == ErrorKind::Machine => {
                    face::say(&format!("{error}; strips are read by the process that plays"));
                    self.taster = None;
                }
                tasted => tasted.map_err(|error| explained(error, &self.folders))?,
            }
        }
        self.strips.load(wanted, setting).map_err(|error| explained(error, &self.folders))
    }

    fn path(&self) -> Option<PathBuf> {
        self.strips.path()
    }
}

fn explained(error: Error, folders: &str) -> Error {
    let said = error.to_string();
    let denied = io::Error::from_raw_os_error(rustix::io::Errno::ACCESS.raw_os_error()).to_string();
    if folders.is_empty() || !said.to_lowercase().contains(&denied.to_lowercase()) {
        return error;
    }
    Error::of(
        error.kind(),
        format!("{said}; `play` reads from {folders} alone: start it with --allow DIR"),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn behind_the_walls_nothing_is_read_and_only_the_folder_written() {
        let (inside, outside) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        fs::write(outside.path().join("file"), "x").unwrap();
        if let Some(missing) = Walls::bare().missing() {
            return quiet_testing::skip(quiet_testing::Why::Machine(format!("{missing:?}")));
        }
        let (inside, outside) = (inside.path().to_owned(), outside.path().to_owned());
        // In a thread of its own: it is for good.
        let behind = std::thread::spawn(move || {
            shut(&[&inside]);
            fs::write(inside.join("new"), "x").unwrap();
            assert_eq!(fs::read_to_string(inside.join("new")).unwrap(), "x");
            for path in [&outside.join("file"), Path::new("/etc/passwd")] {
                let refused = fs::read(path).unwrap_err();
                assert_eq!(refused.kind(), io::ErrorKind::PermissionDenied, "{}", path.display());
            }
            assert!(fs::write(outside.join("new"), "x").is_err());
        });
        behind.join().unwrap();
    }
}
