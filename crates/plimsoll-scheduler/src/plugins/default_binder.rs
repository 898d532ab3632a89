//! DefaultBinder: creates `pods/binding` (upstream `plugins/defaultbinder/default_binder.go`).

use crate::cluster::Cluster;
use crate::framework::{AssumedPod, BindResult, Incoming, Plugin};

/// The plugin.
#[derive(Debug)]
pub(crate) struct DefaultBinder;

impl Plugin for DefaultBinder {
    fn is_local(&self, _cluster: &Cluster, _pod: &Incoming) -> bool {
        true
    }

    fn bind(&self, _pod: &AssumedPod<'_>) -> BindResult {
        BindResult::CreateBinding
    }
}
