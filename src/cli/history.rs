//! `spanplane history`: the changes of an XR over time, or of one of its resources.

use std::process::ExitCode;

use anyhow::bail;
use clap::Args;
use futures_util::StreamExt as _;
use serde::Serialize;
use spanplane::{
    answers::{
        News, Reference, SubjectName, called, compare_resource, find, news, resources_named,
        subject_of,
    },
    archive::Query,
    line::Line,
};

use super::{
    changes::{ChangeLook, ToldChange},
    diff::ToldReconcile,
    ls::{parse_named_subject, short_id, style_of},
    moment::show_ago,
    nothing::Nothing,
    row::{Row, Style},
    screen::tell,
    session::{AskArgs, Loaded, Session},
    table::Table,
    tree::names_of,
    trouble::tell_trouble,
};

/// Of changes, behind the state that they are changes of.
const INDENT: usize = 12;

/// What `history` can be told.
#[derive(Args, Debug)]
pub(crate) struct HistoryArgs {
    /// The XR: Network/prod-net
    #[arg(value_name = "KIND/NAME", value_parser = parse_named_subject)]
    subject: SubjectName,

    /// One of its composed resources, as the pipeline calls it or by its name in the
    /// cluster
    #[arg(value_name = "RESOURCE")]
    resource: Option<String>,

    /// At most so many reconciles that changed something; 0 for all
    #[arg(long, value_name = "COUNT", default_value_t = 50)]
    limit: usize,

    /// Also what changes with every write: managedFields, resourceVersion, generation
    #[arg(long)]
    all: bool,

    /// Whole values, however long
    #[arg(long)]
    full: bool,

    #[command(flatten)]
    ask: AskArgs,
}

pub(crate) async fn run(args: HistoryArgs) -> anyhow::Result<ExitCode> {
    let mut session = Session::open(args.ask)?;
    let mut lines = changed_lines(&session, &args.subject, args.limit).await?;
    // The oldest is only there for the one behind it, unless there is none before it.
    let is_cut = args.limit > 0 && lines.len() > args.limit;
    let first = if is_cut { lines.pop() } else { None };
    let found = match &args.resource {
        Some(resource) => {
            let look = ChangeLook {
                columns: session.screen.columns().filter(|_| !args.full),
                all: args.all,
                bodies: false,
            };
            lines.extend(first);
            show_resource(&mut session, lines, is_cut, resource, look).await?
        }
        None => show_subject(&mut session, &lines, first.as_ref())?,
    };
    session.screen.close()?;
    if let (false, Some(resource)) = (found, &args.resource) {
        let what = format!(
            "{resource} never changed in what is known of {}",
            args.subject
        );
        let advice = format!("spanplane why {} {resource}", args.subject);
        return Err(Nothing::new(what, advice).into());
    }
    Ok(ExitCode::SUCCESS)
}

/// The reconciles that changed something, newest first, and one more than the limit.
async fn changed_lines(
    session: &Session,
    subject: &SubjectName,
    limit: usize,
) -> anyhow::Result<Vec<Line>> {
    let newest = session.find(&Reference::Subject(subject.clone())).await?;
    let query = Query {
        subject: subject_of(&newest),
        changed: Some(true),
        ..session.query()
    };
    let most = if limit == 0 { usize::MAX } else { limit + 1 };
    let mut lines = Box::pin(session.answers.lines(query));
    let mut found: Vec<Line> = Vec::new();
    while found.len() < most
        && let Some(line) = lines.next().await
    {
        match line {
            Ok(line) => found.push(line),
            Err(error) => tell_trouble(&error),
        }
    }
    if found.is_empty() {
        // All that is known of it is the same again and again.
        found.push(newest);
    }
    Ok(found)
}

