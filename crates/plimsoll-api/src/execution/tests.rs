use plimsoll_queueing::{Condition, KubernetesEvent, Reporter, WorkloadKey, WorkloadUpdate, cond};
use plimsoll_scheduler::{
    DeviceGrant, ExtendedClaim, ExtenderAnswer, ExtenderCall, PodEvent, PodRef, PreBindWork,
};
use plimsoll_state::model::AllocatedDevice;
use serde_json::json;

use super::*;

pub(super) const NOW: Time = Time::from_seconds(1_700_000_000);

pub(super) fn status(code: u16) -> Error {
    Error::Status { code, reason: String::new(), message: format!("code {code}"), retry_after: 0 }
}

fn verb(request: &Request) -> String {
    let (resource, _, name): (Resource, _, _) = request.target();
    let on = |verb: &str, sub: &str| format!("{verb} {}/{name}{sub}", resource.plural);
    match request {
        Request::Get { .. } => on("get", ""),
        Request::Create { .. } => on("create", ""),
        Request::CreateSubresource { subresource, .. } => on("create", &format!("/{subresource}")),
        Request::Patch { subresource: "", .. } => on("patch", ""),
        Request::Patch { subresource, .. } => on("patch", &format!("/{subresource}")),
        Request::Find { .. } => on("find", ""),
        Request::Delete { .. } => on("delete", ""),
    }
}

/// Carries out an action against these responses: what was done, and the outcome.
pub(super) fn run(
    action: Action,
    seen: Option<Arc<Value>>,
    responses: impl IntoIterator<Item = Response>,
) -> (Vec<String>, Outcome) {
    follow(begin(action, seen, NOW).unwrap(), responses)
}

/// Follows these steps, as [`run`] does.
fn follow(mut step: Step, responses: impl IntoIterator<Item = Response>) -> (Vec<String>, Outcome) {
    let mut responses = responses.into_iter();
    let mut log = Vec::new();
    loop {
        step = match step {
            Step::Send(request, then) => {
                log.push(verb(&request));
                then(responses.next().unwrap_or_else(|| panic!("no response left: {log:?}")))
            }
            Step::Wait(pause, then) => {
                log.push(format!("{} ms", pause.as_millis()));
                then()
            }
            Step::Done(outcome) => {
                assert!(responses.next().is_none(), "responses left: {log:?}");
                return (log, *outcome);
            }
        };
    }
}

/// Engine events can't be compared by value. What was written of claims is no answer.
pub(super) fn assert_answers(outcome: &Outcome, want: &[Event]) {
    let answers: Vec<_> = outcome.answers.iter().filter(|e| !matches!(e, Event::Object(_))).collect();
    assert_eq!(format!("{answers:?}"), format!("{want:?}"));
}

fn pod() -> PodRef {
    PodRef { uid: "u".into(), namespace: "ns".into(), name: "p".into() }
}

fn bind() -> Action {
    Action::Scheduler(SchedulerAction::Bind { pod: pod(), node: "n1".into() })
}

fn place(event: SchedulerEvent) -> Vec<Event> {
    vec![Event::Scheduler(event)]
}

#[test]
fn a_binding_whose_response_was_lost_counts() {
    let current = |uid: &str, node: &str| Ok(json!({"metadata": {"uid": uid}, "spec": {"nodeName": node}}));
    let failed =
        |message: &str| place(SchedulerEvent::BindFailed { uid: "u".into(), message: message.into() });
    let bound = || place(SchedulerEvent::Bound("u".into()));
    let (log, outcome) = run(bind(), None, [Ok(Value::Null)]);
    assert_eq!(log, ["create pods/p/binding"]);
    assert_answers(&outcome, &bound());
    for (pod, want) in [
        (current("u", "n1"), bound()),
        (current("u", "n2"), failed("code 409")),
        (current("other", "n1"), failed("code 409")),
    ] {
        let lost = Err(Error::Transport("reset".into()));
        let (log, outcome) = run(bind(), None, [lost, Err(status(409)), pod]);
        assert_eq!(log, ["create pods/p/binding", "50 ms", "create pods/p/binding", "get pods/p"]);
        assert_answers(&outcome, &want);
    }
    let (_, outcome) = run(bind(), None, [Err(status(404)), Err(status(404))]);
    assert_answers(&outcome, &failed("code 404"));
    let (log, outcome) = run(bind(), None, [Err(status(422))]);
    assert_answers(&outcome, &failed("code 422"));
    assert_eq!(log.len(), 1, "no attempt was lost");
    // What comes after a lost attempt says nothing of that, nor does a pod that can't be read.
    let lost = || Err(Error::Transport("reset".into()));
    for refused in [403, 422] {
        let read = [Err(status(403)), current("u", "n1")];
        let (log, outcome) = run(bind(), None, [lost(), Err(status(refused))].into_iter().chain(read));
        assert_answers(&outcome, &bound());
        assert_eq!(log.last().map(String::as_str), Some("get pods/p"), "{log:?}");
    }
}

