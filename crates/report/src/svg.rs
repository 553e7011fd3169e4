//! Drawings as SVG text: logarithmic scales with decades, lines, marks. Colours are classes, so
//! that the page's style decides them, for light, dark and paper alike.

use std::fmt::Write;

/// A logarithmic scale onto a stretch of the drawing.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Scale {
    /// Value at `from`; above 0.
    pub low: f64,
    /// Value at `to`; above `low`.
    pub high: f64,
    /// Where `low` lies, in px.
    pub from: f64,
    /// Where `high` lies, in px. Smaller than `from` for a scale that rises upwards.
    pub to: f64,
}

impl Scale {
    /// Where `value` lies; values off the scale lie at its ends.
    pub fn at(&self, value: f64) -> f64 {
        let part = (value.max(f64::MIN_POSITIVE) / self.low).ln() / (self.high / self.low).ln();
        self.from + (self.to - self.from) * part.clamp(0.0, 1.0)
    }

    /// The powers of ten on the scale.
    pub fn decades(&self) -> Vec<f64> {
        let first = (self.low.log10() - 1e-9).ceil() as i32;
        let last = (self.high.log10() + 1e-9).floor() as i32;
        (first..=last).map(|power| 10f64.powi(power)).collect()
    }

    /// 2 to 9 times the powers of ten, on the scale: for small ticks.
    pub fn between_decades(&self) -> Vec<f64> {
        let first = self.low.log10().floor() as i32;
        let last = self.high.log10().ceil() as i32;
        let all = (first..=last).flat_map(|p| (2..10).map(move |k| f64::from(k) * 10f64.powi(p)));
        all.filter(|value| (self.low..=self.high).contains(value)).collect()
    }
}

/// Which end of a text stands at its point.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Anchor {
    /// Its beginning.
    Start,
    /// Its middle.
    Middle,
    /// Its end.
    End,
}

/// The shape of a mark: settings differ by shape as well as by colour.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mark {
    /// A circle, hollow by style.
    Circle,
    /// A square standing on its corner, filled by style.
    Diamond,
}

/// A drawing under way.
#[derive(Clone, Debug)]
pub struct Svg {
    width: f64,
    height: f64,
    body: String,
}

impl Svg {
    /// An empty drawing of this size in px.
    pub fn new(width: f64, height: f64) -> Svg {
        Svg { width, height, body: String::new() }
    }

    /// A straight line.
    pub fn line(&mut self, class: &str, from: (f64, f64), to: (f64, f64)) {
        let _ = write!(
            self.body,
            r#"<line class="{class}" x1="{:.1}" y1="{:.1}" x2="{:.1}" y2="{:.1}"/>"#,
            from.0, from.1, to.0, to.1
        );
    }

