//! Whatever is lost, doubled, late or out of order.

use std::collections::HashSet;

use proptest::{collection::vec, prelude::*};

use super::*;

/// What becomes of a message between core and the log.
#[derive(Clone, Copy, Debug)]
enum Fate {
    Arrives,
    IsLost,
    IsLate(i64),
    ComesTwice(i64),
}

#[derive(Clone, Debug)]
struct PlannedStep {
    iteration: i32,
    pause: i64,
    duration: i64,
    request: Fate,
    response: Fate,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Ending {
    Success,
    Error,
    Fatal,
}

#[derive(Clone, Debug)]
struct PlannedReconcile {
    subject: u8,
    start: i64,
    steps: Vec<PlannedStep>,
    ending: Ending,
}

/// Milliseconds: mostly as core is, sometimes around the limits.
fn some_time() -> impl Strategy<Value = i64> {
    prop_oneof![4 => 0..20_i64, 2 => 0..5_000_i64, 1 => 0..200_000_i64]
}

fn fate() -> impl Strategy<Value = Fate> {
    prop_oneof![
        6 => Just(Fate::Arrives),
        1 => Just(Fate::IsLost),
        1 => some_time().prop_map(Fate::IsLate),
        1 => some_time().prop_map(Fate::ComesTwice),
    ]
}

fn planned_step() -> impl Strategy<Value = PlannedStep> {
    (0..2_i32, some_time(), some_time(), fate(), fate()).prop_map(
        |(iteration, pause, duration, request, response)| PlannedStep {
            iteration,
            pause,
            duration,
            request,
            response,
        },
    )
}

fn planned_reconcile() -> impl Strategy<Value = PlannedReconcile> {
    let ending = prop_oneof![
        3 => Just(Ending::Success),
        1 => Just(Ending::Error),
        1 => Just(Ending::Fatal),
    ];
    (0..3_u8, some_time(), vec(planned_step(), 1..5), ending).prop_map(
        |(subject, start, steps, ending)| PlannedReconcile {
            subject,
            start,
            steps,
            ending,
        },
    )
}

impl PlannedReconcile {
    fn messages(&self, trace: &str) -> Vec<Message> {
        let mut messages = Vec::new();
        let mut send = |message: Message, millis: i64, fate: Fate| match fate {
            Fate::Arrives => messages.push(message.at(millis)),
            Fate::IsLost => {}
            Fate::IsLate(by) => messages.push(message.at(millis + by)),
            Fate::ComesTwice(after) => {
                messages.push(message.clone().at(millis));
                messages.push(message.at(millis + after));
            }
        };
        let subject = format!("xr-{}", self.subject);
        let step_count = i32::try_from(self.steps.len()).unwrap();
        let mut millis = self.start;
        for (index, step) in (0..).zip(&self.steps) {
            millis += step.pause;
            let place = |message: Message| {
                let message = message.of(&subject).began(millis);
                message.iteration(step.iteration)
            };
            let asked = place(request(trace, index));
            let mut answered = place(response(trace, index));
            if index + 1 == step_count {
                answered = match self.ending {
                    Ending::Success => answered,
                    Ending::Error => answered.error("unavailable"),
                    Ending::Fatal => answered.fatal(),
                };
            }
            send(asked, millis, step.request);
            millis += step.duration;
            send(answered, millis, step.response);
        }
        messages
    }
}

/// A log of several reconciles of a few subjects, in the order of arrival.
fn messages() -> impl Strategy<Value = Vec<Message>> {
    vec(planned_reconcile(), 1..8).prop_map(|reconciles| {
        let mut messages: Vec<_> = (0..)
            .zip(reconciles)
            .flat_map(|(index, reconcile): (u32, _)| reconcile.messages(&format!("t{index}")))
            .collect();
        messages.sort_by_key(|message| message.arrival);
        messages
    })
}

/// A log in any order at all, its clock stepping back and forth.
fn shuffled_messages() -> impl Strategy<Value = Vec<Message>> {
    messages().prop_shuffle()
}

fn any_messages() -> impl Strategy<Value = Vec<Message>> {
    prop_oneof![3 => messages(), 1 => shuffled_messages()]
}

fn any_limits() -> impl Strategy<Value = Limits> {
    let small = (1..4_usize, 1..6_usize).prop_map(|(open_reconciles, records_each)| Limits {
        open_reconciles,
        records_each,
        ..Limits::default()
    });
    prop_oneof![Just(Limits::default()), small]
}

fn follow(messages: &[Message], limits: Limits) -> Vec<ClosedReconcile> {
    let mut log = Following::with(limits);
    log.accept_all(messages.iter().cloned());
    log.close_all();
    log.closed()
}

type Place = (i32, i32);

fn place_of(message: &Message) -> Place {
    (message.meta.step_index, message.meta.iteration)
}

proptest! {
    #[test]
    fn every_record_comes_out_exactly_once(messages in any_messages(), limits in any_limits()) {
        let closed = follow(&messages, limits);
        let mut records: Vec<_> = closed.iter().flat_map(records_of).collect();
        records.sort_unstable();
        prop_assert!(records.into_iter().eq(0..messages.len()));
    }

    #[test]
    fn no_reconcile_mixes_traces_or_subjects(messages in any_messages(), limits in any_limits()) {
        for reconcile in follow(&messages, limits) {
            for record in records_of(&reconcile) {
                let meta = &messages[record].meta;
                prop_assert_eq!(&*meta.trace_id, &*reconcile.trace_id.0);
                prop_assert_eq!(meta.subject.as_ref(), Some(&reconcile.subject));
            }
        }
    }

    /// Every place has the same payload here, so that a place is a step.
    #[test]
    fn what_came_while_a_reconcile_was_open_is_paired(
        messages in any_messages(),
        limits in any_limits(),
    ) {
        for reconcile in follow(&messages, limits) {
            let records = records_of(&reconcile);
            let mut places: Vec<_> = records.iter().map(|&index| place_of(&messages[index])).collect();
            places.sort_unstable();
            places.dedup();
            let steps = reconcile.steps.iter().map(|step| (step.index, step.iteration));
            prop_assert!(steps.eq(places), "in order, one step a place");

            for step in &reconcile.steps {
                let first = |kind| records.iter().copied().find(|&index| {
                    let message = &messages[index];
                    message.kind == kind && place_of(message) == (step.index, step.iteration)
                });
                let expected = (first(RecordKind::Request), first(RecordKind::Response));
                prop_assert_eq!(halves(step), expected);
            }
        }
    }

    #[test]
    fn letting_time_pass_between_records_changes_nothing(
        messages in any_messages(),
        limits in any_limits(),
        pauses in vec(vec(some_time(), 0..3), 40),
    ) {
        let mut log = Following::with(limits);
        for (message, before) in messages.iter().zip(pauses.iter().cycle()) {
            for &pause in before {
                let now = message.arrival - Duration::from_millis(pause.unsigned_abs());
                log.assembler.advance(now, &mut log.closed);
            }
            log.accept(message.clone());
        }
        log.close_all();
        prop_assert_eq!(log.closed(), follow(&messages, limits));
    }

    #[test]
    fn what_is_held_stays_within_the_limits(messages in any_messages(), limits in any_limits()) {
        let mut log = Following::with(limits);
        for message in messages {
            log.accept(message);
            let Assembler { open, deadlines, newest_of, .. } = &log.assembler;
            prop_assert!(open.len() <= limits.open_reconciles);
            prop_assert!(open.values().all(|held| held.record_count() < limits.records_each));
            let waiting: HashSet<_> = deadlines.iter().map(|(_, trace_id)| trace_id).collect();
            prop_assert_eq!(deadlines.len(), open.len());
            prop_assert_eq!(waiting, open.keys().collect::<HashSet<_>>());
            prop_assert!(newest_of.values().all(|trace_id| open.contains_key(trace_id)));
            prop_assert!(newest_of.len() <= open.len());
        }
    }

    #[test]
    fn nothing_is_closed_for_silence_before_its_time(messages in messages()) {
        let limits = Limits::default();
        let mut log = Following::new();
        for message in messages.clone() {
            let now = message.arrival;
            log.accept(message);
            for reconcile in log.closed() {
                let last = records_of(&reconcile).into_iter().max().unwrap();
                let silence = now.since(messages[last].arrival);
                match reconcile.closing {
                    Closing::Idle | Closing::Overdue => prop_assert!(silence >= limits.idle),
                    Closing::Ended => prop_assert_eq!(silence, Duration::ZERO),
                    // At once, or after some silence if a response was outstanding.
                    Closing::Succeeded => {
                        prop_assert!(silence < limits.idle || !reconcile.is_complete());
                    }
                    Closing::Flooded | Closing::ShuttingDown => prop_assert!(false),
                }
            }
        }
    }

    /// Even where the clock stepped: back by less than that, it is waited for; by more, followed.
    #[test]
    fn nothing_stays_open_long_after_the_last_record(messages in any_messages()) {
        let overdue = Limits::default().overdue;
        let last = messages.last().map_or(at(0), |message| message.arrival);
        let mut log = Following::new();
        log.accept_all(messages);
        log.assembler.advance(last + overdue + overdue, &mut log.closed);
        prop_assert_eq!(log.open_count(), 0);
    }

    /// Core's own order, nothing lost: every pipeline is one reconcile, whatever its subject.
    #[test]
    fn undisturbed_pipelines_come_out_whole(
        reconciles in vec((0..3_u8, vec((0..1_900_i64, 0..119_000_i64), 1..6), 0..90_000_i64), 1..8),
    ) {
        // A subject's reconciles follow each other; subjects run side by side.
        let mut free_at = [0; 3];
        let mut messages = Vec::new();
        for (index, (subject, steps, pause)) in reconciles.iter().enumerate() {
            let trace = format!("t{index}");
            let xr = format!("xr-{subject}");
            let millis = &mut free_at[usize::from(*subject)];
            *millis += pause;
            for (step, (before, duration)) in (0..).zip(steps) {
                *millis += before;
                let began = *millis;
                messages.push(request(&trace, step).of(&xr).began(began).at(began));
                *millis += duration;
                messages.push(response(&trace, step).of(&xr).began(began).at(*millis));
            }
            *millis += 1;
        }
        messages.sort_by_key(|message| message.arrival);
        let closed = follow(&messages, Limits::default());
        prop_assert_eq!(closed.len(), reconciles.len());
        let whole = |closed: &ClosedReconcile| closed.is_complete() && !closed.is_fragment();
        prop_assert!(closed.iter().all(whole));
    }
}
