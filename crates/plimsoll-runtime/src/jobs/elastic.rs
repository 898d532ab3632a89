//! Elastic jobs (Kueue KEP-77, spec section 2.13): a running job may change its number of pods. Fewer pods shrink its
//! workload in place; more pods make a second workload, a *slice*, that takes the place of the first once it is
//! admitted. Pods are born with a gate that is taken off as far as the admitted slice allows.
//!
//! What runs never exceeds what is charged: a workload shrinks only when the pods have gone (Kueue: at once), a slice
//! that is evicted while another waits stops the job first (Kueue: finishes it and lets its pods run), and no pod
//! is let go for a slice that is not admitted.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::{Value, json};

use super::reconcile::Step;
use super::{Env, Integration, Write, drop_finalizer, names, patch, podset, workload};
use crate::api::{PODS, WORKLOADS};
use crate::json;

/// Annotations of admission checks that a pod gets when its gate is taken off, and never again.
const ONCE: [&str; 2] =
    ["autoscaling.x-k8s.io/consume-provisioning-request", "autoscaling.x-k8s.io/provisioning-class-name"];

/// Whether the job, or the workload of one, is elastic.
pub fn enabled(object: &Value, env: Env<'_>) -> bool {
    env.cache.rules().elastic_jobs && json::annotation(object, names::ELASTIC) == Some("true")
}

/// Name of the first slice of the chain, by which pods know it.
pub fn chain(wl: &Value) -> &str {
    json::annotation(wl, names::SLICE).unwrap_or_else(|| json::name(wl))
}

/// Whether the workload takes the place of another slice.
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

/// Pods per podset that a workload stands for: what it asks for, or got if that is less, because it grew while its
/// admission was being written.
fn granted(wl: &Value) -> BTreeMap<&str, i64> {
    let mut counts = counts_of(wl);
    let assigned = json::list(wl, &["status", "admission", "podSetAssignments"]).iter();
    for (name, given) in assigned.filter_map(|a| Some((json::text(a, &["name"]), a["count"].as_i64()?))) {
        if let Some(count) = counts.get_mut(name) {
            *count = given.min(*count);
        }
    }
    counts
}

/// The job's workloads: unfinished ones, oldest first, and finished ones.
fn slices(job: &Value, env: Env<'_>) -> (Vec<Arc<Value>>, Vec<Arc<Value>>) {
    let mut all = env.cache.owned_by(json::uid(job));
    let age =
        |w: &Value| (json::text(w, &["metadata", "creationTimestamp"]).to_owned(), json::uid(w).to_owned());
    all.sort_by_key(|w| age(w));
    all.into_iter().partition(|w| !json::is_true(w, "Finished"))
}

/// Whether another slice has quota in its place; the engine finishes it.
fn superseded(wl: &Value, all: &[Arc<Value>]) -> bool {
    let own = key(wl);
    all.iter().any(|h| reserved(h) && replaces(h) == own && json::uid(h) != json::uid(wl))
}

/// Which of several slices counts.
struct Choice {
    /// The one the job is held against.
    selected: Arc<Value>,
    /// Another one that has quota while `selected` waits.
    retained: Option<Arc<Value>>,
    /// The others: they have no business any more.
    stale: Vec<(Arc<Value>, &'static str, &'static str)>,
}

/// Kueue's `normalizeActiveSlices`: one slice that has quota, and at most one that waits to take its place.
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
            ("OutOfSync", "The workload slice is out of sync with its parent job")
        };
        (Arc::clone(w), reason, message)
    });
    Some(Choice {
        selected: Arc::clone(selected),
        retained: holder.filter(|h| !same(h, selected)).cloned(),
        stale: stale.collect(),
    })
}

/// Pods of the chain that may run, per podset: not gated and not over, also those that are being deleted.
fn running(namespace: &str, chain: &str, env: Env<'_>) -> BTreeMap<String, i64> {
    let mut out = BTreeMap::new();
    for pod in env.cache.of_slice(namespace, chain) {
        if !gated(&pod) && !super::pod::ended(&pod) {
            *out.entry(json::label(&pod, names::PODSET).to_owned()).or_insert(0) += 1;
        }
    }
    out
}

/// Whether pods of an elastic job are left that run, also such as are being deleted.
pub(super) fn has_running_pods(wl: &Value, env: Env<'_>) -> bool {
    enabled(wl, env) && running(json::namespace(wl), chain(wl), env).values().any(|n| *n > 0)
}

fn gated(pod: &Value) -> bool {
    json::list(pod, &["spec", "schedulingGates"]).iter().any(|g| g["name"] == names::ELASTIC_GATE)
}