#[test]
fn a_binding_of_an_extender_whose_answer_was_lost_counts() {
    let current = |uid: &str, node: &str| Ok(json!({"metadata": {"uid": uid}, "spec": {"nodeName": node}}));
    let bind = || ExtenderCall::Bind("n1".into());
    let lost = || Err("the connection was lost".to_owned());
    for (what, answer, responses, want) in [
        (bind(), lost(), vec![current("u", "n1")], Ok(ExtenderAnswer::Bound)),
        (bind(), lost(), vec![Err(status(503)), current("u", "n1")], Ok(ExtenderAnswer::Bound)),
        (bind(), lost(), vec![current("u", "")], lost()),
        (bind(), lost(), vec![current("other", "n1")], lost()),
        (bind(), lost(), (0..ATTEMPTS).map(|_| Err(status(404))).collect(), lost()),
        (bind(), lost(), vec![Err(status(404)), current("u", "n1")], Ok(ExtenderAnswer::Bound)),
        (bind(), Ok(ExtenderAnswer::Bound), vec![], Ok(ExtenderAnswer::Bound)),
        (ExtenderCall::Filter(vec!["n1".into()]), lost(), vec![], lost()),
    ] {
        let (_, outcome) = follow(extended(pod(), (1, 7), &what, answer), responses);
        let uid = "u".to_owned();
        assert_answers(
            &outcome,
            &place(SchedulerEvent::Extended { uid, extender: 1, call: 7, answer: want }),
        );
    }
}

#[test]
fn transient_failures_are_retried_with_growing_pauses() {
    let busy = |retry_after| {
        Err(Error::Status { code: 429, reason: String::new(), message: "busy".into(), retry_after })
    };
    let action = || Action::Scheduler(SchedulerAction::Nominate { pod: pod(), node: String::new() });
    let answer = |outcome: Outcome| match outcome.answers.as_slice() {
        [Event::Scheduler(SchedulerEvent::Answered { answer, .. })] => answer.clone(),
        other => panic!("{other:?}"),
    };
    let (log, outcome) = run(action(), None, [busy(0), busy(1), busy(60), busy(0), busy(0), busy(0)]);
    let pauses: Vec<&String> = log.iter().filter(|l| l.ends_with("ms")).collect();
    assert_eq!(pauses, ["50 ms", "1000 ms", "5000 ms", "400 ms", "800 ms"]);
    assert_eq!((log.len(), answer(outcome)), (11, Answer::Failed("busy".into())));
    for (response, want) in
        [(Ok(Value::Null), Answer::Done), (Err(status(403)), Answer::Failed("code 403".into()))]
    {
        assert_eq!(answer(run(action(), None, [response]).1), want);
    }
}

fn preempt() -> Action {
    let (victim, preemptor, message) = (pod(), pod(), String::new());
    let (reason, action) = ("Preempted", "Preempting");
    let event = PodEvent { warning: false, reason, action, message: "Preempted by pod x on node n".into() };
    let event = Box::new(event);
    Action::Scheduler(SchedulerAction::Preempt { victim, preemptor, message, event, generation: 3 })
}

fn unschedulable(again: bool) -> Action {
    Action::Scheduler(SchedulerAction::Unschedulable {
        pod: pod(),
        reason: plimsoll_scheduler::FailureReason::Unschedulable,
        message: String::new(),
        nominated_node: None,
        again,
        generation: 3,
    })
}

#[test]
fn conditions_of_pods_have_the_generation_that_they_are_about() {
    let condition = |action| match begin(action, None, NOW).unwrap() {
        Step::Send(request, _) => match &*request {
            Request::Patch { body, .. } => body["status"]["conditions"][0].clone(),
            other => panic!("{other:?}"),
        },
        other => panic!("{other:?}"),
    };
    for (action, has_transition) in
        [(preempt(), true), (unschedulable(false), true), (unschedulable(true), false)]
    {
        let condition = condition(action);
        assert_eq!(condition["observedGeneration"], 3, "{condition}");
        assert_eq!(condition["lastTransitionTime"].is_string(), has_transition, "{condition}");
    }
}

