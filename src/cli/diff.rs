//! `spanplane diff`: how the desired state evolved from step to step, or what differs between two
//! reconciles.

use std::process::ExitCode;

use anyhow::bail;
use clap::Args;
use futures_util::StreamExt as _;
use serde::Serialize;
use spanplane::{
    answers::{Pipeline, Reference, ResourceChange, State, SubjectName, compare, subject_of},
    archive::Query,
    line::Line,
};

use super::{
    changes::{ChangeLook, ToldChange},
    ls::{parse_reference, short_id, style_of},
    nothing::Nothing,
    row::{Row, Style},
    session::{AskArgs, Loaded, Session},
    step::{find_step, label_of, name_of},
    tree::title_of,
    trouble::tell_trouble,
    verdict::Verdict,
};

/// Changed reconciles that are held against the one before, until two differ in what is shown.
const PAIRS: usize = 20;

/// Of changes, under what they are changes of.
const INDENT: usize = 2;

/// What `diff` can be told.
#[derive(Args, Debug)]
pub(crate) struct DiffArgs {
    /// The beginning of a trace id or `last`: its steps; KIND/NAME: its last two reconciles that
    /// differ
    #[arg(value_name = "TRACE", value_parser = parse_reference)]
    reference: Reference,

    /// A step by name or number: what that one did; another reconcile: what differs between them
    #[arg(value_name = "STEP|TRACE")]
    other: Option<String>,

    /// Also what changes with every write: managedFields, resourceVersion, generation
    #[arg(long)]
    all: bool,

    /// Whole values, however long, and all of what was added or removed
    #[arg(long)]
    full: bool,

    #[command(flatten)]
    ask: AskArgs,
}

pub(crate) async fn run(args: DiffArgs) -> anyhow::Result<ExitCode> {
    let mut session = Session::open(args.ask)?;
    let look = ChangeLook {
        columns: session.screen.columns().filter(|_| !args.full),
        all: args.all,
        bodies: args.full,
    };
    let look = look.indented(INDENT);
    let verdict = match (&args.reference, &args.other) {
        (Reference::Subject(subject), None) => {
            let (before, after) = last_two(&session, subject, look).await?;
            show_versus(&mut session, &before, &after, look)?
        }
        (reference, None) => {
            let line = session.find(reference).await?;
            let loaded = Loaded::load(&session, line).await?;
            show_steps(&mut session, &loaded, None, look)?
        }
        (reference, Some(other)) => {
            let line = session.find(reference).await?;
            if let Some(place) = find_step(&line, other) {
                let loaded = Loaded::load(&session, line).await?;
                let look = ChangeLook {
                    bodies: true,
                    ..look
                };
                show_steps(&mut session, &loaded, Some(place), look)?
            } else {
                let after = other_of(&session, &line, other).await?;
                let before = Loaded::load(&session, line).await?;
                let after = Loaded::load(&session, after).await?;
                show_versus(&mut session, &before, &after, look)?
            }
        }
    };
    session.screen.close()?;
    Ok(verdict.code())
}

/// The second reconcile that is meant.
async fn other_of(session: &Session, line: &Line, text: &str) -> anyhow::Result<Line> {
    let reference: Reference = match text.parse() {
        Ok(reference) => reference,
        Err(never) => match never {},
    };
    session.find(&reference).await.map_err(|error| {
        if !error.is::<Nothing>() {
            return error;
        }
        let labels: Vec<_> = line.steps.iter().map(label_of).collect();
        let what = format!(
            "{text} is neither a step of {} nor a reconcile",
            line.trace_id
        );
        Nothing::new(what, labels.join(", ")).into()
    })
}

