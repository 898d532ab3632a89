//! PrioritySort: the more important pod first, then the one that waits longer
//! (upstream `plugins/queuesort/priority_sort.go`).

use crate::cluster::Cluster;
use crate::framework::{ExtensionPoint, Incoming, Plugin, QueuedPod, Registration, SortKey};

/// The plugin.
#[derive(Debug)]
pub(crate) struct PrioritySort;

/// How the plugin is registered.
pub(super) fn registration() -> Registration {
    Registration::new("PrioritySort", &[ExtensionPoint::QueueSort], |_, _| Box::new(PrioritySort))
        .by_default(0)
}

impl Plugin for PrioritySort {
    fn is_local(&self, _cluster: &Cluster, _pod: &Incoming) -> bool {
        true
    }

    fn queue_sort(&self, pod: &QueuedPod) -> SortKey {
        (-i64::from(pod.priority), pod.timestamp.0)
    }
}
