//! Built-in admission, in upstream's order of plugins, and webhooks.

mod attributes;
pub(crate) mod charges;
mod escalation;
pub(crate) mod hooks;
mod limits;
mod namespace;
mod node_restriction;
mod objects;
mod owners;
pub mod plugins;
mod pod_security;
mod pods;
pub mod policies;
mod priority;
mod quota;
mod runtime_class;
mod service_account;
mod signers;
mod versions;
pub mod webhooks;

use self::charges::Charge;
use self::plugins::Plugin;
pub use plimsoll_apimachinery::admission::Operation;
use plimsoll_apimachinery::{ApiError, Details, Gvk};
use serde_json::Value;

use crate::write::{Admission, Write};

/// The resource and subresource of a write, for plugins to match.
pub(crate) struct Subject<'a> {
    pub group: &'a str,
    pub plural: &'a str,
    pub subresource: &'a str,
}

impl Subject<'_> {
    pub fn is(&self, group: &str, plural: &str) -> bool {
        self.group == group && self.plural == plural && self.subresource.is_empty()
    }
}

pub(crate) fn subject(w: &Write) -> Subject<'_> {
    let Gvk { group, .. } = &w.kind.gvk;
    Subject { group, plural: &w.kind.plural, subresource: &w.subresource }
}

/// Admission that may change the object. `old`: its state before, for updates and deletions.
///
/// # Errors
/// What a plugin or a webhook refuses.
pub async fn mutate(
    w: &mut Write,
    object: &mut Value,
    old: Option<&Value>,
    operation: Operation,
) -> Result<(), ApiError> {
    if w.admission == Admission::Done {
        return Ok(());
    }
    if on(w, Plugin::NamespaceLifecycle) {
        namespace::check(
            w,
            if object.is_null() { old.unwrap_or(&Value::Null) } else { &*object },
            operation,
        )?;
    }
    builtin(w, object, old, operation).await?;
    if !on(w, Plugin::MutatingAdmissionWebhook) {
        return Ok(());
    }
    let first = webhooks::mutate(w, object, old, operation).await?;
    if !first.changed {
        return Ok(());
    }
    // What a webhook put in gets the plugins' treatment as well, and what they change the webhooks'.
    let before = object.clone();
    builtin(w, object, old, operation).await?;
    let plugin_changed = before != *object;
    webhooks::mutate_again(w, object, old, operation, (first, plugin_changed)).await
}

fn on(w: &Write, plugin: Plugin) -> bool {
    w.server.config().plugins.has(plugin)
}

async fn builtin(
    w: &Write,
    object: &mut Value,
    old: Option<&Value>,
    operation: Operation,
) -> Result<(), ApiError> {
    if !matches!(operation, Operation::Create | Operation::Update) {
        return restrict(w, object, old, operation);
    }
    if on(w, Plugin::LimitRanger) {
        limits::default(w, object, old, operation);
    }
    if on(w, Plugin::ServiceAccount) {
        service_account::admit(w, object, operation).await?;
    }
    restrict(w, object, old, operation)?;
    if on(w, Plugin::TaintNodesByCondition) {
        objects::taint_new_node(w, object, operation);
    }
    if on(w, Plugin::Priority) {
        priority::resolve(w, object, old, operation)?;
    }
    if on(w, Plugin::DefaultTolerationSeconds) {
        pods::default_tolerations(w, object);
    }
    if on(w, Plugin::DefaultStorageClass) {
        objects::default_storage_class(w, object, operation);
    }
    if on(w, Plugin::StorageObjectInUseProtection) {
        objects::protect_storage(w, object, operation);
    }
    if on(w, Plugin::RuntimeClass) {
        runtime_class::apply(w, object, operation)?;
    }
    if on(w, Plugin::DefaultIngressClass) {
        objects::default_ingress_class(w, object, operation);
    }
    if on(w, Plugin::PodTopologyLabels) {
        pods::label_topology(w, object, operation);
    }
    Ok(())
}

fn restrict(w: &Write, object: &Value, old: Option<&Value>, operation: Operation) -> Result<(), ApiError> {
    if on(w, Plugin::NodeRestriction) { node_restriction::check(w, object, old, operation) } else { Ok(()) }
}

