//! YAML inside strings, and templates of it.

use serde_json::{Value, json};

use super::{Place, covered, kept, not_covered, with_input};

/// A function's input with this template.
fn template(text: &str) -> Value {
    with_input(&json!({"inline": {"template": text}, "kind": "GoTemplate"}))
}

/// The inputs of a function with these templates, which have the canary where there is an `@`.
fn templates_of(texts: &[&str], canary: &str) -> Value {
    let templates = texts.iter().map(|text| text.replace('@', canary));
    with_input(&templates.collect())
}

pub(super) fn places() -> Vec<Place> {
    let mut places = blocks();
    places.extend(manifests());
    places.extend(withheld());
    places.extend(odd());
    places.extend(across_lines());
    places.extend(templates());
    places.extend(others());
    places
}

/// What is understood, so that only values go.
fn blocks() -> Vec<Place> {
    vec![
        covered("`data` and `stringData` of a Secret", |canary| {
            template(&format!(
                "apiVersion: v1\nkind: Secret\ndata:\n  a: {canary}\nstringData:\n  b: {canary}\n"
            ))
        }),
        covered("a Secret that says its `kind` last", |canary| {
            template(&format!(
                "data:\n  a: {canary}\nmetadata:\n  name: x\nkind: Secret"
            ))
        }),
        covered("one of several documents", |canary| {
            template(&format!(
                "kind: ConfigMap\ndata:\n  a: b\n---\nkind: Secret\ndata:\n  a: {canary}\n---\nkind: X\n"
            ))
        }),
        covered("an item of a list", |canary| {
            template(&format!(
                "items:\n- kind: ConfigMap\n  data:\n    a: b\n- data:\n    a: {canary}\n  kind: Secret\n"
            ))
        }),
        covered("a Secret in another object's manifest", |canary| {
            template(&format!(
                "kind: Object\nspec:\n  manifest:\n    kind: Secret\n    stringData:\n      a: {canary}\n  other: x\n"
            ))
        }),
        covered("a Secret in YAML in YAML (`manifest: |`)", |canary| {
            template(&format!(
                "kind: ConfigMap\ndata:\n  manifest: |\n    kind: Secret\n    data:\n      a: {canary}\n"
            ))
        }),
        covered("values of several lines", |canary| {
            template(&format!(
                "kind: Secret\nstringData:\n  a: |\n    {canary}\n\n    {canary}\n  b: >-\n    {canary}\n  c:\n    d: {canary}\nmetadata:\n  name: x\n"
            ))
        }),
        covered("values in flow style", |canary| {
            template(&format!(
                "kind: Secret\ndata: {{a: {canary}}}\nstringData: {{b: [{canary}],\n  c: {canary}}}\n"
            ))
        }),
        covered("quoted keys and values", |canary| {
            template(&format!(
                "\"kind\": 'Secret'\n'data':\n  \"a\" : \"{canary}\"\n  'b': '{canary}'\n"
            ))
        }),
        covered("lines that end in CRLF", |canary| {
            template(&format!(
                "kind: Secret\r\ndata:\r\n  a: {canary}\r\ntype: Opaque\r\n"
            ))
        }),
        covered("comments between values", |canary| {
            template(&format!(
                "kind: Secret\ndata:\n  a: x\n  # it was {canary}\n  b: y # or {canary}\n  # {canary}\nmetadata: {{}}\n"
            ))
        }),
        covered(
            "other kinds with `Secret` in their names, at any depth",
            |canary| {
                template(&format!(
                    "kind: ExternalSecret\nspec:\n  target:\n    template:\n      data:\n        a: {canary}\n"
                ))
            },
        ),
        covered(
            "in a manifest, a literal value of a key that names a secret",
            |canary| {
                template(&format!(
                    "apiVersion: example.org/v1\nkind: Database\nspec:\n  masterPassword: {canary}\n  api_key: \"{canary}\"\n"
                ))
            },
        ),
        covered(
            "in a manifest, a literal value of several lines of such a key",
            |canary| {
                template(&format!(
                    "apiVersion: example.org/v1\nkind: Database\nspec:\n  privateKey: |\n    {canary}\n    {canary}\n  size: 3\n"
                ))
            },
        ),
    ]
}

