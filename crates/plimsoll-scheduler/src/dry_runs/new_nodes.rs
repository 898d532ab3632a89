//! Nodes that a cluster autoscaler may add (joint admission): whether a pod would fit on one.

use crate::Scheduler;
use crate::cycle::Cycle;
use crate::framework::{Incoming, Status};
use crate::metrics::Unmetered;
use plimsoll_state::model::{Node, Pod};
use plimsoll_state::time::Time;

impl Scheduler {
    /// Whether a pod passes all filters on a new node like this one, beside the nodes and pods that are there. Pods of a scheduler
    /// that is not ours, and those for which extenders have to be asked, do. No node may have its name.
    ///
    /// # Errors
    /// The scheduler's words about that node.
    pub fn fits_new_node(&mut self, now: Time, pod: &Pod, node: &Node) -> Result<(), String> {
        self.set_now(now);
        let Some((row, profile)) = self.placeholder(pod, "", None) else { return Ok(()) };
        let (id, ..) = self.cluster.upsert_node(node);
        let status = match self.runners.get(profile) {
            None => Status::success(),
            Some(runner) => {
                let incoming = Incoming::new(&self.cluster, row);
                let cycle = Cycle::pre_filter(&Unmetered, runner, &self.cluster, incoming);
                if !cycle.status.is_success() {
                    cycle.status
                } else if cycle.allows(&self.cluster, id) {
                    cycle.filter_once(&Unmetered, &self.cluster, id)
                } else {
                    Status::unresolvable("node(s) didn't satisfy plugin(s)")
                }
            }
        };
        self.cluster.remove_pod(row);
        self.cluster.remove_node(&node.name);
        if status.is_success() { Ok(()) } else { Err(status.message(&self.cluster.strings)) }
    }
}