/// What counts as superseded is not asked for again: a preemptor would wait for ever for a victim that stays.
#[test]
fn a_write_is_superseded_only_when_its_object_is_gone() {
    let key = WorkloadKey { namespace: "ns".into(), name: "p".into() };
    let (preempt, why) = (preempt(), unschedulable(false));
    let PodRef { uid, namespace, name } = pod();
    let all = [
        // How many responses come before the one that decides.
        (preempt, "pods", 1),
        (why, "pods", 0),
        (Action::Scheduler(SchedulerAction::Nominate { pod: pod(), node: String::new() }), "pods", 0),
        (Action::Queueing(QueueAction::FailPod { namespace, name, uid }), "pods", 1),
        (Action::Queueing(QueueAction::DeactivateWorkload { key, uid: "u".into() }), "workloads", 0),
    ];
    let object = |uid: &str| Ok(json!({"metadata": {"uid": uid, "resourceVersion": "3"}}));
    for (action, resource, before) in all {
        for (found, gone) in [
            (Ok(Value::Null), true),
            (object("other"), true),
            (object("u"), false),
            (Err(status(403)), false),
            (Err(status(404)), false),
        ] {
            // A conflict of the last one reads the pod again.
            let reads = matches!(action, Action::Queueing(QueueAction::FailPod { .. }));
            for code in if reads { vec![404] } else { vec![404, 409] } {
                let first = (0..before).map(|_| object("u"));
                let responses = first.chain([Err(status(code)), found.clone()]);
                let (log, outcome) = run(action.clone(), None, responses);
                assert_eq!(log.last().unwrap(), &format!("find {resource}/p"), "{action:?}");
                let answer = match &outcome.answers[..] {
                    [Event::Scheduler(SchedulerEvent::Answered { answer, .. })]
                    | [Event::Queueing(QueueEvent::Answered { answer, .. })] => answer.clone(),
                    other => panic!("{other:?}"),
                };
                let failed = Answer::Failed(format!("code {code}"));
                assert_eq!(answer, if gone { Answer::Superseded } else { failed }, "{action:?}");
                assert!(outcome.failures.is_empty());
            }
        }
    }
}

#[test]
fn a_victim_is_deleted_whatever_became_of_its_condition() {
    let (log, outcome) = run(preempt(), None, [Err(status(403)), Ok(Value::Null)]);
    assert_eq!(log, ["patch pods/p/status", "delete pods/p"]);
    assert_eq!(outcome.failures, ["setting the condition DisruptionTarget: code 403"]);
    let done =
        |e: &Event| matches!(e, Event::Scheduler(SchedulerEvent::Answered { answer: Answer::Done, .. }));
    assert!(outcome.answers.len() == 1 && done(&outcome.answers[0]));
}

#[test]
fn a_preemption_is_an_event_when_the_victim_is_deleted() {
    let gone = [Err(status(404)), Ok(Value::Null)];
    let cases = [
        (vec![Ok(Value::Null)], vec!["Preempted by pod x on node n"]),
        (vec![Err(status(403))], vec![]),
        (gone.into(), vec![]),
    ];
    for (deleted, want) in cases {
        let (log, outcome) = run(preempt(), None, std::iter::once(Ok(Value::Null)).chain(deleted));
        let events: Vec<&str> = outcome.events.iter().map(|e| e.message.as_str()).collect();
        assert_eq!(events, want, "{log:?}");
    }
}

#[test]
fn a_pod_fails_for_its_node_only_while_it_waits() {
    let action = || {
        Action::Queueing(QueueAction::FailPod { namespace: "ns".into(), name: "p".into(), uid: "u".into() })
    };
    let pod = |uid: &str, phase: &str| json!({"metadata": {"uid": uid, "resourceVersion": "3"}, "status": {"phase": phase}});
    let answer = |outcome: &Outcome| match &outcome.answers[..] {
        [Event::Queueing(QueueEvent::Answered { answer, .. })] => answer.clone(),
        other => panic!("{other:?}"),
    };
    let (log, outcome) = run(action(), None, [Ok(pod("u", "Pending")), Ok(pod("u", "Failed"))]);
    assert_eq!(log, ["get pods/p", "patch pods/p/status"]);
    assert!(outcome.events.len() == 1 && answer(&outcome) == Answer::Done);
    for found in [pod("u", "Succeeded"), pod("other", "Pending")] {
        let (log, outcome) = run(action(), None, [Ok(found)]);
        assert!(log.len() == 1 && outcome.events.is_empty() && answer(&outcome) == Answer::Superseded);
    }
    // It gets a node between the two.
    let ended = [Ok(pod("u", "Pending")), Err(status(409)), Ok(pod("u", "Running"))];
    let (log, outcome) = run(action(), None, ended);
    assert!(log.len() == 3 && outcome.events.is_empty() && answer(&outcome) == Answer::Superseded);
}

