//! The Plimsoll engine: whether a workload may start, and where each of its pods runs.
//!
//! Everything that decides lives here, as one pure state machine. [`Engine::step`] is the only entry:
//! it handles a batch of [`Event`]s, decides once with bounded work, and appends [`Action`]s.
//!
//! **Invariants of the whole crate**
//! - No IO, async, clock, thread, global or unseeded randomness. Time is an argument.
//! - Same configuration, seed and events give the same actions, byte for byte.
//! - Ground state (what the API said) and derived state (what we computed from it) are apart;
//!   [`Engine::check`] rebuilds the derived state and compares.
//! - An action is a proposal. It may fail; failure comes back as an event and is undone.

// Decisions are the same on every machine and after every change: no lossy conversions, no hash order, no variant that
// falls through.
#![cfg_attr(
    not(test),
    warn(
        clippy::cast_possible_truncation,
        clippy::cast_possible_wrap,
        clippy::cast_sign_loss,
        clippy::iter_over_hash_type,
        clippy::wildcard_enum_match_arm
    )
)]

mod engine;
mod unanswered;

pub use engine::{Action, Engine, EngineConfig, Event};
pub use plimsoll_state::Answer;
pub use unanswered::{ActionId, Unanswered};

#[cfg(test)]
mod joint_tests;
#[cfg(test)]
mod testing;
