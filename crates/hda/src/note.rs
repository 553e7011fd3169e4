//! What was, written to disk before a card changes its driver, and putting it back.

use crate::find::{DEVICES, VFIO, driver};
use quiet_linux::{
    BootId, Error, Result, Root,
    files::{Replace, StateDir, read_text, write_whole},
};
use quiet_types::plan::TakenCard;
use rustix::io::Errno;
use serde::{Deserialize, Serialize};
use std::{
    fs, io,
    path::{Path, PathBuf},
    thread::sleep,
    time::{Duration, Instant},
};

/// The note's name in the state directory.
const NAME: &str = "card.json";
const SCHEMA: &str = "quietcores.card/1";
/// A driver binds while the file is being written, or soon after.
const SOON: Duration = Duration::from_secs(5);
/// How long a process that was killed may take to let go of the card.
const DEATH: Duration = Duration::from_secs(20);

/// A process: its number and the tick of its start.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Player {
    pid: u32,
    start: u64,
}

/// What is put back: the driver that had the card, and what was written into `driver_override`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct CardNote {
    schema: String,
    boot_id: String,
    pub(crate) address: String,
    driver: Option<String>,
    #[serde(rename = "override")]
    overridden: Option<String>,
    /// Huge pages that were set aside, where one more was asked for. Such a card reaches all memory.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    huge_pages: Option<u64>,
    player: Player,
}

const HUGE_PAGES: &str = "/sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages";

/// Who writes the kernel's files: [`fs::write`], or a test's own kernel.
pub(crate) type Write<'a> = &'a dyn Fn(&str, &str) -> io::Result<()>;

/// The running kernel's: one write(2) of the whole value, no file made.
pub(crate) fn write(path: &str, value: &str) -> io::Result<()> {
    let mut file = fs::OpenOptions::new().write(true).open(path)?;
    io::Write::write_all(&mut file, value.as_bytes())
}

impl Player {
    /// The process of that number as it is now; `None` where there is none, or it has ended.
    ///
    /// # Errors
    /// When it cannot be told: no file was to be had, or no memory.
    pub(crate) fn of(root: &Root, pid: u32) -> Result<Option<Player>> {
        let file = format!("/proc/{pid}/stat");
        let text = match root.read(&file) {
            Err(error) if error.errno().is_some_and(is_gone) => return Ok(None),
            other => other?,
        };
        let parsed = || {
            let mut fields = text.get(text.rfind(')')? + 1..)?.split_ascii_whitespace();
            let dead = matches!(fields.next()?, "Z" | "X");
            let start = fields.nth(18)?.parse().ok()?;
            Some((!dead).then_some(Player { pid, start }))
        };
        parsed().ok_or_else(|| Error::nonsense(file.as_str(), None, "it is no line of a process"))
    }

    /// # Errors
    /// As [`Player::of`]: who cannot look does not know that it has ended.
    pub(crate) fn lives(&self, root: &Root) -> Result<bool> {
        Ok(Player::of(root, self.pid)?.as_ref() == Some(self))
    }
}

/// Whether an error number says that there is no such process.
fn is_gone(number: i32) -> bool {
    [Errno::NOENT, Errno::SRCH].iter().any(|errno| errno.raw_os_error() == number)
}

fn path(state: &StateDir) -> PathBuf {
    state.path().join(NAME)
}

/// The note that lies in the state directory; `None` where there is none.
pub(crate) fn read(state: &StateDir) -> Result<Option<CardNote>> {
    let file = path(state);
    let text = match read_text(&file, 1 << 16) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(Error::io("read", file.display().to_string(), error)),
    };
    let note: CardNote = serde_json::from_str(&text)
        .map_err(|e| Error::nonsense(file.display().to_string(), Some(e.line()), e.to_string()))?;
    let whole = note.schema == SCHEMA && is_address(&note.address);
    let names = note.driver.iter().chain(&note.overridden);
    if whole && names.into_iter().all(|name| is_name(name)) {
        Ok(Some(note))
    } else {
        Err(Error::nonsense(file.display().to_string(), None, "it is no note of a card"))
    }
}

/// `0000:00:1b.0`: these become parts of paths.
fn is_address(text: &str) -> bool {
    text.len() <= 20 && text.chars().all(|c| c.is_ascii_hexdigit() || c == ':' || c == '.')
}

fn is_name(text: &str) -> bool {
    text.len() <= 64 && text.chars().all(|c| c.is_ascii_alphanumeric() || c == '_' || c == '-')
}

