//! TrainJobs, framework `trainer.kubeflow.org/trainjob` (Kueue `pkg/controller/jobs/trainjob`): the podsets of the JobSet that
//! Kubeflow's trainer makes of a job and its runtime. What is assigned is a runtime patch of Kueue's own, which is written
//! while the job is suspended.

use std::time::Duration;

use plimsoll_api::json;
use plimsoll_api::kueue::QuotaReleaseStrategy;
use plimsoll_api::resource::{Resource, TRAIN_JOBS};
use plimsoll_state::Time;
use serde_json::{Map, Value, json};

use super::jobset::JOB_SET;
use super::{pod_sets, webhook};
use crate::custom_kind::CustomKind;
use crate::generic_job::{Finished, GenericJob, ReclaimablePod};
use crate::integration::Integration;
use crate::multikueue::default_managed_by;
use crate::plan::{Plan, Write, event, patch};
use crate::podset::PodSetInfo;
use crate::store::Kind;
use crate::webhook::job_rules::JobRules;
use crate::webhook::pod_sets::{PodSetAt, topology};
use crate::webhook::review::{Review, Validation};
use crate::webhook::validation::ErrorList;
use crate::{Env, orphan, reconciler};

const FRAMEWORK: &str = CustomKind::TRAIN_JOB.framework();
const KIND: Kind = Kind::Custom(CustomKind::TRAIN_JOB);
const SUSPEND: [&str; 2] = ["spec", "suspend"];
/// Who a runtime patch belongs to.
const MANAGER: &str = "kueue.x-k8s.io/manager";
/// Label of a replicated job of a runtime: the step that it is.
const STEP: &str = "trainer.kubeflow.org/trainjob-ancestor-step";
/// The container that a TrainJob configures.
const NODE: &str = "node";
/// Pause before a runtime that is missing is looked up again.
const RETRY: Duration = Duration::from_secs(5);

/// The registration of TrainJobs.
pub(crate) const INTEGRATION: Integration = Integration {
    framework: FRAMEWORK,
    resource: TRAIN_JOBS,
    validating_webhook: "vtrainjob.kb.io",
    defaults_updates: false,
    default,
    validate,
    reconcile: Some(|_, namespace, name, env| reconcile(namespace, name, env)),
};

/// A TrainJob and the JobSet that is made of it.
#[derive(Debug)]
struct TrainJob<'a> {
    object: &'a Value,
    resource: Resource,
    job_set: Value,
}

/// Removes the patches of a job's runtime that Kueue has written.
pub(crate) fn without_own_patches(job: &mut Value) {
    let mut patches = json::list(job, &["spec", "runtimePatches"]).to_vec();
    let before = patches.len();
    patches.retain(|p| p["manager"] != MANAGER);
    match (patches.len(), before) {
        (left, before) if left == before => {}
        (0, _) => {
            json::remove(job, &["spec", "runtimePatches"]);
        }
        _ => json::set(job, &["spec", "runtimePatches"], Value::Array(patches)),
    }
}

/// The spec of the runtime that a job names; `None`: it is not known.
fn runtime(job: &Value, env: Env<'_>) -> Option<Value> {
    let reference = &job["spec"]["runtimeRef"];
    let (kind, namespace) = match json::text(reference, &["kind"]) {
        "TrainingRuntime" => (CustomKind::TRAINING_RUNTIME, json::namespace(job)),
        _ => (CustomKind::CLUSTER_TRAINING_RUNTIME, ""),
    };
    let runtime = env.objects.get(Kind::Custom(kind), namespace, json::text(reference, &["name"]))?;
    Some(runtime["spec"].clone())
}

/// Whether a TrainJob names this runtime.
fn names_runtime(job: &Value, kind: &str, namespace: &str, name: &str) -> bool {
    let reference = &job["spec"]["runtimeRef"];
    let of_cluster = json::text(reference, &["kind"]) != "TrainingRuntime";
    json::text(reference, &["name"]) == name
        && of_cluster == (kind == "ClusterTrainingRuntime")
        && (of_cluster || json::namespace(job) == namespace)
}

