//! Elastic jobs (Kueue KEP-77, `pkg/workloadslicing`): a running job may change its number of pods. Fewer pods shrink its
//! workload in place; more pods create a second workload, a *slice*, that replaces the first one when it is admitted. Pods
//! are created with a gate that is removed as far as the admitted slice allows.
//!
//! Running pods never exceed the charged quota: a workload shrinks when the surplus pods have ended (Kueue: at once), without
//! being charged for less in between (Kueue: for none of the pods that have not ended), the eviction of a slice while another one waits stops the job first (Kueue: finishes the slice and leaves its pods running),
//! and no pod is ungated for a slice that is not admitted.

mod partial;
mod reclaim;

use std::collections::BTreeMap;
use std::sync::Arc;

use plimsoll_api::json;
use plimsoll_api::kueue::reclaimed;
use plimsoll_api::resource::{PODS, WORKLOADS};
use serde_json::{Value, json};

use crate::generic_job::{GenericJob, Step};
use crate::plan::{Plan, Write, patch, patch_status, remove_finalizer};
use crate::pod_view::first_slice;
use crate::store::Kind;
use crate::{Env, names, pod_view, podset, priority_class, workload};

pub(crate) use partial::{set_first_floors, validate_strategy};
pub(crate) use reclaim::{end_kept_charge, keep_all_charged, reclaimable};

/// Annotations of admission checks that a pod gets when it is ungated, and that never change afterwards.
const ONCE: [&str; 2] =
    ["autoscaling.x-k8s.io/consume-provisioning-request", "autoscaling.x-k8s.io/provisioning-class-name"];

/// Why a slice is finished that its job does not need.
const OUT_OF_SYNC: (&str, &str) = ("OutOfSync", "The workload slice is out of sync with its parent job");

/// Whether a job has other numbers of pods than its workload.
pub(super) fn differs_in_size(job: &dyn GenericJob, wl: &Value) -> bool {
    counts(&job.pod_sets()) != counts_of(wl)
}

/// Whether the workload replaces another slice.
pub(super) fn is_replacement(wl: &Value) -> bool {
    !replaces(wl).is_empty()
}

fn replaces(wl: &Value) -> &str {
    json::annotation(wl, plimsoll_api::kueue::REPLACEMENT_FOR).unwrap_or_default()
}

fn key(wl: &Value) -> String {
    format!("{}/{}", json::namespace(wl), json::name(wl))
}

fn reserved(wl: &Value) -> bool {
    json::is_true(wl, "QuotaReserved")
}

fn evicted(wl: &Value) -> bool {
    json::is_true(wl, "Evicted")
}

/// Pods per podset.
fn counts(podsets: &[Value]) -> BTreeMap<&str, i64> {
    podsets.iter().map(|p| (json::text(p, &["name"]), p["count"].as_i64().unwrap_or(1))).collect()
}

fn counts_of(wl: &Value) -> BTreeMap<&str, i64> {
    counts(json::list(wl, &["spec", "podSets"]))
}

/// Pods per podset that a workload was admitted for, those that were given back before included: the requested number, or
/// less if the workload grew while its admission was being written.
fn granted(wl: &Value) -> BTreeMap<&str, i64> {
    let mut counts = counts_of(wl);
    let assigned = json::list(wl, &["status", "admission", "podSetAssignments"]).iter();
    for (name, given) in assigned.filter_map(|a| Some((json::text(a, &["name"]), a["count"].as_i64()?))) {
        if let Some(count) = counts.get_mut(name) {
            *count = given.saturating_add(reclaimed(wl, name)).min(*count);
        }
    }
    counts
}

/// Pods per podset that a workload may run: the admitted number, less what was given back since.
fn charged(wl: &Value) -> BTreeMap<&str, i64> {
    let mut counts = counts_of(wl);
    let assigned = json::list(wl, &["status", "admission", "podSetAssignments"]);
    for (name, count) in &mut counts {
        let given = assigned.iter().find(|a| a["name"] == *name).and_then(|a| a["count"].as_i64());
        *count = (*count - reclaimed(wl, name)).min(given.unwrap_or(i64::MAX));
    }
    counts
}

/// The job's workloads: unfinished ones, oldest first, and finished ones.
fn slices(job: &Value, env: Env<'_>) -> (Vec<Arc<Value>>, Vec<Arc<Value>>) {
    let mut all: Vec<Arc<Value>> = env.objects.owned_by(json::uid(job)).collect();
    let age =
        |w: &Value| (json::text(w, &["metadata", "creationTimestamp"]).to_owned(), json::uid(w).to_owned());
    all.sort_by_key(|w| age(w));
    all.into_iter().partition(|w| !json::is_true(w, "Finished"))
}

