//! A card that is taken from the kernel's driver for a while, and a guard that gives it back however that ends.
//!
//! The guard is a process of its own, started before anything is changed. It reads from a pipe whose other end this process alone
//! holds: the kernel closes it with the process, also after SIGKILL. It has root's rights when this process has given them up.

use crate::{
    find::{DEVICES, Fence, PciCard, find, may_take, place},
    note::{self, CardNote, write},
    sys::{Card, HUGE, huge_page, stop_reaching},
};
use quiet_linux::{
    Error, ErrorKind, Hindrance, Insist, Kernel, Result, Root, System, files::StateDir, plain,
    sys::process,
};
use quiet_types::plan::TakenCard;
use std::{
    fs::File,
    io::{self, BufRead, BufReader, Read, Write},
    path::{Path, PathBuf},
    process::{Child, ChildStdin, Command, Stdio},
    thread::sleep,
};

/// The guard's first word.
const READY: &str = "ready";
/// The folder of modules' drivers.
const DRIVER: &str = "/sys/bus/pci/drivers/vfio-pci";

/// What is asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LoanWish {
    /// A PCI address, or ALSA's name of the card; the only one there is without it.
    pub name: Option<String>,
    /// Whether it may be taken where no IOMMU keeps it to its memory.
    pub allow_dma: bool,
    /// Where the note is kept.
    pub state: PathBuf,
    /// Started as `PROGRAM guard --card --state DIR`, which calls [`guard_card`].
    pub program: PathBuf,
    /// Bytes of memory to share.
    pub bytes: usize,
}

/// A card that this process has. Dropped, it goes back to the kernel's driver.
#[derive(Debug)]
pub struct BorrowedCard {
    about: PciCard,
    fence: Fence,
    device: Option<Card>,
    guard: Option<Guard>,
}

#[derive(Debug)]
struct Guard {
    child: Child,
    line: ChildStdin,
}

impl BorrowedCard {
    /// Takes the card: noted, guarded, handed over, opened.
    ///
    /// # Errors
    /// Why it cannot be had; all is as it was then.
    pub fn take(wish: &LoanWish) -> Result<BorrowedCard> {
        let root = Root::system()?;
        let state = StateDir::make(&wish.state)?;
        let lock = state.lock_patiently(System.lock_file().as_deref())?;
        if let Some(left) = note::read(&state)? {
            if left.is_playing(&root)? {
                let why = "another quietcores plays on a card; end that first";
                return Err(Error::refused("take the sound card", left.address, why));
            }
            note::put_back_left(&root, &wish.state, &write)?;
        }
        let about = find(&root, wish.name.as_deref())?;
        let fence = may_take(&root, &about, wish.allow_dma)?;
        let mut note = CardNote::of(&root, &about.address, std::process::id())?;
        let mut page = None;
        match fence {
            Fence::Iommu => load(&root)?,
            Fence::None if wish.bytes > HUGE => {
                let why =
                    "without an IOMMU its buffer has to fit into 2 MiB; ask for a shorter one";
                return Err(Error::refused("take the sound card", about.address, why));
            }
            Fence::None => {
                note = note.with_huge_page(&root)?;
                page = Some(huge_page().map_err(|e| Error::io("make", "a huge page", e))?);
            }
        }
        // The guard holds the page as well: it is nobody else's before the card is kept from it.
        let guard = Guard::start(&wish.program, &wish.state, page.as_ref())
            .map_err(|e| Error::refused("start", "a guard over the card", plain(&e)))?;
        let mut taken = BorrowedCard { about, fence, device: None, guard: Some(guard) };
        note.keep(&state)?;
        match page {
            None => note.hand_over(&root, &write)?,
            Some(_) => note.set_free(&root, &write)?,
        }
        drop(lock);
        let bytes = wish.bytes.next_multiple_of(4096);
        let group = taken.about.group.clone().unwrap_or_default();
        let bus = place(&root, &group, bytes as u64);
        let opened = match page {
            None => Card::by_vfio(&group, &taken.about.address, bytes, bus),
            Some(page) => Card::past_iommu(&Path::new(DEVICES).join(&taken.about.address), &page),
        };
        let device = opened.map_err(|e| {
            Error::io(e.what, format!("of the sound card {}", taken.about.address), e.why)
        })?;
        taken.device = Some(device);
        Ok(taken)
    }

    /// Which card it is.
    pub fn about(&self) -> &PciCard {
        &self.about
    }

    /// What keeps it to its memory.
    pub fn fence(&self) -> Fence {
        self.fence
    }

    /// Its registers and memory, for whoever plays; brought back by [`BorrowedCard::bring`].
    pub fn lend(&mut self) -> Option<Card> {
        self.device.take()
    }

    /// Takes them back.
    pub fn bring(&mut self, device: Card) {
        self.device = Some(device);
    }

    /// Gives the card back to the kernel's driver.
    ///
    /// # Errors
    /// What the kernel refused; the note is there then, for `quietcores revert`.
    pub fn give_back(mut self) -> Result<()> {
        self.end()
    }

    fn end(&mut self) -> Result<()> {
        // Closed first: the kernel takes a device from vfio-pci only when nobody holds it.
        drop(self.device.take());
        let Some(Guard { mut child, mut line }) = self.guard.take() else { return Ok(()) };
        let _ = line.write_all(b"back\n");
        drop(line);
        // It ends, or says why that takes long: then it goes on by itself.
        let mut said = String::new();
        if let Some(output) = child.stdout.take() {
            let _ = BufReader::new(output.take(4096)).read_line(&mut said);
        }
        let said = said.trim();
        let is_done = said.is_empty() && child.wait().is_ok_and(|end| end.success());
        if is_done {
            return Ok(());
        }
        let what = format!("the sound card {} back", self.about.address);
        let why = if said.is_empty() { "its guard was killed" } else { said };
        Err(Error::refused("give", what, format!("{why}; run `quietcores revert`")))
    }
}

