//! What the claims of a workload's pods add to their requests.

use std::collections::BTreeSet;

use plimsoll_state::model::Resources;

/// What the claims of a podset's pods count as.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Extra {
    /// Per pod.
    pub(super) add: Resources,
    /// Extended resources that don't count as themselves.
    pub(super) replaced: BTreeSet<String>,
}

/// Why the claims of a workload can't be charged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Unresolved {
    /// Message of QuotaReserved.
    pub(crate) message: String,
    /// Message of Requeued.
    pub(crate) requeued: String,
}

/// What the claims of a workload count as, podset by podset; empty without claims.
pub(crate) type Charge = Result<Vec<Extra>, Unresolved>;

/// Changes what one pod of a podset counts as.
pub(crate) fn apply(charge: &Charge, podset: usize, effective: &mut Resources) {
    let Some(extra) = charge.as_ref().ok().and_then(|all| all.get(podset)) else { return };
    effective.retain(|name, _| !extra.replaced.contains(name));
    for (name, amount) in &extra.add {
        let e = effective.entry(name.clone()).or_insert(0);
        *e = e.saturating_add(*amount);
    }
}
