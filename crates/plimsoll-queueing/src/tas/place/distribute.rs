//! Giving pods and slices out to domains, and why they don't fit.

use std::cmp::Ordering;

use super::{Search, Unit};
use crate::model::TopologyAssignment;
use crate::tas::tree::{DomainId, sort_domains};

impl Search<'_> {
    /// Moves a domain that takes the leader and leaves enough capacity overall to the front.
    pub(super) fn leader_first(
        &self,
        domains: Vec<DomainId>,
        count: i64,
        leaders: i64,
        size: i64,
        unit: Unit,
    ) -> Vec<DomainId> {
        if leaders == 0 || domains.len() < 2 {
            return domains;
        }
        let needed = if unit == Unit::Slices { count / size } else { count };
        let free_capacity: i64 = domains.iter().map(|&d| self.primary(d, unit)).sum();
        let seat = domains.iter().position(|&d| {
            self.at(d).leaders >= leaders
                && free_capacity - (self.primary(d, unit) - self.beside(d, unit)) >= needed
        });
        let mut domains = domains;
        if let Some(i) = seat {
            domains[..=i].rotate_right(1);
        }
        domains
    }

    /// Gives `count` pods out to a minimal prefix of `domains` and sets their counts to what they get.
    pub(super) fn give_out(
        &mut self,
        domains: Vec<DomainId>,
        count: i64,
        leaders: i64,
        size: i64,
        unit: Unit,
    ) -> Vec<DomainId> {
        let domains = self.leader_first(domains, count, leaders, size, unit);
        let mut left = if unit == Unit::Slices { count / size } else { count };
        let (mut leaders, mut out) = (leaders, Vec::new());
        for i in 0..domains.len() {
            let mut d = domains[i];
            if leaders > 0 {
                let (taken, done) =
                    self.take_with_leader(d, &domains[i..], &mut left, &mut leaders, size, unit);
                out.push(taken);
                if done {
                    return out;
                }
                continue;
            }
            if !self.least_free && self.primary(d, unit) >= left {
                d = self.best_fit(&domains[i..], left, 0, unit);
            }
            self.state[d as usize].leaders = 0;
            let has = self.primary(d, unit);
            let gets = has.min(left);
            self.set_primary(d, unit, gets);
            if unit == Unit::Slices {
                self.state[d as usize].pods = gets * size;
            }
            out.push(d);
            if has >= left {
                return out;
            }
            left -= has;
        }
        Vec::new()
    }

    pub(super) fn take_with_leader(
        &mut self,
        d: DomainId,
        rest: &[DomainId],
        left: &mut i64,
        leaders: &mut i64,
        size: i64,
        unit: Unit,
    ) -> (DomainId, bool) {
        let size = if unit == Unit::Slices { size } else { 1 };
        let takes_all = |s: &Self, d: DomainId, left: i64, leaders: i64| {
            s.beside(d, unit) >= left && s.at(d).leaders >= leaders
        };
        let mut d = d;
        if !self.least_free && takes_all(self, d, *left, *leaders) {
            d = self.best_fit(rest, *left, *leaders, unit);
        }
        let done = takes_all(self, d, *left, *leaders);
        let gets = if done { *left } else { self.beside(d, unit).min(*left) };
        self.set_primary(d, unit, gets);
        let s = &mut self.state[d as usize];
        s.leaders = s.leaders.min(*leaders);
        s.pods = gets * size;
        if !done {
            if unit == Unit::Slices {
                s.slices_beside = gets;
            } else {
                s.pods_beside = gets;
            }
            *leaders -= s.leaders;
            *left -= gets;
        }
        (d, done)
    }

    pub(super) fn sorted_with_leader(&self, mut domains: Vec<DomainId>) -> Vec<DomainId> {
        sort_domains(&mut domains, &|a, b| {
            let (x, y) = (self.at(a), self.at(b));
            y.leaders
                .cmp(&x.leaders)
                .then_with(|| y.affinity.cmp(&x.affinity))
                .then_with(|| self.by_capacity(x.slices_beside, y.slices_beside))
                .then_with(|| x.pods_beside.cmp(&y.pods_beside))
                .then_with(|| self.rank(a).cmp(&self.rank(b)))
        });
        domains
    }

    pub(super) fn sorted(&self, mut domains: Vec<DomainId>) -> Vec<DomainId> {
        sort_domains(&mut domains, &|a, b| {
            let (x, y) = (self.at(a), self.at(b));
            y.affinity
                .cmp(&x.affinity)
                .then_with(|| self.by_capacity(x.slices, y.slices))
                .then_with(|| x.pods.cmp(&y.pods))
                .then_with(|| self.rank(a).cmp(&self.rank(b)))
        });
        domains
    }

    pub(super) fn by_capacity(&self, a: i64, b: i64) -> Ordering {
        if self.least_free { a.cmp(&b) } else { b.cmp(&a) }
    }

    pub(super) fn not_fit(&self, level: usize, fit: i64, wanted: i64) -> String {
        let topology = &self.tree.topology;
        if !self.layers.is_empty() {
            return self.not_fit_layers(level);
        }
        let unit = if self.slice_size == 1 { "pod" } else { "slice" };
        let text = if fit == 0 {
            format!("topology {topology:?} doesn't allow to fit any of {wanted} {unit}(s)")
        } else {
            format!("topology {topology:?} allows to fit only {fit} out of {wanted} {unit}(s)")
        };
        text + &self.excluded.text()
    }

    pub(super) fn not_fit_layers(&self, level: usize) -> String {
        let mut text = format!("topology {:?} doesn't allow to fit", self.tree.topology);
        let id = |d: DomainId| crate::tas::domain_id(self.values(d));
        let best = self.tree.per_level[level]
            .iter()
            .copied()
            .min_by(|&a, &b| self.at(b).slices.cmp(&self.at(a).slices).then_with(|| id(a).cmp(&id(b))));
        let Some(best) = best else { return text };
        for (key, size) in self.layers {
            let Some(target) = self.tree.level(key) else { continue };
            let size = i64::from(*size).max(1);
            let fit = self.slices_below(best, level, target, size);
            text.push_str(&format!("; {fit}/{} slice(s) fit on level {key}", self.count / size));
        }
        text + &self.excluded.text()
    }

    pub(super) fn slices_below(&self, d: DomainId, level: usize, target: usize, size: i64) -> i64 {
        if level == target {
            return self.at(d).pods / size;
        }
        let children = &self.tree.domains[d as usize].children;
        children.iter().map(|&c| self.slices_below(c, level + 1, target, size)).sum()
    }

    /// Domains with pods, by values; only the node's name where the lowest level is the node.
    pub(super) fn assignment(&self, places: Vec<(DomainId, i64)>) -> TopologyAssignment {
        let from = if self.tree.by_node { self.tree.levels.len() - 1 } else { 0 };
        let mut places: Vec<(DomainId, i64)> = places.into_iter().filter(|(_, n)| *n > 0).collect();
        places.sort_by_key(|p| self.rank(p.0));
        let domains = places
            .into_iter()
            .map(|(d, n)| (self.values(d)[from..].to_vec(), i32::try_from(n).unwrap_or(i32::MAX)))
            .collect();
        TopologyAssignment { levels: self.tree.levels[from..].to_vec(), domains }
    }
}
