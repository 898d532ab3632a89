//! Failure recovery (Kueue's gate FailureRecoveryPolicy, KEP-6757, `pkg/controller/failurerecovery`): pods that opt in are
//! failed and deleted without the kubelet of an unreachable node, which would keep them terminating.

use plimsoll_api::event::EventRecord;
use plimsoll_api::resource::PODS;
use plimsoll_api::{json, timestamp};
use plimsoll_state::time::Duration;
use serde_json::{Value, json};

use crate::key::Key;
use crate::plan::{Plan, Write, delete_within, patch_status, reference};
use crate::pod_view::{awaits_forceful_deletion, ended, force_deleted};
use crate::store::{Kind, ObjectStore};
use crate::{Env, names};

/// Time after the deadline of the deletion, which includes the pod's own grace period
/// (`forcefulTerminationGracePeriod`).
const GRACE_PERIOD: Duration = Duration::from_seconds(60);
/// `KueueFailureRecoveryConditionType`.
const CONDITION: &str = "KueueFailureRecovery";
/// `KueueForcefulTerminationReason`.
const REASON: &str = "KueueForcefullyDeleted";
/// `PodTerminationControllerName`.
const REPORTING_CONTROLLER: &str = "kueue-pod-termination-controller";

/// The pods of a node that has become unreachable.
pub(crate) fn affected(objects: &ObjectStore, node: &str) -> Vec<Key> {
    let key = |(namespace, name): (&str, &str)| Key::TerminatingPod(namespace.to_owned(), name.to_owned());
    objects.terminating_pods_on(node).map(key).collect()
}

/// Fails and deletes a pod whose deletion is overdue on an unreachable node, or requeues it for the time when it is. A
/// node that is reachable or gone ends it: the pod is looked at again when the node becomes unreachable.
pub(crate) fn plan(namespace: &str, name: &str, env: Env<'_>) -> Plan {
    if !env.config.failure_recovery {
        return Plan::new();
    }
    let pod = env.objects.get(Kind::Pod, namespace, name).filter(|p| awaits_forceful_deletion(p));
    let Some(pod) = pod else { return Plan::new() };
    let deadline = json::text(&pod, &["metadata", "deletionTimestamp"]);
    let Some(deadline) = timestamp::parse(deadline).map(|at| at.plus(GRACE_PERIOD)) else {
        return Plan::new();
    };
    let left = deadline.since(env.now);
    if left > Duration::ZERO {
        let left = std::time::Duration::from_nanos(u64::try_from(left.0).unwrap_or(0));
        return vec![Write::RequeueAfter(left)];
    }
    let node = json::text(&pod, &["spec", "nodeName"]);
    if !env.objects.is_unreachable(node) {
        return Plan::new();
    }
    let mut plan = Plan::new();
    // Kueue acts when a pod becomes eligible. A pod is planned here after each of its changes, this plan's own included.
    if !json::is_true(&pod, CONDITION) {
        plan.extend(fail(&pod, node));
    } else if force_deleted(&pod) {
        return plan;
    }
    plan.push(delete_within(PODS, &pod, Some(0)));
    plan
}

/// The condition, the phase unless the pod has ended, and the event.
fn fail(pod: &Value, node: &str) -> [Write; 2] {
    let message = message(pod, node);
    let mut conditions = json::list(pod, &["status", "conditions"]).to_vec();
    conditions.push(json!({"type": CONDITION, "status": "True", "reason": REASON, "message": message}));
    let mut status = json!({ "conditions": conditions });
    if !ended(pod) {
        json::set(&mut status, &["phase"], "Failed".into());
    }
    let event = EventRecord {
        regarding: reference(PODS, pod),
        warning: true,
        reason: REASON.to_owned(),
        action: "ForcefulTermination".to_owned(),
        message,
        reporting_controller: REPORTING_CONTROLLER.into(),
        reporting_instance: String::new(),
    };
    [patch_status(PODS, pod, &status), Write::Event(Box::new(event))]
}

