//! The device itself: its registers mapped, its memory pinned, by VFIO or past an IOMMU. The only unsafe code of this package.
#![allow(unsafe_code)]

use crate::registers::{Pages, Registers};
use rustix::{
    fs::{MemfdFlags, Mode, OFlags},
    mm::{MapFlags, ProtFlags},
};
use std::{
    ffi::c_void,
    fs::File,
    io,
    os::{
        fd::{AsFd, AsRawFd, FromRawFd, OwnedFd},
        unix::fs::FileExt,
    },
    path::Path,
    ptr,
    sync::atomic::AtomicU32,
};

/// Numbers of linux/vfio.h: `_IO(';', 100 + n)`.
const API_VERSION: u32 = 0x3b64;
const CHECK_EXTENSION: u32 = 0x3b65;
const SET_IOMMU: u32 = 0x3b66;
const GROUP_STATUS: u32 = 0x3b67;
const SET_CONTAINER: u32 = 0x3b68;
const DEVICE_FD: u32 = 0x3b6a;
const REGION_INFO: u32 = 0x3b6c;
const DEVICE_RESET: u32 = 0x3b6f;
const MAP_DMA: u32 = 0x3b71;
/// `VFIO_TYPE1v2_IOMMU` and `VFIO_TYPE1_IOMMU`.
const TYPES: [usize; 2] = [3, 1];
/// `VFIO_PCI_BAR0_REGION_INDEX` and `VFIO_PCI_CONFIG_REGION_INDEX`.
const BAR0: u32 = 0;
const CONFIG: u32 = 7;
/// The largest BAR that is taken.
const MOST: u64 = 1 << 20;

/// `struct vfio_region_info`.
#[repr(C)]
#[derive(Default)]
struct RegionInfo {
    argsz: u32,
    flags: u32,
    index: u32,
    cap_offset: u32,
    size: u64,
    offset: u64,
}

/// `struct vfio_group_status`.
#[repr(C)]
#[derive(Default)]
struct GroupStatus {
    argsz: u32,
    flags: u32,
}

/// `struct vfio_iommu_type1_dma_map`.
#[repr(C)]
struct DmaMap {
    argsz: u32,
    flags: u32,
    vaddr: u64,
    iova: u64,
    size: u64,
}

/// An ioctl whose argument is a number, or a pointer that its caller keeps alive.
fn control(on: &impl AsRawFd, number: u32, with: usize) -> io::Result<i32> {
    // SAFETY: the callers below pass what each request of linux/vfio.h takes: a number, a descriptor, or a pointer to a value of
    // the request's layout, with its size in it, that lives until the call returns.
    let done = unsafe { libc::ioctl(on.as_raw_fd(), number as libc::Ioctl, with) };
    if done < 0 { Err(io::Error::last_os_error()) } else { Ok(done) }
}

/// A mapping of a device's registers or of shared memory; taken down when it is dropped.
#[derive(Debug)]
struct Mapped {
    at: *mut c_void,
    bytes: usize,
}

// SAFETY: the mapping belongs to this value alone; it is reached by volatile accesses and atomics, from any thread.
unsafe impl Send for Mapped {}
// SAFETY: as above.
unsafe impl Sync for Mapped {}

impl Mapped {
    fn shared(file: impl AsFd, bytes: usize, offset: u64) -> io::Result<Mapped> {
        let access = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a new mapping at an address of the kernel's choice touches nothing that exists.
        let at = unsafe {
            rustix::mm::mmap(ptr::null_mut(), bytes, access, MapFlags::SHARED, file, offset)?
        };
        Ok(Mapped { at, bytes })
    }

    /// The address of `size` bytes at `at`; `None` where they are not within.
    fn place(&self, at: u32, size: usize) -> Option<*mut u8> {
        let at = at as usize;
        let within = at.is_multiple_of(size) && at.checked_add(size)? <= self.bytes;
        within.then(|| self.at.cast::<u8>().wrapping_add(at))
    }
}

impl Drop for Mapped {
    fn drop(&mut self) {
        // SAFETY: the range is the one that was mapped, and no borrow of it outlives `self`.
        let _ = unsafe { rustix::mm::munmap(self.at, self.bytes) };
    }
}

/// A card whose registers and memory this process has.
#[derive(Debug)]
pub struct Card {
    registers: Mapped,
    memory: Mapped,
    bus: u64,
    /// Closed after both mappings are gone: the kernel then stops the device.
    _held: Held,
}