/// Whether another slice with quota has replaced this one; the engine finishes it. In another ClusterQueue (the LocalQueue was
/// created anew) that slice has quota of its own, and takes over none.
fn superseded(wl: &Value, all: &[Arc<Value>]) -> bool {
    let place = |w: &Value| json::text(w, &["status", "admission", "clusterQueue"]).to_owned();
    let (own, held) = (key(wl), place(wl));
    all.iter().any(|h| {
        let takes_over = held.is_empty() || place(h) == held;
        reserved(h) && replaces(h) == own && json::uid(h) != json::uid(wl) && takes_over
    })
}

/// The roles of several unfinished slices.
struct Choice {
    /// The slice that the job is compared with.
    selected: Arc<Value>,
    /// Another slice that keeps its quota while `selected` waits.
    retained: Option<Arc<Value>>,
    /// The others, which are finished with this reason and message.
    stale: Vec<(Arc<Value>, &'static str, &'static str)>,
}

/// Kueue's `normalizeActiveSlices`: one slice with quota, and at most one that waits to replace it.
fn choose(rest: &[Arc<Value>]) -> Option<Choice> {
    let fresh = || rest.iter().filter(|w| !evicted(w));
    let holder = fresh().rfind(|w| reserved(w));
    let waits = |of: &Value| fresh().rfind(|w| !reserved(w) && replaces(w) == key(of));
    let successor = holder.and_then(|h| waits(h));
    let selected = successor.or(holder).or_else(|| fresh().next_back()).or(rest.last())?;
    let same = |a: &Value, b: &Value| json::uid(a) == json::uid(b);
    let keep = |w: &Value| same(w, selected) || holder.is_some_and(|h| same(w, h));
    let stale = rest.iter().filter(|w| !keep(w)).map(|w| {
        let own = key(w);
        let replaced = fresh().any(|h| replaces(h) == own);
        let (reason, message) = if replaced {
            ("WorkloadSliceReplaced", "Replaced to accommodate a new workload slice")
        } else {
            OUT_OF_SYNC
        };
        (Arc::clone(w), reason, message)
    });
    Some(Choice {
        selected: Arc::clone(selected),
        retained: holder.filter(|h| !same(h, selected)).cloned(),
        stale: stale.collect(),
    })
}

/// Pods of the slices that may run, per podset: neither gated nor ended, terminating ones included.
fn running(namespace: &str, chain: &str, env: Env<'_>) -> BTreeMap<String, i64> {
    let mut out = BTreeMap::new();
    for pod in env.objects.pods_of_slice(namespace, chain) {
        if !gated(&pod) && !pod_view::ended(&pod) {
            *out.entry(json::label(&pod, names::PODSET).to_owned()).or_insert(0) += 1;
        }
    }
    out
}

/// Whether pods of an elastic job still run, terminating ones included.
pub(super) fn has_running_pods(wl: &Value, env: Env<'_>) -> bool {
    env.is_elastic(wl) && running(json::namespace(wl), first_slice(wl), env).values().any(|n| *n > 0)
}

fn gated(pod: &Value) -> bool {
    pod_view::has_gate(pod, names::ELASTIC_GATE)
}

