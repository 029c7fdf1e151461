//! The index: what the journal writes, the reader reads, and both get on with any bytes.
//!
//! The first byte chooses: `l` and a script writes lines, which are asked for by a query and
//! compared with what a slow reader makes of them; `j` is followed by the name of a file and what
//! the journal finds in it; `b` by the lines of a stored batch; `z` by a batch as it is stored.

use std::{
    cmp::Reverse,
    collections::BTreeMap,
    path::Path,
    sync::{Arc, LazyLock},
};

use bytes::Bytes;
use futures_util::StreamExt as _;
use object_store::{ObjectStoreExt as _, PutPayload, memory::InMemory};
use spanplane::{
    archive::{
        Archive, Compression, IndexError, IndexJournal, IndexKey, InstanceName, Query,
        SubjectFilter,
    },
    line::{
        Dropped, INTERRUPTED, Line, LineStep, LineSubject, ObjectRef, Outcome, PayloadState,
        Status, StepFacts,
    },
    reconcile::SubjectType,
    time::Timestamp,
};
use tokio::runtime::Runtime;

use super::{disk::MemoryDisk, script::Script};

const FOLDER: &str = "index";
/// Ten past four, in an hour that is past whatever the clock of a store says.
const BASE: i64 = 1_699_934_400 + 600;
/// Decompressed, of a batch that is looked into.
const MAX_BATCH_BYTES: usize = 64 * 1024 * 1024;

static RUNTIME: LazyLock<Runtime> = LazyLock::new(|| {
    let builder = &mut tokio::runtime::Builder::new_current_thread();
    builder.max_blocking_threads(1).build().unwrap()
});

/// See above.
pub fn check(input: &[u8]) {
    match input.split_first() {
        Some((b'l', script)) => check_lines(Script::new(script)),
        Some((b'j', rest)) => check_journal(rest),
        Some((b'b', lines)) => check_batch(&stored(lines)),
        Some((b'z', batch)) => check_batch(batch),
        _ => {}
    }
}

/// Lines in one or several batches, and a query.
fn check_lines(mut script: Script<'_>) {
    let query = query(&mut script);
    let store = Arc::new(InMemory::new());
    let archive = Archive::over(Arc::clone(&store) as _, Compression::default());
    let has_contents = script.flag();
    let mut written = Vec::new();
    let mut starts = 0;
    while !script.is_over() && starts < 3 {
        starts += 1;
        let disk = MemoryDisk::default();
        let mut journal = journal(&disk, starts);
        for _ in 0..script.below(6) {
            let line = line(&mut script);
            journal.append(&line, at(0)).unwrap();
            written.push((starts, line));
        }
        if let Some((_, line)) = written.last() {
            let noted = journal.line_of(&line.trace_id);
            let noted = noted.map(|line| line.revision);
            assert_eq!(noted, highest_revision(&written, starts, &line.trace_id));
        }
        journal.close_due(at(0), true).unwrap();
        for (key, body) in ready(&journal, &disk) {
            check_key(&key);
            put(&archive, &store, has_contents, &key, body);
        }
    }
    let (found, errors) = read(&archive, query.clone());
    assert!(errors.is_empty(), "{errors:?}");
    let expected = expected(written, &query);
    assert_eq!(found, expected, "{query:?}");
}

/// Of this trace, in the journal that was started then.
fn highest_revision(written: &[(i64, Line)], start: i64, trace_id: &str) -> Option<u32> {
    let own = written
        .iter()
        .filter(|(other, line)| *other == start && line.trace_id == trace_id);
    own.map(|(_, line)| line.revision).max()
}

fn put(archive: &Archive, store: &InMemory, has_contents: bool, key: &IndexKey, body: Vec<u8>) {
    let body = Bytes::from(body);
    RUNTIME.block_on(async {
        if has_contents {
            archive.put_index(key, body).await.unwrap();
        } else {
            let place = key.to_string().into();
            store.put(&place, PutPayload::from(body)).await.unwrap();
        }
    });
}

fn read(archive: &Archive, query: Query) -> (Vec<Line>, Vec<IndexError>) {
    let lines = RUNTIME.block_on(archive.read_index(query).collect::<Vec<_>>());
    let (mut found, mut errors) = (Vec::new(), Vec::new());
    for line in lines {
        match line {
            Ok(line) => found.push(line),
            Err(error) => errors.push(error),
        }
    }
    (found, errors)
}

