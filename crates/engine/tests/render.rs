//! Files through strips: in time, whole or not at all, and never over what is there.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

use quiet_engine::render::{Description, Files, Job, Order, RenderProgress, WavFormat, render};
use quiet_types::{Frames, render::FileOutcome};
use std::path::Path;

fn wav(path: &Path, rate: u32, channels: u16, samples: &[f32]) {
    let spec = hound::WavSpec {
        channels,
        sample_rate: rate,
        bits_per_sample: 32,
        sample_format: hound::SampleFormat::Float,
    };
    let mut writer = hound::WavWriter::create(path, spec).unwrap();
    samples.iter().for_each(|x| writer.write_sample(*x).unwrap());
    writer.finalize().unwrap();
}

fn read(path: &Path) -> Vec<f32> {
    hound::WavReader::open(path).unwrap().samples::<f32>().map(Result::unwrap).collect()
}

fn order(strip: &str) -> Order {
    Order {
        strip: Description::parse(strip, "test.toml").unwrap_or_else(|e| panic!("{e}")),
        files: Files::here(),
        format: WavFormat::Float,
        rate: None,
        channels: None,
        tail: None,
        block: Frames(100),
        force: false,
        skip: false,
        threads: 2,
        halved: false,
    }
}

fn noise(count: usize) -> Vec<f32> {
    let mut random = fastrand::Rng::with_seed(5);
    (0..count).map(|_| random.f32() - 0.5).collect()
}

const LATE: &str = "[[stage]]\nkind = \"limiter\"\nceiling = 0.0\n\n\
                    [[stage]]\nkind = \"delay\"\nframes = 300\n";

#[test]
fn latency_is_taken_out_and_the_tail_is_written() {
    let folder = tempfile::tempdir().unwrap();
    let (from, to) = (folder.path().join("in.wav"), folder.path().join("out.wav"));
    let x = noise(2 * 5000);
    wav(&from, 48_000, 2, &x);
    let jobs = [Job { from, to: to.clone() }];
    let done = render(&jobs, &order(LATE), &RenderProgress::default());
    assert_eq!(done[0].outcome, FileOutcome::Done, "{:?}", done[0].error);
    let sound = done[0].sound.as_ref().unwrap();
    assert_eq!((sound.latency, sound.frames, sound.channels), (72, 5000, [2, 2]));
    let y = read(&to);
    // The limiter's 72 frames are gone; the delay, which is wanted, is there, and its end.
    assert_eq!(y[..600], [0.0; 600]);
    assert_eq!(y[600..600 + x.len()], x);
    assert!(!folder.path().join("out.wav.part").exists());
}

#[test]
fn what_is_there_stays_unless_it_is_forced() {
    let folder = tempfile::tempdir().unwrap();
    let (from, to) = (folder.path().join("in.wav"), folder.path().join("out.wav"));
    wav(&from, 48_000, 1, &noise(100));
    std::fs::write(&to, "mine").unwrap();
    let jobs = [Job { from, to: to.clone() }];
    let done = render(&jobs, &order(LATE), &RenderProgress::default());
    assert_eq!(done[0].outcome, FileOutcome::Failed);
    assert!(done[0].error.as_ref().unwrap().contains("--force"));
    let done = render(&jobs, &Order { skip: true, ..order(LATE) }, &RenderProgress::default());
    assert_eq!(done[0].outcome, FileOutcome::Skipped);
    assert_eq!(std::fs::read(&to).unwrap(), b"mine");
    let done = render(&jobs, &Order { force: true, ..order(LATE) }, &RenderProgress::default());
    assert_eq!(done[0].outcome, FileOutcome::Done);
    assert_eq!(read(&to).len() as u64, 100 + done[0].sound.as_ref().unwrap().tail);
}

#[test]
fn two_calls_for_one_file_are_not_in_each_others_way() {
    let folder = tempfile::tempdir().unwrap();
    let (from, to) = (folder.path().join("in.wav"), folder.path().join("out.wav"));
    let aside = folder.path().join("out.wav.part");
    wav(&from, 48_000, 1, &noise(1000));
    let jobs = [Job { from, to: to.clone() }];
    // Another call is at it: its file stays as it is.
    std::fs::write(&aside, "half of it").unwrap();
    let other = std::fs::File::open(&aside).unwrap();
    other.lock().unwrap();
    let done = render(&jobs, &order(LATE), &RenderProgress::default());
    assert_eq!(done[0].outcome, FileOutcome::Failed);
    assert!(done[0].error.as_ref().unwrap().contains("another call is at it"), "{done:?}");
    assert_eq!(std::fs::read_to_string(&aside).unwrap(), "half of it");
    assert!(!to.exists());
    // It has ended without an end: what it left is replaced.
    drop(other);
    let done = render(&jobs, &order(LATE), &RenderProgress::default());
    assert_eq!(done[0].outcome, FileOutcome::Done, "{:?}", done[0].error);
    assert!(to.exists() && !aside.exists());
}

