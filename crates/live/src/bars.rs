//! A histogram as columns. Pure.

use quiet_types::{Nanos, live::PROBE_BARS};

/// Heights, 0 to 1, of a load histogram in so many columns from 0 to 100 % of a period; the last one holds all that took longer.
/// A height is that of the count's logarithm: one block among millions is seen.
pub fn load_bars(histogram: &[u64], columns: usize) -> Vec<f64> {
    let mut sums = vec![0u64; columns.max(2)];
    let (within, last) = (sums.len() - 1, sums.len() - 1);
    for (percent, n) in histogram.iter().enumerate() {
        let at = if percent >= 100 { last } else { percent * within / 100 };
        sums[at] = sums[at].saturating_add(*n);
    }
    heights(&sums)
}

/// Heights, 0 to 1, by the logarithm of each count.
fn heights(counts: &[u64]) -> Vec<f64> {
    let most = counts.iter().copied().max().unwrap_or(0);
    let tall = |n: &u64| match n {
        0 => 0.0,
        n => (1.0 + (*n as f64).log10()) / (1.0 + (most as f64).log10()),
    };
    counts.iter().map(tall).collect()
}

/// Heights of a probe's columns between the first and the last that hold something, with the lengths at which they begin and end.
pub fn probe_bars(bars: &[u64]) -> Option<(Vec<f64>, Nanos, Nanos)> {
    let bars = &bars[..bars.len().min(PROBE_BARS)];
    let (first, last) = (bars.iter().position(|n| *n > 0)?, bars.iter().rposition(|n| *n > 0)?);
    let begins = |at: usize| Nanos(10f64.powf(1.0 + at as f64 / 10.0).round() as u64);
    Some((heights(&bars[first..=last]), begins(first), begins(last + 1)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_block_among_millions_is_seen_and_a_late_one_stands_last() {
        let mut histogram = vec![0u64; 120];
        histogram[10] = 1_000_000;
        histogram[50] = 1;
        histogram[119] = 1;
        let bars = load_bars(&histogram, 11);
        assert_eq!(bars.len(), 11);
        assert_eq!((bars[1], bars[0]), (1.0, 0.0));
        assert!(bars[5] > 0.1 && bars[10] == bars[5]);
        assert!(load_bars(&[], 11).iter().all(|bar| *bar == 0.0));
        assert_eq!(load_bars(&[7], 0).len(), 2);
    }

    #[test]
    fn a_probes_columns_begin_where_its_readings_do() {
        let mut bars = vec![0u64; PROBE_BARS];
        assert_eq!(probe_bars(&bars), None);
        (bars[20], bars[22]) = (1000, 1);
        let (tall, from, to) = probe_bars(&bars).unwrap();
        assert_eq!((from, to), (Nanos(1_000), Nanos(1_995)));
        assert_eq!((tall.len(), tall[0], tall[1]), (3, 1.0, 0.0));
        assert!(tall[2] > 0.2 && tall[2] < 0.3, "{tall:?}");
        // More than there should be is not looked at.
        bars.extend([7; 1000]);
        assert_eq!(probe_bars(&bars).unwrap().0.len(), 3);
    }
}
