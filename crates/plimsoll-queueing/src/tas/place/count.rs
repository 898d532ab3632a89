//! Counting what the leaves of a topology can take.

use super::counted::{Counted, Key, Like};
use super::leaf::{Excluded, FreeIn, fits_beside, preference, unsuitable};
use super::{OTHER_FILTERS, Search, State};
use crate::ids::{Map, ResourceId, WorkloadId};
use crate::model::PodSet;
use crate::tas::replace::{is_on, lies_in};
use crate::tas::request::{TasRequest, TasView};
use crate::tas::tree::{Domain, DomainId, FlavorTree, Leaf};
use crate::tas::{Amounts, PlaceLimits, add_times};

/// What is counted in leaves.
#[derive(Clone, Copy)]
pub(super) struct Wanted<'a> {
    pub(super) ps: &'a PodSet,
    pub(super) workers: &'a TasRequest,
    pub(super) leader: Option<&'a TasRequest>,
    /// Whether all workloads count as gone.
    pub(super) empty: bool,
    /// The domain in which everything has to be.
    pub(super) within: Option<&'a [String]>,
    /// A node that is out of the question.
    pub(super) without: Option<&'a str>,
}

impl<'a> Wanted<'a> {
    /// Pods of one podset, on any node.
    fn all(ps: &'a PodSet, workers: &'a TasRequest, empty: bool) -> Self {
        Self { ps, workers, leader: None, empty, within: None, without: None }
    }
}

/// What one pod of each needs, itself among the pods.
struct Needs {
    one: Amounts,
    first: Option<Amounts>,
}

