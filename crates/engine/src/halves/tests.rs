//! Two halves make the bits of the whole, a period later, whatever comes in between.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

use super::*;
use crate::{
    Fade, player,
    playing::fault,
    render::{Description, Files},
};
use quiet_rt::{LoopEvent, Process as _, Tell};
use quiet_types::SampleRate;
use std::panic::{AssertUnwindSafe, catch_unwind};

const PERIOD: usize = 64;
const SETTING: ProcessSpec =
    ProcessSpec { rate: SampleRate(48_000), channels: 2, block: Frames(PERIOD as u32) };

/// Two channels, an amp on both, branches of which one is late, filters, a limiter, an IR.
fn description() -> Description {
    let amp = std::path::Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../../fixtures/amps"));
    let amp = amp.join("BossWN-nano.nam").canonicalize().unwrap();
    around(&format!("[[stage]]\nkind = \"amp\"\nfile = {:?}\n", amp.display().to_string()))
}

/// The same with `amp` for the amp: without one it costs a tenth.
fn around(amp: &str) -> Description {
    let text = format!(
        "[[stage]]\nkind = \"gain\"\nname = \"in\"\ngain = -6.0\n
{amp}
[[stage]]\nkind = \"split\"\nname = \"room\"\n[[stage.branch]]\nname = \"dry\"\n
[[stage.branch]]\nname = \"wet\"\ngain = -9.0\n[[stage.branch.stage]]\nkind = \"limiter\"\n
[[stage.branch.stage]]\nkind = \"delay\"\ntime = 3.0\n
[[stage]]\nkind = \"biquad\"\ntype = \"peak\"\nfrequency = 900.0\nq = 1.0\ngain = 5.0\n
[[stage]]\nkind = \"ir\"\nname = \"cab\"\ntaps = [0.5, 0.0, -0.25, 0.125]\n
[[stage]]\nkind = \"compressor\"\non = [1]\n
[[stage]]\nkind = \"gain\"\nname = \"out\"\ngain = 2.0\n"
    );
    Description::parse(&text, "test").unwrap()
}

fn whole() -> Strip {
    prepared(&description())
}

fn prepared(description: &Description) -> Strip {
    description.prepare(2, SETTING.rate, SETTING.block, &mut Files::here()).unwrap()
}

fn noise(frames: usize, seed: u64) -> Vec<f32> {
    let mut random = fastrand::Rng::with_seed(seed);
    (0..2 * frames).map(|_| random.f32() - 0.5).collect()
}

/// One strip cut at `seam`, its back half played by a thread; it ends with the value.
fn cut(seam: Seam, patient: bool) -> (ReadyStrip, Cutter, crate::SecondThread) {
    let (cutter, bench) = two_cpus(Ticks::plain(), patient);
    let strip = whole();
    let late = Frames(strip.latency().0 + PERIOD as u32);
    let Halves { front, back, params } = strip.cut(seam);
    let params = params.into_iter().map(|(p, half, n)| (half, n, p.low, p.high)).collect();
    let halves = (Box::new(front) as ReadyStrip, Box::new(back) as ReadyStrip);
    let strip = cutter.join(halves, params, SETTING, late).unwrap();
    (strip, cutter, crate::SecondThread::anywhere(bench).unwrap())
}

/// Plays blocks of lengths that `random` gives; before each, `order` may change something. The first channel, then the
/// second.
fn played(
    strip: &mut dyn Stage,
    frames: usize,
    lengths: u64,
    mut order: impl FnMut(usize, &mut dyn Stage),
) -> [Vec<f32>; 2] {
    let _flushed = Denormals::flush();
    let x = noise(frames, 9);
    let mut random = fastrand::Rng::with_seed(lengths);
    let (mut at, mut turn, mut made) = (0, 0, [Vec::new(), Vec::new()]);
    while at < frames {
        let count = if lengths == 0 { PERIOD } else { random.usize(1..=PERIOD) }.min(frames - at);
        order(turn, strip);
        let mut work = vec![0.0; 2 * count];
        for channel in 0..2 {
            work[channel * count..][..count].copy_from_slice(&x[channel * frames + at..][..count]);
        }
        strip.process(&mut Block::new(&mut work, 2));
        for channel in 0..2 {
            made[channel].extend_from_slice(&work[channel * count..][..count]);
        }
        at += count;
        turn += 1;
    }
    made
}

