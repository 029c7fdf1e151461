//! XRs, and the messages that core sends of their reconciles.
//!
//! Invariant: the observed state is the same in every request of a reconcile; a request's desired
//! state is that of the response before; a reconcile in which nothing changed is equal to the XR's
//! last one byte for byte, ids and times of its messages aside.

use std::sync::Arc;

use bytes::{BufMut as _, Bytes, BytesMut};
use fastrand::Rng;
use prost::{
    Message as _,
    encoding::{WireType, encode_key, encode_varint, encoded_len_varint},
};
use spanplane::{
    proto::pipeline::{CompositionMeta, StepMeta, step_meta::Context},
    reconcile::PayloadHash,
    record::RecordKind,
    time::{Clock as _, SystemClock, Timestamp},
};

use crate::payload::{Bodies, Resource, STEPS, Shape, uuid};

/// How many XRs in a row have resources of their own; the next ones have the same.
const DIFFERENT: u64 = 8;

const FUNCTIONS: [(&str, &str); STEPS] = [
    ("compose", "function-patch-and-transform"),
    ("label", "function-go-templating"),
    ("account", "function-pythonic"),
    ("classify", "function-pythonic"),
    ("ready", "function-auto-ready"),
];

const CONTEXT: &str = "{\"apiextensions.crossplane.io/environment\":{\"apiVersion\":\"internal.crossplane.io/v1alpha1\", \
                       \"kind\":\"Environment\", \"region\":\"eu-central-1\"}}";

/// A composite resource.
#[derive(Debug)]
pub(crate) struct Xr {
    name: String,
    uid: String,
    version: u32,
    shape: Shape,
    bodies: Arc<Bodies>,
}

impl Xr {
    /// As many as are asked for.
    pub(crate) fn make(count: usize, shape: Shape) -> Vec<Self> {
        let bodies: Vec<_> = (0..DIFFERENT.min(count as u64))
            .map(|seed| Arc::new(Bodies::new(shape, seed)))
            .collect();
        let xrs = bodies.iter().cycle().zip(0..count as u64);
        let xrs = xrs.map(|(bodies, number)| {
            let mut rng = Rng::with_seed(number);
            Self {
                name: format!("platform-{number}"),
                uid: uuid(&mut rng),
                version: 1,
                shape,
                bodies: Arc::clone(bodies),
            }
        });
        xrs.collect()
    }

    /// Something is different from now on: a field of a resource, so that every tag is.
    pub(crate) fn change(&mut self) {
        self.version += 1;
    }

    /// The XR is reconciled: what core sends, one message after the other.
    pub(crate) fn reconcile(&self) -> Reconcile<'_> {
        // NOTE: other ids in every run, or a server would take them for messages that it knows.
        let trace_id = uuid(&mut Rng::new());
        let mut observed = String::new();
        Resource::new(0, 0).write_observed(&mut observed, self.version, self.shape);
        Reconcile {
            observed,
            trace_id,
            xr: self,
        }
    }

    fn composite(&self) -> String {
        let (name, uid, version) = (&self.name, &self.uid, self.version);
        let conditions = ["Synced", "Ready", "Responsive"].map(|condition| {
            format!(
                "{{\"lastTransitionTime\":\"2026-10-16T04:36:50Z\", \"observedGeneration\":3, \
                 \"reason\":\"Available\", \"status\":\"True\", \"type\":\"{condition}\"}}"
            )
        });
        format!(
            "{{\"resource\":{{\"apiVersion\":\"example.org/v1\", \"kind\":\"Platform\", \"metadata\":{{\
             \"creationTimestamp\":\"2026-10-16T04:36:46Z\", \"finalizers\":[\"composite.apiextensions.crossplane.io\"], \
             \"generation\":3, \"labels\":{{\"crossplane.io/composite\":\"{name}\"}}, \"name\":\"{name}\", \
             \"namespace\":\"default\", \"resourceVersion\":\"{}\", \"uid\":\"{uid}\"}}, \"spec\":{{\"capacity\":{version}, \
             \"crossplane\":{{\"compositionRef\":{{\"name\":\"platform\"}}, \"compositionRevisionRef\":{{\
             \"name\":\"platform-a4bd6ab\"}}, \"compositionUpdatePolicy\":\"Automatic\"}}, \"region\":\"eu-central-1\"}}, \
             \"status\":{{\"conditions\":[{}]}}}}}}",
            2_000_000 + version,
            conditions.join(", "),
        )
    }
}

/// A reconcile under way.
#[derive(Debug)]
pub(crate) struct Reconcile<'x> {
    xr: &'x Xr,
    trace_id: String,
    /// The resource that changes.
    observed: String,
}

