//! `/proc/PID/stat` and `/proc/PID/status`.

use super::Wrong;
use quiet_types::{
    CpuId, CpuSet,
    machine::{KernelThread, Policy, Scheduling},
    printable,
};

/// `PF_KTHREAD` of the flags: a kernel thread.
const PF_KTHREAD: u64 = 0x0020_0000;
/// `PF_NO_SETAFFINITY`: its CPUs cannot be changed.
const PF_NO_SETAFFINITY: u64 = 0x0400_0000;

/// What `/proc/PID/stat` says of one thread.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PidStat {
    /// Thread.
    pub tid: u32,
    /// Its name; may hold any character, parentheses and line ends among them.
    pub comm: String,
    /// State letter.
    pub state: char,
    /// `Some` for kernel threads.
    pub kernel: Option<KernelThread>,
    /// Start in clock ticks since boot.
    pub start: u64,
    /// CPU it last ran on.
    pub cpu: CpuId,
    /// How it is scheduled.
    pub scheduling: Scheduling,
}

/// Reads `/proc/PID/stat` or `/proc/PID/task/TID/stat`.
///
/// # Errors
/// When a field that is needed is missing, no number, or out of its range.
///
/// # Source
/// proc_pid_stat(5)
pub fn pid_stat(text: &str) -> Result<PidStat, Wrong> {
    // The name may hold `) (`: it ends at the last parenthesis, since only numbers follow.
    let open = text.find('(');
    let close = text.rfind(')');
    let (Some(open), Some(close)) = (open, close.filter(|close| Some(*close) > open)) else {
        return Err(Wrong::at(1, "there is no name in parentheses"));
    };
    let line = text[..close].lines().count().max(1);
    let tid = text[..open].trim().parse();
    let tid = tid.map_err(|_| Wrong::at(1, "it does not begin with a thread's number"))?;
    let fields: Vec<&str> = text[close + 1..].split_whitespace().collect();
    // Numbered as proc_pid_stat(5) does, from 3 for the state.
    let field = |number: usize| fields.get(number - 3).copied().unwrap_or("");
    let number = |at: usize, name: &str, low: i64, high: i64| match field(at).parse::<i64>() {
        Ok(value) if (low..=high).contains(&value) => Ok(value),
        _ if fields.len() < at - 2 => {
            let why = format!("it ends before field {at} ({name})");
            Err(Wrong::at(line, why))
        }
        _ => {
            let value = printable(field(at), 40);
            Err(Wrong::at(line, format!("field {at} ({name}) is `{value}`")))
        }
    };
    let mut state = field(3).chars();
    let (Some(state), None) = (state.next(), state.next()) else {
        return Err(Wrong::at(line, "the state is not one letter"));
    };
    let flags = number(9, "flags", 0, u32::MAX.into())? as u64;
    Ok(PidStat {
        tid,
        comm: text[open + 1..close].to_owned(),
        state,
        kernel: (flags & PF_KTHREAD != 0)
            .then_some(KernelThread { movable: flags & PF_NO_SETAFFINITY == 0 }),
        start: number(22, "starttime", 0, i64::MAX)? as u64,
        cpu: CpuId(number(39, "processor", 0, 8191)? as u32),
        scheduling: Scheduling {
            policy: policy(number(41, "policy", 0, 255)?)
                .ok_or_else(|| Wrong::at(line, format!("the policy {} is unknown", field(41))))?,
            priority: number(40, "rt_priority", 0, 99)? as u8,
            nice: number(19, "nice", -20, 19)? as i8,
        },
    })
}

fn policy(number: i64) -> Option<Policy> {
    Some(match number {
        0 => Policy::Other,
        1 => Policy::Fifo,
        2 => Policy::Rr,
        3 => Policy::Batch,
        5 => Policy::Idle,
        6 => Policy::Deadline,
        7 => Policy::Ext,
        _ => return None,
    })
}

/// What is taken from `/proc/PID/status`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PidStatus {
    /// Real user.
    pub uid: u32,
    /// `Cpus_allowed_list`.
    pub allowed: CpuSet,
}

