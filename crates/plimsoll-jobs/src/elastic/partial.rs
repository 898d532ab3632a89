//! Partial scale-up (Kueue KEP-12100): a slice that does not fit as a whole is admitted with fewer pods, and a further one for
//! all of them waits. And partial preemption (KEP-975): a job is asked to shrink instead of being preempted. The least count of
//! a podset says how few pods are acceptable: with the strategy `partial` as many as the slice before runs, of a job that may be
//! asked to shrink as many as its group of workers has at least.

use std::collections::BTreeMap;

use plimsoll_api::json;
use serde_json::{Value, json};

use super::{charged, is_replacement};
use crate::generic_job::{GenericJob, ScalablePodSet};
use crate::webhook::validation::{ErrorList, annotation_path};
use crate::{Env, names};

/// Values of the annotation.
const STRATEGIES: [&str; 2] = ["atomic", "partial"];

/// The podsets of a job that may get fewer pods than they ask for.
fn scalable(job: &dyn GenericJob, env: Env<'_>) -> Vec<String> {
    let object = job.object();
    let partial = json::annotation(object, names::SCALE_UP_STRATEGY) == Some("partial");
    if !env.config.partial_scale_up || !env.is_elastic(object) || !partial || Env::is_dispatched(object) {
        return Vec::new();
    }
    job.scalable_pod_sets().into_iter().map(|podset| podset.name).collect()
}

/// The podset of a job that may be asked to shrink, and how few pods it has at least. None if there are several: of those none is asked.
fn shrinking(job: &dyn GenericJob, env: Env<'_>) -> Option<(String, i64)> {
    if !env.can_shrink(job.object()) {
        return None;
    }
    let least = |podset: ScalablePodSet| Some((podset.name, podset.least?));
    let mut known = job.scalable_pod_sets().into_iter().filter_map(least);
    let one = known.next()?;
    known.next().is_none().then_some(one)
}

/// How many pods of each podset may run: as many as are charged, and no more than the job is asked to shrink to.
pub(super) fn asked_for<'a>(wl: &'a Value, env: Env<'_>) -> BTreeMap<&'a str, i64> {
    let mut counts = charged(wl);
    let assigned = json::list(wl, &["status", "admission", "podSetAssignments"]);
    for row in assigned.iter().filter(|_| env.config.partial_preemption) {
        if let (Some(target), Some(count)) =
            (row["reclaimTargetCount"].as_i64(), counts.get_mut(json::text(row, &["name"])))
        {
            *count = target.min(*count);
        }
    }
    counts
}

fn count(podset: &Value) -> i64 {
    podset["count"].as_i64().unwrap_or(1)
}

/// Sets the least counts of a job's first slice. With the strategy `partial` it is admitted as a whole.
pub(crate) fn set_first_floors(job: &dyn GenericJob, wl: &mut Value, env: Env<'_>) {
    if let Some(Value::Array(podsets)) = wl.pointer_mut("/spec/podSets") {
        set_floors_with(job, podsets, env, |_, count| count);
    }
}

/// Sets the least counts of podsets that may have fewer pods: what the job is asked to shrink to at most, or `floor` of their
/// name and count.
fn set_floors_with(
    job: &dyn GenericJob,
    podsets: &mut [Value],
    env: Env<'_>,
    floor: impl Fn(&str, i64) -> i64,
) {
    let (scalable, shrinking) = (scalable(job, env), shrinking(job, env));
    for podset in podsets {
        let count = count(podset);
        let least = match &shrinking {
            Some((name, least)) if podset["name"] == name.as_str() => *least,
            _ if is_one_of(&scalable, podset) => floor(json::text(podset, &["name"]), count),
            _ => continue,
        };
        podset["minCount"] = json!(least.clamp(0, count));
    }
}

fn is_one_of(names: &[String], podset: &Value) -> bool {
    names.iter().any(|name| podset["name"] == name.as_str())
}

/// Sets the least counts of a slice that is to replace `old`: of a podset that grows, what it runs.
pub(super) fn set_floors(job: &dyn GenericJob, old: &Value, podsets: &mut Vec<Value>, env: Env<'_>) {
    let runs = charged(old);
    *podsets = without_floors(std::mem::take(podsets));
    set_floors_with(job, podsets, env, |name, _| runs.get(name).copied().unwrap_or(0));
}

/// Least counts after the podsets of `wl` were resized. Those of a first slice are set anew; of the others none is more than the
/// count.
pub(super) fn lower_floors(job: &dyn GenericJob, wl: &Value, podsets: &mut [Value], env: Env<'_>) {
    for podset in &mut *podsets {
        let count = count(podset);
        if podset["minCount"].as_i64().is_some_and(|least| least > count) {
            podset["minCount"] = json!(count);
        }
    }
    if !is_replacement(wl) && !super::reserved(wl) {
        set_floors_with(job, podsets, env, |_, count| count);
    }
}

/// Podsets without their least counts, which only the workload has.
pub(super) fn without_floors(mut podsets: Vec<Value>) -> Vec<Value> {
    for podset in &mut podsets {
        json::remove(podset, &["minCount"]);
    }
    podsets
}

/// What the name of a slice is derived from beside the job: where the slice before may have got fewer pods than it asked for,
/// how many (Kueue `prepareWorkloadSliceForScaleUp`). The generation may be the same.
pub(super) fn name_part(job: &dyn GenericJob, old: &Value, env: Env<'_>) -> Option<String> {
    if scalable(job, env).is_empty() {
        return None;
    }
    let level: i64 = charged(old).values().sum();
    Some(format!("{}-full-scaleup-probe-{level}", job.slice_generation()))
}

/// Rules for the annotation.
pub(crate) fn validate_strategy(object: &Value, env: Env<'_>, errors: &mut ErrorList) {
    let Some(strategy) = json::annotation(object, names::SCALE_UP_STRATEGY) else { return };
    if env.config.partial_scale_up && !STRATEGIES.contains(&strategy) {
        errors.not_supported(&annotation_path(names::SCALE_UP_STRATEGY), strategy, &STRATEGIES);
    }
}
