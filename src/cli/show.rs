//! `spanplane show`: a reconcile as a tree, one of its steps, or a payload.

use std::process::ExitCode;

use anyhow::bail;
use clap::{Args, ValueEnum};
use spanplane::{
    answers::{Payload, Reference},
    config::show_bytes,
    json::Json,
    line::{Line, LineStep, PayloadRef},
    record::RecordKind,
};

use super::{
    ls::{parse_reference, style_of},
    moment::{show_ago, show_millis},
    nothing::Nothing,
    row::{Row, Style},
    screen::Format,
    session::{AskArgs, Loaded, Session},
    step::{label_of, require_step},
    tree::{facts_of, outcome_rows, step_rows, title_of},
};

/// What `show` can be told.
#[derive(Args, Debug)]
pub(crate) struct ShowArgs {
    /// The beginning of a trace id, KIND/NAME for its newest reconcile, or `last`
    #[arg(value_name = "TRACE", value_parser = parse_reference)]
    reference: Reference,

    /// A step by name or number; `fetch#1` for its second call
    #[arg(value_name = "STEP")]
    step: Option<String>,

    /// What it was asked, or what it answered
    #[arg(value_name = "PAYLOAD", requires = "step")]
    payload: Option<Side>,

    /// Only a part of the payload: /desired/resources/vpc or desired.resources.vpc
    #[arg(long, value_name = "PATH", requires = "payload")]
    path: Option<String>,

    #[command(flatten)]
    ask: AskArgs,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq, ValueEnum)]
enum Side {
    Request,
    Response,
}

pub(crate) async fn run(args: ShowArgs) -> anyhow::Result<ExitCode> {
    let mut session = Session::open(args.ask)?;
    let line = session.find(&args.reference).await?;
    let Some(step) = &args.step else {
        show_reconcile(&mut session, &line).await?;
        session.screen.close()?;
        return Ok(ExitCode::SUCCESS);
    };
    let place = require_step(&line, step)?;
    match args.payload {
        Some(side) => show_payload(&mut session, line, place, side, args.path.as_deref()).await?,
        None => show_step(&mut session, &line, place)?,
    }
    session.screen.close()?;
    Ok(ExitCode::SUCCESS)
}

async fn show_reconcile(session: &mut Session, line: &Line) -> anyhow::Result<()> {
    if !session.screen.format().is_for_people() {
        return session.screen.value(line);
    }
    let next = session.next_of(line).await;
    session
        .screen
        .rows(&head_rows(session, line, next.as_ref()))?;
    session.screen.row(&Row::new())?;
    session.screen.rows(&step_rows(line))?;
    let mut lead = "  └─ ";
    for row in outcome_rows(line) {
        session
            .screen
            .row(&Row::new().with(Style::Faint, lead).joined(row))?;
        lead = "     ";
    }
    Ok(())
}

fn head_rows(session: &Session, line: &Line, next: Option<&Line>) -> Vec<Row> {
    let subject = &line.subject;
    let title = Row::new()
        .with(Style::Strong, title_of(line))
        .plain("  ")
        .with(style_of(line.status), line.status.as_str());
    let changed = if line.changed { "changed" } else { "the same" };
    let mut rows = vec![title.plain(format!("  {changed}  {}", show_millis(line.duration_ms)))];
    let when = line.started_at.rfc3339_millis();
    let ago = match session.screen.columns() {
        Some(_) => format!(" ({})", show_ago(line.started_at, session.now)),
        None => String::new(),
    };
    let facts = &subject.facts;
    let revision = facts.composition_revision.as_ref();
    let revision = revision.map(|name| format!(", revision {name}"));
    let composition = match subject.composition.as_str() {
        "" => None,
        name => Some(format!("{name}{}", revision.unwrap_or_default())),
    };
    let object = &line.object;
    let told = [
        ("began", Some(format!("{when}{ago}"))),
        (
            "kind",
            Some(format!("{} of {}", subject.kind, subject.api_version)),
        ),
        ("composition", composition),
        (
            "generation",
            facts.generation.map(|generation| generation.to_string()),
        ),
        ("trace", Some(line.trace_id.clone())),
        ("previous", line.previous_trace_id.clone()),
        ("next", next.map(|next| next.trace_id.clone())),
        ("parent", line.parent_trace_id.clone()),
        (
            "object",
            Some(format!(
                "{} ({}, {})",
                object.key,
                object.state.as_str(),
                show_bytes(object.bytes)
            )),
        ),
    ];
    rows.extend(told.into_iter().filter_map(|(name, text)| {
        Some(
            Row::new()
                .with(Style::Faint, format!("  {name:<13}"))
                .plain(text?),
        )
    }));
    rows
}

