//! Whether all that one tree asks for stands in another: what Crossplane desires of a resource
//! against what is observed of it.
//!
//! Invariant: the same answer as that of `summarise`, which decides it from hashes while messages
//! pass: every leaf of the one stands at the same place in the other, with the same value. Nulls and
//! empty containers are no leaves; Kubernetes drops them.

use super::{
    Change, Json,
    path::{Path, Segment},
};

/// A Secret takes it, turns it into `data`, and never gives it back.
const WRITE_ONLY: &str = "stringData";

/// Where `desired` asks for something that `observed` does not have, with what it asks for and
/// what stands there; the first of these places if there are more.
pub fn missing_from<'j>(
    desired: &'j Json<'j>,
    observed: &'j Json<'j>,
    most: usize,
) -> Vec<Change<'j>> {
    let mut search = Search {
        path: Vec::new(),
        missing: Vec::new(),
        most,
    };
    search.look_for(desired, Some(observed));
    search.missing
}

/// Whether `desired` asks for anything that `observed` does not have.
pub fn is_missing_any(desired: &Json<'_>, observed: &Json<'_>) -> bool {
    !missing_from(desired, observed, 1).is_empty()
}

struct Search<'j> {
    path: Vec<Segment<'j>>,
    missing: Vec<Change<'j>>,
    most: usize,
}

impl<'j> Search<'j> {
    fn look_for(&mut self, desired: &'j Json<'j>, observed: Option<&'j Json<'j>>) {
        if self.missing.len() >= self.most {
            return;
        }
        match desired {
            Json::Object(members) if !members.is_empty() => {
                for (name, value) in members {
                    if self.path.is_empty() && name == WRITE_ONLY {
                        continue;
                    }
                    let observed = observed.and_then(|observed| observed.member(name));
                    self.step(Segment::Member(name.clone()), value, observed);
                }
            }
            Json::List(items) if !items.is_empty() => {
                for (place, item) in items.iter().enumerate() {
                    let observed = observed.and_then(Json::items);
                    let observed = observed.and_then(|items| items.get(place));
                    self.step(Segment::Item(place), item, observed);
                }
            }
            Json::Null | Json::Object(_) | Json::List(_) => {}
            leaf if observed.is_some_and(|observed| is_same(leaf, observed)) => {}
            leaf => self.missing.push(Change {
                path: Path(self.path.clone()),
                before: observed,
                after: Some(leaf),
            }),
        }
    }

    fn step(
        &mut self,
        segment: Segment<'j>,
        desired: &'j Json<'j>,
        observed: Option<&'j Json<'j>>,
    ) {
        self.path.push(segment);
        self.look_for(desired, observed);
        self.path.pop();
    }
}

/// However a number is written.
fn is_same(one: &Json<'_>, other: &Json<'_>) -> bool {
    match (one, other) {
        (Json::Number(one), Json::Number(other)) => one == other || one.as_f64() == other.as_f64(),
        _ => one == other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn missing(desired: &str, observed: &str) -> Vec<String> {
        let [desired, observed] = [desired, observed].map(|text| Json::parse(text).unwrap());
        let missing = missing_from(&desired, &observed, usize::MAX);
        assert_eq!(is_missing_any(&desired, &observed), !missing.is_empty());
        missing
            .iter()
            .map(|change| change.path.to_string())
            .collect()
    }

    #[test]
    fn what_is_desired_has_to_be_there() {
        let observed = r#"{"spec":{"a":1,"b":[1,2]},"status":{}}"#;
        assert!(missing(r#"{"spec":{"a":1.0,"b":[1],"e":null,"f":{}}}"#, observed).is_empty());
        assert_eq!(
            missing(r#"{"spec":{"a":2,"b":[1,3],"c":{"d":1}}}"#, observed),
            ["spec.a", "spec.b[1]", "spec.c.d"]
        );
    }

    #[test]
    fn what_is_never_given_back_is_not_missed() {
        assert!(missing(r#"{"stringData":{"a":"b"}}"#, "{}").is_empty());
        assert_eq!(
            missing(r#"{"spec":{"stringData":1}}"#, "{}"),
            ["spec.stringData"]
        );
    }
}