/// A manifest of something that isn't a Secret.
fn manifest(spec: &str) -> Value {
    template(&format!(
        "apiVersion: example.org/v1\nkind: Database\nspec:\n{spec}"
    ))
}

/// What goes from a manifest by its key or place.
#[expect(clippy::too_many_lines, reason = "a table")]
fn manifests() -> Vec<Place> {
    vec![
        covered(
            "in a manifest, such a key in flow style, or in JSON",
            |canary| {
                manifest(&format!(
                    "  auth: {{password: {canary}, passwordSecretRef: {{name: x}}}}\n  b: [{{a: b,\n    token: '{canary}'}}]\n  c:\n  - {{\"api_key\": \"{canary}\"}}\n"
                ))
            },
        ),
        covered(
            "in a manifest, such a value with a tag or an anchor",
            |canary| {
                manifest(&format!(
                    "  password: !!str {canary}\n  token: &a {canary}\n  secret: &b !!str \"{canary}\"\n"
                ))
            },
        ),
        covered(
            "in a manifest, such a value that is an alias: the string is withheld",
            |canary| manifest(&format!("  a: &pw {canary}\n  password: *pw\n")),
        ),
        covered("in a manifest, such a value on the next line", |canary| {
            manifest(&format!(
                "  password:\n    {canary}\n  token: # below\n\n    \"{canary}\n    {canary}\"\n  secret: |\n    {canary}\n"
            ))
        }),
        covered(
            "in a manifest, such a value that looks like a number: `infinity`",
            |canary| {
                template(&format!(
                    "apiVersion: v1\nkind: X\na: {{password: infinity-{canary}}}\npassword: inf{canary}\n"
                ))
            },
        ),
        covered(
            "in a manifest, the `value` beside a `name` or `key` that names a secret",
            |canary| {
                manifest(&format!(
                    "  env:\n  - name: DB_PASSWORD\n    value: {canary}\n  - value: \"{canary}\"\n    name: TOKEN\n  set: [{{name: auth.password, value: {canary}}}]\n  vars:\n    - key: api_token\n      value:\n        {canary}\n"
                ))
            },
        ),
        covered(
            "in a manifest, `credentials`, but for references",
            |canary| {
                manifest(&format!(
                    "  credentials:\n    inline: {canary}\n    username: {canary}\n    number: {canary}\n    list:\n    - {canary}\n    secretRef: {{name: x, inline: {canary}}}\n"
                ))
            },
        ),
        covered(
            "in a manifest, `credentials` in flow style, or a string",
            |canary| {
                manifest(&format!(
                    "  a:\n    credentials: {{inline: {canary}, list: [{canary}]}}\n  b:\n    credentials: {canary}\n  c:\n    credentials:\n      {canary}\n"
                ))
            },
        ),
        covered("in a manifest, `connectionDetails`", |canary| {
            manifest(&format!(
                "  a:\n    connectionDetails:\n      name: {canary}\n  connectionDetails:\n  - name: a\n    type: FromValue\n    value: {canary}\n  - name: {canary}\n"
            ))
        }),
        covered(
            "in a manifest of a Secret, annotations that hold JSON or are long",
            |canary| {
                template(&format!(
                    "apiVersion: v1\nkind: Secret\nmetadata:\n  annotations:\n    a: '{{\"data\":{{\"a\":\"{canary}\"}}}}'\n    b: |\n      {{\"data\":{{\"a\":\"{canary}\"}}}}\n    c: {canary}{}\n    kubectl.kubernetes.io/last-applied-configuration: {canary}\n",
                    "A".repeat(256)
                ))
            },
        ),
        covered(
            "in a manifest, JSON of a Secret without a kind, by its `type`: the string is withheld",
            |canary| {
                manifest(&format!(
                    "  copy: '{{\"data\":{{\"a\":\"{canary}\"}},\"type\":\"Opaque\"}}'\n"
                ))
            },
        ),
        covered(
            "in a manifest, JSON in quotes with a key that names a secret: the string is withheld",
            |canary| {
                manifest(&format!(
                    "  values: '{{\"password\":\"{canary}\"}}'\n  more: \"{{\\\"token\\\":\\\"{canary}\\\"}}\"\n"
                ))
            },
        ),
        covered("a Secret without `kind`, by its `type`", |canary| {
            template(&format!("type: kubernetes.io/tls\ndata:\n  a: {canary}\n"))
        }),
        covered(
            "data in flow style below the spec of a kind with `Secret` in its name",
            |canary| {
                template(&format!(
                    "kind: ExternalSecret\nspec: {{target: {{template: {{data: {{a: {canary}}}}}}}}}\n"
                ))
            },
        ),
        kept(
            "in a manifest, where credentials and connection details come from",
            |name| {
                template(&format!(
                    "apiVersion: aws.upbound.io/v1beta1\nkind: ProviderConfig\nspec:\n  credentials:\n    source: Secret\n    secretRef:\n      namespace: {name}\n      name: {name}\n      key: {name}\n  a:\n    credentials: {{source: Secret, secretRef: {{name: {name}, namespace: {name}, key: {name}}}}}\n  connectionDetails:\n  - name: {name}\n    type: FromConnectionSecretKey\n    fromConnectionSecretKey: {name}\n  writeConnectionSecretToRef: {{name: {name}, namespace: {name}}}\n"
                ))
            },
        ),
        kept(
            "in a manifest, lists over several lines without a Secret",
            |text| {
                manifest(&format!(
                    "  zones: [a,\n    {text},\n    'c'\n  ]\n  more: {{a: {text},\n    b: \"{text}\"}}\n  text: \"{text}\n    and more\"\n---\nkind: Secret\ndata:\n  a: x\n---\nb: {text}\n"
                ))
            },
        ),
        kept(
            "in a manifest, the `value` beside any other `name`",
            |text| {
                manifest(&format!(
                    "  env:\n  - name: PATH\n    value: {text}\n  - name: DB_PASSWORD\n    valueFrom: {{secretKeyRef: {{name: {text}, key: {text}}}}}\n"
                ))
            },
        ),
        kept(
            "in a manifest, which remote secrets an `ExternalSecret` is made from",
            |name| {
                template(&format!(
                    "apiVersion: external-secrets.io/v1\nkind: ExternalSecret\nspec:\n  data:\n  - secretKey: {name}\n    remoteRef:\n      key: {name}\n"
                ))
            },
        ),
        not_covered(
            "in a manifest, a value that a template computes in part",
            |canary| manifest(&format!("  password: \"{canary}-{{{{ .x }}}}\"\n")),
        ),
        not_covered("in a manifest, a list below such a key", |canary| {
            manifest(&format!(
                "  tokens:\n  - {canary}\n  password: [{canary}]\n"
            ))
        }),
    ]
}