/// Finds the slice that the job is compared with, or plans the writes that come first. `None`: job and slices differ in more
/// than numbers of pods, and the generic search applies.
pub(super) fn one_workload(job: &dyn GenericJob, env: Env<'_>) -> Option<Step> {
    let (live, over) = slices(job.object(), env);
    let Some(last) = live.last() else { return Some(without_live(job, &over, env)) };
    let done: Plan = over.iter().filter_map(|w| remove_finalizer(WORKLOADS, w, names::IN_USE)).collect();
    if !done.is_empty() {
        return Some(Step::Plan(done));
    }
    if let Some(finished) = job.finished() {
        let (reason, message) = (finished.reason(), &finished.message);
        let mut writes: Plan =
            live.iter().flat_map(|w| workload::finish(w, reason, message, env.now)).collect();
        writes.extend(job.finalize());
        return Some(Step::Plan(writes));
    }
    let run = running(json::namespace(last), first_slice(last), env);
    if let Some(leaving) = live.iter().find(|w| json::deleting(w)) {
        // It is released when no pod uses its quota.
        let writes = job.stop(Some(leaving), "WorkloadDeleted", "Workload is deleted", env.now);
        return if writes.is_empty() && run.values().all(|n| *n == 0) {
            Some(Step::Continue(Some(Arc::clone(leaving))))
        } else {
            Some(Step::Plan(writes))
        };
    }
    let rest: Vec<Arc<Value>> = live.iter().filter(|w| !superseded(w, &live)).cloned().collect();
    // Its pods use quota that it is losing.
    if let Some(leaving) = rest.iter().find(|w| evicted(w) && reserved(w)) {
        return Some(Step::Continue(Some(Arc::clone(leaving))));
    }
    let unaccounted = !live.iter().any(|w| reserved(w)) && run.values().any(|n| *n > 0);
    if !job.is_suspended() && (unaccounted || !started(job, first_slice(last))) {
        let writes = job.stop(Some(last), "NotAdmitted", "Not admitted by cluster queue", env.now);
        if !writes.is_empty() {
            return Some(Step::Plan(writes));
        }
    }
    let choice = choose(&rest)?;
    if !choice.stale.is_empty() {
        let finish =
            |(w, reason, message): &(Arc<Value>, &str, &str)| workload::finish(w, reason, message, env.now);
        return Some(Step::Plan(choice.stale.iter().flat_map(finish).collect()));
    }
    follow(job, &choice, &run, env)
}

/// Whether the templates of a job are those of a started one: with the gate and the name of the first slice.
fn started(job: &dyn GenericJob, first: &str) -> bool {
    job.pod_sets()
        .iter()
        .map(|podset| &podset["template"])
        .all(|template| json::annotation(template, names::SLICE) == Some(first) && gated(template))
}

/// All slices have finished: the reason of the last one says whether the job has, too.
fn without_live(job: &dyn GenericJob, over: &[Arc<Value>], env: Env<'_>) -> Step {
    let Some((last, earlier)) = over.split_last() else { return Step::Continue(None) };
    let done: Plan = earlier.iter().filter_map(|w| remove_finalizer(WORKLOADS, w, names::IN_USE)).collect();
    if !done.is_empty() {
        return Step::Plan(done);
    }
    let finished = json::condition(last, "Finished").map_or("", |c| json::text(c, &["reason"]));
    let goes_on = ["WorkloadSliceReplaced", "OutOfSync"].contains(&finished) && job.finished().is_none();
    if !goes_on {
        return Step::Continue(Some(Arc::clone(last)));
    }
    let run = running(json::namespace(last), first_slice(last), env);
    if !job.is_suspended() && run.values().any(|n| *n > 0) {
        return Step::Plan(job.stop(
            None,
            "NoMatchingWorkload",
            "Missing Workload; unable to restore pod templates",
            env.now,
        ));
    }
    Step::Continue(None)
}

/// Whether a job that asks for so many pods needs more than a slice allows, those not counted that have ended.
fn grows(job: &dyn GenericJob, asked: &BTreeMap<&str, i64>, slice: &Value) -> bool {
    let has = reclaim::allowed(job, slice);
    let needed = |name: &str, n: i64| n - reclaim::ended(job, name);
    asked.iter().any(|(name, n)| needed(name, *n) > has.get(name).copied().unwrap_or(0))
}

