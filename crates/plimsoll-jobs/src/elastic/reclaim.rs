//! Pods of an elastic job that have ended: their quota is released, and the slice shrinks around them.
//!
//! A slice with quota is charged what its podsets ask for, less its reclaimable pods. The former are in its spec and the latter
//! in its status, which are written one after the other, and a smaller slice has other reclaimable pods: so the spec is written
//! together with the number of pods that stay charged ([`keep_charge`]) until the status follows.

use std::collections::BTreeMap;

use plimsoll_api::json;
use plimsoll_api::kueue::{CHARGED_PODS, keep_charge, keeps_charge, reclaimed};
use plimsoll_api::resource::WORKLOADS;
use serde_json::{Value, json};

use super::{charged, counts, counts_of, partial, reserved, resized, running};
use crate::Env;
use crate::generic_job::{GenericJob, ReclaimablePod};
use crate::plan::{Plan, Write, patch, patch_status};
use crate::pod_view::first_slice;

/// How many pods of a podset of a job have ended and will not be replaced.
pub(super) fn ended(job: &dyn GenericJob, podset: &str) -> i64 {
    let rows = job.reclaimable_pods().unwrap_or_default();
    rows.iter().filter(|r| r.name == podset).map(|r| r.count).sum()
}

/// How many pods of a podset may run before the job takes another slice. What a job that MultiKueue dispatches runs is charged
/// on its worker: here the number that its slice asks for counts (Kueue `EnsureWorkloadSlices`), also where another client
/// admitted the slice for fewer.
pub(super) fn allowed<'a>(job: &dyn GenericJob, wl: &'a Value) -> BTreeMap<&'a str, i64> {
    if !Env::is_dispatched(job.object()) {
        return charged(wl);
    }
    counts_of(wl).into_iter().map(|(name, count)| (name, count - reclaimed(wl, name))).collect()
}

/// The writes that shrink a slice with quota to the number of pods that its job asks for; `None`: it is no larger, or pods run
/// that its job no longer asks for.
pub(super) fn shrink(
    job: &dyn GenericJob,
    wl: &Value,
    asked: &BTreeMap<&str, i64>,
    run: &BTreeMap<String, i64>,
    env: Env<'_>,
) -> Option<Plan> {
    let has = charged(wl);
    let (mut sizes, mut kept) = (BTreeMap::new(), BTreeMap::new());
    for (name, count) in counts_of(wl) {
        let Some(asked) = asked.get(name).copied().filter(|asked| *asked < count) else { continue };
        let left = (asked - ended(job, name)).min(has.get(name).copied().unwrap_or(0)).max(0);
        if run.get(name).copied().unwrap_or(0) > left {
            return None;
        }
        sizes.insert(name, asked);
        kept.insert(name, left);
    }
    if sizes.is_empty() {
        return None;
    }
    let mut new = wl.clone();
    let mut podsets = resized(json::list(wl, &["spec", "podSets"]), &sizes);
    partial::lower_floors(job, wl, &mut podsets, env);
    json::set(&mut new, &["spec", "podSets"], Value::Array(podsets));
    keep_charges(wl, &mut new, &kept);
    Some(patch(WORKLOADS, wl, &new).into_iter().collect())
}

/// Keeps at least these pods of podsets charged that have become smaller in `new`, and those of others that are kept already.
fn keep_charges(old: &Value, new: &mut Value, pods: &BTreeMap<&str, i64>) {
    let sizes = counts_of(old);
    let after: Vec<(&str, i64)> = {
        let smaller = counts_of(new);
        let kept = |(name, count): (&'_ str, i64)| match pods.get(name) {
            // With the reclaimable pods of the larger podset.
            Some(&pods) => (smaller.get(name).copied().unwrap_or(0) - row(old, name) < pods).then_some(pods),
            None => keeps_charge(old, name).then(|| count - reclaimed(old, name)),
        };
        sizes.iter().filter_map(|(&name, &count)| Some((name, kept((name, count))?))).collect()
    };
    keep_charge(new, after);
}

