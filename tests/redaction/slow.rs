//! A redactor that is slow and easy to follow, to compare the fast one with.
//!
//! It reads a payload into a tree and walks it from the top, with everything that it needs to know
//! about the surroundings at hand. Nothing here is shared with the fast one but its limits. The one
//! thing that it can't do is YAML: it asks the fast one about every string that isn't JSON, on its
//! own.
//!
//! Uses nothing but `spanplane`, `bytes`, `regex`, `serde` and `serde_json`, so that a fuzz target
//! can include it.

use std::{fmt, sync::LazyLock};

use bytes::Bytes;
use regex::Regex;
use serde::{
    Deserialize, Deserializer,
    de::{MapAccess, SeqAccess, Visitor},
};
use spanplane::redact::{
    CleanPayload, MAX_DEPTH, MAX_EMBEDDED_BYTES, MAX_STRINGS, REDACTED, Redactor,
};

/// A manifest has one of them, at least.
const MARKS: [char; 5] = ['{', '\\', '\u{85}', '\u{2028}', '\u{2029}'];

/// JSON with its members in the order in which they came, also those of one name.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Node {
    Null,
    Bool(bool),
    Number(String),
    Text(String),
    List(Vec<Node>),
    Object(Vec<(String, Node)>),
    /// A string that holds JSON of which something was redacted.
    Holds(Box<Node>),
}

/// What is to be taken out.
pub(crate) struct Rules<'r> {
    pub(crate) pointers: &'r [&'r str],
    pub(crate) keys: &'r [&'r str],
    pub(crate) secret_keys: bool,
}

/// What is to happen to the values below a point.
#[derive(Clone, Copy, Eq, Ord, PartialEq, PartialOrd)]
enum Treatment {
    Keep,
    Copies,
    Spec,
    All,
}

/// Everything around a value.
#[derive(Clone)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is a fact about the place, whatever the others are"
)]
struct Around<'a> {
    /// Keys and indices from the top; a key has no meaning if it is the name of a resource.
    path: Vec<Step<'a>>,
    treatment: Treatment,
    by_key: bool,
    /// Something around is a Secret.
    in_secret: bool,
    /// Something around is a `List`.
    in_list: bool,
    /// An item of that list is around that doesn't say what it is.
    in_kindless_item: bool,
    /// The object that the value is a member of.
    object: Option<&'a [(String, Node)]>,
    strings: u8,
}

#[derive(Clone, Copy, PartialEq)]
enum Step<'a> {
    Key(&'a str),
    Index(usize),
}

pub(crate) struct Slow<'r> {
    rules: Rules<'r>,
    keys: Vec<Regex>,
    fast: &'r Redactor,
    values: u64,
}

fn pattern(text: &str) -> Regex {
    Regex::new(text).unwrap()
}

// NOTE: without `u`, case is that of ASCII: `ſecret` is no word of ours.
static WORDS: LazyLock<Regex> = LazyLock::new(|| {
    pattern(
        r"(?i-u)password|passwd|passphrase|token|secret|api[-_. ]?key|private[-_. ]?key|connection[-_. ]?string|kubeconfig",
    )
});
static REFERENCE: LazyLock<Regex> = LazyLock::new(|| {
    pattern(
        r"(^|[^A-Za-z0-9])(?i-u:ref|refs|reference|references|selector|selectors)$|R(?i-u:ef|efs|eference|eferences)$|S(?i-u:elector|electors)$",
    )
});
static NAME: LazyLock<Regex> =
    LazyLock::new(|| pattern(r"(?i-u)(name|names|namespace|namespaces)$"));