#[test]
fn a_model_of_a_gigabyte_gets_a_sentence() {
    let folder = tempfile::tempdir().unwrap();
    let (from, amp) = (folder.path().join("in.wav"), folder.path().join("huge.nam"));
    wav(&from, 48_000, 1, &noise(100));
    std::fs::File::create(&amp).unwrap().set_len(1 << 30).unwrap();
    let strip = format!("[[stage]]\nkind = \"amp\"\nfile = \"{}\"\n", amp.display());
    let to = folder.path().join("out.wav");
    let done = render(&[Job { from, to }], &order(&strip), &RenderProgress::default());
    let error = done[0].error.as_ref().unwrap();
    assert!(error.contains("huge.nam") && error.contains("larger than 256 MiB"), "{error}");
}

/// `fixtures/sound/ramp.flac` holds what this makes, stereo: our own, encoded by sox.
fn ramp(n: i32) -> [i32; 2] {
    let left = (n * 37) % 4001 - 2000;
    [left, n % 2 * 300 - left / 2]
}

#[test]
fn flac_is_read_to_the_last_bit() {
    let folder = tempfile::tempdir().unwrap();
    let from = quiet_testing::tree::fixture("sound/ramp.flac");
    let to = folder.path().join("out.wav");
    let order = Order { tail: Some(0.0), ..order("[[stage]]\nkind = \"polarity\"\n") };
    let done = render(&[Job { from, to: to.clone() }], &order, &RenderProgress::default());
    assert_eq!(done[0].outcome, FileOutcome::Done, "{:?}", done[0].error);
    let sound = done[0].sound.as_ref().unwrap();
    assert_eq!((sound.rate, sound.frames, sound.channels), (44_100, 5000, [2, 2]));
    let wanted: Vec<f32> = (0..5000).flat_map(ramp).map(|x| -(x as f32) / 32_768.0).collect();
    assert_eq!(read(&to), wanted);
}

#[test]
fn a_file_that_ends_early_leaves_nothing_behind_and_does_not_stop_the_others() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    wav(&at("good.wav"), 48_000, 1, &noise(3000));
    wav(&at("bad.wav"), 48_000, 1, &noise(3000));
    let bytes = std::fs::read(at("bad.wav")).unwrap();
    std::fs::write(at("bad.wav"), &bytes[..bytes.len() / 2]).unwrap();
    let jobs = [("bad.wav", "a.wav"), ("good.wav", "b.wav"), ("no.wav", "c.wav")]
        .map(|(from, to)| Job { from: at(from), to: at(to) });
    let done = render(&jobs, &order(LATE), &RenderProgress::default());
    let outcomes: Vec<FileOutcome> = done.iter().map(|file| file.outcome).collect();
    assert_eq!(outcomes, [FileOutcome::Failed, FileOutcome::Done, FileOutcome::Failed]);
    assert!(done[0].error.as_ref().unwrap().contains("ends early"));
    let mut left: Vec<_> =
        std::fs::read_dir(folder.path()).unwrap().map(|e| e.unwrap().file_name()).collect();
    left.sort();
    assert_eq!(left, ["b.wav", "bad.wav", "good.wav"]);
}

#[test]
fn clipping_is_counted_and_integers_are_cut() {
    let folder = tempfile::tempdir().unwrap();
    let (from, to) = (folder.path().join("in.wav"), folder.path().join("out.wav"));
    wav(&from, 48_000, 1, &[0.9, -0.9, 0.1, 0.25]);
    let strip = "[[stage]]\nkind = \"gain\"\ngain = 6.0205999\n";
    let jobs = [Job { from, to: to.clone() }];
    let order = Order { format: WavFormat::Whole(16), tail: Some(0.0), ..order(strip) };
    let done = render(&jobs, &order, &RenderProgress::default());
    let sound = done[0].sound.as_ref().unwrap();
    assert_eq!((sound.clipped, sound.tail), (2, 0));
    assert_eq!(done[0].findings[0].id, "render.clipped");
    let y: Vec<i32> =
        hound::WavReader::open(&to).unwrap().samples::<i32>().map(Result::unwrap).collect();
    assert_eq!(y, [32_767, -32_768, 6554, 16_384]);
}

