//! Flavors for which a cluster autoscaler adds nodes: what a new node would look like counts as room to come.

use super::Cycle;
use crate::Queueing;
use crate::ids::WorkloadId;
use crate::model::{Admission, PodSetAssignment, ResourceFlavor};

impl Queueing {
    /// The flavor of a podset for which a cluster autoscaler adds nodes when pods wait, if it has one.
    pub(super) fn autoscaled_flavor(&self, assigned: &PodSetAssignment) -> Option<&ResourceFlavor> {
        let find = |(_, name): &(String, String)| {
            let flavor = self.ids.find_flavor(name).and_then(|f| self.objects.flavors.get(&f));
            flavor.filter(|f| f.autoscaled).map(|f| &**f)
        };
        assigned.flavors.iter().find_map(find)
    }

    /// Whether a cluster autoscaler adds nodes for pods of this admission.
    pub(super) fn is_autoscaled(&self, admission: &Admission) -> bool {
        admission.assignments.iter().any(|assigned| self.autoscaled_flavor(assigned).is_some())
    }
}

impl Cycle<'_> {
    /// Whether the pods of each podset of an admission would fit on the nodes that a cluster autoscaler adds for its flavor,
    /// where it is known what these look like. Their number is bounded by quota. Pods with a place in a topology are left out:
    /// new nodes are in none yet.
    ///
    /// # Errors
    /// Which pods would not, and why.
    pub(super) fn fit_new_nodes(&mut self, id: WorkloadId, admission: &Admission) -> Result<(), String> {
        let Some(wl) = self.state.wl(id) else { return Ok(()) };
        let key = &wl.obj.key;
        for assigned in admission.assignments.iter().filter(|a| a.topology.is_none()) {
            let flavor = self.state.autoscaled_flavor(assigned);
            let Some((flavor, node)) = flavor.and_then(|f| Some((&f.name, f.new_node.as_deref()?))) else {
                continue;
            };
            let Some(podset) = wl.obj.pod_sets.iter().find(|p| p.name == assigned.name) else { continue };
            let mut pods = Vec::new();
            self.state.expected_pods(key, podset, assigned, &mut pods);
            let Some(nodes) = self.nodes.as_mut() else { return Ok(()) };
            for (pod, _) in &pods {
                nodes
                    .fits_new_node(self.now, pod, node)
                    .map_err(|why| format!("New nodes of {flavor} would not do: {why}"))?;
            }
        }
        Ok(())
    }
}
