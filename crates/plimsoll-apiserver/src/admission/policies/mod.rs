//! ValidatingAdmissionPolicies: stored objects, compiled when they change, run on every write they match.

pub mod access;
mod cache;
mod params;

use std::sync::{Arc, PoisonError};
use std::time::Duration;

use plimsoll_apimachinery::admission::authorizer::{AccessCheck, Decision};
use plimsoll_apimachinery::admission::{Attributes, Request, Target};
use plimsoll_apimachinery::policy::{Action, Annotation, Binding, Outcome, Policy, Verdict, is_exempt};
use plimsoll_apimachinery::{ApiError, Cause};
use serde_json::{Value, json};
use tokio::time::Instant;

use self::cache::Hook;
pub use self::cache::Policies;
use super::{Operation, attributes, forbidden};
use crate::auth::{self, User};
use crate::convert;
use crate::store::Key;
use crate::write::Write;

/// Evaluations for one request, of all policies with all their parameters.
const MAX_RUNS: usize = 1000;
/// For how long policies may be evaluated for one request: as long as webhooks may take.
const MAX_TIME: Duration = Duration::from_secs(30);
const TOO_LONG: &str = "policies took longer than 30 seconds for one request";
const FAILURE_KEY: &str = "validation.policy.admission.k8s.io/validation_failure";

/// Whether there are policies in force.
pub fn any(w: &Write) -> bool {
    !w.server.policies().hooks(w.server.store()).is_empty()
}

/// Whether there may be policies for a request.
pub fn concern(w: &Write, asked: &Attributes) -> bool {
    w.server.policies().hooks(w.server.store()).iter().any(|hook| hook.policy.concerns(asked))
}

/// A request that a policy refuses: the policy, the binding unless the policy itself is at fault, reason, message.
struct Denial {
    policy: String,
    binding: Option<String>,
    reason: String,
    message: String,
}

impl Denial {
    fn to_error(&self, w: &Write, object: &Value) -> ApiError {
        let Self { policy, binding, message, .. } = self;
        let with = binding.as_ref().map(|b| format!(" with binding '{b}'")).unwrap_or_default();
        let message = format!("ValidatingAdmissionPolicy '{policy}'{with} denied request: {message}");
        let mut error = forbidden(w, object, &message);
        let reason = if self.reason.is_empty() { "Invalid" } else { self.reason.as_str() };
        error.code = match reason {
            "Forbidden" => 403,
            "Unauthorized" => 401,
            "RequestEntityTooLarge" => 413,
            _ => 422,
        };
        error.reason = reason.to_owned();
        if let Some(details) = &mut error.details {
            details.causes.push(Cause { message, ..Cause::default() });
        }
        error
    }
}

/// Runs the policies that match a write.
///
/// # Errors
/// The first refusal.
pub async fn validate(
    w: &mut Write,
    object: Option<&Value>,
    old: Option<&Value>,
    operation: Operation,
) -> Result<(), ApiError> {
    refuse_mutating(w, object, operation)?;
    let hooks = w.server.policies().hooks(w.server.store());
    if hooks.is_empty() || is_exempt(&w.kind.gvk.group, &w.kind.plural) {
        return Ok(());
    }
    let attributes = attributes::attributes(w, operation);
    let concerned: Vec<&Hook> = hooks.iter().filter(|h| h.policy.concerns(&attributes)).collect();
    if concerned.is_empty() {
        return Ok(());
    }
    let attributes = attributes::with_objects(w, attributes, object.unwrap_or(&Value::Null), old)?;
    let mut run = Run {
        denials: Vec::new(),
        prepared: Vec::new(),
        attributes: &attributes,
        room: MAX_RUNS,
        until: Instant::now() + MAX_TIME,
    };
    for hook in concerned {
        if let Some(target) = hook.policy.matches(&attributes) {
            run.policy(w, &hook.policy, &hook.bindings, target).await;
        }
    }
    match run.denials.first() {
        Some(denial) => Err(denial.to_error(w, object.or(old).unwrap_or(&Value::Null))),
        None => Ok(()),
    }
}