/// The TrainJobs that name a runtime.
pub(crate) fn of_runtime(
    custom: CustomKind,
    runtime: &Value,
    objects: &crate::ObjectStore,
) -> Vec<crate::Key> {
    let kind = custom.preferred().kind;
    let (namespace, name) = (json::namespace(runtime), json::name(runtime));
    let jobs = objects.all(KIND).filter(|job| names_runtime(job, kind, namespace, name));
    jobs.map(|job| crate::Key::job(FRAMEWORK, json::namespace(&job), json::name(&job))).collect()
}

/// The JobSet as the trainer makes it (trainer `pkg/runtime/framework/plugins/jobset/builder.go`), as far as podsets are
/// concerned.
fn job_set(job: &Value, runtime: &Value) -> Value {
    with_patches(job, runtime, |manager| manager != MANAGER)
}

/// The JobSet of a TrainJob and the spec of its runtime, with all patches: those that its admission has brought, too.
pub fn train_job_set(job: &Value, runtime: &Value) -> Value {
    with_patches(job, runtime, |_| true)
}

fn with_patches(job: &Value, runtime: &Value, counts: fn(&str) -> bool) -> Value {
    let trainer = &job["spec"]["trainer"];
    let nodes = json::int(trainer, &["numNodes"]).or_else(|| json::int(runtime, &["mlPolicy", "numNodes"]));
    let replicated = json::list(runtime, &["template", "spec", "replicatedJobs"]).iter().map(|one| {
        let mut one = one.clone();
        let trains = json::text(&one, &["template", "metadata", "labels", STEP]) == "trainer";
        // At least one pod (trainer `pkg/runtime/runtime.go`, `WithPodSet`).
        let own = json::int(&one, &["template", "spec", "parallelism"]).unwrap_or(1);
        let count = nodes.filter(|_| trains).unwrap_or(own).max(1);
        for key in ["parallelism", "completions"] {
            json::set(&mut one, &["template", "spec", key], json!(count));
        }
        if trains {
            let containers = one.pointer_mut("/template/spec/template/spec/containers");
            let node = containers.and_then(Value::as_array_mut).into_iter().flatten();
            node.filter(|c| c["name"] == NODE).for_each(|container| configure(container, trainer));
        }
        let name = json::text(&one, &["name"]).to_owned();
        for patch in patches(job, &name, counts) {
            if let Some(template) = one.pointer_mut("/template/spec/template") {
                patched(template, patch);
            }
        }
        one
    });
    json!({
        "metadata": {"name": json::name(job), "namespace": json::namespace(job)},
        "spec": {"replicatedJobs": replicated.collect::<Vec<_>>()},
        "status": {"replicatedJobsStatus": json::list(job, &["status", "jobsStatus"])},
    })
}

fn configure(container: &mut Value, trainer: &Value) {
    for key in ["image", "command", "args"] {
        if !trainer[key].is_null() {
            container[key] = trainer[key].clone();
        }
    }
    if trainer["resourcesPerNode"].is_object() {
        container["resources"] = trainer["resourcesPerNode"].clone();
    }
    let mut env = json::list(container, &["env"]).to_vec();
    for variable in json::list(trainer, &["env"]) {
        env.retain(|known| known["name"] != variable["name"]);
        env.push(variable.clone());
    }
    if !env.is_empty() {
        container["env"] = Value::Array(env);
    }
}

/// The pod templates of the patches for a replicated job whose managers count.
fn patches<'a>(job: &'a Value, name: &str, counts: fn(&str) -> bool) -> Vec<&'a Value> {
    let patches = json::list(job, &["spec", "runtimePatches"]).iter();
    let rows = patches
        .filter(|p| counts(json::text(p, &["manager"])))
        .flat_map(|p| json::list(p, &["trainingRuntimeSpec", "template", "spec", "replicatedJobs"]))
        .filter(|row| row["name"] == name);
    rows.map(|row| json::at(row, &["template", "spec", "template"])).collect()
}

/// Maps are merged, lists are extended.
fn patched(template: &mut Value, patch: &Value) {
    match (template, patch) {
        (Value::Object(template), Value::Object(patch)) => {
            for (key, value) in patch {
                patched(template.entry(key.clone()).or_insert(Value::Null), value);
            }
        }
        (Value::Array(items), Value::Array(more)) => {
            for item in more {
                let named = items.iter_mut().find(|i| !item["name"].is_null() && i["name"] == item["name"]);
                match named {
                    Some(known) => patched(known, item),
                    None => items.push(item.clone()),
                }
            }
        }
        (template, patch) => *template = patch.clone(),
    }
}

