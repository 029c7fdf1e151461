//! Reconciles of a few subjects, in turn, none of which is like the one before.

use prost::Message as _;
use spanplane::{
    proto::pipeline::{CompositionMeta, StepMeta, step_meta::Context},
    record::{Record, RecordKind},
    time::Timestamp,
};

use crate::support::raw_message;

const SUBJECTS: i64 = 6;
/// In nanoseconds.
const FIRST: i64 = 1_794_803_806_000_000_000;
const MILLISECOND: i64 = 1_000_000;

/// So many reconciles, whose desired state goes to and fro.
pub(crate) fn restless(count: i64) -> Vec<Record> {
    (0..count).flat_map(reconcile).collect()
}

fn reconcile(number: i64) -> [Record; 2] {
    let (subject, round) = (number % SUBJECTS, number / SUBJECTS);
    let at = FIRST + number * 10 * MILLISECOND;
    let meta = meta_of(number, subject, at);
    // 0, 0, 1, 1, 0, … and now and then something new.
    let size = if round % 10 == 9 {
        round
    } else {
        round % 4 / 2
    };
    let request = format!(r#"{{"meta":{{"tag":"{number}"}}}}"#);
    let response = format!(
        r#"{{"meta":{{"ttl":"60s"}},"desired":{{"resources":{{"disk":{{"resource":{{"size":{size}}}}}}}}}}}"#
    );
    let record = |kind, payload: &str, after| Record {
        received_at: Timestamp::from_nanos(at + after * MILLISECOND),
        ..raw_message(kind, payload.as_bytes(), &meta)
    };
    [
        record(RecordKind::Request, &request, 1),
        record(RecordKind::Response, &response, 3),
    ]
}

fn meta_of(number: i64, subject: i64, at: i64) -> Vec<u8> {
    let composition = CompositionMeta {
        composition_name: "restless".to_owned(),
        composite_resource_uid: format!("uid-{subject}"),
        composite_resource_name: format!("xr-{subject}"),
        composite_resource_namespace: String::new(),
        composite_resource_api_version: "example.org/v1".to_owned(),
        composite_resource_kind: "Restless".to_owned(),
    };
    let meta = StepMeta {
        timestamp: Some(prost_types::Timestamp {
            seconds: at.div_euclid(1_000_000_000),
            nanos: i32::try_from(at.rem_euclid(1_000_000_000)).unwrap(),
        }),
        trace_id: format!("{number:08x}-0000-4000-8000-000000000000"),
        span_id: format!("{number:08x}-0000-4000-8000-000000000001"),
        step_index: 0,
        step_name: "waver".to_owned(),
        iteration: 0,
        function_name: "function-waver".to_owned(),
        context: Some(Context::CompositionMeta(composition)),
    };
    meta.encode_to_vec()
}
