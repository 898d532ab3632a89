//! Pods: what they use of nodes, and whether as many run as their workload is charged for.

use std::collections::{BTreeMap, BTreeSet};

use plimsoll_state::{Duration, Time};
use serde_json::Value;

use super::slices::Jobs;
use super::workload::SLICE;
use super::{Held, Rule, Violation, variants};
use crate::api::{Name, deleting, list, name_of, text};

/// How long more pods may run than their workload holds quota for: an eviction, or a deletion, is under way.
const GRACE: Duration = Duration::from_seconds(600);

/// A pod that is bound and has not ended.
#[derive(Clone, Debug)]
struct Running {
    node: String,
    cpus: i64,
    /// Its workload, empty for none.
    workload: String,
    /// First slice of its elastic job, empty for none.
    slice: String,
    /// Whether it is to go: it counts for its node only.
    going: bool,
    /// When it was bound.
    since: Time,
}

/// Pods.
#[derive(Debug, Default)]
pub struct Pods {
    running: BTreeMap<Name, Running>,
    /// Workloads of which too many pods run, and since when.
    too_many: BTreeMap<String, Time>,
    /// Pods that the scheduler once had no node for.
    unschedulable: BTreeSet<Name>,
}

impl Pods {
    /// A pod has changed, or is gone.
    pub fn changed(&mut self, name: &Name, object: Option<&Value>, now: Time) {
        let conditions = object.map_or(&[][..], |o| list(o, &["status", "conditions"]));
        if conditions.iter().any(|c| c["type"] == "PodScheduled" && c["reason"] == "Unschedulable") {
            self.unschedulable.insert(name.clone());
        }
        let running = object.filter(|o| {
            !text(o, &["spec", "nodeName"]).is_empty()
                && !matches!(text(o, &["status", "phase"]), "Succeeded" | "Failed")
        });
        let Some(object) = running else {
            self.running.remove(name);
            return;
        };
        let containers = list(object, &["spec", "containers"]).iter();
        let cpus = containers.map(|c| text(c, &["resources", "requests", "cpu"]).parse().unwrap_or(0)).sum();
        let running = Running {
            node: text(object, &["spec", "nodeName"]).to_owned(),
            cpus,
            workload: text(object, &["metadata", "annotations", "kueue.x-k8s.io/workload"]).to_owned(),
            slice: text(object, &["metadata", "annotations", SLICE]).to_owned(),
            going: deleting(object),
            since: self.running.get(name).map_or(now, |known| known.since),
        };
        self.running.insert(name_of(object), running);
    }

    /// How many pods of a workload use its quota that have been on their nodes for so long. `terminal`: also those that are being
    /// deleted.
    pub fn using(&self, workload: &Name, terminal: bool, now: Time, known: Duration) -> usize {
        let uses = |pod: &Running| {
            pod.workload == workload.1
                && pod.slice.is_empty()
                && (terminal || !pod.going)
                && now.since(pod.since) > known
        };
        self.running.iter().filter(|((namespace, _), pod)| *namespace == workload.0 && uses(pod)).count()
    }

    /// How many pods the scheduler once had no node for.
    pub fn unschedulable(&self) -> usize {
        self.unschedulable.len()
    }

    /// CPUs of bound pods, by node.
    pub fn on_nodes(&self) -> BTreeMap<String, i64> {
        let mut out = BTreeMap::new();
        for pod in self.running.values() {
            *out.entry(pod.node.clone()).or_insert(0) += pod.cpus;
        }
        out
    }

    /// Compares what runs with what workloads hold.
    ///
    /// # Errors
    /// When more has run for longer than an eviction takes.
    pub fn compare(&mut self, held: &BTreeMap<Name, Held>, jobs: &Jobs, now: Time) -> Result<(), Violation> {
        let mut slices: BTreeMap<&str, i64> = BTreeMap::new();
        for pod in self.running.values().filter(|p| !p.slice.is_empty()) {
            *slices.entry(&pod.slice).or_insert(0) += 1;
        }
        jobs.compare(held, &slices)?;
        let mut counts: BTreeMap<(&str, &str), i64> = BTreeMap::new();
        let counted = |p: &Running| !p.going && !p.workload.is_empty() && p.slice.is_empty();
        for ((namespace, _), pod) in self.running.iter().filter(|(_, p)| counted(p)) {
            *counts.entry((namespace, &pod.workload)).or_insert(0) += 1;
        }
        let mut too_many = BTreeMap::new();
        for ((namespace, workload), count) in counts {
            let charged = held
                .get(&(namespace.to_owned(), workload.to_owned()))
                .map_or(0, |h| if variants::are_charged(h, held) { h.charged_pods() } else { 0 });
            if count <= charged {
                continue;
            }
            let since = self.too_many.get(workload).copied().unwrap_or(now);
            if now.since(since) > GRACE {
                let message =
                    format!("{count} pods of {workload} run, {charged} are charged, since {:?}", since);
                return Err(Violation::new(Rule::PodsWithoutQuota, message));
            }
            too_many.insert(workload.to_owned(), since);
        }
        self.too_many = too_many;
        Ok(())
    }
}
