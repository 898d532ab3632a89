//! Wire shapes of built-in kinds with only the fields that decide something.
//!
//! Everything is optional: `null` and absent mean the same in Kubernetes JSON, and API defaults are applied
//! by `convert`. Unknown fields, `managedFields` among them, are skipped without being stored.

pub mod device;
pub mod meta;
pub mod node;
pub mod objects;
pub mod pod;
pub mod selector;
pub mod storage;
