//! The one way out: everything that is printed passes here.
//!
//! Invariant: rows and documents are written by [`super::row`], which lets nothing through that a
//! terminal would obey; colours and a pager are for terminals only.

use std::{
    env,
    io::{self, BufWriter, IsTerminal as _, Stderr, Stdout, Write},
};

use clap::Args;
use serde::Serialize;
use spanplane::json::{Json, Piece, YamlSink, write_yaml};

use super::{
    pager::Pager,
    row::{Row, Style, showable, write_styled},
};

/// How answers look.
#[derive(Args, Clone, Copy, Debug)]
pub(crate) struct LookArgs {
    /// How answers are written
    #[arg(
        long,
        short,
        value_name = "FORMAT",
        default_value = "table",
        help_heading = "Output"
    )]
    pub(crate) output: Format,

    /// No colours, which there are on terminals only; `NO_COLOR` in the environment does the same
    #[arg(long, help_heading = "Output")]
    no_color: bool,

    /// Not through $PAGER (less -FRX), which is used on terminals only
    #[arg(long, help_heading = "Output")]
    no_pager: bool,
}

/// How answers are written.
#[derive(Clone, Copy, Debug, Eq, PartialEq, clap::ValueEnum)]
pub(crate) enum Format {
    /// For people.
    Table,
    /// For people, with more columns and whole ids.
    Wide,
    Json,
    Yaml,
}

impl Format {
    pub(crate) const fn is_for_people(self) -> bool {
        matches!(self, Self::Table | Self::Wide)
    }
}

/// Where answers go.
#[derive(Debug)]
pub(crate) struct Screen {
    out: Option<Out>,
    format: Format,
    has_colours: bool,
    may_page: bool,
    /// `None` if it is no terminal.
    columns: Option<usize>,
}

#[derive(Debug)]
enum Out {
    Direct(BufWriter<Stdout>),
    Paged(Pager),
}

impl Write for Out {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.write_all(bytes).map(|()| bytes.len())
    }

    fn write_all(&mut self, bytes: &[u8]) -> io::Result<()> {
        match self {
            Self::Direct(out) => out.write_all(bytes),
            Self::Paged(pager) => match pager.write(bytes) {
                Err(error) => {
                    let given = pager.unread()?.ok_or(error)?;
                    let mut out = BufWriter::new(io::stdout());
                    out.write_all(&given)?;
                    out.write_all(bytes)?;
                    *self = Self::Direct(out);
                    Ok(())
                }
                Ok(()) => Ok(()),
            },
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self {
            Self::Direct(out) => out.flush(),
            Self::Paged(_) => Ok(()),
        }
    }
}

impl Screen {
    pub(crate) fn new(look: LookArgs) -> Self {
        let is_terminal = io::stdout().is_terminal();
        let says = |name: &str| env::var_os(name).is_some_and(|value| !value.is_empty());
        let is_dumb = env::var_os("TERM").is_some_and(|term| term == "dumb");
        let size = rustix::termios::tcgetwinsize(io::stdout());
        let columns = size.ok().map(|size| usize::from(size.ws_col));
        Self {
            out: None,
            format: look.output,
            has_colours: is_terminal && !look.no_color && !says("NO_COLOR") && !is_dumb,
            may_page: is_terminal && !look.no_pager && !is_dumb,
            columns: columns.filter(|columns| is_terminal && *columns > 0),
        }
    }

    pub(crate) fn format(&self) -> Format {
        self.format
    }

    /// How wide the terminal is, if it is one.
    pub(crate) fn columns(&self) -> Option<usize> {
        self.columns
    }

    /// What follows comes bit by bit: no pager waits for its end.
    pub(crate) fn be_live(&mut self) {
        self.may_page = false;
    }

    pub(crate) fn row(&mut self, row: &Row) -> io::Result<()> {
        let has_colours = self.has_colours;
        let out = self.out();
        row.write(has_colours, out)?;
        out.write_all(b"\n")
    }

