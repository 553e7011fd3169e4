//! A histogram as columns. Pure.

/// Heights, 0 to 1, of a load histogram in so many columns from 0 to 100 % of a period; the last one holds all that took longer.
/// A height is that of the count's logarithm: one block among millions is seen.
pub fn load_bars(histogram: &[u64], columns: usize) -> Vec<f64> {
    let mut sums = vec![0u64; columns.max(2)];
    let (within, last) = (sums.len() - 1, sums.len() - 1);
    for (percent, n) in histogram.iter().enumerate() {
        let at = if percent >= 100 { last } else { percent * within / 100 };
        sums[at] = sums[at].saturating_add(*n);
    }
    let most = sums.iter().copied().max().unwrap_or(0);
    let tall = |n: &u64| match n {
        0 => 0.0,
        n => (1.0 + (*n as f64).log10()) / (1.0 + (most as f64).log10()),
    };
    sums.iter().map(tall).collect()
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
}
