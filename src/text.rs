//! Texts for people: cut to size at the border of a character, and without what deceives.

use std::borrow::Cow;

/// What stands where a text was cut.
const CUT: &str = "…";

/// The text, or as much of it as fits into `bytes` with a mark that it was cut.
pub fn cut(text: &str, bytes: usize) -> Cow<'_, str> {
    if text.len() <= bytes {
        return Cow::Borrowed(text);
    }
    let end = text.floor_char_boundary(bytes.saturating_sub(CUT.len()));
    Cow::Owned(format!("{}{CUT}", text.get(..end).unwrap_or_default()))
}

/// The same as a text of its own.
pub fn cut_text(text: &str, bytes: usize) -> String {
    cut(text, bytes).into_owned()
}

/// Shows as itself, and nothing else happens: neither obeyed by a terminal, nor a line end, nor what
/// turns text around or hides in it.
pub fn is_showable(character: char) -> bool {
    !character.is_control()
        && !matches!(
            character,
            '\u{61c}'
                | '\u{200b}'
                | '\u{200e}'..='\u{200f}'
                | '\u{2028}'..='\u{202e}'
                | '\u{2060}'..='\u{2069}'
                | '\u{feff}'
                | '\u{fff9}'..='\u{ffff}'
        )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_is_cut_between_characters() {
        assert_eq!(cut_text("short", 5), "short");
        assert_eq!(cut_text("longer", 5), "lo…");
        assert_eq!(cut_text("ééé", 5), "é…");
        assert_eq!(cut_text("abc", 0), "…");
    }
}
