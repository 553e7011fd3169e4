//! Small Arm boards: what is read of each, and what a plan and an audit do on it, argued in words.
#![allow(clippy::unwrap_used)] // a test may

use quiet_linux::{Options, Root, snapshot};
use quiet_testing::{
    fake::{Fake, Hierarchy, Irq, Temper, world},
    tree,
};
use quiet_types::{Chain, CpuSet, Machine, Plan, machine::Device, plan::Action};

/// A guitar through a USB card and CamillaDSP, with nothing said about CPUs.
const GUITAR: &str = r#"
[chain]
name = "guitar"
cpus = "auto"

[[link]]
name = "card"
irq = { card = "Scarlett" }
priority = 70

[[link]]
name = "dsp"
process = "camilladsp"
priority = 80
"#;

fn machine(name: &str) -> Machine {
    let root = Root::at(tree::fixture("machines").join(name)).unwrap();
    let machine = snapshot(&root, Options::default()).unwrap();
    assert_eq!(machine.unread, [], "{name}");
    machine
}

fn chain(text: &str, machine: &Machine) -> Chain {
    quiet_plan::chain::parse(text, "guitar.toml", Some(&machine.online)).unwrap()
}

fn planned(machine: &Machine, text: &str) -> Plan {
    quiet_plan::plan(machine, &chain(text, machine)).unwrap()
}

fn set(list: &str) -> CpuSet {
    list.parse().unwrap()
}

fn card<'m>(machine: &'m Machine, word: &str) -> &'m Device {
    machine.sound_cards.iter().find(|card| card.description.contains(word)).unwrap()
}

/// The interrupts that a plan asks to move, and where to.
fn moved(plan: &Plan) -> Vec<(u32, String)> {
    let of = plan.steps.iter().filter_map(|step| match &step.action {
        Action::Irq { number, cpus, .. } => Some((*number, cpus.to_string())),
        _ => None,
    });
    of.collect()
}

fn titles(plan: &Plan, id: &str) -> Vec<String> {
    plan.findings
        .iter()
        .filter(|finding| finding.id == id)
        .map(|finding| finding.title.clone())
        .collect()
}

#[test]
fn facts_of_the_boards_are_read_from_their_trees() {
    let three = machine("pi3");
    assert_eq!(three.board.as_deref(), Some("Raspberry Pi 3 Model B"));
    assert_eq!(three.compatible, ["raspberrypi,3-model-b", "brcm,bcm2837"]);
    assert!(three.is_raspberry_pi() && three.is_board("brcm,bcm2837"));
    let usb = card(&three, "Scarlett");
    assert_eq!((usb.controller.as_deref(), &usb.irqs[..]), (Some("3f980000.usb dwc2"), &[51][..]));
    assert_eq!(usb.shared_with, ["USB 1-1.1: SMSC95xx Ethernet"]);
    // Clusters without a number are no clusters.
    assert!(three.cpus.iter().all(|cpu| cpu.cluster.is_none() && cpu.kind.is_none()));

    let four = machine("pi4");
    let usb = card(&four, "Scarlett");
    assert_eq!(
        (usb.controller.as_deref(), &usb.irqs[..]),
        (Some("0000:01:00.0 xhci_hcd"), &[56][..])
    );
    let msi = four.irqs.iter().find(|irq| irq.number == 56).unwrap();
    assert_eq!(msi.chip.as_deref(), Some("BRCM STB PCIe MSI"));
    assert!(msi.immovable.as_deref().unwrap().contains("one interrupt of the controller's own"));
    let flags = four.heat.as_ref().unwrap().firmware.as_ref().unwrap();
    assert!(
        !flags.under_voltage
            && flags.was_under_voltage == Some(true)
            && flags.was_throttled == Some(true)
    );

    let five = machine("pi5");
    let usb = card(&five, "Scarlett");
    assert_eq!(
        (usb.controller.as_deref(), &usb.irqs[..]),
        (Some("xhci-hcd.0 xhci-hcd"), &[131][..])
    );
    let heat = five.heat.as_ref().unwrap();
    assert_eq!((heat.zones[0].trips.len(), heat.coolers[0].kind.as_str()), (5, "pwm-fan"));

    let vim = machine("vim3");
    let of =
        |id: usize| (vim.cpus[id].capacity, vim.cpus[id].cluster.as_ref().unwrap().to_string());
    assert_eq!((of(0), of(5)), ((Some(482), "0-1".to_owned()), (Some(1024), "2-5".to_owned())));
    // The card of the chip has no interrupt of its own: the device tree names its buffers, which have.
    let own = card(&vim, "KHADAS");
    assert_eq!(own.irqs, [41, 44]);
    assert_eq!(own.controller.as_deref(), Some("ff6421c0.audio-controller axg-frddr"));
    assert_eq!(own.shared_with, [""; 0], "both are its own");
    assert_eq!(card(&vim, "Scarlett").irqs, [36]);
    // Each board's tick is told by its own interrupt.
    for (machine, ticks) in [(&three, 301_060), (&four, 401_060), (&vim, 401_060)] {
        let (row, counts) = machine.timer_interrupts();
        assert_eq!((row, counts[0].1), ("arch_timer", ticks));
    }
}