fn event(reporter: Reporter, reason: &str) -> KubernetesEvent {
    KubernetesEvent { reporter, warning: false, reason: reason.into(), message: String::new() }
}

/// As the recorders of Kueue's controllers (`main.go`, `core.go`, `tas/controllers.go`).
#[test]
fn events_of_workloads_name_the_controller_that_records_them() {
    let (object, key) = (workload("u", "3"), update().key);
    for (recorded, want) in [
        (event(Reporter::Scheduler, "Admitted"), ("kueue-admission", "Admitted")),
        (event(Reporter::WorkloadController, "Admitted"), ("kueue-workload-controller", "Admitted")),
        (
            event(Reporter::NodeController, "EvictedDueToNodeFailures"),
            ("tas-resource-flavor-controller", "EvictedDueToNodeFailures"),
        ),
        (event(Reporter::Scheduler, "WorkloadSliceReplaced"), ("kueue-admission", "Replaced")),
    ] {
        let records = workload_events(&key, &[recorded], Some(&object));
        let names = |r: &EventRecord| (r.reporting_controller.to_string(), r.action.clone());
        let want = (want.0.to_owned(), want.1.to_owned());
        assert_eq!(records.iter().map(names).collect::<Vec<_>>(), [want]);
    }
}

pub(super) fn update() -> WorkloadUpdate {
    let why = Condition { kind: cond::QUOTA_RESERVED.into(), status: true, ..Condition::default() };
    let event = event(Reporter::Scheduler, "QuotaReserved");
    WorkloadUpdate {
        id: 7,
        coalesced: vec![5],
        key: WorkloadKey { namespace: "ns".into(), name: "w".into() },
        uid: "u".into(),
        conditions: vec![why],
        events: vec![event],
        ..WorkloadUpdate::default()
    }
}

pub(super) fn workload(uid: &str, version: &str) -> Value {
    json!({"metadata": {"namespace": "ns", "name": "w", "uid": uid, "resourceVersion": version,
        "ownerReferences": [{"apiVersion": "batch/v1", "kind": "Job", "name": "j", "uid": "ju"}]}})
}

#[test]
fn an_explanation_never_contradicts_an_admission_whose_answer_was_lost() {
    let mut why = update();
    why.conditions[0].status = false;
    let admitted = |version: &str| {
        let mut object = workload("u", version);
        object["status"]["admission"] = json!({"clusterQueue": "cq"});
        object
    };
    let action = |u: &WorkloadUpdate| Action::Queueing(QueueAction::UpdateWorkload(Box::new(u.clone())));
    let seen = Some(Arc::new(workload("u", "3")));
    let (log, outcome) = run(action(&why), seen.clone(), [Err(status(409)), Ok(admitted("4"))]);
    assert_eq!(log, ["patch workloads/w/status", "get workloads/w"]);
    assert!(outcome.workload.is_none());
    // An eviction clears the admission with the condition.
    why.admission = Some(None);
    let (log, _) = run(action(&why), seen, [Err(status(409)), Ok(admitted("4")), Ok(workload("u", "5"))]);
    assert_eq!(log.len(), 3);
}

#[test]
fn nothing_is_admitted_by_a_repeated_write_when_a_check_has_changed_its_mind() {
    let mut admit = update();
    admit.conditions[0].kind = cond::ADMITTED.into();
    let with = |state: &str, version: &str| {
        let mut object = workload("u", version);
        object["status"]["admissionChecks"] = json!([{"name": "check", "state": state}]);
        object
    };
    let action = || Action::Queueing(QueueAction::UpdateWorkload(Box::new(admit.clone())));
    let seen = Some(Arc::new(with("Ready", "3")));
    let (log, outcome) = run(action(), seen.clone(), [Err(status(409)), Ok(with("Pending", "4"))]);
    assert_eq!(log, ["patch workloads/w/status", "get workloads/w"]);
    let failed = |e: &Event| matches!(e, Event::Queueing(QueueEvent::WriteFailed { .. }));
    assert!(outcome.answers.len() == 2 && outcome.answers.iter().all(failed));
    let again = [Err(status(409)), Ok(with("Ready", "4")), Ok(with("Ready", "5"))];
    assert_eq!(run(action(), seen, again).0.len(), 3);
}

