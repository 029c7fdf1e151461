//! `spanplane ls`: reconciles, the newest first; or, followed, as they come.

use std::process::ExitCode;

use clap::{
    Args,
    builder::{PossibleValuesParser, TypedValueParser as _},
};
use futures_util::StreamExt as _;
use spanplane::{
    answers::{Reference, SubjectName},
    archive::Query,
    line::{Line, Status},
    time::Timestamp,
};

use super::{
    follow::follow,
    moment::{show_ago, show_millis},
    nothing::{Known, Nothing, title_of},
    row::Style,
    screen::Format,
    session::{AskArgs, Session},
    table::{Cell, Table},
    trouble::{tell_trouble, troubled},
};

const STATUSES: [Status; 5] = [
    Status::Ok,
    Status::Warning,
    Status::Incomplete,
    Status::Fatal,
    Status::Error,
];

/// Columns that a narrow terminal does without, the first of them first.
const EXPENDABLE: [&str; 5] = ["STEPS", "CHANGED", "DURATION", "NAMESPACE", "FAILING"];

const NO_NAME: &str = "this names no XR; write KIND/NAME, such as Network/prod-net";

/// Of columns whose head is printed before it is known what will stand under it: an XR and its
/// namespace, a status, whether it changed, steps, a duration, a function.
const WIDTHS: [usize; 7] = [24, 12, 10, 7, 5, 8, 20];

/// What `ls` can be told.
#[derive(Args, Debug)]
pub(crate) struct LsArgs {
    /// Only these: Network, network/prod-net, networks.platform.example.org
    #[arg(value_name = "KIND[/NAME]", value_parser = parse_subject)]
    subject: Option<SubjectName>,

    /// Only with one of these outcomes
    #[arg(long, value_name = "STATUS", value_delimiter = ',', value_parser = status_parser())]
    status: Vec<Status>,

    /// Only those that differ from the reconcile before
    #[arg(long)]
    changed: bool,

    /// Only those with a step that calls this function
    #[arg(long, value_name = "NAME")]
    function: Option<String>,

    /// Only those that dropped a resource
    #[arg(long)]
    dropped: bool,

    /// At most so many; 0 for all
    #[arg(long, value_name = "COUNT", default_value_t = 50)]
    limit: usize,

    /// Also those that come from now on, the newest last. A running sidecar stores its index
    /// within a minute, so they come that much later
    #[arg(long, short)]
    follow: bool,

    #[command(flatten)]
    ask: AskArgs,
}

pub(crate) fn parse_subject(text: &str) -> Result<SubjectName, String> {
    if text.is_empty() || text.starts_with('/') {
        return Err("this names no kind; write Network or Network/prod-net".to_owned());
    }
    Ok(SubjectName::parse(text))
}

/// One subject, and not all of a kind.
pub(crate) fn parse_named_subject(text: &str) -> Result<SubjectName, String> {
    let subject = parse_subject(text)?;
    match subject.name {
        Some(_) => Ok(subject),
        None => Err(NO_NAME.to_owned()),
    }
}

/// A reconcile, and not any of a kind.
pub(crate) fn parse_reference(text: &str) -> Result<Reference, String> {
    let Ok(reference) = text.parse::<Reference>();
    match &reference {
        Reference::Subject(subject) if subject.name.is_none() => Err(NO_NAME.to_owned()),
        _ => Ok(reference),
    }
}

fn status_parser() -> impl clap::builder::TypedValueParser<Value = Status> {
    PossibleValuesParser::new(STATUSES.map(Status::as_str)).map(|name| {
        let is_it = |status: &Status| status.as_str() == name;
        STATUSES.into_iter().find(is_it).unwrap_or_default()
    })
}

pub(crate) async fn run(args: LsArgs) -> anyhow::Result<ExitCode> {
    let mut session = Session::open(args.ask.clone())?;
    let query = query_of(&args, &session);
    let mut list = List::new(&session);
    let limit = if args.limit == 0 {
        usize::MAX
    } else {
        args.limit
    };
    if args.follow {
        session.screen.be_live();
        return follow(&mut session, list, query, limit).await;
    }
    let mut lines = Box::pin(session.answers.lines(query));
    let (mut found, mut trouble) = (0, None);
    while found < limit
        && let Some(line) = lines.next().await
    {
        match line {
            Ok(line) => {
                list.add(&mut session, &line)?;
                found += 1;
            }
            // The first is the answer if nothing else is.
            Err(error) if trouble.is_none() => trouble = Some(error),
            Err(error) => tell_trouble(&error),
        }
    }
    if found == 0 {
        return match (trouble, &args.subject) {
            (Some(trouble), _) => Err(troubled(trouble)),
            (None, Some(subject)) if !is_filtered(&args) => {
                Err(Nothing::no_subject(&session, subject).await.into())
            }
            (None, _) => Err(nothing_fits(&args, &session).await.into()),
        };
    }
    trouble.iter().for_each(tell_trouble);
    list.fit(&session);
    if session.screen.format().is_for_people() {
        session.screen.rows(&list.table.lay_out())?;
    }
    session.screen.close()?;
    Ok(ExitCode::SUCCESS)
}

