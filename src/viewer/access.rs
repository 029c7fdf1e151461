//! Who may look: the `Host` that a request names, and the token that it brings.
//!
//! A page on the internet can make a browser on this machine ask a name that resolves to
//! loopback, and read the answer as its own. So a request has to name an address that is ours. Off
//! loopback it also has to bring a token.
//!
//! Invariant: the token is compared in constant time, and stands neither in a log, nor in an
//! address that is kept, nor in a cookie, which holds a hash of it.

use std::{fmt, net::IpAddr};

use axum::http::{
    HeaderMap, HeaderValue, Uri,
    header::{AUTHORIZATION, COOKIE, HOST},
};
use url::{Host, Url};

use super::address::Params;
use crate::reconcile::PayloadHash;

const COOKIE_NAME: &str = "spanplane";
/// Whoever guesses a shorter one needs no luck.
const MIN_TOKEN_BYTES: usize = 16;

/// What off loopback has to be known to look. Its value is never shown.
#[derive(Clone)]
pub struct Token(String);

/// Why a text can't be a token.
#[derive(Debug, Eq, PartialEq, thiserror::Error)]
pub enum TokenError {
    #[error("a token needs at least {MIN_TOKEN_BYTES} characters")]
    Short,
    #[error("a token must be of letters, digits and the like, without blanks")]
    Odd,
}

impl Token {
    pub fn new(text: String) -> Result<Self, TokenError> {
        if text.len() < MIN_TOKEN_BYTES {
            return Err(TokenError::Short);
        }
        // It travels in a header and in an address.
        if !text.bytes().all(|byte| byte.is_ascii_graphic()) {
            return Err(TokenError::Odd);
        }
        Ok(Self(text))
    }

    fn is(&self, other: &str) -> bool {
        let [ours, theirs] = [&self.0, other].map(|text| PayloadHash::of(text.as_bytes()).0);
        is_same(&ours, &theirs)
    }

    /// What the cookie holds.
    fn pass(&self) -> String {
        PayloadHash::of(format!("spanplane viewer {}", self.0).as_bytes()).to_string()
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("Token(…)")
    }
}

/// In a time that does not tell where they differ.
fn is_same(one: &[u8], other: &[u8]) -> bool {
    let differences = one.iter().zip(other).fold(0, |seen, (a, b)| seen | (a ^ b));
    one.len() == other.len() && differences == 0
}

/// The rules.
#[derive(Clone, Debug)]
pub struct Access {
    /// The address that is listened on.
    bound: IpAddr,
    /// The address that people use, if it is another.
    url: Option<Url>,
    token: Option<Token>,
}

/// What to do with a request.
#[derive(Debug, Eq, PartialEq)]
pub(super) enum Verdict {
    Welcome,
    /// It brought the token in its address: keep it in a cookie, and take it out of sight.
    Remember {
        location: String,
        cookie: String,
    },
    /// It names another host.
    Misdirected,
    /// It brings no token.
    Unknown,
}

impl Access {
    pub fn new(bound: IpAddr, url: Option<&str>, token: Option<Token>) -> Self {
        Self {
            bound,
            url: url.and_then(|url| Url::parse(url).ok()),
            token,
        }
    }

    pub(super) fn judge(&self, uri: &Uri, headers: &HeaderMap) -> Verdict {
        if !headers.get(HOST).is_some_and(|host| self.is_ours(host)) {
            return Verdict::Misdirected;
        }
        let Some(token) = &self.token else {
            return Verdict::Welcome;
        };
        let params = Params::parse(uri.query());
        if params.raw("token").is_some_and(|brought| token.is(brought)) {
            return Verdict::Remember {
                location: location_without_token(uri, &params),
                cookie: self.cookie(token),
            };
        }
        if bearer(headers).is_some_and(|brought| token.is(brought)) || has_pass(headers, token) {
            return Verdict::Welcome;
        }
        Verdict::Unknown
    }

    pub(super) const fn has_token(&self) -> bool {
        self.token.is_some()
    }

    /// The address that the one who asks has used.
    pub(super) fn origin(&self, headers: &HeaderMap) -> String {
        let host = headers.get(HOST).and_then(|host| host.to_str().ok());
        let host = host.unwrap_or_default();
        let name = host.rsplit_once(':').map_or(host, |(name, _)| name);
        let is_https = self.url.as_ref().is_some_and(|url| {
            url.scheme() == "https"
                && (url.host_str() == Some(name) || url.host_str() == Some(host))
        });
        let scheme = if is_https { "https" } else { "http" };
        format!("{scheme}://{host}")
    }

    fn is_ours(&self, host: &HeaderValue) -> bool {
        let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b".-:[]".contains(&byte);
        let host = host.to_str().ok().filter(|host| host.bytes().all(is_plain));
        // A host is what stands between `//` and `/` of an address.
        let named = host.and_then(|host| Url::parse(&format!("http://{host}/")).ok());
        let Some(named) = named.as_ref().and_then(Url::host) else {
            return false;
        };
        let ip = match &named {
            Host::Domain(name) => {
                let is_local = *name == "localhost" || name.ends_with(".localhost");
                let url_host = self.url.as_ref().and_then(Url::host_str);
                return is_local || url_host == Some(name);
            }
            Host::Ipv4(ip) => IpAddr::from(*ip),
            Host::Ipv6(ip) => IpAddr::from(*ip),
        };
        // Who listens everywhere has addresses that nobody told it. A number is no name that
        // somebody could have pointed here.
        ip.is_loopback()
            || self.bound.is_unspecified()
            || ip == self.bound
            || self.url.as_ref().and_then(Url::host) == Some(named)
    }

