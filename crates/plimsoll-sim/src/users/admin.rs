//! Administrators and machines: queues, quota, flavors, checks, priority classes, the topology, the namespace, nodes.

use std::sync::Arc;

use serde_json::Value;

use super::{Users, global, key};
use crate::api::{Kind, deleting, name_of};
use crate::network::Network;
use crate::scenario::extensions::{run_window, window_name};
use crate::scenario::objects::{self, NAMESPACE, node_name};
use crate::scenario::{NodeSpec, Operation, QuotaSpec, WindowSpec};

/// Kinds of which objects lie in the namespace.
const NAMESPACED: [Kind; 8] = [
    Kind::Job,
    Kind::Pod,
    Kind::Workload,
    Kind::LocalQueue,
    Kind::ProvisioningRequest,
    Kind::PodTemplate,
    Kind::ClaimTemplate,
    Kind::ResourceClaim,
];
/// Priority classes.
const CLASSES: std::ops::Range<i32> = 0..5;

impl Users {
    /// Everything but jobs becomes as planned.
    pub fn restore(&mut self, network: &mut Network) {
        self.forget();
        self.put_namespace(network);
        if self.settings.topology {
            self.put(Kind::Topology, objects::topology(), network);
        }
        for flavor in 0..objects::FLAVORS.len() {
            self.put(Kind::Flavor, objects::flavor(flavor, &self.settings), network);
        }
        for class in CLASSES {
            self.put_class(class, Some(objects::planned_value(class)), network);
        }
        if self.settings.provisioning {
            self.put(Kind::ProvisioningConfig, objects::provisioning(), network);
        }
        self.put(Kind::AdmissionCheck, objects::check(true, &self.settings), network);
        for (i, spec) in self.plan.windows.iter().enumerate() {
            self.put_window(i, Some(spec), network);
        }
        for (i, spec) in self.plan.cohorts.iter().enumerate() {
            self.put(Kind::Cohort, objects::cohort(i, spec), network);
        }
        for i in 0..self.queues.len() {
            self.put_queue(i, network);
        }
        for (i, spec) in self.plan.nodes.iter().enumerate() {
            self.put_node(i, Some(spec), network);
        }
        self.restore_devices(network);
        self.end_loans(network);
    }

    /// Makes anew what a finalizer kept from being made before.
    pub(super) fn complete(&mut self, network: &mut Network) {
        if self.namespace.is_none() || self.is_terminating(network) {
            self.end_namespace(network);
        }
        self.put_namespace(network);
        if self.settings.topology {
            self.put_missing(Kind::Topology, objects::topology(), network);
        }
        for flavor in 0..objects::FLAVORS.len() {
            self.put_missing(Kind::Flavor, objects::flavor(flavor, &self.settings), network);
        }
        if let Some(active) = self.check.filter(|_| self.settings.provisioning) {
            self.put_missing(Kind::AdmissionCheck, objects::check(active, &self.settings), network);
        }
        for (i, queue) in self.queues.iter().enumerate() {
            if let Some(spec) = &queue.spec {
                self.put_missing(Kind::ClusterQueue, objects::cluster_queue(i, spec, queue.stop), network);
            }
            if let Some(stop) = queue.local {
                self.put_missing(Kind::LocalQueue, objects::local_queue(i, stop), network);
            }
        }
        self.complete_devices(network);
    }

    pub(super) fn put_missing(&self, kind: Kind, object: Value, network: &mut Network) {
        let name = name_of(&object);
        if network.api.get(kind, &name.0, &name.1).is_none() {
            self.put(kind, object, network);
        }
    }

    pub(super) fn put_queue(&self, queue: usize, network: &mut Network) {
        let Some(q) = self.queues.get(queue) else { return };
        let object = q.spec.as_ref().map(|s| objects::cluster_queue(queue, s, q.stop));
        self.put_or_delete(Kind::ClusterQueue, global(format!("c{queue}")), object, network);
        let object = q.local.map(|stop| objects::local_queue(queue, stop));
        self.put_or_delete(Kind::LocalQueue, key(&format!("l{queue}")), object, network);
    }

    fn put_node(&self, node: usize, spec: Option<&NodeSpec>, network: &mut Network) {
        let object = spec.map(|s| objects::node(node, s, network.now()));
        self.put_or_delete(Kind::Node, global(node_name(node)), object, network);
    }

    fn put_cohort(&self, cohort: usize, spec: Option<&QuotaSpec>, network: &mut Network) {
        let object = spec.map(|s| objects::cohort(cohort, s));
        self.put_or_delete(Kind::Cohort, global(format!("k{cohort}")), object, network);
    }