/// Resizes the selected slice to the number of pods that the job requests, or asks for a new slice.
fn follow(job: &dyn GenericJob, choice: &Choice, run: &BTreeMap<String, i64>, env: Env<'_>) -> Option<Step> {
    let Choice { selected, retained, .. } = choice;
    let wanted = job.construct_workload(env).ok()?.object;
    let mine = json::list(&wanted, &["spec", "podSets"]);
    let declared = json::list(selected, &["spec", "podSets"]);
    if !same_shape(mine, declared, !job.is_suspended() || reserved(selected)) {
        let simple = job.is_suspended() && !reserved(selected) && retained.is_none();
        return simple.then(|| Step::Update(Arc::clone(selected)));
    }
    if let Some(other) = retained
        && let Some(writes) = sync_retained(job, other, env)
    {
        return Some(Step::Plan(writes));
    }
    let asked = counts(mine);
    let runs = |name: &str| run.get(name).copied().unwrap_or(0);
    if !reserved(selected) && retained.as_ref().is_some_and(|other| !grows(job, &asked, other)) {
        // It asks for nothing any more, and could wait behind a workload that needs what the other slice gives back.
        return Some(Step::Plan(workload::finish(selected, OUT_OF_SYNC.0, OUT_OF_SYNC.1, env.now)));
    }
    if reserved(selected) {
        if grows(job, &asked, selected) {
            // The reconcile creates a new slice. Quota that was given back takes one, too.
            return Some(Step::Continue(None));
        }
        if let Some(writes) = reclaim::shrink(job, selected, &asked, run, env) {
            return Some(Step::Plan(writes));
        }
    } else if counts_of(selected) != asked && asked.iter().all(|(name, n)| runs(name) <= *n) {
        if let Some(write) = reclaim::give_back_less(job, selected) {
            return Some(Step::Plan(vec![write]));
        }
        let mut new = (**selected).clone();
        let mut podsets = resized(declared, &asked);
        partial::lower_floors(job, selected, &mut podsets, env);
        json::set(&mut new, &["spec", "podSets"], Value::Array(podsets));
        return Some(Step::Plan(patch(WORKLOADS, selected, &new).into_iter().collect()));
    }
    // A slice with quota may start already, with the pods that it was admitted for.
    let starts = retained.as_ref().filter(|r| job.is_suspended() && json::is_true(r, "Admitted"));
    Some(Step::Continue(Some(Arc::clone(starts.unwrap_or(selected)))))
}

fn resized(podsets: &[Value], counts: &BTreeMap<&str, i64>) -> Vec<Value> {
    let mut podsets = podsets.to_vec();
    for podset in &mut podsets {
        if let Some(n) = counts.get(json::text(podset, &["name"])) {
            json::set(podset, &["count"], json!(n));
        }
    }
    podsets
}

/// Whether two lists of podsets differ in numbers of pods only.
fn same_shape(a: &[Value], b: &[Value], ignore_tolerations: bool) -> bool {
    let names = |list: &[Value]| list.iter().map(|p| p["name"].clone()).collect::<Vec<_>>();
    let counts = counts(b);
    let sized = |list| partial::without_floors(resized(list, &counts));
    names(a) == names(b) && podset::equivalent(&sized(a), &sized(b), ignore_tolerations)
}

/// Updates the priority of the slice that keeps its quota, and its condition `PodsReady`.
fn sync_retained(job: &dyn GenericJob, wl: &Value, env: Env<'_>) -> Option<Plan> {
    match priority_class::update(job, wl, env) {
        Ok(plan) if plan.is_empty() => {}
        Ok(plan) => return Some(plan),
        Err(why) => return Some(priority_class::missing(job.resource(), job.object(), why.as_deref())),
    }
    if !env.config.wait_for_pods_ready || !json::is_true(wl, "Admitted") {
        return None;
    }
    let ready = job.has_ready_pods(granted(wl).values().sum());
    let conditions = workload::pods_ready(wl, ready, env.now)?;
    Some(vec![patch_status(WORKLOADS, wl, &json!({ "conditions": conditions }))])
}

/// Turns a new workload into a slice of its job. Returns false when the slices are not ready for a new one.
pub(super) fn prepare(job: &dyn GenericJob, wl: &mut Value, env: Env<'_>) -> bool {
    let object = job.object();
    let (live, _) = slices(object, env);
    let rest: Vec<&Arc<Value>> = live.iter().filter(|w| !superseded(w, &live)).collect();
    let old = if let [old] = rest.as_slice() { Some(&***old) } else { None };
    json::set(wl, &["metadata", "name"], json!(name(job, old, env)));
    json::set(wl, &["metadata", "annotations", names::ELASTIC], json!("true"));
    match rest.as_slice() {
        [] => {
            set_first_floors(job, wl, env);
            let own = json::name(wl).to_owned();
            json::set(wl, &["metadata", "annotations", names::SLICE], json!(own));
        }
        [old] => {
            // The template of the running job has what its admission added; the old slice has the original.
            let podsets = json::list(wl, &["spec", "podSets"]).to_vec();
            let mut podsets = resized(json::list(old, &["spec", "podSets"]), &counts(&podsets));
            partial::set_floors(job, old, &mut podsets, env);
            for podset in &mut podsets {
                // Kueue's has it from the template of the running job.
                let path = ["template", "metadata", "annotations", names::SLICE];
                json::set(podset, &path, json!(first_slice(old)));
            }
            json::set(wl, &["spec", "podSets"], Value::Array(podsets));
            json::set(wl, &["metadata", "annotations", names::SLICE], json!(first_slice(old)));
            json::set(
                wl,
                &["metadata", "annotations", plimsoll_api::kueue::REPLACEMENT_FOR],
                json!(key(old)),
            );
            // The job runs already: its dependencies are met.
            json::remove(wl, &["metadata", "annotations", plimsoll_api::kueue::DEPENDS_ON]);
        }
        _ => return false,
    }
    true
}

