//! The controllers that a laptop's control plane needs. They read the store and write through the server's pipeline
//! like everybody else.

pub mod client;
pub mod clock;
pub mod events;
pub mod informer;
pub mod job;
pub mod meta;
pub mod queue;
pub mod runner;
