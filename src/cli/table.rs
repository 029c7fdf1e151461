//! Rows in columns, as wide as what stands in them. Pure.

use super::row::{Row, Style};

/// A table that grows row by row.
#[derive(Debug)]
pub(crate) struct Table {
    head: Vec<&'static str>,
    rows: Vec<Vec<Cell>>,
    widths: Vec<usize>,
}

/// What stands in a column.
pub(crate) type Cell = (Style, String);

impl Table {
    pub(crate) fn new(head: &[&'static str]) -> Self {
        Self {
            head: head.to_vec(),
            rows: Vec::new(),
            widths: head.iter().map(|name| name.len()).collect(),
        }
    }

    pub(crate) fn push(&mut self, cells: Vec<Cell>) {
        for (width, (_, text)) in self.widths.iter_mut().zip(&cells) {
            *width = (*width).max(super::row::columns(text));
        }
        self.rows.push(cells);
    }

    /// Makes the first columns at least so wide.
    pub(crate) fn widen<'w>(&mut self, widths: impl Iterator<Item = &'w usize>) {
        for (width, least) in self.widths.iter_mut().zip(widths) {
            *width = (*width).max(*least);
        }
    }

    pub(crate) fn head(&self) -> Row {
        let head = self.head.iter();
        let head: Vec<_> = head
            .map(|name| (Style::Faint, (*name).to_owned()))
            .collect();
        self.lay_out_cells(&head)
    }

    /// The head and all rows.
    pub(crate) fn lay_out(&self) -> Vec<Row> {
        let mut rows = vec![self.head()];
        rows.extend(self.rows.iter().map(|cells| self.lay_out_cells(cells)));
        rows
    }

    /// The rows alone, and none of them any more.
    pub(crate) fn take_rows(&mut self) -> Vec<Row> {
        let rows = std::mem::take(&mut self.rows);
        rows.iter().map(|cells| self.lay_out_cells(cells)).collect()
    }

    fn lay_out_cells(&self, cells: &[Cell]) -> Row {
        let mut row = Row::new();
        let last = cells.iter().rposition(|(_, text)| !text.is_empty());
        let last = last.unwrap_or_default();
        for (place, ((style, text), width)) in cells.iter().zip(&self.widths).enumerate() {
            row = row.with(*style, text.clone());
            if place < last {
                let gap = 2 + width.saturating_sub(super::row::columns(text));
                row = row.plain(" ".repeat(gap));
            }
        }
        row
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_as_wide_as_what_stands_in_them() {
        let cell = |text: &str| (Style::Plain, text.to_owned());
        let mut table = Table::new(&["A", "LONG", "C"]);
        table.push(vec![cell("é\x1b"), cell("x"), cell("last")]);
        let rows: Vec<_> = table.lay_out().iter().map(Row::to_string).collect();
        assert_eq!(rows, ["A        LONG  C", "é\\u001b  x     last"]);
    }
}
