//! The API server as its clients have it, one module for each subject. A single executable: each more of them links the
//! server once more. Targets of their own: `api_vectors` (another harness) and `sturdy` (the process's memory and files).

mod support;

mod acknowledged;
mod admission;
mod aggregation;
mod anonymous;
mod answers;
mod audit;
mod authorization;
mod connections;
mod conversion;
mod definitions;
mod depth;
mod durability;
mod equivalents;
mod escalation;
mod fairness;
mod informers;
mod lists;
mod ownership;
mod plugins;
mod policies;
mod reinvocation;
mod secrecy;
mod server_properties;
mod store_properties;
mod tokens;
mod watches;
mod webhook_connections;
