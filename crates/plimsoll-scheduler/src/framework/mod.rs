//! The scheduling framework: extension points as traits, in upstream's order (spec section 2).

mod counts;
mod plugin;
mod profile;
mod status;
mod waiting;

pub use counts::{At, Axis, Counts, Dump, MISSING, Place, Relations, Topology, Touched, coordinate, domain};
pub use plugin::{FilterState, Incoming, Normalization, Plugin, PreFilter, ScoreState};
pub use profile::{PluginRef, PluginSet, Profile, ProfileError, UserPlugins, UserSet};
pub use status::{Code, PluginId, Reason, Status};
pub use waiting::{Permit, Released, Waiting};

pub(crate) use profile::Point;