/// Keeps the charge of podsets of a slice that its manager has made smaller in `new`, as far as the smaller ones have so many
/// pods: where these run, pods that have ended are reclaimed again.
pub(crate) fn keep_all_charged(old: &Value, new: &mut Value) {
    let sizes: Vec<(String, i64)> =
        counts_of(new).into_iter().map(|(name, n)| (name.to_owned(), n)).collect();
    let (before, has) = (counts_of(old), charged(old));
    let smaller = sizes.iter().filter(|(name, count)| before.get(name.as_str()).is_some_and(|n| n > count));
    let kept = smaller.map(|(name, count)| {
        let name = name.as_str();
        (name, has.get(name).copied().unwrap_or(0).min(*count))
    });
    let kept: BTreeMap<&str, i64> = kept.collect();
    keep_charges(old, new, &kept);
}

/// The number in `status.reclaimablePods`.
fn row(wl: &Value, podset: &str) -> i64 {
    let rows = json::list(wl, &["status", "reclaimablePods"]).iter();
    rows.filter(|r| r["name"] == podset).filter_map(|r| r["count"].as_i64()).sum()
}

/// The reclaimable pods of a workload. Of a slice with quota that has fewer pods than its job asks for, as many fewer: what is
/// charged stays what its pods that have not ended need, and never becomes more, because what was given back is another's.
/// Growth takes a new slice.
pub(crate) fn reclaimable(job: &dyn GenericJob, wl: &Value, env: Env<'_>) -> Option<Vec<ReclaimablePod>> {
    let rows = job.reclaimable_pods()?;
    if !env.is_elastic(wl) || !reserved(wl) {
        return Some(rows);
    }
    let podsets = job.pod_sets();
    let asked = counts(&podsets);
    let run = running(json::namespace(wl), first_slice(wl), env);
    let mut rows = Vec::new();
    for (name, count) in counts_of(wl) {
        let surplus = count - asked.get(name).copied().unwrap_or(count);
        let present = reclaimed(wl, name);
        // A slice that has more pods shrinks to what its job asks for, and is charged for the rest until it has.
        let wanted = (ended(job, name) + surplus.min(0)).max(present).min(count);
        let fits = run.get(name).copied().unwrap_or(0) <= count - wanted;
        let wanted = if fits { wanted } else { present };
        let has_row = json::list(wl, &["status", "reclaimablePods"]).iter().any(|r| r["name"] == name);
        if wanted > 0 || (has_row && row(wl, name) == 0) {
            rows.push(ReclaimablePod { name: name.to_owned(), count: wanted });
        }
    }
    Some(rows)
}

/// The write that ends keeping a charge, once the reclaimable pods are those that are wanted.
pub(crate) fn end_kept_charge(wl: &Value, env: Env<'_>) -> Option<Write> {
    json::annotation(wl, CHARGED_PODS).filter(|_| env.is_elastic(wl))?;
    let mut new = wl.clone();
    keep_charge(&mut new, []);
    patch(WORKLOADS, wl, &new)
}

/// Fewer reclaimable pods before a slice without quota shrinks: spec and status are written one after the other, and an
/// admission between the two would be for fewer pods than are left.
pub(super) fn give_back_less(job: &dyn GenericJob, wl: &Value) -> Option<Write> {
    let wanted = job.reclaimable_pods()?;
    let most = |name: &str| wanted.iter().filter(|w| w.name == name).map(|w| w.count).sum::<i64>();
    let rows = json::list(wl, &["status", "reclaimablePods"]);
    let mut fewer = rows.to_vec();
    for row in &mut fewer {
        let count = row["count"].as_i64().unwrap_or(0).min(most(json::text(row, &["name"])));
        row["count"] = json!(count);
    }
    (fewer != rows).then(|| patch_status(WORKLOADS, wl, &json!({ "reclaimablePods": fewer })))
}
