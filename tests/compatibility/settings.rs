//! Flags and variables: each spelling, what wins, what is there without.

use std::os::unix::fs::PermissionsExt as _;

use bytes::Bytes;
use spanplane::{client::InspectorClient, record::RecordKind};
use tonic::Code;

use self::Seen::{Debugs, ListensOn, Mode, Prints, StopsWithin, TakesUpTo};
use crate::support::{
    PATIENCE, message,
    program::{Place, Running},
};

/// What can be seen from outside.
enum Seen {
    /// The socket's name in its folder.
    ListensOn(&'static str),
    Mode(u32),
    /// How what is printed of a message begins.
    Prints(&'static str),
    /// Bytes of the largest message.
    TakesUpTo(usize),
    /// As the log says it.
    StopsWithin(&'static str),
    Debugs(bool),
}

/// `{run}` stands for the folder of the sockets; `PIPELINE_INSPECTOR_SOCKET` is always set, to
/// `{run}/socket`.
struct Row {
    name: &'static str,
    arguments: &'static [&'static str],
    variables: &'static [(&'static str, &'static str)],
    seen: &'static [Seen],
}

/// Not from the reference: without flags it prints JSON, since it has no other place for a message.
/// It takes 4 MiB; messages of 10 MiB are seen in the field, and would be lost. Its socket has what
/// the umask leaves, 0755 as a rule; nobody but the owner may write to that, and so connect.
const WITHOUT_FLAGS: Row = Row {
    name: "the socket's variable and nothing else",
    arguments: &[],
    variables: &[],
    seen: &[
        ListensOn("socket"),
        Mode(0o660),
        Prints(""),
        TakesUpTo(32 * 1024 * 1024),
        StopsWithin("5s"),
        Debugs(false),
    ],
};

const AS_THE_REFERENCE: &[Row] = &[
    Row {
        name: "--socket-path=PATH wins over the variable",
        arguments: &["--socket-path={run}/other"],
        variables: &[],
        seen: &[ListensOn("other")],
    },
    Row {
        name: "--socket-path PATH",
        arguments: &["--socket-path", "{run}/other"],
        variables: &[],
        seen: &[ListensOn("other")],
    },
    Row {
        name: "--format=json",
        arguments: &["--format=json"],
        variables: &[],
        seen: &[Prints("{\"meta\":{\"compositionMeta\":")],
    },
    Row {
        name: "--format text",
        arguments: &["--format", "text"],
        variables: &[],
        seen: &[Prints("=== REQUEST ===\n  XR:          example.org/v1/")],
    },
    Row {
        name: "the last of the same flags wins",
        arguments: &["--format=text", "--format=json"],
        variables: &[],
        seen: &[Prints("{")],
    },
    Row {
        name: "--max-recv-msg-size=BYTES",
        arguments: &["--max-recv-msg-size=1000"],
        variables: &[],
        seen: &[TakesUpTo(1000)],
    },
    Row {
        name: "--max-recv-msg-size BYTES",
        arguments: &["--max-recv-msg-size", "1000"],
        variables: &[],
        seen: &[TakesUpTo(1000)],
    },
    Row {
        name: "MAX_RECV_MSG_SIZE",
        arguments: &[],
        variables: &[("MAX_RECV_MSG_SIZE", "2000")],
        seen: &[TakesUpTo(2000)],
    },
    Row {
        name: "--max-recv-msg-size wins over MAX_RECV_MSG_SIZE",
        arguments: &["--max-recv-msg-size=1000"],
        variables: &[("MAX_RECV_MSG_SIZE", "2000")],
        seen: &[TakesUpTo(1000)],
    },
    Row {
        name: "--shutdown-timeout=DURATION, as Go writes it",
        arguments: &["--shutdown-timeout=1m30.5s"],
        variables: &[],
        seen: &[StopsWithin("90.5s")],
    },
    Row {
        name: "--shutdown-timeout DURATION",
        arguments: &["--shutdown-timeout", "1500ms"],
        variables: &[],
        seen: &[StopsWithin("1.5s")],
    },
    Row {
        name: "no time to stop",
        arguments: &["--shutdown-timeout=0"],
        variables: &[],
        seen: &[StopsWithin("0ns")],
    },
    Row {
        name: "SHUTDOWN_TIMEOUT",
        arguments: &[],
        variables: &[("SHUTDOWN_TIMEOUT", "1m30s")],
        seen: &[StopsWithin("90s")],
    },
    Row {
        name: "--shutdown-timeout wins over SHUTDOWN_TIMEOUT",
        arguments: &["--shutdown-timeout=7s"],
        variables: &[("SHUTDOWN_TIMEOUT", "1m30s")],
        seen: &[StopsWithin("7s")],
    },
    Row {
        name: "--debug",
        arguments: &["--debug"],
        variables: &[],
        seen: &[Debugs(true)],
    },
    Row {
        name: "-d",
        arguments: &["-d"],
        variables: &[],
        seen: &[Debugs(true)],
    },
    Row {
        name: "--debug=true",
        arguments: &["--debug=true"],
        variables: &[],
        seen: &[Debugs(true)],
    },
    Row {
        name: "--debug=false",
        arguments: &["--debug=false"],
        variables: &[],
        seen: &[Debugs(false)],
    },
    Row {
        name: "the arguments of the reference's own Helm values",
        arguments: &["--format=json", "--max-recv-msg-size=8388608"],
        variables: &[],
        seen: &[ListensOn("socket"), Prints("{"), TakesUpTo(8_388_608)],
    },
];

/// The reference refuses these: one is from the first published design, the others are new here.
const BEYOND_THE_REFERENCE: &[Row] = &[
    Row {
        name: "--socket=PATH, as the first design has it",
        arguments: &["--socket={run}/other"],
        variables: &[],
        seen: &[ListensOn("other")],
    },
    Row {
        name: "--socket PATH",
        arguments: &["--socket", "{run}/other"],
        variables: &[],
        seen: &[ListensOn("other")],
    },
    Row {
        name: "the word serve, and flags behind it",
        arguments: &[
            "serve",
            "-d",
            "--socket-path={run}/other",
            "--format=text",
            "--max-recv-msg-size=1000",
            "--shutdown-timeout=70s",
        ],
        variables: &[],
        seen: &[
            ListensOn("other"),
            Prints("=== REQUEST ===\n"),
            TakesUpTo(1000),
            StopsWithin("70s"),
            Debugs(true),
        ],
    },
    Row {
        name: "sizes with units",
        arguments: &["--max-recv-msg-size=2KiB"],
        variables: &[],
        seen: &[TakesUpTo(2048)],
    },
    Row {
        name: "a variable for the format",
        arguments: &[],
        variables: &[("SPANPLANE_FORMAT", "text")],
        seen: &[Prints("=== REQUEST ===\n")],
    },
    Row {
        name: "another mode of the socket",
        arguments: &["--socket-mode=0600"],
        variables: &[],
        seen: &[Mode(0o600)],
    },
];

#[tokio::test]
async fn without_flags_it_is_quiet_and_takes_more() {
    check(&WITHOUT_FLAGS).await;
}

#[tokio::test]
async fn flags_and_variables_mean_what_they_mean_to_the_reference() {
    for row in AS_THE_REFERENCE {
        check(row).await;
    }
}

#[tokio::test]
async fn what_the_reference_does_not_know_takes_nothing_from_it() {
    for row in BEYOND_THE_REFERENCE {
        check(row).await;
    }
}

/// Not tried: nobody's `/var/run` is touched by a test.
#[tokio::test]
async fn the_socket_is_by_default_where_the_references_is() {
    let output = Place::new().output(&["--help"]).await;
    let help = String::from_utf8(output.stdout).unwrap();
    let default = "[default: /var/run/pipeline-inspector/socket]";
    assert!(help.contains(default), "{help}");
}

async fn check(row: &Row) {
    let place = Place::new();
    let folder = place.socket().parent().unwrap().to_owned();
    let run = folder.to_str().unwrap();
    let mut command = place.command();
    command
        .args(row.arguments.iter().map(|text| text.replace("{run}", run)))
        .envs(row.variables.iter().copied());
    if !row.seen.iter().any(|seen| matches!(seen, StopsWithin(_))) {
        // Enough for a loaded machine to print everything.
        command.env("SHUTDOWN_TIMEOUT", "1m");
    }
    let running = Running::wait_for(command.spawn().unwrap()).await;

    let listens_on = row.seen.iter().find_map(|seen| match seen {
        ListensOn(name) => Some(*name),
        _ => None,
    });
    let socket = folder.join(listens_on.unwrap_or("socket"));
    assert!(socket.try_exists().unwrap(), "{}", row.name);
    let mode = socket.metadata().unwrap().permissions().mode() & 0o777;
    let mut client = InspectorClient::new(socket, PATIENCE);
    let sent = message("t", 0, RecordKind::Request, "{}");
    client.emit(sent.kind, sent.message).await.unwrap();
    for seen in row.seen {
        if let TakesUpTo(limit) = *seen {
            let kind = RecordKind::Request;
            client.emit(kind, message_of(limit)).await.unwrap();
            let refused = client.emit(kind, message_of(limit + 1)).await.unwrap_err();
            assert_eq!(refused.code(), Code::ResourceExhausted, "{}", row.name);
        }
    }
    let (status, printed, logged) = running.terminate().await;

    assert!(status.success(), "{}: {logged}", row.name);
    for seen in row.seen {
        let holds = match *seen {
            // Seen already.
            ListensOn(_) | TakesUpTo(_) => true,
            Mode(expected) => mode == expected,
            Prints("") => printed.is_empty(),
            Prints(start) => printed.starts_with(start),
            StopsWithin(timeout) => logged.contains(&format!("\"timeout\":\"{timeout}\"")),
            Debugs(debugs) => logged.contains("\"level\":\"DEBUG\"") == debugs,
        };
        assert!(holds, "{}: mode {mode:o}\n{printed}\n{logged}", row.name);
    }
}

/// A message of this many bytes.
fn message_of(bytes: usize) -> Bytes {
    let of_payload = |payload: usize| {
        let payload = format!("\"{}\"", "x".repeat(payload));
        message("t", 1, RecordKind::Request, &payload).message
    };
    let around = of_payload(bytes).len() - bytes;
    let message = of_payload(bytes - around);
    assert_eq!(message.len(), bytes);
    message
}
