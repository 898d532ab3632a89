//! An embedded Kubernetes API server: real requests, real watches, one process, one file.

pub mod admit;
pub mod audit;
pub mod auth;
mod bootstrap;
mod callout;
mod convert;
pub mod custom;
mod flow;
mod heavy;
pub mod http;
pub mod inprocess;
mod machine;
pub mod pipeline;
pub mod private;
mod served;
pub mod server;
pub mod store;
pub mod time;

pub use admit::plugins::{Plugin, Plugins};
pub use admit::webhooks::{AdmissionHook, HookRequest};
pub use flow::DEFAULT_SEATS;
pub use server::{ApiService, LogRequest, LogSource, Server, ServerConfig, ServerError};
