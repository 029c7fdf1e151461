//! What is printed, line by line: pieces of text, each in a style.
//!
//! Invariant: nothing that stood in a payload, a name or a message can act on a terminal, end a
//! line or turn text around: such a character is shown as `\u001b`, which JSON reads as well.

use std::{
    fmt,
    io::{self, Write},
};

use spanplane::text::is_showable;

/// How a piece of text looks where there are colours.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(crate) enum Style {
    #[default]
    Plain,
    Strong,
    Faint,
    Good,
    Warning,
    Bad,
    Name,
}

impl Style {
    /// As terminals are told.
    const fn code(self) -> &'static str {
        match self {
            Self::Plain => "",
            Self::Strong => "1",
            Self::Faint => "2",
            Self::Good => "32",
            Self::Warning => "33",
            Self::Bad => "31",
            Self::Name => "36",
        }
    }
}

/// A line.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub(crate) struct Row(Vec<(Style, String)>);

impl Row {
    pub(crate) fn new() -> Self {
        Self::default()
    }

    pub(crate) fn plain(self, text: impl Into<String>) -> Self {
        self.with(Style::Plain, text)
    }

    pub(crate) fn with(mut self, style: Style, text: impl Into<String>) -> Self {
        self.0.push((style, text.into()));
        self
    }

    pub(crate) fn joined(mut self, other: Self) -> Self {
        self.0.extend(other.0);
        self
    }

    /// How many columns it takes.
    pub(crate) fn columns(&self) -> usize {
        self.0.iter().map(|(_, text)| columns(text)).sum()
    }

    /// The row, or as much of it as fits, with a mark that it was cut.
    pub(crate) fn cut(self, columns: Option<usize>) -> Self {
        let Some(limit) = columns.filter(|limit| self.columns() > *limit) else {
            return self;
        };
        let mut left = limit.saturating_sub(1);
        let mut cut = Self::new();
        for (style, text) in self.0 {
            let mut kept = String::new();
            for character in text.chars() {
                let takes = width(character);
                if takes > left {
                    return cut.with(style, kept).plain("…");
                }
                left -= takes;
                kept.push(character);
            }
            cut = cut.with(style, kept);
        }
        cut
    }

    /// Writes it without a line end.
    pub(crate) fn write(&self, has_colours: bool, out: &mut impl Write) -> io::Result<()> {
        for (style, text) in &self.0 {
            write_styled(*style, text, &[], has_colours, out)?;
        }
        Ok(())
    }
}

impl fmt::Display for Row {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0
            .iter()
            .try_for_each(|(_, text)| out.write_str(&showable(text)))
    }
}

/// How many columns a text takes once it is showable.
pub(crate) fn columns(text: &str) -> usize {
    text.chars().map(width).sum()
}

fn width(character: char) -> usize {
    if is_showable(character) {
        1
    } else {
        escaped(character).len()
    }
}

/// A text that does nothing but show.
pub(crate) fn showable(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    for character in text.chars() {
        if is_showable(character) {
            shown.push(character);
        } else {
            shown.push_str(&escaped(character));
        }
    }
    shown
}

fn escaped(character: char) -> String {
    format!("\\u{:04x}", u32::from(character))
}

/// Writes a text in a style; of what is not showable only `also` passes as it is.
pub(crate) fn write_styled(
    style: Style,
    text: &str,
    also: &[char],
    has_colours: bool,
    out: &mut impl Write,
) -> io::Result<()> {
    let code = style.code();
    let is_coloured = has_colours && !code.is_empty() && !text.is_empty();
    if is_coloured {
        write!(out, "\x1b[{code}m")?;
    }
    let mut rest = text;
    while let Some(place) = rest.find(|c| !is_showable(c) && !also.contains(&c)) {
        let (shown, odd) = rest.split_at(place);
        out.write_all(shown.as_bytes())?;
        let mut behind = odd.chars();
        if let Some(character) = behind.next() {
            out.write_all(escaped(character).as_bytes())?;
        }
        rest = behind.as_str();
    }
    out.write_all(rest.as_bytes())?;
    if is_coloured {
        out.write_all(b"\x1b[0m")?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(row: &Row, has_colours: bool) -> String {
        let mut out = Vec::new();
        row.write(has_colours, &mut out).unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn what_a_terminal_would_obey_is_shown() {
        let row = Row::new().plain("a\x1b[2Jb\n\u{9b}\u{202e}c\td");
        let shown = "a\\u001b[2Jb\\u000a\\u009b\\u202ec\\u0009d";
        assert_eq!(written(&row, false), shown);
        assert_eq!(row.to_string(), shown);
        assert_eq!(row.columns(), shown.len());
    }

    #[test]
    fn colours_stand_around_what_they_colour() {
        let row = Row::new().plain("a ").with(Style::Bad, "b\x1b").plain("é");
        assert_eq!(written(&row, true), "a \x1b[31mb\\u001b\x1b[0mé");
        assert_eq!(written(&row, false), "a b\\u001bé");
    }

    #[test]
    fn a_row_is_cut_across_its_pieces() {
        let row = Row::new().plain("abc").with(Style::Good, "d\x1bef");
        assert_eq!(row.clone().cut(None), row);
        assert_eq!(row.clone().cut(Some(12)), row);
        assert_eq!(row.clone().cut(Some(11)).to_string(), "abcd\\u001b…");
        assert_eq!(row.cut(Some(3)).to_string(), "ab…");
    }
}
