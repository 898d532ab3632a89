//! An embedded Kubernetes API server: real requests, real watches, one process, one file.

pub mod admission;
pub mod audit;
pub mod auth;
mod bootstrap;
mod convert;
pub mod custom;
mod flow;
mod heavy;
pub mod http;
pub mod inprocess;
mod machine;
pub mod pipeline;
pub mod private;
mod representation;
pub mod server;
pub mod store;
pub mod time;
mod webhook_client;

pub use admission::plugins::{Plugin, Plugins};
pub use admission::webhooks::{AdmissionHook, HookRequest};
pub use flow::DEFAULT_SEATS;
pub use server::{ApiService, LogRequest, LogSource, Server, ServerConfig, ServerError};
