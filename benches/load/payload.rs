//! The JSON of composed resources, as core's protojson writes it.
//!
//! Invariant: text is made once and shared. XRs share that of their resources, but for one; every
//! reconcile is compressed by itself, so that this gains a server nothing. Names, ids, addresses
//! and times differ from resource to resource as those of real ones do; nothing is noise.

use std::fmt::Write as _;

use fastrand::Rng;

/// Of a pipeline.
pub(crate) const STEPS: usize = 5;

/// The XR's own part of the observed state, and the JSON around it all.
const AROUND_BYTES: usize = 1700;
/// Of a desired resource, what stands around its spec.
const AROUND_SPEC_BYTES: usize = 200;

/// Of a rule, about.
const RULE_BYTES: usize = 150;

/// What a payload holds.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shape {
    /// Composed resources.
    pub(crate) resources: usize,
    /// Size of a request, about. Two thirds are the observed state and the rest is the desired
    /// one, which is most of a response.
    pub(crate) request_bytes: usize,
}

impl Shape {
    fn observed_bytes(self) -> usize {
        self.bytes_per_resource() * 2 / 3
    }

    fn spec_bytes(self) -> usize {
        (self.bytes_per_resource() / 3).saturating_sub(AROUND_SPEC_BYTES)
    }

    fn bytes_per_resource(self) -> usize {
        self.request_bytes.saturating_sub(AROUND_BYTES) / self.resources
    }
}

/// The text of all resources but the first, which is the one that changes.
#[derive(Debug)]
pub(crate) struct Bodies {
    pub(crate) observed: String,
    /// As each step leaves it.
    pub(crate) desired: [String; STEPS],
}

impl Bodies {
    pub(crate) fn new(shape: Shape, seed: u64) -> Self {
        let mut observed = String::with_capacity(shape.request_bytes);
        let mut desired = [const { String::new() }; STEPS];
        for place in 1..shape.resources {
            let resource = Resource::new(place, seed);
            observed.push_str(", ");
            resource.write_observed(&mut observed, 1, shape);
            for (step, desired) in desired.iter_mut().enumerate() {
                desired.push_str(", ");
                resource.write_desired(desired, 1, step, shape);
            }
        }
        Self { observed, desired }
    }
}

/// A composed resource.
#[derive(Debug)]
pub(crate) struct Resource {
    place: usize,
    seed: u64,
}

const KINDS: [(&str, &str); 5] = [
    ("ec2.aws.example.org/v1beta1", "SecurityGroup"),
    ("ec2.aws.example.org/v1beta1", "Subnet"),
    ("rds.aws.example.org/v1beta2", "Instance"),
    ("iam.aws.example.org/v1beta1", "RolePolicy"),
    ("kubernetes.example.org/v1alpha2", "Object"),
];

impl Resource {
    pub(crate) fn new(place: usize, seed: u64) -> Self {
        Self { place, seed }
    }

    /// What is told at random about this resource is the same every time.
    fn rng(&self) -> Rng {
        Rng::with_seed(self.seed.wrapping_mul(1_000_003) + self.place as u64)
    }

    /// With all that the API server and a provider add to what is desired in the end; `version` is
    /// how often it changed.
    pub(crate) fn write_observed(&self, out: &mut String, version: u32, shape: Shape) {
        let end = out.len() + shape.observed_bytes();
        let mut rng = self.rng();
        let (name, uid, id) = (hex(&mut rng, 12), uuid(&mut rng), hex(&mut rng, 17));
        let (key, time) = (self.write_head(out), time(&mut rng));
        let resource_version = 1_000_000 + rng.u32(..900_000) + version;
        let labels = self.labels(STEPS);
        write(
            out,
            format_args!(
                "\"metadata\":{{\"annotations\":{{\"crossplane.io/composition-resource-name\":\"{key}\", \
                 \"crossplane.io/external-create-succeeded\":\"{time}\", \
                 \"crossplane.io/external-name\":\"res-{id}\"}}, \"creationTimestamp\":\"{time}\", \
                 \"finalizers\":[\"finalizer.managedresource.crossplane.io\"], \"generation\":{version}, \
                 \"labels\":{{\"crossplane.io/composite\":\"platform\", {labels}}}, \"name\":\"platform-{name}\", \
                 \"resourceVersion\":\"{resource_version}\", \"uid\":\"{uid}\"}}, "
            ),
        );
        self.write_spec(out, version, shape.spec_bytes());
        write(
            out,
            format_args!(
                ", \"status\":{{\"atProvider\":{{\"arn\":\"arn:aws:ec2:eu-central-1:120000000000:res/res-{id}\", \
                 \"capacity\":{version}, \"rules\":["
            ),
        );
        let tail = format!(
            "]}}, \"conditions\":[{{\"lastTransitionTime\":\"{time}\", \"reason\":\"ReconcileSuccess\", \
             \"status\":\"True\", \"type\":\"Synced\"}}, {{\"lastTransitionTime\":\"{time}\", \
             \"reason\":\"Available\", \"status\":\"True\", \"type\":\"Ready\"}}]}}}}}}"
        );
        write_rules(out, &mut rng, end.saturating_sub(tail.len()), "ruleId");
        out.push_str(&tail);
    }

