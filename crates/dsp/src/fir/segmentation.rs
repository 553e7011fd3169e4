//! How an IR is cut into a head and segments.

/// A head, and segments of (taps in a part, parts), which follow each other without a gap.
#[derive(Clone, Debug, PartialEq)]
pub struct Segmentation {
    /// Taps that are summed directly.
    pub head: usize,
    /// Each begins at two of its parts or later.
    pub segments: Vec<(usize, usize)>,
}

/// Sizes of a part: powers of two between these.
const SMALLEST: u32 = 6;
const LARGEST: u32 = 16;
/// The longest IR that is all head.
const ALL_HEAD: usize = 512;

/// The cheapest cut for an IR of `taps` taps between so many inputs and outputs.
pub fn best(taps: usize, inputs: usize, outputs: usize, routes: usize) -> Segmentation {
    let mut best = Segmentation { head: taps, segments: Vec::new() };
    let mut least = if taps <= ALL_HEAD { head(taps, routes) } else { f64::INFINITY };
    for sizes in 1..1u32 << (LARGEST - SMALLEST + 1) {
        let sizes = (SMALLEST..=LARGEST).filter(|size| sizes >> (size - SMALLEST) & 1 == 1);
        let Some(plan) = cut(taps, sizes) else { continue };
        let mut cost = head(plan.head, routes);
        for &(part, parts) in &plan.segments {
            let passes = f64::from((part.ilog2() - 4).div_ceil(2));
            let transform = 1.8 + 0.2 * passes;
            let bytes = 8 * part * parts * (inputs + routes);
            // From the first, the second and the third cache.
            let product = if bytes <= 1 << 15 {
                0.37
            } else if bytes <= 1 << 19 {
                0.5
            } else {
                0.7
            };
            cost += 1.5 + transform * (inputs + outputs) as f64 + product * (parts * routes) as f64;
        }
        if cost < least {
            (best, least) = (plan, cost);
        }
    }
    best
}

/// Estimated cycles a sample.
fn head(taps: usize, routes: usize) -> f64 {
    0.07 * (taps * routes) as f64
}

/// The cut with exactly these sizes; none if the IR is too short for them.
fn cut(taps: usize, sizes: impl Iterator<Item = u32>) -> Option<Segmentation> {
    let mut sizes = sizes.map(|size| 1usize << size).peekable();
    let head = 2 * sizes.peek()?;
    let (mut first, mut segments) = (head, Vec::new());
    while let Some(part) = sizes.next() {
        if taps <= first || head > ALL_HEAD {
            return None;
        }
        let last = sizes.peek().map_or(taps, |next| 2 * next).min(taps);
        let parts = (last - first).div_ceil(part);
        segments.push((part, parts));
        first += part * parts;
    }
    Some(Segmentation { head, segments })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn segments_follow_each_other_and_leave_a_period_for_the_work() {
        for taps in [1, 2, 255, 256, 257, 512, 513, 1000, 8192, 65_536, 262_144, 1 << 20] {
            for (inputs, outputs, routes) in [(1, 1, 1), (2, 2, 4), (1, 8, 8)] {
                let plan = best(taps, inputs, outputs, routes);
                let mut first = plan.head;
                for &(part, parts) in &plan.segments {
                    assert!(first >= 2 * part, "{taps} taps: {plan:?}");
                    first += part * parts;
                }
                assert!(first >= taps, "{taps} taps: {plan:?}");
                let parts: Vec<usize> = plan.segments.iter().map(|&(part, _)| part).collect();
                assert!(parts.is_sorted_by(|a, b| a < b), "{taps} taps: {plan:?}");
            }
        }
    }
}
