//! What is asked.
//!
//! A question is a line in [`QUESTIONS`], asked of the library, or in [`commands`], asked of the
//! program.

use std::env;

use anyhow::{Context as _, ensure};
use futures_util::{StreamExt as _, TryStreamExt as _, future::BoxFuture};
use spanplane::{
    answers::{Answers, Matrix, Payload, Pipeline, Reference, Scope, compare},
    archive::{Archive, Query, SubjectFilter},
    json::{Json, write_yaml},
    line::{Line, Status},
};

use crate::{
    Program,
    reconciles::{LARGE, MINUTES, Reconcile, XRS},
};

/// Tells the process what it is.
pub(crate) const ASK: &str = "ask-question";
/// Lines of a page.
const PAGE: usize = 50;

pub(crate) const NEWEST: Reconcile = Reconcile {
    xr: XRS - 1,
    minute: MINUTES - 1,
};
const OLDEST: Reconcile = Reconcile { xr: 0, minute: 0 };
pub(crate) const USUAL: Reconcile = Reconcile {
    xr: 321,
    minute: MINUTES / 2,
};

pub(crate) struct Question {
    pub(crate) name: &'static str,
    /// Says what was found.
    pub(crate) ask: fn(Archive) -> BoxFuture<'static, anyhow::Result<String>>,
}

macro_rules! questions {
    ($($name:literal: |$answers:ident| $ask:expr,)+) => {
        &[$(Question {
            name: $name,
            ask: |archive| Box::pin(async move {
                let $answers = Answers::new(archive);
                $ask.await
            }),
        }),+]
    };
}

#[rustfmt::skip]
pub(crate) const QUESTIONS: &[Question] = questions! {
    "ls": |answers| page(&answers, Query::default()),
    "ls, changed": |answers| page(&answers, Query { changed: Some(true), ..Query::default() }),
    "ls, failed": |answers| page(&answers, Query { statuses: vec![Status::Error], ..Query::default() }),
    "ls, dropped": |answers| page(&answers, Query { dropped: true, ..Query::default() }),
    "ls, one function": |answers| page(&answers, function("function-lab")),
    "ls, no such function": |answers| page(&answers, function("function-none")),
    "ls, one XR": |answers| page(&answers, of_xr(USUAL)),
    "ls, a kind": |answers| page(&answers, of_kind("network")),
    "find by id, newest": |answers| find(&answers, NEWEST.trace_id()),
    "find by id, in the middle": |answers| find(&answers, USUAL.trace_id()),
    "find by id, oldest": |answers| find(&answers, OLDEST.trace_id()),
    "find by 8 digits, newest": |answers| find(&answers, digits(NEWEST)),
    "find by 8 digits, oldest": |answers| find(&answers, digits(OLDEST)),
    "find by 8 digits, none": |answers| find_none(&answers, "0123abcd"),
    "find an XR's newest": |answers| find(&answers, format!("network/{}", USUAL.name())),
    "the reconcile before": |answers| before(&answers),
    "the reconcile after": |answers| after(&answers),
    "matrix": |answers| matrix(&answers, USUAL),
    "matrix, 4 MB payload": |answers| matrix(&answers, LARGE),
    "payload as YAML": |answers| yaml(&answers, USUAL),
    "payload as YAML, 4 MB": |answers| yaml(&answers, LARGE),
    "two reconciles compared": |answers| compare_changes(&answers, USUAL),
    "two reconciles compared, 4 MB": |answers| compare_changes(&answers, LARGE),
};

/// What the program is told, without `--store`.
fn commands() -> Vec<(&'static str, Vec<String>)> {
    let words = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect();
    let (usual, large) = (USUAL.trace_id(), LARGE.trace_id());
    let xr = format!("network/{}", USUAL.name());
    vec![
        ("spanplane ls", words(&["ls"])),
        ("spanplane ls --changed", words(&["ls", "--changed"])),
        ("spanplane ls XR", words(&["ls", &xr])),
        ("spanplane show ID", words(&["show", &usual])),
        ("spanplane show XR", words(&["show", &xr])),
        ("spanplane show ID, 4 MB payload", words(&["show", &large])),
        (
            "spanplane show ID STEP request",
            words(&["show", &usual, "3", "request"]),
        ),
        (
            "spanplane show ID STEP request, 4 MB",
            words(&["show", &large, "3", "request"]),
        ),
        ("spanplane why XR RESOURCE", words(&["why", &xr, "vpc"])),
        ("spanplane history XR", words(&["history", &xr])),
    ]
}

