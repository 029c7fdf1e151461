//! An open store, where in it to look, and where the answer goes.

use std::{
    collections::BTreeSet,
    error::Error,
    path::PathBuf,
    sync::{Mutex, PoisonError},
};

use anyhow::Context as _;
use clap::Args;
use spanplane::{
    answers::{Answers, Document, FindError, Pipeline, Reference, Scope, StoredDocument},
    archive::{Archive, Compression, IndexError, Query, StoreError, StoreUrl, Variables},
    line::Line,
    time::{Clock as _, SystemClock, Timestamp},
};

use super::{
    moment::Moment,
    nothing::Nothing,
    screen::{LookArgs, Screen, tell},
};

/// What every question takes.
#[derive(Args, Clone, Debug)]
pub(crate) struct AskArgs {
    #[command(flatten)]
    store: StoreArgs,

    /// Only reconciles that began then or later: 2h, 7d, 2026-11-16, 2026-11-16T04:36:46Z
    #[arg(long, value_name = "TIME", value_parser = Moment::parse, help_heading = "Where to look")]
    pub(crate) since: Option<Moment>,

    /// Only reconciles that began before
    #[arg(long, value_name = "TIME", value_parser = Moment::parse, help_heading = "Where to look")]
    until: Option<Moment>,

    /// Only in this namespace; '' for what has none [default: all]
    #[arg(long, short, value_name = "NAME", help_heading = "Where to look")]
    namespace: Option<String>,

    #[command(flatten)]
    look: LookArgs,
}

/// Where the sidecar put everything.
#[derive(Args, Clone, Debug)]
pub(crate) struct StoreArgs {
    /// The store of a sidecar [default: `store` in the data directory]
    #[arg(
        long,
        help = "The store of a sidecar: file:///path, s3://bucket/prefix, gs://… or az://…, with \
                the usual AWS_*, GOOGLE_* and AZURE_* variables [default: `store` in the data \
                directory]",
        env = "SPANPLANE_STORE",
        hide_env_values = true,
        value_name = "URL",
        value_parser = parse_store,
        help_heading = "Where to look"
    )]
    store: Option<StoreUrl>,

    /// The data directory of a sidecar on this machine [default: `spanplane` beside its socket]
    #[arg(
        long,
        env = "SPANPLANE_DATA_DIR",
        value_name = "PATH",
        help_heading = "Where to look"
    )]
    data_dir: Option<PathBuf>,

    #[arg(
        long,
        env = "PIPELINE_INSPECTOR_SOCKET",
        default_value = "/var/run/pipeline-inspector/socket",
        hide = true
    )]
    socket_path: PathBuf,
}

impl StoreArgs {
    /// The store, and the data directory of a sidecar on this machine, if there may be one.
    pub(crate) fn resolve(self) -> (StoreUrl, Option<PathBuf>) {
        let beside_socket = || self.socket_path.with_file_name("spanplane");
        match (self.store, self.data_dir) {
            (Some(store), data_dir) => (store, data_dir),
            (None, data_dir) => {
                let data_dir = data_dir.unwrap_or_else(beside_socket);
                (StoreUrl::folder(&data_dir.join("store")), Some(data_dir))
            }
        }
    }
}

fn parse_store(text: &str) -> Result<StoreUrl, String> {
    StoreUrl::parse(text).map_err(|error| error.to_string())
}

/// Somebody asks.
#[derive(Debug)]
pub(crate) struct Session {
    pub(crate) answers: Answers,
    pub(crate) scope: Scope,
    pub(crate) screen: Screen,
    pub(crate) now: Timestamp,
    pub(crate) store: StoreUrl,
    /// Of a sidecar on this machine, if there may be one.
    pub(crate) data_dir: Option<PathBuf>,
}

