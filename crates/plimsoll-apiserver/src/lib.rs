//! An embedded Kubernetes API server: real requests, real watches, one process, one file.

pub mod admission;
mod aggregation;
pub mod audit;
pub mod auth;
mod bootstrap;
mod convert;
pub mod custom;
mod flow;
mod heavy;
pub mod http;
pub mod inprocess;
mod logs;
mod machine;
pub mod pipeline;
pub mod private;
mod representation;
pub mod server;
mod service;
mod start;
pub mod store;
pub mod time;
mod version;
mod webhook_client;
mod write;

pub use admission::hooks::{AdmissionHook, HookRequest};
pub use admission::plugins::{Plugin, Plugins};
pub use aggregation::{LocalAnswer, LocalApi, LocalRequest, ProxyClient};
pub use flow::DEFAULT_SEATS;
pub use logs::{LogRequest, LogSource};
pub use server::{Server, ServerConfig, ServerError};
pub use service::ApiService;
pub use version::GIT_VERSION;