/// Everything that is asked, by its name.
pub(crate) fn all(store: &str) -> anyhow::Result<Vec<(String, Program)>> {
    let own = env::current_exe()?;
    let own = own.to_str().context("this program has an odd name")?;
    let questions = QUESTIONS.iter().map(|question| {
        let program = Program {
            path: own.to_owned(),
            arguments: vec![ASK.to_owned(), question.name.to_owned()],
        };
        (question.name.to_owned(), program)
    });
    let commands = commands().into_iter().map(|(name, mut arguments)| {
        arguments.push(format!("--store={store}"));
        let program = Program {
            path: env!("CARGO_BIN_EXE_spanplane").to_owned(),
            arguments,
        };
        (name.to_owned(), program)
    });
    Ok(questions.chain(commands).collect())
}

fn function(name: &str) -> Query {
    Query {
        function: Some(name.to_owned()),
        ..Query::default()
    }
}

fn of_kind(kind: &str) -> Query {
    let subject = SubjectFilter {
        kind: Some(kind.to_owned()),
        ..SubjectFilter::default()
    };
    Query {
        subject,
        ..Query::default()
    }
}

fn of_xr(reconcile: Reconcile) -> Query {
    let mut query = of_kind("network");
    query.subject.name = Some(reconcile.name());
    query
}

fn digits(reconcile: Reconcile) -> String {
    reconcile.trace_id().chars().take(8).collect()
}

async fn page(answers: &Answers, query: Query) -> anyhow::Result<String> {
    let lines: Vec<_> = answers.lines(query).take(PAGE).try_collect().await?;
    Ok(format!("{} lines", lines.len()))
}

async fn line_of(answers: &Answers, called: &str) -> anyhow::Result<Line> {
    let reference: Reference = called.parse()?;
    Ok(answers.find(&reference, &Scope::default()).await?)
}

async fn find(answers: &Answers, called: String) -> anyhow::Result<String> {
    Ok(line_of(answers, &called).await?.trace_id)
}

async fn find_none(answers: &Answers, called: &str) -> anyhow::Result<String> {
    let found = line_of(answers, called).await;
    ensure!(found.is_err(), "there is one");
    Ok("none".to_owned())
}

async fn before(answers: &Answers) -> anyhow::Result<String> {
    let line = line_of(answers, &USUAL.trace_id()).await?;
    let before = answers.previous_of(&line).await?;
    Ok(before.context("there is none")?.trace_id)
}

async fn after(answers: &Answers) -> anyhow::Result<String> {
    let line = line_of(answers, &USUAL.trace_id()).await?;
    let after = answers.next_of(&line).await?;
    Ok(after.context("there is none")?.trace_id)
}

async fn matrix(answers: &Answers, reconcile: Reconcile) -> anyhow::Result<String> {
    let line = line_of(answers, &reconcile.trace_id()).await?;
    let stored = answers.payloads(&line).await?;
    let document = stored.open()?;
    let pipeline = Pipeline::read(&line, &document);
    Ok(format!("{} rows", Matrix::of(&pipeline).rows.len()))
}

async fn yaml(answers: &Answers, reconcile: Reconcile) -> anyhow::Result<String> {
    let line = line_of(answers, &reconcile.trace_id()).await?;
    let stored = answers.payloads(&line).await?;
    let document = stored.open()?;
    let Payload::Json(payload) = document.payload_at("/steps/3/request") else {
        anyhow::bail!("there is no such payload");
    };
    let mut yaml = String::new();
    write_yaml(&Json::parse(payload)?, &mut yaml);
    Ok(format!("{} bytes of {}", yaml.len(), payload.len()))
}

/// What this change of an XR and the one before it were given and made of it.
async fn compare_changes(answers: &Answers, reconcile: Reconcile) -> anyhow::Result<String> {
    let newer = reconcile.changed_in();
    let older = newer.previous().context("this is the first")?;
    let [newer, older] = [
        line_of(answers, &newer.trace_id()).await?,
        line_of(answers, &older.changed_in().trace_id()).await?,
    ];
    let stored = [
        answers.payloads(&older).await?,
        answers.payloads(&newer).await?,
    ];
    let documents = [stored[0].open()?, stored[1].open()?];
    let older = Pipeline::read(&older, &documents[0]);
    let newer = Pipeline::read(&newer, &documents[1]);
    let observed = older.observed.as_ref().zip(newer.observed.as_ref());
    let desired = older.desired().zip(newer.desired());
    let changes = [observed, desired]
        .map(|states| states.map_or(0, |(older, newer)| compare(older, newer).len()));
    Ok(format!(
        "{} and {} resources differ",
        changes[0], changes[1]
    ))
}
