//! Which jobs are queued, and what is kept of them: the fields of Kueue's `Configuration` that job integrations and their
//! webhooks follow.

use std::collections::BTreeSet;

use plimsoll_api::json;
use plimsoll_api::kueue::{QuotaRelease, WorkloadNames};
use plimsoll_state::model::{LabelSelector, Operator, Requirement, StringMap};
use plimsoll_state::time::Duration;
use serde_json::Value;

use crate::custom_kind::CustomKind;
use crate::key::Key;
use crate::multikueue::Settings as MultiKueue;
use crate::pod_view::Identifiers;
use crate::store::{Kind, ObjectStore};
use crate::{Env, names};

/// Framework of `batch/v1` Jobs.
pub const BATCH_JOB: &str = "batch/job";
/// Framework of plain pods and pod groups.
pub const POD: &str = "pod";
/// Framework of Deployments.
pub const DEPLOYMENT: &str = "deployment";
/// Framework of StatefulSets.
pub const STATEFUL_SET: &str = "statefulset";
/// All frameworks of kinds that every cluster serves.
pub const FRAMEWORKS: [&str; 4] = [BATCH_JOB, POD, DEPLOYMENT, STATEFUL_SET];

/// Label with which the API server marks every namespace.
const NAME_LABEL: &str = "kubernetes.io/metadata.name";

/// The configuration. The default is Kueue's without a file, with all frameworks that are built in.
#[derive(Clone, Debug)]
pub struct Config {
    /// `manageJobsWithoutQueueName`.
    pub manage_jobs_without_queue_name: bool,
    /// `managedJobsNamespaceSelector`.
    pub managed_jobs_namespace_selector: LabelSelector,
    /// `integrations.frameworks`. Names without an integration have no effect.
    pub frameworks: BTreeSet<String>,
    /// `integrations.externalFrameworks`: kinds whose jobs other controllers queue, as `Kind.version.group`.
    pub external_frameworks: Vec<String>,
    /// `integrations.labelKeysToCopy`.
    pub label_keys_to_copy: Vec<String>,
    /// Annotations that Workloads have from their jobs, for custom labels of metrics.
    pub annotation_keys_to_copy: Vec<String>,
    /// Whether `waitForPodsReady` is on.
    pub wait_for_pods_ready: bool,
    /// Gate `ElasticJobsViaWorkloadSlices`.
    pub elastic_jobs: bool,
    /// Gate `ElasticJobsViaWorkloadSlicesWithPartialReplicaScaleUp`.
    pub partial_scale_up: bool,
    /// Gate `PartialPreemption`.
    pub partial_preemption: bool,
    /// Gate `PriorityBoost`.
    pub priority_boost: bool,
    /// Gate `CleanupProvisioningRequestsOnEviction`.
    pub clean_up_provisioning_requests: bool,
    /// Gate `FailureRecoveryPolicy`.
    pub failure_recovery: bool,
    /// Gate `ConcurrentAdmission`.
    pub concurrent_admission: bool,
    /// When evicted jobs release their quota.
    pub quota_release: QuotaRelease,
    /// Gate `WorkloadIdentifierAnnotations`.
    pub identifiers: Identifiers,
    /// Gate `ShortWorkloadNames`.
    pub workload_names: WorkloadNames,
    /// Gates that webhooks alone follow.
    pub webhook_gates: WebhookGates,
    /// `objectRetentionPolicies.workloads.afterFinished`; `None`: kept.
    pub retain_after_finished: Option<Duration>,
    /// `objectRetentionPolicies.workloads.afterDeactivatedByKueue`; `None`: kept.
    pub retain_after_deactivated: Option<Duration>,
    /// `multiKueue`.
    pub multikueue: MultiKueue,
}

/// Gates of Kueue that webhooks alone follow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WebhookGates {
    /// `ValidateRayAndSparkJobUpdates`: rules for Ray's jobs and SparkApplications also apply to one that leaves its queue.
    pub validates_ray_updates: bool,
    /// `WorkloadPriorityClassDefaulting`.
    pub default_priority_class: bool,
    /// `LWSImmutableGroupSize`.
    pub immutable_group_size: bool,
    /// `RejectUpdatesToCQWithInvalidOnFlavors`: an update of a ClusterQueue is refused for `onFlavors` that were wrong before.
    pub rejects_invalid_on_flavors: bool,
}

