//! Metrics, as a sidecar shows them that has seen a bit of everything.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Write as _,
    fs,
    path::Path,
};

use spanplane::record::RecordKind;

use crate::{
    page::{cell, check_section, found, text},
    support::{Home, capture, message},
};

/// What is known of one of them.
#[derive(Default)]
struct Metric {
    help: String,
    kind: String,
    /// Values by label.
    labels: BTreeMap<String, BTreeSet<String>>,
}

/// Their values are names that people gave, or too many to list.
const OPEN_LABELS: [&str; 5] = ["composition", "error_type", "function", "resource", "step"];

#[tokio::test]
async fn the_metrics_are_those_that_are_served() {
    let metrics = served().await;
    let names: BTreeSet<_> = metrics.keys().cloned().collect();
    assert_eq!(
        names,
        declared(&names),
        "one was not counted here, or is declared elsewhere"
    );

    let mut made = String::from("| metric | type | labels | |\n| --- | --- | --- | --- |\n");
    for (name, metric) in &metrics {
        let Metric { help, kind, labels } = metric;
        let labels: Vec<_> = labels.keys().map(|label| format!("`{label}`")).collect();
        let help = cell(help.trim_end_matches('.'));
        writeln!(
            made,
            "| `{name}` | {kind} | {} | {help} |",
            labels.join(", ")
        )
        .unwrap();
    }
    check_section("metrics", &made);

    let page = text();
    let closed = metrics.values().flat_map(|metric| &metric.labels);
    for (label, values) in closed.filter(|(label, _)| !OPEN_LABELS.contains(&label.as_str())) {
        let row = page
            .lines()
            .filter(|line| line.starts_with(&format!("| `{label}` ")));
        let row: String = row.collect();
        for value in values {
            assert!(
                row.contains(&format!("`{value}`")),
                "{label}: {value} is not told"
            );
        }
    }
}

async fn served() -> BTreeMap<String, Metric> {
    let odd = message("", 0, RecordKind::Request, "not json");
    let mut records = capture("dropper");
    records.extend(capture("broken"));
    records.push(odd);
    let shown = Home::new().play(&[], &records).await;
    let mut metrics: BTreeMap<String, Metric> = BTreeMap::new();
    for line in shown.lines() {
        let words: Vec<_> = line.splitn(4, ' ').collect();
        if let ["#", what, name, text] = words[..] {
            let metric = metrics.entry(name.to_owned()).or_default();
            match what {
                "HELP" => text.clone_into(&mut metric.help),
                _ => text.clone_into(&mut metric.kind),
            }
        }
    }
    for line in shown.lines().filter(|line| !line.starts_with('#')) {
        let Some((sample, labels)) = line.split_once('{') else {
            continue;
        };
        let name = sample
            .trim_end_matches("_bucket")
            .trim_end_matches("_sum")
            .trim_end_matches("_count");
        let metric = metrics.get_mut(name).unwrap();
        for label in found(r#"[a-z_]+="[^"]*""#, labels) {
            let (label, value) = label.split_once('=').unwrap();
            if label != "le" {
                let values = metric.labels.entry(label.to_owned()).or_default();
                values.insert(value.trim_matches('"').to_owned());
            }
        }
    }
    metrics
}

/// Those of the names that the sources declare; a declared name that is none of them stays as it is.
fn declared(names: &BTreeSet<String>) -> BTreeSet<String> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/metrics");
    let files = fs::read_dir(folder).unwrap();
    let sources = files.map(|file| fs::read_to_string(file.unwrap().path()).unwrap());
    let sources: String = sources.collect();
    let literals = found(r#""spanplane_[a-z_]+""#, &sources);
    let shown = |literal: &str| {
        let name = literal.trim_matches('"');
        // The unit and the kind follow the name that it is declared by.
        let endings = ["", "_total", "_bytes", "_bytes_total", "_seconds"];
        let shown = endings.iter().map(|ending| format!("{name}{ending}"));
        let mut shown = shown.filter(|name| names.contains(name));
        shown.next().unwrap_or_else(|| name.to_owned())
    };
    literals.iter().map(|literal| shown(literal)).collect()
}
