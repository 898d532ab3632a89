//! A host for scheduler plugins in WebAssembly (`docs/plugins.md`): guests of kube-scheduler-wasm-extension run unmodified, and
//! guests of the SDK `plimsoll-plugin` use an interface of columns ([`fast`]).
//!
//! The crate does no IO: its caller reads the file of a guest. A guest has no files and no network; its clock is the engine's,
//! its random numbers are seeded, and each call may execute a bounded number of instructions in bounded memory.

mod affinity;
mod config;
mod events;
mod failures;
pub mod fast;
mod guest;
mod host;
mod message;
mod nodes;
mod plugin;
mod pods;
mod pool;
mod protobuf;
#[cfg(test)]
mod scheduler_tests;
#[cfg(test)]
mod tests;
mod wasi;

pub use config::{Modules, ReadFile, check, files, names, policies, register};
pub use events::{EventReference, Events, GuestEvent};
pub use failures::Failures;
pub use guest::{Answer, Guest, Instance, MAX_FUEL, MAX_MEMORY, Settings};
pub use host::{Params, Results};
pub use nodes::Nodes;
pub use plugin::points;
pub use protobuf::{assume_pod, encode_pod};