#[test]
fn a_strip_at_another_rate_gives_back_the_sound_in_its_time() {
    let folder = tempfile::tempdir().unwrap();
    let (from, to) = (folder.path().join("in.wav"), folder.path().join("out.wav"));
    let sine: Vec<f32> = (0..22_050).map(|n| (n as f32 * 0.05).sin() * 0.5).collect();
    wav(&from, 44_100, 1, &sine);
    let strip = "[[stage]]\nkind = \"limiter\"\n";
    let order = Order { rate: Some(48_000), tail: Some(0.0), ..order(strip) };
    let done = render(&[Job { from, to: to.clone() }], &order, &RenderProgress::default());
    let sound = done[0].sound.as_ref().unwrap_or_else(|| panic!("{:?}", done[0].error));
    assert_eq!((sound.rate, sound.strip_rate, sound.frames), (44_100, 48_000, 22_050));
    let y = read(&to);
    assert_eq!(y.len(), 22_050);
    for (n, (y, x)) in y.iter().zip(&sine).enumerate().take(18_000).skip(4000) {
        assert!((y - x).abs() < 1e-3, "frame {n}: {y} {x}");
    }
}

#[test]
fn the_length_of_blocks_changes_neither_length_nor_bits() {
    let folder = tempfile::tempdir().unwrap();
    let from = folder.path().join("in.wav");
    wav(&from, 48_000, 2, &noise(2 * 3001));
    let strips = [
        format!("{LATE}[[stage]]\nkind = \"ir\"\ntaps = [0.5, 0.25, -0.5]\n"),
        "[[stage]]\nkind = \"biquad\"\ntype = \"highpass\"\nfrequency = 40.0\nq = 5.0\n".to_owned(),
    ];
    for strip in strips {
        for rate in [None, Some(44_100)] {
            let mut first = None;
            for block in [512, 1, 7, 64, 4096, 65_536] {
                let to = folder.path().join("out.wav");
                let jobs = [Job { from: from.clone(), to: to.clone() }];
                let order = Order { block: Frames(block), rate, force: true, ..order(&strip) };
                let done = render(&jobs, &order, &RenderProgress::default());
                assert_eq!(done[0].outcome, FileOutcome::Done, "{:?}", done[0].error);
                let bytes = std::fs::read(&to).unwrap();
                let same = *first.get_or_insert_with(|| bytes.clone()) == bytes;
                assert!(same, "blocks of {block} at {rate:?}: {} bytes", bytes.len());
            }
        }
    }
}

#[test]
fn a_header_that_tells_no_size_is_read_and_one_that_tells_too_much_is_not() {
    let folder = tempfile::tempdir().unwrap();
    let (from, to) = (folder.path().join("in.wav"), folder.path().join("out.wav"));
    let x = noise(500);
    let file = |name: &[u8; 4], long: Option<u64>| {
        let mut file = [&name[..], b"\xff\xff\xff\xffWAVE"].concat();
        if let Some(long) = long {
            file.extend(b"ds64\x1c\0\0\0");
            file.extend([0, long, 0].map(u64::to_le_bytes).concat());
            file.extend([0; 4]);
        }
        file.extend(b"fmt \x10\0\0\0\x03\0\x01\0\x80\xbb\0\0\0\xee\x02\0\x04\0\x20\0data");
        file.extend(b"\xff\xff\xff\xff");
        file.extend(x.iter().flat_map(|x| x.to_le_bytes()));
        file
    };
    let order = Order { tail: Some(0.0), force: true, ..order("") };
    for file in [file(b"RIFF", None), file(b"RF64", Some(2000)), file(b"BW64", Some(2000))] {
        std::fs::write(&from, file).unwrap();
        let jobs = [Job { from: from.clone(), to: to.clone() }];
        let done = render(&jobs, &order, &RenderProgress::default());
        assert_eq!(done[0].outcome, FileOutcome::Done, "{:?}", done[0].error);
        assert_eq!(read(&to), x);
    }
    std::fs::write(&from, file(b"RF64", Some(2400))).unwrap();
    let done = render(&[Job { from, to }], &order, &RenderProgress::default());
    assert!(done[0].error.as_ref().unwrap().contains("100 frames before"), "{:?}", done[0].error);
}

#[test]
fn what_is_no_number_is_counted_and_played_as_silence() {
    let folder = tempfile::tempdir().unwrap();
    let (from, to) = (folder.path().join("in.wav"), folder.path().join("out.wav"));
    let mut x = noise(1000);
    (x[7], x[400], x[999]) = (f32::NAN, f32::INFINITY, f32::NEG_INFINITY);
    wav(&from, 48_000, 1, &x);
    let order = Order { tail: Some(0.0), ..order("") };
    let done = render(&[Job { from, to: to.clone() }], &order, &RenderProgress::default());
    assert_eq!(done[0].sound.as_ref().unwrap().not_finite, 3);
    assert_eq!(done[0].findings[0].id, "render.not-finite");
    (x[7], x[400], x[999]) = (0.0, 0.0, 0.0);
    assert_eq!(read(&to), x);
}
