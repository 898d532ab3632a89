//! Quotas of scenarios: cohorts and ClusterQueues from draws.

use plimsoll_state::rng::Rng;

use super::{QueueSpec, Quota, QuotaSpec};
use crate::dice::Draw;

/// A quota of `least` to five more CPUs.
fn quota(rng: &mut Rng, least: i64) -> Quota {
    let mut limit = || rng.chance(400).then(|| rng.range(0, 4));
    let (borrowing, lending) = (limit(), limit());
    Quota { nominal: rng.range(least, least + 5), borrowing, lending }
}

/// A cohort, or what a ClusterQueue shares with one of so many that may be its parent.
pub(super) fn shared(rng: &mut Rng, least: i64, parents: usize) -> QuotaSpec {
    let parent = rng.chance(800).then(|| rng.below(u32::try_from(parents).unwrap_or(0)) as usize);
    QuotaSpec {
        parent: parent.filter(|_| parents > 0),
        quotas: [quota(rng, least), quota(rng, 0)],
        weight: rng.range(0, 2),
    }
}

/// A ClusterQueue whose first flavor has at least this quota.
pub(super) fn queue(rng: &mut Rng, least: i64, parents: usize) -> QueueSpec {
    QueueSpec {
        quota: shared(rng, least, parents),
        preemption: (rng.below(3) as u8, rng.below(3) as u8),
        borrow_preempts: rng.chance(500),
        strict: rng.chance(300),
        next_flavor: (rng.chance(500), rng.chance(500)),
        check: rng.chance(300),
        check_second: rng.chance(300),
        selects: rng.chance(300),
        migration: None,
    }
}