impl TasView<'_> {
    fn needs(&self, wanted: &Wanted<'_>) -> Needs {
        let with_pod = |one: &Amounts| {
            let mut all = one.clone();
            if let Some(pods) = self.state.ids.find_resource("pods") {
                add_times(&mut all, &[(pods, 1)], 1);
            }
            all
        };
        Needs { one: with_pod(&wanted.workers.one), first: wanted.leader.map(|l| with_pod(&l.one)) }
    }

    fn key_of(&self, id: WorkloadId, wanted: &Wanted<'_>) -> Key {
        let of = |r: &TasRequest| (r.index, r.one.clone());
        let Wanted { workers, leader, empty, .. } = wanted;
        let written = self.state.wl(id).filter(|w| w.is_placed_as_written());
        let like = written.map_or(Like::Single(id), |w| Like::Equal(w.scheduling_hash()));
        Key { like, flavor: workers.flavor, workers: of(workers), leader: leader.map(of), empty: *empty }
    }

    /// Counts all leaves.
    pub(super) fn count_leaves(
        &self,
        tree: &FlavorTree,
        wanted: &Wanted<'_>,
        taken: &Map<String, Amounts>,
    ) -> Counted {
        let needs = self.needs(wanted);
        let mut counted = Counted {
            state: vec![State::default(); tree.domains.len()],
            lacks: vec![None; tree.leaves.len()],
            excluded: Excluded::default(),
            lacking: Vec::new(),
            within: vec![0; tree.domains.len()],
        };
        counted.excluded.nodes = tree.leaves.len();
        let library = self.state.config.gates.scheduler_library;
        let ports = Some(&self.state.tas.ports).filter(|_| library);
        for (number, leaf) in tree.leaves.iter().enumerate() {
            if let Some(reason) = unsuitable(leaf, wanted.ps, &tree.tolerations, ports) {
                counted.excluded.count(reason);
                continue;
            }
            let elsewhere = wanted.within.is_some_and(|region| !lies_in(tree, leaf.domain, region));
            let failed = wanted.without.is_some_and(|node| is_on(tree, leaf.domain, node));
            if elsewhere || failed {
                counted.excluded.count("topologyDomain".into());
                continue;
            }
            let taken = if taken.is_empty() { None } else { taken.get(&leaf.id) };
            counted.add(tree, number, self.count_leaf(leaf, wanted, &needs, taken));
        }
        counted
    }

    fn count_leaf(
        &self,
        leaf: &Leaf,
        wanted: &Wanted<'_>,
        Needs { one, first }: &Needs,
        taken: Option<&Amounts>,
    ) -> (State, Option<ResourceId>) {
        let held = if wanted.empty { [None; 2] } else { self.state.tas.held_in(leaf) };
        let free = FreeIn { leaf, held, taken };
        let pods = free.count(one, None);
        let lacks = if pods == 0 { free.lacks(one, &self.state.ids) } else { None };
        let first = first.as_ref().filter(|f| free.count(f, None) > 0);
        let affine = self.state.config.gates.tas_preferred_affinity;
        let state = State {
            pods,
            pods_beside: if first.is_some() { free.count(one, first) } else { pods },
            leaders: i64::from(first.is_some()),
            affinity: if affine { preference(leaf, wanted.ps) } else { 0 },
            ..State::default()
        };
        (state, lacks)
    }

    /// Does something with the counts of all leaves, where nothing is taken before in the same search.
    fn with_counted<T>(
        &self,
        id: WorkloadId,
        tree: &FlavorTree,
        wanted: &Wanted<'_>,
        something: impl FnOnce(&Counted) -> T,
    ) -> T {
        let now = self.state.tas.changes_of_usage();
        let key = self.key_of(id, wanted);
        let known = self.counted.borrow_mut().take(&key);
        // Where more has changed than there are leaves, it is quicker to count them all.
        let few = |version: (u64, usize)| wanted.empty || now.1 - version.1 <= tree.leaves.len();
        let usable = |version: (u64, usize)| version.0 == now.0 && few(version);
        let known = known.filter(|(version, _)| usable(*version));
        let (version, mut counted) =
            known.unwrap_or_else(|| (now, self.count_leaves(tree, wanted, &Map::default())));
        if !wanted.empty && version.1 < now.1 {
            let needs = self.needs(wanted);
            for slot in self.state.tas.usage_changed_since(version.1) {
                let Some(number) = tree.leaf_of_slot(*slot) else { continue };
                if counted.lacks[number].is_some() {
                    let new = self.count_leaf(&tree.leaves[number], wanted, &needs, None);
                    counted.recount(tree, number, new);
                }
            }
        }
        debug_assert!(
            counted.is_same(&self.count_leaves(tree, wanted, &Map::default())),
            "leaves equal those counted anew"
        );
        let done = something(&counted);
        self.counted.borrow_mut().keep(key, now, counted);
        done
    }

    /// Fills the leaves of a search.
    pub(super) fn fill_leaves(
        &self,
        id: WorkloadId,
        search: &mut Search<'_>,
        wanted: &Wanted<'_>,
        taken: &Map<String, Amounts>,
    ) {
        let tree = search.tree;
        if taken.is_empty() {
            self.with_counted(id, tree, wanted, |counted| self.fill(search, counted));
        } else {
            self.fill(search, &self.count_leaves(tree, wanted, taken));
        }
    }

    pub(super) fn fill(&self, search: &mut Search<'_>, counted: &Counted) {
        search.state.clone_from(&counted.state);
        search.excluded.clone_from(&counted.excluded);
        for (res, leaves) in counted.lacking.iter().filter(|(_, leaves)| *leaves > 0) {
            let name = self.state.ids.resource_name(*res);
            search.excluded.count_some(format!("resource {name:?}"), *leaves);
        }
    }

    /// Whether leaves may take so many pods of a podset, before a search looks where: `level` is the one of which a single domain
    /// has to take all.
    pub(in crate::tas) fn may_take(
        &self,
        id: WorkloadId,
        tree: &FlavorTree,
        (ps, request): (&PodSet, &TasRequest),
        (level, pods): (Option<usize>, i64),
    ) -> bool {
        let wanted = Wanted::all(ps, request, false);
        self.with_counted(id, tree, &wanted, |counted| counted.may_take(tree, level, pods))
    }

    /// How many pods of a podset a domain takes once all workloads have left, if each leaf takes `limit` at most.
    pub(in crate::tas) fn takes_when_empty(
        &self,
        id: WorkloadId,
        tree: &FlavorTree,
        (ps, request): (&PodSet, &TasRequest),
        (domain, limit): (DomainId, i64),
    ) -> i64 {
        let wanted = Wanted::all(ps, request, true);
        self.with_counted(id, tree, &wanted, |counted| {
            if limit == i64::MAX {
                return counted.within[domain as usize];
            }
            let (mut sum, mut open) = (0, vec![domain]);
            while let Some(domain) = open.pop() {
                sum += counted.state[domain as usize].pods.min(limit);
                open.extend(&tree.domains[domain as usize].children);
            }
            sum
        })
    }

    /// How often `one` fits into a leaf, now or once all workloads have left.
    pub(in crate::tas) fn fits_into(&self, leaf: &Leaf, one: &Amounts, empty: bool) -> i64 {
        fits_beside(leaf, if empty { [None; 2] } else { self.state.tas.held_in(leaf) }, one)
    }
}

