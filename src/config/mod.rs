//! Settings: flags and variables as typed → settings as validated.
//!
//! Invariant: every mistake is found, and all of them are reported, before anything is bound or
//! opened. The reference sidecar's flags and variables mean what they mean there.

mod disk;
mod message_size;
mod telemetry;
mod units;
mod viewer;

use std::{net::SocketAddr, path::PathBuf, time::Duration};

use clap::{Args, ValueEnum, builder::BoolishValueParser};

use self::{
    disk::{Asked, DiskLimits, StorePlace, volume_bytes},
    message_size::MessageLimits,
};
pub use self::{
    telemetry::Telemetry,
    units::{parse_bytes, parse_duration, parse_socket_mode, show_bytes},
    viewer::{ViewerArgs, ViewerSettings, check_public_url},
};
use crate::{
    archive::{Compression, Retention, StoreUrl, Variables},
    backoff::Backoff,
    memory::memory_limit,
    print::PrintFormat,
    redact::Redactor,
};

const RECEIVING: &str = "Receiving";
const SPOOL: &str = "Spool";
const STORE: &str = "Store";
const REDACTION: &str = "Redaction";
const OBSERVING: &str = "Logs and metrics";

/// What `serve` can be told.
#[derive(Args, Clone, Debug)]
pub struct ServeArgs {
    /// Unix socket to listen on
    #[arg(
        long,
        visible_alias = "socket",
        env = "PIPELINE_INSPECTOR_SOCKET",
        default_value = "/var/run/pipeline-inspector/socket",
        value_name = "PATH",
        help_heading = RECEIVING
    )]
    pub socket_path: PathBuf,

    /// Mode of the socket, at most 0660
    #[arg(
        long,
        env = "SPANPLANE_SOCKET_MODE",
        default_value = "0660",
        value_name = "MODE",
        value_parser = parse_socket_mode,
        help_heading = RECEIVING
    )]
    pub socket_mode: u32,

    /// Maximum message size. More than 32MiB needs a memory limit of four times as much
    #[arg(
        long,
        env = "MAX_RECV_MSG_SIZE",
        default_value = "32MiB",
        value_name = "SIZE",
        value_parser = parse_bytes,
        help_heading = RECEIVING
    )]
    pub max_recv_msg_size: u64,

    /// Longest time to finish what is under way when told to stop
    #[arg(
        long,
        env = "SHUTDOWN_TIMEOUT",
        default_value = "5s",
        value_name = "DURATION",
        value_parser = parse_duration,
        help_heading = RECEIVING
    )]
    pub shutdown_timeout: Duration,

    /// Also print every message to stdout, as Crossplane's reference sidecar does
    #[arg(long, env = "SPANPLANE_FORMAT", value_name = "FORMAT", help_heading = RECEIVING)]
    pub format: Option<PrintFormat>,

    /// Folder for the spool and, without --store, for the store [default: `spanplane` beside the
    /// socket, which is on a volume that can be written to]
    #[arg(long, env = "SPANPLANE_DATA_DIR", value_name = "PATH", help_heading = SPOOL)]
    pub data_dir: Option<PathBuf>,

    /// Maximum disk use of everything on the data directory's volume: the spool and, if it is
    /// there, the store [default: 1920MiB, or 1097MiB without a store there; at most 80 % of the
    /// volume]
    #[arg(
        long,
        env = "SPANPLANE_DATA_MAX_BYTES",
        value_name = "SIZE",
        value_parser = parse_bytes,
        help_heading = SPOOL
    )]
    pub data_max_bytes: Option<u64>,

    /// Maximum spool size, with what waits for the store and the collector; messages are refused
    /// once it is full [default: 8/15 of --data-max-bytes, 14/15 without a store beside it]
    #[arg(
        long,
        env = "SPANPLANE_SPOOL_MAX_BYTES",
        value_name = "SIZE",
        value_parser = parse_bytes,
        help_heading = SPOOL
    )]
    pub spool_max_bytes: Option<u64>,

    /// Longest time that a message may be lost to a power failure; 0 syncs before every answer
    #[arg(
        long,
        env = "SPANPLANE_SPOOL_SYNC",
        default_value = "1s",
        value_name = "DURATION",
        value_parser = parse_duration,
        help_heading = SPOOL
    )]
    pub spool_sync: Duration,

    /// Where payloads go [default: `store` in the data directory]
    #[arg(
        long,
        env = "SPANPLANE_STORE",
        value_name = "URL",
        help_heading = STORE,
        help = "Where payloads go: file:///path, s3://bucket/prefix, gs://…, az://… or memory:///, \
                with the usual AWS_*, GOOGLE_* and AZURE_* variables [default: `store` in the data \
                directory]"
    )]
    pub store: Option<String>,

    /// How objects are compressed
    #[arg(
        long,
        env = "SPANPLANE_COMPRESSION",
        default_value = "zstd",
        value_name = "CODEC",
        help_heading = STORE
    )]
    pub compression: Compression,

    /// How long a store on local disk keeps objects; 0 keeps them for ever
    #[arg(
        long,
        env = "SPANPLANE_RETENTION",
        default_value = "7d",
        value_name = "DURATION",
        value_parser = parse_duration,
        help_heading = STORE
    )]
    pub retention: Duration,

    /// Maximum size of a store on local disk; 0 for no limit [default: 6/15 of --data-max-bytes;
    /// on another volume 2GiB, at most 80 % of it]
    #[arg(
        long,
        env = "SPANPLANE_RETENTION_BYTES",
        value_name = "SIZE",
        value_parser = parse_bytes,
        help_heading = STORE
    )]
    pub retention_bytes: Option<u64>,

    #[command(flatten)]
    pub viewer: ViewerArgs,

    /// Redact strings whose key names a secret, such as masterPassword, apiKey or token, but not
    /// references; =false to keep them [default: true]
    #[arg(
        long,
        env = "SPANPLANE_REDACT_SECRET_KEYS",
        num_args = 0..=1,
        require_equals = true,
        default_value = "true",
        default_missing_value = "true",
        hide_possible_values = true,
        hide_default_value = true,
        value_name = "BOOL",
        value_parser = BoolishValueParser::new(),
        help_heading = REDACTION
    )]
    pub redact_secret_keys: bool,

    /// JSON pointer of a value to redact, such as /input/pin; * stands for any key. Can be
    /// repeated; in the environment variable, one per line
    #[arg(
        long,
        env = "SPANPLANE_REDACT",
        value_name = "POINTER",
        value_delimiter = '\n',
        help_heading = REDACTION
    )]
    pub redact: Vec<String>,

    /// Regular expression for more keys whose values are redacted, such as '(?i)pin$', but not
    /// references. Can be repeated; in the environment variable, one per line
    #[arg(
        long,
        env = "SPANPLANE_REDACT_KEY",
        value_name = "REGEX",
        value_delimiter = '\n',
        help_heading = REDACTION
    )]
    pub redact_key: Vec<String>,

    /// Where /metrics, /healthz and /readyz are served, or `none`
    #[arg(
        long,
        env = "SPANPLANE_METRICS_ADDRESS",
        default_value = "0.0.0.0:9464",
        value_name = "ADDRESS",
        help_heading = OBSERVING
    )]
    pub metrics_address: String,

    /// How logs are written to stderr
    #[arg(
        long,
        env = "SPANPLANE_LOG_FORMAT",
        default_value = "auto",
        value_name = "FORMAT",
        help_heading = OBSERVING
    )]
    pub log_format: LogFormat,

    /// Log more
    #[arg(
        long,
        short,
        num_args = 0..=1,
        require_equals = true,
        default_value_t = false,
        default_missing_value = "true",
        hide_possible_values = true,
        hide_default_value = true,
        value_name = "BOOL",
        help_heading = OBSERVING
    )]
    pub debug: bool,
}

