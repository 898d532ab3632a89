//! Configuration files, read as strictly as the original programs read them.

pub mod kueue;
pub mod scheduler;
