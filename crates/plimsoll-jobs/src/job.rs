//! `batch/v1` Jobs, framework `batch/job` (Kueue `pkg/controller/jobs/job`).

use plimsoll_api::json;
use plimsoll_api::kueue::QuotaReleaseStrategy;
use plimsoll_api::resource::{JOBS, Resource};
use plimsoll_state::Time;
use serde_json::{Value, json};

use crate::config::BATCH_JOB;
use crate::generic_job::{Finished, GenericJob, ReclaimablePod, ScalablePodSet};
use crate::integration::Integration;
use crate::multikueue::default_managed_by;
use crate::plan::{Plan, event, patch, patch_status};
use crate::podset::{self, PodSetInfo, Ranks};
use crate::store::Kind;
use crate::webhook::job_rules::JobRules;
use crate::webhook::pod_sets::{self, PodSetAt};
use crate::webhook::review::{Operation, Review, Validation, default_queue, owner_is_managed};
use crate::webhook::validation::{ErrorList, annotation_path, atoi};
use crate::{Env, elastic, names, orphan, reconciler};

/// Name of the only podset.
const POD_SET: &str = "main";
/// Name of the Job in labels of its pods.
const JOB_NAME: &str = "batch.kubernetes.io/job-name";
/// Labels that the Job controller manages in the template. A Workload has none of them but the name.
const MANAGED_LABELS: [&str; 4] =
    ["job-name", "controller-uid", JOB_NAME, "batch.kubernetes.io/controller-uid"];

/// The registration of this kind.
pub const INTEGRATION: Integration = Integration {
    framework: BATCH_JOB,
    resource: JOBS,
    validating_webhook: "vjob.kb.io",
    defaults_updates: false,
    default,
    validate,
    reconcile: Some(|_, namespace, name, env| reconcile(namespace, name, env)),
};

/// A Job.
#[derive(Debug)]
pub struct Job<'a> {
    /// The object.
    pub object: &'a Value,
}

fn number(job: &Value, key: &str) -> Option<i64> {
    json::int(job, &["spec", key])
}

/// Whether a Job is suspended. While it is being stopped it counts as running, so that the stop is completed.
fn is_suspended(job: &Value) -> bool {
    json::flag(job, &["spec", "suspend"]) && !is_stopping(job)
}

fn is_stopping(job: &Value) -> bool {
    json::annotation(job, names::STOPPING) == Some("true")
}

fn is_indexed(job: &Value) -> bool {
    json::text(job, &["spec", "completionMode"]) == "Indexed"
}

/// Removes from a template what the Job controller adds to it, but for the name (Kueue `cleanLabels`).
pub(crate) fn without_managed_labels(template: &mut Value) {
    for label in MANAGED_LABELS.iter().filter(|l| **l != JOB_NAME) {
        json::remove(template, &["metadata", "labels", label]);
    }
}

/// Number of pods that run at the same time.
pub(crate) fn pods_count(job: &Value) -> i64 {
    let parallelism = number(job, "parallelism").unwrap_or(1);
    number(job, "completions").map_or(parallelism, |c| c.min(parallelism))
}

/// `job-min-parallelism`, when it is a positive number.
fn min_pods(job: &Value) -> Option<i64> {
    json::annotation(job, names::MIN_PARALLELISM)?.parse::<i64>().ok().filter(|n| *n > 0)
}

/// Whether completions follow parallelism.
fn sync_completions(job: &Value) -> bool {
    json::annotation(job, names::SYNC_COMPLETIONS)
        .is_some_and(|v| matches!(v, "1" | "t" | "T" | "true" | "TRUE" | "True"))
}

/// Sets parallelism, and completions where they follow it, of a Job with partial admission.
fn set_parallelism(job: &mut Value, count: i64) {
    if min_pods(job).is_none() {
        return;
    }
    json::set(job, &["spec", "parallelism"], json!(count));
    if sync_completions(job) {
        json::set(job, &["spec", "completions"], json!(count));
    }
}

/// Number of indexes below `limit` in these lists, such as `0-2,5`. Pods with higher indexes were deleted when an elastic
/// job shrank. Malformed ranges are skipped.
fn indexes_below(lists: &[&str], limit: i64) -> i64 {
    let range = |text: &str| {
        let (first, last) = text.split_once('-').unwrap_or((text, text));
        let (first, last): (i64, i64) = (first.parse().ok()?, last.parse().ok()?);
        (0 <= first && first <= last).then_some((first, last.min(limit.saturating_sub(1))))
    };
    let mut ranges: Vec<(i64, i64)> = lists.iter().flat_map(|l| l.split(',')).filter_map(range).collect();
    ranges.sort_unstable();
    let (mut count, mut next) = (0, 0);
    for (first, last) in ranges {
        let first = first.max(next);
        if first <= last {
            count += last - first + 1;
            next = last + 1;
        }
    }
    count
}

