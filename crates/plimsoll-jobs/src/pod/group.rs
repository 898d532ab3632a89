//! Pod groups: pods with the same group name make one Workload, admitted as a whole (Kueue KEP-976).

use std::sync::Arc;

use plimsoll_api::conditions::set_status_condition;
use plimsoll_api::event::EventRecord;
use plimsoll_api::kueue::QuotaReleaseStrategy;
use plimsoll_api::resource::{PODS, Resource, WORKLOADS};
use plimsoll_api::{json, timestamp};
use plimsoll_state::Time;
use serde_json::{Map, Value, json};

use super::{finalize, gated, podset_of, ready, stop_reason, suspended, terminate, ungate, uses_quota};
use crate::generic_job::{Finished, FoundWorkloads, GenericJob, NewWorkload, ReclaimablePod};
use crate::plan::{self, Plan, Write, event, patch};
use crate::pod_view::{Identifiers, ended};
use crate::podset::PodSetInfo;
use crate::store::Kind;
use crate::{Env, names, orphan, reconciler, serving, workload};

/// Most roles of a group (Kueue `jobframework.MaxPodSets`).
const MAX_ROLES: usize = 18;

/// A group, compared with its workload.
#[derive(Debug)]
pub struct Group {
    name: String,
    identifiers: Identifiers,
    /// Every pod of the group.
    all: Vec<Arc<Value>>,
    /// The pods that the workload stands for: without replaced and excess ones.
    kept: Vec<Arc<Value>>,
    /// Live pods beyond the workload's count.
    excess: Vec<Arc<Value>>,
    /// Ended pods that other pods have replaced.
    replaced: Vec<Arc<Value>>,
    /// Number of pods of the workload without a live pod.
    absent: i64,
    workload: Option<Arc<Value>>,
}

/// Role of a pod: the annotation that the webhook set, else computed.
fn role(pod: &Value) -> String {
    json::annotation(pod, names::ROLE_HASH)
        .map_or_else(|| plimsoll_api::kueue::role_hash(&pod["spec"]), str::to_owned)
}

/// Whether the pod runs, may run, or has succeeded.
fn live(pod: &Value) -> bool {
    if json::deleting(pod) && json::text(pod, &["spec", "nodeName"]).is_empty() {
        return false;
    }
    json::text(pod, &["status", "phase"]) != "Failed"
}

fn created(pod: &Value) -> Time {
    timestamp::parse(json::text(pod, &["metadata", "creationTimestamp"])).unwrap_or_default()
}

/// When an ended pod was last active: when it failed, or when it was deleted.
fn last_active(pod: &Value, now: Time) -> Time {
    let failed = json::condition(pod, "ContainersReady")
        .filter(|c| c["status"] == "False" && c["reason"] == "PodFailed")
        .and_then(|c| timestamp::parse(json::text(c, &["lastTransitionTime"])))
        .unwrap_or(now);
    let deleted = timestamp::parse(json::text(pod, &["metadata", "deletionTimestamp"])).unwrap_or(now);
    failed.min(deleted)
}

/// Pods to keep come first: with finalizer, ungated, older.
fn sort_live(pods: &mut [Arc<Value>]) {
    pods.sort_by_key(|p| {
        (!json::has_finalizer(p, names::MANAGED), gated(p), created(p), json::name(p).to_owned())
    });
}

/// Ended pods to keep come first: with finalizer, active most recently, older.
fn sort_dead(pods: &mut [Arc<Value>], now: Time) {
    pods.sort_by_key(|p| {
        let dead_since = std::cmp::Reverse(last_active(p, now));
        (!json::has_finalizer(p, names::MANAGED), dead_since, created(p), json::name(p).to_owned())
    });
}

impl Group {
    /// Loads a group; `None` when it has no pods.
    pub fn load(namespace: &str, name: &str, env: Env<'_>) -> Option<Self> {
        let mut all = env.objects.pods_of_group(namespace, name);
        all.retain(|p| json::label(p, names::MANAGED) == "true");
        if all.is_empty() {
            return None;
        }
        let workload = env.objects.get(Kind::Workload, namespace, name);
        let mut group = Self {
            name: name.to_owned(),
            identifiers: env.objects.identifiers(),
            kept: all.clone(),
            all,
            excess: Vec::new(),
            replaced: Vec::new(),
            absent: 0,
            workload,
        };
        group.sort_out(env.now);
        Some(group)
    }

