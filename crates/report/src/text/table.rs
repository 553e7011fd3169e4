//! A table whose columns line up.

/// A column: its heading and the side to which its cells lean.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Column {
    /// Words: to the left.
    Left(&'static str),
    /// Numbers: to the right.
    Right(&'static str),
}

impl Column {
    fn title(self) -> &'static str {
        match self {
            Column::Left(title) | Column::Right(title) => title,
        }
    }
}

/// Rows of cells under headings.
#[derive(Clone, Debug)]
pub struct Table {
    columns: Vec<Column>,
    rows: Vec<Vec<String>>,
    yields: &'static [&'static str],
}

/// A last column of words narrower than this is no place to read them.
const READABLE: usize = 24;

impl Table {
    /// An empty table.
    pub fn new(columns: impl Into<Vec<Column>>) -> Table {
        Table { columns: columns.into(), rows: Vec::new(), yields: &[] }
    }

    /// Names the columns that may be left out where there is no room, the least important first.
    pub fn yields(mut self, titles: &'static [&'static str]) -> Table {
        self.yields = titles;
        self
    }

    /// Adds a row; missing cells are empty, cells without a column are left out.
    pub fn row(&mut self, cells: impl Into<Vec<String>>) {
        let mut cells = cells.into();
        cells.resize(self.columns.len(), String::new());
        self.rows.push(cells);
    }

    /// Its headings, each with whether its cells stand at the right, and its rows.
    pub(crate) fn cells(&self) -> (Vec<(&str, bool)>, &[Vec<String>]) {
        let head = self.columns.iter().map(|c| (c.title(), matches!(c, Column::Right(_))));
        (head.collect(), &self.rows)
    }

    /// The table, no wider than `width` characters where that can be: words in the last column are
    /// wrapped, then columns are left out by their rank and named below, and at last each row becomes a
    /// list of its cells.
    pub fn text(&self, width: usize) -> String {
        let mut shown: Vec<usize> = (0..self.columns.len()).collect();
        let mut left_out = Vec::new();
        let mut next = self.yields.iter();
        loop {
            if let Some(mut text) = self.within(&shown, width) {
                if !left_out.is_empty() {
                    let line = format!("(no room for: {})", left_out.join(", "));
                    text.push_str(&format!("{}\n", wrap(&line, width, 2)));
                }
                return text;
            }
            let Some(title) = next.next() else { return self.list(width) };
            let before = shown.len();
            shown.retain(|at| self.columns[*at].title() != *title);
            // Without words in it, nothing was taken away.
            let empty = |at: usize| self.rows.iter().all(|row| row[at].is_empty());
            let at = self.columns.iter().position(|column| column.title() == *title);
            if shown.len() < before && !at.is_some_and(empty) && !title.is_empty() {
                left_out.push(*title);
            }
        }
    }

    /// These columns within `width`; `None` where that cannot be.
    fn within(&self, shown: &[usize], width: usize) -> Option<String> {
        let mut widths: Vec<usize> = shown
            .iter()
            .map(|at| {
                let cells = self.rows.iter().map(|row| row[*at].chars().count());
                cells.chain([self.columns[*at].title().chars().count()]).max().unwrap_or(0)
            })
            .collect();
        let whole = widths.iter().sum::<usize>() + 2 * widths.len().saturating_sub(1);
        let mut indent = None;
        if whole > width {
            let last = *widths.last()?;
            let before = whole - last;
            let wraps = matches!(self.columns[*shown.last()?], Column::Left(_));
            let room = width.checked_sub(before).filter(|room| wraps && *room >= READABLE)?;
            *widths.last_mut()? = room;
            indent = Some(before);
        }
        let line = |cells: &mut dyn Iterator<Item = &str>| {
            let mut line = String::new();
            for (place, cell) in cells.enumerate() {
                if place > 0 {
                    line.push_str("  ");
                }
                let blanks = " ".repeat(widths[place].saturating_sub(cell.chars().count()));
                match self.columns[shown[place]] {
                    Column::Left(_) if place + 1 == shown.len() => {
                        line.push_str(&match indent {
                            Some(indent) => wrapped(cell, widths[place], indent),
                            None => cell.to_owned(),
                        });
                    }
                    Column::Left(_) => line.extend([cell, &blanks]),
                    Column::Right(_) => line.extend([blanks.as_str(), cell]),
                }
            }
            format!("{}\n", line.trim_end())
        };
        let mut text = line(&mut shown.iter().map(|at| self.columns[*at].title()));
        for row in &self.rows {
            text.push_str(&line(&mut shown.iter().map(|at| row[*at].as_str())));
        }
        Some(text)
    }

    fn list(&self, width: usize) -> String {
        let mut text = String::new();
        for row in &self.rows {
            for (at, (column, cell)) in self.columns.iter().zip(row).enumerate() {
                if cell.is_empty() {
                    continue;
                }
                let indent = if at == 0 { "" } else { "  " };
                let title = column.title();
                let space = if title.is_empty() { "" } else { " " };
                let line = format!("{title}{space}{}", cell.trim());
                let room = width.saturating_sub(indent.len());
                let line = wrap(&line, room, 4).replace('\n', &format!("\n{indent}"));
                text.push_str(&format!("{indent}{line}\n"));
            }
        }
        text
    }
}

