//! Steps as people call them: by name or by number. Pure.

use spanplane::line::{Line, LineStep};

use super::nothing::{Nothing, alike};

/// `2 configure`, or `2#1 configure` when it was called again with what it had asked for.
pub(crate) fn label_of(step: &LineStep) -> String {
    let name = name_of(step);
    match step.iteration {
        0 => format!("{} {name}", step.index),
        again => format!("{}#{again} {name}", step.index),
    }
}

/// Its name or, in layouts without one, that of its function.
pub(crate) fn name_of(step: &LineStep) -> &str {
    if step.name.is_empty() {
        &step.function
    } else {
        &step.name
    }
}

/// The place of the step that is meant: its name or number, with `#1` for a certain call where
/// there are several, else the last.
pub(crate) fn find_step(line: &Line, text: &str) -> Option<usize> {
    let (called, call) = match text.rsplit_once('#') {
        Some((called, call)) => (called, Some(call.parse::<i32>().ok()?)),
        None => (text, None),
    };
    let index = called.parse::<i32>().ok();
    let is_call = |step: &LineStep| call.is_none_or(|call| step.iteration == call);
    let place = |is_it: &dyn Fn(&LineStep) -> bool| {
        let mut steps = line.steps.iter();
        steps.rposition(|step| is_it(step) && is_call(step))
    };
    place(&|step| name_of(step) == called).or_else(|| place(&|step| index == Some(step.index)))
}

/// The place of the step that is meant, or which there are.
pub(crate) fn require_step(line: &Line, text: &str) -> Result<usize, Nothing> {
    find_step(line, text).ok_or_else(|| {
        let labels: Vec<_> = line.steps.iter().map(label_of).collect();
        let names: Vec<_> = line.steps.iter().map(name_of).collect();
        let alike = alike(text, names.into_iter());
        let advice = if alike.is_empty() { labels } else { alike };
        Nothing::new(
            format!("{} has no step {text}", line.trace_id),
            advice.join(", "),
        )
    })
}
