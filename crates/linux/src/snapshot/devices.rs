//! Sound and network cards: the controller and the interrupts behind them, and who shares these.

use super::Reader;
use quiet_types::{
    Machine,
    machine::{Device, Irq},
};

pub(super) fn read(reader: &Reader<'_>, machine: &mut Machine) {
    let sound = "/sys/class/sound";
    let long_names = reader.whole_text("/proc/asound/cards").unwrap_or_default();
    for number in reader.numbered(sound, "card") {
        let name = format!("card{number}");
        let id = reader.text(&format!("{sound}/{name}/id")).unwrap_or_default();
        let description = match long_name(&long_names, number) {
            Some(long) if !id.is_empty() => format!("{id}: {long}"),
            Some(long) => long,
            None => id,
        };
        if let Some(card) = device(reader, &machine.irqs, sound, &name, description) {
            machine.sound_cards.push(card);
        }
    }
    let network = "/sys/class/net";
    let names = reader.names(network, |name| reader.exists(&format!("{network}/{name}/device")));
    for name in names {
        let driver = reader.link_name(&format!("{network}/{name}/device/driver"));
        let description = driver.unwrap_or_default();
        if let Some(card) = device(reader, &machine.irqs, network, &name, description) {
            machine.network_cards.push(card);
        }
    }
}

/// The name of a card in `/proc/asound/cards`, ` 0 [USB ]: USB-Audio - Scarlett 2i2 USB`.
fn long_name(cards: &str, number: u32) -> Option<String> {
    cards.lines().find_map(|line| {
        let (index, rest) = line.split_once('[')?;
        let wanted = index.trim().parse() == Ok(number);
        let (_, name) = rest.split_once("]:")?;
        let name = name.split_once(" - ").map_or(name, |(_, name)| name);
        wanted.then(|| name.trim().to_owned())
    })
}

fn device(
    reader: &Reader<'_>,
    irqs: &[Irq],
    class: &str,
    name: &str,
    description: String,
) -> Option<Device> {
    let path = reader.real_path(&format!("{class}/{name}"))?;
    let controller = controller(reader, irqs, &path, name).or_else(|| of_soc(reader, irqs, &path));
    let mut card = Device { name: name.to_owned(), description, path, ..Device::default() };
    if let Some(controller) = controller {
        let shared = usb_neighbours(reader, &controller.path, &card.path);
        let others = irqs
            .iter()
            .filter(|irq| controller.irqs.contains(&irq.number))
            .flat_map(|irq| irq.actions.iter().map(move |action| (irq.number, action)))
            .filter(|(_, action)| !controller.owns(action, name))
            .map(|(number, action)| format!("IRQ {number}: {action}"));
        card.shared_with = shared.into_iter().chain(others).collect();
        card.controller = Some(controller.title());
        card.irqs = controller.irqs;
    }
    Some(card)
}

/// The device that owns the interrupts of a card.
struct Controller {
    path: String,
    driver: Option<String>,
    irqs: Vec<u32>,
    /// `usbN` and `virtioN` below it, on the way to the card or not.
    children: Vec<String>,
}

impl Controller {
    fn name(&self) -> &str {
        last(&self.path)
    }

    fn title(&self) -> String {
        match &self.driver {
            Some(driver) => format!("{} {driver}", self.name()),
            None => self.name().to_owned(),
        }
    }

    /// Whether a handler of this name on the controller's line is its own: named by its driver,
    /// its buses, the card, or itself.
    fn owns(&self, action: &str, card: &str) -> bool {
        let plain = |text: &str| text.replace('-', "_");
        let (base, suffix) = action.split_once(':').unwrap_or((action, ""));
        if let Some(bus) = suffix.strip_prefix("usb").filter(|_| suffix.len() > 3) {
            return self.children.iter().any(|child| child.strip_prefix("usb") == Some(bus));
        }
        if suffix.starts_with("card") {
            return suffix == card;
        }
        if action == "DMA IRQ" {
            return true;
        }
        let driver = self.driver.as_deref().map(plain).unwrap_or_default();
        let family = driver.split('_').next().unwrap_or_default();
        let part = |name: &str| {
            base.strip_prefix(name).is_some_and(|rest| !rest.starts_with(char::is_alphanumeric))
        };
        action == self.name()
            || part(card)
            || self.children.iter().any(|child| part(child))
            || (!family.is_empty() && plain(base).starts_with(family))
    }
}

