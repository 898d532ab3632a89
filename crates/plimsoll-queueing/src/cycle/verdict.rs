//! Verdicts on heads that the quota tree alone gives, without a nomination.
//!
//! When a workload ends, one head of every ClusterQueue of its cohort is looked at again, and most find that nothing
//! changed for them. For workloads with one podset and one flavor in a flat cohort, whether they fit is a comparison per
//! resource, and often it is clear that preemption can't help: then the verdict is that of the nomination, and the head
//! stays where it is without one. Whether there are places in a topology for one that fits a nomination says; one that lacks
//! quota waits for the same reason as long as no node has changed. Whatever is not as simple is nominated.

use super::entry::Entry;
use super::plan::StillInadmissible;
use super::{Cycle, Head};
use crate::Queueing;
use crate::amount::Amount;
use crate::cycle::assign::{LastAssignment, matches_labels};
use crate::ids::{ClusterQueueId, FlavorResource, LocalQueueId, SchedulingHashId, WorkloadId};
use crate::model::{PreemptionPolicy, QueueingStrategy, TopologyRequest};
use crate::pending::Shortage;
use crate::rules::Rules;
use crate::state::WorkloadInfo;
use crate::tree::NodeId;

/// What a nomination would find.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Verdict {
    /// It fits, with this level of borrowing.
    Fits(u32),
    /// It neither fits nor can it preempt: this is missing, and on these columns nothing can be preempted.
    Waits(Shortage, Vec<FlavorResource>),
}

impl Cycle<'_> {
    /// The head of each of these ClusterQueues that takes workloads, except those that have to wait on: they are
    /// inadmissible again. Heads that fit by the quota alone stay in their queues for now.
    pub(super) fn heads_of(&mut self, queues: &[ClusterQueueId]) -> Vec<Head> {
        let mut heads = Vec::new();
        let state = &self.state;
        let simple = !state.nominates_all
            && state.config.fair_sharing.is_none()
            && !state.config.blocks_admission()
            && state.config.gates.equivalence_hashing
            && (state.config.gates.topology || state.objects.topologies.is_empty());
        for &cq in queues {
            let queue = state.cq(cq);
            if !queue.is_active() || !queue.pending.has_head() {
                continue;
            }
            let (mut shortage, mut unreclaimable) = (None, Vec::new());
            if simple && let Some((id, verdict)) = state.head_verdict(cq, &mut self.lowest_priorities) {
                match verdict {
                    Verdict::Fits(borrowing) => {
                        heads.push(Head { fits: Some(borrowing), ..Head::new(id, cq) });
                        continue;
                    }
                    Verdict::Waits(missing, columns) => {
                        if let Some(scheduling_hash) = state.still_inadmissible(cq, id, &missing) {
                            self.still_inadmissible.push(StillInadmissible { cq, scheduling_hash });
                            continue;
                        }
                        (shortage, unreclaimable) = (Some(missing), columns);
                    }
                }
            }
            let usage = |lq: LocalQueueId| state.local_usage(lq);
            let head = queue.pending.first(if queue.rules.fair_admission { Some(&usage) } else { None });
            self.heads.extend(head.map(|id| (id, cq)));
            heads.extend(head.map(|id| Head { shortage, unreclaimable, ..Head::new(id, cq) }));
        }
        heads
    }
}

impl Queueing {
    /// The scheduling hash of the head, if its workloads lack the same as when they became inadmissible.
    fn still_inadmissible(
        &self,
        cq: ClusterQueueId,
        id: WorkloadId,
        shortage: &Shortage,
    ) -> Option<SchedulingHashId> {
        let hash = self.wl(id)?.scheduling_hash();
        self.cq(cq).pending.is_inadmissible_again(hash, shortage).then_some(hash)
    }

    /// The head of a ClusterQueue and the verdict on it, if the quota tree alone gives one. Adds to `lowest` what it finds out.
    fn head_verdict(
        &self,
        cq: ClusterQueueId,
        lowest: &mut Vec<(ClusterQueueId, Option<i64>)>,
    ) -> Option<(WorkloadId, Verdict)> {
        let queue = self.cq(cq);
        let node = queue.node.filter(|&n| self.is_flat(n))?;
        if !is_simple(&queue.rules) {
            return None;
        }
        let id = queue.pending.head().filter(|&id| queue.pending.sticky != Some(id))?;
        let wl = self.wl(id).filter(|w| self.is_simple_workload(cq, w))?;
        let wanted = self.columns_wanted(cq, wl)?;
        let placed = self.is_placed(cq, wl);
        let (mut borrowing, mut shortage, mut unreclaimable) = (0, Shortage::default(), Vec::new());
        for &(fr, amount) in &wanted {
            let available = self.tree.available(node, fr);
            if amount <= available {
                borrowing = borrowing.max(self.tree.borrow_level(node, fr, amount).0);
                continue;
            }
            shortage.columns.push((fr, amount.sub(available)));
            // In a flat cohort a preemptor that would borrow takes from other ClusterQueues only if it may preempt while
            // borrowing, and whatever it takes leaves the usage of its own as it is.
            if self.tree.borrowing_with(node, fr, amount) {
                unreclaimable.push(fr);
            }
        }
        if placed {
            // Where it has no quota, places are wanted of others in all columns.
            if unreclaimable.len() < wanted.len() {
                return None;
            }
            shortage.nodes = self.tas.changes();
        } else if shortage.columns.is_empty() {
            return Some((id, Verdict::Fits(borrowing)));
        }
        let priority = wl.obj.effective_priority();
        let within = queue.rules.preemption.within_cluster_queue;
        let waits = !unreclaimable.is_empty() && !self.has_own_candidates(cq, priority, within, lowest);
        waits.then_some((id, Verdict::Waits(shortage, unreclaimable)))
    }

