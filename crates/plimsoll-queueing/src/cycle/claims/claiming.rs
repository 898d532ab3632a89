//! How a workload gets its claim, and when it keeps it.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::super::claim_order::ClaimRank;
use super::super::claim_plans::Wanted;
use super::super::entry::Entry;
use super::super::joint::can_wait_for_others;
use super::super::victim::Target;
use super::{Cycle, NodeClaim};
use crate::cond;
use crate::ids::{FlavorId, WorkloadId};
use crate::model::WorkloadKey;

impl Cycle<'_> {
    /// Claims nodes for an entry that got no quota, if it waits for nodes, too.
    pub(in crate::cycle) fn claim_or_drop(&mut self, e: &Entry) {
        if self.awaited_victims(e.id).is_some() {
            // What they leave is claimed.
        } else if e.awaits_nodes {
            self.claim_nodes(e);
        } else if !e.resumed {
            self.drop_claim(e.id);
        }
    }

    /// Claims nodes for an entry that waits for some, unless a workload of its ClusterQueue before it has a claim in the
    /// same flavors, or its pods would not fit if all others had left.
    pub(in crate::cycle) fn claim_nodes(&mut self, e: &Entry) {
        let Some(wl) = self.state.wl(e.id) else { return };
        let replaces = e.assignment.as_ref().is_none_or(|a| a.replaced.is_some());
        if self.nodes.is_none() || e.second.is_some() || replaces || !can_wait_for_others(wl) {
            return;
        }
        let hash = wl.scheduling_hash();
        let Some(rank) = self.claims.rank_of(&self.state, e.id) else { return };
        let wanted = self.claims_wanted(e);
        let flavors = wanted.iter().flat_map(|w| &w.flavors).copied().collect();
        if !self.claims.by_rank.contains_key(&rank) && !self.claim_is_due(e, &rank.rank, flavors) {
            return;
        }
        for wanted in wanted {
            let Some(nodes) = self.nodes.as_mut() else { return };
            let claims = &mut self.claims;
            claims.forget_older(nodes.whole_version());
            let mut before = claims.by_rank.range(..&rank);
            if (!rank.preempts.0
                && before
                    .any(|(r, c)| !r.preempts.0 && c.cq == e.cq && !c.flavors.is_disjoint(&wanted.flavors)))
                || claims.impossible.1.contains(&(hash, wanted.flavors.clone()))
            {
                continue;
            }
            if self.keeps_claim(e, &rank, &wanted) {
                return;
            }
            let Some(nodes) = self.nodes.as_mut() else { return };
            let claims = &mut self.claims;
            let own = claims.by_rank.remove(&rank);
            claims.by_rank.range(&rank..).rev().for_each(|(_, claim)| nodes.lift(claim.plan));
            let (known, current) = (own.is_some(), nodes.node_version());
            let (since, victims) =
                own.as_ref().map_or((self.now, Vec::new()), |c| (c.since, c.victims.clone()));
            let before = own.map(|own| {
                let same = own.nodes == current;
                if !same {
                    nodes.end(own.plan);
                }
                (same.then_some(own.plan), own.pods, own.flavors == wanted.flavors)
            });
            let Some((plan, pods)) = self.plan_claim(e, &wanted, before) else {
                self.claims.impossible.1.insert((hash, wanted.flavors));
                if known {
                    self.claims_dropped();
                }
                self.replan_claims_after(&rank);
                continue;
            };
            let Some(nodes) = self.nodes.as_mut() else { return };
            let (version, on, flavors) = (nodes.capacity_version(), nodes.planned_on(plan), wanted.flavors);
            let (cq, scheduling_hash, nodes, settled) = (e.cq, hash, current, true);
            let claim = NodeClaim {
                cq,
                scheduling_hash,
                flavors,
                pods,
                victims,
                since,
                plan,
                on,
                version,
                nodes,
                settled,
            };
            self.insert_claim(&rank, claim, known);
            return;
        }
        self.drop_claim(e.id);
    }

    /// Whether a workload that does not fit has claimed already what it would claim now. Then no claim after it is planned anew.
    fn keeps_claim(&self, e: &Entry, rank: &ClaimRank, wanted: &Wanted) -> bool {
        let claim = self.claims.by_rank.get(rank).filter(|_| self.is_current(rank));
        claim.is_some_and(|claim| {
            claim.flavors == wanted.flavors
                && (wanted.has_places() || claim.pods == self.pods_on(e.id, wanted.admission(), &Vec::new()))
        })
    }

    /// Whether there is a claim of this rank, and it is where a plan made now would have it.
    fn is_current(&self, rank: &ClaimRank) -> bool {
        let (Some(nodes), Some(claim)) = (&self.nodes, self.claims.by_rank.get(rank)) else { return false };
        claim.settled && claim.version == nodes.capacity_version() && claim.nodes == nodes.node_version()
    }

    /// Reserves the places that a workload of this rank has claimed, if these are for the pods that it is to be admitted with and all
    /// of them are free; whether that is so. No claim changes with that. This one and those after it are lifted, and then stand
    /// again if so.
    pub(in crate::cycle) fn reserve_claimed(&mut self, e: &Entry, rank: &ClaimRank) -> bool {
        let (Some(a), Some(wl)) = (&e.assignment, self.state.wl(e.id)) else { return false };
        if !self.is_current(rank)
            || a.replaced.is_some()
            || self.dry_runs.overtaken.contains_key(&e.id)
            || self.state.quota_alone(e.cq, wl, &self.state.admission_of(e.cq, a)).is_some()
        {
            return false;
        }
        let (key, (_, pods)) = (wl.obj.key.clone(), self.claim_of_assignment(e));
        let (Some(nodes), Some(claim)) = (self.nodes.as_mut(), self.claims.by_rank.get_mut(rank)) else {
            return false;
        };
        if claim.pods != pods {
            return false;
        }
        let plan = claim.plan;
        if !nodes.restore(plan, true) {
            // What is left of it is not what a plan made now would have.
            claim.settled = false;
            nodes.lift(plan);
            return false;
        }
        self.claims.by_rank.remove(rank);
        self.claims.forget_claimant(e.id);
        self.dry_runs.claimed.insert(e.id);
        let found = self.dry_runs.take(e.id);
        self.end_dry_runs(&found);
        self.reserve_found(e.id, &key, &[plan]);
        self.restore_claims(Some(rank));
        true
    }

    /// Keeps what the victims of an entry leave for it, and what is free of the places that its pods need, until it is
    /// admitted; whether its pods still fit there, beside what the entries before it got and claim.
    pub(in crate::cycle) fn claim_for_preemption(&mut self, e: &Entry) -> bool {
        let runs = self.dry_runs.take(e.id);
        let (Some(&run), Some(wl)) = (runs.first(), self.state.wl(e.id)) else { return true };
        let scheduling_hash = wl.scheduling_hash();
        let Some(before) = self.claims.rank_of(&self.state, e.id) else { return true };
        self.lift_claims(e.id);
        let gone = e.targets.iter().map(|t| t.id).chain(self.preempted.iter().copied());
        let gone: Vec<WorkloadKey> =
            gone.filter_map(|id| Some(self.state.wl(id)?.obj.borne_by_pods())).collect();
        let (flavors, pods) = self.claim_of_assignment(e);
        let Some(nodes) = self.nodes.as_mut() else { return true };
        nodes.simulate_removal(None);
        gone.iter().for_each(|key| {
            nodes.simulate_removal(Some(key));
        });
        let whole = nodes.restore(run, self.dry_runs.others_placed);
        gone.iter().rev().for_each(|key| nodes.simulate_addition(Some(key)));
        nodes.simulate_addition(None);
        if !whole {
            nodes.end(run);
            self.restore_claims(Some(&before));
            return false;
        }
        let own = self.claims.by_rank.remove(&before);
        let (known, since) = (own.is_some(), own.as_ref().map_or(self.now, |c| c.since));
        own.into_iter().for_each(|c| nodes.end(c.plan));
        let rank = ClaimRank::new(None, before.rank, true);
        let (on, version, nodes) = (nodes.planned_on(run), nodes.capacity_version(), nodes.node_version());
        let uid = |t: &Target| Some((Arc::clone(self.state.wl(t.id)?.uid()), *t));
        let (cq, victims) = (e.cq, e.targets.iter().filter_map(uid).collect());
        // Victims are chosen for the places that it has.
        let (plan, settled) = (run, false);
        let claim = NodeClaim {
            cq,
            scheduling_hash,
            flavors,
            pods,
            victims,
            since,
            plan,
            on,
            version,
            nodes,
            settled,
        };
        self.insert_claim(&rank, claim, known);
        true
    }

    /// What a workload waits for that others were preempted for, while some of them are still leaving: the flavors that it has
    /// claimed, and those who hold quota still.
    pub(in crate::cycle) fn awaited_victims(
        &mut self,
        id: WorkloadId,
    ) -> Option<(BTreeSet<FlavorId>, Vec<Target>)> {
        let rank = self.claims.rank_of(&self.state, id).filter(|r| r.preempts.0)?;
        let claim = self.claims.by_rank.get(&rank)?;
        let leaving = |(uid, t): &&(Arc<str>, Target)| {
            let w = self.state.wl(t.id).filter(|w| w.uid() == uid);
            w.is_some_and(|w| w.quota().is_some() && w.obj.status.is_true(cond::EVICTED))
        };
        let targets: Vec<Target> = claim.victims.iter().filter(leaving).map(|(_, t)| *t).collect();
        let flavors = claim.flavors.clone();
        if targets.is_empty() {
            // Their quota is free already, and their pods are on their way.
            let blockers = self.nodes.as_mut()?.blockers(claim.plan).filter(|b| !b.is_empty())?;
            let mut ids = blockers.iter().flat_map(|key| self.state.bearing(key));
            if ids.any(|id| self.state.wl(id).is_some_and(|w| w.quota().is_some())) {
                return None;
            }
        }
        Some((flavors, targets))
    }

    fn insert_claim(&mut self, rank: &ClaimRank, claim: NodeClaim, known: bool) {
        // Claims of the same ClusterQueue after it give way, unless others were preempted for it or for them.
        let overlaps = |c: &NodeClaim| c.cq == claim.cq && !c.flavors.is_disjoint(&claim.flavors);
        let after = self.claims.by_rank.range(rank..);
        let give_way: Vec<ClaimRank> = after
            .filter(|(r, c)| !rank.preempts.0 && !r.preempts.0 && overlaps(c))
            .map(|(r, _)| r.clone())
            .collect();
        for rank in give_way {
            if let Some(claim) = self.claims.by_rank.remove(&rank) {
                self.end_dry_runs(&[claim.plan]);
            }
        }
        self.claims.by_rank.insert(rank.clone(), claim);
        self.replan_claims_after(rank);
        self.failed.clear();
        if !known {
            // Entries that fitted without this claim come again.
            self.dry_runs.others_placed = true;
            self.nodes_changed.claimed = true;
        }
    }
}
