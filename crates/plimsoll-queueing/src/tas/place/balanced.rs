//! Balanced placement (gate `TASBalancedPlacement`; Kueue KEP-2724): as many slices as possible on the domain with
//! fewest, on as few domains as possible. Only for preferred levels; where it finds nothing, best fit decides.

use std::cmp::Ordering;
use std::collections::BTreeMap;

use plimsoll_state::cast::signed;

use super::{Search, State, Unit};
use crate::tas::tree::{DomainId, sort_domains};

/// Most steps of all searches for sets of domains in one scheduling cycle, a few milliseconds; beyond that best fit
/// decides.
const MAX_STEPS: usize = 40_000;

/// What taking the largest domains first would use.
struct Greedy {
    domains: i64,
    last_with_leader: Option<DomainId>,
    last: Option<DomainId>,
}

/// Domains and their counts, as far as they are worth using.
struct Candidate {
    domains: Vec<DomainId>,
    states: Vec<(DomainId, State)>,
    threshold: i64,
    /// How many domains of the requested level it takes.
    uses: i64,
}

impl Search<'_> {
    /// Level and domains of a balanced placement, with what each of them gets; `None` when there is none.
    pub(super) fn balanced(&mut self, level: usize) -> Option<(usize, Vec<DomainId>)> {
        let candidate = self.best_candidate(level)?;
        let before = self.state.clone();
        self.put(&candidate.states);
        let placed = self.spread(level, candidate);
        if placed.is_none() {
            self.state = before;
        }
        placed
    }

    fn slices(&self) -> i64 {
        self.count / self.slice_size
    }

    /// Among the children of every domain above the level, those with the highest threshold: the most slices that the
    /// domain with fewest can have.
    fn best_candidate(&mut self, level: usize) -> Option<Candidate> {
        let tree = self.tree;
        let families: Vec<Vec<DomainId>> = match level.checked_sub(1) {
            None => vec![tree.per_level[0].clone()],
            Some(above) => {
                tree.per_level[above].iter().map(|&d| tree.domains[d as usize].children.clone()).collect()
            }
        };
        let mut best: Option<Candidate> = None;
        for family in families {
            let found = self.candidate(&family, level, best.as_ref().map_or(0, |b| b.threshold));
            if let Some(found) = found {
                let better = best.as_ref().is_none_or(|b| {
                    found.threshold > b.threshold || (found.threshold == b.threshold && found.uses < b.uses)
                });
                if found.threshold > 0 && better {
                    best = Some(found);
                }
            }
        }
        best
    }

    /// What the domains of one family could do, if that is at least `floor`. Changes nothing.
    fn candidate(&mut self, family: &[DomainId], level: usize, floor: i64) -> Option<Candidate> {
        let lower = if level < self.slice_level { self.children(family) } else { family.to_vec() };
        let greedy = self.greedy(&lower)?;
        if greedy.domains == 0 {
            return None;
        }
        let mut threshold = self.slices() / greedy.domains;
        if let Some(d) = greedy.last_with_leader {
            threshold = threshold.min(self.at(d).slices_beside);
        }
        if let Some(d) = greedy.last {
            threshold = threshold.min(self.at(d).slices);
        }
        let reserved = greedy.last.filter(|_| self.leaders > 0).map(|d| self.at(d).slices_beside);
        let reserved = reserved.map_or(threshold, |r| r.min(threshold));
        if threshold < floor {
            return None;
        }
        let found = self.pruned(family, level, threshold);
        if found.is_some() || reserved >= threshold || reserved <= 0 || reserved < floor {
            return found;
        }
        // Once more, with capacity for the leader kept on the last domain.
        self.pruned(family, level, reserved)
    }

    /// The family without domains below the threshold, if everything still fits. Changes nothing.
    fn pruned(&mut self, family: &[DomainId], level: usize, threshold: i64) -> Option<Candidate> {
        let all = self.with_descendants(family);
        let before: Vec<(DomainId, State)> = all.iter().map(|&d| (d, self.at(d))).collect();
        for d in self.children(family) {
            self.prune(d, threshold);
        }
        let inner = std::mem::take(&mut self.inner);
        for &d in family {
            self.fill_up(d, level);
            self.prune(d, threshold);
        }
        self.inner = inner;
        let fits = self.greedy(family);
        let states = all.iter().map(|&d| (d, self.at(d))).collect();
        self.put(&before);
        fits.map(|g| Candidate { domains: family.to_vec(), states, threshold, uses: g.domains })
    }

    fn put(&mut self, states: &[(DomainId, State)]) {
        for &(d, s) in states {
            self.state[d as usize] = s;
        }
    }

    /// A domain that can't have so many slices is not used; one that can't beside the leader doesn't get the leader.
    fn prune(&mut self, d: DomainId, threshold: i64) {
        let s = self.at(d);
        if s.slices < threshold {
            for d in self.with_descendants(&[d]) {
                self.state[d as usize] = State { affinity: self.at(d).affinity, ..State::default() };
            }
        } else if self.leaders > 0 && s.leaders > 0 && s.slices_beside < threshold {
            for d in self.with_descendants(&[d]) {
                let s = &mut self.state[d as usize];
                (s.pods_beside, s.slices_beside, s.leaders) = (0, 0, 0);
            }
        }
    }

    fn children(&self, domains: &[DomainId]) -> Vec<DomainId> {
        domains.iter().flat_map(|&d| &self.tree.domains[d as usize].children).copied().collect()
    }

    fn with_descendants(&self, domains: &[DomainId]) -> Vec<DomainId> {
        let mut all = domains.to_vec();
        let mut next = 0;
        while let Some(&d) = all.get(next) {
            all.extend(&self.tree.domains[d as usize].children);
            next += 1;
        }
        all
    }

    /// Takes the largest domains until everything fits, those with the leader first.
    fn greedy(&self, domains: &[DomainId]) -> Option<Greedy> {
        let (mut left, mut leaders) = (self.slices(), self.leaders);
        let mut found = Greedy { domains: 0, last_with_leader: None, last: None };
        let mut rest = domains.to_vec();
        if leaders > 0 {
            let sorted = self.sorted_with_leader(rest);
            let mut used = 0;
            for &d in sorted.iter().take_while(|&&d| self.at(d).leaders > 0) {
                if leaders <= 0 {
                    break;
                }
                leaders -= self.at(d).leaders;
                left -= self.at(d).slices_beside;
                found.last_with_leader = Some(d);
                used += 1;
            }
            found.domains = signed(used);
            rest = sorted[used..].to_vec();
        }
        if leaders > 0 {
            return None;
        }
        for d in self.sorted(rest) {
            if left <= 0 || self.at(d).slices <= 0 {
                break;
            }
            left -= self.at(d).slices;
            found.last = Some(d);
            found.domains += 1;
        }
        (left <= 0).then_some(found)
    }

    /// Chooses domains and gives each of them its part.
    fn spread(&mut self, level: usize, c: Candidate) -> Option<(usize, Vec<DomainId>)> {
        let (level, domains) = if level < self.slice_level {
            let chosen = self.smallest_set(&c.domains, true)?;
            (level + 1, self.children(&chosen))
        } else {
            (level, c.domains)
        };
        let chosen = self.smallest_set(&domains, false)?;
        let mut extra = self.slices() - c.threshold.checked_mul(signed(chosen.len()))?;
        if extra < 0 {
            return None;
        }
        let chosen = self.sorted_with_leader(chosen);
        let mut leaders = self.leaders;
        for &d in &chosen {
            let s = self.at(d);
            let (free_capacity, leader) = if leaders > 0 { (s.slices_beside, 1) } else { (s.slices, 0) };
            let more = if leader > 0 || extra > 0 { (free_capacity - c.threshold).min(extra) } else { 0 };
            let (slices, pods) = (c.threshold + more, (c.threshold + more) * self.slice_size);
            let pods_beside = pods - leader;
            self.state[d as usize] =
                State { pods, slices, pods_beside, slices_beside: slices, leaders: leader, ..s };
            leaders -= leader;
            extra -= more;
        }
        (extra <= 0 && leaders <= 0).then_some((level, chosen))
    }

    /// As few domains as possible that take everything, with as little capacity as possible: dynamic programming over the
    /// leaders and pods still to be placed after a number of domains.
    fn smallest_set(&self, domains: &[DomainId], by_entropy: bool) -> Option<Vec<DomainId>> {
        let most = usize::try_from(self.greedy(domains)?.domains).ok()?;
        let mut domains = domains.to_vec();
        if by_entropy {
            sort_domains(&mut domains, &|a, b| self.by_capacity_and_entropy(a, b));
        } else {
            sort_domains(&mut domains, &|a, b| self.values(a).cmp(self.values(b)));
        }
        type Sets = BTreeMap<(i64, i64), Vec<DomainId>>;
        let mut sets: Vec<Sets> = vec![Sets::new(); most + 1];
        sets[0].insert((self.leaders, self.slices() * self.slice_size), Vec::new());
        for &d in &domains {
            let s = self.at(d);
            for i in (1..=most).rev() {
                let (fewer, more) = sets.split_at_mut(i);
                let (Some(from), Some(to)) = (fewer.last(), more.first_mut()) else { continue };
                for (&(leaders, pods), set) in from.iter().filter(|((l, p), _)| *l > 0 || *p > 0) {
                    let steps = self.steps.get() + 1 + set.len() / 8;
                    self.steps.set(steps);
                    if steps > MAX_STEPS {
                        return None;
                    }
                    let grown = || set.iter().copied().chain([d]).collect();
                    if leaders > 0 && s.leaders > 0 {
                        to.entry((leaders - s.leaders, pods - s.pods_beside)).or_insert_with(grown);
                    }
                    if s.slices > 0 {
                        to.entry((leaders, pods - s.pods)).or_insert_with(grown);
                    }
                }
            }
        }
        let done = sets.pop()?.into_iter().filter(|((leaders, pods), _)| *leaders == 0 && *pods <= 0);
        done.max_by_key(|((_, pods), _)| *pods).map(|(_, set)| set)
    }

    fn by_capacity_and_entropy(&self, a: DomainId, b: DomainId) -> Ordering {
        let (x, y) = (self.at(a), self.at(b));
        y.leaders
            .cmp(&x.leaders)
            .then_with(|| y.slices_beside.cmp(&x.slices_beside))
            .then_with(|| self.entropy(b).total_cmp(&self.entropy(a)))
            .then_with(|| self.values(a).cmp(self.values(b)))
    }

    /// How evenly the capacity of a domain is spread over its children, in bits.
    fn entropy(&self, d: DomainId) -> f64 {
        let pods = || self.tree.domains[d as usize].children.iter().map(|&c| self.primary(c, Unit::Pods));
        let total: i64 = pods().sum();
        let parts = pods().filter(|&p| p > 0).map(|p| p as f64 / total as f64);
        parts.map(|p| -p * p.log2()).sum()
    }
}
