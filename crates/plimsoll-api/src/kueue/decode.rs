//! Kueue objects → the engine's model. API defaults that decide something are applied here.

use plimsoll_queueing::{
    Admission, AdmissionCheckState, BorrowWithinCohort, CheckState, ClusterQueue, Cohort, Condition, Delayed,
    EvictionCount, FlavorFungibility, FlavorPreference, FlavorQuotas, LocalQueue, PodSet, PodSetAssignment,
    PodSetUpdate, PreemptionGateState, PreemptionPolicy, PreemptionRules, QueueingStrategy, ReclaimablePod,
    RequeueState, ResourceGroup, ResourceQuota, StopPolicy, TargetKind, TopologyAssignment, TopologyRequest,
    Workload, WorkloadKey, WorkloadStatus,
};
use plimsoll_state::Time;
use plimsoll_state::collect::InsertEach as _;
use plimsoll_state::model::{Resources, StringMap};
use serde_json::Value;

use super::variants;
use crate::convert::toleration_from_value;
use crate::convert::{ConvertError, Result, bad, label_selector_from_value, pod_spec_from_value, time};
use crate::quantity::Quantity;

type Outcome<T> = std::result::Result<T, ConvertError>;

pub(super) fn text(value: &Value, key: &str) -> String {
    value[key].as_str().unwrap_or_default().to_owned()
}

pub(super) fn list<'a>(value: &'a Value, key: &str) -> &'a [Value] {
    value[key].as_array().map_or(&[], Vec::as_slice)
}

/// One value for each row. Where one may fail, `collect` doesn't know how many there will be, and makes a list of one with room
/// for four: statuses are kept for every workload.
fn each<'a, T>(rows: &'a [Value], of: impl Fn(&'a Value) -> Result<T>) -> Result<Vec<T>> {
    let mut all = Vec::with_capacity(rows.len());
    for row in rows {
        all.push(of(row)?);
    }
    Ok(all)
}

pub(super) fn int32(value: &Value, key: &str) -> Option<i32> {
    value[key].as_i64().map(|v| v.clamp(i64::from(i32::MIN), i64::from(i32::MAX)) as i32)
}

pub(super) fn strings(value: &Value) -> StringMap {
    let rows = value.as_object().into_iter().flatten();
    rows.map(|(k, v)| (k.clone(), v.as_str().unwrap_or_default().to_owned())).insert_each()
}

pub(super) fn name(object: &Value) -> Result<String> {
    match object["metadata"]["name"].as_str() {
        Some(name) if !name.is_empty() => Ok(name.to_owned()),
        _ => bad("metadata.name", "Required value"),
    }
}

pub(super) fn optional_time(field: &str, value: &Value) -> Result<Option<Time>> {
    value.as_str().map(|t| time(field, t)).transpose()
}

fn quantity(field: &str, value: &Value) -> Result<Quantity> {
    let written = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    written.parse().or_else(|e| bad(field, format!("cannot parse {written:?} as a quantity: {e}")))
}

/// cpu in millicores, everything else in whole units.
pub(super) fn amount(field: &str, resource: &str, value: &Value) -> Result<i64> {
    let q = quantity(field, value)?;
    Ok(if resource == "cpu" { q.milli_value() } else { q.value() })
}

pub(super) fn amounts(field: &str, value: &Value) -> Result<Resources> {
    let rows = value.as_object().into_iter().flatten();
    rows.map(|(k, v)| Ok((k.clone(), amount(&format!("{field}[{k}]"), k, v)?))).collect()
}

/// `fairSharing.weight` in nano-units, 1 when missing.
fn weight(object: &Value) -> Result<i64> {
    match &object["spec"]["fairSharing"]["weight"] {
        Value::Null => Ok(1_000_000_000),
        w => Ok(i64::try_from(quantity("spec.fairSharing.weight", w)?.nanos()).unwrap_or(i64::MAX)),
    }
}

fn stop_policy(object: &Value) -> StopPolicy {
    match object["spec"]["stopPolicy"].as_str() {
        Some("Hold") => StopPolicy::Hold,
        Some("HoldAndDrain") => StopPolicy::HoldAndDrain,
        _ => StopPolicy::None,
    }
}

pub(super) fn deleting(object: &Value) -> bool {
    object["metadata"]["deletionTimestamp"].is_string()
}

