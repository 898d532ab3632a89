//! Jobs whose Workload the API server refuses: their pod templates are none. (Kueue writes that to its log alone.)

use plimsoll_api::event::{EventRecord, ObjectReference};
use plimsoll_api::json;
use plimsoll_api::resource::{JOB_KINDS, Resource, WORKLOADS};
use serde_json::{Value, json};

use crate::plan::{Plan, Write, job_controller, patch_status};
use crate::store::Kind;
use crate::{Env, job_kind};

/// The owner of a Workload that is to be created, if it has one.
pub(crate) fn owner(resource: Resource, object: &Value) -> Option<Box<ObjectReference>> {
    let owner = json::controller(object).filter(|_| resource == WORKLOADS)?;
    let text = |key| json::text(owner, &[key]).to_owned();
    Some(Box::new(ObjectReference {
        api_version: text("apiVersion"),
        kind: text("kind"),
        namespace: json::namespace(object).to_owned(),
        name: text("name"),
        uid: text("uid"),
        resource_version: String::new(),
        field_path: String::new(),
    }))
}

/// An Event on the job, and for a declared kind the condition of its JobKind.
pub(crate) fn plan(owner: ObjectReference, why: &str, env: Env<'_>) -> Plan {
    const REASON: &str = "ErrWorkloadCompose";
    let mut plan = Plan::new();
    let declared = env.objects.declared_of_kind(&owner.api_version, &owner.kind);
    let kind = declared.and_then(|custom| env.objects.declared_by(custom));
    if let Some(kind) = kind.and_then(|name| env.objects.get(Kind::JobKind, "", &name)) {
        let message = format!("{}/{}: {why}", owner.namespace, owner.name);
        if let Some(conditions) = job_kind::evaluation_failed(&kind, &message, env.now) {
            plan.push(patch_status(JOB_KINDS, &kind, &json!({ "conditions": conditions })));
        }
    }
    let controller = job_controller(&owner.api_version, &owner.kind);
    let event = EventRecord {
        regarding: owner,
        warning: true,
        reason: REASON.to_owned(),
        action: REASON.to_owned(),
        message: why.to_owned(),
        reporting_controller: controller.into(),
        reporting_instance: String::new(),
    };
    plan.insert(0, Write::Event(Box::new(event)));
    plan
}
