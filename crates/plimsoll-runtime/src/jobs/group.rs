//! Pod groups: pods with the same group name make one Workload, admitted whole (Kueue KEP-976, spec section 4.5).

use std::sync::Arc;

use plimsoll_state::Time;
use serde_json::{Value, json};

use super::pod::{ended, gated, podset_of, ready, release, stop_reason, suspended, terminate, ungate};
use super::{Env, Found, Integration, Write, names, note, patch, podset, workload};
use crate::api::{PODS, Resource, WORKLOADS};
use crate::cache::{Kind, group_of};
use crate::{clock, json};

/// Most roles of a group (Kueue MaxPodSets).
const MAX_ROLES: usize = 18;

/// A group, sorted out against its workload.
#[derive(Debug)]
pub struct Group {
    name: String,
    /// Every pod of the group.
    all: Vec<Arc<Value>>,
    /// The pods that count: without those that are replaced or too many.
    kept: Vec<Arc<Value>>,
    /// Live pods beyond what the workload has room for.
    excess: Vec<Arc<Value>>,
    /// Ended pods that others have replaced.
    replaced: Vec<Arc<Value>>,
    /// How many pods of the workload have no live pod.
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
    clock::parse(json::text(pod, &["metadata", "creationTimestamp"])).unwrap_or_default()
}

/// When a dead pod was last alive: when it failed, or when deletion was asked for.
fn last_active(pod: &Value, now: Time) -> Time {
    let failed = json::condition(pod, "ContainersReady")
        .filter(|c| c["status"] == "False" && c["reason"] == "PodFailed")
        .and_then(|c| clock::parse(json::text(c, &["lastTransitionTime"])))
        .unwrap_or(now);
    let deleted = clock::parse(json::text(pod, &["metadata", "deletionTimestamp"])).unwrap_or(now);
    failed.min(deleted)
}

/// Pods to keep come first: with finalizer, ungated, older.
fn sort_live(pods: &mut [Arc<Value>]) {
    pods.sort_by_key(|p| {
        (!json::has_finalizer(p, names::MANAGED), gated(p), created(p), json::name(p).to_owned())
    });
}

/// Dead pods to keep come first: with finalizer, alive most recently, older.
fn sort_dead(pods: &mut [Arc<Value>], now: Time) {
    pods.sort_by_key(|p| {
        let dead_since = std::cmp::Reverse(last_active(p, now));
        (!json::has_finalizer(p, names::MANAGED), dead_since, created(p), json::name(p).to_owned())
    });
}

