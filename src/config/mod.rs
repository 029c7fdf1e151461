//! Settings: flags and variables as typed → settings as validated.
//!
//! Invariant: every mistake is found, and all of them are told, before anything is bound or
//! opened. The reference sidecar's flags and variables mean what they mean there.

mod telemetry;
mod units;
mod viewer;

use std::{net::SocketAddr, path::PathBuf, time::Duration};

use clap::{Args, ValueEnum};

pub use self::telemetry::Telemetry;
use self::telemetry::collect;
pub use self::{
    units::{parse_bytes, parse_duration, parse_socket_mode, show_bytes},
    viewer::{ViewerArgs, ViewerSettings, is_plain_address},
};
use crate::{
    archive::{Compression, Retention, StoreUrl, Variables},
    print::PrintFormat,
    redact::Redactor,
};

const RECEIVING: &str = "Receiving";
const SPOOL: &str = "Spool";
const STORE: &str = "Store";
const REDACTION: &str = "Redaction";
const OBSERVING: &str = "Logs and metrics";

/// Smaller ones could not hold one large message.
const MIN_SPOOL_BYTES: u64 = 1024 * 1024;
/// What the log can hold in one record.
const MAX_MESSAGE_BYTES: u64 = 1 << 30;

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

    /// Largest message to take
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

    /// Most that may wait on disk; beyond it messages are refused
    #[arg(
        long,
        env = "SPANPLANE_SPOOL_MAX_BYTES",
        default_value = "1GiB",
        value_name = "SIZE",
        value_parser = parse_bytes,
        help_heading = SPOOL
    )]
    pub spool_max_bytes: u64,

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

    /// How much a store on local disk may hold; 0 means as much as there is
    #[arg(
        long,
        env = "SPANPLANE_RETENTION_BYTES",
        default_value = "2GiB",
        value_name = "SIZE",
        value_parser = parse_bytes,
        help_heading = STORE
    )]
    pub retention_bytes: u64,

    #[command(flatten)]
    pub viewer: ViewerArgs,

    /// JSON pointer of a value to redact, such as /input/apiKey; * stands for any key. Can be
    /// repeated; in the variable, one a line
    #[arg(
        long,
        env = "SPANPLANE_REDACT",
        value_name = "POINTER",
        value_delimiter = '\n',
        help_heading = REDACTION
    )]
    pub redact: Vec<String>,

    /// Regular expression for keys whose values are redacted, such as '(?i)password'. Can be
    /// repeated; in the variable, one a line
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
    pub shutdown_timeout: Duration,
    pub print: Option<PrintFormat>,
    pub data_dir: PathBuf,
    pub spool_max_bytes: u64,
    pub spool_sync: Duration,
    pub store: StoreUrl,
    pub store_variables: Variables,
    pub compression: Compression,
    pub retention: Retention,
    pub redactor: Redactor,
    pub metrics_address: Option<SocketAddr>,
    pub viewer: Option<ViewerSettings>,
    pub viewer_url: String,
    pub telemetry: Telemetry,
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
        let redactor = Redactor::new(&self.redact, &self.redact_key).ok();
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
        if !is_plain_address(&self.viewer.viewer_url) {
            let what = "this must be an http:// or https:// address without a user, ? or #";
            mistake("--viewer-url", &what);
        }
        if self.socket_path.file_name().is_none() {
            mistake("--socket-path", &"this names no file");
        }
        if self.spool_max_bytes < MIN_SPOOL_BYTES {
            mistake(
                "--spool-max-bytes",
                &"this is less than 1MiB, too little for one message",
            );
        }
        if !(1..=MAX_MESSAGE_BYTES).contains(&self.max_recv_msg_size) {
            mistake(
                "--max-recv-msg-size",
                &"this must be between 1 byte and 1GiB",
            );
        }
        let telemetry = Telemetry::from_variables(&|name| std::env::var(name).ok());
        let telemetry = collect(telemetry, &mut mistakes);
        let (address, token) = (&self.viewer.viewer_address, &self.viewer.viewer_token);
        let flags = ["--viewer-address", "--viewer-token"];
        let viewer = ViewerSettings::parse(address, token.as_deref(), flags);
        let viewer = collect(viewer, &mut mistakes);
        if let (Some(store), Some(redactor), Some(telemetry), Some(viewer), []) =
            (store, redactor, telemetry, viewer, mistakes.as_slice())
        {
            return Ok(Settings {
                retention: Retention {
                    age: Some(self.retention).filter(|age| !age.is_zero()),
                    bytes: Some(self.retention_bytes).filter(|bytes| *bytes != 0),
                },
                socket_path: self.socket_path,
                socket_mode: self.socket_mode,
                max_message_bytes: usize::try_from(self.max_recv_msg_size).unwrap_or(usize::MAX),
                shutdown_timeout: self.shutdown_timeout,
                print: self.format,
                data_dir,
                spool_max_bytes: self.spool_max_bytes,
                spool_sync: self.spool_sync,
                store,
                store_variables: Variables::of_process(),
                compression: self.compression,
                redactor,
                metrics_address,
                viewer,
                viewer_url: self.viewer.viewer_url,
                telemetry,
            });
        }
        Err(mistakes)
    }
}

fn with_source(error: &dyn std::error::Error) -> String {
    match error.source() {
        Some(source) => format!("{error}: {source}"),
        None => error.to_string(),
    }
}
