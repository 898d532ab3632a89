//! Handlers of events: one for each kind.

mod objects;
mod preemption_configs;
mod queues;
mod workloads;

use super::Event;
use crate::Queueing;
use plimsoll_state::time::Time;

impl Queueing {
    /// Applies one event to ground and derived state. Decides nothing.
    pub fn handle(&mut self, now: Time, event: Event) {
        if !event.is_of_workload() {
            self.joint.changes += 1;
        }
        match event {
            Event::ClusterQueueUpsert(q) => self.cluster_queue(*q),
            Event::ClusterQueueDelete(name) => self.cluster_queue_gone(&name),
            Event::CohortUpsert(c) => self.cohort(*c),
            Event::CohortDelete(name) => self.cohort_gone(&name),
            Event::LocalQueueUpsert(q) => self.local_queue(*q, now),
            Event::LocalQueueDelete(namespace, name) => self.local_queue_gone(&namespace, &name),
            Event::ResourceFlavorUpsert(f) => self.flavor(*f),
            Event::ResourceFlavorDelete(name) => self.flavor_gone(&name),
            Event::NamespaceUpsert(name, labels) => self.namespace(&name, labels),
            Event::NamespaceDelete(name) => self.namespace_gone(&name),
            Event::LimitRangeUpsert(r) => self.limit_range(*r),
            Event::LimitRangeDelete(namespace, name) => self.limit_range_gone(&namespace, name),
            Event::RuntimeClassUpsert(name, overhead) => self.runtime_class(&name, overhead),
            Event::RuntimeClassDelete(name) => self.runtime_class_gone(&name),
            Event::AdmissionCheckUpsert(c) => self.admission_check(*c),
            Event::AdmissionCheckDelete(name) => self.admission_check_gone(&name),
            Event::TopologyUpsert(t) => self.topology(*t),
            Event::TopologyDelete(name) => self.topology_gone(&name),
            Event::PreemptionConfigUpsert(c) => self.preemption_config(*c),
            Event::PreemptionConfigDelete(name) => self.preemption_config_gone(&name),
            Event::RunWindowUpsert(w) => self.run_window(*w, now),
            Event::RunWindowDelete(name) => self.run_window_gone(&name),
            Event::QuotaLoanUpsert(l) => self.quota_loan(*l),
            Event::QuotaLoanDelete(name) => self.quota_loan_gone(&name),
            Event::ClaimTemplateUpsert(t) => {
                self.devices.template((t.namespace.clone(), t.name.clone()), Some(*t));
            }
            Event::ClaimTemplateDelete(namespace, name) => self.devices.template((namespace, name), None),
            Event::DeviceClassUpsert(c) => self.devices.class(&c.name.clone(), Some(*c)),
            Event::DeviceClassDelete(name) => self.devices.class(&name, None),
            Event::ResourceSliceUpsert(s) => self.devices.slice(&s.name.clone(), Some(*s)),
            Event::ResourceSliceDelete(name) => self.devices.slice(&name, None),
            Event::PolicyReplaced(policy) => self.replace_policy(policy),
            Event::WorkloadUpsert(w) => self.workload(*w, now),
            Event::WorkloadDelete(key) => self.workload_gone(&key, now),
            Event::WorkloadStopped(key) => self.workload_stopped(&key, false, now),
            Event::WorkloadEnded(key) => self.workload_stopped(&key, true, now),
            Event::Written { key, id, version } => self.written(&key, id, version, now),
            Event::WriteFailed { key, id, message: _ } => self.write_failed(&key, id, now),
            Event::Answered { action, answer } => self.answered(&action, &answer, now),
        }
    }
}