impl Group {
    /// Loads a group; `None` when it has no pods.
    pub fn load(namespace: &str, name: &str, env: Env<'_>) -> Option<Self> {
        let mut all = env.cache.group(namespace, name);
        all.retain(|p| json::label(p, names::MANAGED) == "true");
        if all.is_empty() {
            return None;
        }
        let workload = env.cache.get(Kind::Workload, namespace, name);
        let mut group = Self {
            name: name.to_owned(),
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

    /// Splits the pods by role and compares with the workload's counts.
    fn sort_out(&mut self, now: Time) {
        let Some(workload) = self.workload.clone().filter(|w| is_ours(w)) else { return };
        self.kept.clear();
        for podset in json::list(&workload, &["spec", "podSets"]) {
            let wanted = usize::try_from(podset["count"].as_i64().unwrap_or(1)).unwrap_or(0);
            let mine = |p: &&Arc<Value>| podset["name"] == role(p).as_str();
            let (mut alive, mut dead): (Vec<_>, Vec<_>) =
                self.all.iter().filter(mine).cloned().partition(|p| live(p));
            self.absent += i64::try_from(wanted.saturating_sub(alive.len())).unwrap_or(0);
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

    fn first(&self) -> &Value {
        self.kept.first().or_else(|| self.all.first()).map_or(&Value::Null, |p| p)
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
    fn remove_excess(pods: &[Arc<Value>]) -> Vec<Write> {
        let mut writes = Vec::new();
        for pod in pods {
            writes.extend(release(pod));
            if !json::deleting(pod) {
                writes.push(Write::Delete {
                    resource: PODS,
                    namespace: json::namespace(pod).into(),
                    name: json::name(pod).into(),
                    uid: json::uid(pod).into(),
                });
                writes.push(note(PODS, pod, false, "ExcessPodDeleted", "Excess pod deleted"));
            }
        }
        writes
    }

    /// Why the live pods can't make a workload; empty: they can.
    fn inconsistent(&self, alive: &[Arc<Value>], total: i64) -> Option<String> {
        let first = self.first();
        let (name, queue) = (json::name(first), json::label(first, names::QUEUE));
        let fast = json::annotation(first, names::GROUP_FAST) == Some("true");
        if !fast && i64::try_from(alive.len()).unwrap_or(i64::MAX) < total {
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

/// Only a workload made for a group may be taken as one; otherwise a group's name could take over any workload.
fn is_ours(wl: &Value) -> bool {
    json::annotation(wl, names::IS_GROUP) == Some("true")
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

impl Integration for Group {
    fn object(&self) -> &Value {
        self.first()
    }

    fn resource(&self) -> Resource {
        PODS
    }

    fn objects(&self) -> Vec<&Value> {
        self.kept.iter().map(|p| &**p).collect()
    }

    fn is_suspended(&self) -> bool {
        self.kept.iter().any(|p| suspended(p))
    }

    fn is_active(&self) -> bool {
        self.all.iter().any(|p| {
            json::text(p, &["status", "phase"]) == "Running"
                || json::deleting(p) && !suspended(p) && !json::text(p, &["spec", "nodeName"]).is_empty()
        })
    }

    fn finished(&self) -> Option<(String, bool)> {
        let total = self.total()?;
        if json::annotation(self.first(), names::GROUP_SERVING) == Some("true") {
            return None;
        }
        let succeeded =
            self.kept.iter().filter(|p| json::text(p, &["status", "phase"]) == "Succeeded").count();
        let succeeded = i64::try_from(succeeded).unwrap_or(i64::MAX);
        let active = self.kept.iter().any(|p| !ended(p));
        if succeeded == total || !active && !self.retriable() {
            return Some((format!("Pods succeeded: {succeeded}/{total}."), true));
        }
        None
    }

    fn pods_ready(&self) -> bool {
        self.absent == 0 && self.kept.iter().all(|p| ready(p))
    }

    fn reclaimable(&self) -> Option<Vec<(String, i64)>> {
        let mut out: Vec<(String, i64)> = Vec::new();
        if json::annotation(self.first(), names::GROUP_SERVING) == Some("true") {
            return Some(out);
        }
        for pod in self.kept.iter().filter(|p| json::text(p, &["status", "phase"]) == "Succeeded") {
            let role = role(pod);
            match out.iter_mut().find(|(name, _)| *name == role) {
                Some((_, count)) => *count += 1,
                None => out.push((role, 1)),
            }
        }
        Some(out)
    }

    fn find(&self, _env: Env<'_>) -> Found {
        let Some(wl) = self.workload.clone() else { return Found::default() };
        if !is_ours(&wl) {
            let text = format!(
                "Workload {}/{} is not owned by the pod group",
                json::namespace(&wl),
                json::name(&wl)
            );
            let writes = vec![note(PODS, self.first(), true, "WorkloadNameConflict", &text)];
            return Found { writes, ..Found::default() };
        }
        if self.kept.is_empty() || !self.equivalent(&wl) {
            return Found { extra: vec![wl], ..Found::default() };
        }
        let mut writes = Vec::new();
        let mut owners = json::list(&wl, &["metadata", "ownerReferences"]).to_vec();
        let before = owners.len();
        for pod in &self.kept {
            if !owners.iter().any(|o| o["uid"] == json::uid(pod)) {
                owners.push(workload::owner("v1", "Pod", pod, false));
            }
        }
        if owners.len() > before {
            let mut new = (*wl).clone();
            let added = owners.len() - before;
            json::set(&mut new, &["metadata", "ownerReferences"], Value::Array(owners));
            writes.extend(patch(WORKLOADS, &wl, &new));
            writes.push(note(
                WORKLOADS,
                &wl,
                false,
                "OwnerReferencesAdded",
                &format!("Added {added} owner reference(s)"),
            ));
        }
        writes.extend(Self::remove_excess(&self.excess));
        writes.extend(self.replaced.iter().filter_map(|p| release(p)));
        Found { matching: Some(wl), extra: Vec::new(), writes }
    }

    fn compose(&self, env: Env<'_>) -> Result<(Vec<Write>, Value), Vec<Write>> {
        let (mut alive, dead): (Vec<_>, Vec<_>) = self.all.iter().cloned().partition(|p| live(p));
        let mut writes: Vec<Write> = dead.iter().filter_map(|p| release(p)).collect();
        let fail = |mut writes: Vec<Write>, text: &str| {
            writes.push(note(PODS, self.first(), true, "ErrWorkloadCompose", text));
            Err(writes)
        };
        let Some(total) = self.total() else {
            return fail(writes, &format!("failed to extract '{}' annotation", names::GROUP_COUNT));
        };
        if let Some(text) = self.inconsistent(&alive, total) {
            return fail(writes, &text);
        }
        let size = usize::try_from(total).unwrap_or(usize::MAX);
        if alive.len() > size {
            sort_live(&mut alive);
            writes.extend(Self::remove_excess(alive.get(size..).unwrap_or_default()));
            alive.truncate(size);
        }
        let mut podsets = roles(&alive);
        if json::annotation(self.first(), names::GROUP_FAST) == Some("true") {
            podsets.truncate(1);
            if let Some(only) = podsets.first_mut() {
                json::set(only, &["count"], json!(total));
            }
        }
        if podsets.len() > MAX_ROLES {
            return fail(writes, &format!("pod group can't include more than {MAX_ROLES} roles"));
        }
        if podsets.is_empty() {
            return Err(writes);
        }
        let mut wl = workload::base(self, &podsets, env);
        json::set(&mut wl, &["metadata", "name"], json!(self.name));
        json::set(&mut wl, &["metadata", "annotations", names::IS_GROUP], json!("true"));
        let owners = alive.iter().map(|p| workload::owner("v1", "Pod", p, false)).collect();
        json::set(&mut wl, &["metadata", "ownerReferences"], Value::Array(owners));
        let _ = env;
        Ok((writes, wl))
    }

    fn start(&self, infos: &[podset::Info], message: &str) -> Result<Vec<Write>, String> {
        let mut writes = Vec::new();
        for pod in self.kept.iter().filter(|p| gated(p)) {
            let role = role(pod);
            let Some(info) = infos.iter().find(|i| i.name == role) else {
                return Err(format!("invalid podset infos: podSetInfo with the name '{role}' is not found"));
            };
            writes.extend(ungate(pod, info, message)?);
        }
        Ok(writes)
    }

    fn stop(&self, workload: Option<&Value>, reason: &str, message: &str, now: Time) -> Vec<Write> {
        let reason = stop_reason(workload, reason);
        let mut writes: Vec<Write> =
            self.kept.iter().flat_map(|p| terminate(p, &reason, message, now)).collect();
        if reason == "WorkloadDeleted" {
            // Nobody else comes back for pods whose workload is gone.
            writes.extend(self.finalize());
        }
        writes
    }

    fn finalize(&self) -> Vec<Write> {
        self.all.iter().filter_map(|p| release(p)).collect()
    }

    fn custom_conditions(&self, wl: &Value, env: Env<'_>) -> Option<Vec<Value>> {
        const KIND: &str = "WaitingForReplacementPods";
        let old = json::condition(wl, KIND);
        if json::is_true(wl, "Finished") || old.is_none() && self.absent == 0 {
            return None;
        }
        if self.absent == 0 {
            if old.is_some_and(|o| o["status"] == "False") {
                return None;
            }
            return workload::with_condition(
                wl,
                KIND,
                false,
                "PodsReady",
                "No pods need replacement",
                env.now,
            );
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
        workload::with_condition(wl, KIND, true, reason, message, env.now)
    }
}

/// Name of the group of a pod, if it has one.
pub fn of(pod: &Value) -> Option<&str> {
    Some(group_of(pod)).filter(|g| !g.is_empty())
}
