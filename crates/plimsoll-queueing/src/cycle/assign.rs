//! Flavor assignment: which flavor each podset gets, and what that costs (Kueue
//! `pkg/scheduler/flavorassigner/flavorassigner.go`).

mod assignment;
mod attempts;
mod flavor;
mod partial;

pub(crate) use assignment::{Assignment, FlavorAssignment, LastAssignment, Pins, PodSetFlavors};
pub(in crate::cycle) use attempts::Refusal;
pub(crate) use attempts::{FlavorAttempt, Possibility};
pub(crate) use partial::Reducer;

use std::fmt::Debug;

use super::Cycle;
use crate::amount::Amount;
use crate::ids::{ClusterQueueId, FlavorId, ResourceId, SchedulingHashId, WorkloadId};
use crate::pod_sets::PodSetResources;
use crate::quota::add_usage;
pub(super) use flavor::Search;
pub(crate) use flavor::matches_labels;

/// How many flavors of one assignment may have no capacity in their topologies, by all filters, before the search ends.
const MOST_REFUSALS: usize = 32;

/// Why nothing fits, as reasons of QuotaReserved=False, mild to severe.
pub(crate) mod why {
    /// Plimsoll's own: quota fits, and nodes have no capacity for all pods (joint admission).
    pub(crate) const NODES: &str = "WaitingForNodes";
    pub(crate) const TOPOLOGY: &str = "TopologyPlacementFailed";
    pub(crate) const QUOTA: &str = "WaitingForQuota";
    pub(crate) const TOO_MUCH: &str = "ExceedsMaxQuota";
    pub(crate) const NO_FLAVOR: &str = "NoMatchingFlavor";
    /// Plimsoll's own: a run window is closed.
    pub(crate) const WINDOW: &str = "FlavorOutsideRunWindow";

    fn severity(reason: &str) -> u8 {
        match reason {
            NO_FLAVOR => 5,
            TOO_MUCH => 4,
            WINDOW => 3,
            QUOTA => 2,
            TOPOLOGY | NODES => 1,
            _ => 0,
        }
    }

    pub(crate) fn worse(a: &'static str, b: &'static str) -> &'static str {
        if severity(a) >= severity(b) { a } else { b }
    }

    pub(crate) fn is_milder(a: &str, b: &str) -> bool {
        severity(a) < severity(b)
    }
}

/// What an assignment means, worst first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Mode {
    NoFit,
    Preempt,
    /// Fits once the victims of others are gone.
    DeferredFit,
    Fit,
}

/// A podset while its group is looked at.
pub(super) struct Member {
    /// Index in the spec.
    pub(super) index: usize,
    pub(super) total: PodSetResources,
}

/// What flavors are to be found for.
#[derive(Clone, Copy)]
pub(crate) struct AssignmentRequest<'a> {
    pub(super) id: WorkloadId,
    pub(super) cq: ClusterQueueId,
    /// Pods per podset instead of the whole number.
    pub(super) counts: Option<&'a [i32]>,
    /// The only flavors allowed.
    pub(super) pins: Option<&'a Pins>,
    /// Where the search goes on.
    pub(super) last: Option<&'a LastAssignment>,
}

/// How flavors are given to podsets.
pub(crate) trait FlavorAssigner: Debug + Send + Sync {
    /// Flavors for all podsets of a workload in the present state of the cycle, and what they would need.
    fn assign(&self, cycle: &mut Cycle<'_>, request: AssignmentRequest<'_>) -> Assignment;
}

/// Flavors in the order of the ClusterQueue, by its fungibility (Kueue `flavorassigner`).
#[derive(Debug)]
pub(super) struct OrderedFlavors;

impl FlavorAssigner for OrderedFlavors {
    fn assign(&self, cycle: &mut Cycle<'_>, request: AssignmentRequest<'_>) -> Assignment {
        cycle.assign(request)
    }
}