/// The writes for the Job of this name.
fn reconcile(namespace: &str, name: &str, env: Env<'_>) -> Plan {
    let Some(job) = env.objects.get(Kind::Job, namespace, name) else {
        return orphan::finalize_ownerless(&env.objects.owned_by_name(namespace, "Job", name), env);
    };
    if json::deleting(&job) {
        return orphan::finalize(&env.objects.owned_by_name(namespace, "Job", name), env);
    }
    let plan = match reconciler::of_framework(BATCH_JOB, &Job { object: &job }, env) {
        Ok(plan) => plan,
        Err(plan) => return plan,
    };
    // Within the same key, so that no pod is ungated while the workload shrinks.
    if plan.is_empty() { elastic::ungate(&Job { object: &job }, env) } else { plan }
}

impl GenericJob for Job<'_> {
    fn object(&self) -> &Value {
        self.object
    }

    fn resource(&self) -> Resource {
        JOBS
    }

    fn is_suspended(&self) -> bool {
        is_suspended(self.object)
    }

    fn is_stopping(&self) -> bool {
        is_stopping(self.object)
    }

    fn is_active(&self, release: QuotaReleaseStrategy) -> bool {
        let some = |key: &str| json::int(self.object, &["status", key]).unwrap_or(0) != 0;
        // Pods that are being deleted are not active, but they use their nodes.
        some("active") || release == QuotaReleaseStrategy::OnTerminal && some("terminating")
    }

    fn finished(&self) -> Option<Finished> {
        let end = json::list(self.object, &["status", "conditions"])
            .iter()
            .find(|c| c["status"] == "True" && (c["type"] == "Complete" || c["type"] == "Failed"))?;
        Some(Finished {
            message: json::text(end, &["message"]).to_owned(),
            success: end["type"] == "Complete",
        })
    }

    fn pods_ready(&self) -> bool {
        let of = |key: &str| json::int(self.object, &["status", key]).unwrap_or(0);
        // Pods that succeeded and still have their finalizer are neither ready nor counted.
        let uncounted = json::list(self.object, &["status", "uncountedTerminatedPods", "succeeded"]).len();
        let uncounted = i64::try_from(uncounted).unwrap_or(i64::MAX);
        of("succeeded").saturating_add(of("ready")).saturating_add(uncounted) >= pods_count(self.object)
    }

    fn has_ready_pods(&self, count: i64) -> bool {
        let of = |key: &str| json::int(self.object, &["status", key]).unwrap_or(0);
        of("succeeded").saturating_add(of("ready")) >= count
    }

    fn reclaimable_pods(&self) -> Option<Vec<ReclaimablePod>> {
        // Kueue compares with the parallelism, also where that is more than the Workload has pods.
        let parallelism = pods_count(self.object);
        let completions = number(self.object, "completions").unwrap_or(parallelism);
        let ended = if is_indexed(self.object) {
            let of = |key: &str| json::text(self.object, &["status", key]);
            indexes_below(&[of("completedIndexes"), of("failedIndexes")], completions)
        } else {
            json::int(self.object, &["status", "succeeded"]).unwrap_or(0)
        };
        let remaining = completions.saturating_sub(ended).max(0);
        if parallelism <= 1 || ended <= 0 || remaining >= parallelism {
            return Some(Vec::new());
        }
        Some(vec![ReclaimablePod { name: POD_SET.into(), count: parallelism - remaining }])
    }

    fn scalable_pod_sets(&self) -> Vec<ScalablePodSet> {
        vec![ScalablePodSet { name: POD_SET.into(), least: None }]
    }

    fn pod_sets(&self) -> Vec<Value> {
        let mut template = self.object["spec"]["template"].clone();
        without_managed_labels(&mut template);
        if json::map(&template, &["metadata", "labels"]).is_some_and(serde_json::Map::is_empty) {
            json::remove(&mut template, &["metadata", "labels"]);
        }
        let mut podset = json!({"name": POD_SET, "count": pods_count(self.object), "template": template});
        if let Some(min) = min_pods(self.object) {
            podset["minCount"] = json!(min);
        }
        let ranks =
            Ranks { index_label: Some("batch.kubernetes.io/job-completion-index".into()), groups: None };
        if let Some(request) = ranks.topology_request(&template) {
            podset["topologyRequest"] = request;
        }
        vec![podset]
    }

    fn suspend(&self, job: &mut Value) {
        json::set(job, &["spec", "suspend"], json!(true));
    }

    fn run_with_pod_sets_info(&self, job: &mut Value, infos: &[PodSetInfo]) -> Result<(), String> {
        let [info] = infos else {
            return Err(format!("invalid podset infos: expecting 1 podset, got {}", infos.len()));
        };
        json::set(job, &["spec", "suspend"], json!(false));
        set_parallelism(job, info.count);
        let mut template = job["spec"]["template"].take();
        podset::merge(&mut template, info).map_err(podset::Error::into_message)?;
        json::set(job, &["spec", "template"], template);
        Ok(())
    }

    fn restore_pod_sets_info(&self, job: &mut Value, pod_sets: &[Value]) {
        let Some(podset) = pod_sets.first() else { return };
        let mut podset = podset.clone();
        let mut template = job["spec"]["template"].take();
        for label in MANAGED_LABELS {
            if let Some(value) = json::label_opt(&template, label) {
                json::set(&mut podset, &["template", "metadata", "labels", label], json!(value));
            }
        }
        podset::restore(&mut template, &podset);
        json::set(job, &["spec", "template"], template);
        if let Some(count) = podset["count"].as_i64() {
            set_parallelism(job, count);
        }
    }

    fn resume(&self, workload: &Value, infos: &[PodSetInfo], message: &str) -> Option<Plan> {
        let job = self.object;
        let mut assigned = job.clone();
        self.restore_pod_sets_info(&mut assigned, json::list(workload, &["spec", "podSets"]));
        self.run_with_pod_sets_info(&mut assigned, infos).ok()?;
        let mut new = job.clone();
        json::set(&mut new, &["spec", "suspend"], json!(false));
        if assigned["spec"] != new["spec"] {
            return None;
        }
        json::remove(&mut new, &["metadata", "annotations", names::STOPPING]);
        let mut plan: Plan = patch(JOBS, job, &new).into_iter().collect();
        plan.push(event(JOBS, job, false, "Started", message));
        Some(plan)
    }

    /// Three writes, because the API server lets a template change only while the Job has no start time: suspend, clear
    /// the start time, restore (Kueue `job_controller.go`, `Stop`).
    fn stop(&self, workload: Option<&Value>, _reason: &str, message: &str, _now: Time) -> Plan {
        let job = self.object;
        let mut new = job.clone();
        if !json::flag(job, &["spec", "suspend"]) {
            // Marked in the same write, so that an interrupted stop is found and completed.
            self.suspend(&mut new);
            json::set(&mut new, &["metadata", "annotations", names::STOPPING], json!("true"));
            let mut plan: Plan = patch(JOBS, job, &new).into_iter().collect();
            plan.push(event(JOBS, job, false, "Stopped", message));
            return plan;
        }
        if json::at(job, &["status", "startTime"]).is_string() && (is_stopping(job) || workload.is_some()) {
            return vec![patch_status(JOBS, job, &json!({"startTime": null}))];
        }
        json::remove(&mut new, &["metadata", "annotations", names::STOPPING]);
        if let Some(wl) = workload {
            self.restore_pod_sets_info(&mut new, json::list(wl, &["spec", "podSets"]));
        }
        patch(JOBS, job, &new).into_iter().collect()
    }
}

