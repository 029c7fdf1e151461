//! Every variable, and every mistake in one.

use super::*;

type Variables<'a> = &'a [(&'a str, &'a str)];

fn read(signal: Signal, variables: Variables<'_>) -> Result<Option<OtlpSettings>, Vec<String>> {
    let lookup = |name: &str| {
        let found = variables.iter().find(|(key, _)| *key == name);
        found.map(|(_, value)| (*value).to_owned())
    };
    OtlpSettings::from_variables(&lookup, signal)
}

/// Beside an endpoint that is right.
fn with(signal: Signal, variables: Variables<'_>) -> Result<OtlpSettings, Vec<String>> {
    let mut all = vec![("OTEL_EXPORTER_OTLP_ENDPOINT", "http://c:4318")];
    if signal == Signal::Metrics {
        all.push(("OTEL_METRICS_EXPORTER", "otlp"));
    }
    all.extend(variables);
    read(signal, &all).map(Option::unwrap)
}

fn traces(variables: Variables<'_>) -> OtlpSettings {
    with(Signal::Traces, variables).unwrap()
}

#[test]
fn nothing_is_sent_unless_somebody_says_where() {
    const ENDPOINT: (&str, &str) = ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://c:4318");
    for (signal, variables, sent) in [
        (Signal::Traces, &[][..], false),
        (
            Signal::Traces,
            &[("OTEL_EXPORTER_OTLP_ENDPOINT", " ")],
            false,
        ),
        (Signal::Traces, &[ENDPOINT], true),
        (
            Signal::Traces,
            &[ENDPOINT, ("OTEL_TRACES_EXPORTER", "otlp")],
            true,
        ),
        (
            Signal::Traces,
            &[ENDPOINT, ("OTEL_TRACES_EXPORTER", "none")],
            false,
        ),
        (
            Signal::Traces,
            &[ENDPOINT, ("OTEL_SDK_DISABLED", "True")],
            false,
        ),
        (
            Signal::Traces,
            &[ENDPOINT, ("OTEL_SDK_DISABLED", "false")],
            true,
        ),
        (Signal::Metrics, &[ENDPOINT], false),
        (
            Signal::Metrics,
            &[ENDPOINT, ("OTEL_METRICS_EXPORTER", "otlp")],
            true,
        ),
        (
            Signal::Metrics,
            &[ENDPOINT, ("OTEL_METRICS_EXPORTER", "none")],
            false,
        ),
        (
            Signal::Metrics,
            &[ENDPOINT, ("OTEL_METRICS_EXPORTER", "prometheus")],
            false,
        ),
        (Signal::Metrics, &[("OTEL_METRICS_EXPORTER", "otlp")], false),
    ] {
        let settings = read(signal, variables).unwrap();
        assert_eq!(settings.is_some(), sent, "{variables:?}");
    }
}