/// The first ancestor with interrupts. PCI functions and ACPI devices name theirs in files; other
/// platform devices are recognised by the names that their handlers registered.
fn controller(reader: &Reader<'_>, irqs: &[Irq], card: &str, name: &str) -> Option<Controller> {
    let mut path = card;
    let mut buses: Vec<&str> = Vec::new();
    while let Some((parent, child)) = path.rsplit_once('/') {
        if is_bus(child) {
            buses.push(child);
        }
        if parent == "/sys/devices" || !parent.starts_with("/sys/devices/") {
            return None;
        }
        path = parent;
        let driver = reader.link_name(&format!("{path}/driver"));
        let mut numbers = own_irqs(reader, path);
        if numbers.is_empty() && driver.is_some() {
            numbers = handled(irqs, last(path), &buses, name);
        }
        if numbers.is_empty() && !is_pci_function(last(path)) {
            continue;
        }
        return Some(Controller {
            path: path.to_owned(),
            driver,
            irqs: numbers,
            children: reader.names(path, is_bus),
        });
    }
    None
}

/// `msi_irqs/N` or the number in `irq`.
fn own_irqs(reader: &Reader<'_>, path: &str) -> Vec<u32> {
    let vectors = reader.numbered(&format!("{path}/msi_irqs"), "");
    if !vectors.is_empty() {
        return vectors;
    }
    reader.number::<u32>(&format!("{path}/irq")).filter(|irq| *irq != 0).into_iter().collect()
}

/// The interrupts whose handlers carry the name of the device, the card, or a USB bus of it.
fn handled(irqs: &[Irq], device: &str, buses: &[&str], card: &str) -> Vec<u32> {
    let is_its = |action: &String| {
        let suffix = action.rsplit(':').next().unwrap_or_default();
        action == device || action == card || buses.contains(&suffix)
    };
    irqs.iter().filter(|irq| irq.actions.iter().any(is_its)).map(|irq| irq.number).collect()
}

/// A card of the chip itself has no interrupt: those of its serial ports, or of the DMA controller that feeds them, are its own. The
/// device tree names both. The first of them that has interrupts is told, with all that the card's devices have.
///
/// # Source
/// Devicetree bindings `sound/simple-card`, `sound/amlogic,axg-sound-card`, `dma/dma`: a `phandle` is a big-endian number.
fn of_soc(reader: &Reader<'_>, irqs: &[Irq], card: &str) -> Option<Controller> {
    let (device, _) = card.rsplit_once("/sound/")?;
    let node = reader.real_path(&format!("{device}/of_node"))?;
    let mut ports = phandles(reader, &node, 2);
    // A card that is itself the port (HDMI) is fed by DMA that it names.
    ports.extend(
        reader
            .bytes_if_allowed(&format!("{node}/phandle"), |bytes| bytes)
            .as_deref()
            .and_then(number),
    );
    let of: Vec<(u32, String)> = soc_devices(reader);
    let find =
        |phandle: &u32| of.iter().find(|(known, _)| known == phandle).map(|(_, path)| path.clone());
    let mut found: Option<Controller> = None;
    let mut tell = |path: String, numbers: Vec<u32>| {
        let driver = reader.link_name(&format!("{path}/driver"));
        let name = last(&path).to_owned();
        let one = found.get_or_insert_with(|| Controller {
            path,
            driver,
            irqs: Vec::new(),
            children: Vec::new(),
        });
        one.irqs.extend(numbers);
        // Handlers of its other ports are its own.
        one.children.push(name);
    };
    let ports: Vec<String> = ports.iter().filter_map(find).collect();
    for path in &ports {
        let own = handled(irqs, last(path), &[], "");
        if !own.is_empty() {
            tell(path.clone(), own);
        }
    }
    if found.is_none() {
        for path in &ports {
            let dmas = reader
                .bytes_if_allowed(&format!("{path}/of_node/dmas"), |bytes| bytes)
                .unwrap_or_default();
            let Some(dma) = number(&dmas).as_ref().and_then(find) else { continue };
            let mut own = handled(irqs, last(&dma), &[], "");
            // This driver calls all its channels alike.
            own.extend(handled(irqs, "DMA IRQ", &[], ""));
            let driver = reader.link_name(&format!("{dma}/driver"));
            found = Some(Controller { path: dma, driver, irqs: own, children: Vec::new() });
            break;
        }
    }
    let mut found = found?;
    found.irqs.sort_unstable();
    found.irqs.dedup();
    Some(found)
}

/// The first number of a property.
fn number(bytes: &[u8]) -> Option<u32> {
    bytes.first_chunk().map(|four| u32::from_be_bytes(*four))
}

/// More links than any board's card has.
const MOST_PORTS: usize = 64;

/// The devices that a card's node and those below it name as its serial ports.
fn phandles(reader: &Reader<'_>, node: &str, depth: u32) -> Vec<u32> {
    let of = |name: &str| reader.bytes_if_allowed(&format!("{node}/{name}"), |bytes| bytes);
    let mut found: Vec<u32> =
        ["sound-dai", "i2s-controller"].into_iter().filter_map(|name| number(&of(name)?)).collect();
    if depth > 0 {
        let is_link = |name: &str| {
            ["dai-link", "codec", "cpu", "simple-audio-card,"]
                .iter()
                .any(|word| name.starts_with(word))
        };
        for name in reader.names(node, is_link).into_iter().take(MOST_PORTS) {
            found.extend(phandles(reader, &format!("{node}/{name}"), depth - 1));
        }
    }
    found.truncate(MOST_PORTS);
    found
}

