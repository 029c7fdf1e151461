//! Attributes within the limits that backends set.
//!
//! Invariant: at most [`MAX_ATTRIBUTES`] on a span and [`MAX_EVENT_ATTRIBUTES`] on an event, the
//! first ones that were added; a value for searching within [`MAX_TERM_BYTES`], any other within
//! [`MAX_VALUE_BYTES`], a list counted with [`ELEMENT_OVERHEAD`] an element. A cut is never within
//! a character.

use opentelemetry_proto::tonic::common::v1::{AnyValue, ArrayValue, KeyValue, any_value::Value};

use crate::text::cut;

/// On a span.
const MAX_ATTRIBUTES: usize = 32;
/// On an event.
const MAX_EVENT_ATTRIBUTES: usize = 8;
/// Tempo cuts at 2,048 bytes, and doesn't say so.
const MAX_VALUE_BYTES: usize = 2047;
/// Jaeger's index ignores values of 256 bytes and more.
const MAX_TERM_BYTES: usize = 255;
/// What an element costs where a list is written as JSON: two quotes and a comma.
const ELEMENT_OVERHEAD: usize = 3;

/// A list on its way onto a span or an event; the most important goes first.
#[derive(Debug)]
pub(super) struct Attributes {
    limit: usize,
    kept: Vec<KeyValue>,
    dropped: u32,
}

impl Attributes {
    pub(super) fn of_span() -> Self {
        Self::up_to(MAX_ATTRIBUTES)
    }

    pub(super) fn of_event() -> Self {
        Self::up_to(MAX_EVENT_ATTRIBUTES)
    }

    fn up_to(limit: usize) -> Self {
        Self {
            limit,
            kept: Vec::with_capacity(limit),
            dropped: 0,
        }
    }

    /// What is kept, and how many are not.
    pub(super) fn finish(self) -> (Vec<KeyValue>, u32) {
        (self.kept, self.dropped)
    }

    /// A word to search for: a name, a kind, an id, a status. Left out if empty.
    pub(super) fn term(&mut self, key: &'static str, term: &str) {
        self.text_within(key, term, MAX_TERM_BYTES);
    }

    /// A text to read. Left out if empty.
    pub(super) fn text(&mut self, key: &'static str, text: &str) {
        self.text_within(key, text, MAX_VALUE_BYTES);
    }

    /// A text that is cut at `limit`. Left out if empty.
    pub(super) fn text_within(&mut self, key: &'static str, text: &str, limit: usize) {
        if !text.is_empty() {
            let text = cut(text, limit.min(MAX_VALUE_BYTES)).into_owned();
            self.add(key, Value::StringValue(text));
        }
    }

    /// A text that means nothing if it is cut, such as an address. Left out if empty or too long.
    pub(super) fn whole(&mut self, key: &'static str, text: &str) {
        if text.len() <= MAX_VALUE_BYTES {
            self.text(key, text);
        }
    }

    /// [`Self::whole`] of a word to search for.
    pub(super) fn whole_term(&mut self, key: &'static str, term: &str) {
        if term.len() <= MAX_TERM_BYTES {
            self.term(key, term);
        }
    }

    pub(super) fn flag(&mut self, key: &'static str, flag: bool) {
        self.add(key, Value::BoolValue(flag));
    }

    pub(super) fn int(&mut self, key: &'static str, number: i64) {
        self.add(key, Value::IntValue(number));
    }

    pub(super) fn size(&mut self, key: &'static str, size: u64) {
        self.int(key, i64::try_from(size).unwrap_or(i64::MAX));
    }

    /// How many there are. Left out if there are none.
    pub(super) fn count(&mut self, key: &'static str, count: u64) {
        if count > 0 {
            self.size(key, count);
        }
    }

    /// Left out if it is no number: neither JSON nor a search knows such a value.
    pub(super) fn double(&mut self, key: &'static str, number: f64) {
        if number.is_finite() {
            self.add(key, Value::DoubleValue(number));
        }
    }

    /// As many elements as there is room for, in their order. Left out if there are none.
    pub(super) fn list<S: AsRef<str>>(
        &mut self,
        key: &'static str,
        elements: impl IntoIterator<Item = S>,
    ) {
        let values = fitting(elements);
        if !values.is_empty() {
            self.add(key, Value::ArrayValue(ArrayValue { values }));
        }
    }

    /// A list beside the count of what it was before the line cut it.
    pub(super) fn counted_list<S: AsRef<str>>(
        &mut self,
        count_key: &'static str,
        count: u64,
        key: &'static str,
        elements: impl ExactSizeIterator<Item = S>,
    ) {
        // Lines of before there were counts have the names alone.
        self.count(count_key, count.max(elements.len() as u64));
        self.list(key, elements);
    }