/// The last two reconciles of a subject that differ in what is shown.
async fn last_two(
    session: &Session,
    subject: &SubjectName,
    look: ChangeLook,
) -> anyhow::Result<(Loaded, Loaded)> {
    let newest = session.find(&Reference::Subject(subject.clone())).await?;
    let query = Query {
        subject: subject_of(&newest),
        changed: Some(true),
        ..session.query()
    };
    let mut lines = Box::pin(session.answers.lines(query));
    let mut after: Option<Loaded> = None;
    let (mut pairs, mut missing) = (0, None);
    while pairs < PAIRS
        && let Some(line) = lines.next().await
    {
        let line = match line {
            Ok(line) => line,
            Err(error) => {
                tell_trouble(&error);
                continue;
            }
        };
        let is_same_subject = |after: &Loaded| after.line.subject.uid == line.subject.uid;
        if !after.as_ref().is_none_or(is_same_subject) {
            continue;
        }
        pairs += 1;
        let gone = line.trace_id.clone();
        let Some(before) = Loaded::load_if_there(session, line).await? else {
            missing = Some(gone);
            continue;
        };
        if let Some(after) = after
            && differ(&before, &after, look)?
        {
            return Ok((before, after));
        }
        after = Some(before);
    }
    if let Some(missing) = missing {
        bail!("no two reconciles of {subject} can be compared: the payloads of {missing} are gone");
    }
    let what = format!("no two reconciles of {subject} are known that differ");
    Err(Nothing::new(what, format!("spanplane diff --all {subject}")).into())
}

/// Whether anything that is shown differs.
fn differ(before: &Loaded, after: &Loaded, look: ChangeLook) -> anyhow::Result<bool> {
    let documents = (before.document()?, after.document()?);
    let before = before.pipeline(&documents.0);
    let after = after.pipeline(&documents.1);
    let parts = Part::all(&before, &after);
    Ok(parts.iter().any(|part| {
        part.changes(look)
            .is_some_and(|changes| !changes.is_empty())
    }))
}

/// A state before and after.
struct Part<'p> {
    name: &'static str,
    before: Option<&'p State<'p>>,
    after: Option<&'p State<'p>>,
}

impl<'p> Part<'p> {
    fn all(before: &'p Pipeline<'p>, after: &'p Pipeline<'p>) -> [Self; 2] {
        [
            Self {
                name: "observed",
                before: before.observed.as_ref(),
                after: after.observed.as_ref(),
            },
            Self {
                name: "desired",
                before: before.desired(),
                after: after.desired(),
            },
        ]
    }

    fn changes(&self, look: ChangeLook) -> Option<Vec<ResourceChange<'p>>> {
        Some(look.visible(compare(self.before?, self.after?)))
    }

    fn rows(&self, look: ChangeLook) -> Vec<Row> {
        let Some(changes) = self.changes(look) else {
            let whose = match (self.before, self.after) {
                (None, None) => "of both",
                (None, _) => "before",
                _ => "after",
            };
            let text =
                format!("  not known {whose}: the pipeline did not end, or payloads are missing");
            return vec![Row::new().with(Style::Faint, text)];
        };
        if changes.is_empty() {
            return vec![Row::new().with(Style::Faint, "  the same")];
        }
        indented(look.rows(&changes))
    }
}

fn show_versus(
    session: &mut Session,
    before: &Loaded,
    after: &Loaded,
    look: ChangeLook,
) -> anyhow::Result<Verdict> {
    #[derive(Serialize)]
    struct Told<'t> {
        before: ToldReconcile<'t>,
        after: ToldReconcile<'t>,
        observed: Option<Vec<ToldChange<'t>>>,
        desired: Option<Vec<ToldChange<'t>>>,
    }

    let documents = (before.document()?, after.document()?);
    let pipelines = (before.pipeline(&documents.0), after.pipeline(&documents.1));
    let parts = Part::all(&pipelines.0, &pipelines.1);
    let changes = parts.each_ref().map(|part| part.changes(look));
    let verdict = Verdict::of(changes.iter().map(Option::as_ref));
    if !session.screen.format().is_for_people() {
        let [observed, desired] = changes.each_ref().map(|changes| {
            let changes = changes.as_ref()?.iter();
            Some(changes.map(ToldChange::of).collect())
        });
        session.screen.value(&Told {
            before: ToldReconcile::of(&before.line),
            after: ToldReconcile::of(&after.line),
            observed,
            desired,
        })?;
        return Ok(verdict);
    }
    session
        .screen
        .row(&reconcile_row("---", Style::Bad, &before.line))?;
    session
        .screen
        .row(&reconcile_row("+++", Style::Good, &after.line))?;
    for part in &parts {
        session
            .screen
            .row(&Row::new().with(Style::Strong, part.name))?;
        session.screen.rows(&part.rows(look))?;
    }
    Ok(verdict)
}

