//! Whatever is written in whatever order, and however often a writer dies, is read back.

use std::{collections::BTreeMap, fs, path::PathBuf};

use proptest::{collection::vec, prelude::*};
use tokio::runtime::Runtime;

use super::*;

/// What happens to one of two writers.
#[derive(Clone, Debug)]
enum Act {
    /// A trace, when it began, how many steps, which revision.
    Append(u8, i64, usize, u32),
    /// One of the lines before, as after a crash.
    AppendAgain(prop::sample::Index),
    Wait(i64),
    Store,
    /// The store took it, and nobody noticed.
    StoreAndDie,
    Die,
}

fn act() -> impl Strategy<Value = Act> {
    // Mostly in one hour, sometimes in one of six.
    let begun = prop_oneof![3 => 0..3_600_i64, 1 => 0..21_600_i64];
    prop_oneof![
        12 => (any::<u8>(), begun, 1..4_usize, 0..3_u32)
            .prop_map(|(trace, at, steps, revision)| Act::Append(trace % 40, at, steps, revision)),
        2 => any::<prop::sample::Index>().prop_map(Act::AppendAgain),
        2 => (1..90_i64).prop_map(Act::Wait),
        2 => Just(Act::Store),
        1 => Just(Act::StoreAndDie),
        1 => Just(Act::Die),
    ]
}

/// Everything that was written, with what sorts it by when that was.
#[derive(Debug, Default)]
struct Model(Vec<((i64, usize), Line)>);

impl Model {
    /// What a reader gives.
    fn expected(&self) -> Vec<Line> {
        let mut traces: BTreeMap<_, Vec<_>> = BTreeMap::new();
        for (written, line) in &self.0 {
            let trace = (Partition::of(line.started_at), line.trace_id.as_str());
            traces.entry(trace).or_default().push((*written, line));
        }
        let mut given = Vec::new();
        for lines in traces.into_values() {
            let rank = |(written, line): &(_, &Line)| (line.revision, line.steps.len(), *written);
            let (written, line) = lines.into_iter().max_by_key(rank).unwrap();
            given.push((line.started_at, written, line));
        }
        given.sort_by_key(|(started_at, written, _)| (*started_at, *written));
        given
            .into_iter()
            .rev()
            .map(|(.., line)| line.clone())
            .collect()
    }
}

struct Writer {
    folder: PathBuf,
    start: i64,
    journal: IndexJournal,
}

impl Writer {
    fn start(folder: PathBuf, starts: &mut i64) -> Self {
        *starts += 1;
        let instance = InstanceName::new("pod", Timestamp::from_nanos(*starts));
        let journal = IndexJournal::open(
            std::sync::Arc::new(crate::disk::LocalDisk),
            folder.clone(),
            instance,
        )
        .unwrap();
        Self {
            folder,
            start: *starts,
            journal,
        }
    }

    fn store(&self, runtime: &Runtime, archive: &Archive) -> Vec<ReadyBatch> {
        let ready: Vec<_> = self.journal.ready().cloned().collect();
        for batch in &ready {
            let body = fs::read(&batch.path).unwrap();
            assert_eq!(body.len() as u64, batch.bytes);
            runtime.block_on(put(archive, &batch.key, body));
        }
        ready
    }

    fn store_and_remove(&mut self, runtime: &Runtime, archive: &Archive) {
        for batch in self.store(runtime, archive) {
            self.journal.remove(&batch);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn all_that_was_appended_is_read_in_order(acts in vec((any::<bool>(), act()), 1..120)) {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let archive = in_memory();
        let folder = tempfile::tempdir().unwrap();
        let mut starts = 0;
        let mut writers = ["one", "other"]
            .map(|name| Writer::start(folder.path().join(name), &mut starts));
        let mut model = Model::default();
        let mut now = at(30_000);
        for (number, (is_first, act)) in acts.into_iter().enumerate() {
            let writer = &mut writers[usize::from(is_first)];
            let appended = match act {
                Act::Append(trace, begun, steps, revision) => {
                    let mut line = with_steps(line(&trace.to_string(), at(begun)), steps);
                    line.object.bytes = number as u64;
                    line.revision = revision;
                    Some(line)
                }
                Act::AppendAgain(which) if !model.0.is_empty() => {
                    Some(which.get(&model.0).1.clone())
                }
                _ => None,
            };
            if let Some(line) = appended {
                writer.journal.append(&line, now).unwrap();
                model.0.push(((writer.start, number), line));
            }
            match act {
                Act::Append(..) | Act::AppendAgain(_) => {}
                Act::Wait(seconds) => {
                    now = now + Duration::from_secs(seconds.unsigned_abs());
                    writer.journal.close_due(now, false).unwrap();
                }
                Act::Store => writer.store_and_remove(&runtime, &archive),
                Act::StoreAndDie | Act::Die => {
                    if matches!(act, Act::StoreAndDie) {
                        writer.store(&runtime, &archive);
                    }
                    *writer = Writer::start(writer.folder.clone(), &mut starts);
                }
            }
        }
        for writer in &mut writers {
            writer.journal.close_due(now, true).unwrap();
            writer.store_and_remove(&runtime, &archive);
            prop_assert_eq!(writer.journal.waiting_bytes(), 0);
        }
        let read = runtime.block_on(lines(&archive, Query::default()));
        prop_assert_eq!(read, model.expected());
    }
}
