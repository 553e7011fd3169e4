//! The drawings of the page. Each is made twice, for wide and for narrow screens: text in a
//! drawing that is merely shrunk cannot be read.

use crate::svg::{Anchor, Mark, Scale, Svg, tick};
use quiet_types::words;
use quiet_types::{
    Histogram, Nanos,
    histogram::layout,
    proof::{Figure, Ratio, Unit},
};

/// Widths of the two forms, in px, with the class that shows each.
pub(super) const FORMS: [(&str, f64); 2] = [("wide", 720.0), ("narrow", 328.0)];

/// Display bins a decade.
const BINS: f64 = 22.0;

/// One line of a chart: a setting, or a run.
pub(crate) struct Series {
    /// For the legend.
    pub name: String,
    /// `a`, `b` ...: colour and dash.
    pub class: &'static str,
    /// All its readings.
    pub whole: Histogram,
    /// The smallest reading taken. The remainders of missed periods may be smaller; the scale
    /// begins here, and they stand in its first bin.
    pub least: Option<Nanos>,
    /// Its runs, drawn thin behind.
    pub runs: Vec<Histogram>,
}

/// A chart in both forms.
fn both(draw: impl Fn(&str, f64) -> String) -> String {
    FORMS.map(|(class, width)| draw(class, width)).concat()
}

/// The stretch of the drawing that the data fill.
struct Plot {
    left: f64,
    right: f64,
    top: f64,
    bottom: f64,
}

impl Plot {
    /// With room for the legend above and the axis below.
    fn new(width: f64, height: f64, series: &[Series]) -> Plot {
        let plot = Plot { left: 64.0, right: width - 12.0, top: 30.0, bottom: height - 42.0 };
        let rows = legend_places(series, &plot).last().map_or(0.0, |place| place.1);
        Plot { top: plot.top + rows, bottom: plot.bottom + rows, ..plot }
    }

    fn height(&self) -> f64 {
        self.bottom + 42.0
    }
}

/// Share of readings by latency, both axes logarithmic.
pub(crate) fn histogram(series: &[Series], threshold: Option<Nanos>, axis: &str) -> String {
    let title = format!("Histogram of {axis}, logarithmic on both axes");
    drawn(series, threshold, axis, &title, |_| None)
}

/// The same from the 99th percentile of the quietest line on; `None` where nothing lies there.
pub(crate) fn tail(series: &[Series], threshold: Option<Nanos>, axis: &str) -> Option<String> {
    let begins = series.iter().filter_map(|one| one.whole.percentile(0.99)).min()?;
    let ends = series.iter().filter_map(|one| one.whole.max).max()?;
    if ends.0 < begins.0.saturating_mul(2) {
        return None;
    }
    let title = format!("The longest one of a hundred: histogram of {axis} from {begins} on");
    let low = begins.0.max(1) as f64;
    Some(drawn(series, threshold, axis, &title, |x| Some(Scale { low, ..x })))
}

