//! DefaultPreemption as a plugin: its hint. What it does in PostFilter is in `preempt`.

use crate::cluster::{Cluster, PodId};
use crate::events::{Actions, Change, Interest, Resource};
use crate::framework::{Incoming, Plugin, PluginId};

/// The plugin.
#[derive(Debug)]
pub(crate) struct DefaultPreemption;

impl Plugin for DefaultPreemption {
    fn id(&self) -> PluginId {
        PluginId::DefaultPreemption
    }

    fn is_local(&self, _cluster: &Cluster, _pod: &Incoming) -> bool {
        true
    }

    fn interests(&self) -> &'static [Interest] {
        const { &[Interest::hinted(Resource::AssignedPod, Actions::DELETE)] }
    }

    /// The plugins that rejected the pod know better when to try again.
    fn hint(&self, _cluster: &Cluster, _pod: PodId, _change: &Change) -> bool {
        false
    }
}
