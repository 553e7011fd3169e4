//! `simulate MACHINES DAYS FILE [RAW_DAYS [FOLDER]]`: so many machines' five-minute histograms, made from the run that is read from standard
//! input (a run of this program as JSON), into a new collector; prints rates, sizes, and how long questions take. The same records also go
//! to FOLDER, where one is given: as raw files, and as series for a VictoriaMetrics. `benches/farm.sh` calls it.
#![allow(clippy::unwrap_used, reason = "a benchmark may panic")]

mod beside;

use beside::Beside;
use quiet_farm::{
    Around, Arrival, Arrived, Collector, Discretion, FarmQuestion, SecretKey, Trust, make,
    sealed::seal,
};
use quiet_store::Kept;
use quiet_types::{
    Histogram, Nanos, Run,
    farm::{FarmKind, FarmRecord},
    histogram::layout,
};
use std::{collections::BTreeMap, io::Read, path::Path, sync::mpsc, thread, time::Instant};

/// 2026-08-24 00:00 UTC.
const START: i64 = 1_787_529_600;
const KERNELS: [&str; 4] = ["6.12.57-rt", "6.17.9", "6.18.1-rt", "6.18.4-rt"];
const CPUS: [&str; 3] = ["AMD Ryzen 7 5700X", "Intel N100", "Cortex-A76"];

/// The readings of five minutes (225,000 periods) as the run's, each bucket drawn anew and the whole stretched by this factor.
fn minutes(run: &Histogram, random: &mut fastrand::Rng, stretch: f64) -> Histogram {
    let mut counts = vec![0u64; layout::BUCKETS];
    let scale = 225_000.0 / run.count.max(1) as f64;
    let (mut min, mut max, mut sum) = (u64::MAX, 0, 0u64);
    for (lower, n) in &run.buckets {
        let mean = *n as f64 * scale;
        // Of rare ones a whole number by lot, so that the tail differs each time.
        let n = (mean * (0.9 + 0.2 * random.f64()) + random.f64()) as u64;
        if n == 0 {
            continue;
        }
        let value = (*lower as f64 * stretch) as u64;
        let Some(place) = layout::bucket(value) else { continue };
        counts[place] += n;
        min = min.min(value);
        max = max.max(value);
        sum += value * n;
    }
    Histogram::from_counts(&counts, 0, Some(Nanos(min)), Some(Nanos(max)), Nanos(sum))
}

