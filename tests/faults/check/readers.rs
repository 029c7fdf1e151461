//! What readers of the store see: the program's own, and the example queries.

use std::{
    collections::BTreeMap,
    env, fs,
    path::{Path, PathBuf},
    process::Stdio,
};

use anyhow::{Context as _, ensure};
use serde_json::Value;
use tokio::{io::AsyncWriteExt as _, process::Command};

use super::{
    bucket::{Bucket, EntryStep},
    entries::shapes,
};
use crate::{
    payload::holds_canary,
    problems::{Problem, Problems},
    store::Reader,
};

const QUERIES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/examples/queries");

/// Returns what could not be checked.
pub(super) async fn check(
    program: &Path,
    reader: &Reader,
    bucket: &Bucket,
    index_copy: &Path,
    problems: &mut Problems,
) -> anyhow::Result<Vec<String>> {
    if bucket.entries.is_empty() {
        return Ok(Vec::new());
    }
    check_ls(program, reader, bucket, problems).await?;
    let Some(duckdb) = find_duckdb() else {
        let advice =
            "the example queries: duckdb is not installed (examples/queries/install does it)";
        return Ok(vec![advice.to_owned()]);
    };
    let is_timed = |step: &&EntryStep| step.duration_ms.is_some();
    let is_failed = |step: &&EntryStep| {
        let error = step.error_type.as_deref();
        error.is_some_and(|error| error != "interrupted")
    };
    let steps = || bucket.latest().flat_map(|entry| &entry.steps);
    let timed = count(steps().filter(is_timed), |step| step.function.clone());
    let failed = count(steps().filter(is_failed), |step| {
        let error = step.error_type.as_deref().unwrap_or_default();
        format!("{} {} {error}", step.function, step.name)
    });
    let expectations = [
        ("slowest-functions", &["function"][..], timed),
        ("failures", &["function", "step", "error_type"][..], failed),
    ];
    for (query, columns, expected) in expectations {
        let rows = ask(&duckdb, query, index_copy).await?;
        let mut answered = BTreeMap::new();
        for row in &rows {
            let text = |column: &&str| row.get(*column).and_then(Value::as_str);
            let name: Vec<_> = columns.iter().filter_map(text).collect();
            let calls = row.get("calls").and_then(Value::as_u64);
            answered.insert(name.join(" "), calls.unwrap_or_default());
        }
        if answered != expected {
            let detail = format!("{query}.sql: {answered:?} in place of {expected:?}");
            problems.add(Problem::Reader, detail);
        }
    }
    for query in ["dropped", "flapping"] {
        ask(&duckdb, query, index_copy).await?;
    }
    Ok(Vec::new())
}

fn count<'s>(
    steps: impl Iterator<Item = &'s EntryStep>,
    name: impl Fn(&EntryStep) -> String,
) -> BTreeMap<String, u64> {
    let mut counts = BTreeMap::new();
    for step in steps {
        *counts.entry(name(step)).or_default() += 1;
    }
    counts
}

/// `spanplane ls` gives one row for each trace, the one of its last entry.
async fn check_ls(
    program: &Path,
    reader: &Reader,
    bucket: &Bucket,
    problems: &mut Problems,
) -> anyhow::Result<()> {
    let output = Command::new(program)
        .env_clear()
        .envs(reader.variables.iter().cloned())
        .args(["ls", "--limit=0", "--output=json", "--store", &reader.url])
        .output()
        .await?;
    let (printed, told) = (output.stdout, String::from_utf8_lossy(&output.stderr));
    ensure!(output.status.success(), "spanplane ls: {told}");
    if holds_canary(told.as_bytes()) {
        problems.add(Problem::Leak, format!("spanplane ls: {told}"));
    }
    let mut rows: BTreeMap<String, Vec<usize>> = BTreeMap::new();
    for row in serde_json::Deserializer::from_slice(&printed).into_iter::<Value>() {
        let row = row?;
        let trace_id = row.get("trace_id").and_then(Value::as_str);
        let trace_id = trace_id.context("a row without a trace")?;
        let steps = row.get("steps").and_then(Value::as_array);
        let steps = steps.map_or(0, Vec::len);
        rows.entry(trace_id.to_owned()).or_default().push(steps);
    }
    for entry in bucket.latest() {
        let expected = [entry.steps.len()];
        let given = rows.remove(&entry.trace_id).unwrap_or_default();
        if given != expected {
            problems.add(
                Problem::Reader,
                format!(
                    "spanplane ls: rows with {given:?} steps for {}",
                    shapes(bucket, &entry.trace_id)
                ),
            );
        }
    }
    for trace_id in rows.keys() {
        let detail = format!("spanplane ls: {trace_id} is in no batch");
        problems.add(Problem::Reader, detail);
    }
    Ok(())
}

fn find_duckdb() -> Option<PathBuf> {
    let path = env::var_os("PATH").unwrap_or_default();
    let mut folders: Vec<_> = env::split_paths(&path).collect();
    let cache = env::var_os("XDG_CACHE_HOME").map(PathBuf::from);
    let cache = cache.or_else(|| Some(PathBuf::from(env::var_os("HOME")?).join(".cache")));
    folders.extend(cache.map(|cache| cache.join("spanplane-tools/duckdb/bin")));
    let mut programs = folders.into_iter().map(|folder| folder.join("duckdb"));
    programs.find(|program| program.is_file())
}

async fn ask(duckdb: &Path, query: &str, store: &Path) -> anyhow::Result<Vec<Value>> {
    let text = fs::read_to_string(format!("{QUERIES}/{query}.sql"))?;
    let store = store.to_str().context("an odd path")?;
    let text = text.replace("s3://bucket/prefix", store);
    let mut child = Command::new(duckdb)
        .args(["-bail", "-json"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .kill_on_drop(true)
        .spawn()?;
    let mut input = child.stdin.take().context("no stdin")?;
    input.write_all(text.as_bytes()).await?;
    drop(input);
    let output = child.wait_with_output().await?;
    ensure!(output.status.success(), "{query}.sql failed");
    if output.stdout.iter().all(u8::is_ascii_whitespace) {
        return Ok(Vec::new());
    }
    serde_json::from_slice(&output.stdout).with_context(|| format!("{query}.sql: odd answer"))
}
