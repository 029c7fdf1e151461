//! `spanplane health`: what is missing or odd in a store, and what waits beside it.

use std::{collections::BTreeMap, process::ExitCode, time::Duration};

use clap::Args;
use futures_util::StreamExt as _;
use serde::Serialize;
use spanplane::{
    answers::{Example, Finding, Health, Oddity},
    archive::{FailureNote, StandingNote, StoreError, SubjectFilter},
    causes::with_causes,
    disk::LocalDisk,
    outbox::Quarantined,
    time::Timestamp,
};

use super::{
    TROUBLE,
    ls::short_id,
    row::{Row, Style},
    screen::Progress,
    session::{AskArgs, Session},
    sidecar::SidecarReport,
    table::Table,
    trouble::tell_trouble,
};

/// Looked at unless told otherwise.
const LATELY: Duration = Duration::from_hours(24);
/// Broken parts of the index that are named.
const NAMED_PARTS: usize = 3;
/// Characters of what the store said.
const MAX_DETAIL: usize = 400;
/// Files in quarantine that are listed.
const LISTED: usize = 20;

/// What `health` can be told.
#[derive(Args, Debug)]
pub(crate) struct HealthArgs {
    #[command(flatten)]
    ask: AskArgs,
}

pub(crate) async fn run(args: HealthArgs) -> anyhow::Result<ExitCode> {
    let mut session = Session::open(args.ask)?;
    let since = session.scope.since.unwrap_or(session.now - LATELY);
    session.scope.since = Some(since);
    let checkup = Checkup::make(&session, since).await?;
    if session.screen.format().is_for_people() {
        let rows = checkup.rows(&session);
        session.screen.rows(&rows)?;
    } else {
        let told = checkup.told(&session);
        session.screen.value(&told)?;
    }
    session.screen.close()?;
    Ok(if checkup.store.is_some() {
        ExitCode::from(TROUBLE)
    } else if checkup.is_well() {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

/// Everything that was looked at.
struct Checkup {
    since: Timestamp,
    reconciles: u64,
    findings: BTreeMap<Oddity, Finding>,
    /// What the store said in place of an answer.
    store: Option<String>,
    /// Parts of the index that can't be read.
    unreadable: u64,
    /// Some of them.
    unreadable_parts: Vec<String>,
    /// What a sidecar on this machine has noted.
    sidecar: Option<SidecarReport>,
}

impl Checkup {
    async fn make(session: &Session, since: Timestamp) -> anyhow::Result<Self> {
        let mut query = session.query();
        query.subject = SubjectFilter {
            namespace: session.scope.namespace.clone(),
            ..SubjectFilter::default()
        };
        let mut lines = Box::pin(session.answers.lines(query));
        let mut health = Health::default();
        let (mut unreadable, mut unreadable_parts, mut store) = (0, Vec::new(), None);
        let mut progress = Progress::new();
        while let Some(line) = lines.next().await {
            match line {
                Ok(line) => {
                    health.look_at(&line);
                    progress.show(health.reconciles, "reconciles");
                }
                Err(error) if error.store_error().is_some() => {
                    store.get_or_insert(with_causes(&error));
                }
                Err(error) => {
                    tell_trouble(&error);
                    unreadable += 1;
                    if unreadable_parts.len() < NAMED_PARTS {
                        unreadable_parts.push(error.to_string());
                    }
                }
            }
        }
        progress.end();
        if let Err(error) = look_for_arrivals(session, &mut health).await {
            store.get_or_insert(with_causes(&error));
        }
        Ok(Self {
            since,
            reconciles: health.reconciles,
            findings: health.findings(),
            store,
            unreadable,
            unreadable_parts,
            sidecar: SidecarReport::of(session)?,
        })
    }

    fn is_well(&self) -> bool {
        self.findings.is_empty()
            && self.reconciles > 0
            && self.store.is_none()
            && self.unreadable == 0
            && self.sidecar.as_ref().is_none_or(SidecarReport::is_well)
    }

    fn rows(&self, session: &Session) -> Vec<Row> {
        let mut table = Table::new(&["", "LOOKED FOR", "FOUND", "WHERE"]);
        let answer = if self.store.is_some() { "no" } else { "yes" };
        table.push(vec![
            mark(self.store.is_some()),
            plain("an answer of the store".to_owned()),
            plain(answer.to_owned()),
            plain(self.store.clone().unwrap_or_default()),
        ]);
        table.push(vec![
            mark(self.reconciles == 0),
            plain("reconciles".to_owned()),
            plain(self.reconciles.to_string()),
            plain(String::new()),
        ]);
        table.push(vec![
            mark(self.unreadable > 0),
            plain("parts of the index that can't be read".to_owned()),
            plain(self.unreadable.to_string()),
            plain(self.unreadable_parts.join(", ")),
        ]);
        for oddity in Oddity::ALL {
            let finding = self.findings.get(&oddity);
            let Finding { count, examples } = finding.cloned().unwrap_or_default();
            let examples: Vec<_> = examples.iter().map(tell_example).collect();
            table.push(vec![
                mark(count > 0),
                plain(oddity.as_str().to_owned()),
                plain(count.to_string()),
                plain(examples.join(", ")),
            ]);
        }
        let since = self.since.rfc3339_millis();
        let looked_at = format!("{} reconciles since {since}", self.reconciles);
        let mut rows = vec![
            Row::new()
                .with(Style::Strong, session.store.to_string())
                .plain(format!(": {looked_at}")),
            Row::new(),
        ];
        rows.extend(table.lay_out());
        if let Some(sidecar) = &self.sidecar {
            rows.extend(sidecar_rows(sidecar, session));
        }
        rows
    }

    fn told(&self, session: &Session) -> Told<'_> {
        let findings = self.findings.iter().map(|(oddity, finding)| ToldFinding {
            what: oddity.as_str(),
            count: finding.count,
            traces: finding
                .examples
                .iter()
                .map(|example| example.trace_id.as_str())
                .collect(),
        });
        let sidecar = self.sidecar.as_ref();
        let waiting = sidecar.iter().flat_map(|sidecar| &sidecar.waiting);
        let waiting = waiting.map(|(what, backlog)| ToldBacklog {
            what,
            files: backlog.files,
            bytes: backlog.bytes,
            oldest: backlog.oldest,
            is_stuck: backlog.is_stuck,
        });
        Told {
            is_well: self.is_well(),
            store: ToldStore {
                url: session.store.to_string(),
                error: self.store.as_deref(),
            },
            since: self.since,
            reconciles: self.reconciles,
            unreadable: self.unreadable,
            unreadable_parts: &self.unreadable_parts,
            findings: findings.collect(),
            waiting: waiting.collect(),
            data_dir: sidecar.map(|sidecar| sidecar.data_dir.display().to_string()),
            writing: sidecar.and_then(|sidecar| sidecar.writing.as_ref()),
            quarantined: sidecar
                .iter()
                .flat_map(|sidecar| sidecar.quarantined.iter().take(LISTED))
                .map(told_file)
                .collect(),
        }
    }
}

fn mark(is_odd: bool) -> (Style, String) {
    let (style, mark) = if is_odd {
        (Style::Bad, "✗")
    } else {
        (Style::Good, "✓")
    };
    (style, mark.to_owned())
}

fn plain(text: String) -> (Style, String) {
    (Style::Plain, text)
}

fn sidecar_rows(sidecar: &SidecarReport, session: &Session) -> Vec<Row> {
    let mut table = Table::new(&["", "WAITING", ""]);
    for (what, backlog) in &sidecar.waiting {
        table.push(vec![
            mark(backlog.is_stuck),
            plain((*what).to_owned()),
            plain(backlog.tell(session.now)),
        ]);
    }
    if let Some(note) = &sidecar.writing {
        table.push(vec![
            mark(note.failure.is_some()),
            plain("writing to the store".to_owned()),
            plain(tell_writing(note)),
        ]);
    }
    if let Some(failure) = sidecar.unjoined() {
        table.push(vec![
            mark(true),
            plain("joining parts of reconciles".to_owned()),
            plain(format!("keeps failing: {}", tell_failure(failure))),
        ]);
    }
    let mut rows = vec![
        Row::new(),
        Row::new()
            .with(Style::Strong, sidecar.data_dir.display().to_string())
            .plain(sidecar.remark(&session.data_dir)),
        Row::new(),
    ];
    rows.extend(table.lay_out());
    if !sidecar.quarantined.is_empty() {
        let mut table = Table::new(&["QUARANTINED", "WHAT", "REASON"]);
        for file in sidecar.quarantined.iter().take(LISTED) {
            let (what, reason) = tell_quarantined(file);
            table.push(vec![plain(file.id.to_string()), plain(what), plain(reason)]);
        }
        rows.push(Row::new());
        rows.extend(table.lay_out());
    }
    rows
}

/// Takes back what was on its way and is in the store by now. Once the store does not answer, the
/// rest is not looked for, and counts as it did.
async fn look_for_arrivals(session: &Session, health: &mut Health) -> Result<(), StoreError> {
    let keys = health.under_way().map(str::to_owned).collect();
    let mut looked_for = Box::pin(session.answers.look_for(keys));
    while let Some((key, found)) = looked_for.next().await {
        if found? {
            health.has_arrived(&key);
        }
    }
    Ok(())
}

/// `784cb8b6 tidy (function-tidy)`
fn tell_example(example: &Example) -> String {
    let mut told = short_id(&example.trace_id);
    if let (Some(step), Some(function)) = (&example.step, &example.function) {
        told = format!("{told} {step} ({function})");
    }
    told
}

/// `refused since …: the store denies access; allow …`
fn tell_writing(note: &StandingNote) -> String {
    let since = note.since.rfc3339_millis();
    match &note.failure {
        None => format!("works since {since}"),
        Some(failure) => {
            let state = if failure.is_refusal {
                "refused"
            } else {
                "fails"
            };
            let told = tell_failure(failure);
            format!("{state} since {since}: {told}")
        }
    }
}

/// `the store refuses the request (… 400 Bad Request …); see what the store says …`
fn tell_failure(failure: &FailureNote) -> String {
    let FailureNote {
        error,
        advice,
        detail,
        ..
    } = failure;
    let mut words: String = detail.chars().take(MAX_DETAIL).collect();
    if words.len() < detail.len() {
        words.push('…');
    }
    if words.is_empty() {
        format!("{error}; {advice}")
    } else {
        format!("{error} ({words}); {advice}")
    }
}

/// `3-t.parcel v1/reconciles/…: the store refuses this object: …`
fn tell_quarantined(file: &Quarantined) -> (String, String) {
    let note = file.note(&LocalDisk);
    let (what, reason) = note.map(|note| (note.what, note.reason)).unzip();
    (
        what.unwrap_or_else(|| file.name.clone()),
        reason.unwrap_or_default(),
    )
}

#[derive(Serialize)]
struct Told<'t> {
    is_well: bool,
    store: ToldStore<'t>,
    since: Timestamp,
    reconciles: u64,
    unreadable: u64,
    unreadable_parts: &'t [String],
    findings: Vec<ToldFinding<'t>>,
    /// Where the rest was found.
    data_dir: Option<String>,
    waiting: Vec<ToldBacklog<'t>>,
    writing: Option<&'t StandingNote>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    quarantined: Vec<ToldQuarantined>,
}

#[derive(Serialize)]
struct ToldQuarantined {
    id: u64,
    what: String,
    reason: String,
}

fn told_file(file: &Quarantined) -> ToldQuarantined {
    let (what, reason) = tell_quarantined(file);
    ToldQuarantined {
        id: file.id,
        what,
        reason,
    }
}

#[derive(Serialize)]
struct ToldStore<'t> {
    url: String,
    error: Option<&'t str>,
}

#[derive(Serialize)]
struct ToldFinding<'t> {
    what: &'static str,
    count: u64,
    traces: Vec<&'t str>,
}

#[derive(Serialize)]
struct ToldBacklog<'t> {
    what: &'t str,
    files: usize,
    bytes: u64,
    oldest: Option<Timestamp>,
    is_stuck: bool,
}
