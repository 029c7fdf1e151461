//! Pages for what can't be shown: what is wrong, and what to do.

use std::borrow::Cow;

use axum::{
    http::StatusCode,
    response::{Html, IntoResponse, Response},
};
use maud::{Markup, html};

use super::{address, page::Page, words::plain};
use crate::{
    answers::{FindError, OpenError, PayloadsError},
    archive::{FetchError, IndexError, StoreError, Trouble},
    causes::with_causes,
};

/// Why there is no page.
#[derive(Debug)]
pub(super) enum Failure {
    /// The request names another host.
    Misdirected,
    /// The request brings no token.
    Unknown,
    TooLong,
    TooSlow,
    /// What is in the object at this key takes more memory than a page may.
    TooLarge {
        key: String,
    },
    /// Others download so much that there is no memory for this.
    Busy,
    /// The memory for what is in the object at this key is needed for something else.
    Crowded {
        key: String,
    },
    /// We made a mistake.
    Broken,
    NoPage,
    /// What is asked for can't be.
    Odd(String),
    /// It is not there, and what to do about that.
    Missing {
        what: String,
        advice: &'static str,
    },
    Find(FindError),
    Payloads(PayloadsError),
    Store(StoreError),
}

impl From<FindError> for Failure {
    fn from(error: FindError) -> Self {
        Self::Find(error)
    }
}

impl From<IndexError> for Failure {
    fn from(error: IndexError) -> Self {
        Self::Find(FindError::Index(error))
    }
}

impl From<PayloadsError> for Failure {
    fn from(error: PayloadsError) -> Self {
        match error {
            PayloadsError::TooLarge { key, .. } => Self::TooLarge { key },
            error => Self::Payloads(error),
        }
    }
}

impl Failure {
    pub(super) fn opening(key: &str, source: OpenError) -> Self {
        let key = key.to_owned();
        Self::Payloads(PayloadsError::Open { key, source })
    }

    fn status(&self) -> StatusCode {
        match self {
            Self::Misdirected => StatusCode::MISDIRECTED_REQUEST,
            Self::Unknown => StatusCode::UNAUTHORIZED,
            Self::TooLong => StatusCode::URI_TOO_LONG,
            Self::TooSlow | Self::Busy | Self::Crowded { .. } => StatusCode::SERVICE_UNAVAILABLE,
            Self::TooLarge { .. } | Self::Payloads(PayloadsError::TooLarge { .. }) => {
                StatusCode::PAYLOAD_TOO_LARGE
            }
            Self::Odd(_) | Self::Payloads(PayloadsError::NotAKey(_)) => StatusCode::BAD_REQUEST,
            Self::NoPage
            | Self::Missing { .. }
            | Self::Find(FindError::Empty | FindError::NoSubject(_) | FindError::NoTrace(_))
            | Self::Payloads(PayloadsError::Queued { .. }) => StatusCode::NOT_FOUND,
            Self::Find(FindError::Ambiguous { .. }) => StatusCode::MULTIPLE_CHOICES,
            Self::Payloads(error) if is_link(error) => StatusCode::FORBIDDEN,
            Self::Payloads(PayloadsError::Gone { .. } | PayloadsError::Dropped(_)) => {
                StatusCode::GONE
            }
            Self::Find(FindError::Index(_))
            | Self::Store(_)
            | Self::Payloads(PayloadsError::Fetch(FetchError::Store(_))) => StatusCode::BAD_GATEWAY,
            Self::Broken | Self::Payloads(PayloadsError::Fetch(_) | PayloadsError::Open { .. }) => {
                StatusCode::INTERNAL_SERVER_ERROR
            }
        }
    }

