//! PodGroupPodsCount: prefers placements in which more pods of the group run (KEP-5732, upstream
//! `plugins/podgrouppodscount/podgroup_pods_count.go`).

use crate::cluster::Cluster;
use crate::framework::{
    ExtensionPoint, Incoming, Plugin, PodGroupAssignments, PodGroupView, Registration, Status,
};
use plimsoll_state::cast::signed;

/// The plugin.
#[derive(Debug)]
pub(crate) struct PodGroupPodsCount;

/// How the plugin is registered.
pub(super) fn registration() -> Registration {
    Registration::new("PodGroupPodsCount", &[ExtensionPoint::PlacementScore], |_, _| {
        Box::new(PodGroupPodsCount)
    })
    .by_default_behind("TopologyAwareWorkloadScheduling", 1)
}

impl Plugin for PodGroupPodsCount {
    fn is_local(&self, _cluster: &Cluster, _pod: &Incoming) -> bool {
        true
    }

    fn score_placement(
        &self,
        group: &PodGroupView<'_>,
        assignments: &PodGroupAssignments<'_>,
    ) -> Result<i64, Status> {
        Ok(signed(group.scheduled().count() + assignments.proposed.len()))
    }

    fn normalize_placement_scores(
        &self,
        _group: &PodGroupView<'_>,
        scores: &mut [i64],
    ) -> Result<(), Status> {
        let most = scores.iter().copied().max().filter(|most| *most > 0);
        let Some(most) = most else {
            let text = "no pods from pod group are assigned to any of the candidate placements";
            return Err(Status::error(text));
        };
        scores.iter_mut().for_each(|s| *s = *s * 100 / most);
        Ok(())
    }
}