impl Drop for BorrowedCard {
    fn drop(&mut self) {
        let _ = self.end();
    }
}

/// Has the kernel load the driver that hands devices over. It stays loaded: it does nothing by itself.
fn load(root: &Root) -> Result<()> {
    let modules = [("vfio-pci", DRIVER), ("vfio_iommu_type1", "/sys/module/vfio_iommu_type1")];
    for (module, place) in modules {
        if !root.exists(place) {
            // What came of it is told by what is there afterwards.
            let _ = Command::new("modprobe").arg(module).stdin(Stdio::null()).status();
        }
    }
    if root.exists(DRIVER) {
        return Ok(());
    }
    let why = "the kernel has no driver vfio-pci (`modprobe vfio-pci`); play with --host alsa";
    Err(Error::refused("hand over", "a sound card", why))
}

impl Guard {
    /// `page` stays open in it, as what it has for errors, of which it writes none.
    fn start(program: &Path, state: &Path, page: Option<&File>) -> io::Result<Guard> {
        let held = page.map(File::try_clone).transpose()?;
        let mut child = Command::new(program)
            .args(["guard", "--card", "--state"])
            .arg(std::path::absolute(state)?)
            .current_dir("/")
            .env_clear()
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(held.map_or_else(Stdio::null, Stdio::from))
            .spawn()?;
        let line = child.stdin.take().ok_or(io::ErrorKind::BrokenPipe)?;
        let mut output =
            BufReader::with_capacity(64, child.stdout.take().ok_or(io::ErrorKind::BrokenPipe)?);
        let mut word = String::new();
        output.read_line(&mut word)?;
        if word.trim_end() != READY {
            let _ = child.kill();
            let _ = child.wait();
            return Err(io::Error::other("it did not begin"));
        }
        child.stdout = Some(output.into_inner());
        Ok(Guard { child, line })
    }
}

/// What the guard does: waits for the end of the line on standard input, then gives the card back that the note in `state` tells of. What
/// stands in the way is waited for as long as the note is there.
///
/// # Errors
/// When it cannot begin.
pub fn guard_card(state: &Path, say: &mut dyn FnMut(&str)) -> Result<()> {
    let cannot = |e: io::Error| Error::io("guard", "a card", e);
    process::block_signals().map_err(cannot)?;
    let _ = rustix::process::setsid();
    let root = Root::system()?;
    say("ready\n");
    let mut rest = String::new();
    let _ = io::stdin().lock().take(64).read_to_string(&mut rest);
    let mut work = GiveBack::new(state, rest.trim() != "back");
    let mut insist = Insist::default();
    while let Err((hindrance, error)) = work.go_on(&root, System.lock_file().as_deref(), &write) {
        let pause = insist.failed(hindrance);
        if insist.is_to_be_told() {
            say(&format!("{}\n", error.to_string().replace('\n', " ")));
        }
        sleep(pause);
    }
    Ok(())
}

/// The card that a note tells of is given back, in as many tries as it takes.
pub(crate) struct GiveBack<'a> {
    state: &'a Path,
    /// Its process was killed: its end is waited for.
    killed: bool,
    /// The note that was there at the first look. Another one is another guard's.
    note: Option<CardNote>,
    /// Once is enough: by the second time the card may be the kernel's driver's again.
    is_disarmed: bool,
}

impl GiveBack<'_> {
    pub(crate) fn new(state: &Path, killed: bool) -> GiveBack<'_> {
        GiveBack { state, killed, note: None, is_disarmed: false }
    }

    /// One try.
    ///
    /// # Errors
    /// What stood in the way.
    pub(crate) fn go_on(
        &mut self,
        root: &Root,
        lock_file: Option<&Path>,
        write: note::Write<'_>,
    ) -> std::result::Result<(), (Hindrance, Error)> {
        let trouble = |error: Error| match error.kind() {
            ErrorKind::Busy => (Hindrance::Busy, error),
            _ => (Hindrance::Trouble, error),
        };
        let refused = |error: Error| (Hindrance::Refused, error);
        let Some(state) = StateDir::open(self.state).map_err(trouble)? else { return Ok(()) };
        let Some(note) = note::read(&state).map_err(trouble)? else { return Ok(()) };
        if self.note.get_or_insert_with(|| note.clone()) != &note {
            return Ok(());
        }
        if !self.is_disarmed {
            note.disarm(&stop_reaching).map_err(refused)?;
            self.is_disarmed = true;
        }
        if self.killed {
            note.await_end(root);
        }
        let _lock = state.lock_machine(lock_file).map_err(trouble)?;
        // Whoever plays next may have put it back meanwhile, and has a note and a guard of its own.
        if note::read(&state).map_err(trouble)?.as_ref() != Some(&note) {
            return Ok(());
        }
        note.put_back(root, write).map_err(refused)?;
        note::forget(&state).map_err(refused)
    }
}

/// The card that is taken, and by whom; `None` where none is.
///
/// # Errors
/// When the note of it cannot be read.
pub fn taken(state: &Path) -> Result<Option<TakenCard>> {
    note::taken(&Root::system()?, state)
}

/// Puts back what a killed process and its killed guard have left; the card's address, where there was one.
///
/// # Errors
/// What cannot be put back.
pub fn put_back(state: &Path) -> Result<Option<String>> {
    note::put_back_left(&Root::system()?, state, &write)
}
