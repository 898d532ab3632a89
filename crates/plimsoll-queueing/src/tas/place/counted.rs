//! What the leaves of a topology can take, kept from search to search: a search for victims asks after each candidate, joint
//! admission searches places several times under other limits, and a workload that waits asks in each cycle. Then only leaves are
//! counted anew whose usage has changed.

use super::State;
use super::leaf::Excluded;
use crate::ids::{FlavorId, ResourceId, SchedulingHashId, WorkloadId};
use crate::tas::Amounts;
use crate::tas::tree::FlavorTree;

/// How many kinds of searches are remembered.
const MOST: usize = 8;
/// How many leaves in all are remembered from cycle to cycle.
const MOST_LEAVES: usize = 1 << 16;

/// For which workloads leaves are counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Like {
    /// Those with this hash: their pods are equal.
    Equal(SchedulingHashId),
    /// One whose pods an admission check has changed.
    Single(WorkloadId),
}

/// What decides about the counts besides the usage of leaves. Podsets by index, with what one pod needs.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Key {
    pub(super) like: Like,
    pub(super) flavor: FlavorId,
    pub(super) workers: (usize, Amounts),
    pub(super) leader: Option<(usize, Amounts)>,
    /// Whether all workloads count as gone.
    pub(super) empty: bool,
}

/// Counts of all leaves of a tree.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Counted {
    /// By domain.
    pub(super) state: Vec<State>,
    /// By leaf: `None`: it is unsuitable, else which resource it has too little of.
    pub(super) lacks: Vec<Option<Option<ResourceId>>>,
    pub(super) excluded: Excluded,
    /// Of which resource how many leaves have too little.
    pub(super) lacking: Vec<(ResourceId, usize)>,
    /// Pods that a domain and those in it take, by domain.
    pub(super) within: Vec<i64>,
}

/// Counts that were made, and up to which change of usage.
#[derive(Debug, Default)]
pub(crate) struct CountedLeaves(Vec<(Key, (u64, usize), Counted)>);

impl CountedLeaves {
    /// Takes counts out.
    pub(super) fn take(&mut self, key: &Key) -> Option<((u64, usize), Counted)> {
        let at = self.0.iter().position(|(known, ..)| known == key)?;
        let (_, version, counted) = self.0.remove(at);
        Some((version, counted))
    }

    /// Keeps counts, instead of those not used for longest.
    pub(super) fn keep(&mut self, key: Key, version: (u64, usize), counted: Counted) {
        if self.0.len() >= MOST {
            self.0.remove(0);
        }
        self.0.push((key, version, counted));
    }

    /// Drops what only the cycle that ends can use, and what would take much memory.
    pub(in crate::tas) fn end_cycle(&mut self) {
        self.0.retain(|(key, ..)| matches!(key.like, Like::Equal(_)));
        while self.0.iter().map(|(.., counted)| counted.lacks.len()).sum::<usize>() > MOST_LEAVES {
            self.0.remove(0);
        }
    }
}

impl Counted {
    pub(super) fn add(
        &mut self,
        tree: &FlavorTree,
        number: usize,
        (state, lacks): (State, Option<ResourceId>),
    ) {
        let domain = tree.leaves[number].domain as usize;
        let more = state.pods - self.state[domain].pods;
        (self.state[domain], self.lacks[number]) = (state, Some(lacks));
        let mut at = Some(tree.leaves[number].domain).filter(|_| more != 0);
        while let Some(domain) = at {
            self.within[domain as usize] += more;
            at = tree.domains[domain as usize].parent;
        }
        if let Some(res) = lacks {
            match self.lacking.iter_mut().find(|(r, _)| *r == res) {
                Some((_, leaves)) => *leaves += 1,
                None => self.lacking.push((res, 1)),
            }
        }
    }

    pub(super) fn recount(&mut self, tree: &FlavorTree, number: usize, new: (State, Option<ResourceId>)) {
        if let Some(Some(res)) = self.lacks[number]
            && let Some((_, leaves)) = self.lacking.iter_mut().find(|(r, _)| *r == res)
        {
            *leaves -= 1;
        }
        self.add(tree, number, new);
    }

    /// Whether the domains may take so many pods, all in one of this level, or in any.
    pub(super) fn may_take(&self, tree: &FlavorTree, level: Option<usize>, pods: i64) -> bool {
        let within = |domains: &[u32]| domains.iter().map(|d| self.within[*d as usize]).collect::<Vec<_>>();
        match level.and_then(|level| tree.per_level.get(level)) {
            Some(domains) => within(domains).into_iter().any(|n| n >= pods),
            None => tree.per_level.first().is_none_or(|roots| within(roots).iter().sum::<i64>() >= pods),
        }
    }

    /// The same but for the order of resources.
    pub(super) fn is_same(&self, other: &Self) -> bool {
        let sorted = |c: &Self| {
            let mut lacking: Vec<_> = c.lacking.iter().filter(|(_, n)| *n > 0).copied().collect();
            lacking.sort_unstable();
            lacking
        };
        self.state == other.state
            && self.lacks == other.lacks
            && self.excluded == other.excluded
            && self.within == other.within
            && sorted(self) == sorted(other)
    }
}