/// What hides from a reader that goes by lines.
fn across_lines() -> Vec<Place> {
    vec![
        covered(
            "a Secret's data behind a list that is open across lines: the string is withheld",
            |canary| template(&format!("j: [a,\nstringData:\n{canary}]\n")),
        ),
        covered(
            "a Secret's data behind a list or quotes that end at a smaller indent",
            |canary| {
                template(&format!(
                    "x:\n  kind: Secret\n  j: [a,\nb: c]\n  data:\n    a: {canary}\n---\nx:\n  kind: Secret\n  j: \"a\nb: c\"\n  data:\n    a: {canary}\n"
                ))
            },
        ),
        covered(
            "a Secret's data behind brackets or quotes that never end: the string is withheld",
            |canary| {
                template(&format!(
                    "kind: Secret\nj: [\"it's\n]\nk: v\ndata:\n  a: {canary}\n"
                ))
            },
        ),
    ]
}

/// What isn't understood, so that the whole string goes.
fn withheld() -> Vec<Place> {
    vec![
        covered("a Secret in flow style: the string is withheld", |canary| {
            template(&format!("x: {{kind: Secret, data: {{a: {canary}}}}}\n"))
        }),
        covered(
            "a Secret as JSON in YAML: the string is withheld",
            |canary| {
                template(&format!(
                    "manifest: |\n  {{\n    \"kind\": \"Secret\",\n    \"data\": {{\n      \"a\": \"{canary}\"\n    }}\n  }}\n"
                ))
            },
        ),
        covered("a Secret with aliases: the string is withheld", |canary| {
            template(&format!(
                "x: &pw {canary}\n---\nkind: Secret\ndata:\n  a: *pw\n"
            ))
        }),
        covered(
            "a Secret and merge keys: the string is withheld",
            |canary| {
                template(&format!(
                    "base: &base\n  kind: Secret\nother:\n  <<: *base\n  data:\n    a: {canary}\n"
                ))
            },
        ),
        covered(
            "a `kind` with a tag or an anchor: the string is withheld",
            |canary| template(&format!("kind: !!str Secret\ndata:\n  a: {canary}\n")),
        ),
        covered(
            "a `kind` on the next line: the string is withheld",
            |canary| template(&format!("kind:\n  Secret\ndata:\n  a: {canary}\n")),
        ),
        covered(
            "quotes or braces that end on another line: the string is withheld",
            |canary| template(&format!("kind: Secret\ndata:\n  a: \"x\n{canary}\"\n")),
        ),
        covered(
            "a `SecretList`: the string is withheld, or its data goes",
            |canary| {
                template(&format!(
                    "kind: SecretList\nitems:\n- data:\n    a: {canary}\n"
                ))
            },
        ),
        covered(
            "data that is indented with tabs: the string is withheld",
            |canary| template(&format!("kind: Secret\ndata:\n\ta: {canary}\n")),
        ),
        covered(
            "a `kind` with letters that are escaped: the string is withheld",
            |canary| {
                templates_of(
                    &[
                        "kind: \"\\x53ecret\"\ndata:\n  a: @\n",
                        "kind: \"\\u0053ecret\"\ndata:\n  a: @\n",
                        "kind: \"\\U00000053ecret\"\ndata:\n  a: @\n",
                        "kind: \"Sec\\\n  ret\"\ndata:\n  a: @\n",
                        "kind: # below\n  \"\\x53ecret\"\ndata:\n  a: @\n",
                        "x: {kind: \"\\x53ecret\", data: {a: @}}\n",
                        "x: &k \"\\x53ecret\"\n---\nkind: *k\ndata:\n  a: @\n",
                    ],
                    canary,
                )
            },
        ),
        covered(
            "a key with letters that are escaped: the string is withheld",
            |canary| {
                templates_of(
                    &[
                        "kind: Secret\n\"d\\x61ta\":\n  a: @\n",
                        "\"k\\x69nd\": Secret\ndata:\n  a: @\n",
                        "\"string\\x44ata\":\n  a: @\n",
                        "apiVersion: v1\nkind: X\n\"p\\x61ssword\": @\n",
                        "apiVersion: v1\nkind: X\na: {\"api\\x5fkey\": @}\n",
                    ],
                    canary,
                )
            },
        ),
        covered(
            "in a manifest, an escaped `name` beside a `value`: the string is withheld",
            |canary| {
                manifest(&format!(
                    "  env:\n  - name: \"T\\x4fKEN\"\n    value: {canary}\n"
                ))
            },
        ),
        covered(
            "a `kind` in quotes that end on another line: the string is withheld",
            |canary| template(&format!("kind: \"a\n  Secret\"\ndata:\n  a: {canary}\n")),
        ),
        covered("line breaks of old: the string is withheld", |canary| {
            template(&format!("kind: Secret\rdata:\r  a: {canary}\r"))
        }),
    ]
}

