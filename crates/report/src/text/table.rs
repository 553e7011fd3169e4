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
}

impl Table {
    /// An empty table.
    pub fn new(columns: impl Into<Vec<Column>>) -> Table {
        Table { columns: columns.into(), rows: Vec::new() }
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

    /// The table; where it is wider than `width` characters, each row as a list of its cells.
    pub fn text(&self, width: usize) -> String {
        let widths: Vec<usize> = self
            .columns
            .iter()
            .enumerate()
            .map(|(at, column)| {
                let cells = self.rows.iter().map(|row| row[at].chars().count());
                cells.chain([column.title().chars().count()]).max().unwrap_or(0)
            })
            .collect();
        let whole = widths.iter().sum::<usize>() + 2 * widths.len().saturating_sub(1);
        if whole > width {
            return self.list();
        }
        let line = |cells: &mut dyn Iterator<Item = &str>| {
            let mut line = String::new();
            for (at, cell) in cells.enumerate() {
                if at > 0 {
                    line.push_str("  ");
                }
                let blanks = " ".repeat(widths[at] - cell.chars().count());
                match self.columns[at] {
                    Column::Left(_) => line.extend([cell, &blanks]),
                    Column::Right(_) => line.extend([blanks.as_str(), cell]),
                }
            }
            format!("{}\n", line.trim_end())
        };
        let mut text = line(&mut self.columns.iter().map(|column| column.title()));
        for row in &self.rows {
            text.push_str(&line(&mut row.iter().map(String::as_str)));
        }
        text
    }

    fn list(&self) -> String {
        let mut text = String::new();
        for row in &self.rows {
            for (at, (column, cell)) in self.columns.iter().zip(row).enumerate() {
                if cell.is_empty() {
                    continue;
                }
                let indent = if at == 0 { "" } else { "  " };
                let title = column.title();
                let space = if title.is_empty() { "" } else { " " };
                text.push_str(&format!("{indent}{title}{space}{}\n", cell.trim()));
            }
        }
        text
    }
}

/// `text` in lines of at most `width` characters, broken at blanks; lines after the first start
/// with `indent` blanks. A longer word stays whole.
pub fn wrap(text: &str, width: usize, indent: usize) -> String {
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
        assert!(table.text(12).starts_with("CPU 3\n  policy fifo 90\n  p99 506 us\nCPU 12\n"));
    }

    #[test]
    fn lines_break_at_blanks_and_hold_the_width() {
        assert_eq!(wrap("one two three four", 9, 2), "one two\n  three\n  four");
        assert_eq!(wrap("  spaced   out ", 40, 0), "spaced out");
        assert_eq!(wrap("", 10, 2), "");
    }
}
