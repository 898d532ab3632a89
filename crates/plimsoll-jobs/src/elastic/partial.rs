//! Partial scale-up (Kueue KEP-12100): a slice that does not fit as a whole is admitted with fewer pods, and a further one for
//! all of them waits. The least count of a podset says how few are acceptable: as many as the slice before runs.

use plimsoll_api::json;
use serde_json::{Value, json};

use super::{charged, is_replacement};
use crate::generic_job::GenericJob;
use crate::webhook::validation::{ErrorList, annotation_path};
use crate::{Env, names};

/// Values of the annotation.
const STRATEGIES: [&str; 2] = ["atomic", "partial"];

/// The podsets of a job that may get fewer pods than they ask for. None of a job that MultiKueue dispatches: what its worker
/// admits is decided there.
fn scalable(job: &dyn GenericJob, env: Env<'_>) -> Vec<String> {
    let object = job.object();
    let partial = json::annotation(object, names::SCALE_UP_STRATEGY) == Some("partial");
    let elsewhere = object["spec"]["managedBy"] == names::MULTIKUEUE;
    if !env.config.partial_scale_up || !env.is_elastic(object) || !partial || elsewhere {
        return Vec::new();
    }
    job.scalable_pod_sets()
}

fn count(podset: &Value) -> i64 {
    podset["count"].as_i64().unwrap_or(1)
}

/// Sets the least counts of a job's first slice, which is admitted as a whole: the counts.
pub(crate) fn set_first_floors(job: &dyn GenericJob, wl: &mut Value, env: Env<'_>) {
    let scalable = scalable(job, env);
    let podsets = wl.pointer_mut("/spec/podSets").and_then(Value::as_array_mut);
    for podset in podsets.into_iter().flatten().filter(|p| is_one_of(&scalable, p)) {
        podset["minCount"] = json!(count(podset));
    }
}

fn is_one_of(names: &[String], podset: &Value) -> bool {
    names.iter().any(|name| podset["name"] == name.as_str())
}

/// Sets the least counts of a slice that is to replace `old`: of a podset that grows, what it runs.
pub(super) fn set_floors(job: &dyn GenericJob, old: &Value, podsets: &mut [Value], env: Env<'_>) {
    let (scalable, runs) = (scalable(job, env), charged(old));
    for podset in podsets {
        json::remove(podset, &["minCount"]);
        if is_one_of(&scalable, podset) {
            let runs = runs.get(json::text(podset, &["name"])).copied().unwrap_or(0);
            podset["minCount"] = json!(runs.min(count(podset)));
        }
    }
}

/// Least counts after the podsets of `wl` were resized. A first slice is admitted as a whole; of the others none asks for more
/// than it has.
pub(super) fn lower_floors(job: &dyn GenericJob, wl: &Value, podsets: &mut [Value], env: Env<'_>) {
    let first = !is_replacement(wl) && !super::reserved(wl);
    let scalable = if first { scalable(job, env) } else { Vec::new() };
    for podset in podsets {
        let count = count(podset);
        if is_one_of(&scalable, podset) {
            podset["minCount"] = json!(count);
        } else if podset["minCount"].as_i64().is_some_and(|least| least > count) {
            podset["minCount"] = json!(count);
        }
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
