//! An open store, where in it to look, and where the answer goes.

use std::{collections::BTreeSet, path::PathBuf};

use anyhow::Context as _;
use clap::Args;
use spanplane::{
    answers::{
        Answers, Document, FindError, PayloadsError, Pipeline, Reference, Scope, StoredDocument,
        SubjectName,
    },
    archive::{Archive, Compression, Query, StoreIdentity, StoreUrl, Variables},
    line::Line,
    time::{Clock as _, SystemClock, Timestamp},
};

use super::{
    moment::Moment,
    nothing::Nothing,
    screen::{LookArgs, Screen},
    trouble::{tell_trouble, troubled},
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

    #[command(flatten)]
    home: DataDirArgs,
}

/// Where a sidecar on this machine keeps its data.
#[derive(Args, Clone, Debug)]
pub(crate) struct DataDirArgs {
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

/// Where a sidecar on this machine may keep its data.
#[derive(Clone, Debug)]
pub(crate) struct DataDir {
    pub(crate) path: PathBuf,
    /// Only the store was named: this is where a sidecar keeps its data by default, and it may
    /// belong to one that writes to another store.
    pub(crate) is_guessed: bool,
}

impl StoreArgs {
    /// The store, and the data directory that a sidecar with the same settings would use.
    pub(crate) fn resolve(self) -> (StoreUrl, DataDir) {
        let data_dir = DataDir {
            is_guessed: self.store.is_some() && self.home.data_dir.is_none(),
            path: self.home.resolve(),
        };
        let inside = || StoreUrl::folder(&data_dir.path.join("store"));
        (self.store.unwrap_or_else(inside), data_dir)
    }
}

impl DataDirArgs {
    pub(crate) fn resolve(self) -> PathBuf {
        let beside_socket = || self.socket_path.with_file_name("spanplane");
        self.data_dir.unwrap_or_else(beside_socket)
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
    pub(crate) store_identity: StoreIdentity,
    pub(crate) data_dir: DataDir,
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
        let variables = Variables::of_process();
        let archive = Archive::open(&store, &variables, Compression::default())?;
        Ok(Self {
            answers: Answers::new(archive).noting(tell_trouble),
            scope: Scope {
                since: args.since.map(|moment| moment.at(now)),
                until: args.until.map(|moment| moment.at(now)),
                namespace: args.namespace,
            },
            screen: Screen::new(args.look),
            now,
            store_identity: store.identity(&variables),
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
            Ok(line) => {
                if let Reference::Subject(subject) = reference {
                    self.refuse_namesakes(subject, &line).await?;
                }
                Ok(line)
            }
            Err(FindError::Index(error)) => Err(troubled(error)),
            Err(FindError::NoSubject(name)) => Err(Nothing::no_subject(self, &name).await.into()),
            Err(error @ FindError::NoTrace(_)) if !reference.is_like_an_id() => {
                let advice = "KIND/NAME, such as Network/prod-net, for its newest reconcile";
                Err(Nothing::new(error.to_string(), advice).into())
            }
            Err(error @ (FindError::Empty | FindError::NoTrace(_))) => {
                Err(Nothing::new(error.to_string(), Nothing::LIST).into())
            }
            Err(error @ FindError::Ambiguous { .. }) => {
                Err(Nothing::new(error.to_string(), "write more of it").into())
            }
        }
    }

    /// A name that several XRs have means none of them.
    async fn refuse_namesakes(&self, subject: &SubjectName, newest: &Line) -> anyhow::Result<()> {
        let found = self
            .answers
            .namesakes(subject, &self.scope, newest)
            .await
            .map_err(troubled)?;
        if found.len() <= 1 {
            return Ok(());
        }
        let namespaces: BTreeSet<_> = found.iter().map(|(_, namespace)| namespace).collect();
        let told: Vec<_> = found
            .iter()
            .map(|(name, namespace)| match namespace.as_str() {
                "" => format!("{name} without a namespace"),
                namespace => format!("{name} in {namespace}"),
            })
            .collect();
        let what = format!("several are called {subject}: {}", told.join(", "));
        Err(Nothing::new(
            what,
            if namespaces.len() == found.len() {
                "-n NAMESPACE"
            } else {
                "KIND.group/NAME, as they stand here, and -n NAMESPACE"
            },
        )
        .into())
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

    /// The same; nothing where the payloads are not there, and will not be.
    pub(crate) async fn load_if_there(
        session: &Session,
        line: Line,
    ) -> anyhow::Result<Option<Self>> {
        match Self::load(session, line).await {
            Ok(loaded) => Ok(Some(loaded)),
            Err(error) => match error.downcast_ref() {
                Some(PayloadsError::Gone { .. } | PayloadsError::Dropped(_)) => Ok(None),
                _ => Err(error),
            },
        }
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
