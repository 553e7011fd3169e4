//! Where a CPU's and a thread's time went.

use super::Wrong;
use quiet_types::{CpuId, Nanos, printable};

/// Time of one CPU since boot, in the ticks of `/proc/stat` (1/100 s).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CpuTimes {
    /// For programs, the kernel and interrupts. What guests used is within it.
    pub busy: u64,
    /// With nothing to do, or only with a disk to wait for.
    pub idle: u64,
    /// Taken by the host of a virtual machine.
    pub stolen: u64,
}

/// Those of each CPU that runs, in the file's order. Lines that make no sense are left out.
///
/// # Source
/// proc_stat(5)
pub fn cpu_times(text: &str) -> Vec<(CpuId, CpuTimes)> {
    text.lines().filter_map(times_of).collect()
}

fn times_of(line: &str) -> Option<(CpuId, CpuTimes)> {
    let mut words = line.split_whitespace();
    let cpu = words.next()?.strip_prefix("cpu")?.parse().ok().filter(|cpu| *cpu < 8192)?;
    // user nice system idle iowait irq softirq steal; kernels before 2.6.11 know no steal.
    let mut numbers = [0u64; 8];
    for (at, number) in numbers.iter_mut().enumerate() {
        match words.next() {
            Some(word) => *number = word.parse().ok()?,
            None if at >= 4 => break,
            None => return None,
        }
    }
    let [user, nice, system, idle, iowait, irq, softirq, stolen] = numbers;
    let busy = [user, nice, system, irq, softirq].into_iter().fold(0, u64::saturating_add);
    Some((CpuId(cpu), CpuTimes { busy, idle: idle.saturating_add(iowait), stolen }))
}

/// What a thread had of the CPUs since it began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ThreadTimes {
    /// Time that it ran.
    pub ran: Nanos,
    /// Time that it could have run and waited.
    pub waited: Nanos,
    /// Turns.
    pub turns: u64,
}

/// Reads `/proc/PID/task/TID/schedstat`. The kernel only reads what it noted at the last tick or switch: no CPU is asked.
///
/// # Errors
/// When it is not three numbers.
///
/// # Source
/// `proc_pid_schedstat` in fs/proc/base.c
pub fn schedstat(text: &str) -> Result<ThreadTimes, Wrong> {
    let mut words = text.split_whitespace().map(str::parse::<u64>);
    match (words.next(), words.next(), words.next()) {
        (Some(Ok(ran)), Some(Ok(waited)), Some(Ok(turns))) => {
            Ok(ThreadTimes { ran: Nanos(ran), waited: Nanos(waited), turns })
        }
        _ => Err(Wrong::at(1, format!("`{}` is not three numbers", printable(text.trim(), 40)))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn busy_is_what_is_neither_idle_nor_stolen() {
        let text = "cpu  9 9 9 9 9 9 9 9 9 9\ncpu0 1 2 4 8 16 32 64 128 256 512\ncpu3 1 1 1 5 1\ncpu4 x\nintr 5\n";
        let zero = CpuTimes { busy: 103, idle: 24, stolen: 128 };
        let three = CpuTimes { busy: 3, idle: 6, stolen: 0 };
        assert_eq!(cpu_times(text), [(CpuId(0), zero), (CpuId(3), three)]);
    }

    #[test]
    fn a_thread_tells_three_numbers() {
        let told = ThreadTimes { ran: Nanos(5), waited: Nanos(6), turns: 7 };
        assert_eq!(schedstat("5 6 7\n"), Ok(told));
        for text in ["", "5 6", "5 6 x", "-1 2 3"] {
            assert!(schedstat(text).is_err(), "{text}");
        }
    }

    proptest! {
        #[test]
        fn any_text_is_answered(text in "(cpu[0-9]{0,3}[ 0-9]{0,40}.{0,5}\n){0,4}") {
            let _ = cpu_times(&text);
            let _ = schedstat(&text);
        }
    }
}
