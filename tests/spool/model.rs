//! The log against a list in memory: any order of appending, following, finishing and dying.

use proptest::{prelude::*, sample::Index};
use spanplane::{
    record::{Position, Record},
    spool::AppendError,
};

use crate::home::{HEADER_BYTES, Home, Log, sized};

/// Segments of 32 KiB, full after some 25 records.
const MAX_BYTES: u64 = 256 * 1024;

#[derive(Clone, Debug)]
enum Action {
    Append { length: usize },
    Follow,
    Finish { which: Vec<Index> },
    Reopen,
    Crash,
}

fn action() -> impl Strategy<Value = Action> {
    prop_oneof![
        10 => prop_oneof![1 => 0..100_usize, 3 => 0..20 * 1024_usize]
            .prop_map(|length| Action::Append { length }),
        1 => Just(Action::Follow),
        3 => prop::collection::vec(any::<Index>(), 1..8).prop_map(|which| Action::Finish { which }),
        1 => Just(Action::Reopen),
        1 => Just(Action::Crash),
    ]
}

/// A record that was answered and is not finished.
#[derive(Debug)]
struct Kept {
    record: Record,
    /// Once it was handed out by any process.
    position: Option<Position>,
    /// By this process.
    is_handed_out: bool,
}

/// The log, and what must be in it.
struct Model {
    home: Home,
    log: Log,
    kept: Vec<Kept>,
    appended: u32,
}

impl Model {
    fn new() -> Self {
        let home = Home::new(MAX_BYTES);
        Self {
            log: home.open(),
            home,
            kept: Vec::new(),
            appended: 0,
        }
    }

    fn append(&mut self, length: usize) {
        let record = sized(self.appended, length);
        self.appended += 1;
        let used = self.log.spool.gauge().used_bytes();
        let fits = used + (HEADER_BYTES + length) as u64 <= MAX_BYTES;
        match self.log.append(&record) {
            Ok(()) => {
                assert!(fits);
                self.kept.push(Kept {
                    record,
                    position: None,
                    is_handed_out: false,
                });
            }
            Err(AppendError::Full { limit, .. }) => {
                assert!(!fits);
                assert_eq!(limit, MAX_BYTES);
            }
            Err(error) => panic!("{error}"),
        }
    }

    /// What is handed out is what waits, in order, and lies where it lay before.
    fn follow(&mut self) {
        let waiting = self.kept.iter_mut().filter(|kept| !kept.is_handed_out);
        let mut followed = self.log.follow().into_iter();
        for kept in waiting {
            let (position, record) = followed.next().unwrap();
            assert!(record == kept.record, "{position:?}");
            assert_eq!(*kept.position.get_or_insert(position), position);
            kept.is_handed_out = true;
        }
        assert_eq!(followed.next(), None);
        self.log.follower.remove_unneeded();
    }

    fn finish(&mut self, which: &[Index]) {
        self.follow();
        let mut finished = Vec::new();
        for index in which {
            if !self.kept.is_empty() {
                let kept = self.kept.remove(index.index(self.kept.len()));
                finished.push(kept.position.unwrap());
            }
        }
        self.log.follower.finish(&finished);
        for kept in &self.kept {
            let record = self.log.follower.read(kept.position.unwrap()).unwrap();
            assert!(record == kept.record);
        }
    }

    fn reopen(self, home: Home) -> Self {
        drop(self.log);
        let mut kept = self.kept;
        for kept in &mut kept {
            kept.is_handed_out = false;
        }
        let mut model = Self {
            log: home.open(),
            home,
            kept,
            appended: self.appended,
        };
        model.follow();
        model
    }

    /// Once all is finished nothing of it is left on disk, and there is room again.
    fn check_end(mut self) {
        self.follow();
        let all: Vec<_> = self
            .kept
            .drain(..)
            .filter_map(|kept| kept.position)
            .collect();
        self.log.follower.finish(&all);
        assert!(self.home.files("seg").len() <= 1);
        assert!(self.home.files("done").len() <= 1);
        self.append(20 * 1024);
        assert_eq!(self.kept.len(), 1);
        let home = self.home.crashed_copy();
        self.reopen(home);
    }
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 48,
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn what_was_answered_is_handed_out_once_a_process_until_it_is_finished(
        actions in prop::collection::vec(action(), 1..80),
    ) {
        let mut model = Model::new();
        for action in actions {
            match action {
                Action::Append { length } => model.append(length),
                Action::Follow => model.follow(),
                Action::Finish { which } => model.finish(&which),
                Action::Reopen => {
                    let home = std::mem::replace(&mut model.home, Home::new(0));
                    model = model.reopen(home);
                }
                Action::Crash => {
                    let copy = model.home.crashed_copy();
                    model = model.reopen(copy);
                }
            }
        }
        model.check_end();
    }
}