/// Admission that only looks. `object`: the new state, `None` for a deletion.
///
/// # Errors
/// What a plugin or a webhook refuses.
pub async fn validate(
    w: &mut Write,
    object: Option<&Value>,
    old: Option<&Value>,
    operation: Operation,
) -> Result<Charge, ApiError> {
    if w.admission == Admission::Done {
        return Ok(Charge::default());
    }
    // Not a plugin upstream: the registry of priority classes protects its own.
    priority::protect(w, operation)?;
    if let Some(object) = object {
        validate_builtin(w, object, old, operation).await?;
    }
    if on(w, Plugin::ValidatingAdmissionPolicy) {
        policies::validate(w, object, old, operation).await?;
    }
    if on(w, Plugin::ValidatingAdmissionWebhook) {
        webhooks::validate(w, object, old, operation).await?;
    }
    if let Some(object) = object {
        // As upstream's storage does it: after every plugin that may change the object.
        escalation::check(w, object, old, operation)?;
        if on(w, Plugin::ResourceQuota) {
            return quota::charge(w, object, old, operation).await;
        }
    }
    Ok(Charge::default())
}

async fn validate_builtin(
    w: &mut Write,
    object: &Value,
    old: Option<&Value>,
    operation: Operation,
) -> Result<(), ApiError> {
    if on(w, Plugin::LimitRanger) {
        limits::validate(w, object, old, operation)?;
    }
    if on(w, Plugin::ServiceAccount) {
        service_account::validate(w, object, operation)?;
    }
    if on(w, Plugin::PodSecurity) {
        pod_security::validate(w, object, old, operation).await?;
    }
    if on(w, Plugin::Priority) {
        priority::validate(w, object, operation)?;
    }
    if on(w, Plugin::OwnerReferencesPermissionEnforcement) {
        owners::check(w, object, old, operation)?;
    }
    if on(w, Plugin::PersistentVolumeClaimResize) {
        objects::check_claim_resize(w, object, old, operation)?;
    }
    if on(w, Plugin::RuntimeClass) {
        runtime_class::validate(w, object, operation)?;
    }
    let of_certificates = match w.subresource.as_str() {
        "approval" => Plugin::CertificateApproval,
        _ => Plugin::CertificateSigning,
    };
    if on(w, of_certificates) {
        signers::check(w, object, old, operation)?;
    }
    if on(w, Plugin::PodResizeValidator) {
        pods::check_resize(w, object, old, operation)?;
    }
    Ok(())
}

/// 403 as plugins word it: `pods "x" is forbidden: …`.
pub(crate) fn forbidden(w: &Write, object: &Value, why: &str) -> ApiError {
    let meta = &object["metadata"];
    let text = |field: &str| meta[field].as_str().filter(|t| !t.is_empty());
    let name = Some(w.name.as_str())
        .filter(|n| !n.is_empty())
        .or_else(|| text("name"))
        .or_else(|| text("generateName"))
        .unwrap_or("Unknown")
        .to_owned();
    forbidden_named(w, &name, why)
}

/// As [`forbidden`], for a name that is known.
pub(crate) fn forbidden_named(w: &Write, name: &str, why: &str) -> ApiError {
    let (group, plural) = (resource_group(w), w.kind.plural.as_str());
    let dot = if group.is_empty() { "" } else { "." };
    let message = format!("{plural}{dot}{group} \"{name}\" is forbidden: {why}");
    let mut e = ApiError::new(403, "Forbidden", message);
    e.details = Some(Box::new(Details {
        name: name.to_owned(),
        group: group.to_owned(),
        kind: w.kind.plural.clone(),
        ..Details::default()
    }));
    e
}

/// The group of the resource that is written: not that of what is created at a subresource of it (an Eviction).
fn resource_group(w: &Write) -> &str {
    let Gvk { group, version, .. } = &w.kind.gvk;
    match w.table.resource(group, version, &w.kind.plural) {
        Some(_) => group,
        None => w.kind.storage.split_once('/').map_or(group, |(group, _)| group),
    }
}
