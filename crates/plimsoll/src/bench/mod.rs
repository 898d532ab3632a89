//! `plimsoll bench`: figures, measured.

pub mod admission;
pub mod api;
mod cases;
mod client;
pub mod cluster;
mod engine;
mod history;
mod load;
mod objects;
mod place;
pub mod placement;
mod process;
mod report;
pub mod soak;
mod upstream;
