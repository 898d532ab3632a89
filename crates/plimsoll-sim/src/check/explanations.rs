//! Explanations: what workloads and pods say of why they wait is true, once nothing has changed for a while. Only what can be
//! recounted from the objects is compared: queues that are said to be missing or inactive, the namespace, dependencies,
//! run windows, workloads that others are said to wait for, quota that is said to be used, nodes that are said to take no pod.

use std::sync::Arc;

use plimsoll_api::kueue::DEPENDS_ON;
use plimsoll_scheduler::Scheduler;
use plimsoll_state::{Duration, Time};
use serde_json::Value;

use super::quota::Usage;
use super::{Checkers, Held, Rule, Violation};
use crate::api::{Api, Kind, Name, deleting, is_true, list, name_of, text, uid};
use crate::scenario::extensions::refuses;
use crate::scenario::objects::NAMESPACE;
use crate::users::{pod_size, size};

/// How long nothing has changed by then: a pod is in backoff for ten seconds, and explanations are paced.
const SETTLED: Duration = Duration::from_seconds(20);
/// How long after the faults a write that failed is repeated at the latest (64 seconds between two attempts).
const REPEATED: Duration = Duration::from_seconds(70);

/// When objects have changed last.
#[derive(Debug, Default)]
pub struct Settled {
    version: u64,
    since: Time,
    checked: bool,
}

impl Settled {
    /// Whether nothing has changed for long enough, some time after the faults, for the first time since the last change.
    pub fn is_due(&mut self, version: u64, calm: Time, now: Time) -> bool {
        if self.version != version {
            *self = Self { version, since: now, checked: false };
        }
        let due = !self.checked && now.since(self.since) >= SETTLED && now.since(calm) >= REPEATED;
        self.checked |= due;
        due
    }

    /// Whether what is said now was compared, or will not be.
    pub const fn is_checked(&self, version: u64) -> bool {
        self.checked && self.version == version
    }
}

fn wrong(who: &str, says: &str, why: &str) -> Result<(), Violation> {
    Err(Violation::new(Rule::Explanations, format!("{who} says {says:?}, and {why}")))
}

/// The condition of this type, where it is `False`.
fn denied<'a>(object: &'a Value, kind: &str) -> Option<&'a Value> {
    list(object, &["status", "conditions"]).iter().find(|c| c["type"] == kind && c["status"] == "False")
}

fn priority(pod: &Value) -> i64 {
    pod["spec"]["priority"].as_i64().unwrap_or(0)
}

/// Whether the scheduler looks for a node for a pod.
fn waits_for_a_node(pod: &Value) -> bool {
    let gated = !list(pod, &["spec", "schedulingGates"]).is_empty();
    !gated && !deleting(pod) && !has_ended(pod) && text(pod, &["spec", "nodeName"]).is_empty()
}

/// Whether a pod says what the scheduler has decided of it, whichever writes have failed.
fn as_decided(pod: &Value, scheduler: &Scheduler) -> Result<(), Violation> {
    let nothing = Value::Null;
    let says = denied(pod, "PodScheduled").unwrap_or(&nothing);
    let nominated = text(pod, &["status", "nominatedNodeName"]);
    let (reason, message) = (text(says, &["reason"]), text(says, &["message"]));
    match scheduler.unwritten(uid(pod), (reason, message), nominated) {
        Some(what) => wrong(&name_of(pod).1, message, &what),
        None => Ok(()),
    }
}

fn has_ended(pod: &Value) -> bool {
    matches!(text(pod, &["status", "phase"]), "Succeeded" | "Failed")
}

/// Whether an object is there that stays.
fn exists(api: &Api, kind: Kind, namespace: &str, name: &str) -> bool {
    api.get(kind, namespace, name).is_some_and(|o| !deleting(o))
}

/// Whether a queue is there that nothing stops.
fn goes_on(queue: &Value) -> bool {
    !deleting(queue) && matches!(text(queue, &["spec", "stopPolicy"]), "" | "None")
}

/// Whether a ClusterQueue is there, is not stopped, and has all that it refers to.
fn is_active(api: &Api, queue: &str) -> bool {
    let Some(queue) = api.get(Kind::ClusterQueue, "", queue).filter(|q| goes_on(q)) else { return false };
    let flavor_is_there = |f: &Value| {
        api.get(Kind::Flavor, "", text(f, &["name"])).filter(|f| !deleting(f)).is_some_and(|f| {
            let topology = text(f, &["spec", "topologyName"]);
            topology.is_empty() || exists(api, Kind::Topology, "", topology)
        })
    };
    let groups = list(queue, &["spec", "resourceGroups"]).iter();
    let mut checks = list(queue, &["spec", "admissionChecksStrategy", "admissionChecks"]).iter();
    groups.flat_map(|g| list(g, &["flavors"])).all(flavor_is_there)
        && checks.all(|c| {
            let check = api.get(Kind::AdmissionCheck, "", text(c, &["name"]));
            check.is_some_and(|c| !deleting(c) && is_true(c, "Active"))
        })
}

