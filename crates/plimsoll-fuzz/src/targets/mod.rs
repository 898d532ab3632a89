//! What is run on the inputs.

pub mod api;
pub mod config;
pub mod engine;
pub mod guests;
pub mod hostile;
pub mod object;
pub mod snapshot;
pub mod text;