#[test]
fn quota_is_given_for_the_spec_that_was_decided_on() {
    let mut reserve = update();
    reserve.conditions[0].observed_generation = 1;
    reserve.admission = Some(Some(Box::default()));
    let of = |generation: i64, version: &str| {
        let mut object = workload("u", version);
        object["metadata"]["generation"] = json!(generation);
        object
    };
    let action = || Action::Queueing(QueueAction::UpdateWorkload(Box::new(reserve.clone())));
    let failed = |e: &Event| matches!(e, Event::Queueing(QueueEvent::WriteFailed { .. }));
    // The watch shows the other spec before the write, or after it.
    let (log, outcome) = run(action(), Some(Arc::new(of(2, "4"))), []);
    assert!(log.is_empty() && outcome.answers.iter().all(failed), "{log:?}");
    let seen = Some(Arc::new(of(1, "3")));
    let (log, outcome) = run(action(), seen.clone(), [Err(status(409)), Ok(of(2, "4"))]);
    assert_eq!(log, ["patch workloads/w/status", "get workloads/w"]);
    assert!(outcome.answers.len() == 2 && outcome.answers.iter().all(failed));
    // What already holds it was given it before the spec changed.
    let mut held = of(2, "4");
    held["status"]["admission"] = json!({"clusterQueue": "cq"});
    assert_eq!(run(action(), seen, [Err(status(409)), Ok(held), Ok(of(2, "5"))]).0.len(), 3);
}

#[test]
fn a_workload_that_has_finished_is_given_nothing() {
    let finished = |version: &str| {
        let mut object = workload("u", version);
        object["status"]["conditions"] =
            json!([{"type": "Finished", "status": "True", "reason": "OutOfSync"}]);
        object
    };
    let mut reserve = update();
    reserve.admission = Some(Some(Box::default()));
    let admitted = Condition { kind: cond::ADMITTED.into(), status: true, ..Condition::default() };
    let admit = WorkloadUpdate { conditions: vec![admitted], ..update() };
    let failed = |e: &Event| matches!(e, Event::Queueing(QueueEvent::WriteFailed { .. }));
    for update in [reserve, admit] {
        let action = || Action::Queueing(QueueAction::UpdateWorkload(Box::new(update.clone())));
        // The watch shows it before the write, or after it.
        let (log, outcome) = run(action(), Some(Arc::new(finished("4"))), []);
        assert!(log.is_empty() && outcome.answers.iter().all(failed), "{log:?}");
        let seen = Some(Arc::new(workload("u", "3")));
        let (log, outcome) = run(action(), seen, [Err(status(409)), Ok(finished("4"))]);
        assert_eq!(log, ["patch workloads/w/status", "get workloads/w"]);
        assert!(outcome.answers.len() == 2 && outcome.answers.iter().all(failed));
    }
    // What only says something does.
    let says = Condition { kind: cond::QUOTA_RESERVED.into(), ..Condition::default() };
    let says = WorkloadUpdate { conditions: vec![says], ..update() };
    let action = Action::Queueing(QueueAction::UpdateWorkload(Box::new(says)));
    assert_eq!(run(action, Some(Arc::new(finished("4"))), [Ok(finished("5"))]).0.len(), 1);
}

#[test]
fn a_conflicting_update_reads_the_workload_again() {
    let action = || Action::Queueing(QueueAction::UpdateWorkload(Box::new(update())));
    let seen = Some(Arc::new(workload("u", "3")));
    let responses = [Err(status(409)), Ok(workload("u", "4")), Ok(workload("u", "5"))];
    let (log, outcome) = run(action(), seen.clone(), responses);
    assert_eq!(log, ["patch workloads/w/status", "get workloads/w", "patch workloads/w/status"]);
    let key = update().key;
    assert_answers(&outcome, &[Event::Queueing(QueueEvent::Written { key: key.clone(), id: 7, version: 5 })]);
    assert_eq!(json::version(&outcome.workload.unwrap()), "5");
    let kinds: Vec<&str> = outcome.events.iter().map(|e| e.regarding.kind.as_str()).collect();
    assert_eq!(kinds[0], "Workload");

    // Every joined update is answered.
    let failed = |message: &str| -> Vec<Event> {
        let failed = |id| QueueEvent::WriteFailed { key: key.clone(), id, message: message.into() };
        update().ids().map(|id| Event::Queueing(failed(id))).collect()
    };
    let (_, outcome) = run(action(), None, [Ok(workload("other", "4"))]);
    assert_answers(&outcome, &failed("the workload has been replaced by another of its name"));
    assert_eq!(outcome.answers.len(), 2);
    let (_, outcome) = run(action(), seen.clone(), [Err(status(403))]);
    assert_answers(&outcome, &failed("code 403"));
    let rounds = (0..15).map(|i| if i % 2 == 0 { Err(status(409)) } else { Ok(workload("u", "4")) });
    let (log, outcome) = run(action(), seen, rounds);
    assert_answers(&outcome, &failed("the workload keeps changing"));
    assert_eq!(log.iter().filter(|l| l.starts_with("patch")).count(), 8);
}

