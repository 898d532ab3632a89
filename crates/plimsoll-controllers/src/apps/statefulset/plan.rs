//! What a StatefulSet needs next, as a function of its pods and the time (`stateful_set_control.go` upstream).

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};

use super::model::{StatefulSet, Status};
use super::pods::REVISION;
use crate::pod::Pod;

/// One thing to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Op {
    /// Make the pod with this ordinal, `true`: of the new revision.
    Create(i32, bool),
    /// Delete the pod with this ordinal.
    Delete(i32),
}

/// What is to be done, and what the status is meanwhile.
#[derive(Debug, Default)]
pub struct Plan {
    /// In order.
    pub ops: Vec<Op>,
    /// The status.
    pub status: Status,
    /// When to reconcile again because a pod becomes available.
    pub again: Option<SignedDuration>,
}

/// Names of the revisions.
#[derive(Clone, Copy, Debug)]
pub struct Revisions<'a> {
    /// The one that pods are at, or are coming from.
    pub current: &'a str,
    /// The one that they go to.
    pub update: &'a str,
}

struct View<'a> {
    set: &'a StatefulSet,
    now: Timestamp,
}

fn revision(pod: &Pod) -> &str {
    pod.metadata.labels.get(REVISION).map_or("", String::as_str)
}

fn is_ready(pod: &Pod) -> bool {
    pod.status.phase == "Running" && pod.is_ready()
}

fn is_leaving(pod: &Pod) -> bool {
    pod.metadata.deletion_timestamp.is_some()
}

impl View<'_> {
    /// Time until a ready pod counts as available; zero: it does.
    fn wait(&self, pod: &Pod) -> SignedDuration {
        let least = SignedDuration::from_secs(i64::from(self.set.spec.min_ready_seconds));
        let since = pod.ready_since().map_or(SignedDuration::ZERO, |since| self.now.duration_since(since));
        (least - since).max(SignedDuration::ZERO)
    }

    fn is_available(&self, pod: &Pod) -> bool {
        is_ready(pod) && self.wait(pod).is_zero()
    }

    fn is_healthy(&self, pod: &Pod) -> bool {
        self.is_available(pod) && !is_leaving(pod)
    }
}

/// Decides. `pods`: those of the set, by ordinal.
pub fn plan(
    set: &StatefulSet,
    pods: &BTreeMap<i32, Arc<Pod>>,
    revisions: Revisions<'_>,
    now: Timestamp,
) -> Plan {
    let view = View { set, now };
    let waits = pods.values().filter(|p| is_ready(p)).map(|p| view.wait(p)).filter(|w| !w.is_zero());
    let mut plan = Plan { again: waits.min(), ..Plan::default() };
    if set.metadata.deletion_timestamp.is_none()
        && replicas(&view, pods, &mut plan.ops)
        && condemned(&view, pods, &mut plan.ops)
    {
        update(&view, pods, revisions, &mut plan.ops);
    }
    plan.status = status(&view, pods, revisions);
    plan
}

/// Pods that should be there; whether to go on.
fn replicas(view: &View<'_>, pods: &BTreeMap<i32, Arc<Pod>>, ops: &mut Vec<Op>) -> bool {
    let ordered = view.set.is_ordered();
    let rolling = view.set.spec.update_strategy.kind != "OnDelete";
    for ordinal in view.set.ordinals() {
        let Some(pod) = pods.get(&ordinal) else {
            ops.push(Op::Create(ordinal, !rolling || ordinal >= view.set.first_updated()));
            if ordered {
                return false;
            }
            continue;
        };
        if pod.is_terminal() {
            // Its place is filled when it is gone.
            if !is_leaving(pod) {
                ops.push(Op::Delete(ordinal));
            }
            if ordered {
                return false;
            }
            continue;
        }
        if ordered && !view.is_healthy(pod) {
            return false;
        }
    }
    true
}

/// Pods that are too many, the last first; whether to go on.
fn condemned(view: &View<'_>, pods: &BTreeMap<i32, Arc<Pod>>, ops: &mut Vec<Op>) -> bool {
    let wanted = view.set.ordinals();
    let ordered = view.set.is_ordered();
    let surplus: Vec<_> = pods.iter().rev().filter(|(ordinal, _)| !wanted.contains(*ordinal)).collect();
    let first_unhealthy = pods.iter().find(|(_, pod)| !view.is_healthy(pod)).map(|(ordinal, _)| *ordinal);
    for (ordinal, pod) in surplus {
        if is_leaving(pod) {
            if ordered {
                return false;
            }
            continue;
        }
        if ordered && !view.is_available(pod) && first_unhealthy != Some(*ordinal) {
            return false;
        }
        ops.push(Op::Delete(*ordinal));
        if ordered {
            return false;
        }
    }
    true
}

/// One pod at a time goes to the new revision, the last first.
fn update(view: &View<'_>, pods: &BTreeMap<i32, Arc<Pod>>, revisions: Revisions<'_>, ops: &mut Vec<Op>) {
    if view.set.spec.update_strategy.kind == "OnDelete" {
        return;
    }
    let first = view.set.first_updated();
    for ordinal in view.set.ordinals().rev().take_while(|ordinal| *ordinal >= first) {
        // One that is made now is not available either.
        let Some(pod) = pods.get(&ordinal) else { return };
        if revision(pod) != revisions.update && !is_leaving(pod) {
            let delete = Op::Delete(ordinal);
            if !ops.contains(&delete) {
                ops.push(delete);
            }
            return;
        }
        if !view.is_healthy(pod) {
            return;
        }
    }
}

fn status(view: &View<'_>, pods: &BTreeMap<i32, Arc<Pod>>, revisions: Revisions<'_>) -> Status {
    let set = view.set;
    let count = |is: &dyn Fn(&Pod) -> bool| {
        i32::try_from(pods.values().filter(|p| is(p)).count()).unwrap_or(i32::MAX)
    };
    let of = |name: &str| count(&|p| !is_leaving(p) && !p.is_terminal() && revision(p) == name);
    let wanted = set.spec.replicas.unwrap_or(1).max(0);
    let mut status = Status {
        observed_generation: set.metadata.generation,
        replicas: count(&|_| true),
        ready_replicas: count(&is_ready),
        available_replicas: count(&|p| view.is_available(p)),
        current_replicas: of(revisions.current),
        updated_replicas: of(revisions.update),
        current_revision: revisions.current.to_owned(),
        update_revision: revisions.update.to_owned(),
        collision_count: Some(set.status.collision_count.unwrap_or(0)),
        conditions: set.status.conditions.clone(),
    };
    // `completeRollingUpdate`.
    if set.spec.update_strategy.kind != "OnDelete"
        && [status.updated_replicas, status.ready_replicas, status.replicas].iter().all(|n| *n == wanted)
    {
        status.current_replicas = status.updated_replicas;
        status.current_revision.clone_from(&status.update_revision);
    }
    status
}