fn main() {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let number = |at: usize| words[at].parse::<i64>().unwrap();
    let (machines, days, path) = (number(0), number(1), Path::new(&words[2]));
    let raw = words.get(3).map(|text| text.parse().unwrap());
    let mut beside = words.get(4).map(|dir| Beside::new(Path::new(dir)));
    let mut text = String::new();
    std::io::stdin().read_to_string(&mut text).unwrap();
    let run: Run = serde_json::from_str(&text).unwrap();
    let kept = Kept::Run(Box::new(run));
    let like = make::record(&kept, &Around::default(), &Discretion::default()).unwrap();
    let keys: Vec<SecretKey> =
        (0..machines).map(|_| SecretKey::of(&SecretKey::generate().unwrap()).unwrap()).collect();
    let mut collector = Collector::open(path, Trust::FirstKey).unwrap().raw_days(raw);
    let mut random = fastrand::Rng::with_seed(1);
    // Varied minutes to draw from: making them is no part of what is measured.
    let pool: Vec<Histogram> = (0..64)
        .map(|_| {
            let stretch = 0.8 + 0.6 * random.f64();
            minutes(&like.readings, &mut random, stretch)
        })
        .collect();
    // As a collector that is behind takes them: some thousand at a time, while a thread of its own makes and signs the next ones.
    let (ready, next) = mpsc::sync_channel::<Vec<Vec<u8>>>(2);
    let maker = thread::spawn(move || {
        let mut making = 0.0;
        let rounds: Vec<i64> = (0..days * 288).collect();
        for part in rounds.chunks((2000 / machines).max(1) as usize) {
            let began = Instant::now();
            let mut sealed = Vec::new();
            for (round, machine) in
                part.iter().flat_map(|round| (0..machines).map(move |m| (*round, m)))
            {
                let record = one(&like, &pool, machine, round, &mut random);
                let bytes = seal(&record, &keys[machine as usize]).unwrap();
                if let Some(beside) = &mut beside {
                    beside.take(&record, &bytes);
                }
                sealed.push(bytes);
            }
            making += began.elapsed().as_secs_f64();
            ready.send(sealed).unwrap();
        }
        (making, beside)
    });
    let (mut taking, mut records, mut bytes) = (0.0, 0u64, 0u64);
    for sealed in next {
        let began = Instant::now();
        let mut batch = collector.batch().unwrap();
        for sealed in &sealed {
            assert_eq!(batch.take(sealed, &Arrival::default()).unwrap(), Arrived::New);
            bytes += sealed.len() as u64;
        }
        batch.commit().unwrap();
        taking += began.elapsed().as_secs_f64();
        records += sealed.len() as u64;
    }
    let (making, mut beside) = maker.join().unwrap();
    let (kept, size) = collector.size().unwrap();
    println!("machines {machines} days {days} records {records} kept {kept}");
    println!(
        "sent_bytes_a_record {:.0} database_bytes_a_record {:.0} database_mb {}",
        bytes as f64 / records as f64,
        size as f64 / kept as f64,
        size >> 20
    );
    println!(
        "ingest_records_a_second {:.0} sealing_records_a_second {:.0}",
        records as f64 / taking,
        records as f64 / making
    );
    let today = START / 86_400 + days - 1;
    for (name, conditions, by) in [
        ("p99.9_by_kernel_last_week", "last=7", "kernel"),
        ("p99.9_by_kernel_all_days", "", "kernel"),
        ("one_machine_last_week", "last=7,host=m3", "day"),
    ] {
        let question =
            FarmQuestion::parse(&[conditions.to_owned()], &[by.to_owned()], today).unwrap();
        let mut times = Vec::new();
        let mut groups = Vec::new();
        for _ in 0..5 {
            let began = Instant::now();
            groups = collector.ask(&question, (today + 1) * 86_400_000).unwrap().groups;
            times.push(began.elapsed().as_secs_f64() * 1e3);
        }
        times.sort_by(f64::total_cmp);
        println!(
            "question {name} groups {} first_to_last_ms {:.1} {:.1} {:.1}",
            groups.len(),
            times[0],
            times[2],
            times[4]
        );
        if let (Some(dir), "p99.9_by_kernel_last_week") = (words.get(4), name) {
            let ours = groups.iter().map(|group| (group.name[0].clone(), group.p99_9.unwrap()));
            compare(Path::new(dir), beside.take().unwrap(), ours.collect(), today);
        }
    }
}

/// The same question of the raw files; the answers have to be equal. The series are written for who asks them elsewhere.
fn compare(dir: &Path, beside: Beside, ours: BTreeMap<String, Nanos>, today: i64) {
    println!("series_samples {}", beside.end());
    let began = Instant::now();
    let raw = beside::by_kernel(dir, (today - 6) * 86_400_000);
    println!("raw_files_question_ms {:.1}", began.elapsed().as_secs_f64() * 1e3);
    let raw = raw.into_iter().map(|(kernel, all)| (kernel, all.percentile(0.999).unwrap()));
    assert_eq!(raw.collect::<BTreeMap<_, _>>(), ours);
    for (kernel, at) in ours {
        println!("answer {kernel} {}", at.0);
    }
    println!("answered_at {}", (today + 1) * 86_400);
}

fn one(
    like: &FarmRecord,
    pool: &[Histogram],
    machine: i64,
    round: i64,
    random: &mut fastrand::Rng,
) -> FarmRecord {
    let readings = pool[random.usize(..pool.len())].clone();
    let at = START + round * 300;
    let mut setting = like.setting.clone();
    // A machine changes its kernel every thirty days or so.
    let turn = (round / 288 + machine * 7) / 30 + machine;
    setting.kernel = KERNELS[turn as usize % KERNELS.len()].to_owned();
    setting.cpu = CPUS[machine as usize % CPUS.len()].to_owned();
    setting.chain = "guitar".to_owned();
    setting.probe = "blocks".to_owned();
    FarmRecord {
        host: format!("m{machine}"),
        kind: FarmKind::Live,
        id: format!("{at}-guitar"),
        at: at * 1000,
        lasted: Nanos(300_000_000_000),
        expected: Some(readings.count),
        late: Some(readings.above(Nanos(1_333_333))),
        missed: Some(0),
        causes: Vec::new(),
        setting,
        readings,
        ..like.clone()
    }
}
