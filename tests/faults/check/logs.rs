//! What the sidecars logged, and how they ended.
//!
//! Invariant: `ERROR` means that something was lost or can't work, so that every such line has a
//! fault that explains it, or is a problem.

use std::fs;

use serde_json::Value;

use crate::{
    payload::holds_canary,
    plan::Kind,
    problems::{Problem, Problems},
    sidecar::{End, Life, Sidecar},
};

/// Errors that faults explain.
const EXPLAINED: [(&str, &[Kind]); 3] = [
    ("cannot write to the spool", &[Kind::Disk, Kind::Store]),
    (
        "the store refuses what is written to it",
        &[Kind::Store, Kind::Disk, Kind::Clock],
    ),
    (
        "cannot create the store's folder",
        &[Kind::Store, Kind::Disk],
    ),
];

/// A message that a process was at each time it was killed: it may be the message's fault.
const QUARANTINED_MESSAGE: &str = "the process died each time it processed this message";
const DEATHS: u32 = 2;

pub(super) fn check(sidecar: &Sidecar, problems: &mut Problems) -> anyhow::Result<()> {
    let mut kills = 0;
    for life in &sidecar.lives {
        let log = fs::read(&life.log)?;
        let log = String::from_utf8_lossy(&log);
        let name = life.log.file_name().unwrap_or_default().to_string_lossy();
        for line in log.lines() {
            if holds_canary(line.as_bytes()) {
                problems.add(Problem::Leak, format!("{name}: {line}"));
            }
            // As the program logs it, and as the standard library prints it.
            if line.contains(r#""message":"panicked""#) || line.contains("panicked at") {
                problems.add(Problem::Panic, format!("{name}: {line}"));
            }
            let is_poison = line.contains(QUARANTINED_MESSAGE) && kills >= DEATHS;
            if !is_poison && is_unexplained_error(line, life) {
                problems.add(Problem::ErrorLine, format!("{name}: {line}"));
            }
        }
        kills += u32::from(matches!(life.end, Some(End::Killed)));
        for leak in &life.leaks {
            problems.add(Problem::Leak, format!("{name}: metrics: {leak}"));
        }
        if let Some(complaint) = complaint_about(life) {
            let last = log.lines().last().unwrap_or_default();
            problems.add(Problem::Exit, format!("{name}: {complaint}: {last}"));
        }
    }
    Ok(())
}

fn is_unexplained_error(text: &str, life: &Life) -> bool {
    let Ok(logged) = serde_json::from_str::<Value>(text) else {
        return false;
    };
    if logged.get("level").and_then(Value::as_str) != Some("ERROR") {
        return false;
    }
    let message = logged.get("message").and_then(Value::as_str);
    let message = message.unwrap_or_default();
    let is_explained = EXPLAINED.iter().any(|(text, kinds)| {
        message.starts_with(text) && kinds.iter().any(|kind| life.faults.contains(kind))
    });
    !is_explained
}

fn complaint_about(life: &Life) -> Option<String> {
    match life.end {
        Some(End::Killed) => None,
        Some(End::Terminated(status)) if status.success() => None,
        // On a full or read-only disk it says why it can't start, and can be started later.
        Some(End::DidNotStart(status))
            if status.code() == Some(1)
                && (life.faults.contains(&Kind::Disk) || life.faults.contains(&Kind::Store)) =>
        {
            None
        }
        Some(End::Terminated(status)) => Some(format!("SIGTERM ended it with {status}")),
        Some(End::DidNotStart(status)) => Some(format!("it did not start: {status}")),
        Some(End::ByItself(status)) => Some(format!("it ended by itself: {status}")),
        Some(End::Hung) => Some("SIGTERM did not end it".to_owned()),
        None => Some("it was never stopped".to_owned()),
    }
}
