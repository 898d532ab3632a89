//! The simulator, and scenarios of its own for what seeds seldom draw.

mod joint;
mod preemption;
mod reservations;
mod shards;
mod simulation;
mod unwritten;
mod variants;
mod waiting;
