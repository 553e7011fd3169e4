//! A strip on two CPUs: neither thread allocates or frees, while strips are swapped, changed and thrown away.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

use assert_no_alloc::{AllocDisabler, assert_no_alloc, violation_count};
use quiet_dsp::ProcessSpec;
use quiet_engine::{
    Fade, LoopEvent, SecondRest, Ticks, player,
    render::{Description, Files},
    two_cpus,
};
use quiet_rt::{Process, Tell};
use quiet_types::{Frames, SampleRate};
use std::{
    sync::atomic::{AtomicBool, Ordering::Relaxed},
    thread,
};

#[global_allocator]
static WATCHED: AllocDisabler = AllocDisabler;

struct Silent;

impl Tell for Silent {
    fn tell(&mut self, _: LoopEvent) {}
}

/// Ends the second thread however the test ends: what has failed is not waited for.
struct Ends<'a>(&'a AtomicBool);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        self.0.store(true, Relaxed);
    }
}

#[test]
fn neither_thread_allocates() {
    plays(
        "[[stage]]\nkind = \"gain\"\nname = \"in\"\n\n[[stage]]\nkind = \"limiter\"\n\n\
           [[stage]]\nkind = \"ir\"\ntaps = [0.5, 0.25]\n\n[[stage]]\nkind = \"compressor\"\n",
    );
    // Branches, at the same time.
    let branch = "[[stage.branch]]\n[[stage.branch.stage]]\nkind = \"limiter\"\n";
    plays(&format!("[[stage]]\nkind = \"split\"\n\n{branch}\n{branch}"));
}

fn plays(text: &str) {
    let setting = ProcessSpec { rate: SampleRate(48_000), channels: 2, block: Frames(64) };
    let (cutter, mut bench) = two_cpus(Ticks::plain(), true);
    let strip = || {
        let described = Description::parse(text, "test").unwrap();
        let whole = described.prepare(2, setting.rate, setting.block, &mut Files::here()).unwrap();
        cutter.cut(whole, setting).unwrap().strip
    };
    let stop = AtomicBool::new(false);
    let (mut player, mut remote, _told) = player(strip(), 2, setting.block, setting.rate);
    thread::scope(|scope| {
        let second = scope.spawn(|| {
            assert_no_alloc(|| bench.serve(&stop, SecondRest::Sleep));
            violation_count()
        });
        let ends = Ends(&stop);
        let mut random = fastrand::Rng::with_seed(4);
        for turn in 0..3000 {
            if turn % 40 == 0 {
                assert!(remote.swap(strip(), Fade::Cross).is_ok());
            }
            remote.set(random.usize(..6), random.f32());
            let mut samples = [0.0; 128];
            samples.iter_mut().for_each(|x| *x = random.f32() - 0.5);
            let count = random.usize(1..=64);
            assert_no_alloc(|| player.process(&mut samples[..2 * count], count, &mut Silent));
            remote.collect();
        }
        drop(ends);
        assert_eq!(second.join().unwrap(), 0);
    });
    assert_eq!((violation_count(), cutter.lost()), (0, 0));
}