/// The changes of an XR, newest first; `first` is the one before them.
fn show_subject(
    session: &mut Session,
    lines: &[Line],
    first: Option<&Line>,
) -> anyhow::Result<bool> {
    #[derive(Serialize)]
    struct Told<'t> {
        #[serde(flatten)]
        reconcile: ToldReconcile<'t>,
        news: Vec<String>,
    }

    let before = lines.iter().skip(1).map(Some).chain([first]);
    let mut table = Table::new(&["WHEN", "STATUS", "TRACE", "NEWS"]);
    for (line, before) in lines.iter().zip(before) {
        // One of the same name that was deleted and made again is another.
        let before = before.filter(|before| before.subject.uid == line.subject.uid);
        let told: Vec<_> = news(before, line).iter().map(tell_news).collect();
        if session.screen.format().is_for_people() {
            table.push(vec![
                (Style::Plain, when(session, line)),
                (style_of(line.status), line.status.as_str().to_owned()),
                (Style::Name, short_id(&line.trace_id)),
                (Style::Plain, told.join("; ")),
            ]);
        } else {
            session.screen.one_of_many(&Told {
                reconcile: ToldReconcile::of(line),
                news: told,
            })?;
        }
    }
    if session.screen.format().is_for_people() {
        session.screen.rows(&table.lay_out())?;
    }
    Ok(true)
}

fn when(session: &Session, line: &Line) -> String {
    match session.screen.columns() {
        Some(_) => show_ago(line.started_at, session.now),
        None => line.started_at.rfc3339_millis(),
    }
}

fn tell_news(news: &News<'_>) -> String {
    match news {
        News::First => "the first that is known".to_owned(),
        News::Status { before, after } => format!("{} → {}", before.as_str(), after.as_str()),
        News::Generation { before, after } => format!("generation {before} → {after}"),
        News::Revision { before, after } => format!("composition revision {before} → {after}"),
        News::Steps { before, after } => format!("other steps: {before} → {after}"),
        News::Desired {
            before: (total, ready),
            after,
        } => match (*total == after.0, *ready == after.1) {
            (true, _) => format!("ready {ready} → {} of {total}", after.1),
            (_, true) => format!("desired {total} → {}", after.0),
            _ => format!("desired {total} → {}, ready {ready} → {}", after.0, after.1),
        },
        News::Creates(names, count) => format!("creates {}", names_of(names, *count)),
        News::Updates(names, count) => format!("updates {}", names_of(names, *count)),
        News::Deletes(names, count) => format!("deletes {}", names_of(names, *count)),
        News::Drops(drops, count) => {
            let names: Vec<_> = drops.iter().map(|drop| drop.resource.clone()).collect();
            format!("drops {}", names_of(&names, *count))
        }
        News::Flaps(fields, count) => {
            let names: Vec<_> = fields
                .iter()
                .map(|flap| match (flap.resource.as_str(), flap.field.as_str()) {
                    ("", field) => field.to_owned(),
                    (resource, "") => resource.to_owned(),
                    (resource, field) => format!("{resource} {field}"),
                })
                .collect();
            format!("⇄ flaps: {}", names_of(&names, *count))
        }
        News::Condition {
            name,
            before,
            after,
        } => {
            let say = |status: Option<&'_ str>| status.unwrap_or("not set").to_owned();
            format!("condition {name}: {} → {}", say(*before), say(*after))
        }
        News::Unsummarised => "not fully known: a payload is too large to be summarised".to_owned(),
        News::Payloads => "not told by the index".to_owned(),
    }
}

/// The changes of a resource in desired and observed state, newest first; false if there are none.
async fn show_resource(
    session: &mut Session,
    lines: Vec<Line>,
    is_cut: bool,
    resource: &str,
    look: ChangeLook,
) -> anyhow::Result<bool> {
    let Some(resource) = called_in(session, &lines, resource).await? else {
        return Ok(false);
    };
    let mut found = false;
    let mut after: Option<Loaded> = None;
    // The newest of those behind `after` whose payloads are gone.
    let mut gone = None;
    for line in lines {
        let when = line.started_at;
        let Some(before) = Loaded::load_if_there(session, line).await? else {
            gone = gone.or(Some(when));
            continue;
        };
        if let Some(after) = &after {
            found |= show_change(session, (Some(&before), after), &resource, look)?;
        }
        after = Some(before);
        if let Some(gone) = gone.take() {
            tell_gone(
                session,
                &format!("the payloads of {} are gone", gone.rfc3339_millis()),
            )?;
        }
    }
    match (after, gone) {
        (None, _) => bail!("the payloads of all reconciles that are known are gone"),
        (Some(oldest), Some(_)) => {
            let since = oldest.line.started_at.rfc3339_millis();
            tell_gone(session, &format!("payloads before {since} are gone"))?;
            found = true;
        }
        (Some(oldest), None) if !is_cut => {
            found |= show_change(session, (None, &oldest), &resource, look)?;
        }
        (Some(_), None) => {}
    }
    Ok(found)
}