fn same(cut: &[Vec<f32>; 2], whole: &[Vec<f32>; 2]) {
    for (cut, whole) in cut.iter().zip(whole) {
        let bits = |x: &[f32]| x.iter().map(|x| x.to_bits()).collect::<Vec<_>>();
        assert_eq!(bits(&cut[..PERIOD]), [0; PERIOD]);
        let wrong = cut[PERIOD..].iter().zip(whole).position(|(a, b)| a.to_bits() != b.to_bits());
        assert_eq!(wrong, None);
    }
}

#[test]
fn every_cut_makes_the_bits_of_the_whole_a_period_later() {
    let frames = 3000;
    let one = played(&mut whole(), frames, 0, |_, _| {});
    assert!(one[0].iter().any(|y| y.abs() > 0.01));
    let seams = whole().seams();
    // Eight stages, two of them in a branch: neither that nor its beginning is a seam.
    assert_eq!(seams.iter().map(|seam| seam.stages).collect::<Vec<_>>(), [1, 2, 4, 5, 6, 7]);
    for seam in seams {
        for lengths in [0, 1] {
            let (mut strip, cutter, _second) = cut(seam, true);
            same(&played(&mut *strip, frames, lengths, |_, _| {}), &one);
            assert_eq!(cutter.lost(), 0);
        }
    }
}

#[test]
fn parameters_of_both_halves_change_at_the_same_frame() {
    let names =
        ["in.gain", "dry.gain", "room", "out.gain", "cab.bypass", "biquad.gain", "out.mute"];
    let orders = |turn: usize, strip: &mut dyn Stage, ids: &[(usize, f32, f32)]| {
        let mut random = fastrand::Rng::with_seed(turn as u64);
        for (id, low, high) in ids {
            if random.u8(..4) == 0 {
                assert!(strip.set(*id, low + random.f32() * (high - low)));
            }
        }
        // What no stage has, or its range does not hold, is refused by both.
        assert!(!strip.set(999, 0.0) && !strip.set(ids[0].0, 1e9) && !strip.set(ids[2].0, 1e9));
    };
    let strip = whole();
    let ids: Vec<(usize, f32, f32)> = names
        .iter()
        .filter_map(|name| {
            strip
                .param(name)
                .map(|id| (id, strip.params()[id].low.max(-20.0), strip.params()[id].high.min(6.0)))
        })
        .collect();
    assert_eq!(ids.len(), 6);
    let one = played(&mut whole(), 6000, 0, |turn, strip| orders(turn, strip, &ids));
    for seam in whole().seams() {
        let (mut strip, _, _second) = cut(seam, true);
        same(&played(&mut *strip, 6000, 0, |turn, strip| orders(turn, strip, &ids)), &one);
    }
}

/// A filter refuses values by the others that it has: there too, at once, and in the same cases.
#[test]
fn what_a_filter_refuses_is_refused_on_two_cpus() {
    let shelf = "kind = \"biquad\"\nname = \"shelf\"\ntype = \"lowshelf\"\nfrequency = 900.0\nslope = 12.0\ngain = 1.0\n";
    let peak = "kind = \"biquad\"\nname = \"peak\"\ntype = \"peak\"\nfrequency = 900.0\nq = 1.0\ngain = 5.0\n";
    let row = format!("[[stage]]\nkind = \"gain\"\n[[stage]]\n{shelf}[[stage]]\n{peak}");
    let split = format!(
        "[[stage]]\nkind = \"split\"\n[[stage.branch]]\nname = \"a\"\n[[stage.branch]]\nname = \"b\"\n\
         [[stage.branch.stage]]\n{shelf}[[stage.branch.stage]]\n{peak}"
    );
    let made = |text: &str| {
        let description = Description::parse(text, "test").unwrap();
        description.prepare(2, SETTING.rate, SETTING.block, &mut Files::here()).unwrap()
    };
    let (cutter, bench) = two_cpus(Ticks::plain(), true);
    let _second = crate::SecondThread::anywhere(bench).unwrap();
    for text in [&row, &split] {
        let mut one = made(text);
        let mut two = match one.forks().pop() {
            None => {
                let Halves { front, back, params } = made(text).cut(one.seams()[0]);
                let params =
                    params.into_iter().map(|(p, half, n)| (half, n, p.low, p.high)).collect();
                cutter.join((Box::new(front), Box::new(back)), params, SETTING, Frames(64)).unwrap()
            }
            Some(fork) => {
                let shared = SharedOut { fork, lent: vec![1], worst: [Nanos::ZERO; 2] };
                cutter.share(made(text), shared, SETTING).unwrap().strip
            }
        };
        let params = one.params().to_vec();
        let mut random = fastrand::Rng::with_seed(3);
        let (mut taken, mut refused) = (0, 0);
        for _ in 0..4000 {
            let id = random.usize(..params.len());
            let value = params[id].low + random.f32() * (params[id].high - params[id].low);
            let wanted = one.set(id, value);
            assert_eq!(two.set(id, value), wanted, "{} = {value}", params[id].name);
            if wanted {
                taken += 1
            } else {
                refused += 1
            }
            // The far end keeps up.
            if id == 0 {
                played(&mut *two, 64, 0, |_, _| {});
            }
        }
        assert!(taken > 1000 && refused > 100, "{taken} taken, {refused} refused");
    }
}