/// What only some readers of YAML understand, or nobody writes.
#[expect(clippy::too_many_lines, reason = "a table")]
fn odd() -> Vec<Place> {
    vec![
        covered(
            "line breaks that only YAML 1.1 knows (U+0085, U+2028, U+2029): the string is withheld",
            |canary| {
                templates_of(
                    &[
                        "kind: Secret\u{85}data:\u{85}  a: @",
                        "kind: Secret\u{2028}data:\u{2028}  a: @",
                        "kind: Secret\u{2029}data:\u{2029}  a: @",
                        "stringData:\u{2028}  a: @\u{2028}",
                        "kind: Secret\u{2028}data:\n  a: @\n",
                    ],
                    canary,
                )
            },
        ),
        covered(
            "a `kind` with such a line break that is escaped: the string is withheld",
            |canary| {
                templates_of(
                    &[
                        "kind: \"Sec\\\u{2028}  ret\"\u{2028}data:\u{2028}  a: @",
                        "kind: \"Sec\\\u{85}ret\"\u{85}data:\u{85}  a: @",
                    ],
                    canary,
                )
            },
        ),
        covered(
            "in a manifest, a key that names a secret, `credentials` or `connectionDetails` behind such a line break, or one of old: the string is withheld",
            |canary| {
                templates_of(
                    &[
                        "apiVersion: v1\u{2028}kind: X\u{2028}password: @",
                        "apiVersion: v1\rkind: X\rpassword: @\r",
                        "apiVersion: v1\u{85}kind: X\u{85}credentials:\u{85}  inline: @",
                    ],
                    canary,
                )
            },
        ),
        covered(
            "`data` behind a question mark, or an alias for it: the string is withheld",
            |canary| {
                templates_of(
                    &[
                        "kind: Secret\n? data\n:\n  a: @\n",
                        "kind: Secret\n?\n  data\n: {a: @}\n",
                        "kind: Secret\nspec: {? data : {a: @}}\n",
                        "kind: Secret\nx: &d data\n*d :\n  a: @\n",
                    ],
                    canary,
                )
            },
        ),
        covered(
            "`data` with a tag or an anchor: the string is withheld",
            |canary| {
                templates_of(
                    &[
                        "kind: Secret\n!!str data:\n  a: @\n",
                        "kind: Secret\n&d data:\n  a: @\n",
                        "kind: Secret\nspec: {!!str data: {a: @}}\n",
                    ],
                    canary,
                )
            },
        ),
        covered(
            "in a manifest, a key that names a secret behind a question mark, a tag or an anchor: the string is withheld",
            |canary| {
                templates_of(
                    &[
                        "apiVersion: v1\nkind: X\n? password\n: @\n",
                        "apiVersion: v1\nkind: X\n!!str password: @\n",
                    ],
                    canary,
                )
            },
        ),
        covered(
            "a key that names a secret, in a manifest that isn't understood elsewhere: the string is withheld",
            |canary| {
                templates_of(
                    &[
                        "apiVersion: v1\nkind: |-\n  X\npassword: @\n",
                        "apiVersion: v1\nx: &k X\nkind: *k\npassword: @\n",
                        "apiVersion: v1\nkind: X\na: \"kind: Secret\"\nb: {token: @}\n",
                    ],
                    canary,
                )
            },
        ),
        covered(
            "a Secret on the line on which its document begins: the string is withheld",
            |canary| {
                template(&format!(
                    "a: b\n--- {{kind: Secret, data: {{a: {canary}}}}}\n"
                ))
            },
        ),
        kept("line breaks of any kind in other texts", |text| {
            template(&format!("the Secret\u{2028}has no {text}\u{85}kind: X\r"))
        }),
    ]
}