/// The writes for the TrainJob of this name.
fn reconcile(namespace: &str, name: &str, env: Env<'_>) -> Plan {
    let owned = || env.objects.owned_by_name(namespace, TRAIN_JOBS.kind, name);
    let Some(object) = env.objects.get(KIND, namespace, name) else {
        return orphan::finalize_ownerless(&owned(), env);
    };
    if json::deleting(&object) {
        return orphan::finalize(&owned(), env);
    }
    let Some(runtime) = runtime(&object, env) else {
        let wanted = env.config.has_framework(FRAMEWORK) && env.config.manages(&object);
        return if wanted { vec![Write::RequeueAfter(RETRY)] } else { Plan::new() };
    };
    let resource = env.objects.served(KIND).unwrap_or(TRAIN_JOBS);
    let job = TrainJob { object: &object, resource, job_set: job_set(&object, &runtime) };
    reconciler::of_framework(FRAMEWORK, &job, env).unwrap_or_else(|plan| plan)
}

/// The replicated jobs of Kueue's own patch.
fn own_patch(job: &Value) -> &[Value] {
    let own = json::list(job, &["spec", "runtimePatches"]).iter().find(|p| p["manager"] == MANAGER);
    own.map_or(&[], |p| json::list(p, &["trainingRuntimeSpec", "template", "spec", "replicatedJobs"]))
}

/// Writes Kueue's own patch; none of replicated jobs leaves it empty.
fn set_own_patch(job: &mut Value, replicated: Vec<Value>) {
    let mut spec = json!({});
    if !replicated.is_empty() {
        spec["replicatedJobs"] = Value::Array(replicated);
    }
    let own = json!({"manager": MANAGER, "trainingRuntimeSpec": {"template": {"spec": spec}}});
    let mut patches = json::list(job, &["spec", "runtimePatches"]).to_vec();
    match patches.iter_mut().find(|p| p["manager"] == MANAGER) {
        Some(known) => known["trainingRuntimeSpec"] = own["trainingRuntimeSpec"].clone(),
        None => patches.push(own),
    }
    json::set(job, &["spec", "runtimePatches"], Value::Array(patches));
}

/// What was assigned to a podset, as a patch of its replicated job.
fn assigned(info: &PodSetInfo) -> Value {
    let (mut metadata, mut spec) = (Map::new(), Map::new());
    for (key, map) in [("labels", &info.labels), ("annotations", &info.annotations)] {
        if !map.is_empty() {
            metadata.insert(key.to_owned(), Value::Object(map.clone()));
        }
    }
    if !info.node_selector.is_empty() {
        spec.insert("nodeSelector".to_owned(), Value::Object(info.node_selector.clone()));
    }
    for (key, list) in [("tolerations", &info.tolerations), ("schedulingGates", &info.scheduling_gates)] {
        if !list.is_empty() {
            spec.insert(key.to_owned(), Value::Array(list.clone()));
        }
    }
    json!({"name": info.name, "template": {"spec": {"template": {"metadata": metadata, "spec": spec}}}})
}

