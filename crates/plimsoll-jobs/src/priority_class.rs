//! WorkloadPriorityClasses of workloads: the class that their job names, and its value (Kueue
//! `workloadpriorityclass_controller.go` and `UpdateWorkloadPriority` in `jobframework/reconciler.go`).

use std::sync::Arc;
use std::time::Duration;

use plimsoll_api::json;
use plimsoll_api::resource::{Resource, WORKLOADS};
use serde_json::{Value, json};

use crate::generic_job::GenericJob;
use crate::plan::{Plan, Write, event, patch};
use crate::store::{Kind, ObjectStore};
use crate::{Env, names, workload};

/// Pause before a missing class is looked up again.
const RETRY: Duration = Duration::from_secs(1);

/// Sets `spec.priority` of all workloads of this class to its value. A deleted class leaves them as they are; one that is
/// created again may have another value.
pub(crate) fn plan(name: &str, objects: &ObjectStore) -> Plan {
    let Some(class) = objects.get(Kind::WorkloadPriorityClass, "", name) else { return Plan::new() };
    let value = class["value"].as_i64().unwrap_or(0);
    let of_class = |w: &Arc<Value>| {
        names_workload_priority_class(w)
            && json::text(w, &["spec", "priorityClassRef", "name"]) == name
            && w["spec"]["priority"].as_i64() != Some(value)
    };
    let update = |w: Arc<Value>| {
        let mut new = (*w).clone();
        json::set(&mut new, &["spec", "priority"], json!(value));
        patch(WORKLOADS, &w, &new)
    };
    objects.all(Kind::Workload).filter(of_class).filter_map(update).collect()
}

/// Whether a WorkloadPriorityClass decides the priority of a workload.
fn names_workload_priority_class(wl: &Value) -> bool {
    wl["spec"]["priorityClassRef"]["kind"] == "WorkloadPriorityClass"
}

/// Writes that give a workload the priority of the class that its job names now (Kueue `UpdateWorkloadPriority`). A workload
/// that follows the PriorityClass of its pods is left as it is, and so is one that reserved quota without a class: the API
/// server refuses to add one.
///
/// # Errors
/// When the named class is not known (yet), as those of [`workload::priority`].
pub(crate) fn update(job: &dyn GenericJob, wl: &Value, env: Env<'_>) -> Result<Plan, Option<String>> {
    let has_class = wl["spec"]["priorityClassRef"].is_object();
    let reserved = json::is_true(wl, "QuotaReserved");
    let wanted = json::label(job.object(), names::PRIORITY_CLASS);
    if has_class && !names_workload_priority_class(wl)
        || reserved && (!has_class || wanted.is_empty())
        || json::text(wl, &["spec", "priorityClassRef", "name"]) == wanted
    {
        return Ok(Plan::new());
    }
    let pod_sets = json::list(wl, &["spec", "podSets"]);
    let mut new = wl.clone();
    workload::set_priority(&mut new, &workload::priority(job.object(), job.priority_class(), pod_sets, env)?);
    let mut plan: Plan = patch(WORKLOADS, wl, &new).into_iter().collect();
    if !plan.is_empty() {
        let text = format!("Updated workload priority class: {}/{}", json::namespace(wl), json::name(wl));
        plan.push(event(job.resource(), job.object(), false, "UpdatedWorkload", &text));
    }
    Ok(plan)
}

/// Writes while the class that a job names is not known: the warning, and another look later.
pub(crate) fn missing(resource: Resource, object: &Value, warning: Option<&str>) -> Plan {
    let event = |message| event(resource, object, true, "WorkloadPriorityClassNotFound", message);
    warning.map(event).into_iter().chain([Write::RequeueAfter(RETRY)]).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Key, affected};

    #[test]
    fn a_changed_value_reaches_the_workloads_of_the_class_only() {
        let mut objects = ObjectStore::default();
        let class = |value: i64| json!({"metadata": {"name": "high"}, "value": value});
        let put = |objects: &mut ObjectStore, name: &str, kind: &str, class: &str, priority: i64| {
            objects.put(
                Kind::Workload,
                json!({"metadata": {"namespace": "n", "name": name, "uid": name, "resourceVersion": "1"},
                       "spec": {"priority": priority, "priorityClassRef": {"kind": kind, "name": class}}}),
            );
        };
        put(&mut objects, "of-class", "WorkloadPriorityClass", "high", 100);
        put(&mut objects, "up-to-date", "WorkloadPriorityClass", "high", 50);
        put(&mut objects, "of-other", "WorkloadPriorityClass", "low", 100);
        put(&mut objects, "of-pods", "PriorityClass", "high", 100);
        assert!(plan("high", &objects).is_empty(), "the class is not known");
        objects.put(Kind::WorkloadPriorityClass, class(50));
        let keys = affected(Kind::WorkloadPriorityClass, &class(50), &objects);
        assert_eq!(keys, [Key::WorkloadPriorityClass("high".into())]);
        let writes = plan("high", &objects);
        let [Write::Patch { name, body, .. }] = writes.as_slice() else { panic!("{writes:?}") };
        assert_eq!((name.as_str(), &body["spec"]), ("of-class", &json!({"priority": 50})));
        // Seen again, or with another annotation: priorities that users have set stay.
        objects.put(Kind::WorkloadPriorityClass, class(50));
        assert!(affected(Kind::WorkloadPriorityClass, &class(50), &objects).is_empty());
        objects.put(Kind::WorkloadPriorityClass, class(60));
        assert_eq!(affected(Kind::WorkloadPriorityClass, &class(60), &objects).len(), 1);
    }
}