/// `cut` makes the scale begin elsewhere; what is shorter is then left out.
fn drawn(
    series: &[Series],
    threshold: Option<Nanos>,
    axis: &str,
    title: &str,
    cut: impl Fn(Scale) -> Option<Scale>,
) -> String {
    both(|class, width| {
        let height = if class == "wide" { 340.0 } else { 280.0 };
        let plot = Plot::new(width, height, series);
        let all = latency_scale(series, plot.left, plot.right);
        let cut = cut(all);
        let x = cut.unwrap_or(all);
        let bins: Vec<Vec<f64>> = series
            .iter()
            .map(|one| match cut {
                None => shares(&one.whole, &x),
                // Shares are of all readings, here too.
                Some(x) => {
                    let some = beyond(&one.whole, x.low);
                    let part = some.count as f64 / one.whole.count.max(1) as f64;
                    shares(&some, &x).into_iter().map(|share| share * part).collect()
                }
            })
            .collect();
        let least = series.iter().map(|s| s.whole.count).max().unwrap_or(1).max(1);
        let low = 10f64.powf((1.0 / least as f64).log10().floor().min(-1.0));
        let high = match cut {
            None => 1.0,
            Some(_) => {
                let most = bins.iter().flatten().copied().fold(low * 10.0, f64::max);
                10f64.powf(most.log10().ceil())
            }
        };
        let y = Scale { low, high, from: plot.bottom, to: plot.top };
        let mut svg = Svg::new(width, plot.height());
        grid_x(&mut svg, &x, &plot, axis);
        for share in y.decades() {
            svg.line("grid", (plot.left, y.at(share)), (plot.right, y.at(share)));
            let label = words::share_tick(share);
            svg.text("tick", (plot.left - 7.0, y.at(share) + 4.0), Anchor::End, &label);
        }
        for (one, shares) in series.iter().zip(&bins) {
            let outline = outline(shares, &x, &y, plot.bottom);
            svg.path(&format!("area {}", one.class), &outline);
            svg.path(&format!("line {}", one.class), &outline);
        }
        if let Some(threshold) = threshold {
            limit(&mut svg, &x, &plot, threshold);
        }
        hits_by_bin(&mut svg, series, &bins, &x, &plot);
        legend(&mut svg, series, &plot);
        svg.finish(&format!("chart {class}"), title)
    })
}

/// What is above a limit.
fn beyond(all: &Histogram, limit: f64) -> Histogram {
    let mut some = all.clone();
    some.buckets.retain(|(lower, _)| *lower as f64 >= limit);
    some.count = some.buckets.iter().map(|(_, n)| *n).sum::<u64>() + some.over;
    some
}

/// Latency by percentile; the axis gives each further nine the same room.
pub(crate) fn percentiles(series: &[Series], threshold: Option<Nanos>) -> String {
    let title = "Latency by percentile";
    both(|class, width| {
        let height = if class == "wide" { 340.0 } else { 280.0 };
        let plot = Plot::new(width, height, series);
        let most = series.iter().map(|s| s.whole.count).max().unwrap_or(1).max(10);
        // 1 / (1 - p) is a plain logarithmic scale.
        let x = Scale { low: 1.0, high: most as f64, from: plot.left, to: plot.right };
        let y = latency_scale(series, plot.bottom, plot.top);
        let mut svg = Svg::new(width, plot.height());
        for ns in y.decades() {
            svg.line("grid", (plot.left, y.at(ns)), (plot.right, y.at(ns)));
            svg.text("tick", (plot.left - 7.0, y.at(ns) + 4.0), Anchor::End, &tick(ns));
        }
        let mut free = f64::MIN;
        for nines in x.decades() {
            svg.line("grid", (x.at(nines), plot.top), (x.at(nines), plot.bottom));
            let label = percentile_tick(nines);
            let half = 3.7 * label.chars().count() as f64;
            // Half of the last one must not be cut off; one without room is left out.
            let at = x.at(nines).min(width - half);
            if at - half >= free {
                svg.text("tick", (at, plot.bottom + 17.0), Anchor::Middle, &label);
                free = at + half;
            }
        }
        svg.text("axis", (plot.right, plot.bottom + 35.0), Anchor::End, "percentile");
        for one in series {
            for run in &one.runs {
                svg.path(&format!("thin {}", one.class), &curve(run, &x, &y));
            }
        }
        for one in series {
            svg.path(&format!("line {}", one.class), &curve(&one.whole, &x, &y));
        }
        if let Some(threshold) = threshold
            && (y.low..=y.high).contains(&(threshold.0 as f64))
        {
            let at = y.at(threshold.0 as f64);
            svg.line("limit", (plot.left, at), (plot.right, at));
            svg.text(
                "limit",
                (plot.left + 5.0, at - 5.0),
                Anchor::Start,
                &threshold_name(threshold),
            );
        }
        hits_by_percentile(&mut svg, series, &x, &plot);
        legend(&mut svg, series, &plot);
        svg.finish(&format!("chart {class}"), title)
    })
}

