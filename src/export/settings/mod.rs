//! How a signal is sent, from OpenTelemetry's standard variables.
//!
//! A variable of the signal, such as `OTEL_EXPORTER_OTLP_TRACES_HEADERS`, wins over the general
//! one. Invariant: what is not valid is noted and counts as unset, as the specification wants it;
//! no credential is shown, whatever is printed.

mod endpoint;
#[cfg(test)]
mod tests;

use std::{fmt, path::PathBuf, time::Duration};

use reqwest::header::{HeaderMap, HeaderName, HeaderValue};

pub(super) use self::endpoint::{Endpoint, Protocol};
use super::variables::{IgnoredSetting, Lookup, Reader, parse_pairs};

const DEFAULT_TIMEOUT: Duration = Duration::from_secs(10);
/// Nobody waits longer than this for a call. The specification has 0 for "no limit".
const MAX_TIMEOUT: Duration = Duration::from_mins(10);
const DEFAULT_INTERVAL: Duration = Duration::from_mins(1);
/// More often than that is a mistake in the unit.
const MIN_INTERVAL_MILLIS: u64 = 100;
/// Names that belong to the protocol.
const RESERVED_HEADERS: [&str; 6] = [
    "connection",
    "content-encoding",
    "content-length",
    "content-type",
    "te",
    "transfer-encoding",
];

/// What is sent.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Signal {
    Traces,
    Metrics,
}

impl Signal {
    /// The variable of this signal.
    fn variable(self, name: &str) -> String {
        let signal = match self {
            Self::Traces => "TRACES",
            Self::Metrics => "METRICS",
        };
        format!("OTEL_EXPORTER_OTLP_{signal}_{name}")
    }

    fn http_path(self) -> &'static str {
        match self {
            Self::Traces => "/v1/traces",
            Self::Metrics => "/v1/metrics",
        }
    }

    /// Why this signal is not to be sent, if it is not.
    fn unwanted(self, reader: &mut Reader<'_>) -> Option<Destination> {
        if reader.boolean(&["OTEL_SDK_DISABLED"]) {
            return Some(Destination::Off);
        }
        let (variable, known): (_, &[&str]) = match self {
            Self::Traces => ("OTEL_TRACES_EXPORTER", &["otlp", "none"]),
            // For Prometheus they are served whatever this says.
            Self::Metrics => ("OTEL_METRICS_EXPORTER", &["otlp", "prometheus", "none"]),
        };
        let exporters = reader.keywords(variable, known);
        let is_wanted = match self {
            Self::Traces if exporters.is_empty() => true,
            _ => exporters.iter().any(|exporter| exporter == "otlp"),
        };
        // What is not valid in a list may have been meant to be `otlp`.
        match (is_wanted, reader.has_ignored(variable)) {
            (true, _) => None,
            (false, true) => Some(Destination::Unknown),
            (false, false) => Some(Destination::Off),
        }
    }
}

/// Where a signal goes.
#[derive(Clone, Debug)]
pub enum Destination {
    Collector(Box<OtlpSettings>),
    /// Nobody asked for it, or somebody turned it off.
    Off,
    /// It may be wanted, but what was to say where it goes is not valid.
    Unknown,
}

impl Destination {
    pub fn from_variables(
        lookup: Lookup<'_>,
        signal: Signal,
        ignored: &mut Vec<IgnoredSetting>,
    ) -> Self {
        let mut reader = Reader::new(lookup, ignored);
        if let Some(nowhere) = signal.unwanted(&mut reader) {
            return nowhere;
        }
        let mut reader = SignalReader { reader, signal };
        // Without an address the rest has no effect, and nothing about it needs to be said.
        if reader.text("ENDPOINT").is_none() {
            return Self::Off;
        }
        match reader.endpoint() {
            Some(endpoint) => Self::Collector(Box::new(reader.settings(endpoint))),
            None => Self::Unknown,
        }
    }

    /// How it is sent, if it is.
    pub fn collector(&self) -> Option<&OtlpSettings> {
        match self {
            Self::Collector(settings) => Some(settings),
            Self::Off | Self::Unknown => None,
        }
    }
}

/// How a signal is sent.
#[derive(Clone)]
pub struct OtlpSettings {
    pub(super) endpoint: Endpoint,
    pub(super) headers: HeaderMap,
    pub(super) timeout: Duration,
    pub(super) gzip: bool,
    pub(super) tls: TlsFiles,
    pub(super) interval: Duration,
}

/// Files that TLS is set up from, if not from what the system has.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub(super) struct TlsFiles {
    /// Trusted in place of the system's.
    pub(super) ca: Option<PathBuf>,
    pub(super) identity: Option<IdentityFiles>,
}

#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) struct IdentityFiles {
    pub(super) certificate: PathBuf,
    pub(super) key: PathBuf,
}

impl OtlpSettings {
    /// Where the signal goes, fit to be shown.
    pub fn endpoint(&self) -> String {
        self.endpoint.to_string()
    }
}

impl fmt::Debug for OtlpSettings {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let header_names: Vec<_> = self.headers.keys().collect();
        out.debug_struct("OtlpSettings")
            .field("endpoint", &self.endpoint)
            .field("headers", &header_names)
            .field("timeout", &self.timeout)
            .field("gzip", &self.gzip)
            .field("tls", &self.tls)
            .finish_non_exhaustive()
    }
}

/// Reads the variables of one signal, and the general ones where it has none of its own.
struct SignalReader<'a> {
    reader: Reader<'a>,
    signal: Signal,
}