/// How logs are written.
#[derive(Clone, Copy, Debug, Eq, PartialEq, ValueEnum)]
pub enum LogFormat {
    /// Text on a terminal, JSON otherwise.
    Auto,
    Text,
    Json,
}

/// What `serve` does.
#[derive(Clone, Debug)]
pub struct Settings {
    pub socket_path: PathBuf,
    pub socket_mode: u32,
    pub max_message_bytes: usize,
    /// Of messages that are being received, in memory at the same time.
    pub receive_memory_bytes: usize,
    /// For what is made of messages, while so many are being received.
    pub processing_memory_bytes: usize,
    /// That of the container, if there is one.
    pub memory_limit: Option<u64>,
    pub shutdown_timeout: Duration,
    pub print: Option<PrintFormat>,
    pub data_dir: PathBuf,
    pub spool_max_bytes: u64,
    pub spool_sync: Duration,
    pub store: StoreUrl,
    pub store_variables: Variables,
    /// Between two calls to a store or a collector that fail.
    pub backoff: Backoff,
    pub compression: Compression,
    pub retention: Retention,
    pub redactor: Redactor,
    pub metrics_address: Option<SocketAddr>,
    pub viewer: Option<ViewerSettings>,
    pub viewer_url: String,
    pub telemetry: Telemetry,
    /// What may not work as intended.
    pub warnings: Vec<String>,
}

