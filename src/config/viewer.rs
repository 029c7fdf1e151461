//! Settings of the viewer: where it listens, who may look, how people reach it.
//!
//! Invariant: payloads are nobody else's business. An address off loopback needs a token.

use std::net::SocketAddr;

use clap::Args;
use url::Url;

use crate::viewer::Token;

const VIEWER: &str = "Viewer";

/// What the sidecar's viewer can be told.
#[derive(Args, Clone, Debug)]
pub struct ViewerArgs {
    /// Where the viewer is served, or `none`. Off loopback it needs --viewer-token
    #[arg(
        long,
        env = "SPANPLANE_VIEWER_ADDRESS",
        default_value = "127.0.0.1:8686",
        value_name = "ADDRESS",
        help_heading = VIEWER
    )]
    pub viewer_address: String,

    /// What has to be known to look, 16 characters or more: ?token=… once, or Authorization: Bearer
    #[arg(
        long,
        env = "SPANPLANE_VIEWER_TOKEN",
        hide_env_values = true,
        value_name = "TOKEN",
        help_heading = VIEWER
    )]
    pub viewer_token: Option<String>,

    /// Public URL of the viewer, for the links in spans; without a path
    #[arg(
        long,
        env = "SPANPLANE_VIEWER_URL",
        default_value = "http://127.0.0.1:8686",
        value_name = "URL",
        help_heading = VIEWER
    )]
    pub viewer_url: String,
}

/// Where the viewer listens, and who may look.
#[derive(Clone, Debug)]
pub struct ViewerSettings {
    pub address: SocketAddr,
    pub token: Option<Token>,
}

impl ViewerSettings {
    /// From an address, or `none`, and a token; or everything that is wrong with them, by what
    /// these are called.
    pub fn parse(
        address: &str,
        token: Option<&str>,
        [address_flag, token_flag]: [&str; 2],
    ) -> Result<Option<Self>, Vec<String>> {
        let mut mistakes = Vec::new();
        let token = token.filter(|token| !token.is_empty());
        let token = token.map(|token| Token::new(token.to_owned())).transpose();
        if let Err(error) = &token {
            mistakes.push(format!("{token_flag}: {error}"));
        }
        let parsed: Option<SocketAddr> = address.parse().ok();
        match parsed {
            None if address == "none" => {}
            None => mistakes.push(format!(
                "{address_flag}: {address:?} is no address; write 127.0.0.1:8686 or none"
            )),
            Some(address) if !address.ip().is_loopback() && matches!(token, Ok(None)) => {
                mistakes.push(format!(
                    "{token_flag}: everybody can reach {address}, so a token is needed"
                ));
            }
            Some(_) => {}
        }
        match token {
            Ok(token) if mistakes.is_empty() => Ok(parsed.map(|address| Self { address, token })),
            _ => Err(mistakes),
        }
    }
}

/// Whether links can be made of it, or why not. They are in every span, so that no password may be
/// in it; and all addresses on the viewer's pages begin at the root.
pub fn check_public_url(url: &str) -> Result<(), &'static str> {
    let is_plain = |url: &Url| {
        matches!(url.scheme(), "http" | "https")
            && url.host().is_some()
            && url.username().is_empty()
            && url.password().is_none()
            && url.query().is_none()
            && url.fragment().is_none()
    };
    let Some(url) = Url::parse(url).ok().filter(is_plain) else {
        return Err("use an http:// or https:// URL without a user, ? or #");
    };
    if url.path() != "/" {
        return Err(
            "the viewer can't be served under a path; give it a host name or port of its own, such \
             as https://spanplane.example.org",
        );
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const FLAGS: [&str; 2] = ["--viewer-address", "--viewer-token"];

    fn mistakes(address: &str, token: Option<&str>) -> usize {
        ViewerSettings::parse(address, token, FLAGS).map_or_else(|mistakes| mistakes.len(), |_| 0)
    }

    #[test]
    fn off_loopback_a_token_is_needed() {
        for address in ["127.0.0.1:8686", "[::1]:1", "none"] {
            assert_eq!(mistakes(address, None), 0, "{address}");
        }
        for address in ["0.0.0.0:8686", "[::]:8686", "10.0.0.1:1"] {
            assert_eq!(mistakes(address, None), 1, "{address}");
            assert_eq!(mistakes(address, Some("")), 1, "{address}");
            assert_eq!(mistakes(address, Some("0123456789abcdef")), 0, "{address}");
        }
        assert_eq!(mistakes("here", Some("short")), 2);
    }

    #[test]
    fn a_public_url_has_neither_secrets_nor_a_path() {
        for url in [
            "http://127.0.0.1:8686",
            "https://spanplane.example.org",
            "https://spanplane.example.org:8443/",
        ] {
            assert_eq!(check_public_url(url), Ok(()), "{url}");
        }
        for url in [
            "spanplane.example.org",
            "ftp://spanplane.example.org",
            "https://me:secret@spanplane.example.org",
            "https://spanplane.example.org/?a=b",
            "https://spanplane.example.org/#a",
        ] {
            assert!(
                check_public_url(url).unwrap_err().contains("https://"),
                "{url}"
            );
        }
        for url in ["https://example.org/spanplane", "http://example.org//"] {
            assert!(check_public_url(url).unwrap_err().contains("path"), "{url}");
        }
    }
}
