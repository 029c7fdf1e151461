//! Which rows of a matrix are shown: a choice, a name, a page. Pure.
//!
//! Invariant: every row can be reached; those that are alike, in a matrix too long to read, are
//! one row with their number, and a way to see each.

use std::collections::HashMap;

use crate::{
    answers::{Cell, Fate, Mark, Matrix, Row},
    viewer::address::Params,
};

/// Shown at once.
const MOST: usize = 200;
/// Cells that are shown at once, where there are many steps.
const MOST_CELLS: usize = 4_000;
/// A matrix of more rows has those that are alike put together.
const READABLE: usize = 60;
/// So many that are alike are worth one row.
const WORTH: usize = 3;

/// Which rows.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Choice {
    All,
    /// Something will become of them.
    Moving,
    Dropped,
    NotReady,
}

impl Choice {
    pub(super) const ALL: [Self; 4] = [Self::All, Self::Moving, Self::Dropped, Self::NotReady];

    fn of(params: &Params) -> Self {
        let asked = params.text("rows");
        let known = Self::ALL.into_iter();
        let mut known = known.filter(|choice| Some(choice.as_str()) == asked);
        known.next().unwrap_or(Self::All)
    }

    /// In addresses.
    pub(super) const fn as_str(self) -> &'static str {
        match self {
            Self::All => "all",
            Self::Moving => "moving",
            Self::Dropped => "dropped",
            Self::NotReady => "unready",
        }
    }

    pub(super) const fn title(self) -> &'static str {
        match self {
            Self::All => "All",
            Self::Moving => "Will change",
            Self::Dropped => "Dropped",
            Self::NotReady => "Not ready",
        }
    }

    fn takes(self, row: &Row<'_>) -> bool {
        match self {
            Self::All => true,
            Self::Moving => !matches!(row.fate, Fate::Keep | Fate::Never | Fate::Unknown),
            Self::Dropped => {
                row.fate == Fate::Delete || row.cells.iter().any(|cell| cell.mark == Mark::Dropped)
            }
            Self::NotReady => row
                .cells
                .last()
                .is_some_and(|last| readiness_in_the_end(row, last) == Some(false)),
        }
    }
}

/// What is made of the last thing said: Crossplane takes a resource that nobody calls ready for one
/// that is not.
pub(super) fn readiness_in_the_end(row: &Row<'_>, last: &Cell) -> Option<bool> {
    let is_there = matches!(last.mark, Mark::Added | Mark::Changed | Mark::Untouched);
    let is_composed = !row.name.is_empty();
    (is_there && is_composed).then(|| last.ready == Some(true))
}

/// One row on the page.
#[derive(Debug)]
pub(super) struct Entry<'m> {
    pub(super) row: &'m Row<'m>,
    /// How many others are like it and stand behind it.
    pub(super) alike: usize,
}

/// The rows of a page.
#[derive(Debug)]
pub(super) struct Selection<'m> {
    pub(super) choice: Choice,
    /// How many each choice has.
    pub(super) counts: [usize; 4],
    pub(super) entries: Vec<Entry<'m>>,
    pub(super) from: usize,
    /// On a page.
    pub(super) most: usize,
    /// On all pages.
    pub(super) total: usize,
}

impl<'m> Selection<'m> {
    pub(super) fn of(matrix: &'m Matrix<'m>, params: &Params) -> Self {
        let choice = Choice::of(params);
        let name = params.text("name");
        let model = params.raw("like");
        let model = model.and_then(|name| matrix.rows.iter().find(|row| row.name == name));
        let model = model.map(likeness);
        let is_named = |row: &&Row<'_>| name.is_none_or(|name| row.name.contains(name));
        let is_like = |row: &&Row<'_>| model.as_ref().is_none_or(|model| *model == likeness(row));
        let chosen: Vec<_> = matrix
            .rows
            .iter()
            .filter(|row| choice.takes(row))
            .filter(is_named)
            .filter(is_like)
            .collect();
        let is_long = chosen.len() > READABLE && model.is_none();
        let entries = if is_long {
            gather(&chosen)
        } else {
            one_by_one(&chosen)
        };
        let total = entries.len();
        let from = params.number("from").unwrap_or(0).min(total);
        let steps = matrix.rows.first().map_or(0, |row| row.cells.len());
        let most = (MOST_CELLS / steps.max(1)).clamp(1, MOST);
        Self {
            choice,
            counts: Choice::ALL
                .map(|choice| matrix.rows.iter().filter(|row| choice.takes(row)).count()),
            entries: entries.into_iter().skip(from).take(most).collect(),
            from,
            most,
            total,
        }
    }
}