#[test]
fn endpoints_and_protocols() {
    let general = "OTEL_EXPORTER_OTLP_ENDPOINT";
    let own = "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT";
    let grpc = ("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc");
    let http = ("OTEL_EXPORTER_OTLP_PROTOCOL", "http/protobuf");
    let insecure = ("OTEL_EXPORTER_OTLP_INSECURE", "true");
    for (variables, shown) in [
        (
            &[(general, "http://c:4318")][..],
            "Http http://c:4318/v1/traces",
        ),
        (
            &[(general, "https://c/otlp/")],
            "Http https://c/otlp/v1/traces",
        ),
        (&[(own, "http://c:4318")], "Http http://c:4318/"),
        (
            &[(own, "http://c:4318/x?token=secret#y")],
            "Http http://c:4318/x",
        ),
        (
            &[(general, "http://other"), (own, "http://c/x")],
            "Http http://c/x",
        ),
        (&[(general, "http://c:4317")], "Grpc http://c:4317/"),
        (
            &[(general, "https://c:4317/v1/traces")],
            "Grpc https://c:4317/",
        ),
        (&[(general, "c:4317")], "Grpc https://c:4317/"),
        (&[(general, "[::1]:4317")], "Grpc https://[::1]:4317/"),
        (&[(general, "c:4317"), insecure], "Grpc http://c:4317/"),
        (
            &[(general, "https://c:4317"), insecure],
            "Grpc https://c:4317/",
        ),
        (&[(general, "c:9000"), grpc], "Grpc https://c:9000/"),
        (&[(general, "http://c:9000"), grpc], "Grpc http://c:9000/"),
        (
            &[(general, "http://c:4317"), http],
            "Http http://c:4317/v1/traces",
        ),
        (
            &[
                (general, "http://c:9000"),
                http,
                ("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "grpc"),
            ],
            "Grpc http://c:9000/",
        ),
        (
            &[
                (general, "c:4317"),
                insecure,
                ("OTEL_EXPORTER_OTLP_TRACES_INSECURE", "false"),
            ],
            "Grpc https://c:4317/",
        ),
    ] {
        let settings = read(Signal::Traces, variables).unwrap().unwrap();
        assert_eq!(format!("{:?}", settings.endpoint), shown, "{variables:?}");
    }
    let metrics = with(Signal::Metrics, &[]).unwrap();
    assert_eq!(metrics.endpoint(), "http://c:4318/v1/metrics");
}

#[test]
fn the_query_of_an_endpoint_is_sent_though_not_shown() {
    let own = (
        "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT",
        "http://c/x?token=secret",
    );
    let settings = traces(&[own]);
    assert_eq!(settings.endpoint.url.query(), Some("token=secret"));
    assert!(!format!("{settings:?} {}", settings.endpoint()).contains("secret"));
}

#[test]
fn the_rest_has_defaults() {
    let settings = traces(&[]);
    assert_eq!(settings.timeout, Duration::from_secs(10));
    assert_eq!(settings.interval, Duration::from_mins(1));
    assert!(settings.headers.is_empty() && !settings.gzip);
    assert_eq!(settings.tls, TlsFiles::default());
}

#[test]
fn what_is_said_of_a_signal_wins() {
    let settings = traces(&[
        ("OTEL_EXPORTER_OTLP_TIMEOUT", "1"),
        ("OTEL_EXPORTER_OTLP_TRACES_TIMEOUT", "2500"),
        ("OTEL_EXPORTER_OTLP_COMPRESSION", "none"),
        ("OTEL_EXPORTER_OTLP_TRACES_COMPRESSION", "gzip"),
        ("OTEL_EXPORTER_OTLP_METRICS_COMPRESSION", "none"),
        ("OTEL_EXPORTER_OTLP_CERTIFICATE", "/general"),
        ("OTEL_EXPORTER_OTLP_TRACES_CERTIFICATE", "/ca"),
        ("OTEL_EXPORTER_OTLP_CLIENT_CERTIFICATE", "/certificate"),
        ("OTEL_EXPORTER_OTLP_TRACES_CLIENT_KEY", "/key"),
        ("OTEL_EXPORTER_OTLP_HEADERS", "a=general"),
        ("OTEL_EXPORTER_OTLP_TRACES_HEADERS", ""),
    ]);
    assert_eq!(settings.timeout, Duration::from_millis(2_500));
    assert!(settings.gzip);
    assert_eq!(settings.tls.ca, Some(PathBuf::from("/ca")));
    let identity = settings.tls.identity.unwrap();
    assert_eq!(identity.certificate, PathBuf::from("/certificate"));
    assert_eq!(identity.key, PathBuf::from("/key"));
    assert_eq!(settings.headers["a"], "general");
    let often = [("OTEL_METRIC_EXPORT_INTERVAL", "5000")];
    let metrics = with(Signal::Metrics, &often).unwrap();
    assert_eq!(metrics.interval, Duration::from_secs(5));
}

#[test]
fn headers_are_decoded_and_never_shown() {
    let settings = traces(&[(
        "OTEL_EXPORTER_OTLP_HEADERS",
        "Authorization=Basic%20c2VjcmV0==, x-scope-orgid = secret",
    )]);
    assert_eq!(settings.headers["authorization"], "Basic c2VjcmV0==");
    assert_eq!(settings.headers["x-scope-orgid"], "secret");
    let shown = format!("{settings:?} {:?}", settings.headers);
    assert!(
        !shown.contains("secret") && !shown.contains("c2V"),
        "{shown}"
    );
    assert!(shown.contains("x-scope-orgid"), "{shown}");
}

/// One mistake, in this variable, that says what to write and shows no secret.
fn assert_mistake(signal: Signal, variables: Variables<'_>, name: &str, hint: &str) {
    let mistakes = with(signal, variables).unwrap_err();
    assert_eq!(mistakes.len(), 1, "{mistakes:?}");
    let mistake = &mistakes[0];
    assert!(mistake.starts_with(&format!("{name}: ")), "{mistake}");
    assert!(mistake.contains(hint), "{mistake}");
    assert!(!mistake.contains("secret"), "{mistake}");
}

#[test]
fn mistakes_in_an_endpoint_name_the_variable() {
    let name = "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT";
    for (endpoint, hint) in [
        ("http://", "http://host:4318"),
        ("http://secret:port", "http://host:4318"),
        ("ftp://c", "http:// or https://"),
        ("unix:/a/socket", "http:// or https://"),
        ("c:4318", "http:// or https://"),
        ("https://me:secret@c:4317", "OTEL_EXPORTER_OTLP_HEADERS"),
        ("secret@c:4317", "OTEL_EXPORTER_OTLP_HEADERS"),
    ] {
        assert_mistake(Signal::Traces, &[(name, endpoint)], name, hint);
    }
    let http = ("OTEL_EXPORTER_OTLP_PROTOCOL", "http/protobuf");
    assert_mistake(Signal::Traces, &[(name, "c:4317"), http], name, "only gRPC");
}

#[test]
fn mistakes_in_headers_name_the_variable() {
    let name = "OTEL_EXPORTER_OTLP_HEADERS";
    for (headers, hint) in [
        ("secret", "key=value"),
        ("a secret=b", "name of header 1"),
        ("a=secret%0A", "value of a"),
        ("a=b,c=secret%", "%25"),
        ("Content-Type=secret", "leave it out"),
        ("grpc-timeout=secret", "leave it out"),
    ] {
        assert_mistake(Signal::Traces, &[(name, headers)], name, hint);
    }
}

#[test]
fn mistakes_elsewhere_name_the_variable() {
    for (signal, name, value, hint) in [
        (Signal::Traces, "OTEL_SDK_DISABLED", "yes", "true or false"),
        (
            Signal::Traces,
            "OTEL_TRACES_EXPORTER",
            "zipkin",
            "otlp or none",
        ),
        (
            Signal::Traces,
            "OTEL_EXPORTER_OTLP_PROTOCOL",
            "http/json",
            "http/protobuf",
        ),
        (
            Signal::Traces,
            "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL",
            "GRPC",
            "write grpc",
        ),
        (
            Signal::Traces,
            "OTEL_EXPORTER_OTLP_INSECURE",
            "1",
            "true or false",
        ),
        (Signal::Traces, "OTEL_EXPORTER_OTLP_TIMEOUT", "0", "10000"),
        (
            Signal::Traces,
            "OTEL_EXPORTER_OTLP_TIMEOUT",
            "10s",
            "milliseconds",
        ),
        (
            Signal::Traces,
            "OTEL_EXPORTER_OTLP_TRACES_TIMEOUT",
            "600001",
            "milliseconds",
        ),
        (
            Signal::Traces,
            "OTEL_EXPORTER_OTLP_COMPRESSION",
            "zstd",
            "gzip or none",
        ),
        (
            Signal::Metrics,
            "OTEL_METRIC_EXPORT_INTERVAL",
            "60",
            "60000",
        ),
        (
            Signal::Metrics,
            "OTEL_METRIC_EXPORT_INTERVAL",
            "1m",
            "60000",
        ),
    ] {
        assert_mistake(signal, &[(name, value)], name, hint);
    }
    let name = "OTEL_METRICS_EXPORTER";
    let mistakes = read(Signal::Metrics, &[(name, "console")]).unwrap_err();
    assert!(
        mistakes[0].starts_with(&format!("{name}: ")),
        "{mistakes:?}"
    );
}

#[test]
fn half_an_identity_is_a_mistake_in_the_other_half() {
    let certificate = "OTEL_EXPORTER_OTLP_CLIENT_CERTIFICATE";
    let key = "OTEL_EXPORTER_OTLP_CLIENT_KEY";
    assert_mistake(Signal::Traces, &[(certificate, "/c")], key, "path");
    let own_key = "OTEL_EXPORTER_OTLP_TRACES_CLIENT_KEY";
    assert_mistake(Signal::Traces, &[(own_key, "/k")], certificate, "path");
}

#[test]
fn every_mistake_is_told_at_once() {
    let mistakes = with(
        Signal::Traces,
        &[
            ("OTEL_EXPORTER_OTLP_PROTOCOL", "smoke signals"),
            ("OTEL_EXPORTER_OTLP_TIMEOUT", "soon"),
            ("OTEL_EXPORTER_OTLP_COMPRESSION", "much"),
            ("OTEL_EXPORTER_OTLP_CLIENT_KEY", "/k"),
        ],
    );
    assert_eq!(mistakes.unwrap_err().len(), 4);
}
