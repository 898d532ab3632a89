//! What a workload holds, from its object.

use std::collections::BTreeMap;

use serde_json::Value;

use super::quota::Usage;
use plimsoll_api::kueue::variants;
use plimsoll_api::{timestamp, windows::RUN_WINDOW};

use super::{Rule, Violation};
use crate::api::{condition, is_true, list, text, uid};

/// Annotation with the name of a job's first slice.
pub const SLICE: &str = "kueue.x-k8s.io/workload-slice-name";

/// What a workload holds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Held {
    uid: String,
    /// ClusterQueue of its reservation, empty without one.
    queue: String,
    /// Flavor, number of pods and CPUs of each podset: what its reservation comes to.
    podsets: Vec<(String, i64, i64)>,
    /// Whether the reservation counts.
    counts: bool,
    reserved: bool,
    admitted: bool,
    evicted: bool,
    assigned: bool,
    /// Whether each of its admission checks is ready.
    ready: Vec<bool>,
    /// CPUs that it uses, by flavor.
    used: BTreeMap<String, i64>,
    /// CPUs that it uses on each node.
    nodes: BTreeMap<String, i64>,
    /// LocalQueue that it is in.
    pub(super) local_queue: String,
    /// Run window that it names, or empty.
    pub(super) run_window: String,
    /// Second since which it has been admitted.
    pub(super) since: i64,
    /// Whether pods own it, which can't be suspended.
    pub(super) of_pods: bool,
    /// First slice of its elastic job, or empty.
    pub(super) slice: String,
    /// UID of its owner.
    pub(super) job: String,
    /// Whether it is admitted by variants, which are charged for it.
    pub(super) is_parent: bool,
    /// UID of the parent of a variant, or empty.
    pub(super) variant_of: String,
    /// Whether it is to leave for a sibling with a more favorable flavor.
    pub(super) migrates: bool,
    pub(super) is_active: bool,
    finished: bool,
    /// Pods that it may run.
    pods: i64,
}

/// An amount of CPUs in an assignment, in thousandths.
fn millis(value: &Value) -> i64 {
    let text = value.as_str().unwrap_or_default();
    match text.strip_suffix('m') {
        Some(millis) => millis.parse().unwrap_or(0),
        None => text.parse::<i64>().unwrap_or(0) * 1000,
    }
}

impl Held {
    /// What the object says.
    pub fn read(object: &Value) -> Self {
        let status = &object["status"];
        let admission = &status["admission"];
        let reserved = is_true(object, "QuotaReserved");
        let admitted = is_true(object, "Admitted");
        let active = object["spec"]["active"].as_bool().unwrap_or(true);
        let mut out = Self {
            uid: uid(object).to_owned(),
            queue: text(admission, &["clusterQueue"]).to_owned(),
            // What is deactivated holds nothing (Kueue's IsActive).
            counts: active && (reserved || admitted) && admission.is_object() && !is_true(object, "Finished"),
            reserved,
            admitted,
            evicted: is_true(object, "Evicted"),
            assigned: admission.is_object(),
            ready: list(status, &["admissionChecks"]).iter().map(|c| c["state"] == "Ready").collect(),
            local_queue: text(object, &["spec", "queueName"]).to_owned(),
            run_window: text(object, &["metadata", "annotations", RUN_WINDOW]).to_owned(),
            slice: text(object, &["metadata", "annotations", SLICE]).to_owned(),
            is_parent: variants::is_parent(&object["metadata"]),
            variant_of: variants::parent(&object["metadata"]).map_or("", |o| text(o, &["uid"])).to_owned(),
            migrates: condition(object, "Evicted")
                .is_some_and(|c| c["status"] == "True" && c["reason"] == "FlavorMigration"),
            is_active: active,
            finished: is_true(object, "Finished"),
            ..Self::default()
        };
        let since = condition(object, "Admitted").map(|c| text(c, &["lastTransitionTime"]));
        out.since = since.and_then(timestamp::parse).unwrap_or_default().seconds();
        let owner = list(object, &["metadata", "ownerReferences"]).first();
        out.of_pods = owner.is_some_and(|o| o["kind"] == "Pod");
        out.job = owner.map_or("", |o| text(o, &["uid"])).to_owned();
        for assigned in list(admission, &["podSetAssignments"]) {
            out.read_podset(object, assigned);
        }
        out
    }