static PROPERTY: LazyLock<Regex> = LazyLock::new(|| {
    let words = "algorithm|arn|audience|audiences|backend|class|duration|endpoint|engine|format|\
                 issuer|length|mode|path|policy|provider|seconds|store|ttl|type|types|uri|url|\
                 version|versions";
    let in_upper = words.split('|').map(|word| {
        let (first, rest) = word.split_at(1);
        format!("{}(?i-u:{rest})$", first.to_uppercase())
    });
    let in_upper: Vec<_> = in_upper.collect();
    pattern(&format!(
        "(^|[^A-Za-z0-9])(?i-u:{words})$|{}",
        in_upper.join("|")
    ))
});
static CONVENTION: LazyLock<Regex> = LazyLock::new(|| {
    pattern(
        "(?i-u:existing[-_. ]?secret|image[-_. ]?pull[-_. ]?secret|connection[-_. ]?secret[-_. ]?key)\
         (?:(?i-u:s)?$|(?s:.*)(?i-u:keys?)$)",
    )
});
/// What the keys of annotations begin with.
static DOMAIN: LazyLock<Regex> = LazyLock::new(|| pattern(r"^[-.a-z0-9]*\.[-.a-z0-9]*/"));
static USER: LazyLock<Regex> = LazyLock::new(|| pattern("(?i)user[-_. ]?name$"));
static VERSION: LazyLock<Regex> =
    LazyLock::new(|| pattern(r"^(?:[-.a-z0-9]*/)?v[0-9]+(?:(?:alpha|beta)[0-9]*)?$"));