fn journal(disk: &MemoryDisk, start: i64) -> IndexJournal {
    let instance = InstanceName::new("pod", Timestamp::from_nanos(start));
    IndexJournal::open(Arc::new(disk.clone()), FOLDER.into(), instance).unwrap()
}

/// The batches that wait, and what is in them.
fn ready(journal: &IndexJournal, disk: &MemoryDisk) -> Vec<(IndexKey, Vec<u8>)> {
    let batches = journal.ready().map(|batch| {
        let body = disk.content(&batch.path).unwrap();
        assert_eq!(body.len() as u64, batch.bytes);
        (batch.key.clone(), body)
    });
    batches.collect()
}

fn check_key(key: &IndexKey) {
    let text = key.to_string();
    assert!(text.starts_with("v1/index/date="), "{text}");
    assert!(text.ends_with(".jsonl.zst"), "{text}");
    assert_eq!(text.split('/').count(), 5, "{text}");
    let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"./=-".contains(&byte);
    assert!(text.bytes().all(is_allowed), "{text}");
    assert_eq!(
        object_store::path::Path::from(text.as_str()).as_ref(),
        text.as_str()
    );
}

fn at(seconds: u8) -> Timestamp {
    Timestamp::from_parts(BASE + i64::from(seconds), 0).unwrap()
}

const FUNCTIONS: [&str; 4] = ["function-a", "function-b", "b", "\"f\u{e9}\\"];
const KINDS: [&str; 4] = ["Network", "Policy", "Bus", "network"];
const GROUPS: [&str; 3] = ["platform.example.org/v1", "v1", "x/y/z"];
const NAMES: [&str; 4] = ["prod-net", "", "a b", "\",\"steps\":["];
const TRACES: [&str; 6] = [
    "784cb8b6-6017-4578-99ba-46a9391f7d1d",
    "784cb8b6-6017-4578-99ba-46a9391f7d1e",
    "784cb8b660174578",
    "7-8",
    "a b",
    "\n",
];
const STATUSES: [Status; 5] = [
    Status::Ok,
    Status::Warning,
    Status::Incomplete,
    Status::Fatal,
    Status::Error,
];

/// All lines of a trace are of one subject, which a query may ask for.
fn line(script: &mut Script<'_>) -> Line {
    let trace = script.below(TRACES.len());
    let started_at = at(script.byte());
    let steps = (0..script.below(4)).map(|place| LineStep {
        index: i32::try_from(place).unwrap(),
        name: "step".to_owned(),
        iteration: i32::from(script.flag()),
        function: FUNCTIONS[script.below(FUNCTIONS.len())].to_owned(),
        span_id: "span".to_owned(),
        otel_span_id: "00f067aa0ba902b7".to_owned(),
        started_at,
        ended_at: None,
        duration_ms: None,
        status: Status::Ok,
        error: None,
        error_type: Some(INTERRUPTED.to_owned()),
        cached: false,
        request: None,
        response: None,
        facts: StepFacts::default(),
    });
    let steps = steps.collect();
    let dropped = script.below(3);
    Line {
        v: 1,
        trace_id: TRACES[trace].to_owned(),
        otel_trace_id: format!("{trace:032x}"),
        root_span_id: String::new(),
        previous_trace_id: None,
        parent_trace_id: None,
        started_at,
        ended_at: started_at,
        duration_ms: f64::from(script.byte()) / 3.0,
        subject: LineSubject {
            kind_of_subject: SubjectType::Composite,
            api_version: GROUPS[trace % GROUPS.len()].to_owned(),
            kind: KINDS[trace % KINDS.len()].to_owned(),
            namespace: NAMES[trace % 2].to_owned(),
            name: NAMES[trace % NAMES.len()].to_owned(),
            uid: trace.to_string(),
            ..LineSubject::default()
        },
        status: STATUSES[script.below(STATUSES.len())],
        changed: script.flag(),
        revision: u32::from(script.byte() % 3),
        steps,
        object: ObjectRef {
            key: "v1/reconciles/\u{1F980}".to_owned(),
            state: PayloadState::Stored,
            bytes: script.number(),
            redaction: None,
        },
        resources: Outcome::default(),
        dropped: vec![
            Dropped {
                resource: "a".to_owned(),
                step: None,
                observed: true,
            };
            dropped
        ],
        dropped_count: dropped as u64,
        flapping: Vec::new(),
        flapping_count: 0,
    }
}

