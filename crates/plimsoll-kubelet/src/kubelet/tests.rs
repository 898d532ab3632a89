use super::*;
use crate::time::SECOND;
use serde_json::json;

const T0: Nanos = 1_700_000_000 * SECOND;

fn pod(name: &str, policy: &str, containers: &Value) -> Value {
    json!({"metadata": {"name": name, "namespace": "ns", "uid": format!("uid-{name}")},
           "spec": {"nodeName": "node-0", "restartPolicy": policy, "containers": containers}})
}

fn view(pod: &Value) -> PodView {
    serde_json::from_value(pod.clone()).unwrap()
}

fn kubelet() -> Kubelet {
    let mut k = Kubelet::new(Options { leases: false, events: false, ..Options::default() });
    k.handle_node(T0, "node-0", "n0", None);
    k
}

/// Applies the status patches to `pod` the way the API server would (lists of conditions merged by type).
fn apply(pod: &mut Value, writes: &[Write]) -> usize {
    let mut count = 0;
    for write in writes {
        if let Write::PodStatus { patch, .. } = write {
            count += 1;
            let conditions = patch["status"]["conditions"].clone();
            pod["status"] = patch["status"].clone();
            pod["status"]["conditions"] = conditions;
        }
    }
    count
}

/// Runs until nothing is due, at most `limit` steps; returns the phases seen with their times in seconds after T0.
fn play(k: &mut Kubelet, pod: &mut Value, limit: usize) -> Vec<(f64, String)> {
    let mut seen = Vec::new();
    for _ in 0..limit {
        let Some(at) = k.next_wake() else { break };
        let writes = k.step(at);
        apply(pod, &writes);
        let phase = pod["status"]["phase"].as_str().unwrap_or("").to_owned();
        let reason = pod["status"]["containerStatuses"][0]["state"]["waiting"]["reason"].as_str();
        let label = reason.map_or(phase.clone(), |r| format!("{phase}/{r}"));
        if seen.last().is_none_or(|(_, l)| *l != label) {
            seen.push(((at - T0) as f64 / SECOND as f64, label));
        }
    }
    seen
}

fn condition<'a>(pod: &'a Value, kind: &str) -> &'a Value {
    pod["status"]["conditions"].as_array().unwrap().iter().find(|c| c["type"] == kind).unwrap()
}

#[test]
fn a_job_pod_goes_through_all_stages() {
    let mut k = kubelet();
    let mut p = pod("a", "Never", &json!([{"name": "work", "image": "i", "command": ["sleep", "8"]}]));
    k.handle_pod(T0, view(&p));
    let seen = play(&mut k, &mut p, 20);
    let want = [(0.0, "Pending/ContainerCreating"), (0.5, "Running"), (8.5, "Succeeded")];
    assert_eq!(seen, want.map(|(t, s)| (t, s.to_owned())));
    assert_eq!(p["status"]["startTime"], "2023-11-14T22:13:20Z");
    assert_eq!(condition(&p, "Ready")["reason"], "PodCompleted");
    assert_eq!(condition(&p, "Initialized")["status"], "True");
    assert_eq!(p["status"]["podIP"], "10.64.0.1");
    let ended = &p["status"]["containerStatuses"][0]["state"]["terminated"];
    assert_eq!((&ended["exitCode"], &ended["reason"]), (&json!(0), &json!("Completed")));
    assert_eq!(k.pods(), 0, "an ended pod is forgotten");
}

#[test]
fn speed_divides_every_span() {
    let mut k = Kubelet::new(Options { speed: 10.0, leases: false, events: false });
    k.handle_node(T0, "node-0", "n0", None);
    let mut p = pod("a", "Never", &json!([{"name": "work", "image": "i", "command": ["sleep", "8"]}]));
    k.handle_pod(T0, view(&p));
    assert_eq!(play(&mut k, &mut p, 20).last().unwrap().0, 0.85);
}

#[test]
fn failures_by_restart_policy() {
    let failing = json!([{"name": "work", "image": "i", "command": ["sh", "-c", "sleep 1; exit 3"]}]);
    let mut k = kubelet();
    let mut p = pod("a", "Never", &failing);
    k.handle_pod(T0, view(&p));
    assert_eq!(play(&mut k, &mut p, 20).last().unwrap(), &(1.5, "Failed".to_owned()));
    assert_eq!(p["status"]["containerStatuses"][0]["state"]["terminated"]["exitCode"], 3);
    assert_eq!(condition(&p, "Ready")["reason"], "PodFailed");

    let mut k = kubelet();
    let mut p = pod("b", "OnFailure", &failing);
    k.handle_pod(T0, view(&p));
    let seen = play(&mut k, &mut p, 6);
    let labels: Vec<&str> = seen.iter().map(|s| s.1.as_str()).collect();
    assert_eq!(
        labels,
        [
            "Pending/ContainerCreating",
            "Running",
            "Running/CrashLoopBackOff",
            "Running",
            "Running/CrashLoopBackOff"
        ]
    );
    assert_eq!(p["status"]["containerStatuses"][0]["restartCount"], 2);
    assert_eq!(p["status"]["containerStatuses"][0]["lastState"]["terminated"]["exitCode"], 3);
    assert_eq!(seen.last().unwrap().0, 0.5 + 1.0 + 1.0 + 10.0 + 1.0);
    assert_eq!(k.next_wake(), Some(T0 + 33 * SECOND + SECOND / 2), "the second wait is 20 s");
}

