//! How it starts, or why it does not: exit codes, and what may stand where the socket goes.

use std::{
    fs,
    os::unix::net::{UnixListener, UnixStream},
    path::Path,
};

use self::{
    InTheWay::{Folder, LiveSocket, NoFolder, Nothing, StaleSocket, TextFile},
    Reference::{Differs, Same},
    Start::{Fails, Serves, Tells},
};
use crate::support::program::{Place, Running};

/// What stands where the socket goes.
#[derive(Clone, Copy, PartialEq)]
enum InTheWay {
    Nothing,
    /// Not even the folder that it goes to.
    NoFolder,
    /// Nobody listens on it any more.
    StaleSocket,
    LiveSocket,
    TextFile,
    /// With nothing in it.
    Folder,
}

enum Start {
    /// And ends with 0, without a trace of its socket.
    Serves,
    /// Says this on stdout and ends with 0.
    Tells(&'static str),
    /// Ends with this code and says this on stderr.
    Fails(i32, &'static str),
}

struct Row {
    name: &'static str,
    arguments: &'static [&'static str],
    variables: &'static [(&'static str, &'static str)],
    in_the_way: InTheWay,
    start: Start,
    /// What the reference does.
    reference: Reference,
}

enum Reference {
    Same,
    Differs(&'static str),
}

/// The library that it takes flags with says 80 to wrong flags and 1 to wrong variables; shells and
/// most programs say 2, and so does this one, to both. A container that ends at its start is
/// restarted whatever the code.
const OTHER_CODE: Reference = Differs("the same, with another code");

const CALLED_THE_WRONG_WAY: &[Row] = &[
    wrong("an unknown flag", &["--no-such-flag"], "--no-such-flag"),
    wrong("an unknown word", &["no-such-command"], "no-such-command"),
    wrong("an unknown format", &["--format=xml"], "xml"),
    wrong("a format in capitals", &["--format=JSON"], "JSON"),
    wrong("a size in words", &["--max-recv-msg-size=lots"], "lots"),
    wrong("a size in hex", &["--max-recv-msg-size=0x100000"], "0x"),
    wrong("a time without unit", &["--shutdown-timeout=5"], "\"5\""),
    wrong("a value of -d apart", &["--debug", "false"], "false"),
    Row {
        reference: Differs("serves; no message is that small, so it takes none"),
        ..wrong("no size at all", &["--max-recv-msg-size=0"], "1 byte")
    },
    Row {
        reference: Differs("serves, and gives calls under way no time"),
        ..wrong("less than no time", &["--shutdown-timeout=-5s"], "-5s")
    },
    Row {
        reference: Differs("serves on a socket without a name, that nobody finds"),
        ..wrong("no socket", &["--socket-path="], "--socket-path")
    },
    Row {
        variables: &[("MAX_RECV_MSG_SIZE", "lots")],
        ..wrong("a variable with nonsense in it", &[], "lots")
    },
    Row {
        variables: &[("SHUTDOWN_TIMEOUT", "")],
        ..wrong("an empty variable", &[], "is no duration")
    },
    Row {
        variables: &[("MAX_RECV_MSG_SIZE", "lots")],
        start: Serves,
        reference: Differs("ends with 1; here a flag is enough to mend it"),
        ..wrong(
            "a flag over a variable with nonsense in it",
            &["--max-recv-msg-size=1000"],
            "",
        )
    },
];

const ASKED: &[Row] = &[
    Row {
        start: Tells("--socket-path"),
        reference: Same,
        ..wrong("--help", &["--help"], "")
    },
    Row {
        start: Tells("--socket-path"),
        reference: Same,
        ..wrong("-h", &["-h"], "")
    },
    Row {
        start: Tells("spanplane "),
        reference: Differs("does not know it"),
        ..wrong("--version", &["--version"], "")
    },
];

const WHERE_THE_SOCKET_GOES: &[Row] = &[
    there("nothing", Nothing, Serves, Same),
    there(
        "a socket that a killed process left",
        StaleSocket,
        Serves,
        Same,
    ),
    there(
        "no folder",
        NoFolder,
        Serves,
        Differs("ends with 1; a volume that is mounted one level up is no reason to fail"),
    ),
    there(
        "a socket that somebody listens on",
        LiveSocket,
        Fails(1, "another process listens on it"),
        Differs("removes it, and the messages of whoever listens come no more"),
    ),
    there(
        "a file",
        TextFile,
        Fails(1, "no socket"),
        Differs("removes it; a mistyped path should not cost a file"),
    ),
    there(
        "an empty folder",
        Folder,
        Fails(1, "no socket"),
        Differs("removes it; one with something in it is refused"),
    ),
];

const fn wrong(name: &'static str, arguments: &'static [&'static str], says: &'static str) -> Row {
    Row {
        name,
        arguments,
        variables: &[],
        in_the_way: Nothing,
        start: Fails(2, says),
        reference: OTHER_CODE,
    }
}

const fn there(
    name: &'static str,
    in_the_way: InTheWay,
    start: Start,
    reference: Reference,
) -> Row {
    Row {
        name,
        arguments: &[],
        variables: &[],
        in_the_way,
        start,
        reference,
    }
}

#[tokio::test]
async fn who_calls_it_the_wrong_way_is_told() {
    check_all(CALLED_THE_WRONG_WAY).await;
}

#[tokio::test]
async fn who_asks_is_told() {
    check_all(ASKED).await;
}

#[tokio::test]
async fn only_what_nobody_misses_is_removed_to_make_room_for_the_socket() {
    check_all(WHERE_THE_SOCKET_GOES).await;
}

async fn check_all(rows: &[Row]) {
    for row in rows {
        let reference = match row.reference {
            Same => "the same",
            Differs(how) => how,
        };
        println!("{} (the reference: {reference})", row.name);
        check(row).await;
    }
}

async fn check(row: &Row) {
    let place = Place::new();
    let socket = place.socket();
    if row.in_the_way != NoFolder {
        fs::create_dir(socket.parent().unwrap()).unwrap();
    }
    let _listener = put_in_the_way(row.in_the_way, &socket);
    let mut command = place.command();
    command
        .args(row.arguments)
        .envs(row.variables.iter().copied());
    match row.start {
        Serves => {
            let running = Running::wait_for(command.spawn().unwrap()).await;
            UnixStream::connect(&socket).unwrap();
            let (status, ..) = running.terminate().await;
            assert_eq!(status.code(), Some(0));
            assert!(!socket.try_exists().unwrap());
        }
        Tells(words) => {
            let output = command.output().await.unwrap();
            assert_eq!(output.status.code(), Some(0));
            let told = String::from_utf8(output.stdout).unwrap();
            assert!(told.contains(words), "{told}");
        }
        Fails(code, words) => {
            let output = command.output().await.unwrap();
            let told = String::from_utf8(output.stderr).unwrap();
            assert_eq!(output.status.code(), Some(code), "{told}");
            assert!(told.contains("error: ") && told.contains(words), "{told}");
            assert!(is_still(row.in_the_way, &socket));
        }
    }
}

fn put_in_the_way(what: InTheWay, socket: &Path) -> Option<UnixListener> {
    match what {
        Nothing | NoFolder => None,
        StaleSocket => {
            drop(UnixListener::bind(socket).unwrap());
            None
        }
        LiveSocket => Some(UnixListener::bind(socket).unwrap()),
        TextFile => {
            fs::write(socket, "precious").unwrap();
            None
        }
        Folder => {
            fs::create_dir(socket).unwrap();
            None
        }
    }
}

/// Whether nothing was changed.
fn is_still(what: InTheWay, socket: &Path) -> bool {
    match what {
        Nothing | NoFolder => !socket.try_exists().unwrap(),
        StaleSocket | LiveSocket => socket.try_exists().unwrap(),
        TextFile => fs::read_to_string(socket).unwrap() == "precious",
        Folder => socket.is_dir(),
    }
}