fn templates() -> Vec<Place> {
    vec![
        covered("a Secret in a Go template", |canary| {
            template(&format!(
                "{{{{- $xr := .observed.composite.resource }}}}\n---\nkind: ConfigMap\ndata:\n  a: b\n{{{{ if $xr.spec.on }}}}\n---\nkind: Secret\n\
                 metadata:\n  name: {{{{ $xr.metadata.name }}}}\n{{{{ if true }}}}\nstringData:\n  a: {canary}\n  {{{{- if $xr.spec.two }}}}\n  b: {{{{ \"{canary}\" | b64enc }}}}\n  {{{{- end }}}}\n{{{{ end }}}}\n{{{{ end }}}}\n"
            ))
        }),
        covered("data that a Go template makes from a text", |canary| {
            template(&format!(
                "kind: Secret\ndata:\n  {{{{- range $k, $v := dict \"a\" \"{canary}\" }}}}\n  {{{{ $k }}}}: {{{{ $v }}}}\n  {{{{- end }}}}\n"
            ))
        }),
        covered(
            "data between two actions of a template on one line",
            |canary| {
                template(&format!(
                    "kind: Secret\ndata:\n  {{{{ if true }}}}a: {canary}{{{{ end }}}}\n"
                ))
            },
        ),
        covered(
            "a `kind` that a template chooses on its line: the string is withheld",
            |canary| {
                template(&format!(
                    "kind: {{{{ if .x }}}}Secret{{{{ else }}}}ConfigMap{{{{ end }}}}\ndata:\n  a: {canary}\n"
                ))
            },
        ),
        kept("the rest of a template with a Secret", |text| {
            template(&format!(
                "{{{{ $x := .{text} }}}}\nkind: ConfigMap\ndata:\n  a: {text}\n---\nkind: Secret\ndata:\n  {text}: x\n---\nkind: X\nspec:\n  name: {text}\n"
            ))
        }),
        kept(
            "values that a template computes, other than a Secret's",
            |name| {
                template(&format!(
                    "apiVersion: v1\nkind: Database\nspec:\n  password: {{{{ .{name} }}}}\n"
                ))
            },
        ),
        not_covered(
            "a text in an action of a template, outside of a Secret's data",
            |canary| {
                template(&format!(
                    "{{{{ $password := \"{canary}\" }}}}\nkind: Secret\ndata:\n  a: {{{{ $password }}}}\n"
                ))
            },
        ),
        not_covered("a `kind` that a template computes elsewhere", |canary| {
            template(&format!(
                "{{{{ $kind := \"Secret\" }}}}\nkind: {{{{ $kind }}}}\ndata:\n  a: {canary}\n"
            ))
        }),
    ]
}

