//! What was tried per flavor, for reasons and events.

use super::{Mode, why};
use crate::ids::{FlavorId, Ids, ResourceId};
use crate::rules::Group;

/// Whether and how preemption could help.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Possibility {
    NoCandidates,
    Preempt,
    Reclaim,
}

impl Possibility {
    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::NoCandidates => "NoCandidates",
            Self::Preempt => "Preempt",
            Self::Reclaim => "Reclaim",
        }
    }
}

/// How one flavor did.
#[derive(Clone, Debug)]
pub(crate) struct FlavorAttempt {
    pub(crate) flavor: FlavorId,
    pub(crate) mode: Mode,
    pub(crate) borrow: u32,
    pub(crate) possibility: Option<Possibility>,
    pub(crate) reasons: Vec<String>,
    pub(crate) no_fit_reason: &'static str,
    /// Whether its nodes have no capacity for the pods now (joint admission).
    pub(crate) lacks_nodes: bool,
}

/// No places in the topology of a flavor pass all filters (joint admission).
#[derive(Clone, Debug)]
pub(in crate::cycle) struct Refusal {
    /// A podset that has none, by index.
    pub(in crate::cycle) index: usize,
    pub(in crate::cycle) flavor: FlavorId,
    pub(in crate::cycle) text: String,
}

/// Adds what one resource's search found to what others of the podset found. A flavor of the group that the
/// search did not come to doesn't provide the resource.
pub(super) fn merge(
    all: &mut Vec<FlavorAttempt>,
    found: Vec<FlavorAttempt>,
    res: ResourceId,
    group: Option<&Group>,
    ids: &Ids,
) {
    let seen: Vec<FlavorId> = found.iter().map(|a| a.flavor).collect();
    for mut at in found {
        at.reasons.sort_unstable();
        at.reasons.dedup();
        let Some(old) = all.iter_mut().find(|a| a.flavor == at.flavor) else {
            all.push(at);
            continue;
        };
        old.mode = old.mode.min(at.mode);
        old.borrow = old.borrow.max(at.borrow);
        old.possibility = match (old.possibility, at.possibility) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (a, b) => a.or(b),
        };
        old.reasons.extend(at.reasons);
        old.reasons.sort_unstable();
        old.reasons.dedup();
        old.no_fit_reason = why::worse(old.no_fit_reason, at.no_fit_reason);
    }
    let Some(group) = group.filter(|_| !seen.is_empty()) else { return };
    for at in all.iter_mut().filter(|a| group.flavors.contains(&a.flavor) && !seen.contains(&a.flavor)) {
        at.mode = Mode::NoFit;
        at.reasons.push(format!(
            "flavor {} does not provide resource {}",
            ids.flavor_name(at.flavor),
            ids.resource_name(res)
        ));
        at.no_fit_reason = why::NO_FLAVOR;
    }
}
