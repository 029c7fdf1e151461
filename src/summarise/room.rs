//! The room that a line has for what payloads say.
//!
//! Invariant: text is charged as JSON writes it, where a byte may take six, so that a line is
//! bounded both in memory and in the index. The room of a line is shared by its steps in their
//! order, so that the same payloads leave the same text out. What is left out is still counted.

use super::json::cut;
use crate::line::{Condition, Requirement, Severity, StepResult};

/// For names of resources in all steps: a dozen full lists.
const NAMES_BYTES: usize = 512 * 1024;
/// For messages, tags and kinds in all steps, apart from names: a flood of these must not take
/// the room of the others.
const MESSAGES_BYTES: usize = 128 * 1024;
/// What a list item takes besides its texts: names of members, quotes, short values.
const ITEM_BYTES: usize = 64;
/// Of the message of a FATAL result for which there is no room.
const LAST_WORDS_BYTES: usize = 64;

/// Bytes that are left.
#[derive(Debug)]
pub(super) struct Room(usize);

impl Room {
    pub(super) const fn of(bytes: usize) -> Self {
        Self(bytes)
    }

    /// Takes the room of an item with these texts; tells whether there was enough.
    pub(super) fn take(&mut self, texts: &[&str]) -> bool {
        let texts: usize = texts.iter().map(|text| json_bytes(text)).sum();
        self.take_bytes(ITEM_BYTES + texts)
    }

    /// The same for a name in a list.
    pub(super) fn take_name(&mut self, name: &str) -> bool {
        self.take_bytes(json_bytes(name))
    }

    fn take_bytes(&mut self, bytes: usize) -> bool {
        let left = self.0.checked_sub(bytes);
        self.0 = left.unwrap_or(self.0);
        left.is_some()
    }
}

/// The room of a line's steps.
#[derive(Debug)]
pub(super) struct StepsRoom {
    pub(super) names: Room,
    messages: Room,
}

impl Default for StepsRoom {
    fn default() -> Self {
        Self {
            names: Room::of(NAMES_BYTES),
            messages: Room::of(MESSAGES_BYTES),
        }
    }
}

impl StepsRoom {
    pub(super) fn fit_text(&mut self, text: Option<String>) -> Option<String> {
        text.filter(|text| self.messages.take(&[text]))
    }

    /// The FATAL ones come first; at least the beginning of one stays.
    pub(super) fn fit_results(&mut self, mut results: Vec<StepResult>) -> Vec<StepResult> {
        let last_words = results.first().and_then(|first| {
            (first.severity == Severity::Fatal).then(|| StepResult {
                severity: Severity::Fatal,
                reason: None,
                message: cut(&first.message, LAST_WORDS_BYTES).to_owned(),
            })
        });
        self.fit(&mut results, |result| {
            [
                result.reason.as_deref().unwrap_or_default(),
                &result.message,
            ]
        });
        if results.is_empty() {
            results.extend(last_words);
        }
        results
    }

    pub(super) fn fit_conditions(&mut self, mut conditions: Vec<Condition>) -> Vec<Condition> {
        self.fit(&mut conditions, |condition| {
            [
                &condition.condition_type,
                &condition.reason,
                condition.message.as_deref().unwrap_or_default(),
            ]
        });
        conditions
    }

    pub(super) fn fit_requirements(
        &mut self,
        mut requirements: Vec<Requirement>,
    ) -> Vec<Requirement> {
        self.fit(&mut requirements, |requirement| {
            [
                &requirement.name,
                &requirement.api_version,
                &requirement.kind,
            ]
        });
        requirements
    }

    /// Cuts a list where there is no more room.
    fn fit<T, const N: usize>(&mut self, items: &mut Vec<T>, texts: fn(&T) -> [&str; N]) {
        let fitting = items
            .iter()
            .take_while(|item| self.messages.take(&texts(item)));
        let fitting = fitting.count();
        items.truncate(fitting);
        items.shrink_to_fit();
    }
}

/// What a text takes in JSON, with its quotes and a comma.
fn json_bytes(text: &str) -> usize {
    let bytes = text.bytes().map(|byte| match byte {
        b'"' | b'\\' => 2,
        ..0x20 => 6,
        _ => 1,
    });
    bytes.sum::<usize>() + 3
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_charged_at_least_as_json_writes_it() {
        for text in ["", "plain é …", "\"\\", "\u{1}\u{1f}\n\t", "\u{7f}\u{2028}"] {
            let written = serde_json::to_string(text).unwrap().len();
            assert!(json_bytes(text) > written, "{text:?}");
        }
    }

    #[test]
    fn what_does_not_fit_takes_no_room() {
        let mut room = Room::of(10);
        assert!(!room.take_name("too long a name"));
        assert!(room.take_name("seven77"));
        assert!(!room.take_name(""));
    }

    #[test]
    fn a_fatal_result_keeps_its_beginning_without_room() {
        let mut room = StepsRoom::default();
        while room.messages.take(&["x"]) {}
        let result = |severity| StepResult {
            severity,
            reason: Some("why".to_owned()),
            message: "it broke ".repeat(100),
        };
        let kept = room.fit_results(vec![result(Severity::Fatal), result(Severity::Fatal)]);
        let [only] = &kept[..] else {
            panic!("{kept:?}")
        };
        assert!(only.message.starts_with("it broke"));
        assert_eq!(only.message.len(), LAST_WORDS_BYTES);
        assert_eq!(room.fit_results(vec![result(Severity::Warning)]), []);
    }
}
