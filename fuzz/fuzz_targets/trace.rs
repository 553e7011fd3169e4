//! Any bytes as a page of the ring buffer, decoded by the kernel's own descriptions: nothing fails,
//! and every record lies within its page.
#![no_main]
use libfuzzer_sys::fuzz_target;
use quiet_linux::trace::{
    decode::Decoder,
    page::{Layout, PageEntry, entries},
    symbols::Symbols,
};
use quiet_types::CpuId;

const HEADER: &str = "\tfield: u64 timestamp;\toffset:0;\tsize:8;\tsigned:0;\n\
    \tfield: local_t commit;\toffset:8;\tsize:8;\tsigned:1;\n\
    \tfield: char data;\toffset:16;\tsize:4080;\tsigned:0;\n";
const COMMON: &str = "\tfield:unsigned short common_type;\toffset:0;\tsize:2;\tsigned:0;\n\
    \tfield:int common_pid;\toffset:4;\tsize:4;\tsigned:1;\n";
const EVENTS: [(&str, &str, &str); 4] = [
    (
        "sched",
        "sched_switch",
        "\tfield:char prev_comm[16];\toffset:8;\tsize:16;\n\tfield:pid_t prev_pid;\toffset:24;\tsize:4;\n\
         \tfield:int prev_prio;\toffset:28;\tsize:4;\n\tfield:long prev_state;\toffset:32;\tsize:8;\n\
         \tfield:char next_comm[16];\toffset:40;\tsize:16;\n\tfield:pid_t next_pid;\toffset:56;\tsize:4;\n\
         \tfield:int next_prio;\toffset:60;\tsize:4;\n",
    ),
    (
        "irq",
        "irq_handler_entry",
        "\tfield:int irq;\toffset:8;\tsize:4;\n\tfield:__data_loc char[] name;\toffset:12;\tsize:4;\n",
    ),
    (
        "ipi",
        "ipi_send_cpumask",
        "\tfield:__data_loc cpumask_t cpumask;\toffset:8;\tsize:4;\n\
         \tfield:void * callsite;\toffset:16;\tsize:8;\n\tfield:void * callback;\toffset:24;\tsize:8;\n",
    ),
    ("nmi", "nmi_handler", "\tfield:s64 delta_ns;\toffset:16;\tsize:8;\n"),
];

fuzz_target!(|bytes: &[u8]| {
    let layout = Layout::parse(HEADER).expect("the kernel's own words");
    let symbols = Symbols::parse("ffffffff81000000 T somewhere\n");
    let mut decoder = Decoder::new("0-3,70".parse().expect("a list"), symbols);
    for (id, (group, name, fields)) in EVENTS.iter().enumerate() {
        let text = format!("name: {name}\nID: {}\nformat:\n{COMMON}\n{fields}", id + 1);
        assert!(decoder.learn(group, name, &text));
    }
    let mut told = 0;
    for entry in entries(layout, bytes) {
        if let PageEntry::Record(at, record) = entry {
            assert!(record.len() <= bytes.len());
            decoder.decode(CpuId(0), at, record, &mut |event| {
                assert_eq!(event.at.0, at);
                told += 1;
            });
        }
    }
    // Five CPUs at most are told of one record, of four bytes at least.
    assert!(told <= bytes.len() / 4 * 5 + 5);
});
