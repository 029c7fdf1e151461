//! go-yaml's order of keys: natural, so that `a2` stands before `a10`.
//!
//! Invariant: the sort ends and loses no key, whatever the order says. That order has cycles (`a12`
//! < `a1b` < `a2` < `a12`): there go-yaml prints any order, by the chance of Go's map iteration,
//! and this one prints the same each time.
//!
//! Must not know: what the keys stand for.

use std::iter;
use std::str::Chars;

/// Sorts by merging, since `sort_by` may panic on an order with cycles.
pub(super) fn sort_naturally<V>(mut members: Vec<(&String, V)>) -> Vec<(&String, V)> {
    if members.len() < 2 {
        return members;
    }
    let right = members.split_off(members.len() / 2);
    let mut left = sort_naturally(members).into_iter().peekable();
    let mut right = sort_naturally(right).into_iter().peekable();
    let mut merged = Vec::with_capacity(left.len() + right.len());
    while let (Some((left_key, _)), Some((right_key, _))) = (left.peek(), right.peek()) {
        let smaller = if precedes(right_key, left_key) {
            right.next()
        } else {
            left.next()
        };
        merged.extend(smaller);
    }
    merged.extend(left.chain(right));
    merged
}

/// At the first difference letters follow all else, and digits compare as the number they start.
fn precedes(left: &str, right: &str) -> bool {
    let mut left_rest = left.chars();
    let mut right_rest = right.chars();
    let mut in_number = false;
    loop {
        match (left_rest.next(), right_rest.next()) {
            (Some(left), Some(right)) if left == right => {
                in_number = left.is_ascii_digit() && (in_number || left != '0');
            }
            (Some(left), Some(right)) => {
                return match (is_letter(left), is_letter(right)) {
                    (true, true) => left < right,
                    (false, false) => {
                        // A zero counts only inside of a number that has begun.
                        let seed = i64::from(in_number && (left == '0' || right == '0'));
                        let left_number = read_number(seed, left, left_rest);
                        let right_number = read_number(seed, right, right_rest);
                        (left_number, left) < (right_number, right)
                    }
                    (_, right_is_letter) => right_is_letter,
                };
            }
            (left, right) => return left.is_none() && right.is_some(),
        }
    }
}

/// The number that starts here and its length; past 64 bits it wraps, as in Go.
fn read_number(seed: i64, first: char, rest: Chars<'_>) -> (i64, usize) {
    let digits = iter::once(first).chain(rest).map_while(|c| c.to_digit(10));
    digits.fold((seed, 0), |(number, length), digit| {
        (
            number.wrapping_mul(10).wrapping_add(digit.into()),
            length + 1,
        )
    })
}

/// Go's letters are Unicode's category L. Rust's alphabetic characters are those and numerals such
/// as `Ⅷ`, enclosed letters such as `Ⓐ` and vowel signs. Only a table could tell the signs apart: of
/// two keys that first differ in one, the wrong one may come first.
fn is_letter(character: char) -> bool {
    let is_enclosed = matches!(character, 'Ⓐ'..='ⓩ' | '\u{1f130}'..='\u{1f189}');
    character.is_alphabetic() && !character.is_numeric() && !is_enclosed
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_in_a_cycle_are_all_kept() {
        let keys = ["a12", "a1b", "a2"].map(String::from);
        let sorted = sort_naturally(keys.iter().map(|key| (key, ())).collect());
        assert!(keys.iter().all(|key| sorted.contains(&(key, ()))));
        assert_eq!(sorted.len(), keys.len());
    }
}
