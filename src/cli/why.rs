//! `spanplane why`: the life of one composed resource through a pipeline, and what becomes of it.

use std::process::ExitCode;

use clap::Args;
use serde::Serialize;
use spanplane::{
    answers::{
        Mark, Matrix, Moment, Pipeline, Reason, Reference, Resource, Sequel, Story, SubjectName,
        TOLD_CONDITIONS, called, tell_asked_last, tell_existence, tell_fate, tell_moment,
        tell_readiness, tell_sequel,
    },
    archive::IndexError,
    json::{Change, Json},
    line::{Line, LineStep},
};

use super::{
    changes::{ChangeLook, ToldField},
    diff::ToldReconcile,
    ls::{parse_named_subject, short_id},
    moment::show_ago,
    nothing::{Nothing, alike},
    row::{Row, Style},
    session::{AskArgs, Loaded, Session},
    step::{label_of, name_of},
    tree::title_of,
    trouble::tell_trouble,
};

/// What `why` can be told.
#[derive(Args, Debug)]
pub(crate) struct WhyArgs {
    /// The XR: Network/prod-net
    #[arg(value_name = "KIND/NAME", value_parser = parse_named_subject)]
    subject: SubjectName,

    /// The composed resource, as the pipeline calls it or by its name in the cluster; the XR itself
    /// by its own name
    #[arg(value_name = "RESOURCE")]
    resource: String,

    /// In this reconcile [default: the newest]
    #[arg(long, value_name = "TRACE")]
    trace: Option<Reference>,

    /// Whole values, however long
    #[arg(long)]
    full: bool,

    #[command(flatten)]
    ask: AskArgs,
}

pub(crate) async fn run(args: WhyArgs) -> anyhow::Result<ExitCode> {
    let mut session = Session::open(args.ask)?;
    let look = ChangeLook {
        columns: session.screen.columns().filter(|_| !args.full),
        all: true,
        bodies: false,
    };
    let subject = Reference::Subject(args.subject.clone());
    let line = session
        .find(args.trace.as_ref().unwrap_or(&subject))
        .await?;
    if args
        .subject
        .name
        .as_ref()
        .is_some_and(|name| *name != line.subject.name)
    {
        let what = format!("{} is a reconcile of {}", line.trace_id, title_of(&line));
        return Err(Nothing::new(what, format!("spanplane ls {}", args.subject)).into());
    }
    let loaded = Loaded::load(&session, line).await?;
    let told = tell(&mut session, &loaded, &args.resource, look).await?;
    if told {
        session.screen.close()?;
        return Ok(ExitCode::SUCCESS);
    }
    let Some(last) = seen_last(&session, &loaded.line, &args.resource).await else {
        return Err(never_heard_of(&loaded, &args.resource)?.into());
    };
    let text = format!(
        "In the reconcile {} no step asks for {}, and it does not exist. This is where it was seen \
         last:",
        short_id(&loaded.line.trace_id),
        args.resource
    );
    if session.screen.format().is_for_people() {
        session
            .screen
            .rows([&Row::new().plain(text), &Row::new()])?;
    }
    let last = Loaded::load(&session, last).await?;
    tell(&mut session, &last, &args.resource, look).await?;
    session.screen.close()?;
    Ok(ExitCode::SUCCESS)
}

/// Tells the story of a resource in a reconcile; false if there is none.
async fn tell(
    session: &mut Session,
    loaded: &Loaded,
    resource: &str,
    look: ChangeLook,
) -> anyhow::Result<bool> {
    let document = loaded.document()?;
    let pipeline = loaded.pipeline(&document);
    let name = called(&pipeline, resource).unwrap_or(resource);
    let story = Story::of(&pipeline, name);
    if story.is_unheard_of() {
        return Ok(false);
    }
    let asked_last = match story.reason {
        Reason::NotAskedFor => {
            let since = session.scope.since;
            known(session.answers.asked_last(&loaded.line, name, since).await)
        }
        _ => None,
    };
    let next = session.next_of(&loaded.line).await;
    // What comes next may be gone from the store, which is no reason not to tell the rest.
    let next_loaded = match next.clone() {
        Some(next) => Loaded::load(session, next).await.ok(),
        None => None,
    };
    let next_document = next_loaded.as_ref().map(Loaded::document).transpose()?;
    let next_pipeline = next_loaded.as_ref().zip(next_document.as_ref());
    let next_pipeline = next_pipeline.map(|(next, document)| next.pipeline(document));
    let telling = Telling {
        line: &loaded.line,
        pipeline: &pipeline,
        sequel: Sequel::of(&pipeline, next_pipeline.as_ref(), name),
        story,
        next: next.as_ref(),
        asked_last: asked_last.as_ref(),
    };
    if session.screen.format().is_for_people() {
        let rows = telling.rows(session, look);
        session.screen.rows(&rows)?;
    } else {
        session.screen.value(&telling.told())?;
    }
    Ok(true)
}

