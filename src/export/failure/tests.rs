//! Every code, and what collectors say with it.

use tonic::metadata::MetadataMap;

use super::*;

fn headers(pairs: &[(HeaderName, &str)]) -> HeaderMap {
    let pairs = pairs.iter();
    pairs
        .map(|(name, value)| (name.clone(), value.parse().unwrap()))
        .collect()
}

#[test]
fn what_grpc_codes_mean() {
    for (code, message, trouble) in [
        (Code::Unavailable, "", Trouble::Unreachable),
        (Code::Cancelled, "", Trouble::Unreachable),
        (Code::DeadlineExceeded, "", Trouble::Unreachable),
        (Code::Aborted, "", Trouble::Unreachable),
        (Code::ResourceExhausted, "queue is full", Trouble::Busy),
        (
            Code::ResourceExhausted,
            "grpc: received message larger than max (5 vs. 4)",
            Trouble::TooLarge,
        ),
        (
            Code::ResourceExhausted,
            "gRPC message exceeds maximum size 4: 5",
            Trouble::TooLarge,
        ),
        (
            Code::OutOfRange,
            "Error, decoded message length too large: found 5 bytes, the limit is: 4 bytes",
            Trouble::TooLarge,
        ),
        (Code::OutOfRange, "", Trouble::Failing),
        (Code::DataLoss, "", Trouble::Failing),
        (Code::Internal, "", Trouble::Failing),
        (Code::Unknown, "", Trouble::Failing),
        (Code::FailedPrecondition, "", Trouble::Failing),
        (Code::InvalidArgument, "", Trouble::Refused),
        (Code::Unauthenticated, "", Trouble::NotAuthenticated),
        (Code::PermissionDenied, "", Trouble::AccessDenied),
        (Code::Unimplemented, "", Trouble::WrongAddress),
        (Code::NotFound, "", Trouble::WrongAddress),
    ] {
        let failure = Failure::from_grpc(&Status::new(code, message));
        assert_eq!(failure.trouble, trouble, "{code:?} {message}");
        assert_eq!(failure.after, None);
    }
}

#[test]
fn what_happens_here_is_not_the_collectors_answer() {
    let cause = std::io::Error::other("broken pipe");
    let mut status = Status::unknown("transport error");
    status.set_source(std::sync::Arc::new(cause));
    let failure = Failure::from_grpc(&status);
    assert_eq!(failure.trouble, Trouble::Unreachable);
    assert_eq!(failure.detail, "broken pipe");
}

#[test]
fn what_http_codes_mean() {
    for (code, trouble) in [
        (302, Trouble::WrongAddress),
        (400, Trouble::Refused),
        (401, Trouble::NotAuthenticated),
        (403, Trouble::AccessDenied),
        (404, Trouble::WrongAddress),
        (405, Trouble::WrongAddress),
        (408, Trouble::Unreachable),
        (413, Trouble::TooLarge),
        (415, Trouble::WrongAddress),
        (422, Trouble::Refused),
        (429, Trouble::Busy),
        (500, Trouble::Failing),
        (502, Trouble::Unreachable),
        (503, Trouble::Unreachable),
        (504, Trouble::Unreachable),
        (599, Trouble::Failing),
    ] {
        let code = StatusCode::from_u16(code).unwrap();
        let failure = Failure::from_http(code, &HeaderMap::new(), b"");
        assert_eq!(failure.trouble, trouble, "{code}");
    }
    for words in [
        "Client sent an HTTP request to an HTTPS server.\n",
        "<h1>400</h1>The plain HTTP request was sent to HTTPS port",
    ] {
        let code = StatusCode::BAD_REQUEST;
        let failure = Failure::from_http(code, &HeaderMap::new(), words.as_bytes());
        assert_eq!(failure.trouble, Trouble::WrongAddress, "{words}");
    }
}

#[test]
fn only_what_is_about_the_spans_halves_them() {
    use Trouble as T;
    for trouble in [T::Refused, T::TooLarge] {
        assert_eq!(trouble.course(), Course::Halve);
    }
    for trouble in [T::NotAuthenticated, T::AccessDenied, T::WrongAddress] {
        assert_eq!(trouble.course(), Course::TrySlowly);
    }
    for trouble in [T::Unreachable, T::Busy] {
        assert_eq!(trouble.course(), Course::TryAgain);
    }
    assert_eq!(T::Failing.course(), Course::TryForAWhile);
}

