//! The scheduling framework: extension points as methods of [`Plugin`], in upstream's order
//! (<https://kubernetes.io/docs/concepts/scheduling-eviction/scheduling-framework/>).
//!
//! ```
//! use plimsoll_scheduler::framework::{
//!     Cluster, CycleState, FilterState, Incoming, NodeId, Plugin, PreFilterResult, Registration, Registry, Status,
//! };
//! use plimsoll_scheduler::ExtensionPoint::{Filter, PreFilter};
//!
//! /// Keeps pods on nodes of their team.
//! #[derive(Debug)]
//! struct Teams;
//!
//! /// The team of one pod.
//! #[derive(Debug)]
//! struct Team(String);
//!
//! impl Plugin for Teams {
//!     fn pre_filter(&self, cluster: &Cluster, pod: &Incoming, _: &mut CycleState) -> PreFilterResult {
//!         match cluster.pod(pod.id).and_then(|p| p.label("team")) {
//!             Some(team) => PreFilterResult::go(Team(team.to_owned())),
//!             None => PreFilterResult::Skip,
//!         }
//!     }
//! }
//!
//! impl FilterState for Team {
//!     fn filter(&self, cluster: &Cluster, node: NodeId) -> Status {
//!         match cluster.node(node).and_then(|n| n.label("team")) {
//!             Some(team) if team == self.0 => Status::success(),
//!             _ => Status::unresolvable("node(s) of another team"),
//!         }
//!     }
//! }
//!
//! let mut registry = Registry::in_tree();
//! registry.register(Registration::new("Teams", &[PreFilter, Filter], |_, _| Box::new(Teams)))?;
//! assert_eq!(registry.names().last(), Some("Teams"));
//! # Ok::<(), plimsoll_scheduler::framework::RegistryError>(())
//! ```

mod counts;
mod cycle_state;
mod extension_point;
mod gates;
mod placement;
mod plugin;
mod plugin_id;
mod profile;
mod registry;
mod status;
mod waiting;

pub use counts::{At, Axis, Counts, Dump, MISSING, Place, Relations, Topology, Touched, coordinate, domain};
pub use cycle_state::CycleState;
pub use extension_point::ExtensionPoint;
pub use gates::FeatureGates;
pub use placement::{Placement, PodGroupAssignments, PodGroupView};
pub(crate) use plugin::CandidateRank;
pub use plugin::{
    AssumedPod, BindResult, Candidate, DryRun, FilterState, Incoming, Normalization, Plugin,
    PostFilterHandle, PostFilterResult, PreBindResult, PreFilterResult, QueuedPod, RemoteCall, ScoreState,
    SortKey,
};
pub use plugin_id::PluginId;
pub(crate) use plugin_id::{PluginIds, PluginNames};
pub use profile::{PluginRef, PluginSet, Profile, ProfileError, UserPlugins, UserSet};
pub(crate) use registry::EXTENDERS;
pub use registry::{Handle, Registration, Registry, RegistryError};
pub use status::{Code, Reason, Status};
pub use waiting::{PermitResult, Released, WaitingPods};

pub use crate::args::{Args, ArgsError, Fields, PluginArgs};
pub use crate::cluster::{Cluster, NodeChange, NodeColumns, NodeId, NodeView, PodId, PodShape, PodView};
pub use crate::events::{ActionType, ClusterEvent, ClusterEventWithHint, EventResource};
