//! What is understood keeps its name, number and ranges, and prints and reads back.
#![no_main]
use libfuzzer_sys::fuzz_target;
use quiet_linux::parse::{PidStat, pid_stat, pid_status};
use quiet_types::machine::Policy;

/// As the kernel prints it.
fn print(stat: &PidStat) -> String {
    let flags = match stat.kernel {
        None => 0,
        Some(kernel) if kernel.movable => 0x0020_0000,
        Some(_) => 0x0420_0000,
    };
    let policy = match stat.scheduling.policy {
        Policy::Other => 0,
        Policy::Fifo => 1,
        Policy::Rr => 2,
        Policy::Batch => 3,
        Policy::Idle => 5,
        Policy::Deadline => 6,
        Policy::Ext => 7,
    };
    let (tid, comm, state) = (stat.tid, &stat.comm, stat.state);
    let (nice, start, cpu) = (stat.scheduling.nice, stat.start, stat.cpu);
    let priority = stat.scheduling.priority;
    format!(
        "{tid} ({comm}) {state} 2 0 0 0 -1 {flags} 0 0 0 0 0 0 0 0 20 {nice} 1 0 {start} 0 0 \
         18446744073709551615 0 0 0 0 0 0 0 2147483647 0 0 0 0 17 {cpu} {priority} {policy} 0 0 0\n"
    )
}

fuzz_target!(|text: &str| {
    match pid_stat(text) {
        Ok(stat) => {
            assert!(text.contains(&format!("({})", stat.comm)));
            assert!(stat.cpu.0 < 8192 && stat.scheduling.priority < 100);
            assert_eq!(pid_stat(&print(&stat)), Ok(stat));
        }
        Err(wrong) => assert!(wrong.line >= 1 && wrong.line <= text.lines().count().max(1)),
    }
    // Any name, inside a stat that is otherwise sound.
    let sound =
        "7 (NAME) R 2 0 0 0 -1 0 0 0 0 0 0 0 0 0 20 0 1 0 5 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 17 1 0 0";
    let named = pid_stat(&sound.replace("NAME", text));
    assert_eq!(named.map(|stat| stat.comm).as_deref(), Ok(text));
    if let Ok(status) = pid_status(text) {
        let printed = format!("Uid:\t{}\nCpus_allowed_list:\t{}\n", status.uid, status.allowed);
        assert_eq!(pid_status(&printed), Ok(status));
    }
});