fn others() -> Vec<Place> {
    vec![
        kept(
            "escaped letters in other values, and other escapes",
            |text| {
                template(&format!(
                    "apiVersion: v1\nkind: X\n\"\\xe9t\\xe9\": {text}\nb: \"\\x41{text}\"\nc: \"a\\\n  b\"\n"
                ))
            },
        ),
        kept("names and references in a manifest", |name| {
            template(&format!(
                "apiVersion: v1\nkind: Pod\nspec:\n  secretName: {name}\n  passwordSecretRef:\n    token: {name}\n  existingSecret: {name}\n"
            ))
        }),
        kept(
            "which remote secrets an `ExternalSecret` is made from",
            |name| {
                template(&format!(
                    "kind: ExternalSecret\nspec:\n  data:\n  - secretKey: {name}\n    remoteRef:\n      key: {name}\n"
                ))
            },
        ),
        not_covered("items without a kind of a `v1` `List`", |canary| {
            template(&format!("kind: List\nitems:\n- data:\n    a: {canary}\n"))
        }),
        not_covered(
            "a key that names a secret, or `credentials`, in what isn't a manifest: Helm values, scripts, cloud-init",
            |canary| {
                template(&format!(
                    "password: {canary}\nexport TOKEN={canary}\ncredentials:\n  a: {canary}\n"
                ))
            },
        ),
    ]
}