    /// Whether a tree is no more than a cohort of ClusterQueues, seen from one of them.
    fn is_flat(&self, n: NodeId) -> bool {
        let node = self.tree.node(n);
        !node.cyclic && node.parent.is_none_or(|p| self.tree.node(p).parent.is_none())
    }

    /// Whether the ClusterQueue may have workloads that one of this priority may preempt.
    fn has_own_candidates(
        &self,
        cq: ClusterQueueId,
        priority: i64,
        policy: PreemptionPolicy,
        found: &mut Vec<(ClusterQueueId, Option<i64>)>,
    ) -> bool {
        if policy == PreemptionPolicy::Never {
            return false;
        }
        let lowest = self.cq(cq).lowest_held.unwrap_or_else(|| {
            let priorities = self.holders(cq).filter_map(|h| self.wl(h)).map(|w| w.obj.effective_priority());
            let lowest = priorities.min();
            found.push((cq, lowest));
            lowest
        });
        lowest.is_some_and(|l| match policy {
            PreemptionPolicy::LowerPriority => l < priority,
            PreemptionPolicy::Never | PreemptionPolicy::LowerOrNewerEqualPriority | PreemptionPolicy::Any => {
                true
            }
        })
    }

    /// Whether nothing but its quota keeps a workload from being admitted.
    fn is_simple_workload(&self, cq: ClusterQueueId, wl: &WorkloadInfo) -> bool {
        let [pod_set] = wl.obj.pod_sets.as_slice() else { return false };
        wl.quota().is_none()
            && wl.failures.hold_off().is_none()
            && wl.invalid().is_none()
            && wl.veto().is_none()
            && wl.obj.replaces.is_none()
            && wl.obj.variant_of.is_empty()
            && wl.obj.allowed_flavors.is_none()
            && self.slices_are_none()
            && wl.obj.status.requeue_state.is_none()
            && wl.obj.status.admission_checks.is_empty()
            && !wl.rounds.again()
            && pod_set.min_count.is_none()
            && pod_set.topology.as_ref().is_none_or(TopologyRequest::is_explicit)
            && !wl.last_assignment().is_some_and(LastAssignment::has_more)
            && self.namespace_matches(cq, &wl.obj.key.namespace)
    }

    /// Whether the only podset gets places in a topology.
    fn is_placed(&self, cq: ClusterQueueId, wl: &WorkloadInfo) -> bool {
        wl.obj.pod_sets.iter().any(|ps| self.wants_topology(ps, cq))
    }

    /// What the only podset asks for, by column of the only flavor; `None` where that is not all there is to it, but for places.
    fn columns_wanted(&self, cq: ClusterQueueId, wl: &WorkloadInfo) -> Option<Vec<(FlavorResource, Amount)>> {
        let rules = &self.cq(cq).rules;
        let (group, flavor) = only_flavor(rules)?;
        let spec = self.objects.flavors.get(&flavor)?;
        let [total] = wl.total_requests() else { return None };
        let pod_set = wl.obj.pod_sets.first()?;
        if !spec.node_taints.is_empty()
            || spec.topology.is_empty() == self.is_placed(cq, wl)
            || !matches_labels(&pod_set.spec, &spec.node_labels)
            || self.shut_flavor_text(flavor).is_some()
            || self.ids.find_resource("pods").is_some_and(|pods| group.covered.contains(&pods))
            || total.requests.is_empty()
        {
            return None;
        }
        let column = |&(res, amount): &(_, i64)| {
            let fr = group.covered.contains(&res).then(|| self.ids.find_pair(flavor, res))??;
            Some((fr, crate::amount::Amount(amount)))
        };
        total.requests.iter().map(column).collect()
    }
}

/// The only flavor of a ClusterQueue and its group.
fn only_flavor(rules: &Rules) -> Option<(&crate::rules::Group, crate::ids::FlavorId)> {
    let [group] = &*rules.groups else { return None };
    let [flavor] = &*group.flavors else { return None };
    Some((group, *flavor))
}

/// Whether a head of the ClusterQueue that can't be admitted leaves everything as it is.
fn is_simple(rules: &Rules) -> bool {
    rules.strategy == QueueingStrategy::BestEffortFifo
        && !rules.fair_admission
        // Otherwise it reserves capacity that it can't reclaim.
        && rules.preemption.reclaim_within_cohort == PreemptionPolicy::Any
        && !rules.preemption.borrow_within_cohort.lower_priority
        && rules.preemption_config.is_none()
}

impl Cycle<'_> {
    /// Nominates heads that fit, when others are to be preempted in this cycle: what fits then depends on those.
    pub(super) fn nominate_beside_victims(&mut self, entries: &mut [Entry]) {
        if entries.iter().any(|e| !e.targets.is_empty()) {
            entries.iter_mut().filter(|e| e.fits.is_some()).for_each(|e| self.nominate_now(e));
        }
    }

    /// Takes an entry out of its queue and nominates it.
    pub(super) fn nominate_now(&mut self, e: &mut Entry) {
        e.fits = None;
        self.heads.push((e.id, e.cq));
        let found = self.find_assignment(e.id, e.cq, None, None);
        e.record(found);
    }

    /// Whether an entry has to wait because one before it took its quota, or is put off; otherwise it is nominated by now. One that
    /// waits is still in its queue.
    pub(super) fn waits_for_others(&mut self, e: &mut Entry) -> bool {
        if e.fits.is_none() {
            return false;
        }
        let wanted = self.state.wl(e.id).and_then(|w| self.state.columns_wanted(e.cq, w)).unwrap_or_default();
        if !self.state.quota_fits(e.cq, &wanted) {
            return true;
        }
        !self.nominate_late(e)
    }
}