/// One figure, run by run: pairs are joined, so that a change that all pairs share is seen as
/// lines that lean the same way.
pub(crate) fn pairs(figure: &Figure, other: &str) -> String {
    let (width, height) = (208.0, 210.0);
    let (left, right, top, bottom) = (82.0, 172.0, 16.0, height - 30.0);
    let runs = || figure.shared.runs.iter().chain(&figure.shielded.runs).copied();
    let high = runs().fold(f64::MIN_POSITIVE, f64::max);
    let low = runs().filter(|v| *v > 0.0).fold(high, f64::min);
    let y = Scale { low: low / 1.6, high: high * 1.3, from: bottom - 20.0, to: top };
    // A logarithmic scale has no zero: it lies on the bottom line, below the scale.
    let at = |v: f64| if v > 0.0 { y.at(v) } else { bottom };
    let show = |v: f64| match figure.unit {
        Unit::Nanoseconds => tick(v),
        Unit::Share => words::share_tick(v),
    };
    let mut svg = Svg::new(width, height);
    let decades = y.decades();
    let decades: Vec<f64> = decades.into_iter().filter(|v| bottom - y.at(*v) > 15.0).collect();
    let marks = if decades.len() >= 2 { decades } else { vec![low, high] };
    for value in marks {
        let shown = if value == low || value == high {
            words::value(figure.unit, value)
        } else {
            show(value)
        };
        svg.line("grid", (left - 12.0, y.at(value)), (right + 12.0, y.at(value)));
        svg.text("tick", (left - 18.0, y.at(value) + 4.0), Anchor::End, &shown);
    }
    if runs().any(|v| v == 0.0) {
        svg.line("grid", (left - 12.0, bottom), (right + 12.0, bottom));
        svg.text("tick", (left - 18.0, bottom + 4.0), Anchor::End, "none");
    }
    let pairs = || figure.shared.runs.iter().zip(&figure.shielded.runs);
    for (a, b) in pairs() {
        svg.line("pair", (left, at(*a)), (right, at(*b)));
    }
    for (a, b) in pairs() {
        svg.mark("mark a", Mark::Circle, (left, at(*a)), 3.8);
        svg.mark("mark b", Mark::Diamond, (right, at(*b)), 3.8);
    }
    svg.text("tick", (left, height - 8.0), Anchor::Middle, "shared");
    svg.text("tick", (right, height - 8.0), Anchor::Middle, other);
    let title = format!("{} of every run, {other} against shared", figure.title);
    svg.finish("pairs", &title)
}

/// The scale on which the intervals of all ratios are drawn; x1 is on it.
pub(crate) fn ratio_scale(ratios: impl Iterator<Item = Ratio>) -> (f64, f64) {
    let (mut low, mut high) = (0.5f64, 2.0f64);
    for ratio in ratios {
        low = low.min(ratio.low);
        high = high.max(ratio.high);
    }
    (low.max(1e-6) / 1.4, high.min(1e6) * 1.4)
}

/// One ratio with its interval, drawn; the line is x1, no change.
pub(crate) fn interval(ratio: Ratio, class: &str, (low, high): (f64, f64)) -> String {
    let (width, height, middle) = (190.0, 20.0, 10.0);
    let x = Scale { low, high, from: 8.0, to: width - 8.0 };
    let mut svg = Svg::new(width, height);
    for decade in x.decades() {
        svg.line("grid", (x.at(decade), 0.0), (x.at(decade), height));
    }
    svg.line("one", (x.at(1.0), 0.0), (x.at(1.0), height));
    svg.line(&format!("span {class}"), (x.at(ratio.low), middle), (x.at(ratio.high), middle));
    for end in [ratio.low, ratio.high] {
        let end = x.at(end);
        svg.line(&format!("span {class}"), (end, middle - 4.0), (end, middle + 4.0));
    }
    svg.mark(&format!("point {class}"), Mark::Diamond, (x.at(ratio.value), middle), 3.8);
    svg.finish("interval", &format!("ratio {}", words::ratio_between(ratio)))
}

