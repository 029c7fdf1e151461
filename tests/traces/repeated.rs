//! The same log gives the same spans, however often it is followed and whatever dies meanwhile.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::Path,
};

use opentelemetry_proto::tonic::trace::v1::Span;
use prost::Message as _;
use spanplane::record::Record;

use crate::{
    program::Program,
    restless::restless,
    setup::{
        SpanKey, assert_told_once, every_capture, fill_spool, roots, spans, spans_of_log,
        traces_of, until, value, without_state,
    },
    support::{Home, otlp::OtlpServer},
};

#[tokio::test]
async fn the_same_log_gives_the_same_spans_byte_for_byte() {
    let records = every_capture();
    let run = async || {
        let home = Home::new();
        let spans = spans_of_log(&home, &["--store=memory:///payloads"], &records).await;
        let count = spans.len();
        let encoded = spans.iter().map(Span::encode_to_vec);
        let encoded: BTreeSet<_> = encoded.collect();
        assert_eq!(encoded.len(), count);
        encoded
    };
    assert!(run().await == run().await);
}

/// How many whole files are in a folder and those below it.
fn files(folder: &Path) -> usize {
    let Ok(entries) = fs::read_dir(folder) else {
        return 0;
    };
    let count = |entry: fs::DirEntry| {
        if entry.file_type().unwrap().is_dir() {
            files(&entry.path())
        } else {
            let ending = entry.path().extension().map(ToOwned::to_owned);
            usize::from(ending.is_some_and(|it| it == "zst" || it == "parcel"))
        }
    };
    entries.map(|entry| count(entry.unwrap())).sum()
}

/// A program on a log that is killed whenever there are so many objects.
struct Killed {
    home: Home,
    collector: OtlpServer,
}

impl Killed {
    async fn new(records: &[Record]) -> Self {
        let home = Home::new();
        fill_spool(&home.data_dir(), records).await;
        let collector = OtlpServer::start_grpc().await;
        Self { home, collector }
    }

    async fn start(&self) -> Program {
        Program::start(&self.home, self.collector.url()).await
    }

    /// Kills it once there are so many files in a folder of its data directory.
    async fn kill_at(&self, folder: &str, count: usize) {
        let program = self.start().await;
        let folder = self.home.data_dir().join(folder);
        until("there are files", || files(&folder) >= count).await;
        program.kill().await;
    }

    /// Lets it live until all of its spans arrived.
    async fn let_live(&self, records: &[Record]) -> Program {
        let program = self.start().await;
        let traces = traces_of(records);
        until("every trace has its root", || {
            traces.is_subset(&roots(&spans(&self.collector)))
        })
        .await;
        program
    }

    /// What every life sent.
    async fn finish(self, records: &[Record]) -> BTreeMap<SpanKey, Span> {
        self.let_live(records).await.terminate().await;
        self.sent()
    }

    fn sent(&self) -> BTreeMap<SpanKey, Span> {
        let home = self.home.path().to_str().unwrap();
        let spans = spans(&self.collector).into_iter();
        let spans: Vec<_> = spans.map(|span| without_state(span, home)).collect();
        assert_told_once(&spans)
    }
}

fn assert_same(killed: &BTreeMap<SpanKey, Span>, whole: &BTreeMap<SpanKey, Span>) {
    assert!(killed.keys().eq(whole.keys()));
    for (killed, whole) in killed.values().zip(whole.values()) {
        assert_eq!(killed, whole);
    }
}

#[tokio::test]
async fn a_log_that_was_followed_by_many_gives_the_spans_of_one() {
    let records = every_capture();
    let whole = Killed::new(&records).await.finish(&records).await;
    let killed = Killed::new(&records).await;
    for count in [1, 20, 45, 90] {
        killed.kill_at("store/v1/reconciles", count).await;
    }
    assert_same(&killed.finish(&records).await, &whole);
}

#[tokio::test]
async fn what_is_published_again_comes_after_what_it_came_after_before() {
    let records = restless(400);
    let whole = Killed::new(&records).await.finish(&records).await;
    let flaps = |span: &Span| value(&span.attributes, "crossplane.flapping.count").is_some();
    assert!(whole.values().any(flaps));
    let killed = Killed::new(&records).await;
    // Between two commits, with uploads under way.
    for count in [110, 210, 310] {
        killed.kill_at("store/v1/reconciles", count).await;
    }
    assert_same(&killed.finish(&records).await, &whole);
}

#[tokio::test]
async fn what_was_sealed_and_not_sent_is_compared_with_all_the_same() {
    let records = restless(60);
    let whole = Killed::new(&records).await.finish(&records).await;
    let killed = Killed::new(&records).await;
    // A file where the store should be lets nothing be stored.
    let store = killed.home.data_dir().join("store");
    fs::write(&store, "in the way").unwrap();
    killed.kill_at("outbox/objects", 30).await;
    let program = killed.let_live(&records).await;
    fs::remove_file(&store).unwrap();
    program.terminate().await;
    assert_same(&killed.sent(), &whole);
}