/// The last reconcile before this one that knew a resource, by either of its names.
async fn seen_last(session: &Session, line: &Line, resource: &str) -> Option<Line> {
    let since = session.scope.since;
    let named = session.answers.named_last(line, resource, since).await;
    match known(named) {
        Some(line) => Some(line),
        None => known(session.answers.observed_last(line, resource, since).await),
    }
}

fn known(found: Result<Option<Line>, IndexError>) -> Option<Line> {
    found.inspect_err(tell_trouble).ok().flatten()
}

fn never_heard_of(loaded: &Loaded, resource: &str) -> anyhow::Result<Nothing> {
    let document = loaded.document()?;
    let pipeline = loaded.pipeline(&document);
    let matrix = Matrix::of(&pipeline);
    let title = title_of(&loaded.line);
    let what = format!(
        "no step of {title} asked for {resource} in any reconcile that is known, and it does not \
         exist"
    );
    let known: Vec<_> = matrix.resources().map(|row| row.name).collect();
    let alike = alike(resource, known.iter().copied());
    let names = if alike.is_empty() {
        known
            .iter()
            .take(10)
            .map(|name| (*name).to_owned())
            .collect()
    } else {
        alike
    };
    Ok(Nothing::new(what, names.join(", ")))
}

/// Everything that is told.
struct Telling<'t> {
    line: &'t Line,
    pipeline: &'t Pipeline<'t>,
    story: Story<'t>,
    sequel: Sequel<'t>,
    next: Option<&'t Line>,
    /// Where a step last asked for what none asks for any more.
    asked_last: Option<&'t Line>,
}

#[derive(Serialize)]
struct Told<'t> {
    reconcile: ToldReconcile<'t>,
    resource: &'t str,
    kind: &'t str,
    exists: bool,
    /// What is observed of it.
    #[serde(skip_serializing_if = "Option::is_none")]
    observed: Option<ToldObserved<'t>>,
    steps: Vec<ToldMoment<'t>>,
    outcome: &'static str,
    why: String,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    lacking: Vec<ToldField<'t>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    asked_last: Option<ToldReconcile<'t>>,
    next: Option<ToldReconcile<'t>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    sequel: Option<String>,
}

#[derive(Serialize)]
struct ToldObserved<'t> {
    /// In the cluster.
    name: &'t str,
    is_being_deleted: bool,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    conditions: Vec<&'t Json<'t>>,
}

#[derive(Serialize)]
struct ToldMoment<'t> {
    index: i32,
    name: &'t str,
    function: &'t str,
    deed: &'static str,
    ready: Option<bool>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    fields: Vec<ToldField<'t>>,
}