/// A policy that would silently not hold is worse than none.
fn refuse_mutating(w: &Write, object: Option<&Value>, operation: Operation) -> Result<(), ApiError> {
    let group = w.kind.gvk.group.as_str();
    let mutating =
        group == "admissionregistration.k8s.io" && w.kind.plural.starts_with("mutatingadmissionpolic");
    match object.filter(|_| mutating && matches!(operation, Operation::Create | Operation::Update)) {
        Some(object) => {
            let why =
                "this server does not run MutatingAdmissionPolicies; use a MutatingWebhookConfiguration";
            Err(forbidden(w, object, why))
        }
        None => Ok(()),
    }
}

/// The policies of one request.
struct Run<'a> {
    attributes: &'a Attributes,
    denials: Vec<Denial>,
    /// The request as each kind it was matched as.
    prepared: Vec<(Target, Arc<Request>)>,
    /// Evaluations that may follow.
    room: usize,
    /// When they have to be done.
    until: Instant,
}

impl Run<'_> {
    async fn policy(&mut self, w: &mut Write, policy: &Policy, bindings: &[Arc<Binding>], target: &Target) {
        let kind = match &policy.param_kind {
            None => None,
            Some(gvk) => match w.table.kind(gvk).cloned() {
                Some(kind) => Some(kind),
                None => {
                    let why = format!(
                        "failed to find resource referenced by paramKind: '{}/{}, Kind={}'",
                        gvk.group, gvk.version, gvk.kind
                    );
                    self.misconfigured(policy, None, &why);
                    return;
                }
            },
        };
        let mut annotations: Vec<(String, Vec<String>)> = Vec::new();
        for binding in bindings.iter().filter(|b| b.matches(self.attributes)) {
            // A conversion webhook may have to be asked.
            let found = params::collect(w, kind.as_ref(), binding.params.as_ref(), self.room);
            let found = tokio::time::timeout_at(self.until, found).await;
            let found = found.unwrap_or_else(|_| Err(TOO_LONG.to_owned()));
            let request = match &found {
                Ok(params) if params.is_empty() => continue,
                Ok(_) => self.request(w, target).await,
                Err(why) => Err(why.clone()),
            };
            match (found, request) {
                (Ok(params), Ok(request)) => {
                    for one in params {
                        if let Err(why) = self.take_turn().await {
                            self.misconfigured(policy, Some(binding), why);
                            break;
                        }
                        let outcome = policy.evaluate(&request, one.as_ref(), &|asked| authorize(w, asked));
                        self.settle(w, policy, binding, outcome, &mut annotations);
                    }
                }
                (_, Err(why)) | (Err(why), _) => self.misconfigured(policy, Some(binding), &why),
            }
        }
        for (key, values) in annotations {
            annotate(w, format!("{}/{key}", policy.name), values.join(", "));
        }
    }

    /// Lets others go on between two evaluations, which don't wait for anything.
    async fn take_turn(&mut self) -> Result<(), &'static str> {
        if Instant::now() > self.until {
            return Err(TOO_LONG);
        }
        self.room = self.room.checked_sub(1).ok_or(params::TOO_MANY)?;
        tokio::task::yield_now().await;
        Ok(())
    }

    fn misconfigured(&mut self, policy: &Policy, binding: Option<&Binding>, why: &str) {
        if policy.ignore_failures {
            return;
        }
        let what = if binding.is_some() { "binding" } else { "policy" };
        self.denials.push(Denial {
            policy: policy.name.clone(),
            binding: binding.map(|b| b.name.clone()),
            reason: String::new(),
            message: format!("failed to configure {what}: {why}"),
        });
    }

    /// The request as a kind it was matched as.
    async fn request(&mut self, w: &Write, target: &Target) -> Result<Arc<Request>, String> {
        if let Some((_, known)) = self.prepared.iter().find(|(t, _)| t == target) {
            return Ok(Arc::clone(known));
        }
        let a = self.attributes;
        let namespace = if a.namespace.is_empty()
            || (a.target.gvk.group.is_empty() && a.target.gvk.kind == "Namespace")
        {
            Value::Null
        } else {
            let record = w.server.store().latest(&Key::new("/namespaces", "", a.namespace.as_str()));
            record.and_then(|r| r.value().ok()).unwrap_or_default()
        };
        let made = if target.gvk == a.target.gvk {
            Request::new(a, target, &a.object, &a.old, &namespace)
        } else {
            let failed = |why: &str| format!("failed to convert object version: {why}");
            let kind = w.table.kind(&target.gvk).cloned();
            let kind = kind.ok_or_else(|| failed(&format!("{} is not served", target.gvk.api_version())))?;
            let objects = vec![a.object.clone(), a.old.clone()];
            let converted = convert::webhook::objects(&w.server, &kind, objects);
            let converted = tokio::time::timeout_at(self.until, converted).await;
            let converted = converted.map_err(|_| TOO_LONG.to_owned())?.map_err(|e| failed(&e.message))?;
            let one = |i: usize| converted.get(i).unwrap_or(&Value::Null);
            Request::new(a, target, one(0), one(1), &namespace)
        };
        let made = Arc::new(made);
        self.prepared.push((target.clone(), Arc::clone(&made)));
        Ok(made)
    }

    fn settle(
        &mut self,
        w: &mut Write,
        policy: &Policy,
        binding: &Binding,
        outcome: Outcome,
        annotations: &mut Vec<(String, Vec<String>)>,
    ) {
        let deny = |reason: String, message: String| Denial {
            policy: policy.name.clone(),
            binding: Some(binding.name.clone()),
            reason,
            message,
        };
        for (i, verdict) in outcome.verdicts.into_iter().enumerate() {
            let Verdict::Deny { message, reason } = verdict else { continue };
            for action in &binding.actions {
                match action {
                    Action::Deny => self.denials.push(deny(reason.clone(), message.clone())),
                    Action::Warn => w.warnings.push(format!(
                        "Validation failed for ValidatingAdmissionPolicy '{}' with binding '{}': {message}",
                        policy.name, binding.name
                    )),
                    Action::Audit => annotate(w, FAILURE_KEY.to_owned(), failure(i, &message, binding)),
                }
            }
        }
        for annotation in outcome.annotations {
            match annotation {
                Annotation::Error(message) => self.denials.push(deny(String::new(), message)),
                Annotation::Publish(key, value) => match annotations.iter_mut().find(|(k, _)| *k == key) {
                    Some((_, values)) if values.contains(&value) => {}
                    Some((_, values)) => values.push(value),
                    None => annotations.push((key, vec![value])),
                },
            }
        }
    }
}

