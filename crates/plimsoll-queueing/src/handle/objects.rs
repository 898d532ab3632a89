//! Events of objects that workloads and ClusterQueues refer to.

use crate::Queueing;
use crate::model::{AdmissionCheck, LimitRange, Topology};
use plimsoll_state::model::Resources;

impl Queueing {
    pub(super) fn limit_range(&mut self, r: LimitRange) {
        let namespace = r.namespace.clone();
        self.objects.limit_ranges.insert((r.namespace.clone(), r.name.clone()), r);
        self.refresh_requests_where(|w| w.key.namespace == namespace);
    }

    pub(super) fn limit_range_gone(&mut self, namespace: &str, name: String) {
        self.objects.limit_ranges.remove(&(namespace.to_owned(), name));
        self.refresh_requests_where(|w| w.key.namespace == namespace);
    }

    pub(super) fn runtime_class(&mut self, name: &str, overhead: Resources) {
        self.objects.runtime_classes.insert(name.to_owned(), overhead);
        self.refresh_requests_where(|w| w.pod_sets.iter().any(|p| p.spec.runtime_class_name == name));
    }

    pub(super) fn runtime_class_gone(&mut self, name: &str) {
        self.objects.runtime_classes.remove(name);
    }

    pub(super) fn admission_check(&mut self, c: AdmissionCheck) {
        self.objects.checks.insert(c.name.clone(), c);
        self.all_queues_changed();
    }

    pub(super) fn admission_check_gone(&mut self, name: &str) {
        self.objects.checks.remove(name);
        self.all_queues_changed();
    }

    pub(super) fn topology(&mut self, t: Topology) {
        self.objects.topologies.insert(t.name.clone(), t);
        self.topologies_changed();
        self.all_queues_changed();
    }

    pub(super) fn topology_gone(&mut self, name: &str) {
        self.objects.topologies.remove(name);
        self.topologies_changed();
        self.all_queues_changed();
    }
}