/// Finds the slice that counts, and what to write first to get there. `None`: the job and its slices differ in more
/// than numbers, and are treated like any other job.
pub(super) fn one_workload(job: &dyn Integration, env: Env<'_>) -> Option<Step> {
    let (live, over) = slices(job.object(), env);
    let Some(last) = live.last() else { return Some(without_live(job, &over, env)) };
    let done: Vec<Write> = over.iter().filter_map(|w| drop_finalizer(WORKLOADS, w, names::IN_USE)).collect();
    if !done.is_empty() {
        return Some(Step::Write(done));
    }
    if let Some((message, success)) = job.finished() {
        let reason = if success { "Succeeded" } else { "Failed" };
        let mut writes: Vec<Write> =
            live.iter().flat_map(|w| workload::finish(w, reason, &message, env.now)).collect();
        writes.extend(job.finalize());
        return Some(Step::Write(writes));
    }
    let run = running(json::namespace(last), chain(last), env);
    if let Some(leaving) = live.iter().find(|w| json::deleting(w)) {
        // It goes when nothing runs on its quota any more.
        let writes = job.stop(Some(leaving), "WorkloadDeleted", "Workload is deleted", env.now);
        return if writes.is_empty() && run.values().all(|n| *n == 0) {
            Some(Step::Go(Some(Arc::clone(leaving))))
        } else {
            Some(Step::Write(writes))
        };
    }
    let rest: Vec<Arc<Value>> = live.iter().filter(|w| !superseded(w, &live)).cloned().collect();
    // Its pods run on quota that it is losing.
    if let Some(leaving) = rest.iter().find(|w| evicted(w) && reserved(w)) {
        return Some(Step::Go(Some(Arc::clone(leaving))));
    }
    let template = &job.object()["spec"]["template"];
    let unaccounted = !live.iter().any(|w| reserved(w)) && run.values().any(|n| *n > 0);
    // As it was started: with the gate, for this chain of slices.
    let started = json::annotation(template, names::SLICE) == Some(chain(last))
        && json::list(template, &["spec", "schedulingGates"])
            .iter()
            .any(|g| g["name"] == names::ELASTIC_GATE);
    if !job.is_suspended() && (unaccounted || !started) {
        let writes = job.stop(Some(last), "NotAdmitted", "Not admitted by cluster queue", env.now);
        if !writes.is_empty() {
            return Some(Step::Write(writes));
        }
    }
    let choice = choose(&rest)?;
    if !choice.stale.is_empty() {
        let finish =
            |(w, reason, message): &(Arc<Value>, &str, &str)| workload::finish(w, reason, message, env.now);
        return Some(Step::Write(choice.stale.iter().flat_map(finish).collect()));
    }
    follow(job, &choice, &run, env)
}

/// Nothing unfinished: the last one says whether the job is over.
fn without_live(job: &dyn Integration, over: &[Arc<Value>], env: Env<'_>) -> Step {
    let Some((last, earlier)) = over.split_last() else { return Step::Go(None) };
    let done: Vec<Write> =
        earlier.iter().filter_map(|w| drop_finalizer(WORKLOADS, w, names::IN_USE)).collect();
    if !done.is_empty() {
        return Step::Write(done);
    }
    let finished = json::condition(last, "Finished").map_or("", |c| json::text(c, &["reason"]));
    let goes_on = ["WorkloadSliceReplaced", "OutOfSync"].contains(&finished) && job.finished().is_none();
    if !goes_on {
        return Step::Go(Some(Arc::clone(last)));
    }
    let run = running(json::namespace(last), chain(last), env);
    if !job.is_suspended() && run.values().any(|n| *n > 0) {
        return Step::Write(job.stop(
            None,
            "NoMatchingWorkload",
            "Missing Workload; unable to restore pod templates",
            env.now,
        ));
    }
    Step::Go(None)
}

/// Brings the slice that counts in line with the number of pods the job asks for.
fn follow(job: &dyn Integration, choice: &Choice, run: &BTreeMap<String, i64>, env: Env<'_>) -> Option<Step> {
    let Choice { selected, retained, .. } = choice;
    let (_, wanted) = job.compose(env).ok()?;
    let mine = json::list(&wanted, &["spec", "podSets"]);
    let declared = json::list(selected, &["spec", "podSets"]);
    if !same_shape(mine, declared, !job.is_suspended() || reserved(selected)) {
        let simple = job.is_suspended() && !reserved(selected) && retained.is_none();
        return simple.then(|| Step::Write(workload::update(job, selected, env)));
    }
    if let Some(other) = retained
        && let Some(writes) = sync_retained(job, other, env)
    {
        return Some(Step::Write(writes));
    }
    let (now, asked) = (granted(selected), counts(mine));
    if now != asked {
        let grows = now.iter().any(|(name, n)| asked.get(name).is_some_and(|a| a > n));
        if reserved(selected) && grows {
            // A new slice.
            return Some(Step::Go(None));
        }
        let runs = |name: &str| run.get(name).copied().unwrap_or(0);
        if asked.iter().all(|(name, n)| runs(name) <= *n) {
            let mut new = (**selected).clone();
            let podsets = resized(declared, &asked);
            json::set(&mut new, &["spec", "podSets"], Value::Array(podsets));
            return Some(Step::Write(patch(WORKLOADS, selected, &new).into_iter().collect()));
        }
    }
    // What has quota may start already, with as many pods as that is for.
    let starts = retained.as_ref().filter(|r| job.is_suspended() && json::is_true(r, "Admitted"));
    Some(Step::Go(Some(Arc::clone(starts.unwrap_or(selected)))))
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
    names(a) == names(b) && podset::equivalent(&resized(a, &counts(b)), b, ignore_tolerations)
}

