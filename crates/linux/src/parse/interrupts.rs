//! `/proc/interrupts`.

use super::Wrong;
use quiet_types::{CpuId, machine::Vector, printable};
use std::collections::BTreeSet;

/// `/proc/interrupts`, row by row.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Interrupts {
    /// The online CPUs, as the columns name them. Numbers may have holes.
    pub cpus: Vec<CpuId>,
    /// Rows with a number: device interrupts.
    pub irqs: Vec<IrqRow>,
    /// Rows with a name: per-CPU vectors and error counters.
    pub vectors: Vec<Vector>,
}

/// One numbered row of `/proc/interrupts`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct IrqRow {
    /// The kernel's number of the interrupt.
    pub number: u32,
    /// Interrupts by CPU since boot, in the order of the columns.
    pub counts: Vec<(CpuId, u64)>,
    /// Interrupt controller; blanks within are kept as one (`RISC-V INTC`).
    pub chip: Option<String>,
    /// The interrupt's number at that controller.
    pub hwirq: Option<u64>,
    /// Names of the handlers.
    pub actions: Vec<String>,
}

/// Linux has at most 8192 CPUs.
const MOST_CPUS: usize = 8192;

/// Reads `/proc/interrupts`. Rows that make no sense are named in the second part, with their
/// line; the others are still given. Of two rows with one number the first counts.
///
/// # Source
/// `show_interrupts()` in kernel/irq/proc.c, `arch_show_interrupts()` of each architecture.
pub fn interrupts(text: &str) -> (Interrupts, Vec<Wrong>) {
    let mut table = Interrupts::default();
    let mut wrong = Vec::new();
    let mut lines = text.lines().zip(1..).filter(|(line, _)| !line.trim().is_empty());
    match lines.next().map(|(line, at)| header(line, at)) {
        Some(Ok(cpus)) => table.cpus = cpus,
        Some(Err(why)) => return (table, vec![why]),
        None => return (table, vec![Wrong::at(1, "the file is empty")]),
    }
    let mut seen = BTreeSet::new();
    for (line, at) in lines {
        match row(line, at, &table.cpus) {
            Ok(Row::Irq(irq)) if !seen.insert(irq.number) => {
                wrong.push(Wrong::at(at, format!("IRQ {} has a second row", irq.number)));
            }
            Ok(Row::Irq(irq)) => table.irqs.push(irq),
            Ok(Row::Vector(vector)) => table.vectors.push(vector),
            Err(why) => wrong.push(why),
        }
    }
    (table, wrong)
}

fn header(line: &str, at: usize) -> Result<Vec<CpuId>, Wrong> {
    let mut cpus = Vec::new();
    for word in line.split_whitespace() {
        let number = word.strip_prefix("CPU").and_then(decimal::<u32>);
        match number {
            Some(cpu) if (cpu as usize) < MOST_CPUS => cpus.push(CpuId(cpu)),
            _ => {
                let word = printable(word, 40);
                return Err(Wrong::at(at, format!("`{word}` is not a column such as CPU0")));
            }
        }
    }
    let rising = cpus.windows(2).all(|pair| pair[0] < pair[1]);
    if cpus.is_empty() || !rising {
        return Err(Wrong::at(at, "the columns do not name CPUs in rising order"));
    }
    Ok(cpus)
}

enum Row {
    Irq(IrqRow),
    Vector(Vector),
}

fn row(line: &str, at: usize, cpus: &[CpuId]) -> Result<Row, Wrong> {
    let (name, rest) = line
        .split_once(':')
        .ok_or_else(|| Wrong::at(at, "a row begins with a number or a name and a colon"))?;
    let name = name.trim();
    if name.is_empty() || name.split_whitespace().count() != 1 {
        return Err(Wrong::at(at, "a row begins with a number or a name and a colon"));
    }
    let (counts, rest) = counts(rest, at, cpus.len())?;
    let whole_machine = counts.len() < cpus.len();
    let per_cpu = || cpus.iter().copied().zip(counts.iter().copied()).collect::<Vec<_>>();
    if name.bytes().all(|b| b.is_ascii_digit()) {
        let number = decimal(name)
            .ok_or_else(|| Wrong::at(at, "an IRQ number is not larger than 4294967295"))?;
        if whole_machine {
            let why = format!("{} counts for {} CPUs", counts.len(), cpus.len());
            return Err(Wrong::at(at, why));
        }
        let (chip, hwirq, actions) = chip_and_actions(rest);
        return Ok(Row::Irq(IrqRow { number, counts: per_cpu(), chip, hwirq, actions }));
    }
    // ERR and MIS have one number for the whole machine, FIQ has none.
    let by_cpu = match counts[..] {
        [] => Vec::new(),
        [one] if whole_machine => vec![(CpuId(0), one)],
        _ if whole_machine => {
            return Err(Wrong::at(at, format!("{} counts for {} CPUs", counts.len(), cpus.len())));
        }
        _ => per_cpu(),
    };
    Ok(Row::Vector(Vector { name: name.to_owned(), description: one_blank(rest), counts: by_cpu }))
}

