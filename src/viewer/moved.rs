//! Where the payloads of a part are, once it was merged into the object of its reconcile.
//!
//! Spans keep the key that was right when they were sent. Invariant: a link is only followed to a
//! payload if it is certain which one it is.

use super::open::split_pointer;
use crate::{answers::PayloadsError, archive::Key, line::Line};

/// The key and the pointer of what stood at these, if the index entry of the reconcile tells.
pub(super) fn moved_to(
    error: &PayloadsError,
    key: &Key,
    pointer: &str,
    line: &Line,
) -> Option<(String, String)> {
    let is_gone = matches!(error, PayloadsError::Gone { .. });
    if !is_gone || line.object.key == key.as_str() {
        return None;
    }
    let to = |pointer: String| Some((line.object.key.clone(), pointer));
    if pointer.is_empty() {
        return to(String::new());
    }
    let (payload, below) = split_pointer(pointer);
    let mut segments = payload.split('/').skip(1);
    // Later steps of a part need not follow each other in the whole.
    let ("steps", "0") = (segments.next()?, segments.next()?) else {
        return None;
    };
    // A part's key says when its first step began, to the millisecond.
    let (began, _) = key.began()?;
    let is_first = |at: &&crate::line::LineStep| at.started_at.time_of_day() == began.time_of_day();
    let mut steps = line.steps.iter().filter(is_first);
    let (Some(step), None) = (steps.next(), steps.next()) else {
        return None;
    };
    let payload = match segments.next()? {
        "request" => step.request.as_ref()?,
        "response" => step.response.as_ref()?,
        _ => return None,
    };
    to(format!("{}{below}", payload.pointer))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        line::{PayloadRef, samples},
        time::Timestamp,
    };

    const WHOLE: &str = "v1/reconciles/K.g/_/n/2026-11-16/043646.133-t.json.zst";
    const PART: &str = "v1/reconciles/K.g/_/n/2026-11-16/043648.200-t.json.zst";

    fn line(starts: &[&str]) -> Line {
        let mut line = samples::line("t", samples::at(0));
        line.object.key = WHOLE.to_owned();
        let sample = line.steps.remove(0);
        line.steps = (0..)
            .zip(starts)
            .map(|(place, start)| {
                let mut step = sample.clone();
                step.started_at = Timestamp::parse_rfc3339(start).unwrap();
                step.request = Some(PayloadRef {
                    pointer: format!("/steps/{place}/request"),
                    sha256: String::new(),
                    size: 0,
                    redacted: 0,
                });
                step.response = None;
                step
            })
            .collect();
        line
    }

    fn now(key: &str, pointer: &str, line: &Line) -> Option<(String, String)> {
        let gone = PayloadsError::Gone {
            key: key.to_owned(),
            began: String::new(),
        };
        moved_to(&gone, &Key::parse(key).unwrap(), pointer, line)
    }

    #[test]
    fn the_first_step_of_a_part_is_found_by_its_time() {
        let line = line(&["2026-11-16T04:36:46.133Z", "2026-11-16T04:36:48.2004Z"]);
        let at = |pointer: &str| Some((WHOLE.to_owned(), pointer.to_owned()));
        assert_eq!(now(PART, "", &line), at(""));
        let below = now(PART, "/steps/0/request/meta/tag", &line);
        assert_eq!(below, at("/steps/1/request/meta/tag"));
        for unknown in ["/steps/1/request", "/steps/0/response", "/steps/0", "/x"] {
            assert_eq!(now(PART, unknown, &line), None, "{unknown}");
        }
        // What is gone from its own place has not moved.
        assert_eq!(now(WHOLE, "/steps/0/request", &line), None);
    }

    #[test]
    fn nothing_is_claimed_of_steps_that_began_at_the_same_time() {
        let line = line(&["2026-11-16T04:36:48.2001Z", "2026-11-16T04:36:48.2004Z"]);
        assert_eq!(now(PART, "/steps/0/request", &line), None);
    }
}
