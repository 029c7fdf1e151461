//! Addresses of pages, and what a request's query says.
//!
//! Invariant: whatever a name holds, an address leads to the page it was made for and nowhere
//! else; all but unreserved characters are encoded.

use std::fmt::Write as _;

use url::form_urlencoded;

use super::words::kind_and_group;
use crate::line::Line;

/// A longer name has no page of its own: there is a limit to addresses.
const MAX_NAME_BYTES: usize = 1024;

/// What stands for the namespace of a subject that has none.
pub(super) const NO_NAMESPACE: &str = "_";

/// As a part of a path or a query.
pub(super) fn encode(text: &str) -> String {
    let mut encoded = String::with_capacity(text.len());
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            encoded.push(char::from(byte));
        } else {
            // Writing to a text can't fail.
            write!(encoded, "%{byte:02X}").unwrap_or_default();
        }
    }
    encoded
}

/// A reconcile.
pub(super) fn trace(id: &str) -> String {
    format!("/trace/{}", encode(id))
}

/// A step of a reconcile, by its place.
pub(super) fn step(id: &str, place: usize) -> String {
    format!("/trace/{}/step/{place}", encode(id))
}

/// What a step did to a resource; an empty name is the composite.
pub(super) fn change(id: &str, place: usize, resource: &str) -> String {
    if resource.len() > MAX_NAME_BYTES {
        return step(id, place);
    }
    format!("{}?resource={}", step(id, place), encode(resource))
}

/// The story of a resource; an empty name is the composite.
pub(super) fn story(id: &str, resource: &str) -> String {
    if resource.len() > MAX_NAME_BYTES {
        return trace(id);
    }
    format!("/trace/{}/resource?name={}", encode(id), encode(resource))
}

/// The resources of a reconcile that are like this one.
pub(super) fn alike(id: &str, params: &Params, resource: &str) -> String {
    if resource.len() > MAX_NAME_BYTES {
        return trace(id);
    }
    params.with(&trace(id), "like", resource)
}

/// What differs from the reconcile before.
pub(super) fn changes(id: &str) -> String {
    format!("/trace/{}/changes", encode(id))
}

/// The history of a subject.
pub(super) fn history(line: &Line) -> String {
    let namespace = match line.subject.namespace.as_str() {
        "" => NO_NAMESPACE,
        namespace => namespace,
    };
    let [kind, namespace, name] =
        [&kind_and_group(line), namespace, &line.subject.name].map(encode);
    format!("/xr/{kind}/{namespace}/{name}")
}

/// The history of one of its resources; an empty name is the composite.
pub(super) fn history_of(line: &Line, resource: &str) -> String {
    format!("{}?resource={}", history(line), encode(resource))
}

/// A payload, or a part of it, on a page.
pub(super) fn open(key: &str, pointer: &str) -> String {
    format!("/open?{}", place(key, pointer))
}

/// A payload, or a part of it, as JSON.
pub(super) fn raw(key: &str, pointer: &str) -> String {
    format!("/raw?{}", place(key, pointer))
}

/// The object itself, by way of an address that the store signs.
pub(super) fn signed(key: &str) -> String {
    format!("/open/signed?key={}", readable(key))
}

fn place(key: &str, pointer: &str) -> String {
    format!("key={}&pointer={}", readable(key), readable(pointer))
}

/// As a value in a query, where `/` and `=` may stand as they are.
fn readable(text: &str) -> String {
    encode(text).replace("%2F", "/").replace("%3D", "=")
}

/// One more step down a JSON pointer.
pub(super) fn below(pointer: &str, name: &str) -> String {
    format!("{pointer}/{}", name.replace('~', "~0").replace('/', "~1"))
}

/// What a query says.
#[derive(Clone, Debug, Default)]
pub(super) struct Params(Vec<(String, String)>);

impl Params {
    pub(super) fn parse(query: Option<&str>) -> Self {
        let pairs = form_urlencoded::parse(query.unwrap_or_default().as_bytes());
        Self(pairs.into_owned().collect())
    }

    /// As it stands there.
    pub(super) fn raw(&self, name: &str) -> Option<&str> {
        let found = self.0.iter().find(|(other, _)| other == name);
        found.map(|(_, value)| value.as_str())
    }

    /// Without blanks around it; `None` if nothing is left.
    pub(super) fn text(&self, name: &str) -> Option<&str> {
        self.raw(name)
            .map(str::trim)
            .filter(|text| !text.is_empty())
    }

    /// Every value of a name that may stand there several times, or hold several with commas
    /// between.
    pub(super) fn several(&self, name: &str) -> impl Iterator<Item = &str> {
        let found = self.0.iter().filter(move |(other, _)| other == name);
        let values = found.flat_map(|(_, values)| values.split(','));
        values.map(str::trim).filter(|value| !value.is_empty())
    }

    pub(super) fn number(&self, name: &str) -> Option<usize> {
        self.text(name)?.parse().ok()
    }

    /// The same query without some of it.
    pub(super) fn without(&self, names: &[&str]) -> String {
        let kept = self
            .0
            .iter()
            .filter(|(name, value)| !names.contains(&name.as_str()) && !value.is_empty());
        let pairs: Vec<_> = kept
            .map(|(name, value)| format!("{}={}", encode(name), readable(value)))
            .collect();
        pairs.join("&")
    }

    /// An address with the same query, but for this.
    pub(super) fn with(&self, path: &str, name: &str, value: &str) -> String {
        let rest = self.without(&[name]);
        let pair = if value.is_empty() {
            String::new()
        } else {
            format!("{}={}", encode(name), readable(value))
        };
        let pairs: Vec<_> = [rest, pair].into_iter().filter(|p| !p.is_empty()).collect();
        if pairs.is_empty() {
            return path.to_owned();
        }
        format!("{path}?{}", pairs.join("&"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_can_hold_anything() {
        assert_eq!(
            change("a/b", 1, "x y&z"),
            "/trace/a%2Fb/step/1?resource=x%20y%26z"
        );
        assert_eq!(
            open("v1/a=b/c", "/steps/2/request"),
            "/open?key=v1/a=b/c&pointer=/steps/2/request"
        );
        assert_eq!(below("/a", "b/c~"), "/a/b~1c~0");
    }

    #[test]
    fn a_query_is_changed_in_one_place() {
        let params = Params::parse(Some("kind=Network&name=&until=1&q=a%20b"));
        assert_eq!(
            params.with("/", "until", "2"),
            "/?kind=Network&q=a%20b&until=2"
        );
        assert_eq!(Params::parse(Some("until=1")).with("/", "until", ""), "/");
        assert_eq!((params.text("q"), params.text("name")), (Some("a b"), None));
        assert_eq!(params.raw("name"), Some(""));
        let params = Params::parse(Some("a=1&b=2&a=&a=3,+4,"));
        assert_eq!(params.several("a").collect::<Vec<_>>(), ["1", "3", "4"]);
    }
}