#[test]
fn on_a_pi_3_the_chain_goes_to_cpu_0_and_nothing_tries_to_move_what_cannot_be() {
    // Every device's interrupts come to CPU 0: a chain elsewhere would be woken across CPUs, each period.
    let plan = planned(&machine("pi3"), GUITAR);
    assert_eq!(plan.shield.cpus, set("0"));
    assert_eq!(plan.shield.housekeeping, set("1-3"));
    assert_eq!(moved(&plan), [], "the kernel lets nobody write any of these masks");
    let reasons = plan.reasons.join("\n");
    assert!(reasons.contains("The chain goes to its interrupt, because the interrupt cannot come to the chain: IRQ 51"), "{reasons}");
    // What else comes there is told once, not once an interrupt; timers are no device's.
    let stays = titles(&plan, "plan.irq-immovable");
    assert_eq!(stays.len(), 1, "{stays:?}");
    assert!(stays[0].contains("mmc0") && !stays[0].contains("arch_timer"), "{stays:?}");
    assert_eq!(titles(&plan, "plan.link-stuck"), [""; 0]);
}

#[test]
fn on_a_pi_3_who_names_other_cpus_is_told_what_it_costs() {
    let plan = planned(&machine("pi3"), &GUITAR.replace("\"auto\"", "\"2-3\""));
    assert_eq!(plan.shield.cpus, set("2-3"));
    assert_eq!(titles(&plan, "plan.link-stuck"), ["IRQ 51 of link `card` stays on CPU 0"]);
}

#[test]
fn on_a_pi_4_the_chain_goes_to_the_msi_and_the_network_leaves_it() {
    // PCI Express delivers its MSIs to CPU 0; network and SD card hang on the GIC, and can leave.
    let plan = planned(&machine("pi4"), GUITAR);
    assert_eq!(plan.shield.cpus, set("0"));
    let moved = moved(&plan);
    let to =
        |number| moved.iter().find(|(known, _)| *known == number).map(|(_, cpus)| cpus.as_str());
    assert_eq!([to(39), to(40), to(36)], [Some("1-3"); 3], "{moved:?}");
    assert_eq!([to(56), to(26)], [None, None], "{moved:?}");
    assert!(plan.reasons.join("\n").contains("every MSI behind this PCI Express controller"));
    assert_eq!(titles(&plan, "plan.irq-immovable"), [""; 0], "nothing of others is stuck there");
}