fn message(pod: &Value, node: &str) -> String {
    // As Kueue, which adds the seconds of the pod as nanoseconds: 30 s make `1m0.00000003s`.
    let own = json::int(pod, &["metadata", "deletionGracePeriodSeconds"]).unwrap_or(0);
    let total = Duration(GRACE_PERIOD.0.saturating_add(own)).go_text();
    format!(
        "Pod forcefully terminated after {total} grace period due to unreachable node `{node}` (triggered by `{}` annotation)",
        names::SAFE_TO_FORCEFULLY_DELETE
    )
}

#[cfg(test)]
mod tests {
    use plimsoll_state::Time;

    use super::*;
    use crate::testing::Fixture;
    use crate::{Config, affected_by_unreachable_node, reconcile};

    const NOW: Time = Time::from_seconds(1_700_000_000);
    const MESSAGE: &str = "Pod forcefully terminated after 1m0s grace period due to unreachable node `unreachable-node` \
        (triggered by `kueue.x-k8s.io/safe-to-forcefully-delete` annotation)";

    /// Kueue's test pod, whose deletion was due this many seconds ago.
    fn pod(due: i64) -> Value {
        json!({
            "metadata": {"name": "pod", "namespace": "ns", "uid": "u", "resourceVersion": "7",
                "annotations": {names::SAFE_TO_FORCEFULLY_DELETE: "true"}, "finalizers": [names::MANAGED],
                "deletionTimestamp": timestamp::text(Time::from_seconds(NOW.seconds() - due))},
            "spec": {"nodeName": "unreachable-node"},
            "status": {"phase": "Running"},
        })
    }

    fn with(path: &[&str], value: Value) -> Value {
        let mut pod = pod(180);
        json::set(&mut pod, path, value);
        pod
    }

    /// A store that knows the pod and one unreachable node, and a configuration with the gate on.
    fn fixture(pod: Value) -> Fixture {
        let mut fixture = Fixture::with_config(Config { failure_recovery: true, ..Config::default() });
        fixture.node_seen("unreachable-node", true);
        fixture.node_seen("healthy-node", false);
        fixture.put(Kind::Pod, pod);
        fixture
    }

    fn planned(fixture: &Fixture) -> Plan {
        reconcile(&Key::TerminatingPod("ns".to_owned(), "pod".to_owned()), fixture.env(NOW))
    }

    fn deletion() -> Write {
        let (namespace, name) = ("ns".to_owned(), "pod".to_owned());
        Write::Delete { resource: PODS, namespace, name, uid: "u".to_owned(), grace_seconds: Some(0) }
    }

    fn condition(message: &str) -> Value {
        json!({"type": "KueueFailureRecovery", "status": "True", "reason": "KueueForcefullyDeleted",
            "message": message})
    }

    /// The plan that gives the pod this status and deletes it.
    fn terminated(pod: &Value, status: &Value, message: &str) -> Plan {
        let event = EventRecord {
            regarding: reference(PODS, pod),
            warning: true,
            reason: "KueueForcefullyDeleted".to_owned(),
            action: "ForcefulTermination".to_owned(),
            message: message.to_owned(),
            reporting_controller: "kueue-pod-termination-controller".into(),
            reporting_instance: String::new(),
        };
        vec![patch_status(PODS, pod, status), Write::Event(Box::new(event)), deletion()]
    }

