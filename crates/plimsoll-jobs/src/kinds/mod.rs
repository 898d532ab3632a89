//! Kinds of jobs that CustomResourceDefinitions add, one file each. A kind is a table ([`JobKind`]): where its objects keep the
//! flag that suspends them and their pod templates, and what their status says. [`TableJob`] does the rest for all of them.

pub(crate) mod appwrapper;
pub(crate) mod declared;
pub(crate) mod jobset;
pub(crate) mod kubeflow;
pub(crate) mod ray;
pub(crate) mod spark;
#[cfg(test)]
mod tests;
pub(crate) mod trainjob;
mod webhook;

use std::sync::Arc;

use plimsoll_api::json;
use plimsoll_api::kueue::QuotaReleaseStrategy;
use plimsoll_api::resource::Resource;
use serde_json::{Value, json};

use crate::custom_kind::CustomKind;
use crate::generic_job::{Finished, GenericJob, ReclaimablePod, ScalablePodSet};
use crate::integration::Integration;
use crate::plan::Plan;
use crate::podset::{self, PodSetInfo, Ranks};
use crate::store::Kind;
use crate::webhook::validation::ErrorList;
use crate::{Env, elastic, orphan, reconciler};

/// What is to be known of a kind of job. All functions are of the object alone.
#[derive(Clone, Copy, Debug)]
pub(crate) struct JobKind {
    /// Its name, resource and versions.
    pub kind: CustomKind,
    /// Name of the validating webhook, as refusals cite it.
    pub validating_webhook: &'static str,
    /// Path of the flag that suspends a job.
    pub suspend: &'static [&'static str],
    /// The pod templates, in the order of the podsets.
    pub templates: fn(&Value) -> Vec<PodTemplate>,
    /// Whether two podsets may be a group that is placed together.
    pub groups: bool,
    /// Where what was assigned is written.
    pub inject: Inject,
    /// Whether pods run that use quota.
    pub is_active: fn(&Value) -> bool,
    /// How the job ended; `None`: it has not.
    pub finished: fn(&Value) -> Option<Finished>,
    /// Whether all its pods are ready or have succeeded.
    pub pods_ready: fn(&Value) -> bool,
    /// Pods whose quota can be released early; `None`: the kind does not support it.
    pub reclaimable_pods: Option<fn(&Value) -> Vec<ReclaimablePod>>,
    /// Name of the PriorityClass of its pods; `None`: the first that a podset's template names.
    pub priority_class: fn(&Value) -> Option<&str>,
    /// Defaults that only this kind has.
    pub default: fn(&mut Value),
    /// Changes the podsets: adds what the kind's controller adds to its pods.
    pub adjust: fn(&Value, &mut [Value]),
    /// Whether a job is left alone.
    pub skip: fn(&Value) -> bool,
    /// Whether a job waits for its user, and neither starts nor stops (Kueue's `JobWithOnHold`); `None`: none does.
    pub on_hold: Option<fn(&Value) -> bool>,
    /// Which rules an update has to follow.
    pub updates: Updates,
    /// Whether a job may name a workload that its user created (Kueue `supportedPrebuiltWlJobGVKs`).
    pub takes_prebuilt: bool,
    /// Rules of this kind for queued jobs, which are elastic or not; whether those of all jobs apply, too.
    pub validate: fn(&Value, bool, &mut ErrorList) -> bool,
    /// How its jobs grow and shrink while they run; `None`: they do not.
    pub elastic: Option<Elastic>,
}

/// Which rules an update of a job has to follow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Updates {
    /// Those for what changes, and those for topologies (Kueue `BaseWebhook.ValidateUpdate`).
    Changes,
    /// Those for what changes, and all for new jobs.
    Whole,
    /// The same, if the job is or was queued (Kueue `ShouldValidateRayOrSparkJobOnUpdate`).
    WholeIfQueued,
}

/// How jobs of a kind grow and shrink while they run ([`crate::elastic`]).
#[derive(Clone, Copy, Debug)]
pub(crate) struct Elastic {
    /// Whether the webhook adds the scheduling gate to the templates. Otherwise they have it when the job starts.
    pub gated: bool,
    /// Name of the RayCluster that runs the job, which its controller owns; empty: none.
    pub cluster: fn(&Value) -> &str,
    /// Sets the numbers of pods that this cluster asks for by now; whether it has podsets of the job only.
    pub follow: fn(&Value, &Value, &mut [Value]) -> bool,
    /// The podsets that may have fewer pods than they ask for.
    pub scalable: fn(&Value) -> Vec<ScalablePodSet>,
}

