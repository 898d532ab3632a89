//! Connects the engine to a Kubernetes API server: watches become events, actions become writes.
//!
//! ```text
//! watch (one task per resource) ──► cache ──► jobs (reconcile as pure functions) ──► writes
//!                              └──► driver (thread that owns the engine) ──► execute (ordered per object)
//!                                        ▲                                        │
//!                                        └──────────── answers ◄──────────────────┘
//! ```
//!
//! Nothing here decides about quota or nodes. Objects of Kubernetes are handled as JSON; only what the engine needs
//! is decoded (`plimsoll-api`).

pub mod api;
pub mod cache;
pub mod clock;
pub mod coalesce;
pub mod connect;
mod decisions;
mod declared;
pub mod driver;
pub mod event_recorder;
pub mod execute;
pub mod extender;
pub mod flow;
pub mod ingest;
pub mod jobs;
pub mod journey;
mod leading;
pub mod lease;
pub mod metrics;
mod moves;
pub mod multikueue;
pub mod reload;
mod roles;
mod settings;
pub mod shard;
pub mod simulated;
pub mod status;
pub mod throttle;
pub mod visibility;
pub mod webhook;
mod whole;
mod window;

mod start;
pub mod synced;
mod take_over;
pub use roles::Roles;
pub use settings::{Settings, ShardLeases};
pub use start::{Monitor, Runtime};