impl SignalReader<'_> {
    /// The signal's own variable, and the general one.
    fn variables(&self, name: &str) -> [String; 2] {
        let general = format!("OTEL_EXPORTER_OTLP_{name}");
        [self.signal.variable(name), general]
    }

    fn parsed<T>(
        &mut self,
        name: &str,
        parse: impl Fn(&str, &str) -> Result<T, String>,
    ) -> Option<T> {
        let [own, general] = self.variables(name);
        self.reader.parsed(&[&own, &general], parse)
    }

    /// The variable that is set, and its text.
    fn text(&self, name: &str) -> Option<(String, String)> {
        let mut variables = self.variables(name).into_iter();
        variables.find_map(|variable| {
            let text = self.reader.text(&variable)?;
            Some((variable, text))
        })
    }

    fn settings(&mut self, endpoint: Endpoint) -> OtlpSettings {
        let gzip = self.parsed("COMPRESSION", |_, text| {
            match text.to_ascii_lowercase().as_str() {
                "gzip" => Ok(true),
                "none" => Ok(false),
                _ => Err(format!("{text:?} is not supported; use gzip or none")),
            }
        });
        let interval = match self.signal {
            Signal::Traces => None,
            Signal::Metrics => self
                .reader
                .parsed(&["OTEL_METRIC_EXPORT_INTERVAL"], |_, text| {
                    parse_interval(text)
                }),
        };
        OtlpSettings {
            endpoint,
            headers: self.headers(),
            timeout: self
                .parsed("TIMEOUT", |_, text| parse_timeout(text))
                .unwrap_or(DEFAULT_TIMEOUT),
            gzip: gzip.unwrap_or(false),
            tls: self.tls_files(),
            interval: interval.unwrap_or(DEFAULT_INTERVAL),
        }
    }

    fn endpoint(&mut self) -> Option<Endpoint> {
        let protocol = self.parsed("PROTOCOL", |_, text| Protocol::parse(text));
        let [own, general] = self.variables("INSECURE");
        let insecure = self.reader.boolean(&[&own, &general]);
        let (own, path) = (self.signal.variable("ENDPOINT"), self.signal.http_path());
        self.parsed("ENDPOINT", |variable, text| {
            // The signal's own endpoint is taken as it is.
            let path = if variable == own { "" } else { path };
            Endpoint::parse(text, protocol, insecure, path)
        })
    }

    /// Those that are valid. NOTE: values are credentials as a rule; neither they nor what
    /// surrounds them is shown.
    fn headers(&mut self) -> HeaderMap {
        let mut headers = HeaderMap::new();
        let Some((variable, text)) = self.text("HEADERS") else {
            return headers;
        };
        for (pair, number) in parse_pairs(&text).zip(1..) {
            let header = pair.and_then(|(name, value)| parse_header(&name, &value, number));
            let added = header.and_then(|(name, value)| {
                let added = headers.try_insert(name, value);
                added.map_err(|_| "these are too many headers".to_owned())
            });
            if let Err(problem) = added {
                self.reader.ignore(&variable, problem);
            }
        }
        headers
    }

    fn tls_files(&mut self) -> TlsFiles {
        let path = |found: Option<(String, String)>| found.map(|(_, text)| PathBuf::from(text));
        let ca = path(self.text("CERTIFICATE"));
        let certificate = self.text("CLIENT_CERTIFICATE");
        let key = self.text("CLIENT_KEY");
        let mut ignore = |found: &Option<(String, String)>, problem| {
            if let Some((variable, _)) = found {
                self.reader.ignore(variable, problem);
            }
        };
        match (&certificate, &key) {
            (Some(_), None) => ignore(
                &certificate,
                "a client certificate has no effect without its key; set \
                 OTEL_EXPORTER_OTLP_CLIENT_KEY as well",
            ),
            (None, Some(_)) => ignore(
                &key,
                "a client key has no effect without its certificate; set \
                 OTEL_EXPORTER_OTLP_CLIENT_CERTIFICATE as well",
            ),
            _ => {}
        }
        let identity = path(certificate).zip(path(key));
        let identity = identity.map(|(certificate, key)| IdentityFiles { certificate, key });
        TlsFiles { ca, identity }
    }
}

fn parse_timeout(text: &str) -> Result<Duration, String> {
    let millis: u64 = text
        .parse()
        .map_err(|_| format!("{text:?} is not a number of milliseconds; use 10000"))?;
    Ok(match millis {
        0 => MAX_TIMEOUT,
        millis => Duration::from_millis(millis).min(MAX_TIMEOUT),
    })
}

fn parse_interval(text: &str) -> Result<Duration, String> {
    let valid = MIN_INTERVAL_MILLIS..=u64::from(u32::MAX);
    let millis = text.parse().ok().filter(|millis| valid.contains(millis));
    millis.map(Duration::from_millis).ok_or_else(|| {
        format!("{text:?} is not a number of milliseconds from {MIN_INTERVAL_MILLIS}; use 60000")
    })
}

fn parse_header(
    name: &str,
    value: &[u8],
    number: usize,
) -> Result<(HeaderName, HeaderValue), String> {
    let name = HeaderName::from_bytes(name.as_bytes())
        .map_err(|_| format!("the name of header {number} is not valid; use name=value"))?;
    if RESERVED_HEADERS.contains(&name.as_str()) || name.as_str().starts_with("grpc-") {
        return Err(format!("{name} belongs to the protocol; leave it out"));
    }
    let mut value = HeaderValue::from_bytes(value)
        .map_err(|_| format!("the value of {name} is not valid in a header"))?;
    value.set_sensitive(true);
    Ok((name, value))
}
