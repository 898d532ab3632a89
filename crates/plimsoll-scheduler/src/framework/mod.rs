//! The scheduling framework: extension points as methods of [`Plugin`], in upstream's order
//! (<https://kubernetes.io/docs/concepts/scheduling-eviction/scheduling-framework/>).

mod counts;
mod cycle_state;
mod extension_point;
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
pub use placement::{Placement, PodGroupAssignments, PodGroupView};
pub(crate) use plugin::CandidateRank;
pub use plugin::{
    AssumedPod, BindResult, Candidate, DryRun, FilterState, Incoming, Normalization, Plugin,
    PostFilterHandle, PostFilterResult, PreBindResult, PreFilterResult, QueuedPod, RemoteCall, ScoreState,
    SortKey,
};
pub use plugin_id::PluginId;
pub(crate) use plugin_id::{PluginIds, PluginNames};
pub use profile::{FeatureGates, PluginRef, PluginSet, Profile, ProfileError, UserPlugins, UserSet};
pub(crate) use registry::EXTENDERS;
pub use registry::{Handle, Registration, Registry, RegistryError};
pub use status::{Code, Reason, Status};
pub use waiting::{PermitResult, Released, WaitingPods};

pub use crate::cluster::{Cluster, NodeColumns, NodeId, NodeView, PodId, PodView};
pub use crate::events::{ActionType, ClusterEvent, ClusterEventWithHint, EventResource};