/// The axis below the intervals.
pub(crate) fn interval_axis((low, high): (f64, f64)) -> String {
    let (width, height) = (190.0, 18.0);
    let x = Scale { low, high, from: 8.0, to: width - 8.0 };
    let mut svg = Svg::new(width, height);
    let decades = x.decades();
    // Labels every so many decades, so that they never touch; x1 is always one of them.
    let step = decades.len().div_ceil(3).max(1) as i32;
    for decade in decades.iter().filter(|d| d.log10().round() as i32 % step == 0) {
        let label = format!("x{}", (decade * 1e6).round() / 1e6);
        svg.text("tick", (x.at(*decade), 13.0), Anchor::Middle, &label);
    }
    svg.finish("interval", "axis of the ratios")
}

fn latency_scale(series: &[Series], from: f64, to: f64) -> Scale {
    let least = series
        .iter()
        .filter_map(|s| s.least.or(s.whole.min))
        .min()
        .unwrap_or(Nanos(1_000))
        .0
        .max(1);
    let most = series.iter().filter_map(|s| s.whole.max).max().unwrap_or(Nanos(1_000_000)).0;
    let low = least as f64 / 1.25;
    Scale { low, high: (most as f64 * 1.25).max(low * 10.0), from, to }
}

fn grid_x(svg: &mut Svg, x: &Scale, plot: &Plot, name: &str) {
    for ns in x.between_decades() {
        svg.line("small", (x.at(ns), plot.bottom), (x.at(ns), plot.bottom + 3.0));
    }
    for ns in x.decades() {
        svg.line("grid", (x.at(ns), plot.top), (x.at(ns), plot.bottom + 5.0));
        svg.text("tick", (x.at(ns), plot.bottom + 18.0), Anchor::Middle, &tick(ns));
    }
    svg.text("axis", (plot.right, plot.bottom + 35.0), Anchor::End, name);
}

fn threshold_name(threshold: Nanos) -> String {
    format!("threshold {}", tick(threshold.0 as f64))
}

fn limit(svg: &mut Svg, x: &Scale, plot: &Plot, threshold: Nanos) {
    let value = threshold.0 as f64;
    if (x.low..=x.high).contains(&value) {
        svg.line("limit", (x.at(value), plot.top), (x.at(value), plot.bottom));
        let name = threshold_name(threshold);
        // Where there is no room on its right it stands on its left.
        let wide = 7.0 * name.chars().count() as f64;
        let (at, anchor) = match x.at(value) + 5.0 + wide <= plot.right {
            true => (x.at(value) + 5.0, Anchor::Start),
            false => (x.at(value) - 5.0, Anchor::End),
        };
        svg.text("limit", (at, plot.top + 12.0), anchor, &name);
    }
}

/// Edge of a display bin, in ns.
fn edge(x: &Scale, bin: usize) -> f64 {
    x.low * 10f64.powf(bin as f64 / BINS)
}

/// Share of all readings by display bin. A bucket that reaches into two bins is parted between
/// them in proportion; what is over the scale stands in the last bin.
fn shares(all: &Histogram, x: &Scale) -> Vec<f64> {
    let bins = ((x.high / x.low).log10() * BINS).ceil().max(1.0) as usize;
    let mut shares = vec![0.0; bins];
    let whole = all.count.max(1) as f64;
    let place = |ns: f64| (((ns / x.low).log10() * BINS).floor().max(0.0) as usize).min(bins - 1);
    for &(lower, count) in &all.buckets {
        let upper = layout::bucket(lower).map_or(lower + 1, |at| layout::lower(at + 1)) as f64;
        let lower = (lower as f64).max(x.low).min(upper);
        let (first, last) = (place(lower), place(upper * (1.0 - 1e-12)));
        for (bin, share) in shares.iter_mut().enumerate().take(last + 1).skip(first) {
            let inside = upper.min(edge(x, bin + 1)) - lower.max(edge(x, bin));
            let part = if first == last { 1.0 } else { inside / (upper - lower) };
            *share += part.clamp(0.0, 1.0) * count as f64 / whole;
        }
    }
    shares[bins - 1] += all.over as f64 / whole;
    shares
}

