//! A fault on purpose: has a card capture into a page of this process that was never shared with it, and tells whether it could.
//!
//! `astray PROGRAM STATE [CARD]`; ends with 0 where nothing was written, with 1 where something was. Run it in a guest alone: where
//! no IOMMU stands between, it writes where it says.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

use quiet_hda::{BorrowedCard, CardWish, Controller, LoanWish, Pages, Streams, room};
use std::{
    fs::File,
    os::unix::fs::FileExt,
    process::ExitCode,
    sync::atomic::Ordering::Relaxed,
    time::{Duration, Instant},
};

/// Where the first list of pieces lies in the shared memory.
const LIST: usize = 0xe00;

fn main() -> ExitCode {
    let mut words = std::env::args().skip(1);
    let (program, state) = (words.next().unwrap(), words.next().unwrap());
    // A page of our own, full of what no sound is.
    let memory = vec![0x5a_u8; 2 * 4096];
    let at = memory.as_ptr().addr().next_multiple_of(4096);
    let mut entry = [0; 8];
    let map = File::open("/proc/self/pagemap").unwrap();
    map.read_exact_at(&mut entry, (at / 4096 * 8) as u64).unwrap();
    let physical = (u64::from_le_bytes(entry) & ((1 << 55) - 1)) * 4096;
    println!("the page lies at {physical:#x}");
    let mut card = BorrowedCard::take(&LoanWish {
        name: words.next(),
        allow_dma: false,
        state: state.into(),
        program: program.into(),
        bytes: room(8192),
    })
    .unwrap();
    let device = card.lend().unwrap();
    let wish = CardWish { rate: 48_000, period: 1024, buffer: 8192, plays: false, captures: true };
    let controller = Controller::reset(device).map_err(|(_, fault)| fault).unwrap();
    let mut streams = Streams::open(controller, wish).map_err(|(_, error)| error).unwrap();
    let list = &streams.controller().door().words()[LIST / 4..];
    for piece in 0..2 {
        list[piece * 4].store((physical as u32).to_le(), Relaxed);
        list[piece * 4 + 1].store(((physical >> 32) as u32).to_le(), Relaxed);
        list[piece * 4 + 2].store(2048u32.to_le(), Relaxed);
    }
    streams.start(0).unwrap();
    let began = Instant::now();
    while began.elapsed() < Duration::from_secs(1) {
        streams.look(0);
    }
    card.bring(streams.close().quiet());
    card.give_back().unwrap();
    let written = memory.iter().filter(|byte| **byte != 0x5a).count();
    println!("{written} bytes were written astray");
    ExitCode::from(u8::from(written > 0))
}