/// Says what can't be shown: to people in its place, to others beside it.
fn tell_gone(session: &mut Session, what: &str) -> anyhow::Result<()> {
    if session.screen.format().is_for_people() {
        session
            .screen
            .row(&Row::new().with(Style::Faint, what))
            .map_err(Into::into)
    } else {
        tell(&format!("warning: {what}"));
        Ok(())
    }
}

/// What these reconciles call a resource, which people may call by its name in the cluster.
async fn called_in(
    session: &Session,
    lines: &[Line],
    resource: &str,
) -> anyhow::Result<Option<String>> {
    if lines
        .iter()
        .any(|line| resources_named(line).contains(resource))
    {
        return Ok(Some(resource.to_owned()));
    }
    let mut is_any_there = false;
    for line in lines {
        let Some(loaded) = Loaded::load_if_there(session, line.clone()).await? else {
            continue;
        };
        is_any_there = true;
        let document = loaded.document()?;
        let pipeline = loaded.pipeline(&document);
        if let Some(name) = called(&pipeline, resource) {
            return Ok(Some(name.to_owned()));
        }
    }
    // Where no payload is left, whoever shows the changes says so.
    Ok((!is_any_there).then(|| resource.to_owned()))
}

fn show_change(
    session: &mut Session,
    (before, after): (Option<&Loaded>, &Loaded),
    resource: &str,
    look: ChangeLook,
) -> anyhow::Result<bool> {
    #[derive(Serialize)]
    struct Told<'t> {
        #[serde(flatten)]
        reconcile: ToldReconcile<'t>,
        desired: Option<ToldChange<'t>>,
        observed: Option<ToldChange<'t>>,
        flapping: Vec<&'t str>,
    }

    let line = &after.line;
    let flaps = line
        .flapping
        .iter()
        .filter(|flap| flap.resource == resource);
    let flaps: Vec<_> = flaps.map(|flap| flap.field.as_str()).collect();
    let documents = (before.map(Loaded::document).transpose()?, after.document()?);
    let old = before.zip(documents.0.as_ref());
    let old = old.map(|(before, document)| before.pipeline(document));
    let new = after.pipeline(&documents.1);
    // A pipeline that did not end desires nothing that counts: that is no change.
    let desired = match (old.as_ref().map(|old| old.desired()), new.desired()) {
        (Some(None), _) | (_, None) => None,
        (old, Some(new)) => {
            let old = old.flatten().and_then(|old| find(old, resource));
            compare_resource(resource, old, find(new, resource))
        }
    };
    let old = old.as_ref().and_then(|old| old.observed.as_ref());
    let observed = new.observed.as_ref().and_then(|new| {
        let old = old.and_then(|old| find(old, resource));
        compare_resource(resource, old, find(new, resource))
    });
    let parts = [("desired", desired), ("observed", observed)];
    let parts = parts.map(|(name, change)| (name, look.visible(change)));
    if parts.iter().all(|(_, changes)| changes.is_empty()) && flaps.is_empty() {
        return Ok(false);
    }
    if !session.screen.format().is_for_people() {
        let [desired, observed] = parts.each_ref();
        session.screen.one_of_many(&Told {
            reconcile: ToldReconcile::of(line),
            desired: desired.1.first().map(ToldChange::of),
            observed: observed.1.first().map(ToldChange::of),
            flapping: flaps,
        })?;
        return Ok(true);
    }
    let title = Row::new()
        .with(Style::Strong, when(session, line))
        .plain("  ")
        .with(Style::Name, short_id(&line.trace_id))
        .plain("  ")
        .with(style_of(line.status), line.status.as_str());
    session.screen.row(&title)?;
    for (name, changes) in &parts {
        let mut lead = *name;
        for row in look.indented(INDENT).rows(changes) {
            let row = Row::new()
                .with(
                    Style::Faint,
                    format!("  {lead:<width$}", width = INDENT - 2),
                )
                .joined(row);
            session.screen.row(&row)?;
            lead = "";
        }
    }
    for field in flaps {
        let field = if field.is_empty() {
            "as a whole"
        } else {
            field
        };
        let row = Row::new().with(Style::Warning, format!("  ⇄ flaps: {field}"));
        session.screen.row(&row)?;
    }
    Ok(true)
}
