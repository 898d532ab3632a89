//! Preemption: who has to go so that a workload fits (spec section 2.6).

mod classical;
mod fair;

use std::cmp::Ordering;

use super::amount::Amount;
use super::assign::{Assignment, Possibility};
use super::cond;
use super::ids::Fr;
use super::pending::WlId;
use super::state::{CqId, Queueing, Wl};
use super::tas::TasRequests;
use plimsoll_state::time::Time;

/// Why a workload is preempted, as reason of its condition Preempted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reason {
    ClusterQueue,
    Reclamation,
    FairSharing,
    WhileBorrowing,
}

impl Reason {
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::ClusterQueue => "InClusterQueue",
            Self::Reclamation => "InCohortReclamation",
            Self::FairSharing => "InCohortFairSharing",
            Self::WhileBorrowing => "InCohortReclaimWhileBorrowing",
        }
    }

    pub(crate) fn text(self) -> &'static str {
        match self {
            Self::ClusterQueue => "prioritization in the ClusterQueue",
            Self::Reclamation => "reclamation within the cohort",
            Self::FairSharing => "Fair Sharing within the cohort",
            Self::WhileBorrowing => "reclamation within the cohort while borrowing",
        }
    }
}

/// A workload that has to go.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Target {
    pub(crate) id: WlId,
    pub(crate) reason: Reason,
}

/// What room is looked for.
pub(super) struct Need {
    pub(super) id: WlId,
    pub(super) cq: CqId,
    pub(super) node: u32,
    /// Columns on which others have to give way.
    pub(super) frs: Vec<Fr>,
    pub(super) usage: Vec<(Fr, Amount)>,
    pub(super) tas: TasRequests,
}

/// A search that was done, and what it found.
#[derive(Debug)]
pub(crate) struct Searched {
    id: WlId,
    frs: Vec<Fr>,
    usage: Vec<(Fr, Amount)>,
    targets: Vec<Target>,
}

/// How many searches are remembered.
const MAX_SEARCHES: usize = 16;

/// `LowerPriority`.
pub(crate) const LOWER_PRIORITY: u8 = 1;

impl Queueing {
    /// Workloads to preempt so that the assignment fits; empty when that can't be done.
    ///
    /// Kueue forgets the resource `pods` here: neither shares nor what fits count it, and if the number of pods takes
    /// more victims, it finds that nothing fits, cycle after cycle. Its choice stands where it is enough.
    pub(crate) fn preemption_targets(&mut self, id: WlId, cq: CqId, a: &Assignment) -> Vec<Target> {
        let Some(node) = self.cq(cq).node else { return Vec::new() };
        let tas = self.tas_requests(id, cq, a);
        let usage = self.requested_usage(a);
        let pods: Vec<Fr> = self.columns_of_pods(a);
        let known = usage.iter().filter(|(fr, _)| !pods.contains(fr)).copied().collect();
        let mut need = Need { id, cq, node, frs: a.columns_to_preempt(&self.ids), usage: known, tas };
        let targets = self.find_targets(&need);
        if targets.is_empty() || need.usage.len() == usage.len() {
            return targets;
        }
        let mark = self.mark();
        targets.iter().for_each(|t| self.take_usage(t.id));
        let enough = self.quota_fits(cq, &usage);
        self.rollback(mark);
        if enough {
            return targets;
        }
        need.usage = usage;
        let more = self.find_targets(&need);
        if more.is_empty() { targets } else { more }
    }

    /// Columns of the resource `pods` in an assignment.
    fn columns_of_pods(&self, a: &Assignment) -> Vec<Fr> {
        let Some(pods) = self.ids.find_resource("pods") else { return Vec::new() };
        let flavors = a.pod_sets.iter().filter_map(|ps| ps.flavor_of(pods));
        flavors.filter_map(|f| self.ids.find_pair(f, pods)).collect()
    }

    /// Whether others could give way on a single column, and the borrow level once they did.
    pub(crate) fn simulate_preemption(
        &mut self,
        id: WlId,
        cq: CqId,
        fr: Fr,
        amount: Amount,
    ) -> (Possibility, u32) {
        let Some(node) = self.cq(cq).node else { return (Possibility::NoCandidates, 0) };
        let need =
            Need { id, cq, node, frs: vec![fr], usage: vec![(fr, amount)], tas: TasRequests::default() };
        let targets = self.find_targets(&need);
        if targets.is_empty() {
            return (Possibility::NoCandidates, self.tree.borrow_level(node, fr, amount).0);
        }
        let mark = self.mark();
        targets.iter().for_each(|t| self.take_usage(t.id));
        let (borrow, _) = self.tree.borrow_level(node, fr, amount);
        self.rollback(mark);
        let own = targets.iter().any(|t| self.wl(t.id).is_some_and(|w| w.held == Some(cq)));
        (if own { Possibility::Preempt } else { Possibility::Reclaim }, borrow)
    }

    /// Searches of one nomination all start from the same state: what was searched for a single column often
    /// is all that is needed, and is not searched again.
    fn find_targets(&mut self, need: &Need) -> Vec<Target> {
        let same = |s: &&Searched| s.id == need.id && s.frs == need.frs && s.usage == need.usage;
        let cached = self.searches.as_ref().filter(|_| need.tas.is_empty());
        if let Some(known) = cached.and_then(|s| s.iter().find(same)) {
            return known.targets.clone();
        }
        let targets = self.search_targets(need);
        let room = self.searches.as_mut().filter(|s| need.tas.is_empty() && s.len() < MAX_SEARCHES);
        if let Some(searches) = room {
            let (id, frs, usage) = (need.id, need.frs.clone(), need.usage.clone());
            searches.push(Searched { id, frs, usage, targets: targets.clone() });
        }
        targets
    }

