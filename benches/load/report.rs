//! Figures as tables for people.

use crate::{
    figures::Figures,
    scenarios::{Scenario, Sides},
};

/// What is in the table, and what is not shown there.
pub(crate) fn tell(scenario: &Scenario, figures: &[Figures], shows_threads: bool) -> String {
    let load = &scenario.trial.load;
    let mut lines = vec![
        String::new(),
        format!(
            "{}: {}, {} XRs, {} resources in {} bytes, {} % changed, {} s",
            scenario.name,
            load.mode,
            load.xrs,
            load.shape.resources,
            load.shape.request_bytes,
            load.changed * 100.0,
            load.time.as_secs_f64(),
        ),
        heading(),
    ];
    lines.extend(figures.iter().map(row));
    lines.extend(figures.iter().filter_map(refusal));
    let (measured, others) = match figures {
        [measured, others @ ..] => (measured, others),
        [] => return lines.join("\n"),
    };
    lines.extend(others.iter().map(|other| ratios(measured, other)));
    let sides = Sides {
        spanplane: measured,
        no_op: others.first(),
        other: others.get(1),
    };
    lines.extend(targets(scenario, &sides));
    if shows_threads {
        lines.extend(figures.iter().map(threads));
    }
    lines.join("\n")
}

fn heading() -> String {
    format!(
        "{:<18} {:>7} {:>6} {:>7} {:>7} {:>7} {:>7} {:>7} {:>7} {:>7} {:>6} {:>6} {:>7} {:>7} {:>7} {:>9}",
        "",
        "acked",
        "missed",
        "refused",
        "p50 ms",
        "p99 ms",
        "max ms",
        "msg/s",
        "MB/s",
        "CPU s/GB",
        "cores",
        "MiB",
        "PUTs/rec",
        "KB/rec",
        "drain s",
        "throttled"
    )
}

fn row(of: &Figures) -> String {
    let drained = of
        .drained_after_seconds
        .map_or("never".to_owned(), |seconds| format!("{seconds:.0}"));
    let throttled = of.periods.map_or("–".to_owned(), |periods| {
        format!("{}/{}", periods.throttled, periods.all)
    });
    format!(
        "{:<18} {:>7} {:>6} {:>7} {:>7.2} {:>7.2} {:>7.1} {:>7.0} {:>7.1} {:>8.2} {:>6.3} {:>6.1} {:>8.3} {:>7.1} {:>7} {:>9}",
        of.server,
        of.acknowledged,
        of.missed,
        of.refused,
        of.p50_ms,
        of.p99_ms,
        of.max_ms,
        of.messages_per_second,
        of.mb_per_second,
        of.cpu_seconds_per_gb,
        of.cores,
        of.peak_mib,
        of.objects_per_reconcile,
        of.stored_bytes_per_reconcile / 1000.0,
        drained,
        throttled,
    )
}

fn refusal(of: &Figures) -> Option<String> {
    let refusal = of.first_refusal.as_ref()?;
    Some(format!("  {} refused: {refusal}", of.server))
}

fn ratios(measured: &Figures, other: &Figures) -> String {
    format!(
        "  {} / {}: p50 {:.2}, p99 {:.2}, MB/s {:.2}, CPU s/GB {:.2}, peak {:.2}",
        measured.server,
        other.server,
        measured.p50_ms / other.p50_ms,
        measured.p99_ms / other.p99_ms,
        measured.mb_per_second / other.mb_per_second,
        measured.cpu_seconds_per_gb / other.cpu_seconds_per_gb,
        measured.peak_mib / other.peak_mib,
    )
}

fn targets(scenario: &Scenario, sides: &Sides<'_>) -> Vec<String> {
    let targets = scenario.targets.iter().filter_map(|target| {
        let measured = (target.measure)(sides)?;
        Some(format!(
            "  {}: {measured:.3}, target ≤ {}",
            target.what, target.at_most
        ))
    });
    targets.collect()
}

fn threads(of: &Figures) -> String {
    let threads = of.cpu_seconds_by_thread.iter();
    let threads: Vec<_> = threads
        .map(|(name, seconds)| format!("{name} {seconds:.2}"))
        .collect();
    format!("  {} CPU s by thread: {}", of.server, threads.join(", "))
}