/// At most `most` leading numbers of `text`, and what follows them.
fn counts(text: &str, at: usize, most: usize) -> Result<(Vec<u64>, &str), Wrong> {
    let mut counts = Vec::new();
    let mut rest = text.trim_start();
    while counts.len() < most {
        let end = rest.find(char::is_whitespace).unwrap_or(rest.len());
        let word = &rest[..end];
        if word.is_empty() || !word.bytes().all(|b| b.is_ascii_digit()) {
            break;
        }
        let count = decimal(word).ok_or_else(|| {
            Wrong::at(at, format!("the count {} is too large", printable(word, 40)))
        })?;
        counts.push(count);
        rest = rest[end..].trim_start();
    }
    Ok((counts, rest))
}

/// Splits `IO-APIC  16-fasteoi   ehci_hcd:usb1, snd_hda_intel:card0`. The chip's name may hold
/// blanks, so it reaches to the first word that begins with a digit (its own number of the
/// interrupt) or a minus (the flow handler of a chip without such numbers).
fn chip_and_actions(text: &str) -> (Option<String>, Option<u64>, Vec<String>) {
    let words: Vec<&str> = text.split_whitespace().collect();
    let at = words.iter().skip(1).position(|word| {
        word.starts_with(|c: char| c.is_ascii_digit()) || (word.len() > 1 && word.starts_with('-'))
    });
    let chip_words = at.map_or(1.min(words.len()), |at| at + 1);
    let mut after = chip_words;
    let mut hwirq = None;
    if let Some(word) = words.get(chip_words).filter(|_| at.is_some()) {
        let digits = word.bytes().take_while(u8::is_ascii_digit).count();
        hwirq = decimal(&word[..digits]);
        after += 1;
        let level = |word: &&&str| matches!(**word, "Level" | "Edge");
        if words.get(after).filter(level).is_some() {
            after += 1;
        }
        if words.get(after).is_some_and(|word| word.len() > 1 && word.starts_with('-')) {
            after += 1;
        }
    }
    let chip = Some(words[..chip_words].join(" "))
        .filter(|chip| !matches!(chip.as_str(), "" | "-" | "None"));
    let actions = words[after..].join(" ");
    let actions = actions.split(", ").map(str::trim).filter(|name| !name.is_empty());
    (chip, hwirq, actions.map(str::to_owned).collect())
}