impl CardNote {
    /// Of the card as it is now, for the process `pid`.
    ///
    /// # Errors
    /// When the kernel does not tell.
    pub(crate) fn of(root: &Root, address: &str, pid: u32) -> Result<CardNote> {
        let text = root.read_if_there(&format!("{DEVICES}/{address}/driver_override"))?;
        let overridden = text.map(|text| text.trim().to_owned());
        let overridden = overridden.filter(|name| name != "(null)" && !name.is_empty());
        let player = Player::of(root, pid)?
            .ok_or_else(|| Error::refused("find", format!("process {pid}"), "it has ended"))?;
        Ok(CardNote {
            schema: SCHEMA.into(),
            boot_id: BootId::in_root(root)?.as_str().to_owned(),
            address: address.to_owned(),
            driver: driver(root, address),
            overridden,
            huge_pages: None,
            player,
        })
    }

    /// The same of a card that is to be had without an IOMMU, by one huge page more.
    ///
    /// # Errors
    /// Where the kernel has no huge pages.
    pub(crate) fn with_huge_page(self, root: &Root) -> Result<CardNote> {
        let text = root.read(HUGE_PAGES)?;
        let now =
            text.trim().parse().map_err(|_| Error::nonsense(HUGE_PAGES, None, "no number"))?;
        Ok(CardNote { huge_pages: Some(now), ..self })
    }

    /// Takes the card from its driver and sets a huge page aside.
    ///
    /// # Errors
    /// The kernel's; what was done is to be put back by [`CardNote::put_back`].
    pub(crate) fn set_free(&self, root: &Root, write: Write<'_>) -> Result<()> {
        let more = self.huge_pages.unwrap_or(0) + 1;
        write(HUGE_PAGES, &more.to_string()).map_err(|e| Error::io("write", HUGE_PAGES, e))?;
        let has = root.read(HUGE_PAGES)?;
        if has.trim() != more.to_string() {
            let why = format!("it has {}, not {more}: no memory in one piece is free", has.trim());
            return Err(Error::refused("set", HUGE_PAGES, why));
        }
        self.unbind(root, write)
    }

    /// Where no IOMMU does it: keeps the card from all memory, before the page that it reaches is anybody else's.
    ///
    /// # Errors
    /// As the kernel refuses its configuration.
    pub(crate) fn disarm(&self, stop: &dyn Fn(&Path) -> io::Result<()>) -> Result<()> {
        if self.huge_pages.is_none() {
            return Ok(());
        }
        let config = format!("{DEVICES}/{}/config", self.address);
        stop(Path::new(&config)).map_err(|e| Error::io("write", config, e))
    }

    /// Writes it to the disk.
    ///
    /// # Errors
    /// When it cannot be: then nothing is to be changed.
    pub(crate) fn keep(&self, state: &StateDir) -> Result<()> {
        let text =
            serde_json::to_vec(self).map_err(|e| Error::io("write", NAME, io::Error::other(e)))?;
        let file = path(state);
        write_whole(&file, &text, Replace::Never)
            .map_err(|e| Error::io("write", file.display().to_string(), e))
    }

    /// Whether it is of this boot, and its process lives.
    ///
    /// # Errors
    /// When it cannot be told.
    pub(crate) fn is_playing(&self, root: &Root) -> Result<bool> {
        Ok(self.is_of_this_boot(root)? && self.player.lives(root)?)
    }

    /// A boot that cannot be told is an error: taken for another one, the card would stay with nobody.
    fn is_of_this_boot(&self, root: &Root) -> Result<bool> {
        Ok(!BootId::in_root(root)?.is_another(&self.boot_id))
    }

    /// Gives the card to vfio-pci, and reads back that it has it.
    ///
    /// # Errors
    /// The kernel's; what was done is to be put back by [`CardNote::put_back`].
    pub(crate) fn hand_over(&self, root: &Root, write: Write<'_>) -> Result<()> {
        if driver(root, &self.address).as_deref() == Some(VFIO) {
            return Ok(());
        }
        self.set(write, "driver_override", VFIO)?;
        self.unbind(root, write)?;
        let probe = "/sys/bus/pci/drivers_probe";
        write(probe, &self.address).map_err(|e| Error::io("write", probe, e))?;
        self.await_driver(root, Some(VFIO))
    }