    /// A line through points.
    pub fn path(&mut self, class: &str, points: &[(f64, f64)]) {
        if points.is_empty() {
            return;
        }
        let mut d = String::new();
        for (at, (x, y)) in points.iter().enumerate() {
            let _ = write!(d, "{}{x:.1} {y:.1}", if at == 0 { "M" } else { "L" });
        }
        let _ = write!(self.body, r#"<path class="{class}" d="{d}"/>"#);
    }

    /// A rectangle.
    pub fn rect(&mut self, class: &str, corner: (f64, f64), size: (f64, f64)) {
        let _ = write!(
            self.body,
            r#"<rect class="{class}" x="{:.1}" y="{:.1}" width="{:.1}" height="{:.1}"/>"#,
            corner.0,
            corner.1,
            size.0.max(0.0),
            size.1.max(0.0)
        );
    }

    /// An invisible rectangle that says `said` when it is pointed at.
    pub fn hit(&mut self, said: &str, corner: (f64, f64), size: (f64, f64)) {
        let _ = write!(
            self.body,
            r#"<rect class="hit" data-say="{}" x="{:.1}" y="{:.1}" width="{:.1}" height="{:.1}"/>"#,
            escape(said),
            corner.0,
            corner.1,
            size.0.max(0.0),
            size.1.max(0.0)
        );
    }

    /// A mark at a point.
    pub fn mark(&mut self, class: &str, mark: Mark, (x, y): (f64, f64), size: f64) {
        let _ = match mark {
            Mark::Circle => write!(
                self.body,
                r#"<circle class="{class}" cx="{x:.1}" cy="{y:.1}" r="{size:.1}"/>"#
            ),
            Mark::Diamond => {
                let r = size * 1.25;
                write!(
                    self.body,
                    r#"<path class="{class}" d="M{x:.1} {:.1}L{:.1} {y:.1}L{x:.1} {:.1}L{:.1} {y:.1}Z"/>"#,
                    y - r,
                    x + r,
                    y + r,
                    x - r
                )
            }
        };
    }

    /// A text at a point of its baseline.
    pub fn text(&mut self, class: &str, (x, y): (f64, f64), anchor: Anchor, text: &str) {
        // What stands above its place and would reach over the edge is moved inwards.
        let half = 4.0 * text.chars().count() as f64;
        let x = match anchor {
            Anchor::Middle if 2.0 * half < self.width => x.clamp(half, self.width - half),
            _ => x,
        };
        let anchor = match anchor {
            Anchor::Start => "start",
            Anchor::Middle => "middle",
            Anchor::End => "end",
        };
        let _ = write!(
            self.body,
            r#"<text class="{class}" x="{x:.1}" y="{y:.1}" text-anchor="{anchor}">{}</text>"#,
            escape(text)
        );
    }

    /// The whole drawing, named for those who do not see it; `class` names its form.
    pub fn finish(self, class: &str, title: &str) -> String {
        let (title, class) = (escape(title), escape(class));
        format!(
            r#"<svg class="{class}" viewBox="0 0 {:.0} {:.0}" width="{:.0}" height="{:.0}" role="img" aria-label="{title}">{}</svg>"#,
            self.width, self.height, self.width, self.height, self.body
        )
    }
}

/// A round time for a tick: `100 ns`, `1 us`, `10 ms`.
pub fn tick(ns: f64) -> String {
    let (value, unit) = match ns {
        ns if ns < 999.5 => (ns, "ns"),
        ns if ns < 999.5e3 => (ns / 1e3, "us"),
        ns if ns < 999.5e6 => (ns / 1e6, "ms"),
        ns => (ns / 1e9, "s"),
    };
    format!("{} {unit}", (value * 1000.0).round() / 1000.0)
}

/// `text` with the five characters replaced that mean something in markup.
pub fn escape(text: &str) -> String {
    let mut safe = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => safe.push_str("&amp;"),
            '<' => safe.push_str("&lt;"),
            '>' => safe.push_str("&gt;"),
            '"' => safe.push_str("&quot;"),
            '\'' => safe.push_str("&#39;"),
            c => safe.push(c),
        }
    }
    safe
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_decade_is_as_long_as_every_other() {
        let scale = Scale { low: 1e3, high: 1e7, from: 0.0, to: 400.0 };
        for (at, value) in scale.decades().iter().enumerate() {
            assert!((scale.at(*value) - 100.0 * at as f64).abs() < 1e-9);
        }
        assert_eq!(scale.decades().len(), 5);
        assert_eq!(scale.between_decades().len(), 4 * 8);
        assert_eq!(scale.at(0.0), 0.0);
        assert_eq!(scale.at(1e12), 400.0);
    }

    #[test]
    fn ticks_are_round_and_carry_their_unit() {
        for (ns, text) in
            [(1.0, "1 ns"), (100.0, "100 ns"), (1e3, "1 us"), (1e6, "1 ms"), (1e10, "10 s")]
        {
            assert_eq!(tick(ns), text);
        }
    }

    #[test]
    fn what_is_said_cannot_leave_its_attribute() {
        let mut svg = Svg::new(10.0, 10.0);
        svg.hit("\"><script>alert('1')</script>", (0.0, 0.0), (1.0, 1.0));
        svg.text("t", (0.0, 0.0), Anchor::Start, "</svg><b>");
        let text = svg.finish("c", "\"<");
        assert!(!text.contains("<script") && !text.contains("<b>"), "{text}");
    }
}
