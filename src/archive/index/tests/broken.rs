//! What can't be read.

use super::*;

/// The traces, and the errors by what they are about.
async fn outcome(archive: &Archive) -> (Vec<String>, Vec<String>) {
    let (mut traces, mut errors) = (Vec::new(), Vec::new());
    for item in read(archive, Query::default()).await {
        match item {
            Ok(line) => traces.push(line.trace_id),
            Err(error) => errors.push(match error {
                IndexError::Batch { key, .. } => format!("batch {}", key.sequence),
                IndexError::Lines { key, lines } => format!("{lines} lines in {}", key.sequence),
                IndexError::Version {
                    key,
                    lines,
                    version,
                } => format!("{lines} of version {version} in {}", key.sequence),
                other => panic!("{other}"),
            }),
        }
    }
    (traces, errors)
}

/// A batch between two that are whole.
async fn between(body: Vec<u8>) -> (Vec<String>, Vec<String>) {
    let archive = in_memory();
    put(&archive, &key(at(0), 1, 1), batch([&line("a", at(0))])).await;
    put(&archive, &key(at(0), 1, 2), body).await;
    put(&archive, &key(at(0), 1, 3), batch([&line("z", at(99))])).await;
    outcome(&archive).await
}

fn text(line: &Line) -> String {
    serde_json::to_string(line).unwrap()
}

#[tokio::test]
async fn a_batch_that_is_not_compressed_costs_itself() {
    for body in [Vec::new(), text(&line("b", at(1))).into_bytes()] {
        let (traces, errors) = between(body).await;
        assert_eq!(traces, ["z", "a"]);
        assert_eq!(errors, ["batch 2"]);
    }
}

#[tokio::test]
async fn of_a_batch_that_is_cut_off_the_lines_before_are_given() {
    // NOTE: several blocks of the compression; each comes out whole or not at all.
    let second = padded(line("c", at(2)), 600_000);
    let body = batch([&line("b", at(1)), &second]);
    let (traces, errors) = between(body[..body.len() / 2].to_vec()).await;
    assert_eq!(traces, ["z", "b", "a"]);
    assert_eq!(errors, ["batch 2"]);
    assert_eq!(between(body[..5].to_vec()).await.0, ["z", "a"]);
}

#[tokio::test]
async fn lines_that_cannot_be_read_cost_themselves() {
    let [b, c] = [("b", 1), ("c", 2)].map(|(trace, start)| text(&line(trace, at(start))));
    let steps = c.replace("function-a", "\\ud800");
    let odd = text(&line("odd", at(3))).replace(r#""otel_span_id":"#, r#""odd":"#);
    let body = format!("{b}\n{{\n\n[]\n{steps}\nnull\n{odd}\n{c}");
    let (traces, errors) = between(compressed(body.as_bytes())).await;
    assert_eq!(traces, ["z", "c", "b", "a"]);
    assert_eq!(errors, ["4 lines in 2", "1 lines in 2"]);
}

#[tokio::test]
async fn lines_of_other_versions_are_counted() {
    let b = text(&line("b", at(1)));
    let next = b.replace(r#""v":1"#, r#""v":2"#);
    let body = format!("{next}\n{b}\n{{\"v\":3}}\n");
    let (traces, errors) = between(compressed(body.as_bytes())).await;
    assert_eq!(traces, ["z", "b", "a"]);
    assert_eq!(errors, ["2 of version 3 in 2"]);
}

#[tokio::test]
async fn a_batch_that_grows_beyond_measure_is_left() {
    let line = text(&line("b", at(1)));
    let blanks = " ".repeat(1024 * 1024 - 1) + "\n";
    let body = format!("{line}\n{}", blanks.repeat(64));
    let (traces, errors) = between(compressed(body.as_bytes())).await;
    assert_eq!(traces, ["z", "b", "a"]);
    assert_eq!(errors, ["batch 2", "63 lines in 2"]);
}

#[tokio::test]
async fn a_line_that_grows_beyond_measure_is_passed_over() {
    let mut long = line("b", at(1));
    long.object.key = "x".repeat(MAX_LINE_BYTES);
    let (traces, errors) = between(batch([&long, &line("c", at(2))])).await;
    assert_eq!(traces, ["z", "c", "a"]);
    assert_eq!(errors, ["1 lines in 2"]);
}