    /// Gives the card back to the driver that had it, and reads back that it has it. What somebody else has made of it meanwhile
    /// stays.
    ///
    /// # Errors
    /// What the kernel refuses.
    pub(crate) fn put_back(&self, root: &Root, write: Write<'_>) -> Result<()> {
        // A boot has undone it.
        if !self.is_of_this_boot(root)? || !root.exists(&format!("{DEVICES}/{}", self.address)) {
            return Ok(());
        }
        if let Some(pages) = self.huge_pages {
            write(HUGE_PAGES, &pages.to_string()).map_err(|e| Error::io("write", HUGE_PAGES, e))?;
        }
        let now = driver(root, &self.address);
        if now == self.driver {
            return self.restore_override(root, write);
        }
        if now.as_deref().is_some_and(|now| now != VFIO) {
            return self.restore_override(root, write);
        }
        self.restore_override(root, write)?;
        self.unbind(root, write)?;
        let Some(driver) = &self.driver else { return Ok(()) };
        let bind = format!("/sys/bus/pci/drivers/{driver}/bind");
        let written = write(&bind, &self.address);
        match self.await_driver(root, Some(driver)) {
            Ok(()) => Ok(()),
            Err(error) => Err(written.err().map_or(error, |e| Error::io("write", bind, e))),
        }
    }

    fn restore_override(&self, root: &Root, write: Write<'_>) -> Result<()> {
        let file = format!("{DEVICES}/{}/driver_override", self.address);
        let now = root.read_if_there(&file).ok().flatten().unwrap_or_default();
        if now.trim() != VFIO {
            return Ok(());
        }
        // A line's end alone takes it away.
        self.set(write, "driver_override", self.overridden.as_deref().unwrap_or("\n"))
    }

    fn set(&self, write: Write<'_>, file: &str, value: &str) -> Result<()> {
        let path = format!("{DEVICES}/{}/{file}", self.address);
        write(&path, value).map_err(|e| Error::io("write", path, e))
    }

    fn unbind(&self, root: &Root, write: Write<'_>) -> Result<()> {
        if driver(root, &self.address).is_none() {
            return Ok(());
        }
        self.set(write, "driver/unbind", &self.address)?;
        self.await_driver(root, None)
    }

    fn await_driver(&self, root: &Root, wanted: Option<&str>) -> Result<()> {
        let until = Instant::now() + SOON;
        loop {
            let now = driver(root, &self.address);
            if now.as_deref() == wanted {
                return Ok(());
            }
            if Instant::now() > until {
                let what = format!("the driver of {}", self.address);
                let has = now.unwrap_or_else(|| "none".into());
                let wanted = wanted.unwrap_or("none");
                return Err(Error::refused("set", what, format!("it has {has}, not {wanted}")));
            }
            sleep(Duration::from_millis(10));
        }
    }

    /// Waits until its process is gone, so that nothing is taken from under it.
    pub(crate) fn await_end(&self, root: &Root) {
        let until = Instant::now() + DEATH;
        while self.is_playing(root).unwrap_or(true) && Instant::now() < until {
            sleep(Duration::from_millis(2));
        }
    }
}

/// What a note in the state directory tells of; `None` where there is none, or a boot has undone it.
///
/// # Errors
/// When the note cannot be read.
pub(crate) fn taken(root: &Root, state: &Path) -> Result<Option<TakenCard>> {
    let Some(state) = StateDir::open(state)? else { return Ok(None) };
    let Some(note) = read(&state)? else { return Ok(None) };
    if !note.is_of_this_boot(root)? {
        return Ok(None);
    }
    let process = note.is_playing(root)?.then_some(note.player.pid);
    Ok(Some(TakenCard { address: note.address, driver: note.driver, process }))
}

/// Removes the note: all is as it was.
pub(crate) fn forget(state: &StateDir) -> Result<()> {
    let file = path(state);
    match fs::remove_file(&file).and_then(|()| state.sync()) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            Err(Error::io("remove", file.display().to_string(), error))
        }
        _ => Ok(()),
    }
}

/// Puts back what a note in the state directory tells of, unless its process still plays; the card's address, where there was one.
///
/// # Errors
/// When the note cannot be read, or the kernel refuses.
pub(crate) fn put_back_left(root: &Root, state: &Path, write: Write<'_>) -> Result<Option<String>> {
    let Some(state) = StateDir::open(state)? else { return Ok(None) };
    let Some(note) = read(&state)? else { return Ok(None) };
    if note.is_playing(root)? {
        return Ok(None);
    }
    note.disarm(&crate::sys::stop_reaching)?;
    note.put_back(root, write)?;
    forget(&state)?;
    Ok(Some(note.address))
}