/// Name of a new slice: the job's generation is part of the hash, or what the slice before has got in part, and a suffix where
/// an earlier slice has the name.
fn name(job: &dyn GenericJob, old: Option<&Value>, env: Env<'_>) -> String {
    let (object, resource) = (job.object(), job.resource());
    let generation = old.and_then(|old| partial::name_part(job, old, env)).unwrap_or(job.slice_generation());
    let named = |extra: &str| {
        let (kind, group) = (resource.kind, resource.group());
        env.config.workload_names.with(kind, group, json::name(object), json::uid(object), extra)
    };
    let taken = |name: &str| env.objects.get(Kind::Workload, json::namespace(object), name).is_some();
    let first = named(&generation);
    if !taken(&first) {
        return first;
    }
    (1..100).map(|n| named(&format!("{generation}-{n}"))).find(|n| !taken(n)).unwrap_or(first)
}

/// Ungates as many pods as the admitted slice and the job allow, by name (Kueue `elastic_job_ungater.go`). Nothing where the
/// job is not elastic.
pub fn ungate(job: &dyn GenericJob, env: Env<'_>) -> Plan {
    if !env.is_elastic(job.object()) {
        return Plan::new();
    }
    let (live, _) = slices(job.object(), env);
    let active = live.iter().rfind(|w| reserved(w) && !evicted(w) && !json::deleting(w));
    let Some(active) = active.filter(|w| json::is_true(w, "Admitted")) else { return Vec::new() };
    let podsets = job.pod_sets();
    let wanted = counts(&podsets);
    let allowed = |(name, n): (&str, i64)| (name.to_owned(), n.min(wanted.get(name).copied().unwrap_or(0)));
    let mut room: BTreeMap<String, i64> = partial::asked_for(active, env).into_iter().map(allowed).collect();
    let pods = env.objects.pods_of_slice(json::namespace(active), first_slice(active));
    for (name, n) in running(json::namespace(active), first_slice(active), env) {
        *room.entry(name).or_insert(0) -= n;
    }
    let mut writes = Vec::new();
    for pod in pods.iter().filter(|p| gated(p) && !pod_view::ended(p) && !json::deleting(p)) {
        let podset = json::label(pod, names::PODSET);
        let Some(left) = room.get_mut(podset).filter(|n| **n > 0) else { continue };
        if let Some(write) = refreshed(pod, active, podset) {
            *left -= 1;
            writes.push(write);
        }
    }
    writes
}

/// A patch that removes the gate and sets what admission checks currently add to the podset; `None` where the pod has other
/// values.
fn refreshed(pod: &Value, wl: &Value, podset: &str) -> Option<Write> {
    let mut new = pod.clone();
    let gates = json::list(pod, &["spec", "schedulingGates"]);
    let left: Vec<Value> = gates.iter().filter(|g| g["name"] != names::ELASTIC_GATE).cloned().collect();
    if left.is_empty() {
        json::remove(&mut new, &["spec", "schedulingGates"]);
    } else {
        json::set(&mut new, &["spec", "schedulingGates"], Value::Array(left));
    }
    let checks = json::list(wl, &["status", "admissionChecks"]).iter();
    for update in checks.flat_map(|c| json::list(c, &["podSetUpdates"])).filter(|u| u["name"] == podset) {
        let annotations = json::map(update, &["annotations"]).into_iter().flatten();
        let once = annotations
            .filter(|(k, _)| ONCE.contains(&k.as_str()))
            .map(|(k, v)| (["metadata", "annotations"], k, v));
        let selector = json::map(update, &["nodeSelector"]).into_iter().flatten();
        for (at, k, v) in once.chain(selector.map(|(k, v)| (["spec", "nodeSelector"], k, v))) {
            let present = &json::at(pod, &at)[k.as_str()];
            if !present.is_null() && present != v {
                return None;
            }
            json::set(&mut new, &[at[0], at[1], k.as_str()], v.clone());
        }
    }
    patch(PODS, pod, &new)
}

#[cfg(test)]
mod tests;
