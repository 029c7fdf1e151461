//! How much of a page each part of a tree gets. Pure.

use super::TEXT_BYTES;
use crate::json::Json;

/// Bytes that count as a line of their own.
const LINE_BYTES: usize = 128;

/// How many lines a value takes; no more than `limit` are counted.
pub(super) fn cost(value: &Json<'_>, limit: usize) -> usize {
    let mut lines = match value {
        Json::Text(text) => 1 + text.len().min(TEXT_BYTES) / LINE_BYTES,
        _ => 1,
    };
    let mut add = |child: &Json<'_>| {
        lines += cost(child, limit.saturating_sub(lines));
        lines < limit
    };
    match value {
        Json::Object(members) => {
            members.iter().all(|(_, value)| add(value));
        }
        Json::List(items) => {
            items.iter().all(add);
        }
        _ => {}
    }
    lines
}

/// The most that each may take so that all together take no more than there is: who needs less
/// leaves the rest to the others.
pub(super) fn fair_share(mut costs: Vec<usize>, lines: usize) -> usize {
    costs.sort_unstable();
    let mut left = lines;
    for (place, cost) in costs.iter().enumerate() {
        let share = left / (costs.len() - place);
        if *cost > share {
            return share;
        }
        left -= cost;
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_needs_little_leaves_the_rest() {
        assert_eq!(fair_share(vec![1, 100, 1], 50), 48);
        assert_eq!(fair_share(vec![10, 10], 50), 50);
        assert_eq!(fair_share(vec![100, 100], 50), 25);
        assert_eq!(fair_share(Vec::new(), 50), 50);
    }

    #[test]
    fn costs_are_counted_no_further_than_needed() {
        let json = Json::parse(r#"{"a":[1,2,3],"b":{"c":"d"}}"#).unwrap();
        assert_eq!(cost(&json, 100), 7);
        assert!((4..=5).contains(&cost(&json, 4)));
        let long = Json::Text("x".repeat(1 << 20).into());
        assert_eq!(cost(&long, 100), 1 + TEXT_BYTES / LINE_BYTES);
    }
}