/// The steps of a histogram, closed along the bottom.
fn outline(shares: &[f64], x: &Scale, y: &Scale, bottom: f64) -> Vec<(f64, f64)> {
    let first = shares.iter().position(|s| *s > 0.0).unwrap_or(0);
    let last = shares.iter().rposition(|s| *s > 0.0).unwrap_or(0);
    let mut points = vec![(x.at(edge(x, first)), bottom)];
    for (bin, share) in shares.iter().enumerate().take(last + 1).skip(first) {
        let height = if *share > 0.0 { y.at(*share) } else { bottom };
        points.push((x.at(edge(x, bin)), height));
        points.push((x.at(edge(x, bin + 1)), height));
    }
    points.push((x.at(edge(x, last + 1)), bottom));
    points
}

fn hits_by_bin(svg: &mut Svg, series: &[Series], bins: &[Vec<f64>], x: &Scale, plot: &Plot) {
    for bin in 0..bins.first().map_or(0, Vec::len) {
        let (low, high) = (edge(x, bin), edge(x, bin + 1));
        let said: Vec<String> = series
            .iter()
            .zip(bins)
            .map(|(one, shares)| format!("{} {}", one.name, words::share(shares[bin])))
            .collect();
        let range = format!("{} to {}", Nanos(low as u64), Nanos(high as u64));
        let (left, right) = (x.at(low), x.at(high));
        let size = (right - left, plot.bottom - plot.top);
        svg.hit(&format!("{range}: {}", said.join(", ")), (left, plot.top), size);
    }
}

fn hits_by_percentile(svg: &mut Svg, series: &[Series], x: &Scale, plot: &Plot) {
    let steps = 60;
    let ratio = (x.high / x.low).powf(1.0 / f64::from(steps));
    for step in 0..steps {
        let (low, high) = (x.low * ratio.powi(step), x.low * ratio.powi(step + 1));
        let q = 1.0 - 1.0 / (low * high).sqrt();
        let said: Vec<String> = series
            .iter()
            .filter_map(|one| Some(format!("{} {}", one.name, one.whole.percentile(q)?)))
            .collect();
        let (left, right) = (x.at(low), x.at(high));
        let size = (right - left, plot.bottom - plot.top);
        let said = format!("p{}: {}", words::nines(q), said.join(", "));
        svg.hit(&said, (left, plot.top), size);
    }
}

/// Latency by 1 / (1 - p): one point a bucket, to the largest reading.
fn curve(all: &Histogram, x: &Scale, y: &Scale) -> Vec<(f64, f64)> {
    let (Some(min), Some(max)) = (all.min, all.max) else { return Vec::new() };
    let whole = all.count.max(1) as f64;
    let mut points: Vec<(f64, f64)> = vec![(x.from, y.at(min.0 as f64))];
    let mut seen = 0u64;
    for &(lower, count) in &all.buckets {
        // Before its readings are counted: the value is reached at this rank.
        let point = (x.at(whole / (whole - seen as f64).max(1.0)), y.at(lower as f64));
        seen += count;
        let far = |last: &(f64, f64)| (point.0 - last.0).hypot(point.1 - last.1) > 1.5;
        if points.last().is_none_or(far) {
            points.push(point);
        }
    }
    points.push((x.at(whole), y.at(max.0 as f64)));
    points
}

/// `0 %`, `90 %`, `99.9 %`.
fn percentile_tick(nines: f64) -> String {
    format!("{} %", words::nines(1.0 - 1.0 / nines))
}