fn reconcile_row(sign: &str, style: Style, line: &Line) -> Row {
    Row::new()
        .with(style, format!("{sign} {}", title_of(line)))
        .plain(format!(
            "  {}  {}  ",
            short_id(&line.trace_id),
            line.started_at.rfc3339_millis()
        ))
        .with(style_of(line.status), line.status.as_str())
}

/// What each step did, or a certain one.
fn show_steps(
    session: &mut Session,
    loaded: &Loaded,
    only: Option<usize>,
    look: ChangeLook,
) -> anyhow::Result<Verdict> {
    #[derive(Serialize)]
    struct Told<'t> {
        #[serde(flatten)]
        reconcile: ToldReconcile<'t>,
        steps: Vec<ToldStep<'t>>,
    }

    #[derive(Serialize)]
    struct ToldStep<'t> {
        index: i32,
        iteration: i32,
        name: &'t str,
        function: &'t str,
        status: &'static str,
        /// `null` if it is not known.
        changes: Option<Vec<ToldChange<'t>>>,
    }

    let document = loaded.document()?;
    let pipeline = loaded.pipeline(&document);
    let steps = loaded.line.steps.iter().enumerate();
    let steps: Vec<_> = steps
        .filter(|(place, _)| only.is_none_or(|only| only == *place))
        .map(|(place, step)| {
            let changes = pipeline.changes(place);
            (step, changes.map(|changes| look.visible(changes)))
        })
        .collect();
    let verdict = Verdict::of(steps.iter().map(|(_, changes)| changes.as_ref()));
    if !session.screen.format().is_for_people() {
        let told = steps.iter().map(|(step, changes)| ToldStep {
            index: step.index,
            iteration: step.iteration,
            name: name_of(step),
            function: &step.function,
            status: step.status.as_str(),
            changes: changes
                .as_ref()
                .map(|changes| changes.iter().map(ToldChange::of).collect()),
        });
        session.screen.value(&Told {
            reconcile: ToldReconcile::of(&loaded.line),
            steps: told.collect(),
        })?;
        return Ok(verdict);
    }
    session
        .screen
        .row(&reconcile_row("===", Style::Plain, &loaded.line))?;
    for (step, changes) in &steps {
        let title = Row::new()
            .with(Style::Strong, label_of(step))
            .with(Style::Faint, format!("  {}", step.function));
        session.screen.row(&title)?;
        let says = |style, text: &str| vec![Row::new().with(style, format!("  {text}"))];
        let rows = match changes {
            None if step.status.is_failure() => says(
                Style::Bad,
                &format!(
                    "{}: nothing that it returned is applied",
                    step.status.as_str()
                ),
            ),
            None => says(Style::Faint, "not known: payloads are missing"),
            Some(changes) if changes.is_empty() => says(Style::Faint, "the same"),
            Some(changes) => indented(look.rows(changes)),
        };
        session.screen.rows(&rows)?;
    }
    Ok(verdict)
}

fn indented(rows: Vec<Row>) -> Vec<Row> {
    let indent = |row| Row::new().plain(" ".repeat(INDENT)).joined(row);
    rows.into_iter().map(indent).collect()
}

/// A reconcile for programs.
#[derive(Debug, Serialize)]
pub(crate) struct ToldReconcile<'t> {
    trace_id: &'t str,
    started_at: spanplane::time::Timestamp,
    status: &'static str,
}

impl<'t> ToldReconcile<'t> {
    pub(crate) fn of(line: &'t Line) -> Self {
        Self {
            trace_id: &line.trace_id,
            started_at: line.started_at,
            status: line.status.as_str(),
        }
    }
}