fn one_by_one<'m>(rows: &[&'m Row<'m>]) -> Vec<Entry<'m>> {
    rows.iter().map(|row| Entry { row, alike: 0 }).collect()
}

/// Puts rows that are alike behind the first of them.
fn gather<'m>(rows: &[&'m Row<'m>]) -> Vec<Entry<'m>> {
    let mut sizes: HashMap<Likeness<'_>, usize> = HashMap::new();
    for row in rows {
        *sizes.entry(likeness(row)).or_default() += 1;
    }
    let mut entries = Vec::new();
    for row in rows {
        match sizes.get_mut(&likeness(row)) {
            // The others of a group that stands there already.
            Some(0) => {}
            Some(size) if *size >= WORTH => {
                entries.push(Entry {
                    row,
                    alike: *size - 1,
                });
                *size = 0;
            }
            _ => entries.push(Entry { row, alike: 0 }),
        }
    }
    entries
}

type Likeness<'m> = (&'m str, bool, Fate, Vec<(Mark, Option<bool>, usize)>);

/// All that a row shows, but for its name.
fn likeness<'m>(row: &'m Row<'_>) -> Likeness<'m> {
    let cells = row.cells.iter();
    let cells = cells.map(|cell| (cell.mark, cell.ready, cell.fields));
    (row.kind, row.is_observed, row.fate, cells.collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(name: &'static str, mark: Mark, fate: Fate) -> Row<'static> {
        Row {
            name,
            kind: "Bucket",
            is_observed: true,
            cells: vec![Cell {
                mark,
                ready: Some(true),
                is_ready_news: false,
                fields: 0,
            }],
            fate,
        }
    }

    fn names<'m>(selection: &Selection<'m>) -> Vec<(&'m str, usize)> {
        selection
            .entries
            .iter()
            .map(|entry| (entry.row.name, entry.alike))
            .collect()
    }

    #[test]
    fn a_choice_and_a_name_narrow_the_rows() {
        let rows = vec![
            row("a", Mark::Added, Fate::Keep),
            row("b", Mark::Dropped, Fate::Delete),
            row("ab", Mark::Added, Fate::Create),
            // Asked for and dropped, and never there.
            row("c", Mark::Dropped, Fate::Never),
        ];
        let matrix = Matrix { rows };
        let select = |query| names(&Selection::of(&matrix, &Params::parse(Some(query))));
        assert_eq!(select("rows=moving"), [("b", 0), ("ab", 0)]);
        assert_eq!(select("rows=dropped"), [("b", 0), ("c", 0)]);
        assert_eq!(select("name=a"), [("a", 0), ("ab", 0)]);
        assert_eq!(select("rows=nonsense&from=9"), []);
    }

    #[test]
    fn a_long_matrix_has_those_alike_together() {
        let mut rows: Vec<_> = (0..100)
            .map(|_| row("same", Mark::Added, Fate::Keep))
            .collect();
        rows.push(row("odd", Mark::Dropped, Fate::Delete));
        let matrix = Matrix { rows };
        let select = |query| Selection::of(&matrix, &Params::parse(Some(query)));
        assert_eq!(names(&select("")), [("same", 99), ("odd", 0)]);
        let each = select("like=same");
        assert_eq!((each.total, each.entries.len()), (100, 100));
        assert_eq!(select("like=odd").total, 1);
    }
}