    fn search_targets(&mut self, need: &Need) -> Vec<Target> {
        let mark = self.mark();
        let targets = match self.config.fair_sharing.clone() {
            Some(fair) => self.fair_targets(need, &fair.strategies),
            None => self.classical_targets(need),
        };
        self.rollback(mark);
        targets
    }

    /// What the assignment's podsets ask for, per column.
    fn requested_usage(&mut self, a: &Assignment) -> Vec<(Fr, Amount)> {
        if a.replaced.is_some() {
            return a.usage.iter().filter(|(_, v)| *v != Amount::ZERO).copied().collect();
        }
        let mut usage = Vec::new();
        for ps in &a.pod_sets {
            for &(res, amount) in ps.requests.iter().filter(|(_, v)| *v != 0) {
                if let Some(flavor) = ps.flavor_of(res) {
                    let fr = self.ids.pair(flavor, res);
                    super::account::add_usage(&mut usage, fr, Amount(amount));
                }
            }
        }
        usage
    }

    /// Whether the policy (0 never, 1 lower priority, 2 as `any_or_newer` says) lets `id` preempt `other`.
    fn may_preempt(&self, id: WlId, other: WlId, policy: u8, newer_equal: bool) -> bool {
        let (Some(a), Some(b)) = (self.wl(id), self.wl(other)) else { return false };
        // Slices whose place is or will be taken go without being preempted.
        if self.chain_before(id).contains(&other) || self.heir(other).is_some() {
            return false;
        }
        let (p, q) = (a.obj.effective_priority(), b.obj.effective_priority());
        match policy {
            0 => false,
            LOWER_PRIORITY => p > q,
            _ if newer_equal => p > q || (p == q && self.waiting_since(&a.obj) < self.waiting_since(&b.obj)),
            _ => true,
        }
    }

    /// Whether a workload holds flavors of any of these columns.
    fn uses_any(&self, wl: &Wl, frs: &[Fr]) -> bool {
        wl.totals
            .iter()
            .flat_map(|t| &t.flavors)
            .any(|(r, f)| self.ids.find_pair(*f, *r).is_some_and(|fr| frs.contains(&fr)))
    }

    /// Workloads of a ClusterQueue that are there in the present simulation.
    fn holders_of(&self, cq: CqId) -> Vec<WlId> {
        let holders = self.cq(cq).holders.iter().copied();
        holders.filter(|&h| self.wl(h).is_some_and(|w| !w.hidden)).collect()
    }

    /// Order of candidates: already evicted first, other ClusterQueues before the own one, more usage of
    /// the LocalQueue, lower priority, reserved more recently, UID.
    fn compare_candidates(&self, a: WlId, b: WlId, cq: CqId, with_usage: bool) -> Ordering {
        let (Some(a), Some(b)) = (self.wl(a), self.wl(b)) else { return Ordering::Equal };
        let evicted = |w: &Wl| w.obj.status.is_true(cond::EVICTED);
        let reserved = |w: &Wl| {
            w.obj
                .status
                .condition(cond::QUOTA_RESERVED)
                .filter(|c| c.status)
                .map_or(Time(i64::MAX), |c| c.transition)
        };
        evicted(b)
            .cmp(&evicted(a))
            .then_with(|| (a.held == Some(cq)).cmp(&(b.held == Some(cq))))
            .then_with(|| if with_usage { self.compare_usage(a, b) } else { Ordering::Equal })
            .then_with(|| a.obj.effective_priority().cmp(&b.obj.effective_priority()))
            .then_with(|| reserved(b).cmp(&reserved(a)))
            .then_with(|| a.uid.cmp(&b.uid))
    }

    /// LocalQueues of the same ClusterQueue that used more come first.
    fn compare_usage(&self, a: &Wl, b: &Wl) -> Ordering {
        let (Some(cq), true) = (a.held, a.held == b.held && a.lq != b.lq) else { return Ordering::Equal };
        if !self.cq(cq).rules.fair_admission {
            return Ordering::Equal;
        }
        self.local_usage(b.lq).total_cmp(&self.local_usage(a.lq))
    }

    /// Whether the need fits now, by quota and by placement.
    fn need_fits(&self, need: &Need, borrow: bool) -> bool {
        let quota = need.usage.iter().all(|&(fr, a)| {
            (borrow || !self.tree.borrowing_with(need.node, fr, a)) && a <= self.tree.available(need.node, fr)
        });
        quota && self.tas_fits(need.id, need.cq, &need.tas)
    }

    /// From the last but one backwards, keeps whoever need not go after all and may stay by `legal`, which
    /// sees all targets and the place of the one put back. The last target takes the place of one that is kept.
    fn fill_back(
        &mut self,
        need: &Need,
        targets: &mut Vec<Target>,
        borrow: bool,
        legal: impl Fn(&mut Self, &[Target], usize) -> bool,
    ) {
        for i in (0..targets.len().saturating_sub(1)).rev() {
            let mark = self.mark();
            self.put_back(targets[i].id);
            if self.need_fits(need, borrow) && legal(self, targets, i) {
                targets.swap_remove(i);
            } else {
                self.rollback(mark);
            }
        }
    }
}