/// Both slices keep the priority of the job, and the one that runs goes on to be supervised.
fn sync_retained(job: &dyn Integration, wl: &Value, env: Env<'_>) -> Option<Vec<Write>> {
    let mut new = wl.clone();
    super::reconcile::follow_priority(job, wl, &mut new, env);
    if let Some(write) = patch(WORKLOADS, wl, &new) {
        return Some(vec![write]);
    }
    if !env.supervised || !json::is_true(wl, "Admitted") {
        return None;
    }
    let of = |name: &str| json::int(job.object(), &["status", name]).unwrap_or(0);
    let ready = of("succeeded").saturating_add(of("ready")) >= counts_of(wl).values().sum();
    let conditions = workload::pods_ready(wl, ready, env.now)?;
    Some(vec![super::patch_status(WORKLOADS, wl, &json!({ "conditions": conditions }))])
}

/// Makes a new workload a slice of its job. `false`: not now.
pub(super) fn prepare(job: &dyn Integration, wl: &mut Value, env: Env<'_>) -> bool {
    let object = job.object();
    let (live, _) = slices(object, env);
    let rest: Vec<&Arc<Value>> = live.iter().filter(|w| !superseded(w, &live)).collect();
    json::set(wl, &["metadata", "name"], json!(name(job, env)));
    json::set(wl, &["metadata", "annotations", names::ELASTIC], json!("true"));
    match rest.as_slice() {
        [] => {
            let own = json::name(wl).to_owned();
            json::set(wl, &["metadata", "annotations", names::SLICE], json!(own));
        }
        [old] => {
            // The running job shows what its admission added; what it is restored to is in the old slice.
            let podsets = json::list(wl, &["spec", "podSets"]).to_vec();
            let podsets = resized(json::list(old, &["spec", "podSets"]), &counts(&podsets));
            json::set(wl, &["spec", "podSets"], Value::Array(podsets));
            json::set(wl, &["metadata", "annotations", names::SLICE], json!(chain(old)));
            json::set(
                wl,
                &["metadata", "annotations", plimsoll_api::kueue::REPLACEMENT_FOR],
                json!(key(old)),
            );
            // The job runs already: what it depended on has come true.
            json::remove(wl, &["metadata", "annotations", plimsoll_api::kueue::DEPENDS_ON]);
        }
        _ => return false,
    }
    true
}

/// The generation of the job makes the name of a slice its own; a slice of the same generation that has ended keeps its.
fn name(job: &dyn Integration, env: Env<'_>) -> String {
    let (object, resource) = (job.object(), job.resource());
    let generation = json::int(object, &["metadata", "generation"]).unwrap_or(0);
    let named = |extra: &str| {
        plimsoll_api::kueue::workload_name_with(
            resource.kind,
            resource.group(),
            json::name(object),
            json::uid(object),
            extra,
        )
    };
    let taken =
        |name: &str| env.cache.get(crate::cache::Kind::Workload, json::namespace(object), name).is_some();
    let first = named(&generation.to_string());
    if !taken(&first) {
        return first;
    }
    (1..100).map(|n| named(&format!("{generation}-{n}"))).find(|n| !taken(n)).unwrap_or(first)
}

/// Takes the gate off as many pods as the admitted slice and the job allow (Kueue's `ElasticJobUngater`), by name.
pub fn ungate(job: &Value, wanted: i64, env: Env<'_>) -> Vec<Write> {
    let (live, _) = slices(job, env);
    let active = live.iter().rfind(|w| reserved(w) && !evicted(w) && !json::deleting(w));
    let Some(active) = active.filter(|w| json::is_true(w, "Admitted")) else { return Vec::new() };
    // What is reclaimable is charged no more.
    let given_back = |podset: &str| {
        let all = json::list(active, &["status", "reclaimablePods"]).iter();
        all.filter(|r| r["name"] == podset).filter_map(|r| r["count"].as_i64()).sum::<i64>()
    };
    let allowed =
        granted(active).into_iter().map(|(name, n)| (name.to_owned(), (n - given_back(name)).min(wanted)));
    let mut room: BTreeMap<String, i64> = allowed.collect();
    let pods = env.cache.of_slice(json::namespace(active), chain(active));
    for (name, n) in running(json::namespace(active), chain(active), env) {
        *room.entry(name).or_insert(0) -= n;
    }
    let mut writes = Vec::new();
    for pod in pods.iter().filter(|p| gated(p) && !super::pod::ended(p) && !json::deleting(p)) {
        let podset = json::label(pod, names::PODSET);
        let Some(left) = room.get_mut(podset).filter(|n| **n > 0) else { continue };
        if let Some(write) = refreshed(pod, active, podset) {
            *left -= 1;
            writes.push(write);
        }
    }
    writes
}

/// The pod without its gate and with what admission checks say of its podset now; `None` where it has something else.
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
