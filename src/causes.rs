//! An error with its causes, for people. Pure.

use std::error::Error;

/// An error with its causes, on one line. One that repeats what is behind it is left out.
pub fn with_causes(error: &(dyn Error + 'static)) -> String {
    let causes: Vec<_> = chain(error).map(ToString::to_string).collect();
    let is_repeated = |place: usize, cause: &String| {
        let behind = causes.iter().skip(place + 1);
        behind
            .into_iter()
            .any(|other| cause.contains(other.as_str()))
    };
    let told = causes.iter().enumerate();
    let told = told.filter(|(place, cause)| !is_repeated(*place, cause));
    let told: Vec<_> = told.map(|(_, cause)| without_xml(cause)).collect();
    told.join(": ").replace(['\n', '\r'], " ")
}

/// What an S3 server says, without the form in which it says so.
fn without_xml(cause: &str) -> String {
    let Some((before, xml)) = cause.split_once("<?xml") else {
        return cause.to_owned();
    };
    let element = |name: &str| {
        let (_, rest) = xml.split_once(&format!("<{name}>"))?;
        Some(rest.split_once(&format!("</{name}>"))?.0)
    };
    match (element("Code"), element("Message")) {
        (Some(code), Some(message)) => format!("{before}{code}: {message}"),
        _ => cause.to_owned(),
    }
}

fn chain<'e>(error: &'e (dyn Error + 'static)) -> impl Iterator<Item = &'e (dyn Error + 'static)> {
    std::iter::successors(Some(error), |error| (*error).source())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, thiserror::Error)]
    #[error("{0}")]
    struct Said(&'static str, #[source] Option<Box<Said>>);

    #[test]
    fn a_cause_is_told_once() {
        let root = Said(
            "404 Not Found: <?xml version=\"1.0\"?>\n<Error><Code>NoSuchBucket</Code><Message>There \
             is none</Message></Error>",
            None,
        );
        let Said(words, _) = root;
        let around: &'static str = format!("request failed: {words}").leak();
        let error = Said(
            "cannot list",
            Some(Box::new(Said(around, Some(Box::new(root))))),
        );
        assert_eq!(
            with_causes(&error),
            "cannot list: 404 Not Found: NoSuchBucket: There is none"
        );
    }
}
