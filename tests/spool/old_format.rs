//! A data directory as the first version of the format left it. It is never written again: what
//! reads it must go on reading it.

use std::path::Path;

use spanplane::{
    record::{Position, Record, RecordKind, SegmentId},
    time::Timestamp,
};

use crate::home::{Home, ROOMY};

fn read_back(segment: u64, offset: u32, record: Record) -> (Position, Record) {
    let segment = SegmentId(segment);
    (Position { segment, offset }, record)
}

fn record(kind: RecordKind, nanos: i64, message: &'static str) -> Record {
    Record {
        kind,
        received_at: Timestamp::from_nanos(nanos),
        message: message.into(),
    }
}

#[test]
fn a_data_directory_of_version_1_is_read() {
    let fixture = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/spool-v1/spool");
    let home = Home::new(ROOMY);
    home.take_files_of(&fixture);
    let mut log = home.open();
    // The second one is done.
    let expected = [
        read_back(
            1,
            8,
            record(
                RecordKind::Request,
                1_794_803_806_133_007_001,
                r#"{"meta":{"traceId":"6f0c","step":0},"request":{"observed":{"composite":{"kind":"XNetwork"}}}}"#,
            ),
        ),
        read_back(
            1,
            249,
            record(
                RecordKind::Request,
                1_794_803_806_133_007_003,
                r#"{"meta":{"traceId":"6f0c","step":1},"request":{"input":{"text":"naïve – 日本語"}}}"#,
            ),
        ),
        read_back(
            1,
            369,
            record(
                RecordKind::Response,
                1_794_803_806_133_007_004,
                r#"{"meta":{"traceId":"6f0c","step":1},"response":{"results":[{"severity":"SEVERITY_FATAL"}]}}"#,
            ),
        ),
        read_back(
            2,
            8,
            record(
                RecordKind::Request,
                1_794_803_806_133_007_005,
                r#"{"meta":{"traceId":"77aa","step":0},"request":{}}"#,
            ),
        ),
        read_back(
            2,
            89,
            record(RecordKind::Response, 1_794_803_806_133_007_006, ""),
        ),
    ];
    assert_eq!(log.follow(), expected);
    assert_eq!((log.damaged(), log.torn()), (0, 0));
    let again = log.follower.read(expected[0].0).unwrap();
    assert_eq!(again, expected[0].1);
    // Nothing of it is written to; the log goes on behind it.
    assert!(home.segment(3).is_file());
}