    fn cookie(&self, token: &Token) -> String {
        let is_https = self.url.as_ref().is_some_and(|url| url.scheme() == "https");
        let secure = if is_https { "; Secure" } else { "" };
        // NOTE: Strict would keep it back when somebody follows a link in Grafana or Jaeger, which
        // is what these pages are for. Nothing here changes anything, so Lax gives nothing away.
        format!(
            "{COOKIE_NAME}={}; Path=/; HttpOnly; SameSite=Lax{secure}",
            token.pass()
        )
    }
}

fn location_without_token(uri: &Uri, params: &Params) -> String {
    // NOTE: `//host` would be another site, and so would `/\host` be to browsers.
    let path = format!("/{}", uri.path().trim_start_matches(['/', '\\']));
    match params.without(&["token"]) {
        rest if rest.is_empty() => path,
        rest => format!("{path}?{rest}"),
    }
}

fn bearer(headers: &HeaderMap) -> Option<&str> {
    let value = headers.get(AUTHORIZATION)?.to_str().ok()?;
    let (scheme, token) = value.split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then(|| token.trim())
}

fn has_pass(headers: &HeaderMap, token: &Token) -> bool {
    let pass = token.pass();
    let cookies = headers.get_all(COOKIE).iter();
    let mut pairs = cookies
        .filter_map(|cookies| cookies.to_str().ok())
        .flat_map(|cookies| cookies.split(';'))
        .filter_map(|cookie| cookie.trim().split_once('='));
    pairs.any(|(name, value)| name == COOKIE_NAME && is_same(value.as_bytes(), pass.as_bytes()))
}

#[cfg(test)]
mod tests {
    use super::*;

    const TOKEN: &str = "0123456789abcdef";

    fn access(bound: &str, url: Option<&str>, token: Option<&str>) -> Access {
        let token = token.map(|token| Token::new(token.to_owned()).unwrap());
        Access::new(bound.parse().unwrap(), url, token)
    }

    fn judge(access: &Access, uri: &str, headers: &[(&'static str, &str)]) -> Verdict {
        let mut map = HeaderMap::new();
        for (name, value) in headers {
            map.append(*name, value.parse().unwrap());
        }
        access.judge(&uri.parse().unwrap(), &map)
    }

    #[test]
    fn only_hosts_that_are_ours_are_answered() {
        let access = access("10.1.2.3", Some("https://viewer.example.org/x"), None);
        for ours in [
            "localhost",
            "localhost:8686",
            "LOCALHOST:1",
            "a.localhost",
            "127.0.0.1:80",
            "[::1]:8686",
            "10.1.2.3:8686",
            "viewer.example.org",
        ] {
            assert_eq!(
                judge(&access, "/", &[("host", ours)]),
                Verdict::Welcome,
                "{ours}"
            );
        }
        for other in [
            "evil.example",
            "localhost.evil.example",
            "evil.example:8686",
            "10.1.2.4",
            "localhost@evil.example",
            "evil.example@localhost",
            "",
            "a b",
            "127.0.0.1.evil.example",
        ] {
            assert_eq!(
                judge(&access, "/", &[("host", other)]),
                Verdict::Misdirected,
                "{other}"
            );
        }
        assert_eq!(judge(&access, "/", &[]), Verdict::Misdirected);
    }

    #[test]
    fn who_listens_everywhere_has_many_addresses_but_no_names() {
        let access = access("0.0.0.0", None, None);
        assert_eq!(
            judge(&access, "/", &[("host", "10.9.8.7:1")]),
            Verdict::Welcome
        );
        assert_eq!(
            judge(&access, "/", &[("host", "evil.example")]),
            Verdict::Misdirected
        );
    }

    #[test]
    fn a_token_is_brought_once_and_kept_as_a_hash() {
        let access = access("0.0.0.0", None, Some(TOKEN));
        let host = ("host", "10.0.0.1");
        assert_eq!(judge(&access, "/", &[host]), Verdict::Unknown);
        let asked = format!("/\\/evil.example/?token={TOKEN}&kind=a%20b");
        let Verdict::Remember { location, cookie } = judge(&access, &asked, &[host]) else {
            panic!("the token was not taken");
        };
        assert_eq!(location, "/evil.example/?kind=a%20b");
        assert!(!cookie.contains(TOKEN), "{cookie}");
        assert!(cookie.contains("; HttpOnly; SameSite=Lax"), "{cookie}");
        let (pair, _) = cookie.split_once(';').unwrap();
        let cookies = format!("other=1; {pair}");
        assert_eq!(
            judge(&access, "/", &[host, ("cookie", &cookies)]),
            Verdict::Welcome
        );
        let bearer = format!("Bearer {TOKEN}");
        let bearer = [host, ("authorization", bearer.as_str())];
        assert_eq!(judge(&access, "/", &bearer), Verdict::Welcome);
        for wrong in [
            ("authorization", "Bearer 0123456789abcdeF"),
            ("authorization", "Bearer"),
            ("cookie", "spanplane=0123456789abcdef"),
        ] {
            assert_eq!(
                judge(&access, "/?token=x", &[host, wrong]),
                Verdict::Unknown
            );
        }
    }

    #[test]
    fn tokens_are_long_and_never_shown() {
        assert_eq!(
            Token::new("short".to_owned()).unwrap_err(),
            TokenError::Short
        );
        assert_eq!(Token::new("a b".repeat(9)).unwrap_err(), TokenError::Odd);
        let access = access("0.0.0.0", None, Some(TOKEN));
        assert!(!format!("{access:?}").contains(TOKEN));
    }
}
