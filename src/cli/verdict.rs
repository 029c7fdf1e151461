//! How a comparison ended, and with which code. Pure.

use std::process::ExitCode;

use spanplane::answers::ResourceChange;

use super::TROUBLE;

/// How a comparison ended.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Verdict {
    Same,
    Differs,
    /// Nothing differs in what is known, and not everything is.
    Unknown,
}

impl Verdict {
    /// Of all parts that were compared; `None` is what can't be.
    pub(crate) fn of<'c>(
        changes: impl Iterator<Item = Option<&'c Vec<ResourceChange<'c>>>>,
    ) -> Self {
        changes.fold(Self::Same, |verdict, changes| match (verdict, changes) {
            (Self::Differs, _) => Self::Differs,
            (_, Some(changes)) if !changes.is_empty() => Self::Differs,
            (_, None) => Self::Unknown,
            (verdict, Some(_)) => verdict,
        })
    }

    pub(crate) fn code(self) -> ExitCode {
        match self {
            Self::Same => ExitCode::SUCCESS,
            Self::Differs => ExitCode::FAILURE,
            Self::Unknown => ExitCode::from(TROUBLE),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_known_is_not_the_same() {
        let same = Vec::new();
        let of = |parts: [Option<&Vec<ResourceChange<'_>>>; 2]| Verdict::of(parts.into_iter());
        assert_eq!(of([Some(&same), Some(&same)]), Verdict::Same);
        assert_eq!(of([None, Some(&same)]), Verdict::Unknown);
        assert_eq!(of([Some(&same), None]), Verdict::Unknown);
    }
}
