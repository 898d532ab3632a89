//! A volume is another claim's by the time it is written, or its response is lost.

use plimsoll_scheduler::{PodRef, PreBindWork};
use serde_json::json;

use super::tests::{NOW, assert_answers, run, status};
use super::*;

fn pod() -> PodRef {
    PodRef { uid: "u".into(), namespace: "ns".into(), name: "p".into() }
}

fn prepare(what: PreBindWork) -> Action {
    Action::Scheduler(SchedulerAction::Prepare { pod: pod(), node: "n1".into(), what: Box::new(what) })
}

fn bind() -> Action {
    let bindings = vec![(("ns".into(), "data".into()), "pv".into())];
    prepare(PreBindWork { bindings, ..PreBindWork::default() })
}

fn provision() -> Action {
    prepare(PreBindWork { provisions: vec![("ns".into(), "data".into())], ..PreBindWork::default() })
}

fn claim(selected: Option<&str>) -> Value {
    let mut claim =
        json!({"metadata": {"namespace": "ns", "name": "data", "uid": "c", "resourceVersion": "7"}});
    if let Some(node) = selected {
        claim["metadata"]["annotations"] = json!({"volume.kubernetes.io/selected-node": node});
    }
    claim
}

fn volume(reference: Option<(&str, &str)>) -> Value {
    let mut volume = json!({"metadata": {"name": "pv", "uid": "v", "resourceVersion": "5"}, "spec": {}});
    if let Some((name, uid)) = reference {
        volume["spec"]["claimRef"] = json!({"namespace": "ns", "name": name, "uid": uid});
    }
    volume
}

fn ended(outcome: &Outcome, message: &str) {
    let event = match message {
        "" => SchedulerEvent::Prepared("u".into()),
        _ => SchedulerEvent::BindFailed { uid: "u".into(), message: message.into() },
    };
    assert_answers(outcome, &[Event::Scheduler(event)]);
}

#[test]
fn a_volume_is_not_taken_from_its_claim() {
    let (reads, write) =
        (["get persistentvolumeclaims/data", "get persistentvolumes/pv"], "patch persistentvolumes/pv");
    // Bound since the decision, by a write whose response was lost, or by another client.
    let other = volume(Some(("other", "o")));
    let (log, outcome) = run(bind(), None, [Ok(claim(None)), Ok(other)]);
    assert_eq!(log, reads);
    ended(&outcome, "persistentvolume \"pv\" is bound to claim \"ns/other\"");
    let replaced = volume(Some(("data", "before")));
    let (_, outcome) = run(bind(), None, [Ok(claim(None)), Ok(replaced)]);
    ended(&outcome, "persistentvolume \"pv\" is bound to claim \"ns/data\"");
    let (log, outcome) = run(bind(), None, [Ok(claim(None)), Ok(volume(Some(("data", "c"))))]);
    assert_eq!(log, reads, "it is bound already");
    ended(&outcome, "");
    // A conflict reads the volume again.
    let conflict = [Ok(claim(None)), Ok(volume(None)), Err(status(409)), Ok(volume(Some(("other", "o"))))];
    let (log, outcome) = run(bind(), None, conflict);
    assert_eq!(log, [reads[0], reads[1], write, reads[1]]);
    ended(&outcome, "persistentvolume \"pv\" is bound to claim \"ns/other\"");
    // Kept for the claim by its name.
    let (log, outcome) =
        run(bind(), None, [Ok(claim(None)), Ok(volume(Some(("data", "")))), Ok(Value::Null)]);
    assert_eq!(log, [reads[0], reads[1], write]);
    ended(&outcome, "");
    // The claim has changed.
    let mut bound = claim(None);
    bound["spec"] = json!({"volumeName": "pv2"});
    let (log, outcome) = run(bind(), None, [Ok(bound)]);
    assert_eq!(log, reads[..1]);
    ended(&outcome, "persistentvolumeclaim \"data\" is bound to persistentvolume \"pv2\"");
}

#[test]
fn writes_name_the_version_that_was_read() {
    for (action, reads, uid, version) in
        [(bind(), vec![claim(None), volume(None)], "v", "5"), (provision(), vec![claim(None)], "c", "7")]
    {
        let mut step = begin(action, None, NOW).expect("requests");
        for read in reads {
            let Step::Send(_, then) = step else { panic!("{step:?}") };
            step = then(Ok(read));
        }
        let Step::Send(request, _) = step else { panic!("{step:?}") };
        let Request::Patch { body, .. } = &*request else { panic!("{request:?}") };
        assert_eq!(body["metadata"]["uid"], uid);
        assert_eq!(body["metadata"]["resourceVersion"], version);
    }
}

#[test]
fn a_claim_is_provisioned_for_one_node() {
    let (read, write) = ("get persistentvolumeclaims/data", "patch persistentvolumeclaims/data");
    let (log, outcome) = run(provision(), None, [Ok(claim(None)), Ok(Value::Null)]);
    assert_eq!(log, [read, write]);
    ended(&outcome, "");
    let (log, outcome) = run(provision(), None, [Ok(claim(Some("n1")))]);
    assert_eq!(log, [read]);
    ended(&outcome, "");
    let (log, outcome) = run(provision(), None, [Ok(claim(Some("n2")))]);
    assert_eq!(log, [read]);
    ended(&outcome, "persistentvolumeclaim \"data\" is provisioned for node \"n2\"");
    let mut deleted = claim(None);
    deleted["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
    let (log, outcome) = run(provision(), None, [Ok(deleted)]);
    assert_eq!(log, [read]);
    ended(&outcome, "persistentvolumeclaim \"data\" is being deleted");
}
