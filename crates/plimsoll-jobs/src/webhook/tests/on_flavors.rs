//! Flavors that the admission checks of a ClusterQueue name (Kueue `TestValidateClusterQueueUpdate`).

use super::*;
use crate::config::WebhookGates;

/// A ClusterQueue with one flavor; `rule`: name of an admission check and the flavor that it names.
fn queue(strategy: &str, flavor: &str, rule: Option<(&str, &str)>) -> Value {
    let cpu = json!([{"name": "cpu", "nominalQuota": "1"}]);
    let mut queue = json!({"metadata": {"name": "cluster-queue"}, "spec": {
        "queueingStrategy": strategy,
        "resourceGroups": [{"coveredResources": ["cpu"], "flavors": [{"name": flavor, "resources": cpu}]}],
    }});
    if let Some((check, on)) = rule {
        let checks = json!([{"name": check, "onFlavors": [on]}]);
        queue["spec"]["admissionChecksStrategy"] = json!({"admissionChecks": checks});
    }
    queue
}

fn refusal(old: Option<&Value>, new: &Value, rejects: bool) -> Option<String> {
    let webhook_gates = WebhookGates { rejects_invalid_on_flavors: rejects, ..WebhookGates::default() };
    let fixture = Fixture::with_config(Config { webhook_gates, ..Config::default() });
    let review = review("kueue.x-k8s.io", "clusterqueues", "", old);
    validate(&review, new, fixture.env(NOW)).err().map(|denied| denied.message)
}

#[test]
fn flavors_that_checks_name_are_checked_as_the_gate_says() {
    let unsupported = |flavor: &str, valid: &str| {
        let at = "spec.admissionChecksStrategy.admissionChecks[0].onFlavors[0]";
        Some(format!("{at}: Unsupported value: {flavor:?}: supported values: {valid:?}"))
    };
    let (ghost, alpha) = (Some(("ac1", "ghost")), Some(("ac1", "alpha")));
    let (fifo, strict) = ("BestEffortFIFO", "StrictFIFO");
    // Before, after, what is refused with the gate off and on.
    let table = [
        (None, queue(fifo, "alpha", alpha), None, None),
        (None, queue(fifo, "alpha", ghost), unsupported("ghost", "alpha"), unsupported("ghost", "alpha")),
        (
            Some(queue(strict, "alpha", ghost)),
            queue(fifo, "alpha", ghost),
            None,
            unsupported("ghost", "alpha"),
        ),
        (Some(queue(fifo, "alpha", None)), queue(fifo, "alpha", alpha), None, None),
        (
            Some(queue(fifo, "alpha", None)),
            queue(fifo, "alpha", ghost),
            unsupported("ghost", "alpha"),
            unsupported("ghost", "alpha"),
        ),
        (
            Some(queue(fifo, "alpha", ghost)),
            queue(fifo, "beta", ghost),
            unsupported("ghost", "beta"),
            unsupported("ghost", "beta"),
        ),
        (
            Some(queue(fifo, "alpha", ghost)),
            queue(fifo, "alpha", Some(("ac1", "phantom"))),
            unsupported("phantom", "alpha"),
            unsupported("phantom", "alpha"),
        ),
        (
            Some(queue(fifo, "alpha", ghost)),
            queue(fifo, "alpha", Some(("ac2", "ghost"))),
            unsupported("ghost", "alpha"),
            unsupported("ghost", "alpha"),
        ),
        // What was wrong can always be mended.
        (Some(queue(fifo, "alpha", ghost)), queue(fifo, "alpha", alpha), None, None),
        (Some(queue(fifo, "alpha", ghost)), queue(fifo, "alpha", None), None, None),
        (Some(queue(fifo, "alpha", ghost)), queue(fifo, "ghost", ghost), None, None),
    ];
    for (old, new, off, on) in table {
        for (rejects, want) in [(false, off), (true, on)] {
            assert_eq!(refusal(old.as_ref(), &new, rejects), want, "gate {rejects}: {old:?} {new}");
        }
    }
}