    /// A list whose count is worth an attribute only where the list is cut.
    pub(super) fn list_or_count<S: AsRef<str>>(
        &mut self,
        key: &'static str,
        count_key: &'static str,
        elements: impl ExactSizeIterator<Item = S>,
    ) {
        let count = elements.len();
        let values = fitting(elements);
        if values.len() < count {
            self.count(count_key, count as u64);
        }
        if !values.is_empty() {
            self.add(key, Value::ArrayValue(ArrayValue { values }));
        }
    }

    fn add(&mut self, key: &'static str, value: Value) {
        if self.kept.len() == self.limit {
            self.dropped = self.dropped.saturating_add(1);
            return;
        }
        self.kept.push(KeyValue {
            key: key.to_owned(),
            value: Some(AnyValue { value: Some(value) }),
            ..KeyValue::default()
        });
    }
}

fn fitting<S: AsRef<str>>(elements: impl IntoIterator<Item = S>) -> Vec<AnyValue> {
    let mut values = Vec::new();
    let mut room = MAX_VALUE_BYTES;
    for element in elements {
        let element = cut(element.as_ref(), MAX_TERM_BYTES);
        let Some(rest) = room.checked_sub(element.len() + ELEMENT_OVERHEAD) else {
            break;
        };
        room = rest;
        values.push(AnyValue {
            value: Some(Value::StringValue(element.into_owned())),
        });
    }
    values
}

/// At most `limit` bytes of a text, a space for every control character.
pub(super) fn one_line(text: &str, limit: usize) -> String {
    let visible = |character: char| {
        if character.is_control() {
            ' '
        } else {
            character
        }
    };
    // NOTE: cut first, so that a megabyte is not copied for the sake of a line. What replaces a
    // character is never longer.
    cut(text, limit).chars().map(visible).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text_of(value: &AnyValue) -> Option<&str> {
        match &value.value {
            Some(Value::StringValue(text)) => Some(text),
            _ => None,
        }
    }

    fn strings(attribute: &KeyValue) -> Vec<&str> {
        match attribute.value.as_ref().and_then(|any| any.value.as_ref()) {
            Some(Value::ArrayValue(array)) => array.values.iter().filter_map(text_of).collect(),
            _ => Vec::new(),
        }
    }

    #[test]
    fn a_cut_is_never_within_a_character() {
        assert_eq!(cut("short", 5), "short");
        assert_eq!(cut("longer", 5), "lo…");
        assert_eq!(cut("ééé", 5), "é…");
        assert_eq!(cut("日本語", 5), "…");
        assert_eq!(cut("日本語", 6), "日…");
    }

    #[test]
    fn the_last_ones_go_where_there_are_too_many() {
        let mut attributes = Attributes::of_event();
        for key in ["a", "b", "c", "d", "e", "f", "g", "h", "i", "j"] {
            attributes.flag(key, true);
        }
        let (kept, dropped) = attributes.finish();
        let keys: String = kept
            .iter()
            .map(|attribute| attribute.key.as_str())
            .collect();
        assert_eq!((keys.as_str(), dropped), ("abcdefgh", 2));
    }

    #[test]
    fn nothing_is_said_of_nothing() {
        let mut attributes = Attributes::of_span();
        attributes.term("k", "");
        attributes.text("k", "");
        attributes.count("k", 0);
        attributes.double("k", f64::NAN);
        attributes.list("k", Vec::<String>::new());
        attributes.list_or_count("k", "k.count", [""; 0].iter());
        attributes.whole("k", &"x".repeat(MAX_VALUE_BYTES + 1));
        attributes.whole_term("k", &"x".repeat(MAX_TERM_BYTES + 1));
        assert_eq!(attributes.finish(), (vec![], 0));
    }

    #[test]
    fn a_list_is_cut_between_elements() {
        let names = vec!["x".repeat(100); 30];
        let mut attributes = Attributes::of_span();
        attributes.list_or_count("names", "names.count", names.iter());
        attributes.list_or_count("few", "few.count", names.iter().take(2));
        let (kept, _) = attributes.finish();
        let keys: Vec<_> = kept
            .iter()
            .map(|attribute| attribute.key.as_str())
            .collect();
        assert_eq!(keys, ["names.count", "names", "few"]);
        assert_eq!(strings(&kept[1]), vec!["x".repeat(100); 19]);
    }

    #[test]
    fn a_line_stays_one_line() {
        assert_eq!(one_line("a\n\u{1b}[31mb\u{85}", 20), "a  [31mb ");
    }
}
