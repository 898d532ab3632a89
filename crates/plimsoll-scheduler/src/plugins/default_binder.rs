//! DefaultBinder: creates `pods/binding` (upstream `plugins/defaultbinder/default_binder.go`).

use crate::cluster::Cluster;
use crate::framework::{AssumedPod, BindResult, ExtensionPoint, Incoming, Plugin, Registration};

/// The plugin.
#[derive(Debug)]
pub(crate) struct DefaultBinder;

/// How the plugin is registered.
pub(super) fn registration() -> Registration {
    Registration::new("DefaultBinder", &[ExtensionPoint::Bind], |_, _| Box::new(DefaultBinder)).by_default(0)
}

impl Plugin for DefaultBinder {
    fn is_local(&self, _cluster: &Cluster, _pod: &Incoming) -> bool {
        true
    }

    fn bind(&self, _pod: &AssumedPod<'_>) -> BindResult {
        BindResult::CreateBinding
    }
}