fn resource_groups(object: &Value) -> Result<Vec<ResourceGroup>> {
    let group = |g: &Value| {
        let covered =
            list(g, "coveredResources").iter().filter_map(|r| r.as_str().map(str::to_owned)).collect();
        let flavors = list(g, "flavors").iter().map(flavor_quotas).collect::<Result<_>>()?;
        Ok(ResourceGroup { covered, flavors })
    };
    list(&object["spec"], "resourceGroups").iter().map(group).collect()
}

fn flavor_quotas(flavor: &Value) -> Result<FlavorQuotas> {
    let quota = |r: &Value| {
        let resource = text(r, "name");
        let optional = |key: &str| match &r[key] {
            Value::Null => Ok(None),
            v => amount(key, &resource, v).map(Some),
        };
        Ok(ResourceQuota {
            nominal: optional("nominalQuota")?.unwrap_or(0),
            borrowing_limit: optional("borrowingLimit")?,
            lending_limit: optional("lendingLimit")?,
            resource: resource.clone(),
        })
    };
    Ok(FlavorQuotas {
        flavor: text(flavor, "name"),
        resources: list(flavor, "resources").iter().map(quota).collect::<Result<_>>()?,
    })
}

/// A ClusterQueue.
///
/// # Errors
/// When a field has a value that can't be understood.
pub fn cluster_queue(object: &Value) -> Outcome<ClusterQueue> {
    let spec = &object["spec"];
    let fungibility = &spec["flavorFungibility"];
    let preemption = &spec["preemption"];
    let borrow = &preemption["borrowWithinCohort"];
    let checks = list(&spec["admissionChecksStrategy"], "admissionChecks").iter().map(|c| {
        let flavors = list(c, "onFlavors").iter().filter_map(|f| f.as_str().map(str::to_owned)).collect();
        (text(c, "name"), flavors)
    });
    Ok(ClusterQueue {
        name: name(object)?,
        generation: object["metadata"]["generation"].as_i64().unwrap_or(0),
        cohort: text(spec, "cohortName"),
        resource_groups: resource_groups(object)?,
        strategy: match spec["queueingStrategy"].as_str() {
            Some("StrictFIFO") => QueueingStrategy::StrictFifo,
            _ => QueueingStrategy::BestEffortFifo,
        },
        namespace_selector: match &spec["namespaceSelector"] {
            Value::Null => None,
            selector => Some(label_selector_from_value(selector)?),
        },
        fungibility: FlavorFungibility {
            try_next_when_can_borrow: fungibility["whenCanBorrow"] == "TryNextFlavor",
            try_next_when_can_preempt: !matches!(
                fungibility["whenCanPreempt"].as_str(),
                Some("MayStopSearch" | "Preempt")
            ),
            preference: match fungibility["preference"].as_str() {
                Some("PreemptionOverBorrowing") => FlavorPreference::PreemptionOverBorrowing,
                _ => FlavorPreference::BorrowingOverPreemption,
            },
        },
        preemption: PreemptionRules {
            reclaim_within_cohort: match preemption["reclaimWithinCohort"].as_str() {
                Some("LowerPriority") => PreemptionPolicy::LowerPriority,
                Some("Any") => PreemptionPolicy::Any,
                _ => PreemptionPolicy::Never,
            },
            within_cluster_queue: match preemption["withinClusterQueue"].as_str() {
                Some("LowerPriority") => PreemptionPolicy::LowerPriority,
                Some("LowerOrNewerEqualPriority") => PreemptionPolicy::LowerOrNewerEqualPriority,
                _ => PreemptionPolicy::Never,
            },
            borrow_within_cohort: BorrowWithinCohort {
                lower_priority: borrow["policy"] == "LowerPriority",
                max_priority_threshold: int32(borrow, "maxPriorityThreshold"),
            },
        },
        stop_policy: stop_policy(object),
        admission_checks: checks.collect(),
        fair_weight_nano: weight(object)?,
        concurrent_admission: variants::flavor_migration(&spec["concurrentAdmissionPolicy"]),
        admission_fair_sharing: spec["admissionScope"]["admissionMode"] == "UsageBasedAdmissionFairSharing",
        preemption_config: text(&object["metadata"]["annotations"], PREEMPTION_CONFIG),
        labels: strings(&object["metadata"]["labels"]),
        metric_labels: Vec::new(),
        shard_stop: None,
        deleting: deleting(object),
    })
}

/// A Cohort.
///
/// # Errors
/// When a field has a value that can't be understood.
pub fn cohort(object: &Value) -> Outcome<Cohort> {
    Ok(Cohort {
        name: name(object)?,
        parent: text(&object["spec"], "parentName"),
        resource_groups: resource_groups(object)?,
        fair_weight_nano: weight(object)?,
        metric_labels: Vec::new(),
        shard_stop: None,
    })
}