fn query(script: &mut Script<'_>) -> Query {
    let mut some = |choices: &[&str]| {
        let choice = script.below(3 * choices.len());
        choices.get(choice).map(|text| (*text).to_owned())
    };
    let subject = SubjectFilter {
        kind: some(&["networks", "NETWORK", "policies", "bus", "buses", ""]),
        group: some(&["platform.example.org", "", "x"]),
        namespace: some(&NAMES[..2]),
        name: some(&NAMES),
        uid: some(&["0", "3"]),
    };
    let trace_id = some(&["784cb8b6", "7", "784cb8b6-60", "0000", "", "a b"]);
    let function = some(&FUNCTIONS);
    let mut moment = || script.flag().then(|| at(script.byte()));
    Query {
        since: moment(),
        until: moment(),
        subject,
        statuses: (0..script.below(3))
            .map(|_| STATUSES[script.below(STATUSES.len())])
            .collect(),
        trace_id,
        changed: [None, None, Some(true), Some(false)][script.below(4)],
        dropped: script.below(4) == 3,
        function,
    }
}

/// Of each trace the most complete line, if it is asked for; the newest first.
fn expected(written: Vec<(i64, Line)>, query: &Query) -> Vec<Line> {
    let mut latest: BTreeMap<String, ((u32, usize, usize), Line)> = BTreeMap::new();
    for (place, (_, line)) in written.into_iter().enumerate() {
        let rank = (line.revision, line.steps.len(), place);
        let known = latest.get(&line.trace_id);
        if known.is_none_or(|(known, _)| *known < rank) {
            latest.insert(line.trace_id.clone(), (rank, line));
        }
    }
    let mut lines: Vec<_> = latest
        .into_values()
        .filter(|(_, line)| is_asked_for(line, query))
        .collect();
    lines.sort_by_key(|((.., place), line)| Reverse((line.started_at, *place)));
    lines.into_iter().map(|(_, line)| line).collect()
}

fn is_asked_for(line: &Line, query: &Query) -> bool {
    let subject = &line.subject;
    let group = subject.api_version.split_once('/');
    let group = group.map_or("", |(group, _)| group);
    let is = |asked: &Option<String>, is: &str| asked.as_ref().is_none_or(|asked| asked == is);
    let is_kind = |asked: &String| {
        let kind = subject.kind.to_lowercase();
        let many = match kind.as_str() {
            "policy" => "policies".to_owned(),
            "bus" => "buses".to_owned(),
            other => format!("{other}s"),
        };
        let asked = asked.to_lowercase();
        asked == kind || asked == many
    };
    let digits = |id: &str| id.replace('-', "");
    let is_trace = |asked: &String| {
        let mut ids = [&line.trace_id, &line.otel_trace_id].into_iter();
        ids.any(|id| digits(id).starts_with(&digits(asked)))
    };
    let calls = |function: &String| line.steps.iter().any(|step| step.function == *function);
    query.since.is_none_or(|since| line.started_at >= since)
        && query.until.is_none_or(|until| line.started_at < until)
        && query.subject.kind.as_ref().is_none_or(is_kind)
        && is(&query.subject.group, group)
        && is(&query.subject.namespace, &subject.namespace)
        && is(&query.subject.name, &subject.name)
        && is(&query.subject.uid, &subject.uid)
        && (query.statuses.is_empty() || query.statuses.contains(&line.status))
        && query.trace_id.as_ref().is_none_or(is_trace)
        && query.changed.is_none_or(|changed| changed == line.changed)
        && (!query.dropped || line.dropped_count > 0)
        && query.function.as_ref().is_none_or(calls)
}

