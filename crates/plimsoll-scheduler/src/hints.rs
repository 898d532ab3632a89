//! Queueing hints: whether an event may help a pod that a plugin rejected (KEP-4247).

use super::Scheduler;
use super::cluster::{Cluster, NodeInfo, PodId};
use super::events::{
    ActionType, ClusterEvent, EXTRA_TAINT, EventResource, Payload, PodSnapshot, needs_extra_taint,
};
use super::framework::Plugin;
use super::handle_objects::object_pair;
use plimsoll_state::ClusterObject;
use plimsoll_state::model;
use std::sync::Arc;

/// Whether any registration of the plugin for this event returns Queue (framework `QueueingHint`); `None`: the
/// plugin is not registered for it.
pub(crate) fn hint(
    plugin: &dyn Plugin,
    cluster: &Cluster,
    pod: PodId,
    change: &ClusterEvent,
) -> Option<bool> {
    let interests = plugin.events_to_register();
    let matching = || interests.iter().filter(|i| i.matches(change.resource, change.actions));
    let extra = needs_extra_taint(interests) && EXTRA_TAINT.matches(change.resource, change.actions);
    if matching().next().is_none() && !extra {
        return None;
    }
    Some(extra || matching().any(|i| !i.hinted || plugin.queueing_hint(cluster, pod, change)))
}

/// An object of an event.
#[derive(Clone, Debug)]
pub enum Seen {
    /// A node.
    Node(Box<model::Node>),
    /// A pod.
    Pod(Box<model::Pod>),
    /// Another object.
    Object(Box<ClusterObject>),
}

impl Seen {
    fn node(&self) -> Option<&model::Node> {
        match self {
            Self::Node(node) => Some(node),
            Self::Pod(_) | Self::Object(_) => None,
        }
    }

    fn pod(&self) -> Option<&model::Pod> {
        match self {
            Self::Pod(pod) => Some(pod),
            Self::Node(_) | Self::Object(_) => None,
        }
    }

    fn object(&self) -> Option<&ClusterObject> {
        match self {
            Self::Object(object) => Some(object),
            Self::Node(_) | Self::Pod(_) => None,
        }
    }
}

impl Scheduler {
    /// Whether an event would make a waiting pod worth another try, if `plugin` had rejected it.
    ///
    /// `event` is resource and action in upstream's words; the object is given before and after and is not
    /// taken in. `None` when the pod or the event is unknown, or the plugin is not registered for it.
    pub fn hint(
        &mut self,
        plugin: &str,
        pod_uid: &str,
        event: (&str, &str),
        old: Option<&Seen>,
        new: Option<&Seen>,
    ) -> Option<bool> {
        let id = self.cluster.pod_by_uid(pod_uid)?;
        let resource = EventResource::by_name(event.0)?;
        let actions = ActionType::by_name(event.1)?;
        let payload = self.payload(old, new)?;
        let runner = self.runners.get(self.profile_of(id)?)?;
        let plugin = runner.names.get(plugin)?;
        hint(runner.plugin(plugin)?, &self.cluster, id, &ClusterEvent { resource, actions, payload })
    }

    fn payload(&mut self, old: Option<&Seen>, new: Option<&Seen>) -> Option<Payload> {
        Some(match old.or(new)? {
            Seen::Node(n) => {
                let strings = &mut self.cluster.strings;
                let name = strings.intern(&n.name);
                let mut info = |s: Option<&Seen>| Some(Arc::new(NodeInfo::new(s?.node()?, strings)));
                Payload::Node { name, old: info(old), new: info(new) }
            }
            Seen::Pod(p) => {
                // A pod that is not in the cluster gets a number that no row has.
                let id = self.cluster.pod_by_uid(&p.uid).unwrap_or(PodId(u32::MAX));
                let mut view = |s: Option<&Seen>| Some(Box::new(self.view(s?.pod()?)));
                let (old, new) = (view(old), view(new));
                Payload::Pod { id, old, new }
            }
            Seen::Object(_) => {
                let object = |s: Option<&Seen>| s?.object().cloned();
                let (old, new) = (object(old), object(new));
                Payload::Object(object_pair(&mut self.cluster, old.as_ref(), new.as_ref())?)
            }
        })
    }

    /// A pod that is not taken in, at one moment.
    fn view(&mut self, pod: &model::Pod) -> PodSnapshot {
        let c = &mut self.cluster;
        let shape = c.shapes.acquire(pod, &mut c.strings);
        let view = PodSnapshot {
            shape: Arc::clone(c.shapes.get(shape)),
            usage: super::cluster::amounts::usage(&pod.spec, Some(&pod.status), &mut c.strings),
            node: (!pod.spec.node_name.is_empty()).then(|| c.strings.intern(&pod.spec.node_name)),
            nominated: !pod.status.nominated_node_name.is_empty(),
            claim_statuses: pod
                .status
                .claim_statuses
                .iter()
                .map(|(n, c)| (n.as_str().into(), c.as_deref().map(Into::into)))
                .collect(),
            group: pod.group.as_str().into(),
        };
        c.shapes.release(shape);
        view
    }
}
