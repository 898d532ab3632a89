//! Groups of the API that are served beside this server's own (`kube-aggregator` upstream): by another part of this process
//! (a [`LocalApi`]), or by another server that an APIService names.
//!
//! Requests for them pass authentication, authorization, flow control and audit as all others do, and go on from there.

mod documents;
mod local;
pub(crate) mod openapi;
pub(crate) mod remote;
pub(crate) mod served;
pub(crate) mod services;
pub(crate) mod table;

pub use remote::ProxyClient;
pub use served::{LocalAnswer, LocalApi, LocalRequest};
