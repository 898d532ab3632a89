//! Jobs of kinds that JobKinds declare: what [`crate::declaration`] says of an object, as a [`GenericJob`].

use std::time::Duration;

use plimsoll_api::json;
use plimsoll_api::kueue::QuotaReleaseStrategy;
use plimsoll_api::resource::{JOB_KINDS, Resource};
use serde_json::{Value, json};

use super::{PodTemplate, inject, pod_sets, restore, webhook};
use crate::custom_kind::CustomKind;
use crate::declaration::{Declaration, Facts};
use crate::generic_job::{Finished, GenericJob, ReclaimablePod};
use crate::plan::{Plan, Write, event, patch_status};
use crate::podset::{PodSetInfo, Ranks};
use crate::store::Kind;
use crate::webhook::job_rules::JobRules;
use crate::webhook::review::{Review, Validation};
use crate::webhook::validation::ErrorList;
use crate::{Env, job_kind, orphan, reconciler};

/// Pause before a job that no list has shown yet is looked up again.
const RETRY: Duration = Duration::from_secs(1);

/// A job of a declared kind.
#[derive(Debug)]
pub(crate) struct DeclaredJob<'a> {
    declaration: &'a Declaration,
    resource: Resource,
    object: &'a Value,
    facts: Facts,
    templates: Vec<PodTemplate>,
}

impl<'a> DeclaredJob<'a> {
    /// # Errors
    /// Why nothing can be said of this object.
    pub fn new(declaration: &'a Declaration, resource: Resource, object: &'a Value) -> Result<Self, String> {
        let facts = declaration.facts(object)?;
        let templates = templates(&facts);
        Ok(Self { declaration, resource, object, facts, templates })
    }
}

fn templates(facts: &Facts) -> Vec<PodTemplate> {
    let template = |at: &crate::declaration::TemplateAt| PodTemplate {
        podset: at.podset.clone(),
        count: at.count,
        pointer: at.pointer.clone(),
        field: at.field.clone(),
        ranks: Ranks { index_label: at.index_label.clone().map(Into::into), groups: None },
        otherwise: None,
    };
    facts.templates.iter().map(template).collect()
}

/// The writes for the job of this name.
pub(crate) fn reconcile(framework: &str, namespace: &str, name: &str, env: Env<'_>) -> Plan {
    let Some((custom, declaration)) = env.objects.declaration_of_framework(framework) else {
        return Plan::new();
    };
    let owned = || env.objects.owned_by_name(namespace, custom.preferred().kind, name);
    let Some(object) = env.objects.get(Kind::Custom(custom), namespace, name) else {
        if !env.objects.is_listed(Kind::Custom(custom)) {
            return vec![Write::RequeueAfter(RETRY)];
        }
        return orphan::finalize_ownerless(&owned(), env);
    };
    if json::deleting(&object) {
        return orphan::finalize(&owned(), env);
    }
    if job_kind::is_going(custom, env) {
        return Plan::new();
    }
    let resource = env.objects.served(Kind::Custom(custom)).unwrap_or(custom.preferred());
    match DeclaredJob::new(&declaration, resource, &object) {
        Ok(job) => reconciler::of_job(&job, env).unwrap_or_else(|plan| plan),
        Err(why) => failed(custom, resource, &object, &why, env),
    }
}

/// An Event on the job, and once for each version of the JobKind a condition.
fn failed(custom: CustomKind, resource: Resource, object: &Value, why: &str, env: Env<'_>) -> Plan {
    if !env.config.manages(object) {
        return Plan::new();
    }
    let mut plan = vec![event(resource, object, true, "ErrWorkloadCompose", why)];
    let declared_by = env.objects.declared_by(custom);
    if let Some(kind) = declared_by.and_then(|name| env.objects.get(Kind::JobKind, "", &name)) {
        let message = format!("{}/{}: {why}", json::namespace(object), json::name(object));
        if let Some(conditions) = job_kind::evaluation_failed(&kind, &message, env.now) {
            plan.push(patch_status(JOB_KINDS, &kind, &json!({ "conditions": conditions })));
        }
    }
    plan
}

impl GenericJob for DeclaredJob<'_> {
    fn object(&self) -> &Value {
        self.object
    }

    fn resource(&self) -> Resource {
        self.resource
    }

    fn priority_class(&self) -> Option<&str> {
        self.facts.priority_class.as_deref()
    }

    fn is_suspended(&self) -> bool {
        json::flag(self.object, &self.declaration.suspend())
    }

    fn is_active(&self, _: QuotaReleaseStrategy) -> bool {
        self.facts.active
    }

    fn finished(&self) -> Option<Finished> {
        let (success, message) = self.facts.finished.clone()?;
        Some(Finished { message, success })
    }

    fn pods_ready(&self) -> bool {
        self.facts.pods_ready
    }

    fn reclaimable_pods(&self) -> Option<Vec<ReclaimablePod>> {
        let pods = self.facts.reclaimable_pods.as_ref()?;
        let pod = |(name, count): &(String, i64)| ReclaimablePod { name: name.clone(), count: *count };
        Some(pods.iter().filter(|(_, count)| *count > 0).map(pod).collect())
    }

    fn pod_sets(&self) -> Vec<Value> {
        pod_sets(self.object, &self.templates)
    }

    fn suspend(&self, job: &mut Value) {
        json::set(job, &self.declaration.suspend(), json!(true));
    }

    fn run_with_pod_sets_info(&self, job: &mut Value, infos: &[PodSetInfo]) -> Result<(), String> {
        inject(job, &self.declaration.suspend(), &self.templates, infos)
    }

    fn restore_pod_sets_info(&self, job: &mut Value, pod_sets: &[Value]) {
        restore(job, &self.templates, pod_sets);
    }
}

/// A queued job of a declared kind is created suspended.
pub(crate) fn default(review: &Review<'_>, job: &mut Value, env: Env<'_>) {
    let Some((custom, declaration)) = env.objects.declaration_of(review.group, review.plural) else { return };
    if env.config.manages_namespace(env.objects, review.namespace) && !job_kind::is_going(custom, env) {
        webhook::suspend(review, job, &declaration.suspend(), env);
    }
}

/// The name of the webhook and what it says of a job; `None`: its kind is not declared.
pub(crate) fn validate(review: &Review<'_>, job: &Value, env: Env<'_>) -> Option<(String, Validation)> {
    let (custom, declaration) = env.objects.declaration_of(review.group, review.plural)?;
    let (flag, mut errors) = (declaration.suspend(), ErrorList::default());
    let suspended = |object: &Value| json::flag(object, &flag);
    let rules = JobRules { resource: custom.preferred(), takes_prebuilt: true, elastic: false };
    if let Some(old) = webhook::updated(review) {
        rules.on_update(review, (old, job), (suspended(old), suspended(job)), env, &mut errors);
    }
    rules.on_create(job, env, &mut errors);
    if env.config.manages(job) {
        match declaration.facts(job) {
            Ok(facts) => webhook::topology(job, &templates(&facts), true, &mut errors),
            // Only a new one can be mended without being stopped.
            Err(why) if review.old.is_none() => errors.invalid_whole("spec", &why),
            Err(_) => {}
        }
    }
    let kind = custom.preferred().kind.to_lowercase();
    Some((format!("v{kind}.kb.io"), Validation::of(errors)))
}
