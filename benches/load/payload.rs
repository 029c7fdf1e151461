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
const AROUND_BYTES: usize = 1400;

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
    pub(crate) fn observed_bytes(self) -> usize {
        let observed = (2 * self.request_bytes / 3).saturating_sub(AROUND_BYTES);
        observed / self.resources
    }

    pub(crate) fn desired_bytes(self) -> usize {
        self.request_bytes / 3 / self.resources
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
            resource.write_observed(&mut observed, 1, shape.observed_bytes());
            for (step, desired) in desired.iter_mut().enumerate() {
                desired.push_str(", ");
                resource.write_desired(desired, 1, step, shape.desired_bytes());
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

    fn kind(&self) -> (&'static str, &'static str) {
        KINDS
            .get(self.place % KINDS.len())
            .copied()
            .unwrap_or(("", ""))
    }

    /// With all that the API server and a provider add; `version` is how often it changed.
    pub(crate) fn write_observed(&self, out: &mut String, version: u32, bytes: usize) {
        let end = out.len() + bytes;
        let mut rng = self.rng();
        let (place, (api_version, kind)) = (self.place, self.kind());
        let (name, uid, id) = (hex(&mut rng, 12), uuid(&mut rng), hex(&mut rng, 17));
        let time = time(&mut rng);
        let resource_version = 1_000_000 + rng.u32(..900_000) + version;
        write(
            out,
            format_args!(
                "\"{}-{place}\":{{\"resource\":{{\"apiVersion\":\"{api_version}\", \"kind\":\"{kind}\", \
             \"metadata\":{{\"annotations\":{{\"crossplane.io/composition-resource-name\":\"{}-{place}\", \
             \"crossplane.io/external-create-succeeded\":\"{time}\", \"crossplane.io/external-name\":\"res-{id}\"}}, \
             \"creationTimestamp\":\"{time}\", \"finalizers\":[\"finalizer.managedresource.crossplane.io\"], \
             \"generation\":{version}, \"labels\":{{\"crossplane.io/composite\":\"platform\"}}, \
             \"name\":\"platform-{name}\", \"resourceVersion\":\"{resource_version}\", \"uid\":\"{uid}\"}}, \
             \"spec\":{{\"deletionPolicy\":\"Delete\", \"forProvider\":{{\"capacity\":{version}, \"region\":\"eu-central-1\"}}, \
             \"providerConfigRef\":{{\"name\":\"default\"}}}}, \"status\":{{\"atProvider\":{{\
             \"arn\":\"arn:aws:ec2:eu-central-1:120000000000:res/res-{id}\", \"capacity\":{version}, \"id\":\"res-{id}\", \
             \"rules\":[",
                kind.to_lowercase(),
                kind.to_lowercase(),
            ),
        );
        let tail = format!(
            "]}}, \"conditions\":[{{\"lastTransitionTime\":\"{time}\", \"reason\":\"ReconcileSuccess\", \
             \"status\":\"True\", \"type\":\"Synced\"}}, {{\"lastTransitionTime\":\"{time}\", \"reason\":\"Available\", \
             \"status\":\"True\", \"type\":\"Ready\"}}]}}}}}}"
        );
        write_rules(out, &mut rng, end.saturating_sub(tail.len()), true);
        out.push_str(&tail);
    }

    /// As a step leaves it: the first composes it, those in between add to some, the last finds
    /// all of them ready.
    pub(crate) fn write_desired(&self, out: &mut String, version: u32, step: usize, bytes: usize) {
        let end = out.len() + bytes;
        let mut rng = self.rng();
        let (place, (api_version, kind)) = (self.place, self.kind());
        write(
            out,
            format_args!(
                "\"{}-{place}\":{{\"resource\":{{\"apiVersion\":\"{api_version}\", \"kind\":\"{kind}\", ",
                kind.to_lowercase(),
            ),
        );
        let labels = ["team", "cost-center", "data-class"].iter().zip(1..=step);
        let labels = labels.filter(|(_, by)| (place + by) % 2 == 0);
        let labels: Vec<_> = labels
            .map(|(label, by)| format!("\"{label}\":\"value-{by}\""))
            .collect();
        let labels = labels.join(", ");
        write(
            out,
            format_args!(
                "\"metadata\":{{\"labels\":{{{labels}}}}}, \"spec\":{{\"deletionPolicy\":\"Delete\", \
             \"forProvider\":{{\"capacity\":{version}, \"region\":\"eu-central-1\", \"rules\":["
            ),
        );
        let ready = if step + 1 == STEPS {
            ", \"ready\":\"READY_TRUE\""
        } else {
            ""
        };
        let tail = format!("]}}, \"providerConfigRef\":{{\"name\":\"default\"}}}}}}{ready}}}");
        write_rules(out, &mut rng, end.saturating_sub(tail.len()), false);
        out.push_str(&tail);
    }
}

/// As many as fit.
fn write_rules(out: &mut String, rng: &mut Rng, end: usize, is_observed: bool) {
    let mut separator = "";
    while out.len() + 140 < end {
        let (a, b, port) = (rng.u8(..), rng.u8(..), rng.u16(1024..));
        write(
            out,
            format_args!(
                "{separator}{{\"cidr\":\"10.{a}.{b}.0/24\", \"description\":\"from subnet {a} to port {port}\", \
             \"fromPort\":{port}, \"protocol\":\"tcp\", "
            ),
        );
        if is_observed {
            write(out, format_args!("\"ruleId\":\"sgr-{}\", ", hex(rng, 17)));
        }
        write(out, format_args!("\"toPort\":{port}}}"));
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