/// A LocalQueue.
///
/// # Errors
/// When a field has a value that can't be understood.
pub fn local_queue(object: &Value) -> Outcome<LocalQueue> {
    let status = &object["status"]["fairSharing"]["admissionFairSharingStatus"];
    let consumed = match optional_time("status.fairSharing.lastUpdate", &status["lastUpdate"])? {
        None => None,
        Some(at) => {
            let rows = status["consumedResources"].as_object().into_iter().flatten();
            let rows = rows.map(|(k, v)| Ok((k.clone(), quantity("consumedResources", v)?.nanos())));
            Some((rows.collect::<Result<Vec<_>>>()?, at))
        }
    };
    Ok(LocalQueue {
        namespace: text(&object["metadata"], "namespace"),
        name: name(object)?,
        cluster_queue: text(&object["spec"], "clusterQueue"),
        stop_policy: stop_policy(object),
        fair_weight_nano: weight(object)?,
        consumed,
        labels: strings(&object["metadata"]["labels"]),
        metric_labels: Vec::new(),
        deleting: deleting(object),
    })
}

/// A Workload.
///
/// # Errors
/// When a pod template or another field can't be understood.
pub fn workload(object: &Value) -> Outcome<Workload> {
    let (meta, spec) = (&object["metadata"], &object["spec"]);
    let depends = meta["annotations"][super::DEPENDS_ON].as_str();
    let depends = depends.map_or(Ok(Vec::new()), super::depends_on);
    let depends_invalid =
        depends.as_ref().err().map_or(String::new(), |e| format!("Annotation {}: {e}", super::DEPENDS_ON));
    let pod_sets: Vec<PodSet> =
        list(spec, "podSets").iter().enumerate().map(pod_set).collect::<Result<_>>()?;
    let mut status = status(&object["status"])?;
    super::charged::limit(&mut status.reclaimable, &meta["annotations"], &pod_sets);
    Ok(Workload {
        depends_on: depends.unwrap_or_default(),
        depends_invalid,
        run_window: text(&meta["annotations"], crate::windows::RUN_WINDOW),
        answers_to: answers_to(meta),
        key: WorkloadKey { namespace: text(meta, "namespace"), name: name(object)? },
        uid: text(meta, "uid"),
        version: meta["resourceVersion"].as_str().and_then(|v| v.parse().ok()).unwrap_or(0),
        generation: meta["generation"].as_i64().unwrap_or(0),
        creation: optional_time("metadata.creationTimestamp", &meta["creationTimestamp"])?
            .unwrap_or_default(),
        job_uid: text(&meta["labels"], "kueue.x-k8s.io/job-uid"),
        priority: int32(spec, "priority").unwrap_or(0),
        priority_boost: text(&meta["annotations"], PRIORITY_BOOST).parse().unwrap_or(0),
        partial_preemption: meta["annotations"][PARTIAL_PREEMPTION] == "true",
        replaces: replaces(&meta["annotations"]),
        first_slice: text(&meta["annotations"], crate::convert::FIRST_SLICE),
        has_variants: variants::is_parent(meta),
        variant_of: variants::parent_uid(meta).to_owned(),
        allowed_flavors: variants::allowed_flavors(meta),
        preemption_gates: list(spec, "preemptionGates").iter().map(|g| text(g, "name")).collect(),
        labels: StringMap::new(),
        priority_class: text(&spec["priorityClassRef"], "name"),
        queue: text(spec, "queueName"),
        metric_labels: Vec::new(),
        active: spec["active"].as_bool().unwrap_or(true),
        max_execution_seconds: int32(spec, "maximumExecutionTimeSeconds"),
        pod_sets: pod_sets.into(),
        admission_gated_by: text(&meta["annotations"], "kueue.x-k8s.io/admission-gated-by"),
        single_pod: single_pod(meta),
        deleting: deleting(object),
        status,
    })
}

