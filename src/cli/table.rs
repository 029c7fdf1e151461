//! Rows in columns, as wide as what stands in them. Pure.

use super::row::{Row, Style};

/// Between two columns.
const GAP: usize = 2;

/// A table that grows row by row.
#[derive(Debug)]
pub(crate) struct Table {
    head: Vec<&'static str>,
    rows: Vec<Vec<Cell>>,
    widths: Vec<usize>,
    /// The places of columns that are not shown.
    hidden: Vec<usize>,
}

/// What stands in a column.
pub(crate) type Cell = (Style, String);

impl Table {
    pub(crate) fn new(head: &[&'static str]) -> Self {
        Self {
            head: head.to_vec(),
            rows: Vec::new(),
            widths: head.iter().map(|name| name.len()).collect(),
            hidden: Vec::new(),
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

    /// Hides columns until the rest fits, the first of these first.
    pub(crate) fn fit(&mut self, columns: usize, expendable: &[&str]) {
        for name in expendable {
            let shown = (0..self.widths.len()).filter(|place| !self.hidden.contains(place));
            let widths = shown.filter_map(|place| self.widths.get(place));
            let takes: usize = widths.map(|width| width + GAP).sum();
            if takes <= columns + GAP {
                return;
            }
            let place = self.head.iter().position(|head| head == name);
            self.hidden.extend(place);
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
        let is_shown = |place: &usize| !self.hidden.contains(place);
        let last = cells
            .iter()
            .enumerate()
            .rev()
            .find(|(place, (_, text))| is_shown(place) && !text.is_empty());
        let last = last.map_or(0, |(place, _)| place);
        for (place, ((style, text), width)) in cells.iter().zip(&self.widths).enumerate() {
            if !is_shown(&place) {
                continue;
            }
            row = row.with(*style, text.clone());
            if place < last {
                let gap = GAP + width.saturating_sub(super::row::columns(text));
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
        let fitted = |table: &mut Table, columns| {
            table.fit(columns, &["LONG", "A"]);
            table.head().to_string()
        };
        assert_eq!(fitted(&mut table, 19), "A        LONG  C");
        assert_eq!(fitted(&mut table, 18), "A        C");
        assert_eq!(fitted(&mut table, 1), "C");
    }
}