static CHOICE: LazyLock<Regex> = LazyLock::new(|| pattern("^[A-Z][A-Za-z]{0,39}$"));
static PLAIN_NAME: LazyLock<Regex> = LazyLock::new(|| pattern(r"^[-._A-Za-z0-9]{1,253}$"));
static PLAIN_PATH: LazyLock<Regex> = LazyLock::new(|| pattern(r"^[-._/:\[\]A-Za-z0-9]{1,253}$"));
static TIME: LazyLock<Regex> = LazyLock::new(|| {
    pattern(r"^[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}[-.:+Z0-9]{0,16}$")
});
static BARE_KEY: LazyLock<Regex> =
    LazyLock::new(|| pattern(r#"([\p{Alphabetic}\p{N}_./$-]*)[\\"' \t]*$"#));
static QUOTED_KEY: LazyLock<Regex> =
    LazyLock::new(|| pattern(r#"(?:"([^"]*?)\\*"|'([^']*?)\\*')[ \t\n\r\x0c]*$"#));
/// Whatever isn't one of these words doesn't make a string worth looking into.
static SUSPICIOUS: LazyLock<Regex> = LazyLock::new(|| {
    pattern(
        r#"(?i-u:passw|passph|token|secret|api[-_. ]?key|private[-_. ]?key|connection|kubeco)|credentials|stringData|Opaque|"List|(?:^|[^-.])(?i-u:kubernetes\.io)\\*/[bdst]|\\[uUx]|[A-Za-z0-9]\\+(?:\\\\[nr]|[\x{85}\x{2028}\x{2029}])"#,
    )
});

/// A key names a secret.
fn names_secret(key: &str) -> bool {
    let key = DOMAIN.replace(key, "");
    let key = key.as_ref();
    WORDS.is_match(key)
        && !REFERENCE.is_match(key)
        && !NAME.is_match(key)
        && !PROPERTY.is_match(key)
        && !CONVENTION.is_match(key)
}

fn text_of<'n>(object: &'n [(String, Node)], key: &str) -> impl Iterator<Item = &'n str> {
    let key = key.to_owned();
    object.iter().filter_map(move |(name, value)| match value {
        Node::Text(text) if *name == key => Some(text.as_str()),
        _ => None,
    })
}

impl<'r> Slow<'r> {
    /// `fast` has the same rules.
    pub(crate) fn new(rules: Rules<'r>, fast: &'r Redactor) -> Self {
        Self {
            keys: rules.keys.iter().map(|key| pattern(key)).collect(),
            fast,
            rules,
            values: 0,
        }
    }

    /// The payload without its secrets, and how many they were; `None` if this can't read it.
    pub(crate) fn redact(mut self, payload: &str) -> Option<(Node, u64)> {
        let node: Node = serde_json::from_str(payload).ok()?;
        let top = Around {
            path: Vec::new(),
            treatment: Treatment::Keep,
            by_key: true,
            in_secret: false,
            in_list: false,
            in_kindless_item: false,
            object: None,
            strings: 0,
        };
        let clean = self.visit(&node, &top);
        Some((clean, self.values))
    }

    fn redacted(&mut self) -> Node {
        self.values += 1;
        Node::Text(REDACTED.to_owned())
    }

    fn visit<'a>(&mut self, node: &'a Node, around: &Around<'a>) -> Node {
        let is_container = matches!(node, Node::List(_) | Node::Object(_));
        if is_container && around.path.len() >= MAX_DEPTH {
            return self.redacted();
        }
        let mut around = around.clone();
        around.treatment = around.treatment.max(self.own_treatment(node, &around));
        if is_container && let Some(key) = key_of(&around) {
            let holds_references = REFERENCE.is_match(key)
                || matches!(key, "labels" | "managedFields" | "matchLabels");
            around.by_key &= !holds_references;
        }
        match node {
            Node::List(items) => {
                around.object = None;
                let items = items.iter().enumerate().map(|(index, item)| {
                    let mut around = around.clone();
                    around.path.push(Step::Index(index));
                    self.visit(item, &around)
                });
                Node::List(items.collect())
            }
            Node::Object(members) => self.visit_object(members, around),
            Node::Null | Node::Holds(_) => node.clone(),
            Node::Text(text) if matches!(text.as_str(), REDACTED | "KipSRURBQ1RFRCoq") => {
                node.clone()
            }
            Node::Text(text) if self.stays(text, &around) => self.look_inside(text, &around),
            Node::Bool(_) | Node::Number(_) if self.scalar_stays(node, &around) => node.clone(),
            Node::Text(_) | Node::Bool(_) | Node::Number(_) => self.redacted(),
        }
    }

    fn visit_object<'a>(&mut self, members: &'a [(String, Node)], mut around: Around<'a>) -> Node {
        let mut has_kind = false;
        let mut has_secret_type = false;
        let mut is_secret = false;
        let mut is_list = false;
        // Names of resources mean nothing.
        let mut member = around.path.clone();
        member.push(Step::Key(""));
        if !is_name_of_resource(&member, around.strings) {
            for kind in text_of(members, "kind") {
                has_kind |= !kind.trim().is_empty();
                is_secret |= kind.contains("Secret");
                is_list |= kind == "List";
            }
            has_secret_type = text_of(members, "type").any(|kind| {
                matches!(
                    kind,
                    "Opaque"
                        | "connection.crossplane.io/v1alpha1"
                        | "kubernetes.io/basic-auth"
                        | "kubernetes.io/dockerconfigjson"
                        | "kubernetes.io/service-account-token"
                        | "kubernetes.io/ssh-auth"
                        | "kubernetes.io/tls"
                )
            });
        }
        let is_item = matches!(
            around.path.as_slice(),
            [.., Step::Key("items"), Step::Index(_)]
        );
        around.in_kindless_item |= around.in_list && is_item && !has_kind;
        around.in_secret |= is_secret || (has_secret_type && !has_kind);
        around.in_list |= is_list;
        around.object = Some(members);
        let members = members.iter().map(|(key, value)| {
            let mut around = around.clone();
            around.path.push(Step::Key(key));
            (key.clone(), self.visit(value, &around))
        });
        Node::Object(members.collect())
    }

    /// What is to happen to a value because of its own key or place.
    fn own_treatment(&self, node: &Node, around: &Around<'_>) -> Treatment {
        if around.strings == 0 && self.is_pointed_at(&around.path) {
            return Treatment::All;
        }
        let Some(key) = key_of(around) else {
            return Treatment::Keep;
        };
        let is_list = matches!(node, Node::List(_));
        let in_secret = around.in_secret || around.in_kindless_item;
        let by_secret = match key {
            "data" if in_secret && is_list => Treatment::Spec,
            "data" | "kubectl.kubernetes.io/last-applied-configuration" if in_secret => {
                Treatment::All
            }
            "annotations" if in_secret => Treatment::Copies,
            _ => Treatment::Keep,
        };
        let by_key = match key {
            "connectionDetails" if is_list && !is_of_protocol(&around.path, around.strings) => {
                Treatment::Spec
            }
            "connectionDetails" => Treatment::All,
            "credentials" if around.strings == 0 && around.path.len() == 1 => Treatment::All,
            "credentials" => Treatment::Spec,
            "stringData" if parent_key(around) != Some("properties") => Treatment::All,
            _ if self.is_named(key, around) => Treatment::Spec,
            _ => Treatment::Keep,
        };
        by_secret.max(by_key)
    }

    fn is_named(&self, key: &str, around: &Around<'_>) -> bool {
        around.by_key
            && self.keys.iter().any(|pattern| pattern.is_match(key))
            && !REFERENCE.is_match(key)
            && !NAME.is_match(key)
    }

    fn is_pointed_at(&self, path: &[Step<'_>]) -> bool {
        self.rules.pointers.iter().any(|pointer| {
            let segments: Vec<_> = pointer.split('/').skip(1).collect();
            segments.len() == path.len()
                && segments.iter().zip(path).all(|(segment, step)| {
                    let segment = segment.replace("~1", "/").replace("~0", "~");
                    segment == "*"
                        || match step {
                            Step::Key(key) => segment == *key,
                            Step::Index(index) => segment == index.to_string(),
                        }
                })
        })
    }

    fn scalar_stays(&self, node: &Node, around: &Around<'_>) -> bool {
        let is_named = key_of(around).is_some_and(|key| self.is_named(key, around));
        match around.treatment {
            Treatment::All => false,
            Treatment::Spec => matches!(node, Node::Bool(_)),
            Treatment::Copies | Treatment::Keep => !is_named,
        }
    }

    fn stays(&self, text: &str, around: &Around<'_>) -> bool {
        let key = key_of(around);
        match around.treatment {
            Treatment::All => {
                key == Some("lastPublishedTime")
                    && parent_key(around) == Some("connectionDetails")
                    && TIME.is_match(text)
            }
            Treatment::Spec => match around.path.last() {
                Some(Step::Key(key)) => {
                    is_reference(key, text, around) && self.stays_by_key(text, around)
                }
                _ => false,
            },
            Treatment::Copies => {
                let written = serde_json::to_string(text).unwrap();
                written.len() - 2 <= 256
                    && !written.contains(MARKS)
                    && self.stays_by_key(text, around)
            }
            Treatment::Keep => self.stays_by_key(text, around),
        }
    }

    fn stays_by_key(&self, text: &str, around: &Around<'_>) -> bool {
        let Some(key) = key_of(around) else {
            return true;
        };
        if self.is_named(key, around) {
            return false;
        }
        if !self.rules.secret_keys || !around.by_key || matches!(text, "" | "true" | "false") {
            return true;
        }
        let object = around.object.unwrap();
        match key {
            "value" => {
                let mut names = text_of(object, "name").chain(text_of(object, "key"));
                !names.any(names_secret)
            }
            "secretKey" => object.iter().any(|(key, _)| key == "remoteRef"),
            key => !names_secret(key),
        }
    }

    fn look_inside(&mut self, text: &str, around: &Around<'_>) -> Node {
        let unchanged = Node::Text(text.to_owned());
        let written = serde_json::to_string(text).unwrap();
        let has_word = SUSPICIOUS.is_match(&written);
        if !has_word && self.keys.is_empty() {
            return unchanged;
        }
        if text.contains("PRIVATE KEY-----") {
            return self.redacted();
        }
        if !written.contains(MARKS) {
            return unchanged;
        }
        if around.strings >= MAX_STRINGS || written.len() - 2 > MAX_EMBEDDED_BYTES {
            return if has_word || self.names_key_in(&written) {
                self.redacted()
            } else {
                unchanged
            };
        }
        let content = text.strip_prefix('\u{feff}').unwrap_or(text);
        match serde_json::from_str::<Node>(content) {
            Ok(inner) if content.trim_ascii_start().starts_with(['{', '[', '"']) => {
                let before = self.values;
                let top = Around {
                    path: Vec::new(),
                    treatment: Treatment::Keep,
                    by_key: true,
                    in_secret: false,
                    in_list: false,
                    in_kindless_item: false,
                    object: None,
                    strings: around.strings + 1,
                };
                let clean = self.visit(&inner, &top);
                if self.values == before {
                    unchanged
                } else {
                    Node::Holds(Box::new(clean))
                }
            }
            _ => self.ask_fast_one(&written),
        }
    }

    /// The user named something that looks like a key.
    fn names_key_in(&self, written: &str) -> bool {
        let written = written.get(1..written.len() - 1).unwrap();
        let is_named = |key: &str| {
            self.keys.iter().any(|pattern| pattern.is_match(key))
                && !REFERENCE.is_match(key)
                && !NAME.is_match(key)
        };
        written.match_indices(':').any(|(colon, _)| {
            let before = written.get(..colon).unwrap();
            let bare = BARE_KEY.captures(before).unwrap();
            let quoted = QUOTED_KEY.captures(before);
            let word = &bare[1];
            quoted.is_some_and(|found| is_named(found.get(1).or(found.get(2)).unwrap().as_str()))
                || is_named(word)
                || is_named(word.strip_prefix('n').unwrap_or(word))
        })
    }

    /// What the fast redactor makes of one string.
    fn ask_fast_one(&mut self, written: &str) -> Node {
        let redacted = self
            .fast
            .redact(&Bytes::copy_from_slice(written.as_bytes()));
        self.values += redacted.values;
        let CleanPayload::Json(json) = redacted.payload else {
            panic!("a string is not JSON: {written}");
        };
        serde_json::from_slice(&json).unwrap()
    }
}

/// A string below `credentials` and the like says where a secret is, not what it is.
fn is_reference(key: &str, text: &str, around: &Around<'_>) -> bool {
    let object = around.object.unwrap();
    let parent = parent_key(around);
    let is_in_detail = matches!(
        around.path.as_slice(),
        [
            ..,
            Step::Key("connectionDetails"),
            Step::Index(_),
            Step::Key(_)
        ]
    );
    match key {
        "name" => {
            let sources = [
                "fieldPath",
                "fromConnectionSecretKey",
                "fromFieldPath",
                "toConnectionSecretKey",
                "type",
                "value",
            ];
            let says_source = object
                .iter()
                .any(|(key, _)| sources.contains(&key.as_str()));
            PLAIN_NAME.is_match(text) && (!is_in_detail || says_source)
        }
        "secretKey" => {
            PLAIN_NAME.is_match(text) && object.iter().any(|(key, _)| key == "remoteRef")
        }
        "kind" | "source" | "type" | "conversionStrategy" | "decodingStrategy"
        | "metadataPolicy" => CHOICE.is_match(text),
        "path" => parent == Some("fs") && PLAIN_PATH.is_match(text),
        "apiVersion" => VERSION.is_match(text) && text.len() <= 253,
        "connectionSecretKey"
        | "fromConnectionSecretKey"
        | "fromFieldPath"
        | "toConnectionSecretKey" => is_in_detail && PLAIN_PATH.is_match(text),
        "fieldPath" | "key" | "property" | "remoteKey" | "version" => {
            let is_in_reference = parent.is_some_and(|key| REFERENCE.is_match(key));
            let is_path_of_detail = is_in_detail && key == "fieldPath";
            (is_in_reference || is_path_of_detail) && PLAIN_PATH.is_match(text)
        }
        _ => {
            let is_name = NAME.is_match(key) && !USER.is_match(key);
            (is_name || REFERENCE.is_match(key)) && PLAIN_NAME.is_match(text)
        }
    }
}

/// The key of a value, unless it is the name of a resource.
fn key_of<'a>(around: &Around<'a>) -> Option<&'a str> {
    match around.path.last() {
        Some(Step::Key(key)) if !is_name_of_resource(&around.path, around.strings) => Some(key),
        _ => None,
    }
}

