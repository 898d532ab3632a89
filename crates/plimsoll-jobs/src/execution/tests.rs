//! Plans carried out against scripted responses.

use plimsoll_api::resource::{PROVISIONING_REQUESTS, WORKLOADS};
use serde_json::json;

use super::*;
use crate::plan::delete_within;

const NOW: Time = Time::from_seconds(1_700_000_000);

fn status(code: u16) -> Error {
    Error::Status { code, reason: String::new(), message: format!("code {code}"), retry_after: 0 }
}

fn workload(uid: &str, version: &str) -> Value {
    json!({"metadata": {"namespace": "ns", "name": "w", "uid": uid, "resourceVersion": version}})
}

fn patch() -> Write {
    let (namespace, name) = ("ns".to_owned(), "w".to_owned());
    Write::Patch { resource: WORKLOADS, namespace, name, subresource: "status", body: json!({}) }
}

fn delete(resource: Resource, uid: &str) -> Write {
    let (namespace, name) = ("ns".to_owned(), "w".to_owned());
    Write::Delete { resource, namespace, name, uid: uid.to_owned(), grace_seconds: None }
}

fn if_gone() -> Write {
    let (namespace, name) = ("ns".to_owned(), "w".to_owned());
    Write::IfGone { resource: WORKLOADS, namespace, name, uid: "u".to_owned() }
}

fn target() -> Target {
    Target { resource: WORKLOADS, namespace: "ns".to_owned(), name: "w".to_owned() }
}

/// Carries out `plan`; the requests that were sent, how it ended, and the writes that are unconfirmed then.
fn run(
    plan: Vec<Write>,
    objects: &mut ObjectStore,
    unconfirmed: &mut UnconfirmedWrites,
    responses: Vec<Result<Value, Error>>,
) -> (Vec<String>, Result<(), Error>) {
    run_key(Key::Orphan("ns".to_owned(), "w".to_owned()), plan, objects, unconfirmed, responses)
}

fn run_key(
    key: Key,
    plan: Vec<Write>,
    objects: &mut ObjectStore,
    unconfirmed: &mut UnconfirmedWrites,
    responses: Vec<Result<Value, Error>>,
) -> (Vec<String>, Result<(), Error>) {
    let config = Config::default();
    let mut execution = unconfirmed.begin(key);
    execution.plan = Some(plan.into());
    let (mut log, mut responses) = (Vec::new(), responses.into_iter());
    let outcome = loop {
        match execution.next(Env { objects, config: &config, now: NOW }) {
            Step::Send(request) => {
                let shown = format!("{request:?}");
                log.push(shown.split(' ').next().unwrap_or_default().to_owned());
                let response = responses.next().expect("more requests than responses").map(Arc::new);
                if let Err(e) = execution.answered(response, objects, &config, NOW) {
                    break Err(e);
                }
            }
            Step::Done(outcome) => break outcome,
            step => log.push(format!("{step:?}").split(['(', ' ']).next().unwrap_or_default().to_owned()),
        }
    };
    assert!(responses.next().is_none(), "{log:?}");
    unconfirmed.ended(execution);
    (log, outcome)
}

fn version_of(objects: &ObjectStore) -> Option<String> {
    objects.get(Kind::Workload, "ns", "w").map(|w| json::version(&w).to_owned())
}

#[test]
fn after_a_failed_patch_the_object_is_read_before_anything_is_planned() {
    let (mut objects, mut unconfirmed) = (ObjectStore::default(), UnconfirmedWrites::default());
    objects.put(Kind::Workload, workload("u", "3"));
    let stopped =
        || Write::WorkloadStopped { namespace: "ns".to_owned(), name: "w".to_owned(), ended: false };
    let (log, outcome) =
        run(vec![patch(), stopped()], &mut objects, &mut unconfirmed, vec![Err(status(500))]);
    assert_eq!((log, outcome), (vec!["Patch".to_owned()], Err(status(500))));
    // A read that fails leaves it unconfirmed.
    let (log, outcome) = run(vec![patch()], &mut objects, &mut unconfirmed, vec![Err(status(503))]);
    assert_eq!((log, outcome), (vec!["Get".to_owned()], Err(status(503))));
    let responses = vec![Ok(workload("u", "4")), Ok(workload("u", "5"))];
    let (log, outcome) = run(vec![patch(), stopped()], &mut objects, &mut unconfirmed, responses);
    assert_eq!(
        (log.as_slice(), outcome),
        (["Get", "Patch", "WorkloadStopped"].map(String::from).as_slice(), Ok(()))
    );
    assert_eq!(version_of(&objects).as_deref(), Some("5"));
    assert!(unconfirmed.0.is_empty());
}