impl Session {
    pub(crate) fn open(args: AskArgs) -> anyhow::Result<Self> {
        let now = SystemClock.now();
        let (store, data_dir) = args.store.resolve();
        // NOTE: opening a store makes its folder, which is for who writes to it.
        if let Some(folder) = store.local_folder()
            && !folder.is_dir()
        {
            return Err(Nothing::new(
                format!("there is no store: {} is no folder", folder.display()),
                "name one with --store s3://bucket/prefix or --data-dir PATH",
            )
            .into());
        }
        let archive = Archive::open(&store, &Variables::of_process(), Compression::default())
            .with_context(|| format!("cannot open {store}"))?;
        Ok(Self {
            answers: Answers::new(archive).noting(tell_trouble),
            scope: Scope {
                since: args.since.map(|moment| moment.at(now)),
                until: args.until.map(|moment| moment.at(now)),
                namespace: args.namespace,
            },
            screen: Screen::new(args.look),
            now,
            store,
            data_dir,
        })
    }

    /// A query for what is in scope.
    pub(crate) fn query(&self) -> Query {
        Query {
            since: self.scope.since,
            until: self.scope.until,
            ..Query::default()
        }
    }

    /// The reconcile that is meant, or what to try.
    pub(crate) async fn find(&self, reference: &Reference) -> anyhow::Result<Line> {
        match self.answers.find(reference, &self.scope).await {
            Ok(line) => Ok(line),
            Err(FindError::Index(error)) => Err(troubled(error)),
            Err(FindError::NoSubject(name)) => Err(Nothing::no_subject(self, &name).await.into()),
            Err(error @ (FindError::Empty | FindError::NoTrace(_))) => {
                Err(Nothing::new(error.to_string(), Nothing::LIST).into())
            }
            Err(error @ FindError::Ambiguous { .. }) => {
                Err(Nothing::new(error.to_string(), "write more of it").into())
            }
        }
    }

    /// The reconcile of the same subject behind this one, as far as it can be known.
    pub(crate) async fn next_of(&self, line: &Line) -> Option<Line> {
        let next = self.answers.next_of(line).await;
        next.unwrap_or_else(|error| {
            tell_trouble(&error);
            None
        })
    }

    /// The payloads of a reconcile.
    pub(crate) async fn payloads(&self, line: &Line) -> anyhow::Result<StoredDocument> {
        let stored = self.answers.payloads(line).await;
        stored.with_context(|| format!("cannot show the payloads of {}", line.trace_id))
    }
}

/// A reconcile with its payloads.
#[derive(Debug)]
pub(crate) struct Loaded {
    pub(crate) line: Line,
    stored: StoredDocument,
}

impl Loaded {
    pub(crate) async fn load(session: &Session, line: Line) -> anyhow::Result<Self> {
        let stored = session.payloads(&line).await?;
        Ok(Self { line, stored })
    }

    pub(crate) fn document(&self) -> anyhow::Result<Document<'_>> {
        let key = &self.line.object.key;
        self.stored
            .open()
            .with_context(|| format!("cannot open {key}"))
    }

    pub(crate) fn pipeline<'d>(&self, document: &'d Document<'d>) -> Pipeline<'d> {
        Pipeline::read(&self.line, document)
    }
}

/// Tells that a part of the index can't be read, which is no reason not to read the rest. It is
/// told once, however often it is tried.
pub(crate) fn tell_trouble(error: &IndexError) {
    static TOLD: Mutex<BTreeSet<String>> = Mutex::new(BTreeSet::new());
    let warning = format!("warning: {}", with_causes(error));
    let mut told = TOLD.lock().unwrap_or_else(PoisonError::into_inner);
    if told.insert(warning.clone()) {
        tell(&warning);
    }
}

/// Why nothing at all can be read.
pub(crate) fn troubled(error: IndexError) -> anyhow::Error {
    let advice = store_error_in(&error).map(|error| error.trouble.advice());
    let error = anyhow::Error::new(error);
    match advice {
        Some(advice) => error.context(format!("cannot read the index; {advice}")),
        None => error.context("cannot read the index"),
    }
}

fn with_causes(error: &(dyn Error + 'static)) -> String {
    let causes: Vec<_> = chain(error).map(ToString::to_string).collect();
    causes.join(": ")
}

fn store_error_in<'e>(error: &'e (dyn Error + 'static)) -> Option<&'e StoreError> {
    chain(error).find_map(|error| error.downcast_ref())
}

fn chain<'e>(error: &'e (dyn Error + 'static)) -> impl Iterator<Item = &'e (dyn Error + 'static)> {
    std::iter::successors(Some(error), |error| (*error).source())
}