/// Annotation of ClusterQueues that names a PreemptionConfig (Kueue `PreemptionConfigNameAnnotation`).
pub const PREEMPTION_CONFIG: &str = "kueue.x-k8s.io/preemption-config-name";
/// Annotation that raises or lowers the priority of a workload (Kueue KEP-7990).
pub const PRIORITY_BOOST: &str = "kueue.x-k8s.io/priority-boost";
/// Annotation of workloads that may be asked to shrink instead of being preempted (Kueue KEP-975), with the value `true`.
pub const PARTIAL_PREEMPTION: &str = "kueue.x-k8s.io/partial-preemption";
/// Annotation with namespace and name of the slice whose place a workload takes (Kueue KEP-77).
pub const REPLACEMENT_FOR: &str = "kueue.x-k8s.io/workload-slice-replacement-for";
fn replaces(annotations: &Value) -> Option<WorkloadKey> {
    let (namespace, name) = annotations[REPLACEMENT_FOR].as_str()?.split_once('/')?;
    Some(WorkloadKey { namespace: namespace.to_owned(), name: name.to_owned() })
}

/// Whether exactly one pod owns the workload, and it is no pod group's.
fn single_pod(meta: &Value) -> bool {
    let group = meta["annotations"]["kueue.x-k8s.io/is-group-workload"] == "true";
    let [owner] = list(meta, "ownerReferences") else { return false };
    !group && owner["kind"] == "Pod" && owner["apiVersion"] == "v1"
}

/// What the workload was made for, so that others can name it.
fn answers_to(meta: &Value) -> Vec<(TargetKind, String)> {
    let group = meta["annotations"]["kueue.x-k8s.io/is-group-workload"] == "true";
    let group = group.then(|| (TargetKind::PodGroup, text(meta, "name")));
    let owners = list(meta, "ownerReferences").iter().filter(|o| o["controller"] == true);
    let named = owners.filter_map(|o| match o["kind"].as_str()? {
        "Job" => Some((TargetKind::Job, text(o, "name"))),
        "Pod" => Some((TargetKind::Pod, text(o, "name"))),
        _ => None,
    });
    named.chain(group).collect()
}

fn pod_set((index, podset): (usize, &Value)) -> Result<PodSet> {
    let template = &podset["template"];
    let spec = match &template["spec"] {
        Value::Null => plimsoll_state::model::PodSpec::default(),
        spec => pod_spec_from_value(spec).map_err(|e| ConvertError::Field {
            field: format!("spec.podSets[{index}].template.spec"),
            message: e.to_string(),
        })?,
    };
    Ok(PodSet {
        name: podset["name"].as_str().unwrap_or("main").to_owned(),
        count: int32(podset, "count").unwrap_or(1),
        min_count: int32(podset, "minCount"),
        spec,
        labels: strings(&template["metadata"]["labels"]),
        topology: topology_request(&podset["topologyRequest"]),
    })
}

fn topology_request(request: &Value) -> Option<TopologyRequest> {
    request.as_object()?;
    let optional = |key: &str| request[key].as_str().map(str::to_owned);
    let mut slices: Vec<(String, i32)> = Vec::new();
    if let Some(level) = optional("podSetSliceRequiredTopology") {
        slices.push((level, int32(request, "podSetSliceSize").unwrap_or(1)));
    }
    for layer in list(request, "podsetSliceRequiredTopologyConstraints") {
        slices.push((text(layer, "topology"), int32(layer, "size").unwrap_or(1)));
    }
    Some(TopologyRequest {
        required: optional("required"),
        preferred: optional("preferred"),
        unconstrained: request["unconstrained"].as_bool().unwrap_or(false),
        group: optional("podSetGroupName"),
        slices,
    })
}

fn status(status: &Value) -> Result<WorkloadStatus> {
    let requeue = &status["requeueState"];
    Ok(WorkloadStatus {
        conditions: each(list(status, "conditions"), condition)?,
        admission: admission(&status["admission"])?.map(Box::new),
        reclaimable: list(status, "reclaimablePods")
            .iter()
            .map(|r| ReclaimablePod { name: text(r, "name"), count: int32(r, "count").unwrap_or(0) })
            .collect(),
        requeue_state: match requeue {
            Value::Object(_) => Some(RequeueState {
                count: int32(requeue, "count").unwrap_or(0),
                requeue_at: optional_time("status.requeueState.requeueAt", &requeue["requeueAt"])?,
            }),
            _ => None,
        },
        admission_checks: each(list(status, "admissionChecks"), check)?,
        resource_requests: each(list(status, "resourceRequests"), |r| {
            Ok((text(r, "name"), amounts("status.resourceRequests", &r["resources"])?.into()))
        })?,
        evictions: list(&status["schedulingStats"], "evictions")
            .iter()
            .map(|e| EvictionCount {
                reason: text(e, "reason"),
                cause: text(e, "underlyingCause"),
                count: int32(e, "count").unwrap_or(0),
            })
            .collect(),
        past_execution_seconds: int32(status, "accumulatedPastExecutionTimeSeconds"),
        preemption_gates: list(status, "preemptionGates")
            .iter()
            .map(|g| {
                Ok(PreemptionGateState {
                    name: text(g, "name"),
                    open: g["position"] == "Open",
                    transition: optional_time("status.preemptionGates", &g["lastTransitionTime"])?
                        .unwrap_or_default(),
                })
            })
            .collect::<Result<_>>()?,
        unhealthy_nodes: list(status, "unhealthyNodes").iter().map(|n| text(n, "name")).collect(),
    })
}