    /// Splits the pods by role and compares them with the workload's counts.
    fn sort_out(&mut self, now: Time) {
        let Some(workload) = self.workload.clone().filter(|w| self.takes(w)) else { return };
        let fast = self.is_fast();
        self.kept.clear();
        for podset in json::list(&workload, &["spec", "podSets"]) {
            let wanted = usize::try_from(podset["count"].as_i64().unwrap_or(1)).unwrap_or(0);
            let mine = |p: &&Arc<Value>| podset["name"] == role(p).as_str();
            let (mut alive, mut dead): (Vec<_>, Vec<_>) =
                self.all.iter().filter(mine).cloned().partition(|p| live(p));
            // One that may be admitted before all its pods exist lacks only the first (Kueue `countAbsentPods`).
            let least = if fast { wanted.min(1) } else { wanted };
            self.absent += i64::try_from(least.saturating_sub(alive.len())).unwrap_or(0);
            let replaced = dead.len().min((dead.len() + alive.len()).saturating_sub(wanted));
            if alive.len() > wanted {
                sort_live(&mut alive);
                self.excess.extend(alive.drain(wanted..));
            }
            sort_dead(&mut dead, now);
            self.replaced.extend(dead.drain(dead.len() - replaced..));
            self.kept.extend(alive);
            self.kept.extend(dead);
        }
    }

    /// Whether the workload is this group's: created for a group, or prebuilt and named by the pods.
    fn takes(&self, wl: &Value) -> bool {
        is_ours(wl) || self.identifiers.prebuilt_of(self.first()) == json::name(wl)
    }

    fn first(&self) -> &Value {
        self.kept.first().or_else(|| self.all.first()).map_or(&Value::Null, |p| p)
    }

    fn is_fast(&self) -> bool {
        json::annotation(self.first(), names::GROUP_FAST) == Some("true")
    }

    fn total(&self) -> Option<i64> {
        json::annotation(self.first(), names::GROUP_COUNT)?.parse::<i64>().ok().filter(|n| *n > 0)
    }

    fn retriable(&self) -> bool {
        self.kept.iter().all(|p| json::annotation(p, names::RETRIABLE) != Some("false"))
    }

    fn equivalent(&self, wl: &Value) -> bool {
        let finished = json::is_true(wl, "Finished");
        let mine = roles(&self.kept);
        let theirs = json::list(wl, &["spec", "podSets"]);
        if !finished && theirs.len() < mine.len() {
            return false;
        }
        mine.iter().all(|p| {
            let count = theirs.iter().find(|t| t["name"] == p["name"]).and_then(|t| t["count"].as_i64());
            count.is_some_and(|c| finished || c >= p["count"].as_i64().unwrap_or(0))
        })
    }

    /// Deletes pods beyond the group's size.
    fn remove_excess(pods: &[Arc<Value>]) -> Plan {
        let mut plan = Vec::new();
        for pod in pods {
            plan.extend(finalize(pod));
            if !json::deleting(pod) {
                plan.push(plan::delete(PODS, pod));
                plan.push(event(PODS, pod, false, "ExcessPodDeleted", "Excess pod deleted"));
            }
        }
        plan
    }

    /// Why the live pods can't make a workload; `None`: they can.
    fn inconsistent(&self, alive: &[Arc<Value>], total: i64) -> Option<String> {
        let first = self.first();
        let (name, queue) = (json::name(first), json::label(first, names::QUEUE));
        if !self.is_fast() && i64::try_from(alive.len()).unwrap_or(i64::MAX) < total {
            return Some(format!("'{}' group has fewer runnable pods than expected", self.name));
        }
        for pod in self.all.iter().filter(|p| json::text(p, &["status", "phase"]) != "Failed") {
            let other = json::label(pod, names::QUEUE);
            if other != queue {
                let pods = format!("pods '{name}' and '{}'", json::name(pod));
                return Some(format!("{pods} has different queue names: {queue}!={other}"));
            }
            let count = json::annotation(pod, names::GROUP_COUNT).and_then(|c| c.parse::<i64>().ok());
            match count {
                Some(count) if count == total => {}
                Some(count) => {
                    let key = names::GROUP_COUNT;
                    let pods = format!("pods '{name}' and '{}'", json::name(pod));
                    return Some(format!("{pods} has different '{key}' values: {total}!={count}"));
                }
                None => {
                    let key = names::GROUP_COUNT;
                    return Some(format!(
                        "failed to extract '{key}' annotation from the pod '{}'",
                        json::name(pod)
                    ));
                }
            }
        }
        None
    }
}