fn device() -> AllocatedDevice {
    AllocatedDevice {
        request: "x".into(),
        driver: "d".into(),
        pool: "p".into(),
        device: "0".into(),
        admin: false,
    }
}

fn claim(finalizers: &[&str]) -> Value {
    json!({"metadata": {"uid": "cu", "name": "c", "resourceVersion": "1", "finalizers": finalizers}})
}

#[test]
fn devices_volumes_and_claims_are_written_in_order() {
    let grant = |devices: Vec<AllocatedDevice>| DeviceGrant {
        namespace: "ns".into(),
        name: "c".into(),
        uid: "cu".into(),
        devices,
        ..DeviceGrant::default()
    };
    let what = PreBindWork {
        devices: vec![grant(vec![device()]), grant(Vec::new())],
        extended: None,
        bindings: vec![(("ns".into(), "pvc".into()), "pv".into())],
        provisions: vec![("ns".into(), "other".into())],
    };
    let prepare = || {
        let what = Box::new(what.clone());
        Action::Scheduler(SchedulerAction::Prepare { pod: pod(), node: "n1".into(), what })
    };
    let ok = || Ok(claim(&["resource.kubernetes.io/delete-protection"]));
    let has = || Ok(allocated());
    let volume = || Ok(json!({"metadata": {"uid": "vu", "name": "pv", "resourceVersion": "5"}}));
    let (log, outcome) =
        run(prepare(), None, [Ok(claim(&[])), ok(), ok(), has(), ok(), ok(), volume(), volume(), ok(), ok()]);
    assert_eq!(
        log,
        [
            "get resourceclaims/c",
            "patch resourceclaims/c",
            "patch resourceclaims/c/status",
            "get resourceclaims/c",
            "patch resourceclaims/c/status",
            "get persistentvolumeclaims/pvc",
            "get persistentvolumes/pv",
            "patch persistentvolumes/pv",
            "get persistentvolumeclaims/other",
            "patch persistentvolumeclaims/other",
        ]
    );
    assert_answers(&outcome, &place(SchedulerEvent::Prepared("u".into())));
    // A conflict reads the claim again; the first failure ends it.
    let (log, outcome) = run(prepare(), None, [ok(), Err(status(409)), ok(), Err(status(403))]);
    assert_eq!(log.len(), 4);
    let failed = SchedulerEvent::BindFailed { uid: "u".into(), message: "code 403".into() };
    assert_answers(&outcome, &place(failed));
}

fn allocated() -> Value {
    let mut claim = claim(&["resource.kubernetes.io/delete-protection"]);
    claim["status"] = json!({"allocation": {"devices": {"results": []}}});
    claim
}

/// The claim with the device of this name, reserved for the pod.
fn allocated_to(device: &str) -> Value {
    let mut claim = allocated();
    claim["metadata"]["resourceVersion"] = json!("2");
    let result = json!({"request": "x", "driver": "d", "pool": "p", "device": device});
    claim["status"] = json!({
        "allocation": {"devices": {"results": [result]}},
        "reservedFor": [{"resource": "pods", "name": "p", "uid": "u"}],
    });
    claim
}

fn grant_of_claim() -> DeviceGrant {
    DeviceGrant { namespace: "ns".into(), name: "c".into(), uid: "cu".into(), ..DeviceGrant::default() }
}

