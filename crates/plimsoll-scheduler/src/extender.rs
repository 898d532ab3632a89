//! HTTP extenders: their settings, what they are asked and what they answer (spec section 1.5).

use super::PodRef;
use plimsoll_state::time::Duration;

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
    /// `preemptVerb`; empty: it has no say in preemption.
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
