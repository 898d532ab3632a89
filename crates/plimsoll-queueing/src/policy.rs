//! Rules about workloads that a configuration adds to Kueue's.

use std::collections::BTreeMap;
use std::fmt::Debug;

use crate::ids::Ids;
use crate::model::Workload;
use crate::pod_sets::PodSetResources;

/// Reason of the condition `QuotaReserved` of a workload that a rule keeps from being admitted.
pub(crate) const VETOED: &str = "Vetoed";

/// Rules about workloads.
///
/// What they say depends on the workload and on what it requests, and on nothing else: a workload is asked about when it
/// changes.
pub trait WorkloadPolicy: Debug + Send + Sync {
    /// The ruling on a workload. `requests`: what its pods that still need quota request together, by resource; cpu in
    /// millicores.
    fn rule(&self, workload: &Workload, requests: &BTreeMap<&str, i64>) -> Ruling;
}

/// What rules say about a workload that waits. One that holds quota keeps it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ruling {
    /// Why it is not admitted, if it is not.
    pub veto: Option<String>,
    /// Workloads of a lower number go first, whatever their priority.
    pub order: i32,
    /// Among workloads of equal priority those of a higher number go first.
    pub score: i32,
}

/// What the podsets request together.
pub(crate) fn requested<'a>(ids: &'a Ids, pod_sets: &[PodSetResources]) -> BTreeMap<&'a str, i64> {
    let mut out = BTreeMap::new();
    for (resource, amount) in pod_sets.iter().flat_map(|pod_set| &pod_set.requests) {
        let sum: &mut i64 = out.entry(ids.resource_name(*resource)).or_default();
        *sum = sum.saturating_add(*amount);
    }
    out
}
