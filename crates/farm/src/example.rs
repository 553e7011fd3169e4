//! Records for tests.

use quiet_types::{
    Histogram, Nanos,
    farm::{FarmKind, FarmRecord, FarmSetting, RECORD_SCHEMA},
};

/// Five minutes of a chain from this second on, of so many blocks.
pub fn record(host: &str, second: i64, blocks: u64) -> FarmRecord {
    let mut random = fastrand::Rng::with_seed(second as u64 ^ blocks);
    let times: Vec<Nanos> = (0..blocks)
        .map(|_| Nanos((40_000.0 * (0.4 * (random.f64() - random.f64())).exp()) as u64))
        .chain([Nanos(1_500_000)])
        .collect();
    let readings = Histogram::of(times);
    FarmRecord {
        schema: RECORD_SCHEMA.to_owned(),
        host: host.to_owned(),
        kind: FarmKind::Live,
        id: format!("{second}-guitar"),
        at: second * 1000,
        lasted: Nanos(300_000_000_000),
        setting: FarmSetting {
            kernel: "6.18.4-rt".to_owned(),
            cpu: "AMD Ryzen 7".to_owned(),
            board: "Studio box".to_owned(),
            chain: "guitar".to_owned(),
            probe: "blocks".to_owned(),
            interval: Some(Nanos(1_333_333)),
            threshold: Some(Nanos(1_333_333)),
            ..FarmSetting::default()
        },
        expected: Some(readings.count),
        late: Some(readings.above(Nanos(1_333_333))),
        missed: Some(1),
        merged: 1,
        readings,
        ..FarmRecord::default()
    }
}