/// Whether the workload was created for a group. Otherwise a group could take over any workload by its name.
fn is_ours(wl: &Value) -> bool {
    json::annotation(wl, names::IS_GROUP) == Some("true")
}

/// The labels or annotations (`which`) with these keys that any of the pods has; `None`: two pods have different values.
fn to_copy(pods: &[Arc<Value>], which: &str, keys: &[String]) -> Option<Map<String, Value>> {
    let mut copied = Map::new();
    for key in keys {
        for value in pods.iter().filter_map(|p| json::map(p, &["metadata", which])?.get(key)) {
            if copied.entry(key.clone()).or_insert_with(|| value.clone()) != value {
                return None;
            }
        }
    }
    Some(copied)
}

/// One podset per role, by name.
fn roles(pods: &[Arc<Value>]) -> Vec<Value> {
    let mut out: Vec<Value> = Vec::new();
    for pod in pods.iter().filter(|p| live(p)) {
        let role = role(pod);
        match out.iter_mut().find(|p| p["name"] == role.as_str()) {
            Some(podset) => {
                let count = podset["count"].as_i64().unwrap_or(0);
                json::set(podset, &["count"], json!(count + 1));
            }
            None => out.push(podset_of(pod, &role)),
        }
    }
    out.sort_by(|a, b| json::text(a, &["name"]).cmp(json::text(b, &["name"])));
    out
}

impl GenericJob for Group {
    fn object(&self) -> &Value {
        self.first()
    }

    fn resource(&self) -> Resource {
        PODS
    }

    fn members(&self) -> Vec<&Value> {
        self.kept.iter().map(|p| &**p).collect()
    }

    fn is_suspended(&self) -> bool {
        self.kept.iter().any(|p| suspended(p))
    }

    fn is_active(&self, release: QuotaReleaseStrategy) -> bool {
        self.all.iter().any(|p| uses_quota(p, release))
    }

    fn finished(&self) -> Option<Finished> {
        let total = self.total()?;
        if json::annotation(self.first(), names::GROUP_SERVING) == Some("true") {
            return None;
        }
        let succeeded =
            self.kept.iter().filter(|p| json::text(p, &["status", "phase"]) == "Succeeded").count();
        let succeeded = i64::try_from(succeeded).unwrap_or(i64::MAX);
        let active = self.kept.iter().any(|p| !ended(p));
        if succeeded == total || !active && !self.retriable() {
            let message = format!("Pods succeeded: {succeeded}/{total}.");
            return Some(Finished { message, success: true });
        }
        None
    }

    fn pods_ready(&self) -> bool {
        let exist = i64::try_from(self.kept.len()).unwrap_or(i64::MAX);
        self.total().is_some_and(|total| exist >= total)
            && self.absent == 0
            && self.kept.iter().all(|p| ready(p))
    }

    fn reclaimable_pods(&self) -> Option<Vec<ReclaimablePod>> {
        let mut out: Vec<ReclaimablePod> = Vec::new();
        if json::annotation(self.first(), names::GROUP_SERVING) == Some("true") {
            return Some(out);
        }
        for pod in self.kept.iter().filter(|p| json::text(p, &["status", "phase"]) == "Succeeded") {
            let role = role(pod);
            match out.iter_mut().find(|p| p.name == role) {
                Some(row) => row.count += 1,
                None => out.push(ReclaimablePod { name: role, count: 1 }),
            }
        }
        Some(out)
    }

    fn pod_sets(&self) -> Vec<Value> {
        roles(&self.kept)
    }