/// Whether something that a ClusterQueue refers to is being deleted. It is kept while it is used, and whether it counts depends
/// on when its finalizer goes.
fn is_losing(api: &Api, queue: &str) -> bool {
    let Some(queue) = api.get(Kind::ClusterQueue, "", queue) else { return false };
    let leaves = |kind, name: &str| api.get(kind, "", name).is_some_and(|o| deleting(o));
    let flavor_leaves = |f: &Value| {
        let name = text(f, &["name"]);
        let flavor = api.get(Kind::Flavor, "", name);
        leaves(Kind::Flavor, name)
            || flavor.is_some_and(|f| leaves(Kind::Topology, text(f, &["spec", "topologyName"])))
    };
    let groups = list(queue, &["spec", "resourceGroups"]).iter();
    let mut checks = list(queue, &["spec", "admissionChecksStrategy", "admissionChecks"]).iter();
    groups.flat_map(|g| list(g, &["flavors"])).any(flavor_leaves)
        || checks.any(|c| leaves(Kind::AdmissionCheck, text(c, &["name"])))
}

/// Whether a ClusterQueue selects the namespace.
fn selects(api: &Api, queue: &str) -> bool {
    let Some(queue) = api.get(Kind::ClusterQueue, "", queue) else { return false };
    let Some(namespace) = api.get(Kind::Namespace, "", NAMESPACE) else { return false };
    let wanted = queue["spec"]["namespaceSelector"]["matchLabels"].as_object();
    wanted.into_iter().flatten().all(|(k, v)| namespace["metadata"]["labels"][k.as_str()] == *v)
}

/// Flavors of which a workload says this.
fn flavors<'a>(says: &'a str, what: &'a str) -> impl Iterator<Item = &'a str> {
    says.split(what).skip(1).filter_map(|s| s.split(',').next())
}

impl Checkers {
    /// Whether a workload holds no quota and has not ended, or the scheduler has no node for a pod, so that it says why it
    /// waits.
    pub fn anything_waits(&self, api: &Api) -> bool {
        self.held.values().any(Held::waits) || api.all(Kind::Pod).any(|pod| waits_for_a_node(pod))
    }

    /// Whether what workloads and pods say of why they wait is true; with a scheduler also whether pods say what it has decided.
    ///
    /// # Errors
    /// What is not.
    pub fn explained(
        &mut self,
        api: &Api,
        scheduler: Option<&Scheduler>,
        now: Time,
    ) -> Result<(), Violation> {
        for queue in api.all(Kind::ClusterQueue) {
            let name = name_of(queue).1;
            if !is_losing(api, &name) {
                self.queue_explained(&name, queue, is_active(api, &name))?;
            }
        }
        for queue in api.all(Kind::LocalQueue) {
            let cluster = text(queue, &["spec", "clusterQueue"]);
            if !is_losing(api, cluster) {
                self.queue_explained(&name_of(queue).1, queue, goes_on(queue) && is_active(api, cluster))?;
            }
        }
        let waiting = |w: &&Arc<Value>| !deleting(w) && !is_true(w, "Finished");
        for workload in api.all(Kind::Workload).filter(waiting) {
            if let Some(why) = denied(workload, "QuotaReserved") {
                self.explanations += 1;
                self.workload_explained(workload, why, api, now)?;
            }
        }
        for pod in api.all(Kind::Pod).filter(|p| !has_ended(p)) {
            if let Some(why) = denied(pod, "PodScheduled").filter(|c| c["reason"] == "Unschedulable") {
                self.explanations += 1;
                self.pod_explained(pod, why, api)?;
            }
            if let Some(scheduler) = scheduler.filter(|_| waits_for_a_node(pod)) {
                self.explanations += 1;
                as_decided(pod, scheduler)?;
            }
        }
        Ok(())
    }

    /// How many explanations were compared.
    pub const fn explanations(&self) -> usize {
        self.explanations
    }

    /// Whether the condition `Active` of a queue is true.
    fn queue_explained(&mut self, name: &str, queue: &Value, active: bool) -> Result<(), Violation> {
        let says = list(queue, &["status", "conditions"]).iter().find(|c| c["type"] == "Active");
        let Some(says) = says.filter(|_| !deleting(queue)) else { return Ok(()) };
        self.explanations += 1;
        if (says["status"] == "True") == active {
            return Ok(());
        }
        wrong(name, text(says, &["message"]), if active { "it is active" } else { "it is not active" })
    }