    fn title(&self) -> &'static str {
        match self {
            Self::Misdirected => "This is another host",
            Self::Unknown => "A token is needed",
            Self::TooLong => "This address is too long",
            Self::TooSlow => "This took too long",
            Self::Busy => "Too many downloads at once",
            Self::Crowded { .. } => "The sidecar is busy",
            Self::TooLarge { .. } | Self::Payloads(PayloadsError::TooLarge { .. }) => {
                "This is too large for a page"
            }
            Self::Broken => "This page can't be made",
            Self::Odd(_) | Self::Payloads(PayloadsError::NotAKey(_)) => "This can't be asked",
            Self::NoPage => "There is no such page",
            Self::Payloads(error) if is_link(error) => "These payloads can't be shown",
            Self::Store(_)
            | Self::Payloads(PayloadsError::Fetch(FetchError::Store(_)))
            | Self::Find(FindError::Index(IndexError::List { .. } | IndexError::Fetch { .. })) => {
                "The store does not answer"
            }
            Self::Find(FindError::Index(_)) => "The index can't be read",
            Self::Find(FindError::Ambiguous { .. }) => "This fits several reconciles",
            Self::Missing { .. } | Self::Find(_) => "Nothing was found",
            Self::Payloads(_) => "These payloads can't be shown",
        }
    }

    /// What is wrong.
    pub(super) fn what(&self) -> String {
        match self {
            Self::Misdirected => {
                "The request names a host that is not known to be this viewer's.".to_owned()
            }
            Self::Unknown => "This viewer shows payloads only to who knows its token.".to_owned(),
            Self::TooLong => "An address has at most 4,096 bytes here.".to_owned(),
            Self::TooSlow => "This page could not be prepared within 10 seconds.".to_owned(),
            Self::Busy => "Others are downloading large documents from this viewer.".to_owned(),
            Self::Crowded { .. } => {
                "The sidecar is processing large messages and has no memory left to show these \
                 payloads."
                    .to_owned()
            }
            Self::TooLarge { .. } => {
                "Showing these payloads would take more memory than the viewer may use for one page."
                    .to_owned()
            }
            Self::Broken => "The viewer made a mistake on the way to this page.".to_owned(),
            Self::NoPage => "No page has this address.".to_owned(),
            Self::Odd(what) | Self::Missing { what, .. } => what.clone(),
            Self::Find(error) => with_causes(error),
            Self::Payloads(error) => with_causes(error),
            Self::Store(error) => with_causes(error),
        }
    }

    /// What to do.
    pub(super) fn advice(&self) -> Cow<'static, str> {
        let advice = match self {
            Self::Store(error)
            | Self::Payloads(PayloadsError::Fetch(FetchError::Store(error)))
            | Self::Find(FindError::Index(
                IndexError::List { source: error, .. } | IndexError::Fetch { source: error, .. },
            )) => return format!("What helps: {}.", error.trouble.advice()).into(),
            Self::Misdirected => {
                "Use localhost or the number of the address it listens on, or start it with \
                 --viewer-url and the address that you use."
            }
            Self::Unknown => {
                "Add ?token=… to the address once, or send the header Authorization: Bearer …; it \
                 is the value of --viewer-token."
            }
            Self::TooLong | Self::Odd(_) | Self::NoPage => "Go back to the list of reconciles.",
            Self::TooSlow => "Try again, or narrow what you look for: a kind, a name, a time.",
            Self::Busy => "Try again in a minute.",
            Self::Crowded { .. } => {
                "Try again in a minute, or download the whole document. spanplane view and the \
                 command line on your machine don't share the sidecar's memory."
            }
            Self::TooLarge { .. } => {
                "Open the payloads one part at a time, or download the whole document. The viewer \
                 in the sidecar may use only a small part of the container's memory; spanplane view \
                 and the command line on your machine can show more."
            }
            Self::Broken => {
                "Other pages work. Please report it, with the address and what the viewer's log \
                 says of it; the command line may show what this page would have."
            }
            Self::Missing { advice, .. } => advice,
            Self::Find(FindError::Index(_)) => "Reload the page; what can be read is shown.",
            Self::Find(FindError::Ambiguous { .. }) => "Write more of the id.",
            Self::Find(_) => {
                "It may be older than what the store keeps, or younger than a minute: a reconcile \
                 is listed once its batch of the index is stored."
            }
            Self::Payloads(error) => advice_on(error),
        };
        advice.into()
    }
}

/// Whether it leads out of the store.
fn is_link(error: &PayloadsError) -> bool {
    let PayloadsError::Fetch(FetchError::Store(error)) = error else {
        return false;
    };
    error.trouble == Trouble::SymbolicLink
}

fn advice_on(error: &PayloadsError) -> &'static str {
    match error {
        PayloadsError::Dropped(_) => "What the index says of this reconcile is all that is left.",
        PayloadsError::Queued { .. } => {
            "Try again in a minute. If it stays away, look at spanplane_store_failures_total and \
             the sidecar's log."
        }
        PayloadsError::Gone { .. } => {
            "Objects go by the bucket's lifecycle rules, or on local disk by --retention and \
             --retention-bytes. A younger reconcile of the same XR may hold the same."
        }
        PayloadsError::NotAKey(_) => "A key begins with v1/reconciles/.",
        PayloadsError::TooLarge { .. } => "Download it, or open a part of it.",
        PayloadsError::Fetch(_) | PayloadsError::Open { .. } => {
            "The object is damaged or was written by something else; fetch it from the store as it \
             is."
        }
    }
}

impl Failure {
    /// What can be looked at instead.
    pub(super) fn offers(&self) -> Markup {
        html! {
            @if let Self::TooLarge { key } | Self::Crowded { key } = self {
                p class="offers" {
                    @if matches!(self, Self::TooLarge { .. }) {
                        a class="button" href=(address::open(key, "")) { "Open part by part" }
                        " "
                    }
                    a class="button quiet" href={ (address::raw(key, "")) "&download=yes" } download {
                        "Download the document (JSON)"
                    }
                }
            }
        }
    }
}

impl IntoResponse for Failure {
    fn into_response(self) -> Response {
        let page = Page {
            title: self.title().to_owned(),
            ..Page::default()
        };
        let body = page.render(&html! {
            section class="sorry" {
                h1 { (self.title()) }
                p { (plain(&self.what())) }
                p { (self.advice()) }
                (self.offers())
                @if !matches!(self, Self::Misdirected | Self::Unknown) {
                    p { a class="button" href="/" { "All reconciles" } }
                }
            }
        });
        (self.status(), Html(body.into_string())).into_response()
    }
}
