//! Wire types and their way into and out of the engine: Kueue kinds, lean Pods and Nodes, quantities; object → event,
//! action → patch. No async, no network.

pub mod conditions;
pub mod content;
pub mod convert;
pub mod crds;
pub mod device_cel;
pub mod event;
pub mod execution;
pub mod json;
pub mod kueue;
pub mod lanes;
mod lean;
pub mod object;
pub mod protobuf;
pub mod quantity;
pub mod request;
pub mod resource;
pub mod roles;
pub mod shards;
pub mod timestamp;
pub mod watch;
pub mod webhooks;
pub mod windows;

pub use quantity::Quantity;

/// The release of Kueue whose API and behaviour these are: its main branch on the way to this version.
pub const KUEUE_VERSION: &str = "v0.20-dev";
