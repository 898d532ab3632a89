//! Admission webhooks: configurations as stored objects, calls over HTTPS; and hooks of parts of this process.

use std::sync::Arc;
use std::time::Duration;

use futures::future::join_all;
use plimsoll_apimachinery::admission::{Attributes, Target};
use plimsoll_apimachinery::webhook::{
    Reinvocation, Stage, Verdict, Webhook, apply_patch, http_error, review,
};
use plimsoll_apimachinery::{ApiError, decode};
use serde_json::Value;

use super::attributes::{attributes, is_scale, with_objects};
use super::hooks::HookRequest;
use super::versions::{View, Views};
use super::{Operation, policies};
use crate::machine;
use crate::machine::scale::apply_scale;
use crate::webhook_client;
use crate::write::Write;

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

/// What came of the first round of webhooks.
#[derive(Debug, Default)]
pub struct FirstRound {
    /// Whether they changed the object.
    pub changed: bool,
    webhooks: Arc<Vec<Webhook>>,
    rounds: Reinvocation,
}

/// Mutating hooks, and the first round of webhooks.
///
/// # Errors
/// A refusal, or a call that failed and mustn't.
pub async fn mutate(
    w: &mut Write,
    object: &mut Value,
    old: Option<&Value>,
    operation: Operation,
) -> Result<FirstRound, ApiError> {
    let server = Arc::clone(&w.server);
    let mut changed = false;
    if operation != Operation::Delete {
        for hook in server.hooks().local() {
            if !hook.mutates(&request(w, old, operation)) {
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
        return Ok(FirstRound { changed, ..FirstRound::default() });
    }
    let asked = attributes(w, operation);
    if !webhooks.iter().any(|hook| hook.concerns(&asked)) {
        return Ok(FirstRound { changed, ..FirstRound::default() });
    }
    let mut view = View::new(w, with_objects(w, asked, object, old)?);
    let mut patched = false;
    let mut rounds = Reinvocation::default();
    for (i, hook) in webhooks.iter().enumerate() {
        let Some(altered) = invoke(w, hook, &mut view).await? else { continue };
        patched |= altered;
        rounds.called(i, hook, altered);
    }
    take(w, view, (object, operation), patched).await?;
    Ok(FirstRound { changed: changed || patched, webhooks, rounds })
}

/// The second round: webhooks before one that changed the object, or all of them where the plugins have changed it since
/// (`plugin_changed`).
///
/// # Errors
/// A refusal, or a call that failed and mustn't.
pub async fn mutate_again(
    w: &mut Write,
    object: &mut Value,
    old: Option<&Value>,
    operation: Operation,
    (mut first, plugin_changed): (FirstRound, bool),
) -> Result<(), ApiError> {
    if plugin_changed {
        first.rounds.plugin_changed();
    }
    let again: Vec<usize> = first.rounds.again().collect();
    if again.is_empty() {
        return Ok(());
    }
    let asked = attributes(w, operation);
    let mut view = View::new(w, with_objects(w, asked, object, old)?);
    let mut patched = false;
    for hook in again.into_iter().filter_map(|i| first.webhooks.get(i)) {
        patched |= invoke(w, hook, &mut view).await?.unwrap_or(false);
    }
    take(w, view, (object, operation), patched).await
}

/// What no webhook changed needn't survive conversion there and back.
async fn take(
    w: &mut Write,
    view: View,
    (object, operation): (&mut Value, Operation),
    patched: bool,
) -> Result<(), ApiError> {
    if patched && operation != Operation::Delete {
        let altered = view.into_object(w).await?;
        *object = if is_scale(w) { apply_scale(&w.kind, object, &altered)? } else { altered };
    }
    Ok(())
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
