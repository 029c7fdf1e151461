//! Every variable, and what becomes of values that are not valid.

use super::*;

type Variables<'a> = &'a [(&'a str, &'a str)];

fn read(signal: Signal, variables: Variables<'_>) -> (Option<OtlpSettings>, Vec<IgnoredSetting>) {
    let (destination, ignored) = destination(signal, variables);
    (destination.collector().cloned(), ignored)
}

fn destination(signal: Signal, variables: Variables<'_>) -> (Destination, Vec<IgnoredSetting>) {
    let lookup = |name: &str| {
        let found = variables.iter().find(|(key, _)| *key == name);
        found.map(|(_, value)| (*value).to_owned())
    };
    let mut ignored = Vec::new();
    let destination = Destination::from_variables(&lookup, signal, &mut ignored);
    (destination, ignored)
}

/// Beside an endpoint that is right.
fn with(signal: Signal, variables: Variables<'_>) -> (OtlpSettings, Vec<IgnoredSetting>) {
    let mut all = vec![("OTEL_EXPORTER_OTLP_ENDPOINT", "http://c:4318")];
    if signal == Signal::Metrics {
        all.push(("OTEL_METRICS_EXPORTER", "otlp"));
    }
    all.extend(variables);
    let (settings, ignored) = read(signal, &all);
    (settings.unwrap(), ignored)
}

fn traces(variables: Variables<'_>) -> OtlpSettings {
    let (settings, ignored) = with(Signal::Traces, variables);
    assert_eq!(ignored, [], "{variables:?}");
    settings
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
        (
            Signal::Metrics,
            &[ENDPOINT, ("OTEL_METRICS_EXPORTER", "prometheus, OTLP")],
            true,
        ),
        (Signal::Metrics, &[("OTEL_METRICS_EXPORTER", "otlp")], false),
    ] {
        let (settings, ignored) = read(signal, variables);
        assert_eq!(settings.is_some(), sent, "{variables:?}");
        assert_eq!(ignored, [], "{variables:?}");
    }
}

