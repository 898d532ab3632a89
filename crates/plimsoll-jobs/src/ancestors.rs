//! Jobs within jobs: a job whose owner, or owner's owner, is queued is not queued itself (Kueue
//! `pkg/controller/jobframework/reconciler.go`, `FindAncestorJobManagedByKueue`).

use std::sync::Arc;
use std::time::Duration;

use plimsoll_api::json;
use serde_json::Value;

use crate::Env;
use crate::config::BATCH_JOB;
use crate::custom_kind::CustomKind;
use crate::generic_job::GenericJob;
use crate::plan::{Plan, Write, event, patch};
use crate::store::{Kind, ObjectStore};

/// Most owners between a job and the topmost one (Kueue's `managedOwnersChainLimit`).
const LIMIT: usize = 10;
/// Pause before an owner that no watch has shown yet is looked up again.
const RETRY: Duration = Duration::from_secs(1);

/// What the owners of an object say.
#[derive(Debug, PartialEq)]
pub(crate) enum Ancestor {
    /// None of them is queued.
    None,
    /// The topmost owner that is queued.
    Managed(Arc<Value>),
    /// An owner is not known, perhaps not yet.
    Unknown,
    /// There are more owners than are followed.
    TooDeep,
}

/// The kind of job that an owner reference names, and its framework.
fn job_kind(owner: &Value, objects: &ObjectStore) -> Option<(Kind, &'static str)> {
    let (api_version, kind) = (json::text(owner, &["apiVersion"]), json::text(owner, &["kind"]));
    if kind == "Job" && api_version.starts_with("batch/") {
        return Some((Kind::Job, BATCH_JOB));
    }
    let custom = CustomKind::of_kind(api_version, kind)
        .filter(|custom| custom.has_jobs())
        .or_else(|| objects.declared_of_kind(api_version, kind))
        .or_else(|| objects.external_of_kind(api_version, kind))?;
    Some((Kind::Custom(custom), custom.framework()))
}

/// Whether an owner is of an external kind whose resource has not been found yet.
fn is_awaited(owner: &Value, env: Env<'_>) -> bool {
    let (api_version, kind) = (json::text(owner, &["apiVersion"]), json::text(owner, &["kind"]));
    let group = api_version.split_once('/').map_or("", |(group, _)| group);
    let mut names = env.config.external_frameworks.iter();
    let named = names.any(|name| {
        let mut parts = name.splitn(3, '.');
        parts.next() == Some(kind) && parts.nth(1) == Some(group)
    });
    named && env.objects.external_of_kind(api_version, kind).is_none()
}

/// Whether the controller of an object is of a kind that is queued, whether it is queued itself or not (Kueue
/// `IsOwnerManagedByKueueForObject`). Such an object gets no default queue.
pub(crate) fn owner_may_be_queued(object: &Value, env: Env<'_>) -> bool {
    let kind = json::controller(object).and_then(|owner| job_kind(owner, env.objects));
    kind.is_some_and(|(kind, framework)| is_on(kind, framework, env))
}

/// Whether jobs of a kind are queued: its framework is on, or it is declared or external.
fn is_on(kind: Kind, framework: &str, env: Env<'_>) -> bool {
    env.config.has_framework(framework) || matches!(kind, Kind::Custom(custom) if !custom.is_built_in())
}

/// The topmost owner of an object of this namespace that is queued.
pub(crate) fn managed(object: &Value, namespace: &str, env: Env<'_>) -> Ancestor {
    let mut top = Ancestor::None;
    let mut current: Option<Arc<Value>> = None;
    for _ in 0..=LIMIT {
        let owner = json::controller(current.as_deref().unwrap_or(object));
        if owner.is_some_and(|owner| is_awaited(owner, env)) {
            return Ancestor::Unknown;
        }
        let Some((owner, (kind, framework))) = owner.and_then(|o| Some((o, job_kind(o, env.objects)?)))
        else {
            return top;
        };
        if matches!(kind, Kind::Custom(custom) if !custom.is_built_in() && !env.objects.is_listed(kind)) {
            return Ancestor::Unknown;
        }
        if matches!(kind, Kind::Custom(_)) && env.objects.served(kind).is_none() {
            return top;
        }
        let Some(parent) = env.objects.get(kind, namespace, json::text(owner, &["name"])) else {
            return Ancestor::Unknown;
        };
        if json::uid(&parent) != json::text(owner, &["uid"]) {
            return top;
        }
        if is_on(kind, framework, env) && env.config.manages(&parent) {
            top = Ancestor::Managed(Arc::clone(&parent));
        }
        current = Some(parent);
    }
    Ancestor::TooDeep
}

/// The writes for a job within a queued job; `None`: it is not within one. A child is suspended as long as its ancestor is
/// not admitted (Kueue `shouldSuspendChildJob`).
pub(crate) fn child(job: &dyn GenericJob, env: Env<'_>) -> Option<Plan> {
    let object = job.object();
    let ancestor = match managed(object, json::namespace(object), env) {
        Ancestor::None => return None,
        Ancestor::Managed(ancestor) => ancestor,
        Ancestor::Unknown => return Some(vec![Write::RequeueAfter(RETRY)]),
        Ancestor::TooDeep => {
            let text = format!(
                "Terminated search for Kueue-managed Job because ancestor depth exceeded limit of {LIMIT}"
            );
            return Some(vec![event(job.resource(), object, true, "JobNestingTooDeep", &text)]);
        }
    };
    if job.finished().is_some() || job.is_suspended() {
        return Some(Plan::new());
    }
    let age = |w: &Value| json::text(w, &["metadata", "creationTimestamp"]).to_owned();
    let unfinished = env.objects.owned_by(json::uid(&ancestor)).filter(|w| !json::is_true(w, "Finished"));
    let runs = unfinished.max_by_key(|w| age(w)).is_some_and(|wl| {
        // While one slice replaces another, none may be admitted.
        let elastic = env.is_elastic(object) || env.is_elastic(&ancestor);
        if elastic { !json::is_true(&wl, "Evicted") } else { json::is_true(&wl, "Admitted") }
    });
    if runs {
        return Some(Plan::new());
    }
    let mut new = object.clone();
    job.suspend(&mut new);
    let mut plan: Plan = patch(job.resource(), object, &new).into_iter().collect();
    plan.push(event(job.resource(), object, false, "Suspended", "Kueue managed child job suspended"));
    Some(plan)
}