    /// As a step leaves it: the first composes it, those in between add to some, the last finds
    /// all of them ready.
    pub(crate) fn write_desired(&self, out: &mut String, version: u32, step: usize, shape: Shape) {
        self.write_head(out);
        let labels = self.labels(step);
        write(
            out,
            format_args!("\"metadata\":{{\"labels\":{{{labels}}}}}, "),
        );
        self.write_spec(out, version, shape.spec_bytes());
        let is_last = step + 1 == STEPS;
        out.push_str(if is_last {
            "}, \"ready\":\"READY_TRUE\"}"
        } else {
            "}}"
        });
    }

    /// Up to its metadata; returns its name among the composed resources.
    fn write_head(&self, out: &mut String) -> String {
        let kind = KINDS.get(self.place % KINDS.len());
        let (api_version, kind) = kind.copied().unwrap_or_default();
        let key = format!("{}-{}", kind.to_lowercase(), self.place);
        write(
            out,
            format_args!(
                "\"{key}\":{{\"resource\":{{\"apiVersion\":\"{api_version}\", \"kind\":\"{kind}\", "
            ),
        );
        key
    }

    /// Those that a step and the ones before it have put on; each of them puts one on every other
    /// resource.
    fn labels(&self, step: usize) -> String {
        let labels = ["team", "cost-center", "data-class"].iter().zip(1..=step);
        let labels = labels.filter(|(_, by)| (self.place + by).is_multiple_of(2));
        let mut text = "\"tier\":\"backend\"".to_owned();
        for (label, by) in labels {
            write(&mut text, format_args!(", \"{label}\":\"value-{by}\""));
        }
        text
    }

    fn write_spec(&self, out: &mut String, version: u32, bytes: usize) {
        let end = out.len() + bytes;
        write(
            out,
            format_args!(
                "\"spec\":{{\"deletionPolicy\":\"Delete\", \"forProvider\":{{\"capacity\":{version}, \
                 \"region\":\"eu-central-1\", \"rules\":["
            ),
        );
        let tail = "]}, \"providerConfigRef\":{\"name\":\"default\"}}";
        write_rules(
            out,
            &mut self.rng(),
            end.saturating_sub(tail.len()),
            "sourceGroup",
        );
        out.push_str(tail);
    }
}

/// As many as fit, each with an id under this name.
fn write_rules(out: &mut String, rng: &mut Rng, end: usize, id: &str) {
    let mut separator = "";
    while out.len() + RULE_BYTES < end {
        let (a, b, port) = (rng.u8(..), rng.u8(..), rng.u16(1024..));
        let group = hex(rng, 17);
        write(
            out,
            format_args!(
                "{separator}{{\"cidr\":\"10.{a}.{b}.0/24\", \"description\":\"to port {port}\", \
                 \"fromPort\":{port}, \"protocol\":\"tcp\", \"{id}\":\"sg-{group}\", \"toPort\":{port}}}"
            ),
        );
        separator = ", ";
    }
}

fn write(out: &mut String, text: std::fmt::Arguments<'_>) {
    #[expect(clippy::expect_used, reason = "a `String` takes everything")]
    out.write_fmt(text).expect("a `String` takes everything");
}

fn hex(rng: &mut Rng, digits: usize) -> String {
    let mut text = format!("{:032x}", rng.u128(..));
    text.truncate(digits);
    text
}

/// Version 4, as core makes its ids.
pub(crate) fn uuid(rng: &mut Rng) -> String {
    let mut text = hex(rng, 32);
    text.replace_range(12..13, "4");
    text.replace_range(16..17, "a");
    for dash in [20, 16, 12, 8] {
        text.insert(dash, '-');
    }
    text
}

fn time(rng: &mut Rng) -> String {
    let (day, hour, minute, second) = (rng.u8(1..29), rng.u8(..24), rng.u8(..60), rng.u8(..60));
    format!("2026-10-{day:02}T{hour:02}:{minute:02}:{second:02}Z")
}