/// A managed Job is created suspended (Kueue `job_webhook.go`, `Default`).
fn default(review: &Review<'_>, job: &mut Value, env: Env<'_>) {
    let Env { objects, config, .. } = env;
    if !config.has_framework(BATCH_JOB) || !config.manages_namespace(objects, review.namespace) {
        return;
    }
    default_queue(review, job, env);
    if config.manages(job) && !owner_is_managed(review, job, env) {
        json::set(job, &["spec", "suspend"], json!(true));
    }
    default_managed_by(JOBS, review.namespace, job, env);
    if config.manages(job) && env.is_elastic(job) {
        let mut gates = json::list(job, &["spec", "template", "spec", "schedulingGates"]).to_vec();
        let gate = json!({"name": names::ELASTIC_GATE});
        if !gates.contains(&gate) {
            gates.push(gate);
            json::set(job, &["spec", "template", "spec", "schedulingGates"], Value::Array(gates));
        }
    }
}

fn validate(review: &Review<'_>, job: &Value, env: Env<'_>) -> Validation {
    const RULES: JobRules = JobRules { resource: JOBS, takes_prebuilt: true, elastic: true };
    let mut errors = ErrorList::default();
    RULES.on_create(job, env, &mut errors);
    let min = |j: &Value| json::annotation(j, names::MIN_PARALLELISM).map(str::to_owned);
    let old = review.old.filter(|_| review.operation == Operation::Update);
    if old.is_none_or(|old| min(old) != min(job)) {
        partial_admission(job, env.is_elastic(job), &mut errors);
    }
    completions(job, &mut errors);
    if let Some(old) = old {
        let suspended = (is_suspended(old), is_suspended(job));
        RULES.on_update(review, (old, job), suspended, env, &mut errors);
        running(old, job, &mut errors);
    }
    topology(job, env.is_elastic(job), &mut errors);
    elastic::validate_strategy(job, env, &mut errors);
    Validation::of(errors)
}