/// Where what was assigned to the podsets is written.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Inject {
    /// Into the templates.
    Templates,
    /// Elsewhere in the object.
    Elsewhere {
        /// Writes it there.
        run: fn(&mut Value, &[PodSetInfo]) -> Result<(), String>,
        /// Removes it from there, and restores what it replaced from the podsets of the workload.
        restore: fn(&mut Value, &[Value]),
    },
}

/// A pod template within an object, which becomes a podset.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PodTemplate {
    /// Name of the podset.
    pub podset: String,
    /// Number of pods.
    pub count: i64,
    /// Where the template is, as a JSON pointer (RFC 6901); empty: nowhere, and it is made from other fields.
    pub pointer: String,
    /// Field path for messages: of the template, or of the object with its annotations; empty: it is not validated.
    pub field: String,
    /// Labels that rank its pods.
    pub ranks: Ranks,
    /// The template where the object has none.
    pub otherwise: Option<Value>,
}

/// A job of a kind that is a table.
#[derive(Debug)]
pub(crate) struct TableJob<'a> {
    table: &'static JobKind,
    /// In the version that is served.
    resource: Resource,
    object: &'a Value,
    /// The RayCluster that an elastic job runs in, if that is another object.
    cluster: Option<Arc<Value>>,
}

/// The registration of a kind.
pub(crate) const fn integration(table: &JobKind) -> Integration {
    Integration {
        framework: table.kind.framework(),
        resource: table.kind.preferred(),
        validating_webhook: table.validating_webhook,
        defaults_updates: false,
        default: webhook::default,
        validate: webhook::validate,
        reconcile: Some(reconcile),
    }
}

/// All kinds that are tables.
const TABLES: [&JobKind; 12] = [
    &jobset::JOB_SET,
    &kubeflow::PYTORCH_JOB,
    &kubeflow::TF_JOB,
    &kubeflow::XGBOOST_JOB,
    &kubeflow::PADDLE_JOB,
    &kubeflow::JAX_JOB,
    &kubeflow::MPI_JOB,
    &ray::RAY_CLUSTER,
    &ray::RAY_JOB,
    &ray::RAY_SERVICE,
    &appwrapper::APP_WRAPPER,
    &spark::SPARK_APPLICATION,
];

/// The pods of an object of a framework as it is now: for each podset its name, how many pods it has, and their template.
/// Empty where the framework is no table of this module.
pub fn pod_templates(framework: &str, object: &Value) -> Vec<(String, i64, Value)> {
    let templates = of_framework(framework).map(|table| (table.templates)(object)).unwrap_or_default();
    let whole = |t: PodTemplate| {
        let own = object.pointer(&t.pointer).filter(|_| !t.pointer.is_empty()).cloned();
        (t.podset, t.count, t.otherwise.or(own).unwrap_or_default())
    };
    templates.into_iter().map(whole).collect()
}

/// Whether a job of this kind has finished; `None`: the kind is declared, and its declaration knows.
pub(crate) fn has_finished(custom: CustomKind, object: &Value) -> Option<bool> {
    if custom == CustomKind::TRAIN_JOB {
        return Some(["Complete", "Failed"].iter().any(|kind| json::is_true(object, kind)));
    }
    let table = TABLES.into_iter().find(|t| t.kind == custom)?;
    Some((table.finished)(object).is_some())
}

/// The kind of a framework.
fn of_framework(framework: &str) -> Option<&'static JobKind> {
    TABLES.into_iter().find(|t| t.kind.framework() == framework)
}

