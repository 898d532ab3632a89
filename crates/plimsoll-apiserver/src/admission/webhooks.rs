//! Admission webhooks: configurations as stored objects, calls over HTTPS; and hooks of parts of this process.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::Duration;

use futures::future::join_all;
use plimsoll_apimachinery::admission::{self, Attributes, Target};
use plimsoll_apimachinery::webhook::{
    Reinvocation, Stage, Verdict, Webhook, apply_patch, compile, http_error, review,
};
use plimsoll_apimachinery::{ApiError, Gvk, Kind, decode};
use serde_json::Value;

use super::versions::{View, Views};
use super::{Operation, policies};
use crate::http::subresource::scale::{apply_scale, scale_of};
use crate::machine;
use crate::pipeline::{Admission, Write};
use crate::store::{Key, Store};
use crate::webhook_client;

/// What a hook is asked about, apart from the object.
#[derive(Clone, Copy, Debug)]
pub struct HookRequest<'a> {
    /// Group, empty for the core group.
    pub group: &'a str,
    /// Plural.
    pub plural: &'a str,
    /// Subresource, empty for the object itself.
    pub subresource: &'a str,
    /// What is being done.
    pub operation: Operation,
    /// Namespace, empty for cluster scope.
    pub namespace: &'a str,
    /// Name; empty when the server names the object.
    pub name: &'a str,
    /// State before, for updates and deletions.
    pub old: Option<&'a Value>,
}