#[test]
fn on_a_pi_5_the_interrupt_is_taken_along_unless_the_trial_says_that_it_stays() {
    let mut five = machine("pi5");
    // Newer kernels steer RP1's interrupts: the chain has a CPU without the kernel's own work.
    let plan = planned(&five, GUITAR);
    assert_eq!(plan.shield.cpus, set("3"));
    assert!(moved(&plan).contains(&(131, "3".to_owned())));
    // Older ones answer EINVAL, which nothing but a trial shows. (`apply` tries before it plans.)
    let chain = chain(GUITAR, &five);
    assert_eq!(quiet_plan::chain_interrupts(&five, &chain), [131]);
    let mut kernel = world(Hierarchy::V2, 4, &[], &[]);
    let refuses = Temper::Refuses(22); // EINVAL
    kernel.irqs.insert(131, Irq { asked: set("0-3"), effective: set("0"), temper: refuses });
    let dir = tempfile::tempdir().unwrap();
    let state = dir.path().join("state");
    quiet_shield::try_interrupts(&Fake::new(kernel), &state, &mut five, &[131]).unwrap();
    let plan = quiet_plan::plan(&five, &chain).unwrap();
    assert_eq!(plan.shield.cpus, set("0"), "where it was counted");
    assert!(!moved(&plan).iter().any(|(number, _)| *number == 131));
    assert!(
        plan.reasons.join("\n").contains("tried: its own mask was written back and refused"),
        "{:#?}",
        plan.reasons
    );
}

#[test]
fn on_a_vim3_the_chain_is_on_a_big_core_and_the_rest_keeps_one() {
    let vim = machine("vim3");
    let plan = planned(&vim, GUITAR);
    assert_eq!(plan.shield.cpus, set("5"), "the last of the big ones");
    assert!(moved(&plan).contains(&(36, "5".to_owned())));
    let reasons = plan.reasons.join("\n");
    assert!(
        reasons.contains("of the faster kind (capacity 1024; the others have 482)"),
        "{reasons}"
    );
    // Six links would like a core each, and there are four big ones.
    let many: String = (0..6)
        .map(|n| format!("[[link]]\nname = \"l{n}\"\nprocess = \"p{n}\"\npriority = {}\n", 60 + n))
        .collect();
    let plan = planned(&vim, &format!("[chain]\ncpus = \"auto\"\n{many}"));
    assert_eq!(plan.shield.cpus, set("3-5"));
    assert_eq!(plan.shield.housekeeping, set("0-2"), "CPU 2 is a big one");
    assert!(
        plan.reasons
            .join("\n")
            .contains("One of the 4 cores of the faster kind stays with the rest")
    );
    // Who asks for all of them by number gets them.
    let plan = planned(&vim, &format!("[chain]\ncpus = \"auto:4\"\n{many}"));
    assert_eq!(plan.shield.cpus, set("2-5"));
    // The card of the chip: both its buffers' interrupts go with the chain.
    let own = GUITAR.replace("Scarlett", "KHADAS");
    let moved = moved(&planned(&vim, &own));
    assert!(
        moved.contains(&(41, "5".to_owned())) && moved.contains(&(44, "5".to_owned())),
        "{moved:?}"
    );
}

#[test]
fn checks_of_boards_find_what_boards_have() {
    let ids = |name: &str| {
        let machine = machine(name);
        let chain = chain(&GUITAR.replace("\"auto\"", "\"3\""), &machine);
        let found = quiet_plan::check::check(&machine, Some(&chain));
        found.into_iter().map(|finding| (finding.id, finding.title)).collect::<Vec<_>>()
    };
    let has = |found: &[(String, String)], id: &str, words: &str| {
        assert!(
            found.iter().any(|(known, title)| known == id && title.contains(words)),
            "{id}: {found:#?}"
        );
    };
    let three = ids("pi3");
    has(
        &three,
        "irq.card_stuck",
        "IRQ 51 (3f980000.usb, dwc2_hsotg:usb1) cannot be moved off CPU 0",
    );
    has(&three, "irq.card_shared", "SMSC95xx Ethernet");
    let four = ids("pi4");
    has(&four, "irq.card_stuck", "IRQ 56 (xhci_hcd) cannot be moved off CPU 0");
    has(&four, "power.supply", "was too low at some time since boot");
    has(&four, "power.throttled", "since boot (throttled)");
    has(&four, "power.firmware_clocks", "later boards of this kind may run at 1800 MHz");
    let five = ids("pi5");
    has(&five, "irq.delivery", "does not tell where the chain's interrupts are delivered");
    let vim = ids("vim3");
    has(&vim, "kernel.clock_trapped", "CPUs 2-5");
    has(&vim, "power.governor", "governor ondemand");
    assert!(
        !vim.iter().any(|(id, _)| id == "power.supply" || id == "power.firmware_clocks"),
        "{vim:#?}"
    );
}
