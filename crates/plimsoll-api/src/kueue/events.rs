//! Objects → events of queueing, for every kind that queueing looks at.

use plimsoll_queueing::{
    AdmissionCheck, CustomLabel, Event, LabelSource, LimitRange, LimitRangeItem, Topology, WorkloadKey,
};
use plimsoll_state::model::Resources;
use serde_json::Value;

use super::decode::{self, amounts, name, strings, text};
use super::devices;
use crate::convert::{ConvertError, Result};

/// The event that tells queueing of an object that was seen or changed; `None` for kinds that queueing
/// doesn't look at. Nodes and pods reach queueing as events of placement.
///
/// # Errors
/// When the object has a value that can't be understood.
pub fn upsert_event(object: &Value) -> std::result::Result<Option<Event>, ConvertError> {
    Ok(Some(match object["kind"].as_str().unwrap_or_default() {
        "ClusterQueue" => Event::ClusterQueueUpsert(Box::new(decode::cluster_queue(object)?)),
        "Cohort" => Event::CohortUpsert(Box::new(decode::cohort(object)?)),
        "LocalQueue" => Event::LocalQueueUpsert(Box::new(decode::local_queue(object)?)),
        "ResourceFlavor" => Event::ResourceFlavorUpsert(Box::new(super::flavor::resource_flavor(object)?)),
        "Workload" => Event::WorkloadUpsert(Box::new(decode::workload(object)?)),
        "AdmissionCheck" => Event::AdmissionCheckUpsert(Box::new(admission_check(object)?)),
        "Topology" => Event::TopologyUpsert(Box::new(topology(object)?)),
        "PreemptionConfig" => Event::PreemptionConfigUpsert(Box::new(super::preemption_config(object)?)),
        "RunWindow" => Event::RunWindowUpsert(Box::new(crate::windows::run_window(object)?)),
        "QuotaLoan" => Event::QuotaLoanUpsert(Box::new(super::quota_loan(object)?)),
        "Namespace" => Event::NamespaceUpsert(name(object)?, strings(&object["metadata"]["labels"])),
        "LimitRange" => Event::LimitRangeUpsert(Box::new(limit_range(object)?)),
        "RuntimeClass" => Event::RuntimeClassUpsert(name(object)?, overhead(object)?),
        "ResourceClaimTemplate" => Event::ClaimTemplateUpsert(Box::new(devices::claim_template(object)?)),
        "DeviceClass" => Event::DeviceClassUpsert(Box::new(devices::device_class(object)?)),
        "ResourceSlice" => Event::ResourceSliceUpsert(Box::new(devices::resource_slice(object)?)),
        _ => return Ok(None),
    }))
}

/// Tells an event what the object has for the custom labels of metrics.
pub fn add_metric_labels(event: &mut Event, object: &Value, labels: &[CustomLabel]) {
    if labels.is_empty() {
        return;
    }
    let meta = &object["metadata"];
    let values = |source: LabelSource| -> Vec<String> {
        let found = |l: &CustomLabel| {
            meta[if l.annotation { "annotations" } else { "labels" }].get(&l.key).and_then(Value::as_str)
        };
        labels.iter().filter(|l| l.source == source).map(|l| l.value(found(l))).collect()
    };
    match event {
        Event::ClusterQueueUpsert(q) => q.metric_labels = values(LabelSource::ClusterQueue),
        Event::CohortUpsert(c) => c.metric_labels = values(LabelSource::Cohort),
        Event::LocalQueueUpsert(q) => q.metric_labels = values(LabelSource::LocalQueue),
        Event::WorkloadUpsert(w) => w.metric_labels = values(LabelSource::Workload),
        _ => {}
    }
}

/// Tells the event of a Workload its labels, which rules of PreemptionConfigs read.
pub fn add_workload_labels(event: &mut Event, object: &Value) {
    if let Event::WorkloadUpsert(w) = event {
        w.labels = strings(&object["metadata"]["labels"]);
    }
}

/// The event that tells queueing that an object is gone; `None` for kinds that queueing doesn't look at.
pub fn delete_event(kind: &str, namespace: &str, name: &str) -> Option<Event> {
    let (ns, name) = (namespace.to_owned(), name.to_owned());
    Some(match kind {
        "ClusterQueue" => Event::ClusterQueueDelete(name),
        "Cohort" => Event::CohortDelete(name),
        "LocalQueue" => Event::LocalQueueDelete(ns, name),
        "ResourceFlavor" => Event::ResourceFlavorDelete(name),
        "Workload" => Event::WorkloadDelete(WorkloadKey { namespace: ns, name }),
        "AdmissionCheck" => Event::AdmissionCheckDelete(name),
        "Topology" => Event::TopologyDelete(name),
        "PreemptionConfig" => Event::PreemptionConfigDelete(name),
        "RunWindow" => Event::RunWindowDelete(name),
        "QuotaLoan" => Event::QuotaLoanDelete(name),
        "Namespace" => Event::NamespaceDelete(name),
        "LimitRange" => Event::LimitRangeDelete(ns, name),
        "RuntimeClass" => Event::RuntimeClassDelete(name),
        "ResourceClaimTemplate" => Event::ClaimTemplateDelete(ns, name),
        "DeviceClass" => Event::DeviceClassDelete(name),
        "ResourceSlice" => Event::ResourceSliceDelete(name),
        _ => return None,
    })
}

fn overhead(object: &Value) -> Result<Resources> {
    amounts("overhead.podFixed", &object["overhead"]["podFixed"])
}

fn topology(object: &Value) -> Result<Topology> {
    let levels = object["spec"]["levels"].as_array().into_iter().flatten();
    Ok(Topology { name: name(object)?, levels: levels.map(|l| text(l, "nodeLabel")).collect() })
}

fn admission_check(object: &Value) -> Result<AdmissionCheck> {
    let mut conditions = object["status"]["conditions"].as_array().into_iter().flatten();
    Ok(AdmissionCheck {
        name: name(object)?,
        controller: text(&object["spec"], "controllerName"),
        active: conditions.any(|c| c["type"] == "Active" && c["status"] == "True"),
    })
}

fn limit_range(object: &Value) -> Result<LimitRange> {
    let mut out = LimitRange {
        namespace: text(&object["metadata"], "namespace"),
        name: name(object)?,
        ..LimitRange::default()
    };
    for raw in object["spec"]["limits"].as_array().into_iter().flatten() {
        let item = LimitRangeItem {
            max: amounts("spec.limits.max", &raw["max"])?,
            min: amounts("spec.limits.min", &raw["min"])?,
            default: amounts("spec.limits.default", &raw["default"])?,
            default_request: amounts("spec.limits.defaultRequest", &raw["defaultRequest"])?,
        };
        match raw["type"].as_str() {
            Some("Pod") => out.pod = Some(item),
            Some("Container") => out.container = Some(item),
            _ => {}
        }
    }
    Ok(out)
}
