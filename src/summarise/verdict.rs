//! How a step ended, and why in a word that stands for few things.
//!
//! Invariant: a type of error is one of a few dozen words, whatever the error says.

use crate::{
    line::{INTERRUPTED, SeverityCounts, Status},
    reconcile::{Step, Unanswered},
};

/// The codes of gRPC, as Go writes them and as we do.
const GRPC_CODES: [(&str, &str); 16] = [
    ("Canceled", "canceled"),
    ("Unknown", "unknown"),
    ("InvalidArgument", "invalid_argument"),
    ("DeadlineExceeded", "deadline_exceeded"),
    ("NotFound", "not_found"),
    ("AlreadyExists", "already_exists"),
    ("PermissionDenied", "permission_denied"),
    ("ResourceExhausted", "resource_exhausted"),
    ("FailedPrecondition", "failed_precondition"),
    ("Aborted", "aborted"),
    ("OutOfRange", "out_of_range"),
    ("Unimplemented", "unimplemented"),
    ("Internal", "internal"),
    ("Unavailable", "unavailable"),
    ("DataLoss", "data_loss"),
    ("Unauthenticated", "unauthenticated"),
];

/// What core says, and the word for it.
const CORE_ERRORS: [(&str, &str); 3] = [
    ("requirements didn't stabilize", "requirements_unstable"),
    ("cannot get gRPC client connection", "no_connection"),
    ("fetching resources", "required_resources"),
];

const CODE: &str = "code = ";

/// How a step with these results ended.
pub(super) fn status_of(step: &Step, results: SeverityCounts) -> Status {
    if !step.error.is_empty() {
        Status::Error
    } else if results.fatal > 0 {
        Status::Fatal
    } else if step.response.is_none() {
        Status::Incomplete
    } else if results.warning > 0 {
        Status::Warning
    } else {
        Status::Ok
    }
}

/// Why a step failed; `None` if it did not.
pub(super) fn error_type(
    step: &Step,
    status: Status,
    unanswered: Option<Unanswered>,
) -> Option<&'static str> {
    match status {
        Status::Ok | Status::Warning => None,
        // That is this program's doing and not the function's.
        Status::Incomplete if unanswered.is_some_and(|it| it.interrupted) => Some(INTERRUPTED),
        Status::Incomplete => Some("no_response"),
        Status::Fatal => Some("fatal"),
        Status::Error => Some(type_of(&step.error)),
    }
}

/// The outermost cause counts: an error may quote what somebody else said.
fn type_of(error: &str) -> &'static str {
    let core = CORE_ERRORS
        .iter()
        .filter_map(|(says, word)| Some((error.find(says)?, *word)));
    let codes = error.match_indices(CODE).filter_map(|(place, _)| {
        let after = error.get(place + CODE.len()..)?;
        let end = after.find(|letter: char| !letter.is_ascii_alphanumeric());
        let name = after.get(..end.unwrap_or(after.len()))?;
        let (_, word) = GRPC_CODES.iter().find(|(code, _)| *code == name)?;
        Some((place, *word))
    });
    let first = core.chain(codes).min_by_key(|(place, _)| *place);
    first.map_or("other", |(_, word)| word)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_of_core_have_a_type() {
        for (error, expected) in [
            (
                r#"cannot run Function "f": rpc error: code = Unavailable desc = try later"#,
                "unavailable",
            ),
            (
                "rpc error: code = ResourceExhausted desc = grpc: received (5 vs. 4)",
                "resource_exhausted",
            ),
            ("rpc error: code = DataLoss", "data_loss"),
            (
                "requirements didn't stabilize after the maximum number of iterations (5)",
                "requirements_unstable",
            ),
            (
                r#"cannot get gRPC client connection for Function "f": nothing"#,
                "no_connection",
            ),
            ("fetching resources for r: cannot get", "required_resources"),
            ("code = OK", "other"),
            ("code = Purple", "other"),
            ("code = ", "other"),
            ("é", "other"),
        ] {
            assert_eq!(type_of(error), expected, "{error}");
        }
    }

    #[test]
    fn what_an_error_quotes_does_not_count() {
        let quoted = "rpc error: code = Unknown desc = fetching resources: code = NotFound";
        assert_eq!(type_of(quoted), "unknown");
        let wrapped = "fetching resources for r: rpc error: code = NotFound desc = x";
        assert_eq!(type_of(wrapped), "required_resources");
    }
}