#[test]
fn how_long_to_wait_is_taken_from_the_answer() {
    let date = "Sun, 06 Nov 1994 08:49:37 GMT";
    let later = "Sun, 06 Nov 1994 08:50:07 GMT";
    let seconds = |seconds| Some(Duration::from_secs(seconds));
    for (pairs, after) in [
        (&[(RETRY_AFTER, "7")][..], seconds(7)),
        (&[(RETRY_AFTER, " 0 ")], seconds(0)),
        (&[(RETRY_AFTER, "18446744073709551615")], seconds(300)),
        (&[(RETRY_AFTER, later), (DATE, date)], seconds(30)),
        (&[(RETRY_AFTER, date), (DATE, later)], None),
        (&[(RETRY_AFTER, later)], None),
        (&[(RETRY_AFTER, "soon"), (DATE, date)], None),
        (&[], None),
    ] {
        let code = StatusCode::TOO_MANY_REQUESTS;
        let failure = Failure::from_http(code, &headers(pairs), b"");
        assert_eq!(failure.after, after, "{pairs:?}");
    }
}

fn with_retry_delay(seconds: i64, nanos: i32) -> Status {
    let info = RetryInfo {
        retry_delay: Some(prost_types::Duration { seconds, nanos }),
    };
    let other = prost_types::Any {
        type_url: "type.googleapis.com/google.rpc.DebugInfo".into(),
        value: vec![0xff],
    };
    let info = prost_types::Any {
        type_url: "type.googleapis.com/google.rpc.RetryInfo".into(),
        value: info.encode_to_vec(),
    };
    let details = RpcStatus {
        message: String::new(),
        details: vec![other, info],
    };
    let details = details.encode_to_vec().into();
    Status::with_details_and_metadata(Code::Unavailable, "", details, MetadataMap::new())
}

#[test]
fn retry_info_is_read_whatever_it_says() {
    for (seconds, nanos, after) in [
        (1, 500_000_000, Some(Duration::from_millis(1_500))),
        (i64::MAX, i32::MAX, Some(LONGEST_WAIT)),
        (-1, 0, None),
        (0, -1, None),
    ] {
        let failure = Failure::from_grpc(&with_retry_delay(seconds, nanos));
        assert_eq!(failure.after, after, "{seconds} {nanos}");
    }
    let garbage = Status::with_details(Code::Unavailable, "", vec![0xff; 9].into());
    assert_eq!(Failure::from_grpc(&garbage).after, None);
}

#[test]
fn the_words_of_a_collector_are_short_and_on_one_line() {
    let code = StatusCode::BAD_REQUEST;
    let status = RpcStatus {
        message: "bad\nspan".into(),
        details: Vec::new(),
    };
    let protobuf = headers(&[(CONTENT_TYPE, "application/x-protobuf")]);
    let failure = Failure::from_http(code, &protobuf, &status.encode_to_vec());
    assert_eq!(failure.to_string(), "400 Bad Request: bad span");
    let text = "é\u{1b}".repeat(10_000);
    let failure = Failure::from_http(code, &HeaderMap::new(), text.as_bytes());
    assert!(failure.detail.chars().count() <= DETAIL_CHARACTERS);
    assert!(!failure.detail.contains('\u{1b}'));
}

#[test]
fn only_an_answer_may_be_about_some_of_the_spans() {
    let http = |code| {
        let status = StatusCode::from_u16(code).unwrap();
        Failure::from_http(status, &HeaderMap::new(), b"")
    };
    let grpc = |code| Failure::from_grpc(&Status::new(code, ""));
    for failure in [
        http(500),
        http(503),
        grpc(Code::Internal),
        grpc(Code::Unknown),
        grpc(Code::Unavailable),
    ] {
        assert!(failure.may_be_about_spans(), "{failure}");
    }
    for failure in [
        http(401),
        http(403),
        http(404),
        http(429),
        grpc(Code::ResourceExhausted),
        grpc(Code::Unauthenticated),
        grpc(Code::Unimplemented),
        Failure::unreachable(&std::io::Error::other("connection refused")),
        Failure::new(Trouble::Unreachable, "no answer within 10s"),
    ] {
        assert!(!failure.may_be_about_spans(), "{failure}");
    }
}