/// The devices of the chip that the device tree numbers.
fn soc_devices(reader: &Reader<'_>) -> Vec<(u32, String)> {
    let bus = "/sys/bus/platform/devices";
    let has_node = |name: &str| reader.exists(&format!("{bus}/{name}/of_node/phandle"));
    let told = |name: String| {
        let phandle =
            reader.bytes_if_allowed(&format!("{bus}/{name}/of_node/phandle"), |bytes| bytes)?;
        Some((number(&phandle)?, reader.real_path(&format!("{bus}/{name}"))?))
    };
    reader.names(bus, has_node).into_iter().filter_map(told).collect()
}

/// The USB devices behind a controller, hubs and the card itself left out, by product name.
fn usb_neighbours(reader: &Reader<'_>, controller: &str, card: &str) -> Vec<String> {
    let mut found = Vec::new();
    let mut todo: Vec<String> = reader
        .numbered(controller, "usb")
        .into_iter()
        .rev()
        .map(|bus| format!("{controller}/usb{bus}"))
        .collect();
    while let Some(path) = todo.pop() {
        let name = last(&path);
        let is_hub = reader.text(&format!("{path}/bDeviceClass")).as_deref() == Some("09");
        let is_card = card.strip_prefix(&path).is_some_and(|rest| rest.starts_with('/'));
        if !is_hub && !is_card && !name.starts_with("usb") {
            let text = |file: &str| reader.text(&format!("{path}/{file}")).unwrap_or_default();
            let (maker, product) = (text("manufacturer"), text("product"));
            let title = match (maker.is_empty(), product.is_empty()) {
                (_, true) if maker.is_empty() => "unnamed device".to_owned(),
                (_, true) => maker,
                (false, false) if !product.starts_with(&maker) => format!("{maker} {product}"),
                _ => product,
            };
            found.push(format!("USB {name}: {title}"));
        }
        let below = reader.names(&path, is_usb_device);
        todo.extend(below.iter().rev().map(|child| format!("{path}/{child}")));
    }
    found
}

/// `1-4.2`: port 2 of the hub at port 4 of bus 1. Interfaces carry a colon.
fn is_usb_device(name: &str) -> bool {
    name.split_once('-').is_some_and(|(bus, ports)| {
        let is_number = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
        is_number(bus) && ports.split('.').all(is_number)
    })
}

fn is_bus(name: &str) -> bool {
    ["usb", "virtio"].into_iter().any(|bus| {
        name.strip_prefix(bus)
            .is_some_and(|number| !number.is_empty() && number.bytes().all(|b| b.is_ascii_digit()))
    })
}

/// `0000:00:14.0`
fn is_pci_function(name: &str) -> bool {
    let parts: Vec<&str> = name.split([':', '.']).collect();
    parts.len() == 4
        && parts.iter().map(|part| part.len()).eq([4, 2, 2, 1])
        && parts.iter().all(|part| part.bytes().all(|b| b.is_ascii_hexdigit()))
}

fn last(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_functions_buses_and_devices_are_told_apart() {
        assert!(is_pci_function("0000:0b:00.3") && !is_pci_function("pci0000:00"));
        assert!(is_usb_device("1-4.2.1") && !is_usb_device("1-4:1.0") && !is_usb_device("usb1"));
        assert!(is_bus("usb12") && is_bus("virtio3") && !is_bus("usbmon") && !is_bus("usb"));
    }

    #[test]
    fn a_handler_belongs_to_its_own_controller_only() {
        let ehci = Controller {
            path: "/sys/devices/pci0000:00/0000:00:1d.0".into(),
            driver: Some("ehci-pci".into()),
            irqs: vec![20],
            children: vec!["usb2".into()],
        };
        assert!(ehci.owns("ehci_hcd:usb2", "card1"));
        assert!(!ehci.owns("ehci_hcd:usb1", "card1"));
        assert!(!ehci.owns("i801_smbus", "card1"));
        let hda = Controller {
            path: "/sys/devices/pci0000:00/0000:00:1f.3".into(),
            driver: Some("snd_hda_intel".into()),
            irqs: vec![16],
            children: vec![],
        };
        assert!(hda.owns("snd_hda_intel:card0", "card0"));
        assert!(!hda.owns("snd_hda_intel:card1", "card0"));
    }

    #[test]
    fn a_card_is_found_in_the_list_of_cards() {
        let cards = " 0 [PCH            ]: HDA-Intel - HDA Intel PCH\n                      HDA at 0xf7\n 1 [USB            ]: USB-Audio - Scarlett 2i2 USB\n";
        assert_eq!(long_name(cards, 1).as_deref(), Some("Scarlett 2i2 USB"));
        assert_eq!(long_name(cards, 2), None);
    }
}