    /// Pods can't be suspended once they were ungated: [`Group::stop`] deletes them.
    fn suspend(&self, _pod: &mut Value) {}

    fn run_with_pod_sets_info(&self, pod: &mut Value, infos: &[PodSetInfo]) -> Result<(), String> {
        if !gated(pod) {
            return Ok(());
        }
        let role = role(pod);
        match infos.iter().find(|i| i.name == role) {
            Some(info) => ungate(pod, info),
            None => Err(format!("invalid podset infos: podSetInfo with the name '{role}' is not found")),
        }
    }

    /// Deleted pods have nothing to restore.
    fn restore_pod_sets_info(&self, _pod: &mut Value, _pod_sets: &[Value]) {}

    fn adopt(&self, wl: &Value) -> Plan {
        let mut owners = json::list(wl, &["metadata", "ownerReferences"]).to_vec();
        let before = owners.len();
        for pod in &self.kept {
            if !owners.iter().any(|o| o["uid"] == json::uid(pod)) {
                owners.push(workload::owner("v1", "Pod", pod, false));
            }
        }
        let added = owners.len() - before;
        if added == 0 {
            return Plan::new();
        }
        let mut new = wl.clone();
        json::set(&mut new, &["metadata", "ownerReferences"], Value::Array(owners));
        let mut plan: Plan = patch(WORKLOADS, wl, &new).into_iter().collect();
        let text = format!("Added {added} owner reference(s)");
        let record = plan::record(WORKLOADS, wl, false, "OwnerReferencesAdded", &text);
        let controller = plan::job_controller(PODS.api_version, PODS.kind);
        let told = EventRecord { reporting_controller: controller.into(), ..record };
        plan.push(Write::Event(Box::new(told)));
        plan
    }

    fn find_workloads(&self, _env: Env<'_>) -> FoundWorkloads {
        let Some(wl) = self.workload.clone() else { return FoundWorkloads::default() };
        if !self.takes(&wl) {
            let text = format!(
                "A Workload named {:?} already exists but is not a pod group workload; this pod group cannot be admitted",
                json::name(&wl)
            );
            let record = plan::record(PODS, self.first(), true, "WorkloadNameConflict", &text);
            let told = EventRecord { action: "Admission".to_owned(), ..record };
            let mut plan = vec![Write::Event(Box::new(told))];
            // No later reconcile lets go pods that are deleted.
            plan.extend(self.all.iter().filter(|p| !live(p)).filter_map(|p| finalize(p)));
            return FoundWorkloads { plan, ..FoundWorkloads::default() };
        }
        if self.kept.is_empty() || !self.equivalent(&wl) {
            return FoundWorkloads { to_delete: vec![wl], ..FoundWorkloads::default() };
        }
        let mut plan = self.adopt(&wl);
        plan.extend(Self::remove_excess(&self.excess));
        plan.extend(self.replaced.iter().filter_map(|p| finalize(p)));
        FoundWorkloads { matching: Some(wl), to_delete: Vec::new(), plan }
    }