    fn workload_explained(
        &self,
        workload: &Value,
        why: &Value,
        api: &Api,
        now: Time,
    ) -> Result<(), Violation> {
        let (name, says) = (name_of(workload), text(why, &["message"]));
        let wrong = |why: &str| wrong(&name.1, says, why);
        let own = text(workload, &["spec", "queueName"]);
        let local = api.get(Kind::LocalQueue, NAMESPACE, own);
        let queue = local.map_or("", |l| text(l, &["spec", "clusterQueue"]));
        match says {
            "The workload is deactivated" if workload["spec"]["active"] != false => {
                return wrong("it is active");
            }
            "workload namespace doesn't match ClusterQueue selector" if selects(api, queue) => {
                return wrong("the labels match");
            }
            _ => {}
        }
        for (kind, queue, there, active) in [
            ("LocalQueue", own, local.is_some(), local.is_some_and(|l| goes_on(l))),
            ("ClusterQueue", queue, exists(api, Kind::ClusterQueue, "", queue), is_active(api, queue)),
        ] {
            // Of another queue nothing is to be said.
            let about = says.strip_prefix(kind).and_then(|s| s.strip_prefix(' '));
            match about.and_then(|s| s.split_once(' ')) {
                Some((named, "doesn't exist" | "is inactive")) if named != queue => {
                    return wrong(&format!("its {kind} is {queue:?}"));
                }
                Some((_, "doesn't exist")) if there => return wrong("it is there"),
                Some((_, "is inactive")) if active => return wrong("it is active"),
                _ => {}
            }
        }
        self.dependency_explained(&name, workload, why)?;
        self.others_explained(&name, why, queue, api)?;
        let stopped = denied(workload, "Requeued").map_or("", |c| text(c, &["reason"]));
        let runs = local.is_some_and(|l| goes_on(l));
        let cluster = api.get(Kind::ClusterQueue, "", queue);
        if stopped == "LocalQueueStopped" && runs
            || stopped == "ClusterQueueStopped" && runs && cluster.is_some_and(|q| goes_on(q))
        {
            return wrong(&format!("it is not requeued: {stopped}"));
        }
        if let Some((window, _)) =
            says.strip_prefix("Run window ").and_then(|rest| rest.split_once(" is closed"))
        {
            let open = |at: Time| self.quotas.windows.get(window).is_some_and(|w| w.is_open(at));
            if open(now) && open(Time(now.0 - SETTLED.0)) {
                return wrong("it is open");
            }
        }
        self.quota_explained(&name, workload, says, queue, api)
    }

    fn dependency_explained(&self, name: &Name, workload: &Value, why: &Value) -> Result<(), Violation> {
        let wanted = text(workload, &["metadata", "annotations", DEPENDS_ON]);
        if text(why, &["reason"]) != "WaitingForDependencies" || wanted.contains(',') {
            return Ok(());
        }
        let says = text(why, &["message"]);
        if wanted.is_empty() {
            return wrong(&name.1, says, "it depends on nothing");
        }
        if self.dependencies.is_met(wanted) {
            return wrong(&name.1, says, "that has happened");
        }
        let missing = says.ends_with("which no workload in the namespace answers to");
        if missing && self.dependencies.is_there(wanted) {
            return wrong(&name.1, says, "it is there");
        }
        Ok(())
    }

    /// Whether others are there that a workload is said to wait for. Where the order is strict, only heads are told.
    fn others_explained(&self, name: &Name, why: &Value, queue: &str, api: &Api) -> Result<(), Violation> {
        if is_strict(api, queue) {
            return Ok(());
        }
        let says = text(why, &["message"]);
        let mut others = api.all(Kind::Workload).filter(|w| !is_true(w, "Finished"));
        let waits = match text(why, &["reason"]) {
            "WaitingForPreemptedWorkloads" => {
                others.any(|w| is_true(w, "Evicted") && w["status"]["admission"].is_object())
            }
            "WaitingForPodsReady" => others.any(|w| is_true(w, "Admitted") && !is_true(w, "PodsReady")),
            _ => true,
        };
        if waits { Ok(()) } else { wrong(&name.1, says, "there is none to wait for") }
    }