#[test]
fn it_cuts_where_it_says_and_begins_anew_as_a_whole_one_does() {
    let (cutter, bench) = two_cpus(Ticks::plain(), true);
    let _second = crate::SecondThread::anywhere(bench).unwrap();
    let late = whole().latency();
    let mut cut = cutter.cut(whole(), SETTING).unwrap();
    assert_eq!((cut.latency, cut.strip.latency()), (Frames(late.0 + 64), Frames(late.0 + 64)));
    assert!(cut.note(8, SETTING).contains("64 frames"));
    let one = played(&mut whole(), 2000, 0, |_, _| {});
    same(&played(&mut *cut.strip, 2000, 0, |_, _| {}), &one);
    cut.strip.reset();
    same(&played(&mut *cut.strip, 2000, 1, |_, _| {}), &one);
    // One stage cannot be cut.
    let alone = Description::parse("[[stage]]\nkind = \"polarity\"\n", "test").unwrap();
    let alone = alone.prepare(2, SETTING.rate, SETTING.block, &mut Files::here()).unwrap();
    assert!(cutter.cut(alone, SETTING).unwrap_err().to_string().contains("--cores 1"));
    // Where branches are all there is, they are shared out, however little that is worth.
    let branch = "[[stage.branch]]\n[[stage.branch.stage]]\nkind = \"gain\"\n";
    let split = format!("[[stage]]\nkind = \"split\"\n{branch}{branch}");
    let split = Description::parse(&split, "test").unwrap();
    let split = split.prepare(2, SETTING.rate, SETTING.block, &mut Files::here()).unwrap();
    let shared = cutter.cut(split, SETTING).unwrap();
    assert!(matches!(shared.at, CutAt::Branches(names) if names.len() == 1));
}

/// Two amps of unequal cost, a branch within a branch, one without a stage, and stages around.
fn branched() -> Strip {
    let text = "[[stage]]\nkind = \"gain\"\nname = \"in\"\ngain = -3.0\n
[[stage]]\nkind = \"split\"\nname = \"rigs\"\n
[[stage.branch]]\nname = \"left\"\n[[stage.branch.stage]]\nkind = \"compressor\"\nname = \"squash\"\n
[[stage.branch.stage]]\nkind = \"ir\"\nname = \"cab\"\ntaps = [0.5, 0.0, -0.25, 0.125]\n
[[stage.branch]]\nname = \"dry\"\ngain = -12.0\n
[[stage.branch]]\nname = \"room\"\ngain = -6.0\n
[[stage.branch.stage]]\nkind = \"split\"\nname = \"inner\"\n
[[stage.branch.stage.branch]]\nname = \"far\"\n[[stage.branch.stage.branch.stage]]\nkind = \"delay\"\ntime = 2.0\n
[[stage.branch.stage.branch]]\nname = \"near\"\ngain = -1.0\n
[[stage.branch.stage.branch.stage]]\nkind = \"limiter\"\nname = \"stop\"\n
[[stage.branch]]\nname = \"bright\"\n
[[stage.branch.stage]]\nkind = \"biquad\"\nname = \"peak\"\ntype = \"peak\"\nfrequency = 900.0\nq = 1.0\ngain = 5.0\n
[[stage]]\nkind = \"limiter\"\nname = \"end\"\n";
    let description = Description::parse(text, "test").unwrap();
    description.prepare(2, SETTING.rate, SETTING.block, &mut Files::here()).unwrap()
}