    fn construct_workload(&self, env: Env<'_>) -> Result<NewWorkload, Plan> {
        let (mut alive, dead): (Vec<_>, Vec<_>) = self.all.iter().cloned().partition(|p| live(p));
        let mut plan: Plan = dead.iter().filter_map(|p| finalize(p)).collect();
        let fail = |mut plan: Plan, text: &str| {
            plan.push(event(PODS, self.first(), true, "ErrWorkloadCompose", text));
            Err(plan)
        };
        let Some(total) = self.total() else {
            return fail(plan, &format!("failed to extract '{}' annotation", names::GROUP_COUNT));
        };
        if let Some(text) = self.inconsistent(&alive, total) {
            return fail(plan, &text);
        }
        let size = usize::try_from(total).unwrap_or(usize::MAX);
        if alive.len() > size {
            sort_live(&mut alive);
            plan.extend(Self::remove_excess(alive.get(size..).unwrap_or_default()));
            alive.truncate(size);
        }
        let mut podsets = roles(&alive);
        if self.is_fast() {
            podsets.truncate(1);
            if let Some(only) = podsets.first_mut() {
                json::set(only, &["count"], json!(total));
            }
        }
        if podsets.len() > MAX_ROLES {
            return fail(plan, &format!("pod group can't include more than {MAX_ROLES} roles"));
        }
        if podsets.is_empty() {
            return Err(plan);
        }
        let Some(labels) = to_copy(&alive, "labels", &env.config.label_keys_to_copy) else {
            return fail(plan, "constructing workload: pods have different label values");
        };
        let annotation_keys = &env.config.annotation_keys_to_copy;
        let Some(annotations) = to_copy(&alive, "annotations", annotation_keys) else {
            return fail(plan, "constructing workload: pods have different annotation values");
        };
        let mut wl = workload::without_owner(self.first(), self.queue_name(), &podsets, env);
        if !labels.is_empty() {
            json::set(&mut wl, &["metadata", "labels"], Value::Object(labels));
        }
        json::set(&mut wl, &["metadata", "name"], json!(self.name));
        json::set(&mut wl, &["metadata", "annotations", names::IS_GROUP], json!("true"));
        for (key, value) in annotations {
            json::set(&mut wl, &["metadata", "annotations", &key], value);
        }
        let owners = alive.iter().map(|p| workload::owner("v1", "Pod", p, false)).collect();
        json::set(&mut wl, &["metadata", "ownerReferences"], Value::Array(owners));
        Ok(NewWorkload { plan, object: wl })
    }

    fn stop(&self, workload: Option<&Value>, reason: &str, message: &str, now: Time) -> Plan {
        let reason = stop_reason(workload, reason);
        let mut plan: Plan = self.kept.iter().flat_map(|p| terminate(p, &reason, message, now)).collect();
        if reason == "WorkloadDeleted" {
            // Without a workload no later reconcile removes the finalizers.
            plan.extend(self.finalize());
        }
        plan
    }

    fn finalize(&self) -> Plan {
        self.all.iter().filter_map(|p| finalize(p)).collect()
    }

    fn custom_workload_conditions(&self, wl: &Value, env: Env<'_>) -> Option<Vec<Value>> {
        const KIND: &str = "WaitingForReplacementPods";
        let old = json::condition(wl, KIND);
        if json::is_true(wl, "Finished") || old.is_none() && self.absent == 0 {
            return None;
        }
        if self.absent == 0 {
            if old.is_some_and(|o| o["status"] == "False") {
                return None;
            }
            return set_status_condition(wl, KIND, false, "PodsReady", "No pods need replacement", env.now);
        }
        let evicted = json::condition(wl, "Evicted").filter(|c| c["status"] == "True");
        let (reason, message) = match evicted {
            Some(e) => (json::text(e, &["reason"]), json::text(e, &["message"])),
            None if old.is_some_and(|o| o["status"] == "True") => return None,
            None => ("PodsFailed", "Some Failed pods need replacement"),
        };
        if old.is_some_and(|o| o["status"] == "True" && o["reason"] == reason && o["message"] == message) {
            return None;
        }
        set_status_condition(wl, KIND, true, reason, message, env.now)
    }
}

/// Name of the group of a pod, if it has one.
pub fn of(pod: &Value, identifiers: Identifiers) -> Option<&str> {
    Some(identifiers.group_of(pod)).filter(|g| !g.is_empty())
}

/// The writes for the group of this name.
pub(crate) fn reconcile(namespace: &str, name: &str, env: Env<'_>) -> Plan {
    match Group::load(namespace, name, env) {
        Some(group) => reconciler::reconcile(&group, env),
        None => {
            // A prebuilt workload may have no annotation; one with a controller is another job's.
            let ours = |w: &Arc<Value>| is_ours(w) || json::controller(w).is_none();
            let workload = env.objects.get(Kind::Workload, namespace, name).filter(ours);
            match workload.as_deref().filter(|w| serving::owner_lives(w, env)) {
                Some(wl) if json::deleting(wl) => {
                    plan::remove_finalizer(WORKLOADS, wl, names::IN_USE).into_iter().collect()
                }
                // Its owner makes pods for it.
                Some(_) => Plan::new(),
                None => orphan::finalize_ownerless(&workload.into_iter().collect::<Vec<_>>(), env),
            }
        }
    }
}