#[test]
fn a_refused_workload_does_not_keep_others_of_its_class_waiting() {
    let (mut objects, mut unconfirmed) = (ObjectStore::default(), UnconfirmedWrites::default());
    objects.put(Kind::Workload, workload("u", "3"));
    let key = || Key::WorkloadPriorityClass("high".to_owned());
    let responses = vec![Err(status(422)), Ok(workload("u", "4")), Err(status(403))];
    let plan = vec![patch(), patch(), patch()];
    let (log, outcome) = run_key(key(), plan, &mut objects, &mut unconfirmed, responses);
    assert_eq!((log.len(), outcome), (3, Err(status(422))), "the first error, at the end");
    assert_eq!(unconfirmed.0.get(&key()).map(VecDeque::len), Some(2));
}

#[test]
fn a_missing_object_is_believed_when_the_watch_shows_it_too() {
    let table = [
        // What the store has; the write; the response; whether the plan goes on.
        (Some("u"), patch(), status(404), false),
        (None, patch(), status(404), true),
        (None, patch(), status(409), false),
        (Some("u"), delete(WORKLOADS, "u"), status(404), false),
        (Some("u"), delete(WORKLOADS, "u"), status(409), false),
        (Some("other"), delete(WORKLOADS, "u"), status(409), true),
        (None, delete(WORKLOADS, "u"), status(404), true),
        (None, delete(WORKLOADS, "u"), status(503), false),
        (None, if_gone(), status(404), false),
        (None, Write::Create(WORKLOADS, workload("", "")), status(409), false),
    ];
    for (stored, write, error, goes_on) in table {
        let (mut objects, mut unconfirmed) = (ObjectStore::default(), UnconfirmedWrites::default());
        if let Some(uid) = stored {
            objects.put(Kind::Workload, workload(uid, "3"));
        }
        let shown = format!("{stored:?} {write:?} {error}");
        let left_unconfirmed = matches!(write, Write::Patch { .. }) && !goes_on;
        let (_, outcome) = run(vec![write], &mut objects, &mut unconfirmed, vec![Err(error.clone())]);
        assert_eq!(outcome, if goes_on { Ok(()) } else { Err(error) }, "{shown}");
        let left: Vec<Target> = unconfirmed.0.into_values().flatten().collect();
        assert_eq!(left, if left_unconfirmed { vec![target()] } else { Vec::new() }, "{shown}");
    }
}

#[test]
fn an_object_that_no_watch_has_shown_is_kept_and_ends_the_plan() {
    let (mut objects, mut unconfirmed) = (ObjectStore::default(), UnconfirmedWrites::default());
    for (found, goes_on) in [(Value::Null, true), (workload("other", "4"), true), (workload("u", "4"), false)]
    {
        let plan = vec![if_gone(), Write::RequeueAfter(Duration::from_secs(1))];
        let (log, outcome) = run(plan, &mut objects, &mut unconfirmed, vec![Ok(found)]);
        assert_eq!((log.len(), outcome.is_ok()), (if goes_on { 2 } else { 1 }, goes_on));
        assert_eq!(version_of(&objects).is_some(), !goes_on);
    }
}

#[test]
fn what_a_check_needs_is_looked_at_when_it_exists_and_reported_when_it_is_refused() {
    let object =
        json!({"metadata": {"namespace": "ns", "name": "w-ac-1", "uid": "r", "resourceVersion": "9"}});
    let order = || {
        let (namespace, workload, check) = ("ns".to_owned(), "w".to_owned(), "ac".to_owned());
        let (resource, object) = (PROVISIONING_REQUESTS, object.clone());
        Write::CreateForCheck(Box::new(CheckObject { resource, object, namespace, workload, check }))
    };
    let (mut objects, mut unconfirmed) = (ObjectStore::default(), UnconfirmedWrites::default());
    let responses = vec![Err(status(409)), Ok(object.clone())];
    let (log, outcome) = run(vec![order()], &mut objects, &mut unconfirmed, responses);
    assert_eq!((log, outcome), (vec!["Create".to_owned(), "Get".to_owned()], Err(status(409))));
    assert!(objects.get(Kind::ProvisioningRequest, "ns", "w-ac-1").is_some());

    let mut checked = workload("u", "3");
    checked["status"]["admissionChecks"] = json!([{"name": "ac", "state": "Pending", "message": ""}]);
    objects.put(Kind::Workload, checked);
    let responses = vec![Err(status(403)), Ok(workload("u", "4"))];
    let (log, outcome) = run(vec![order()], &mut objects, &mut unconfirmed, responses);
    assert_eq!((log, outcome), (["Create", "Record", "Patch"].map(String::from).to_vec(), Err(status(403))));
}