/// Admission by another part of this process: as a webhook, without the network. Called for every write; it must not
/// wait.
pub trait AdmissionHook: Send + Sync + 'static {
    /// Whether it looks at such a write at all.
    fn concerns(&self, _request: &HookRequest<'_>) -> bool {
        true
    }

    /// Changes a new or changed object; it gets its defaults again afterwards. Called after the built-in plugins.
    ///
    /// # Errors
    /// Why the request is refused.
    fn mutate(&self, request: &HookRequest<'_>, object: &mut Value) -> Result<(), ApiError>;

    /// Looks at the object as it will be stored (`None` for a deletion); gives warnings.
    ///
    /// # Errors
    /// Why the request is refused.
    fn validate(&self, request: &HookRequest<'_>, object: Option<&Value>) -> Result<Vec<String>, ApiError>;
}

type Compiled = (u64, Arc<Vec<Webhook>>);

/// The webhooks and hooks of a server.
#[derive(Default)]
pub struct Hooks {
    mutating: Mutex<Option<Compiled>>,
    validating: Mutex<Option<Compiled>>,
    local: RwLock<Vec<Arc<dyn AdmissionHook>>>,
}

impl Hooks {
    /// Adds a hook of this process.
    pub fn add(&self, hook: Arc<dyn AdmissionHook>) {
        self.local.write().unwrap_or_else(PoisonError::into_inner).push(hook);
    }

    fn local(&self) -> Vec<Arc<dyn AdmissionHook>> {
        self.local.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The webhooks of a stage, compiled again when a configuration has changed.
    fn webhooks(&self, store: &Store, stage: Stage) -> Arc<Vec<Webhook>> {
        let (cell, resource) = match stage {
            Stage::Mutating => (&self.mutating, "admissionregistration.k8s.io/mutatingwebhookconfigurations"),
            Stage::Validating => {
                (&self.validating, "admissionregistration.k8s.io/validatingwebhookconfigurations")
            }
        };
        let at = store.last_revision(resource);
        let mut cell = cell.lock().unwrap_or_else(PoisonError::into_inner);
        match &*cell {
            Some((revision, webhooks)) if *revision == at => Arc::clone(webhooks),
            _ => {
                let all = store.list(resource, None);
                let configurations: Vec<Value> = all.iter().filter_map(|r| r.value().ok()).collect();
                let webhooks = Arc::new(compile(stage, &configurations));
                *cell = Some((at, Arc::clone(&webhooks)));
                webhooks
            }
        }
    }
}

/// Whether there may be hooks, webhooks or policies that see a write.
pub fn any(w: &Write, operation: Operation) -> bool {
    let hooks = w.server.hooks();
    if hooks.local().iter().any(|h| h.concerns(&request(w, None, operation))) {
        return true;
    }
    let webhooks = [Stage::Mutating, Stage::Validating].map(|s| hooks.webhooks(w.server.store(), s));
    if webhooks.iter().all(|all| all.is_empty()) && !policies::any(w) {
        return false;
    }
    let asked = attributes(w, operation);
    webhooks.iter().any(|all| all.iter().any(|hook| hook.concerns(&asked))) || policies::concern(w, &asked)
}

fn request<'a>(w: &'a Write, old: Option<&'a Value>, operation: Operation) -> HookRequest<'a> {
    HookRequest {
        group: &w.kind.gvk.group,
        plural: &w.kind.plural,
        subresource: &w.subresource,
        operation,
        namespace: &w.namespace,
        name: &w.name,
        old,
    }
}

/// Mutating hooks and webhooks. Whether the object was changed.
///
/// # Errors
/// A refusal, or a call that failed and mustn't.
pub async fn mutate(
    w: &mut Write,
    object: &mut Value,
    old: Option<&Value>,
    operation: Operation,
) -> Result<bool, ApiError> {
    let server = Arc::clone(&w.server);
    let mut changed = false;
    if operation != Operation::Delete {
        for hook in server.hooks().local() {
            if !hook.concerns(&request(w, old, operation)) {
                continue;
            }
            let before = object.clone();
            hook.mutate(&request(w, old, operation), object)?;
            if before != *object {
                machine::default(&w.kind, object);
                changed = true;
            }
        }
    }
    let webhooks = server.hooks().webhooks(server.store(), Stage::Mutating);
    if webhooks.is_empty() {
        return Ok(changed);
    }
    let asked = attributes(w, operation);
    if !webhooks.iter().any(|hook| hook.concerns(&asked)) {
        return Ok(changed);
    }
    let mut view = View::new(w, with_objects(w, asked, object, old)?);
    let mut patched = false;
    let mut rounds = Reinvocation::default();
    for (i, hook) in webhooks.iter().enumerate() {
        let Some(altered) = invoke(w, hook, &mut view).await? else { continue };
        patched |= altered;
        rounds.called(i, hook, altered);
    }
    for i in rounds.again().collect::<Vec<_>>() {
        if let Some(hook) = webhooks.get(i) {
            patched |= invoke(w, hook, &mut view).await?.unwrap_or(false);
        }
    }
    // What nobody changed needn't survive conversion there and back.
    if patched && operation != Operation::Delete {
        let altered = view.into_object(w).await?;
        *object = if is_scale(w) { apply_scale(&w.kind, object, &altered)? } else { altered };
    }
    Ok(changed || patched)
}

/// What is written at `scale` is a Scale for webhooks, not the object that it is of.
fn is_scale(w: &Write) -> bool {
    w.subresource == "scale"
}

/// A request with its objects, as webhooks and policies see them.
pub(super) fn with_objects(
    w: &Write,
    mut attributes: Attributes,
    object: &Value,
    old: Option<&Value>,
) -> Result<Attributes, ApiError> {
    let seen = |v: &Value| match v {
        Value::Null => Ok(Value::Null),
        v if is_scale(w) => scale_of(&w.kind, v),
        v => Ok(v.clone()),
    };
    attributes.object = seen(object)?;
    attributes.old = old.map(seen).transpose()?.unwrap_or_default();
    Ok(attributes)
}

/// What is written at `scale` is a Scale, whichever version of its resource it is written at.
fn as_scale(attributes: &mut Attributes) {
    for target in std::iter::once(&mut attributes.target).chain(&mut attributes.equivalents) {
        let gvk = Gvk { group: "autoscaling".to_owned(), version: "v1".to_owned(), kind: "Scale".to_owned() };
        target.resource_version = Some(std::mem::replace(&mut target.gvk, gvk));
    }
}

/// Calls a mutating webhook if it wants to; whether it changed the object. `None`: it was not called.
async fn invoke(w: &mut Write, hook: &Webhook, view: &mut View) -> Result<Option<bool>, ApiError> {
    let Some(target) = hook.target(view.attributes()).cloned() else { return Ok(None) };
    view.become_version_of(w, &target).await?;
    if !hook.conditions_hold(view.attributes(), &target, &|check| policies::authorize(w, check))? {
        return Ok(None);
    }
    let Some(verdict) = ask(w, hook, view.attributes(), &target).await? else { return Ok(Some(false)) };
    w.warnings.extend(verdict.warnings);
    if let Some(denied) = verdict.denied {
        return Err(denied);
    }
    let before = &view.attributes().object;
    let Some(patch) = verdict.patch.filter(|_| !before.is_null()) else { return Ok(Some(false)) };
    let patched = apply_patch(before, &patch)?;
    let kind = view.kind();
    let mut object = if kind.custom.is_some() {
        patched
    } else {
        decode::conform(kind, patched).map_err(ApiError::internal)?.object
    };
    machine::default(kind, &mut object);
    let changed = object != *before;
    view.set_object(object);
    Ok(Some(changed))
}

/// Validating hooks and webhooks, all at the same time.
///
/// # Errors
/// The first refusal, or a call that failed and mustn't.
pub async fn validate(
    w: &mut Write,
    object: Option<&Value>,
    old: Option<&Value>,
    operation: Operation,
) -> Result<(), ApiError> {
    let server = Arc::clone(&w.server);
    for hook in server.hooks().local() {
        let warnings = hook.validate(&request(w, old, operation), object)?;
        w.warnings.extend(warnings);
    }
    let webhooks = server.hooks().webhooks(server.store(), Stage::Validating);
    if webhooks.is_empty() {
        return Ok(());
    }
    let asked = attributes(w, operation);
    if !webhooks.iter().any(|hook| hook.concerns(&asked)) {
        return Ok(());
    }
    let attributes = with_objects(w, asked, object.unwrap_or(&Value::Null), old)?;
    let concerned: Vec<(&Webhook, &Target)> =
        webhooks.iter().filter_map(|hook| Some((hook, hook.target(&attributes)?))).collect();
    let mut views = Views::new(&attributes);
    for (_, target) in &concerned {
        views.add(w, target).await?;
    }
    let mut calls = Vec::new();
    for (hook, target) in concerned {
        let view = views.of(target);
        if hook.conditions_hold(view, target, &|check| policies::authorize(w, check))? {
            calls.push(ask(w, hook, view, target));
        }
    }
    let verdicts = join_all(calls).await;
    let mut refusal = None;
    for verdict in verdicts {
        match verdict {
            Ok(Some(verdict)) => {
                w.warnings.extend(verdict.warnings);
                refusal = refusal.or(verdict.denied);
            }
            Ok(None) => {}
            Err(e) => refusal = refusal.or(Some(e)),
        }
    }
    refusal.map_or(Ok(()), Err)
}

/// One call; the objects are in the version of `target`. `None`: it failed and that is ignored.
async fn ask(
    w: &Write,
    hook: &Webhook,
    attributes: &Attributes,
    target: &Target,
) -> Result<Option<Verdict>, ApiError> {
    hook.check_dry_run(attributes)?;
    let ignored = |e: Option<ApiError>| e.map_or(Ok(None), Err);
    let uid = uuid::Uuid::new_v4().to_string();
    let body = review(attributes, target, &uid);
    let limit = Duration::from_secs(u64::from(hook.timeout_seconds));
    match webhook_client::post(w.server.store(), &hook.url(), &hook.client, &body, limit).await {
        Ok(answer) => match hook.interpret(&uid, &answer) {
            Ok(verdict) => Ok(Some(verdict)),
            Err(why) => ignored(hook.failed(&why)),
        },
        Err(webhook_client::Failure::Status(status)) => ignored(hook.failed(&http_error(status))),
        Err(webhook_client::Failure::Unreachable(why)) => ignored(hook.unreachable(&why)),
    }
}

/// A request without its objects: most writes concern no webhook and no policy, and needn't be copied.
pub(super) fn attributes(w: &Write, operation: Operation) -> Attributes {
    let gvk = w.kind.gvk.clone();
    let rows = || w.table.iter().filter(|k| k.storage == w.kind.storage);
    // An object of another kind that is created at a subresource (a Binding, an Eviction).
    let parent = if rows().any(|k| k.gvk == gvk) { None } else { rows().next().map(|k| k.gvk.clone()) };
    let own = Target { gvk: gvk.clone(), resource_version: parent.clone(), plural: w.kind.plural.clone() };
    let served = |k: &Kind| w.subresource.is_empty() || k.subresource(&w.subresource).is_some();
    let equivalents = rows()
        .filter(|k| parent.is_none() && k.gvk != gvk && served(k))
        .map(|k| Target { gvk: k.gvk.clone(), resource_version: None, plural: k.plural.clone() })
        .collect();
    let namespace_labels = if w.namespace.is_empty() {
        BTreeMap::new()
    } else {
        let record = w.server.store().latest(&Key::new("/namespaces", "", w.namespace.as_str()));
        record.map(|r| r.labels.clone()).unwrap_or_default()
    };
    let operation = match operation {
        Operation::Create => admission::Operation::Create,
        Operation::Update => admission::Operation::Update,
        Operation::Delete => admission::Operation::Delete,
        Operation::Connect => admission::Operation::Connect,
    };
    let mut attributes = Attributes {
        target: own,
        equivalents,
        subresource: w.subresource.clone(),
        name: if w.admission == Admission::Collection { String::new() } else { w.name.clone() },
        namespace: w.namespace.clone(),
        operation: Some(operation),
        user: w.user.to_value(),
        dry_run: w.dry_run,
        options: w.options.clone(),
        namespace_labels,
        ..Attributes::default()
    };
    if is_scale(w) {
        as_scale(&mut attributes);
    }
    attributes
}