/// The key of the object that a value is a member of.
fn parent_key<'a>(around: &Around<'a>) -> Option<&'a str> {
    match around.path.as_slice() {
        [.., Step::Key(key), Step::Key(_)] => Some(key),
        _ => None,
    }
}

fn is_name_of_resource(path: &[Step<'_>], strings: u8) -> bool {
    use Step::Key;
    strings == 0
        && matches!(
            path,
            [
                Key("requiredResources" | "extraResources" | "requiredSchemas"),
                Key(_)
            ] | [Key("observed" | "desired"), Key("resources"), Key(_)]
                | [
                    Key("requirements"),
                    Key("resources" | "extraResources" | "schemas"),
                    Key(_)
                ]
        )
}

/// Connection details where the protocol has them.
fn is_of_protocol(path: &[Step<'_>], strings: u8) -> bool {
    use Step::Key;
    strings == 0
        && matches!(
            path,
            [Key("observed" | "desired"), Key("composite"), Key(_)]
                | [Key("observed" | "desired"), Key("resources"), _, Key(_)]
        )
}

/// Whether what the fast one left is what the slow one left.
pub(crate) fn agrees(fast: &Node, slow: &Node) -> bool {
    match (fast, slow) {
        (Node::Text(text), Node::Holds(slow)) => {
            let text = text.strip_prefix('\u{feff}').unwrap_or(text);
            serde_json::from_str(text).is_ok_and(|fast| agrees(&fast, slow))
        }
        (Node::List(fast), Node::List(slow)) => {
            fast.len() == slow.len() && fast.iter().zip(slow).all(|(fast, slow)| agrees(fast, slow))
        }
        (Node::Object(fast), Node::Object(slow)) => {
            let same = |((key, fast), (slow_key, slow)): (&(String, Node), &(String, Node))| {
                key == slow_key && agrees(fast, slow)
            };
            fast.len() == slow.len() && fast.iter().zip(slow).all(same)
        }
        (fast, slow) => fast == slow,
    }
}

impl<'de> Deserialize<'de> for Node {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Reader;

        impl<'de> Visitor<'de> for Reader {
            type Value = Node;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("JSON")
            }

            fn visit_unit<E>(self) -> Result<Node, E> {
                Ok(Node::Null)
            }

            fn visit_bool<E>(self, value: bool) -> Result<Node, E> {
                Ok(Node::Bool(value))
            }

            fn visit_i64<E>(self, value: i64) -> Result<Node, E> {
                Ok(Node::Number(value.to_string()))
            }

            fn visit_u64<E>(self, value: u64) -> Result<Node, E> {
                Ok(Node::Number(value.to_string()))
            }

            fn visit_f64<E>(self, value: f64) -> Result<Node, E> {
                Ok(Node::Number(value.to_string()))
            }

            fn visit_str<E>(self, value: &str) -> Result<Node, E> {
                Ok(Node::Text(value.to_owned()))
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Node, A::Error> {
                let mut items = Vec::new();
                while let Some(item) = list.next_element()? {
                    items.push(item);
                }
                Ok(Node::List(items))
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Node, A::Error> {
                let mut members = Vec::new();
                while let Some(member) = map.next_entry()? {
                    members.push(member);
                }
                Ok(Node::Object(members))
            }
        }

        deserializer.deserialize_any(Reader)
    }
}