/// Decides an access check of an expression, for the user of the request.
pub(super) fn authorize(w: &Write, check: &AccessCheck) -> Decision {
    let user = match &check.service_account {
        None => w.user.clone(),
        Some((namespace, name)) => User::new(
            &format!("system:serviceaccount:{namespace}:{name}"),
            &["system:serviceaccounts", &format!("system:serviceaccounts:{namespace}")],
        ),
    };
    let what = auth::Attributes {
        is_resource: check.path.is_none(),
        verb: check.verb.clone(),
        group: check.group.clone(),
        resource: check.resource.clone(),
        subresource: check.subresource.clone(),
        namespace: check.namespace.clone(),
        name: check.name.clone(),
        path: check.path.clone().unwrap_or_default(),
    };
    let auth::Decision { allowed, reason } = w.server.rbac().authorize(&user, &what);
    Decision { allowed, reason }
}

/// The value of the audit annotation, with Go's order of fields.
fn failure(index: usize, message: &str, binding: &Binding) -> String {
    let actions: Vec<&str> = binding.actions.iter().map(|a| a.name()).collect();
    let text = |t: &str| json!(t).to_string();
    format!(
        "[{{\"message\":{},\"policy\":{},\"binding\":{},\"expressionIndex\":{index},\"validationActions\":{}}}]",
        text(message),
        text(&binding.policy),
        text(&binding.name),
        json!(actions)
    )
}

/// Annotates the request's audit event; what is there stays.
fn annotate(w: &Write, key: String, value: String) {
    let mut annotations = w.annotations.lock().unwrap_or_else(PoisonError::into_inner);
    annotations.entry(key).or_insert(value);
}
