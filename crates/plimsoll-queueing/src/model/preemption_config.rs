//! PreemptionConfigs: which workloads may be preempted beyond `spec.preemption` of a ClusterQueue (Kueue KEP-13396,
//! `apis/kueue/v1alpha1/preemptionconfig_types.go`).

use std::collections::BTreeSet;

use super::Workload;
use plimsoll_state::model::{LabelSelector, StringMap};

/// When a rule contributes candidates (`activationPolicy.trigger`), in the order in which triggers are evaluated.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum PreemptionTrigger {
    /// Always, once the candidates of `spec.preemption` are not enough.
    #[default]
    Always,
    /// Only while quota is not sufficient.
    InsufficientQuota,
    /// Only if quota is sufficient and no topology assignment is found.
    QuotaFeasibleAndInsufficientTopology,
}

impl PreemptionTrigger {
    /// All triggers with the word they are written with.
    pub const WORDS: [(Self, &'static str); 3] = [
        (Self::Always, "Always"),
        (Self::InsufficientQuota, "InsufficientQuota"),
        (Self::QuotaFeasibleAndInsufficientTopology, "QuotaFeasibleAndInsufficientTopology"),
    ];
}

/// How near the queue of a candidate has to be to that of the preemptor (`candidateSelectors[].scope`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum PreemptionScope {
    /// The same LocalQueue, in the same ClusterQueue.
    WithinLocalQueue,
    /// The same ClusterQueue.
    #[default]
    WithinClusterQueue,
    /// A ClusterQueue of the same parent cohort, or the same ClusterQueue.
    WithinParentCohort,
    /// A ClusterQueue of the same tree of cohorts, or the same ClusterQueue.
    WithinCohortTree,
    /// Any ClusterQueue.
    AnyClusterQueue,
}

impl PreemptionScope {
    /// All scopes with the word they are written with.
    pub const WORDS: [(Self, &'static str); 5] = [
        (Self::WithinLocalQueue, "WithinLocalQueue"),
        (Self::WithinClusterQueue, "WithinClusterQueue"),
        (Self::WithinParentCohort, "WithinParentCohort"),
        (Self::WithinCohortTree, "WithinCohortTree"),
        (Self::AnyClusterQueue, "AnyClusterQueue"),
    ];
}

/// How a number of the candidate has to compare to that of the preemptor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NumericComparison {
    /// candidate < preemptor
    LessThan,
    /// candidate > preemptor
    GreaterThan,
    /// candidate ≤ preemptor
    LessThanOrEqual,
    /// candidate ≥ preemptor
    GreaterThanOrEqual,
}

impl NumericComparison {
    /// All comparisons with the word they are written with.
    pub const WORDS: [(Self, &'static str); 4] = [
        (Self::LessThan, "LessThan"),
        (Self::GreaterThan, "GreaterThan"),
        (Self::LessThanOrEqual, "LessThanOrEqual"),
        (Self::GreaterThanOrEqual, "GreaterThanOrEqual"),
    ];

    fn holds(self, candidate: i64, preemptor: i64) -> bool {
        match self {
            Self::LessThan => candidate < preemptor,
            Self::GreaterThan => candidate > preemptor,
            Self::LessThanOrEqual => candidate <= preemptor,
            Self::GreaterThanOrEqual => candidate >= preemptor,
        }
    }
}

/// A constraint on a label whose value is an integer (`numericLabels[]`).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NumericLabel {
    /// Key of the label.
    pub key: String,
    /// Value of workloads without the label, or with one that is no integer; `None`: they are no candidates.
    pub fallback: Option<i32>,
    /// How the candidate's value compares to the preemptor's.
    pub comparison: Option<NumericComparison>,
    /// Least value of a candidate.
    pub min: Option<i32>,
    /// Greatest value of a candidate.
    pub max: Option<i32>,
}

impl NumericLabel {
    fn value(&self, labels: &StringMap) -> Option<i32> {
        labels.get(&self.key).and_then(|v| v.parse().ok()).or(self.fallback)
    }

    fn matches(&self, candidate: &StringMap, preemptor: &StringMap) -> bool {
        let Some(value) = self.value(candidate) else { return false };
        self.min.is_none_or(|min| value >= min)
            && self.max.is_none_or(|max| value <= max)
            && self.comparison.is_none_or(|c| {
                self.value(preemptor).is_some_and(|own| c.holds(i64::from(value), i64::from(own)))
            })
    }
}

/// A constraint on priorities (`priority.mode` and `priority.comparison`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PriorityComparison {
    /// `mode: Boosted`: the effective priority counts, and not that of the spec.
    pub boosted: bool,
    /// How the candidate's priority compares to the preemptor's.
    pub comparison: NumericComparison,
}

impl PriorityComparison {
    fn matches(self, candidate: &Workload, preemptor: &Workload) -> bool {
        let of = |w: &Workload| if self.boosted { w.effective_priority() } else { i64::from(w.priority) };
        self.comparison.holds(of(candidate), of(preemptor))
    }
}

/// Names of priority classes that are allowed and denied (`matchNames`, `notMatchNames`).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PriorityClassNames {
    /// Only these; empty: all, also none.
    pub only: Vec<String>,
    /// None of these.
    pub except: Vec<String>,
}

