//! Which jobs are queued and what is kept of them: the parts of Kueue's configuration that job integrations and
//! their webhooks follow.

use plimsoll_state::model::{LabelSelector, Operator, Requirement, StringMap};
use plimsoll_state::time::Duration;
use serde_json::Value;

use super::names;
use crate::cache::{Cache, Kind};
use crate::json;

/// The rules. The default is Kueue's configuration without a file, with plain pods, Deployments and StatefulSets.
#[derive(Clone, Debug)]
pub struct Rules {
    /// `manageJobsWithoutQueueName`.
    pub without_queue_name: bool,
    /// `managedJobsNamespaceSelector`.
    pub namespaces: LabelSelector,
    /// Whether `integrations.frameworks` has `batch/job`.
    pub jobs: bool,
    /// Whether `integrations.frameworks` has `pod`.
    pub pods: bool,
    /// Whether `integrations.frameworks` has `deployment`.
    pub deployments: bool,
    /// Whether `integrations.frameworks` has `statefulset`.
    pub stateful_sets: bool,
    /// Gate `ElasticJobsViaWorkloadSlices`.
    pub elastic_jobs: bool,
    /// Gate `PriorityBoost`.
    pub priority_boost: bool,
    /// `integrations.labelKeysToCopy`.
    pub copied_labels: Vec<String>,
    /// `objectRetentionPolicies.workloads.afterFinished`; `None`: kept.
    pub delete_finished_after: Option<Duration>,
    /// `objectRetentionPolicies.workloads.afterDeactivatedByKueue`; `None`: kept.
    pub delete_deactivated_after: Option<Duration>,
    /// Gate CleanupProvisioningRequestsOnEviction.
    pub clean_up_requests: bool,
}

impl Default for Rules {
    fn default() -> Self {
        let system = Requirement {
            key: NAME_LABEL.to_owned(),
            operator: Operator::NotIn,
            values: vec!["kube-system".to_owned(), "kueue-system".to_owned()],
        };
        Self {
            without_queue_name: false,
            namespaces: LabelSelector { requirements: vec![system] },
            jobs: true,
            pods: true,
            deployments: true,
            stateful_sets: true,
            elastic_jobs: true,
            priority_boost: false,
            copied_labels: Vec::new(),
            delete_finished_after: None,
            delete_deactivated_after: None,
            clean_up_requests: true,
        }
    }
}

/// Label with which the API server marks every namespace.
const NAME_LABEL: &str = "kubernetes.io/metadata.name";

impl Rules {
    /// Whether jobs of a namespace are managed at all. Of one that isn't known (yet) only the name is.
    pub fn manage_namespace(&self, cache: &Cache, namespace: &str) -> bool {
        // Where we are installed ourselves.
        if namespace == plimsoll_api::webhooks::NAMESPACE {
            return false;
        }
        let known = cache.get(Kind::Namespace, "", namespace);
        let mut labels: StringMap = known
            .iter()
            .filter_map(|n| json::map(n, &["metadata", "labels"]))
            .flatten()
            .filter_map(|(k, v)| Some((k.clone(), v.as_str()?.to_owned())))
            .collect();
        labels.insert(NAME_LABEL.to_owned(), namespace.to_owned());
        self.namespaces.matches(&labels)
    }

    /// Whether a job is managed, as far as its own labels say.
    pub fn manage(&self, object: &Value) -> bool {
        self.without_queue_name || !json::label(object, names::QUEUE).is_empty()
    }
}
