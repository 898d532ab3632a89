//! Candidates by the rules of a PreemptionConfig (Kueue KEP-13396, `pkg/scheduler/preemption/config/evaluator.go`).
//!
//! They are taken once those of `spec.preemption`, or of fair sharing, are not enough: trigger after trigger, in the order of
//! candidates, whatever their ClusterQueue borrows and whatever their priority is.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::sort::merge_sort;
use super::{PreemptionContext, Reason, Target};
use crate::Queueing;
use crate::cycle::Cycle;
use crate::ids::{ClusterQueueId, WorkloadId};
use crate::model::{PreemptionCandidates, PreemptionConfig, PreemptionScope, PreemptionTrigger};
use crate::state::WorkloadInfo;
use crate::tree::NodeId;

/// A selector of a rule that is there for the preemptor.
struct ActiveSelector<'c> {
    rule: &'c str,
    /// Its index in the rule.
    index: usize,
    candidates: &'c PreemptionCandidates,
}

/// The selectors of a trigger that are there for a preemptor; `None`: one of them can't be understood, and the trigger yields
/// no candidates, nor do those after it.
fn active<'c>(
    config: &'c PreemptionConfig,
    trigger: PreemptionTrigger,
    preemptor: &WorkloadInfo,
) -> Option<Vec<ActiveSelector<'c>>> {
    let mut out = Vec::new();
    for rule in config.rules.iter().filter(|r| r.trigger == trigger) {
        if !rule.is_for(&preemptor.obj).ok()? {
            continue;
        }
        for (index, selector) in rule.candidates.iter().enumerate() {
            let candidates = selector.as_ref().ok()?;
            out.push(ActiveSelector { rule: &rule.name, index, candidates });
        }
    }
    Some(out)
}

impl Queueing {
    /// Whether a ClusterQueue is near enough to that of the preemptor.
    fn is_in_scope(&self, scope: PreemptionScope, own: ClusterQueueId, other: ClusterQueueId) -> bool {
        if own == other || scope == PreemptionScope::AnyClusterQueue {
            return true;
        }
        let (Some(own), Some(other)) = (self.cq(own).node, self.cq(other).node) else { return false };
        let parent = |n: NodeId| self.tree.node(n).parent;
        match scope {
            PreemptionScope::WithinLocalQueue | PreemptionScope::WithinClusterQueue => false,
            PreemptionScope::WithinParentCohort => parent(own).is_some() && parent(own) == parent(other),
            PreemptionScope::WithinCohortTree => {
                parent(own).is_some() && self.tree.root(own) == self.tree.root(other)
            }
            PreemptionScope::AnyClusterQueue => true,
        }
    }

    fn selects(&self, s: &ActiveSelector<'_>, preemptor: &WorkloadInfo, candidate: &WorkloadInfo) -> bool {
        (s.candidates.scope != PreemptionScope::WithinLocalQueue || preemptor.lq() == candidate.lq())
            && s.candidates.matches_workload(&candidate.obj, &preemptor.obj)
    }

    /// The rules and their selectors that let a workload preempt a victim, for messages: the name of the config, then each
    /// rule with the indexes of its selectors (Kueue `ConfigurablePreemptionReasonData.EvictionMessage`).
    pub(crate) fn selecting_rules(
        &self,
        trigger: PreemptionTrigger,
        (id, cq): (WorkloadId, ClusterQueueId),
        (victim, held): (WorkloadId, ClusterQueueId),
    ) -> Option<String> {
        let (preemptor, victim) = (self.wl(id)?, self.wl(victim)?);
        let config = self.cq(cq).rules.preemption_config.as_ref()?;
        let labels = self.cq(held).spec.as_ref().map(|s| &s.labels)?;
        let mut rules: Vec<(&str, String)> = Vec::new();
        for s in active(config, trigger, preemptor)? {
            if !self.is_in_scope(s.candidates.scope, cq, held)
                || !s.candidates.matches_queue(labels)
                || !self.selects(&s, preemptor, victim)
            {
                continue;
            }
            match rules.last_mut().filter(|(rule, _)| *rule == s.rule) {
                Some((_, text)) => text.push_str(&format!(",{}", s.index)),
                None => rules.push((s.rule, format!("{}/{}", s.rule, s.index))),
            }
        }
        let rules: Vec<String> = rules.into_iter().map(|(_, text)| text).collect();
        Some(format!("preemption config {} rule {}", config.name, rules.join("; ")))
    }
}

