//! Counts in the status of a workload.

use super::super::path::{Errors, Path};
use crate::obj::{Obj, int, object};

/// The counts of a kind's status: those that can't be negative, and those that can't exceed `replicas`.
struct Counts {
    all: &'static [&'static str],
    within: &'static [&'static str],
    /// The name of the field that available replicas can't exceed.
    ready: &'static str,
}

const OF_DEPLOYMENTS: Counts = Counts {
    all: &[
        "observedGeneration",
        "replicas",
        "updatedReplicas",
        "readyReplicas",
        "availableReplicas",
        "unavailableReplicas",
        "terminatingReplicas",
        "collisionCount",
    ],
    within: &["updatedReplicas", "readyReplicas", "availableReplicas"],
    ready: "readyReplicas",
};
const OF_REPLICA_SETS: Counts = Counts {
    all: &[
        "replicas",
        "fullyLabeledReplicas",
        "readyReplicas",
        "availableReplicas",
        "observedGeneration",
        "terminatingReplicas",
    ],
    within: &["fullyLabeledReplicas", "readyReplicas", "availableReplicas"],
    ready: "readyReplicas",
};
const OF_STATEFUL_SETS: Counts = Counts {
    all: &[
        "replicas",
        "readyReplicas",
        "currentReplicas",
        "updatedReplicas",
        "availableReplicas",
        "observedGeneration",
        "collisionCount",
    ],
    within: &["readyReplicas", "currentReplicas", "updatedReplicas", "availableReplicas"],
    ready: "status.readyReplicas",
};
const OF_DAEMON_SETS: Counts = Counts {
    all: &[
        "currentNumberScheduled",
        "numberMisscheduled",
        "desiredNumberScheduled",
        "numberReady",
        "observedGeneration",
        "updatedNumberScheduled",
        "numberAvailable",
        "numberUnavailable",
        "collisionCount",
    ],
    within: &[],
    ready: "",
};

/// Counts in the status of a Deployment.
pub(in super::super) fn deployment_status(old: &Obj, new: &Obj, errors: &mut Errors) {
    counts(&OF_DEPLOYMENTS, new, errors);
    collisions(old, new, errors);
}

/// Counts in the status of a `ReplicaSet` or `ReplicationController`.
pub(in super::super) fn replica_set_status(_: &Obj, new: &Obj, errors: &mut Errors) {
    counts(&OF_REPLICA_SETS, new, errors);
}

/// Counts in the status of a `StatefulSet`.
pub(in super::super) fn stateful_set_status(old: &Obj, new: &Obj, errors: &mut Errors) {
    counts(&OF_STATEFUL_SETS, new, errors);
    collisions(old, new, errors);
}

/// Counts in the status of a `DaemonSet`.
pub(in super::super) fn daemon_set_status(old: &Obj, new: &Obj, errors: &mut Errors) {
    counts(&OF_DAEMON_SETS, new, errors);
    collisions(old, new, errors);
}

fn counts(counts: &Counts, new: &Obj, errors: &mut Errors) {
    let status = object(new, "status");
    let path = Path::new("status");
    for key in counts.all {
        errors.non_negative(&path.field(key), int(status, key));
    }
    let number = |key: &str| int(status, key).unwrap_or(0);
    for key in counts.within.iter().filter(|key| number(key) > number("replicas")) {
        errors.invalid(&path.field(key), number(key), "cannot be greater than status.replicas");
    }
    let available = number("availableReplicas");
    if !counts.ready.is_empty() && available > number("readyReplicas") {
        let detail = format!("cannot be greater than {}", counts.ready);
        errors.invalid(&path.field("availableReplicas"), available, &detail);
    }
}

/// The collision count never decreases.
fn collisions(old: &Obj, new: &Obj, errors: &mut Errors) {
    let count = |o: &Obj| int(object(o, "status"), "collisionCount");
    if let Some(was) = count(old)
        && count(new).is_none_or(|is| is < was)
    {
        let path = Path::new("status");
        errors.invalid(&path.field("collisionCount"), count(new).unwrap_or(0), "cannot be decremented");
    }
}
