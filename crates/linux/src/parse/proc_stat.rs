//! `/proc/stat`: what the host took.

use super::Wrong;
use quiet_types::{CpuId, printable};

/// Time stolen from each online CPU by the host of a virtual machine, in ticks of 1/100 s. Kernels before 2.6.11
/// do not tell it.
///
/// # Errors
/// When a line of a CPU is no list of numbers.
///
/// # Source
/// proc_stat(5)
pub fn steal(text: &str) -> Result<Vec<(CpuId, u64)>, Wrong> {
    let mut stolen = Vec::new();
    for (line, at) in text.lines().zip(1..) {
        let mut words = line.split_whitespace();
        let cpu = words.next().and_then(|word| word.strip_prefix("cpu"));
        let Some(cpu) = cpu.filter(|number| !number.is_empty()) else { continue };
        let number = cpu.parse().ok().filter(|cpu| *cpu < 8192);
        let number = number
            .ok_or_else(|| Wrong::at(at, format!("`cpu{}` is not a CPU", printable(cpu, 40))))?;
        // user nice system idle iowait irq softirq steal
        if let Some(word) = words.nth(7) {
            let ticks = word.parse().map_err(|_| {
                Wrong::at(at, format!("the stolen time is `{}`", printable(word, 40)))
            })?;
            stolen.push((CpuId(number), ticks));
        }
    }
    Ok(stolen)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn steal_is_the_eighth_number() {
        let text = "cpu  9 9 9 9 9 9 9 9 9 9\ncpu0 1 2 3 4 5 6 7 8 9 10\ncpu2 0 0 0 0 0 0 0 0 0 0\nintr 5\n";
        assert_eq!(steal(text).unwrap(), [(CpuId(0), 8), (CpuId(2), 0)]);
        assert_eq!(steal("cpu0 1 2 3\n").unwrap(), []);
        assert_eq!(steal("cpu\ncpu0 1 2 3 4 5 6 7 x\n").unwrap_err().line, 2);
        assert_eq!(steal("cpu99999 1\n").unwrap_err().line, 1);
    }

    proptest! {
        #[test]
        fn any_text_is_answered(text in "(cpu[0-9]{0,3}[ 0-9]{0,30}.{0,5}\n){0,4}") {
            let _ = steal(&text);
        }
    }
}