impl Cycle<'_> {
    /// Finds flavors for all podsets, with `counts` pods each instead of the whole number if given, and
    /// only among `pins` if given.
    fn assign(&mut self, request: AssignmentRequest<'_>) -> Assignment {
        if self.state.wl(request.id).is_some_and(|w| w.quota().is_some()) {
            return self.assign_again(request.id, request.cq);
        }
        self.dry_runs.refused.clear();
        loop {
            let (assignment, refusal) = self.assign_once(request);
            match refusal.filter(|_| self.dry_runs.refused.len() < MOST_REFUSALS) {
                Some(refusal) => self.dry_runs.refused.push(refusal),
                None => return assignment,
            }
        }
    }

    /// The same, but for flavors that were refused; also says which one has no capacity in its topology after all.
    fn assign_once(&mut self, request: AssignmentRequest<'_>) -> (Assignment, Option<Refusal>) {
        let AssignmentRequest { id, cq, counts, pins, last } = request;
        let mut assignment = self.nothing_assigned(id, cq);
        assignment.dry_runs = self.begin_dry_runs();
        for group in self.pod_set_groups(id, cq, counts) {
            if !self.assign_group(id, cq, &group, pins, last, &mut assignment) {
                self.resolve_reason(cq, &mut assignment);
                return (assignment, None);
            }
        }
        let mut refusal = None;
        if assignment.mode() != Mode::NoFit && self.state.config.gates.topology {
            self.state.assign_topology(id, cq, &mut assignment);
            assignment.lacks_places &= self.nodes.is_some();
            refusal = self.try_places(id, cq, &mut assignment);
        }
        self.resolve_reason(cq, &mut assignment);
        // Where a slice needs less than the one before, nothing is given back before that one has ended.
        assignment.usage.iter_mut().for_each(|(_, a)| *a = a.at_least_zero());
        (assignment, refusal)
    }

    pub(super) fn nothing_assigned(&self, id: WorkloadId, cq: ClusterQueueId) -> Assignment {
        let queue = self.state.cq(cq);
        let (generation, inadmissible_requeues, cycle) =
            (queue.generation, queue.inadmissible_requeues, self.cycle_number(cq));
        let gone = |old| self.state.is_removed(old) || self.replaced.contains(&old);
        let scheduling_hash = self.state.wl(id).map_or(SchedulingHashId::NONE, |w| w.scheduling_hash());
        Assignment {
            pod_sets: Vec::new(),
            borrowing: 0,
            usage: Vec::new(),
            last_assignment: LastAssignment {
                last_tried_flavor_idx: Vec::new(),
                generation,
                inadmissible_requeues,
                cycle,
                scheduling_hash,
            },
            no_fit_reason: "",
            replaced: self.state.replaced_resources(id, cq, gone),
            mode: None,
            dry_runs: 0,
            lacks_nodes_after_preemption: false,
            lacks_places: false,
            by_labels: false,
        }
    }

    /// For a second pass: the flavors it holds, and places for what has none. Its quota is charged already.
    fn assign_again(&mut self, id: WorkloadId, cq: ClusterQueueId) -> Assignment {
        let mut assignment = self.nothing_assigned(id, cq);
        let Some(wl) = self.state.wl(id) else { return assignment };
        let Some(admission) = &wl.obj.status.admission else { return assignment };
        let mut picked = Vec::new();
        for (index, ps) in wl.obj.pod_sets.iter().enumerate() {
            let at = admission.assignments.iter().zip(wl.total_requests()).find(|(a, _)| a.name == ps.name);
            let Some((assigned, total)) = at else { continue };
            let pick = |&(res, flavor): &(ResourceId, FlavorId)| FlavorAssignment {
                res,
                flavor,
                mode: Mode::Fit,
                tried_flavor_idx: -1,
                borrow: 0,
            };
            picked.push(PodSetFlavors {
                index,
                name: ps.name.clone(),
                flavors: total.flavors.iter().map(pick).collect(),
                requests: total.requests.clone(),
                count: total.count,
                topology: assigned.topology.clone(),
                delayed: assigned.delayed,
                ..PodSetFlavors::default()
            });
        }
        assignment.pod_sets = picked;
        assignment.replaced = None;
        if self.state.config.gates.topology {
            self.state.assign_topology(id, cq, &mut assignment);
        }
        self.resolve_reason(cq, &mut assignment);
        assignment
    }

    /// Podsets with the same group name together, the rest alone, in order of first sight.
    fn pod_set_groups(
        &mut self,
        id: WorkloadId,
        cq: ClusterQueueId,
        counts: Option<&[i32]>,
    ) -> Vec<Vec<Member>> {
        let pods =
            self.state.ids.find_resource("pods").filter(|&r| self.state.cq(cq).rules.group_of(r).is_some());
        let Some(wl) = self.state.workloads.get(id) else { return Vec::new() };
        let mut groups: Vec<(Option<&str>, Vec<Member>)> = Vec::new();
        for (index, (ps, total)) in wl.obj.pod_sets.iter().zip(wl.total_requests()).enumerate() {
            let mut total = match counts.and_then(|c| c.get(index)) {
                Some(&count) => total.scaled_to(count),
                None => total.clone(),
            };
            if let Some(pods) = pods {
                total.requests.retain(|(r, _)| *r != pods);
                total.requests.push((pods, i64::from(total.count)));
                self.state.ids.sort_by_walk_key(&mut total.requests);
            }
            let name = ps.topology.as_ref().and_then(|t| t.group.as_deref());
            let member = Member { index, total };
            match groups.iter_mut().find(|(n, _)| name.is_some() && *n == name) {
                Some((_, members)) => members.push(member),
                None => groups.push((name, vec![member])),
            }
        }
        groups.into_iter().map(|(_, g)| g).collect()
    }

    /// Finds flavors for one group of podsets; whether all of them got something.
    fn assign_group(
        &mut self,
        id: WorkloadId,
        cq: ClusterQueueId,
        group: &[Member],
        pins: Option<&Pins>,
        last: Option<&LastAssignment>,
        out: &mut Assignment,
    ) -> bool {
        let mut requests: Vec<(ResourceId, i64)> = Vec::new();
        for &(res, v) in group.iter().flat_map(|m| &m.total.requests) {
            match requests.iter_mut().find(|(r, _)| *r == res) {
                Some((_, sum)) => *sum = sum.saturating_add(v),
                None => requests.push((res, v)),
            }
        }
        self.state.ids.sort_by_walk_key(&mut requests);
        let members: Vec<usize> = group.iter().map(|m| m.index).collect();
        let mut flavors: Option<Vec<FlavorAssignment>> = Some(Vec::new());
        let (mut reasons, mut attempts) = (Vec::new(), Vec::new());
        for &(res, amount) in &requests {
            let rules = std::sync::Arc::clone(&self.state.cq(cq).rules);
            if rules.group_of(res).is_none() && (amount == 0 || self.state.config.ignore_undeclared) {
                continue;
            }
            if flavors.as_ref().is_some_and(|p| p.iter().any(|p| p.res == res)) {
                continue;
            }
            let replaced = out.replaced.as_deref();
            let so_far = flavors.as_deref().unwrap_or_default();
            let (members, requests, group) = (&*members, &*requests, group);
            let search = Search { id, cq, members, group, found: so_far, requests, pins, last, replaced };
            let found = self.find_flavor(&search, res, &out.usage);
            let of = rules.group_of(res).map(|g| &rules.groups[g]);
            attempts::merge(&mut attempts, found.attempts, res, of, &self.state.ids);
            if found.flavors.is_empty() {
                flavors = None;
                reasons = found.reasons;
                break;
            }
            reasons.extend(found.reasons);
            flavors.get_or_insert_default().extend(found.flavors);
        }
        self.close_dry_run(group, flavors.as_deref().unwrap_or_default());
        attempts.sort_by(|a: &FlavorAttempt, b| {
            self.state.ids.flavor_name(a.flavor).cmp(self.state.ids.flavor_name(b.flavor))
        });
        let mut all = true;
        for m in group {
            let own = self.flavors_for(cq, m, group.len() > 1, flavors.as_deref().unwrap_or_default());
            if own.is_empty() && !m.total.requests.is_empty() {
                all = false;
            }
            self.append(id, m, own, &reasons, &attempts, out);
        }
        all
    }

    /// The group's flavors that concern one podset; a podset of a group that asks for nothing goes where
    /// the group's topology is.
    fn flavors_for(
        &self,
        cq: ClusterQueueId,
        m: &Member,
        grouped: bool,
        flavors: &[FlavorAssignment],
    ) -> Vec<FlavorAssignment> {
        if !m.total.requests.is_empty() {
            return flavors
                .iter()
                .filter(|p| m.total.requests.iter().any(|(r, _)| *r == p.res))
                .cloned()
                .collect();
        }
        if !grouped {
            return Vec::new();
        }
        flavors.iter().filter(|p| self.state.is_topology_flavor(cq, p.flavor)).cloned().collect()
    }

    fn append(
        &mut self,
        id: WorkloadId,
        m: &Member,
        flavors: Vec<FlavorAssignment>,
        reasons: &[String],
        attempts: &[FlavorAttempt],
        out: &mut Assignment,
    ) {
        let name =
            self.state.wl(id).and_then(|w| w.obj.pod_sets.get(m.index)).map_or("", |p| p.name.as_str());
        let name = name.to_owned();
        for p in &flavors {
            out.borrowing = out.borrowing.max(p.borrow);
            let amount = m.total.requests.iter().find(|(r, _)| *r == p.res).map_or(0, |(_, v)| *v);
            let fr = self.state.ids.column(p.flavor, p.res);
            let before = out.replaced.iter().flatten().nth(m.index).map_or(0, |t| t.request(p.res));
            add_usage(&mut out.usage, fr, Amount(amount).sub(Amount(before)));
        }
        out.last_assignment
            .last_tried_flavor_idx
            .push(flavors.iter().map(|p| (p.res, p.tried_flavor_idx)).collect());
        out.pod_sets.push(PodSetFlavors {
            index: m.index,
            name,
            flavors,
            reasons: reasons.to_vec(),
            error: None,
            requests: m.total.requests.clone(),
            count: m.total.count,
            attempts: attempts.to_vec(),
            topology: None,
            delayed: None,
        });
    }

    /// The reason that stands for the whole: per resource group the mildest flavor counts, across groups
    /// and podsets the worst.
    fn resolve_reason(&self, cq: ClusterQueueId, a: &mut Assignment) {
        if a.mode() != Mode::NoFit {
            return;
        }
        let rules = &self.state.cq(cq).rules;
        let mut overall = "";
        for ps in a.pod_sets.iter().filter(|p| p.mode() == Mode::NoFit) {
            if ps.attempts.is_empty() {
                overall = why::worse(overall, why::NO_FLAVOR);
                continue;
            }
            let mut mildest: Vec<(usize, &'static str)> = Vec::new();
            for (i, at) in ps.attempts.iter().enumerate().filter(|(_, a)| a.mode == Mode::NoFit) {
                let group = rules.groups.iter().position(|g| g.flavors.contains(&at.flavor));
                let group = group.unwrap_or(usize::MAX - i);
                match mildest.iter_mut().find(|(g, _)| *g == group) {
                    Some((_, r)) if why::is_milder(at.no_fit_reason, r) => *r = at.no_fit_reason,
                    Some(_) => {}
                    None => mildest.push((group, at.no_fit_reason)),
                }
            }
            overall = mildest.into_iter().fold(overall, |o, (_, r)| why::worse(o, r));
        }
        a.no_fit_reason = overall;
    }

    /// Whether what was tried before no longer describes the present state.
    pub(crate) fn is_outdated(
        &self,
        last: &LastAssignment,
        cq: ClusterQueueId,
        scheduling_hash: SchedulingHashId,
    ) -> bool {
        if self.state.config.gates.preserve_scan_progress {
            if self.state.config.gates.equivalence_hashing && last.scheduling_hash != scheduling_hash {
                return true;
            }
            if self.cycle_number(cq) - last.cycle <= 1 {
                return false;
            }
        }
        self.state.cq(cq).generation > last.generation
    }

    /// Whether inadmissible workloads of a ClusterQueue were requeued since: then what was tried before may
    /// fit by now.
    pub(crate) fn requeued_since(&self, last: &LastAssignment, cq: ClusterQueueId) -> bool {
        self.state.cq(cq).inadmissible_requeues > last.inadmissible_requeues
    }
}