fn show_step(session: &mut Session, line: &Line, place: usize) -> anyhow::Result<()> {
    let Some(step) = line.steps.get(place) else {
        return Ok(());
    };
    if !session.screen.format().is_for_people() {
        return session.screen.value(step);
    }
    let screen = &mut session.screen;
    let duration = step.duration_ms.map_or_else(|| "-".to_owned(), show_millis);
    let title = Row::new()
        .with(Style::Strong, label_of(step))
        .plain(format!(" of {}  ", title_of(line)))
        .with(style_of(step.status), step.status.as_str());
    screen.row(&title.plain(format!("  {duration}")))?;
    let facts = &step.facts;
    let told = [
        ("function", Some(step.function.clone())),
        ("began", Some(step.started_at.rfc3339_millis())),
        ("input", facts.input_kind.clone()),
        ("ttl", facts.ttl_s.map(|seconds| format!("{seconds} s"))),
        (
            "desired",
            facts
                .desired
                .as_ref()
                .map(|desired| format!("{}, {} ready", desired.total, desired.ready)),
        ),
        ("request", step.request.as_ref().map(about_payload)),
        ("response", step.response.as_ref().map(about_payload)),
    ];
    for (name, text) in told {
        if let Some(text) = text {
            screen.row(
                &Row::new()
                    .with(Style::Faint, format!("  {name:<13}"))
                    .plain(text),
            )?;
        }
    }
    for row in facts_of(line, place, step) {
        screen.row(&Row::new().plain("  ").joined(row))?;
    }
    Ok(())
}

fn about_payload(payload: &PayloadRef) -> String {
    let size = show_bytes(payload.size);
    match payload.redacted {
        0 => size,
        redacted => format!("{size}, {redacted} values redacted"),
    }
}

async fn show_payload(
    session: &mut Session,
    line: Line,
    place: usize,
    side: Side,
    path: Option<&str>,
) -> anyhow::Result<()> {
    let loaded = Loaded::load(session, line).await?;
    let document = loaded.document()?;
    let step = loaded.line.steps.get(place);
    let at = step.and_then(|step| match side {
        Side::Request => step.request.as_ref(),
        Side::Response => step.response.as_ref(),
    });
    let payload = at.map_or(Payload::Missing, |at| document.payload_at(&at.pointer));
    let screen = &mut session.screen;
    match (payload, path) {
        (Payload::Json(text), _) => {
            let whole = Json::parse(text)?;
            let part = match path {
                None => &whole,
                Some(path) => whole.at_path(path).ok_or_else(|| no_part(&whole, path))?,
            };
            if screen.format() == Format::Json {
                screen.value(part)?;
            } else {
                screen.yaml(part)?;
            }
        }
        (Payload::Text(text) | Payload::Base64(text), None) => screen.text(text)?,
        (Payload::Text(_) | Payload::Base64(_), Some(_)) => {
            bail!("this payload is no JSON, so that it has no parts")
        }
        (Payload::Missing, _) => return Err(no_payload(step, side).into()),
    }
    Ok(())
}

fn no_payload(step: Option<&LineStep>, side: Side) -> Nothing {
    let kind = match side {
        Side::Request => RecordKind::Request,
        Side::Response => RecordKind::Response,
    };
    let label = step.map(label_of).unwrap_or_default();
    let error = step.and_then(|step| step.error.as_deref());
    let error = error.map(|error| format!(": {error}")).unwrap_or_default();
    let what = format!("step {label} has no {}{error}", kind.as_str());
    let other = match side {
        Side::Request => "response",
        Side::Response => "request",
    };
    Nothing::new(what, format!("the {other}"))
}

/// Nothing stands there; what does, as far as the way goes.
fn no_part(whole: &Json<'_>, path: &str) -> Nothing {
    let shorter = |path: &str| {
        path.rfind(['.', '/', '['])
            .map(|end| path.split_at(end).0.to_owned())
    };
    let mut parent = shorter(path);
    while let Some(way) = &parent {
        if let Some(found) = whole.at_path(way).filter(|found| found.members().is_some()) {
            return Nothing::new(format!("nothing stands at {path}"), names_in(found));
        }
        parent = shorter(way);
    }
    Nothing::new(format!("nothing stands at {path}"), names_in(whole))
}

fn names_in(json: &Json<'_>) -> String {
    let names = json.members().unwrap_or_default().iter().take(20);
    names
        .map(|(name, _)| name.as_ref())
        .collect::<Vec<_>>()
        .join(", ")
}