#[derive(Debug)]
enum Held {
    /// The device, its group, its container: in the order in which they are closed.
    Vfio(#[expect(dead_code, reason = "held, not read")] [OwnedFd; 3]),
    /// Config space, in which bus mastering is switched off at the end.
    Plain(File),
}

impl Drop for Held {
    fn drop(&mut self) {
        if let Held::Plain(config) = self {
            let _ = master(config, 0, false);
        }
    }
}

/// Bits 1 and 2 of the PCI command: the device's memory answers, and it may reach ours.
fn master(config: &File, offset: u64, on: bool) -> io::Result<()> {
    let mut command = [0; 2];
    config.read_exact_at(&mut command, offset + 4)?;
    let now = u16::from_le_bytes(command);
    let to = if on { now | 6 } else { now & !4 };
    config.write_all_at(&to.to_le_bytes(), offset + 4)
}

impl Card {
    /// Opens a device that vfio-pci has, with `bytes` of memory of this process at `bus` for the device, and nothing else.
    ///
    /// # Errors
    /// The kernel's, with what was being done.
    ///
    /// # Source
    /// Documentation/driver-api/vfio.rst.
    pub fn by_vfio(group: &str, device: &str, bytes: usize, bus: u64) -> Result<Card, OpenError> {
        let doing = |what: &'static str| move |e: io::Error| OpenError { what, why: e };
        let open = |path: &Path| {
            let flags = OFlags::RDWR | OFlags::CLOEXEC;
            rustix::fs::open(path, flags, Mode::empty()).map_err(io::Error::from)
        };
        let container = open(Path::new("/dev/vfio/vfio")).map_err(doing("open /dev/vfio/vfio"))?;
        let refused = |why: &str| io::Error::other(why.to_owned());
        if control(&container, API_VERSION, 0).map_err(doing("ask VFIO its version"))? != 0 {
            return Err(doing("use VFIO")(refused("it has another version than 0")));
        }
        let kind = TYPES.into_iter().find(|kind| {
            control(&container, CHECK_EXTENSION, *kind).is_ok_and(|answer| answer == 1)
        });
        let kind = kind.ok_or_else(|| {
            doing("use VFIO")(refused("it has no IOMMU of type 1 (modprobe vfio_iommu_type1)"))
        })?;
        let group =
            open(&Path::new("/dev/vfio").join(group)).map_err(doing("open the IOMMU group"))?;
        let mut status = GroupStatus { argsz: size_of::<GroupStatus>() as u32, flags: 0 };
        control(&group, GROUP_STATUS, (&raw mut status).addr()).map_err(doing("ask the group"))?;
        if status.flags & 1 == 0 {
            let why = refused("another device of its IOMMU group is with another driver");
            return Err(doing("use the group")(why));
        }
        let fd = container.as_raw_fd();
        control(&group, SET_CONTAINER, (&raw const fd).addr()).map_err(doing("join the group"))?;
        control(&container, SET_IOMMU, kind).map_err(doing("switch the IOMMU on"))?;
        let name = std::ffi::CString::new(device)
            .map_err(|_| doing("name the device")(refused("a zero byte")))?;
        let fd =
            control(&group, DEVICE_FD, name.as_ptr().addr()).map_err(doing("open the device"))?;
        // SAFETY: the kernel has just made this descriptor, and nobody else knows it.
        let device = unsafe { OwnedFd::from_raw_fd(fd) };
        // Few sound controllers can be reset from outside; the driver resets them by their own register.
        let _ = control(&device, DEVICE_RESET, 0);
        let info = |index| {
            let argsz = size_of::<RegionInfo>() as u32;
            let mut info = RegionInfo { argsz, index, ..RegionInfo::default() };
            control(&device, REGION_INFO, (&raw mut info).addr()).map(|_| info)
        };
        let bar = info(BAR0).map_err(doing("ask for the registers"))?;
        let can_map = bar.flags & 4 != 0 && (0x1000..=MOST).contains(&bar.size);
        if !can_map {
            return Err(doing("map the registers")(refused(
                "the kernel does not let them be mapped",
            )));
        }
        let registers = Mapped::shared(&device, bar.size as usize, bar.offset)
            .map_err(doing("map the registers"))?;
        let file = memory_file(MemfdFlags::CLOEXEC, bytes).map_err(doing("make memory"))?;
        let memory = Mapped::shared(&file, bytes, 0).map_err(doing("map memory"))?;
        let map = DmaMap {
            argsz: size_of::<DmaMap>() as u32,
            flags: 3,
            vaddr: memory.at.addr() as u64,
            iova: bus,
            size: bytes as u64,
        };
        // The kernel pins these pages, and the IOMMU lets the device reach them alone.
        control(&container, MAP_DMA, (&raw const map).addr()).map_err(doing("share memory"))?;
        let config = info(CONFIG).map_err(doing("ask for the configuration"))?;
        let file = File::from(device);
        master(&file, config.offset, true).map_err(doing("let the device reach its memory"))?;
        let held = Held::Vfio([OwnedFd::from(file), group, container]);
        Ok(Card { registers, memory, bus, _held: held })
    }
}

/// Bytes of a huge page, which is one piece of the machine's memory.
pub(crate) const HUGE: usize = 2 << 20;

/// A file of one huge page that is not made present yet.
///
/// # Errors
/// Where the kernel has no huge pages.
pub(crate) fn huge_page() -> io::Result<File> {
    memory_file(MemfdFlags::CLOEXEC | MemfdFlags::HUGETLB | MemfdFlags::HUGE_2MB, HUGE)
}

/// Switches off that a device reaches memory by itself.
///
/// # Errors
/// As the kernel refuses its configuration.
pub(crate) fn stop_reaching(config: &Path) -> io::Result<()> {
    master(&File::options().read(true).write(true).open(config)?, 0, false)
}

impl Card {
    /// Opens a device that has no driver, with a huge page for memory: nothing keeps the device to it. `folder` is the device's own in
    /// sysfs.
    ///
    /// # Errors
    /// The kernel's, with what was being done.
    ///
    /// # Source
    /// Documentation/PCI/sysfs-pci.rst (`resource0`, `config`); Documentation/admin-guide/mm/pagemap.rst.
    pub(crate) fn past_iommu(folder: &Path, page: &File) -> Result<Card, OpenError> {
        let doing = |what: &'static str| move |e: io::Error| OpenError { what, why: e };
        let open = |name: &str| File::options().read(true).write(true).open(folder.join(name));
        let bar = open("resource0").map_err(doing("open the registers"))?;
        let length = bar.metadata().map_err(doing("open the registers"))?.len();
        if !(0x1000..=MOST).contains(&length) {
            let why = io::Error::other(format!("they are {length} bytes"));
            return Err(doing("map the registers")(why));
        }
        let registers =
            Mapped::shared(&bar, length as usize, 0).map_err(doing("map the registers"))?;
        let memory = Mapped::shared(page, HUGE, 0).map_err(doing("map a huge page"))?;
        // SAFETY: the first word of the mapping, which nobody else has: the page is present once it was written.
        unsafe { memory.at.cast::<u32>().write_volatile(0) };
        let bus =
            physical(memory.at.addr() as u64).map_err(doing("find where the huge page lies"))?;
        let config = open("config").map_err(doing("open the configuration"))?;
        master(&config, 0, true).map_err(doing("let the device reach memory"))?;
        Ok(Card { registers, memory, bus, _held: Held::Plain(config) })
    }
}

/// Where a page that is present lies in the machine's memory.
fn physical(at: u64) -> io::Result<u64> {
    let mut entry = [0; 8];
    File::open("/proc/self/pagemap")?.read_exact_at(&mut entry, at / 4096 * 8)?;
    let entry = u64::from_le_bytes(entry);
    let frame = entry & ((1 << 55) - 1);
    match entry >> 63 == 1 && frame != 0 {
        true => Ok(frame * 4096),
        false => Err(io::Error::other("the kernel does not tell")),
    }
}

/// A step that the kernel refused.
#[derive(Debug)]
pub struct OpenError {
    /// What was being done.
    pub what: &'static str,
    /// What the kernel says.
    pub why: io::Error,
}

fn memory_file(flags: MemfdFlags, bytes: usize) -> io::Result<File> {
    let file = File::from(rustix::fs::memfd_create(c"quietcores-hda", flags)?);
    file.set_len(bytes as u64)?;
    Ok(file)
}

macro_rules! access {
    ($read:ident, $write:ident, $word:ty) => {
        fn $read(&self, at: u32) -> $word {
            let Some(place) = self.registers.place(at, size_of::<$word>()) else {
                return <$word>::MAX;
            };
            // SAFETY: the place lies within the mapping, is aligned, and the mapping lives as long as `self`; a device that is gone
            // reads as ones.
            <$word>::from_le(unsafe { place.cast::<$word>().read_volatile() })
        }

        fn $write(&self, at: u32, value: $word) {
            let Some(place) = self.registers.place(at, size_of::<$word>()) else { return };
            // SAFETY: as above; what the device does by it can reach the shared memory alone.
            unsafe { place.cast::<$word>().write_volatile(value.to_le()) }
        }
    };
}

impl Registers for Card {
    access!(read8, write8, u8);
    access!(read16, write16, u16);
    access!(read32, write32, u32);

    fn length(&self) -> u32 {
        self.registers.bytes as u32
    }
}

impl Pages for Card {
    fn words(&self) -> &[AtomicU32] {
        // SAFETY: the mapping is that long, page-aligned, zeroed by the kernel, backed by a file of that length that nobody else has,
        // lives as long as `self`, and is reached by this process through atomics alone.
        unsafe {
            std::slice::from_raw_parts(self.memory.at.cast::<AtomicU32>(), self.memory.bytes / 4)
        }
    }

    fn bus(&self) -> u64 {
        self.bus
    }
}