impl PriorityClassNames {
    fn matches(&self, class: &String) -> bool {
        (self.only.is_empty() || self.only.contains(class)) && !self.except.contains(class)
    }

    fn is_empty(&self) -> bool {
        self.only.is_empty() && self.except.is_empty()
    }
}

/// Which workloads are candidates (`candidateSelectors[]`): all constraints have to hold.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PreemptionCandidates {
    /// How near their queue has to be.
    pub scope: PreemptionScope,
    /// Labels of their ClusterQueue; `None`: any.
    pub cluster_queues: Option<LabelSelector>,
    /// Labels of the workload; `None`: any.
    pub workloads: Option<LabelSelector>,
    /// Labels with numbers.
    pub numeric_labels: Vec<NumericLabel>,
    /// Priority relative to the preemptor's; `None`: any.
    pub priority: Option<PriorityComparison>,
    /// Priority classes.
    pub classes: PriorityClassNames,
}

impl PreemptionCandidates {
    /// Whether workloads of a ClusterQueue with these labels may be candidates.
    pub(crate) fn matches_queue(&self, labels: &StringMap) -> bool {
        self.cluster_queues.as_ref().is_none_or(|s| s.matches(labels))
    }

    /// Whether the workload itself may be a candidate, wherever it is.
    pub(crate) fn matches_workload(&self, candidate: &Workload, preemptor: &Workload) -> bool {
        self.workloads.as_ref().is_none_or(|s| s.matches(&candidate.labels))
            && self.numeric_labels.iter().all(|n| n.matches(&candidate.labels, &preemptor.labels))
            && self.priority.is_none_or(|p| p.matches(candidate, preemptor))
            && self.classes.matches(&candidate.priority_class)
    }
}

/// A rule (`spec.rules[]`). Selectors that can't be understood are kept as the text of the error: as in Kueue a trigger for
/// which such a rule is active yields no candidates.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PreemptionRule {
    /// Name, unique in its config.
    pub name: String,
    /// When it contributes candidates.
    pub trigger: PreemptionTrigger,
    /// Labels of the preemptors for which it is there; `None`: any.
    pub preemptors: Result<Option<LabelSelector>, String>,
    /// Priority classes of the preemptors.
    pub preemptor_classes: PriorityClassNames,
    /// Which workloads are candidates: those of any of these.
    pub candidates: Vec<Result<PreemptionCandidates, String>>,
}

impl PreemptionRule {
    fn problems(&self) -> impl Iterator<Item = &str> {
        let of_candidates = self.candidates.iter().filter_map(|c| c.as_ref().err());
        self.preemptors.as_ref().err().into_iter().chain(of_candidates).map(String::as_str)
    }

    /// Whether the rule is there for a preemptor.
    ///
    /// # Errors
    /// When its selector of preemptors can't be understood.
    pub(crate) fn is_for(&self, preemptor: &Workload) -> Result<bool, &str> {
        let selector = self.preemptors.as_ref().map_err(String::as_str)?;
        Ok(selector.as_ref().is_none_or(|s| s.matches(&preemptor.labels))
            && self.preemptor_classes.matches(&preemptor.priority_class))
    }
}

/// A PreemptionConfig.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PreemptionConfig {
    /// Name.
    pub name: String,
    /// Rules.
    pub rules: Vec<PreemptionRule>,
}

impl PreemptionConfig {
    /// What can't be understood, with its field.
    pub fn problems(&self) -> impl Iterator<Item = &str> {
        self.rules.iter().flat_map(PreemptionRule::problems)
    }

    /// What a preemptor has that decides about its candidates, beside its effective priority. Workloads for which it is the same
    /// have the same candidates.
    pub(crate) fn preemptor_key(&self, preemptor: &Workload) -> PreemptorKey {
        let mut key = PreemptorKey::default();
        let mut labels: BTreeSet<&String> = BTreeSet::new();
        for rule in &self.rules {
            let of_preemptors = rule.preemptors.iter().flatten().flat_map(|s| &s.requirements);
            labels.extend(of_preemptors.map(|r| &r.key));
            let candidates = || rule.candidates.iter().flatten();
            let compared = |n: &&NumericLabel| n.comparison.is_some();
            labels.extend(candidates().flat_map(|c| &c.numeric_labels).filter(compared).map(|n| &n.key));
            if !rule.preemptor_classes.is_empty() {
                key.class = Some(preemptor.priority_class.clone());
            }
            if candidates().any(|c| c.priority.is_some_and(|p| !p.boosted)) {
                key.base_priority = Some(preemptor.priority);
            }
            if candidates().any(|c| c.scope == PreemptionScope::WithinLocalQueue) {
                key.queue = Some((preemptor.key.namespace.clone(), preemptor.queue.clone()));
            }
        }
        key.labels = labels.into_iter().map(|k| preemptor.labels.get(k).cloned()).collect();
        key
    }
}

/// What rules read of a preemptor: a part of its scheduling hash.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct PreemptorKey {
    labels: Vec<Option<String>>,
    base_priority: Option<i32>,
    class: Option<String>,
    /// Namespace and LocalQueue.
    queue: Option<(String, String)>,
}