/// A cell in lines of `width` characters, which all begin at column `indent`.
fn wrapped(cell: &str, width: usize, indent: usize) -> String {
    wrap(cell, width, 0).replace('\n', &format!("\n{}", " ".repeat(indent)))
}

/// Lines longer than this are hard to read, however wide the terminal is.
const LONGEST: usize = 110;

/// `text` in lines of at most `width` characters (and no more than 110), broken at blanks; lines after the
/// first start with `indent` blanks. A longer word stays whole.
pub fn wrap(text: &str, width: usize, indent: usize) -> String {
    let width = width.min(LONGEST);
    let (mut wrapped, mut used) = (String::new(), 0);
    for word in text.split_whitespace() {
        let length = word.chars().count();
        if used > indent && used + 1 + length > width {
            wrapped.push('\n');
            wrapped.push_str(&" ".repeat(indent));
            used = indent;
        } else if used > 0 {
            wrapped.push(' ');
            used += 1;
        }
        wrapped.push_str(word);
        used += length;
    }
    wrapped
}

/// Lines longer than `width` characters broken as [`wrap`] does, set in by two more than they begin; the others as they are.
pub fn fit(text: &str, width: usize) -> String {
    let mut out = String::with_capacity(text.len());
    for line in text.split_inclusive('\n') {
        if line.trim_end().chars().count() <= width {
            out.push_str(line);
            continue;
        }
        let blanks = line.len() - line.trim_start_matches(' ').len();
        let broken = wrap(line, width.saturating_sub(blanks), 2);
        let indent = " ".repeat(blanks);
        for part in broken.lines() {
            out.push_str(&format!("{indent}{part}\n"));
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_line_up_and_a_narrow_terminal_gets_a_list() {
        let mut table =
            Table::new([Column::Right("CPU"), Column::Left("policy"), Column::Right("p99")]);
        table.row(["3".into(), "fifo 90".into(), "506 us".into()]);
        table.row(["12".into(), "other".into(), "9 us".into()]);
        let wide = "CPU  policy      p99\n  3  fifo 90  506 us\n 12  other      9 us\n";
        assert_eq!(table.text(80), wide);
        assert!(table.text(18).starts_with("CPU 3\n  policy fifo 90\n  p99 506 us\nCPU 12\n"));
    }

    #[test]
    fn long_lines_are_broken_and_short_ones_left() {
        let text = "short\n  a line that is too long\n\n   end";
        assert_eq!(fit(text, 14), "short\n  a line that\n    is too\n    long\n\n   end");
        assert_eq!(fit(text, 80), text);
    }

    #[test]
    fn where_there_is_no_room_columns_yield_by_rank_and_are_named() {
        let mut table = Table::new([
            Column::Left("id"),
            Column::Left("kernel"),
            Column::Right("p50"),
            Column::Right("p99"),
        ])
        .yields(&["kernel", "p50"]);
        table.row(["wakeup-3f9a".into(), "6.12-rt".into(), "5 us".into(), "506 us".into()]);
        assert_eq!(table.text(80).lines().count(), 2);
        assert_eq!(
            table.text(31),
            "id            p50     p99\nwakeup-3f9a  5 us  506 us\n(no room for: kernel)\n"
        );
        assert_eq!(
            table.text(23),
            "id              p99\nwakeup-3f9a  506 us\n(no room for: kernel,\n  p50)\n"
        );
        for width in 19..60 {
            let text = table.text(width);
            assert!(text.lines().all(|line| line.chars().count() <= width), "{width}: {text}");
        }
    }

    #[test]
    fn words_at_the_end_of_a_row_are_wrapped_within_their_column() {
        let mut table = Table::new([Column::Right("times"), Column::Left("who took it")]);
        table.row(["12".into(), "IRQ 24 (virtio0-input.0), then the softirq NET_RX".into()]);
        assert_eq!(
            table.text(34),
            "times  who took it\n   12  IRQ 24 (virtio0-input.0),\n       then the softirq NET_RX\n"
        );
    }

    #[test]
    fn lines_break_at_blanks_and_hold_the_width() {
        assert_eq!(wrap("one two three four", 9, 2), "one two\n  three\n  four");
        assert_eq!(wrap("  spaced   out ", 40, 0), "spaced out");
        assert_eq!(wrap("", 10, 2), "");
    }
}