    fn put_class(&self, class: i32, value: Option<i32>, network: &mut Network) {
        let object = value.map(|value| objects::priority_class(class, value));
        self.put_or_delete(Kind::WorkloadPriorityClass, global(format!("p{class}")), object, network);
    }

    fn put_window(&self, window: usize, spec: Option<&WindowSpec>, network: &mut Network) {
        let object = spec.map(|s| run_window(window, s));
        self.put_or_delete(Kind::RunWindow, global(window_name(window)), object, network);
    }

    fn put_namespace(&self, network: &mut Network) {
        if let Some(selected) = self.namespace {
            self.put(Kind::Namespace, objects::namespace(selected), network);
        }
    }

    pub(super) fn is_terminating(&self, network: &Network) -> bool {
        network.api.get(Kind::Namespace, "", NAMESPACE).is_some_and(|n| deleting(n))
    }

    /// Deletes the namespace, and what is in it (Kubernetes `pkg/controller/namespace/deletion`): pods first as their
    /// own users do, so that nothing makes them anew.
    fn delete_namespace(&mut self, network: &mut Network) {
        self.forget_pods();
        self.delete_gracefully(Kind::Namespace, global(NAMESPACE.to_owned()), network);
        self.end_namespace(network);
    }

    /// Deletes what is left in a namespace that is deleted, and the namespace once it is empty.
    fn end_namespace(&self, network: &mut Network) {
        for kind in NAMESPACED {
            let all: Vec<Arc<Value>> = network.api.all(kind).filter(|o| !deleting(o)).cloned().collect();
            for object in all {
                self.delete_gracefully(kind, name_of(&object), network);
            }
        }
        if NAMESPACED.iter().all(|kind| network.api.all(*kind).next().is_none()) {
            network.api.end_namespace(NAMESPACE);
        }
    }

    /// Does what an operation says, as far as it is for administrators.
    pub(super) fn administer(&mut self, operation: &Operation, network: &mut Network) {
        match operation {
            Operation::ClusterQueue { queue, spec } => {
                if let Some(q) = self.queues.get_mut(*queue) {
                    q.spec = spec.as_deref().cloned();
                }
                self.put_queue(*queue, network);
            }
            Operation::StopQueue { queue, stop } => {
                if let Some(q) = self.queues.get_mut(*queue) {
                    q.stop = *stop;
                }
                self.put_queue(*queue, network);
            }
            Operation::LocalQueue { queue, stop } => {
                if let Some(q) = self.queues.get_mut(*queue) {
                    q.local = *stop;
                }
                self.put_queue(*queue, network);
            }
            Operation::Cohort { cohort, spec } => self.put_cohort(*cohort, spec.as_deref(), network),
            Operation::Flavor { flavor, exists } => {
                let object = exists.then(|| objects::flavor(*flavor, &self.settings));
                let name = objects::FLAVORS.get(*flavor).copied().unwrap_or_default().to_owned();
                self.put_or_delete(Kind::Flavor, global(name), object, network);
            }
            Operation::Check { active } => {
                self.check = *active;
                let object = active.map(|active| objects::check(active, &self.settings));
                self.put_or_delete(Kind::AdmissionCheck, global(objects::CHECK.to_owned()), object, network);
            }
            Operation::Answers { retry, reject } => self.answers = (*retry, *reject),
            Operation::Node { node, spec } => self.put_node(*node, spec.as_ref(), network),
            Operation::PriorityClass { class, value } => self.put_class(*class, *value, network),
            Operation::RunWindow { window, spec } => self.put_window(*window, spec.as_ref(), network),
            Operation::Topology { exists } => {
                if self.settings.topology {
                    let topology = exists.then(objects::topology);
                    self.put_or_delete(Kind::Topology, global("t".to_owned()), topology, network);
                }
            }
            Operation::Namespace { selected } => {
                self.namespace = *selected;
                match selected {
                    Some(_) => self.complete(network),
                    None => self.delete_namespace(network),
                }
            }
            Operation::Slice { .. }
            | Operation::DeviceClass { .. }
            | Operation::SharedClaim { .. }
            | Operation::ClaimTemplate { .. } => self.change_devices(operation, network),
            Operation::Restore => self.restore(network),
            Operation::MoveNode { .. }
            | Operation::MoveTree { .. }
            | Operation::Lend { .. }
            | Operation::EndLoan { .. } => self.change_shards(operation, network),
            // Jobs are for their users, and the process for the world.
            Operation::Submit { .. }
            | Operation::Delete { .. }
            | Operation::Activate { .. }
            | Operation::Prioritize { .. }
            | Operation::Move { .. }
            | Operation::Reclaim { .. }
            | Operation::Scale { .. }
            | Operation::Faults { .. }
            | Operation::Crash
            | Operation::End { .. }
            | Operation::HandOver
            | Operation::LoseLease => {}
        }
    }
}
