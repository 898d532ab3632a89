//! What a CustomResourceDefinition is known by.

use plimsoll_apimachinery::Kind;

/// Where definitions are stored.
pub const RESOURCE: &str = "apiextensions.k8s.io/customresourcedefinitions";
/// Finalizer under which instances are removed.
pub const FINALIZER: &str = "customresourcecleanup.apiextensions.k8s.io";

/// Whether a kind is the definitions'.
pub fn is_definition(kind: &Kind) -> bool {
    kind.storage == RESOURCE
}
