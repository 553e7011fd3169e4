//! Which card, and whether it can be had: what is read of the machine before anything is changed.

use quiet_linux::{Error, Result, Root};
use quiet_types::printable;

/// A sound controller on PCI.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PciCard {
    /// Its address: `0000:00:1b.0`.
    pub address: String,
    /// The driver that has it.
    pub driver: Option<String>,
    /// The number of ALSA's card, where the kernel's driver has made one.
    pub card: Option<u32>,
    /// Its IOMMU group, where there is an IOMMU.
    pub group: Option<String>,
}

/// Where the kernel lists PCI devices.
pub(crate) const DEVICES: &str = "/sys/bus/pci/devices";
/// The driver that hands a device to a process.
pub(crate) const VFIO: &str = "vfio-pci";
/// The kernel's own.
const KERNELS: &str = "snd_hda_intel";
/// PCI's class of such controllers.
const CLASS: &str = "0x0403";

fn refused(address: &str, why: String) -> Error {
    Error::refused("take the sound card", address, why)
}

/// The value of a small file, without the line's end.
fn value(root: &Root, path: &str) -> Option<String> {
    root.read_if_there(path).ok().flatten().map(|text| text.trim().to_owned())
}

/// The last part of where a link leads.
fn leads(root: &Root, path: &str) -> Option<String> {
    let to = root.link(path)?;
    to.rsplit('/').next().map(str::to_owned)
}

/// The driver that a device has now.
pub(crate) fn driver(root: &Root, address: &str) -> Option<String> {
    leads(root, &format!("{DEVICES}/{address}/driver"))
}

/// Every controller of the kind, by its address.
pub fn cards(root: &Root) -> Vec<PciCard> {
    let mut found = Vec::new();
    for address in root.list(DEVICES).unwrap_or_default() {
        let class = value(root, &format!("{DEVICES}/{address}/class")).unwrap_or_default();
        if class.starts_with(CLASS) {
            found.push(read(root, &address));
        }
    }
    found.sort_by(|one, other| one.address.cmp(&other.address));
    found
}

fn read(root: &Root, address: &str) -> PciCard {
    let sound = root.list(&format!("{DEVICES}/{address}/sound")).unwrap_or_default();
    let card = sound.iter().find_map(|name| name.strip_prefix("card")?.parse().ok());
    let group = leads(root, &format!("{DEVICES}/{address}/iommu_group"));
    PciCard { address: address.to_owned(), driver: driver(root, address), card, group }
}

/// The card that is meant by a PCI address (`00:1b.0`, `0000:00:1b.0`) or by ALSA's number or name (`hw:0`, `0`, `hw:PCH`); without
/// one the only card that there is.
///
/// # Errors
/// When it is not there, or several are.
pub fn find(root: &Root, name: Option<&str>) -> Result<PciCard> {
    let all = cards(root);
    let listed = || {
        let named = all.iter().map(|one| match one.card {
            Some(card) => format!("{} (hw:{card})", one.address),
            None => one.address.clone(),
        });
        named.collect::<Vec<_>>().join(", ")
    };
    let Some(name) = name else {
        return match &all[..] {
            [one] => Ok(one.clone()),
            [] => Err(Error::refused(
                "find",
                "an Intel-HDA sound card",
                "no PCI device of its class is here; the other hosts need none",
            )),
            _ => Err(Error::refused(
                "choose",
                "a sound card",
                format!("several are here: {}; name one with --device", listed()),
            )),
        };
    };
    let wanted = name.strip_prefix("hw:").or_else(|| name.strip_prefix("plughw:")).unwrap_or(name);
    let by_name = value(root, "/proc/asound/cards").unwrap_or_default();
    let number: Option<u32> = wanted.parse().ok().or_else(|| numbered(&by_name, wanted));
    let fits = |one: &&PciCard| {
        one.address == wanted
            || one.address.strip_prefix("0000:") == Some(wanted)
            || number.is_some() && one.card == number
    };
    all.iter().find(fits).cloned().ok_or_else(|| {
        let what = format!("the sound card `{}`", printable(name, 60));
        let why = match &all[..] {
            [] => "no PCI device of the class of Intel-HDA controllers is here".to_owned(),
            _ => format!("Intel-HDA controllers here are {}", listed()),
        };
        Error::refused("find", what, why)
    })
}

/// The number of the card with that name, by `/proc/asound/cards`: ` 0 [PCH            ]: HDA-Intel - ...`.
fn numbered(cards: &str, name: &str) -> Option<u32> {
    cards.lines().find_map(|line| {
        let (number, rest) = line.split_once('[')?;
        (rest.split(']').next()?.trim() == name).then(|| number.trim().parse().ok())?
    })
}

/// How a card can be had.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fence {
    /// By vfio-pci: the IOMMU keeps the device to the memory that is shared with it.
    Iommu,
    /// Past it: nothing keeps the device from any memory of the machine.
    None,
}