/// Where each entry of the legend begins, and how far below the first row.
fn legend_places(series: &[Series], plot: &Plot) -> Vec<(f64, f64)> {
    let (mut x, mut y) = (plot.left, 0.0);
    let named = series.iter().filter(|one| !one.name.is_empty());
    named
        .map(|one| {
            let length = 32.0 + 7.2 * one.name.chars().count() as f64;
            if x > plot.left && x + length > plot.right {
                (x, y) = (plot.left, y + 18.0);
            }
            let place = (x, y);
            x += length + 22.0;
            place
        })
        .collect()
}

fn legend(svg: &mut Svg, series: &[Series], plot: &Plot) {
    let named = series.iter().filter(|one| !one.name.is_empty());
    for (one, (x, y)) in named.zip(legend_places(series, plot)) {
        svg.line(&format!("line {}", one.class), (x, y + 13.0), (x + 26.0, y + 13.0));
        svg.text("legend", (x + 32.0, y + 17.0), Anchor::Start, &one.name);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn display_bins_hold_every_reading() {
        let all = Histogram::of((0..5000u64).map(|n| Nanos(n * n)));
        let series = [Series {
            name: "x".into(),
            class: "a",
            least: None,
            whole: all.clone(),
            runs: vec![],
        }];
        let x = latency_scale(&series, 0.0, 700.0);
        let sum: f64 = shares(&all, &x).iter().sum();
        assert!((sum - 1.0).abs() < 1e-6, "{sum}");
    }

    #[test]
    fn a_percentile_curve_rises_from_the_least_to_the_largest_reading() {
        let all = Histogram::of((1..=10_000u64).map(Nanos));
        let x = Scale { low: 1.0, high: 1e4, from: 0.0, to: 400.0 };
        let y = Scale { low: 1.0, high: 1e4, from: 400.0, to: 0.0 };
        let points = curve(&all, &x, &y);
        assert_eq!((points[0], points[points.len() - 1]), ((0.0, 400.0), (400.0, 0.0)));
        assert!(points.windows(2).all(|w| w[0].0 <= w[1].0 && w[0].1 >= w[1].1));
        // Half of the readings are below 5000: x = 2.
        let at = points.iter().find(|p| p.0 >= x.at(2.0)).unwrap();
        assert!((at.1 - y.at(5000.0)).abs() < 3.0, "{at:?}");
    }

    #[test]
    fn the_tail_begins_at_the_99th_percentile_and_has_the_shares_of_all() {
        let readings = (0..10_000u64).map(|n| if n < 9_990 { 1_000 + n % 7 } else { 1_000_000 });
        let whole = Histogram::of(readings.map(Nanos));
        let begins = whole.percentile(0.99).unwrap();
        assert_eq!(beyond(&whole, 10_000.0).count, 10);
        let one = Series { name: "x".into(), class: "a", least: None, whole, runs: vec![] };
        let drawn = tail(&[one], None, "latency").unwrap();
        assert!(drawn.contains(&format!("from {begins} on")), "{drawn}");
        // Ten of 10,000, and not all of what is drawn.
        assert!(drawn.contains("x 0.056 %") && drawn.contains("x 0.044 %"), "{drawn}");
    }

    #[test]
    fn charts_of_nothing_are_empty_charts() {
        let none = || Series {
            name: "none".into(),
            class: "a",
            least: None,
            whole: Histogram::default(),
            runs: vec![Histogram::default()],
        };
        for chart in [
            histogram(&[none()], Some(Nanos(1)), "latency"),
            percentiles(&[none()], Some(Nanos(1))),
        ] {
            assert!(chart.starts_with("<svg") && !chart.contains("NaN"), "{chart}");
        }
        assert!(!histogram(&[], Some(Nanos(1)), "latency").contains("NaN"));
        assert!(tail(&[none()], None, "latency").is_none() && tail(&[], None, "latency").is_none());
    }
}
