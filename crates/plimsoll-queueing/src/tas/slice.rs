//! Places of a slice that replaces another one of its elastic job: the pods of that one stay where they are, and only those that
//! it has more get new places (Kueue `pkg/cache/scheduler/tas_elastic_workloads.go`).

use super::replace::{Domains, merge};
use super::request::{TasRequest, TasView};
use super::tree::FlavorTree;
use super::{Amounts, PlaceLimits, domain_id};
use crate::cycle::assign::Assignment;
use crate::ids::{Map, WorkloadId};
use crate::model::{PodSet, TopologyAssignment, TopologyRequest};

/// Pods that an assignment has places for.
fn pods(t: &TopologyAssignment) -> i32 {
    t.domains.iter().fold(0, |sum, (_, n)| sum.saturating_add(*n))
}

/// Why a request for a topology can't be met by a part of the pods, if it can't (Kueue `flavorassigner/errors.go`).
fn unsupported(request: Option<&TopologyRequest>) -> Option<String> {
    let request = request?;
    let kind = match (&request.required, &request.preferred) {
        (Some(_), _) => "required",
        (None, Some(_)) => "preferred",
        (None, None) => return None,
    };
    Some(format!("{kind} topology is not supported with ElasticJobsViaWorkloadSlices"))
}

/// The places of an assignment without those that a slice before it has.
pub(crate) fn beyond(mut t: TopologyAssignment, before: &Domains) -> TopologyAssignment {
    for (values, count) in &mut t.domains {
        let held =
            before.iter().filter(|(v, _)| v == values).fold(0_i32, |sum, (_, n)| sum.saturating_add(*n));
        *count = count.saturating_sub(held).max(0);
    }
    t.domains.retain(|(_, count)| *count > 0);
    t
}

impl<'a> TasView<'a> {
    /// Where the slice that an assignment replaces has the pods of a podset.
    pub(super) fn placement_before(
        &self,
        id: WorkloadId,
        a: &Assignment,
        pod_set: &str,
    ) -> Option<&'a TopologyAssignment> {
        a.replaced.as_ref()?;
        self.state.wl(self.state.slice_before(id)?)?.placement_of(pod_set)
    }

    /// Places of podsets that are placed together, by podset index. More places than pods where the slice before had more: which
    /// of its pods have ended is not known here.
    pub(super) fn place_slice(
        &self,
        id: WorkloadId,
        tree: &FlavorTree,
        pod_sets: &[PodSet],
        group: &[&TasRequest],
        taken: &mut Map<String, Amounts>,
        (empty, limits): (bool, &PlaceLimits),
    ) -> Result<Vec<(usize, TopologyAssignment)>, String> {
        let before = |r: &TasRequest| r.before.as_ref().map_or(0, pods);
        for r in group {
            if let Some(text) = unsupported(pod_sets.get(r.index).and_then(|ps| ps.topology.as_ref())) {
                return Err(text);
            }
            let Some(held) = &r.before else { continue };
            if let Some((values, _)) = held.domains.iter().find(|(v, _)| tree.leaf(&domain_id(v)).is_none()) {
                return Err(format!(
                    "the workload slice before has pods in {}, which is gone",
                    domain_id(values)
                ));
            }
            if empty {
                // With all other workloads it counts as gone, and its pods stay.
                self.add_taken(taken, &r.one, held);
            }
        }
        let more = |r: &TasRequest| TasRequest { count: r.count - before(r), before: None, ..r.clone() };
        let more: Vec<TasRequest> = group.iter().map(|r| more(r)).filter(|r| r.count > 0).collect();
        let more: Vec<&TasRequest> = more.iter().collect();
        let placed = self.place_group(id, tree, pod_sets, &more, taken, (empty, limits))?;
        let mut found = Vec::new();
        for r in group {
            let new = placed.iter().find(|(of, _)| of.index == r.index).map(|(_, t)| t);
            if let Some(new) = new {
                self.add_taken(taken, &r.one, new);
            }
            let whole = match (new, &r.before) {
                (Some(new), Some(held)) => merge(tree, new, held.domains.clone()),
                (Some(only), None) | (None, Some(only)) => only.clone(),
                (None, None) => continue,
            };
            found.push((r.index, whole));
        }
        Ok(found)
    }
}
