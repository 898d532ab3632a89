//! Queueing hints: whether an event may help a pod that a plugin rejected (spec section 3.3).

use super::cluster::{Cluster, PodId};
use super::events::{Change, EXTRA_TAINT, needs_extra_taint};
use super::framework::Plugin;

/// Whether any registration of the plugin for this event says that the pod is worth another try.
pub(crate) fn says_queue(plugin: &dyn Plugin, cluster: &Cluster, pod: PodId, change: &Change) -> bool {
    let interests = plugin.interests();
    interests
        .iter()
        .filter(|i| i.matches(change.resource, change.actions))
        .any(|i| !i.hinted || plugin.hint(cluster, pod, change))
        || (needs_extra_taint(interests) && EXTRA_TAINT.matches(change.resource, change.actions))
}
