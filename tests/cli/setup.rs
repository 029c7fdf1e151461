//! A store that all tests share, and the program to ask it with.

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
    process::{Command, Output, Stdio},
    sync::OnceLock,
};

use spanplane::{capture::step_of, record::Record};

use crate::support::{Home, counted, every_capture, fill_spool, stop, until};

/// A folder with everything that all captures hold, as stored by a sidecar.
pub(crate) fn store() -> &'static Path {
    static STORE: OnceLock<PathBuf> = OnceLock::new();
    STORE.get_or_init(|| {
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("store-of-all-captures");
        match fs::remove_dir_all(&folder) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => panic!("{error}"),
            _ => {}
        }
        let runtime = tokio::runtime::Runtime::new().unwrap();
        // A test may have a runtime of its own, in which no other can wait.
        std::thread::scope(|scope| {
            let filling = scope.spawn(|| runtime.block_on(fill(&folder, &every_capture())));
            filling.join().unwrap();
        });
        folder
    })
}

/// Has a sidecar store these messages, with the times at which they came.
async fn fill(folder: &Path, records: &[Record]) {
    fill_from(&Home::new(), folder, records).await;
}

/// The same with a sidecar in this home.
pub(crate) async fn fill_from(home: &Home, folder: &Path, records: &[Record]) {
    fill_spool(&home.data_dir(), records).await;
    let store = format!("--store=file://{}", folder.display());
    let sidecar = home
        .start(&[&store, "--retention=0", "--retention-bytes=0"])
        .await;
    let traces: BTreeSet<_> = records
        .iter()
        .map(|record| step_of(record).meta.trace_id)
        .collect();
    let metrics = sidecar.metrics().clone();
    // NOTE: a stop would end waiting for responses that never come, and say so.
    until("every reconcile is published", || {
        let metrics = metrics.text().unwrap();
        counted(&metrics, "spanplane_reconciles_total") >= traces.len() as u64
    })
    .await;
    stop(sidecar).await;
}

/// The program, knowing no store.
pub(crate) fn program(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_spanplane"));
    command
        .args(arguments)
        .env_clear()
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    command
}

/// Asks the store that all tests share.
pub(crate) fn ask(arguments: &[&str]) -> Output {
    ask_store(store(), arguments)
}

pub(crate) fn ask_store(folder: &Path, arguments: &[&str]) -> Output {
    let store = format!("file://{}", folder.display());
    let mut command = program(arguments);
    command.env("SPANPLANE_STORE", store).output().unwrap()
}

/// Copies a store.
pub(crate) fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let copied = to.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            copy(&entry.path(), &copied);
        } else {
            fs::copy(entry.path(), copied).unwrap();
        }
    }
}

/// What the program said and how it ended, for people to read and to review.
pub(crate) fn told(arguments: &[&str]) -> String {
    let output = ask(arguments);
    let folder = store().display().to_string();
    let [out, err] = [&output.stdout, &output.stderr].map(|text| text_of(text));
    let code = output.status.code().unwrap();
    let command = arguments.join(" ");
    let told = format!("$ spanplane {command}\n{out}---\n{err}exit code {code}\n");
    told.replace(&folder, "/STORE")
}

pub(crate) fn text_of(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

/// How a question ended.
pub(crate) fn code_of(output: &Output) -> i32 {
    output.status.code().unwrap()
}
