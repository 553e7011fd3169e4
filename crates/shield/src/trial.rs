//! Whether interrupts can be moved, by trying: some controllers steer none, and nothing that can be read says so.

use crate::{
    Result,
    error::{errno, irq_reason, is_gone},
};
use quiet_linux::{Kernel, files::StateDir};
use quiet_types::Machine;
use std::path::Path;

/// Writes the masks of these interrupts back as they are, which asks for nothing that is not so already, and notes in `machine` those that
/// the kernel refuses even so: a plan then takes the chain to them. Those that are known to stay are not asked.
///
/// The kernel may choose another CPU of the same mask meanwhile, as it may at any time. Nobody else of ours moves anything while this looks:
/// a mask that was read before another one's change would undo that change. `state` is the state directory; made where it is not there.
///
/// # Errors
/// When the state directory cannot be used, or somebody else is at work for too long. Nothing was asked then.
///
/// # Source
/// `write_irq_affinity`, kernel/irq/proc.c: EIO (before Linux 6.12) or EPERM where the controller has no way to steer, what the
/// controller answers (EINVAL) where it has one that refuses.
pub fn try_interrupts(
    kernel: &dyn Kernel,
    state: &Path,
    machine: &mut Machine,
    numbers: &[u32],
) -> Result<()> {
    let asked = machine.irqs.iter_mut();
    let mut asked =
        asked.filter(|irq| numbers.contains(&irq.number) && irq.immovable.is_none()).peekable();
    if asked.peek().is_none() {
        return Ok(());
    }
    let state = StateDir::make(state)?;
    let _lock = state.lock_patiently(kernel.lock_file().as_deref())?;
    for irq in asked {
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
    Ok(())
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
    use std::sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    };

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
        let dir = tempfile::tempdir().unwrap();
        let state = dir.path().join("state");
        // 46 is not asked for.
        try_interrupts(&kernel, &state, &mut machine, &[40, 41, 42, 43, 44, 45, 99]).unwrap();
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

    #[test]
    fn nobody_else_may_change_the_machine_while_a_mask_is_written_back() {
        let kernel = Fake::new(world(Hierarchy::V2, 4, &[Temper::Moves; 3], &[]));
        let irq = |number| Irq { number, ..Irq::default() };
        let mut machine = Machine { irqs: (40..43).map(irq).collect(), ..Machine::default() };
        let dir = tempfile::tempdir().unwrap();
        let state = dir.path().join("state");
        let looks = Arc::new(AtomicU32::new(0));
        let (at, seen) = (state.clone(), looks.clone());
        *kernel.beside.borrow_mut() = Some(Box::new(move || {
            let other = StateDir::make(&at).unwrap().lock();
            assert_eq!(other.unwrap_err().kind(), quiet_linux::ErrorKind::Busy);
            seen.fetch_add(1, Ordering::Relaxed);
        }));
        // Where nothing is asked, nobody is kept waiting.
        try_interrupts(&kernel, &state, &mut machine, &[99]).unwrap();
        assert!(!state.exists());
        try_interrupts(&kernel, &state, &mut machine, &[40, 41, 42]).unwrap();
        assert_eq!(looks.load(Ordering::Relaxed), 3);
        // And after it anybody may.
        StateDir::make(&state).unwrap().lock().unwrap();
    }
}
