//! Nodes as they would be if the pods of workloads had left: where a workload that waits will have places (joint admission).

use super::{Beside, Cluster, NodeId, PodId};
use smallvec::SmallVec;

impl Cluster {
    /// Notes whether a pod is one of a workload, or what is reserved for such a pod.
    pub(crate) fn set_queued(&mut self, id: PodId, queued: bool) {
        let pod = &mut self.pods[id];
        if std::mem::replace(&mut pod.queued, queued) != queued
            && let Some(node) = pod.node
        {
            self.changes.owned(node);
        }
    }

    /// Looks at a node beside the pods that count.
    #[inline]
    pub(crate) fn beside<T>(&mut self, beside: Beside, node: NodeId, look: impl FnOnce(&mut Self) -> T) -> T {
        match beside {
            Beside::All => look(self),
            Beside::Alone => self.alone_on(node, look),
        }
    }

    /// Looks at a node as if the pods of workloads, and what is reserved for such pods, had left it. To others that is no change.
    pub(crate) fn alone_on<T>(&mut self, node: NodeId, look: impl FnOnce(&mut Self) -> T) -> T {
        let row = self.nodes.get(node);
        let pods = row.map_or(&[][..], |row| &row.pods);
        let leaving: SmallVec<[PodId; 8]> = pods.iter().copied().filter(|id| self.pods[*id].queued).collect();
        if leaving.is_empty() {
            return look(self);
        }
        let staying: Vec<PodId> = pods.iter().copied().filter(|id| !self.pods[*id].queued).collect();
        let paused = std::mem::replace(&mut self.changes.paused, true);
        let pods = std::mem::replace(&mut self.nodes[node].pods, staying);
        leaving.iter().for_each(|id| self.account(*id, node, -1));
        // What is tried within pauses the log for itself.
        let done = look(self);
        self.changes.paused = true;
        leaving.iter().rev().for_each(|id| self.account(*id, node, 1));
        self.nodes[node].pods = pods;
        self.changes.paused = paused;
        done
    }
}
