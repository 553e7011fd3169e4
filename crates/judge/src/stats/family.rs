//! Several tests at once: p-values such that a false alarm among all of them is as rare as in one.

/// Adjusted by Holm: true whatever the tests have to do with each other.
///
/// # Source
/// Holm: A simple sequentially rejective multiple test procedure, Scandinavian Journal of Statistics 6, 1979.
pub fn holm(p_values: &[f64]) -> Vec<f64> {
    let mut largest = 0.0f64;
    stepped(p_values, |rank, p| {
        largest = largest.max(p * (p_values.len() - rank) as f64);
        largest.min(1.0)
    })
}

/// Adjusted by Hochberg: sharper, and true for tests that do not contradict each other, such as two figures of the same readings.
///
/// # Source
/// Hochberg: A sharper Bonferroni procedure for multiple tests of significance, Biometrika 75, 1988; Sarkar, 1998, for
/// the kind of dependence.
pub fn hochberg(p_values: &[f64]) -> Vec<f64> {
    let mut order: Vec<usize> = (0..p_values.len()).collect();
    order.sort_by(|a, b| p_values[*b].total_cmp(&p_values[*a]));
    let (mut adjusted, mut least) = (vec![1.0; p_values.len()], 1.0f64);
    for (rank, at) in order.into_iter().enumerate() {
        least = least.min(p_values[at] * (rank + 1) as f64);
        adjusted[at] = least;
    }
    adjusted
}

/// From the smallest up, put back into their places.
fn stepped(p_values: &[f64], mut step: impl FnMut(usize, f64) -> f64) -> Vec<f64> {
    let mut order: Vec<usize> = (0..p_values.len()).collect();
    order.sort_by(|a, b| p_values[*a].total_cmp(&p_values[*b]));
    let mut adjusted = vec![1.0; p_values.len()];
    for (rank, at) in order.into_iter().enumerate() {
        adjusted[at] = step(rank, p_values[at]);
    }
    adjusted
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stats::Random;

    #[test]
    fn the_textbook_cases_come_out() {
        let near = |got: Vec<f64>, wanted: [f64; 4]| {
            assert!(got.iter().zip(wanted).all(|(a, b)| (a - b).abs() < 1e-12), "{got:?}");
        };
        near(holm(&[0.01, 0.04, 0.03, 0.005]), [0.03, 0.06, 0.06, 0.02]);
        near(hochberg(&[0.01, 0.04, 0.03, 0.005]), [0.03, 0.04, 0.04, 0.02]);
        assert!(holm(&[]).is_empty() && hochberg(&[]).is_empty());
        assert_eq!((holm(&[0.03]), hochberg(&[0.03])), (vec![0.03], vec![0.03]));
    }

    #[test]
    fn one_false_alarm_among_many_is_as_rare_as_in_one() {
        let mut random = Random::new(5);
        for tests in [2usize, 7, 40] {
            let alarms = (0..4000)
                .filter(|_| {
                    let drawn: Vec<f64> = (0..tests).map(|_| random.unit()).collect();
                    holm(&drawn).iter().any(|p| *p <= 0.05)
                })
                .count();
            // Five standard deviations above 200.
            assert!(alarms < 270, "{tests}: {alarms} of 4000");
        }
    }
}