fn one_blank(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

fn decimal<T: std::str::FromStr>(digits: &str) -> Option<T> {
    digits.bytes().all(|b| b.is_ascii_digit()).then(|| digits.parse().ok()).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn irq(table: &Interrupts, number: u32) -> &IrqRow {
        table.irqs.iter().find(|irq| irq.number == number).unwrap()
    }

    #[test]
    fn x86_rows_with_holes_in_the_cpu_numbers_and_shared_lines_are_read() {
        let (table, wrong) = interrupts(concat!(
            "            CPU0       CPU2       \n",
            "   0:         44          0   IO-APIC   2-edge      timer\n",
            "   7:          0          0   IO-APIC   7-edge    \n",
            "  16:          3        200   IO-APIC  16-fasteoi   ehci_hcd:usb1, snd hda:card0\n",
            " 125:          0         18 PCI-MSIX-0000:01:00.0   1-edge      nvme0q1\n",
            " 130:          0         18   PCI-MSI 327680-edge      xhci_hcd\n",
            " NMI:          0          0   Non-maskable interrupts\n",
            " ERR:          7\n",
            " MIS:          0\n",
        ));
        assert_eq!(wrong, []);
        assert_eq!(table.cpus, [CpuId(0), CpuId(2)]);
        let shared = irq(&table, 16);
        assert_eq!(shared.counts, [(CpuId(0), 3), (CpuId(2), 200)]);
        assert_eq!(shared.actions, ["ehci_hcd:usb1", "snd hda:card0"]);
        assert_eq!((shared.chip.as_deref(), shared.hwirq), (Some("IO-APIC"), Some(16)));
        assert_eq!(irq(&table, 7).actions, [""; 0]);
        assert_eq!(irq(&table, 125).chip.as_deref(), Some("PCI-MSIX-0000:01:00.0"));
        assert_eq!(irq(&table, 130).hwirq, Some(327_680));
        assert_eq!(table.vectors[0].description, "Non-maskable interrupts");
        assert_eq!(table.vectors[1].counts, [(CpuId(0), 7)]);
        assert_eq!(table.vectors.len(), 3);
    }

    #[test]
    fn arm_riscv_and_xen_chips_are_read() {
        let (table, wrong) = interrupts(concat!(
            "           CPU0       CPU1\n",
            " 17:     301523          0  ARMCTRL-level   1 Edge      3f00b880.mailbox\n",
            " 30:          0          0     GICv2  30 Level     arch_timer\n",
            " 31:          5          0  RISC-V INTC   5 Edge      riscv-timer\n",
            " 48:       1000          0  xen-percpu    -virq      timer0\n",
            " 49:          1          0      None            late\n",
            " 50:          1          0         -  12         dummy one, two\n",
            " 51:          1          0  bcmgpio  12  -edge   pps@12.-1\n",
            "FIQ:              usb_fiq\n",
            "IPI0:          0         10  Timer broadcast interrupts\n",
            "Err:          0\n",
        ));
        assert_eq!(wrong, []);
        assert_eq!(irq(&table, 17).actions, ["3f00b880.mailbox"]);
        assert_eq!(irq(&table, 17).chip.as_deref(), Some("ARMCTRL-level"));
        assert_eq!(
            (irq(&table, 30).hwirq, irq(&table, 30).chip.as_deref()),
            (Some(30), Some("GICv2"))
        );
        assert_eq!(irq(&table, 31).chip.as_deref(), Some("RISC-V INTC"));
        assert_eq!(irq(&table, 48).actions, ["timer0"]);
        assert_eq!(
            (irq(&table, 48).hwirq, irq(&table, 48).chip.as_deref()),
            (None, Some("xen-percpu"))
        );
        assert_eq!(
            (irq(&table, 49).chip.clone(), &irq(&table, 49).actions[..]),
            (None, &["late".to_owned()][..])
        );
        assert_eq!((irq(&table, 50).chip.clone(), irq(&table, 50).actions.len()), (None, 2));
        assert_eq!(irq(&table, 51).actions, ["pps@12.-1"]);
        assert_eq!(table.vectors[0].counts, []);
        assert_eq!(table.vectors[0].description, "usb_fiq");
        assert_eq!(table.vectors[1].counts[1], (CpuId(1), 10));
        assert_eq!(table.vectors[2].counts, [(CpuId(0), 0)]);
    }

    #[test]
    fn rows_that_make_no_sense_are_named_by_line_and_the_others_stay() {
        let (table, wrong) = interrupts(concat!(
            "     CPU0 CPU1\n",
            "  1:    5\n",
            "  2:    5 99999999999999999999999 IO-APIC 1-edge x\n",
            "99999999999: 1 1 IO-APIC 1-edge x\n",
            "no colon\n",
            "  3:    5    6  IO-APIC 3-edge fine\n",
            "  3:    5    6  IO-APIC 3-edge again\n",
        ));
        assert_eq!(wrong.iter().map(|w| w.line).collect::<Vec<_>>(), [2, 3, 4, 5, 7]);
        assert_eq!(wrong[0].why, "1 counts for 2 CPUs");
        assert_eq!(table.irqs.len(), 1);
        for header in ["", "CPU0 CPU0", "CPU1 CPU0", "CPU99999", "hello", "CPU"] {
            let (table, wrong) = interrupts(header);
            assert!(table.cpus.is_empty() && wrong[0].line == 1, "{header}");
        }
    }

    /// As the kernel prints it: the oracle of the reader.
    fn print(table: &Interrupts) -> String {
        let mut text = table.cpus.iter().map(|c| format!("      CPU{c} ")).collect::<String>();
        for irq in &table.irqs {
            text += &format!("\n{:>4}:", irq.number);
            irq.counts.iter().for_each(|c| text += &format!(" {:>10}", c.1));
            let chip = irq.chip.as_deref().unwrap_or("-");
            let hwirq = irq.hwirq.map_or(String::new(), |n| n.to_string());
            text += &format!(" {chip:>8} {hwirq:>4}-edge      {}", irq.actions.join(", "));
        }
        text
    }

    proptest! {
        #[test]
        fn a_table_comes_back_as_it_was_printed(
            cpus in proptest::collection::btree_set(0u32..8192, 1..6),
            rows in proptest::collection::btree_map(
                any::<u32>(),
                (any::<[u64; 6]>(), "[A-Z][A-Za-z-]{0,9}( [A-Z]{1,5})?", any::<Option<u64>>(),
                 proptest::collection::vec("[a-z][a-z0-9:@_.-]{0,8}( [a-z]{1,4})?", 0..4)),
                0..6,
            ),
        ) {
            let cpus: Vec<CpuId> = cpus.into_iter().map(CpuId).collect();
            let irqs = rows.into_iter().map(|(number, (counts, chip, hwirq, actions))| IrqRow {
                number,
                counts: cpus.iter().copied().zip(counts).collect(),
                chip: Some(chip),
                hwirq,
                actions,
            }).collect();
            let table = Interrupts { cpus, irqs, vectors: Vec::new() };
            prop_assert_eq!(interrupts(&print(&table)), (table, Vec::new()));
        }

        #[test]
        fn any_text_is_answered(text in "(CPU[0-9]{1,2} ?){0,3}\n?([0-9A-Z]{0,3}:?[ 0-9]{0,12}.{0,20}\n){0,6}") {
            let (table, wrong) = interrupts(&text);
            let rows = text.lines().filter(|line| !line.trim().is_empty()).count();
            if !table.cpus.is_empty() {
                prop_assert_eq!(table.irqs.len() + table.vectors.len() + wrong.len() + 1, rows);
            }
            prop_assert!(wrong.iter().all(|w| w.line >= 1 && w.line <= text.lines().count().max(1)));
        }
    }
}