#[test]
fn a_deleted_request_is_not_taken_for_one_that_is_wanted() {
    let (mut objects, mut unconfirmed) = (ObjectStore::default(), UnconfirmedWrites::default());
    objects.put(Kind::ProvisioningRequest, workload("r", "3"));
    let plan = vec![delete(PROVISIONING_REQUESTS, "r")];
    assert_eq!(run(plan, &mut objects, &mut unconfirmed, vec![Ok(Value::Null)]).1, Ok(()));
    // The watch is behind: it shows what happened before the deletion.
    objects.put(Kind::ProvisioningRequest, workload("r", "4"));
    let known = objects.get(Kind::ProvisioningRequest, "ns", "w").expect("no watch has shown its end");
    assert!(json::deleting(&known));
    objects.remove(Kind::ProvisioningRequest, "ns", "w", "r");
    objects.put(Kind::ProvisioningRequest, workload("r2", "6"));
    let known = objects.get(Kind::ProvisioningRequest, "ns", "w").expect("its successor");
    assert!(!json::deleting(&known));
}

#[test]
fn a_plan_ends_where_an_object_has_changed_unseen() {
    let table = [
        // The response; whether the plan goes on; the version that is known then.
        (Ok(workload("u", "3")), true, "3"),
        (Ok(workload("u", "4")), false, "4"),
        (Ok(workload("other", "5")), false, "5"),
        (Err(status(404)), false, "3"),
        (Err(status(503)), false, "3"),
    ];
    for (response, goes_on, version) in table {
        let (mut objects, mut unconfirmed) = (ObjectStore::default(), UnconfirmedWrites::default());
        objects.put(Kind::Workload, workload("u", "3"));
        let (resource, namespace, name) = (WORKLOADS, "ns".to_owned(), "w".to_owned());
        let plan = vec![
            Write::IfUnchanged { resource, namespace, name, version: "3".to_owned() },
            Write::RequeueAfter(Duration::from_secs(1)),
        ];
        let shown = format!("{response:?}");
        let (log, outcome) = run(plan, &mut objects, &mut unconfirmed, vec![response]);
        assert_eq!((log.len(), outcome.is_ok()), (if goes_on { 2 } else { 1 }, goes_on), "{shown}");
        assert_eq!(version_of(&objects).as_deref(), Some(version), "{shown}");
    }
}

#[test]
fn a_forced_deletion_is_seen_before_the_watch_shows_it() {
    let pod = |version: &str, grace: i64| {
        json!({"metadata": {"namespace": "ns", "name": "w", "uid": "u", "resourceVersion": version,
            "deletionTimestamp": "2023-11-14T22:13:20Z", "deletionGracePeriodSeconds": grace}})
    };
    let mut objects = ObjectStore::default();
    objects.put(Kind::Pod, pod("3", 30));
    let config = Config::default();
    let mut execution = UnconfirmedWrites::default().begin(Key::Orphan("ns".to_owned(), "w".to_owned()));
    execution.plan = Some([delete_within(PODS, &pod("3", 30), Some(0))].into());
    let step = execution.next(Env { objects: &objects, config: &config, now: NOW });
    assert!(matches!(step, Step::Send(Request::Delete { grace_seconds: Some(0), .. })), "{step:?}");
    execution.answered(Ok(Arc::new(pod("4", 0))), &mut objects, &config, NOW).expect("done");
    let known = objects.get(Kind::Pod, "ns", "w").expect("its finalizers hold it");
    assert_eq!(json::version(&known), "4");
}

/// A Workload that the API server refuses is reported on its job, and tried again.
#[test]
fn a_job_whose_workload_is_refused_says_so() {
    let owner = json!({"apiVersion": "batch/v1", "kind": "Job", "name": "j", "uid": "u", "controller": true});
    let workload = json!({"metadata": {"namespace": "ns", "name": "w", "ownerReferences": [owner]}});
    let config = Config::default();
    let told = |code: u16, workload: &Value| {
        let mut objects = ObjectStore::default();
        let mut execution = UnconfirmedWrites::default().begin(Key::Orphan("ns".into(), "w".into()));
        execution.plan = Some([Write::Create(WORKLOADS, workload.clone()), patch()].into());
        let Step::Send(Request::Create { .. }) =
            execution.next(Env { objects: &objects, config: &config, now: NOW })
        else {
            panic!("a request")
        };
        if let Err(error) = execution.answered(Err(status(code)), &mut objects, &config, NOW) {
            assert_eq!(error.code(), code);
            return None;
        }
        let Step::Record(event) = execution.next(Env { objects: &objects, config: &config, now: NOW }) else {
            panic!("an Event")
        };
        let Step::Done(Err(error)) = execution.next(Env { objects: &objects, config: &config, now: NOW })
        else {
            panic!("what is left of the plan is not carried out, and the key fails")
        };
        assert_eq!(error.code(), code);
        Some((event.regarding.kind, event.regarding.name, event.reason, event.message))
    };
    let text = |text: &str| text.to_owned();
    let want = (text("Job"), text("j"), text("ErrWorkloadCompose"), text("code 422"));
    assert_eq!(told(422, &workload), Some(want));
    assert_eq!(told(409, &workload), None, "it exists already");
    assert_eq!(told(422, &json!({"metadata": {"namespace": "ns", "name": "w"}})), None, "of no job");
}