/// Reads `/proc/PID/status`.
///
/// # Errors
/// When the lines `Uid` or `Cpus_allowed_list` are missing or make no sense.
///
/// # Source
/// proc_pid_status(5)
pub fn pid_status(text: &str) -> Result<PidStatus, Wrong> {
    let mut uid = None;
    let mut allowed = None;
    for (line, at) in text.lines().zip(1..) {
        if let Some(uids) = line.strip_prefix("Uid:") {
            let real = uids.split_whitespace().next().and_then(|uid| uid.parse().ok());
            uid = Some(real.ok_or_else(|| Wrong::at(at, "Uid is not a number"))?);
        } else if let Some(list) = line.strip_prefix("Cpus_allowed_list:") {
            allowed = Some(super::cpus(list, at, str::parse)?);
        }
    }
    let end = text.lines().count().max(1);
    let missing = |name: &str| Wrong::at(end, format!("there is no line {name}"));
    Ok(PidStatus {
        uid: uid.ok_or_else(|| missing("Uid"))?,
        allowed: allowed.ok_or_else(|| missing("Cpus_allowed_list"))?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    struct Row<'a> {
        tid: u32,
        comm: &'a str,
        flags: u32,
        nice: i8,
        start: u64,
        cpu: u32,
        priority: u8,
        policy: u8,
    }

    const ROW: Row<'static> =
        Row { tid: 5, comm: "x", flags: 0, nice: 0, start: 7, cpu: 0, priority: 0, policy: 0 };

    /// As the kernel prints it.
    fn print(row: &Row<'_>) -> String {
        let Row { tid, comm, flags, nice, start, cpu, priority, policy } = row;
        format!(
            "{tid} ({comm}) S 2 0 0 0 -1 {flags} 0 0 0 0 0 0 0 0 20 {nice} 1 0 {start} 0 0 \
             18446744073709551615 0 0 0 0 0 0 0 2147483647 0 0 0 0 17 {cpu} {priority} {policy} \
             0 0 0\n"
        )
    }

    #[test]
    fn a_kernel_thread_and_its_flags_are_read() {
        let row = Row { flags: 69_238_848, cpu: 2, priority: 99, policy: 1, ..ROW };
        let fixed = pid_stat(&print(&row)).unwrap();
        assert_eq!(fixed.kernel, Some(KernelThread { movable: false }));
        assert_eq!((fixed.cpu, fixed.start), (CpuId(2), 7));
        let fifo = Scheduling { policy: Policy::Fifo, priority: 99, nice: 0 };
        assert_eq!(fixed.scheduling, fifo);
        let movable = pid_stat(&print(&Row { flags: PF_KTHREAD as u32, ..ROW })).unwrap();
        assert_eq!(movable.kernel, Some(KernelThread { movable: true }));
        assert_eq!(pid_stat(&print(&Row { flags: 0x400_000, ..ROW })).unwrap().kernel, None);
    }

    #[test]
    fn names_that_imitate_the_format_are_read() {
        for comm in ["a) S (b", "x\ny", ")", "(", "1 (2) R 3", ""] {
            assert_eq!(pid_stat(&print(&Row { comm, ..ROW })).unwrap().comm, comm);
        }
    }

    #[test]
    fn what_makes_no_sense_is_named_by_field() {
        let text = print(&ROW);
        for (text, why) in [
            (String::new(), "no name"),
            ("5 )x(".into(), "no name"),
            ("5 (x) S 2 0".into(), "ends before field 9 (flags)"),
            (text.replacen('5', "-5", 1), "thread's number"),
            (text.replacen(" S ", " SS ", 1), "one letter"),
            (print(&Row { cpu: 9999, ..ROW }), "field 39 (processor) is `9999`"),
            (print(&Row { priority: 100, ..ROW }), "field 40"),
            (print(&Row { policy: 4, ..ROW }), "policy 4 is unknown"),
            (print(&Row { nice: 20, ..ROW }), "field 19 (nice)"),
        ] {
            let error = pid_stat(&text).unwrap_err().to_string();
            assert!(error.contains(why), "{text}: {error}");
        }
    }

    #[test]
    fn status_gives_the_real_user_and_the_allowed_cpus() {
        let text = "Name:\tx\nUid:\t1000\t0\t0\t0\nCpus_allowed:\t5\nCpus_allowed_list:\t0,2\n";
        let status = pid_status(text).unwrap();
        assert_eq!((status.uid, status.allowed.to_string()), (1000, "0,2".to_owned()));
        assert_eq!(pid_status("Uid:\tx\n").unwrap_err().line, 1);
        let missing = pid_status("a\nUid:\t0\n").unwrap_err().to_string();
        assert_eq!(missing, "line 2: there is no line Cpus_allowed_list");
        assert_eq!(pid_status("a\nCpus_allowed_list:\t3-1\n").unwrap_err().line, 2);
        let endless = format!("Cpus_allowed_list:\t{}", "0-8191,".repeat(100_000));
        assert!(pid_status(&endless).unwrap_err().why.contains("longer than any set"));
    }

    proptest! {
        #[test]
        fn a_stat_comes_back_as_it_was_printed(
            tid: u32, comm in "(?s).{0,20}", flags: u32, nice in -20i8..20,
            start in 0..=i64::MAX as u64, cpu in 0u32..8192, priority in 0u8..100, at in 0usize..7,
        ) {
            let policy = [0, 1, 2, 3, 5, 6, 7][at];
            let row = Row { tid, comm: &comm, flags, nice, start, cpu, priority, policy };
            let stat = pid_stat(&print(&row)).unwrap();
            prop_assert_eq!((stat.tid, stat.start, stat.cpu), (tid, start, CpuId(cpu)));
            prop_assert_eq!(&stat.comm, &comm);
            prop_assert_eq!((stat.scheduling.nice, stat.scheduling.priority), (nice, priority));
        }

        #[test]
        fn any_text_is_answered(
            text in "(?s)[0-9]{0,3} ?\\(?.{0,20}\\)?[ 0-9S-]{0,80}",
            status in "(?s)(Uid:|Cpus_allowed_list:)?.{0,20}",
        ) {
            if let Err(wrong) = pid_stat(&text) {
                prop_assert!(wrong.line >= 1);
            }
            let _ = pid_status(&status);
        }
    }
}
