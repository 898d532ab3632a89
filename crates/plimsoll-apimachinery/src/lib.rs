//! Kubernetes API machinery without IO: what an API server does *to an object*.
//!
//! Everything here is a function of its arguments: no async, no network, no files, no clock. The server
//! (`plimsoll-apiserver`) decides when to call which function; see its write pipeline.

pub mod admission;
pub mod amounts;
pub mod apply;
pub mod builtin;
mod cel;
pub mod crd;
pub mod decode;
pub mod default;
pub mod default_class;
pub mod discovery;
pub mod error;
pub mod go;
mod gvk;
mod json;
pub mod jsonpath;
pub mod key;
pub mod kinds;
pub mod meta;
mod obj;
pub mod openapi;
pub mod page;
pub mod patch;
pub mod pod_security;
pub mod policy;
pub mod proto;
pub mod quota;
pub mod schema;
pub mod select;
pub mod strategy;
pub mod table;
#[cfg(test)]
mod test_vectors;
pub mod validate;
pub mod webhook;

pub use error::{ApiError, Cause, Details, FieldError, FieldErrorKind};
pub use gvk::Gvk;
pub use key::{Key, ObjectLister};
pub use kinds::{Kind, KindTable, Subresource};
pub use schema::{Leaf, Presence, Property, Schema, SchemaId, SchemaType, Schemas, TypedSchema};
