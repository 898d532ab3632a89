//! Placements of a pod group: the sets of nodes that a plugin generates are tried one by one, and the best of those in
//! which enough pods find a node is taken (KEP-5732, upstream `podGroupSchedulingPlacementAlgorithm` and
//! `findBestPlacement` in `schedule_one_podgroup.go`).

use super::{Progress, Unplaced};
use crate::Scheduler;
use crate::cluster::{Cluster, NodeId, PodId};
use crate::framework::{Placement, PodGroupAssignments, PodGroupView};
use crate::runner::Runner;

/// Largest score of a placement after normalizing (framework `MaxNodeScore`).
const MAX_SCORE: i64 = 100;

/// A placement in which enough pods find a node, with these nodes.
struct Feasible {
    placement: usize,
    proposed: Vec<(PodId, NodeId)>,
}

impl Scheduler {
    /// Places the pods in the best placement, or on all nodes where no plugin generates placements.
    ///
    /// # Errors
    /// Why no placement was tried, or none could be chosen.
    pub(super) fn place_group(&mut self, pods: &[PodId]) -> Result<Progress, Unplaced> {
        // Places that joint admission has reserved are where the group is to run.
        if pods.iter().any(|p| self.has_reservation(*p)) {
            return Ok(self.place_pods(pods, None));
        }
        let profile = pods.first().and_then(|p| self.queue.get(*p)).map_or(0, |q| q.profile as usize);
        let placements = match self.runners.get(profile).and_then(|r| generate(r, &self.cluster, pods)) {
            None => return Ok(self.place_pods(pods, None)),
            Some(placements) => placements?,
        };
        if let [only] = placements.as_slice() {
            return Ok(self.place_pods(pods, Some(&only.nodes)));
        }
        // The chosen placement is tried once more, from the same state and with the same random numbers.
        let before = (self.rng.clone(), self.next_start);
        let mut feasible: Vec<Feasible> = Vec::new();
        for (placement, Placement { nodes, .. }) in placements.iter().enumerate() {
            (self.rng, self.next_start) = before.clone();
            let progress = self.place_pods(pods, Some(nodes));
            if progress.error {
                return Ok(progress);
            }
            let proposed = self.give_places_back(&progress);
            if progress.reached || progress.left.iter().any(|(_, left)| left.preempts()) {
                feasible.push(Feasible { placement, proposed });
            }
        }
        // Where none is feasible, the first one is reported.
        let best = match feasible.as_slice() {
            [] => 0,
            [only] => only.placement,
            many => self.best_placement((profile, pods), &placements, many)?,
        };
        (self.rng, self.next_start) = before;
        let nodes = placements.get(best).map(|p| p.nodes.as_slice());
        Ok(self.place_pods(pods, nodes))
    }

    /// Takes the placed pods off their nodes again; the nodes where they were.
    fn give_places_back(&mut self, progress: &Progress) -> Vec<(PodId, NodeId)> {
        let nodes = progress.placed.iter().filter_map(|p| Some((*p, self.cluster.pods[*p].node?))).collect();
        for id in progress.placed.iter().rev() {
            self.give_back(*id);
        }
        nodes
    }

    /// The placement with the highest score, each of equally good ones equally likely.
    fn best_placement(
        &mut self,
        (profile, pods): (usize, &[PodId]),
        placements: &[Placement],
        feasible: &[Feasible],
    ) -> Result<usize, Unplaced> {
        let Some(runner) = self.runners.get(profile) else { return Ok(0) };
        let totals = score(runner, &self.cluster, pods, placements, feasible).map_err(Unplaced::Error)?;
        let best = totals.iter().max();
        let ties: Vec<usize> = feasible
            .iter()
            .zip(&totals)
            .filter(|(_, t)| Some(*t) == best)
            .map(|(f, _)| f.placement)
            .collect();
        let at = self.rng.below(u32::try_from(ties.len()).unwrap_or(u32::MAX));
        Ok(ties.get(at as usize).copied().unwrap_or(0))
    }
}

/// PlacementGenerate: placements with the nodes that there are, ascending; `None`: no plugin generates any
/// (framework `RunPlacementGeneratePlugins`).
fn generate(runner: &Runner, cluster: &Cluster, pods: &[PodId]) -> Option<Result<Vec<Placement>, Unplaced>> {
    let made = runner.at(runner.placement_generate?);
    let all = Placement { name: String::new(), nodes: cluster.live_nodes().collect() };
    let group = PodGroupView::new(cluster, pods);
    Some(match made.plugin.generate_placements(&group, all) {
        Ok(placements) if placements.is_empty() => {
            Err(Unplaced::Rejected("no feasible placements found".to_owned()))
        }
        Ok(mut placements) => {
            for placement in &mut placements {
                placement.nodes.retain(|n| cluster.node(*n).is_some());
                placement.nodes.sort_unstable();
                placement.nodes.dedup();
            }
            Ok(placements)
        }
        Err(status) if status.code.is_rejected() => Err(Unplaced::Rejected(status.message(&cluster.strings))),
        Err(status) => Err(Unplaced::Error(status.message(&cluster.strings))),
    })
}

/// PlacementScore and NormalizePlacementScore: weighted sums by feasible placement (framework
/// `RunPlacementScorePlugins`).
fn score(
    runner: &Runner,
    cluster: &Cluster,
    pods: &[PodId],
    placements: &[Placement],
    feasible: &[Feasible],
) -> Result<Vec<i64>, String> {
    let group = PodGroupView::new(cluster, pods);
    let mut totals = vec![0_i64; feasible.len()];
    for (position, weight) in &runner.placement_score {
        let made = runner.at(*position);
        let name = runner.names.of(made.id);
        let failed = |status: crate::framework::Status| {
            format!("plugin {name:?} failed with: {}", status.message(&cluster.strings))
        };
        let mut scores = Vec::with_capacity(feasible.len());
        for one in feasible {
            let Some(placement) = placements.get(one.placement) else { continue };
            let assignments = PodGroupAssignments { placement, proposed: &one.proposed };
            let raw = made.plugin.score_placement(&group, &assignments);
            scores.push(raw.map_err(|s| format!("running PlacementScore plugins: {}", failed(s)))?);
        }
        made.plugin.normalize_placement_scores(&group, &mut scores).map_err(|s| {
            format!("running NormalizePlacementScore on PlacementScore plugins: {}", failed(s))
        })?;
        for (total, score) in totals.iter_mut().zip(&scores) {
            if !(0..=MAX_SCORE).contains(score) {
                return Err(format!(
                    "applying score defaultWeights on PlacementScore plugins: plugin {name:?} returns an invalid score \
                     {score}, it should in the range of [0, {MAX_SCORE}] after normalizing"
                ));
            }
            *total = total.saturating_add(score.saturating_mul(*weight));
        }
    }
    Ok(totals)
}

#[cfg(test)]
mod tests;
