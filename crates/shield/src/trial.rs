//! Whether interrupts can be moved, by trying: some controllers steer none, and nothing that can be read says so.

use crate::error::{errno, irq_reason, is_gone};
use quiet_linux::Kernel;
use quiet_types::Machine;

/// Writes the masks of these interrupts back as they are, which asks for nothing that is not so already, and notes in `machine` those that
/// the kernel refuses even so: a plan then takes the chain to them. Those that are known to stay are not asked.
///
/// The kernel may choose another CPU of the same mask meanwhile, as it may at any time.
///
/// # Source
/// `write_irq_affinity`, kernel/irq/proc.c: EIO (before Linux 6.12) or EPERM where the controller has no way to steer, what the
/// controller answers (EINVAL) where it has one that refuses.
pub fn try_interrupts(kernel: &dyn Kernel, machine: &mut Machine, numbers: &[u32]) {
    for irq in machine.irqs.iter_mut().filter(|irq| numbers.contains(&irq.number)) {
        if irq.immovable.is_some() {
            continue;
        }
        let file = format!("/proc/irq/{}/smp_affinity_list", irq.number);
        let Ok(mask) = kernel.read(&file) else { continue };
        match kernel.write(&file, mask.trim()) {
            Err(error) if !is_gone(&error) && stays(&error) => {
                irq.immovable = Some(format!(
                    "tried: its own mask was written back and refused ({error}): {}",
                    irq_reason(&error)
                ));
            }
            // Out of vectors, busy, or gone: it may move another time.
            Err(_) | Ok(()) => {}
        }
    }
}

/// Whether the answer means that it can never be moved.
fn stays(error: &std::io::Error) -> bool {
    matches!(error.raw_os_error(), Some(errno::EPERM | errno::EIO | errno::EINVAL))
}

#[cfg(test)]
mod tests {
    use super::*;
    use quiet_testing::fake::{Fake, Hierarchy, Temper, world};
    use quiet_types::machine::Irq;

    #[test]
    fn what_refuses_its_own_mask_stays_and_what_is_only_short_of_room_may_move() {
        let tempers = [
            Temper::Moves,
            Temper::Refuses(errno::EPERM),
            Temper::Refuses(errno::EIO),
            Temper::Refuses(errno::EINVAL),
            Temper::Refuses(errno::ENOSPC),
            Temper::Vanishes,
            Temper::Refuses(errno::EINVAL),
        ];
        let kernel = Fake::new(world(Hierarchy::V2, 4, &tempers, &[]));
        let before = kernel.read("/proc/irq/40/smp_affinity_list").unwrap();
        let irq = |number| Irq { number, ..Irq::default() };
        let mut machine = Machine { irqs: (40..47).map(irq).collect(), ..Machine::default() };
        machine.irqs[1].immovable = Some("known before".to_owned());
        // 46 is not asked for.
        try_interrupts(&kernel, &mut machine, &[40, 41, 42, 43, 44, 45, 99]);
        let stays: Vec<u32> = machine
            .irqs
            .iter()
            .filter(|irq| irq.immovable.is_some())
            .map(|irq| irq.number)
            .collect();
        assert_eq!(stays, [41, 42, 43]);
        assert_eq!(machine.irqs[1].immovable.as_deref(), Some("known before"));
        assert!(machine.irqs[3].immovable.as_deref().unwrap().starts_with("tried:"));
        assert_eq!(
            kernel.read("/proc/irq/40/smp_affinity_list").unwrap(),
            before,
            "nothing is changed"
        );
    }
}