/// Names what was asked for, and what there is.
async fn nothing_fits(args: &LsArgs, session: &Session) -> Nothing {
    let statuses: Vec<_> = args.status.iter().map(|status| status.as_str()).collect();
    let scope = &session.scope;
    let told = [
        args.subject.as_ref().map(ToString::to_string),
        (!statuses.is_empty()).then(|| format!("--status {}", statuses.join(","))),
        args.changed.then(|| "--changed".to_owned()),
        args.function
            .as_ref()
            .map(|name| format!("--function {name}")),
        args.dropped.then(|| "--dropped".to_owned()),
        scope.namespace.as_ref().map(|name| format!("-n {name:?}")),
        scope
            .since
            .map(|at| format!("--since {}", at.rfc3339_shortest())),
        scope
            .until
            .map(|at| format!("--until {}", at.rfc3339_shortest())),
    ];
    let told: Vec<_> = told.into_iter().flatten().collect();
    let what = match told.as_slice() {
        [] => format!("no reconcile is known in {}", session.store),
        _ => format!("no reconcile in {} fits {}", session.store, told.join(" ")),
    };
    let known = Known::look(session).await;
    Nothing::new(what, known.advice(args.function.as_deref()))
}

fn is_filtered(args: &LsArgs) -> bool {
    !args.status.is_empty() || args.changed || args.function.is_some() || args.dropped
}

fn query_of(args: &LsArgs, session: &Session) -> Query {
    let namespace = session.scope.namespace.clone();
    let subject = match &args.subject {
        Some(subject) => subject.filter(namespace),
        None => spanplane::archive::SubjectFilter {
            namespace,
            ..Default::default()
        },
    };
    Query {
        subject,
        statuses: args.status.clone(),
        changed: args.changed.then_some(true),
        dropped: args.dropped,
        function: args.function.clone(),
        ..session.query()
    }
}

/// The table for people; what is for programs goes out at once.
pub(super) struct List {
    pub(super) table: Table,
    is_wide: bool,
    is_terminal: bool,
}

impl List {
    fn new(session: &Session) -> Self {
        let is_wide = session.screen.format() == Format::Wide;
        let head: &[&str] = if is_wide {
            &[
                "WHEN",
                "XR",
                "NAMESPACE",
                "STATUS",
                "CHANGED",
                "STEPS",
                "DURATION",
                "FAILING",
                "COMPOSITION",
                "OUTCOME",
                "TRACE",
            ]
        } else {
            &[
                "WHEN",
                "XR",
                "NAMESPACE",
                "STATUS",
                "CHANGED",
                "STEPS",
                "DURATION",
                "FAILING",
                "TRACE",
            ]
        };
        Self {
            table: Table::new(head),
            is_wide,
            is_terminal: session.screen.columns().is_some(),
        }
    }

    /// Leaves room for what is not known yet.
    pub(super) fn widen(&mut self) {
        let when = if self.shows_ago() {
            "59m59s ago".len()
        } else {
            "2026-11-16T04:36:46.133Z".len()
        };
        self.table.widen([when].iter().chain(&WIDTHS));
    }

    /// Leaves out what does not fit, unless everything is asked for.
    pub(super) fn fit(&mut self, session: &Session) {
        if let (Some(columns), false) = (session.screen.columns(), self.is_wide) {
            self.table.fit(columns, &EXPENDABLE);
        }
    }

    /// On a terminal people are told how long ago it was.
    fn shows_ago(&self) -> bool {
        self.is_terminal && !self.is_wide
    }

    pub(super) fn add(&mut self, session: &mut Session, line: &Line) -> anyhow::Result<()> {
        if session.screen.format().is_for_people() {
            self.table.push(self.cells(session.now, line));
            return Ok(());
        }
        session.screen.one_of_many(line)
    }

    fn cells(&self, now: Timestamp, line: &Line) -> Vec<Cell> {
        let plain = |text: String| (Style::Plain, text);
        let or_none = |text: &str| plain(if text.is_empty() { "-" } else { text }.to_owned());
        let when = if self.shows_ago() {
            show_ago(line.started_at, now)
        } else {
            line.started_at.rfc3339_millis()
        };
        let failing = line.steps.iter().find(|step| step.status.is_failure());
        let mut cells = vec![
            plain(when),
            (Style::Strong, title_of(line)),
            or_none(&line.subject.namespace),
            (style_of(line.status), line.status.as_str().to_owned()),
            plain(if line.changed { "yes" } else { "-" }.to_owned()),
            plain(line.steps.len().to_string()),
            plain(show_millis(line.duration_ms)),
            or_none(failing.map_or("", |step| &step.function)),
        ];
        if self.is_wide {
            cells.push(or_none(&line.subject.composition));
            cells.push(or_none(&outcome_of(line)));
            cells.push((Style::Name, line.trace_id.clone()));
        } else {
            cells.push((Style::Name, short_id(&line.trace_id)));
        }
        cells
    }
}

/// `+2 ~1 -1`: to be created, updated and deleted; `?` if that is not known.
fn outcome_of(line: &Line) -> String {
    if line.is_outcome_unknown() {
        return "?".to_owned();
    }
    let resources = &line.resources;
    let counts = [
        ('+', resources.create_count),
        ('~', resources.update_count),
        ('-', resources.delete_count),
    ];
    let told = counts.iter().filter(|(_, count)| *count > 0);
    let told: Vec<_> = told.map(|(sign, count)| format!("{sign}{count}")).collect();
    told.join(" ")
}

pub(crate) const fn style_of(status: Status) -> Style {
    match status {
        Status::Ok => Style::Good,
        Status::Warning => Style::Warning,
        Status::Incomplete | Status::Fatal | Status::Error => Style::Bad,
    }
}

/// Enough of an id to tell it from others, as a rule.
pub(crate) fn short_id(id: &str) -> String {
    id.chars().take(8).collect()
}