    pub(crate) fn rows<'r>(&mut self, rows: impl IntoIterator<Item = &'r Row>) -> io::Result<()> {
        rows.into_iter().try_for_each(|row| self.row(row))
    }

    /// A line of a text that is printed as it is.
    pub(crate) fn text(&mut self, text: &str) -> io::Result<()> {
        let out = self.out();
        for line in text.split_terminator('\n') {
            write_styled(Style::Plain, line, &['\t'], false, out)?;
            out.write_all(b"\n")?;
        }
        Ok(())
    }

    /// A value for programs, as JSON or YAML.
    pub(crate) fn value(&mut self, value: &impl Serialize) -> anyhow::Result<()> {
        let text = if self.format == Format::Json {
            serde_json::to_string_pretty(value)?
        } else {
            let text = serde_json::to_string(value)?;
            return Ok(self.yaml(&Json::parse(&text)?)?);
        };
        Ok(self.text(&text)?)
    }

    /// One of many values for programs: a line of JSON, or a document of YAML.
    pub(crate) fn one_of_many(&mut self, value: &impl Serialize) -> anyhow::Result<()> {
        let text = serde_json::to_string(value)?;
        if self.format == Format::Json {
            return Ok(self.text(&text)?);
        }
        self.text("---")?;
        Ok(self.yaml(&Json::parse(&text)?)?)
    }

    pub(crate) fn yaml(&mut self, json: &Json<'_>) -> io::Result<()> {
        let has_colours = self.has_colours;
        let mut sink = YamlScreen {
            out: self.out(),
            has_colours,
            outcome: Ok(()),
        };
        write_yaml(json, &mut sink);
        sink.outcome
    }

    pub(crate) fn flush(&mut self) -> io::Result<()> {
        self.out().flush()
    }

    /// Waits until everything is read.
    pub(crate) fn close(&mut self) -> io::Result<()> {
        match &mut self.out {
            None => Ok(()),
            Some(Out::Direct(out)) => out.flush(),
            Some(Out::Paged(pager)) => match pager.unread()? {
                Some(given) => io::stdout().write_all(&given),
                None => Ok(()),
            },
        }
    }

    /// Nothing is started before there is something to show.
    fn out(&mut self) -> &mut Out {
        let may_page = self.may_page;
        self.out.get_or_insert_with(|| {
            let pager = may_page.then(Pager::start).flatten();
            pager.map_or_else(|| Out::Direct(BufWriter::new(io::stdout())), Out::Paged)
        })
    }
}

impl Drop for Screen {
    /// A pager that is left behind would hold the terminal.
    fn drop(&mut self) {
        self.close().ok();
    }
}

/// YAML on a screen; what fails is told at the end.
struct YamlScreen<'s> {
    out: &'s mut Out,
    has_colours: bool,
    outcome: io::Result<()>,
}

impl YamlSink for YamlScreen<'_> {
    fn write(&mut self, piece: Piece, text: &str) {
        if self.outcome.is_err() {
            return;
        }
        let style = match piece {
            Piece::Mark | Piece::Text => Style::Plain,
            Piece::Name => Style::Name,
            Piece::Word => Style::Warning,
        };
        // Line ends are the printer's own; tabs stand in texts of several lines.
        let also: &[char] = match piece {
            Piece::Mark => &['\n'],
            _ => &['\t'],
        };
        self.outcome = write_styled(style, text, also, self.has_colours, self.out);
    }
}

/// Tells on stderr what is wrong, or was not found.
pub(crate) fn tell(text: &str) {
    let mut err: Stderr = io::stderr();
    for line in text.split('\n') {
        // NOTE: there is nobody left to tell that stderr can't be written to.
        writeln!(err, "{}", showable(line)).ok();
    }
}

/// A sign of life on stderr while much is looked at, for people only.
#[derive(Debug)]
pub(crate) struct Progress {
    is_shown: bool,
}

impl Progress {
    /// What is looked at between two signs.
    const STRIDE: u64 = 1000;

    pub(crate) fn new() -> Self {
        Self {
            is_shown: io::stderr().is_terminal(),
        }
    }

    pub(crate) fn show(&mut self, count: u64, what: &str) {
        if self.is_shown && count.is_multiple_of(Self::STRIDE) {
            write!(io::stderr(), "\r{count} {what} …").ok();
        }
    }

    /// Wipes it off.
    pub(crate) fn end(self) {
        if self.is_shown {
            write!(io::stderr(), "\r\x1b[K").ok();
        }
    }
}