/// The strip with these branches at the second thread.
fn lent(lent: &[usize], patient: bool) -> (ReadyStrip, Cutter, crate::SecondThread) {
    let (cutter, bench) = two_cpus(Ticks::plain(), patient);
    let strip = branched();
    let fork = strip.forks().remove(0);
    let shared = SharedOut { fork, lent: lent.to_vec(), worst: [Nanos::ZERO; 2] };
    let late = strip.latency();
    let cut = cutter.share(strip, shared, SETTING).unwrap();
    assert_eq!((cut.latency, cut.strip.latency()), (late, late));
    (cut.strip, cutter, crate::SecondThread::anywhere(bench).unwrap())
}

fn bits(sound: &[Vec<f32>; 2]) -> Vec<u32> {
    sound.iter().flatten().map(|y| y.to_bits()).collect()
}

#[test]
fn any_branches_on_the_second_cpu_make_the_same_bits_at_the_same_time() {
    let strip = branched();
    let forks = strip.forks();
    let names: Vec<_> = forks[0].branches.iter().map(|branch| &*branch.name).collect();
    assert_eq!((forks.len(), names), (1, vec!["left", "dry", "room", "bright"]));
    let stages: Vec<_> = forks[0].branches.iter().map(|branch| branch.stages.len()).collect();
    assert_eq!(stages, [2, 0, 2, 1]);
    // All parameters there are, of all branches, change now and then.
    let ranges: Vec<_> =
        strip.params().iter().map(|p| (p.low.max(-20.0), p.high.min(6.0))).collect();
    let names: Vec<_> = strip.params().iter().map(|param| param.name.clone()).collect();
    let orders = |turn: usize, strip: &mut dyn Stage| {
        let mut random = fastrand::Rng::with_seed(turn as u64);
        for (id, (low, high)) in ranges.iter().enumerate() {
            if random.u8(..6) == 0 && low < high {
                let value = low + random.f32() * (high - low);
                assert!(strip.set(id, value), "{id} {value}: {names:?}");
            }
        }
        assert!(!strip.set(999, 0.0) && !strip.set(0, 1e9) && !strip.set(1, f32::NAN));
    };
    for lengths in [0, 1] {
        let one = bits(&played(&mut branched(), 4000, lengths, orders));
        for which in 1u32..16 {
            let which: Vec<_> = (0..4).filter(|nth| which >> nth & 1 == 1).collect();
            let (mut strip, cutter, _second) = lent(&which, true);
            assert_eq!(bits(&played(&mut *strip, 4000, lengths, orders)), one, "{which:?}");
            assert_eq!(cutter.lost(), 0);
        }
    }
}

#[test]
fn lent_branches_begin_anew_with_their_strip_and_are_lent_once() {
    let one = bits(&played(&mut branched(), 2000, 0, |_, _| {}));
    let (mut strip, _, _second) = lent(&[0, 2], true);
    for _ in 0..2 {
        assert_eq!(bits(&played(&mut *strip, 2000, 0, |_, _| {})), one);
        strip.reset();
    }
    let whole = branched();
    let fork = whole.forks().remove(0);
    let nobody = |_| Ok::<_, ()>(Box::new(Nobody) as Box<dyn Elsewhere>);
    let once = whole.lend(&fork, &[1], nobody).unwrap();
    assert!(once.forks().is_empty() && once.seams().is_empty());
}

struct Nobody;

impl Elsewhere for Nobody {
    fn hand(&mut self, _: &[f32], _: usize) {}

    fn fetch(&mut self, _: &mut [f32], _: usize) {}

    fn reset(&mut self) {}

    fn set(&mut self, _: usize, _: f32) -> bool {
        false
    }
}

/// What each stage takes is made up here.
#[test]
fn the_dearest_branches_are_shared_out_and_halves_where_that_is_worth_more() {
    let strip = branched();
    let costs = |least: [u64; 7]| Costs {
        least: least.to_vec(),
        blocks: 1,
        stages: 7,
        clock: Ticks::plain(),
    };
    // in; squash, cab; far, near; peak; end. Ticks of the plain clock are nanoseconds.
    let shared = best_fork(&strip, &costs([1, 50, 50, 30, 40, 30, 9])).unwrap();
    assert_eq!((shared.lent, shared.worst), (vec![2, 3], [Nanos(110), Nanos(100)]));
    let shared = best_fork(&strip, &costs([1, 10, 10, 90, 10, 85, 9])).unwrap();
    assert_eq!((shared.lent, shared.worst), (vec![0, 3], [Nanos(115), Nanos(105)]));
    // All the work is in a row: nothing is to be had.
    let shared = best_fork(&strip, &costs([500, 1, 0, 0, 0, 0, 400])).unwrap();
    assert!(shared.worst[0] > Nanos(800));
}