impl Default for WebhookGates {
    fn default() -> Self {
        Self {
            validates_ray_updates: true,
            default_priority_class: true,
            immutable_group_size: true,
            rejects_invalid_on_flavors: false,
        }
    }
}

impl Default for Config {
    fn default() -> Self {
        let system = Requirement {
            key: NAME_LABEL.to_owned(),
            operator: Operator::NotIn,
            values: vec!["kube-system".to_owned(), "kueue-system".to_owned()],
        };
        Self {
            manage_jobs_without_queue_name: false,
            managed_jobs_namespace_selector: LabelSelector { requirements: vec![system] },
            frameworks: FRAMEWORKS
                .into_iter()
                .chain(CustomKind::all().map(CustomKind::framework))
                // Behind the gate SparkApplicationIntegration.
                .filter(|framework| *framework != CustomKind::SPARK_APPLICATION.framework())
                .map(str::to_owned)
                .collect(),
            external_frameworks: Vec::new(),
            label_keys_to_copy: Vec::new(),
            annotation_keys_to_copy: Vec::new(),
            wait_for_pods_ready: false,
            elastic_jobs: true,
            partial_scale_up: false,
            partial_preemption: false,
            priority_boost: false,
            clean_up_provisioning_requests: true,
            failure_recovery: false,
            concurrent_admission: false,
            quota_release: QuotaRelease::default(),
            identifiers: Identifiers::default(),
            workload_names: WorkloadNames::default(),
            webhook_gates: WebhookGates::default(),
            retain_after_finished: None,
            retain_after_deactivated: None,
            multikueue: MultiKueue::default(),
        }
    }
}

impl Config {
    /// Whether `integrations.frameworks` has this name.
    pub fn has_framework(&self, framework: &str) -> bool {
        self.frameworks.contains(framework)
    }

    /// Whether jobs of a namespace are managed at all. Of a namespace that is not known yet only the name is matched.
    pub fn manages_namespace(&self, objects: &ObjectStore, namespace: &str) -> bool {
        // Our own pods must start without a queue.
        if namespace == plimsoll_api::webhooks::NAMESPACE {
            return false;
        }
        let known = objects.get(Kind::Namespace, "", namespace);
        let mut labels: StringMap = known
            .iter()
            .filter_map(|n| json::map(n, &["metadata", "labels"]))
            .flatten()
            .filter_map(|(k, v)| Some((k.clone(), v.as_str()?.to_owned())))
            .collect();
        labels.insert(NAME_LABEL.to_owned(), namespace.to_owned());
        self.managed_jobs_namespace_selector.matches(&labels)
    }

    /// Whether it can't be told yet if jobs of a namespace are managed: its labels decide, and it is not known.
    pub fn is_undecided(&self, objects: &ObjectStore, namespace: &str) -> bool {
        let by_name = self.managed_jobs_namespace_selector.requirements.iter().all(|r| r.key == NAME_LABEL);
        !by_name
            && namespace != plimsoll_api::webhooks::NAMESPACE
            && objects.get(Kind::Namespace, "", namespace).is_none()
    }

    /// Whether there may be something to do for a key: without retention periods there is nothing to do for workloads that
    /// have ended.
    pub fn concerns(&self, key: &Key) -> bool {
        let retains = self.retain_after_finished.is_some() || self.retain_after_deactivated.is_some();
        retains || !matches!(key, Key::Retention(..))
    }

    /// Whether a job is managed, as far as its own labels say.
    pub fn manages(&self, object: &Value) -> bool {
        self.manage_jobs_without_queue_name || !json::label(object, names::QUEUE).is_empty()
    }
}

impl Env<'_> {
    /// Whether a job, or the workload of one, is elastic (Kueue `workloadslicing.Enabled`).
    pub fn is_elastic(&self, object: &Value) -> bool {
        self.config.elastic_jobs && json::annotation(object, names::ELASTIC) == Some("true")
    }

    /// Whether a job may be asked to shrink instead of being preempted: it can while it runs.
    pub(crate) fn can_shrink(&self, job: &Value) -> bool {
        self.config.partial_preemption
            && self.is_elastic(job)
            && json::annotation(job, plimsoll_api::kueue::PARTIAL_PREEMPTION) == Some("true")
            && !Self::is_dispatched(job)
    }

    /// Whether MultiKueue dispatches a job: what its worker admits is decided there.
    pub(crate) fn is_dispatched(job: &Value) -> bool {
        job["spec"]["managedBy"] == names::MULTIKUEUE
    }
}
