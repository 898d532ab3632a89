//! Outcome of an admission while the API server may still apply an attempt that got no response.

use plimsoll_queueing::WorkloadUpdate;
use serde_json::json;

use super::tests::{assert_answers, run, status, update, workload};
use super::*;

fn action(update: &WorkloadUpdate) -> Action {
    Action::Queueing(QueueAction::UpdateWorkload(Box::new(update.clone())))
}

/// An update that reserves quota.
fn admit() -> WorkloadUpdate {
    WorkloadUpdate { admission: Some(Some(Box::default())), ..update() }
}

fn seen() -> Option<Arc<Value>> {
    Some(Arc::new(workload("u", "3")))
}

fn lost() -> Response {
    Err(Error::Transport("reset".into()))
}

/// One rejection for each attempt.
fn refused(code: u16) -> impl Iterator<Item = Response> {
    let attempts = if status(code).is_transient() { ATTEMPTS } else { 1 };
    (0..attempts).map(move |_| Err(status(code)))
}

fn admitted(version: &str) -> Value {
    let admit = admit();
    let mut object = workload("u", version);
    object["status"] = crate::kueue::workload_status_patch(&object, &admit);
    object
}

#[test]
fn an_admission_does_not_fail_while_an_attempt_may_still_be_applied() {
    for code in [403, 422, 429, 503] {
        // The API server applies the first attempt after it has rejected two rounds of retries.
        let mut responses = vec![lost()];
        responses.extend(refused(code).skip(usize::from(status(code).is_transient())));
        for _ in 0..2 {
            responses.push(Ok(workload("u", "3")));
            responses.extend(refused(code));
        }
        responses.push(Ok(admitted("4")));
        let (log, outcome) = run(action(&admit()), seen(), responses);
        assert_eq!(log.iter().filter(|l| *l == "find workloads/w").count(), 3, "{code}: {log:?}");
        assert!(log.contains(&"5000 ms".to_owned()), "{code}: {log:?}");
        let key = update().key;
        assert_answers(&outcome, &[Event::Queueing(QueueEvent::Written { key, id: 7, version: 4 })]);
    }
}

#[test]
fn an_admission_fails_when_no_attempt_can_be_applied_any_more() {
    // Another writer has changed the version.
    let changed = [lost(), Err(status(403)), Ok(workload("u", "4")), Err(status(403))];
    // The workload is deleted.
    let gone = [lost(), Err(status(409)), Ok(Value::Null)];
    for (responses, why) in [(&changed[..], "code 403"), (&gone[..], "the workload is gone")] {
        let (log, outcome) = run(action(&admit()), seen(), responses.iter().cloned());
        let failed = |id| {
            let (key, message) = (update().key, why.to_owned());
            Event::Queueing(QueueEvent::WriteFailed { key, id, message })
        };
        assert_answers(&outcome, &update().ids().map(failed).collect::<Vec<_>>());
        assert!(log.contains(&"find workloads/w".to_owned()), "{log:?}");
    }
}

#[test]
fn a_404_does_not_fail_an_admission_that_may_be_applied() {
    let mut responses = vec![lost(), Err(status(409))];
    responses.extend((0..ATTEMPTS).map(|_| Err(status(404))));
    responses.push(Ok(admitted("4")));
    let (_, outcome) = run(action(&admit()), seen(), responses);
    let key = update().key;
    assert_answers(&outcome, &[Event::Queueing(QueueEvent::Written { key, id: 7, version: 4 })]);
}

#[test]
fn a_rejected_explanation_fails_even_if_an_attempt_got_no_response() {
    let mut why = update();
    why.conditions[0].status = false;
    let responses = [lost(), Err(status(403)), Ok(workload("u", "3")), Err(status(403))];
    let (log, outcome) = run(action(&why), seen(), responses);
    assert_eq!(outcome.answers.len(), 2, "{log:?}");
    assert!(json!(log).to_string().matches("find").count() == 1, "{log:?}");
}