#[test]
fn a_late_second_cpu_silences_its_branches_alone_and_is_in_time_again_after() {
    let (cutter, bench) = two_cpus(Ticks::plain(), false);
    let mood = Arc::new(AtomicU64::new(0));
    let strip = branched();
    let fork = strip.forks().remove(0);
    let setting = SETTING;
    let strip = strip.lend(&fork, &[0], |_| -> Result<Box<dyn Elsewhere>> {
        Ok(Box::new(cutter.line_to(Box::new(Moody(mood.clone())), Vec::new(), setting)?))
    });
    let (mut strip, _second) = (strip.unwrap(), crate::SecondThread::anywhere(bench).unwrap());
    // A machine may keep the second thread waiting for longer than it is waited for.
    let none_lost = |strip: &mut Strip| {
        quiet_testing::until("nothing is lost any more", || {
            let before = cutter.lost();
            played(strip, 640, 0, |_, _| {});
            (cutter.lost() == before).then_some(before)
        })
    };
    let before = none_lost(&mut strip);
    mood.store(1, Relaxed);
    let made = played(&mut strip, 640, 0, |_, _| {});
    assert!(made[0].iter().any(|y| *y != 0.0), "the other branches are heard");
    assert_eq!(cutter.lost(), before + 10);
    mood.store(0, Relaxed);
    none_lost(&mut strip);
    mood.store(2, Relaxed);
    // On a busy machine the second thread may be late with all of these blocks, and then has no fault to tell yet.
    let failed = quiet_testing::until("the fault is told", || {
        catch_unwind(AssertUnwindSafe(|| played(&mut strip, 640, 0, |_, _| {}))).err()
    });
    assert!(fault(&*failed).to_string().contains("a fault of the stage"));
}

#[derive(Default)]
struct Heard(u64);

impl Tell for Heard {
    fn tell(&mut self, event: LoopEvent) {
        self.0 += u64::from(matches!(event, LoopEvent::Done(_)));
    }
}

#[test]
fn swaps_bypass_and_ends_in_the_middle_lose_no_half_and_leave_none_behind() {
    let (cutter, bench) = two_cpus(Ticks::plain(), true);
    let _second = crate::SecondThread::anywhere(bench).unwrap();
    let strip = || cutter.cut(prepared(&around("")), SETTING).unwrap().strip;
    let (mut player, mut remote, _told) = player(strip(), 2, SETTING.block, SETTING.rate);
    let (mut heard, mut random) = (Heard::default(), fastrand::Rng::with_seed(2));
    let mut sent = 0;
    // More than the second thread serves at a time.
    while sent < 3 * STRIPS as u64 {
        for fade in [Fade::Cross, Fade::Through] {
            remote.swap(strip(), fade).map_err(|_| ()).unwrap();
            remote.bypass(random.bool()).unwrap();
            remote.set(random.usize(..8), random.f32()).unwrap();
            sent += 1;
        }
        let mut turns = 0;
        while heard.0 < 3 * sent && turns < 200 {
            let mut samples = noise(PERIOD, turns);
            player.process(&mut samples, PERIOD, &mut heard);
            assert!(samples.iter().all(|y| y.is_finite()));
            turns += 1;
        }
        remote.collect();
    }
    remote.bypass(false).unwrap();
    drop((player, remote));
    assert_eq!(cutter.lost(), 0);
}

/// Passes on what comes; stands still, or fails, when told.
struct Moody(Arc<AtomicU64>);

impl Stage for Moody {
    fn process(&mut self, _: &mut Block<'_>) {
        while self.0.load(Relaxed) == 1 {
            std::thread::yield_now();
        }
        assert!(self.0.load(Relaxed) < 2, "a fault of the stage");
    }

    fn reset(&mut self) {}
}

fn moody() -> (ReadyStrip, Cutter, crate::SecondThread, Arc<AtomicU64>) {
    let (cutter, bench) = two_cpus(Ticks::plain(), false);
    let mood = Arc::new(AtomicU64::new(0));
    let halves = (Box::new(crate::Wire) as ReadyStrip, Box::new(Moody(mood.clone())) as ReadyStrip);
    let strip = cutter.join(halves, Vec::new(), SETTING, SETTING.block).unwrap();
    (strip, cutter, crate::SecondThread::anywhere(bench).unwrap(), mood)
}