#[test]
fn what_is_not_valid_turns_nothing_off() {
    let endpoint = "OTEL_EXPORTER_OTLP_ENDPOINT";
    let own = "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT";
    let exporter = "OTEL_TRACES_EXPORTER";
    for (variables, is_off) in [
        (&[][..], true),
        (&[(endpoint, "")], true),
        (&[(endpoint, "htp://c:4318"), (exporter, "none")], true),
        (
            &[(endpoint, "htp://c:4318"), ("OTEL_SDK_DISABLED", "true")],
            true,
        ),
        (&[(endpoint, "htp://c:4318")], false),
        (&[(endpoint, "c:4318")], false),
        (&[(endpoint, "http://user:secret@c")], false),
        (&[(endpoint, "\u{fffd}")], false),
        (&[(own, "htp://c:4318")], false),
        (&[(own, "htp://c:4318"), (endpoint, "c:4318")], false),
        (
            &[(endpoint, "http://c:4318"), (exporter, "none,otpl")],
            false,
        ),
    ] {
        let (destination, ignored) = destination(Signal::Traces, variables);
        assert!(destination.collector().is_none(), "{variables:?}");
        let seems_off = matches!(destination, Destination::Off);
        assert_eq!(seems_off, is_off, "{variables:?}");
        assert!(is_off || !ignored.is_empty(), "{variables:?}");
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
            &[
                (general, "http://c:4317"),
                ("OTEL_EXPORTER_OTLP_PROTOCOL", "HTTP/Protobuf"),
            ],
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
        let settings = read(Signal::Traces, variables).0.unwrap();
        assert_eq!(format!("{:?}", settings.endpoint), shown, "{variables:?}");
    }
    let metrics = with(Signal::Metrics, &[]).0;
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
    let metrics = with(Signal::Metrics, &often).0;
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

/// This variable alone was ignored, with advice and without showing a secret.
fn assert_ignored(ignored: &[IgnoredSetting], variable: &str, advice: &str) {
    assert_eq!(ignored.len(), 1, "{ignored:?}");
    let IgnoredSetting {
        variable: noted,
        problem,
    } = &ignored[0];
    assert_eq!(noted, variable, "{problem}");
    assert!(problem.contains(advice), "{problem}");
    assert!(!problem.contains("secret"), "{problem}");
}

#[test]
fn an_endpoint_that_is_not_valid_counts_as_unset() {
    let own = "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT";
    for (endpoint, advice) in [
        ("http://", "http://host:4318"),
        ("http://secret:port", "http://host:4318"),
        ("ftp://c", "http:// or https://"),
        ("unix:/a/socket", "http:// or https://"),
        ("c:4318", "http:// or https://"),
        ("https://me:secret@c:4317", "OTEL_EXPORTER_OTLP_HEADERS"),
        ("secret@c:4317", "OTEL_EXPORTER_OTLP_HEADERS"),
    ] {
        let (settings, ignored) = read(Signal::Traces, &[(own, endpoint)]);
        assert!(settings.is_none(), "{endpoint}");
        assert_ignored(&ignored, own, advice);
        // The general one is there to fall back to.
        let (settings, ignored) = with(Signal::Traces, &[(own, endpoint)]);
        assert_eq!(settings.endpoint(), "http://c:4318/v1/traces");
        assert_ignored(&ignored, own, advice);
    }
    let http = ("OTEL_EXPORTER_OTLP_PROTOCOL", "http/protobuf");
    let (settings, ignored) = read(Signal::Traces, &[(own, "c:4317"), http]);
    assert!(settings.is_none());
    assert_ignored(&ignored, own, "only gRPC");
}

#[test]
fn of_headers_those_that_are_valid_are_sent() {
    let variable = "OTEL_EXPORTER_OTLP_HEADERS";
    for (headers, advice) in [
        ("secret,a=b", "key=value"),
        ("a=b,a secret=c", "name of header 2"),
        ("c=secret%0A,a=b", "value of c"),
        ("a=b,c=secret%", "%25"),
        ("Content-Type=secret,a=b", "leave it out"),
        ("a=b,grpc-timeout=secret", "leave it out"),
    ] {
        let (settings, ignored) = with(Signal::Traces, &[(variable, headers)]);
        assert_ignored(&ignored, variable, advice);
        assert_eq!(settings.headers.len(), 1, "{headers}");
        assert_eq!(settings.headers["a"], "b");
    }
}

#[test]
fn whatever_else_is_not_valid_is_noted_and_has_its_default() {
    use Signal::{Metrics, Traces};
    for (signal, variable, value, advice) in [
        (Traces, "OTEL_SDK_DISABLED", "1", "true or false"),
        (Metrics, "OTEL_SDK_DISABLED", "yes", "true or false"),
        (Traces, "OTEL_TRACES_EXPORTER", "zipkin", "otlp, none"),
        (Traces, "OTEL_TRACES_EXPORTER", "otlp,console", "otlp, none"),
        (
            Traces,
            "OTEL_EXPORTER_OTLP_PROTOCOL",
            "http/json",
            "http/protobuf",
        ),
        (
            Traces,
            "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL",
            "grcp",
            "use grpc",
        ),
        (Traces, "OTEL_EXPORTER_OTLP_INSECURE", "1", "true or false"),
        (Traces, "OTEL_EXPORTER_OTLP_TIMEOUT", "10s", "milliseconds"),
        (Traces, "OTEL_EXPORTER_OTLP_TRACES_TIMEOUT", "-1", "10000"),
        (
            Traces,
            "OTEL_EXPORTER_OTLP_COMPRESSION",
            "zstd",
            "gzip or none",
        ),
        (Metrics, "OTEL_METRIC_EXPORT_INTERVAL", "60", "60000"),
        (Metrics, "OTEL_METRIC_EXPORT_INTERVAL", "1m", "60000"),
    ] {
        let (settings, ignored) = with(signal, &[(variable, value)]);
        assert_ignored(&ignored, variable, advice);
        let default = with(signal, &[]).0;
        assert_eq!(
            format!("{settings:?}"),
            format!("{default:?}"),
            "{variable}={value}"
        );
        assert_eq!(settings.interval, default.interval);
    }
    let endpoint = ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://c:4318");
    let variable = "OTEL_METRICS_EXPORTER";
    let (settings, ignored) = read(Metrics, &[endpoint, (variable, "console")]);
    assert!(settings.is_none());
    assert_ignored(&ignored, variable, "prometheus");
}

#[test]
fn what_is_wrong_with_a_signals_own_variable_leaves_the_general_one() {
    let (settings, ignored) = with(
        Signal::Traces,
        &[
            ("OTEL_EXPORTER_OTLP_TRACES_TIMEOUT", "soon"),
            ("OTEL_EXPORTER_OTLP_TIMEOUT", "2500"),
            ("OTEL_EXPORTER_OTLP_TRACES_COMPRESSION", "much"),
            ("OTEL_EXPORTER_OTLP_COMPRESSION", "GZIP"),
        ],
    );
    assert_eq!(settings.timeout, Duration::from_millis(2_500));
    assert!(settings.gzip);
    assert_eq!(ignored.len(), 2, "{ignored:?}");
}

#[test]
fn a_timeout_of_zero_or_of_hours_is_the_longest() {
    for text in ["0", "600001", "86400000"] {
        let settings = traces(&[("OTEL_EXPORTER_OTLP_TIMEOUT", text)]);
        assert_eq!(settings.timeout, MAX_TIMEOUT, "{text}");
    }
}

#[test]
fn half_an_identity_is_none() {
    for variable in [
        "OTEL_EXPORTER_OTLP_CLIENT_CERTIFICATE",
        "OTEL_EXPORTER_OTLP_CLIENT_KEY",
        "OTEL_EXPORTER_OTLP_TRACES_CLIENT_KEY",
    ] {
        let (settings, ignored) = with(Signal::Traces, &[(variable, "/path")]);
        assert_eq!(settings.tls.identity, None);
        assert_ignored(&ignored, variable, "as well");
    }
}

#[test]
fn both_signals_note_what_they_share_once() {
    let lookup = |name: &str| {
        let value = match name {
            "OTEL_EXPORTER_OTLP_ENDPOINT" => "http://c:4318",
            "OTEL_METRICS_EXPORTER" => "otlp",
            "OTEL_EXPORTER_OTLP_TIMEOUT" => "soon",
            _ => return None,
        };
        Some(value.to_owned())
    };
    let mut ignored = Vec::new();
    for signal in [Signal::Traces, Signal::Metrics] {
        let destination = Destination::from_variables(&lookup, signal, &mut ignored);
        assert!(destination.collector().is_some());
    }
    assert_ignored(&ignored, "OTEL_EXPORTER_OTLP_TIMEOUT", "10000");
}
