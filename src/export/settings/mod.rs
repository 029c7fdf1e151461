//! How a signal is sent, from OpenTelemetry's standard variables.
//!
//! A variable of the signal, such as `OTEL_EXPORTER_OTLP_TRACES_HEADERS`, wins over the general
//! one. Invariant: every mistake is told at once, and no credential is shown, whatever is printed.

mod endpoint;
#[cfg(test)]
mod tests;

use std::{fmt, path::PathBuf, time::Duration};

use reqwest::header::{HeaderMap, HeaderName, HeaderValue};

pub(super) use self::endpoint::{Endpoint, Protocol};
use super::variables::{Lookup, Reader, parse_bool, parse_pairs};

const DEFAULT_TIMEOUT: Duration = Duration::from_secs(10);
/// A call that takes longer than this is none that anybody waits for.
const MAX_TIMEOUT_MILLIS: u64 = 600_000;
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

    /// Whether this signal is wanted at all.
    fn is_wanted(self, reader: &mut Reader<'_>) -> bool {
        if reader.parsed("OTEL_SDK_DISABLED", parse_bool) == Some(true) {
            return false;
        }
        match self {
            Self::Traces => {
                let wanted = reader.parsed("OTEL_TRACES_EXPORTER", |text| match text {
                    "otlp" => Ok(true),
                    "none" => Ok(false),
                    _ => Err(format!("{text:?} is not known; write otlp or none")),
                });
                wanted.unwrap_or(true)
            }
            Self::Metrics => {
                let wanted = reader.parsed("OTEL_METRICS_EXPORTER", |text| match text {
                    "otlp" => Ok(true),
                    // They are served for it all the same.
                    "none" | "prometheus" => Ok(false),
                    _ => Err(format!(
                        "{text:?} is not known; write otlp, prometheus or none"
                    )),
                });
                wanted.unwrap_or(false)
            }
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
    /// The settings, or every mistake; `None` if nothing is to be sent.
    pub fn from_variables(lookup: Lookup<'_>, signal: Signal) -> Result<Option<Self>, Vec<String>> {
        let mut reader = Reader::new(lookup);
        if !signal.is_wanted(&mut reader) {
            return reader.finish(None);
        }
        let address = chosen(&reader, signal, "ENDPOINT");
        if reader.text(&address).is_none() {
            return reader.finish(None);
        }
        let endpoint = read_endpoint(&mut reader, signal, &address);
        let variable = chosen(&reader, signal, "HEADERS");
        let headers = reader.parsed(&variable, parse_headers).unwrap_or_default();
        let variable = chosen(&reader, signal, "TIMEOUT");
        let timeout = reader.parsed(&variable, |text| {
            parse_millis(text, 1, MAX_TIMEOUT_MILLIS, "10000")
        });
        let variable = chosen(&reader, signal, "COMPRESSION");
        let gzip = reader.parsed(&variable, |text| match text {
            "gzip" => Ok(true),
            "none" => Ok(false),
            _ => Err(format!("{text:?} is not known; write gzip or none")),
        });
        let interval = match signal {
            Signal::Traces => None,
            Signal::Metrics => reader.parsed("OTEL_METRIC_EXPORT_INTERVAL", |text| {
                parse_millis(text, MIN_INTERVAL_MILLIS, u64::from(u32::MAX), "60000")
            }),
        };
        let tls = read_tls_files(&mut reader, signal);
        let settings = endpoint.map(|endpoint| Self {
            endpoint,
            headers,
            timeout: timeout.unwrap_or(DEFAULT_TIMEOUT),
            gzip: gzip.unwrap_or(false),
            tls,
            interval: interval.unwrap_or(DEFAULT_INTERVAL),
        });
        reader.finish(settings)
    }

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

/// The variable that decides: the signal's if it is set, else the general one.
fn chosen(reader: &Reader<'_>, signal: Signal, name: &str) -> String {
    let own = signal.variable(name);
    if reader.text(&own).is_some() {
        own
    } else {
        format!("OTEL_EXPORTER_OTLP_{name}")
    }
}

fn read_endpoint(reader: &mut Reader<'_>, signal: Signal, address: &str) -> Option<Endpoint> {
    let variable = chosen(reader, signal, "PROTOCOL");
    let protocol = reader.parsed(&variable, Protocol::parse);
    let variable = chosen(reader, signal, "INSECURE");
    let insecure = reader.parsed(&variable, parse_bool).unwrap_or(false);
    // The signal's own endpoint is taken as it is.
    let path = if address == signal.variable("ENDPOINT") {
        ""
    } else {
        signal.http_path()
    };
    reader.parsed(address, |text| {
        Endpoint::parse(text, protocol, insecure, path)
    })
}

fn read_tls_files(reader: &mut Reader<'_>, signal: Signal) -> TlsFiles {
    let ca = reader.text(&chosen(reader, signal, "CERTIFICATE"));
    let certificate_variable = chosen(reader, signal, "CLIENT_CERTIFICATE");
    let key_variable = chosen(reader, signal, "CLIENT_KEY");
    let certificate = reader.text(&certificate_variable);
    let identity = match (certificate, reader.text(&key_variable)) {
        (Some(certificate), Some(key)) => Some(IdentityFiles {
            certificate: certificate.into(),
            key: key.into(),
        }),
        (Some(_), None) => {
            reader.mistake(
                &key_variable,
                "write the path of the client certificate's key",
            );
            None
        }
        (None, Some(_)) => {
            reader.mistake(
                &certificate_variable,
                "write the path of the certificate that the client key belongs to",
            );
            None
        }
        (None, None) => None,
    };
    TlsFiles {
        ca: ca.map(PathBuf::from),
        identity,
    }
}

fn parse_millis(text: &str, least: u64, most: u64, example: &str) -> Result<Duration, String> {
    let millis = text.parse().ok();
    millis
        .filter(|millis| (least..=most).contains(millis))
        .map(Duration::from_millis)
        .ok_or_else(|| {
            format!("{text:?} is not from {least} to {most} milliseconds; write {example}")
        })
}

/// NOTE: values are credentials as a rule; neither they nor what surrounds them is shown.
fn parse_headers(text: &str) -> Result<HeaderMap, String> {
    let mut headers = HeaderMap::new();
    for (at, (name, value)) in parse_pairs(text)?.into_iter().enumerate() {
        let at = at + 1;
        let name = HeaderName::from_bytes(name.as_bytes())
            .map_err(|_| format!("the name of header {at} can't be one; write name=value"))?;
        if RESERVED_HEADERS.contains(&name.as_str()) || name.as_str().starts_with("grpc-") {
            return Err(format!("{name} is not for you to set; leave it out"));
        }
        let mut value = HeaderValue::from_bytes(&value)
            .map_err(|_| format!("the value of {name} can't be a header's"))?;
        value.set_sensitive(true);
        headers
            .try_insert(name, value)
            .map_err(|_| "these are too many headers".to_owned())?;
    }
    Ok(headers)
}
