//! Values on one line, cut to the room that there is. Pure.

use spanplane::json::{Json, Scalar, scalar};

use super::row::columns;

/// What is shown of two long values before they differ.
const AHEAD: usize = 6;

/// A value on one line.
pub(crate) fn show_value(value: &Json<'_>) -> String {
    match value {
        Json::List(_) | Json::Object(_) if !value.is_empty() => as_json(value),
        _ => match scalar(value) {
            Scalar::Line(_, text) => text.into_owned(),
            Scalar::Block(..) => as_json(value),
        },
    }
}

/// A text, or its beginning.
pub(crate) fn cut(text: String, room: Option<usize>) -> String {
    match room {
        Some(room) if columns(&text) > room => {
            let kept: String = text.chars().take(room.saturating_sub(1)).collect();
            format!("{kept}…")
        }
        _ => text,
    }
}

/// Two texts from shortly before where they differ, if one of them has to be cut.
pub(crate) fn cut_both(one: String, other: String, room: Option<usize>) -> [String; 2] {
    let is_long = |text: &String| room.is_some_and(|room| columns(text) > room);
    if !is_long(&one) && !is_long(&other) {
        return [one, other];
    }
    let same = one.chars().zip(other.chars());
    let same = same.take_while(|(one, other)| one == other).count();
    let skipped = same.saturating_sub(AHEAD);
    [one, other].map(|text| {
        if skipped == 0 {
            return cut(text, room);
        }
        let kept: String = text.chars().skip(skipped).collect();
        cut(format!("…{kept}"), room)
    })
}

fn as_json(value: &Json<'_>) -> String {
    serde_json::to_string(value).unwrap_or_default()
}