impl Search<'_> {
    /// Leaves nothing in leaves outside of a domain.
    pub(super) fn keep_within(&mut self, region: &[String]) {
        let tree = self.tree;
        let all = std::mem::replace(&mut self.state, vec![State::default(); tree.domains.len()]);
        let (mut kept, mut open) = (0, Vec::from_iter(tree.domain_of(region)));
        while let Some(domain) = open.pop() {
            let Domain { children, leaf, .. } = &tree.domains[domain as usize];
            self.state[domain as usize] = all[domain as usize];
            kept += usize::from(leaf.is_some());
            open.extend(children);
        }
        self.excluded.count_some("topologyDomain".into(), tree.leaves.len() - kept);
    }

    /// Lowers what leaves take to limits of podsets, by index. Only leaves that have limits are looked at.
    pub(super) fn limit_leaves(&mut self, limits: &PlaceLimits, workers: usize, leader: Option<usize>) {
        if limits.is_empty() {
            return;
        }
        #[cfg(debug_assertions)]
        let each = self.limited_one_by_one(limits, workers, leader);
        let tree = self.tree;
        if let Some(leader) = leader {
            let everywhere = tree.leaves.iter().filter(|_| limits.of_all(leader) <= 0);
            let own = limits.of_domains(leader).filter(|(_, limit)| *limit <= 0);
            for leaf in everywhere.chain(own.filter_map(|(domain, _)| tree.leaf(domain))) {
                let state = &mut self.state[leaf.domain as usize];
                (state.leaders, state.pods_beside) = (0, state.pods);
            }
        }
        let all = limits.of_all(workers);
        let everywhere = tree.leaves.iter().filter(|_| all < i64::MAX).map(|leaf| (leaf, all));
        let own = limits.of_domains(workers).filter_map(|(domain, limit)| Some((tree.leaf(domain)?, limit)));
        for (leaf, limit) in everywhere.chain(own) {
            let state = &mut self.state[leaf.domain as usize];
            if limit == 0 && state.pods > 0 {
                self.excluded.count(OTHER_FILTERS.into());
            }
            (state.pods, state.pods_beside) = (state.pods.min(limit), state.pods_beside.min(limit));
        }
        #[cfg(debug_assertions)]
        assert_eq!(each, (self.state.clone(), self.excluded.clone()), "limits of each leaf by itself");
    }

    /// The same, each leaf by itself.
    #[cfg(debug_assertions)]
    fn limited_one_by_one(
        &self,
        limits: &PlaceLimits,
        workers: usize,
        leader: Option<usize>,
    ) -> (Vec<State>, Excluded) {
        let (mut states, mut excluded) = (self.state.clone(), self.excluded.clone());
        for leaf in &self.tree.leaves {
            let state = &mut states[leaf.domain as usize];
            if leader.is_some_and(|leader| limits.of(leader, &leaf.id) <= 0) {
                (state.leaders, state.pods_beside) = (0, state.pods);
            }
            let limit = limits.of(workers, &leaf.id);
            if limit == 0 && state.pods > 0 {
                excluded.count(OTHER_FILTERS.into());
            }
            (state.pods, state.pods_beside) = (state.pods.min(limit), state.pods_beside.min(limit));
        }
        (states, excluded)
    }
}