fn condition(c: &Value) -> Result<Condition> {
    Ok(Condition {
        kind: text(c, "type"),
        status: c["status"] == "True",
        reason: text(c, "reason"),
        message: text(c, "message"),
        transition: optional_time("status.conditions", &c["lastTransitionTime"])?.unwrap_or_default(),
        observed_generation: c["observedGeneration"].as_i64().unwrap_or(0),
    })
}

fn check(c: &Value) -> Result<AdmissionCheckState> {
    Ok(AdmissionCheckState {
        name: text(c, "name"),
        state: match c["state"].as_str() {
            Some("Ready") => CheckState::Ready,
            Some("Retry") => CheckState::Retry,
            Some("Rejected") => CheckState::Rejected,
            _ => CheckState::Pending,
        },
        message: text(c, "message"),
        transition: optional_time("status.admissionChecks", &c["lastTransitionTime"])?.unwrap_or_default(),
        requeue_after_seconds: int32(c, "requeueAfterSeconds"),
        retry_count: int32(c, "retryCount"),
        updates: list(c, "podSetUpdates").iter().map(pod_set_update).collect::<Result<_>>()?,
    })
}

fn pod_set_update(u: &Value) -> Result<PodSetUpdate> {
    Ok(PodSetUpdate {
        name: text(u, "name"),
        node_selector: strings(&u["nodeSelector"]),
        tolerations: list(u, "tolerations").iter().map(toleration_from_value).collect::<Result<_>>()?,
    })
}

fn admission(admission: &Value) -> Result<Option<Admission>> {
    if !admission.is_object() {
        return Ok(None);
    }
    let assignments = each(list(admission, "podSetAssignments"), |a| {
        let mut flavors: Vec<(String, String)> = strings(&a["flavors"]).into_iter().collect();
        flavors.sort();
        Ok(PodSetAssignment {
            name: text(a, "name"),
            flavors,
            resource_usage: amounts("status.admission.resourceUsage", &a["resourceUsage"])?.into(),
            count: int32(a, "count").unwrap_or(1),
            topology: topology_assignment(&a["topologyAssignment"]),
            delayed: match a["delayedTopologyRequest"].as_str() {
                Some("Pending") => Some(Delayed::Pending),
                Some("Ready") => Some(Delayed::Ready),
                _ => None,
            },
            reclaim_target: int32(a, "reclaimTargetCount"),
        })
    })?;
    Ok(Some(Admission { cluster_queue: text(admission, "clusterQueue"), assignments }))
}

/// Most domains that one assignment may name (v1beta2: 1000 slices of 100,000; more can't be real).
const MAX_DOMAINS: usize = 1_000_000;

/// Unpacks the compressed form of v1beta2; `None` when there is no assignment.
pub fn topology_assignment(value: &Value) -> Option<TopologyAssignment> {
    value.as_object()?;
    let levels: Vec<String> =
        list(value, "levels").iter().map(|l| l.as_str().unwrap_or_default().to_owned()).collect();
    let mut domains = Vec::new();
    for slice in list(value, "slices") {
        let count = usize::try_from(slice["domainCount"].as_u64().unwrap_or(0)).unwrap_or(0);
        for i in 0..count.min(MAX_DOMAINS.saturating_sub(domains.len())) {
            let at_level = |values: &Value| {
                if let Some(v) = values["universal"].as_str() {
                    return v.to_owned();
                }
                let individual = &values["individual"];
                let root = individual["roots"][i].as_str().unwrap_or_default();
                format!("{}{root}{}", text(individual, "prefix"), text(individual, "suffix"))
            };
            let values = list(slice, "valuesPerLevel").iter().map(at_level).collect();
            let counts = &slice["podCounts"];
            let pods = counts["universal"].as_i64().or_else(|| counts["individual"][i].as_i64()).unwrap_or(0);
            domains.push((values, i32::try_from(pods).unwrap_or(i32::MAX)));
        }
    }
    domains.shrink_to_fit();
    Some(TopologyAssignment { levels, domains })
}
