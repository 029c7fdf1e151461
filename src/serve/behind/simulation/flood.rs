//! What is held in memory while more comes than can be published.

use prost::Message as _;

use super::{process::Process, world::World};
use crate::{
    assemble::Limits,
    proto::{draft, pipeline},
    reconcile::ClosedReconcile,
    record::{Record, RecordKind},
    time::Clock as _,
};

/// Responses of functions that always fail, each with as long an error as is kept.
const RESPONSES: usize = 400;
const ERROR_BYTES: usize = 64 * 1024;

fn failed(world: &World, index: usize) -> Record {
    let meta = draft::StepMeta {
        trace_id: format!("trace-{index}"),
        span_id: format!("span-{index}"),
        ..draft::StepMeta::default()
    };
    let message = pipeline::EmitResponseRequest {
        error: format!("{index} {}", "x".repeat(ERROR_BYTES - 8)),
        meta: meta.encode_to_vec().into(),
        ..pipeline::EmitResponseRequest::default()
    };
    Record {
        kind: RecordKind::Response,
        received_at: world.clock.now(),
        message: message.encode_to_vec().into(),
    }
}

#[test]
fn a_backlog_of_long_errors_is_not_held_in_memory() {
    let mut world = World::new(1);
    world.spool_bytes = 64 * 1024 * 1024;
    let mut process = Process::start(&world).unwrap();
    for index in 0..RESPONSES {
        process.append(failed(&world, index));
    }
    let mut most = 0;
    for _ in 0..2 * RESPONSES {
        process.desk.take_turn(false);
        let waiting = process.desk.waiting.reconciles();
        let waiting: usize = waiting.map(ClosedReconcile::memory_bytes).sum();
        most = most.max(waiting);
    }
    // Fewer than there are, and with all that may be open on top.
    let limit = Limits::default().bytes + 5 * 1024 * 1024;
    assert!(limit < RESPONSES * ERROR_BYTES);
    assert!(most > ERROR_BYTES, "{most}");
    assert!(most < limit, "{most}");
}