impl Telling<'_> {
    fn kind(&self) -> &str {
        let story = &self.story;
        let changes = story
            .moments
            .iter()
            .filter_map(|moment| moment.change.as_ref());
        let sides = changes.flat_map(|change| [change.after, change.before]);
        let sides = [story.desired, story.observed].into_iter().chain(sides);
        let mut kinds = sides.flatten().map(Resource::kind);
        kinds.find(|kind| !kind.is_empty()).unwrap_or("?")
    }

    /// Each step with its moment.
    fn moments(&self) -> impl Iterator<Item = (&LineStep, &Moment<'_>)> {
        let moments = self.story.moments.iter();
        moments.filter_map(|moment| Some((self.line.steps.get(moment.place)?, moment)))
    }

    fn asked_last(&self) -> Option<String> {
        tell_asked_last(self.asked_last?, self.story.name)
    }

    /// Nothing, where nothing was predicted.
    fn sequel(&self) -> Option<String> {
        let story = &self.story;
        story
            .is_predicted()
            .then(|| tell_sequel(story.fate, &self.sequel, self.next))
    }

    fn lacking(&self) -> &[Change<'_>] {
        match (&self.sequel, &self.story.reason) {
            (Sequel::StillLacking(fields), _) | (_, Reason::Lacks { fields, .. }) => fields,
            _ => &[],
        }
    }

    fn rows(&self, session: &Session, look: ChangeLook) -> Vec<Row> {
        let line = self.line;
        let when = match session.screen.columns() {
            Some(_) => show_ago(line.started_at, session.now),
            None => line.started_at.rfc3339_millis(),
        };
        let name = match self.story.name {
            "" => &line.subject.name,
            name => name,
        };
        let mut rows = vec![
            Row::new()
                .with(Style::Strong, name)
                .plain(format!(" ({}) of {}", self.kind(), title_of(line)))
                .with(
                    Style::Faint,
                    format!(", in {} ({when})", short_id(&line.trace_id)),
                ),
            Row::new(),
            Row::new().plain(tell_existence(self.pipeline, &self.story)),
        ];
        let width = line.steps.iter().map(|step| label_of(step).chars().count());
        let width = width.max().unwrap_or_default();
        for (step, moment) in self.moments() {
            let style = match moment.cell.mark {
                Mark::Added => Style::Good,
                Mark::Changed => Style::Warning,
                Mark::Dropped => Style::Bad,
                Mark::Absent | Mark::Untouched | Mark::Unknown => Style::Plain,
            };
            let label = format!("  {:<width$}  ", label_of(step));
            rows.push(
                Row::new()
                    .with(Style::Faint, label)
                    .with(style, tell_moment(moment, step)),
            );
            let fields = moment.change.iter().flat_map(|change| &change.fields);
            let fields = fields.flat_map(|field| look.indented(4).field_rows(field));
            rows.extend(fields.map(|row| Row::new().plain(" ".repeat(4)).joined(row)));
        }
        rows.extend(tell_readiness(&self.story).map(|told| Row::new().plain(told)));
        rows.push(Row::new());
        rows.push(Row::new().with(Style::Strong, tell_fate(&self.story, line)));
        if let Reason::Lacks { fields, .. } = &self.story.reason {
            rows.extend(fields.iter().flat_map(|field| look.field_rows(field)));
        }
        rows.extend(self.asked_last().map(|told| Row::new().plain(told)));
        rows.extend(self.sequel().map(|told| Row::new().plain(told)));
        if let Sequel::StillLacking(fields) = &self.sequel {
            rows.extend(fields.iter().flat_map(|field| look.field_rows(field)));
        }
        rows
    }

    fn told(&self) -> Told<'_> {
        let steps = self.moments().map(|(step, moment)| ToldMoment {
            index: step.index,
            name: name_of(step),
            function: &step.function,
            deed: moment.cell.mark.as_str(),
            ready: moment.cell.ready,
            fields: moment
                .change
                .iter()
                .flat_map(|change| change.fields.iter().map(ToldField::of))
                .collect(),
        });
        Told {
            reconcile: ToldReconcile::of(self.line),
            resource: self.story.name,
            kind: self.kind(),
            exists: self.story.observed.is_some(),
            observed: self.story.observed.map(|observed| ToldObserved {
                name: observed.name(),
                is_being_deleted: observed.is_being_deleted(),
                conditions: TOLD_CONDITIONS
                    .iter()
                    .filter_map(|name| observed.condition(name))
                    .collect(),
            }),
            steps: steps.collect(),
            outcome: self.story.fate.as_str(),
            why: tell_fate(&self.story, self.line),
            lacking: self.lacking().iter().map(ToldField::of).collect(),
            asked_last: self.asked_last.map(ToldReconcile::of),
            next: self.next.map(ToldReconcile::of),
            sequel: self.sequel(),
        }
    }
}
