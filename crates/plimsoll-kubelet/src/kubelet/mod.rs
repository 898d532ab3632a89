//! The kubelets of all simulated nodes, as one pure machine.
//!
//! Feed it what the watches say ([`Kubelet::handle_pod`], [`Kubelet::handle_node`] and their deletions), call
//! [`Kubelet::step`] at [`Kubelet::next_wake`] and after every batch of events, carry out the [`Write`]s in order
//! per object, and report a lost write with [`Kubelet::retry`].
//!
//! A pod goes Pending → ContainerCreating → Running → Succeeded or Failed. Everything is read back from the pod's
//! status on first sight, so a restarted process goes on where the old one stopped.

mod container;
mod run;
mod script;
mod status;
pub mod view;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde_json::Value;

use crate::nodes;
use crate::time::Nanos;
use run::Run;
pub use script::{DEFAULT_DURATION, DURATION, EXIT_CODE, START_DELAY, Script, app as app_script};
pub(crate) use status::NO_CONTAINERS;
use view::PodView;

/// How the simulation runs.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// How many simulated seconds pass in one second; spans in pods are divided by it. At least 0.001.
    pub speed: f64,
    /// Whether to record kubelet's events (`Pulled`, `Created`, `Started`, `Killing`).
    pub events: bool,
    /// Whether nodes renew their Leases.
    pub leases: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self { speed: 1.0, events: true, leases: true }
    }
}

impl Options {
    /// A simulated span in real time.
    fn scale(&self, span: Nanos) -> Nanos {
        // `as` saturates.
        (span as f64 / self.speed.max(0.001)) as Nanos
    }
}

/// What the simulated kubelets want written.
#[derive(Clone, Debug, PartialEq)]
pub enum Write {
    /// Strategic merge patch of `pods/status`; holds `metadata.uid`, so another pod of that name is left alone.
    PodStatus {
        /// Namespace.
        namespace: String,
        /// Name.
        name: String,
        /// UID.
        uid: String,
        /// The patch.
        patch: Value,
    },
    /// Delete with grace period 0 and this UID as precondition.
    PodDelete {
        /// Namespace.
        namespace: String,
        /// Name.
        name: String,
        /// UID.
        uid: String,
    },
    /// Record an event about a pod.
    Event {
        /// Namespace.
        namespace: String,
        /// Name of the pod.
        name: String,
        /// UID of the pod.
        uid: String,
        /// Node that reports it.
        node: String,
        /// Container it is about, possibly empty.
        container: String,
        /// Reason.
        reason: &'static str,
        /// Text.
        message: String,
    },
    /// Create or renew the Lease of a node.
    Lease {
        /// Name of the node.
        node: String,
        /// The whole object.
        object: Value,
    },
}

#[derive(Debug)]
struct NodeState {
    uid: String,
    ip: String,
    index: u32,
    next_ip: u32,
    lease_at: Nanos,
}

/// The machine.
#[derive(Debug, Default)]
pub struct Kubelet {
    options: Options,
    nodes: BTreeMap<String, NodeState>,
    nodes_seen: u32,
    pods: BTreeMap<Arc<str>, Run>,
    due: BTreeSet<(Nanos, Arc<str>)>,
    leases: BTreeSet<(Nanos, String)>,
}

impl Kubelet {
    /// A machine with no nodes and no pods.
    pub fn new(options: Options) -> Self {
        Self { options, ..Self::default() }
    }

    /// How many pods are followed at present.
    pub fn pods(&self) -> usize {
        self.pods.len()
    }

    /// A node was seen or changed.
    pub fn handle_node(&mut self, now: Nanos, name: &str, uid: &str, internal_ip: Option<&str>) {
        if let Some(node) = self.nodes.get_mut(name) {
            uid.clone_into(&mut node.uid);
            return;
        }
        let index = self.nodes_seen;
        self.nodes_seen = self.nodes_seen.saturating_add(1);
        let ip = internal_ip.map_or_else(|| nodes::internal_ip(index as usize), str::to_owned);
        // The first renewals are spread, so that a thousand nodes don't write in the same instant.
        let lease_at = now.saturating_add(i64::from(index % 100) * (nodes::LEASE_RENEW / 1000));
        let state = NodeState { uid: uid.to_owned(), ip, index, next_ip: 0, lease_at };
        self.nodes.insert(name.to_owned(), state);
        if self.options.leases {
            self.leases.insert((lease_at, name.to_owned()));
        }
    }