/// A file that an earlier process left: its whole lines become a batch, but for what isn't JSON.
fn check_journal(input: &[u8]) {
    let (name, content) = input.split_at(input.iter().position(|b| *b == b'\n').unwrap_or(0));
    let content = content.get(1..).unwrap_or_default();
    let name = String::from_utf8_lossy(name);
    let usual = "2023-11-14T04-pod-0000000000000001-00000001.jsonl";
    let is_plain = !name.is_empty() && !name.contains(['/', '\0']);
    let name = if is_plain { &*name } else { usual };
    let disk = MemoryDisk::default();
    disk.put(&Path::new(FOLDER).join(name), content.to_vec());
    let mut journal = journal(&disk, 2);
    let batches = ready(&journal, &disk);
    for (key, body) in &batches {
        check_key(key);
        if !name.contains(".zst") {
            let whole = content.iter().rposition(|byte| *byte == b'\n');
            let whole = whole.map_or(0, |end| end + 1);
            let lines = content[..whole].split_inclusive(|byte| *byte == b'\n');
            let is_json =
                |line: &&[u8]| serde_json::from_slice::<serde::de::IgnoredAny>(line).is_ok();
            assert_eq!(
                inflated(body),
                lines.filter(is_json).collect::<Vec<_>>().concat()
            );
        }
    }
    let own = line(&mut Script::new(content));
    journal.append(&own, at(0)).unwrap();
    assert!(journal.line_of(&own.trace_id).is_some());
    journal.close_due(at(0), true).unwrap();
    assert_eq!(journal.ready().count(), batches.len() + 1);
    drop(journal);
    let journal = self::journal(&disk, 3);
    assert_eq!(journal.ready().count(), batches.len() + 1);
    assert!(journal.has(&own));
    for batch in journal.ready() {
        let name = batch.path.file_name().unwrap().to_str().unwrap();
        // Only the input can have given it the name of a process that did not write it.
        assert!(!journal.is_own(batch) || name.contains("-pod-0000000000000003-"));
        let stem = name.strip_suffix(".jsonl.zst").unwrap();
        // The date and the hour stand in the folder, the rest is the name in the bucket.
        let (_, rest) = stem.split_once('T').unwrap();
        let (_, rest) = rest.split_once('-').unwrap();
        let key = batch.key.to_string();
        assert!(key.ends_with(&format!("/{rest}.jsonl.zst")), "{key}");
    }
}

fn inflated(body: &[u8]) -> Vec<u8> {
    zstd::bulk::decompress(body, MAX_BATCH_BYTES).unwrap()
}

/// A batch that somebody else may have written: what can be read comes in order, once per trace.
fn check_batch(batch: &[u8]) {
    let store = Arc::new(InMemory::new());
    let archive = Archive::over(Arc::clone(&store) as _, Compression::default());
    let place = "v1/index/date=2023-11-14/hour=04/pod-0000000000000001-00000001.jsonl.zst";
    let content = PutPayload::from(batch.to_vec());
    let stored = RUNTIME.block_on(store.put(&place.into(), content));
    stored.unwrap();
    let (found, _) = read(&archive, Query::default());
    for (newer, older) in found.iter().zip(found.iter().skip(1)) {
        assert!(newer.started_at >= older.started_at);
    }
    for (place, line) in found.iter().enumerate() {
        let others = found.iter().skip(place + 1);
        assert!(others.clone().all(|other| other.trace_id != line.trace_id));
        assert_eq!(line.v, 1);
        let text = serde_json::to_string(line).unwrap();
        let again: Line = serde_json::from_str(&text).unwrap();
        assert_eq!(again, *line);
        // Whoever asks for it gets it.
        let query = Query {
            trace_id: Some(line.trace_id.clone()),
            statuses: vec![line.status],
            function: line.steps.first().map(|step| step.function.clone()),
            ..Query::default()
        };
        assert!(is_asked_for(line, &query));
    }
    let function = found.iter().flat_map(|line| &line.steps).next();
    let query = Query {
        function: function.map(|step| step.function.clone()),
        until: found.first().map(|line| line.started_at),
        ..Query::default()
    };
    let (some, _) = read(&archive, query.clone());
    let asked: Vec<_> = found
        .into_iter()
        .filter(|line| is_asked_for(line, &query))
        .collect();
    assert_eq!(some, asked, "{query:?}");
}

/// A batch with these lines: a frame of zstd with nothing compressed in it.
fn stored(lines: &[u8]) -> Vec<u8> {
    let mut frame = vec![0x28, 0xB5, 0x2F, 0xFD];
    // One segment, with its size in four bytes.
    frame.push(0xA0);
    frame.extend(u32::try_from(lines.len()).unwrap().to_le_bytes());
    let pieces = lines.chunks(64 * 1024);
    let last = pieces.len().saturating_sub(1);
    for (place, piece) in pieces.enumerate() {
        let header = (u32::try_from(piece.len()).unwrap() << 3) | u32::from(place == last);
        frame.extend(&header.to_le_bytes()[..3]);
        frame.extend(piece);
    }
    if lines.is_empty() {
        frame.extend([1, 0, 0]);
    }
    frame
}