    #[test]
    fn pods_are_failed_and_deleted_as_kueue_does() {
        // `TestReconciler` of `pod_termination_controller_test.go`.
        let failed = json!({"phase": "Failed", "conditions": [condition(MESSAGE)]});
        let as_it_was = json!({"conditions": [condition(MESSAGE)]});
        let again = |nanos: u64| vec![Write::RequeueAfter(std::time::Duration::from_nanos(nanos))];
        let ended = |phase: &str| with(&["status", "phase"], phase.into());
        let on = |node: &str| with(&["spec", "nodeName"], node.into());
        for (name, pod, want) in [
            ("failed", ended("Failed"), terminated(&ended("Failed"), &as_it_was, MESSAGE)),
            ("succeeded", ended("Succeeded"), terminated(&ended("Succeeded"), &as_it_was, MESSAGE)),
            ("on a reachable node", on("healthy-node"), Plan::new()),
            ("on a node that does not exist", on("missing-node"), Plan::new()),
            ("on no node", with(&["spec"], json!({})), Plan::new()),
            ("grace period is left", pod(0), again(60_000_000_000)),
            ("a second is left", pod(59), again(1_000_000_000)),
            ("deadline of the deletion is ahead", pod(-30), again(90_000_000_000)),
            ("grace period has just elapsed", pod(60), terminated(&pod(60), &failed, MESSAGE)),
            ("grace period has elapsed", pod(180), terminated(&pod(180), &failed, MESSAGE)),
            // `TestCreateEventFilter`.
            (
                "not annotated",
                with(&["metadata", "annotations", names::SAFE_TO_FORCEFULLY_DELETE], "false".into()),
                Plan::new(),
            ),
            ("not deleted", with(&["metadata", "deletionTimestamp"], Value::Null), Plan::new()),
        ] {
            assert_eq!(planned(&fixture(pod)), want, "{name}");
        }
        let off = Fixture { config: Config::default(), ..fixture(pod(180)) };
        assert!(planned(&off).is_empty(), "the gate is off");
    }

    #[test]
    fn other_conditions_stay_and_seconds_count_as_nanoseconds() {
        let ready = json!({"type": "Ready", "status": "False"});
        let mut pod = with(&["status", "conditions"], json!([ready]));
        json::set(&mut pod, &["metadata", "deletionGracePeriodSeconds"], 30.into());
        let message = MESSAGE.replace("1m0s", "1m0.00000003s");
        let status = json!({"phase": "Failed", "conditions": [ready, condition(&message)]});
        assert_eq!(planned(&fixture(pod.clone())), terminated(&pod, &status, &message));
    }

    #[test]
    fn a_pod_is_failed_once() {
        let mut pod = with(&["status"], json!({"phase": "Failed", "conditions": [condition(MESSAGE)]}));
        json::set(&mut pod, &["metadata", "deletionGracePeriodSeconds"], 30.into());
        assert_eq!(planned(&fixture(pod.clone())), [deletion()], "its deletion has failed");
        json::set(&mut pod, &["metadata", "deletionGracePeriodSeconds"], 0.into());
        assert!(planned(&fixture(pod)).is_empty(), "its finalizer holds it");
    }

    #[test]
    fn pods_are_reconciled_when_they_are_deleted_and_when_their_node_becomes_unreachable() {
        let key = Key::TerminatingPod("ns".to_owned(), "pod".to_owned());
        let concerns = |pod: &Value| crate::affected(Kind::Pod, pod, &ObjectStore::default()).contains(&key);
        assert!(concerns(&pod(0)));
        assert!(!concerns(&with(&["metadata", "deletionTimestamp"], Value::Null)));
        assert!(!concerns(&with(&["metadata", "annotations"], json!({}))));

        // `TestNodeEventsPredicate`.
        let mut objects = ObjectStore::default();
        assert!(!objects.node_seen("n", false) && !objects.node_seen("n", false));
        assert!(objects.node_seen("n", true) && !objects.node_seen("n", true));
        assert!(!objects.node_seen("n", false) && !objects.is_unreachable("n"));
        assert!(objects.node_seen("n", true) && objects.is_unreachable("n"));
        objects.node_gone("n");
        assert!(!objects.is_unreachable("n") && objects.node_seen("n", true));

        objects.put(Kind::Pod, pod(0));
        assert_eq!(affected_by_unreachable_node(&objects, "unreachable-node"), [key]);
        assert!(affected_by_unreachable_node(&objects, "n").is_empty());
        let mut kept = pod(0);
        json::set(&mut kept, &["metadata", "resourceVersion"], "8".into());
        json::set(&mut kept, &["metadata", "annotations"], json!({}));
        objects.put(Kind::Pod, kept);
        assert!(affected_by_unreachable_node(&objects, "unreachable-node").is_empty());
        let mut again = pod(0);
        json::set(&mut again, &["metadata", "resourceVersion"], "9".into());
        objects.put(Kind::Pod, again);
        objects.remove(Kind::Pod, "ns", "pod", "u");
        assert!(affected_by_unreachable_node(&objects, "unreachable-node").is_empty());
    }
}
