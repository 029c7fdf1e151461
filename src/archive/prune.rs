//! Keeps a store on local disk within its limits, by age and by size. Buckets have rules of their
//! own for that.
//!
//! Invariant: the oldest go first, and whoever links to an object that is gone is told.

use std::{collections::HashSet, time::Duration};

use super::{Archive, Key, StoreError};
use crate::time::Timestamp;

/// What a store on local disk may hold.
#[derive(Clone, Copy, Debug, Default)]
pub struct Retention {
    pub age: Option<Duration>,
    pub bytes: Option<u64>,
}

/// Removes what is too old or too much, and returns what was removed.
pub async fn prune(
    archive: &Archive,
    retention: Retention,
    now: Timestamp,
) -> Result<HashSet<Key>, StoreError> {
    if retention.age.is_none() && retention.bytes.is_none() {
        return Ok(HashSet::new());
    }
    let objects = archive.list().await?;
    let mut removed = HashSet::new();
    for key in choose(objects, retention, now) {
        archive.delete(&key).await?;
        removed.insert(key);
    }
    Ok(removed)
}

fn choose(
    mut objects: Vec<(Key, u64, Timestamp)>,
    retention: Retention,
    now: Timestamp,
) -> Vec<Key> {
    objects.sort_unstable_by_key(|(_, _, stored_at)| *stored_at);
    let mut total: u64 = objects.iter().map(|(_, size, _)| size).sum();
    let mut chosen = Vec::new();
    for (key, size, stored_at) in objects {
        let too_old = retention.age.is_some_and(|age| now.since(stored_at) > age);
        let too_much = retention.bytes.is_some_and(|bytes| total > bytes);
        if !too_old && !too_much {
            break;
        }
        total -= size;
        chosen.push(key);
    }
    chosen
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chosen(retention: Retention) -> Vec<String> {
        let object = |name: &str, size, seconds| {
            let key = Key::of_stored(&format!("v1/reconciles/{name}")).unwrap();
            (key, size, Timestamp::from_parts(seconds, 0).unwrap())
        };
        let objects = vec![
            object("new", 10, 300),
            object("old", 10, 100),
            object("mid", 10, 200),
        ];
        let now = Timestamp::from_parts(301, 0).unwrap();
        let keys = choose(objects, retention, now);
        keys.iter()
            .map(|key| key.as_str().rsplit('/').next().unwrap().to_owned())
            .collect()
    }

    #[test]
    fn the_oldest_go_first_by_age_and_by_size() {
        let age = Some(Duration::from_secs(150));
        assert_eq!(chosen(Retention { age, bytes: None }), ["old"]);
        assert_eq!(
            chosen(Retention {
                age: None,
                bytes: Some(15)
            }),
            ["old", "mid"]
        );
        assert_eq!(
            chosen(Retention {
                age,
                bytes: Some(5)
            }),
            ["old", "mid", "new"]
        );
        assert_eq!(
            chosen(Retention {
                age: None,
                bytes: Some(30)
            }),
            [""; 0]
        );
    }
}
