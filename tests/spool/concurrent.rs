//! Many appends at once, followed while they come.

use std::{collections::HashMap, sync::Arc};

use spanplane::{
    bell::Bell,
    disk::LocalDisk,
    metrics::Metrics,
    record::Record,
    spool::{AppendError, Spool, SpoolSettings},
};
use tokio::task::JoinSet;

use crate::home::{PATIENCE, ROOMY, sized};

const TASKS: u32 = 32;
const APPENDS: u32 = 50;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn concurrent_appends_are_each_handed_out_once_and_a_tasks_own_in_order() {
    let data_dir = tempfile::tempdir().unwrap();
    let settings = SpoolSettings {
        data_dir: data_dir.path().to_owned(),
        max_bytes: ROOMY / 8,
        sync: PATIENCE,
        syncs_itself: true,
    };
    let metrics = Metrics::new().unwrap();
    let bell = Arc::new(Bell::default());
    let open = || Spool::open(&settings, Arc::new(LocalDisk), &metrics, Arc::clone(&bell));
    let (spool, mut follower) = open().unwrap();

    let mut tasks = JoinSet::new();
    for task in 0..TASKS {
        let appender = spool.appender();
        tasks.spawn(async move {
            for number in task * APPENDS..(task + 1) * APPENDS {
                appender.append(sized(number, number as usize)).await?;
            }
            Ok::<_, AppendError>(())
        });
    }
    let ringing = Arc::clone(&bell);
    let reader = tokio::task::spawn_blocking(move || {
        let mut records = Vec::new();
        while records.len() < (TASKS * APPENDS) as usize {
            match follower.next_record().unwrap() {
                Some((_, record)) => records.push(record),
                None => ringing.wait(PATIENCE),
            }
        }
        assert_eq!(follower.next_record().unwrap(), None);
        records
    });
    for outcome in tasks.join_all().await {
        outcome.unwrap();
    }
    let handed_out = reader.await.unwrap();
    assert_each_once_in_order(&handed_out);

    // The next process finds them in the same order.
    assert!(spool.close(PATIENCE));
    let (_spool, mut follower) = open().unwrap();
    let again = std::iter::from_fn(|| follower.next_record().unwrap()).map(|(_, record)| record);
    assert!(again.eq(handed_out));
}

fn assert_each_once_in_order(records: &[Record]) {
    assert_eq!(records.len(), (TASKS * APPENDS) as usize);
    let mut next: HashMap<u32, u32> = HashMap::new();
    for record in records {
        let number = u32::try_from(record.message.len()).unwrap();
        assert_eq!(*record, sized(number, number as usize));
        let next = next
            .entry(number / APPENDS)
            .or_insert(number / APPENDS * APPENDS);
        assert_eq!(number, *next);
        *next += 1;
    }
}
