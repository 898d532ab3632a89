//! The cluster as the engine knows it: objects as the API reported them, identifiers, strings and time.
//!
//! Both halves of the engine ([queueing] and [scheduling]) build on these types. Nothing here decides anything, and
//! nothing performs IO, reads a clock or depends on the order of a hash map.
//!
//! [queueing]: https://kueue.sigs.k8s.io/docs/concepts/
//! [scheduling]: https://kubernetes.io/docs/concepts/scheduling-eviction/scheduling-framework/

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

pub mod answer;
pub mod cast;
pub mod collect;
pub mod grow;
pub mod intern;
pub mod model;
pub mod parted;
pub mod reservation;
pub mod rng;
pub mod slab;
pub mod time;

pub use answer::Answer;
pub use model::{ClusterObject, ClusterObjectKey, ClusterObjectKind, DeviceSelector, ObjectEvent};
pub use time::{Duration, Time};