/// Elastic jobs support unconstrained topologies only.
fn topology(job: &Value, elastic: bool, errors: &mut ErrorList) {
    let template = &job["spec"]["template"];
    let mut found = ErrorList::default();
    let at = PodSetAt { metadata: "spec.template.metadata", count: pods_count(job), template };
    pod_sets::topology(&[at], false, &mut found);
    if elastic && found.is_empty() {
        let modes = [("required", "podset-required-topology"), ("preferred", "podset-preferred-topology")];
        let set = |key: &str| json::annotation(template, &format!("kueue.x-k8s.io/{key}")).is_some();
        if let Some((mode, key)) = modes.iter().find(|(_, key)| set(key)) {
            let detail = format!("{mode} topology is not supported with elastic jobs");
            found.forbidden(&format!("spec.template.metadata.annotations.kueue.x-k8s.io/{key}"), &detail);
        }
    }
    errors.extend(found);
}

fn partial_admission(job: &Value, elastic: bool, errors: &mut ErrorList) {
    let Some(text) = json::annotation(job, names::MIN_PARALLELISM) else { return };
    let path = annotation_path(names::MIN_PARALLELISM);
    match atoi(text) {
        Err(detail) => errors.invalid(&path, text, &detail),
        Ok(n) if n >= pods_count(job) || n <= 0 => {
            errors.invalid(&path, n, &format!("should be between 0 and {}", pods_count(job) - 1));
        }
        Ok(_) => {}
    }
    if elastic {
        errors.invalid(&path, text, "partial admission and elastic job cannot be used together");
    }
}

fn completions(job: &Value, errors: &mut ErrorList) {
    const BOOLEANS: [&str; 12] =
        ["1", "t", "T", "TRUE", "true", "True", "0", "f", "F", "FALSE", "false", "False"];
    let Some(text) = json::annotation(job, names::SYNC_COMPLETIONS) else { return };
    let path = annotation_path(names::SYNC_COMPLETIONS);
    if !BOOLEANS.contains(&text) {
        errors.invalid(
            &path,
            text,
            &format!("strconv.ParseBool: parsing {}: invalid syntax", Value::from(text)),
        );
    }
    if !sync_completions(job) {
        return;
    }
    if json::text(job, &["spec", "completionMode"]) != "Indexed" {
        errors.invalid(&path, text, "should not be enabled for NonIndexed jobs");
    }
    let number = |key: &str| json::int(job, &["spec", key]).unwrap_or(1);
    if number("parallelism") != number("completions") {
        let detail =
            format!("should be equal to parallelism when {} annotation is true", names::SYNC_COMPLETIONS);
        errors.invalid("spec.completions", job["spec"]["completions"].clone(), &detail);
    }
}

/// Fields that are immutable while the job runs, with fewer pods than it asked for or in step with its completions.
fn running(old: &Value, new: &Value, errors: &mut ErrorList) {
    let number = |j: &Value| json::int(j, &["spec", "parallelism"]).unwrap_or(1);
    let partial = json::annotation(old, names::MIN_PARALLELISM).is_some();
    if partial && !json::flag(old, &["spec", "suspend"]) && number(old) != number(new) {
        let detail = "cannot change when partial admission is enabled and the job is not suspended";
        errors.forbidden("spec.parallelism", detail);
    }
    if !is_suspended(old) && !is_suspended(new) && sync_completions(old) != sync_completions(new) {
        let detail = "field is immutable while the job is not suspended";
        errors.forbidden(&annotation_path(names::SYNC_COMPLETIONS), detail);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn indexes_are_counted_once_and_below_the_limit() {
        for (lists, limit, want) in [
            (["0-2,5", ""], 10, 4),
            (["0-2,5", "2-3"], 10, 5),
            (["0,2-9", ""], 3, 2),
            (["7", ""], 3, 0),
            (["5-3,x,-1,1-,4", ""], 9, 1),
            (["0-9223372036854775807", "1"], 5, 5),
            (["0-4", ""], 0, 0),
        ] {
            assert_eq!(indexes_below(&lists, limit), want, "{lists:?} {limit}");
        }
    }
}