impl Cycle<'_> {
    /// Whether rules could add candidates for a workload.
    pub(super) fn has_preemption_rules(&self, need: &PreemptionContext) -> bool {
        self.state.cq(need.cq).rules.preemption_config.is_some()
    }

    /// Takes candidates that rules select until the need fits, on top of `targets`, which are simulated to be gone. Whether it
    /// fits then.
    pub(super) fn take_configured(
        &mut self,
        need: &PreemptionContext,
        targets: &mut Vec<Target>,
        borrow: bool,
    ) -> bool {
        let Some(config) = self.state.cq(need.cq).rules.preemption_config.clone() else { return false };
        for (trigger, _) in PreemptionTrigger::WORDS {
            let reached = match trigger {
                PreemptionTrigger::Always => true,
                PreemptionTrigger::InsufficientQuota => !self.amounts_fit(need, borrow),
                PreemptionTrigger::QuotaFeasibleAndInsufficientTopology => self.amounts_fit(need, borrow),
            };
            if !reached || !config.rules.iter().any(|r| r.trigger == trigger) {
                continue;
            }
            let Some(candidates) = self.configured_candidates(need, &config, trigger) else { return false };
            for id in candidates {
                if self.is_spared_by_budget(need, id, borrow) {
                    continue;
                }
                self.state.simulate_workload_removal(id);
                self.take_out_nodes(need, id);
                targets.push(Target::new(id, Reason::Configured(trigger)));
                if self.need_fits(need, borrow) {
                    return true;
                }
            }
        }
        false
    }

    /// The workloads that rules of a trigger select, in the order of candidates; `None`: a rule can't be understood.
    fn configured_candidates(
        &self,
        need: &PreemptionContext,
        config: &Arc<PreemptionConfig>,
        trigger: PreemptionTrigger,
    ) -> Option<Vec<WorkloadId>> {
        let preemptor = self.state.wl(need.id)?;
        let selectors = active(config, trigger, preemptor)?;
        let mut found = Vec::new();
        for cq in self.queues_in_reach(need, &selectors) {
            let Some(spec) = self.state.cq(cq).spec.as_ref() else { continue };
            let of_queue = |s: &&ActiveSelector<'_>| {
                self.state.is_in_scope(s.candidates.scope, need.cq, cq)
                    && s.candidates.matches_queue(&spec.labels)
            };
            let here: Vec<&ActiveSelector<'_>> = selectors.iter().filter(of_queue).collect();
            if here.is_empty() {
                continue;
            }
            found.extend(self.holders_of(cq).filter(|&id| {
                self.state.wl(id).is_some_and(|wl| {
                    here.iter().any(|s| self.state.selects(s, preemptor, wl))
                        && self.contends(need, wl)
                        && !self.goes_anyway(need.id, id)
                })
            }));
        }
        merge_sort(&mut found, |&a, &b| self.compare_candidates(a, b, need.cq, true));
        Some(found)
    }

    /// The ClusterQueues that take part in scheduling and may be in the scope of one of these selectors.
    fn queues_in_reach(
        &self,
        need: &PreemptionContext,
        selectors: &[ActiveSelector<'_>],
    ) -> BTreeSet<ClusterQueueId> {
        let widest = selectors.iter().map(|s| s.candidates.scope).max();
        let queues: Vec<ClusterQueueId> = match widest {
            None => Vec::new(),
            Some(PreemptionScope::WithinLocalQueue | PreemptionScope::WithinClusterQueue) => vec![need.cq],
            Some(PreemptionScope::WithinParentCohort | PreemptionScope::WithinCohortTree) => {
                let root = self.state.tree.root(need.node);
                let below = self.queues_below(root).into_iter().map(|(_, cq)| cq);
                below.chain([need.cq]).collect()
            }
            Some(PreemptionScope::AnyClusterQueue) => self.state.cluster_queues.ids().collect(),
        };
        let takes_part = |cq: &ClusterQueueId| self.state.cq(*cq).is_active() && !self.state.in_cycle(*cq);
        let mut out = BTreeSet::new();
        queues.into_iter().filter(takes_part).for_each(|cq| {
            out.insert(cq);
        });
        out
    }

    /// Whether a workload holds something of what is contended: a column, or places on nodes of a contended flavor that it has
    /// under the name of another flavor.
    fn contends(&self, need: &PreemptionContext, wl: &WorkloadInfo) -> bool {
        self.uses_any(wl, &need.frs)
            || (!need.tas.is_empty() && wl.total_requests().iter().any(|t| !t.places.is_empty()))
    }
}

#[cfg(test)]
mod tests;