/// Block `n` is full of the number `n + 1`.
fn block(strip: &mut ReadyStrip, n: u64) -> f32 {
    let mut work = vec![n as f32 + 1.0; 2 * PERIOD];
    strip.process(&mut Block::new(&mut work, 2));
    assert!(work.iter().all(|y| *y == work[0]));
    work[0]
}

/// Plays from block `from` on until so many in a row were heard each in its own place: the number of the next one. What is late is silent.
fn in_time(strip: &mut ReadyStrip, from: u64, count: u64) -> u64 {
    let (mut next, mut row) = (from, 0);
    quiet_testing::until("blocks that are in time", || {
        let heard = block(strip, next);
        assert!(heard == 0.0 || heard == next as f32, "{next}: {heard}");
        row = if heard == next as f32 { row + 1 } else { 0 };
        next += 1;
        (row == count).then_some(next)
    })
}

#[test]
fn a_second_thread_that_stands_still_is_silent_counted_and_in_time_again_after() {
    let (mut strip, cutter, _second, mood) = moody();
    let from = in_time(&mut strip, 0, 10);
    let before = cutter.lost();
    mood.store(1, Relaxed);
    // The one that is on its way may be done yet; the next ones never are.
    block(&mut strip, from);
    for n in from + 1..from + 20 {
        let heard = block(&mut strip, n);
        assert!(heard == 0.0 || (n == from + 1 && heard == n as f32), "{n}: {heard}");
    }
    let lost = cutter.lost() - before;
    assert!((18..=20).contains(&lost), "{lost}");
    mood.store(0, Relaxed);
    // Nobody waits for it until it has caught up: then each block has its own place again.
    in_time(&mut strip, from + 20, 50);
}

#[test]
fn a_stage_that_fails_on_the_second_cpu_fails_as_on_the_first() {
    let (mut strip, _cutter, _second, mood) = moody();
    block(&mut strip, 0);
    block(&mut strip, 1);
    mood.store(2, Relaxed);
    // As late as a busy machine has the second thread.
    let mut n = 2;
    let failed = quiet_testing::until("the fault is told", || {
        n += 1;
        catch_unwind(AssertUnwindSafe(|| block(&mut strip, n - 1))).err()
    });
    assert!(fault(&*failed).to_string().contains("a fault of the stage"));
}

#[test]
fn a_second_thread_that_has_ended_is_not_waited_for() {
    for patient in [false, true] {
        let seam = whole().seams()[0];
        let (mut strip, _cutter, second) = cut(seam, patient);
        played(&mut *strip, 300, 0, |_, _| {});
        drop(second);
        let failed = catch_unwind(AssertUnwindSafe(|| played(&mut *strip, 300, 0, |_, _| {})));
        assert!(fault(&*failed.unwrap_err()).to_string().contains("has ended"));
    }
}

#[test]
fn the_second_place_is_another_cpu_of_the_shield() {
    use crate::{SeatWish, Wait, place};
    let wish = |shield: &str, cpu: Option<u32>| {
        let shield = (!shield.is_empty()).then(|| quiet_types::shield::Shield {
            cpus: shield.parse().unwrap(),
            housekeeping: "0".parse().unwrap(),
            mechanism: quiet_types::shield::Mechanism::Affinity,
            entry: None,
        });
        SeatWish { cpu: cpu.map(quiet_types::CpuId), shield, priority: 80, ..SeatWish::default() }
    };
    let beside = |wish: &SeatWish, others: &str| {
        let second = place::second(wish, &others.parse().unwrap());
        second.map(|second| (second.cpu.map(|cpu| cpu.0), second.mode))
    };
    let of = |wish: &SeatWish| beside(wish, "");
    assert_eq!(of(&wish("2-3", None)).unwrap(), (Some(3), None));
    assert_eq!(of(&wish("2-3", Some(3))).unwrap(), (Some(2), None));
    assert_eq!(of(&wish("", Some(1))).unwrap(), (None, Some(Wait::Sleep)));
    assert_eq!(of(&wish("2-3", Some(1))).unwrap(), (None, Some(Wait::Sleep)));
    // The first one takes what is free, and so does the second.
    assert_eq!(beside(&wish("2-4", None), "2").unwrap(), (Some(4), None));
    assert_eq!(beside(&wish("2-4", Some(4)), "2").unwrap(), (Some(3), None));
    assert_eq!(beside(&wish("2-3", None), "2").unwrap(), (Some(2), None));
    let alone = of(&wish("3", None)).unwrap_err().to_string();
    assert!(alone.contains("apply --cpus A-B"), "{alone}");
}
