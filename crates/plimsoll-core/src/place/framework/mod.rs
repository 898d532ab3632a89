//! The scheduling framework: extension points as traits, in upstream's order (spec section 2).

mod plugin;
mod profile;
mod status;

pub use plugin::{FilterState, Incoming, Normalization, Plugin, PreFilter, ScoreState};
pub use profile::{PluginRef, PluginSet, Profile, ProfileError, UserPlugins, UserSet};
pub use status::{Code, PluginId, Reason, Status};

pub(crate) use profile::Point;
