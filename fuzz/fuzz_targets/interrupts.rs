//! Every row is understood or named as wrong; what is understood prints and reads back.
#![no_main]
use libfuzzer_sys::fuzz_target;
use quiet_linux::parse::{Interrupts, interrupts};

/// As the kernel prints it, with everything that it may print between chip and actions, so that an
/// action that looks like one of these is not taken for it.
fn print(table: &Interrupts) -> String {
    let mut text: String = table.cpus.iter().map(|cpu| format!("      CPU{cpu} ")).collect();
    for irq in &table.irqs {
        text += &format!("\n{:>4}:", irq.number);
        irq.counts.iter().for_each(|count| text += &format!(" {:>10}", count.1));
        let chip = irq.chip.as_deref().unwrap_or("-");
        let hwirq = irq.hwirq.map_or(String::new(), |number| number.to_string());
        text +=
            &format!(" {chip:>8} {hwirq:>4}-edge Level    -edge      {}", irq.actions.join(", "));
    }
    for vector in &table.vectors {
        text += &format!("\n{:>4}:", vector.name);
        vector.counts.iter().for_each(|count| text += &format!(" {:>10}", count.1));
        text += &format!("   {}", vector.description);
    }
    text
}

fuzz_target!(|text: &str| {
    let (table, wrong) = interrupts(text);
    let lines = text.lines().count().max(1);
    assert!(wrong.iter().all(|wrong| (1..=lines).contains(&wrong.line)));
    if table.cpus.is_empty() {
        assert!(table.irqs.is_empty() && table.vectors.is_empty() && wrong.len() == 1);
        return;
    }
    let rows = text.lines().filter(|line| !line.trim().is_empty()).count() - 1;
    assert_eq!(table.irqs.len() + table.vectors.len() + wrong.len(), rows);
    for irq in &table.irqs {
        assert!(irq.counts.iter().map(|count| count.0).eq(table.cpus.iter().copied()));
    }
    let (again, wrong) = interrupts(&print(&table));
    assert_eq!(wrong, []);
    assert_eq!(again.irqs.len(), table.irqs.len());
    for (a, b) in again.irqs.iter().zip(&table.irqs) {
        assert_eq!((a.number, &a.counts), (b.number, &b.counts));
        assert_eq!((&a.actions, &a.chip, a.hwirq), (&b.actions, &b.chip, b.hwirq));
    }
    for (a, b) in again.vectors.iter().zip(&table.vectors) {
        assert_eq!((&a.name, &a.counts, &a.description), (&b.name, &b.counts, &b.description));
    }
});