/// Whether the card can be taken, and how; `allow_dma` says that it may be without an IOMMU.
///
/// # Errors
/// The reason, with what to do.
pub fn may_take(root: &Root, card: &PciCard, allow_dma: bool) -> Result<Fence> {
    let no = |why: String| Err(refused(&card.address, why));
    match card.driver.as_deref() {
        None | Some(KERNELS | VFIO) => {}
        Some(other) if other.contains("sof") || other.contains("avs") || other.contains("soc") => {
            return no(format!(
                "the driver {other} has it, and with it a signal processor whose firmware owns the sound; play with --host alsa"
            ));
        }
        Some(other) => {
            return no(format!(
                "the driver {other} has it, which is not known here; play with --host alsa"
            ));
        }
    }
    if let Some(number) = card.card {
        let users = users(root, number);
        if !users.is_empty() {
            return no(format!(
                "it is in use by {}; end that first (a sound server lets go of a card when it is stopped)",
                users.join(", ")
            ));
        }
    }
    let Some(group) = &card.group else {
        return match allow_dma {
            true => Ok(Fence::None),
            false => no(
                "this machine has no IOMMU that is on (intel_iommu=on, or the firmware's settings): nothing would keep the card \
                 from any memory; play with --host alsa, or take that upon you with --allow-dma"
                    .into(),
            ),
        };
    };
    let others = foreign(root, group, &card.address);
    let kind = value(root, &format!("/sys/kernel/iommu_groups/{group}/type")).unwrap_or_default();
    match (others.is_empty(), allow_dma) {
        (true, _) => Ok(Fence::Iommu),
        (false, true) if kind == "identity" => Ok(Fence::None),
        (false, true) => no(format!(
            "its IOMMU group {group} holds other devices ({}), and their addresses are translated: --allow-dma helps only where the \
             machine was booted with iommu=pt",
            others.join(", ")
        )),
        (false, false) => no(format!(
            "its IOMMU group {group} holds other devices that the kernel's drivers have: {}; they cannot be told apart, so the card \
             cannot be handed over alone; play with --host alsa",
            others.join(", ")
        )),
    }
}

/// Devices of the group that keep it from being handed over: others, with drivers, that are no bridges.
fn foreign(root: &Root, group: &str, own: &str) -> Vec<String> {
    let members =
        root.list(&format!("/sys/kernel/iommu_groups/{group}/devices")).unwrap_or_default();
    let others = members.into_iter().filter(|address| address != own).filter_map(|address| {
        let driver = driver(root, &address)?;
        let class = value(root, &format!("{DEVICES}/{address}/class")).unwrap_or_default();
        let harmless = driver == VFIO || driver == "pcieport" || class.starts_with("0x0604");
        (!harmless).then(|| format!("{address} ({driver})"))
    });
    others.collect()
}

/// Who holds files of ALSA's card open: playing, captured from or controlled by.
fn users(root: &Root, card: u32) -> Vec<String> {
    let ends = [format!("controlC{card}"), format!("hwC{card}D"), format!("pcmC{card}D")];
    let is_of = |file: &str| {
        let name = file.strip_prefix("/dev/snd/").unwrap_or_default();
        name == ends[0] || name.starts_with(&ends[1]) || name.starts_with(&ends[2])
    };
    let mut found = Vec::new();
    for pid in root.list("/proc").unwrap_or_default() {
        // A descriptor that this process has inherited keeps nobody.
        if pid.parse().is_ok_and(|pid: u32| pid == std::process::id())
            || pid.parse::<u32>().is_err()
        {
            continue;
        }
        let folder = format!("/proc/{pid}/fd");
        let open = root.list(&folder).unwrap_or_default();
        let holds = |fd: &String| root.link(&format!("{folder}/{fd}")).is_some_and(|to| is_of(&to));
        if open.iter().any(holds) {
            let comm = value(root, &format!("/proc/{pid}/comm")).unwrap_or_default();
            found.push(format!("{} (process {pid})", printable(&comm, 20)));
        }
    }
    found
}

/// A place for the shared memory that no reserved region of the group meets; reserved are lines of two addresses.
pub(crate) fn place(root: &Root, group: &str, bytes: u64) -> u64 {
    const FIRST: u64 = 16 << 20;
    const STEP: u64 = 16 << 20;
    let text = value(root, &format!("/sys/kernel/iommu_groups/{group}/reserved_regions"));
    let number = |word: Option<&str>| u64::from_str_radix(word?.strip_prefix("0x")?, 16).ok();
    let regions: Vec<(u64, u64)> = text
        .unwrap_or_default()
        .lines()
        .filter_map(|line| {
            let mut words = line.split_whitespace();
            Some((number(words.next())?, number(words.next())?))
        })
        .collect();
    // Below 4 GiB: not every controller knows more.
    let free = |at: &u64| regions.iter().all(|(from, to)| at + bytes <= *from || *at > *to);
    (0..250).map(|n| FIRST + n * STEP).find(free).unwrap_or(FIRST)
}