/// The writes for the job of this name.
fn reconcile(framework: &str, namespace: &str, name: &str, env: Env<'_>) -> Plan {
    let Some(table) = of_framework(framework) else { return Plan::new() };
    let owned = || env.objects.owned_by_name(namespace, table.kind.preferred().kind, name);
    let Some(object) = env.objects.get(Kind::Custom(table.kind), namespace, name) else {
        return orphan::finalize_ownerless(&owned(), env);
    };
    if (table.skip)(&object) {
        return Plan::new();
    }
    if json::deleting(&object) {
        return orphan::finalize(&owned(), env);
    }
    let job = TableJob::new(table, &object, env);
    if job.changes_cluster()
        && !env.objects.owned_by(json::uid(&object)).any(|w| json::is_true(&w, "Evicted"))
    {
        return Plan::new();
    }
    match reconciler::of_framework(framework, &job, env) {
        // Within the same key, so that no pod is ungated while the workload shrinks.
        Ok(plan) if plan.is_empty() => elastic::ungate(&job, env),
        Ok(plan) | Err(plan) => plan,
    }
}

impl<'a> TableJob<'a> {
    fn new(table: &'static JobKind, object: &'a Value, env: Env<'_>) -> Self {
        let resource = env.objects.served(Kind::Custom(table.kind)).unwrap_or(table.kind.preferred());
        let elastic = table.elastic.filter(|_| env.is_elastic(object));
        let cluster = elastic.map(|e| (e.cluster)(object)).and_then(|name| {
            env.objects.get(Kind::Custom(CustomKind::RAY_CLUSTER), json::namespace(object), name)
        });
        let owned = |c: &Arc<Value>| json::controller(c).is_some_and(|o| o["uid"] == json::uid(object));
        let cluster = cluster.filter(owned).or_else(|| {
            let recorded = elastic.and_then(|_| ray::recorded_cluster(Kind::Custom(table.kind), object));
            recorded.map(Arc::new)
        });
        Self { table, resource, object, cluster }
    }

    /// Sets the numbers of pods that the cluster of an elastic job asks for; whether it has podsets of the job only.
    fn follow(&self, pod_sets: &mut [Value]) -> bool {
        match (self.table.elastic, self.cluster.as_deref()) {
            (Some(elastic), Some(cluster)) => (elastic.follow)(self.object, cluster, pod_sets),
            _ => true,
        }
    }

    /// Whether a running job has other podsets than its cluster, which will be replaced: nothing is known of the one to come.
    /// (Kueue `UpdatePodSets` fails.)
    fn changes_cluster(&self) -> bool {
        self.cluster.is_some() && !self.is_suspended() && !self.follow(&mut self.own_pod_sets())
    }

    fn own_pod_sets(&self) -> Vec<Value> {
        let mut pod_sets = pod_sets(self.object, &(self.table.templates)(self.object));
        (self.table.adjust)(self.object, &mut pod_sets);
        pod_sets
    }
}

/// The podsets that these templates of a job make.
fn pod_sets(object: &Value, templates: &[PodTemplate]) -> Vec<Value> {
    let podset = |at: &PodTemplate| {
        let mut template = at.of(object).cloned().unwrap_or_default();
        write_out_fractions(&mut template);
        let mut podset = json!({"name": at.podset, "count": at.count, "template": template});
        if let Some(request) = at.ranks.topology_request(&template) {
            podset["topologyRequest"] = request;
        }
        podset
    };
    templates.iter().map(podset).collect()
}

/// Amounts that are fractional numbers become texts, as for Kueue's types: `0.5` is `500m`. The definition of Workload takes whole
/// numbers and texts only; that of a job's kind may take anything.
fn write_out_fractions(template: &mut Value) {
    for list in ["containers", "initContainers"] {
        let containers = template.pointer_mut(&format!("/spec/{list}")).and_then(Value::as_array_mut);
        for container in containers.into_iter().flatten() {
            for of in ["requests", "limits"] {
                let amounts =
                    container.pointer_mut(&format!("/resources/{of}")).and_then(Value::as_object_mut);
                for amount in amounts.into_iter().flat_map(serde_json::Map::values_mut).filter(|a| a.is_f64())
                {
                    if let Ok(text) = plimsoll_api::Quantity::canonical(&amount.to_string()) {
                        *amount = json!(text);
                    }
                }
            }
        }
    }
}

