//! Plimsoll's own interface for plugins: columns of nodes, batches of rows, state that the host keeps (`wit/plugin.wit`,
//! `docs/plugins.md`).
//!
//! A guest has the columns of all nodes in its memory. The host writes a row when its node changes, and one call filters or
//! scores many rows. What pods hold is counted here, from the log of changes of the cluster, so that dry runs count as well.

mod backend;
mod guest;
mod imports;
mod manifest;
mod plugin;
mod shared;
#[cfg(test)]
mod tests;
mod workloads;
#[cfg(test)]
mod workloads_tests;

pub use backend::{Backend, Native, RULE_FUEL, Wasm};
pub use guest::{FastGuest, MARKER};
pub use plugin::{FastPlugin, points};
pub use workloads::{GuestPolicy, policy_points};
