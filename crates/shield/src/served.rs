//! What an interrupt serves: its number may be another device's later.

use quiet_linux::Kernel;
use quiet_types::printable;

/// What an interrupt serves.
pub(crate) fn actions(kernel: &dyn Kernel, number: u32) -> String {
    let text = kernel.read(&format!("/sys/kernel/irq/{number}/actions")).unwrap_or_default();
    printable(text.trim(), 60)
}

/// Whether the number of an interrupt that served `name` was given to another device since, or is
/// nobody's.
pub(crate) fn serves_another(kernel: &dyn Kernel, number: u32, name: &str) -> bool {
    let now = actions(kernel, number);
    let mut served = name.split(',').filter(|one| !one.is_empty()).peekable();
    served.peek().is_some() && !served.any(|one| now.split(',').any(|other| other == one))
}