/// Injects what was assigned into the templates of a job, and lets it run.
fn inject(
    job: &mut Value,
    suspend: &[&str],
    templates: &[PodTemplate],
    infos: &[PodSetInfo],
) -> Result<(), String> {
    if templates.len() != infos.len() {
        let (want, got) = (templates.len(), infos.len());
        return Err(format!("invalid podset infos: expecting {want} podset, got {got}"));
    }
    json::set(job, suspend, json!(false));
    for (at, info) in templates.iter().zip(infos) {
        if let Some(default) = at.otherwise.as_ref().filter(|_| job.pointer(&at.pointer).is_none()) {
            let path: Vec<&str> = at.pointer.split('/').skip(1).collect();
            json::set(job, &path, default.clone());
        }
        if let Some(template) = job.pointer_mut(&at.pointer) {
            podset::merge(template, info).map_err(podset::Error::into_message)?;
        }
    }
    Ok(())
}

/// Restores the templates of a job from the podsets of its workload.
fn restore(job: &mut Value, templates: &[PodTemplate], pod_sets: &[Value]) {
    if templates.len() != pod_sets.len() {
        return;
    }
    for (at, podset) in templates.iter().zip(pod_sets) {
        if let Some(template) = job.pointer_mut(&at.pointer) {
            podset::restore(template, podset);
        }
    }
}

impl PodTemplate {
    /// The template in this object.
    fn of<'a>(&'a self, object: &'a Value) -> Option<&'a Value> {
        let own = if self.pointer.is_empty() { None } else { object.pointer(&self.pointer) };
        own.or(self.otherwise.as_ref())
    }

    /// Field path of its metadata.
    fn metadata(&self) -> String {
        if self.pointer.is_empty() { self.field.clone() } else { format!("{}.metadata", self.field) }
    }
}

fn is_suspended(table: &JobKind, object: &Value) -> bool {
    json::flag(object, table.suspend)
}

impl GenericJob for TableJob<'_> {
    fn object(&self) -> &Value {
        self.object
    }

    fn resource(&self) -> Resource {
        self.resource
    }

    fn priority_class(&self) -> Option<&str> {
        (self.table.priority_class)(self.object)
    }

    fn is_suspended(&self) -> bool {
        is_suspended(self.table, self.object)
    }

    fn is_active(&self, _: QuotaReleaseStrategy) -> bool {
        (self.table.is_active)(self.object)
    }

    fn is_on_hold(&self) -> Option<bool> {
        self.table.on_hold.map(|on_hold| on_hold(self.object))
    }

    fn finished(&self) -> Option<Finished> {
        (self.table.finished)(self.object)
    }

    fn pods_ready(&self) -> bool {
        (self.table.pods_ready)(self.object)
    }

    fn reclaimable_pods(&self) -> Option<Vec<ReclaimablePod>> {
        self.table.reclaimable_pods.map(|of| of(self.object))
    }

    fn pod_sets(&self) -> Vec<Value> {
        let mut pod_sets = self.own_pod_sets();
        if self.follow(&mut pod_sets) { pod_sets } else { self.own_pod_sets() }
    }

    fn slice_generation(&self) -> String {
        let of = |object: &Value| json::int(object, &["metadata", "generation"]).unwrap_or(0);
        let own = of(self.object);
        self.cluster.as_deref().map_or_else(|| own.to_string(), |cluster| format!("{own}_{}", of(cluster)))
    }

    fn scalable_pod_sets(&self) -> Vec<ScalablePodSet> {
        self.table.elastic.map(|elastic| (elastic.scalable)(self.object)).unwrap_or_default()
    }

    fn suspend(&self, job: &mut Value) {
        json::set(job, self.table.suspend, json!(true));
    }

    fn run_with_pod_sets_info(&self, job: &mut Value, infos: &[PodSetInfo]) -> Result<(), String> {
        if let Inject::Elsewhere { run, .. } = self.table.inject {
            json::set(job, self.table.suspend, json!(false));
            return run(job, infos);
        }
        inject(job, self.table.suspend, &(self.table.templates)(job), infos)
    }

    /// Restores nothing when the number of podsets is another one (Kueue `RestorePodSetsInfo`).
    fn restore_pod_sets_info(&self, job: &mut Value, pod_sets: &[Value]) {
        if let Inject::Elsewhere { restore, .. } = self.table.inject {
            return restore(job, pod_sets);
        }
        restore(job, &(self.table.templates)(job), pod_sets);
    }
}