#[test]
fn init_containers_run_in_order_and_sidecars_stay() {
    let mut k = kubelet();
    let mut p = pod("a", "Never", &json!([{"name": "work", "image": "i", "command": ["sleep", "4"]}]));
    p["spec"]["initContainers"] = json!([
        {"name": "one", "image": "i", "command": ["sleep", "2"]},
        {"name": "side", "image": "i", "restartPolicy": "Always"},
        {"name": "two", "image": "i", "command": ["sleep", "3"]},
    ]);
    k.handle_pod(T0, view(&p));
    apply(&mut p, &k.step(T0));
    assert_eq!(condition(&p, "Initialized")["message"], "containers with incomplete status: [one side two]");
    assert_eq!(p["status"]["containerStatuses"][0]["state"]["waiting"]["reason"], "PodInitializing");
    let seen = play(&mut k, &mut p, 20);
    let want = [(0.5, "Pending/PodInitializing"), (5.5, "Running"), (9.5, "Succeeded")];
    assert_eq!(seen, want.map(|(t, s)| (t, s.to_owned())));
    assert!(p["status"]["initContainerStatuses"][1]["state"]["terminated"].is_object());

    let mut k = kubelet();
    let mut p = pod("b", "Never", &json!([{"name": "work", "image": "i"}]));
    p["spec"]["initContainers"] = json!([{"name": "one", "image": "i", "command": ["false"]}]);
    k.handle_pod(T0, view(&p));
    assert_eq!(play(&mut k, &mut p, 20).last().unwrap().1, "Failed/PodInitializing");
}

#[test]
fn deletion_stops_containers_and_then_removes_the_pod() {
    let mut k = kubelet();
    let mut p = pod("a", "Never", &json!([{"name": "work", "image": "i", "command": ["sleep", "100"]}]));
    k.handle_pod(T0, view(&p));
    apply(&mut p, &k.step(T0 + 2 * SECOND));
    p["metadata"]["deletionTimestamp"] = json!("2023-11-14T22:13:52Z");
    p["metadata"]["deletionGracePeriodSeconds"] = json!(30);
    k.handle_pod(T0 + 2 * SECOND, view(&p));
    assert!(k.step(T0 + 2 * SECOND).iter().all(|w| !matches!(w, Write::PodDelete { .. })));
    assert_eq!(k.next_wake(), Some(T0 + 3 * SECOND));
    let writes = k.step(T0 + 3 * SECOND);
    assert_eq!(apply(&mut p, &writes), 1);
    assert_eq!(p["status"]["phase"], "Failed");
    assert_eq!(p["status"]["containerStatuses"][0]["state"]["terminated"]["exitCode"], 143);
    assert!(matches!(writes.last(), Some(Write::PodDelete { uid, .. }) if uid == "uid-a"));
    k.handle_pod(T0 + 3 * SECOND, view(&p));
    assert!(k.step(T0 + 4 * SECOND).is_empty(), "held by a finalizer: not deleted twice");
    k.retry(T0 + 5 * SECOND, "uid-a");
    assert!(matches!(k.step(T0 + 5 * SECOND).last(), Some(Write::PodDelete { .. })));
    k.forget_pod("uid-a");
    assert_eq!((k.pods(), k.next_wake()), (0, None));
}

#[test]
fn the_active_deadline_ends_a_pod() {
    let mut k = kubelet();
    let mut p = pod("a", "Never", &json!([{"name": "work", "image": "i", "command": ["sleep", "100"]}]));
    p["spec"]["activeDeadlineSeconds"] = json!(7);
    k.handle_pod(T0, view(&p));
    assert_eq!(play(&mut k, &mut p, 20).last().unwrap(), &(7.0, "Failed".to_owned()));
    assert_eq!(p["status"]["reason"], "DeadlineExceeded");
}

#[test]
fn a_new_process_goes_on_where_the_old_one_stopped() {
    let mut k = kubelet();
    let mut p = pod("a", "Never", &json!([{"name": "work", "image": "i", "command": ["sleep", "8"]}]));
    k.handle_pod(T0, view(&p));
    apply(&mut p, &k.step(T0 + 2 * SECOND));
    let started = p["status"]["containerStatuses"][0]["state"]["running"]["startedAt"].clone();
    let mut k = kubelet();
    k.handle_pod(T0 + 4 * SECOND, view(&p));
    let seen = play(&mut k, &mut p, 20);
    // Reported times have whole seconds, so the half second is lost.
    assert_eq!(seen, [(4.0, "Running".to_owned()), (8.0, "Succeeded".to_owned())]);
    assert_eq!(p["status"]["containerStatuses"][0]["state"]["terminated"]["startedAt"], started);
}

