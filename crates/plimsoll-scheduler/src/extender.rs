//! HTTP extenders: their settings, what they are asked and what they answer (upstream `pkg/scheduler/extender.go`).

use super::PodRef;
use super::cluster::{Cluster, PodId};
use super::framework::{
    AssumedPod, BindResult, EXTENDERS, ExtensionPoint, Incoming, Plugin, Registration, RemoteCall,
};
use plimsoll_state::time::Duration;
use std::sync::Arc;

/// TLS settings of an extender. Data is base64 of PEM, as in the configuration file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ExtenderTls {
    /// Accept any certificate.
    pub insecure: bool,
    /// Name expected in the certificate; empty: the host of the URL.
    pub server_name: String,
    /// Files with the client's certificate, its key and the authority.
    pub files: [String; 3],
    /// The same as data; it goes before files.
    pub data: [String; 3],
}

/// An extender as configured.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Extender {
    /// `urlPrefix`.
    pub url_prefix: String,
    /// `filterVerb`; empty: it does not filter.
    pub filter_verb: String,
    /// `preemptVerb`; empty: it is not called for preemption.
    pub preempt_verb: String,
    /// `prioritizeVerb`; empty: it does not score.
    pub prioritize_verb: String,
    /// Factor of its scores.
    pub weight: i64,
    /// `bindVerb`; empty: it does not bind.
    pub bind_verb: String,
    /// `enableHTTPS`: without an authority, any certificate is accepted.
    pub enable_https: bool,
    /// `tlsConfig`.
    pub tls: ExtenderTls,
    /// `httpTimeout`, more than zero.
    pub timeout: Duration,
    /// Whether it knows the nodes and wants names only.
    pub node_cache_capable: bool,
    /// Resources it manages; none: it is interested in every pod.
    pub managed_resources: Vec<String>,
    /// Whether pods are scheduled without it when it fails.
    pub ignorable: bool,
}

/// A node and the pods that would be deleted on it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ExtenderVictims {
    /// Node.
    pub node: String,
    /// Victims; at least one.
    pub pods: Vec<PodRef>,
    /// Violated disruption budgets.
    pub violations: i64,
}

/// What an extender is asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ExtenderCall {
    /// Which of these nodes can run the pod?
    Filter(Vec<String>),
    /// How good are these nodes?
    Prioritize(Vec<String>),
    /// On which nodes may which pods be deleted?
    Preempt(Vec<ExtenderVictims>),
    /// Bind the pod to this node.
    Bind(String),
}

/// What an extender answers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ExtenderAnswer {
    /// Nodes that can run the pod, and why others can't.
    Filter {
        /// A subset of what was asked.
        nodes: Vec<String>,
        /// Nodes that can't, with messages.
        failed: Vec<(String, String)>,
        /// Nodes that can't even after deletions, with messages.
        unresolvable: Vec<(String, String)>,
    },
    /// Scores of nodes, 0 to 10.
    Prioritize(Vec<(String, i64)>),
    /// Node, UIDs of victims, violated budgets.
    Preempt(Vec<(String, Vec<String>, i64)>),
    /// The pod is bound.
    Bound,
}

/// How the extender of this number in the configuration is registered: in every profile, under the name of all extenders.
pub(crate) fn registration(number: usize, extender: &Extender) -> Registration {
    let extender = extender.clone();
    Registration::new(EXTENDERS, &[], move |_, _| Box::new(ExtenderPlugin::new(number, extender.clone())))
}

/// An extender as a plugin of every profile. Any event may make a pod schedulable that it rejected.
#[derive(Debug)]
struct ExtenderPlugin {
    number: usize,
    name: Arc<str>,
    extender: Extender,
}

impl ExtenderPlugin {
    /// The extender of this number in the configuration.
    fn new(number: usize, extender: Extender) -> Self {
        Self { number, name: extender.url_prefix.as_str().into(), extender }
    }

    /// Whether it wants to see a pod (upstream `IsInterested`).
    fn is_interested(&self, cluster: &Cluster, pod: PodId) -> bool {
        let managed = &self.extender.managed_resources;
        let scalars = &cluster.shape(pod).spec.usage.requests.scalars;
        managed.is_empty()
            || scalars.iter().any(|(name, _)| {
                let name = cluster.strings.text(*name);
                managed.iter().any(|m| m == name)
            })
    }

    fn verb(&self, point: ExtensionPoint) -> &str {
        match point {
            ExtensionPoint::Filter => &self.extender.filter_verb,
            ExtensionPoint::Score => &self.extender.prioritize_verb,
            ExtensionPoint::PostFilter => &self.extender.preempt_verb,
            ExtensionPoint::Bind => &self.extender.bind_verb,
            ExtensionPoint::PreEnqueue
            | ExtensionPoint::QueueSort
            | ExtensionPoint::PreFilter
            | ExtensionPoint::PreScore
            | ExtensionPoint::Reserve
            | ExtensionPoint::Permit
            | ExtensionPoint::PreBind
            | ExtensionPoint::PostBind
            | ExtensionPoint::PlacementGenerate
            | ExtensionPoint::PlacementScore => "",
        }
    }
}

impl Plugin for ExtenderPlugin {
    fn is_local(&self, _cluster: &Cluster, _pod: &Incoming) -> bool {
        // Pods that extenders filter or score have a cycle of their own.
        true
    }

    fn remote(&self, point: ExtensionPoint, cluster: &Cluster, pod: PodId) -> Option<RemoteCall> {
        if self.verb(point).is_empty() || !self.is_interested(cluster, pod) {
            return None;
        }
        Some(RemoteCall {
            extender: self.number,
            name: Arc::clone(&self.name),
            timeout: self.extender.timeout,
            ignorable: self.extender.ignorable,
            weight: self.extender.weight,
        })
    }

    fn bind(&self, pod: &AssumedPod<'_>) -> BindResult {
        let call = self.remote(ExtensionPoint::Bind, pod.cluster, pod.pod);
        call.map_or(BindResult::Skip, BindResult::Remote)
    }
}