impl GenericJob for TrainJob<'_> {
    fn object(&self) -> &Value {
        self.object
    }

    fn resource(&self) -> Resource {
        self.resource
    }

    fn is_suspended(&self) -> bool {
        json::flag(self.object, &SUSPEND)
    }

    fn is_active(&self, _: QuotaReleaseStrategy) -> bool {
        (JOB_SET.is_active)(&self.job_set)
    }

    fn finished(&self) -> Option<Finished> {
        ["Complete", "Failed"].into_iter().find_map(|kind| {
            let end = json::condition(self.object, kind).filter(|c| c["status"] == "True")?;
            Some(Finished { message: json::text(end, &["message"]).to_owned(), success: kind == "Complete" })
        })
    }

    fn pods_ready(&self) -> bool {
        (JOB_SET.pods_ready)(&self.job_set)
    }

    fn reclaimable_pods(&self) -> Option<Vec<ReclaimablePod>> {
        JOB_SET.reclaimable_pods.map(|of| of(&self.job_set))
    }

    fn pod_sets(&self) -> Vec<Value> {
        pod_sets(&self.job_set, &(JOB_SET.templates)(&self.job_set))
    }

    fn suspend(&self, job: &mut Value) {
        json::set(job, &SUSPEND, json!(true));
    }

    fn run_with_pod_sets_info(&self, job: &mut Value, infos: &[PodSetInfo]) -> Result<(), String> {
        let want = json::list(&self.job_set, &["spec", "replicatedJobs"]).len();
        if want != infos.len() {
            return Err(format!("invalid podset infos: expecting {want} podset, got {}", infos.len()));
        }
        set_own_patch(job, infos.iter().map(assigned).collect());
        Ok(())
    }

    fn restore_pod_sets_info(&self, job: &mut Value, _pod_sets: &[Value]) {
        set_own_patch(job, Vec::new());
    }

    /// The patch first: the trainer refuses to change it in a job that runs.
    fn start(&self, infos: &[PodSetInfo], message: &str) -> Result<Plan, String> {
        let mut new = self.object.clone();
        self.run_with_pod_sets_info(&mut new, infos)?;
        if let Some(write) = patch(self.resource, self.object, &new) {
            return Ok(vec![write]);
        }
        json::set(&mut new, &SUSPEND, json!(false));
        let mut plan: Plan = patch(self.resource, self.object, &new).into_iter().collect();
        plan.push(event(self.resource, self.object, false, "Started", message));
        Ok(plan)
    }

    /// The patch last, when no pod is active any more.
    fn stop(&self, _workload: Option<&Value>, _reason: &str, message: &str, _now: Time) -> Plan {
        let mut new = self.object.clone();
        if !self.is_suspended() {
            self.suspend(&mut new);
            let mut plan: Plan = patch(self.resource, self.object, &new).into_iter().collect();
            plan.push(event(self.resource, self.object, false, "Stopped", message));
            return plan;
        }
        if (JOB_SET.is_active)(&self.job_set) || own_patch(self.object).is_empty() {
            return Plan::new();
        }
        self.restore_pod_sets_info(&mut new, &[]);
        patch(self.resource, self.object, &new).into_iter().collect()
    }
}

/// A job gets Kueue's patch, empty at first, and is created suspended when it is queued.
fn default(review: &Review<'_>, job: &mut Value, env: Env<'_>) {
    if !env.config.has_framework(FRAMEWORK) || !env.config.manages_namespace(env.objects, review.namespace) {
        return;
    }
    webhook::suspend(review, job, &SUSPEND, env);
    default_managed_by(TRAIN_JOBS, review.namespace, job, env);
    let known = json::list(job, &["spec", "runtimePatches"]).iter().any(|p| p["manager"] == MANAGER);
    if !known {
        set_own_patch(job, Vec::new());
    }
}

fn validate(review: &Review<'_>, job: &Value, env: Env<'_>) -> Validation {
    const HINT: &str = ". Adjust either the \"TrainJob.spec.runtimePatches\" or the \"TrainingRuntime.Template\" annotations \
                        for the corresponding Job";
    const RULES: JobRules = JobRules { resource: TRAIN_JOBS, takes_prebuilt: true, elastic: false };
    let mut errors = ErrorList::default();
    if !env.config.has_framework(FRAMEWORK) {
        return Validation::of(errors);
    }
    if let Some(old) = webhook::updated(review) {
        let suspended = (json::flag(old, &SUSPEND), json::flag(job, &SUSPEND));
        RULES.on_update(review, (old, job), suspended, env, &mut errors);
    }
    RULES.on_create(job, env, &mut errors);
    if let Some(runtime) = runtime(job, env) {
        let job_set = job_set(job, &runtime);
        let templates = (JOB_SET.templates)(&job_set);
        let rows: Vec<(String, i64, &Value)> = templates
            .iter()
            .filter_map(|at| Some((format!("job[{}]", at.podset), at.count, job_set.pointer(&at.pointer)?)))
            .collect();
        let rows: Vec<PodSetAt<'_>> = rows
            .iter()
            .map(|(metadata, count, template)| PodSetAt { metadata, count: *count, template })
            .collect();
        let mut of_templates = ErrorList::default();
        topology(&rows, false, &mut of_templates);
        errors.extend(of_templates.with_suffix(HINT));
    }
    Validation::of(errors)
}
