//! A host for scheduler plugins in WebAssembly: guests of kube-scheduler-wasm-extension run unmodified (`docs/plugins.md`).
//!
//! The crate does no IO: its caller reads the file of a guest. A guest has no files and no network; its clock is the engine's,
//! its random numbers are seeded, and each call may execute a bounded number of instructions in bounded memory.

mod config;
mod guest;
mod host;
mod nodes;
mod plugin;
mod pool;
mod protobuf;
#[cfg(test)]
mod scheduler_tests;
#[cfg(test)]
mod tests;
mod wasi;

pub use config::{ReadFile, names, register};
pub use guest::{Answer, Guest, Instance, MAX_FUEL, MAX_MEMORY, Settings};
pub use host::{Params, Results};
pub use nodes::Nodes;
pub use plugin::points;
pub use protobuf::encode_pod;