impl Settings {
    /// What tells the store from every other: the same bucket's name at another endpoint is
    /// another bucket.
    pub fn store_identity(&self) -> String {
        let endpoint = self.store_variables.endpoint().unwrap_or_default();
        format!("{} {endpoint}", self.store)
    }
}

impl ServeArgs {
    /// The settings, or everything that is wrong with them.
    pub fn validate(self) -> Result<Settings, Vec<String>> {
        let mut mistakes = Vec::new();
        let mut mistake = |flag: &str, what: &dyn std::fmt::Display| {
            mistakes.push(format!("{flag}: {what}"));
        };
        let beside_socket = || self.socket_path.with_file_name("spanplane");
        let data_dir = self.data_dir.clone().unwrap_or_else(beside_socket);
        let store = match &self.store {
            None => Some(StoreUrl::folder(&data_dir.join("store"))),
            Some(url) => StoreUrl::parse(url)
                .map_err(|error| mistake("--store", &error))
                .ok(),
        };
        let store_variables = Variables::of_process();
        if let Some(store) = &store
            && let Err(wrong) = store.check(&store_variables)
        {
            mistakes.extend(wrong);
        }
        let mut mistake = |flag: &str, what: &dyn std::fmt::Display| {
            mistakes.push(format!("{flag}: {what}"));
        };
        let redactor = Redactor::new(&self.redact, &self.redact_key)
            .map(|redactor| redactor.with_secret_keys(self.redact_secret_keys))
            .ok();
        if let Err(error) = Redactor::new(&self.redact, &[]) {
            mistake("--redact", &error);
        }
        if let Err(error) = Redactor::new(&[], &self.redact_key) {
            mistake("--redact-key", &with_source(&error));
        }
        let metrics_address = match self.metrics_address.as_str() {
            "none" => None,
            address => address
                .parse()
                .map_err(|_| {
                    let what = format!("{address:?} is no address; write 0.0.0.0:9464 or none");
                    mistake("--metrics-address", &what);
                })
                .ok(),
        };
        if let Err(problem) = check_public_url(&self.viewer.viewer_url) {
            mistake("--viewer-url", &problem);
        }
        if self.socket_path.file_name().is_none() {
            mistake("--socket-path", &"this names no file");
        }
        let asked = Asked {
            data: self.data_max_bytes,
            spool: self.spool_max_bytes,
            retention: self.retention_bytes,
        };
        let store_folder = store.as_ref().and_then(StoreUrl::local_folder);
        let store_place = StorePlace::of(store_folder, &data_dir);
        let disk = DiskLimits::share(asked, store_place, volume_bytes(&data_dir))
            .map_err(|(flag, problem)| mistake(flag, &problem))
            .ok();
        let memory_limit = memory_limit();
        let message = MessageLimits::check(self.max_recv_msg_size, memory_limit)
            .map_err(|problem| mistake("--max-recv-msg-size", &problem))
            .ok();
        let (address, token) = (&self.viewer.viewer_address, &self.viewer.viewer_token);
        let flags = ["--viewer-address", "--viewer-token"];
        let viewer = ViewerSettings::parse(address, token.as_deref(), flags);
        let viewer = viewer.map_err(|wrong| mistakes.extend(wrong)).ok();
        if let (Some(store), Some(redactor), Some(viewer), Some(disk), Some(message), []) =
            (store, redactor, viewer, disk, message, mistakes.as_slice())
        {
            return Ok(Settings {
                retention: Retention {
                    age: Some(self.retention).filter(|age| !age.is_zero()),
                    bytes: disk.retention,
                },
                socket_path: self.socket_path,
                socket_mode: self.socket_mode,
                max_message_bytes: message.max_bytes,
                receive_memory_bytes: message.in_memory_bytes,
                processing_memory_bytes: message.for_processing_bytes,
                memory_limit,
                shutdown_timeout: self.shutdown_timeout,
                print: self.format,
                data_dir,
                spool_max_bytes: disk.spool,
                spool_sync: self.spool_sync,
                store,
                store_variables,
                backoff: Backoff::default(),
                compression: self.compression,
                redactor,
                metrics_address,
                viewer,
                viewer_url: self.viewer.viewer_url,
                telemetry: Telemetry::from_variables(&environment_variable),
                warnings: [disk.warning, message.warning]
                    .into_iter()
                    .flatten()
                    .collect(),
            });
        }
        Err(mistakes)
    }
}

/// What is not text shows up as text that is not valid.
fn environment_variable(name: &str) -> Option<String> {
    std::env::var_os(name).map(|value| value.to_string_lossy().into_owned())
}

fn with_source(error: &dyn std::error::Error) -> String {
    match error.source() {
        Some(source) => format!("{error}: {source}"),
        None => error.to_string(),
    }
}
