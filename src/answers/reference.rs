//! What people call reconciles and subjects. Pure.

use std::{fmt, str::FromStr};

use crate::archive::SubjectFilter;

/// How people call a reconcile.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Reference {
    /// The newest of all.
    Last,
    /// The newest of a subject.
    Subject(SubjectName),
    /// The beginning of its trace id.
    Trace(String),
}

/// How people call a subject: `Network/prod-net`, `network.platform.example.org/prod-net`.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct SubjectName {
    pub kind: String,
    /// `None` for any.
    pub group: Option<String>,
    /// `None` for all of the kind.
    pub name: Option<String>,
}

impl FromStr for Reference {
    type Err = std::convert::Infallible;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Ok(match text {
            "last" => Self::Last,
            _ if text.contains('/') => Self::Subject(SubjectName::parse(text)),
            _ => Self::Trace(text.to_owned()),
        })
    }
}

impl Reference {
    /// Whether it may be an id as Crossplane makes them, and not the name of a kind.
    pub fn is_like_an_id(&self) -> bool {
        match self {
            Self::Trace(text) => text.chars().all(|c| c.is_ascii_hexdigit() || c == '-'),
            Self::Last | Self::Subject(_) => false,
        }
    }
}

impl SubjectName {
    /// `KIND`, `KIND/NAME`, either with `.group` behind the kind.
    pub fn parse(text: &str) -> Self {
        let (kind, name) = match text.split_once('/') {
            Some((kind, name)) => (kind, Some(name)),
            None => (text, None),
        };
        let (kind, group) = match kind.split_once('.') {
            Some((kind, group)) => (kind, Some(group)),
            None => (kind, None),
        };
        Self {
            kind: kind.to_owned(),
            group: group.map(str::to_owned),
            name: name.filter(|name| !name.is_empty()).map(str::to_owned),
        }
    }

    pub fn filter(&self, namespace: Option<String>) -> SubjectFilter {
        SubjectFilter {
            kind: Some(self.kind.clone()),
            group: self.group.clone(),
            namespace,
            name: self.name.clone(),
            uid: None,
        }
    }
}

impl fmt::Display for SubjectName {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&self.kind)?;
        if let Some(group) = &self.group {
            write!(out, ".{group}")?;
        }
        if let Some(name) = &self.name {
            write!(out, "/{name}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn people_say_what_they_mean() {
        let reference = |text: &str| text.parse::<Reference>().unwrap();
        assert_eq!(reference("last"), Reference::Last);
        assert_eq!(reference("784cb8b6"), Reference::Trace("784cb8b6".into()));
        let subject = |kind: &str, group: Option<&str>, name: Option<&str>| SubjectName {
            kind: kind.into(),
            group: group.map(str::to_owned),
            name: name.map(str::to_owned),
        };
        assert_eq!(
            reference("Network/prod-net"),
            Reference::Subject(subject("Network", None, Some("prod-net")))
        );
        assert_eq!(
            SubjectName::parse("network.platform.example.org/x"),
            subject("network", Some("platform.example.org"), Some("x"))
        );
        assert_eq!(
            SubjectName::parse("Network"),
            subject("Network", None, None)
        );
    }
}