impl Reconcile<'_> {
    /// A step is about to run.
    pub(crate) fn step(&self, index: usize) -> Step<'_> {
        let xr = self.xr;
        let (step_name, function_name) = FUNCTIONS.get(index).copied().unwrap_or_default();
        let meta = StepMeta {
            timestamp: Some(in_parts(SystemClock.now())),
            trace_id: self.trace_id.clone(),
            span_id: uuid(&mut Rng::new()),
            step_index: i32::try_from(index).unwrap_or_default(),
            step_name: step_name.to_owned(),
            iteration: 0,
            function_name: function_name.to_owned(),
            context: Some(Context::CompositionMeta(CompositionMeta {
                composition_name: "platform".to_owned(),
                composite_resource_uid: xr.uid.clone(),
                composite_resource_name: xr.name.clone(),
                composite_resource_namespace: "default".to_owned(),
                composite_resource_api_version: "example.org/v1".to_owned(),
                composite_resource_kind: "Platform".to_owned(),
            })),
        };
        let tag = format!("{} {} {index}", xr.uid, xr.version);
        Step {
            reconcile: self,
            index,
            tag: PayloadHash::of(tag.as_bytes()).to_string(),
            meta: meta.encode_to_vec(),
        }
    }

    /// The desired state as a step leaves it, in pieces: the resource that changes, and the rest.
    fn desired(&self, step: usize) -> (String, &str) {
        let mut changing = "\"composite\":{\"resource\":{\"status\":{\"endpoint\":\"10.0.0.1\"}}}, \"resources\":{".to_owned();
        Resource::new(0, 0).write_desired(&mut changing, self.xr.version, step, self.xr.shape);
        let rest = self.xr.bodies.desired.get(step);
        (changing, rest.map(String::as_str).unwrap_or_default())
    }
}

/// A function is called.
#[derive(Debug)]
pub(crate) struct Step<'r> {
    reconcile: &'r Reconcile<'r>,
    index: usize,
    tag: String,
    meta: Vec<u8>,
}

impl Step<'_> {
    pub(crate) fn message(&self, kind: RecordKind) -> Bytes {
        match kind {
            RecordKind::Request => self.request(),
            RecordKind::Response => self.response(),
        }
    }

    fn request(&self) -> Bytes {
        let tag = &self.tag;
        let head = format!(
            "{{\"meta\":{{\"tag\":\"{tag}\", \"capabilities\":[\"CAPABILITY_CAPABILITIES\", \
             \"CAPABILITY_REQUIRED_RESOURCES\", \"CAPABILITY_CREDENTIALS\", \"CAPABILITY_CONDITIONS\"]}}, \
             \"observed\":{{\"composite\":{}, \"resources\":{{",
            self.reconcile.xr.composite(),
        );
        let before = self.index.checked_sub(1);
        let (changing, rest) = before
            .map(|step| self.reconcile.desired(step))
            .unwrap_or_default();
        let end = if before.is_some() { "}" } else { "" };
        let tail = format!(
            "{end}}}, \"input\":{{\"apiVersion\":\"example.org/v1beta1\", \"kind\":\"Input\", \"step\":{}}}, \"context\":{}}}",
            self.index, CONTEXT,
        );
        let observed = &self.reconcile.observed;
        let bodies = &self.reconcile.xr.bodies;
        let desired = "}}, \"desired\":{";
        self.envelope(
            2,
            &[
                &head,
                observed,
                &bodies.observed,
                desired,
                &changing,
                rest,
                &tail,
            ],
        )
    }

    fn response(&self) -> Bytes {
        let head = format!(
            "{{\"meta\":{{\"tag\":\"{}\", \"ttl\":\"60s\"}}, \"desired\":{{",
            self.tag
        );
        let (changing, rest) = self.reconcile.desired(self.index);
        let tail = format!(
            "}}}}, \"results\":[{{\"severity\":\"SEVERITY_NORMAL\", \"message\":\"step {} is done\"}}], \"context\":{}}}",
            self.index, CONTEXT,
        );
        self.envelope(3, &[&head, &changing, rest, &tail])
    }

    /// The message, with its payload put together and copied once.
    fn envelope(&self, meta_field: u32, payload: &[&str]) -> Bytes {
        let bytes: usize = payload.iter().map(|piece| piece.len()).sum();
        let meta = self.meta.len();
        let mut message =
            BytesMut::with_capacity(bytes + meta + 2 * (1 + encoded_len_varint(bytes as u64)));
        encode_key(1, WireType::LengthDelimited, &mut message);
        encode_varint(bytes as u64, &mut message);
        for piece in payload {
            message.put_slice(piece.as_bytes());
        }
        encode_key(meta_field, WireType::LengthDelimited, &mut message);
        encode_varint(meta as u64, &mut message);
        message.put_slice(&self.meta);
        message.freeze()
    }
}

fn in_parts(time: Timestamp) -> prost_types::Timestamp {
    let nanos = time.as_nanos();
    prost_types::Timestamp {
        seconds: nanos.div_euclid(1_000_000_000),
        nanos: i32::try_from(nanos.rem_euclid(1_000_000_000)).unwrap_or_default(),
    }
}
