//! Sizes of a Deployment's ReplicaSets: rolling from old to new, and in proportion while a rollout is under way
//! (`pkg/controller/deployment/rolling.go`, `sync.go` upstream).

use super::{DESIRED, MAX, Rollout};
use crate::apps::model::ReplicaSet;

impl Rollout<'_> {
    /// Moves the new ReplicaSet towards its size; whether that changes anything.
    pub(super) fn scale_new(&mut self) -> bool {
        let Some(current) = self.new.as_ref().map(ReplicaSet::replicas) else { return false };
        let wanted = self.deployment.replicas();
        match current {
            n if n == wanted => false,
            n if n > wanted => self.set_new(wanted),
            n => {
                let replicas = self.new_replicas(n);
                self.set_new(replicas)
            }
        }
    }

    /// Takes pods from old ReplicaSets, as far as enough remain available: first those that aren't healthy anyway.
    pub(super) fn scale_old(&mut self) -> bool {
        let d = self.deployment;
        let old_total: i32 = self.old.iter().map(ReplicaSet::replicas).sum();
        if old_total == 0 {
            return false;
        }
        let min_available = d.replicas() - d.limits().1;
        let unavailable = self.new.as_ref().map_or(0, |n| n.replicas() - n.status.available_replicas);
        let may_go = self.total() - min_available - unavailable;
        if may_go <= 0 {
            return false;
        }
        // What one of them has too many is on its way out, and counts as available until then (upstream
        // `cleanupUnhealthyReplicas` fails).
        let active = |s: &&ReplicaSet| s.replicas() > 0;
        if self.old.iter().filter(active).any(|s| s.status.available_replicas > s.replicas()) {
            return false;
        }
        let unhealthy = self.drop_unhealthy(may_go);
        let counted = self.old.iter().filter(active).chain(&self.new);
        let available: i32 = counted.map(|s| s.status.available_replicas).sum();
        let mut left = available - min_available;
        let mut healthy = false;
        for i in 0..self.old.len() {
            let take = self.old_replicas(i).min(left);
            if take > 0 {
                healthy |= self.set_old(i, self.old_replicas(i) - take);
                left -= take;
            }
        }
        unhealthy || healthy
    }

    fn drop_unhealthy(&mut self, at_most: i32) -> bool {
        let (mut left, mut changed) = (at_most, false);
        for i in 0..self.old.len() {
            let replicas = self.old_replicas(i);
            let available = self.old.get(i).map_or(0, |s| s.status.available_replicas);
            let take = (replicas - available).min(left);
            if replicas > 0 && take > 0 {
                changed |= self.set_old(i, replicas - take);
                left -= take;
            }
        }
        changed
    }

    /// `spec.replicas` has changed, or the rollout is paused: all active ReplicaSets grow or shrink in proportion.
    pub(super) fn scale(&mut self) {
        let wanted = self.deployment.replicas();
        let active: Vec<usize> = (0..self.old.len()).filter(|i| self.old_replicas(*i) > 0).collect();
        let new_active = self.new.as_ref().is_some_and(|n| n.replicas() > 0);
        match (active.as_slice(), new_active) {
            ([], _) if self.new.is_some() => {
                self.set_new(wanted);
                return;
            }
            // Nothing is active and there is no ReplicaSet of this template: the latest one.
            ([], _) => {
                if let Some(last) = self.old.len().checked_sub(1) {
                    self.set_old(last, wanted);
                }
                return;
            }
            ([one], false) => {
                self.set_old(*one, wanted);
                return;
            }
            _ => {}
        }
        if self.is_saturated() {
            for i in active {
                self.set_old(i, 0);
            }
        } else if self.deployment.spec.strategy.kind != "Recreate" {
            self.scale_in_proportion(&active);
        }
    }

    fn is_saturated(&self) -> bool {
        let wanted = self.deployment.replicas();
        self.new.as_ref().is_some_and(|n| {
            let desired = n.metadata.annotations.get(DESIRED).and_then(|d| d.parse::<i32>().ok());
            n.replicas() == wanted && desired == Some(wanted) && n.status.available_replicas == wanted
        })
    }

    fn scale_in_proportion(&mut self, active: &[usize]) {
        let allowed = if self.deployment.replicas() > 0 { self.max_replicas() } else { 0 };
        let to_add = allowed - self.total();
        // Largest first; among equals the newest when growing, the oldest when shrinking.
        let mut sets: Vec<(Option<usize>, i32)> =
            active.iter().map(|i| (Some(*i), self.old_replicas(*i))).collect();
        if let Some(new) = self.new.as_ref().filter(|n| n.replicas() > 0) {
            sets.push((None, new.replicas()));
        }
        if to_add > 0 {
            sets.reverse();
        }
        sets.sort_by_key(|(_, n)| std::cmp::Reverse(*n));
        let total = self.total().max(1);
        let mut added = 0;
        let mut sizes = Vec::with_capacity(sets.len());
        for (which, replicas) in sets {
            let share = if to_add == 0 { 0 } else { self.proportion(which, replicas, total, to_add, added) };
            added += share;
            sizes.push((which, replicas + share));
        }
        // What rounding has left goes to the largest.
        if let Some((_, first)) = sizes.first_mut() {
            *first = (*first + to_add - added).max(0);
        }
        for (which, replicas) in sizes {
            match which {
                Some(i) => self.set_old(i, replicas),
                None => self.set_new(replicas),
            };
        }
    }

    fn proportion(&self, which: Option<usize>, replicas: i32, total: i32, to_add: i32, added: i32) -> i32 {
        let set = match which {
            Some(i) => self.old.get(i),
            None => self.new.as_ref(),
        };
        let before = set.and_then(|s| s.metadata.annotations.get(MAX)).and_then(|m| m.parse::<i32>().ok());
        let before = f64::from(before.filter(|m| *m > 0).unwrap_or(total));
        let grown = (f64::from(replicas) * f64::from(self.max_replicas()) / before).round();
        // Sizes are far below what an f64 holds exactly.
        #[allow(clippy::cast_possible_truncation)]
        let share = grown as i32 - replicas;
        let left = to_add - added;
        if to_add > 0 { share.clamp(0, left.max(0)) } else { share.clamp(left.min(0), 0) }
    }
}
