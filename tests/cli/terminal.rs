//! On a terminal: colours, times that say how long ago, a pager, values cut to its width.

use std::{
    fs::{File, OpenOptions},
    io::Read as _,
    path::Path,
};

use rustix::{
    pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt},
    termios::{Winsize, tcsetwinsize},
};

use crate::setup::{program, store};

const COLUMNS: u16 = 100;

/// What the program shows on a terminal of its own.
fn shown(arguments: &[&str], variables: &[(&str, &str)]) -> String {
    shown_within(COLUMNS, arguments, variables)
}

fn shown_within(columns: u16, arguments: &[&str], variables: &[(&str, &str)]) -> String {
    let terminal = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
    grantpt(&terminal).unwrap();
    unlockpt(&terminal).unwrap();
    let size = Winsize {
        ws_row: 40,
        ws_col: columns,
        ws_xpixel: 0,
        ws_ypixel: 0,
    };
    tcsetwinsize(&terminal, size).unwrap();
    let name = ptsname(&terminal, Vec::new()).unwrap();
    let path = Path::new(name.to_str().unwrap());
    let screen = OpenOptions::new()
        .read(true)
        .write(true)
        .open(path)
        .unwrap();
    let mut command = program(arguments);
    command
        .env("SPANPLANE_STORE", format!("file://{}", store().display()))
        .env("PATH", "/usr/bin:/bin")
        .env("TERM", "xterm")
        .envs(variables.iter().copied())
        .stdout(screen);
    let mut child = command.spawn().unwrap();
    // The last end of the terminal that is written to has to be the program's.
    drop(command);
    let mut terminal = File::from(terminal);
    let (mut bytes, mut piece) = (Vec::new(), [0; 4096]);
    // A terminal that nobody writes to any more fails to be read.
    while let Ok(count @ 1..) = terminal.read(&mut piece) {
        bytes.extend_from_slice(&piece[..count]);
    }
    child.wait().unwrap();
    String::from_utf8(bytes).unwrap()
}

#[test]
fn there_are_colours_unless_somebody_minds() {
    let coloured = |arguments: &[&str], variables: &[(&str, &str)]| {
        let shown = shown(arguments, &[variables, &[("PAGER", "cat")]].concat());
        assert!(shown.contains("fatal-bad"), "{shown}");
        shown.contains("\u{1b}[31m")
    };
    let question = ["ls", "fatal"];
    assert!(coloured(&question, &[]));
    assert!(coloured(&question, &[("NO_COLOR", "")]));
    assert!(!coloured(&question, &[("NO_COLOR", "1")]));
    assert!(!coloured(&question, &[("TERM", "dumb")]));
    assert!(!coloured(&["ls", "fatal", "--no-color"], &[]));
}

#[test]
fn times_say_how_long_ago() {
    let list = shown(&["ls", "--no-color"], &[("PAGER", "")]);
    assert!(list.contains(" ago  "), "{list}");
    assert!(!list.contains("2026-11-16T"), "{list}");
    let wide = shown(&["ls", "--no-color", "-o", "wide"], &[("PAGER", "")]);
    assert!(wide.contains("2026-11-16T"), "{wide}");
}

#[test]
fn it_is_read_through_a_pager() {
    let pager = ("PAGER", "sed s/^/paged:/");
    let lines = shown(&["ls"], &[pager]);
    assert!(
        lines.lines().all(|line| line.starts_with("paged:")),
        "{lines}"
    );
    assert!(!shown(&["ls", "--no-pager"], &[pager]).contains("paged:"));
    // One that ends early has seen enough.
    let first = shown(
        &["ls", "--limit", "0", "-o", "yaml"],
        &[("PAGER", "head -n 1")],
    );
    assert_eq!(first.trim_end(), "---");
    // One that is not there is done without, also if only a shell can tell.
    let missing = shown(&["ls"], &[("PAGER", "nonexistent")]);
    assert!(missing.contains("Calm/calm-1"), "{missing}");
    assert!(!shown(&["ls"], &[pager, ("TERM", "dumb")]).contains("paged:"));
    assert!(shown(&["ls"], &[("PATH", "/nonexistent")]).contains("Calm/calm-1"));
}

#[test]
fn long_values_are_cut_to_its_width() {
    let question = ["diff", "36a80bea", "966f94ec", "--no-color", "--no-pager"];
    let cut = shown(&question, &[]);
    let widest = |text: &str| text.lines().map(|line| line.chars().count()).max();
    assert!(cut.contains('…'), "{cut}");
    assert!(widest(&cut) <= Some(usize::from(COLUMNS)), "{cut}");
    let full = shown(&[&question[..], &["--full"]].concat(), &[]);
    assert!(widest(&full) > Some(usize::from(COLUMNS)), "{full}");
}

#[test]
fn a_narrow_terminal_shows_fewer_columns() {
    let question = ["ls", "network", "--no-color", "--no-pager"];
    for columns in [60, 100] {
        let list = shown_within(columns, &question, &[]);
        assert!(list.lines().count() > 10, "{list}");
        let widest = list.lines().map(|line| line.chars().count()).max();
        assert!(widest <= Some(columns.into()), "{list}");
        assert_eq!(list.contains("NAMESPACE"), columns == 100, "{list}");
        assert!(list.contains("TRACE"), "{list}");
    }
}