/// Devices that a claim may have are not given away again before it is known whether it has them.
#[test]
fn an_allocation_without_an_answer_is_found_out_about() {
    let prepare = || {
        let grant = DeviceGrant { devices: vec![device()], ..grant_of_claim() };
        let what = Box::new(PreBindWork { devices: vec![grant], ..PreBindWork::default() });
        Action::Scheduler(SchedulerAction::Prepare { pod: pod(), node: "n1".into(), what })
    };
    let unallocated = || claim(&["resource.kubernetes.io/delete-protection"]);
    let (read, write) = ("get resourceclaims/c", "patch resourceclaims/c/status");
    let refused = [Ok(unallocated()), Err(status(403))];
    let (log, outcome) = run(prepare(), None, refused);
    assert_eq!(log, [read, write]);
    assert_eq!(outcome.answers.len(), 1);
    // Not there yet, and the next write is refused: the first one may still be carried out.
    let lost = [
        Ok(unallocated()),
        Err(Error::Transport("lost".into())),
        Err(status(503)),
        Ok(unallocated()),
        Err(status(403)),
        Ok(allocated_to("0")),
    ];
    let (log, outcome) = run(prepare(), None, lost);
    let find = "find resourceclaims/c";
    assert_eq!(log, [read, write, "50 ms", find, "5000 ms", find, write, "5000 ms", find]);
    assert_answers(&outcome, &place(SchedulerEvent::Prepared("u".into())));
    assert!(matches!(outcome.answers.first(), Some(Event::Object(_))), "the claim as it is comes first");
    // While a webhook is broken, it is not asked again and again.
    let broken = || [Ok(unallocated()), Err(status(500))];
    let responses =
        [broken(), broken(), broken(), broken()].into_iter().flatten().chain([Ok(allocated_to("0"))]);
    let (log, _) = run(prepare(), None, responses.collect::<Vec<_>>());
    let pauses: Vec<&str> = log.iter().map(String::as_str).filter(|l| l.ends_with("ms")).collect();
    assert_eq!(pauses, ["50 ms", "100 ms", "200 ms", "400 ms"]);
    // Changed by another writer: the first write never will be.
    let mut changed = unallocated();
    changed["metadata"]["resourceVersion"] = json!("3");
    let lost = [Ok(unallocated()), Err(Error::Transport("lost".into())), Ok(changed), Err(status(403))];
    let (log, outcome) = run(prepare(), None, lost);
    assert_eq!(log, [read, write, "50 ms", find, write]);
    let failed = SchedulerEvent::BindFailed { uid: "u".into(), message: "code 403".into() };
    assert_answers(&outcome, &place(failed));
}

#[test]
fn claims_are_released_unless_the_pod_is_bound_or_they_have_changed() {
    let allocated = || vec![AllocatedDevice { device: "0".into(), ..device() }];
    let release = |deallocate| {
        let claims = vec![DeviceGrant { allocated: allocated(), ..grant_of_claim() }];
        Action::Scheduler(SchedulerAction::ReleaseClaims { pod: pod(), claims, deallocate })
    };
    let on = |node: &str| Ok(json!({"metadata": {"uid": "u"}, "spec": {"nodeName": node}}));
    let all = ["get resourceclaims/c", "get pods/p", "patch resourceclaims/c/status"];
    for deallocate in [false, true] {
        let (log, outcome) = run(release(deallocate), None, [Ok(allocated_to("0")), on(""), Ok(claim(&[]))]);
        assert_eq!(log, all);
        assert_eq!(outcome.answers.len(), 2, "the claim, and the answer");
        let (log, _) = run(release(deallocate), None, [Ok(allocated_to("0")), on("n1")]);
        assert_eq!(log, all[..2]);
        let (log, _) = run(release(deallocate), None, [Ok(claim(&[]))]);
        assert_eq!(log, all[..1]);
    }
    let mut shared = allocated_to("0");
    let other = json!({"resource": "pods", "name": "q", "uid": "other"});
    shared["status"]["reservedFor"].as_array_mut().unwrap().push(other);
    for now in [shared, allocated_to("1")] {
        let (log, _) = run(release(true), None, [Ok(now)]);
        assert_eq!(log, all[..1]);
    }
}

#[test]
fn a_404_of_a_claim_that_is_there_does_not_end_its_release() {
    let claims = vec![DeviceGrant {
        allocated: vec![AllocatedDevice { device: "0".into(), ..device() }],
        ..grant_of_claim()
    }];
    let release = || {
        Action::Scheduler(SchedulerAction::ReleaseClaims {
            pod: pod(),
            claims: claims.clone(),
            deallocate: true,
        })
    };
    let (read, find) = ("get resourceclaims/c", "find resourceclaims/c");
    let free = Ok(json!({"metadata": {"uid": "u"}, "spec": {}}));
    let (log, outcome) =
        run(release(), None, [Err(status(404)), Ok(allocated_to("0")), free, Ok(claim(&[]))]);
    assert_eq!(log, [read, find, "get pods/p", "patch resourceclaims/c/status"]);
    assert_eq!(outcome.answers.len(), 2, "the claim, and the answer");
    // It is gone, or the list is not to be had either: then the pod tries again.
    let (log, outcome) = run(release(), None, [Err(status(404)), Ok(Value::Null)]);
    assert_eq!(log, [read, find]);
    assert_answers(&outcome, &[answered(release(), Answer::Done)]);
    let (_, outcome) = run(release(), None, [Err(status(404)), Err(status(404))]);
    assert_answers(&outcome, &[answered(release(), Answer::Failed("code 404".into()))]);
}