    /// Whether quota that is said to be used is: not where heads wait for those before them, not behind a head that loses its
    /// quota in each cycle to what another ClusterQueue's head reserves, not for slices, which need the difference only, and
    /// not where another workload asks for the same: of such only one is told when the reason changes.
    fn quota_explained(
        &self,
        name: &Name,
        workload: &Value,
        says: &str,
        queue: &str,
        api: &Api,
    ) -> Result<(), Violation> {
        let sliced = self.held.get(name).is_none_or(|h| !h.slice.is_empty());
        let strict = is_strict(api, queue);
        let queue_of = |w: &Value| {
            let local = api.get(Kind::LocalQueue, NAMESPACE, text(w, &["spec", "queueName"]));
            local.map_or("", |l| text(l, &["spec", "clusterQueue"])).to_owned()
        };
        let asks = |w: &Value| {
            let podset = list(w, &["spec", "podSets"]).first().cloned().unwrap_or_default();
            (podset["count"].clone(), podset["minCount"].clone(), podset["topologyRequest"].clone(), size(w))
        };
        let mut others = api.all(Kind::Workload).filter(|w| name_of(w) != *name);
        let twin = others.any(|w| {
            denied(w, "QuotaReserved").is_some_and(|why| {
                let first = text(why, &["message"]).starts_with("Workload no longer fits");
                queue_of(w) == queue && (first || asks(w) == asks(workload))
            })
        });
        if sliced || strict || twin || self.blocks || !self.quotas.windows.is_empty() {
            return Ok(());
        }
        let ended = list(workload, &["status", "reclaimablePods"]).iter().any(|r| r["count"] != 0);
        let unused = (&self.usage, "insufficient unused quota for cpu in flavor ");
        let whole = (&Usage::default(), "insufficient quota for cpu in flavor ");
        for (usage, what) in [unused, whole] {
            for flavor in flavors(says, what).filter(|_| !ended) {
                if self.quotas.fits(usage, queue, flavor, size(workload)) {
                    return wrong(&name.1, says, &format!("{queue} has quota for it: {usage:?}"));
                }
            }
        }
        Ok(())
    }

    /// Whether no node takes a pod that is said to be unschedulable. Devices, and nodes that are kept for other pods, are not
    /// recounted.
    fn pod_explained(&self, pod: &Value, why: &Value, api: &Api) -> Result<(), Violation> {
        let (name, says) = (name_of(pod).1, text(why, &["message"]));
        if !text(pod, &["spec", "nodeName"]).is_empty() {
            return wrong(&name, says, "it has a node");
        }
        let gated = !list(pod, &["spec", "schedulingGates"]).is_empty();
        if deleting(pod) || gated || self.joint || pod["spec"]["resourceClaims"].is_array() {
            return Ok(());
        }
        // Beside pods of at least this priority.
        let takes = |node: &Value, least: i64| {
            let node_name = name_of(node).1;
            let wanted = pod["spec"]["nodeSelector"].as_object().into_iter().flatten();
            let on_node = |p: &Value| text(p, &["spec", "nodeName"]) == node_name && !has_ended(p);
            let stays = |p: &Value| on_node(p) && priority(p) >= least;
            let used: i64 = api.all(Kind::Pod).filter(|p| stays(p)).map(|p| pod_size(p)).sum();
            let cpus = text(node, &["status", "allocatable", "cpu"]).parse::<i64>().unwrap_or(0);
            let kept = |p: &Value| text(p, &["status", "nominatedNodeName"]) == node_name;
            is_true(node, "Ready")
                && !deleting(node)
                && list(node, &["spec", "taints"]).is_empty()
                && node["spec"]["unschedulable"] != true
                && wanted.clone().all(|(k, v)| node["metadata"]["labels"][k.as_str()] == *v)
                && used + pod_size(pod) <= cpus
                && !refuses(&name, &node_name)
                && !api.all(Kind::Pod).any(|p| kept(p))
        };
        if let Some(node) = api.all(Kind::Node).find(|node| takes(node, i64::MIN)) {
            return wrong(&name, says, &format!("{} takes it", name_of(node).1));
        }
        // Preemption for pods of workloads has rules of its own, and extenders have a say in it.
        let queued = pod["metadata"]["labels"]["kueue.x-k8s.io/queue-name"].is_string();
        let mine = priority(pod);
        match api.all(Kind::Node).find(|node| !queued && !self.extended && takes(node, mine)) {
            Some(node) => {
                wrong(&name, says, &format!("{} takes it once less important pods are gone", name_of(node).1))
            }
            None => Ok(()),
        }
    }
}

/// Whether the heads of a ClusterQueue keep those behind them waiting.
fn is_strict(api: &Api, queue: &str) -> bool {
    let spec = api.get(Kind::ClusterQueue, "", queue);
    spec.is_none_or(|q| q["spec"]["queueingStrategy"] == "StrictFIFO")
}
