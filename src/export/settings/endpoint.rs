//! Where a signal goes, and in which protocol.
//!
//! Invariant: an endpoint holds no user info, since it is shown; its query is not shown.

use std::fmt;

use url::Url;

/// Where collectors listen for gRPC, unless told otherwise.
const GRPC_PORT: u16 = 4317;

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(in crate::export) enum Protocol {
    Grpc,
    Http,
}

impl Protocol {
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        match text.to_ascii_lowercase().as_str() {
            "grpc" => Ok(Self::Grpc),
            "http/protobuf" => Ok(Self::Http),
            "http/json" => Err(
                "http/json is not supported; use http/protobuf, which every collector that takes \
                 JSON takes too"
                    .to_owned(),
            ),
            _ => Err(format!(
                "{text:?} is not supported; use grpc or http/protobuf"
            )),
        }
    }
}

/// Where a signal goes.
#[derive(Clone, Eq, PartialEq)]
pub(in crate::export) struct Endpoint {
    pub(in crate::export) protocol: Protocol,
    /// For gRPC without a path; for HTTP with all of it.
    pub(in crate::export) url: Url,
}

impl Endpoint {
    /// `path` goes behind the URL's own, in HTTP. `insecure` decides for an address without a
    /// scheme.
    pub(super) fn parse(
        text: &str,
        protocol: Option<Protocol>,
        insecure: bool,
        path: &str,
    ) -> Result<Self, String> {
        let is_bare = !text.contains("://");
        let url = match (is_bare, insecure) {
            (false, _) => Url::parse(text),
            (true, true) => Url::parse(&format!("http://{text}")),
            (true, false) => Url::parse(&format!("https://{text}")),
        };
        // NOTE: the text is not shown, it may hold credentials.
        let mut url = url.map_err(|error| {
            format!("this is not a URL ({error}); use http://host:4318 or https://host:4317")
        })?;
        if !matches!(url.scheme(), "http" | "https") || is_bare && text.contains('/') {
            return Err("use a URL that begins with http:// or https://".to_owned());
        }
        if !url.username().is_empty() || url.password().is_some() {
            return Err(
                "credentials don't belong in a URL; put them into OTEL_EXPORTER_OTLP_HEADERS"
                    .to_owned(),
            );
        }
        let protocol = protocol.unwrap_or(match url.port() {
            Some(GRPC_PORT) => Protocol::Grpc,
            _ => Protocol::Http,
        });
        url.set_fragment(None);
        match protocol {
            Protocol::Http if is_bare => {
                return Err(
                    "only gRPC takes an address without a scheme; put http:// or https:// before it"
                        .to_owned(),
                );
            }
            Protocol::Http => {
                if !path.is_empty() {
                    let whole = format!("{}{path}", url.path().trim_end_matches('/'));
                    url.set_path(&whole);
                }
            }
            // The path of a call is the method's.
            Protocol::Grpc => {
                url.set_path("");
                url.set_query(None);
            }
        }
        Ok(Self { protocol, url })
    }

    pub(in crate::export) fn is_secure(&self) -> bool {
        self.url.scheme() == "https"
    }
}

impl fmt::Display for Endpoint {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = self.url.clone();
        shown.set_query(None);
        write!(out, "{shown}")
    }
}

impl fmt::Debug for Endpoint {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{:?} {self}", self.protocol)
    }
}