    fn read_podset(&mut self, object: &Value, assigned: &Value) {
        let of = |list: &'_ [Value]| list.iter().find(|p| p["name"] == assigned["name"]).cloned();
        let declared = of(list(object, &["spec", "podSets"])).map_or(0, |p| p["count"].as_i64().unwrap_or(1));
        let done = plimsoll_api::kueue::reclaimed(object, text(assigned, &["name"]));
        let count = assigned["count"].as_i64().unwrap_or(declared);
        let flavor = text(assigned, &["flavors", "cpu"]).to_owned();
        let each = millis(&assigned["resourceUsage"]["cpu"]) / count.max(1) / 1000;
        let pods = count.min(declared - done);
        *self.used.entry(flavor.clone()).or_insert(0) += each * pods;
        self.pods += pods;
        self.podsets.push((flavor, count, each));
        let topology = plimsoll_api::kueue::topology_assignment(&assigned["topologyAssignment"]);
        for (values, pods) in topology.into_iter().flat_map(|t| t.domains) {
            let host = values.last().cloned().unwrap_or_default();
            *self.nodes.entry(host).or_insert(0) += each * i64::from(pods);
        }
    }

    /// Adds what it uses.
    pub fn add(&self, usage: &mut Usage) {
        if !self.counts {
            return;
        }
        for (flavor, used) in &self.used {
            *usage.queues.entry((self.queue.clone(), flavor.clone())).or_insert(0) += used;
        }
        for (node, used) in &self.nodes {
            *usage.nodes.entry(node.clone()).or_insert(0) += used;
        }
    }

    /// What it uses, by flavor.
    pub(super) fn used(&self) -> impl Iterator<Item = (&str, i64)> {
        self.used.iter().map(|(flavor, used)| (flavor.as_str(), *used))
    }

    /// Whether it is evicted, also once its job has stopped.
    pub(super) const fn is_evicted(&self) -> bool {
        self.evicted
    }

    /// Whether it has a reservation, or has not lost it yet.
    pub(super) const fn is_assigned(&self) -> bool {
        self.assigned
    }

    /// Pods that it may run: those that it was admitted with, less what was given back.
    pub(super) fn granted(&self) -> i64 {
        if self.assigned && self.reserved && !self.finished { self.pods } else { 0 }
    }

    /// Whether it has neither a reservation nor ended.
    pub const fn waits(&self) -> bool {
        !self.assigned && !self.finished
    }

    /// Whether a variant holds what this parent of it was admitted with.
    pub(super) fn is_charged_for(&self, parent: &Self) -> bool {
        self.variant_of == parent.uid && self.counts && self.podsets == parent.podsets
    }

    /// Whether it has a reservation that a variant holds for it, and goes on.
    pub(super) const fn runs_on(&self) -> bool {
        self.counts && self.reserved
    }

    /// Whether it holds quota.
    pub const fn counts(&self) -> bool {
        self.counts
    }

    /// Whether it may have become this from what it was.
    pub(super) fn check_change(&self, name: &str, old: &Self) -> Result<(), Violation> {
        if self.uid == old.uid
            && self.reserved
            && old.reserved
            && self.assigned
            && old.assigned
            && (&self.queue, &self.podsets) != (&old.queue, &old.podsets)
        {
            let message = format!(
                "{name} had {} {:?} and got {} {:?}",
                old.queue, old.podsets, self.queue, self.podsets
            );
            return Err(Violation::new(Rule::AdmittedTwice, message));
        }
        if self.reserved != self.assigned || self.admitted && !self.reserved {
            let message = format!("{name}: {self:?}");
            return Err(Violation::new(Rule::AdmittedWhole, message));
        }
        Ok(())
    }

    /// Whether it is admitted, and not told to stop.
    pub(super) const fn is_admitted(&self) -> bool {
        self.admitted && !self.evicted
    }

    /// ClusterQueue of its reservation.
    pub(super) fn queue(&self) -> &str {
        &self.queue
    }

    /// Flavors of its reservation.
    pub(super) fn flavors(&self) -> impl Iterator<Item = &str> {
        self.podsets.iter().map(|(flavor, _, _)| flavor.as_str())
    }

    /// Whether each of its admission checks is ready.
    pub(super) fn ready(&self) -> &[bool] {
        &self.ready
    }

    /// Pods that it holds quota for.
    pub fn charged_pods(&self) -> i64 {
        if self.assigned && self.reserved { self.podsets.iter().map(|(_, count, _)| count).sum() } else { 0 }
    }

    /// UID.
    pub(super) fn uid(&self) -> &str {
        &self.uid
    }

    /// Whether its job may run.
    pub const fn runs(&self) -> bool {
        self.admitted && !self.evicted && self.counts
    }
}
