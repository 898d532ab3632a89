//! Kueue's kinds (`kueue.x-k8s.io/v1beta2`): names, object → engine, engine → status.

mod charged;
pub mod convert;
mod decode;
mod depends;
mod devices;
mod dispatcher;
mod events;
mod flavor;
mod names;
mod preemption_config;
mod quota_loan;
mod quota_release;
mod status;
pub mod variants;

pub use crate::convert::FIRST_SLICE;
pub use charged::{CHARGED_PODS, keep_charge, keeps_charge, reclaimed};
pub use decode::{
    PARTIAL_PREEMPTION, PREEMPTION_CONFIG, PRIORITY_BOOST, REPLACEMENT_FOR, cluster_queue, cohort,
    local_queue, topology_assignment, workload,
};
pub(crate) use depends::is_name;
pub use depends::{DEPENDS_ON, depends_on};
pub use dispatcher::{AccessProvider, Dispatcher};
pub use events::{add_metric_labels, add_workload_labels, delete_event, upsert_event};
pub use flavor::resource_flavor;
pub use names::{WorkloadNames, limited_name, role_hash};
pub use preemption_config::preemption_config;
pub use quota_loan::quota_loan;
pub use quota_release::{QuotaRelease, QuotaReleaseStrategy};
pub use status::{
    admission, admits, admits_finished, admits_unready, amount, cluster_queue_status, contradicts_admission,
    local_queue_status, reserves_for_another_spec, workload_status_patch,
};

#[cfg(test)]
mod tests;
