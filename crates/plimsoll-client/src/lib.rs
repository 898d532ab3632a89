//! What controllers and servers of one process share, whichever API server they talk to.

pub mod fault;
pub mod supervise;

pub use supervise::{Fatal, Supervisor};