#[test]
fn a_claim_that_changed_since_it_was_decided_on_is_left_alone() {
    let mut deleted = allocated();
    deleted["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
    let mut replaced = claim(&[]);
    replaced["metadata"]["uid"] = json!("other");
    for (devices, now, what) in [
        (vec![device()], allocated(), "allocated elsewhere"),
        (Vec::new(), claim(&[]), "deallocated elsewhere"),
        (Vec::new(), deleted, "deleted"),
        (Vec::new(), allocated_to("1"), "allocated elsewhere"),
        (vec![device()], replaced, "replaced by another of its name"),
    ] {
        let grant = DeviceGrant { devices, ..grant_of_claim() };
        let what_to_write = Box::new(PreBindWork { devices: vec![grant], ..PreBindWork::default() });
        let prepare = Action::Scheduler(SchedulerAction::Prepare {
            pod: pod(),
            node: "n1".into(),
            what: what_to_write,
        });
        let (log, outcome) = run(prepare, None, [Ok(now)]);
        assert_eq!(log, ["get resourceclaims/c"]);
        let message = format!("claim ns/c got {what} in the meantime");
        assert_answers(&outcome, &place(SchedulerEvent::BindFailed { uid: "u".into(), message }));
    }
}

#[test]
fn a_claim_for_extended_resources_is_deleted_when_it_can_not_be_allocated() {
    let extended = ExtendedClaim {
        requests: vec![("r".into(), "gpu".into(), 1)],
        devices: vec![device()],
        stale: vec!["old".into()],
        ..ExtendedClaim::default()
    };
    let what = PreBindWork { extended: Some(Box::new(extended)), ..PreBindWork::default() };
    let prepare =
        Action::Scheduler(SchedulerAction::Prepare { pod: pod(), node: "n1".into(), what: Box::new(what) });
    let responses = [Err(status(404)), Ok(claim(&[])), Err(status(403)), Ok(claim(&[])), Ok(Value::Null)];
    let (log, outcome) = run(prepare, None, responses);
    assert_eq!(
        log,
        [
            "patch resourceclaims/old",
            "create resourceclaims/",
            "patch resourceclaims/c/status",
            "patch resourceclaims/c",
            "delete resourceclaims/c",
        ]
    );
    let failed = SchedulerEvent::BindFailed { uid: "u".into(), message: "code 403".into() };
    assert_answers(&outcome, &place(failed));
}

/// The claim may have the devices: no other claim gets them before it is gone.
#[test]
fn a_claim_for_extended_resources_that_may_have_its_devices_is_deleted_before_the_attempt_fails() {
    let extended = ExtendedClaim {
        requests: vec![("r".into(), "gpu".into(), 1)],
        devices: vec![device()],
        ..ExtendedClaim::default()
    };
    let what = PreBindWork { extended: Some(Box::new(extended)), ..PreBindWork::default() };
    let prepare =
        Action::Scheduler(SchedulerAction::Prepare { pod: pod(), node: "n1".into(), what: Box::new(what) });
    let lost = || Err(Error::Transport("lost".into()));
    let responses = [Ok(claim(&[])), lost(), lost(), Ok(claim(&[])), Err(status(503)), Err(status(404))];
    let (log, outcome) = run(prepare, None, responses);
    let (finalizers, delete) = ("patch resourceclaims/c", "delete resourceclaims/c");
    let allocate = "patch resourceclaims/c/status";
    assert_eq!(
        log,
        [
            "create resourceclaims/",
            allocate,
            finalizers,
            "5000 ms",
            finalizers,
            delete,
            "5000 ms",
            finalizers
        ]
    );
    let failed = SchedulerEvent::BindFailed { uid: "u".into(), message: "lost".into() };
    assert_answers(&outcome, &place(failed));
}

#[test]
fn every_refused_action_that_waits_for_an_answer_gets_one() {
    let update = Action::Queueing(QueueAction::UpdateWorkload(Box::new(update())));
    assert_eq!(refuse(&update, "no").len(), 2);
    assert_eq!(refuse(&bind(), "no").len(), 1);
    let clear = Action::Scheduler(SchedulerAction::Nominate { pod: pod(), node: String::new() });
    assert_eq!(refuse(&clear, "no").len(), 1);
    let event = plimsoll_scheduler::PodEvent {
        warning: false,
        reason: "Scheduled",
        action: "Binding",
        message: String::new(),
    };
    let cause = plimsoll_scheduler::RecordCause::Scheduled;
    let record = Action::Scheduler(SchedulerAction::Record { pod: pod(), cause, event });
    assert!(refuse(&record, "no").is_empty());
    assert!(begin(record, None, NOW).is_err());
}