    /// A node is gone. Its pods stay as they are, as with a kubelet that has died.
    pub fn forget_node(&mut self, name: &str) {
        if let Some(node) = self.nodes.remove(name) {
            self.leases.remove(&(node.lease_at, name.to_owned()));
        }
    }

    /// Whether a node of this name is there.
    pub fn has_node(&self, name: &str) -> bool {
        self.nodes.contains_key(name)
    }

    /// A pod was seen or changed. Pods that are not bound to a known node are ignored.
    pub fn handle_pod(&mut self, now: Nanos, pod: PodView) {
        if pod.spec.node_name.is_empty() || pod.metadata.uid.is_empty() {
            return;
        }
        let ended = matches!(pod.status.phase.as_str(), "Succeeded" | "Failed");
        // Another client may end a pod: no pod leaves a terminal phase (kubelet's `generateAPIPodStatus`).
        if ended && self.pods.get(pod.metadata.uid.as_str()).is_some_and(|run| !run.is_finished()) {
            self.forget_pod(&pod.metadata.uid);
        }
        if let Some(run) = self.pods.get_mut(pod.metadata.uid.as_str()) {
            if run.observe(now, &pod, &self.options) {
                self.wake(now, &pod.metadata.uid);
            }
            return;
        }
        if ended && pod.metadata.deletion_timestamp.is_none() {
            return;
        }
        let Some(node) = self.nodes.get_mut(&pod.spec.node_name) else { return };
        let pod_ip = if pod.spec.host_network {
            node.ip.clone()
        } else if pod.status.pod_ip.is_empty() {
            node.next_ip = node.next_ip % 250 + 1;
            format!("10.{}.{}.{}", 64 + (node.index >> 8) % 64, node.index & 255, node.next_ip)
        } else {
            pod.status.pod_ip.clone()
        };
        let uid: Arc<str> = pod.metadata.uid.as_str().into();
        let run = Run::new(now, pod, node.ip.clone(), pod_ip, &self.options);
        self.pods.insert(uid.clone(), run);
        self.wake(now, &uid);
    }

    /// The pod of this UID is gone.
    pub fn forget_pod(&mut self, uid: &str) {
        if let Some((key, run)) = self.pods.remove_entry(uid)
            && let Some(at) = run.wake
        {
            self.due.remove(&(at, key));
        }
    }

    /// The last write about this pod was lost: it is made again at `at`.
    pub fn retry(&mut self, at: Nanos, uid: &str) {
        if let Some(run) = self.pods.get_mut(uid) {
            run.unwritten();
            self.wake(at, uid);
        }
    }

    fn wake(&mut self, at: Nanos, uid: &str) {
        let Some((key, _)) = self.pods.get_key_value(uid) else { return };
        let key = key.clone();
        let Some(run) = self.pods.get_mut(uid) else { return };
        if let Some(old) = run.wake {
            if old <= at {
                return;
            }
            self.due.remove(&(old, key.clone()));
        }
        run.wake = Some(at);
        self.due.insert((at, key));
    }

    /// Does everything that is due at `now`.
    pub fn step(&mut self, now: Nanos) -> Vec<Write> {
        let mut writes = Vec::new();
        while let Some((at, _)) = self.due.first()
            && *at <= now
        {
            let Some((_, uid)) = self.due.pop_first() else { break };
            let Some(run) = self.pods.get_mut(&uid) else { continue };
            run.wake = None;
            let next = run.advance(now, &self.options, &mut writes);
            status::report(run, now, &mut writes);
            if run.ended() {
                self.pods.remove(&uid);
            } else if let Some(next) = next {
                // Never before a later instant, or this loop would not end.
                self.wake(next.max(now.saturating_add(1)), &uid);
            }
        }
        while let Some((at, _)) = self.leases.first()
            && *at <= now
        {
            let Some((_, name)) = self.leases.pop_first() else { break };
            let Some(node) = self.nodes.get_mut(&name) else { continue };
            node.lease_at = now.saturating_add(nodes::LEASE_RENEW);
            writes.push(Write::Lease { node: name.clone(), object: nodes::lease(&name, &node.uid, now) });
            self.leases.insert((node.lease_at, name));
        }
        writes
    }

    /// When [`Kubelet::step`] has something to do without a new event.
    pub fn next_wake(&self) -> Option<Nanos> {
        let pod = self.due.first().map(|(at, _)| *at);
        let lease = self.leases.first().map(|(at, _)| *at);
        [pod, lease].into_iter().flatten().min()
    }
}

#[cfg(test)]
mod tests;
