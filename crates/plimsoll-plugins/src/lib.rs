//! Scheduler plugins and rules about workloads that users write in configuration files, without a build of their own
//! (`docs/plugins.md`).
//!
//! [`registry`] has kube-scheduler's plugins and `Expression`, whose instances filter nodes, score nodes and hold pods back
//! with expressions in CEL.

mod expression;
pub mod workloads;

use plimsoll_scheduler::Registry;
use plimsoll_scheduler::framework::RegistryError;

/// kube-scheduler's plugins and those of this crate.
pub fn registry() -> Registry {
    let mut registry = Registry::in_tree();
    // The names are free: shown by the test below.
    let _ = register(&mut registry);
    registry
}

/// Adds the plugins of this crate.
///
/// # Errors
/// When the registry has a plugin of the same name.
pub fn register(registry: &mut Registry) -> Result<(), RegistryError> {
    registry.register(expression::registration())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_names_are_free() {
        assert_eq!(register(&mut Registry::in_tree()), Ok(()));
        assert!(registry().get("Expression/teams").is_some());
    }
}