#[test]
fn a_lost_write_is_made_again() {
    let mut k = kubelet();
    let p = pod("a", "Never", &json!([{"name": "work", "image": "i"}]));
    k.handle_pod(T0, view(&p));
    let first = k.step(T0);
    k.retry(T0 + SECOND / 10, "uid-a");
    assert_eq!(k.step(T0 + SECOND / 10), first);
}

#[test]
fn leases_are_renewed_every_ten_seconds() {
    let mut k = Kubelet::new(Options::default());
    k.handle_node(T0, "node-0", "n0", None);
    let renewals = |k: &mut Kubelet| match k.step(k.next_wake().unwrap()).as_slice() {
        [Write::Lease { object, .. }] => object["spec"]["renewTime"].clone(),
        other => panic!("{other:?}"),
    };
    assert_eq!(renewals(&mut k), "2023-11-14T22:13:20.000000Z");
    assert_eq!(renewals(&mut k), "2023-11-14T22:13:30.000000Z");
    k.forget_node("node-0");
    assert_eq!(k.next_wake(), None);
}

#[test]
fn restarts_without_pause_do_not_hang() {
    let mut k = Kubelet::new(Options { speed: 1e15, leases: false, events: false });
    k.handle_node(T0, "node-0", "n0", None);
    let p = pod("a", "Always", &json!([{"name": "work", "image": "i", "command": ["false"]}]));
    k.handle_pod(T0, view(&p));
    for i in 0..50 {
        k.step(T0 + i * SECOND);
    }
    assert_eq!(k.pods(), 1);
}

/// `kubectl debug` waits for the container to run or to end: one that never starts must say so.
#[test]
fn ephemeral_containers_are_refused() {
    let mut k = kubelet();
    let mut p = pod("a", "Never", &json!([{"name": "work", "image": "i", "args": ["pause"]}]));
    k.handle_pod(T0, view(&p));
    play(&mut k, &mut p, 20);
    assert_eq!(p["status"]["phase"], "Running");
    assert!(p["status"]["ephemeralContainerStatuses"].is_null());
    p["spec"]["ephemeralContainers"] = json!([{"name": "debugger", "image": "busybox"}]);
    k.handle_pod(T0 + 9 * SECOND, view(&p));
    play(&mut k, &mut p, 20);
    let row = p["status"]["ephemeralContainerStatuses"][0].clone();
    assert_eq!(row["name"], "debugger");
    let ended = &row["state"]["terminated"];
    assert_eq!((&ended["exitCode"], &ended["reason"]), (&json!(128), &json!("StartError")));
    assert_eq!(ended["message"], "simulated pods have no containers: there is nothing to debug");
    assert_eq!(p["status"]["phase"], "Running", "the pod goes on");
    let log = crate::logs::lines(&p, "debugger", false, 1.0, T0).unwrap_err();
    let want = "container \"debugger\" in pod \"a\" did not start: simulated pods have no containers: there is \
                nothing to debug";
    assert_eq!(log.to_string(), want);
    // A process that starts anew reports the same again, and nothing more.
    let mut k = kubelet();
    k.handle_pod(T0 + 20 * SECOND, view(&p));
    play(&mut k, &mut p, 20);
    assert_eq!(p["status"]["ephemeralContainerStatuses"][0], row);
}

/// A controller has failed a pod, for example because its node is tainted: it stays so.
#[test]
fn a_pod_that_another_has_ended_stays_in_its_phase() {
    let mut k = kubelet();
    let mut p = pod("a", "Never", &json!([{"name": "work", "image": "i", "command": ["sleep", "8"]}]));
    k.handle_pod(T0, view(&p));
    apply(&mut p, &k.step(T0 + 5 * SECOND));
    assert_eq!(p["status"]["phase"], "Running");
    p["status"]["phase"] = json!("Failed");
    k.handle_pod(T0 + 6 * SECOND, view(&p));
    assert!(play(&mut k, &mut p, 20).is_empty());
    assert_eq!((k.pods(), &p["status"]["phase"]), (0, &json!("Failed")));
    // It can still be deleted.
    p["metadata"]["deletionTimestamp"] = json!("2023-11-14T22:13:30Z");
    k.handle_pod(T0 + 10 * SECOND, view(&p));
    let writes = k.step(T0 + 60 * SECOND);
    assert!(writes.iter().any(|w| matches!(w, Write::PodDelete { .. })), "{writes:?}");
}
